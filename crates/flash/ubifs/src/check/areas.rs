//! Superblock, master nodes and orphans.

use std::collections::BTreeSet;

use super::fault::{Area, At, Fault};
use super::medium::{Ending, Medium, Spot, blank, explained_by_a_cut, nodes_of, to_usize, to_word};
use super::{Checker, master_places};
use crate::format::{
    COMMIT_LAST_FLAG, Compression, HEADER_BYTES, InodeNumber, LOG_LEB, MASTER_DIRTY, MASTER_LEB,
    MASTER_RECOVERED, Master, NodeKind, Orphans, SUPERBLOCK_LEB, Superblock,
};

/// Newest known format version.
const VERSION_MAX: u32 = 5;
/// Value of a LEB number field that is unset.
const NO_LEB: u32 = u32::MAX;

/// Reads the superblock; without it nothing can be checked.
pub(super) fn superblock(medium: &mut Medium<'_>) -> Result<Superblock, Fault> {
    let bytes = u32::try_from(Superblock::BYTES).expect("a superblock has 4096 bytes");
    let spot = Spot {
        leb: SUPERBLOCK_LEB,
        offset: 0,
        bytes,
    };
    let superblock = Superblock::decode(medium.node(spot, NodeKind::Superblock)?)?;
    let geometry = medium.geometry;
    if superblock.leb_bytes != geometry.leb_bytes {
        return Err(Fault::Value {
            what: "the LEB size",
            found: superblock.leb_bytes.into(),
            expected: geometry.leb_bytes.into(),
        });
    }
    if superblock.lebs > geometry.lebs {
        return Err(Fault::Value {
            what: "the number of LEBs",
            found: superblock.lebs.into(),
            expected: geometry.lebs.into(),
        });
    }
    let areas = [superblock.log_lebs, superblock.lpt_lebs, superblock.orphan_lebs];
    let reserved = areas.iter().map(|lebs| u64::from(*lebs)).sum::<u64>() + u64::from(LOG_LEB);
    if reserved >= u64::from(superblock.lebs) || areas.contains(&0) {
        return Err(Fault::Contradiction(
            "the log, the LPT and the orphans leave no LEB for files, or one of them has none",
        ));
    }
    Ok(superblock)
}

/// Checks the fields of a decoded superblock.
pub(super) fn superblock_fields(checker: &mut Checker<'_>) {
    let superblock = checker.superblock.clone();
    let place = Some(At {
        leb: SUPERBLOCK_LEB,
        offset: 0,
    });
    let min_io = superblock.min_io_bytes;
    let known_hash = superblock.key_hash <= 1 && superblock.key_format == 0;
    let rules = [
        (
            superblock.version <= VERSION_MAX || superblock.read_version == 0,
            "the version of the format is not known here",
        ),
        (
            known_hash,
            "the hash of names or the form of keys is not known here",
        ),
        (
            min_io.is_multiple_of(8) && (8..=superblock.leb_bytes).contains(&min_io),
            "the write unit is no multiple of 8 up to the LEB size",
        ),
        (superblock.fanout >= 3, "an index node needs 3 branches at least"),
        (superblock.journal_heads >= 1, "the journal has no head for data"),
        (
            superblock.lebs_max >= superblock.lebs,
            "it has more LEBs than it may grow to",
        ),
        (
            Compression::from_number(superblock.compression).is_some(),
            "the compressor is not known here",
        ),
    ];
    for (good, why) in rules {
        if !good {
            checker.tell(Area::Superblock, None, place, Fault::Contradiction(why));
        }
    }
}

/// A master node and its location.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    at: At,
    sequence: u64,
    master: Master,
    /// Its bytes without the header, with the keyed hash (which depends on the header) zeroed.
    body: Vec<u8>,
}

/// Master nodes of both LEBs.
pub(super) struct Masters {
    best: Candidate,
    copies: [Option<Candidate>; 2],
    broken: Vec<(At, Fault)>,
}

/// Reads both master LEBs; without a master node no file is known.
pub(super) fn masters(medium: &mut Medium<'_>) -> (Option<Masters>, Vec<(At, Fault)>) {
    let mut broken = Vec::new();
    let copies = [MASTER_LEB, MASTER_LEB + 1].map(|leb| newest_master(medium, leb, &mut broken));
    // The first one wins a tie.
    let best = copies.iter().flatten().rev().max_by_key(|candidate| {
        let at = candidate.at;
        // A recovery writes the first LEB, then the second; later nodes in the first are newer.
        let is_first =
            (at.leb, at.offset) == (MASTER_LEB, 0) && !broken.iter().any(|(place, _)| place.leb == at.leb);
        let recovered = is_first && candidate.master.flags & MASTER_RECOVERED != 0;
        (recovered, candidate.master.commit, candidate.sequence)
    });
    let best = best.cloned();
    match best {
        None => (None, broken),
        Some(best) => {
            let masters = Masters { best, copies, broken };
            (Some(masters), Vec::new())
        }
    }
}

fn newest_master(medium: &mut Medium<'_>, leb: u32, broken: &mut Vec<(At, Fault)>) -> Option<Candidate> {
    let mut newest = None;
    let mut from = 0;
    let raw = match medium.leb(leb) {
        Ok(raw) => raw,
        Err(fault) => {
            broken.push((At { leb, offset: 0 }, fault));
            return None;
        }
    };
    loop {
        let (nodes, end, ending) = nodes_of(raw, from);
        for node in nodes.iter().filter(|node| node.header.kind == NodeKind::Master) {
            let bytes = &raw[node.offset..node.offset + to_usize(node.header.bytes)];
            if let Ok(master) = Master::decode(bytes) {
                let mut body = bytes.to_vec();
                body[master_places::HMAC].fill(0);
                body.drain(..HEADER_BYTES);
                newest = Some(Candidate {
                    at: At {
                        leb,
                        offset: to_word(node.offset),
                    },
                    sequence: node.header.sequence,
                    master,
                    body,
                });
            }
        }
        let Ending::Broken(defect) = ending else {
            return newest;
        };
        let offset = to_word(end);
        broken.push((At { leb, offset }, defect.into()));
        let next = (end + 8..raw.len())
            .step_by(8)
            .find(|place| crate::format::check(&raw[*place..]).is_ok());
        match next {
            Some(next) => from = next,
            None => return newest,
        }
    }
}

impl Masters {
    /// Location of the current master node.
    pub(super) fn place(&self) -> At {
        self.best.at
    }

    /// Sequence number of the current master node.
    pub(super) fn sequence(&self) -> u64 {
        self.best.sequence
    }

    /// The current master node.
    pub(super) fn master(&self) -> Master {
        self.best.master.clone()
    }

    /// Whether the state is one that a power cut leaves: both LEBs have the current master node; or the second lacks
    /// it; or the first LEB was unmapped to start anew with the next one.
    fn is_whole_but_for_the_next(&self, checker: &Checker<'_>) -> bool {
        let is_whole = |one: &Candidate| !self.broken.iter().any(|(at, _)| at.leb == one.at.leb);
        match &self.copies {
            [Some(one), Some(other)] => {
                let is_last_of_two = one.sequence > other.sequence && other.master.flags & MASTER_DIRTY != 0;
                one.body == other.body || is_last_of_two && is_whole(one)
            }
            // If it is the first node of its LEB, the second LEB was unmapped as well, to start anew.
            [Some(one), None] => one.at.offset == 0 && is_whole(one),
            [None, Some(other)] => {
                let step = to_word(HEADER_BYTES + other.body.len())
                    .next_multiple_of(checker.superblock.min_io_bytes.max(8));
                other.at.offset + 2 * step > checker.superblock.leb_bytes
            }
            [None, None] => false,
        }
    }

    /// Reports faults of the master nodes. A power cut during a write leaves that node torn, or the other LEB stale.
    pub(super) fn judge(self, checker: &mut Checker<'_>) {
        let (dirty, told) = (checker.is_dirty(), checker.report.findings.len());
        // The first write of a mount sets the dirty flag and the last one clears it: either may be the torn one.
        let may_be_torn = dirty || self.is_whole_but_for_the_next(checker);
        for (place, fault) in self.broken {
            let torn = match &fault {
                Fault::Node(defect) if may_be_torn => {
                    let write_bytes = checker.write_bytes();
                    let raw = checker.medium.leb(place.leb);
                    raw.is_ok_and(|raw| {
                        let offset = to_usize(place.offset);
                        let is_cut = explained_by_a_cut(raw, offset, defect, write_bytes);
                        is_cut && (dirty || ends_erased(raw, offset))
                    })
                }
                _ => false,
            };
            match torn {
                true => checker.note(format!(
                    "master node, LEB {}, offset {}: torn by a power cut",
                    place.leb, place.offset
                )),
                false => checker.tell(Area::Master, None, Some(place), fault),
            }
        }
        match &self.copies {
            [Some(one), Some(other)] if one.body == other.body => {}
            [Some(_), Some(_)] if may_be_torn => {
                checker.note(
                    "the two master nodes differ, as after a power cut between their writes".to_owned(),
                );
            }
            [Some(_), Some(other)] => {
                let fault =
                    Fault::Contradiction("the two master nodes differ, and the file system was unmounted");
                checker.tell(Area::Master, None, Some(other.at), fault);
            }
            [one, _] => {
                let missing = if one.is_none() { MASTER_LEB } else { MASTER_LEB + 1 };
                let place = Some(At {
                    leb: missing,
                    offset: 0,
                });
                match may_be_torn {
                    true => checker.note(format!(
                        "LEB {missing} holds no master node, as after a power cut"
                    )),
                    false => checker.tell(
                        Area::Master,
                        None,
                        place,
                        Fault::Contradiction("there is no master node here"),
                    ),
                }
            }
        }
        if checker.report.findings.len() == told {
            master_places::check(checker);
        }
        fields(checker, self.best.at);
    }
}

/// Whether the end of a master node at this offset is still erased.
fn ends_erased(raw: &[u8], offset: usize) -> bool {
    let end = offset + to_usize(NodeKind::Master.length_range().0);
    raw.get(end - 8..end).is_none_or(blank)
}

/// Checks the fields of the master node that can be judged in isolation.
fn fields(checker: &mut Checker<'_>, place: At) {
    let (master, superblock) = (checker.master.clone(), checker.superblock.clone());
    let main = checker.main_first()..superblock.lebs;
    let lpt_first = LOG_LEB + superblock.log_lebs;
    let lpt = lpt_first..lpt_first + superblock.lpt_lebs;
    let leb_bytes = superblock.leb_bytes;
    let rules = [
        (
            main.contains(&master.root_leb),
            "the root of the index is not in the main area",
        ),
        (
            master.index_head_leb == NO_LEB || main.contains(&master.index_head_leb),
            "the head of the index is not in the main area",
        ),
        (
            master.index_head_offset <= leb_bytes,
            "the head of the index is behind the end of its LEB",
        ),
        (
            master.gc_leb == NO_LEB || main.contains(&master.gc_leb),
            "the LEB that garbage collection keeps is not in the main area",
        ),
        (
            main.contains(&master.scanned_leb),
            "the LEB that was scanned last is not in the main area",
        ),
        (
            lpt.contains(&master.lpt_leb),
            "the root of the LPT is not in the LPT",
        ),
        (
            lpt.contains(&master.lpt_head_leb),
            "the head of the LPT is not in the LPT",
        ),
        (lpt.contains(&master.ltab_leb), "the ltab is not in the LPT"),
        (
            master.lpt_head_offset <= leb_bytes,
            "the head of the LPT is behind the end of its LEB",
        ),
        (
            master.lebs <= superblock.lebs,
            "it counts more LEBs than the superblock",
        ),
        (
            master.flags & !(MASTER_DIRTY | 2 | MASTER_RECOVERED) == 0,
            "it has a flag that does not exist",
        ),
    ];
    for (good, why) in rules {
        if !good {
            checker.tell(Area::Master, None, Some(place), Fault::Contradiction(why));
        }
    }
}

/// The inodes listed in the orphan area as of the newest commit.
pub(super) fn orphans(checker: &mut Checker<'_>) -> BTreeSet<InodeNumber> {
    let mut listed = BTreeSet::new();
    let first = LOG_LEB + checker.superblock.log_lebs + checker.superblock.lpt_lebs;
    let (mut newest, mut is_complete) = (0, false);
    for leb in first..first + checker.superblock.orphan_lebs {
        let raw = match checker.medium.leb(leb) {
            Ok(raw) => raw.to_vec(),
            Err(fault) => {
                checker.tell(Area::Orphans, None, Some(At { leb, offset: 0 }), fault);
                continue;
            }
        };
        let (nodes, end, ending) = nodes_of(&raw, 0);
        if let Ending::Broken(defect) = ending {
            let torn = checker.is_dirty() && explained_by_a_cut(&raw, end, &defect, checker.write_bytes());
            let place = At {
                leb,
                offset: to_word(end),
            };
            match torn {
                true => checker.note(format!("orphans, LEB {leb}, offset {end}: torn by a power cut")),
                false => checker.tell(Area::Orphans, None, Some(place), defect.into()),
            }
        }
        for node in nodes {
            let place = At {
                leb,
                offset: to_word(node.offset),
            };
            let bytes = &raw[node.offset..node.offset + to_usize(node.header.bytes)];
            if node.header.kind != NodeKind::Orphans {
                let fault = Fault::Contradiction("a node is here that lists no orphans");
                checker.tell(Area::Orphans, None, Some(place), fault);
                continue;
            }
            let orphans = match Orphans::decode(bytes) {
                Ok(orphans) => orphans,
                Err(defect) => {
                    checker.tell(Area::Orphans, None, Some(place), defect.into());
                    continue;
                }
            };
            let commit = orphans.commit & !COMMIT_LAST_FLAG;
            // Nodes with a lower commit number behind the last node of a commit are leftovers.
            if is_complete && commit < newest {
                return listed;
            }
            newest = commit;
            is_complete = orphans.commit & COMMIT_LAST_FLAG != 0;
            for number in orphans.inodes {
                match u32::try_from(number) {
                    Ok(number) => drop(listed.insert(InodeNumber(number))),
                    Err(_) => {
                        let fault = Fault::Contradiction("it lists an inode number of more than 32 bits");
                        checker.tell(Area::Orphans, None, Some(place), fault);
                    }
                }
            }
        }
    }
    listed
}
