//! A readable UBIFS: the index with the replayed journal on top.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;
use ubi::Volume;

use crate::content::Workspaces;
use crate::encryption::{CONTEXT_NAME, Keyring};
use crate::fetch;
use crate::finding::{Damage, Finding, Place, Subject};
use crate::format::{
    BLOCK_BYTES, Data, DirectoryEntry, EntryKind, INODE_ENCRYPTED, Inode, InodeNumber, Key, KeyKind, Master,
    NodeKind, Superblock, name_hash_r5, name_hash_test,
};
use crate::index::Index;
use crate::journal::Journal;
use crate::known_inodes::KnownInodes;
use crate::lpt::{self, LptError};
use crate::open::{OpenError, OpenOptions, open};
use crate::report::ReplayReport;
use crate::space::LebSpace;

/// Maximum file size: block numbers have 29 bits.
pub(crate) const FILE_BYTES_MAX: u64 = (1 << 29) * 4096;

/// A UBIFS opened for reading.
pub struct Ubifs {
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) superblock: Superblock,
    pub(crate) master: Master,
    pub(crate) index: Index,
    pub(crate) journal: Journal,
    pub(crate) report: ReplayReport,
    pub(crate) findings: Vec<Finding>,
    pub(crate) workspaces: Workspaces,
    pub(crate) keyring: Keyring,
    pub(crate) known_inodes: KnownInodes,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name; on a damaged file system it may contain any bytes.
    pub name: Vec<u8>,
    /// Inode that the name refers to.
    pub inode: InodeNumber,
    /// File type according to the entry.
    pub kind: Option<EntryKind>,
    /// Distinguishes encrypted names with equal hashes.
    pub cookie: u32,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extended {
    /// Its name, including the prefix.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// Why a read failed.
#[derive(Debug, Error)]
pub enum UbifsError {
    /// The medium is damaged.
    #[error("{volume}: {finding}")]
    Damaged {
        /// Name of the volume.
        volume: Arc<str>,
        /// Location and fault.
        #[source]
        finding: Box<Finding>,
    },
    /// There is no such inode.
    #[error("{volume}: there is no {inode}")]
    NoInode {
        /// Name of the volume.
        volume: Arc<str>,
        /// Inode number.
        inode: InodeNumber,
    },
    /// There is no such name.
    #[error("{volume}: {inode} has no \"{}\"", name.escape_ascii())]
    NoName {
        /// Name of the volume.
        volume: Arc<str>,
        /// The directory, or the inode with the extended attributes.
        inode: InodeNumber,
        /// The name.
        name: Vec<u8>,
    },
    /// The inode has another type than the operation requires.
    #[error("{volume}: {inode} is no {expected}")]
    WrongKind {
        /// Name of the volume.
        volume: Arc<str>,
        /// Inode number.
        inode: InodeNumber,
        /// Type required.
        expected: &'static str,
    },
}

impl Ubifs {
    /// Opens the file system of a volume and replays its journal in memory; nothing is written. Damage found on the
    /// way is reported by [`Ubifs::findings`]; opening fails only if nothing could be read.
    pub fn open(volume: Arc<dyn Volume>, options: OpenOptions) -> Result<Self, OpenError> {
        open(volume, options)
    }

    /// The superblock.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The current master node.
    #[must_use]
    pub fn master(&self) -> &Master {
        &self.master
    }

    /// Report of the journal replay.
    #[must_use]
    pub fn replay_report(&self) -> &ReplayReport {
        &self.report
    }

    /// Damage found while opening.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The volume below.
    #[must_use]
    pub fn volume(&self) -> &Arc<dyn Volume> {
        &self.volume
    }

    /// Free and dirty space of each LEB of the main area (lprops), as of the last commit.
    pub fn space(&self) -> Result<Vec<LebSpace>, LptError> {
        lpt::load(&*self.volume, &self.superblock, &self.master).map(|content| content.lebs)
    }

    /// An inode, with its recovered size.
    pub fn inode(&self, number: InodeNumber) -> Result<Inode, UbifsError> {
        if let Some(made) = self.made_inode(number) {
            return Ok(made);
        }
        let mut lost = Vec::new();
        let place = self
            .places(Key::inode(number), Key::inode(number), &mut lost)
            .into_iter()
            .next();
        let Some((_, place)) = place else {
            self.strict(lost)?;
            return Err(self.no_inode(number));
        };
        if let Some(known) = self.known_inodes.get(number, place) {
            return Ok(self.with_recovered_size(number, known));
        }
        let node = fetch::node(&*self.volume, place, NodeKind::Inode);
        self.decoded(number, place, node.as_deref().map_err(Clone::clone))
    }

    /// Inodes, in the order of `numbers`; their nodes are fetched together.
    pub fn inodes(&self, numbers: &[InodeNumber]) -> Vec<Result<Inode, UbifsError>> {
        let mut inodes: Vec<Result<Inode, UbifsError>> = Vec::with_capacity(numbers.len());
        let (mut places, mut owners) = (Vec::new(), Vec::new());
        for (owner, number) in numbers.iter().enumerate() {
            let mut lost = Vec::new();
            let found = self.places(Key::inode(*number), Key::inode(*number), &mut lost);
            let node = found.first().filter(|_| self.made_inode(*number).is_none());
            if let Some((_, place)) = node {
                places.push(*place);
                owners.push(owner);
            }
            // Placeholder: replaced below if the node is found.
            inodes.push(match (self.made_inode(*number), lost.into_iter().next()) {
                (Some(made), _) => Ok(made),
                (None, Some(finding)) => Err(self.damaged(finding)),
                (None, None) => Err(self.no_inode(*number)),
            });
        }
        let mut workspace = self.workspace();
        fetch::nodes(
            &*self.volume,
            &places,
            NodeKind::Inode,
            &mut workspace.nodes,
            &mut |number, raw| {
                let owner = owners[number];
                inodes[owner] = self.decoded(numbers[owner], places[number], raw);
            },
        );
        inodes
    }

    /// An inode that a salvage has made.
    fn made_inode(&self, number: InodeNumber) -> Option<Inode> {
        self.index.table()?.inode(number)
    }

    fn decoded(
        &self,
        number: InodeNumber,
        place: Place,
        raw: Result<&[u8], Damage>,
    ) -> Result<Inode, UbifsError> {
        let inode = raw.and_then(|raw| Ok(Inode::decode(raw)?)).and_then(|inode| {
            match inode.key == Key::inode(number) {
                true if inode.size_bytes > FILE_BYTES_MAX => Err(Damage::Contradiction(
                    "its size is more than 2 TiB, which no file can have",
                )),
                true => Ok(inode),
                false => Err(Damage::Contradiction("it is another inode than the index says")),
            }
        });
        let inode = inode.map_err(|damage| {
            self.damaged(Finding {
                inode: Some(number),
                subject: Subject::Inode,
                place,
                damage,
            })
        })?;
        self.known_inodes.remember(number, place, &inode);
        Ok(self.with_recovered_size(number, inode))
    }

    fn with_recovered_size(&self, number: InodeNumber, mut inode: Inode) -> Inode {
        if let Some(size) = self.journal.sizes.get(&number) {
            inode.size_bytes = inode.size_bytes.max(*size);
        }
        inode
    }

    /// Like [`Ubifs::inode`], but replaces a lost inode by one made from the type in its directory entry and from its
    /// blocks, so that its content can be read: mode 0600 or 0700, owner and times 0. Returns `None` for types whose
    /// content is in the inode, such as symbolic links.
    pub fn inode_lossy(
        &self,
        number: InodeNumber,
        kind: Option<EntryKind>,
        lost: &mut Vec<Finding>,
    ) -> Option<Inode> {
        let finding = match self.inode(number) {
            Ok(inode) => return Some(inode),
            Err(UbifsError::Damaged { finding, .. }) => *finding,
            Err(_) => Finding {
                inode: Some(number),
                subject: Subject::Inode,
                place: self.root(),
                damage: Damage::Contradiction("the index does not lead to it"),
            },
        };
        lost.push(finding);
        let (mode, size_bytes) = match kind? {
            EntryKind::File => (0o100_600, self.end_of_blocks(number)),
            EntryKind::Directory => (0o040_700, 0),
            _ => return None,
        };
        Some(Inode {
            size_bytes,
            mode,
            links: 1,
            ..Inode::unknown(number)
        })
    }

    /// End of the last block of a file, bytes.
    fn end_of_blocks(&self, file: InodeNumber) -> u64 {
        let (low, high) = (Key::first(file, KeyKind::Data), Key::last(file, KeyKind::Data));
        let Some((key, place)) = self.places(low, high, &mut Vec::new()).pop() else {
            return 0;
        };
        let data = fetch::node(&*self.volume, place, NodeKind::Data)
            .ok()
            .and_then(|raw| Data::decode(&raw).ok());
        let last = data.map_or(BLOCK_BYTES, |data| data.size_bytes);
        u64::from(key.low()) * u64::from(BLOCK_BYTES) + u64::from(last)
    }

    fn no_inode(&self, inode: InodeNumber) -> UbifsError {
        UbifsError::NoInode {
            volume: self.volume.name(),
            inode,
        }
    }

    /// The directory entry of a name.
    pub fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<Entry, UbifsError> {
        if let Some(made) = self.index.table().and_then(|table| table.entry(directory, name)) {
            return Ok(made);
        }
        if let Some(found) = self.lookup_encrypted(directory, name) {
            return found;
        }
        let key = Key::entry(directory, self.name_hash(name));
        self.named(key, NodeKind::Entry, name)
    }

    /// All entries of a directory, sorted by hash, then by name.
    pub fn read_directory(&self, directory: InodeNumber) -> Result<Vec<Entry>, UbifsError> {
        let mut lost = Vec::new();
        let entries = self.read_directory_lossy(directory, &mut lost);
        self.strict(lost)?;
        Ok(entries)
    }

    /// All readable entries of a directory; damaged ones are added to `lost`.
    pub fn read_directory_lossy(&self, directory: InodeNumber, lost: &mut Vec<Finding>) -> Vec<Entry> {
        let (low, high) = (
            Key::first(directory, KeyKind::Entry),
            Key::last(directory, KeyKind::Entry),
        );
        let mut entries = self.names(low, high, NodeKind::Entry, lost);
        self.decode_names(directory, &mut entries, lost);
        if let Some(table) = self.index.table() {
            entries.extend(table.entries(directory));
        }
        entries
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, link: &Inode) -> Result<Vec<u8>, UbifsError> {
        if link.kind() == Some(EntryKind::Symlink) {
            return match link.flags & INODE_ENCRYPTED {
                0 => Ok(link.data.clone()),
                _ => self.decrypt_link(link),
            };
        }
        Err(UbifsError::WrongKind {
            volume: self.volume.name(),
            inode: link.key.inode_number(),
            expected: "symbolic link",
        })
    }

    /// Names of the extended attributes of an inode.
    pub fn xattr_names(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>, UbifsError> {
        let mut lost = Vec::new();
        let names = self.xattr_entries(inode, &mut lost);
        self.strict(lost)?;
        let names = names.into_iter().map(|entry| entry.name);
        Ok(names.filter(|name| name != CONTEXT_NAME).collect())
    }

    /// The value of an extended attribute.
    pub fn xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>, UbifsError> {
        let key = Key::xattr(inode, self.name_hash(name));
        let entry = self.named(key, NodeKind::XattrEntry, name)?;
        Ok(self.inode(entry.inode)?.data)
    }

    /// All readable extended attributes of an inode; damaged ones are added to `lost`.
    pub fn xattrs_lossy(&self, inode: InodeNumber, lost: &mut Vec<Finding>) -> Vec<Extended> {
        let mut all = Vec::new();
        let entries = self.xattr_entries(inode, lost);
        for entry in entries.into_iter().filter(|entry| entry.name != CONTEXT_NAME) {
            match self.inode(entry.inode) {
                Ok(value) => all.push(Extended {
                    name: entry.name,
                    value: value.data,
                }),
                Err(UbifsError::Damaged { finding, .. }) => {
                    lost.push(Finding {
                        inode: Some(inode),
                        subject: Subject::Xattr,
                        ..*finding
                    });
                }
                Err(_) => lost.push(Finding {
                    inode: Some(inode),
                    subject: Subject::Xattr,
                    place: self.root(),
                    damage: Damage::Contradiction("its value is not in the index"),
                }),
            }
        }
        all
    }

    /// The inodes that hold the extended attributes of an inode.
    pub(crate) fn xattr_inodes(&self, inode: InodeNumber) -> Result<Vec<InodeNumber>, UbifsError> {
        let mut lost = Vec::new();
        let names = self.xattr_entries(inode, &mut lost);
        self.strict(lost)?;
        Ok(names.into_iter().map(|entry| entry.inode).collect())
    }

    /// The inode that holds an extended attribute.
    pub(crate) fn xattr_inode(
        &self,
        inode: InodeNumber,
        name: &[u8],
    ) -> Result<Option<InodeNumber>, UbifsError> {
        let key = Key::xattr(inode, self.name_hash(name));
        match self.named(key, NodeKind::XattrEntry, name) {
            Ok(entry) => Ok(Some(entry.inode)),
            Err(UbifsError::NoName { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn xattr_entries(&self, inode: InodeNumber, lost: &mut Vec<Finding>) -> Vec<Entry> {
        let (low, high) = (
            Key::first(inode, KeyKind::XattrEntry),
            Key::last(inode, KeyKind::XattrEntry),
        );
        self.names(low, high, NodeKind::XattrEntry, lost)
    }

    fn root(&self) -> Place {
        let master = &self.master;
        Place {
            leb: master.root_leb,
            offset: master.root_offset,
            bytes: master.root_bytes,
        }
    }

    pub(crate) fn name_hash(&self, name: &[u8]) -> u32 {
        match self.superblock.key_hash {
            0 => name_hash_r5(name),
            _ => name_hash_test(name),
        }
    }

    pub(crate) fn named(&self, key: Key, kind: NodeKind, name: &[u8]) -> Result<Entry, UbifsError> {
        let mut lost = Vec::new();
        let found = self
            .names(key, key, kind, &mut lost)
            .into_iter()
            .find(|entry| entry.name == name);
        if let Some(entry) = found {
            return Ok(entry);
        }
        self.strict(lost)?;
        Err(UbifsError::NoName {
            volume: self.volume.name(),
            inode: key.inode_number(),
            name: name.to_vec(),
        })
    }

    /// Locations of inodes and blocks with keys from `low` to `high`, sorted by key.
    pub(crate) fn places(&self, low: Key, high: Key, lost: &mut Vec<Finding>) -> Vec<(Key, Place)> {
        let mut found = Vec::new();
        if low != high || !self.journal.hides(low) {
            self.index.range(low, high, &mut found, lost);
        }
        found.retain(|(key, _)| !self.journal.hides(*key));
        let of_index = found.len();
        found.extend(self.journal.range(low, high));
        if found.len() > of_index {
            found.sort_by_key(|(key, _)| *key);
        }
        found
    }

    /// Entries with keys from `low` to `high`.
    fn names(&self, low: Key, high: Key, kind: NodeKind, lost: &mut Vec<Finding>) -> Vec<Entry> {
        let mut found = Vec::new();
        self.index.range(low, high, &mut found, lost);
        found.retain(|(key, place)| !self.journal.hides(*key) && !self.journal.replaces(*key, *place));
        let of_index = found.len();
        let of_journal = self.journal.names(low, high);
        found.extend(of_journal.filter_map(|(key, name)| name.place.map(|place| (key, place))));
        let places: Vec<Place> = found.iter().map(|(_, place)| *place).collect();
        let mut all = BTreeMap::new();
        let mut workspace = self.workspace();
        let mut take = |number: usize, raw: Result<&[u8], Damage>| {
            let (key, place) = found[number];
            match raw.and_then(|raw| self.entry(key, raw, kind)) {
                // The journal overrides the index for this name.
                Ok(entry) if number < of_index && self.journal.has_name(key, &entry.name) => {}
                // The entry may have been replaced by the journal, and its node overwritten since.
                Err(damage)
                    if number < of_index
                        && self.journal.may_replace(key)
                        && !matches!(damage, Damage::Medium(_)) => {}
                Ok(entry) => {
                    all.insert((key, entry.name.clone()), entry);
                }
                Err(damage) => lost.push(Finding {
                    inode: Some(key.inode_number()),
                    subject: if kind == NodeKind::Entry {
                        Subject::Entry
                    } else {
                        Subject::Xattr
                    },
                    place,
                    damage,
                }),
            }
        };
        fetch::nodes(&*self.volume, &places, kind, &mut workspace.nodes, &mut take);
        all.into_values().collect()
    }

    /// Decodes an entry. Since the key must be the hash of the name, a directory can't contain a name twice.
    fn entry(&self, key: Key, raw: &[u8], kind: NodeKind) -> Result<Entry, Damage> {
        let entry = DirectoryEntry::decode(raw, kind)?;
        if entry.key != key {
            return Err(Damage::Contradiction("it has another key than the index says"));
        }
        if self.name_hash(&entry.name) != key.low() {
            return Err(Damage::Contradiction("its key is not the hash of the name"));
        }
        let inode = u32::try_from(entry.inode)
            .map_err(|_| Damage::Contradiction("its inode number has more than 32 bits"))?;
        Ok(Entry {
            name: entry.name,
            inode: InodeNumber(inode),
            kind: EntryKind::from_number(entry.kind),
            cookie: entry.cookie,
        })
    }

    pub(crate) fn damaged(&self, finding: Finding) -> UbifsError {
        UbifsError::Damaged {
            volume: self.volume.name(),
            finding: Box::new(finding),
        }
    }

    pub(crate) fn strict(&self, lost: Vec<Finding>) -> Result<(), UbifsError> {
        match lost.into_iter().next() {
            Some(finding) => Err(self.damaged(finding)),
            None => Ok(()),
        }
    }
}
