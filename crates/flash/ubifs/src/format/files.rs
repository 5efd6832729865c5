//! Nodes of files: inodes, data blocks, names, truncations. Byte tables: `docs/formats/ubifs.md`.

use super::key::{InodeNumber, Key};
use super::layout::node_layout;
use super::{BLOCK_BYTES, Group, NAME_BYTES_MAX, NodeDefect, NodeKind, seal};

/// Data is compressed if that saves space.
pub const INODE_COMPRESS: u32 = 0x01;
/// Writes are synchronous.
pub const INODE_SYNC: u32 = 0x02;
/// Immutable.
pub const INODE_IMMUTABLE: u32 = 0x04;
/// Append-only.
pub const INODE_APPEND: u32 = 0x08;
/// Changes to the directory are synchronous.
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
        /// Sequence number at creation.
        created_sequence: u64 = 40,
        /// File size in bytes.
        size_bytes: u64 = 48,
        /// Access time (atime), seconds since 1970; two's complement.
        accessed_seconds: u64 = 56,
        /// Time of the last inode change (ctime), seconds.
        changed_seconds: u64 = 64,
        /// Time of the last content change (mtime), seconds.
        modified_seconds: u64 = 72,
        /// Nanoseconds of atime.
        accessed_nanoseconds: u32 = 80,
        /// Nanoseconds of ctime.
        changed_nanoseconds: u32 = 84,
        /// Nanoseconds of mtime.
        modified_nanoseconds: u32 = 88,
        /// Link count. 0: the inode is deleted.
        links: u32 = 92,
        /// Owner.
        user: u32 = 96,
        /// Group.
        group: u32 = 100,
        /// Type and permissions, encoded as `st_mode`.
        mode: u32 = 104,
        /// `INODE_*`.
        flags: u32 = 108,
        /// Bytes of the data that follows.
        data_bytes: u32 = 112,
        /// Number of extended attributes.
        xattr_count: u32 = 116,
        /// Bytes of the nodes of the extended attributes.
        xattr_bytes: u32 = 120,
        /// Bytes of the names of the extended attributes.
        xattr_names_bytes: u32 = 128,
        /// Compressor of data written later.
        compression: u16 = 132,
    }
    then {
        /// Target of a symbolic link, number of a device, or value of an extended attribute.
        data: Vec<u8>,
    }
}

node_layout! {
    /// A directory entry, or the name of an extended attribute.
    DirectoryEntry, 56 {
        /// Its key, which contains the hash of the name.
        key: Key = 24,
        /// Inode that the name refers to. In the journal, 0 means that the name was removed.
        inode: u64 = 40,
        /// [`EntryKind`].
        kind: u8 = 49,
        /// Length of the name without its terminating zero.
        name_bytes: u16 = 50,
        /// Distinguishes encrypted names with equal hashes.
        cookie: u32 = 52,
    }
    then {
        /// The name.
        name: Vec<u8>,
    }
}

node_layout! {
    /// A data node: one block of a file.
    Data, 48 {
        /// Its key, which contains the block number.
        key: Key = 24,
        /// Length of the block before compression.
        size_bytes: u32 = 40,
        /// [`Compression`].
        compression: u16 = 44,
        /// Length before padding to the cipher's block size; 0 if not encrypted.
        compressed_bytes: u16 = 46,
    }
    then {
        /// Stored bytes, compressed and encrypted as the fields say.
        stored: Vec<u8>,
    }
}

node_layout! {
    /// A truncation of a file.
    Truncation, 56 {
        /// Inode number of the file.
        inode: u32 = 24,
        /// Size before.
        old_bytes: u64 = 40,
        /// Size after.
        new_bytes: u64 = 48,
    }
}

/// Compression of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Uncompressed.
    None,
    /// LZO1X.
    Lzo,
    /// Raw deflate, without zlib's header.
    Zlib,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// Decodes the number on the medium.
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

    /// The name used in mount options.
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
    /// Decodes the number on the medium.
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

    /// The type bits of `st_mode`.
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

    /// The type in an inode's mode.
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

/// The `bytes` bytes behind the fixed part.
fn tail(raw: &[u8], fixed: usize, bytes: usize) -> Option<Vec<u8>> {
    raw.get(fixed..)?.get(..bytes).map(<[u8]>::to_vec)
}

impl Inode {
    /// Decodes a node that passed [`super::check`]; `raw` is exactly one node.
    pub fn decode(raw: &[u8]) -> Result<Self, NodeDefect> {
        let short = field(NodeKind::Inode, "it is too short");
        let mut inode = Self::fields_of(raw, Vec::new()).ok_or(short)?;
        // The inode node of a deletion states the former data length, but holds no data.
        if inode.links == 0 && raw.len() == Self::BYTES {
            return Ok(inode);
        }
        let bytes = usize::try_from(inode.data_bytes).unwrap_or(usize::MAX);
        inode.data =
            tail(raw, Self::BYTES, bytes).ok_or(field(NodeKind::Inode, "its data leave the node"))?;
        Ok(inode)
    }

    /// Encodes the node with its header.
    #[must_use]
    pub fn encode(&self, sequence: u64, group: Group) -> Vec<u8> {
        let mut raw = self.put_fields();
        raw.extend_from_slice(&self.data);
        seal(&mut raw, NodeKind::Inode, group, sequence);
        raw
    }

    /// An inode with all fields zero except its key.
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

    /// The file type.
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
    /// Decodes a node that passed [`super::check`]; `raw` is exactly one node, `node` its kind.
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

    /// Encodes the node with its header.
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
    /// Decodes a node that passed [`super::check`]; `raw` is exactly one node.
    pub fn decode(raw: &[u8]) -> Result<Self, NodeDefect> {
        let (data, stored) = Self::split(raw)?;
        Ok(Self {
            stored: stored.to_vec(),
            ..data
        })
    }

    /// Decodes without a copy: returns the fields, with `stored` left empty, and the stored bytes.
    pub fn split(raw: &[u8]) -> Result<(Self, &[u8]), NodeDefect> {
        let data = Self::fields_of(raw, Vec::new()).ok_or(field(NodeKind::Data, "it is too short"))?;
        if data.size_bytes == 0 || data.size_bytes > BLOCK_BYTES {
            return Err(field(NodeKind::Data, "its block has no byte or more than 4096"));
        }
        Ok((data, raw.get(Self::BYTES..).unwrap_or_default()))
    }

    /// Encodes the node with its header.
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
    /// A no-op truncation (inode 0), used to fill a write unit that must contain a node.
    pub const OF_NOTHING: Self = Self {
        inode: 0,
        old_bytes: 4096,
        new_bytes: 0,
    };

    /// Whether this is the no-op truncation.
    #[must_use]
    pub const fn is_of_nothing(&self) -> bool {
        self.inode == 0
    }

    /// Decodes a node that passed [`super::check`].
    pub fn decode(raw: &[u8]) -> Result<Self, NodeDefect> {
        let node = Self::fields_of(raw).ok_or(field(NodeKind::Truncation, "it is too short"))?;
        if node.new_bytes > node.old_bytes {
            return Err(field(NodeKind::Truncation, "it makes a file longer"));
        }
        Ok(node)
    }

    /// Encodes the node with its header.
    #[must_use]
    pub fn encode(&self, sequence: u64, group: Group) -> Vec<u8> {
        let mut raw = self.put_fields();
        seal(&mut raw, NodeKind::Truncation, group, sequence);
        raw
    }
}
