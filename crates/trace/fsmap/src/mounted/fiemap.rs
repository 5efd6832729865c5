//! FIEMAP: the extents of an open file.

use std::io;
use std::os::fd::AsFd;

use super::ioctl::{FIEMAP_EXTENT, FIEMAP_HEADER, Request, call, halves, pair};
use crate::options::Flush;

/// Extents per request.
const BATCH: usize = 512;
const FLAG_SYNC: u32 = 1;
const FLAG_XATTR: u32 = 2;

/// Extent flags.
pub(crate) const LAST: u32 = 0x1;
pub(crate) const UNKNOWN: u32 = 0x2;
pub(crate) const DELAYED: u32 = 0x4;
pub(crate) const ENCODED: u32 = 0x8;
pub(crate) const NOT_ALIGNED: u32 = 0x100;
pub(crate) const INLINE: u32 = 0x200;
pub(crate) const TAIL: u32 = 0x400;
pub(crate) const UNWRITTEN: u32 = 0x800;
pub(crate) const SHARED: u32 = 0x2000;

/// An extent of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub logical: u64,
    pub physical: u64,
    pub length: u64,
    pub flags: u32,
}

/// Fork of a file whose extents are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fork {
    Data,
    Xattr,
}

/// Requests extents; the buffer is reused for all files.
#[derive(Debug)]
pub(crate) struct Fiemap {
    buffer: Vec<u64>,
    flush: Flush,
}

impl Fiemap {
    pub(crate) fn new(flush: Flush) -> Self {
        Self {
            buffer: vec![0; FIEMAP_HEADER + FIEMAP_EXTENT * BATCH],
            flush,
        }
    }

    /// Calls `emit` with each extent of a file.
    pub(crate) fn extents(
        &mut self,
        file: impl AsFd,
        fork: Fork,
        mut emit: impl FnMut(Extent),
    ) -> io::Result<()> {
        let mut start = 0;
        let flush = if self.flush == Flush::Yes { FLAG_SYNC } else { 0 };
        let flags = flush | if fork == Fork::Xattr { FLAG_XATTR } else { 0 };
        let batch = u32::try_from(BATCH).expect("it is small");
        loop {
            self.buffer[0] = start;
            self.buffer[1] = u64::MAX - start;
            self.buffer[2] = pair(flags, 0);
            self.buffer[3] = pair(batch, 0);
            call(&file, Request::Fiemap, &mut self.buffer)?;
            let (_, mapped) = halves(self.buffer[2]);
            let mapped = crate::bytes::index(u64::from(mapped)).min(BATCH);
            let mut last = mapped < BATCH;
            for at in 0..mapped {
                let words = &self.buffer[FIEMAP_HEADER + at * FIEMAP_EXTENT..][..FIEMAP_EXTENT];
                let extent = Extent {
                    logical: words[0],
                    physical: words[1],
                    length: words[2],
                    flags: halves(words[5]).0,
                };
                emit(extent);
                last |= extent.flags & LAST != 0;
                let next = extent.logical.saturating_add(extent.length);
                // A file system that makes no progress must not cause an endless loop.
                last |= next <= start && at + 1 == mapped;
                start = next.max(start);
            }
            if last {
                return Ok(());
            }
        }
    }
}
