//! The context of an encrypted inode, and the reasons why an inode can't be decrypted.
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

/// Flag bits for the padding of names.
const PADDING_MASK: u8 = 0x03;

/// Reference to a master key in a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MasterName {
    /// 8 arbitrary bytes chosen by the creator of the policy (version 1).
    Descriptor([u8; 8]),
    /// 16 bytes derived from the key (version 2).
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

/// Why something encrypted is unreadable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Locked {
    /// None of the given keys matches.
    #[error("it is encrypted, and none of the keys given is that of {master}")]
    NoKey {
        /// The key needed.
        master: MasterName,
    },
    /// The context is unreadable.
    #[error("it is encrypted, and its context (extended attribute \"c\") can't be read")]
    NoContext,
    /// The context is invalid.
    #[error("its encryption context {why}")]
    Context {
        /// Description of the fault.
        why: &'static str,
    },
    /// An unsupported cipher.
    #[error("it is encrypted with fscrypt's mode {mode}, known here are 1, 4, 5 and 6 (AES)")]
    Mode {
        /// Mode number.
        mode: u8,
    },
    /// The key is too short for the cipher.
    #[error("its cipher takes a master key of {needed} bytes, the one given has {found}")]
    ShortKey {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        found: usize,
    },
    /// The decrypted data is implausible.
    #[error("it is encrypted with another key than the one given")]
    WrongKey,
}

/// Encryption parameters of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Context {
    /// Mode number for contents.
    pub(super) contents: u8,
    /// Mode number for names and symbolic links.
    pub(super) names: u8,
    /// Names are padded to a multiple of this, bytes.
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
