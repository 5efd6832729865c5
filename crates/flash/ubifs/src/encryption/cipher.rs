//! AES modes of fscrypt, on top of the block cipher of the crate `aes`.
//!
//! Contents: XTS with the block number as tweak, or CBC with the encrypted block number as initialization vector
//! (ESSIV). Names: CBC with a zero initialization vector and ciphertext stealing (CS3 of NIST SP 800-38A): the last
//! two blocks are swapped, and the last one is cut to the length of the name.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, consts::U16};
use aes::{Aes128, Aes256, Block};

const BLOCK_BYTES: usize = 16;

/// A cipher for file contents.
pub(super) enum Contents {
    /// AES-256-XTS.
    Xts {
        /// Data key.
        data: Aes256,
        /// Tweak key.
        tweak: Aes256,
    },
    /// AES-128-CBC-ESSIV.
    Cbc {
        /// Data key.
        data: Aes128,
        /// Key of the initialization vectors.
        start: Aes256,
    },
}

impl Contents {
    /// Decrypts whole cipher blocks in place.
    pub(super) fn decrypt(&self, number: u64, raw: &mut [u8]) {
        let mut start = [0; BLOCK_BYTES];
        start[..8].copy_from_slice(&number.to_le_bytes());
        match self {
            Self::Xts { data, tweak } => {
                encrypt_blocks(tweak, &mut start);
                decrypt_xts(data, u128::from_le_bytes(start), raw);
            }
            Self::Cbc { data, start: cipher } => {
                encrypt_blocks(cipher, &mut start);
                decrypt_cbc(data, start, raw);
            }
        }
    }
}

/// A cipher for names.
pub(super) enum Names {
    /// AES-256-CBC with ciphertext stealing.
    Aes256(Aes256),
    /// AES-128-CBC with ciphertext stealing.
    Aes128(Aes128),
}

impl Names {
    /// Decrypts a text of at least one cipher block in place.
    pub(super) fn decrypt(&self, text: &mut [u8]) {
        match self {
            Self::Aes256(cipher) => decrypt_stolen(cipher, text),
            Self::Aes128(cipher) => decrypt_stolen(cipher, text),
        }
    }

    /// Encrypts a text of at least one cipher block in place.
    pub(super) fn encrypt(&self, text: &mut [u8]) {
        match self {
            Self::Aes256(cipher) => encrypt_stolen(cipher, text),
            Self::Aes128(cipher) => encrypt_stolen(cipher, text),
        }
    }
}

/// Encrypts each cipher block independently (ECB).
pub(super) fn encrypt_blocks<C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>>(
    cipher: &C,
    raw: &mut [u8],
) {
    cipher.encrypt_blocks(Block::slice_as_chunks_mut(raw).0);
}

fn decrypt_xts(cipher: &Aes256, start: u128, raw: &mut [u8]) {
    let tweaks = || std::iter::successors(Some(start), |tweak| Some(doubled(*tweak)));
    let blocks = Block::slice_as_chunks_mut(raw).0;
    for (block, tweak) in blocks.iter_mut().zip(tweaks()) {
        mix(block, &tweak.to_le_bytes());
    }
    cipher.decrypt_blocks(blocks);
    for (block, tweak) in blocks.iter_mut().zip(tweaks()) {
        mix(block, &tweak.to_le_bytes());
    }
}

/// Multiplication by x in GF(2^128), as in IEEE 1619.
const fn doubled(tweak: u128) -> u128 {
    tweak << 1 ^ if tweak >> 127 == 1 { 0x87 } else { 0 }
}

fn mix(block: &mut [u8], with: &[u8]) {
    for (byte, other) in block.iter_mut().zip(with) {
        *byte ^= other;
    }
}

fn decrypt_cbc<C>(cipher: &C, start: [u8; BLOCK_BYTES], raw: &mut [u8])
where
    C: BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
{
    let mut before = start;
    for block in Block::slice_as_chunks_mut(raw).0 {
        let stored: [u8; BLOCK_BYTES] = (*block).into();
        cipher.decrypt_block(block);
        mix(block, &before);
        before = stored;
    }
}

fn encrypt_cbc<C>(cipher: &C, raw: &mut [u8])
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    let mut before = [0; BLOCK_BYTES];
    for block in Block::slice_as_chunks_mut(raw).0 {
        mix(block, &before);
        cipher.encrypt_block(block);
        before = (*block).into();
    }
}

/// Offset of the last two blocks of a text, the last of which may be short; `None` if there is only one.
fn last_two(text: &[u8]) -> Option<usize> {
    let last = text.len().checked_sub(1)? / BLOCK_BYTES * BLOCK_BYTES;
    last.checked_sub(BLOCK_BYTES)
}

fn decrypt_stolen<C>(cipher: &C, text: &mut [u8])
where
    C: BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
{
    let Some(at) = last_two(text) else {
        decrypt_cbc(cipher, [0; BLOCK_BYTES], text);
        return;
    };
    // Decrypt the full block stored first: its tail completes the short block.
    let mut last = Block::default();
    last.copy_from_slice(&text[at..at + BLOCK_BYTES]);
    let whole = last;
    let mut lent = whole;
    cipher.decrypt_block(&mut lent);
    let short = text.len() - at - BLOCK_BYTES;
    let mut swapped = text[..at].to_vec();
    swapped.extend_from_slice(&text[at + BLOCK_BYTES..]);
    swapped.extend_from_slice(&lent[short..]);
    swapped.extend_from_slice(&whole);
    decrypt_cbc(cipher, [0; BLOCK_BYTES], &mut swapped);
    text.copy_from_slice(&swapped[..text.len()]);
}

fn encrypt_stolen<C>(cipher: &C, text: &mut [u8])
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    let mut padded = text.to_vec();
    padded.resize(text.len().next_multiple_of(BLOCK_BYTES), 0);
    encrypt_cbc(cipher, &mut padded);
    if let Some(at) = last_two(text) {
        let (one, other) = padded[at..].split_at_mut(BLOCK_BYTES);
        one.swap_with_slice(other);
    }
    text.copy_from_slice(&padded[..text.len()]);
}

#[cfg(test)]
mod tests {
    use aes::cipher::KeyInit;

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2);
        pairs
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    fn cipher<C: KeyInit>(key: &[u8]) -> C {
        C::new_from_slice(key).unwrap()
    }

    /// RFC 3962, appendix B: AES-128, zero initialization vector, texts of 17, 31, 32 and 64 bytes.
    #[test]
    fn names_are_encrypted_as_the_vectors_of_rfc_3962_are() {
        let names = Names::Aes128(cipher(b"chicken teriyaki"));
        let text = b"I would like the General Gau's Chicken, please, and wonton soup.";
        for (count, expected) in [
            (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
            (
                31,
                "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5",
            ),
            (
                32,
                "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584",
            ),
            (
                64,
                "97687268d6ecccc0c07b25e25ecfe58439312523a78662d5be7fcbcc98ebf5a8\
                 4807efe836ee89a526730dbc2f7bc8409dad8bbb96c4cdc03bc103e1a194bbd8",
            ),
        ] {
            let mut stored = text[..count].to_vec();
            names.encrypt(&mut stored);
            assert_eq!(stored, bytes(expected), "{count} bytes");
            names.decrypt(&mut stored);
            assert_eq!(stored, text[..count], "{count} bytes");
        }
    }

    /// IEEE 1619-2007, appendix B, vector 10: the first 32 of 512 bytes; the plaintext counts 0, 1, 2 and so on.
    #[test]
    fn contents_are_decrypted_as_the_vector_of_ieee_1619_is() {
        let contents = Contents::Xts {
            data: cipher(&bytes(
                "2718281828459045235360287471352662497757247093699959574966967627",
            )),
            tweak: cipher(&bytes(
                "3141592653589793238462643383279502884197169399375105820974944592",
            )),
        };
        let mut stored = bytes("1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b");
        contents.decrypt(0xFF, &mut stored);
        assert!((0..32).eq(stored), "what comes out counts up");
    }
}
