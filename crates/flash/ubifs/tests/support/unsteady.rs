//! A volume with one unstable page: a single read of it is uncorrectable and wrong, later reads are correct.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use media::Leb;
use ubi::{ReadPart, Volume, VolumeError, VolumeGeometry, WritePart};

/// See the module.
pub struct UnsteadyVolume {
    inner: Arc<dyn Volume>,
    leb: Leb,
    /// Start and end.
    page: (u32, u32),
    /// Good reads of the page before the wrong one.
    good_reads: u64,
    reads: AtomicU64,
}

impl UnsteadyVolume {
    /// The page at an offset reads wrong once, after `good_reads` good reads.
    pub fn new(inner: Arc<dyn Volume>, (leb, offset): (u32, u32), good_reads: u64) -> Arc<Self> {
        let page = (offset, offset + inner.geometry().min_io_bytes);
        Arc::new(Self {
            inner,
            leb: Leb(leb),
            page,
            good_reads,
            reads: AtomicU64::new(0),
        })
    }

    /// Whether the wrong read has occurred.
    pub fn was_hit(&self) -> bool {
        self.reads.load(Ordering::Relaxed) > self.good_reads
    }
}

impl Volume for UnsteadyVolume {
    fn name(&self) -> Arc<str> {
        self.inner.name()
    }

    fn geometry(&self) -> VolumeGeometry {
        self.inner.geometry()
    }

    fn read(&self, leb: Leb, offset: u32, out: &mut [u8]) -> Result<(), VolumeError> {
        let read = self.inner.read(leb, offset, out);
        if !matches!(read, Ok(()) | Err(VolumeError::Uncorrectable { .. })) {
            return read;
        }
        let len = out.len();
        let end = offset + u32::try_from(len).expect("less than a LEB");
        let (from, to) = (self.page.0.max(offset), self.page.1.min(end));
        if leb != self.leb || from >= to || self.reads.fetch_add(1, Ordering::Relaxed) != self.good_reads {
            return read;
        }
        let place = |at: u32| usize::try_from(at - offset).expect("less than a LEB");
        for byte in out[place(from)..place(to)].iter_mut().step_by(7) {
            *byte ^= 0x11;
        }
        Err(VolumeError::Uncorrectable {
            volume: self.inner.name(),
            leb,
            offset,
            len,
        })
    }

    fn read_many(&self, parts: &mut [ReadPart<'_>]) -> Result<(), VolumeError> {
        let mut uncorrectable = Ok(());
        for part in parts {
            match self.read(part.leb, part.offset, part.out) {
                Err(error @ VolumeError::Uncorrectable { .. }) => {
                    uncorrectable = uncorrectable.and(Err(error));
                }
                other => other?,
            }
        }
        uncorrectable
    }

    fn write(&self, leb: Leb, offset: u32, data: &[u8]) -> Result<(), VolumeError> {
        self.inner.write(leb, offset, data)
    }

    fn write_many(&self, parts: &[WritePart<'_>]) -> Result<(), VolumeError> {
        self.inner.write_many(parts)
    }

    fn leb_change(&self, leb: Leb, data: &[u8]) -> Result<(), VolumeError> {
        self.inner.leb_change(leb, data)
    }

    fn map(&self, leb: Leb) -> Result<(), VolumeError> {
        self.inner.map(leb)
    }

    fn unmap(&self, leb: Leb) -> Result<(), VolumeError> {
        self.inner.unmap(leb)
    }

    fn is_mapped(&self, leb: Leb) -> Result<bool, VolumeError> {
        self.inner.is_mapped(leb)
    }

    fn flush(&self) -> Result<(), VolumeError> {
        self.inner.flush()
    }

    fn sync(&self) -> Result<(), VolumeError> {
        self.inner.sync()
    }

    fn freeze(&self, reason: &str) {
        self.inner.freeze(reason);
    }

    fn frozen(&self) -> Option<Arc<str>> {
        self.inner.frozen()
    }
}
