//! From TOML to a plan, with messages that name file, line and key.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use programs::quantity::{parse_bytes, parse_duration};
use results::words::{nearest, unknown};
use serde::Deserialize;
use toml::{Table, Value};

use super::{
    AXES, Basis, Calibration, Claim, Device, Environment, Exhibit, PREFIXES, Plan, Quantity, Run, TimeScale,
    Values, Variant,
};

/// Time limit of a cell if the plan has none.
const CELL_TIME: Duration = Duration::from_secs(300);

/// Rounds if the plan has none: the smallest number with an interval of 95 %.
const ROUNDS: u32 = 6;

/// Accepted distance from the number of a calibration.
const TOLERANCE: f64 = 0.02;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StoredPlan {
    name: String,
    environment: StoredEnvironment,
    #[serde(default)]
    defaults: Table,
    #[serde(default)]
    setting: BTreeMap<String, Table>,
    #[serde(default)]
    axes: Table,
    #[serde(default)]
    workload: Table,
    #[serde(default)]
    exhibit: Vec<StoredExhibit>,
    #[serde(default)]
    run: StoredRun,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StoredEnvironment {
    device: String,
    time_scale: Option<Value>,
    calibrate: Option<StoredCalibration>,
    dirty_limit: Option<String>,
    size: Option<String>,
    #[serde(default)]
    destroy_data: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StoredCalibration {
    cell: Table,
    target: f64,
    tolerance: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StoredExhibit {
    name: String,
    #[serde(default)]
    title: String,
    x: String,
    series: Option<String>,
    y: Option<String>,
    #[serde(default)]
    axes: Table,
    #[serde(default, rename = "where")]
    fixed: Table,
    #[serde(default)]
    claim: Vec<StoredClaim>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StoredClaim {
    sentence: String,
    #[serde(default)]
    cell: Table,
    of: Option<Table>,
    paper: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    #[serde(default)]
    calibrated: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StoredRun {
    rounds: Option<u32>,
    cell_time: Option<String>,
    #[serde(default)]
    quick: StoredVariant,
    #[serde(default)]
    full: StoredVariant,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StoredVariant {
    rounds: Option<u32>,
    size: Option<String>,
    #[serde(default)]
    only: Vec<String>,
}

/// Parses a plan.
pub fn parse(source: &str, text: &str) -> Result<Plan> {
    let stored: StoredPlan = toml::from_str(text).map_err(|error| syntax(source, text, &error))?;
    let whole: Table = toml::from_str(text).map_err(|error| syntax(source, text, &error))?;
    plain(&Value::Table(whole), "").with_context(|| source.to_owned())?;
    plan(stored).with_context(|| source.to_owned())
}

/// Refuses control characters: names and values become arguments, and lines of tables and of terminals.
fn plain(value: &Value, place: &str) -> Result<()> {
    let check = |text: &str| match text.chars().find(|character| character.is_control()) {
        Some(found) => {
            bail!("{place}: {text:?}: expected a line of text, found the control character {found:?}")
        }
        None => Ok(()),
    };
    match value {
        Value::String(text) => check(text),
        Value::Array(values) => values.iter().try_for_each(|value| plain(value, place)),
        Value::Table(table) => table.iter().try_for_each(|(key, value)| {
            check(key)?;
            plain(value, format!("{place}.{key}").trim_start_matches('.'))
        }),
        _ => Ok(()),
    }
}

/// The decoder's message with its line and, for an unknown key, the one most likely meant.
fn syntax(source: &str, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let line = error.span().map_or(1, |span| {
        1 + text[..span.start.min(text.len())].matches('\n').count()
    });
    let message = error.message();
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let hint = match words.split_first() {
        Some((found, known)) if message.starts_with("unknown field") => nearest(found, known),
        _ => None,
    };
    let hint = hint.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    anyhow!("{source}:{line}: {message}{hint}")
}

fn plan(stored: StoredPlan) -> Result<Plan> {
    let mut defaults = values(&stored.defaults, "defaults")?;
    for (key, value) in flattened(&stored.workload, "workload")? {
        defaults.insert(format!("workload.{key}"), value);
    }
    let mut settings = BTreeMap::new();
    for (name, table) in &stored.setting {
        settings.insert(name.clone(), values(table, &format!("setting.{name}"))?);
    }
    let axes = axes(&stored.axes, "axes")?;
    let mut exhibits = Vec::new();
    for stored in stored.exhibit {
        let name = stored.name.clone();
        exhibits.push(exhibit(stored, &axes).with_context(|| format!("exhibit `{name}`"))?);
    }
    if exhibits.is_empty() {
        exhibits = plain_exhibit(&axes)?;
    }
    let known: Vec<&str> = settings.keys().map(String::as_str).collect();
    for exhibit in &exhibits {
        let named = exhibit.axes.iter().filter(|(axis, _)| axis == "setting");
        let named = named.flat_map(|(_, names)| names);
        for name in named.chain(exhibit.fixed.get("setting")) {
            if !known.contains(&name.as_str()) {
                bail!("exhibit `{}`: setting {}", exhibit.name, unknown(name, &known));
            }
        }
    }
    let rounds = stored.run.rounds.unwrap_or(ROUNDS);
    if rounds == 0 {
        bail!("run.rounds: 0, expected at least 1");
    }
    Ok(Plan {
        name: stored.name,
        environment: environment(stored.environment)?,
        defaults,
        settings,
        exhibits,
        run: Run {
            rounds,
            cell_time: match &stored.run.cell_time {
                Some(text) => parse_duration(text).map_err(|problem| anyhow!("run.cell-time: {problem}"))?,
                None => CELL_TIME,
            },
            quick: variant(stored.run.quick).context("run.quick")?,
            full: variant(stored.run.full).context("run.full")?,
        },
        binaries: Vec::new(),
    })
}

fn variant(stored: StoredVariant) -> Result<Variant> {
    if stored.rounds == Some(0) {
        bail!("rounds: 0, expected at least 1");
    }
    Ok(Variant {
        rounds: stored.rounds,
        size: stored.size,
        only: stored.only,
        binaries: Vec::new(),
    })
}

fn environment(stored: StoredEnvironment) -> Result<Environment> {
    let bytes = |text: &Option<String>, key: &str| {
        let parsed = text.as_deref().map(parse_bytes).transpose();
        parsed.map_err(|problem| anyhow!("environment.{key}: {problem}"))
    };
    let device = match stored.device.split_once(':') {
        Some(("card", name)) if !name.is_empty() => Device::Card(name.to_owned()),
        Some(("directory", path)) if !path.is_empty() => Device::Directory(PathBuf::from(path)),
        None if stored.device == "image" => Device::Image,
        None if stored.device.starts_with("/dev/") => Device::Block(PathBuf::from(&stored.device)),
        _ => bail!(
            "environment.device: `{}`, expected card:NAME, image, /dev/NAME or directory:PATH",
            stored.device
        ),
    };
    if matches!(device, Device::Block(_)) && !stored.destroy_data {
        bail!(
            "environment.device: everything on {} would be overwritten; if that is wanted, add destroy-data = true",
            stored.device
        );
    }
    let time_scale = time_scale(stored.time_scale.as_ref(), stored.calibrate)?;
    if time_scale != TimeScale::Fixed(1.0) && !matches!(device, Device::Card(_)) {
        bail!(
            "environment.time-scale: only a card has one, and the device is `{}`",
            stored.device
        );
    }
    Ok(Environment {
        device,
        time_scale,
        dirty_limit: bytes(&stored.dirty_limit, "dirty-limit")?,
        size: bytes(&stored.size, "size")?,
        destroy_data: stored.destroy_data,
    })
}

fn time_scale(value: Option<&Value>, calibration: Option<StoredCalibration>) -> Result<TimeScale> {
    let number = match value {
        None => 1.0,
        Some(Value::Float(number)) => *number,
        Some(Value::Integer(number)) => number.to_string().parse()?,
        Some(Value::String(word)) if word == "calibrate" => {
            let stored =
                calibration.context("environment.calibrate: missing, but time-scale is \"calibrate\"")?;
            if !(stored.target > 0.0 && stored.target < 1.0) {
                bail!(
                    "environment.calibrate.target: {}, expected a share between 0 and 1",
                    stored.target
                );
            }
            return Ok(TimeScale::Calibrate(Calibration {
                cell: values(&stored.cell, "environment.calibrate.cell")?,
                target: stored.target,
                tolerance: stored.tolerance.unwrap_or(TOLERANCE),
            }));
        }
        Some(Value::String(word)) => {
            bail!("environment.time-scale: `{word}`, expected a number or `calibrate`")
        }
        Some(other) => bail!(
            "environment.time-scale: {}, expected a number or `calibrate`",
            other.type_str()
        ),
    };
    if !(number.is_finite() && number > 0.0) {
        bail!("environment.time-scale: {number}, expected a number above 0");
    }
    Ok(TimeScale::Fixed(number))
}

fn exhibit(stored: StoredExhibit, general: &[(String, Vec<String>)]) -> Result<Exhibit> {
    let mut axes = axes(&stored.axes, "axes")?;
    let fixed = values(&stored.fixed, "where")?;
    let is_new = |axis: &String| !fixed.contains_key(axis) && !axes.iter().any(|(own, _)| own == axis);
    let inherited: Vec<_> = general.iter().filter(|(axis, _)| is_new(axis)).cloned().collect();
    axes.extend(inherited);
    for axis in [Some(&stored.x), stored.series.as_ref()].into_iter().flatten() {
        if !axes.iter().any(|(own, _)| own == axis) {
            let known: Vec<&str> = axes.iter().map(|(own, _)| own.as_str()).collect();
            bail!("x or series: {}", unknown(axis, &known));
        }
    }
    let y = match stored.y.as_deref() {
        None | Some("mb-per-s") => Quantity::Throughput,
        Some("share-of-max") => Quantity::ShareOfMax,
        Some("layout") => Quantity::Layout,
        Some(name) if name.contains('_') => Quantity::Counter(name.to_owned()),
        Some(other) => {
            bail!("y: `{other}`, expected mb-per-s, share-of-max, layout or the name of a counter")
        }
    };
    let claims = stored.claim.into_iter().map(claim).collect::<Result<_>>()?;
    Ok(Exhibit {
        title: stored.title,
        name: stored.name,
        x: stored.x,
        series: stored.series,
        y,
        axes,
        fixed,
        claims,
    })
}

fn claim(stored: StoredClaim) -> Result<Claim> {
    if stored.low.is_none() && stored.high.is_none() {
        bail!("claim `{}`: neither low nor high", stored.sentence);
    }
    let bounds = [stored.low, stored.high, stored.paper];
    let (low, high) = (stored.low.unwrap_or(f64::MIN), stored.high.unwrap_or(f64::MAX));
    if bounds.iter().flatten().any(|bound| !bound.is_finite()) || low > high {
        bail!(
            "claim `{}`: low {low} and high {high}, expected finite numbers, low not above high",
            stored.sentence
        );
    }
    Ok(Claim {
        cell: values(&stored.cell, "claim.cell")?,
        of: stored.of.map(|table| values(&table, "claim.of")).transpose()?,
        sentence: stored.sentence,
        paper: stored.paper,
        low: stored.low,
        high: stored.high,
        basis: if stored.calibrated {
            Basis::Calibrated
        } else {
            Basis::Predicted
        },
    })
}

/// The exhibit of a plan without any: all cells, along its first axis.
fn plain_exhibit(axes: &[(String, Vec<String>)]) -> Result<Vec<Exhibit>> {
    let Some((first, others)) = axes.split_first() else {
        bail!("neither [axes] nor [[exhibit]]: there is nothing to measure");
    };
    Ok(vec![Exhibit {
        name: "all cells".to_owned(),
        title: String::new(),
        x: first.0.clone(),
        series: others.first().map(|(axis, _)| axis.clone()),
        y: Quantity::Throughput,
        axes: axes.to_vec(),
        fixed: Values::new(),
        claims: Vec::new(),
    }])
}

/// Checks the names of axes.
fn check_axis(axis: &str, place: &str) -> Result<()> {
    if AXES.contains(&axis) || PREFIXES.iter().any(|prefix| axis.starts_with(prefix)) {
        return Ok(());
    }
    let known = [&AXES[..], &["mount.FLAG", "workload.FLAG"]].concat();
    bail!("{place}: {}", unknown(axis, &known))
}

fn values(table: &Table, place: &str) -> Result<Values> {
    let values: Values = flattened(table, place)?.into_iter().collect();
    for axis in values.keys() {
        check_axis(axis, place)?;
    }
    Ok(values)
}

fn axes(table: &Table, place: &str) -> Result<Vec<(String, Vec<String>)>> {
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
    }
    Ok(axes)
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
fn flattened(table: &Table, place: &str) -> Result<Vec<(String, String)>> {
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
