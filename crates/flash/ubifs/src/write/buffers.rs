//! Write buffers of the journal heads, as a volume: reads see buffered nodes as if they were written, even after a
//! failed write.
//!
//! A buffer collects nodes up to the next multiple of the volume's maximum write size, which is then written. A flush
//! pads up to the write unit, or to the stripe row of an array. Each write therefore starts at the end of the
//! previous one, and a power cut tears at most one maximum write per head.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use media::Leb;
use ubi::{ReadPart, TornEnd, Volume, VolumeError, VolumeGeometry, WritePart};

use crate::finding::Place;
use crate::format::{fills_unit, pad, pad_unit};
use crate::scan::to_usize;

/// A journal head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadKind {
    Gc,
    Base,
    Data,
}

impl HeadKind {
    pub(super) const ALL: [Self; 3] = [Self::Gc, Self::Base, Self::Data];

    pub(super) const fn number(self) -> u32 {
        match self {
            Self::Gc => 0,
            Self::Base => 1,
            Self::Data => 2,
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Gc => 0,
            Self::Base => 1,
            Self::Data => 2,
        }
    }
}

#[derive(Debug)]
struct Head {
    leb: u32,
    /// End of the written part.
    written: u32,
    buffer: Vec<u8>,
}

impl Head {
    fn end(&self) -> u32 {
        self.written + u32::try_from(self.buffer.len()).expect("less than a LEB")
    }

    /// Pads up to a whole write unit, and to the end of the stripe row if an equal-sized next flush would otherwise
    /// span an extra row: programming padding in parallel costs an array no time, an extra row does. Returns the
    /// bytes of padding.
    fn fill_up(&mut self, unit: u32, row: u32, sequence: &mut u64) -> u32 {
        let end = self.end();
        let padded = end.next_multiple_of(unit);
        let bytes = padded - self.written;
        let behind = padded % row;
        let used = self.buffer.len();
        self.buffer.resize(to_usize(bytes), 0);
        pad(&mut self.buffer[used..]);
        if (behind + bytes).div_ceil(row) > bytes.div_ceil(row) && fills_unit(to_usize(unit)) {
            while !self.end().is_multiple_of(row) {
                let used = self.buffer.len();
                self.buffer.resize(used + to_usize(unit), 0);
                *sequence += 1;
                pad_unit(&mut self.buffer[used..], *sequence);
            }
        }
        self.end() - end
    }
}

/// A volume with the buffers of the heads in front.
pub(super) struct WriteBuffers {
    inner: Arc<dyn Volume>,
    min_io_bytes: u32,
    heads: RwLock<[Option<Head>; 3]>,
    /// Lock order: after `heads`, or without it.
    counted: RwLock<[Counted; 3]>,
}

/// Byte counters of a journal head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) bytes: u64,
    pub(super) padding_bytes: u64,
    pub(super) buffered_bytes: u64,
}

impl WriteBuffers {
    pub(super) fn new(inner: Arc<dyn Volume>, min_io_bytes: u32) -> Self {
        Self {
            inner,
            min_io_bytes,
            heads: RwLock::default(),
            counted: RwLock::default(),
        }
    }

    fn heads(&self) -> RwLockReadGuard<'_, [Option<Head>; 3]> {
        self.heads.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn heads_mut(&self) -> RwLockWriteGuard<'_, [Option<Head>; 3]> {
        self.heads.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, head: HeadKind, add: impl FnOnce(&mut Counted)) {
        let mut counted = self.counted.write().unwrap_or_else(PoisonError::into_inner);
        add(&mut counted[head.index()]);
    }

    /// Counters of a head.
    pub(super) fn counted(&self, head: HeadKind) -> Counted {
        let buffered = self.heads()[head.index()]
            .as_ref()
            .map_or(0, |head| head.buffer.len());
        let counted = self.counted.read().unwrap_or_else(PoisonError::into_inner);
        Counted {
            buffered_bytes: u64::try_from(buffered).unwrap_or(u64::MAX),
            ..counted[head.index()]
        }
    }

    /// LEB of a head, and offset of its next node.
    pub(super) fn position(&self, head: HeadKind) -> Option<(u32, u32)> {
        self.heads()[head.index()]
            .as_ref()
            .map(|head| (head.leb, head.end()))
    }

    /// Whether any part of a node is still buffered.
    pub(super) fn is_buffered(&self, place: Place) -> bool {
        let heads = self.heads();
        let mut heads = heads.iter().flatten();
        heads.any(|head| head.leb == place.leb && place.offset + place.bytes > head.written)
    }

    /// Moves a head to another LEB. Its buffer must be empty.
    pub(super) fn seek(&self, head: HeadKind, position: Option<(u32, u32)>) {
        let mut heads = self.heads_mut();
        let slot = &mut heads[head.index()];
        assert!(
            slot.as_ref().is_none_or(|head| head.buffer.is_empty()),
            "{head:?} leaves nodes behind"
        );
        *slot = position.map(|(leb, written)| Head {
            leb,
            written,
            buffer: Vec::new(),
        });
    }

    /// Appends aligned nodes, which must fit in the LEB.
    pub(super) fn append(&self, head: HeadKind, nodes: &[u8]) -> Result<(), VolumeError> {
        let most = self.inner.geometry().max_write_bytes.max(self.min_io_bytes);
        let bytes = u64::try_from(nodes.len()).unwrap_or(u64::MAX);
        self.count(head, |counted| counted.bytes += bytes);
        let mut heads = self.heads_mut();
        let head = heads[head.index()].as_mut().expect("the head has a LEB");
        head.buffer.extend_from_slice(nodes);
        loop {
            let now = to_usize(most - head.written % most);
            if head.buffer.len() < now {
                return Ok(());
            }
            self.inner
                .write(Leb(head.leb), head.written, &head.buffer[..now])?;
            head.buffer.drain(..now);
            head.written += u32::try_from(now).expect("less than a LEB");
        }
    }

    /// Flushes the given heads in parallel. Returns the LEB and the bytes of padding of each head that had buffered
    /// nodes. `sequence` is the last sequence number used; padding may use more.
    pub(super) fn flush_heads(
        &self,
        kinds: &[HeadKind],
        sequence: &mut u64,
    ) -> Result<Vec<(u32, u32)>, VolumeError> {
        let geometry = self.inner.geometry();
        let row = geometry.max_write_bytes.max(self.min_io_bytes);
        let mut heads = self.heads_mut();
        let mut flushed = Vec::new();
        for kind in kinds {
            let Some(head) = heads[kind.index()]
                .as_mut()
                .filter(|head| !head.buffer.is_empty())
            else {
                continue;
            };
            let padding = head.fill_up(self.min_io_bytes, row, sequence);
            self.count(*kind, |counted| counted.padding_bytes += u64::from(padding));
            flushed.push((head.leb, padding));
        }
        let parts: Vec<WritePart<'_>> = kinds
            .iter()
            .filter_map(|kind| heads[kind.index()].as_ref())
            .filter(|head| !head.buffer.is_empty())
            .map(|head| WritePart {
                leb: Leb(head.leb),
                offset: head.written,
                data: &head.buffer,
            })
            .collect();
        if parts.is_empty() {
            return Ok(flushed);
        }
        self.inner.write_many(&parts)?;
        for head in kinds.iter().map(|kind| kind.index()) {
            if let Some(head) = &mut heads[head] {
                head.written = head.end();
                head.buffer.clear();
            }
        }
        Ok(flushed)
    }
}

/// Copies the buffered part of a read, with 0xFF behind it. Returns the part before it, which has to be read from the
/// medium.
fn take_buffered<'a>(heads: &[Option<Head>; 3], part: &'a mut ReadPart<'_>) -> ReadPart<'a> {
    let (leb, offset) = (part.leb, part.offset);
    let end = offset + u32::try_from(part.out.len()).expect("less than a LEB");
    let head = heads
        .iter()
        .flatten()
        .find(|head| head.leb == leb.0 && !head.buffer.is_empty() && end > head.written);
    let Some(head) = head else {
        let out = &mut *part.out;
        return ReadPart { leb, offset, out };
    };
    let (out, buffered) = part
        .out
        .split_at_mut(to_usize(head.written.saturating_sub(offset)));
    let from = head
        .buffer
        .get(to_usize(offset.saturating_sub(head.written))..)
        .unwrap_or_default();
    let bytes = from.len().min(buffered.len());
    buffered[..bytes].copy_from_slice(&from[..bytes]);
    buffered[bytes..].fill(0xFF);
    ReadPart { leb, offset, out }
}

impl Volume for WriteBuffers {
    fn name(&self) -> Arc<str> {
        self.inner.name()
    }

    fn geometry(&self) -> VolumeGeometry {
        self.inner.geometry()
    }

    fn read(&self, leb: Leb, offset: u32, out: &mut [u8]) -> Result<(), VolumeError> {
        self.read_many(&mut [ReadPart { leb, offset, out }])
    }

    fn read_many(&self, parts: &mut [ReadPart<'_>]) -> Result<(), VolumeError> {
        let geometry = self.inner.geometry();
        for part in &*parts {
            geometry.check_range(&self.inner.name(), part.leb, part.offset, part.out.len())?;
        }
        let heads = self.heads();
        let written = parts.iter_mut().map(|part| take_buffered(&heads, part));
        let mut written: Vec<ReadPart<'_>> = written.filter(|part| !part.out.is_empty()).collect();
        match written.is_empty() {
            true => Ok(()),
            false => self.inner.read_many(&mut written),
        }
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

    fn torn_end(&self, leb: Leb, offset: u32) -> TornEnd {
        self.inner.torn_end(leb, offset)
    }
}
