//! Reads nodes from their locations. Adjacent nodes are read as one piece, and all pieces of a call go into one
//! request, which an array spreads over its members.

use std::sync::Arc;

use media::Leb;
use ubi::{ReadPart, Volume, VolumeError};

use crate::finding::{Damage, Place};
use crate::format::{NodeKind, check_expected};
use crate::scan::{is_erased, to_usize};

/// Memory limit per request; a request is never larger than the volume either. Larger reads are split: on a damaged
/// medium a branch may claim the length of a LEB, and many branches may refer to the same node.
const REQUEST_BYTES_MAX: u64 = 4 << 20;

/// Receives a node or the reason of its loss, with its number in the call.
pub(crate) type Take<'a> = dyn FnMut(usize, Result<&[u8], Damage>) + 'a;

/// Reads the nodes at `places` and passes them to `take` in that order, each with its number. Each is checked to be
/// of `kind` and of the length in its location. `memory` is scratch space; it keeps its size for the next call.
pub(crate) fn nodes(
    volume: &dyn Volume,
    places: &[Place],
    kind: NodeKind,
    memory: &mut Vec<u8>,
    take: &mut Take<'_>,
) {
    let geometry = volume.geometry();
    let volume_bytes = u64::from(geometry.lebs) * u64::from(geometry.leb_bytes);
    let bytes_max = REQUEST_BYTES_MAX.min(volume_bytes);
    let mut from = 0;
    while from < places.len() {
        let mut bytes = 0;
        let fitting = places[from..].iter().take_while(|place| {
            bytes += u64::from(place.bytes);
            bytes <= bytes_max
        });
        let until = from + fitting.count().max(1);
        request(volume, &places[from..until], kind, memory, &mut |number, node| {
            take(from + number, node);
        });
        from = until;
    }
}

fn request(volume: &dyn Volume, places: &[Place], kind: NodeKind, memory: &mut Vec<u8>, take: &mut Take<'_>) {
    let plan = Plan::new(volume, places);
    if memory.len() < plan.bytes {
        memory.resize(plan.bytes, 0);
    }
    let failures = plan.read(volume, places, memory);
    for (number, place) in places.iter().enumerate() {
        let node = match (plan.starts[number], &failures) {
            (None, _) => Err(outside(volume)),
            (Some(start), None) => Ok(start),
            (Some(start), Some(failures)) => failures[number].clone().map_or(Ok(start), Err),
        };
        let checked = node.and_then(|start| {
            let raw = &memory[start..start + to_usize(place.bytes)];
            check_expected(raw, kind, place.bytes)?;
            Ok(raw)
        });
        take(number, checked);
    }
}

/// Reads bytes. Uncorrectable bit errors are left to the CRC check.
pub(crate) fn read(volume: &dyn Volume, place: Place) -> Result<Vec<u8>, Damage> {
    // Before the allocation: a forged length can be up to 4 GiB.
    if !is_inside(volume, place) {
        return Err(outside(volume));
    }
    let mut raw = vec![0; to_usize(place.bytes)];
    read_into(volume, place, &mut raw)?;
    Ok(raw)
}

/// Reads and checks one node.
pub(crate) fn node(volume: &dyn Volume, place: Place, kind: NodeKind) -> Result<Vec<u8>, Damage> {
    let raw = read(volume, place)?;
    check_expected(&raw, kind, place.bytes)?;
    Ok(raw)
}

/// Reads a whole LEB.
pub(crate) fn leb(volume: &dyn Volume, leb: u32) -> Result<Vec<u8>, Damage> {
    read(
        volume,
        Place {
            leb,
            offset: 0,
            bytes: volume.geometry().leb_bytes,
        },
    )
}

/// Reads bytes that no CRC protects: uncorrectable bit errors are an error.
pub(crate) fn correct(volume: &dyn Volume, place: Place) -> Result<Vec<u8>, Damage> {
    if !is_inside(volume, place) {
        return Err(outside(volume));
    }
    let mut raw = vec![0; to_usize(place.bytes)];
    let read = volume.read(Leb(place.leb), place.offset, &mut raw);
    read.map_err(|error| Damage::Medium(Arc::from(error.to_string())))?;
    Ok(raw)
}

/// The part of a LEB to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The whole LEB.
    Whole,
    /// From this byte to the end of the written part: LEBs are written upwards, so nothing follows an erased row.
    /// Only for file systems that were cleanly unmounted, since damage behind such a gap goes unnoticed.
    WrittenFrom(u32),
}

/// Rows per read in the search for the end of the written part.
const ROWS: u32 = 8;

/// Reads a LEB into a buffer of its full length; the parts not read are 0xFF.
pub(crate) fn extent_of_leb(volume: &dyn Volume, leb: u32, extent: Extent) -> Result<Vec<u8>, Damage> {
    let Extent::WrittenFrom(from) = extent else {
        return self::leb(volume, leb);
    };
    let geometry = volume.geometry();
    if leb >= geometry.lebs {
        return Err(outside(volume));
    }
    let row = geometry.max_write_bytes.max(geometry.min_io_bytes).max(512);
    let mut raw = vec![0xFF; to_usize(geometry.leb_bytes)];
    let mut offset = from.min(geometry.leb_bytes) / row * row;
    while offset < geometry.leb_bytes {
        let bytes = (ROWS * row).min(geometry.leb_bytes - offset);
        let place = Place { leb, offset, bytes };
        let rows = &mut raw[to_usize(offset)..to_usize(offset + bytes)];
        read_into(volume, place, rows)?;
        if is_erased(rows) {
            break;
        }
        offset += bytes;
    }
    Ok(raw)
}

fn read_into(volume: &dyn Volume, place: Place, raw: &mut [u8]) -> Result<(), Damage> {
    match volume.read(Leb(place.leb), place.offset, raw) {
        Ok(()) | Err(VolumeError::Uncorrectable { .. }) => Ok(()),
        Err(error) => Err(Damage::Medium(Arc::from(error.to_string()))),
    }
}

fn is_inside(volume: &dyn Volume, place: Place) -> bool {
    let geometry = volume.geometry();
    let end = u64::from(place.offset) + u64::from(place.bytes);
    place.leb < geometry.lebs && end <= u64::from(geometry.leb_bytes)
}

fn outside(volume: &dyn Volume) -> Damage {
    let geometry = volume.geometry();
    Damage::Outside {
        lebs: geometry.lebs,
        leb_bytes: geometry.leb_bytes,
    }
}

/// The pieces of a request, and the position of each node in memory.
struct Plan {
    pieces: Vec<Place>,
    /// Position in memory per location, in the given order; `None` if the location is outside of the volume.
    starts: Vec<Option<usize>>,
    bytes: usize,
}

impl Plan {
    fn new(volume: &dyn Volume, places: &[Place]) -> Self {
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by_key(|number| places[*number]);
        let mut plan = Self {
            pieces: Vec::new(),
            starts: vec![None; places.len()],
            bytes: 0,
        };
        let mut piece_start = 0;
        for number in order {
            let place = places[number];
            if !is_inside(volume, place) {
                continue;
            }
            match plan.pieces.last_mut().filter(|piece| is_next(piece, place)) {
                Some(piece) => piece.bytes = piece.bytes.max(place.offset + place.bytes - piece.offset),
                None => {
                    piece_start = plan.bytes;
                    plan.pieces.push(place);
                }
            }
            let piece = plan.pieces.last().copied().unwrap_or(place);
            plan.starts[number] = Some(piece_start + to_usize(place.offset - piece.offset));
            plan.bytes = piece_start + to_usize(piece.bytes);
        }
        plan
    }

    /// Reads all pieces in one request. If that fails, reads each node separately and returns the outcome of each.
    fn read(&self, volume: &dyn Volume, places: &[Place], memory: &mut [u8]) -> Option<Vec<Option<Damage>>> {
        let mut rest = &mut memory[..self.bytes];
        let mut parts = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            let (out, behind) = rest.split_at_mut(to_usize(piece.bytes));
            rest = behind;
            parts.push(ReadPart {
                leb: Leb(piece.leb),
                offset: piece.offset,
                out,
            });
        }
        if parts.is_empty()
            || matches!(
                volume.read_many(&mut parts),
                Ok(()) | Err(VolumeError::Uncorrectable { .. })
            )
        {
            return None;
        }
        let alone = places.iter().zip(&self.starts).map(|(place, start)| {
            let start = (*start)?;
            read_into(volume, *place, &mut memory[start..start + to_usize(place.bytes)]).err()
        });
        Some(alone.collect())
    }
}

/// Whether a node follows a piece, or lies within it.
fn is_next(piece: &Place, place: Place) -> bool {
    let end = piece.offset + piece.bytes;
    place.leb == piece.leb && place.offset <= end.next_multiple_of(8)
}
