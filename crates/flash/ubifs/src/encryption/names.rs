//! Encoding of encrypted names when the key is missing: URL-safe base64 (RFC 4648, section 5, no padding) of the
//! hash, the cookie, and the stored name; of a long name the first 149 bytes, and the SHA-256 of the rest.

use sha2::{Digest, Sha256};

/// Bytes of a stored name before it is abbreviated.
const SHOWN_BYTES: usize = 149;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Encodes a stored name.
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

/// Encodes up to three bytes in one letter more than there are bytes.
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
