//! Effect of buffered data on a file's size, space, privileges and holes as reported by the file system below.
//!
//! An [`Overlay`] is taken before the file system below is queried. An entry that is written out in between is then in
//! both, which is harmless, as each fact is a maximum, a union or an upper bound. Taken afterwards, it would be in
//! neither.

use vfs::{Attr, FsError, FsResult, Privileges, SeekFrom};

/// Unit in which holes are reported and space is counted: the page, by which most file systems allocate. Once data in a
/// block is written, the whole block is data, so the answers are the same before and after.
const BLOCK_BYTES: u64 = 4096;
/// Unit of [`Attr::blocks`] in bytes.
const SECTOR_BYTES: u64 = 512;

/// The range of an entry in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset behind the last byte.
    pub end: u64,
    /// The data goes to the end of the file: the range is a guess until it is written out.
    pub appends: bool,
}

impl Extent {
    const fn first_block(&self) -> u64 {
        self.start - self.start % BLOCK_BYTES
    }

    const fn blocks_end(&self) -> u64 {
        self.end.next_multiple_of(BLOCK_BYTES)
    }
}

/// The buffered data of one file at one moment.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    /// In the order of the writes.
    pub extents: Vec<Extent>,
    /// Effects of its writes on privileges, in their order.
    pub killed: Vec<Privileges>,
}

impl Overlay {
    /// True if nothing was buffered.
    pub const fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Offset behind the last buffered byte.
    pub fn end(&self) -> u64 {
        self.extents.iter().map(|extent| extent.end).max().unwrap_or(0)
    }

    /// True if it contains data to append.
    pub fn appends(&self) -> bool {
        self.extents.iter().any(|extent| extent.appends)
    }

    /// True if all data to append will end up at its guessed offset, in a file of `size_below` bytes below.
    pub fn appends_fit(&self, size_below: u64) -> bool {
        let mut size = size_below;
        self.extents.iter().all(|extent| {
            let fits = !extent.appends || extent.start == size;
            size = size.max(extent.end);
            fits
        })
    }

    /// Adds the buffered data to the attributes of the file below, except for times.
    pub fn add_to(&self, attr: &mut Attr) {
        attr.size = attr.size.max(self.end());
        // Overwritten blocks are counted twice until the write-out: too many rather than too few, as programs take a
        // low count for a sparse file.
        let bytes: u64 = self
            .extents
            .iter()
            .map(|extent| extent.blocks_end() - extent.first_block())
            .sum();
        attr.blocks += bytes / SECTOR_BYTES;
        for privileges in &self.killed {
            attr.mode = privileges.left_of(attr.mode, attr.gid);
        }
        // The write-out changes the space, and nobody reports that.
        attr.is_reported &= self.is_empty();
    }

    /// Finds the next data or hole in a file of `size_below` bytes below, where `below` seeks.
    pub fn seek(
        mut self,
        from: SeekFrom,
        size_below: u64,
        below: impl Fn(SeekFrom) -> FsResult<u64>,
    ) -> FsResult<u64> {
        let size = self.end().max(size_below);
        let (SeekFrom::Data(offset) | SeekFrom::Hole(offset)) = from;
        if offset >= size {
            return Err(FsError::NoSuchDevice);
        }
        // A partial last block below becomes data if the file continues in it.
        if size > size_below && size_below > 0 && below(SeekFrom::Hole(size_below - 1))? == size_below {
            self.extents.push(Extent {
                start: size_below - 1,
                end: size_below,
                appends: false,
            });
        }
        match from {
            SeekFrom::Data(offset) => self.next_data(offset, size_below, below),
            SeekFrom::Hole(offset) => self.next_hole(offset, size, size_below, below),
        }
    }

    fn next_data(
        &self,
        offset: u64,
        size_below: u64,
        below: impl Fn(SeekFrom) -> FsResult<u64>,
    ) -> FsResult<u64> {
        let behind = self.extents.iter().filter(|extent| extent.blocks_end() > offset);
        let buffered = behind.map(|extent| extent.first_block().max(offset)).min();
        if buffered == Some(offset) || offset >= size_below {
            return buffered.ok_or(FsError::NoSuchDevice);
        }
        match (below(SeekFrom::Data(offset)), buffered) {
            (Ok(found), Some(buffered)) => Ok(found.min(buffered)),
            (Err(FsError::NoSuchDevice), Some(buffered)) => Ok(buffered),
            (found, _) => found,
        }
    }

    fn next_hole(
        &self,
        offset: u64,
        size: u64,
        size_below: u64,
        below: impl Fn(SeekFrom) -> FsResult<u64>,
    ) -> FsResult<u64> {
        let mut at = offset;
        while at < size {
            let covers = |extent: &&Extent| extent.first_block() <= at && at < extent.blocks_end();
            if let Some(extent) = self.extents.iter().find(covers) {
                at = extent.blocks_end();
                continue;
            }
            if at >= size_below {
                return Ok(at);
            }
            match below(SeekFrom::Hole(at))? {
                found if found == at => return Ok(at),
                found => at = found,
            }
        }
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlay(extents: &[(u64, u64, bool)]) -> Overlay {
        let extents = extents
            .iter()
            .map(|&(start, end, appends)| Extent { start, end, appends });
        Overlay {
            extents: extents.collect(),
            killed: Vec::new(),
        }
    }

    #[test]
    fn appended_data_fits_where_the_file_ends_when_its_turn_comes() {
        let all = overlay(&[(100, 200, true), (500, 600, false), (600, 700, true)]);
        assert!(all.appends() && all.appends_fit(100));
        for size in [0, 99, 101, 200, 700, 1000] {
            assert!(!all.appends_fit(size), "{size}");
        }
        assert!(overlay(&[(100, 200, false)]).appends_fit(1000));
        assert!(!overlay(&[(0, 1000, false), (100, 200, true)]).appends_fit(100));
    }

    #[test]
    fn a_seek_meets_buffered_blocks_and_those_below_in_turn() {
        // Below: data in [0, 5000), 5000 being the end of the file.
        let below = |from| match from {
            SeekFrom::Data(at) if at < 5000 => Ok(at),
            SeekFrom::Hole(at) if at < 5000 => Ok(5000),
            SeekFrom::Data(_) | SeekFrom::Hole(_) => Err(FsError::NoSuchDevice),
        };
        let seek = |from| overlay(&[(8192, 8200, false), (20_000, 20_001, false)]).seek(from, 5000, below);
        assert_eq!(seek(SeekFrom::Hole(0)), Ok(12_288));
        assert_eq!(seek(SeekFrom::Hole(12_289)), Ok(12_289));
        assert_eq!(seek(SeekFrom::Hole(20_000)), Ok(20_001));
        assert_eq!(seek(SeekFrom::Data(6000)), Ok(6000));
        assert_eq!(seek(SeekFrom::Data(12_288)), Ok(16_384));
        assert_eq!(seek(SeekFrom::Data(20_001)), Err(FsError::NoSuchDevice));
        assert_eq!(seek(SeekFrom::Hole(20_001)), Err(FsError::NoSuchDevice));
    }
}
