//! Encodes the LPT and lays it out in its area: leaves, rows of inner nodes from the bottom up, save table, LEB
//! table.
//!
//! Nothing crosses the end of a LEB. The rest of the last write unit stays erased and counts as dirty.

use super::geometry::{FANOUT, LptGeometry};
use super::nodes::{LptPlace, TableSpace};
use crate::scan::to_usize;
use crate::space::LebSpace;

/// An erased region of the LPT area: from an offset to the end of the LEB.
pub(crate) type Region = LptPlace;

/// A write of whole units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LptWrite {
    pub(crate) at: LptPlace,
    pub(crate) bytes: Vec<u8>,
}

/// An LPT ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LptLayout {
    pub(crate) writes: Vec<LptWrite>,
    pub(crate) root: LptPlace,
    pub(crate) table: LptPlace,
    pub(crate) saved: Option<LptPlace>,
    /// Position of the LPT head behind it.
    pub(crate) head: LptPlace,
    /// Content of the LEB table.
    pub(crate) spaces: Vec<TableSpace>,
}

/// Lays the tree out over `regions`, in order. `spaces` is the space of the LPT area without the new tree; the old
/// tree counts as dirty in it. Returns `None` if the regions are too small.
pub(crate) fn lay_out(
    geometry: &LptGeometry,
    lebs: &[LebSpace],
    saved: &[u32],
    regions: &[Region],
    spaces: Vec<TableSpace>,
) -> Option<LptLayout> {
    let mut writer = Writer::new(geometry, regions, spaces)?;
    let fanout = to_usize(FANOUT);
    let mut row = Vec::new();
    for (number, leaf) in (0..geometry.leaves).zip(lebs.chunks(fanout)) {
        row.push(writer.append(&geometry.encode_leaf(number, leaf))?);
    }
    for depth in (0..geometry.height).rev() {
        let mut upper = Vec::new();
        for (column, places) in (0..).zip(row.chunks(fanout)) {
            let mut children = [None; 4];
            for (child, place) in children.iter_mut().zip(places) {
                *child = Some(*place);
            }
            upper.push(writer.append(&geometry.encode_inner(inner_number(depth, column), children))?);
        }
        row = upper;
    }
    let root = *row.first()?;
    let saved = match geometry.input.big {
        true => Some(writer.append(&geometry.encode_saved(saved))?),
        false => None,
    };
    let table = writer.append(&vec![0; to_usize(geometry.table_bytes)])?;
    writer.close_region();
    let raw = geometry.encode_table(&writer.spaces);
    let head = writer.position();
    let mut writes = writer.writes;
    let last = writes.last_mut()?;
    let from = to_usize(table.offset - last.at.offset);
    last.bytes[from..from + raw.len()].copy_from_slice(&raw);
    Some(LptLayout {
        writes,
        root,
        table,
        saved,
        head,
        spaces: writer.spaces,
    })
}

/// Number of an inner node: a leading 1 above two bits per step from the root, the first step in the lowest bits.
pub(super) fn inner_number(depth: u32, column: u32) -> u32 {
    let steps = (0..depth).map(|step| column >> (2 * (depth - 1 - step)) & 3);
    let low: u32 = steps.zip(0..).map(|(child, step)| child << (2 * step)).sum();
    1 << (2 * depth) | low
}

struct Writer<'a> {
    leb_bytes: u32,
    unit: u32,
    regions: std::slice::Iter<'a, Region>,
    start: Region,
    buffer: Vec<u8>,
    writes: Vec<LptWrite>,
    spaces: Vec<TableSpace>,
}

impl<'a> Writer<'a> {
    fn new(geometry: &LptGeometry, regions: &'a [Region], spaces: Vec<TableSpace>) -> Option<Self> {
        let mut regions = regions.iter();
        Some(Self {
            leb_bytes: geometry.input.leb_bytes,
            unit: geometry.input.min_io_bytes,
            start: *regions.next()?,
            regions,
            buffer: Vec::new(),
            writes: Vec::new(),
            spaces,
        })
    }

    fn position(&self) -> LptPlace {
        let written = u32::try_from(self.buffer.len()).expect("less than a LEB");
        LptPlace {
            leb: self.start.leb,
            offset: self.start.offset + written,
        }
    }

    fn append(&mut self, node: &[u8]) -> Option<LptPlace> {
        let bytes = u32::try_from(node.len()).ok()?;
        if self.position().offset + bytes > self.leb_bytes {
            self.close_region();
            self.start = *self.regions.next()?;
            if bytes > self.leb_bytes - self.start.offset {
                return None;
            }
        }
        let place = self.position();
        self.buffer.extend_from_slice(node);
        Some(place)
    }

    /// Ends the current write; the position moves to the next write unit.
    fn close_region(&mut self) {
        let end = self.position().offset;
        let written = end.next_multiple_of(self.unit);
        if let Some(space) = self.spaces.get_mut(to_usize(self.start.leb)) {
            *space = TableSpace {
                free: self.leb_bytes - written,
                dirty: self.start.offset + written - end,
            };
        }
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.resize(to_usize(written - self.start.offset), 0xFF);
        if !bytes.is_empty() {
            self.writes.push(LptWrite {
                at: self.start,
                bytes,
            });
        }
        self.start.offset = written;
    }
}
