//! The footer of a table: read, walked once without its decoder, then decoded and compared with the table.
//!
//! The crate parquet reserves memory for as many row groups and columns as a footer claims, and descends once for each
//! level of its schema. Neither a failed allocation nor an overflow of the stack is a panic, so a footer is walked
//! before: it is a structure of Thrift's compact protocol (`FileMetaData` of parquet.thrift).

use parquet::errors::ParquetError;
use parquet::file::metadata::{FooterTail, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::Length;

use super::table_file::TableFile;

/// A footer has some 5 KB for each row group of this crate's tables, which have up to 100,000 rows.
const FOOTER_BYTES_MAX: usize = 256 << 20;
/// Levels of a schema; tables of traces have one.
const SCHEMA_LEVELS_MAX: usize = 64;
/// Levels of structures and lists within each other; Parquet has nine.
const LEVELS_MAX: u32 = 32;
/// Fewest bytes of a row group with a column.
const ROW_GROUP_BYTES_LEAST: usize = 16;

/// Reads, checks and decodes the footer of a table.
pub fn read(file: &TableFile) -> Result<ParquetMetaData, ParquetError> {
    let bytes = file.len();
    let short = || ParquetError::EOF(format!("a table of {bytes} bytes has no footer"));
    let mut tail = [0; 8];
    let tail_at = bytes.checked_sub(8).ok_or_else(short)?;
    file.read_exact_at(&mut tail, tail_at)?;
    let length = FooterTail::try_new(&tail)?.metadata_length();
    let start = u64::try_from(length)
        .ok()
        .and_then(|length| tail_at.checked_sub(length))
        .ok_or_else(short)?;
    if length > FOOTER_BYTES_MAX {
        return Err(wrong(format!(
            "its footer is said to have {length} bytes, at most {FOOTER_BYTES_MAX} are read"
        )));
    }
    let mut footer = vec![0; length];
    file.read_exact_at(&mut footer, start)?;
    Walk(&footer)
        .file()
        .ok_or_else(|| wrong("its footer is not well-formed, or nested too deeply".to_owned()))?;
    let metadata = ParquetMetaDataReader::decode_metadata(&footer)?;
    check(bytes, &metadata)?;
    Ok(metadata)
}

const fn wrong(problem: String) -> ParquetError {
    ParquetError::General(problem)
}

/// Checks that columns lie within the table and have as many values as their row group has rows, and that the row groups
/// have the rows of the table, because the decoder trusts the footer.
fn check(bytes: u64, metadata: &ParquetMetaData) -> Result<(), ParquetError> {
    let table_bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let mut rows = Some(0_i64);
    for (number, group) in metadata.row_groups().iter().enumerate() {
        if group.num_rows() < 0 {
            let count = group.num_rows();
            return Err(wrong(format!("row group {number} is said to have {count} rows")));
        }
        rows = rows.and_then(|rows| rows.checked_add(group.num_rows()));
        for column in group.columns() {
            let path = column.column_path();
            let has_lists = column.column_descr().max_rep_level() > 0;
            if !has_lists && column.num_values() != group.num_rows() {
                return Err(wrong(format!(
                    "column {path} is said to have {} values in a row group of {} rows",
                    column.num_values(),
                    group.num_rows()
                )));
            }
            if group.num_rows() == 0 {
                // Never opened; some writers leave its places at 0.
                continue;
            }
            let start = column
                .dictionary_page_offset()
                .unwrap_or(column.data_page_offset());
            let end = start.checked_add(column.compressed_size());
            let is_inside = start >= 0
                && column.data_page_offset() >= start
                && column.compressed_size() >= 0
                && end.is_some_and(|end| end <= table_bytes);
            if !is_inside {
                return Err(wrong(format!(
                    "column {path} is said to have {} bytes at {start}, its values at {}, of a table of {table_bytes}",
                    column.compressed_size(),
                    column.data_page_offset()
                )));
            }
        }
    }
    let told = metadata.file_metadata().num_rows();
    if rows != Some(told) {
        let found = rows.map_or("more than 2^63".to_owned(), |rows| rows.to_string());
        return Err(wrong(format!(
            "it is said to have {told} rows, its row groups have {found}"
        )));
    }
    Ok(())
}

/// Types of Thrift's compact protocol.
mod kind {
    pub const TRUE: u8 = 1;
    pub const FALSE: u8 = 2;
    pub const BYTE: u8 = 3;
    pub const I16: u8 = 4;
    pub const I32: u8 = 5;
    pub const I64: u8 = 6;
    pub const DOUBLE: u8 = 7;
    pub const BINARY: u8 = 8;
    pub const LIST: u8 = 9;
    pub const SET: u8 = 10;
    pub const MAP: u8 = 11;
    pub const STRUCT: u8 = 12;
}

/// The bytes of a footer that are not walked yet. Each step returns `None` where the footer ends within it.
struct Walk<'a>(&'a [u8]);

impl Walk<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn pass(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }

    /// The number and type of the next field behind that of number `last`; an inner `None` at the end of the structure.
    fn field(&mut self, last: &mut i64) -> Option<Option<u8>> {
        let head = self.byte()?;
        if head == 0 {
            return Some(None);
        }
        *last = match i64::from(head >> 4) {
            0 => {
                let number = i64::try_from(self.number()?).ok()?;
                (number >> 1) ^ -(number & 1)
            }
            step => last.checked_add(step)?,
        };
        Some(Some(head & 0xf))
    }

    /// The type and number of elements of a list, each of which has at least `least` bytes.
    fn list(&mut self, least: usize) -> Option<(u8, usize)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => usize::try_from(self.number()?).ok()?,
            count => usize::from(count),
        };
        let is_possible = count.checked_mul(least)? <= self.0.len();
        is_possible.then_some((head & 0xf, count))
    }

    /// A value of this type, at this level.
    fn value(&mut self, of: u8, level: u32) -> Option<()> {
        let inner = level + 1;
        match of {
            _ if level > LEVELS_MAX => None,
            kind::TRUE | kind::FALSE => Some(()),
            kind::BYTE => self.pass(1),
            kind::I16 | kind::I32 | kind::I64 => self.number().map(drop),
            kind::DOUBLE => self.pass(8),
            kind::BINARY => {
                let bytes = usize::try_from(self.number()?).ok()?;
                self.pass(bytes)
            }
            kind::LIST | kind::SET => {
                let (of, count) = self.list(1)?;
                (0..count).try_for_each(|_| self.element(of, inner))
            }
            kind::MAP => {
                let count = self.number()?;
                if count == 0 {
                    return Some(());
                }
                let types = self.byte()?;
                (0..count).try_for_each(|_| {
                    self.element(types >> 4, inner)?;
                    self.element(types & 0xf, inner)
                })
            }
            kind::STRUCT => {
                let mut last = 0;
                while let Some(of) = self.field(&mut last)? {
                    self.value(of, inner)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    /// A value in a list, where truth has a byte.
    fn element(&mut self, of: u8, level: u32) -> Option<()> {
        match of {
            kind::TRUE | kind::FALSE => self.pass(1),
            other => self.value(other, level),
        }
    }

    /// The whole footer.
    fn file(mut self) -> Option<()> {
        const SCHEMA: i64 = 2;
        const ROW_GROUPS: i64 = 4;
        let mut last = 0;
        while let Some(of) = self.field(&mut last)? {
            match (last, of) {
                (SCHEMA, kind::LIST) => self.schema()?,
                (ROW_GROUPS, kind::LIST) => {
                    let (of, count) = self.list(ROW_GROUP_BYTES_LEAST)?;
                    (0..count).try_for_each(|_| self.element(of, 1))?;
                }
                _ => self.value(of, 1)?,
            }
        }
        Some(())
    }

    /// The list of a schema's elements, a tree in which each comes before its children.
    fn schema(&mut self) -> Option<()> {
        let (of, count) = self.list(1)?;
        if of != kind::STRUCT {
            return None;
        }
        // Children that are still to come, at each level.
        let mut open: Vec<usize> = Vec::new();
        for left in (0..count).rev() {
            let children = usize::try_from(self.schema_element()?).ok()?;
            if children > left {
                return None;
            }
            if let Some(siblings) = open.last_mut() {
                *siblings = siblings.checked_sub(1)?;
            }
            open.push(children);
            if open.len() > SCHEMA_LEVELS_MAX {
                return None;
            }
            while open.last() == Some(&0) {
                open.pop();
            }
        }
        Some(())
    }

    /// Number of children of an element.
    fn schema_element(&mut self) -> Option<u64> {
        const CHILDREN: i64 = 5;
        let (mut last, mut children) = (0, 0);
        while let Some(of) = self.field(&mut last)? {
            if (last, of) == (CHILDREN, kind::I32) {
                // Zigzag; no negative number.
                let number = self.number()?;
                children = (number & 1 == 0).then_some(number >> 1)?;
            } else {
                self.value(of, 2)?;
            }
        }
        Some(children)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::basic::Type as PhysicalType;
    use parquet::file::metadata::{ColumnChunkMetaData, FileMetaData, RowGroupMetaData};
    use parquet::schema::types::{SchemaDescriptor, Type};

    use super::*;

    /// A table of one column: rows in all, and of its row groups, whose values are said to be at `values_at`.
    fn table(rows: i64, groups: &[i64], values_at: i64) -> ParquetMetaData {
        let column = Type::primitive_type_builder("id", PhysicalType::INT64).build();
        let root = Type::group_type_builder("schema").with_fields(vec![Arc::new(column.unwrap())]);
        let schema = Arc::new(SchemaDescriptor::new(Arc::new(root.build().unwrap())));
        let group = |rows: i64| {
            let column = ColumnChunkMetaData::builder(schema.column(0))
                .set_num_values(rows)
                .set_dictionary_page_offset(Some(4))
                .set_data_page_offset(values_at)
                .set_total_compressed_size(15);
            let group = RowGroupMetaData::builder(schema.clone()).set_num_rows(rows);
            group
                .set_column_metadata(vec![column.build().unwrap()])
                .build()
                .unwrap()
        };
        let groups = groups.iter().map(|rows| group(*rows)).collect();
        ParquetMetaData::new(
            FileMetaData::new(2, rows, None, None, schema.clone(), None),
            groups,
        )
    }

    #[test]
    fn row_groups_have_the_rows_of_the_table() {
        check(100, &table(5, &[2, 3], 4)).unwrap();
        check(100, &table(0, &[], 4)).unwrap();
        for wrong in [
            table(5, &[2, 2], 4),
            table(5, &[], 4),
            table(-5, &[-5], 4),
            table(0, &[5, -5], 4),
        ] {
            check(100, &wrong).unwrap_err();
        }
    }

    /// As pyarrow writes them.
    #[test]
    fn a_row_group_without_rows_may_have_its_values_nowhere() {
        check(100, &table(5, &[0, 5, 0], 4)).unwrap();
        check(100, &table(0, &[0], 0)).unwrap();
        let error = check(100, &table(5, &[5], 0)).unwrap_err().to_string();
        assert!(error.contains("15 bytes at 4, its values at 0"), "{error}");
    }

    /// A schema of this many elements within each other.
    fn nested(groups: usize) -> Vec<u8> {
        let head = [0x29, 0xfc];
        let count = [groups & 0x7f | 0x80, groups >> 7].map(|byte| u8::try_from(byte).expect("few"));
        // Field 4, a name of one letter; field 5, one child.
        let group = [0x48, 1, b'a', 0x15, 2, 0];
        let last = [0x48, 1, b'a', 0];
        [&head[..], &count, &group.repeat(groups - 1), &last, &[0]].concat()
    }

    #[test]
    fn a_schema_may_have_levels_but_not_thousands() {
        assert!(Walk(&nested(SCHEMA_LEVELS_MAX)).file().is_some());
        assert!(Walk(&nested(SCHEMA_LEVELS_MAX + 1)).file().is_none());
        assert!(Walk(&nested(10_000)).file().is_none());
    }

    #[test]
    fn a_list_has_no_more_elements_than_bytes_behind_it() {
        // Field 4, a list of structures, 2^31 - 1 of them.
        assert!(Walk(&[0x49, 0xfc, 0xff, 0xff, 0xff, 0xff, 7, 0]).file().is_none());
        assert!(Walk(&[0x49, 0x0c, 0]).file().is_some());
    }

    #[test]
    fn an_element_has_no_more_children_than_elements_behind_it() {
        let mut schema = nested(3);
        // The children of the second one.
        let at = schema.len() - 7;
        assert_eq!(schema[at..at + 2], [2, 0]);
        schema[at] = 4;
        assert!(Walk(&schema).file().is_none());
    }

    #[test]
    fn structures_within_each_other_end() {
        let deep = [vec![0x1c; 100], vec![0; 101]].concat();
        assert!(Walk(&deep).file().is_none());
        let few = [vec![0x1c; 20], vec![0; 21]].concat();
        assert!(Walk(&few).file().is_some());
    }
}
