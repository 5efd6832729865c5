//! Nodes that files consist of: inodes, blocks, names, truncations. Tables of their bytes: `docs/formats/ubifs.md`.

use super::key::{InodeNumber, Key};
use super::layout::node_layout;
use super::{BLOCK_BYTES, Group, NAME_BYTES_MAX, NodeDefect, NodeKind, seal};

/// Data is compressed, where that saves space.
pub const INODE_COMPRESS: u32 = 0x01;
/// Writes are synchronous.
pub const INODE_SYNC: u32 = 0x02;
/// It can't be changed.
pub const INODE_IMMUTABLE: u32 = 0x04;
/// It can only grow.
pub const INODE_APPEND: u32 = 0x08;
/// Changes of the directory are synchronous.
pub const INODE_DIRSYNC: u32 = 0x10;
/// The inode is the value of an extended attribute.
pub const INODE_XATTR: u32 = 0x20;
/// Names or contents are encrypted.
pub const INODE_ENCRYPTED: u32 = 0x40;

node_layout! {
    /// An inode.
    Inode, 160 {
        /// Its key.
        key: Key = 24,
        /// Sequence number when it was made.
        created_sequence: u64 = 40,
        /// Bytes of the file.
        size_bytes: u64 = 48,
        /// Last access, seconds since 1970; two's complement.
        accessed_seconds: u64 = 56,
        /// Last change of the inode, seconds.
        changed_seconds: u64 = 64,
        /// Last change of the content, seconds.
        modified_seconds: u64 = 72,
        /// Nanoseconds of the same three times.
        accessed_nanoseconds: u32 = 80,
        /// See above.
        changed_nanoseconds: u32 = 84,
        /// See above.
        modified_nanoseconds: u32 = 88,
        /// Names of it. 0: it is removed.
        links: u32 = 92,
        /// Owner.
        user: u32 = 96,
        /// Group.
        group: u32 = 100,
        /// Type and permissions as `st_mode` has them.
        mode: u32 = 104,
        /// `INODE_*`.
        flags: u32 = 108,
        /// Bytes of the data that follows.
        data_bytes: u32 = 112,
        /// Number of extended attributes.
        xattr_count: u32 = 116,
        /// Space of their nodes, bytes.
        xattr_bytes: u32 = 120,
        /// Space of their names, bytes.
        xattr_names_bytes: u32 = 128,
        /// Compressor of new data.
        compression: u16 = 132,
    }
    then {
        /// A symbolic link's target, a device's number, an extended attribute's value.
        data: Vec<u8>,
    }
}

node_layout! {
    /// A name: of a file in a directory, or of an extended attribute.
    DirectoryEntry, 56 {
        /// Its key: the hash of the name.
        key: Key = 24,
        /// What it names; 0 in the journal: the name is removed.
        inode: u64 = 40,
        /// [`EntryKind`].
        kind: u8 = 49,
        /// Bytes of the name, without the zero behind it.
        name_bytes: u16 = 50,
        /// Tells encrypted names of one hash apart.
        cookie: u32 = 52,
    }
    then {
        /// The name.
        name: Vec<u8>,
    }
}

node_layout! {
    /// A block of a file.
    Data, 48 {
        /// Its key: the number of the block.
        key: Key = 24,
        /// Bytes of the block before compression.
        size_bytes: u32 = 40,
        /// [`Compression`].
        compression: u16 = 44,
        /// Bytes before encryption rounded them up; 0 otherwise.
        compressed_bytes: u16 = 46,
    }
    then {
        /// What is stored.
        stored: Vec<u8>,
    }
}

node_layout! {
    /// That a file was truncated.
    Truncation, 56 {
        /// Which.
        inode: u32 = 24,
        /// Bytes before.
        old_bytes: u64 = 40,
        /// Bytes after.
        new_bytes: u64 = 48,
    }
}

/// How a block is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// LZO1X.
    Lzo,
    /// Deflate without zlib's header.
    Zlib,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// From the number on the medium.
    #[must_use]
    pub const fn from_number(number: u16) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Lzo),
            2 => Some(Self::Zlib),
            3 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The number on the medium.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::None => 0,
            Self::Lzo => 1,
            Self::Zlib => 2,
            Self::Zstd => 3,
        }
    }

    /// As mount options spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lzo => "lzo",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }
}

/// File type in a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
}

impl EntryKind {
    /// From the number on the medium.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::File),
            1 => Some(Self::Directory),
            2 => Some(Self::Symlink),
            3 => Some(Self::BlockDevice),
            4 => Some(Self::CharacterDevice),
            5 => Some(Self::Fifo),
            6 => Some(Self::Socket),
            _ => None,
        }
    }

    /// The number on the medium.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::File => 0,
            Self::Directory => 1,
            Self::Symlink => 2,
            Self::BlockDevice => 3,
            Self::CharacterDevice => 4,
            Self::Fifo => 5,
            Self::Socket => 6,
        }
    }

    /// The bits of it in a mode.
    #[must_use]
    pub const fn mode(self) -> u32 {
        let bits = match self {
            Self::File => 0o10,
            Self::Directory => 0o04,
            Self::Symlink => 0o12,
            Self::BlockDevice => 0o06,
            Self::CharacterDevice => 0o02,
            Self::Fifo => 0o01,
            Self::Socket => 0o14,
        };
        bits << 12
    }

    /// From an inode's mode.
    #[must_use]
    pub const fn from_mode(mode: u32) -> Option<Self> {
        match mode >> 12 {
            0o10 => Some(Self::File),
            0o04 => Some(Self::Directory),
            0o12 => Some(Self::Symlink),
            0o06 => Some(Self::BlockDevice),
            0o02 => Some(Self::CharacterDevice),
            0o01 => Some(Self::Fifo),
            0o14 => Some(Self::Socket),
            _ => None,
        }
    }
}

const fn field(kind: NodeKind, why: &'static str) -> NodeDefect {
    NodeDefect::Field { kind, why }
}

/// The bytes behind the fixed part, which say how many they are.
fn tail(raw: &[u8], fixed: usize, bytes: usize) -> Option<Vec<u8>> {
    raw.get(fixed..)?.get(..bytes).map(<[u8]>::to_vec)
}

impl Inode {
    /// From a node that [`super::check`] vouched for; `raw` is all of it.
    pub fn decode(raw: &[u8]) -> Result<Self, NodeDefect> {
        let short = field(NodeKind::Inode, "it is too short");
        let mut inode = Self::fields_of(raw, Vec::new()).ok_or(short)?;
        // The inode of a removal says how much data there was, and has none.
        if inode.links == 0 && raw.len() == Self::BYTES {
            return Ok(inode);
        }
        let bytes = usize::try_from(inode.data_bytes).unwrap_or(usize::MAX);
        inode.data =
            tail(raw, Self::BYTES, bytes).ok_or(field(NodeKind::Inode, "its data leave the node"))?;
        Ok(inode)
    }

    /// To a node.
    #[must_use]
    pub fn encode(&self, sequence: u64, group: Group) -> Vec<u8> {
        let mut raw = self.put_fields();
        raw.extend_from_slice(&self.data);
        seal(&mut raw, NodeKind::Inode, group, sequence);
        raw
    }

    /// One of which nothing is known.
    #[must_use]
    pub const fn unknown(number: InodeNumber) -> Self {
        Self {
            key: Key::inode(number),
            created_sequence: 0,
            size_bytes: 0,
            accessed_seconds: 0,
            changed_seconds: 0,
            modified_seconds: 0,
            accessed_nanoseconds: 0,
            changed_nanoseconds: 0,
            modified_nanoseconds: 0,
            links: 0,
            user: 0,
            group: 0,
            mode: 0,
            flags: 0,
            data_bytes: 0,
            xattr_count: 0,
            xattr_bytes: 0,
            xattr_names_bytes: 0,
            compression: 0,
            data: Vec::new(),
        }
    }

    /// The type.
    #[must_use]
    pub const fn kind(&self) -> Option<EntryKind> {
        EntryKind::from_mode(self.mode)
    }

    /// Major and minor number of a device.
    #[must_use]
    pub fn device(&self) -> Option<(u32, u32)> {
        if !matches!(
            self.kind(),
            Some(EntryKind::BlockDevice | EntryKind::CharacterDevice)
        ) {
            return None;
        }
        let number = u32::from_le_bytes(self.data.get(..4)?.try_into().ok()?);
        Some((
            (number >> 8) & 0xFFF,
            (number & 0xFF) | ((number >> 12) & 0xF_FF00),
        ))
    }
}

impl DirectoryEntry {
    /// From a node that [`super::check`] vouched for; `raw` is all of it, `node` says which of the two kinds.
    pub fn decode(raw: &[u8], node: NodeKind) -> Result<Self, NodeDefect> {
        let mut entry = Self::fields_of(raw, Vec::new()).ok_or(field(node, "it is too short"))?;
        if entry.name_bytes == 0 || u32::from(entry.name_bytes) > NAME_BYTES_MAX {
            return Err(field(node, "its name has no byte or more than 255"));
        }
        let bytes = usize::from(entry.name_bytes);
        entry.name = tail(raw, Self::BYTES, bytes).ok_or(field(node, "its name leaves the node"))?;
        if u32::try_from(entry.inode).is_err() {
            return Err(field(node, "its inode number has more than 32 bits"));
        }
        Ok(entry)
    }

    /// To a node.
    #[must_use]
    pub fn encode(&self, node: NodeKind, sequence: u64, group: Group) -> Vec<u8> {
        let mut raw = self.put_fields();
        raw.extend_from_slice(&self.name);
        raw.push(0);
        seal(&mut raw, node, group, sequence);
        raw
    }
}

impl Data {
    /// From a node that [`super::check`] vouched for; `raw` is all of it.
    pub fn decode(raw: &[u8]) -> Result<Self, NodeDefect> {
        let (data, stored) = Self::split(raw)?;
        Ok(Self {
            stored: stored.to_vec(),
            ..data
        })
    }

    /// The same without a copy: the fields, and what is stored, which the value lacks.
    pub fn split(raw: &[u8]) -> Result<(Self, &[u8]), NodeDefect> {
        let data = Self::fields_of(raw, Vec::new()).ok_or(field(NodeKind::Data, "it is too short"))?;
        if data.size_bytes == 0 || data.size_bytes > BLOCK_BYTES {
            return Err(field(NodeKind::Data, "its block has no byte or more than 4096"));
        }
        Ok((data, raw.get(Self::BYTES..).unwrap_or_default()))
    }

    /// To a node.
    #[must_use]
    pub fn encode(&self, sequence: u64, group: Group) -> Vec<u8> {
        let mut raw = self.put_fields();
        raw.reserve_exact(self.stored.len().next_multiple_of(8));
        raw.extend_from_slice(&self.stored);
        seal(&mut raw, NodeKind::Data, group, sequence);
        raw
    }
}

impl Truncation {
    /// One that concerns no inode: a node for a write unit that has to hold one.
    pub const OF_NOTHING: Self = Self {
        inode: 0,
        old_bytes: 4096,
        new_bytes: 0,
    };

    /// Whether it concerns no inode.
    #[must_use]
    pub const fn is_of_nothing(&self) -> bool {
        self.inode == 0
    }

    /// From a node that [`super::check`] vouched for.
    pub fn decode(raw: &[u8]) -> Result<Self, NodeDefect> {
        let node = Self::fields_of(raw).ok_or(field(NodeKind::Truncation, "it is too short"))?;
        if node.new_bytes > node.old_bytes {
            return Err(field(NodeKind::Truncation, "it makes a file longer"));
        }
        Ok(node)
    }

    /// To a node.
    #[must_use]
    pub fn encode(&self, sequence: u64, group: Group) -> Vec<u8> {
        let mut raw = self.put_fields();
        seal(&mut raw, NodeKind::Truncation, group, sequence);
        raw
    }
}
