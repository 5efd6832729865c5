//! The volume table, read record by record: a damaged record of one copy is replaced by that of another.

use ubi::format::volume_table::{self, RECORD_BYTES, TableError, TableLimits, VolumeRecord};
use ubi::format::{LAYOUT_VOLUME, LAYOUT_VOLUME_LEBS, MAX_VOLUMES};

use crate::blocks::Block;
use crate::dump::Dump;
use crate::finding::{Finding, What};
use crate::shape::Shape;

/// The records of the volume table.
#[derive(Debug)]
pub(crate) struct Tables {
    /// One for each possible volume; `None` if there is none, or if it can't be read.
    pub records: Vec<Option<VolumeRecord>>,
    /// Volumes whose records can be read and say that there is no volume.
    unlisted: Vec<bool>,
}

impl Tables {
    /// Whether the table says that there is no volume with this number.
    pub(crate) fn is_unlisted(&self, volume: u32) -> bool {
        let place = usize::try_from(volume).ok();
        place
            .and_then(|place| self.unlisted.get(place))
            .is_some_and(|is_unlisted| *is_unlisted)
    }
}

/// A record of a copy; `None` for an empty one.
type Record = Result<Option<VolumeRecord>, TableError>;

/// Reads the volume table from the blocks of the layout volume.
pub(crate) fn read(dump: &Dump, shape: &Shape, blocks: &[Block], findings: &mut Vec<Finding>) -> Tables {
    let limits = TableLimits {
        leb_bytes: shape.leb_bytes(),
        min_io_bytes: 1,
        good_pebs: u32::MAX,
    };
    let slots = usize::try_from(MAX_VOLUMES).expect("128 fits");
    let mut copies: Vec<(u32, u64, i64, Vec<Record>)> = Vec::new();
    for block in blocks {
        let Some(vid) = block.vid.filter(|vid| vid.volume == LAYOUT_VOLUME) else {
            continue;
        };
        let bytes = usize::try_from(limits.slots()).unwrap_or(0) * RECORD_BYTES;
        let mut raw = vec![0; bytes];
        shape.read(dump, block.at, shape.data_offset, &mut raw);
        let records = volume_table::decode_records(&raw, &limits);
        if records.iter().any(Result::is_ok) {
            copies.push((vid.leb, vid.sequence_number, block.at, records));
        }
    }
    // The newest block of each LEB, LEB 0 first; after them the older ones.
    copies.sort_by_key(|(leb, sequence, at, _)| (*leb, std::cmp::Reverse(*sequence), *at));
    let is_newest = |place: usize| place == 0 || copies[place - 1].0 != copies[place].0;
    let mut order: Vec<usize> = (0..copies.len()).collect();
    order.sort_by_key(|place| !is_newest(*place));
    let at = |at: i64| Some(dump.base() + u64::try_from(at.max(0)).unwrap_or(0));
    if copies.is_empty() {
        findings.push(Finding::new(
            blocks.first().and_then(|block| at(block.at)),
            What::NoTable,
        ));
    } else {
        for copy in (0..LAYOUT_VOLUME_LEBS).filter(|copy| copies.iter().all(|(leb, ..)| leb != copy)) {
            findings.push(Finding::new(None, What::TableCopy { copy }));
        }
    }
    let mut tables = Tables {
        records: vec![None; slots],
        unlisted: vec![false; slots],
    };
    for slot in 0..slots {
        let mut first_error = None;
        for place in &order {
            let (_, _, block, records) = &copies[*place];
            match records.get(slot) {
                Some(Ok(record)) => {
                    tables.records[slot].clone_from(record);
                    tables.unlisted[slot] = record.is_none();
                    first_error = None;
                    break;
                }
                Some(Err(error)) => {
                    first_error.get_or_insert((*error, *block));
                }
                None => tables.unlisted[slot] = true,
            }
        }
        if let Some((error, block)) = first_error {
            findings.push(Finding::new(at(block), What::TableRecord(error)));
        }
    }
    tables
}
