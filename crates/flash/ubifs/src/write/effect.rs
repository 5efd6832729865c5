//! In-memory effect of a written node: on the journal, and on the space of LEBs.
//!
//! It is computed before anything is written ([`Effect`]), because that requires reads of the index and of names,
//! which may fail; nothing has changed then. It is applied once the node is in a write buffer, which can't fail.

use super::held::Orphan;
use super::journal::NewNode;
use super::{WriteError, Writer};
use crate::fetch;
use crate::finding::{Damage, Finding, Place, Subject};
use crate::format::{Data, DirectoryEntry, Inode, InodeNumber, Key, KeyKind, NodeKind};
use crate::journal::{Indexed, JournalName};

/// In-memory effect of a node, computed before anything is written. `old` are the nodes it makes obsolete.
pub(super) enum Effect {
    /// An inode or a data block.
    Plain { key: Key, old: Option<Place> },
    /// A name is added, or removed.
    Name {
        key: Key,
        name: Vec<u8>,
        is_removal: bool,
        old: Option<Place>,
    },
    /// An inode is deleted with its blocks, names and attributes.
    Removal(Removal),
    /// Blocks from `end` on are cut off.
    Cut {
        inode: InodeNumber,
        end: u32,
        old: Vec<Place>,
    },
}

/// A deleted inode with the inodes of its extended attributes, and all of their nodes.
pub(super) struct Removal {
    inodes: Vec<InodeNumber>,
    old: Vec<Place>,
    /// Extended attribute entries of the inode in the index.
    indexed_entries: Vec<Place>,
}

impl Writer {
    /// Computes the effect of a node. The nodes of a group all have different keys.
    pub(super) fn effect_of(&self, node: &NewNode) -> Result<Effect, WriteError> {
        Ok(match node {
            NewNode::Inode(inode) if self.removes(inode) => {
                Effect::Removal(self.removal_of(inode.key.inode_number())?)
            }
            NewNode::Inode(Inode { key, .. }) | NewNode::Data(Data { key, .. }) => Effect::Plain {
                key: *key,
                old: self.plain_place(*key)?,
            },
            NewNode::Entry(_, entry) => Effect::Name {
                key: entry.key,
                name: entry.name.clone(),
                is_removal: entry.inode == 0,
                old: self.name_place(entry.key, &entry.name)?,
            },
            NewNode::Truncation(truncation) => {
                let inode = InodeNumber(truncation.inode);
                let end = u32::try_from(truncation.new_bytes.div_ceil(4096)).unwrap_or(u32::MAX);
                let old = match end {
                    0..=Key::LOW_MAX => {
                        self.all_places(Key::data(inode, end), Key::last(inode, KeyKind::Data))?
                    }
                    _ => Vec::new(),
                };
                Effect::Cut { inode, end, old }
            }
        })
    }

    /// Whether this inode node deletes the inode.
    fn removes(&self, inode: &Inode) -> bool {
        inode.links == 0 && !self.orphans.contains_key(&inode.key.inode_number().0)
    }

    /// Lists everything that a deletion of the inode removes, including its extended attributes.
    pub(super) fn removal_of(&self, inode: InodeNumber) -> Result<Removal, WriteError> {
        let mut inodes = vec![inode];
        inodes.extend(self.ubifs.xattr_inodes(inode)?);
        let mut old = Vec::new();
        for inode in &inodes {
            old.extend(self.all_places(Key::inode(*inode), Key::last(*inode, KeyKind::XattrEntry))?);
        }
        let (first, last) = (
            Key::first(inode, KeyKind::XattrEntry),
            Key::last(inode, KeyKind::XattrEntry),
        );
        let indexed = self.index_range(first, last)?;
        Ok(Removal {
            inodes,
            old,
            indexed_entries: indexed.into_iter().map(|(_, place)| place).collect(),
        })
    }

    /// Records a node that is in a write buffer in the in-memory journal. Must not fail.
    pub(super) fn apply(&mut self, node: &NewNode, effect: Effect, place: Place) {
        self.unsynced.note(node.inode());
        match node {
            NewNode::Inode(inode) if self.removes(inode) => self.space.add_dirty(place),
            NewNode::Inode(inode) => {
                let removed = Orphan::RemovedIn(self.ubifs.master.commit);
                self.note_orphan(inode.key.inode_number(), removed);
            }
            NewNode::Data(data) => self.note_orphan(data.key.inode_number(), Orphan::Alive),
            NewNode::Entry(_, entry) if entry.inode == 0 => self.space.add_dirty(place),
            NewNode::Entry(..) => {}
            NewNode::Truncation(truncation) => {
                self.note_orphan(InodeNumber(truncation.inode), Orphan::Alive);
                self.space.add_dirty(place);
            }
        }
        let put = matches!(effect, Effect::Plain { .. });
        self.take_effect(effect, place);
        if let NewNode::Inode(inode) = node
            && put
        {
            let known = &self.ubifs.known_inodes;
            known.remember(inode.key.inode_number(), place, inode);
        }
    }

    /// Applies the effect of a node at `place` to the in-memory journal and the space of LEBs.
    pub(super) fn take_effect(&mut self, effect: Effect, place: Place) {
        match effect {
            Effect::Plain { key, old } => {
                self.obsolete(old);
                self.ubifs.journal.put(key, place);
                if key.kind() == Some(KeyKind::Inode) {
                    self.ubifs.known_inodes.forget(key.inode_number());
                }
            }
            Effect::Name {
                key,
                name,
                is_removal,
                old,
            } => {
                self.obsolete(old);
                let name = JournalName {
                    name,
                    place: (!is_removal).then_some(place),
                    indexed: old.map_or(Indexed::Nothing, Indexed::At),
                };
                self.ubifs.journal.put_name(key, name);
            }
            Effect::Removal(removal) => self.forget(removal),
            Effect::Cut { inode, end, old } => {
                self.obsolete(old);
                if end <= Key::LOW_MAX {
                    self.ubifs.journal.remove_blocks(inode, end);
                }
            }
        }
    }

    /// Removes an inode with everything listed in `removal`.
    pub(super) fn forget(&mut self, removal: Removal) {
        self.obsolete(removal.old);
        for entry in removal.indexed_entries {
            // A replay finds the attribute values through these entries.
            self.space.keep_for_replay(entry.leb);
        }
        for inode in removal.inodes {
            self.ubifs.journal.remove_inode(inode);
            self.ubifs.known_inodes.forget(inode);
        }
    }

    fn obsolete(&mut self, places: impl IntoIterator<Item = Place>) {
        for place in places {
            self.space.add_dirty(place);
        }
    }

    /// Records the state of an orphan as of the last node written of it.
    fn note_orphan(&mut self, inode: InodeNumber, last: Orphan) {
        if let Some(orphan) = self.orphans.get_mut(&inode.0) {
            *orphan = last;
        }
    }

    /// Location of the node of an inode or block.
    pub(super) fn plain_place(&self, key: Key) -> Result<Option<Place>, WriteError> {
        let journal = &self.ubifs.journal;
        if let Some((_, place)) = journal.range(key, key).next() {
            return Ok(Some(place));
        }
        if journal.hides(key) {
            return Ok(None);
        }
        Ok(self.index_range(key, key)?.first().map(|(_, place)| *place))
    }

    /// Location of the node of a name.
    pub(super) fn name_place(&self, key: Key, name: &[u8]) -> Result<Option<Place>, WriteError> {
        let journal = &self.ubifs.journal;
        if let Some((_, known)) = journal.names(key, key).find(|(_, known)| known.name == name) {
            return Ok(known.place);
        }
        if journal.hides(key) {
            return Ok(None);
        }
        let places = self.index_range(key, key)?.into_iter().map(|(_, place)| place);
        let names = self.indexed_names(key, places)?;
        let found = names.into_iter().find(|(_, indexed)| indexed == name);
        Ok(found.map(|(place, _)| place))
    }

    /// Returns the locations, among those that the index has for names with this key, that the journal does not
    /// override, with their names.
    pub(super) fn indexed_names(
        &self,
        key: Key,
        places: impl Iterator<Item = Place>,
    ) -> Result<Vec<(Place, Vec<u8>)>, WriteError> {
        let journal = &self.ubifs.journal;
        let (kind, subject) = match key.kind() {
            Some(KeyKind::XattrEntry) => (NodeKind::XattrEntry, Subject::Xattr),
            _ => (NodeKind::Entry, Subject::Entry),
        };
        let mut names = Vec::new();
        for place in places.filter(|place| !journal.replaces(key, *place)) {
            let entry = fetch::node(&*self.ubifs.volume, place, kind)
                .and_then(|raw| Ok(DirectoryEntry::decode(&raw, kind)?))
                .and_then(|entry| match entry.key == key {
                    true => Ok(entry),
                    false => Err(Damage::Contradiction("it has another key than the index says")),
                });
            match entry {
                Ok(entry) if journal.has_name(key, &entry.name) => {}
                Ok(entry) => names.push((place, entry.name)),
                // The entry may have been replaced by the journal, and its node overwritten since.
                Err(damage) if journal.may_replace(key) && !matches!(damage, Damage::Medium(_)) => {}
                Err(damage) => {
                    return Err(self.unreadable(Box::new(Finding {
                        inode: Some(key.inode_number()),
                        subject,
                        place,
                        damage,
                    })));
                }
            }
        }
        Ok(names)
    }

    /// Locations of all live nodes with keys between `low` and `high`, which belong to one inode.
    fn all_places(&self, low: Key, high: Key) -> Result<Vec<Place>, WriteError> {
        let journal = &self.ubifs.journal;
        let mut places: Vec<Place> = journal.range(low, high).map(|(_, place)| place).collect();
        places.extend(journal.names(low, high).filter_map(|(_, name)| name.place));
        for (key, place) in self.index_range(low, high)? {
            if journal.hides(key) {
                continue;
            }
            match journal.names(key, key).next() {
                None => places.push(place),
                Some(_) => {
                    let left = self.indexed_names(key, std::iter::once(place))?;
                    places.extend(left.into_iter().map(|(place, _)| place));
                }
            }
        }
        Ok(places)
    }
}
