//! The owner map as a listing: one line of text or one JSON object per piece, and sectors as words.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;

use results::shown;
use serde_json::{Map, Value, json};

use crate::{Class, Content, FileKind, Life, OwnerMap, Piece, SECTOR_BYTES};

/// Title of the lines of [`as_text`].
pub const HEADER: &str =
    "sectors of 512 bytes type                       owner: inode, byte in the file, path";

/// A range of sectors of 512 bytes to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sectors {
    first: u64,
    count: u64,
}

impl Sectors {
    /// The bytes of the range.
    #[must_use]
    pub fn bytes(self) -> Range<u64> {
        let start = self.first.saturating_mul(SECTOR_BYTES);
        start..start.saturating_add(self.count.saturating_mul(SECTOR_BYTES))
    }
}

impl FromStr for Sectors {
    type Err = String;

    /// Parses a number, `FIRST-LAST` or `FIRST+COUNT`.
    fn from_str(text: &str) -> Result<Self, String> {
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
        Ok(Self { first, count })
    }
}

/// The pieces of a file. Its path counts from the root of its file system, with or without a slash.
#[must_use]
pub fn pieces_of(map: &OwnerMap, path: &Path) -> Vec<Piece> {
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

/// Bytes as sectors; parts of a sector are marked as such.
fn sectors_of(piece: &Piece) -> String {
    let end = piece.start + piece.length;
    if piece.start.is_multiple_of(SECTOR_BYTES) && end.is_multiple_of(SECTOR_BYTES) {
        format!("{}+{}", piece.start / SECTOR_BYTES, piece.length / SECTOR_BYTES)
    } else {
        format!("bytes {}+{}", piece.start, piece.length)
    }
}

/// A piece as a line of text.
#[must_use]
pub fn as_text(map: &OwnerMap, piece: &Piece) -> String {
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

/// A piece as a JSON object.
#[must_use]
pub fn as_json(map: &OwnerMap, piece: &Piece) -> Value {
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

    fn parse(text: &str) -> Result<Sectors, String> {
        text.parse()
    }

    #[test]
    fn sectors_are_numbers_and_ranges() {
        assert_eq!(parse("7"), Ok(Sectors { first: 7, count: 1 }));
        assert_eq!(parse("7-8"), Ok(Sectors { first: 7, count: 2 }));
        assert_eq!(parse("7+8"), Ok(Sectors { first: 7, count: 8 }));
        for text in ["", "x", "8-7", "7+0", "-1", "18446744073709551615+2"] {
            let message = parse(text).expect_err(text);
            assert!(message.contains("2048+8"), "{message}");
        }
    }
}
