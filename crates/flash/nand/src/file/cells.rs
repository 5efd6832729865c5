//! The cells of a chip in a file: offsets of pages in the image, and the order of writes.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::thread;

use media::{NandGeometry, Nanos, Page, PagePart, Peb, index};

use crate::hamming;
use crate::sidecar::{BLOCKS_AT, ImageKind, MOMENT_AT, Moment, encode_block};
use crate::{Access, BlockState, Cells};

/// The cells of a chip, in a file.
#[derive(Debug)]
pub struct FileCells {
    pub(super) image: Arc<File>,
    /// `None` for a plain image opened read-only.
    pub(super) sidecar: Option<Arc<File>>,
    pub(super) geometry: NandGeometry,
    pub(super) kind: ImageKind,
    access: Access,
    /// Time of the last change.
    pub(super) now: Nanos,
    /// Size of a truncated image, bytes; what its last block lacks reads as erased. `None` for a whole image.
    pub(super) truncated_at: Option<u64>,
    /// An erased block as it is in the image; made at the first erase.
    erased_block: Vec<u8>,
}

impl FileCells {
    pub(super) fn new(
        image: File,
        sidecar: Option<File>,
        geometry: NandGeometry,
        kind: ImageKind,
        access: Access,
        now: Nanos,
    ) -> Self {
        Self {
            image: Arc::new(image),
            sidecar: sidecar.map(Arc::new),
            geometry,
            kind,
            access,
            now,
            truncated_at: None,
            erased_block: Vec::new(),
        }
    }

    pub(super) fn page_stride(&self) -> u64 {
        let oob = match self.kind {
            ImageKind::Data => 0,
            ImageKind::DataAndOob => self.geometry.oob_bytes(),
        };
        u64::from(self.geometry.page_bytes()) + u64::from(oob)
    }

    pub(super) fn block_stride(&self) -> u64 {
        self.page_stride() * u64::from(self.geometry.pages_per_block())
    }

    pub(super) fn block_at(&self, peb: Peb) -> u64 {
        self.block_stride() * u64::from(peb.0)
    }

    /// Offset in the image of byte `offset` of a block's data.
    pub(super) fn at(&self, peb: Peb, offset: u32) -> u64 {
        let page = self.geometry.page_of(offset);
        let in_page = offset % self.geometry.page_bytes();
        self.block_at(peb) + self.page_stride() * u64::from(page.0) + u64::from(in_page)
    }

    /// Writes the ECC codes of programmed bytes into the page's OOB area, if the image has OOB.
    fn write_codes(&self, peb: Peb, part: PagePart, bytes: &[u8]) -> io::Result<()> {
        if !self.has_marks() {
            return Ok(());
        }
        let mut oob = vec![0; index(self.geometry.oob_bytes())];
        let at = self.oob_at(peb, part.page);
        self.image.read_exact_at(&mut oob, at)?;
        let page_bytes = index(self.geometry.page_bytes());
        hamming::put_codes(&mut oob, page_bytes, index(part.start), bytes);
        self.image.write_all_at(&oob, at)
    }

    /// Reads bytes of the image; 0xFF for those that a truncated image lacks.
    fn fill(&self, out: &mut [u8], at: u64) -> io::Result<()> {
        let there = match self.truncated_at {
            None => out.len(),
            Some(end) => {
                usize::try_from(end.saturating_sub(at)).map_or(out.len(), |there| there.min(out.len()))
            }
        };
        let (there, missing) = out.split_at_mut(there);
        missing.fill(0xFF);
        self.image.read_exact_at(there, at)
    }

    fn oob_at(&self, peb: Peb, page: Page) -> u64 {
        self.at(peb, self.geometry.page_start(page)) + u64::from(self.geometry.page_bytes())
    }

    pub(super) fn modified(&self) -> io::Result<(i64, u32)> {
        let metadata = self.image.metadata()?;
        let nanos = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
        Ok((metadata.mtime(), nanos))
    }

    /// Derives the state of a block from the image: the end of data other than 0xFF, and the bad-block mark in the
    /// OOB of its first page.
    pub(super) fn scan(&self, peb: Peb) -> io::Result<BlockState> {
        let used = self.end_of_data(peb)?;
        let used = used.next_multiple_of(index(self.geometry.subpage_bytes()));
        let mut mark = [0xFF];
        if self.has_marks() {
            self.fill(&mut mark, self.mark_at(peb))?;
        }
        Ok(BlockState {
            programmed_bytes: u32::try_from(used).expect("a block is below 4 GiB"),
            is_bad: mark != [0xFF],
            ..BlockState::default()
        })
    }

    /// The states of all blocks, by two threads: nothing else can begin before.
    pub(super) fn scan_all(&self) -> io::Result<Vec<BlockState>> {
        let blocks = self.geometry.blocks();
        let part = |range: std::ops::Range<u32>| -> io::Result<Vec<BlockState>> {
            range.map(|peb| self.scan(Peb(peb))).collect()
        };
        thread::scope(|scope| {
            let rest = scope.spawn(|| part(blocks / 2..blocks));
            let mut states = part(0..blocks / 2)?;
            match rest.join() {
                Ok(rest) => states.extend(rest?),
                // The panic continues in the thread that asked for the work.
                Err(panic) => std::panic::resume_unwind(panic),
            }
            Ok(states)
        })
    }

    /// The offset after the last byte of a block that is not 0xFF. Most blocks of an image are full but for a page or
    /// two, so this looks from the end on: a few pages, then parts that double.
    fn end_of_data(&self, peb: Peb) -> io::Result<usize> {
        let mut end = self.geometry.block_bytes();
        let mut bytes = self.geometry.page_bytes().max(8 << 10);
        let mut data = Vec::new();
        while end > 0 {
            let start = end.saturating_sub(bytes);
            data.resize(index(end - start), 0);
            self.read_data(peb, start, &mut data)?;
            if let Some(written) = end_of_written(&data) {
                return Ok(index(start) + written);
            }
            (end, bytes) = (start, bytes.saturating_mul(2));
        }
        Ok(0)
    }

    fn read_data(&self, peb: Peb, offset: u32, out: &mut [u8]) -> io::Result<()> {
        if self.kind == ImageKind::Data {
            return self.fill(out, self.at(peb, offset));
        }
        for part in self.geometry.page_parts(offset, out.len()) {
            let start = self.geometry.page_start(part.page) + part.start;
            let bytes = &mut out[part.at..part.at + index(part.len)];
            self.fill(bytes, self.at(peb, start))?;
        }
        Ok(())
    }

    fn has_marks(&self) -> bool {
        self.kind == ImageKind::DataAndOob && self.geometry.oob_bytes() > 0
    }

    /// Offset of the bad-block mark: the first byte of the first page's OOB.
    fn mark_at(&self, peb: Peb) -> u64 {
        self.oob_at(peb, Page(0))
    }

    fn write_moment(&self) -> io::Result<()> {
        let (Some(sidecar), Access::ReadWrite) = (&self.sidecar, self.access) else {
            return Ok(());
        };
        let (modified_seconds, modified_nanos) = self.modified()?;
        let moment = Moment {
            now: self.now,
            image_bytes: self.block_stride() * u64::from(self.geometry.blocks()),
            modified_seconds,
            modified_nanos,
        };
        sidecar.write_all_at(&moment.encode(), MOMENT_AT)
    }

    pub(super) fn keep_all(&mut self, now: Nanos, blocks: &[BlockState]) -> io::Result<()> {
        if let (Some(sidecar), Access::ReadWrite) = (&self.sidecar, self.access) {
            let records: Vec<u8> = blocks.iter().flat_map(encode_block).collect();
            sidecar.write_all_at(&records, BLOCKS_AT)?;
        }
        self.now = now;
        self.write_moment()
    }
}

impl Cells for FileCells {
    fn read(&mut self, peb: Peb, offset: u32, out: &mut [u8]) -> io::Result<()> {
        self.read_data(peb, offset, out)
    }

    fn write(&mut self, peb: Peb, offset: u32, data: &[u8]) -> io::Result<()> {
        for part in self.geometry.page_parts(offset, data.len()) {
            let start = self.geometry.page_start(part.page) + part.start;
            let bytes = &data[part.at..part.at + index(part.len)];
            self.image.write_all_at(bytes, self.at(peb, start))?;
            self.write_codes(peb, part, bytes)?;
        }
        Ok(())
    }

    fn erase(&mut self, peb: Peb) -> io::Result<()> {
        if self.erased_block.is_empty() {
            let block = usize::try_from(self.block_stride()).expect("addresses have 64 bits");
            self.erased_block = vec![0xFF; block];
        }
        self.image.write_all_at(&self.erased_block, self.block_at(peb))
    }

    fn save(&mut self, peb: Peb, state: &BlockState, now: Nanos) -> io::Result<()> {
        self.now = now;
        if state.is_bad && self.has_marks() {
            self.image.write_all_at(&[0], self.mark_at(peb))?;
        }
        match &self.sidecar {
            Some(sidecar) => sidecar.write_all_at(&encode_block(state), record_at(peb)),
            None => Ok(()),
        }
    }

    fn read_oob(&mut self, peb: Peb, page: Page, out: &mut [u8]) -> io::Result<bool> {
        if self.kind == ImageKind::Data {
            return Ok(false);
        }
        let len = out.len().min(index(self.geometry.oob_bytes()));
        self.fill(&mut out[..len], self.oob_at(peb, page))?;
        Ok(true)
    }

    fn sync(&mut self, now: Nanos, blocks: &[BlockState]) -> io::Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        self.image.sync_data()?;
        self.keep_all(now, blocks)?;
        self.sidecar
            .as_ref()
            .map_or(Ok(()), |sidecar| sidecar.sync_data())
    }

    fn host_files(&self) -> Vec<Arc<File>> {
        match self.access {
            Access::ReadOnly => Vec::new(),
            Access::ReadWrite => std::iter::once(&self.image)
                .chain(&self.sidecar)
                .cloned()
                .collect(),
        }
    }
}

/// Saves the next open a scan of the image. Read counters since the last [`media::Nand::sync`] are lost.
impl Drop for FileCells {
    fn drop(&mut self) {
        let _ = self.write_moment();
    }
}

/// The offset after the last byte that is not 0xFF.
fn end_of_written(data: &[u8]) -> Option<usize> {
    const ERASED: [u8; 512] = [0xFF; 512];
    // Compares whole chunks: most of a typical chip is erased.
    let pieces = data.chunks(ERASED.len());
    let last = pieces
        .enumerate()
        .rfind(|(_, piece)| *piece != &ERASED[..piece.len()]);
    let (number, piece) = last?;
    let end = piece.iter().rposition(|byte| *byte != 0xFF)? + 1;
    Some(number * ERASED.len() + end)
}

pub(super) fn record_at(peb: Peb) -> u64 {
    const RECORD: u64 = 64;
    BLOCKS_AT + RECORD * u64::from(peb.0)
}
