//! Keys of the index, and the hashes of names.
//!
//! A key is two 32-bit words. The first is the inode number; the second holds the key type in its upper 3 bits and
//! the block number or name hash in the lower 29. Keys are ordered by inode number, then by the second word. A key
//! takes 8 bytes in a branch of the index and 16 bytes in other nodes, where the rest is zero.

use std::fmt;

use super::layout::Field;

/// An inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeNumber(pub u32);

impl fmt::Display for InodeNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "inode {}", self.0)
    }
}

/// Key type: the kind of node that a key refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// The inode.
    Inode,
    /// A data block of the inode.
    Data,
    /// A directory entry.
    Entry,
    /// The name of an extended attribute.
    XattrEntry,
}

impl KeyKind {
    const fn number(self) -> u32 {
        match self {
            Self::Inode => 0,
            Self::Data => 1,
            Self::Entry => 2,
            Self::XattrEntry => 3,
        }
    }
}

/// A key of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    inode: u32,
    word: u32,
}

const LOW_BITS: u32 = 29;
const LOW_MASK: u32 = (1 << LOW_BITS) - 1;

impl Key {
    /// Bytes in a branch of the index.
    pub const BRANCH_BYTES: usize = 8;
    /// Largest block number, and largest hash.
    pub const LOW_MAX: u32 = LOW_MASK;

    /// Decodes the first bytes of the key in a node.
    pub(crate) fn from_bytes(raw: &[u8]) -> Option<Self> {
        Self::load(raw.get(..Self::BRANCH_BYTES)?)
    }

    /// The key as a number with the same order.
    pub(crate) fn order(self) -> u64 {
        u64::from(self.inode) << 32 | u64::from(self.word)
    }

    const fn new(inode: InodeNumber, kind: KeyKind, low: u32) -> Self {
        Self {
            inode: inode.0,
            word: kind.number() << LOW_BITS | low & LOW_MASK,
        }
    }

    /// Key of an inode.
    #[must_use]
    pub const fn inode(inode: InodeNumber) -> Self {
        Self::new(inode, KeyKind::Inode, 0)
    }

    /// Key of a block of 4096 bytes.
    #[must_use]
    pub const fn data(inode: InodeNumber, block: u32) -> Self {
        Self::new(inode, KeyKind::Data, block)
    }

    /// Key of all names with this hash in a directory.
    #[must_use]
    pub const fn entry(directory: InodeNumber, hash: u32) -> Self {
        Self::new(directory, KeyKind::Entry, hash)
    }

    /// Key of all extended attributes whose names have this hash.
    #[must_use]
    pub const fn xattr(inode: InodeNumber, hash: u32) -> Self {
        Self::new(inode, KeyKind::XattrEntry, hash)
    }

    /// The smallest key of a type.
    #[must_use]
    pub const fn first(inode: InodeNumber, kind: KeyKind) -> Self {
        Self::new(inode, kind, 0)
    }

    /// The largest key of a type.
    #[must_use]
    pub const fn last(inode: InodeNumber, kind: KeyKind) -> Self {
        Self::new(inode, kind, LOW_MASK)
    }

    /// The inode number.
    #[must_use]
    pub const fn inode_number(self) -> InodeNumber {
        InodeNumber(self.inode)
    }

    /// The key type; `None` for values that never occur in the index.
    #[must_use]
    pub const fn kind(self) -> Option<KeyKind> {
        match self.word >> LOW_BITS {
            0 => Some(KeyKind::Inode),
            1 => Some(KeyKind::Data),
            2 => Some(KeyKind::Entry),
            3 => Some(KeyKind::XattrEntry),
            _ => None,
        }
    }

    /// The block number or the hash.
    #[must_use]
    pub const fn low(self) -> u32 {
        self.word & LOW_MASK
    }
}

impl Field for Key {
    const BYTES: usize = Self::BRANCH_BYTES;
    fn load(raw: &[u8]) -> Option<Self> {
        let (inode, word) = raw.split_at_checked(4)?;
        Some(Self {
            inode: u32::load(inode)?,
            word: u32::load(word)?,
        })
    }
    fn store(&self, raw: &mut [u8]) {
        self.inode.store(&mut raw[..4]);
        self.word.store(&mut raw[4..]);
    }
}

/// The r5 hash of a name, the default. Bytes are taken as signed.
#[must_use]
pub fn name_hash_r5(name: &[u8]) -> u32 {
    let sum = name.iter().fold(0_u32, |sum, byte| {
        let signed = i32::from(byte.cast_signed());
        sum.wrapping_add((signed << 4).cast_unsigned())
            .wrapping_add((signed >> 4).cast_unsigned())
            .wrapping_mul(11)
    });
    above_reserved(sum)
}

/// The test hash of a name: its first four bytes.
#[must_use]
pub fn name_hash_test(name: &[u8]) -> u32 {
    let mut word = [0; 4];
    for (to, from) in word.iter_mut().zip(name) {
        *to = *from;
    }
    above_reserved(u32::from_le_bytes(word))
}

/// Maps hashes 0 to 2, which are reserved for `.`, `..` and the end of a directory, to 3 to 5.
const fn above_reserved(sum: u32) -> u32 {
    match sum & LOW_MASK {
        hash @ 0..=2 => hash + 3,
        hash => hash,
    }
}
