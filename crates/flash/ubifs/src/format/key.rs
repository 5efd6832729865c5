//! Keys of the index, and the hashes of names.
//!
//! A key is two words: the inode number, and three bits of kind above 29 bits that say which one of that kind: the number of
//! a block, or the hash of a name. Keys are ordered by inode number, then by the second word. On the medium a key takes 8
//! bytes in branches of the index and 16 in nodes, where the rest is zero.

use std::fmt;

use super::layout::Field;

/// The number of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeNumber(pub u32);

impl fmt::Display for InodeNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "inode {}", self.0)
    }
}

/// Kind of node that a key leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// The inode.
    Inode,
    /// A block of it.
    Data,
    /// An entry of the directory.
    Entry,
    /// A name of an extended attribute.
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

/// A key.
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
    /// Largest number of a block, largest hash.
    pub const LOW_MAX: u32 = LOW_MASK;

    /// From the first bytes of the key in a node.
    pub(crate) fn from_bytes(raw: &[u8]) -> Option<Self> {
        Self::load(raw.get(..Self::BRANCH_BYTES)?)
    }

    const fn new(inode: InodeNumber, kind: KeyKind, low: u32) -> Self {
        Self {
            inode: inode.0,
            word: kind.number() << LOW_BITS | low & LOW_MASK,
        }
    }

    /// Of an inode.
    #[must_use]
    pub const fn inode(inode: InodeNumber) -> Self {
        Self::new(inode, KeyKind::Inode, 0)
    }

    /// Of a block of 4096 bytes.
    #[must_use]
    pub const fn data(inode: InodeNumber, block: u32) -> Self {
        Self::new(inode, KeyKind::Data, block)
    }

    /// Of all names with that hash in a directory.
    #[must_use]
    pub const fn entry(directory: InodeNumber, hash: u32) -> Self {
        Self::new(directory, KeyKind::Entry, hash)
    }

    /// Of all extended attributes with names of that hash.
    #[must_use]
    pub const fn xattr(inode: InodeNumber, hash: u32) -> Self {
        Self::new(inode, KeyKind::XattrEntry, hash)
    }

    /// The first of a kind.
    #[must_use]
    pub const fn first(inode: InodeNumber, kind: KeyKind) -> Self {
        Self::new(inode, kind, 0)
    }

    /// The last of a kind.
    #[must_use]
    pub const fn last(inode: InodeNumber, kind: KeyKind) -> Self {
        Self::new(inode, kind, LOW_MASK)
    }

    /// Whose.
    #[must_use]
    pub const fn inode_number(self) -> InodeNumber {
        InodeNumber(self.inode)
    }

    /// Of which kind; `None` for numbers that no key in the index has.
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

    /// The block or the hash.
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

/// The hash of names of the default kind. Bytes count as signed.
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

/// The hash of names of the test kind: the first four bytes.
#[must_use]
pub fn name_hash_test(name: &[u8]) -> u32 {
    let mut word = [0; 4];
    for (to, from) in word.iter_mut().zip(name) {
        *to = *from;
    }
    above_reserved(u32::from_le_bytes(word))
}

/// Hashes 0 to 2 are kept for `.`, `..` and the end of a directory.
const fn above_reserved(sum: u32) -> u32 {
    match sum & LOW_MASK {
        hash @ 0..=2 => hash + 3,
        hash => hash,
    }
}
