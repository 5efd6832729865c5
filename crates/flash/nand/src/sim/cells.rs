//! Storage of a simulated chip's content. In memory: only programmed data, shared between clones block by block.

use std::fs::File;
use std::io;
use std::sync::Arc;

use media::{NandGeometry, Nanos, Page, Peb, index};

use crate::BlockState;

/// Storage of a chip's content and state. The chip has checked all ranges: they lie within the block.
pub trait Cells: Send {
    /// Reads a range; bytes not written since the last erase are undefined.
    fn read(&mut self, peb: Peb, offset: u32, out: &mut [u8]) -> io::Result<()>;

    /// Overwrites bytes.
    fn write(&mut self, peb: Peb, offset: u32, data: &[u8]) -> io::Result<()>;

    /// Sets every byte to 0xFF.
    fn erase(&mut self, peb: Peb) -> io::Result<()>;

    /// Stores the state of one block as of `now`. Called before the bytes that belong to it change.
    fn save(&mut self, peb: Peb, state: &BlockState, now: Nanos) -> io::Result<()>;

    /// Reads the OOB area of a page; returns `false` if the storage has no OOB.
    fn read_oob(&mut self, peb: Peb, page: Page, out: &mut [u8]) -> io::Result<bool> {
        let _ = (peb, page, out);
        Ok(false)
    }

    /// Waits until everything survives a crash of the host, including read counters and the clock.
    fn sync(&mut self, now: Nanos, blocks: &[BlockState]) -> io::Result<()>;

    /// The files that hold content and block states, if open for writing.
    fn host_files(&self) -> Vec<Arc<File>> {
        Vec::new()
    }
}

/// The content of a chip in memory.
#[derive(Clone, Debug)]
pub struct RamCells {
    /// Content of each block up to its last programmed byte; `None` for an erased block.
    blocks: Vec<Option<Arc<Vec<u8>>>>,
    block_bytes: usize,
}

impl RamCells {
    /// Erased cells.
    #[must_use]
    pub fn new(geometry: &NandGeometry) -> Self {
        Self {
            blocks: vec![None; index(geometry.blocks())],
            block_bytes: index(geometry.block_bytes()),
        }
    }

    /// Heap bytes of the content, including those shared with clones.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.blocks.iter().flatten().map(|block| block.capacity()).sum()
    }

    fn block_mut(&mut self, peb: Peb) -> &mut Vec<u8> {
        Arc::make_mut(self.blocks[index(peb.0)].get_or_insert_default())
    }
}

impl Cells for RamCells {
    fn read(&mut self, peb: Peb, offset: u32, out: &mut [u8]) -> io::Result<()> {
        let block: &[u8] = self.blocks[index(peb.0)]
            .as_ref()
            .map_or(&[], |block| block.as_slice());
        let written = block.get(index(offset)..).unwrap_or(&[]);
        let (start, rest) = out.split_at_mut(written.len().min(out.len()));
        start.copy_from_slice(&written[..start.len()]);
        rest.fill(0xFF);
        Ok(())
    }

    fn write(&mut self, peb: Peb, offset: u32, data: &[u8]) -> io::Result<()> {
        let (start, block_bytes) = (index(offset), self.block_bytes);
        let end = start + data.len();
        let block = self.block_mut(peb);
        if block.len() < end {
            // Grows by eighths of a block: few copies, and little unused memory.
            if block.capacity() < end {
                let step = (block_bytes / 8).max(1);
                let wanted = end.next_multiple_of(step).min(block_bytes);
                block.reserve_exact(wanted - block.len());
            }
            block.resize(end, 0xFF);
        }
        block[start..end].copy_from_slice(data);
        Ok(())
    }

    fn erase(&mut self, peb: Peb) -> io::Result<()> {
        self.blocks[index(peb.0)] = None;
        Ok(())
    }

    fn save(&mut self, _: Peb, _: &BlockState, _: Nanos) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self, _: Nanos, _: &[BlockState]) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_for_what_is_programmed_and_shared_by_clones() {
        let geometry = NandGeometry::new(2048, 64, 16).unwrap();
        let mut cells = RamCells::new(&geometry);
        assert_eq!(cells.allocated_bytes(), 0);
        cells.write(Peb(3), 0, &[1; 2048]).unwrap();
        assert_eq!(cells.allocated_bytes(), 16 << 10);
        let mut clone = cells.clone();
        clone.write(Peb(3), 2048, &[2; 2048]).unwrap();
        let mut out = [0; 4096];
        cells.read(Peb(3), 0, &mut out).unwrap();
        assert_eq!(out[..2048], [1; 2048], "the original");
        assert_eq!(out[2048..], [0xFF; 2048], "the original does not see its clone");
        clone.read(Peb(3), 0, &mut out).unwrap();
        assert_eq!((out[0], out[2048]), (1, 2));
        clone.erase(Peb(3)).unwrap();
        assert_eq!(clone.allocated_bytes(), 0);
    }
}
