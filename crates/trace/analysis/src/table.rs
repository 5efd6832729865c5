//! Tables: results of analyses, with units in the names of their columns.
//!
//! A column's unit follows from its name's ending, in SQL as here: `_ns` is a duration, `bytes` a size, `_share` a part
//! of 1; other numbers are counts. So a new analysis is formatted correctly without code.

use ::report::{Align, number};
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::arrow::error::ArrowError;
use results::nearest_f64;
use serde::{Serialize, Serializer};

use crate::text;

/// Unit of the numbers in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Names.
    Text,
    /// A count.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
    /// A part of 1.
    Share,
    /// A number that is an identifier: a sector, a command.
    Label,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Name in SQL.
    pub name: String,
    /// Unit of its values.
    pub unit: Unit,
    /// Whether it is part of the row's key.
    pub key: bool,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// None.
    Null,
    /// A text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Real(f64),
    /// Yes or no.
    Boolean(bool),
}

/// The result of an analysis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// Name of the analysis, or `query`.
    pub name: String,
    /// Heading.
    pub title: String,
    /// The quantity counted, and its rule.
    pub about: String,
    /// Columns; those of the key come first.
    pub columns: Vec<Column>,
    /// Rows, each with a value for each column.
    pub rows: Vec<Vec<Value>>,
}

impl Unit {
    fn of(name: &str, data_type: &DataType) -> Self {
        let number = data_type.is_numeric();
        if !number {
            Self::Text
        } else if name.ends_with("_ns") {
            Self::Nanoseconds
        } else if name.ends_with("bytes") {
            Self::Bytes
        } else if name.ends_with("_share") {
            Self::Share
        } else if name.ends_with("sector")
            || matches!(name, "command" | "inode" | "generation" | "pid" | "tid" | "id")
        {
            Self::Label
        } else {
            Self::Count
        }
    }

    /// Alignment of a value in its column.
    #[must_use]
    pub const fn align(self) -> Align {
        match self {
            Self::Text => Align::Left,
            Self::Count | Self::Bytes | Self::Nanoseconds | Self::Share | Self::Label => Align::Right,
        }
    }
}

impl Column {
    /// Heading: the name in words, without the unit, which the values show themselves.
    #[must_use]
    pub fn title(&self) -> String {
        let name = match self.unit {
            Unit::Nanoseconds => self.name.strip_suffix("_ns").unwrap_or(&self.name),
            _ => &self.name,
        };
        let name = name.replace("p99_9", "p99.9").replace('_', " ");
        match self.unit {
            Unit::Share => name.replace("share", "%"),
            _ => name,
        }
    }
}

impl Column {
    pub(crate) fn shown(&self) -> ::report::Column {
        match self.unit.align() {
            Align::Left => ::report::Column::left(&self.title()),
            Align::Right => ::report::Column::right(&self.title()),
        }
    }
}

impl Value {
    /// The number, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(value) => Some(real(*value)),
            Self::Real(value) => Some(*value),
            Self::Null | Self::Text(_) | Self::Boolean(_) => None,
        }
    }

    /// The value formatted in its unit.
    #[must_use]
    pub fn shown(&self, unit: Unit) -> String {
        match self {
            Self::Null => "-".to_owned(),
            Self::Text(text) => text.clone(),
            Self::Boolean(value) => value.to_string(),
            Self::Integer(value) => match (unit, u64::try_from(*value)) {
                (Unit::Label, _) => value.to_string(),
                (Unit::Bytes, Ok(bytes)) => number::bytes(bytes),
                (Unit::Nanoseconds, Ok(time_ns)) => number::duration_ns(time_ns),
                _ => number::count(real(*value)),
            },
            Self::Real(value) => match unit {
                Unit::Share => format!("{:.1}", value * 100.0),
                Unit::Nanoseconds => number::duration_ns(rounded(*value)),
                Unit::Bytes => number::bytes(rounded(*value)),
                Unit::Text | Unit::Count | Unit::Label => number::significant(*value),
            },
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_none(),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Integer(value) => serializer.serialize_i64(*value),
            Self::Real(value) => serializer.serialize_f64(*value),
            Self::Boolean(value) => serializer.serialize_bool(*value),
        }
    }
}

impl Table {
    /// The value in a row of the column with this name.
    #[must_use]
    pub fn value(&self, row: usize, column: &str) -> Option<&Value> {
        let index = self.columns.iter().position(|known| known.name == column)?;
        self.rows.get(row)?.get(index)
    }

    /// The first row whose leading columns contain these texts.
    #[must_use]
    pub fn row_of(&self, key: &[&str]) -> Option<usize> {
        self.rows.iter().position(|row| {
            key.iter()
                .zip(row)
                .all(|(wanted, value)| matches!(value, Value::Text(text) if text == wanted))
        })
    }

    /// The number in the first row whose leading columns contain these texts.
    #[must_use]
    pub fn number(&self, key: &[&str], column: &str) -> Option<f64> {
        self.value(self.row_of(key)?, column)?.number()
    }

    /// The complete table for a terminal.
    #[must_use]
    pub fn to_text(&self) -> String {
        text::plain(self)
    }

    /// Columns with their headings for output.
    pub(crate) fn shown_columns(&self) -> Vec<::report::Column> {
        self.columns.iter().map(Column::shown).collect()
    }

    /// Rows as text, values in their units.
    pub(crate) fn shown_rows(&self) -> Vec<Vec<String>> {
        let shown = |row: &Vec<Value>| {
            let cells = row.iter().zip(&self.columns);
            cells.map(|(value, column)| value.shown(column.unit)).collect()
        };
        self.rows.iter().map(shown).collect()
    }
}

/// The rows of a batch.
pub(crate) fn rows_of(batch: &RecordBatch) -> Result<Vec<Vec<Value>>, ArrowError> {
    let columns = batch.columns().iter().map(|column| values(column.as_ref()));
    let mut columns: Vec<_> = columns
        .map(|values| values.map(Vec::into_iter))
        .collect::<Result<_, _>>()?;
    let row = |_| {
        columns
            .iter_mut()
            .map(|column| column.next().unwrap_or(Value::Null))
            .collect()
    };
    Ok((0..batch.num_rows()).map(row).collect())
}

/// Memory of a row that is kept until it is displayed: each value, its text before and after it is shortened, and its
/// place in the printed text.
pub(crate) fn row_bytes(row: &[Value]) -> usize {
    let bytes = |value: &Value| {
        let text = match value {
            Value::Text(text) => text.len(),
            Value::Null | Value::Integer(_) | Value::Real(_) | Value::Boolean(_) => 16,
        };
        size_of::<Value>() + 2 * size_of::<String>() + 4 * text.next_multiple_of(16)
    };
    3 * size_of::<Vec<Value>>() + row.iter().map(bytes).sum::<usize>()
}

pub(crate) fn columns_of(schema: &datafusion::arrow::datatypes::Schema, key: &[String]) -> Vec<Column> {
    schema
        .fields()
        .iter()
        .map(|field| Column {
            name: field.name().clone(),
            unit: Unit::of(field.name(), field.data_type()),
            key: key.contains(field.name()),
        })
        .collect()
}

/// The values of one array, whatever its type.
fn values(array: &dyn Array) -> Result<Vec<Value>, ArrowError> {
    let data_type = array.data_type();
    let or_null = |value: Option<Value>| value.unwrap_or(Value::Null);
    if *data_type == DataType::Boolean {
        let typed = array.as_boolean();
        return Ok(typed
            .iter()
            .map(|value| or_null(value.map(Value::Boolean)))
            .collect());
    }
    if data_type.is_integer() {
        let typed = cast(array, &DataType::Int64)?;
        let typed = typed.as_primitive::<Int64Type>();
        return Ok(typed
            .iter()
            .map(|value| or_null(value.map(Value::Integer)))
            .collect());
    }
    if data_type.is_numeric() {
        let typed = cast(array, &DataType::Float64)?;
        let typed = typed.as_primitive::<Float64Type>();
        return Ok(typed
            .iter()
            .map(|value| or_null(value.map(Value::Real)))
            .collect());
    }
    let typed = cast(array, &DataType::Utf8)?;
    let typed = typed.as_string::<i32>();
    let text = |value: Option<&str>| or_null(value.map(|text| Value::Text(text.to_owned())));
    Ok(typed.iter().map(text).collect())
}

fn real(value: i64) -> f64 {
    let size = nearest_f64(value.unsigned_abs());
    if value < 0 { -size } else { size }
}

/// Rounds a size or duration for display.
fn rounded(value: f64) -> u64 {
    // By formatting and parsing: there is no lossless conversion, and this is not on a hot path.
    format!("{:.0}", value.max(0.0)).parse().unwrap_or(0)
}
