//! Names of encrypted directories as they are shown without a key: base64 for addresses (RFC 4648, section 5, no padding) of the
//! name's hash, its cookie, and the name as it is stored; of a long one the first 149 bytes, and SHA-256 of the others.

use sha2::{Digest, Sha256};

/// Bytes of a stored name that are shown.
const SHOWN_BYTES: usize = 149;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A stored name in letters.
pub(super) fn encoded(hash: u32, cookie: u32, stored: &[u8]) -> Vec<u8> {
    let mut raw = [hash.to_le_bytes(), cookie.to_le_bytes()].concat();
    match stored.split_at_checked(SHOWN_BYTES) {
        Some((start, rest)) if !rest.is_empty() => {
            raw.extend_from_slice(start);
            raw.extend_from_slice(&Sha256::digest(rest));
        }
        _ => raw.extend_from_slice(stored),
    }
    raw.chunks(3).flat_map(letters).collect()
}

/// Up to three bytes as letters: one more than there are bytes.
fn letters(bytes: &[u8]) -> impl Iterator<Item = u8> + use<> {
    let byte = |at: usize| u32::from(bytes.get(at).copied().unwrap_or(0));
    let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
    let letter = move |number: usize| {
        let six = usize::try_from(bits >> (18 - 6 * number) & 0x3F).expect("six bits");
        ALPHABET[six]
    };
    (0..=bytes.len()).map(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_letters_of_file_names_alone() {
        assert_eq!(encoded(0, 0, b"\xFB\xFF"), b"AAAAAAAAAAD7_w");
        let long = encoded(1, 2, &[7; 255]);
        assert_eq!(long.len(), (8 + 149 + 32_usize) * 4 / 3);
        assert!(long.starts_with(b"AQAAAAIAAAA"));
    }
}
