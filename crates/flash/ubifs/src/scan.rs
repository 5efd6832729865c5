//! Scans the nodes of a LEB up to erased space or damage.

use crate::format::{Header, NodeDefect, NodeKind, PADDING_BYTE, check};

/// A node found by a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) offset: usize,
    pub(crate) header: Header,
}

/// Why a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The rest of the LEB is erased.
    Erased,
    /// An invalid node.
    Broken(NodeDefect),
}

/// Result of a scan.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pub(crate) nodes: Vec<Found>,
    /// Offset at which it ended.
    pub(crate) end: usize,
    pub(crate) stop: Stop,
}

/// Scans `leb`, a whole LEB, from `start` on.
pub(crate) fn scan(leb: &[u8], start: usize) -> Scan {
    let mut nodes = Vec::new();
    let mut offset = start;
    let stop = loop {
        let rest = leb.get(offset..).unwrap_or_default();
        if rest.is_empty() {
            break Stop::Erased;
        }
        match step(rest) {
            Ok(Step::Node(header)) => {
                nodes.push(Found { offset, header });
                offset += to_usize(header.aligned_bytes());
            }
            Ok(Step::Padding(bytes)) => offset += bytes,
            Err(NodeDefect::Erased) if is_erased(rest) => break Stop::Erased,
            Err(defect) => break Stop::Broken(defect),
        }
    };
    Scan {
        nodes,
        end: offset.min(leb.len()),
        stop,
    }
}

/// The next offset at or behind `from` with a valid node.
pub(crate) fn next_node(leb: &[u8], from: usize) -> Option<usize> {
    (from.next_multiple_of(8)..leb.len())
        .step_by(8)
        .find(|offset| check(&leb[*offset..]).is_ok())
}

/// Whether all bytes are erased.
pub(crate) fn is_erased(raw: &[u8]) -> bool {
    raw.iter().all(|byte| *byte == 0xFF)
}

enum Step {
    Node(Header),
    /// Distance to the next node.
    Padding(usize),
}

fn step(rest: &[u8]) -> Result<Step, NodeDefect> {
    if rest[0] == PADDING_BYTE {
        let bytes = rest.iter().take_while(|byte| **byte == PADDING_BYTE).count();
        if bytes.is_multiple_of(8) {
            return Ok(Step::Padding(bytes));
        }
    }
    let header = check(rest)?;
    if header.kind != NodeKind::Padding {
        return Ok(Step::Node(header));
    }
    let follow = rest
        .get(24..28)
        .and_then(|raw| raw.try_into().ok())
        .map_or(0, u32::from_le_bytes);
    let bytes = to_usize(header.bytes).saturating_add(to_usize(follow));
    if bytes > rest.len() || !bytes.is_multiple_of(8) {
        return Err(NodeDefect::Field {
            kind: NodeKind::Padding,
            why: "it does not end at a node",
        });
    }
    Ok(Step::Padding(bytes))
}

/// Converts a length for indexing: LEBs are smaller than memory.
pub(crate) fn to_usize(bytes: u32) -> usize {
    usize::try_from(bytes).expect("a word has 32 bits at least")
}

/// Converts an offset in a LEB.
pub(crate) fn to_word(offset: usize) -> u32 {
    u32::try_from(offset).expect("a LEB is smaller than 4 GiB")
}
