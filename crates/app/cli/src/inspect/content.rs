//! Everything but raw flash: folders, file systems of disks, eMMC stores, traces, jobs and run records.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result};
use emmc::card::CardFile;
use emmc::host::HostFile;
use formats::calls;
use formats::native::{self, StoredHeader};
use fsmap::FileSystemKind;
use jobs::Job;
use live::{Description, KeptCard, KeptError};
use results::RunRecord;
use results::words::counted;
use serde_json::json;

use super::foreign;
use super::identity::{Identity, Kind, Part};
use crate::bench_command::job::steps::vocabulary;
use crate::quantity::show_bytes;

/// A job or a description is a text of at most this size.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// The beginning of a file.
pub struct Head {
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// Size of the file or device.
    pub file_bytes: u64,
}

impl Head {
    /// Reads it.
    pub fn read(path: &Path) -> Result<Self> {
        let read = || {
            let mut file = File::open(path)?;
            let file_bytes = file.seek(SeekFrom::End(0))?;
            file.seek(SeekFrom::Start(0))?;
            let mut bytes = Vec::new();
            file.take(foreign::HEAD_BYTES).read_to_end(&mut bytes)?;
            Ok::<_, std::io::Error>(Self { bytes, file_bytes })
        };
        read().with_context(|| format!("{} can't be read", path.display()))
    }
}

/// A folder: a native trace, or one to mount and measure.
pub fn folder(path: &Path) -> Identity {
    if native::is_native(path) {
        return native_trace(path);
    }
    Identity::new(Kind::Folder, "a folder").then("tidegate mount FILE MOUNTPOINT")
}

fn native_trace(path: &Path) -> Identity {
    let mut identity = Identity::new(Kind::BlockTrace, "a trace of block requests (native)")
        .then("tidegate trace info FILE");
    match StoredHeader::of(path) {
        Ok(stored) => {
            let requests = usize::try_from(stored.counts.requests).unwrap_or(usize::MAX);
            let text = format!(
                "{}, {} events",
                counted(requests, "request"),
                stored.counts.events
            );
            let value = json!({"requests": stored.counts.requests, "events": stored.counts.events});
            identity.parts.push(Part { text, value });
            if !stored.header.complete {
                identity.unusual.push("its recording was interrupted".to_owned());
            }
        }
        Err(error) => identity.unusual.push(error.to_string()),
    }
    identity
}

/// A file system, a partition table, or the store of an eMMC card, which may hold either.
pub fn medium(path: &Path) -> Option<Identity> {
    let store = Description::beside(path);
    let probed = fsmap::probe(path).unwrap_or_default();
    let mut identity = match (&store, probed.first()) {
        (Ok(None), None) => return None,
        (Ok(None), Some(first)) => {
            let kind = match first.kind {
                FileSystemKind::Disk => Kind::Disk,
                _ => Kind::FileSystem,
            };
            let article = match first.description.starts_with("ext") {
                true => "an",
                false => "a",
            };
            let description = format!("{article} {}", first.description);
            Identity::new(kind, description).then("tidegate trace map --summary FILE")
        }
        _ => Identity::new(Kind::EmmcStore, "the store of an eMMC card")
            .then("tidegate emmc attach --store FILE"),
    };
    if let Err(error) = store {
        identity.unusual.push(error.to_string());
    }
    let is_store = identity.kind == Kind::EmmcStore;
    for (number, part) in probed.iter().enumerate() {
        identity.unusual.extend(part.problems.iter().cloned());
        if number > 0 || is_store {
            let text = format!(
                "{}, {} from byte {}",
                part.description,
                show_bytes(part.length),
                part.base
            );
            let value = json!({
                "file_system": part.kind.as_str(),
                "description": part.description,
                "offset_bytes": part.base,
                "bytes": part.length,
            });
            identity.parts.push(Part { text, value });
        }
    }
    Some(identity)
}

/// Texts and traces.
pub fn text(path: &Path, head: &Head) -> Option<Identity> {
    if native::is_native(path) {
        return Some(native_trace(path));
    }
    if !matches!(KeptCard::decode(&head.bytes), Err(KeptError::Foreign)) {
        let text =
            "the maps of an eMMC card's store, whose data is in the file of the same name without .maps";
        return Some(Identity::new(Kind::EmmcStore, text));
    }
    let whole = (head.file_bytes <= TEXT_BYTES_MAX)
        .then(|| std::fs::read_to_string(path).ok())
        .flatten();
    records(head)
        .or_else(|| whole.as_deref().and_then(|text| document(path, text)))
        .or_else(|| trace(path, head))
}

fn records(head: &Head) -> Option<Identity> {
    let first = head.bytes.split(|byte| *byte == b'\n').next()?;
    let record: RunRecord = serde_json::from_slice(first).ok()?;
    let description = format!("run records, the first one of `{}`", record.label);
    Some(Identity::new(Kind::Records, description).then("tidegate bench show FILE"))
}

/// A text that is read as a whole: a job or the description of a card.
fn document(path: &Path, text: &str) -> Option<Identity> {
    let name = path.display().to_string();
    if CardFile::parse(&name, text).is_ok() {
        let identity = Identity::new(Kind::EmmcCard, "the description of an eMMC card");
        return Some(identity.then("tidegate emmc run --card FILE"));
    }
    if HostFile::parse(&name, text).is_ok() {
        let identity = Identity::new(Kind::EmmcCard, "the description of an eMMC host");
        return Some(identity.then("tidegate emmc run --host FILE"));
    }
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    if lines.clone().any(|line| line == "[[step]]") {
        return Some(match Job::parse(&name, text, &vocabulary()) {
            Ok(job) => {
                let description = format!("a job of {} in TOML", counted(job.steps.len(), "step"));
                Identity::new(Kind::Job, description).then("tidegate bench run FILE DIR")
            }
            Err(error) => Identity {
                unusual: vec![error.to_string()],
                ..Identity::new(Kind::Job, "a job in TOML, with a mistake")
                    .then("tidegate bench job --check FILE")
            },
        });
    }
    let is_section = |line: &str| line.starts_with('[') && line.ends_with(']');
    let has_section = lines.next().is_some_and(is_section);
    if !has_section || !FIO_KEYS.iter().any(|key| text.contains(key)) {
        return None;
    }
    let identity = Identity::new(Kind::FioJob, "a fio job").then("tidegate bench run FILE DIR");
    Some(match fio::import(&name, text) {
        Ok(_) => identity,
        Err(error) => Identity {
            unusual: vec![error.to_string()],
            ..identity
        },
    })
}

/// One of these is in every fio job that moves data.
const FIO_KEYS: [&str; 4] = ["rw=", "readwrite=", "ioengine=", "read_iolog="];

fn trace(path: &Path, head: &Head) -> Option<Identity> {
    let of_calls = |name: &str| {
        let description = format!("a trace of system calls ({name})");
        Identity::new(Kind::CallTrace, description).then("tidegate replay FILE DIR")
    };
    use calls::Format::{Calls, Mobigen, Strace};
    if let Some(format @ (Calls | Mobigen | Strace)) = calls::detect(&head.bytes) {
        return Some(of_calls(&format.to_string()));
    }
    // The files of one trace, one per processor, are named by their common prefix.
    let format = formats::import::detect(&head.bytes)?;
    let description = format!("a trace of block requests ({format})");
    let name = match path.to_string_lossy().contains(".blktrace.") {
        true => "of one processor; the others are read with it",
        false => "of another tool",
    };
    let mut identity = Identity::new(Kind::BlockTrace, description).then("tidegate trace info FILE");
    identity.parts.push(Part {
        text: format!("requests {name}"),
        value: json!({"format": format.word()}),
    });
    Some(identity)
}
