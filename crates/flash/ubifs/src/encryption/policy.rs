//! The context of an encrypted inode, and why an inode stays closed.
//!
//! | bytes, version 1 | bytes, version 2 | field                                               |
//! |------------------|------------------|-----------------------------------------------------|
//! | 0                | 0                | version                                             |
//! | 1                | 1                | cipher of contents                                  |
//! | 2                | 2                | cipher of names                                     |
//! | 3                | 3                | flags: bits 0 and 1, names are padded to 4, 8, 16, 32 bytes |
//! | 4..12            | 8..24            | descriptor or identifier of the master key          |
//! | 12..28           | 24..40           | nonce                                               |

use std::fmt;

use thiserror::Error;

/// Bits of the flags that say what names are padded to.
const PADDING_MASK: u8 = 0x03;

/// By what a context names its master key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MasterName {
    /// Any 8 bytes that whoever made the policy chose (version 1).
    Descriptor([u8; 8]),
    /// 16 bytes that follow from the key (version 2).
    Identifier([u8; 16]),
}

impl fmt::Display for MasterName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, bytes) = match self {
            Self::Descriptor(bytes) => ("descriptor", bytes.as_slice()),
            Self::Identifier(bytes) => ("identifier", bytes.as_slice()),
        };
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        write!(formatter, "{what} {hex}")
    }
}

/// Why something encrypted can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Locked {
    /// None of the keys is the one.
    #[error("it is encrypted, and none of the keys given is that of {master}")]
    NoKey {
        /// The key that is needed.
        master: MasterName,
    },
    /// What says how it is encrypted is lost.
    #[error("it is encrypted, and its context (extended attribute \"c\") can't be read")]
    NoContext,
    /// What says how it is encrypted makes no sense.
    #[error("its encryption context {why}")]
    Context {
        /// What is wrong with it.
        why: &'static str,
    },
    /// A cipher that is not known here.
    #[error("it is encrypted with fscrypt's mode {mode}, known here are 1, 4, 5 and 6 (AES)")]
    Mode {
        /// Its number.
        mode: u8,
    },
    /// The key does not suffice for the cipher.
    #[error("its cipher takes a master key of {needed} bytes, the one given has {found}")]
    ShortKey {
        /// Bytes that the cipher takes.
        needed: usize,
        /// Bytes of the key.
        found: usize,
    },
    /// What comes out is nothing that went in.
    #[error("it is encrypted with another key than the one given")]
    WrongKey,
}

/// How an inode is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Context {
    /// Cipher of contents.
    pub(super) contents: u8,
    /// Cipher of names and symbolic links.
    pub(super) names: u8,
    /// Names are padded to a multiple of it, bytes.
    pub(super) padding: usize,
    pub(super) master: MasterName,
    pub(super) nonce: [u8; 16],
}

impl Context {
    pub(super) fn decode(raw: &[u8]) -> Result<Self, Locked> {
        let wrong = |why| Locked::Context { why };
        let [version, contents, names, flags, ..] = *raw else {
            return Err(wrong("is shorter than four bytes"));
        };
        let (master, nonce, bytes) = match version {
            1 => (field(raw, 4).map(MasterName::Descriptor), field(raw, 12), 28),
            2 => (field(raw, 8).map(MasterName::Identifier), field(raw, 24), 40),
            _ => return Err(wrong("is of another version than 1 and 2")),
        };
        let (Some(master), Some(nonce), true) = (master, nonce, raw.len() == bytes) else {
            return Err(wrong("has another length than its version says"));
        };
        if flags & !PADDING_MASK != 0 {
            return Err(wrong(
                "says that files have no keys of their own, which UBIFS does not do",
            ));
        }
        Ok(Self {
            contents,
            names,
            padding: 4 << (flags & PADDING_MASK),
            master,
            nonce,
        })
    }

    pub(super) const fn is_version_1(&self) -> bool {
        matches!(self.master, MasterName::Descriptor(_))
    }
}

fn field<const N: usize>(raw: &[u8], at: usize) -> Option<[u8; N]> {
    raw.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_of_both_versions_are_told_apart_and_others_refused() {
        let mut raw = [0; 40];
        raw[..4].copy_from_slice(&[1, 1, 4, 2]);
        raw[4] = 0xAB;
        raw[12] = 0xCD;
        let one = Context::decode(&raw[..28]).unwrap();
        assert_eq!((one.padding, one.nonce[0], one.is_version_1()), (16, 0xCD, true));
        assert_eq!(one.master.to_string(), "descriptor ab00000000000000");
        Context::decode(&raw).unwrap_err();
        raw[0] = 2;
        raw[24] = 0xEF;
        let two = Context::decode(&raw).unwrap();
        assert_eq!((two.nonce[0], two.is_version_1()), (0xEF, false));
        for (at, value) in [(0, 3), (3, 4)] {
            let mut other = raw;
            other[at] = value;
            Context::decode(&other).unwrap_err();
        }
        Context::decode(&raw[..3]).unwrap_err();
    }
}
