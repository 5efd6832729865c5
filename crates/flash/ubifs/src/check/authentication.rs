//! Keyed hashes (HMACs) of authenticated file systems, given the key: of superblock and master node, and of journal
//! nodes. Hashes that chain from the master node need no key and are verified where the nodes are read
//! ([`super::hash`]).

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Sha256, Sha512};

use super::Checker;
use super::fault::{Area, At, Fault};
use super::hash::{Hasher, NodeHash};
use super::medium::{InLeb, to_usize};
use crate::format::{HEADER_BYTES, LogReference, Master, NodeKind, SUPERBLOCK_LEB, Superblock};

/// Text whose HMAC is stored in the superblock, to recognize the right key.
const KNOWN_TEXT: &[u8] = b"UBIFS";
/// Start of the bytes covered by an HMAC: excludes magic and CRC.
const COVERED_FROM: usize = 8;
/// Offset of the HMAC in the superblock.
const SUPERBLOCK_HMAC: usize = 128;
/// Offset of the HMAC in the master node.
const MASTER_HMAC: usize = 296;

/// A key with the hash algorithm of the file system.
#[derive(Clone)]
pub(super) struct Authenticator {
    hash: NodeHash,
    key: Vec<u8>,
}

impl Authenticator {
    pub(super) fn new(hash: NodeHash, key: &[u8]) -> Self {
        Self {
            hash,
            key: key.to_vec(),
        }
    }

    fn keyed(&self, pieces: &[&[u8]]) -> Vec<u8> {
        match self.hash {
            NodeHash::Sha256 => keyed::<Hmac<Sha256>>(&self.key, pieces),
            NodeHash::Sha512 => keyed::<Hmac<Sha512>>(&self.key, pieces),
        }
    }

    /// Whether a node matches the HMAC stored in it at offset `at`.
    fn vouches_for(&self, node: &[u8], at: usize) -> bool {
        let end = at + self.hash.bytes();
        let (Some(before), Some(found), Some(behind)) =
            (node.get(COVERED_FROM..at), node.get(at..end), node.get(end..))
        else {
            return false;
        };
        self.keyed(&[before, behind]) == found
    }
}

fn keyed<M: Mac + KeyInit>(key: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
    let mut state = <M as KeyInit>::new_from_slice(key).expect("keys of all lengths are possible");
    for piece in pieces {
        state.update(piece);
    }
    state.finalize().into_bytes().to_vec()
}

const fn changed() -> Fault {
    Fault::Contradiction("its keyed hash does not fit: it was changed by who does not have the key")
}

/// Verifies superblock and master node. A wrong key is reported, and then nothing is verified with it.
pub(super) fn superblock_and_master(checker: &mut Checker<'_>) {
    let (Some(hash), Some(master_at)) = (checker.hash, checker.master_at) else {
        return;
    };
    if is_zero(&checker.master.hmac) {
        first_master(checker, hash, master_at);
        checker.authenticator = None;
        return;
    }
    let Some(authenticator) = checker.authenticator.clone() else {
        checker
            .note("there is no key: keyed hashes are not verified, and with them nothing else is".to_owned());
        return;
    };
    let at = At {
        leb: SUPERBLOCK_LEB,
        offset: 0,
    };
    let known = &checker.superblock.hmac_of_known[..hash.bytes()];
    if authenticator.keyed(&[KNOWN_TEXT]) != known {
        let fault =
            Fault::Contradiction("the key is not that of the file system: keyed hashes are not verified");
        checker.tell(Area::Superblock, None, Some(at), fault);
        checker.authenticator = None;
        return;
    }
    let nodes = [
        (Area::Superblock, at, Superblock::BYTES, SUPERBLOCK_HMAC),
        (Area::Master, master_at, Master::BYTES, MASTER_HMAC),
    ];
    for (area, at, bytes, hmac_at) in nodes {
        let start = to_usize(at.offset);
        let leb = checker.medium.leb(at.leb).ok();
        let is_good = leb
            .and_then(|leb| leb.get(start..start + bytes))
            .is_some_and(|node| authenticator.vouches_for(node, hmac_at));
        if !is_good {
            checker.tell(area, None, Some(at), changed());
        }
    }
}

/// Checks a signed image that was never mounted read-write: the superblock holds the hash of the master node.
fn first_master(checker: &mut Checker<'_>, hash: NodeHash, at: At) {
    checker
        .note("the image was signed and never mounted for writing: the signature is not verified".to_owned());
    let expected = checker.superblock.master_hash[..hash.bytes()].to_vec();
    let start = to_usize(at.offset);
    let leb = checker.medium.leb(at.leb).ok();
    let is_good = leb
        .and_then(|leb| leb.get(start + HEADER_BYTES..start + Master::BYTES))
        .is_some_and(|body| hash.matches(body, &expected));
    if !is_good {
        let fault = Fault::Contradiction("its hash is not the one that the superblock holds: it was changed");
        checker.tell(Area::Master, None, Some(at), fault);
    }
}

fn is_zero(raw: &[u8]) -> bool {
    raw.iter().all(|byte| *byte == 0)
}

/// Running hash over the commit start and reference nodes of the log.
#[derive(Clone)]
pub(super) struct LogHash(Option<Hasher>);

impl LogHash {
    pub(super) fn new(checker: &Checker<'_>) -> Self {
        let is_wanted = checker.authenticator.is_some();
        Self(checker.hash.filter(|_| is_wanted).map(Hasher::new))
    }

    /// Adds a node of the log.
    pub(super) fn update(&mut self, node: &[u8]) {
        if let Some(hasher) = &mut self.0 {
            hasher.update(node);
        }
    }

    /// Verifies the authentication nodes of a bud. Only a torn end may leave nodes behind the last one.
    pub(super) fn verify(
        self,
        checker: &mut Checker<'_>,
        leb: &[u8],
        reference: &LogReference,
        nodes: &[InLeb],
        is_last: bool,
    ) {
        let (Some(mut hasher), Some(authenticator)) = (self.0, checker.authenticator.clone()) else {
            return;
        };
        let mut open = 0;
        for node in nodes {
            let raw = &leb[node.offset..node.offset + to_usize(node.header.bytes)];
            if node.header.kind != NodeKind::Authentication {
                hasher.update(raw);
                open += 1;
                continue;
            }
            open = 0;
            let expected = authenticator.keyed(&[&hasher.clone().finish()]);
            if !raw[HEADER_BYTES..].starts_with(&expected) {
                let at = At {
                    leb: reference.leb,
                    offset: super::medium::to_word(node.offset),
                };
                checker.tell(Area::Journal, None, Some(at), changed());
            }
        }
        let (leb, head) = (reference.leb, reference.head);
        match (open, is_last) {
            (0, _) => {}
            (_, true) => checker.note(format!(
                "journal, LEB {leb}: nothing vouches for the last {open} nodes of head {head}"
            )),
            (_, false) => {
                let at = At {
                    leb,
                    offset: reference.offset,
                };
                let fault = Fault::Contradiction("nothing vouches for its last nodes");
                checker.tell(Area::Journal, None, Some(at), fault);
            }
        }
    }
}
