//! A table as a JSON document, written row by row: the same text as that of a [`Table`] in memory.

use crate::table::{Table, Value};

/// A document whose end is not written.
pub struct JsonDocument {
    /// The document of the table without rows, up to the first row; taken with the first rows.
    head: String,
    rows: u64,
}

impl JsonDocument {
    /// The document of a table without rows.
    pub fn new(empty: Table) -> Self {
        debug_assert!(empty.rows.is_empty(), "rows are written by `rows`");
        let mut head =
            serde_json::to_string(&empty).expect("a table has no keys but the names of its fields");
        // `rows` is the last field, and an empty list.
        head.truncate(head.len() - "]}".len());
        Self { head, rows: 0 }
    }

    /// The text of the next rows.
    pub fn rows(&mut self, rows: &[Vec<Value>]) -> String {
        let mut text = std::mem::take(&mut self.head);
        for row in rows {
            if self.rows > 0 {
                text.push(',');
            }
            text += &serde_json::to_string(row).expect("values are no objects");
            self.rows += 1;
        }
        text
    }

    /// The text of the end.
    pub fn end(self) -> String {
        self.head + "]}\n"
    }
}
