//! The file that stores a card's maps and wear while it is detached. Spec: `docs/formats/emmc-store.md`.
//!
//! Little-endian. Decode order: magic, version, length, checksum, then fields; no field is read before the checksum
//! has been verified. The card decides whether the numbers are possible.

use emmc::translation::{Kept, KeptMap, KeptOpen};
use thiserror::Error;

const MAGIC: [u8; 8] = *b"TGEMMCMP";
const VERSION: u32 = 1;

/// Magic, version, checksum of all following bytes, length of the body, time of the image.
const HEADER_BYTES: usize = 32;

/// The saved state of a card, and the image it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptCard {
    /// Mtime of the image that the maps describe, nanoseconds of the host's clock.
    pub image_changed_ns: u64,
    /// Number of the card's next epoch.
    pub epoch: u32,
    /// Maps and wear.
    pub kept: Kept,
}

/// Reason why bytes are not a saved card.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum KeptError {
    /// Wrong magic.
    #[error("it does not begin with {MAGIC:02x?}")]
    Foreign,
    /// Unsupported version.
    #[error("format version {found}, this build reads version {VERSION}")]
    Version {
        /// Version of the file.
        found: u32,
    },
    /// The length is wrong.
    #[error("it has {found} bytes, {expected} expected")]
    Length {
        /// Length found, bytes.
        found: u64,
        /// Length by the header, bytes.
        expected: u64,
    },
    /// Checksum mismatch.
    #[error("the CRC of its content is {found:#010x}, its header says {stored:#010x}")]
    Checksum {
        /// As computed.
        found: u32,
        /// As stored.
        stored: u32,
    },
    /// Its counts contradict each other.
    #[error("its counts do not fit its length of {bytes} bytes")]
    Counts {
        /// Bytes after the header.
        bytes: u64,
    },
}

impl KeptCard {
    /// Encodes the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut number = |value: u32| body.extend_from_slice(&value.to_le_bytes());
        let map = self.kept.map.clone().unwrap_or_default();
        number(self.epoch);
        number(u32::from(self.kept.map.is_some()));
        number(count(self.kept.erases.len()));
        number(count(map.slots.len()));
        number(count(map.open.len()));
        self.kept.erases.iter().for_each(|erases| number(*erases));
        map.erased.iter().for_each(|erased| number(u32::from(*erased)));
        map.slots.iter().for_each(|slot| number(*slot));
        for open in &map.open {
            let head = [open.stream, open.block, open.filled, count(open.epochs.len())];
            head.iter().chain(&open.epochs).for_each(|value| number(*value));
        }
        // Length and time precede the body, and are covered by the checksum.
        let length = u64::try_from(body.len()).unwrap_or(u64::MAX).to_le_bytes();
        let rest = [&length[..], &self.image_changed_ns.to_le_bytes(), &body].concat();
        [
            &MAGIC[..],
            &VERSION.to_le_bytes(),
            &crc32fast::hash(&rest).to_le_bytes(),
            &rest,
        ]
        .concat()
    }

    /// Decodes a file.
    ///
    /// # Errors
    /// If the file has another version, is truncated or damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, KeptError> {
        let found = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let Some((header, body)) = bytes.split_at_checked(HEADER_BYTES) else {
            return match bytes.starts_with(&MAGIC) {
                true => Err(KeptError::Length {
                    found,
                    expected: u64::try_from(HEADER_BYTES).unwrap_or(u64::MAX),
                }),
                false => Err(KeptError::Foreign),
            };
        };
        if !header.starts_with(&MAGIC) {
            return Err(KeptError::Foreign);
        }
        let mut fields = Numbers(&header[MAGIC.len()..]);
        let (version, stored) = (fields.next32(), fields.next32());
        let (length, image_changed_ns) = (fields.next64(), fields.next64());
        if version != Some(VERSION) {
            let found = version.unwrap_or_default();
            return Err(KeptError::Version { found });
        }
        let bytes_after = u64::try_from(body.len()).unwrap_or(u64::MAX);
        let length = length.unwrap_or_default();
        if length != bytes_after {
            let expected = length.saturating_add(found - bytes_after);
            return Err(KeptError::Length { found, expected });
        }
        let (stored, computed) = (stored.unwrap_or_default(), crc32fast::hash(&bytes[16..]));
        if stored != computed {
            return Err(KeptError::Checksum {
                found: computed,
                stored,
            });
        }
        let mut numbers = Numbers(body);
        let decoded = fields_of(&mut numbers, image_changed_ns.unwrap_or_default());
        match (decoded, numbers.0) {
            (Some(decoded), []) => Ok(decoded),
            _ => Err(KeptError::Counts { bytes: bytes_after }),
        }
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).expect("a card's numbers fit 32 bits")
}

fn fields_of(numbers: &mut Numbers<'_>, image_changed_ns: u64) -> Option<KeptCard> {
    let (epoch, has_map) = (numbers.next32()?, numbers.next32()?);
    let (blocks, units, opens) = (numbers.next32()?, numbers.next32()?, numbers.next32()?);
    let erases = numbers.list(blocks)?;
    let map = match has_map {
        0 => None,
        1 => {
            let erased = numbers
                .list(blocks)?
                .into_iter()
                .map(|erased| erased != 0)
                .collect();
            let slots = numbers.list(units)?;
            let open = (0..opens).map(|_| open_of(numbers)).collect::<Option<_>>()?;
            Some(KeptMap { slots, erased, open })
        }
        _ => return None,
    };
    Some(KeptCard {
        image_changed_ns,
        epoch,
        kept: Kept { erases, map },
    })
}

fn open_of(numbers: &mut Numbers<'_>) -> Option<KeptOpen> {
    let (stream, block, filled) = (numbers.next32()?, numbers.next32()?, numbers.next32()?);
    let pages = numbers.next32()?;
    Some(KeptOpen {
        stream,
        block,
        filled,
        epochs: numbers.list(pages)?,
    })
}

/// Reads numbers in sequence; `None` at the end.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next32(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn next64(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    /// A list of `count` numbers; `None`, without any allocation, if fewer are left.
    fn list(&mut self, count: u32) -> Option<Vec<u32>> {
        let bytes = usize::try_from(count).ok()?.checked_mul(4)?;
        let (list, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        let (numbers, _) = list.as_chunks();
        Some(numbers.iter().map(|number| u32::from_le_bytes(*number)).collect())
    }
}

#[cfg(test)]
mod tests {
    use testkit::prng::Prng;

    use super::*;

    fn card() -> KeptCard {
        KeptCard {
            image_changed_ns: 0x0102_0304_0506_0708,
            epoch: 9,
            kept: Kept {
                erases: vec![1, 2],
                map: Some(KeptMap {
                    slots: vec![3, emmc::translation::NO_SLOT, 4],
                    erased: vec![true, false],
                    open: vec![KeptOpen {
                        stream: 0,
                        block: 1,
                        filled: 5,
                        epochs: vec![7, 8],
                    }],
                }),
            },
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_specification() {
        let bytes = card().encode();
        let mut expected = b"TGEMMCMP\x01\0\0\0".to_vec();
        expected.extend_from_slice(&bytes[12..16]);
        expected.extend_from_slice(&[72, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
        for number in [9, 1, 2, 3, 1, 1, 2, 1, 0, 3, u32::MAX, 4, 0, 1, 5, 2, 7, 8_u32] {
            expected.extend_from_slice(&number.to_le_bytes());
        }
        assert_eq!(bytes, expected);
        assert_eq!(KeptCard::decode(&bytes), Ok(card()));
        let wear = KeptCard {
            kept: Kept {
                map: None,
                ..card().kept
            },
            ..card()
        };
        assert_eq!(KeptCard::decode(&wear.encode()), Ok(wear));
    }

    #[test]
    fn one_flipped_bit_or_a_missing_byte_is_never_taken() {
        let bytes = card().encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(KeptCard::decode(&flipped).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(KeptCard::decode(&bytes[..length]).is_err(), "length {length}");
        }
        assert!(matches!(
            KeptCard::decode(&[&bytes[..], &[0]].concat()),
            Err(KeptError::Length { .. })
        ));
    }

    /// Changed bytes with a corrected checksum: counts of billions allocate no memory, and nothing panics.
    #[test]
    fn changed_numbers_with_a_right_checksum_never_panic() {
        let bytes = card().encode();
        let mut taken = 0;
        for seed in 0..4000 {
            let (mut random, mut changed) = (Prng::new(seed), bytes.clone());
            for _ in 0..=random.below_usize(3) {
                let place = 32 + random.below_usize(changed.len() - 32);
                changed[place] = u8::try_from(random.below(256)).unwrap();
            }
            let checksum = crc32fast::hash(&changed[16..]);
            changed[12..16].copy_from_slice(&checksum.to_le_bytes());
            match KeptCard::decode(&changed) {
                Ok(card) => {
                    taken += 1;
                    assert_eq!(KeptCard::decode(&card.encode()), Ok(card), "seed {seed}");
                }
                Err(error) => assert!(matches!(error, KeptError::Counts { .. }), "seed {seed}: {error}"),
            }
        }
        assert!((100..3900).contains(&taken), "{taken}");
    }
}
