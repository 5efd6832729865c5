//! Applies changes to the index: rewrites the changed nodes and their ancestors, and leaves all others in place,
//! except small neighbours of changed nodes. These are merged with them, so that the index shrinks with its content.
//!
//! Names with the same hash share a key, and an index node may end within such a group. Changes therefore always
//! cover the whole group: all branches with the changed key are deleted, by location, in whichever node they are, and
//! the remaining ones are inserted at a single point, ordered by name.

use std::collections::HashSet;
use std::sync::Arc;

use super::index_gaps::Gaps;
use crate::finding::{Damage, Finding, Place};
use crate::format::{IndexBranch, IndexNode, Key};
use crate::index::{Index, damage_at};
use crate::scan::to_usize;

/// A branch to be inserted into the index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Insertion {
    pub(super) key: Key,
    pub(super) name: Vec<u8>,
    pub(super) place: Place,
}

/// Changes of the index.
#[derive(Clone, Default)]
pub(super) struct Edits {
    /// Branches to remove.
    pub(super) deletions: Vec<(Key, Place)>,
    pub(super) insertions: Vec<Insertion>,
    /// Index nodes to move, each with its first key.
    pub(super) moves: Vec<(Key, Place)>,
    /// Gaps available for new nodes, in addition to the index head and empty LEBs.
    pub(super) gaps: Gaps,
}

impl Edits {
    pub(super) const fn is_empty(&self) -> bool {
        self.deletions.is_empty() && self.insertions.is_empty() && self.moves.is_empty()
    }
}

/// Result of a merge.
pub(super) struct Merged {
    pub(super) root: Place,
    /// Replaced nodes, now obsolete.
    pub(super) freed: Vec<Place>,
    /// Bytes of new nodes, aligned.
    pub(super) new_bytes: u64,
}

/// Applies `edits`. `append` writes a node and returns its location.
pub(super) fn merge<E: From<Box<Finding>>>(
    index: &Index,
    fanout: u32,
    mut edits: Edits,
    append: &mut dyn FnMut(&IndexNode) -> Result<Place, E>,
) -> Result<Merged, E> {
    edits.insertions.sort();
    let mut touched: Vec<Key> = edits
        .deletions
        .iter()
        .chain(&edits.moves)
        .map(|(key, _)| *key)
        .collect();
    touched.sort();
    let places = |all: &[(Key, Place)]| all.iter().map(|(_, place)| *place).collect();
    let mut merger = Merger {
        index,
        fanout: to_usize(fanout),
        deleted: places(&edits.deletions),
        moved: places(&edits.moves),
        touched,
        append,
        merged: Merged {
            root: index.root(),
            freed: Vec::new(),
            new_bytes: 0,
        },
    };
    merger.root(&edits.insertions)?;
    Ok(merger.merged)
}

struct Merger<'a, E> {
    index: &'a Index,
    fanout: usize,
    deleted: HashSet<Place>,
    moved: HashSet<Place>,
    /// Keys of deletions and moves, sorted.
    touched: Vec<Key>,
    append: &'a mut dyn FnMut(&IndexNode) -> Result<Place, E>,
    merged: Merged,
}

impl<E: From<Box<Finding>>> Merger<'_, E> {
    fn root(&mut self, insertions: &[Insertion]) -> Result<(), E> {
        let place = self.merged.root;
        let node = self.load(place, None)?;
        let mut level = node.level;
        let Some(mut row) = self.branches(place, &node, insertions, None)? else {
            return Ok(());
        };
        self.merged.freed.push(place);
        if row.is_empty() {
            return Err(damage_at(place, Damage::Contradiction("the index would be empty")).into());
        }
        loop {
            if let ([only], 1..) = (row.as_slice(), level) {
                self.merged.root = place_of(only);
                return Ok(());
            }
            row = self.write(level, row)?;
            level += 1;
        }
    }

    fn load(&self, place: Place, level: Option<u16>) -> Result<Arc<IndexNode>, E> {
        let node = self.index.node(place)?;
        match level {
            Some(level) if level != node.level => {
                let damage = Damage::Contradiction("the node is of another level than its parent says");
                Err(damage_at(place, damage).into())
            }
            _ => Ok(node),
        }
    }

    /// The new branches of a node; `None` if it is unchanged. `end` is the first key behind the node.
    fn branches(
        &mut self,
        place: Place,
        node: &IndexNode,
        insertions: &[Insertion],
        end: Option<Key>,
    ) -> Result<Option<Vec<IndexBranch>>, E> {
        let mut changed = self.moved.contains(&place);
        if node.level == 0 {
            let kept = node
                .branches
                .iter()
                .filter(|branch| !self.deleted.contains(&place_of(branch)));
            let mut row: Vec<_> = kept.cloned().collect();
            changed |= row.len() != node.branches.len() || !insertions.is_empty();
            for Insertion { key, place, .. } in insertions {
                let at = row.partition_point(|branch| branch.key <= *key);
                row.insert(at, branch(*place, *key));
            }
            return Ok(changed.then_some(row));
        }
        let mut row = Row::new(node.level - 1);
        let mut rest = insertions;
        for (number, child) in node.branches.iter().enumerate() {
            let next = node.branches.get(number + 1).map(|next| next.key);
            let until = next.or(end);
            let count = next.map_or(rest.len(), |next| {
                rest.partition_point(|insertion| insertion.key < next)
            });
            let (mine, others) = rest.split_at(count);
            rest = others;
            let start = if number == 0 { None } else { Some(child.key) };
            let place = place_of(child);
            let below = match mine.is_empty() && !self.is_touched(start, until) {
                true => None,
                false => {
                    let below = self.load(place, Some(row.level))?;
                    self.branches(place, &below, mine, until)?
                }
            };
            match below {
                None => self.keep(&mut row, child)?,
                Some(branches) => {
                    changed = true;
                    self.merged.freed.push(place);
                    self.change(&mut row, branches)?;
                }
            }
        }
        self.close(&mut row)?;
        Ok(changed.then_some(row.done))
    }

    /// Adds an unchanged node, or merges its branches into the open node before it if both fit.
    fn keep(&mut self, row: &mut Row, node: &IndexBranch) -> Result<(), E> {
        if !row.open.is_empty() {
            if self.may_join(row.open.len() + branch_count(node)) {
                let branches = self.give_up(node, row.level)?;
                row.open.extend(branches);
                return Ok(());
            }
            self.close(row)?;
        }
        row.done.push(node.clone());
        row.ends_kept = true;
        Ok(())
    }

    /// Adds the branches of a changed node, merged with the node before it if both are small.
    fn change(&mut self, row: &mut Row, branches: Vec<IndexBranch>) -> Result<(), E> {
        if !row.open.is_empty() && !self.may_join(row.open.len() + branches.len()) {
            self.close(row)?;
        }
        let small = |last: &mut IndexBranch| self.may_join(branch_count(last) + branches.len());
        if row.open.is_empty()
            && row.ends_kept
            && !branches.is_empty()
            && let Some(last) = row.done.pop_if(small)
        {
            row.open = self.give_up(&last, row.level)?;
        }
        row.open.extend(branches);
        Ok(())
    }

    /// Writes the open node.
    fn close(&mut self, row: &mut Row) -> Result<(), E> {
        let open = std::mem::take(&mut row.open);
        if !open.is_empty() {
            row.done.extend(self.write(row.level, open)?);
            row.ends_kept = false;
        }
        Ok(())
    }

    /// Whether a merged node may have this many branches: at most 3/4 full, so that it does not split again at once.
    const fn may_join(&self, branches: usize) -> bool {
        branches <= self.fanout * 3 / 4
    }

    /// Takes the branches of a node and marks it obsolete.
    fn give_up(&mut self, node: &IndexBranch, level: u16) -> Result<Vec<IndexBranch>, E> {
        let place = place_of(node);
        let branches = self.load(place, Some(level))?.branches.clone();
        self.merged.freed.push(place);
        Ok(branches)
    }

    /// Whether a branch or node between `start` and `end`, inclusive, is deleted or moved: equal keys may lie on both
    /// sides of a border.
    fn is_touched(&self, start: Option<Key>, end: Option<Key>) -> bool {
        let from = start.map_or(0, |start| self.touched.partition_point(|key| *key < start));
        self.touched
            .get(from)
            .is_some_and(|key| end.is_none_or(|end| *key <= end))
    }

    /// Writes `row` as nodes of `level`, as few as possible and about equally full.
    fn write(&mut self, level: u16, row: Vec<IndexBranch>) -> Result<Vec<IndexBranch>, E> {
        let nodes = row.len().div_ceil(self.fanout).max(1);
        let mut upper = Vec::with_capacity(nodes);
        for branches in row.chunks(row.len().div_ceil(nodes).max(1)) {
            let key = branches[0].key;
            let node = IndexNode {
                level,
                branches: branches.to_vec(),
            };
            let place = (self.append)(&node)?;
            self.merged.new_bytes += u64::from(place.bytes.next_multiple_of(8));
            upper.push(branch(place, key));
        }
        Ok(upper)
    }
}

/// The nodes of one level below one parent, while some of them are rewritten.
struct Row {
    level: u16,
    done: Vec<IndexBranch>,
    /// Whether the last node in `done` is an unchanged one.
    ends_kept: bool,
    /// Branches of the next new node.
    open: Vec<IndexBranch>,
}

impl Row {
    const fn new(level: u16) -> Self {
        Self {
            level,
            done: Vec::new(),
            ends_kept: false,
            open: Vec::new(),
        }
    }
}

/// Number of branches of a node, from its length.
fn branch_count(node: &IndexBranch) -> usize {
    to_usize(node.bytes).saturating_sub(IndexNode::BYTES) / IndexNode::BRANCH_BYTES
}

const fn place_of(branch: &IndexBranch) -> Place {
    Place {
        leb: branch.leb,
        offset: branch.offset,
        bytes: branch.bytes,
    }
}

const fn branch(place: Place, key: Key) -> IndexBranch {
    IndexBranch {
        leb: place.leb,
        offset: place.offset,
        bytes: place.bytes,
        key,
        hash: Vec::new(),
    }
}
