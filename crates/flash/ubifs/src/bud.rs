//! Reads one bud (a LEB of the journal, from an offset on), and drops nodes at an end that may be torn.

use media::Leb;
use ubi::{TornEnd, Volume};

use crate::finding::{Damage, Finding, Place, Subject};
use crate::format::{Group, HEADER_BYTES, LogReference, NodeDefect, Superblock};
use crate::report::{BudEnd, BudReport, DropRule, DroppedNode, TornRule};
use crate::scan::{Found, Scan, Stop, is_erased, next_node, scan, to_usize, to_word};

/// The journal head of garbage collection.
const HEAD_GC: u32 = 0;

/// Rules for the end of a bud.
pub(crate) struct Rules {
    /// Whether a power cut may have torn its end.
    pub(crate) may_be_torn: bool,
    /// Maximum size of a write, bytes.
    pub(crate) write_bytes: usize,
    /// Size of a write unit, bytes.
    pub(crate) min_io_bytes: usize,
}

/// Nodes of a bud, and its report.
pub(crate) struct Bud {
    /// Valid nodes that are replayed.
    pub(crate) nodes: Vec<Found>,
    pub(crate) report: BudReport,
}

/// Maximum size of a write, bytes.
pub(crate) fn write_bytes(volume: &dyn Volume, superblock: &Superblock) -> usize {
    let write_bytes = volume.geometry().max_write_bytes;
    to_usize(write_bytes.max(superblock.min_io_bytes).max(8))
}

/// Damage in a LEB of the journal.
pub(crate) fn journal_finding(leb: u32, offset: u32, damage: Damage) -> Finding {
    let place = Place {
        leb,
        offset,
        bytes: 0,
    };
    Finding {
        inode: None,
        subject: Subject::Journal,
        place,
        damage,
    }
}

/// The judgement of the volume on an end that looks torn: `None` if it is lost through damage, which is a finding. A
/// doubt is kept.
pub(crate) fn believed(
    volume: &dyn Volume,
    rule: Option<TornRule>,
    end: &Finding,
    findings: &mut Vec<Finding>,
    doubts: &mut Vec<Finding>,
) -> Option<TornRule> {
    let rule = rule?;
    let because = |damage| Finding {
        damage,
        ..end.clone()
    };
    match volume.torn_end(Leb(end.place.leb), end.place.offset) {
        TornEnd::Plausible => {}
        TornEnd::Doubtful(why) => doubts.push(because(Damage::Doubtful(why))),
        TornEnd::Lost(why) => {
            findings.push(because(Damage::Medium(why)));
            return None;
        }
    }
    Some(rule)
}

/// Reads the bud of a log reference; `raw` is its whole LEB.
pub(crate) fn read_bud(
    volume: &dyn Volume,
    raw: &[u8],
    reference: &LogReference,
    rules: &Rules,
    findings: &mut Vec<Finding>,
    doubts: &mut Vec<Finding>,
) -> Bud {
    let Scan { mut nodes, end, stop } = scan(raw, to_usize(reference.offset));
    let mut report = BudReport {
        leb: reference.leb,
        offset: reference.offset,
        head: reference.head,
        may_be_torn: rules.may_be_torn,
        nodes: 0,
        sequences: None,
        dropped: 0,
        dropped_nodes: Vec::new(),
        end: BudEnd::Clean,
        rule: None,
    };
    if let Stop::Broken(defect) = stop {
        let rule = torn_rule(raw, end, &defect, rules.write_bytes).filter(|_| rules.may_be_torn);
        let broken = journal_finding(reference.leb, to_word(end), defect.into());
        report.rule = believed(volume, rule, &broken, findings, doubts);
        if report.rule.is_some() {
            report.end = BudEnd::Torn(to_word(end));
        } else {
            report.end = BudEnd::Damaged(to_word(end));
            rescan(raw, end, defect, reference.leb, &mut nodes, findings);
        }
    }
    let damaged = matches!(report.end, BudEnd::Damaged(_));
    if rules.may_be_torn && !damaged {
        report.dropped_nodes = drop_tail(&mut nodes, end, reference.head, rules.min_io_bytes);
        report.dropped = report.dropped_nodes.len();
    }
    let sequences = || nodes.iter().map(|found| found.header.sequence);
    report.sequences = sequences().min().zip(sequences().max());
    report.nodes = nodes.len();
    Bud { nodes, report }
}

/// Continues behind damage at the next valid node; each damaged place becomes a finding.
fn rescan(
    raw: &[u8],
    end: usize,
    defect: NodeDefect,
    leb: u32,
    nodes: &mut Vec<Found>,
    findings: &mut Vec<Finding>,
) {
    let (mut from, mut why) = (end, defect);
    loop {
        findings.push(journal_finding(leb, to_word(from), why.into()));
        let Some(next) = next_node(raw, from + 8) else {
            return;
        };
        let more = scan(raw, next);
        nodes.extend(more.nodes);
        match more.stop {
            Stop::Erased => return,
            Stop::Broken(defect) => (from, why) = (more.end, defect),
        }
    }
}

/// The rule by which damage counts as a torn write: everything behind it is erased.
pub(crate) fn torn_rule(raw: &[u8], end: usize, defect: &NodeDefect, write_bytes: usize) -> Option<TornRule> {
    let erased_from = |offset: usize| {
        let from = offset.next_multiple_of(write_bytes);
        is_erased(raw.get(from..).unwrap_or_default())
    };
    let rules = match defect {
        NodeDefect::Crc { bytes, .. } => vec![
            (TornRule::BehindHeader, HEADER_BYTES),
            (TornRule::BehindNode, to_usize(*bytes)),
        ],
        NodeDefect::Length { .. } | NodeDefect::Kind { .. } => vec![(TornRule::BehindHeader, HEADER_BYTES)],
        _ => vec![(TornRule::BehindStart, 1)],
    };
    let rule = rules.into_iter().find(|(_, bytes)| erased_from(end + bytes));
    rule.map(|(rule, _)| rule)
}

/// Removes nodes from the end that must not be replayed.
fn drop_tail(nodes: &mut Vec<Found>, end: usize, head: u32, min_io_bytes: usize) -> Vec<DroppedNode> {
    let unit = end / min_io_bytes * min_io_bytes;
    let mut dropped = Vec::new();
    while let Some(last) = nodes.last().copied() {
        let last_end = last.offset + to_usize(last.header.aligned_bytes());
        let why = match head {
            HEAD_GC if last_end > unit => DropRule::CopyInLastUnit,
            HEAD_GC => break,
            _ if last.header.group == Group::Inside => DropRule::UnfinishedGroup,
            _ => break,
        };
        nodes.pop();
        dropped.push(DroppedNode {
            offset: to_word(last.offset),
            kind: last.header.kind,
            sequence: last.header.sequence,
            why,
        });
    }
    dropped
}
