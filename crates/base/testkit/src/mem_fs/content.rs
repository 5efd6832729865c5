//! Bytes of a sparse file, of any size up to `i64::MAX`.

use std::collections::BTreeMap;

/// Unit of allocation and of holes.
pub const CHUNK: u64 = 4096;

/// Content of one file. A chunk that is not in the map is a hole; one without bytes is allocated but not written, which
/// is a hole that occupies space, as Linux reports it. Both read as zeros. Invariant: bytes of a chunk at or behind
/// `size` are zero.
#[derive(Clone, Debug, Default)]
pub struct Content {
    size: u64,
    chunks: BTreeMap<u64, Option<Box<[u8]>>>,
}

/// Converts a length in memory to a count of bytes.
pub fn to_u64(length: usize) -> u64 {
    u64::try_from(length).expect("a length fits 64 bits")
}

/// Converts a count of bytes that is known to fit in memory.
pub fn to_usize(length: u64) -> usize {
    usize::try_from(length).expect("a bounded length fits memory")
}

impl Content {
    /// Size in bytes.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Number of chunks that occupy space.
    pub fn chunk_count(&self) -> u64 {
        to_u64(self.chunks.len())
    }

    /// Fills `out` from `offset`; returns the number of bytes.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let length = to_u64(out.len()).min(self.size.saturating_sub(offset));
        let out = &mut out[..to_usize(length)];
        for_chunks(offset, length, |chunk, within, at| {
            let target = &mut out[at..at + within.len()];
            match self.chunks.get(&chunk) {
                Some(Some(data)) => target.copy_from_slice(&data[within]),
                Some(None) | None => target.fill(0),
            }
        });
        out.len()
    }

    /// Writes `data` at `offset`; the end must not pass `i64::MAX`.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let length = to_u64(data.len());
        for_chunks(offset, length, |chunk, within, at| {
            let source = &data[at..at + within.len()];
            self.chunk_mut(chunk)[within].copy_from_slice(source);
        });
        if length > 0 {
            self.size = self.size.max(offset + length);
        }
    }

    /// Number of chunks that a write would have to add.
    pub fn chunks_missing(&self, offset: u64, length: u64) -> u64 {
        let mut missing = 0;
        for_chunks(offset, length, |chunk, _, _| {
            missing += u64::from(!self.chunks.contains_key(&chunk))
        });
        missing
    }

    /// Truncates, or extends by a hole.
    pub fn set_size(&mut self, size: u64) {
        if size < self.size {
            self.chunks.split_off(&size.div_ceil(CHUNK));
            if let Some(Some(last)) = self.chunks.get_mut(&(size / CHUNK)) {
                last[to_usize(size % CHUNK)..].fill(0);
            }
        }
        self.size = size;
    }

    /// Allocates a range, including its holes. The size stays.
    pub fn allocate(&mut self, offset: u64, length: u64) {
        for_chunks(offset, length, |chunk, _, _| {
            self.chunks.entry(chunk).or_insert(None);
        });
    }

    /// Makes a range read as zeros: whole chunks become holes. The size stays.
    pub fn punch(&mut self, offset: u64, length: u64) {
        for_chunks(offset, length, |chunk, within, _| {
            if within.len() == to_usize(CHUNK) {
                self.chunks.remove(&chunk);
            } else if let Some(Some(data)) = self.chunks.get_mut(&chunk) {
                data[within].fill(0);
            }
        });
    }

    /// Removes a range and moves the rest of the file forward. Offset and length are multiples of a chunk.
    pub fn collapse(&mut self, offset: u64, length: u64) {
        let (first, count) = (offset / CHUNK, length / CHUNK);
        let behind = self.chunks.split_off(&first);
        let moved = behind.into_iter().filter(|(chunk, _)| *chunk >= first + count);
        self.chunks
            .extend(moved.map(|(chunk, data)| (chunk - count, data)));
        self.size -= length;
    }

    /// Inserts a hole and moves the rest of the file back. Offset and length are multiples of a chunk.
    pub fn insert(&mut self, offset: u64, length: u64) {
        let (first, count) = (offset / CHUNK, length / CHUNK);
        let behind = self.chunks.split_off(&first);
        self.chunks
            .extend(behind.into_iter().map(|(chunk, data)| (chunk + count, data)));
        self.size += length;
    }

    /// Offset of the first data at or behind `offset`.
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let mut behind = self.chunks.range(offset / CHUNK..);
        let (chunk, _) = behind.find(|(_, data)| data.is_some())?;
        let found = offset.max(chunk * CHUNK);
        (found < self.size).then_some(found)
    }

    /// Offset of the first hole at or behind `offset`, where the end of the file counts as one.
    pub fn next_hole(&self, offset: u64) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let mut chunk = offset / CHUNK;
        while matches!(self.chunks.get(&chunk), Some(Some(_))) {
            chunk += 1;
        }
        Some(offset.max(chunk * CHUNK).min(self.size))
    }

    fn chunk_mut(&mut self, chunk: u64) -> &mut [u8] {
        let data = self.chunks.entry(chunk).or_default();
        data.get_or_insert_with(|| vec![0; to_usize(CHUNK)].into_boxed_slice())
    }
}

/// Calls `visit(chunk, range within the chunk, offset within the whole range)` for each chunk that a range
/// touches.
fn for_chunks(offset: u64, length: u64, mut visit: impl FnMut(u64, std::ops::Range<usize>, usize)) {
    let mut done = 0;
    while done < length {
        let at = offset + done;
        let within = at % CHUNK;
        let taken = (CHUNK - within).min(length - done);
        visit(
            at / CHUNK,
            to_usize(within)..to_usize(within + taken),
            to_usize(done),
        );
        done += taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shrunk_file_held_does_not_come_back_when_it_grows() {
        let mut content = Content::default();
        content.write(0, &[9; 10_000]);
        content.set_size(5000);
        content.set_size(10_000);
        let mut out = [1; 10_000];
        assert_eq!(content.read(0, &mut out), 10_000);
        assert!(out[..5000].iter().all(|byte| *byte == 9) && out[5000..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn holes_and_data_are_found_beyond_four_gibibytes() {
        let mut content = Content::default();
        content.write(5 << 30, b"far");
        assert_eq!(content.next_data(0), Some(5 << 30));
        assert_eq!(content.next_hole(0), Some(0));
        assert_eq!(content.next_hole(5 << 30), Some((5 << 30) + 3));
        assert_eq!(content.next_data((5 << 30) + 3), None);
    }

    #[test]
    fn what_is_allocated_and_not_written_takes_space_and_is_a_hole() {
        let mut content = Content::default();
        content.allocate(0, 20_000);
        content.write(9_000, b"data");
        assert_eq!((content.chunk_count(), content.size()), (5, 9_004));
        assert_eq!(
            (content.next_data(0), content.next_hole(8_192)),
            (Some(8_192), Some(9_004))
        );
    }

    #[test]
    fn collapse_takes_back_what_insert_made() {
        let mut content = Content::default();
        content.write(0, &[1; 8192]);
        content.write(8192, &[2; 100]);
        content.insert(4096, 4096);
        content.collapse(4096, 4096);
        let mut out = [0; 8292];
        content.read(0, &mut out);
        assert!(out[..8192].iter().all(|byte| *byte == 1) && out[8192..].iter().all(|byte| *byte == 2));
    }
}
