//! Garbage collection: nodes that are in use move out of LEBs that are mostly dirty, which become empty. LEBs of the index are
//! collected by the next commit, which writes their nodes elsewhere.
//!
//! A LEB is unmapped only after the copies, and all nodes that made others in it useless, are on the medium. LEBs of the journal
//! are never collected: a replay needs them.

use media::Leb;
use ubi::Volume;

use super::buffers::HeadKind;
use super::commit::State;
use super::{WriteError, Writer};
use crate::fetch;
use crate::finding::Place;
use crate::format::{DirectoryEntry, Key, NodeKind};
use crate::scan::{Found, scan, to_usize};
use crate::space::{LARGEST_NODE_BYTES, LebSpace};

/// Bytes that a node takes which a key leads to: a block of one byte.
const SMALLEST_NODE_BYTES: u32 = 56;

/// The key of a node that is in use, and its name where it is one of a name.
type Live = (Key, Option<Vec<u8>>);

/// What a collection did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Collected {
    Something,
    Nothing,
}

impl Writer {
    /// LEBs in which nothing is in use become empty.
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

    /// Bytes that collecting a LEB gives. Where less is free than the largest node takes, as much may stay free at the end of the
    /// LEB that the copies go to.
    fn gain(&self, space: LebSpace) -> u32 {
        let end_bytes = LARGEST_NODE_BYTES.next_multiple_of(self.ubifs.superblock.min_io_bytes);
        match space.free > end_bytes {
            true => space.free + space.dirty,
            false => space.dirty,
        }
    }

    /// Whether what is dirty or free in a LEB can be had at all.
    pub(super) fn is_worth_collecting(&self, space: LebSpace) -> bool {
        let superblock = &self.ubifs.superblock;
        self.gain(space) >= superblock.leb_bytes / 8 + superblock.min_io_bytes
    }

    /// Collects the LEB with the most space.
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
                    && self.is_worth_collecting(*space)
            })
            .max_by_key(|(_, space)| self.gain(*space));
        let Some((victim, space)) = best else {
            return Ok(Collected::Nothing);
        };
        let in_use = leb_bytes - space.free - space.dirty;
        if !self.may_move(in_use)? {
            return Ok(Collected::Nothing);
        }
        self.space.take(victim);
        let raw = fetch::leb(&*self.ubifs.volume, victim).map_err(|damage| WriteError::Damaged {
            volume: self.name(),
            damage,
        })?;
        for Found { offset, header } in scan(&raw, 0).nodes {
            let place = Place {
                leb: victim,
                offset: u32::try_from(offset).expect("less than a LEB"),
                bytes: header.bytes,
            };
            let node = &raw[offset..offset + to_usize(header.bytes)];
            if let Some((key, name)) = self.live(node, header.kind, place)? {
                self.move_node(node, key, name)?;
            }
        }
        self.sync_heads()?;
        self.volume.unmap(Leb(victim))?;
        self.space.set_empty(victim);
        self.counts.collected_lebs += 1;
        self.space.release(victim);
        if self.gc_leb.is_none() {
            // The copies went to the one that was kept.
            self.keep_for_gc(victim)?;
        }
        Ok(Collected::Something)
    }

    /// Whether there is room for a commit after so many bytes of nodes moved; one comes before them where that helps.
    fn may_move(&mut self, bytes: u32) -> Result<bool, WriteError> {
        let nodes = to_usize(bytes / SMALLEST_NODE_BYTES);
        if self.commit_room(nodes)? < self.space.empty_count() {
            return Ok(true);
        }
        if self.ubifs.journal.changes() == 0 {
            return Ok(false);
        }
        self.commit_to(State::Mounted)?;
        Ok(self.commit_room(nodes)? < self.space.empty_count())
    }

    /// The key, and for names the name, of a node that is in use.
    fn live(&self, node: &[u8], kind: NodeKind, place: Place) -> Result<Option<Live>, WriteError> {
        let Some(key) = node.get(24..32).and_then(Key::from_bytes) else {
            return Ok(None);
        };
        Ok(match kind {
            NodeKind::Inode | NodeKind::Data => {
                (self.plain_place(key)? == Some(place)).then_some((key, None))
            }
            NodeKind::Entry | NodeKind::XattrEntry => {
                let Ok(entry) = DirectoryEntry::decode(node, kind) else {
                    return Ok(None);
                };
                let now = self.name_place(key, &entry.name)?;
                (now == Some(place)).then_some((key, Some(entry.name)))
            }
            _ => None,
        })
    }

    /// Copies a node as it is: its sequence number says when it was new.
    fn move_node(&mut self, node: &[u8], key: Key, name: Option<Vec<u8>>) -> Result<(), WriteError> {
        let place = self.append_raw(HeadKind::Gc, node.to_vec())?;
        self.counts.collected_bytes += u64::from(place.bytes);
        match name {
            None => self.put_plain(key, place),
            Some(name) => self.put_name(key, name, Some(place)),
        }
    }
}
