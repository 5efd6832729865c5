//! `tidegate trace map`: shows the owners of the blocks of an image, a device or a mounted file system.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use fsmap::{
    Class, Content, FileKind, Flush, JournalDetail, Life, OpenError, Options, OwnerMap, Piece, SECTOR_BYTES,
};
use results::shown;
use serde_json::{Map, Value, json};

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
    #[arg(value_name = "SECTOR|RANGE", value_parser = parse_sectors)]
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

/// A range of sectors of 512 bytes to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sectors {
    first: u64,
    count: u64,
}

impl Sectors {
    fn bytes(self) -> Range<u64> {
        let start = self.first.saturating_mul(SECTOR_BYTES);
        start..start.saturating_add(self.count.saturating_mul(SECTOR_BYTES))
    }
}

fn parse_sectors(text: &str) -> Result<Sectors, String> {
    let wrong = || format!("`{text}` is no sector; write for example 2048, 2048-2055 or 2048+8");
    let number = |word: &str| word.parse::<u64>().map_err(|_| wrong());
    let (first, count) = if let Some((first, last)) = text.split_once('-') {
        let (first, last) = (number(first)?, number(last)?);
        (
            first,
            last.checked_sub(first)
                .and_then(|count| count.checked_add(1))
                .ok_or_else(wrong)?,
        )
    } else if let Some((first, count)) = text.split_once('+') {
        (number(first)?, number(count)?)
    } else {
        (number(text)?, 1)
    };
    if count == 0 || first.checked_add(count).is_none() {
        return Err(wrong());
    }
    Ok(Sectors { first, count })
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

/// Columns of the listing as text.
const HEADER: &str = "sectors of 512 bytes type                       owner: inode, byte in the file, path";

/// The pieces of a file. Its path counts from the root of its file system, with or without a slash.
fn pieces_of(map: &OwnerMap, path: &Path) -> Vec<Piece> {
    let bytes = path.as_os_str().as_bytes();
    let wanted = bytes.strip_prefix(b"/").unwrap_or(bytes);
    let is_wanted = |piece: &Piece| {
        let file = piece.file.and_then(|id| map.file(id));
        file.is_some_and(|file| {
            file.paths()
                .any(|path| path.bytes.strip_prefix(b"/").unwrap_or(&path.bytes) == wanted)
        })
    };
    map.all().filter(is_wanted).collect()
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

/// Bytes as sectors; parts of a sector are marked as such.
fn sectors_of(piece: &Piece) -> String {
    let end = piece.start + piece.length;
    if piece.start.is_multiple_of(SECTOR_BYTES) && end.is_multiple_of(SECTOR_BYTES) {
        format!("{}+{}", piece.start / SECTOR_BYTES, piece.length / SECTOR_BYTES)
    } else {
        format!("bytes {}+{}", piece.start, piece.length)
    }
}

fn as_text(map: &OwnerMap, piece: &Piece) -> String {
    let mut line = format!("{:<20} {:<26}", sectors_of(piece), piece.kind.as_str());
    if let Some(file) = piece.file.and_then(|id| map.file(id)) {
        line.push_str(&format!(
            " inode {} generation {}",
            file.inode(),
            file.generation()
        ));
        if let Some(offset) = piece.file_offset {
            line.push_str(&format!(" at {offset}"));
        }
        if let Some(path) = file.paths().next() {
            line.push_str(&format!(" {}", shown::name(&path.bytes)));
        }
        if file.name_count() > 1 {
            line.push_str(&format!(" (and {} more names)", file.name_count() - 1));
        }
        if file.life() == Life::Orphan {
            line.push_str(" (removed while open)");
        }
    } else if let Some((first, last)) = map.inodes_in(piece) {
        line.push_str(&format!(" inodes {first} to {last}"));
    }
    if let Some((home, transaction)) = map.home_of(piece) {
        line.push_str(&format!(
            " copy of sector {}, transaction {transaction}",
            home / SECTOR_BYTES
        ));
    }
    match piece.content {
        Content::Written => {}
        Content::Unwritten => line.push_str(" unwritten"),
        Content::Encoded => line.push_str(" encoded"),
    }
    if piece.contested {
        for other in map.others(piece.start..piece.start + piece.length) {
            let inode = other.file.and_then(|id| map.file(id)).map(|file| file.inode());
            let owner = inode.map_or_else(|| other.kind.to_string(), |inode| format!("inode {inode}"));
            line.push_str(&format!(", also {owner}"));
        }
    }
    if piece.doubtful {
        line.push_str(" (doubtful)");
    }
    line.trim_end().to_owned()
}

fn as_json(map: &OwnerMap, piece: &Piece) -> Value {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| {
        object.insert(key.to_owned(), value);
    };
    put("start_bytes", json!(piece.start));
    put("length_bytes", json!(piece.length));
    put("type", json!(piece.kind.as_str()));
    put("class", json!(piece.kind.class().as_str()));
    if let Some(volume) = piece.volume {
        put("volume", json!(volume));
    }
    if let Some(file) = piece.file.and_then(|id| map.file(id)) {
        put("inode", json!(file.inode()));
        put("generation", json!(file.generation()));
        put("file_kind", json!(file.kind().as_str()));
        if file.kind() != FileKind::System {
            let names: Vec<String> = file
                .paths()
                .map(|path| shown::from_bytes(&path.bytes).into_owned())
                .collect();
            put("paths", json!(names));
        }
        if file.life() != Life::Alive {
            put("deleted", json!(true));
        }
    }
    if let Some(offset) = piece.file_offset {
        put("file_offset_bytes", json!(offset));
    }
    if piece.kind.class() == Class::Metadata
        && let Some((first, last)) = map.inodes_in(piece)
    {
        put("inodes", json!([first, last]));
    }
    if let Some((home, transaction)) = map.home_of(piece) {
        put("home_start_bytes", json!(home));
        put("transaction", json!(transaction));
    }
    match piece.content {
        Content::Written => {}
        Content::Unwritten => put("unwritten", json!(true)),
        Content::Encoded => put("encoded", json!(true)),
    }
    if piece.contested {
        put("contested", json!(true));
    }
    if piece.doubtful {
        put("doubtful", json!(true));
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_are_numbers_and_ranges() {
        assert_eq!(parse_sectors("7"), Ok(Sectors { first: 7, count: 1 }));
        assert_eq!(parse_sectors("7-8"), Ok(Sectors { first: 7, count: 2 }));
        assert_eq!(parse_sectors("7+8"), Ok(Sectors { first: 7, count: 8 }));
        for text in ["", "x", "8-7", "7+0", "-1", "18446744073709551615+2"] {
            let message = parse_sectors(text).expect_err(text);
            assert!(message.contains("2048+8"), "{message}");
        }
    }
}
