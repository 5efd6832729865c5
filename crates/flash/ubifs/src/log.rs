//! Reads the log: the buds of the journal since the last commit.

use ubi::Volume;

use crate::bud::{believed, torn_rule, write_bytes};
use crate::fetch::{self, Extent};
use crate::finding::{Damage, Finding, Place, Subject};
use crate::format::{CommitStart, LOG_LEB, LogReference, Master, NodeKind, Superblock};
use crate::report::{LogEntry, LogLeb, LogNode, LogVerdict, ReplayReport};
use crate::scan::{Found, Stop, scan, to_word};

/// The references of the log, oldest first, without duplicates.
pub(crate) fn read_log(
    volume: &dyn Volume,
    superblock: &Superblock,
    master: &Master,
    report: &mut ReplayReport,
    findings: &mut Vec<Finding>,
) -> Vec<LogReference> {
    let mut log = Log {
        volume,
        superblock,
        extent: match report.was_clean {
            true => Extent::WrittenFrom(0),
            false => Extent::Whole,
        },
        commit: master.commit,
        started: None,
        references: Vec::new(),
        report,
        findings,
    };
    let in_log = |leb| (LOG_LEB..LOG_LEB.saturating_add(superblock.log_lebs)).contains(&leb);
    let mut leb = master.log_leb;
    for _ in 0..superblock.log_lebs.min(volume.geometry().lebs) {
        if !in_log(leb) {
            let why = "the log is to start in a LEB that is none of it";
            log.lose(leb, 0, Damage::Contradiction(why));
            break;
        }
        let (nodes, verdict) = log.leb(leb);
        log.report.log.push(LogLeb { leb, nodes, verdict });
        if verdict != LogVerdict::Taken {
            break;
        }
        log.report.log_lebs.push(leb);
        leb = if in_log(leb + 1) { leb + 1 } else { LOG_LEB };
    }
    log.references
}

struct Log<'a> {
    volume: &'a dyn Volume,
    superblock: &'a Superblock,
    extent: Extent,
    /// Commit number expected at the start.
    commit: u64,
    /// Sequence number at the start.
    started: Option<u64>,
    references: Vec<LogReference>,
    report: &'a mut ReplayReport,
    findings: &'a mut Vec<Finding>,
}

/// Damage in a LEB of the log.
fn log_finding(leb: u32, offset: u32, damage: Damage) -> Finding {
    Finding {
        inode: None,
        subject: Subject::Log,
        place: Place {
            leb,
            offset,
            bytes: 0,
        },
        damage,
    }
}

impl Log<'_> {
    fn lose(&mut self, leb: u32, offset: u32, damage: Damage) {
        self.findings.push(log_finding(leb, offset, damage));
    }

    fn leb(&mut self, leb: u32) -> (Vec<LogNode>, LogVerdict) {
        let raw = match fetch::extent_of_leb(self.volume, leb, self.extent) {
            Ok(raw) => raw,
            Err(damage) => {
                self.lose(leb, 0, damage);
                return (Vec::new(), LogVerdict::Unreadable);
            }
        };
        let scanned = scan(&raw, 0);
        if let Stop::Broken(defect) = scanned.stop {
            let unit = write_bytes(self.volume, self.superblock);
            let rule = torn_rule(&raw, scanned.end, &defect, unit).filter(|_| !self.report.was_clean);
            let broken = log_finding(leb, to_word(scanned.end), defect.into());
            let doubts = &mut self.report.doubts;
            if rule.is_none() {
                self.findings.push(broken);
            } else {
                believed(self.volume, rule, &broken, self.findings, doubts);
            }
        }
        let Some(first) = scanned.nodes.first() else {
            if self.started.is_none() {
                let why = "the log is empty; it starts with a commit start node";
                self.lose(leb, 0, Damage::Contradiction(why));
            }
            return (Vec::new(), LogVerdict::Empty);
        };
        let started = *self.started.get_or_insert(first.header.sequence);
        let nodes = scanned.nodes.iter().map(|found| LogNode {
            offset: to_word(found.offset),
            sequence: found.header.sequence,
            what: LogEntry::Ignored(found.header.kind),
        });
        if first.header.sequence < started {
            return (nodes.collect(), LogVerdict::Older);
        }
        let nodes = nodes.zip(&scanned.nodes).map(|(node, found)| LogNode {
            what: self.node(leb, &raw[found.offset..], found, started),
            ..node
        });
        (nodes.collect(), LogVerdict::Taken)
    }

    fn node(&mut self, leb: u32, node: &[u8], found: &Found, started: u64) -> LogEntry {
        let (offset, sequence) = (to_word(found.offset), found.header.sequence);
        self.report.sequence_max = self.report.sequence_max.max(sequence);
        match found.header.kind {
            NodeKind::CommitStart => {
                let commit = CommitStart::decode(node).map_or(0, |node| node.commit);
                if sequence == started && commit != self.commit {
                    let why = "the log starts with another commit than the master's";
                    self.lose(leb, offset, Damage::Contradiction(why));
                }
                LogEntry::CommitStart { commit }
            }
            NodeKind::Reference if sequence >= started => match LogReference::decode(node) {
                Ok(reference) => self.reference(reference),
                Err(defect) => {
                    self.lose(leb, offset, defect.into());
                    LogEntry::Ignored(found.header.kind)
                }
            },
            NodeKind::Authentication => LogEntry::Authentication,
            kind => {
                let why = "a node is here that does not belong into the log";
                self.lose(leb, offset, Damage::Contradiction(why));
                LogEntry::Ignored(kind)
            }
        }
    }

    fn reference(&mut self, reference: LogReference) -> LogEntry {
        let LogReference { leb, offset, head } = reference;
        let mut known = self.references.iter();
        // An interrupted commit references the heads again, at their positions by then.
        let is_repeated = known.any(|other| (other.leb, other.head) == (leb, head) && other.offset <= offset);
        if !is_repeated {
            self.references.push(reference);
        }
        LogEntry::Reference {
            leb,
            offset,
            head,
            is_repeated,
        }
    }
}
