//! Codecs of the LPT's nodes and tables. Bit tables: `docs/formats/ubifs.md`.

use thiserror::Error;

use super::bits::{BitReader, BitWriter, crc16};
use super::geometry::{FANOUT, LptGeometry};
use crate::space::LebSpace;

const TYPE_LEAF: u32 = 0;
const TYPE_INNER: u32 = 1;
const TYPE_TABLE: u32 = 2;
const TYPE_SAVED: u32 = 3;

/// Location of a node of the LPT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LptPlace {
    /// LEB number relative to the LPT area.
    pub(crate) leb: u32,
    pub(crate) offset: u32,
}

/// Space of one LEB of the LPT area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableSpace {
    pub(crate) free: u32,
    pub(crate) dirty: u32,
}

/// Why a part of the LPT is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LptDefect {
    /// The bytes end early.
    #[error("it is cut off")]
    Short,
    /// The CRC does not match.
    #[error("CRC-16 is {found:#06x}, it says {stored:#06x}")]
    Crc {
        /// CRC stored.
        stored: u16,
        /// CRC of the bytes.
        found: u16,
    },
    /// Another type than expected.
    #[error("type is {found}, expected is {expected}")]
    Type {
        /// Type found.
        found: u32,
        /// Type expected.
        expected: u32,
    },
    /// Another node of the tree than expected.
    #[error("number is {found}, expected is {expected}")]
    Number {
        /// Number found.
        found: u32,
        /// Number expected.
        expected: u32,
    },
    /// A field has an impossible value.
    #[error("{0}")]
    Field(&'static str),
}

/// Prepends the CRC.
fn seal(writer: BitWriter) -> Vec<u8> {
    let body = writer.finish();
    let mut raw = crc16(&body).to_le_bytes().to_vec();
    raw.extend_from_slice(&body);
    raw
}

fn open(raw: &[u8], bytes: u32, kind: u32) -> Result<BitReader<'_>, LptDefect> {
    let bytes = usize::try_from(bytes).map_err(|_| LptDefect::Short)?;
    let raw = raw.get(..bytes).ok_or(LptDefect::Short)?;
    let (stored, body) = raw.split_first_chunk::<2>().ok_or(LptDefect::Short)?;
    let (stored, found) = (u16::from_le_bytes(*stored), crc16(body));
    if stored != found {
        return Err(LptDefect::Crc { stored, found });
    }
    let mut reader = BitReader::new(body);
    match reader.get(4).ok_or(LptDefect::Short)? {
        found if found == kind => Ok(reader),
        found => Err(LptDefect::Type {
            found,
            expected: kind,
        }),
    }
}

impl LptGeometry {
    fn put_number(&self, writer: &mut BitWriter, number: u32) {
        if self.input.big {
            writer.put(number, self.number_bits);
        }
    }

    fn check_number(&self, reader: &mut BitReader<'_>, expected: u32) -> Result<(), LptDefect> {
        if !self.input.big {
            return Ok(());
        }
        let found = reader.get(self.number_bits).ok_or(LptDefect::Short)?;
        match found == expected {
            true => Ok(()),
            false => Err(LptDefect::Number { found, expected }),
        }
    }

    /// Encodes the leaf of four LEBs. LEBs past the last one are encoded as empty, since the file system may grow.
    pub(crate) fn encode_leaf(&self, number: u32, lebs: &[LebSpace]) -> Vec<u8> {
        let mut writer = BitWriter::default();
        writer.put(TYPE_LEAF, 4);
        self.put_number(&mut writer, number);
        for place in 0..crate::scan::to_usize(FANOUT) {
            let space = lebs
                .get(place)
                .copied()
                .unwrap_or(LebSpace::empty(self.input.leb_bytes));
            writer.put(space.free >> 3, self.space_bits);
            writer.put(space.dirty >> 3, self.space_bits);
            writer.put(u32::from(space.index), 1);
        }
        seal(writer)
    }

    pub(crate) fn decode_leaf(&self, raw: &[u8], number: u32) -> Result<[LebSpace; 4], LptDefect> {
        let mut reader = open(raw, self.leaf_bytes, TYPE_LEAF)?;
        self.check_number(&mut reader, number)?;
        let mut lebs = [LebSpace::empty(self.input.leb_bytes); 4];
        for space in &mut lebs {
            let mut get = |bits| reader.get(bits).ok_or(LptDefect::Short);
            *space = LebSpace {
                free: get(self.space_bits)? << 3,
                dirty: get(self.space_bits)? << 3,
                index: get(1)? == 1,
            };
            if space.free.saturating_add(space.dirty) > self.input.leb_bytes {
                return Err(LptDefect::Field("free and dirty space are more than a LEB"));
            }
        }
        Ok(lebs)
    }

    pub(crate) fn encode_inner(&self, number: u32, children: [Option<LptPlace>; 4]) -> Vec<u8> {
        let mut writer = BitWriter::default();
        writer.put(TYPE_INNER, 4);
        self.put_number(&mut writer, number);
        for child in children {
            // No child: the LEB behind the area.
            let place = child.unwrap_or(LptPlace {
                leb: self.input.lpt_lebs,
                offset: 0,
            });
            writer.put(place.leb, self.lpt_leb_bits);
            writer.put(place.offset, self.offset_bits);
        }
        seal(writer)
    }

    pub(crate) fn decode_inner(&self, raw: &[u8], number: u32) -> Result<[Option<LptPlace>; 4], LptDefect> {
        let mut reader = open(raw, self.inner_bytes, TYPE_INNER)?;
        self.check_number(&mut reader, number)?;
        let mut children = [None; 4];
        for child in &mut children {
            let leb = reader.get(self.lpt_leb_bits).ok_or(LptDefect::Short)?;
            let offset = reader.get(self.offset_bits).ok_or(LptDefect::Short)?;
            *child = (leb < self.input.lpt_lebs).then_some(LptPlace { leb, offset });
        }
        Ok(children)
    }

    /// Encodes the LEB table (ltab) of the LPT area.
    pub(crate) fn encode_table(&self, table: &[TableSpace]) -> Vec<u8> {
        let mut writer = BitWriter::default();
        writer.put(TYPE_TABLE, 4);
        for space in table {
            writer.put(space.free, self.table_space_bits);
            writer.put(space.dirty, self.table_space_bits);
        }
        seal(writer)
    }

    pub(crate) fn decode_table(&self, raw: &[u8]) -> Result<Vec<TableSpace>, LptDefect> {
        let mut reader = open(raw, self.table_bytes, TYPE_TABLE)?;
        let mut table = Vec::new();
        for _ in 0..self.input.lpt_lebs {
            let mut get = || reader.get(self.table_space_bits).ok_or(LptDefect::Short);
            let space = TableSpace {
                free: get()?,
                dirty: get()?,
            };
            if space.free.saturating_add(space.dirty) > self.input.leb_bytes {
                return Err(LptDefect::Field("free and dirty space are more than a LEB"));
            }
            table.push(space);
        }
        Ok(table)
    }

    /// Encodes the save table (lsave): LEBs of the main area that a mount should read early.
    pub(crate) fn encode_saved(&self, lebs: &[u32]) -> Vec<u8> {
        let mut writer = BitWriter::default();
        writer.put(TYPE_SAVED, 4);
        for leb in lebs {
            writer.put(*leb, self.leb_bits);
        }
        seal(writer)
    }

    #[cfg(test)]
    pub(crate) fn decode_saved(&self, raw: &[u8]) -> Result<Vec<u32>, LptDefect> {
        let mut reader = open(raw, self.saved_bytes, TYPE_SAVED)?;
        (0..self.input.saved_lebs)
            .map(|_| reader.get(self.leb_bits).ok_or(LptDefect::Short))
            .collect()
    }
}
