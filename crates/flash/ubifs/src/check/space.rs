//! Checks the LPT: its own nodes, its lprops against the actual use by the index, and the sums in the master node.
//!
//! Everything is compared as of the last commit: with the index on the medium, without the journal.

use super::Checker;
use super::fault::{Area, At, Fault};
use super::hash::Hasher;
use super::index::Walked;
use super::lpt::{LPT_FANOUT, LebSpace, LptKind, LptPlace, LptShape};
use super::medium::to_usize;
use super::trusted::erased_behind;
use crate::format::{INODE_DATA_BYTES_MAX, InodeNumber};

/// Size of the smallest data node, aligned.
const WRITE_BYTES_MIN: u32 = 56;
/// Size of the largest node of a file: an inode with the maximum data.
const NODE_BYTES_MAX: u32 = 160 + INODE_DATA_BYTES_MAX;

/// Bytes of a LEB used by nodes of the index and below it.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    of_files: u64,
    of_index: u64,
    end: u64,
}

/// Checks the LPT and the sums. Returns the lprops of the main area, or `None` if a part of the LPT is lost.
pub(super) fn check(checker: &mut Checker<'_>, walked: &Walked) -> Option<Vec<LebSpace>> {
    let Some(shape) = LptShape::new(&checker.superblock) else {
        let fault = Fault::Contradiction("the superblock's numbers allow no LPT");
        checker.tell(Area::Lpt, None, None, fault);
        return None;
    };
    let spaces = read(checker, &shape)?;
    if walked.is_torn {
        // The use by the lost part of the index is unknown.
        return Some(spaces);
    }
    let uses = uses(checker, walked);
    for (number, (space, used)) in (shape.main_first_leb..).zip(spaces.iter().zip(&uses)) {
        compare(checker, number, *space, *used);
    }
    sums(checker, &spaces, walked);
    Some(spaces)
}

/// Reads the whole LPT: the lprops of the main area, or `None` if a part is lost.
fn read(checker: &mut Checker<'_>, shape: &LptShape) -> Option<Vec<LebSpace>> {
    let empty = LebSpace {
        free_bytes: checker.superblock.leb_bytes,
        dirty_bytes: 0,
        is_index: false,
    };
    let root = LptPlace {
        leb: checker.master.lpt_leb,
        offset: checker.master.lpt_offset,
    };
    let mut walk = LptWalk {
        shape: *shape,
        used: vec![0; to_usize(shape.lebs)],
        ends: vec![0; to_usize(shape.lebs)],
        spaces: vec![empty; to_usize(shape.pnodes) * LPT_FANOUT],
        is_whole: true,
        hasher: checker.hash.map(Hasher::new),
    };
    walk.nnode(checker, root, 1, 0, 0);
    let expected = walk.hasher.take().map(Hasher::finish);
    if let Some(expected) = expected.filter(|_| walk.is_whole)
        && checker.master.lpt_hash.get(..expected.len()) != Some(expected.as_slice())
    {
        let place = at(root);
        checker.tell(Area::Lpt, None, Some(place), Fault::Hash);
    }
    walk.tables(checker);
    walk.spaces.truncate(to_usize(shape.main_lebs));
    walk.is_whole.then_some(walk.spaces)
}

fn at(place: LptPlace) -> At {
    At {
        leb: place.leb,
        offset: place.offset,
    }
}

struct LptWalk {
    shape: LptShape,
    /// Bytes used by valid parts, for each LEB of the LPT.
    used: Vec<u64>,
    /// End of the last valid part, for each LEB of the LPT.
    ends: Vec<u64>,
    spaces: Vec<LebSpace>,
    is_whole: bool,
    hasher: Option<Hasher>,
}

impl LptWalk {
    /// Reads from a location to the end of its LEB, and counts a part of `kind` as used there.
    fn part<'c>(
        &mut self,
        checker: &'c mut Checker<'_>,
        place: LptPlace,
        kind: LptKind,
    ) -> Result<&'c [u8], Fault> {
        let bytes = self.shape.bytes(kind);
        let number = place.leb.checked_sub(self.shape.first_leb).map(to_usize);
        let Some(number) = number.filter(|number| *number < self.used.len()) else {
            return Err(Fault::Contradiction("a part of the LPT is to be outside of it"));
        };
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.used[number] += bytes;
        self.ends[number] = self.ends[number].max(u64::from(place.offset) + bytes);
        let raw = checker.medium.leb(place.leb)?;
        Ok(raw.get(to_usize(place.offset)..).unwrap_or_default())
    }

    fn lose(&mut self, checker: &mut Checker<'_>, place: LptPlace, fault: Fault) {
        self.is_whole = false;
        checker.tell(Area::Lpt, None, Some(at(place)), fault);
    }

    /// Visits the nnode `depth` steps below the root, whose first pnode is `first`. The shape bounds the depth.
    fn nnode(&mut self, checker: &mut Checker<'_>, place: LptPlace, number: u32, depth: u32, first: u64) {
        let shape = self.shape;
        let slots = self
            .part(checker, place, LptKind::Nnode)
            .and_then(|raw| Ok(shape.nnode(raw, number)?));
        let slots = match slots {
            Ok(slots) => slots,
            Err(fault) => return self.lose(checker, place, fault),
        };
        let levels_below = shape.height - 1 - depth;
        let span = 1_u64 << (2 * levels_below);
        for ((slot, first), below) in (0..).zip((0..).map(|slot| first + slot * span)).zip(slots) {
            let Some(below) = below.filter(|_| first < u64::from(shape.pnodes)) else {
                continue;
            };
            if levels_below == 0 {
                self.pnode(
                    checker,
                    below,
                    u32::try_from(first).expect("it is below the number of pnodes"),
                );
            } else {
                let number = LptShape::nnode_number(number, slot, depth + 1);
                self.nnode(checker, below, number, depth + 1, first);
            }
        }
    }

    fn pnode(&mut self, checker: &mut Checker<'_>, place: LptPlace, number: u32) {
        let (shape, mut hasher) = (self.shape, self.hasher.take());
        let spaces = self.part(checker, place, LptKind::Pnode).and_then(|raw| {
            let spaces = shape.pnode(raw, number)?;
            if let Some(hasher) = &mut hasher {
                hasher.update(&raw[..shape.bytes(LptKind::Pnode)]);
            }
            Ok(spaces)
        });
        self.hasher = hasher;
        match spaces {
            Ok(spaces) => {
                let from = to_usize(number) * LPT_FANOUT;
                self.spaces[from..from + LPT_FANOUT].copy_from_slice(&spaces);
            }
            Err(fault) => self.lose(checker, place, fault),
        }
    }

    /// Checks the ltab against the actual use of each LEB, and the lsave.
    fn tables(&mut self, checker: &mut Checker<'_>) {
        let shape = self.shape;
        let master = checker.master.clone();
        if shape.is_big {
            let place = LptPlace {
                leb: master.lsave_leb,
                offset: master.lsave_offset,
            };
            // The table may have been made for a larger volume than this one.
            let main = shape.main_first_leb..checker.superblock.lebs_max;
            let saved = self
                .part(checker, place, LptKind::Lsave)
                .and_then(|raw| Ok(shape.lsave(raw)?));
            match saved {
                Ok(saved) if saved.iter().all(|leb| main.contains(leb)) => {}
                Ok(_) => {
                    let fault = Fault::Contradiction("the lsave has a LEB that is not in the main area");
                    checker.tell(Area::Lpt, None, Some(at(place)), fault);
                }
                Err(fault) => checker.tell(Area::Lpt, None, Some(at(place)), fault),
            }
        }
        let place = LptPlace {
            leb: master.ltab_leb,
            offset: master.ltab_offset,
        };
        let table = self
            .part(checker, place, LptKind::Ltab)
            .and_then(|raw| Ok(shape.ltab(raw)?));
        let table = match table {
            Ok(table) => table,
            Err(fault) => return checker.tell(Area::Lpt, None, Some(at(place)), fault),
        };
        if !self.is_whole {
            return;
        }
        self.head(checker, &table);
        for ((leb, (free, dirty)), used) in (shape.first_leb..).zip(table).zip(&self.used) {
            let expected = u64::from(checker.superblock.leb_bytes).saturating_sub(*used);
            let found = u64::from(free) + u64::from(dirty);
            if found != expected {
                let what = "what the ltab says to be free and dirty";
                let fault = Fault::Value {
                    what,
                    found,
                    expected,
                };
                checker.tell(Area::Lpt, None, Some(At { leb, offset: 0 }), fault);
            }
        }
    }
}

impl LptWalk {
    /// Checks the position of the LPT head, behind which the next commit writes.
    fn head(&self, checker: &mut Checker<'_>, table: &[(u32, u32)]) {
        let (leb, offset) = (checker.master.lpt_head_leb, checker.master.lpt_head_offset);
        let Some(number) = leb.checked_sub(self.shape.first_leb).map(to_usize) else {
            return;
        };
        let (Some(end), Some((free, _))) = (self.ends.get(number), table.get(number)) else {
            return;
        };
        let expected = checker.superblock.leb_bytes.saturating_sub(*free);
        if u64::from(offset) < *end || offset != expected {
            let fault = Fault::Value {
                what: "where the head of the LPT goes on",
                found: offset.into(),
                expected: expected.into(),
            };
            checker.tell(Area::Master, None, checker.master_at, fault);
        } else if !checker.is_dirty() {
            let why = "something is written behind the head of the LPT";
            erased_behind(checker, leb, offset, Area::Lpt, why);
        }
    }
}

fn uses(checker: &Checker<'_>, walked: &Walked) -> Vec<Use> {
    let first = checker.main_first();
    let lebs = checker.superblock.lebs.saturating_sub(first);
    let mut uses = vec![Use::default(); to_usize(lebs)];
    let slot = |leb: u32| {
        let number = leb.checked_sub(first).map(to_usize);
        number.filter(|number| *number < to_usize(lebs))
    };
    for leaf in &walked.leaves {
        if let Some(number) = slot(leaf.spot.leb) {
            uses[number].of_files += u64::from(leaf.spot.bytes).next_multiple_of(8);
            uses[number].end = uses[number].end.max(leaf.spot.end());
        }
    }
    for spot in &walked.nodes {
        if let Some(number) = slot(spot.leb) {
            uses[number].of_index += u64::from(spot.bytes).next_multiple_of(8);
        }
    }
    uses
}

fn compare(checker: &mut Checker<'_>, leb: u32, space: LebSpace, used: Use) {
    let leb_bytes = u64::from(checker.superblock.leb_bytes);
    let (free, dirty) = (u64::from(space.free_bytes), u64::from(space.dirty_bytes));
    let mut tell = |fault| {
        let place = At { leb, offset: 0 };
        checker.tell(Area::Lpt, None::<InodeNumber>, Some(place), fault);
    };
    if free + dirty > leb_bytes {
        return tell(Fault::Contradiction(
            "more of the LEB is said to be free and dirty than there is",
        ));
    }
    if (space.is_index && used.of_files > 0) || (!space.is_index && used.of_index > 0) {
        tell(Fault::Contradiction(
            "it is said of the LEB that it holds the index, or that it does not, and that is wrong",
        ));
    }
    let (found, expected) = (leb_bytes - free - dirty, used.of_files + used.of_index);
    if found != expected {
        let what = "what is said to be used of the LEB";
        tell(Fault::Value {
            what,
            found,
            expected,
        });
    } else if used.end > leb_bytes - free {
        tell(Fault::Contradiction(
            "a part of the LEB is said to be free and is in use",
        ));
    }
}

/// Checks the sums in the master node against the LPT.
fn sums(checker: &mut Checker<'_>, spaces: &[LebSpace], walked: &Walked) {
    let superblock = &checker.superblock;
    let (leb_bytes, min_io) = (superblock.leb_bytes, superblock.min_io_bytes.max(8));
    let dead_below = WRITE_BYTES_MIN.next_multiple_of(min_io);
    let dark_below = NODE_BYTES_MAX.next_multiple_of(min_io);
    let (mut free, mut dirty, mut used, mut dead, mut dark) = (0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
    let (mut empty, mut of_index) = (0_u64, 0_u64);
    for space in spaces {
        let left = space.free_bytes.saturating_add(space.dirty_bytes).min(leb_bytes);
        free += u64::from(space.free_bytes);
        dirty += u64::from(space.dirty_bytes);
        empty += u64::from(space.free_bytes == leb_bytes);
        if space.is_index {
            of_index += 1;
            continue;
        }
        used += u64::from(leb_bytes - left);
        if left < dead_below {
            dead += u64::from(left);
        } else {
            dark += u64::from(dark_of(left, dark_below));
        }
    }
    let index_bytes: u64 = walked
        .nodes
        .iter()
        .map(|spot| u64::from(spot.bytes).next_multiple_of(8))
        .sum();
    let master = checker.master.clone();
    let sums = [
        ("the sum of free bytes", master.free_bytes, free),
        ("the sum of dirty bytes", master.dirty_bytes, dirty),
        ("the sum of used bytes", master.used_bytes, used),
        ("the sum of dead bytes", master.dead_bytes, dead),
        ("the sum of dark bytes", master.dark_bytes, dark),
        ("the number of empty LEBs", master.empty_lebs.into(), empty),
        (
            "the number of LEBs of the index",
            master.index_lebs.into(),
            of_index,
        ),
        ("the size of the index", master.index_bytes, index_bytes),
    ];
    for (what, found, expected) in sums {
        if found != expected {
            checker.tell(
                Area::Space,
                None,
                checker.master_at,
                Fault::Value {
                    what,
                    found,
                    expected,
                },
            );
        }
    }
}

/// Dark bytes of the space left in a LEB: those that the next node may be too large to use.
fn dark_of(left: u32, dark_below: u32) -> u32 {
    match left.checked_sub(dark_below) {
        None => left,
        // After the largest node, less would be left than the smallest node needs.
        Some(rest) if rest < WRITE_BYTES_MIN => left - WRITE_BYTES_MIN,
        Some(_) => dark_below,
    }
}
