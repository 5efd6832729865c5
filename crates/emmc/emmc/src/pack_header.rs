//! The header of a packed command: 512 bytes, the first block of its data. Spec: eMMC 4.5, packed commands.
//!
//! 32-bit words, little endian:
//!
//! | word   | meaning                                                                               |
//! |--------|---------------------------------------------------------------------------------------|
//! | 0      | bits 7:0 version (1), bits 15:8 direction (1 read, 2 write), bits 23:16 number of entries |
//! | 2i     | CMD23 argument of entry i (from 1)                                                    |
//! | 2i + 1 | CMD18 or CMD25 argument of entry i: the first sector                                  |
//!
//! Other words are zero. The CMD23 of the pack itself counts the header as a block and has bit 30 set. Invariant: 2
//! to 63 entries, which fit 128 words.

use thiserror::Error;

/// Header size in bytes.
pub const HEADER_BYTES: usize = 512;

/// Maximum number of entries: two words each, after the first two.
pub const ENTRIES_MAX: usize = 63;

const VERSION: u32 = 1;

/// CMD23 argument bit: reliable write.
pub const CMD23_RELIABLE: u32 = 1 << 31;

/// CMD23 argument bit: packed.
pub const CMD23_PACKED: u32 = 1 << 30;

/// CMD23 argument bit: data tag.
pub const CMD23_TAG: u32 = 1 << 29;

/// CMD23 argument: lowest of the four context bits.
pub const CMD23_CONTEXT_SHIFT: u32 = 25;

/// Direction of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackEntry {
    /// CMD23 argument: blocks and flags.
    pub cmd23: u32,
    /// First sector.
    pub sector: u32,
}

/// Reason why bytes are not a pack header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PackHeaderError {
    /// Unsupported version.
    #[error("version of the pack header is {found}; expected 1")]
    Version {
        /// Version found.
        found: u32,
    },
    /// Invalid direction.
    #[error("direction of the pack header is {found}; expected 1 (read) or 2 (write)")]
    Direction {
        /// Direction found.
        found: u32,
    },
    /// Invalid number of entries.
    #[error("a pack of {found} entries; expected 2 to 63")]
    Entries {
        /// Number of entries.
        found: usize,
    },
    /// A reserved word is not zero.
    #[error("word {word} of the pack header is {found:#010x}; expected 0")]
    Reserved {
        /// Number of the word.
        word: usize,
        /// Value found.
        found: u32,
    },
}

/// Encodes a header.
///
/// # Errors
/// If there are fewer than 2 or more than 63 entries.
pub fn encode(direction: Direction, entries: &[PackEntry]) -> Result<[u8; HEADER_BYTES], PackHeaderError> {
    let count = entries.len();
    if !(2..=ENTRIES_MAX).contains(&count) {
        return Err(PackHeaderError::Entries { found: count });
    }
    let mut bytes = [0; HEADER_BYTES];
    let code = match direction {
        Direction::Read => 1,
        Direction::Write => 2,
    };
    let number = u32::try_from(count).expect("at most 63");
    put(&mut bytes, 0, VERSION | code << 8 | number << 16);
    for (place, entry) in (1..).zip(entries) {
        put(&mut bytes, 2 * place, entry.cmd23);
        put(&mut bytes, 2 * place + 1, entry.sector);
    }
    Ok(bytes)
}

/// Decodes a header.
///
/// # Errors
/// If a word has a value that the format forbids.
pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<(Direction, Vec<PackEntry>), PackHeaderError> {
    let first = get(bytes, 0);
    if first & 0xFF != VERSION {
        return Err(PackHeaderError::Version { found: first & 0xFF });
    }
    let direction = match first >> 8 & 0xFF {
        1 => Direction::Read,
        2 => Direction::Write,
        found => return Err(PackHeaderError::Direction { found }),
    };
    let count = usize::try_from(first >> 16 & 0xFF).expect("8 bits");
    if !(2..=ENTRIES_MAX).contains(&count) {
        return Err(PackHeaderError::Entries { found: count });
    }
    if first >> 24 != 0 {
        return Err(PackHeaderError::Reserved {
            word: 0,
            found: first,
        });
    }
    for word in std::iter::once(1).chain(2 * count + 2..HEADER_BYTES / 4) {
        let found = get(bytes, word);
        if found != 0 {
            return Err(PackHeaderError::Reserved { word, found });
        }
    }
    let entries = (1..=count).map(|place| PackEntry {
        cmd23: get(bytes, 2 * place),
        sector: get(bytes, 2 * place + 1),
    });
    Ok((direction, entries.collect()))
}

fn put(bytes: &mut [u8; HEADER_BYTES], word: usize, value: u32) {
    bytes[4 * word..4 * word + 4].copy_from_slice(&value.to_le_bytes());
}

fn get(bytes: &[u8; HEADER_BYTES], word: usize) -> u32 {
    let four = bytes[4 * word..4 * word + 4].try_into();
    u32::from_le_bytes(four.expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: [PackEntry; 2] = [
        PackEntry {
            cmd23: 1024,
            sector: 0x0001_0000,
        },
        PackEntry {
            cmd23: CMD23_RELIABLE | 8,
            sector: 0x0001_0400,
        },
    ];

    #[test]
    fn the_bytes_are_those_of_the_standard() {
        let bytes = encode(Direction::Write, &TWO).unwrap();
        let mut golden = [0; HEADER_BYTES];
        golden[..4].copy_from_slice(&[0x01, 0x02, 0x02, 0x00]);
        golden[8..16].copy_from_slice(&[0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00]);
        golden[16..24].copy_from_slice(&[0x08, 0x00, 0x00, 0x80, 0x00, 0x04, 0x01, 0x00]);
        assert_eq!(bytes, golden);
    }

    #[test]
    fn what_was_written_is_read() {
        for direction in [Direction::Read, Direction::Write] {
            for count in [2, 3, 62, 63] {
                let entries: Vec<PackEntry> = (0..count)
                    .map(|n| PackEntry {
                        cmd23: 8 + n,
                        sector: n * 77,
                    })
                    .collect();
                let bytes = encode(direction, &entries).unwrap();
                assert_eq!(decode(&bytes), Ok((direction, entries)));
            }
        }
    }

    #[test]
    fn a_pack_has_2_to_63_entries() {
        for count in [0, 1, 64] {
            let found = encode(Direction::Write, &vec![TWO[0]; count]);
            assert_eq!(found, Err(PackHeaderError::Entries { found: count }));
        }
    }

    #[test]
    fn every_flipped_bit_outside_the_entries_is_noticed() {
        let bytes = encode(Direction::Write, &TWO).unwrap();
        for bit in (0..8 * 8).chain(24 * 8..HEADER_BYTES * 8) {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(
                decode(&flipped),
                Ok((Direction::Write, TWO.to_vec())),
                "bit {bit}"
            );
        }
    }
}
