//! The volume table: up to 128 records of 172 bytes, one per volume, written as a whole into both LEBs of the layout
//! volume.
//!
//! | bytes    | field         | meaning                                                                       |
//! |----------|---------------|-------------------------------------------------------------------------------|
//! | 0..4     | reserved PEBs | blocks reserved for the volume; 0: no such volume                             |
//! | 4..8     | alignment     | the LEB size is a multiple of it                                              |
//! | 8..12    | data padding  | LEB size of the device modulo alignment                                       |
//! | 12       | kind          | 1 dynamic, 2 static                                                           |
//! | 13       | update marker | 1 from the start of an update to its end: the content is neither old nor new  |
//! | 14..16   | name length   | 1 to 127                                                                      |
//! | 16..144  | name          | zero-padded                                                                   |
//! | 144      | flags         | 1 autoresize at the next attach, 2 don't check CRCs of a static volume        |
//! | 168..172 | CRC-32        | of bytes 0..168                                                               |
//!
//! Other bytes are written as zero. An empty record is zero except for its CRC. Spec: `docs/formats/ubi.md`.

use super::{MAX_VOLUMES, VolumeKind, be16, be32, crc32, put, put16, put32};

/// Record size in bytes.
pub const RECORD_BYTES: usize = 172;

/// Maximum length of a volume name in bytes.
pub const NAME_BYTES_MAX: usize = 127;

const CRC_OFFSET: usize = 168;
const NAME: std::ops::Range<usize> = 16..144;
const FLAG_AUTORESIZE: u8 = 1;
const FLAG_SKIP_CHECK: u8 = 2;

/// Record of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Blocks reserved for the volume, used or not: its size in LEBs.
    pub reserved_pebs: u32,
    /// The LEB size is a multiple of this.
    pub alignment: u32,
    /// Bytes of each LEB left unused by the alignment.
    pub data_padding: u32,
    /// Static or dynamic.
    pub kind: VolumeKind,
    /// An update began and was not completed.
    pub update_marker: bool,
    /// Volume name.
    pub name: VolumeName,
    /// The volume grows into all free blocks at the next attach.
    pub autoresize: bool,
    /// Skip the CRC check when this static volume is opened.
    pub skip_check: bool,
}

/// Name of a volume: 1 to 127 bytes without a zero byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeName(Vec<u8>);

impl VolumeName {
    /// Returns `None` if the name is empty, longer than 127 bytes, or contains a zero byte.
    #[must_use]
    pub fn new(name: &[u8]) -> Option<Self> {
        let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(&0);
        fits.then(|| Self(name.to_vec()))
    }

    /// The bytes of the name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Display for VolumeName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0.escape_ascii().to_string())
    }
}

impl std::fmt::Debug for VolumeName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "\"{self}\"")
    }
}

/// Reason why a copy of the volume table can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The LEB is shorter than the table.
    #[error("it has {found} bytes, expected {expected}")]
    Short {
        /// Bytes found.
        found: usize,
        /// Size of the table in bytes.
        expected: usize,
    },
    /// CRC mismatch of a record.
    #[error("CRC of record {record} is {found:#010x}, but {stored:#010x} is stored in it")]
    Crc {
        /// Record number.
        record: u32,
        /// CRC of the bytes.
        found: u32,
        /// CRC stored in the record.
        stored: u32,
    },
    /// A record contradicts itself, the device or another record.
    #[error("record {record}: {field} is {found}, expected {expected}")]
    Field {
        /// Record number.
        record: u32,
        /// Name of the field.
        field: &'static str,
        /// Value found.
        found: u64,
        /// Allowed values.
        expected: &'static str,
    },
}

/// Properties of a device that limit the records of its volume table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimits {
    /// LEB size in bytes.
    pub leb_bytes: u32,
    /// Write unit in bytes.
    pub min_io_bytes: u32,
    /// Good blocks of the device.
    pub good_pebs: u32,
}

impl TableLimits {
    /// Number of records of the table: as many as fit a LEB, at most 128.
    #[must_use]
    pub fn slots(&self) -> u32 {
        let record = u32::try_from(RECORD_BYTES).expect("172 fits");
        (self.leb_bytes / record).min(MAX_VOLUMES)
    }
}

/// A volume table: record `n` describes volume `n`.
pub type VolumeTable = Vec<Option<VolumeRecord>>;

/// Decodes a table with the number of records given by `limits`, and checks it by the rules of Linux.
pub fn decode(raw: &[u8], limits: &TableLimits) -> Result<VolumeTable, TableError> {
    let slots = usize::try_from(limits.slots()).expect("at most 128");
    let expected = slots * RECORD_BYTES;
    if raw.len() < expected {
        return Err(TableError::Short {
            found: raw.len(),
            expected,
        });
    }
    let table: VolumeTable = (0..)
        .zip(raw[..expected].chunks_exact(RECORD_BYTES))
        .map(|(number, record)| decode_record(number, record, limits))
        .collect::<Result<_, _>>()?;
    check_names(&table)?;
    Ok(table)
}

/// Decodes each record by itself, for readers that go on past damage. Records behind the end of `raw` are left out.
#[must_use]
pub fn decode_records(raw: &[u8], limits: &TableLimits) -> Vec<Result<Option<VolumeRecord>, TableError>> {
    (0..limits.slots())
        .zip(raw.chunks_exact(RECORD_BYTES))
        .map(|(number, record)| decode_record(number, record, limits))
        .collect()
}

/// Encodes `table`.
#[must_use]
pub fn encode(table: &[Option<VolumeRecord>]) -> Vec<u8> {
    let mut raw = vec![0; table.len() * RECORD_BYTES];
    for (record, raw) in table.iter().zip(raw.chunks_exact_mut(RECORD_BYTES)) {
        if let Some(record) = record {
            encode_record(record, raw);
        }
        let crc = crc32(&raw[..CRC_OFFSET]);
        put32(raw, CRC_OFFSET, crc);
    }
    raw
}

fn encode_record(record: &VolumeRecord, raw: &mut [u8]) {
    put32(raw, 0, record.reserved_pebs);
    put32(raw, 4, record.alignment);
    put32(raw, 8, record.data_padding);
    raw[12] = record.kind.to_byte();
    raw[13] = u8::from(record.update_marker);
    let name = record.name.as_bytes();
    let length = u16::try_from(name.len()).expect("a name has at most 127 bytes");
    put16(raw, 14, length);
    put(raw, NAME.start, name);
    let autoresize = if record.autoresize { FLAG_AUTORESIZE } else { 0 };
    let skip_check = if record.skip_check { FLAG_SKIP_CHECK } else { 0 };
    raw[144] = autoresize | skip_check;
}

fn decode_record(number: u32, raw: &[u8], limits: &TableLimits) -> Result<Option<VolumeRecord>, TableError> {
    let (found, stored) = (crc32(&raw[..CRC_OFFSET]), be32(raw, CRC_OFFSET));
    if found != stored {
        return Err(TableError::Crc {
            record: number,
            found,
            stored,
        });
    }
    let refuse = |field, found: u64, expected| TableError::Field {
        record: number,
        field,
        found,
        expected,
    };
    let reserved_pebs = be32(raw, 0);
    if reserved_pebs == 0 {
        return match raw[..CRC_OFFSET].iter().position(|byte| *byte != 0) {
            None => Ok(None),
            Some(at) => Err(refuse("a byte of an empty record", u64::from(raw[at]), "0")),
        };
    }
    let alignment = be32(raw, 4);
    if alignment == 0 || alignment > limits.leb_bytes {
        return Err(refuse("alignment", u64::from(alignment), "from 1 to a LEB"));
    }
    if alignment != 1 && !alignment.is_multiple_of(limits.min_io_bytes) {
        return Err(refuse(
            "alignment",
            u64::from(alignment),
            "1, or a multiple of the smallest unit of writing",
        ));
    }
    let data_padding = be32(raw, 8);
    if data_padding != limits.leb_bytes % alignment {
        return Err(refuse(
            "data padding",
            u64::from(data_padding),
            "LEB size modulo alignment",
        ));
    }
    if reserved_pebs > limits.good_pebs {
        return Err(refuse(
            "reserved PEBs",
            u64::from(reserved_pebs),
            "at most the good blocks of the device",
        ));
    }
    Ok(Some(VolumeRecord {
        reserved_pebs,
        alignment,
        data_padding,
        kind: VolumeKind::from_byte(raw[12]).ok_or(refuse("kind", u64::from(raw[12]), "1 or 2"))?,
        update_marker: match raw[13] {
            0 => false,
            1 => true,
            other => return Err(refuse("update marker", u64::from(other), "0 or 1")),
        },
        name: decode_name(raw, &refuse)?,
        autoresize: raw[144] & FLAG_AUTORESIZE != 0,
        skip_check: raw[144] & FLAG_SKIP_CHECK != 0,
    }))
}

fn decode_name(
    raw: &[u8],
    refuse: &dyn Fn(&'static str, u64, &'static str) -> TableError,
) -> Result<VolumeName, TableError> {
    let length = usize::from(be16(raw, 14));
    let wrong = |expected| refuse("name length", u64::from(be16(raw, 14)), expected);
    if length > NAME_BYTES_MAX {
        return Err(wrong("at most 127"));
    }
    let name = &raw[NAME][..length];
    VolumeName::new(name).ok_or_else(|| wrong("the bytes of the name before its first zero byte"))
}

fn check_names(table: &[Option<VolumeRecord>]) -> Result<(), TableError> {
    for (number, record) in (0..).zip(table) {
        let twin = record.as_ref().and_then(|record| {
            (0_u64..number)
                .zip(table)
                .find(|(_, other)| other.as_ref().is_some_and(|other| other.name == record.name))
        });
        if let Some((other, _)) = twin {
            return Err(TableError::Field {
                record: u32::try_from(number).expect("at most 128 records"),
                field: "name",
                found: other,
                expected: "a name of its own (found: the record that has the same)",
            });
        }
    }
    Ok(())
}
