//! Master keys, and the file keys derived from them.
//!
//! Version 1: the start of the master key, encrypted block by block with AES-128 and the nonce as key. Version 2:
//! HKDF-SHA512 of the master key without salt; the info is `fscrypt\0`, then 1 for the identifier or 2 for a file
//! key, then the nonce.

use std::fmt;

use aes::Aes128;
use aes::cipher::KeyInit;
use hkdf::Hkdf;
use sha2::{Digest, Sha256, Sha512};

use super::cipher::{Contents, Names, encrypt_blocks};
use super::policy::{Context, Locked, MasterName};
use crate::format::{EntryKind, NAME_BYTES_MAX};
use crate::scan::to_usize;

/// Length of a master key, bytes.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 16..=64;
/// Minimum length of an encrypted name.
const TEXT_BYTES_MIN: usize = 16;
/// Purposes of derived keys.
const FOR_IDENTIFIER: u8 = 1;
const FOR_FILE: u8 = 2;

/// A master key: a directory and everything below it is encrypted with keys derived from it.
#[derive(Clone)]
pub struct MasterKey {
    raw: Vec<u8>,
    descriptor: [u8; 8],
    identifier: [u8; 16],
}

/// Does not print the key.
impl fmt::Debug for MasterKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let identifier = MasterName::Identifier(self.identifier);
        write!(formatter, "MasterKey({identifier})")
    }
}

impl MasterKey {
    /// Takes a key of 16 to 64 bytes; `None` for other lengths.
    #[must_use]
    pub fn new(raw: Vec<u8>) -> Option<Self> {
        if !KEY_BYTES.contains(&raw.len()) {
            return None;
        }
        let once = Sha512::digest(&raw);
        let twice = Sha512::digest(once);
        let mut descriptor = [0; 8];
        descriptor.copy_from_slice(&twice[..8]);
        let mut identifier = [0; 16];
        expand(&raw, FOR_IDENTIFIER, &[], &mut identifier);
        Some(Self {
            raw,
            descriptor,
            identifier,
        })
    }

    /// Changes the descriptor, which the creator of the policy may have chosen freely.
    #[must_use]
    pub fn with_descriptor(self, descriptor: [u8; 8]) -> Self {
        Self { descriptor, ..self }
    }

    /// Whether a context refers to this key. For version 1, compares with the descriptor that tools assign by
    /// default; others are possible.
    pub(super) fn fits(&self, name: &MasterName) -> bool {
        match name {
            MasterName::Descriptor(descriptor) => *descriptor == self.descriptor,
            MasterName::Identifier(identifier) => *identifier == self.identifier,
        }
    }

    pub(super) fn file_key(&self, context: &Context, kind: Option<EntryKind>) -> Result<FileKey, Locked> {
        let is_file = kind == Some(EntryKind::File);
        let mode = if is_file { context.contents } else { context.names };
        let key = match mode {
            1 if is_file => {
                let key = self.derive(context, 64)?;
                Cipher::Contents(Box::new(Contents::Xts {
                    data: aes(&key[..32]),
                    tweak: aes(&key[32..]),
                }))
            }
            5 if is_file => {
                let key = self.derive(context, 16)?;
                Cipher::Contents(Box::new(Contents::Cbc {
                    data: aes(&key),
                    start: aes(&Sha256::digest(&key)),
                }))
            }
            4 if !is_file => Cipher::Names(Box::new(Names::Aes256(aes(&self.derive(context, 32)?)))),
            6 if !is_file => Cipher::Names(Box::new(Names::Aes128(aes(&self.derive(context, 16)?)))),
            mode => return Err(Locked::Mode { mode }),
        };
        Ok(FileKey {
            cipher: key,
            padding: context.padding,
            is_certain: !context.is_version_1(),
        })
    }

    fn derive(&self, context: &Context, bytes: usize) -> Result<Vec<u8>, Locked> {
        let mut key = vec![0; bytes];
        if !context.is_version_1() {
            expand(&self.raw, FOR_FILE, &context.nonce, &mut key);
            return Ok(key);
        }
        let start = self.raw.get(..bytes).ok_or(Locked::ShortKey {
            needed: bytes,
            found: self.raw.len(),
        })?;
        key.copy_from_slice(start);
        encrypt_blocks(&aes::<Aes128>(&context.nonce), &mut key);
        Ok(key)
    }
}

fn aes<C: KeyInit>(key: &[u8]) -> C {
    C::new_from_slice(key).expect("keys are derived with the length that their cipher takes")
}

fn expand(master: &[u8], purpose: u8, more: &[u8], out: &mut [u8]) {
    let info = [b"fscrypt\0".as_slice(), &[purpose], more].concat();
    Hkdf::<Sha512>::new(None, master)
        .expand(&info, out)
        .expect("keys are shorter than 255 hashes");
}

enum Cipher {
    Contents(Box<Contents>),
    Names(Box<Names>),
}

/// Key of one file, directory or symbolic link.
pub(crate) struct FileKey {
    cipher: Cipher,
    padding: usize,
    /// Whether the key was identified beyond doubt: a version 2 identifier is derived from the key.
    is_certain: bool,
}

impl FileKey {
    /// Decrypts the stored bytes of a block in place; a whole number of cipher blocks.
    pub(crate) fn decrypt_block(&self, number: u32, stored: &mut [u8]) -> Result<(), Locked> {
        match &self.cipher {
            Cipher::Contents(cipher) if stored.len().is_multiple_of(16) => {
                cipher.decrypt(number.into(), stored);
                Ok(())
            }
            _ => Err(Locked::WrongKey),
        }
    }

    /// Decrypts a name or link target; `None` if the result is implausible.
    pub(crate) fn decrypt_text(&self, stored: &[u8]) -> Option<Vec<u8>> {
        let Cipher::Names(cipher) = &self.cipher else {
            return None;
        };
        if stored.len() < TEXT_BYTES_MIN {
            return None;
        }
        let mut text = stored.to_vec();
        cipher.decrypt(&mut text);
        let bytes = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        let is_text = bytes > 0 && text[bytes..].iter().all(|byte| *byte == 0);
        text.truncate(bytes);
        // With a wrong key, the result usually has control characters and is not valid UTF-8.
        let is_noise = || text.iter().any(u8::is_ascii_control) && std::str::from_utf8(&text).is_err();
        (is_text && (self.is_certain || !is_noise())).then_some(text)
    }

    /// Decrypts a name.
    pub(crate) fn decrypt_name(&self, stored: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_text(stored).filter(|name| !name.contains(&b'/'))
    }

    /// Encrypts a name as it is stored on the medium.
    pub(crate) fn encrypt_name(&self, name: &[u8]) -> Option<Vec<u8>> {
        let Cipher::Names(cipher) = &self.cipher else {
            return None;
        };
        let longest = to_usize(NAME_BYTES_MAX);
        if name.is_empty() || name.len() > longest {
            return None;
        }
        let bytes = name.len().max(TEXT_BYTES_MIN).next_multiple_of(self.padding);
        let mut stored = name.to_vec();
        stored.resize(bytes.min(longest), 0);
        cipher.encrypt(&mut stored);
        Some(stored)
    }
}
