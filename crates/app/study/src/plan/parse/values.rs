//! Axes and their values in tables of a plan.

use anyhow::{Context, Result, bail};
use results::words::unknown;
use toml::{Table, Value};

use crate::plan::{AXES, PREFIXES, Values};

/// Checks the names of axes.
fn check_axis(axis: &str, place: &str) -> Result<()> {
    if AXES.contains(&axis) || PREFIXES.iter().any(|prefix| axis.starts_with(prefix)) {
        return Ok(());
    }
    let known = [&AXES[..], &["mount.FLAG", "workload.FLAG"]].concat();
    bail!("{place}: {}", unknown(axis, &known))
}

pub fn values(table: &Table, place: &str) -> Result<Values> {
    let values: Values = flattened(table, place)?.into_iter().collect();
    for axis in values.keys() {
        check_axis(axis, place)?;
    }
    Ok(values)
}

pub fn axes(table: &Table, place: &str) -> Result<Vec<(String, Vec<String>)>> {
    let mut axes = Vec::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) => {
                let prefixed = inner.iter().map(|(name, value)| (format!("{key}.{name}"), value));
                for (axis, value) in prefixed {
                    axes.push((axis.clone(), texts(value, &format!("{place}.{axis}"))?));
                }
            }
            _ => axes.push((key.clone(), texts(value, &format!("{place}.{key}"))?)),
        }
    }
    for (axis, values) in &axes {
        check_axis(axis, place)?;
        if values.is_empty() {
            bail!("{place}.{axis}: no value; name at least one");
        }
        if let Some(value) = first_twice(values) {
            bail!("{place}.{axis}: `{value}` twice; name each value once");
        }
    }
    Ok(axes)
}

/// The first element that an earlier one equals.
pub fn first_twice<T: PartialEq>(all: &[T]) -> Option<&T> {
    let earlier = |(place, one): &(usize, &T)| all[..*place].contains(one);
    all.iter().enumerate().find(earlier).map(|(_, one)| one)
}

fn texts(value: &Value, place: &str) -> Result<Vec<String>> {
    let entries = value
        .as_array()
        .with_context(|| format!("{place}: {}, expected a list", value.type_str()))?;
    entries.iter().map(|entry| text(entry, place)).collect()
}

fn text(value: &Value, place: &str) -> Result<String> {
    Ok(match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(is_on) => is_on.to_string(),
        _ => bail!(
            "{place}: {}, expected a text, a number, true or false",
            value.type_str()
        ),
    })
}

/// The entries of a table, those of tables within it with their names joined by a point.
pub fn flattened(table: &Table, place: &str) -> Result<Vec<(String, String)>> {
    let mut entries = Vec::new();
    for (key, value) in table {
        let place = format!("{place}.{key}");
        match value {
            Value::Table(inner) => {
                let inner = flattened(inner, &place)?;
                entries.extend(
                    inner
                        .into_iter()
                        .map(|(name, value)| (format!("{key}.{name}"), value)),
                );
            }
            _ => entries.push((key.clone(), text(value, &place)?)),
        }
    }
    Ok(entries)
}
