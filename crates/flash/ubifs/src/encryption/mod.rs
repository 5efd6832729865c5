//! Encrypted files (fscrypt): finds the key of a file, and decrypts names, link targets and contents.
//!
//! Each encrypted inode has a context in its extended attribute `c` ([`policy`]): ciphers, master key, and a nonce.
//! The file key is derived from master key and nonce ([`keys`]) and decrypts the data ([`cipher`]). Attributes, sizes
//! and other extended attributes are never encrypted. Read-only: only names to look up are encrypted.
//!
//! Without a key, names are shown in the same encoding as by Linux, and reads report the missing key as a loss. Spec:
//! `docs/formats/ubifs.md`, "Encryption".

mod cipher;
mod keys;
mod names;
mod policy;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

pub use self::keys::MasterKey;
pub use self::policy::{Locked, MasterName};

pub(crate) use self::keys::FileKey;
use self::names::encoded;
use self::policy::Context;
use crate::file_system::{Entry, Ubifs, UbifsError};
use crate::finding::{Finding, Subject};
use crate::format::{INODE_ENCRYPTED, Inode, InodeNumber, Key, NodeKind, SuperblockFlags};

/// Name of the extended attribute with the context; internal to the file system.
pub(crate) const CONTEXT_NAME: &[u8] = b"c";
/// Capacity of the file key cache; when full, it is cleared.
const KNOWN_MAX: usize = 1024;

/// Master keys, and a cache of the file keys derived from them.
#[derive(Default)]
pub(crate) struct Keyring {
    keys: Vec<MasterKey>,
    known: Mutex<HashMap<InodeNumber, Arc<FileKey>>>,
}

impl Keyring {
    fn file_key(&self, context: &Context, inode: &Inode) -> Result<FileKey, Locked> {
        let no_key = Locked::NoKey {
            master: context.master,
        };
        let master = self.keys.iter().find(|key| key.fits(&context.master));
        // A version 1 key may have any descriptor: if there is only one key, try it.
        let only = || {
            self.keys
                .first()
                .filter(|_| context.is_version_1() && self.keys.len() == 1)
        };
        master
            .or_else(only)
            .ok_or(no_key)?
            .file_key(context, inode.kind())
    }
}

impl Ubifs {
    /// Adds the master keys for encrypted files.
    #[must_use]
    pub fn with_keys(mut self, keys: Vec<MasterKey>) -> Self {
        self.keyring = Keyring {
            keys,
            ..Keyring::default()
        };
        self
    }

    /// Whether the superblock says that there are encrypted files.
    #[must_use]
    pub fn has_encryption(&self) -> bool {
        SuperblockFlags(self.superblock.flags).has(SuperblockFlags::ENCRYPTION)
    }

    /// Checks that the content of an inode can be read with the given keys.
    pub fn check_key(&self, inode: &Inode) -> Result<(), UbifsError> {
        self.file_key(inode)
            .map(drop)
            .map_err(|locked| self.locked(inode, locked))
    }

    /// The key of a file; `None` if it is not encrypted.
    pub(crate) fn file_key(&self, inode: &Inode) -> Result<Option<Arc<FileKey>>, Locked> {
        if inode.flags & INODE_ENCRYPTED == 0 {
            return Ok(None);
        }
        let number = inode.key.inode_number();
        let known = || self.keyring.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = known().get(&number) {
            return Ok(Some(Arc::clone(key)));
        }
        let raw = self.xattr(number, CONTEXT_NAME).map_err(|_| Locked::NoContext)?;
        let key = Arc::new(self.keyring.file_key(&Context::decode(&raw)?, inode)?);
        let mut known = known();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(number, Arc::clone(&key));
        Ok(Some(key))
    }

    fn locked(&self, inode: &Inode, locked: Locked) -> UbifsError {
        let finding = Finding {
            inode: Some(inode.key.inode_number()),
            subject: Subject::Encrypted,
            place: self.index.root(),
            damage: locked.into(),
        };
        self.damaged(finding)
    }

    /// Decrypts the names of a directory, or encodes them if there is no key.
    pub(crate) fn decode_names(
        &self,
        directory: InodeNumber,
        entries: &mut [Entry],
        lost: &mut Vec<Finding>,
    ) {
        let Some(inode) = self.encrypted_directory(directory) else {
            return;
        };
        let key = self.file_key(&inode).ok().flatten();
        let mut wrong = false;
        for entry in entries {
            let plain = key.as_ref().map(|key| key.decrypt_name(&entry.name));
            wrong |= matches!(plain, Some(None));
            entry.name = plain
                .flatten()
                .unwrap_or_else(|| encoded(self.name_hash(&entry.name), entry.cookie, &entry.name));
        }
        if wrong {
            lost.push(Finding {
                inode: Some(directory),
                subject: Subject::Encrypted,
                place: self.index.root(),
                damage: Locked::WrongKey.into(),
            });
        }
    }

    /// Looks up a name in an encrypted directory; `None` if the directory is not encrypted.
    pub(crate) fn lookup_encrypted(
        &self,
        directory: InodeNumber,
        name: &[u8],
    ) -> Option<Result<Entry, UbifsError>> {
        let inode = self.encrypted_directory(directory)?;
        let no_name = || UbifsError::NoName {
            volume: self.volume.name(),
            inode: directory,
            name: name.to_vec(),
        };
        let stored = match self.file_key(&inode) {
            Ok(Some(key)) => key.encrypt_name(name),
            _ => None,
        };
        let shown = |entry: Entry| Entry {
            name: name.to_vec(),
            ..entry
        };
        if let Some(stored) = stored {
            let key = Key::entry(directory, self.name_hash(&stored));
            match self.named(key, NodeKind::Entry, &stored) {
                Ok(entry) => return Some(Ok(shown(entry))),
                Err(UbifsError::NoName { .. }) => {}
                Err(error) => return Some(Err(error)),
            }
        }
        // The name may be in the encoding used without a key.
        let found = self
            .read_directory_lossy(directory, &mut Vec::new())
            .into_iter()
            .find(|entry| entry.name == name);
        Some(found.ok_or_else(no_name))
    }

    fn encrypted_directory(&self, directory: InodeNumber) -> Option<Inode> {
        if !self.has_encryption() {
            return None;
        }
        let inode = self.inode(directory).ok()?;
        (inode.flags & INODE_ENCRYPTED != 0).then_some(inode)
    }

    /// Decrypts the target of a symbolic link: a length of two bytes, then the encrypted target.
    pub(crate) fn decrypt_link(&self, link: &Inode) -> Result<Vec<u8>, UbifsError> {
        let key = self.file_key(link).map_err(|locked| self.locked(link, locked))?;
        let bytes = link.data.first_chunk().map_or(0, |raw| u16::from_le_bytes(*raw));
        let stored = link.data.get(2..).and_then(|data| data.get(..usize::from(bytes)));
        let target = key.zip(stored).and_then(|(key, stored)| key.decrypt_text(stored));
        target.ok_or_else(|| self.locked(link, Locked::WrongKey))
    }
}
