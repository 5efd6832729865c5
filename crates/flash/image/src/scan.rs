//! One pass over a dump that finds all EC headers and UBIFS superblocks with right CRCs, at any byte.

use memchr::memmem::Finder;
use ubi::format::{Decoded, EcHeader, HEADER_BYTES};
use ubifs::format::{NodeKind, Superblock, check, check_expected};

use crate::dump::Dump;
use crate::parallel::in_parallel;

/// An EC header in a dump.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    /// Offset, bytes.
    pub at: u64,
    pub header: EcHeader,
}

/// Headers found in a dump, ascending.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub hits: Vec<Hit>,
    pub superblocks: Vec<(u64, Superblock)>,
    /// Offset from which on headers were dropped because there were too many.
    pub dropped_from: Option<u64>,
}

/// More blocks than any chip has. Bounds memory on hostile dumps.
const HITS_MAX: usize = 1 << 20;
/// Maximum number of superblocks outside of UBI.
const SUPERBLOCKS_MAX: usize = 1 << 12;

/// Bytes that are read at once.
const STEP_BYTES: usize = 1 << 20;
/// Bytes behind a step in which a header that begins in it may end: a superblock has 4096.
const OVERLAP_BYTES: usize = 4096;
/// 0x06101831, little-endian: the first bytes of each UBIFS node.
const UBIFS_MAGIC: [u8; 4] = 0x0610_1831_u32.to_le_bytes();
/// Offset and number of a superblock in the type field of a node.
const NODE_KIND: (usize, u8) = (20, 6);

/// Bytes that a thread searches at once.
const PART_BYTES: u64 = 8 << 20;
/// Parts between two calls of `progress`.
const PARTS: usize = 8;

/// Finds all headers, by all threads that may read the dump. `progress` gets the number of bytes done.
pub(crate) fn scan(dump: &Dump, progress: &mut dyn FnMut(u64)) -> Found {
    let mut found = Found::default();
    let mut at = 0;
    while at < dump.bytes() {
        let starts = (0..).map(|part: u64| at + part * PART_BYTES);
        let starts: Vec<u64> = starts
            .take(PARTS)
            .take_while(|start| *start < dump.bytes())
            .collect();
        for part in in_parallel(dump.threads(), &starts, &|start| {
            scan_part(dump, *start, *start + PART_BYTES)
        }) {
            found.join(part);
        }
        at = starts.last().map_or(at, |last| *last) + PART_BYTES;
        progress(at.min(dump.bytes()));
    }
    found
}

impl Found {
    /// Adds what was found behind this.
    fn join(&mut self, behind: Self) {
        let room = HITS_MAX.saturating_sub(self.hits.len());
        let dropped = behind.hits.get(room).map(|hit| hit.at);
        self.dropped_from = self.dropped_from.or(dropped).or(behind.dropped_from);
        self.hits.extend(behind.hits.into_iter().take(room));
        let room = SUPERBLOCKS_MAX.saturating_sub(self.superblocks.len());
        self.superblocks.extend(behind.superblocks.into_iter().take(room));
    }
}

/// Finds the headers that begin from `at` to `end`.
fn scan_part(dump: &Dump, mut at: u64, end: u64) -> Found {
    let (ec, ubifs) = (Finder::new(b"UBI#"), Finder::new(&UBIFS_MAGIC));
    let mut found = Found::default();
    let mut buffer = vec![0; STEP_BYTES + OVERLAP_BYTES];
    while at < dump.bytes().min(end) {
        dump.read(i64::try_from(at).unwrap_or(i64::MAX), &mut buffer);
        let place = |offset: usize| at + u64::try_from(offset).unwrap_or(u64::MAX);
        let is_inside = |offset: &usize| *offset < STEP_BYTES;
        for offset in ec.find_iter(&buffer).take_while(is_inside) {
            let raw = buffer[offset..].first_chunk::<HEADER_BYTES>();
            let Some(Decoded::Header(header)) = raw.map(EcHeader::decode) else {
                continue;
            };
            if found.hits.len() == HITS_MAX {
                found.dropped_from.get_or_insert(place(offset));
                break;
            }
            found.hits.push(Hit {
                at: place(offset),
                header,
            });
        }
        for offset in ubifs.find_iter(&buffer).take_while(is_inside) {
            if found.superblocks.len() < SUPERBLOCKS_MAX
                && let Some(superblock) = superblock(&buffer[offset..])
            {
                found.superblocks.push((place(offset), superblock));
            }
        }
        at = place(STEP_BYTES);
    }
    found
}

/// The UBIFS superblock at the beginning of these bytes.
pub(crate) fn superblock(raw: &[u8]) -> Option<Superblock> {
    let raw = raw.get(..Superblock::BYTES)?;
    let is_one = raw[NODE_KIND.0] == NODE_KIND.1 && check_expected(raw, NodeKind::Superblock, 4096).is_ok();
    is_one.then(|| Superblock::decode(raw).ok()).flatten()
}

/// Largest data node, bytes: its fields, and a block that does not get smaller by compression.
const DATA_NODE_BYTES_MAX: usize = DATA_FIELDS_BYTES + 4096;
/// Bytes of a data node in front of its content.
const DATA_FIELDS_BYTES: usize = 48;
/// Data nodes around one place that are tried. Bounds the time on hostile dumps.
const NODES_TRIED: usize = 4;

/// Whether the byte at `at` is content of a file of a UBIFS: it lies in a data node with a right CRC.
pub(crate) fn is_content(dump: &Dump, at: u64) -> bool {
    let Some(start) = i64::try_from(at)
        .ok()
        .and_then(|at| at.checked_sub(i64::try_from(DATA_NODE_BYTES_MAX).ok()?))
    else {
        return false;
    };
    let mut raw = vec![0; 2 * DATA_NODE_BYTES_MAX];
    // With OOB areas a node does not lie in one piece: there is nothing to correct.
    dump.read_raw(start, &mut raw);
    let magic = Finder::new(&UBIFS_MAGIC);
    let nodes = magic.find_iter(&raw[..DATA_NODE_BYTES_MAX]).filter(|offset| {
        let length = raw[offset + 16..].first_chunk().copied().map(u32::from_le_bytes);
        let length = length.and_then(|length| usize::try_from(length).ok());
        let covers = |length: usize| length <= DATA_NODE_BYTES_MAX && offset + length > DATA_NODE_BYTES_MAX;
        raw[offset + NODE_KIND.0] == NodeKind::Data.number()
            && offset + DATA_FIELDS_BYTES <= DATA_NODE_BYTES_MAX
            && length.is_some_and(covers)
    });
    let mut nodes = nodes.take(NODES_TRIED);
    nodes.any(|offset| check(&raw[offset..]).is_ok_and(|header| header.kind == NodeKind::Data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_found_at_any_byte_and_across_steps() {
        let header = EcHeader {
            erase_counter: 1,
            vid_header_offset: 512,
            data_offset: 2048,
            image_sequence: 7,
        };
        let mut content = vec![0x11; 3 << 20];
        let places = [
            0,
            1001,
            STEP_BYTES - 1,
            STEP_BYTES + 64,
            2 * STEP_BYTES - 63,
            (3 << 20) - 64,
        ];
        for at in places {
            content[at..at + HEADER_BYTES].copy_from_slice(&header.encode());
        }
        content[5000..5004].copy_from_slice(b"UBI#");
        content[6000..6004].copy_from_slice(&UBIFS_MAGIC);
        let dump = Dump::spool("dump", &content[..]).unwrap();
        let mut done = 0;
        let found = scan(&dump, &mut |bytes| done = bytes);
        let hits: Vec<u64> = found.hits.iter().map(|hit| hit.at).collect();
        assert_eq!(hits, places.map(|at| u64::try_from(at).unwrap()));
        assert!(found.superblocks.is_empty());
        assert_eq!(done, 3 << 20);
    }

    #[test]
    fn the_parts_of_all_threads_are_joined_in_order() {
        let header = EcHeader {
            erase_counter: 1,
            vid_header_offset: 512,
            data_offset: 2048,
            image_sequence: 7,
        };
        let mut content = vec![0x11; 41 << 20];
        // Also across the border of two threads.
        let part = usize::try_from(PART_BYTES).unwrap();
        let places = (0..5).flat_map(|number| [number * part + 40, (number + 1) * part - 32]);
        let places: Vec<usize> = places.collect();
        for at in &places {
            content[*at..*at + HEADER_BYTES].copy_from_slice(&header.encode());
        }
        let dump = Dump::spool("dump", &content[..]).unwrap();
        let mut done = Vec::new();
        let found = scan(&dump, &mut |bytes| done.push(bytes));
        let hits: Vec<u64> = found.hits.iter().map(|hit| hit.at).collect();
        let places: Vec<u64> = places.iter().map(|at| u64::try_from(*at).unwrap()).collect();
        assert_eq!(hits, places);
        assert!(done.is_sorted() && done.last() == Some(&(41 << 20)));
    }
}
