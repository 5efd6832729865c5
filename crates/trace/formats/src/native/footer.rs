//! The footer of a table: read, walked once without its decoder, then decoded and compared with the table.

use parquet::errors::ParquetError;
use parquet::file::metadata::{FooterTail, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::Length;

use super::footer_walk::Walk;
use super::table_file::TableFile;

/// A footer has some 5 KB for each row group of this crate's tables, which have up to 262,144 rows, and these are at most 32,767.
const FOOTER_BYTES_MAX: usize = 192 << 20;

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
            "its footer is said to have {length} bytes, at most {FOOTER_BYTES_MAX} are read: fewer and larger row groups have a \
             smaller one"
        )));
    }
    let mut footer = vec![0; length];
    file.read_exact_at(&mut footer, start)?;
    Walk::over(&footer).file().ok_or_else(|| {
        wrong(
            "its footer is not well-formed, is nested too deeply, or has too many columns or row groups"
                .to_owned(),
        )
    })?;
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
}
