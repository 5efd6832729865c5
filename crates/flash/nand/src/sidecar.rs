//! The side-car of a chip in a file: geometry, timing, faults, and the state of each block. Little-endian. Spec:
//! `docs/formats/nand-image.md`.
//!
//! | bytes                  | content                                                                |
//! |------------------------|------------------------------------------------------------------------|
//! | 0..512                 | [`Header`]: properties of the chip; written once                       |
//! | 512..576               | [`Moment`]: the clock, and the version of the image that the records describe |
//! | 1024 + 64 n ..         | [`BlockState`] of block n                                              |
//!
//! Each record ends in its CRC-32 (IEEE), which reveals a torn record, and is written in place. Bytes not listed are
//! zero. Decoding checks magic, then CRC, then version, then fields; an impossible field is an error, never a panic.

use media::{NandGeometry, Nanos, Page};
use thiserror::Error;

use crate::block::{BlockState, Failing, LostPages, TornPage};
use crate::{ChipModel, FaultModel, ModelError, Pairing, Timing};

/// Size of the header in bytes.
pub(crate) const HEADER_BYTES: usize = 512;
/// Size of the [`Moment`] and of each block record in bytes.
pub(crate) const RECORD_BYTES: usize = 64;
/// Offset of the [`Moment`].
pub(crate) const MOMENT_AT: u64 = 512;
/// Offset of the first block record.
pub(crate) const BLOCKS_AT: u64 = 1024;

const MAGIC: &[u8; 8] = b"TIDENAND";
const VERSION: u32 = 1;
const HAS_OOB: u32 = 1;
const PAIRED_PAGES: u32 = 2;

/// Whether an image contains the OOB areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    /// Data only: page after page.
    Data,
    /// Each page is followed by its OOB area, as `nanddump --oob` writes it.
    DataAndOob,
}

/// The constant properties of a chip in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: ImageKind,
    pub model: ChipModel,
    pub faults: FaultModel,
}

/// The clock, and the image that the records belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    pub now: Nanos,
    pub image_bytes: u64,
    pub modified_seconds: i64,
    pub modified_nanos: u32,
}

/// Reason why a side-car can't be read.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SidecarError {
    /// The file is shorter than the header.
    #[error("it ends after {found} bytes, in its header of {HEADER_BYTES} bytes")]
    Short {
        /// File length in bytes.
        found: usize,
    },
    /// The file is not a side-car.
    #[error("it does not begin with \"TIDENAND\": it is no side-car of a NAND image")]
    Magic,
    /// CRC mismatch of the header.
    #[error("CRC of the header is {found:#010x}, the header says {stored:#010x}")]
    Crc {
        /// CRC stored in the header.
        stored: u32,
        /// CRC of the bytes.
        found: u32,
    },
    /// Written by an unsupported version.
    #[error("format version {found}, this build reads version {VERSION}")]
    Version {
        /// Version of the file.
        found: u32,
    },
    /// The flags contain unknown bits.
    #[error("unknown flags {found:#x}")]
    Flags {
        /// Flags of the file.
        found: u32,
    },
    /// The fields do not describe a valid chip.
    #[error("it describes no chip: {0}")]
    Model(#[from] ModelError),
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let Self { kind, model, faults } = self;
        let ChipModel {
            geometry,
            timing,
            ecc_bits,
            pairing,
        } = model;
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(MAGIC);
        put32(&mut out, 8, VERSION);
        let has_oob = match kind {
            ImageKind::Data => 0,
            ImageKind::DataAndOob => HAS_OOB,
        };
        let paired = match pairing {
            Pairing::None => 0,
            Pairing::Mlc => PAIRED_PAGES,
        };
        put32(&mut out, 12, has_oob | paired);
        put32(&mut out, 16, geometry.page_bytes());
        put32(&mut out, 20, geometry.oob_bytes());
        put32(&mut out, 24, geometry.subpage_bytes());
        put32(&mut out, 28, geometry.pages_per_block());
        put32(&mut out, 32, geometry.blocks());
        put32(&mut out, 36, *ecc_bits);
        put64(&mut out, 40, timing.read_page.0);
        put64(&mut out, 48, timing.program_page.0);
        put64(&mut out, 56, timing.erase_block.0);
        put64(&mut out, 64, timing.transfer_page.0);
        put64(&mut out, 72, faults.seed);
        put32(&mut out, 80, faults.program_failures_ppm);
        put32(&mut out, 84, faults.erase_failures_ppm);
        put32(&mut out, 88, faults.endurance);
        put32(&mut out, 92, faults.reads_per_bit_flip);
        put64(&mut out, 96, faults.time_per_bit_flip.0);
        put32(&mut out, 104, faults.factory_bad_blocks);
        seal(&mut out);
        out
    }

    pub(crate) fn decode(raw: &[u8]) -> Result<Self, SidecarError> {
        let raw: &[u8; HEADER_BYTES] = raw
            .first_chunk()
            .ok_or(SidecarError::Short { found: raw.len() })?;
        if raw[..8] != *MAGIC {
            return Err(SidecarError::Magic);
        }
        check(raw).map_err(|(stored, found)| SidecarError::Crc { stored, found })?;
        let (version, flags) = (get32(raw, 8), get32(raw, 12));
        if version != VERSION {
            return Err(SidecarError::Version { found: version });
        }
        if flags & !(HAS_OOB | PAIRED_PAGES) != 0 {
            return Err(SidecarError::Flags { found: flags });
        }
        let kind = match flags & HAS_OOB {
            0 => ImageKind::Data,
            _ => ImageKind::DataAndOob,
        };
        let pairing = match flags & PAIRED_PAGES {
            0 => Pairing::None,
            _ => Pairing::Mlc,
        };
        let geometry = NandGeometry::new(get32(raw, 16), get32(raw, 28), get32(raw, 32))
            .and_then(|geometry| geometry.with_oob(get32(raw, 20)))
            .and_then(|geometry| geometry.with_subpage(get32(raw, 24)))
            .map_err(ModelError::from)?;
        let timing = Timing {
            read_page: Nanos(get64(raw, 40)),
            program_page: Nanos(get64(raw, 48)),
            erase_block: Nanos(get64(raw, 56)),
            transfer_page: Nanos(get64(raw, 64)),
        };
        timing.check()?;
        Ok(Self {
            kind,
            model: ChipModel::new(geometry)
                .with_timing(timing)
                .with_ecc_bits(get32(raw, 36))
                .with_pairing(pairing)?,
            faults: FaultModel {
                seed: get64(raw, 72),
                program_failures_ppm: get32(raw, 80),
                erase_failures_ppm: get32(raw, 84),
                endurance: get32(raw, 88),
                reads_per_bit_flip: get32(raw, 92),
                time_per_bit_flip: Nanos(get64(raw, 96)),
                factory_bad_blocks: get32(raw, 104),
            },
        })
    }
}

impl Moment {
    pub(crate) fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut out = [0; RECORD_BYTES];
        put64(&mut out, 0, self.now.0);
        put64(&mut out, 8, self.image_bytes);
        out[16..24].copy_from_slice(&self.modified_seconds.to_le_bytes());
        put32(&mut out, 24, self.modified_nanos);
        seal(&mut out);
        out
    }

    /// Returns `None` if the record was never written or is torn.
    pub(crate) fn decode(raw: &[u8; RECORD_BYTES]) -> Option<Self> {
        check(raw).ok()?;
        Some(Self {
            // Centuries before the largest representable time, so that no operation overflows it.
            now: Nanos(get64(raw, 0).min(LATEST.0)),
            image_bytes: get64(raw, 8),
            modified_seconds: get64(raw, 16).cast_signed(),
            modified_nanos: get32(raw, 24),
        })
    }
}

/// The latest time at which a chip may be opened.
const LATEST: Nanos = Nanos(u64::MAX / 2);

const BAD: u32 = 1;
const HALF_ERASED: u32 = 2;
const TORN: u32 = 4;
const TORN_UNCORRECTABLE: u32 = 8;
const FAILS_TO_ERASE: u32 = 16;

/// Encodes the record of a block.
pub(crate) fn encode_block(state: &BlockState) -> [u8; RECORD_BYTES] {
    let mut out = [0; RECORD_BYTES];
    let mut flags = 0;
    let mut flag = |set: bool, bit: u32| flags |= if set { bit } else { 0 };
    flag(state.is_bad, BAD);
    flag(state.is_half_erased, HALF_ERASED);
    if let Some(torn) = state.torn {
        flag(true, TORN);
        flag(torn.is_uncorrectable, TORN_UNCORRECTABLE);
        put32(&mut out, 8, torn.page.0);
        put32(&mut out, 12, torn.byte);
    }
    flag(state.failing.erases, FAILS_TO_ERASE);
    put32(&mut out, 0, state.programmed_bytes);
    put32(&mut out, 4, flags);
    put32(&mut out, 16, state.erases);
    put32(&mut out, 20, state.reads_since_erase);
    put64(&mut out, 24, state.programs);
    put64(&mut out, 32, state.reads);
    put64(&mut out, 40, state.programmed_at.0);
    for (place, lost) in out[48..56].chunks_exact_mut(2).zip(state.lost.places()) {
        place.copy_from_slice(&lost.to_le_bytes());
    }
    let program_at = state
        .failing
        .program_at
        .map_or(0, |page| page.0.saturating_add(1));
    put32(&mut out, 56, program_at);
    seal(&mut out);
    out
}

/// Decodes the record of a block; `None` if it is torn or does not suit this chip.
pub(crate) fn decode_block(raw: &[u8; RECORD_BYTES], geometry: &NandGeometry) -> Option<BlockState> {
    check(raw).ok()?;
    let flags = get32(raw, 4);
    let is = |bit: u32| flags & bit != 0;
    let state = BlockState {
        programmed_bytes: get32(raw, 0),
        is_bad: is(BAD),
        is_half_erased: is(HALF_ERASED),
        torn: is(TORN).then(|| TornPage {
            page: Page(get32(raw, 8)),
            byte: get32(raw, 12),
            is_uncorrectable: is(TORN_UNCORRECTABLE),
        }),
        lost: LostPages::of_places(std::array::from_fn(|place| {
            u16::from_le_bytes([raw[48 + 2 * place], raw[49 + 2 * place]])
        })),
        failing: Failing {
            program_at: get32(raw, 56).checked_sub(1).map(Page),
            erases: is(FAILS_TO_ERASE),
        },
        erases: get32(raw, 16),
        reads_since_erase: get32(raw, 20),
        programs: get64(raw, 24),
        reads: get64(raw, 32),
        programmed_at: Nanos(get64(raw, 40)),
    };
    let known = BAD | HALF_ERASED | TORN | TORN_UNCORRECTABLE | FAILS_TO_ERASE;
    (flags & !known == 0 && state.fits(geometry)).then_some(state)
}

/// Writes the CRC of all preceding bytes into the last four.
fn seal(record: &mut [u8]) {
    let end = record.len() - 4;
    let crc = crc32fast::hash(&record[..end]);
    put32(record, end, crc);
}

/// Verifies the CRC; the error contains the stored and the computed CRC.
fn check(record: &[u8]) -> Result<(), (u32, u32)> {
    let end = record.len() - 4;
    let (stored, found) = (get32(record, end), crc32fast::hash(&record[..end]));
    if stored == found {
        Ok(())
    } else {
        Err((stored, found))
    }
}

fn put32(out: &mut [u8], at: usize, value: u32) {
    out[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put64(out: &mut [u8], at: usize, value: u64) {
    out[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn get32(raw: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(
        *raw[at..]
            .first_chunk()
            .expect("offsets are constants inside the record"),
    )
}

fn get64(raw: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(
        *raw[at..]
            .first_chunk()
            .expect("offsets are constants inside the record"),
    )
}

#[cfg(test)]
mod tests {
    use testkit::prng::Prng;

    use super::*;
    use crate::Preset;

    fn header() -> Header {
        Header {
            kind: ImageKind::DataAndOob,
            model: Preset::Tlc
                .model()
                .with_ecc_bits(8)
                .with_pairing(Pairing::Mlc)
                .unwrap(),
            faults: FaultModel {
                seed: 0x0123_4567_89AB_CDEF,
                factory_bad_blocks: 3,
                program_failures_ppm: 4,
                erase_failures_ppm: 5,
                endurance: 6,
                reads_per_bit_flip: 7,
                time_per_bit_flip: Nanos(8),
            },
        }
    }

    fn block() -> BlockState {
        BlockState {
            programmed_bytes: 8192,
            is_bad: false,
            is_half_erased: true,
            torn: Some(TornPage {
                page: Page(1),
                byte: 100,
                is_uncorrectable: true,
            }),
            lost: LostPages::of_places([3, 1, 0, 0]),
            failing: Failing {
                program_at: Some(Page(4)),
                erases: true,
            },
            erases: 5,
            programs: 6,
            reads: 7,
            reads_since_erase: 8,
            programmed_at: Nanos(9),
        }
    }

    #[test]
    fn golden_bytes() {
        let raw = header().encode();
        assert_eq!(&raw[..20], b"TIDENAND\x01\0\0\0\x03\0\0\0\0\x10\0\0");
        assert_eq!(
            raw[20..40],
            [
                [224, 0, 0, 0],
                [0, 16, 0, 0],
                [128, 0, 0, 0],
                [0, 2, 0, 0],
                [8, 0, 0, 0]
            ]
            .concat()
        );
        assert_eq!(raw[72..80], [0xEF, 0xCD, 0xAB, 0x89, 0x67, 0x45, 0x23, 0x01]);
        assert!(raw[108..508].iter().all(|byte| *byte == 0));
        let crc = crc32fast::hash(&raw[..508]);
        assert_eq!(raw[508..], crc.to_le_bytes());
        let raw = encode_block(&block());
        assert_eq!(
            raw[..24],
            [
                [0, 32, 0, 0],
                [14 + 16, 0, 0, 0],
                [1, 0, 0, 0],
                [100, 0, 0, 0],
                [5, 0, 0, 0],
                [8, 0, 0, 0]
            ]
            .concat()
        );
        assert_eq!(raw[48..60], [3, 0, 1, 0, 0, 0, 0, 0, 5, 0, 0, 0]);
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        assert_eq!(Header::decode(&header().encode()), Ok(header()));
        let geometry = header().model.geometry;
        assert_eq!(decode_block(&encode_block(&block()), &geometry), Some(block()));
        let moment = Moment {
            now: Nanos(1),
            image_bytes: 2,
            modified_seconds: -3,
            modified_nanos: 4,
        };
        assert_eq!(Moment::decode(&moment.encode()), Some(moment));
    }

    #[test]
    fn one_flipped_bit_anywhere_is_never_accepted() {
        let (header, block) = (header().encode(), encode_block(&block()));
        let geometry = Preset::Tlc.model().geometry;
        for bit in 0..HEADER_BYTES * 8 {
            let mut raw = header;
            raw[bit / 8] ^= 1 << (bit % 8);
            Header::decode(&raw).expect_err("a damaged header");
        }
        for bit in 0..RECORD_BYTES * 8 {
            let mut raw = block;
            raw[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_block(&raw, &geometry), None, "bit {bit}");
        }
    }

    #[test]
    fn no_bytes_make_the_decoder_panic_or_describe_a_chip_that_can_not_be() {
        let mut prng = Prng::named(1, "sidecar");
        let geometry = Preset::Tlc.model().geometry;
        for round in 0..20_000 {
            let mut raw = header().encode();
            for _ in 0..=prng.below(6) {
                raw[prng.below_usize(120)] = prng.next_u64().to_le_bytes()[0];
            }
            seal(&mut raw);
            if let Ok(header) = Header::decode(&raw) {
                let model = header.model;
                let _ = model.transfer(0, model.geometry.page_bytes());
                assert_eq!(Header::decode(&header.encode()), Ok(header), "round {round}");
            }
            let mut raw = encode_block(&block());
            raw[prng.below_usize(60)] = prng.next_u64().to_le_bytes()[0];
            seal(&mut raw);
            assert!(decode_block(&raw, &geometry).is_none_or(|state| state.fits(&geometry)));
            let length = prng.below_usize(600);
            let _ = Header::decode(&prng.bytes(length));
        }
    }

    #[test]
    fn each_refusal_says_why() {
        let refusal = |change: &dyn Fn(&mut [u8; HEADER_BYTES])| {
            let mut raw = header().encode();
            change(&mut raw);
            seal(&mut raw);
            Header::decode(&raw).unwrap_err().to_string()
        };
        assert!(refusal(&|raw| raw[0] = b'X').contains("no side-car"));
        assert!(refusal(&|raw| raw[8] = 2).contains("version 2, this build reads version 1"));
        assert!(refusal(&|raw| raw[12] = 4).contains("unknown flags 0x4"));
        assert!(refusal(&|raw| raw[16] = 1).contains("a page of 4097 bytes"));
        assert!(refusal(&|raw| raw[47] = 0xFF).contains("longer than a day"));
        assert_eq!(Header::decode(&[0; 5]), Err(SidecarError::Short { found: 5 }));
    }
}
