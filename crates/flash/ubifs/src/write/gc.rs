//! Garbage collection: moves live nodes out of mostly dirty LEBs, which become empty. LEBs of the index are collected
//! by the next commit, which writes their nodes elsewhere.
//!
//! A LEB is unmapped only after the copies, and all nodes that made others in it obsolete, are on the medium. LEBs of
//! the journal are never collected: a replay needs them.

use media::Leb;
use ubi::Volume;

use super::buffers::HeadKind;
use super::commit::State;
use super::effect::Effect;
use super::{WriteError, Writer};
use crate::fetch;
use crate::finding::{Place, Subject};
use crate::format::{DirectoryEntry, Key, NodeKind};
use crate::scan::{Found, scan, to_usize};
use crate::space::{LARGEST_NODE_BYTES, LebSpace};

/// Size of the smallest leaf node: a block of one byte.
const SMALLEST_NODE_BYTES: u32 = 56;

/// A live node.
struct LiveNode {
    place: Place,
    raw: Vec<u8>,
    key: Key,
    /// The name, for an entry.
    name: Option<Vec<u8>>,
}

/// Result of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Collected {
    Something,
    Nothing,
}

impl Writer {
    /// Unmaps LEBs that hold no live node.
    pub(super) fn reclaim(&mut self) -> Result<Collected, WriteError> {
        let lebs = self.space.reclaimable(false);
        if lebs.is_empty() {
            return Ok(Collected::Nothing);
        }
        self.sync_heads()?;
        for leb in lebs {
            self.volume.unmap(Leb(leb))?;
            self.space.set_empty(leb);
            self.counts.reclaimed_lebs += 1;
        }
        Ok(Collected::Something)
    }

    /// Bytes gained by collecting a LEB. Free space smaller than the largest node does not count: the same amount may
    /// stay unused at the end of the LEB that receives the copies.
    fn gain(&self, space: LebSpace) -> u32 {
        let end_bytes = LARGEST_NODE_BYTES.next_multiple_of(self.ubifs.superblock.min_io_bytes);
        match space.free > end_bytes {
            true => space.free + space.dirty,
            false => space.dirty,
        }
    }

    /// Whether the dirty or free space of a LEB can be reclaimed at all.
    pub(super) fn is_worth_collecting(&self, space: LebSpace) -> bool {
        let superblock = &self.ubifs.superblock;
        self.gain(space) >= superblock.leb_bytes / 8 + superblock.min_io_bytes
    }

    /// Collects the LEB with the largest gain.
    pub(super) fn collect(&mut self) -> Result<Collected, WriteError> {
        let superblock = &self.ubifs.superblock;
        let leb_bytes = superblock.leb_bytes;
        let best = self
            .space
            .iter()
            .filter(|(leb, space)| {
                !space.index
                    && !self.space.is_taken(*leb)
                    && space.free < leb_bytes
                    && space.dirty > 0
                    && !self.unreadable_lebs.contains_key(leb)
                    && self.is_worth_collecting(*space)
            })
            .max_by_key(|(_, space)| self.gain(*space));
        let Some((victim, space)) = best else {
            return self.nothing_to_collect();
        };
        let in_use = leb_bytes - space.free - space.dirty;
        if !self.may_move(in_use)? {
            return Ok(Collected::Nothing);
        }
        self.empty_by_moving(victim)?;
        if self.gc_leb.is_none() {
            // The reserved LEB received the copies. Prefer another empty LEB to the victim: on a host image, a LEB that
            // was just unmapped can be written again only after its erase and a sync.
            let leb = self.space.empty_leb().unwrap_or(victim);
            self.keep_for_gc(leb)?;
        }
        Ok(Collected::Something)
    }

    /// Empties a LEB by moving its live nodes; if it is unreadable, records that instead.
    pub(super) fn empty_by_moving(&mut self, victim: u32) -> Result<(), WriteError> {
        let raw = match fetch::leb(&*self.ubifs.volume, victim) {
            Ok(raw) => raw,
            Err(damage) => {
                self.unreadable_lebs.insert(victim, Some(damage));
                return Ok(());
            }
        };
        let Some(nodes) = self.live_nodes(victim, &raw)? else {
            self.unreadable_lebs.insert(victim, None);
            return Ok(());
        };
        self.space.take(victim);
        // A collection that stops halfway leaves no LEB for the next one.
        let moved = self.move_nodes(nodes);
        moved.map_err(|error| self.fatal(error))?;
        self.sync_heads()?;
        self.volume.unmap(Leb(victim))?;
        self.space.set_empty(victim);
        self.space.release(victim);
        self.counts.collected_lebs += 1;
        Ok(())
    }

    /// Fails if some LEBs were skipped because of device errors: that is not a lack of space, and a retry may
    /// succeed.
    fn nothing_to_collect(&mut self) -> Result<Collected, WriteError> {
        let failed = self
            .unreadable_lebs
            .iter()
            .find_map(|(leb, damage)| Some((*leb, damage.clone()?)));
        self.unreadable_lebs.retain(|_, damage| damage.is_none());
        match failed {
            Some((leb, damage)) => Err(self.unreadable_leb(Subject::Data, leb, damage)),
            None => Ok(Collected::Nothing),
        }
    }

    fn move_nodes(&mut self, nodes: Vec<LiveNode>) -> Result<(), WriteError> {
        let commits = self.counts.commits;
        for node in nodes {
            let bytes = node.place.bytes.next_multiple_of(8);
            self.reserve(HeadKind::Gc, bytes)?;
            // A commit in between writes the deferred inode of a file being written, which may make this node
            // obsolete.
            if self.counts.commits == commits || self.is_live(&node)? {
                self.move_node(node)?;
            }
        }
        Ok(())
    }

    /// Whether the next commit still fits after `bytes` of nodes were moved; commits first if that helps.
    fn may_move(&mut self, bytes: u32) -> Result<bool, WriteError> {
        let nodes = to_usize(bytes / SMALLEST_NODE_BYTES);
        if self.commit_fits(nodes, self.space.empty_count())? {
            return Ok(true);
        }
        if self.ubifs.journal.changes() == 0 {
            return Ok(false);
        }
        self.commit_to(State::Mounted)?;
        self.commit_fits(nodes, self.space.empty_count())
    }

    /// The live nodes of a LEB; `None` if some of them are unreadable, since unmapping the LEB would lose them.
    fn live_nodes(&self, leb: u32, raw: &[u8]) -> Result<Option<Vec<LiveNode>>, WriteError> {
        let (mut nodes, mut live_bytes) = (Vec::new(), 0);
        for Found { offset, header } in scan(raw, 0).nodes {
            let place = Place {
                leb,
                offset: u32::try_from(offset).expect("less than a LEB"),
                bytes: header.bytes,
            };
            let node = raw[offset..offset + to_usize(header.bytes)].to_vec();
            let Some(node) = leaf(node, header.kind, place) else {
                continue;
            };
            if self.is_live(&node)? {
                live_bytes += place.bytes.next_multiple_of(8);
                nodes.push(node);
            }
        }
        let leb_bytes = self.ubifs.superblock.leb_bytes;
        let in_use = self
            .space
            .get(leb)
            .map(|space| leb_bytes - space.free - space.dirty);
        Ok((Some(live_bytes) >= in_use).then_some(nodes))
    }

    fn is_live(&self, node: &LiveNode) -> Result<bool, WriteError> {
        let now = match &node.name {
            None => self.plain_place(node.key)?,
            Some(name) => self.name_place(node.key, name)?,
        };
        Ok(now == Some(node.place))
    }

    /// Copies a node unchanged: its sequence number keeps its place in the order of writes.
    fn move_node(&mut self, node: LiveNode) -> Result<(), WriteError> {
        let place = self.append_raw(HeadKind::Gc, node.raw)?;
        self.counts.collected_bytes += u64::from(place.bytes);
        let (key, old) = (node.key, Some(node.place));
        let effect = match node.name {
            None => Effect::Plain { key, old },
            Some(name) => Effect::Name {
                key,
                name,
                is_removal: false,
                old,
            },
        };
        self.take_effect(effect, place);
        Ok(())
    }
}

/// Decodes a leaf node of the index.
fn leaf(raw: Vec<u8>, kind: NodeKind, place: Place) -> Option<LiveNode> {
    let key = raw.get(24..32).and_then(Key::from_bytes)?;
    let name = match kind {
        NodeKind::Inode | NodeKind::Data => None,
        NodeKind::Entry | NodeKind::XattrEntry => Some(DirectoryEntry::decode(&raw, kind).ok()?.name),
        _ => return None,
    };
    Some(LiveNode {
        place,
        raw,
        key,
        name,
    })
}
