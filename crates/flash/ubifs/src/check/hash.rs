//! Hashes of nodes on authenticated file systems. Verifying them needs no key: only the master node is authenticated
//! with one.

use sha2::{Digest, Sha256, Sha512};

/// A hash algorithm, by the number in the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeHash {
    Sha256,
    Sha512,
}

impl NodeHash {
    /// `None` for unsupported algorithms.
    pub(super) fn from_number(number: u16) -> Option<Self> {
        match number {
            4 => Some(Self::Sha256),
            6 => Some(Self::Sha512),
            _ => None,
        }
    }

    /// Length of a hash, bytes.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Whether `hash` is the hash of `raw`.
    pub(super) fn matches(self, raw: &[u8], hash: &[u8]) -> bool {
        let mut hasher = Hasher::new(self);
        hasher.update(raw);
        hasher.finish() == hash
    }
}

/// A hash over several pieces.
#[derive(Clone)]
pub(super) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    pub(super) fn new(hash: NodeHash) -> Self {
        match hash {
            NodeHash::Sha256 => Self::Sha256(Sha256::new()),
            NodeHash::Sha512 => Self::Sha512(Sha512::new()),
        }
    }

    pub(super) fn update(&mut self, raw: &[u8]) {
        match self {
            Self::Sha256(state) => state.update(raw),
            Self::Sha512(state) => state.update(raw),
        }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        match self {
            Self::Sha256(state) => state.finalize().to_vec(),
            Self::Sha512(state) => state.finalize().to_vec(),
        }
    }
}
