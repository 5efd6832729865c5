//! Codecs of all nodes on the medium. Spec, including the relations between nodes and the LPT, which is not made of
//! nodes: `docs/formats/ubifs.md`.
//!
//! # Areas
//!
//! | LEBs                                 | content                                               | nodes                          |
//! |--------------------------------------|-------------------------------------------------------|--------------------------------|
//! | [`SUPERBLOCK_LEB`]                   | fixed parameters                                      | [`Superblock`], a signature    |
//! | [`MASTER_LEB`] and the next          | locations as of the last commit, two copies           | [`Master`]                     |
//! | from [`LOG_LEB`] on                  | the log: LEBs of the journal (buds)                   | [`CommitStart`], [`LogReference`] |
//! | behind the log                       | LPT: free and dirty space of each LEB                 | none                           |
//! | behind the LPT                       | orphans: unlinked inodes that were open               | [`Orphans`]                    |
//! | the rest (main area)                 | journal, files, index                                 | all below                      |
//!
//! # Nodes
//!
//! Offsets within the node, header included. The types' own tables list each field; the codecs are generated from
//! them.
//!
//! | kind | node                      | bytes    | offset and field                                                                  |
//! |------|---------------------------|----------|-----------------------------------------------------------------------------------|
//! | 0    | [`Inode`]                 | 160..    | 24 key, 40 creation, 48 size, 56 times, 92 links, 96 owner, 104 mode, 108 flags, 112 data length, 116 sums of extended attributes, 132 compressor, 160 data |
//! | 1    | [`Data`]                  | 48..     | 24 key, 40 size of the block, 44 [`Compression`], 46 length before encryption, 48 stored bytes |
//! | 2, 3 | [`DirectoryEntry`]        | 57..     | 24 key, 40 inode, 49 [`EntryKind`], 50 length of the name, 52 cookie, 56 name and a zero |
//! | 4    | [`Truncation`]            | 56       | 24 inode, 40 size before, 48 size after                                           |
//! | 5    | padding ([`pad`])         | 28       | 24 bytes of padding that follow                                                   |
//! | 6    | [`Superblock`]            | 4096     | 26 keys, 28 [`SuperblockFlags`], 32 geometry, 48 areas, 80 version, 84 compressor, 88 reserve, 108 UUID, 128 keyed hashes, 256 hashes |
//! | 7    | [`Master`]                | 512      | 24 highest inode, 32 commit, 40 flags, 44 log, 48 root of the index, 60 heads, 72 sums of space, 120 LPT, 156 LEBs, 168 hashes |
//! | 8    | [`LogReference`]          | 64       | 24 LEB, 28 offset, 32 journal head                                                |
//! | 9    | [`IndexNode`]             | 28..     | 24 number of branches, 26 level, 28 branches: LEB, offset, length, [`Key`], hash  |
//! | 10   | [`CommitStart`]           | 32       | 24 number of the commit                                                           |
//! | 11   | [`Orphans`]               | 32..     | 24 number of the commit, 32 inodes of 8 bytes each                                |
//! | 12   | authentication            | 24..     | 24 keyed hash over the nodes of the head before it                                |
//! | 13   | signature                 | 64..     | 24 type, 28 length, 64 PKCS #7 signature of the superblock                        |
//!
//! # The header
//!
//! All numbers are little endian. A medium is a sequence of *nodes*, each with the header of this module, each at a multiple of
//! 8 bytes in its LEB:
//!
//! | bytes  | field    | meaning                                                             |
//! |--------|----------|---------------------------------------------------------------------|
//! | 0..4   | magic    | [`MAGIC`]                                                           |
//! | 4..8   | CRC-32   | of bytes 8 to the node's end; seed all ones, no final inversion     |
//! | 8..16  | sequence | increases with each node written                                    |
//! | 16..20 | length   | of the node with its header, without padding to the next node       |
//! | 20     | kind     | [`NodeKind`]                                                        |
//! | 21     | group    | [`Group`]                                                           |
//! | 22..24 |          | zero                                                                |
//!
//! [`check`] tests in this order: erased, magic, length and kind (as far as they decide which bytes the CRC covers),
//! CRC. The fields of a node are decoded only after that; callers check the values (locations, sizes).

mod areas;
mod files;
mod key;
mod layout;
mod padding;

pub use areas::{
    COMMIT_LAST_FLAG, CommitStart, IndexBranch, IndexNode, LogReference, MASTER_DIRTY, MASTER_NO_ORPHANS,
    MASTER_RECOVERED, Master, Orphans, Superblock, SuperblockFlags,
};
pub use files::{
    Compression, Data, DirectoryEntry, EntryKind, INODE_APPEND, INODE_COMPRESS, INODE_DIRSYNC,
    INODE_ENCRYPTED, INODE_IMMUTABLE, INODE_SYNC, INODE_XATTR, Inode, Truncation,
};
pub use key::{InodeNumber, Key, KeyKind, name_hash_r5, name_hash_test};
pub use padding::{fills_unit, pad, pad_unit};

use thiserror::Error;

/// Magic number: the first four bytes of each node.
pub const MAGIC: u32 = 0x0610_1831;
/// Size of the header of each node.
pub const HEADER_BYTES: usize = 24;
/// File bytes per data node.
pub const BLOCK_BYTES: u32 = 4096;
/// Maximum length of a name.
pub const NAME_BYTES_MAX: u32 = 255;
/// Maximum size of the data in an inode node: a symbolic link's target, an extended attribute's value.
pub const INODE_DATA_BYTES_MAX: u32 = 4096;
/// Padding byte, for the end of a write unit where a padding node does not fit.
pub const PADDING_BYTE: u8 = 0xCE;
/// Inode number of the root directory.
pub const ROOT_INODE: InodeNumber = InodeNumber(1);
/// LEB of the superblock.
pub const SUPERBLOCK_LEB: u32 = 0;
/// First of the two LEBs of the master node.
pub const MASTER_LEB: u32 = 1;
/// First LEB of the log.
pub const LOG_LEB: u32 = 3;
/// Exclusive upper bound of sequence numbers.
pub const SEQUENCE_END: u64 = 0xFFFF_FFFF_FF00_0000;

/// Type of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// An inode.
    Inode,
    /// A block of a file.
    Data,
    /// An entry of a directory.
    Entry,
    /// The name of an extended attribute.
    XattrEntry,
    /// A truncation of a file; in the journal only.
    Truncation,
    /// Padding up to the end of a write unit.
    Padding,
    /// The superblock.
    Superblock,
    /// The master node: all locations as of the last commit.
    Master,
    /// A log entry that names a bud (a LEB of the journal).
    Reference,
    /// An index node.
    Index,
    /// The start of a commit.
    CommitStart,
    /// Orphans: unlinked inodes that were open.
    Orphans,
    /// A hash over journal nodes, on authenticated file systems.
    Authentication,
    /// A signature of the superblock.
    Signature,
}

impl NodeKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 14] = [
        Self::Inode,
        Self::Data,
        Self::Entry,
        Self::XattrEntry,
        Self::Truncation,
        Self::Padding,
        Self::Superblock,
        Self::Master,
        Self::Reference,
        Self::Index,
        Self::CommitStart,
        Self::Orphans,
        Self::Authentication,
        Self::Signature,
    ];

    /// Decodes the number on the medium.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The number on the medium.
    #[must_use]
    pub fn number(self) -> u8 {
        let place = Self::ALL.iter().position(|kind| *kind == self);
        place
            .and_then(|place| u8::try_from(place).ok())
            .expect("all kinds are listed, and are few")
    }

    /// The name used in error messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inode => "inode node",
            Self::Data => "data node",
            Self::Entry => "directory entry",
            Self::XattrEntry => "extended attribute entry",
            Self::Truncation => "truncation node",
            Self::Padding => "padding node",
            Self::Superblock => "superblock",
            Self::Master => "master node",
            Self::Reference => "reference node",
            Self::Index => "index node",
            Self::CommitStart => "commit start node",
            Self::Orphans => "orphan node",
            Self::Authentication => "authentication node",
            Self::Signature => "signature node",
        }
    }

    /// Minimum and maximum length in bytes. Index, orphan and signature nodes are limited only by the LEB.
    #[must_use]
    pub const fn length_range(self) -> (u32, u32) {
        match self {
            Self::Inode => (160, 160 + INODE_DATA_BYTES_MAX),
            // Incompressible blocks are stored uncompressed, but the format allows for twice the size.
            Self::Data => (48, 48 + 2 * BLOCK_BYTES),
            Self::Entry | Self::XattrEntry => (57, 57 + NAME_BYTES_MAX),
            Self::Truncation => (56, 56),
            Self::Padding => (28, 28),
            Self::Superblock => (4096, 4096),
            Self::Master => (512, 512),
            Self::Reference => (64, 64),
            Self::Index => (28, u32::MAX),
            Self::CommitStart => (32, 32),
            Self::Orphans => (32, u32::MAX),
            Self::Authentication => (24, 24 + 64),
            Self::Signature => (64, u32::MAX),
        }
    }
}

/// Position of a node in an atomic group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Not part of a group.
    None,
    /// Not the last one.
    Inside,
    /// The last one: the group is complete.
    Last,
}

impl Group {
    /// The number on the medium.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Inside => 1,
            Self::Last => 2,
        }
    }

    const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Inside),
            2 => Some(Self::Last),
            _ => None,
        }
    }
}

/// The header of a node whose CRC is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Increases with each node written.
    pub sequence: u64,
    /// Bytes of the node, header included.
    pub bytes: u32,
    /// Node type.
    pub kind: NodeKind,
    /// Position in an atomic group.
    pub group: Group,
}

impl Header {
    /// Distance to the next node: the length rounded up to 8 bytes.
    #[must_use]
    pub const fn aligned_bytes(&self) -> u32 {
        self.bytes.next_multiple_of(8)
    }
}

/// Why bytes are not a valid node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NodeDefect {
    /// The bytes are erased.
    #[error("nothing is written here")]
    Erased,
    /// The LEB or the buffer ends within the header.
    #[error("only {room} bytes are left, a node needs 24 at least")]
    NoRoom {
        /// Bytes available.
        room: usize,
    },
    /// The magic number is wrong.
    #[error("magic is {found:#010x}, a node has 0x06101831")]
    Magic {
        /// The first four bytes.
        found: u32,
    },
    /// The kind or group number does not exist.
    #[error("kind {kind} or group {group} does not exist")]
    Kind {
        /// Number of the kind.
        kind: u8,
        /// Number of the group.
        group: u8,
    },
    /// The length is impossible for the kind or exceeds the space available.
    #[error("{} of {found} bytes; {smallest} to {largest} are possible here", kind.name())]
    Length {
        /// Kind in the header.
        kind: NodeKind,
        /// Length in the header.
        found: u32,
        /// Minimum for this kind.
        smallest: u32,
        /// Maximum that fits.
        largest: u32,
    },
    /// The CRC does not match.
    #[error("{} of {bytes} bytes: CRC is {found:#010x}, its header says {stored:#010x}", kind.name())]
    Crc {
        /// Kind in the header.
        kind: NodeKind,
        /// Length in the header.
        bytes: u32,
        /// CRC in the header.
        stored: u32,
        /// CRC of the bytes.
        found: u32,
    },
    /// A valid node, but of another kind or length than expected.
    #[error("a {} of {bytes} bytes is here, expected is a {} of {expected_bytes}", found.name(), expected.name())]
    Unexpected {
        /// Kind found.
        found: NodeKind,
        /// Length found.
        bytes: u32,
        /// Kind expected.
        expected: NodeKind,
        /// Length expected.
        expected_bytes: u32,
    },
    /// The CRC is right, but a field has an impossible value.
    #[error("{}: {why}", kind.name())]
    Field {
        /// Node type.
        kind: NodeKind,
        /// Description of the fault.
        why: &'static str,
    },
}

/// CRC-32 of UBI and UBIFS: seed all ones, no final inversion.
#[must_use]
pub fn crc(bytes: &[u8]) -> u32 {
    !crc32fast::hash(bytes)
}

/// Checks the node at the start of `raw`. `raw` may extend past the node, at most to the end of its LEB.
pub fn check(raw: &[u8]) -> Result<Header, NodeDefect> {
    let room = NodeDefect::NoRoom { room: raw.len() };
    let word = |at| layout::get::<u32>(raw, at).ok_or(room);
    let magic = word(0)?;
    if magic == u32::MAX {
        return Err(NodeDefect::Erased);
    }
    if magic != MAGIC {
        return Err(NodeDefect::Magic { found: magic });
    }
    let (stored, bytes) = (word(4)?, word(16)?);
    let sequence = layout::get::<u64>(raw, 8).ok_or(room)?;
    let numbers = raw.get(20..HEADER_BYTES).ok_or(room)?;
    let (kind_number, group_number) = (numbers[0], numbers[1]);
    let unknown = NodeDefect::Kind {
        kind: kind_number,
        group: group_number,
    };
    let kind = NodeKind::from_number(kind_number).ok_or(unknown)?;
    let group = Group::from_number(group_number).ok_or(unknown)?;
    let (smallest, longest) = kind.length_range();
    let largest = longest.min(u32::try_from(raw.len()).unwrap_or(u32::MAX));
    let covered = usize::try_from(bytes).ok().and_then(|end| raw.get(8..end));
    let Some(covered) = covered.filter(|_| (smallest..=largest).contains(&bytes)) else {
        return Err(NodeDefect::Length {
            kind,
            found: bytes,
            smallest,
            largest,
        });
    };
    let found = crc(covered);
    if found != stored {
        return Err(NodeDefect::Crc {
            kind,
            bytes,
            stored,
            found,
        });
    }
    Ok(Header {
        sequence,
        bytes,
        kind,
        group,
    })
}

/// Checks the node at the start of `raw`, including its kind and length.
pub fn check_expected(raw: &[u8], expected: NodeKind, expected_bytes: u32) -> Result<Header, NodeDefect> {
    let header = check(raw)?;
    if header.kind == expected && header.bytes == expected_bytes {
        return Ok(header);
    }
    Err(NodeDefect::Unexpected {
        found: header.kind,
        bytes: header.bytes,
        expected,
        expected_bytes,
    })
}

/// Fills in the header of `node`, which is exactly one node.
///
/// # Panics
///
/// When `node` is shorter than a header.
pub fn seal(node: &mut [u8], kind: NodeKind, group: Group, sequence: u64) {
    assert!(node.len() >= HEADER_BYTES, "{} bytes are no node", node.len());
    let bytes = u32::try_from(node.len()).expect("a node is shorter than a LEB");
    node[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    node[8..16].copy_from_slice(&sequence.to_le_bytes());
    node[16..20].copy_from_slice(&bytes.to_le_bytes());
    node[20..HEADER_BYTES].copy_from_slice(&[kind.number(), group.number(), 0, 0]);
    let crc = crc(&node[8..]);
    node[4..8].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
mod tests;
