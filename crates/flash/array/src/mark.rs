//! The pages of a dirty mark: the array and member it belongs to, and the LEBs that were unmapped while it exists.
//!
//! | bytes  | field      | meaning                                                                        |
//! |--------|------------|--------------------------------------------------------------------------------|
//! | 0..4   | magic      | `TGAM`                                                                         |
//! | 4      | version    | 1                                                                              |
//! | 5      | role       | 0: the array has no parity; 1: parity that rotates over the members            |
//! | 6..8   | records    | number of records                                                              |
//! | 8..24  | array      | as in the name of the member's volume                                          |
//! | 24..28 | index      | place of the member                                                            |
//! | 28..32 | members    | number of members                                                              |
//! | 32..40 | epoch      | of the array                                                                   |
//! | 40..48 | complete   | generations up to this one were complete on all members, or dropped            |
//! | 60..64 | CRC-32     | of bytes 0..60 and of the records, same variant as UBI                         |
//! | 64..   | records    | 12 bytes each: a LEB (4), and the generation (8) up to which it was given up   |
//!
//! Big-endian; bytes not listed are zero. A page is written only once all members are marked. Spec:
//! `docs/formats/array.md`.

use media::{Leb, index};
use ubi::format::crc32;

use crate::identity::{MemberIdentity, Redundancy};

const MAGIC: [u8; 4] = *b"TGAM";
const VERSION: u8 = 1;
const ROLE_DATA: u8 = 0;
const ROLE_PARITY: u8 = 1;
const HEADER_BYTES: usize = 64;
const RECORD_BYTES: usize = 12;

/// An unmapped LEB: blocks of it with this generation or an earlier one no longer count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unmapped {
    pub(crate) leb: Leb,
    pub(crate) generation: u64,
}

/// A page of a dirty mark written by a later version of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnknownMark {
    pub(crate) version: u8,
    pub(crate) role: u8,
}

/// A page of a dirty mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MarkPage {
    pub(crate) array: u128,
    pub(crate) index: u32,
    pub(crate) members: u32,
    pub(crate) redundancy: Redundancy,
    pub(crate) epoch: u64,
    pub(crate) complete: u64,
    pub(crate) unmapped: Vec<Unmapped>,
}

impl MarkPage {
    /// Capacity of a page of `page_bytes`, in records.
    pub(crate) fn capacity(page_bytes: u32) -> usize {
        index(page_bytes).saturating_sub(HEADER_BYTES) / RECORD_BYTES
    }

    /// # Panics
    /// When there are more records than fit.
    pub(crate) fn encode(&self, page_bytes: u32) -> Vec<u8> {
        let records = self.unmapped.len();
        assert!(records <= Self::capacity(page_bytes), "{records} records");
        let mut page = vec![0; index(page_bytes)];
        let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        let role = match self.redundancy {
            Redundancy::None => ROLE_DATA,
            Redundancy::Parity => ROLE_PARITY,
        };
        put(4, &[VERSION, role]);
        put(6, &u16::try_from(records).expect("a page has few").to_be_bytes());
        put(8, &self.array.to_be_bytes());
        put(24, &self.index.to_be_bytes());
        put(28, &self.members.to_be_bytes());
        put(32, &self.epoch.to_be_bytes());
        put(40, &self.complete.to_be_bytes());
        for (number, record) in self.unmapped.iter().enumerate() {
            let at = HEADER_BYTES + number * RECORD_BYTES;
            put(at, &record.leb.0.to_be_bytes());
            put(at + 4, &record.generation.to_be_bytes());
        }
        let crc = checksum(&page, records);
        page[60..64].copy_from_slice(&crc.to_be_bytes());
        page
    }

    /// Returns `None` for a damaged page or anything else that is not a page of a mark, and an error for an unknown
    /// version.
    pub(crate) fn decode(page: &[u8]) -> Result<Option<Self>, UnknownMark> {
        let Some(head) = page.get(..HEADER_BYTES) else {
            return Ok(None);
        };
        let records = usize::from(u16::from_be_bytes(bytes_at(head, 6)));
        if head[..4] != MAGIC || records > (page.len() - HEADER_BYTES) / RECORD_BYTES {
            return Ok(None);
        }
        if checksum(page, records) != u32::from_be_bytes(bytes_at(head, 60)) {
            return Ok(None);
        }
        let [version, role] = bytes_at(head, 4);
        let redundancy = match (version, role) {
            (VERSION, ROLE_DATA) => Redundancy::None,
            (VERSION, ROLE_PARITY) => Redundancy::Parity,
            _ => return Err(UnknownMark { version, role }),
        };
        let unmapped = page[HEADER_BYTES..].chunks_exact(RECORD_BYTES).take(records);
        let record = |raw| Unmapped {
            leb: Leb(u32::from_be_bytes(bytes_at(raw, 0))),
            generation: u64::from_be_bytes(bytes_at(raw, 4)),
        };
        Ok(Some(Self {
            array: u128::from_be_bytes(bytes_at(head, 8)),
            index: u32::from_be_bytes(bytes_at(head, 24)),
            members: u32::from_be_bytes(bytes_at(head, 28)),
            redundancy,
            epoch: u64::from_be_bytes(bytes_at(head, 32)),
            complete: u64::from_be_bytes(bytes_at(head, 40)),
            unmapped: unmapped.map(record).collect(),
        }))
    }

    pub(crate) fn is_of(&self, identity: &MemberIdentity) -> bool {
        (self.array, self.index, self.members, self.redundancy)
            == (
                identity.array,
                identity.index,
                identity.members,
                identity.redundancy,
            )
    }
}

fn checksum(page: &[u8], records: usize) -> u32 {
    let end = HEADER_BYTES + records * RECORD_BYTES;
    crc32(&[&page[..60], &page[HEADER_BYTES..end]].concat())
}

fn bytes_at<const N: usize>(raw: &[u8], at: usize) -> [u8; N] {
    raw[at..at + N].try_into().expect("the range has N bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> MarkPage {
        MarkPage {
            array: 0xA5 << 120 | 1,
            index: 2,
            members: 4,
            redundancy: Redundancy::None,
            epoch: 7,
            complete: 0x1_0000_0001,
            unmapped: vec![
                Unmapped {
                    leb: Leb(3),
                    generation: 9,
                },
                Unmapped {
                    leb: Leb(0xFFFF),
                    generation: 1 << 40,
                },
            ],
        }
    }

    #[test]
    fn a_page_has_these_bytes_and_is_read_back() {
        let raw = page().encode(512);
        assert_eq!(MarkPage::decode(&raw), Ok(Some(page())));
        assert_eq!(raw[..8], *b"TGAM\x01\x00\x00\x02");
        assert_eq!(raw[8..25], [0xA5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(raw[24..40], [0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(raw[40..48], [0, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(raw[64..76], [0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 9]);
        let with_parity = MarkPage {
            redundancy: Redundancy::Parity,
            ..page()
        };
        assert_eq!(with_parity.encode(512)[4..6], [1, 1]);
        assert_eq!(MarkPage::decode(&with_parity.encode(512)), Ok(Some(with_parity)));
        let full = MarkPage {
            unmapped: vec![page().unmapped[0]; MarkPage::capacity(512)],
            ..page()
        };
        assert_eq!(MarkPage::decode(&full.encode(512)), Ok(Some(full)));
    }

    #[test]
    fn one_flipped_bit_anywhere_is_never_accepted() {
        let raw = page().encode(512);
        let used = HEADER_BYTES + 2 * RECORD_BYTES;
        for bit in 0..used * 8 {
            let mut flipped = raw.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(MarkPage::decode(&flipped), Ok(None), "bit {bit}");
        }
        for bytes in [0, 63, 64, 75] {
            assert_eq!(MarkPage::decode(&raw[..bytes]), Ok(None), "{bytes} bytes");
        }
        assert_eq!(MarkPage::decode(&[0xFF; 512]), Ok(None));
    }

    #[test]
    fn a_page_of_a_later_version_is_an_error() {
        for (at, version, role) in [(4, 2, 0), (5, 1, 2)] {
            let mut raw = page().encode(512);
            raw[at] = 2;
            let crc = checksum(&raw, 2);
            raw[60..64].copy_from_slice(&crc.to_be_bytes());
            assert_eq!(MarkPage::decode(&raw), Err(UnknownMark { version, role }));
        }
    }
}
