//! Nodes from their places. Neighbours on the medium are read as one piece, and all pieces of a call in one request, which an
//! array serves with all its members.

use std::sync::Arc;

use media::Leb;
use ubi::{ReadPart, Volume, VolumeError};

use crate::finding::{Damage, Place};
use crate::format::{NodeKind, check_expected};
use crate::scan::to_usize;

/// Pieces of this size at most, so that one bad page does not cost much.
const PIECE_BYTES_MAX: u32 = 256 << 10;

/// The bytes of the nodes at `places`, in their order; each is a checked node of `kind` and of its place's length.
pub(crate) fn nodes(
    volume: &dyn Volume,
    places: &[Place],
    kind: impl Fn(usize) -> NodeKind,
) -> Vec<Result<Vec<u8>, Damage>> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|number| places[*number]);
    let mut results: Vec<_> = places.iter().map(|place| Err(outside(volume, place))).collect();
    let mut pieces: Vec<Piece> = Vec::new();
    for number in order {
        let place = places[number];
        if !is_inside(volume, place) {
            continue;
        }
        match pieces.last_mut().filter(|piece| piece.takes(place)) {
            Some(piece) => piece.add(number, place),
            None => pieces.push(Piece::new(number, place)),
        }
    }
    for piece in &mut pieces {
        piece.raw = vec![0; to_usize(piece.place.bytes)];
    }
    let mut parts: Vec<_> = pieces
        .iter_mut()
        .map(|piece| ReadPart {
            leb: Leb(piece.place.leb),
            offset: piece.place.offset,
            out: &mut piece.raw,
        })
        .collect();
    let all = volume.read_many(&mut parts);
    let each_alone = !matches!(all, Ok(()) | Err(VolumeError::Uncorrectable { .. }));
    for piece in &pieces {
        for number in &piece.members {
            let place = places[*number];
            let from = to_usize(place.offset - piece.place.offset);
            results[*number] = match each_alone {
                false => Ok(piece.raw[from..from + to_usize(place.bytes)].to_vec()),
                true => read(volume, place),
            }
            .and_then(|raw| match check_expected(&raw, kind(*number), place.bytes) {
                Ok(_) => Ok(raw),
                Err(defect) => Err(defect.into()),
            });
        }
    }
    results
}

/// The bytes at a place. What the medium could not correct is left to the CRC.
pub(crate) fn read(volume: &dyn Volume, place: Place) -> Result<Vec<u8>, Damage> {
    if !is_inside(volume, place) {
        return Err(outside(volume, &place));
    }
    let mut raw = vec![0; to_usize(place.bytes)];
    match volume.read(Leb(place.leb), place.offset, &mut raw) {
        Ok(()) | Err(VolumeError::Uncorrectable { .. }) => Ok(raw),
        Err(error) => Err(Damage::Medium(Arc::from(error.to_string()))),
    }
}

/// A node.
pub(crate) fn node(volume: &dyn Volume, place: Place, kind: NodeKind) -> Result<Vec<u8>, Damage> {
    let raw = read(volume, place)?;
    check_expected(&raw, kind, place.bytes)?;
    Ok(raw)
}

/// All of a LEB.
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

fn is_inside(volume: &dyn Volume, place: Place) -> bool {
    let geometry = volume.geometry();
    let end = u64::from(place.offset) + u64::from(place.bytes);
    place.leb < geometry.lebs && end <= u64::from(geometry.leb_bytes)
}

fn outside(volume: &dyn Volume, _: &Place) -> Damage {
    let geometry = volume.geometry();
    Damage::Outside {
        lebs: geometry.lebs,
        leb_bytes: geometry.leb_bytes,
    }
}

struct Piece {
    place: Place,
    members: Vec<usize>,
    raw: Vec<u8>,
}

impl Piece {
    fn new(number: usize, place: Place) -> Self {
        Self {
            place,
            members: vec![number],
            raw: Vec::new(),
        }
    }

    /// Whether a node follows the piece, or lies in it.
    fn takes(&self, place: Place) -> bool {
        let end = self.place.offset + self.place.bytes;
        place.leb == self.place.leb
            && place.offset <= end.next_multiple_of(8)
            && place.offset + place.bytes - self.place.offset <= PIECE_BYTES_MAX
    }

    fn add(&mut self, number: usize, place: Place) {
        self.place.bytes = self
            .place
            .bytes
            .max(place.offset + place.bytes - self.place.offset);
        self.members.push(number);
    }
}
