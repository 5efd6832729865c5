//! The blocks of a partition: those with EC headers, and those between and beside them whose VID headers are good.

use std::collections::BTreeMap;

use ubi::format::{Decoded, LAYOUT_VOLUME, VidHeader};

use crate::dump::Dump;
use crate::finding::{Finding, What};
use crate::shape::Shape;

/// A block with at least one good header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Offset in the dump, bytes; negative if the dump lacks its beginning.
    pub at: i64,
    pub vid: Option<VidHeader>,
}

/// Numbers of blocks of a partition, from its first block to its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Blocks with a LEB, also of the layout volume and other internal ones.
    pub used: usize,
    /// Blocks of the layout volume.
    pub layout: usize,
    /// Blocks of other internal volumes.
    pub internal: usize,
    /// Blocks with only an EC header.
    pub free: usize,
    /// Erased blocks without any header.
    pub erased: usize,
    /// Blocks with a damaged or unknown VID header.
    pub damaged: usize,
    /// Blocks that hold something else, such as bad blocks.
    pub other: usize,
}

/// Spans of bytes that belong to partitions: their ends, by their beginnings.
#[derive(Debug, Default)]
pub(crate) struct Claims(BTreeMap<i64, i64>);

impl Claims {
    pub(crate) fn add(&mut self, spans: impl Iterator<Item = (i64, i64)>) {
        for (start, end) in spans {
            let known = self.0.entry(start).or_insert(end);
            *known = end.max(*known);
        }
    }

    /// Whether one of the spans has bytes in common with `span`.
    pub(crate) fn overlap(&self, span: (i64, i64)) -> bool {
        let last = self.0.range(..span.1).next_back();
        last.is_some_and(|(_, end)| *end > span.0)
    }

    /// Whether `at` lies behind the beginning of one of the spans, inside of it.
    pub(crate) fn is_inside(&self, at: i64) -> bool {
        let last = self.0.range(..at).next_back();
        last.is_some_and(|(_, end)| *end > at)
    }
}

/// Maximum number of places without an EC header that are looked at in one partition. Bounds the time on hostile dumps.
const PLACES_MAX: usize = 1 << 18;

/// Reads the blocks of a partition.
pub(crate) struct Reader<'a> {
    pub dump: &'a Dump,
    pub shape: Shape,
    /// Spans of all partitions.
    pub claims: &'a Claims,
    pub blocks: Vec<Block>,
    pub counts: BlockCounts,
    pub findings: Vec<Finding>,
    /// First block without headers that is not erased.
    pub first_other: Option<i64>,
    places: usize,
}

impl<'a> Reader<'a> {
    /// Reads the blocks whose EC headers are at these ascending offsets.
    pub(crate) fn read(dump: &'a Dump, shape: Shape, claims: &'a Claims, headers: &[u64]) -> Self {
        let mut reader = Self {
            dump,
            shape,
            claims,
            blocks: Vec::with_capacity(headers.len()),
            counts: BlockCounts::default(),
            findings: Vec::new(),
            first_other: None,
            places: 0,
        };
        let stride = i64::from(shape.stride());
        let signed = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
        let (Some(first), Some(last)) = (headers.first(), headers.last()) else {
            return reader;
        };
        reader.extend(signed(*first), -stride);
        let mut next = signed(*first);
        for at in headers.iter().copied().map(signed) {
            while next < at && reader.places < PLACES_MAX {
                reader.look_between(next);
                next += stride;
            }
            reader.take(at);
            next = at.saturating_add(stride);
        }
        reader.extend(signed(*last), stride);
        reader.blocks.sort_unstable_by_key(|block| block.at);
        if let Some(first) = reader.first_other {
            let what = What::NoHeaders {
                blocks: reader.counts.other,
            };
            reader.note(first, what);
        }
        reader
    }

    fn note(&mut self, at: i64, what: What) {
        let place = u64::try_from(at.max(0)).unwrap_or(0);
        self.findings
            .push(Finding::new(Some(self.dump.base() + place), what));
    }

    /// A block with a good EC header.
    fn take(&mut self, at: i64) {
        match self.shape.vid_header(self.dump, at) {
            Decoded::Header(vid) => self.push(at, Some(vid)),
            Decoded::Erased => self.push(at, None),
            Decoded::Damaged(damage) => {
                self.counts.damaged += 1;
                let is_blank = self.is_blank(at);
                self.note(at, What::VidHeader { damage, is_blank });
            }
            Decoded::Refused(refusal) => {
                self.counts.damaged += 1;
                self.note(at, What::Refused(refusal));
            }
        }
    }

    fn push(&mut self, at: i64, vid: Option<VidHeader>) {
        match vid.map(|vid| vid.volume) {
            Some(volume) => {
                self.counts.used += 1;
                self.counts.layout += usize::from(volume == LAYOUT_VOLUME);
                self.counts.internal += usize::from(volume > LAYOUT_VOLUME);
            }
            None => self.counts.free += 1,
        }
        self.blocks.push(Block { at, vid });
        let (start, end) = self.shape.span(at);
        let bytes = i64::try_from(self.dump.bytes()).unwrap_or(i64::MAX);
        let missing = (-start).max(0) + (end - bytes).max(0);
        if let Some(missing) = u64::try_from(missing).ok().filter(|missing| *missing > 0) {
            // Without the headers alone, the data is whole.
            let data = start.saturating_add(self.shape.place(self.shape.data_offset));
            let loses_data = vid.is_some() && (data < 0 || end > bytes);
            self.note(at, What::CutBlock { missing, loses_data });
        }
    }

    /// A place between two EC headers.
    fn look_between(&mut self, at: i64) {
        self.places += 1;
        if self.claims.overlap(self.shape.span(at)) {
            return;
        }
        if let Decoded::Header(vid) = self.shape.vid_header(self.dump, at) {
            self.note(at, What::EcHeader);
            self.push(at, Some(vid));
            return;
        }
        let mut page = vec![
            0;
            usize::try_from(self.shape.data_offset)
                .unwrap_or(0)
                .clamp(512, 16384)
        ];
        self.dump.read(at, &mut page);
        if page.iter().all(|byte| *byte == 0xFF) {
            self.counts.erased += 1;
        } else {
            self.counts.other += 1;
            self.first_other.get_or_insert(at);
        }
    }

    /// Adds blocks beside the last one with an EC header, as long as their VID headers are good.
    fn extend(&mut self, from: i64, step: i64) {
        let bytes = i64::try_from(self.dump.bytes()).unwrap_or(i64::MAX);
        let mut at = from.saturating_add(step);
        while at < bytes && at > -step.abs() && self.places < PLACES_MAX {
            self.places += 1;
            if self.claims.overlap(self.shape.span(at)) {
                return;
            }
            let Decoded::Header(vid) = self.shape.vid_header(self.dump, at) else {
                return;
            };
            if at >= 0 {
                self.note(at, What::EcHeader);
            }
            self.push(at, Some(vid));
            at = at.saturating_add(step);
        }
    }

    /// Whether the data area of a block is erased.
    fn is_blank(&self, at: i64) -> bool {
        let mut data = vec![0; usize::try_from(self.shape.leb_bytes()).unwrap_or(0)];
        self.shape.read(self.dump, at, self.shape.data_offset, &mut data);
        data.iter().all(|byte| *byte == 0xFF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_know_what_overlaps() {
        let mut claims = Claims::default();
        claims.add([(100, 200), (0, 50), (300, 400)].into_iter());
        assert!(claims.overlap((150, 160)) && claims.overlap((0, 1)) && claims.overlap((199, 300)));
        assert!(!claims.overlap((50, 100)) && !claims.overlap((200, 300)) && !claims.overlap((400, 500)));
        assert!(claims.is_inside(101) && claims.is_inside(399));
        assert!(!claims.is_inside(100) && !claims.is_inside(200) && !claims.is_inside(0));
    }
}
