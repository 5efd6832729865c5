//! Compares two reports: rows matched by their keys, numbers with their ratio or difference.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::report::Report;
use crate::table::{Column, Table, Unit, Value};
use ::report::number;

/// Analyses that can't be compared: their keys are ids and times.
const NOT_COMPARED: [&str; 2] = ["traces", "throughput"];

/// A comparison of two reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Names of the traces of the first.
    pub first: Vec<String>,
    /// Names of the traces of the second.
    pub second: Vec<String>,
    /// Limitations of each report.
    pub warnings: Vec<String>,
    /// One table for each analysis that either report has.
    pub tables: Vec<ComparedTable>,
}

/// An analysis of both reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedTable {
    /// Name of the analysis.
    pub name: String,
    /// Heading.
    pub title: String,
    /// Columns of the key.
    pub key: Vec<Column>,
    /// Columns of numbers; each row has a [`ComparedValue`] for each.
    pub columns: Vec<Column>,
    /// Rows of either report: in the order of the first, then those that only the second has.
    pub rows: Vec<ComparedRow>,
}

/// A row of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedRow {
    /// Its key.
    pub key: Vec<Value>,
    /// Numbers of both.
    pub values: Vec<ComparedValue>,
}

/// A number of both.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ComparedValue {
    /// Value in the first report.
    pub first: Option<f64>,
    /// Value in the second report.
    pub second: Option<f64>,
    /// Ratio of second to first; for shares the difference instead. `None` if it has no meaning.
    pub change: Option<f64>,
}

impl Comparison {
    /// Compares the tables of two reports.
    #[must_use]
    pub fn of(first: &Report, second: &Report) -> Self {
        let names = |report: &Report| report.traces.iter().map(crate::StoredTrace::name).collect();
        let mut order: Vec<&str> = first.tables.iter().map(|table| table.name.as_str()).collect();
        for table in &second.tables {
            if !order.contains(&table.name.as_str()) {
                order.push(&table.name);
            }
        }
        let tables = order
            .into_iter()
            .filter(|name| !NOT_COMPARED.contains(name))
            .filter_map(|name| compared(first.table(name), second.table(name)))
            .collect();
        Self {
            first: names(first),
            second: names(second),
            warnings: first.warnings().into_iter().chain(second.warnings()).collect(),
            tables,
        }
    }

    /// Tables for a terminal.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("A: {}\nB: {}\n", self.first.join(", "), self.second.join(", "));
        for warning in &self.warnings {
            text += &format!("  - {warning}\n");
        }
        for table in &self.tables {
            text += &format!("\n{}  [{}]\n{}", table.title, table.name, table.to_text());
        }
        text
    }
}

impl ComparedTable {
    fn to_text(&self) -> String {
        let mut columns: Vec<::report::Column> = self.key.iter().map(Column::shown).collect();
        for column in &self.columns {
            let change = if column.unit == Unit::Share { "B-A" } else { "B/A" };
            columns.push(::report::Column::right(&format!("A {}", column.title())));
            columns.push(::report::Column::right("B"));
            columns.push(::report::Column::right(change));
        }
        let rows: Vec<Vec<String>> = self.rows.iter().map(|row| self.shown(row)).collect();
        crate::text::limited(&columns, &rows)
    }

    fn shown(&self, row: &ComparedRow) -> Vec<String> {
        let keys = row.key.iter().zip(&self.key);
        let mut cells: Vec<String> = keys.map(|(value, column)| value.shown(column.unit)).collect();
        for (value, column) in row.values.iter().zip(&self.columns) {
            let shown = |number: Option<f64>| number.map_or(Value::Null, Value::Real).shown(column.unit);
            cells.push(shown(value.first));
            cells.push(shown(value.second));
            cells.push(match (value.change, column.unit) {
                (None, _) => "-".to_owned(),
                (Some(change), Unit::Share) => format!("{:+.1}", change * 100.0),
                (Some(change), _) => number::ratio(change),
            });
        }
        cells
    }
}

fn compared(first: Option<&Table>, second: Option<&Table>) -> Option<ComparedTable> {
    let model = first.or(second)?;
    let key: Vec<Column> = model
        .columns
        .iter()
        .filter(|column| column.key)
        .cloned()
        .collect();
    let columns: Vec<Column> = model
        .columns
        .iter()
        .filter(|column| !column.key && column.unit != Unit::Text)
        .cloned()
        .collect();
    let mut seen = BTreeSet::new();
    let mut rows = Vec::new();
    for table in [first, second].into_iter().flatten() {
        for row in &table.rows {
            let key_values = key_of(table, row);
            let name = format!("{key_values:?}");
            if seen.insert(name) {
                let values = columns
                    .iter()
                    .map(|column| value_of(first, second, &key_values, column))
                    .collect();
                rows.push(ComparedRow {
                    key: key_values,
                    values,
                });
            }
        }
    }
    Some(ComparedTable {
        name: model.name.clone(),
        title: model.title.clone(),
        key,
        columns,
        rows,
    })
}

fn key_of(table: &Table, row: &[Value]) -> Vec<Value> {
    let cells = table.columns.iter().zip(row);
    cells
        .filter(|(column, _)| column.key)
        .map(|(_, value)| value.clone())
        .collect()
}

fn value_of(first: Option<&Table>, second: Option<&Table>, key: &[Value], column: &Column) -> ComparedValue {
    let number = |table: Option<&Table>| {
        let table = table?;
        let row = table.rows.iter().position(|row| key_of(table, row) == key)?;
        table.value(row, &column.name)?.number()
    };
    let (first, second) = (number(first), number(second));
    let change = match (first, second) {
        (Some(first), Some(second)) if column.unit == Unit::Share => Some(second - first),
        (Some(first), Some(second)) if first != 0.0 => Some(second / first),
        _ => None,
    };
    ComparedValue {
        first,
        second,
        change,
    }
}
