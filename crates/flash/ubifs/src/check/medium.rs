//! The checker's view of the volume: reads whole LEBs, and nodes from them.

use std::sync::Arc;

use media::Leb;
use ubi::{TornEnd, Volume, VolumeError, VolumeGeometry};

use super::fault::{At, Fault};
use crate::format::{HEADER_BYTES, Header, NodeDefect, NodeKind, PADDING_BYTE, check, check_expected};

/// Location of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Spot {
    pub(super) leb: u32,
    pub(super) offset: u32,
    pub(super) bytes: u32,
}

impl Spot {
    /// End of the node, including padding to the next one.
    pub(super) fn end(self) -> u64 {
        (u64::from(self.offset) + u64::from(self.bytes)).next_multiple_of(8)
    }
}

/// A node of a LEB.
#[derive(Clone, Copy, Debug)]
pub(super) struct InLeb {
    pub(super) offset: usize,
    pub(super) header: Header,
}

/// How the sequence of nodes in a LEB ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    /// In erased bytes or at the end of the LEB.
    Erased,
    /// In an invalid node.
    Broken(NodeDefect),
}

/// The volume, with a cache of one LEB.
pub(super) struct Medium<'a> {
    volume: &'a dyn Volume,
    pub(super) geometry: VolumeGeometry,
    current: Option<u32>,
    raw: Vec<u8>,
    pub(super) lebs_read: u64,
}

impl<'a> Medium<'a> {
    pub(super) fn new(volume: &'a dyn Volume) -> Self {
        Self {
            volume,
            geometry: volume.geometry(),
            current: None,
            raw: Vec::new(),
            lebs_read: 0,
        }
    }

    pub(super) fn outside(&self, spot: Spot) -> Fault {
        Fault::Outside {
            leb: spot.leb,
            offset: spot.offset,
            bytes: spot.bytes,
            lebs: self.geometry.lebs,
            leb_bytes: self.geometry.leb_bytes,
        }
    }

    /// Reads a whole LEB. Uncorrectable bit errors are left to the CRCs.
    pub(super) fn leb(&mut self, leb: u32) -> Result<&[u8], Fault> {
        if self.current != Some(leb) {
            let bytes = self.geometry.leb_bytes;
            if leb >= self.geometry.lebs {
                return Err(self.outside(Spot {
                    leb,
                    offset: 0,
                    bytes,
                }));
            }
            self.current = None;
            self.raw.resize(to_usize(bytes), 0);
            match self.volume.read(Leb(leb), 0, &mut self.raw) {
                Ok(()) | Err(VolumeError::Uncorrectable { .. }) => self.current = Some(leb),
                Err(error) => return Err(Fault::Medium(Arc::from(error.to_string()))),
            }
            self.lebs_read += 1;
        }
        Ok(&self.raw)
    }

    /// The volume's judgement on an end that looks torn.
    pub(super) fn torn_end(&self, at: At) -> TornEnd {
        self.volume.torn_end(Leb(at.leb), at.offset)
    }

    /// A checked node of this kind and length.
    pub(super) fn node(&mut self, spot: Spot, kind: NodeKind) -> Result<&[u8], Fault> {
        let fits = spot.end() <= u64::from(self.geometry.leb_bytes) && spot.offset.is_multiple_of(8);
        if !fits {
            return Err(self.outside(spot));
        }
        let raw = self.leb(spot.leb)?;
        let raw = &raw[to_usize(spot.offset)..];
        check_expected(raw, kind, spot.bytes)?;
        Ok(&raw[..to_usize(spot.bytes)])
    }
}

/// The nodes of a LEB from `start` on, without padding, with the offset and kind of their end.
pub(super) fn nodes_of(leb: &[u8], start: usize) -> (Vec<InLeb>, usize, Ending) {
    let (mut nodes, mut offset) = (Vec::new(), start);
    while let Some(rest) = leb.get(offset..).filter(|rest| !rest.is_empty()) {
        if rest[0] == PADDING_BYTE && rest.len() >= 8 && rest[..8].iter().all(|byte| *byte == PADDING_BYTE) {
            offset += 8;
            continue;
        }
        match check(rest) {
            Ok(header) if header.kind == NodeKind::Padding => {
                let pad = rest.get(HEADER_BYTES..).and_then(<[u8]>::first_chunk::<4>);
                let pad = to_usize(pad.map_or(0, |raw| u32::from_le_bytes(*raw)));
                let skip = to_usize(header.bytes).saturating_add(pad);
                if skip > rest.len() || !skip.is_multiple_of(8) {
                    let why = "it does not end at a node";
                    let kind = NodeKind::Padding;
                    return (nodes, offset, Ending::Broken(NodeDefect::Field { kind, why }));
                }
                offset += skip;
            }
            Ok(header) => {
                nodes.push(InLeb { offset, header });
                offset += to_usize(header.aligned_bytes());
            }
            Err(NodeDefect::Erased) if blank(rest) => return (nodes, offset, Ending::Erased),
            Err(defect) => return (nodes, offset, Ending::Broken(defect)),
        }
    }
    (nodes, offset.min(leb.len()), Ending::Erased)
}

/// Whether a torn write of up to `write_bytes` explains the damage at `offset`: everything behind that write is
/// erased. Since the damaged node may begin in one write and end in the next, its stated end is tried as well.
pub(super) fn explained_by_a_cut(leb: &[u8], offset: usize, defect: &NodeDefect, write_bytes: usize) -> bool {
    let candidates = match defect {
        NodeDefect::Crc { bytes, .. } => vec![offset + HEADER_BYTES, offset + to_usize(*bytes)],
        NodeDefect::Length { .. } | NodeDefect::Kind { .. } => vec![offset + HEADER_BYTES],
        _ => vec![offset + 1],
    };
    candidates.into_iter().any(|written| {
        blank(
            leb.get(written.next_multiple_of(write_bytes)..)
                .unwrap_or_default(),
        )
    })
}

/// Whether all bytes are erased.
pub(super) fn blank(raw: &[u8]) -> bool {
    raw.iter().all(|byte| *byte == 0xFF)
}

pub(super) fn to_usize(bytes: u32) -> usize {
    usize::try_from(bytes).expect("a word has 32 bits at least")
}

pub(super) fn to_word(offset: usize) -> u32 {
    u32::try_from(offset).expect("a LEB is smaller than 4 GiB")
}
