//! The fastmap: the location of every LEB, written by Linux so that the next attach need not scan the whole chip.
//!
//! It occupies the data area of up to 32 blocks. The first (the anchor, volume [`super::FASTMAP_SUPERBLOCK_VOLUME`])
//! is among the first 64 blocks of the chip; the others belong to volume [`super::FASTMAP_DATA_VOLUME`]. Their
//! concatenated data is: superblock (312 bytes), header (32), two pools of blocks that may have been written since
//! (1048 each), erase counters of free, used, scrub and erase blocks (8 per block), then for each volume a header
//! (32) and its EBA table (8, and 4 per LEB). The CRC in the superblock covers all of it, with its own bytes taken as
//! zero. Byte by byte: `docs/formats/ubi.md`.
//!
//! Linux writes fastmaps; this crate only reads them. [`encode`] exists for tests, which need fastmaps like those of
//! a kernel.

use media::index;

use super::{VolumeKind, be16, be32, crc32, put16, put32};

/// The anchor is in a block below this number.
pub const ANCHOR_PEBS: u32 = 64;

/// Maximum number of blocks of a fastmap.
pub const BLOCKS_MAX: u32 = 32;

/// Size of the superblock in bytes.
pub const SUPERBLOCK_BYTES: usize = 312;

const SUPERBLOCK_MAGIC: u32 = 0x7B11_D69F;
const HEADER_MAGIC: u32 = 0xD4B8_2EF7;
const POOL_MAGIC: u32 = 0x67AF_4D08;
const VOLUME_MAGIC: u32 = 0xFA37_0ED1;
const EBA_MAGIC: u32 = 0xF0C0_40A8;
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 32;
const POOL_BYTES: usize = 1048;
const POOL_PEBS_MAX: u16 = 256;
const WEAR_BYTES: usize = 8;
const VOLUME_BYTES: usize = 32;
const EBA_BYTES: usize = 8;
const BLOCK_LOCATIONS: usize = 16;
const BLOCK_COUNTERS: usize = 144;
const DATA_CRC: usize = 8;
/// Volume kinds use the numbers of Linux's user-space interface here, not those of VID headers and the volume table.
const DYNAMIC: u8 = 3;
const STATIC: u8 = 4;

/// Erase counter of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wear {
    /// Block number.
    pub peb: u32,
    /// Erase counter.
    pub erase_counter: u32,
}

/// A volume and its EBA table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastmapVolume {
    /// Volume number.
    pub volume: u32,
    /// Static or dynamic.
    pub kind: VolumeKind,
    /// Bytes of each LEB left unused by the alignment.
    pub data_padding: u32,
    /// Static volumes: LEBs with data.
    pub used_lebs: u32,
    /// Static volumes: bytes in the last of them.
    pub last_leb_bytes: u32,
    /// The block of each LEB; `None` if it is not mapped.
    pub pebs: Vec<Option<u32>>,
}

/// Blocks that were ready for use when the fastmap was written, so their headers must be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Block numbers.
    pub pebs: Vec<u32>,
    /// Capacity of the pool.
    pub pebs_max: u16,
}

/// A complete fastmap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fastmap {
    /// Blocks of the fastmap itself, the anchor first.
    pub blocks: Vec<Wear>,
    /// Pool for user data.
    pub pool: Pool,
    /// Pool for wear levelling.
    pub wear_levelling_pool: Pool,
    /// Erased blocks.
    pub free: Vec<Wear>,
    /// Blocks with data.
    pub used: Vec<Wear>,
    /// Blocks with data that has bit-flips.
    pub scrub: Vec<Wear>,
    /// Blocks with obsolete data.
    pub erase: Vec<Wear>,
    /// Number of bad blocks.
    pub bad_pebs: u32,
    /// All volumes, including the layout volume.
    pub volumes: Vec<FastmapVolume>,
}

/// Error of decoding a fastmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FastmapError {
    /// Wrong magic number of a structure.
    #[error("{what} at byte {at}: magic number is {found:#010x}, expected {expected:#010x}")]
    Magic {
        /// Name of the structure.
        what: &'static str,
        /// Offset in the fastmap.
        at: usize,
        /// Value found.
        found: u32,
        /// Value expected.
        expected: u32,
    },
    /// Unsupported version.
    #[error("version is {found}, this build reads version {VERSION}")]
    Version {
        /// Version in the superblock.
        found: u8,
    },
    /// CRC mismatch: the fastmap is incomplete or corrupt.
    #[error("CRC is {found:#010x}, but {stored:#010x} is stored in the superblock")]
    Crc {
        /// CRC of the bytes.
        found: u32,
        /// CRC in the superblock.
        stored: u32,
    },
    /// A structure exceeds the fastmap.
    #[error("{what} at byte {at} ends past the {size} bytes of the fastmap")]
    Short {
        /// Name of the structure.
        what: &'static str,
        /// Offset in the fastmap.
        at: usize,
        /// Size of the fastmap in bytes.
        size: usize,
    },
    /// A field has an invalid value.
    #[error("{field} is {found}, expected {expected}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Value found.
        found: u32,
        /// Allowed values.
        expected: &'static str,
    },
}

/// Superblock of a fastmap, read first because it lists the blocks of the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Blocks of the fastmap, the anchor first.
    pub blocks: Vec<Wear>,
    data_crc: u32,
}

impl Superblock {
    /// Decodes the first bytes of the anchor's data. The CRC covers the whole fastmap, so only [`decode`] verifies
    /// it.
    pub fn decode(raw: &[u8]) -> Result<Self, FastmapError> {
        need(raw, 0, SUPERBLOCK_BYTES, "superblock")?;
        magic(raw, 0, SUPERBLOCK_MAGIC, "superblock")?;
        if raw[4] != VERSION {
            return Err(FastmapError::Version { found: raw[4] });
        }
        let used_blocks = be32(raw, 12);
        if !(1..=BLOCKS_MAX).contains(&used_blocks) {
            return Err(FastmapError::Field {
                field: "number of blocks",
                found: used_blocks,
                expected: "1 to 32",
            });
        }
        let count = index(used_blocks);
        let blocks = (0..count)
            .map(|block| Wear {
                peb: be32(raw, BLOCK_LOCATIONS + 4 * block),
                erase_counter: be32(raw, BLOCK_COUNTERS + 4 * block),
            })
            .collect();
        Ok(Self {
            blocks,
            data_crc: be32(raw, DATA_CRC),
        })
    }
}

/// Size of the fastmap of a chip of `pebs` blocks, in bytes, before rounding up to whole LEBs: Linux reserves this
/// size and refuses a fastmap of another size.
#[must_use]
pub fn bytes_for(pebs: u32) -> u64 {
    let fixed = SUPERBLOCK_BYTES + HEADER_BYTES + 2 * POOL_BYTES + EBA_BYTES;
    let fixed = fixed + VOLUME_BYTES * index(super::MAX_VOLUMES);
    u64::try_from(fixed).expect("a few KiB") + u64::from(pebs) * 12
}

/// Collects a fastmap in chunks. Keeps at most the maximum content; the padding only enters the CRC.
#[derive(Debug)]
pub struct Collector {
    kept: Vec<u8>,
    kept_max: usize,
    taken: usize,
    crc: crc32fast::Hasher,
}

impl Collector {
    /// A collector for a chip of `pebs` blocks.
    #[must_use]
    pub fn of_chip(pebs: u32) -> Self {
        let tables = EBA_BYTES * index(super::MAX_VOLUMES);
        Self::keeping(
            usize::try_from(bytes_for(pebs))
                .unwrap_or(usize::MAX)
                .saturating_add(tables),
        )
    }

    fn keeping(kept_max: usize) -> Self {
        Self {
            kept: Vec::with_capacity(kept_max),
            kept_max,
            taken: 0,
            crc: crc32fast::Hasher::new(),
        }
    }

    /// Adds the next bytes.
    pub fn take(&mut self, piece: &[u8]) {
        let left = self.kept_max - self.kept.len();
        self.kept.extend_from_slice(&piece[..left.min(piece.len())]);
        // The CRC field itself counts as zeros.
        let place = |at: usize| at.saturating_sub(self.taken).min(piece.len());
        let (start, end) = (place(DATA_CRC), place(DATA_CRC + 4));
        self.crc.update(&piece[..start]);
        self.crc.update(&[0; 4][..end - start]);
        self.crc.update(&piece[end..]);
        self.taken += piece.len();
    }

    /// Decodes the collected fastmap.
    pub fn finish(self) -> Result<Fastmap, FastmapError> {
        let superblock = Superblock::decode(&self.kept)?;
        let (found, stored) = (!self.crc.finalize(), superblock.data_crc);
        match found == stored {
            true => decode_body(superblock, &self.kept),
            false => Err(FastmapError::Crc { found, stored }),
        }
    }
}

/// Decodes a whole fastmap from the concatenated data of its blocks.
pub fn decode(raw: &[u8]) -> Result<Fastmap, FastmapError> {
    let mut collector = Collector::keeping(raw.len());
    collector.take(raw);
    collector.finish()
}

fn decode_body(superblock: Superblock, raw: &[u8]) -> Result<Fastmap, FastmapError> {
    let mut reader = Reader {
        raw,
        at: SUPERBLOCK_BYTES,
    };
    let header = reader.take(HEADER_BYTES, Some(HEADER_MAGIC), "header")?;
    let (free, used, scrub) = (be32(header, 4), be32(header, 8), be32(header, 12));
    let (bad_pebs, erase, volumes) = (be32(header, 16), be32(header, 20), be32(header, 24));
    let pool = reader.pool()?;
    let wear_levelling_pool = reader.pool()?;
    let mut map = Fastmap {
        blocks: superblock.blocks,
        pool,
        wear_levelling_pool,
        free: reader.wears(free)?,
        used: reader.wears(used)?,
        scrub: reader.wears(scrub)?,
        erase: reader.wears(erase)?,
        bad_pebs,
        volumes: Vec::new(),
    };
    for _ in 0..volumes {
        map.volumes.push(reader.volume()?);
    }
    Ok(map)
}

/// Encodes `map`, padded with zeros to `bytes`.
///
/// # Panics
/// If `map` does not fit into `bytes`, or violates a limit of the format.
#[must_use]
pub fn encode(map: &Fastmap, bytes: usize) -> Vec<u8> {
    let mut raw = vec![0; SUPERBLOCK_BYTES];
    put32(&mut raw, 0, SUPERBLOCK_MAGIC);
    raw[4] = VERSION;
    put32(&mut raw, 12, count(map.blocks.len()));
    for (block, wear) in map.blocks.iter().enumerate() {
        put32(&mut raw, BLOCK_LOCATIONS + 4 * block, wear.peb);
        put32(&mut raw, BLOCK_COUNTERS + 4 * block, wear.erase_counter);
    }
    let counts = [
        count(map.free.len()),
        count(map.used.len()),
        count(map.scrub.len()),
        map.bad_pebs,
        count(map.erase.len()),
        count(map.volumes.len()),
        0,
    ];
    extend32(&mut raw, &[HEADER_MAGIC]);
    extend32(&mut raw, &counts);
    for pool in [&map.pool, &map.wear_levelling_pool] {
        let start = raw.len();
        raw.resize(start + POOL_BYTES, 0);
        put32(&mut raw, start, POOL_MAGIC);
        let size = u16::try_from(pool.pebs.len()).expect("at most 256");
        put16(&mut raw, start + 4, size);
        put16(&mut raw, start + 6, pool.pebs_max);
        for (place, peb) in pool.pebs.iter().enumerate() {
            put32(&mut raw, start + 8 + 4 * place, *peb);
        }
    }
    for wear in [&map.free, &map.used, &map.scrub, &map.erase]
        .into_iter()
        .flatten()
    {
        extend32(&mut raw, &[wear.peb, wear.erase_counter]);
    }
    for volume in &map.volumes {
        let kind = u32::from(match volume.kind {
            VolumeKind::Dynamic => DYNAMIC,
            VolumeKind::Static => STATIC,
        }) << 24;
        extend32(
            &mut raw,
            &[VOLUME_MAGIC, volume.volume, kind, volume.data_padding],
        );
        extend32(&mut raw, &[volume.used_lebs, volume.last_leb_bytes, 0, 0]);
        extend32(&mut raw, &[EBA_MAGIC, count(volume.pebs.len())]);
        let pebs: Vec<u32> = volume.pebs.iter().map(|peb| peb.unwrap_or(u32::MAX)).collect();
        extend32(&mut raw, &pebs);
    }
    assert!(raw.len() <= bytes, "{} bytes do not fit {bytes}", raw.len());
    raw.resize(bytes, 0);
    let crc = crc32(&raw);
    put32(&mut raw, DATA_CRC, crc);
    raw
}

fn extend32(raw: &mut Vec<u8>, values: &[u32]) {
    raw.extend(values.iter().flat_map(|value| value.to_be_bytes()));
}

fn count(length: usize) -> u32 {
    u32::try_from(length).expect("no more than there are blocks")
}

fn need(raw: &[u8], at: usize, bytes: usize, what: &'static str) -> Result<(), FastmapError> {
    let fits = at.checked_add(bytes).is_some_and(|end| end <= raw.len());
    fits.then_some(()).ok_or(FastmapError::Short {
        what,
        at,
        size: raw.len(),
    })
}

fn magic(raw: &[u8], at: usize, expected: u32, what: &'static str) -> Result<(), FastmapError> {
    let found = be32(raw, at);
    (found == expected).then_some(()).ok_or(FastmapError::Magic {
        what,
        at,
        found,
        expected,
    })
}

/// Reads one structure after another. Every count is checked against the bytes left before any allocation.
struct Reader<'a> {
    raw: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(
        &mut self,
        bytes: usize,
        expected: Option<u32>,
        what: &'static str,
    ) -> Result<&'a [u8], FastmapError> {
        need(self.raw, self.at, bytes, what)?;
        if let Some(expected) = expected {
            magic(self.raw, self.at, expected, what)?;
        }
        let taken = &self.raw[self.at..self.at + bytes];
        self.at += bytes;
        Ok(taken)
    }

    fn pool(&mut self) -> Result<Pool, FastmapError> {
        let raw = self.take(POOL_BYTES, Some(POOL_MAGIC), "pool")?;
        let (size, pebs_max) = (be16(raw, 4), be16(raw, 6));
        for (field, found) in [("size of a pool", size), ("largest size of a pool", pebs_max)] {
            if found > POOL_PEBS_MAX {
                return Err(FastmapError::Field {
                    field,
                    found: u32::from(found),
                    expected: "at most 256",
                });
            }
        }
        let pebs = (0..usize::from(size))
            .map(|place| be32(raw, 8 + 4 * place))
            .collect();
        Ok(Pool { pebs, pebs_max })
    }

    fn wears(&mut self, entries: u32) -> Result<Vec<Wear>, FastmapError> {
        let bytes = index(entries).saturating_mul(WEAR_BYTES);
        let raw = self.take(bytes, None, "list of erase counters")?;
        let wear = |raw: &[u8]| Wear {
            peb: be32(raw, 0),
            erase_counter: be32(raw, 4),
        };
        Ok(raw.chunks_exact(WEAR_BYTES).map(wear).collect())
    }

    fn volume(&mut self) -> Result<FastmapVolume, FastmapError> {
        let header = self.take(VOLUME_BYTES, Some(VOLUME_MAGIC), "header of a volume")?;
        let kind = match header[8] {
            DYNAMIC => VolumeKind::Dynamic,
            STATIC => VolumeKind::Static,
            other => {
                return Err(FastmapError::Field {
                    field: "kind of a volume",
                    found: u32::from(other),
                    expected: "3 or 4",
                });
            }
        };
        let table = self.take(EBA_BYTES, Some(EBA_MAGIC), "EBA table")?;
        let bytes = index(be32(table, 4)).saturating_mul(4);
        let raw = self.take(bytes, None, "entries of an EBA table")?;
        // Linux treats every negative (signed) number as "not mapped".
        let mapped = |raw: &[u8]| Some(be32(raw, 0)).filter(|peb| *peb <= 0x7FFF_FFFF);
        Ok(FastmapVolume {
            volume: be32(header, 4),
            kind,
            data_padding: be32(header, 12),
            used_lebs: be32(header, 16),
            last_leb_bytes: be32(header, 20),
            pebs: raw.chunks_exact(4).map(mapped).collect(),
        })
    }
}
