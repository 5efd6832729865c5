//! Finds all nodes of a volume, LEB by LEB, on several threads.
//!
//! A LEB is a chain of nodes and padding. Behind damage the scan continues at the end of the damaged node if something
//! valid begins there, otherwise at the next magic number. Erased gaps are skipped. A LEB that the volume can't read
//! as a whole is read in write units.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use media::Leb;
use ubi::{Volume, VolumeError};

use super::records::{Harvest, Scar, Tail, Units, slice_of, unit_at};
use crate::bud::torn_rule;
use crate::finding::{Damage, Finding, Place, Subject};
use crate::format::{Group, HEADER_BYTES, Header, MAGIC, NodeDefect, NodeKind, PADDING_BYTE, check};
use crate::scan::{is_erased, to_usize, to_word};

/// Bytes of nodes with wrong CRCs that are checked per byte of a LEB: forged lengths can't multiply the work.
const CHECKS_PER_BYTE: usize = 4;

/// Scans a volume. `memory_bytes` limits the records.
pub(super) fn scan_volume(volume: &dyn Volume, threads: usize, memory_bytes: usize) -> Harvest {
    let next = AtomicU32::new(0);
    let threads = threads.clamp(1, 64);
    let worker = || {
        let mut scanner = Scanner::new(volume, memory_bytes / threads);
        loop {
            let leb = next.fetch_add(1, Ordering::Relaxed);
            if leb >= scanner.lebs {
                return scanner.harvest;
            }
            scanner.read(leb);
        }
    };
    let mut all = Harvest::default();
    if threads == 1 {
        all.absorb(worker());
        return all;
    }
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            all.absorb(worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
    });
    all
}

struct Scanner<'a> {
    volume: &'a dyn Volume,
    units: Units,
    lebs: u32,
    write_bytes: usize,
    memory_bytes: usize,
    raw: Vec<u8>,
    harvest: Harvest,
}

impl<'a> Scanner<'a> {
    fn new(volume: &'a dyn Volume, memory_bytes: usize) -> Self {
        let geometry = volume.geometry();
        let units = Units::new(geometry.leb_bytes);
        Self {
            volume,
            units,
            lebs: geometry.lebs.min(units.lebs_max()),
            write_bytes: to_usize(geometry.max_write_bytes.max(geometry.min_io_bytes).max(8)),
            memory_bytes,
            raw: vec![0; to_usize(geometry.leb_bytes)],
            harvest: Harvest::default(),
        }
    }

    /// Reads and scans a LEB.
    fn read(&mut self, leb: u32) {
        match self.volume.read(Leb(leb), 0, &mut self.raw) {
            Ok(()) | Err(VolumeError::Uncorrectable { .. }) => {}
            Err(error) => self.read_in_parts(leb, &error),
        }
        let raw = std::mem::take(&mut self.raw);
        if !is_erased(&raw) {
            self.scan(leb, &raw);
        }
        self.raw = raw;
    }

    /// Reads a LEB in write units; those that can't be read become zeros.
    fn read_in_parts(&mut self, leb: u32, whole: &VolumeError) {
        let unit = to_usize(self.volume.geometry().min_io_bytes.max(512));
        let mut first = None;
        let mut lost = 0_usize;
        for (number, part) in self.raw.chunks_mut(unit).enumerate() {
            let offset = to_word(number * unit);
            match self.volume.read(Leb(leb), offset, part) {
                Ok(()) | Err(VolumeError::Uncorrectable { .. }) => {}
                Err(_) => {
                    part.fill(0);
                    lost += part.len();
                    first = first.or(Some(offset));
                }
            }
        }
        let place = Place {
            leb,
            offset: first.unwrap_or(0),
            bytes: to_word(lost),
        };
        if lost > 0 {
            self.harvest.unreadable.push(Finding {
                inode: None,
                subject: Subject::Data,
                place,
                damage: Damage::Medium(Arc::from(whole.to_string())),
            });
        }
    }

    fn scan(&mut self, leb: u32, raw: &[u8]) {
        let Some(first) = self.units.unit(leb, 0) else {
            return;
        };
        let scars = self.harvest.scars.len();
        let mut is_of_files = false;
        let mut has_nodes = false;
        let mut group: Option<usize> = None;
        let mut offset = 0;
        let mut budget = raw.len().saturating_mul(CHECKS_PER_BYTE);
        let mut end_defect = None;
        while let Some(rest) = raw.get(offset..).filter(|rest| rest.len() >= HEADER_BYTES) {
            if let Some(bytes) = padding(rest) {
                offset += bytes;
                continue;
            }
            match check(rest) {
                Ok(header) if header.kind == NodeKind::Padding => {
                    has_nodes = true;
                    offset += padding_node(rest, &header);
                }
                Ok(header) => {
                    let place = Place {
                        leb,
                        offset: to_word(offset),
                        bytes: header.bytes,
                    };
                    let node = slice_of(raw, offset, header.bytes);
                    self.harvest
                        .add(node, &header, place, unit_at(first, offset), self.memory_bytes);
                    is_of_files |= is_of_main_area(header.kind);
                    has_nodes = true;
                    group = match header.group {
                        Group::Inside => group.or(Some(offset)),
                        Group::None | Group::Last => None,
                    };
                    end_defect = None;
                    offset += to_usize(header.aligned_bytes());
                }
                Err(NodeDefect::Erased) => {
                    let Some(next) = written_from(raw, offset) else {
                        break;
                    };
                    // LEBs are written upwards: something was here.
                    self.note_gap(leb, offset, next);
                    offset = next.max(offset + 8);
                }
                Err(defect) => {
                    let next = self.skip(raw, leb, offset, defect, &mut budget);
                    end_defect = end_defect.or(Some((offset, defect)));
                    let Some(next) = next else { break };
                    offset = next;
                }
            }
        }
        if has_nodes {
            self.harvest.written.push(leb);
        }
        let is_torn = end_defect.is_none_or(|(at, defect)| self.is_torn(raw, at, &defect));
        if let Some(start) = group.filter(|_| is_torn) {
            self.harvest.tails.push(Tail {
                units: (unit_at(first, start), unit_at(first, raw.len())),
            });
        }
        for scar in &mut self.harvest.scars[scars..] {
            scar.is_of_files = is_of_files;
        }
    }

    fn is_torn(&self, raw: &[u8], offset: usize, defect: &NodeDefect) -> bool {
        torn_rule(raw, offset, defect, self.write_bytes).is_some()
    }

    fn note_gap(&mut self, leb: u32, offset: usize, next: usize) {
        self.harvest.add_scar(Scar {
            place: Place {
                leb,
                offset: to_word(offset),
                bytes: to_word(next.saturating_sub(offset)),
            },
            defect: NodeDefect::Erased,
            is_last: false,
            is_of_files: false,
        });
    }

    /// Notes an invalid node; returns where the scan continues.
    fn skip(
        &mut self,
        raw: &[u8],
        leb: u32,
        offset: usize,
        defect: NodeDefect,
        budget: &mut usize,
    ) -> Option<usize> {
        let is_last = self.is_torn(raw, offset, &defect);
        let mut end = None;
        let mut place = Place {
            leb,
            offset: to_word(offset),
            bytes: 0,
        };
        if let NodeDefect::Crc { kind, bytes, .. } = defect {
            *budget = budget.checked_sub(to_usize(bytes))?;
            place.bytes = bytes;
            self.harvest
                .add_broken(slice_of(raw, offset, bytes), kind, place, is_last);
            let behind = offset + to_usize(bytes.next_multiple_of(8));
            end = Some(behind).filter(|behind| begins_well(raw, *behind));
        }
        let next = end.or_else(|| next_magic(raw, offset + 8));
        place.bytes = to_word(next.unwrap_or(raw.len()).saturating_sub(offset));
        self.harvest.add_scar(Scar {
            place,
            defect,
            is_last,
            is_of_files: false,
        });
        next
    }
}

fn is_of_main_area(kind: NodeKind) -> bool {
    matches!(
        kind,
        NodeKind::Inode | NodeKind::Data | NodeKind::Entry | NodeKind::XattrEntry | NodeKind::Truncation
    )
}

/// Length of single padding bytes.
fn padding(rest: &[u8]) -> Option<usize> {
    if rest.first() != Some(&PADDING_BYTE) {
        return None;
    }
    let bytes = rest.iter().take_while(|byte| **byte == PADDING_BYTE).count();
    bytes.is_multiple_of(8).then_some(bytes)
}

/// Length of a padding node with the bytes that it covers; of the node only, if they leave the LEB.
fn padding_node(rest: &[u8], header: &Header) -> usize {
    let follow = rest.get(24..28).and_then(|raw| raw.try_into().ok());
    let bytes =
        to_usize(header.bytes).saturating_add(follow.map_or(0, |raw| to_usize(u32::from_le_bytes(raw))));
    match bytes <= rest.len() && bytes.is_multiple_of(8) {
        true => bytes,
        false => to_usize(header.aligned_bytes()),
    }
}

/// The next 8 bytes at or behind `from` that are not erased.
fn written_from(raw: &[u8], from: usize) -> Option<usize> {
    let rest = raw.get(from..)?;
    let at = rest.iter().position(|byte| *byte != 0xFF)?;
    Some(from + at / 8 * 8)
}

/// Whether a node, padding, or erased space begins at `offset`, or the LEB ends there.
fn begins_well(raw: &[u8], offset: usize) -> bool {
    match raw.get(offset..) {
        None => false,
        Some(rest) if rest.len() < HEADER_BYTES => true,
        Some(rest) => {
            padding(rest).is_some()
                || rest.starts_with(&MAGIC.to_le_bytes())
                || is_erased(rest.get(..64).unwrap_or(rest))
        }
    }
}

fn next_magic(raw: &[u8], from: usize) -> Option<usize> {
    let magic = MAGIC.to_le_bytes();
    (from.next_multiple_of(8)..raw.len())
        .step_by(8)
        .find(|offset| raw.get(*offset..).is_some_and(|rest| rest.starts_with(&magic)))
}
