//! `tidegate inspect`: identifies a file by its content, with its geometry and the next command.
//!
//! Each format is decoded by the crate that owns it. Errors of other commands about a file that they do not understand
//! use the same identification ([`not_understood`]).

mod content;
mod flash;
mod foreign;
mod identity;
mod outputs;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use clap::Args;

use self::identity::Identity;
pub use self::identity::Kind;
use crate::Finding;
use crate::output::print_line;

/// Arguments of `tidegate inspect`.
#[derive(Args, Debug)]
#[command(
    after_help = "Recognised are NAND dumps with and without OOB, UBI images, UBIFS volumes, partition tables, \
                  ext2/3/4 and FAT, traces of block requests and of system calls, jobs of tidegate and fio, eMMC \
                  cards and stores, run records, the history, side-cars and reports. Nothing is written.\n\
                  Exit codes: 0 recognised, 1 not recognised, 2 could not be read."
)]
pub struct InspectArguments {
    /// The file, folder or device
    pub file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(arguments: &InspectArguments) -> Result<Finding> {
    let file = &arguments.file;
    let identity = identify(file)?;
    let text = match arguments.json {
        true => identity.as_json(file).to_string(),
        false => identity.as_text(file),
    };
    print_line(&text)?;
    Ok(match identity.kind {
        Kind::Foreign | Kind::Erased | Kind::Empty | Kind::Unknown => Finding::Something,
        _ => Finding::Nothing,
    })
}

/// Identifies a file, a folder or a device.
pub fn identify(path: &Path) -> Result<Identity> {
    let metadata = std::fs::metadata(path).with_context(|| format!("{} can't be read", path.display()))?;
    if metadata.is_dir() {
        return Ok(content::folder(path));
    }
    if let Some(identity) = flash::mtd(path)? {
        return Ok(identity);
    }
    if let Some(what) = foreign::special_file(&metadata) {
        return Ok(Identity::new(Kind::Foreign, what));
    }
    let head = content::Head::read(path)?;
    if head.file_bytes == 0 {
        return Ok(Identity::new(Kind::Empty, "an empty file"));
    }
    let foreign = foreign::by_magic(&head.bytes);
    let identity = match flash::image(path, &head)? {
        Some(identity) => Some(identity),
        None => content::medium(path)
            .or_else(|| match foreign {
                Some(_) => None,
                None => content::text(path, &head),
            })
            .or_else(|| outputs::identify(path, &head)),
    };
    if let Some(identity) = identity {
        return Ok(identity.with_bytes(head.file_bytes));
    }
    let found = flash::search(path)?;
    let identity = match (found, foreign) {
        (flash::Searched::Found(identity), _) => *identity,
        (_, Some(what)) => Identity::new(Kind::Foreign, what),
        (flash::Searched::Erased, None) => Identity::new(Kind::Erased, "erased flash: every byte is 0xff"),
        (flash::Searched::Nothing, None) => Identity::new(Kind::Unknown, "not a format that is known here"),
    };
    Ok(identity.with_bytes(head.file_bytes))
}

/// The error of a command that needs `expected`, such as "a UBI image": the file's own kind and its command where it is
/// something else, the command's own error otherwise.
pub fn not_understood(path: &Path, expected: &str, accepted: &[Kind], error: anyhow::Error) -> anyhow::Error {
    let Ok(mut identity) = identify(path) else {
        return error;
    };
    if accepted == FOLDERS && matches!(identity.kind, Kind::Ubi | Kind::Ubifs) {
        let mounts = |next: String| next.replace("ubifs ls", "ubifs mount") + " MOUNTPOINT";
        identity.next = identity.next.map(mounts);
    }
    if accepted.contains(&identity.kind) || identity.kind == Kind::Unknown {
        return error;
    }
    anyhow!("{}: {}", path.display(), identity.mismatch(path, expected))
}

/// Kinds of chips. An erased dump is one without a geometry.
pub const FLASH: [Kind; 3] = [Kind::Ubi, Kind::Nand, Kind::Erased];

/// Kinds that a reader of block traces accepts.
pub const BLOCK_TRACES: [Kind; 1] = [Kind::BlockTrace];

/// Kinds that `tidegate replay` accepts.
pub const TRACES: [Kind; 2] = [Kind::BlockTrace, Kind::CallTrace];

/// Kinds that `tidegate bench run` accepts.
pub const JOBS: [Kind; 2] = [Kind::Job, Kind::FioJob];

/// Kinds that `tidegate bench compare` and `bench show` accept.
pub const RECORDS: [Kind; 1] = [Kind::Records];

/// Kinds with a map of owners.
pub const MEDIA: [Kind; 2] = [Kind::FileSystem, Kind::Disk];

/// Kinds that `tidegate mount` shows.
pub const FOLDERS: [Kind; 1] = [Kind::Folder];
