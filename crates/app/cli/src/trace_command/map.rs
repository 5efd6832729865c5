//! `tidegate trace map`: shows the owners of the blocks of an image, a device or a mounted file system.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use fsmap::listing::{HEADER, Sectors, as_json, as_text, pieces_of};
use fsmap::{Flush, JournalDetail, OpenError, Options, OwnerMap, Piece};
use results::shown;
use serde_json::json;

use crate::Finding;
use crate::inspect::{MEDIA, not_understood};
use crate::output::{self, Printed};
use crate::quantity::{parse_bytes, show_bytes};

/// Maximum number of findings that are printed; the rest is counted.
const SHOWN_MAX: usize = 100;

/// Arguments of `tidegate trace map`.
#[derive(Args, Debug)]
#[command(
    after_help = "Sectors are 512 bytes, as in block traces, and count from the start of IMAGE, DEVICE or the \
                  device that is mounted; a range is FIRST-LAST or FIRST+COUNT. Without a range all of it is \
                  listed. Reads ext2, ext3, ext4 by their own structures, and any mounted file system that \
                  answers FIEMAP.\n\
                  Exit codes: 0 done, 1 the file system is damaged (see the messages), 2 it can't be mapped."
)]
pub struct TraceMapArguments {
    /// An image, a block device, or a mount point
    #[arg(value_name = "IMAGE|DEVICE|MOUNTPOINT")]
    pub target: PathBuf,
    /// Sectors to look up: a number, FIRST-LAST or FIRST+COUNT [default: all]
    #[arg(value_name = "SECTOR|RANGE")]
    pub sectors: Vec<Sectors>,
    /// List only the sectors of this file, by its path in the file system or below the mountpoint
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sectors", "summary"])]
    pub file: Option<PathBuf>,
    /// Print JSON lines: one object per extent, or per block type with --summary
    #[arg(long)]
    pub json: bool,
    /// First byte of the file system in the image [default: from the partition table]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub offset: Option<u64>,
    /// Print the total size of each block type instead of the extents
    #[arg(long)]
    pub summary: bool,
    /// Read the whole journal: which of its blocks are descriptors, commits or copies, and of which blocks
    #[arg(long)]
    pub journal: bool,
    /// On a mounted file system, write delayed allocations first, so that they have an address
    #[arg(long)]
    pub flush: bool,
}

/// Runs the command.
pub fn run(arguments: &TraceMapArguments) -> Result<Finding> {
    let options = Options {
        offset: arguments.offset,
        journal: if arguments.journal {
            JournalDetail::Blocks
        } else {
            JournalDetail::Areas
        },
        flush: if arguments.flush { Flush::Yes } else { Flush::No },
    };
    let map = OwnerMap::open(&arguments.target, &options).map_err(|error| match error {
        OpenError::Unsupported { .. } => {
            let expected = "a file system with a map";
            let error = anyhow::Error::new(error).context("there is no map");
            not_understood(&arguments.target, expected, &MEDIA, error)
        }
        error => anyhow::Error::new(error).context("there is no map"),
    })?;
    report(&map);
    if !arguments.summary && !arguments.json {
        output::print_line(HEADER)?;
    }
    if arguments.summary {
        summary(&map, arguments.json)?;
    } else if let Some(path) = &arguments.file {
        let pieces = pieces_of(&map, path);
        if pieces.is_empty() {
            bail!(
                "{}: it has no file {} with blocks",
                arguments.target.display(),
                path.display()
            );
        }
        print_pieces(&map, pieces.into_iter(), arguments.json)?;
    } else if arguments.sectors.is_empty() {
        print_pieces(&map, map.all(), arguments.json)?;
    } else {
        for sectors in &arguments.sectors {
            if print_pieces(&map, map.pieces(sectors.bytes()), arguments.json)? == Printed::Closed {
                break;
            }
        }
    }
    Ok(if map.is_sound() {
        Finding::Nothing
    } else {
        Finding::Something
    })
}

/// Prints a summary of the map and its findings to standard error.
fn report(map: &OwnerMap) {
    for volume in map.volumes() {
        let findings = volume.findings();
        for note in findings.notes() {
            output::print_error(note);
        }
        for finding in findings.list().iter().take(SHOWN_MAX) {
            output::print_error(&format!("{} ({})", finding, finding.kind.as_str()));
        }
        let shown = u64::try_from(findings.list().len().min(SHOWN_MAX)).unwrap_or(u64::MAX);
        if findings.total() > shown {
            output::print_error(&format!("{} findings more", findings.total() - shown));
        }
    }
}

fn summary(map: &OwnerMap, json: bool) -> Result<Printed> {
    let mut printed = Printed::Done;
    for (number, volume) in map.volumes().iter().enumerate() {
        if !json {
            let place = format!(
                "{}, from byte {}",
                shown::line(volume.description()),
                volume.base()
            );
            let files = volume.file_count();
            printed = output::print_line(&format!("{place}, {files} files"))?;
        }
        for total in volume.totals() {
            let text = if json {
                json!({
                    "volume": number,
                    "file_system": volume.kind().as_str(),
                    "type": total.kind.as_str(),
                    "class": total.kind.class().as_str(),
                    "bytes": total.bytes,
                    "ranges": total.ranges,
                })
                .to_string()
            } else {
                let kind = total.kind.as_str();
                format!(
                    "  {kind:<26} {:>14}  in {} ranges",
                    show_bytes(total.bytes),
                    total.ranges
                )
            };
            printed = output::print_line(&text)?;
        }
    }
    Ok(printed)
}

fn print_pieces(map: &OwnerMap, pieces: impl Iterator<Item = Piece>, json: bool) -> Result<Printed> {
    let mut text = String::new();
    for piece in pieces {
        let line = if json {
            as_json(map, &piece).to_string()
        } else {
            as_text(map, &piece)
        };
        text.push_str(&line);
        text.push('\n');
        if text.len() > 1 << 16 {
            if output::print_text(&text)? == Printed::Closed {
                return Ok(Printed::Closed);
            }
            text.clear();
        }
    }
    output::print_text(&text)
}
