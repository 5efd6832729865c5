//! From TOML to a plan, with messages that name file, line and key.

mod environment;
mod exhibit;
mod values;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use programs::quantity::parse_duration;
use results::words::{nearest, unknown};
use serde::Deserialize;
use toml::{Table, Value};

use self::environment::{StoredEnvironment, environment};
use self::exhibit::{StoredExhibit, exhibit, plain_exhibit};
use self::values::{axes, first_twice, flattened, values};
use super::{Plan, Run, Variant};

/// Time limit of a cell if the plan has none.
const CELL_TIME: Duration = Duration::from_secs(300);

/// Rounds if the plan has none: the smallest number with an interval of 95 %.
const ROUNDS: u32 = 6;

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
    let names: Vec<&str> = exhibits.iter().map(|exhibit| exhibit.name.as_str()).collect();
    if let Some(name) = first_twice(&names) {
        bail!("exhibit `{name}`: there are two of this name; rename one");
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
                Some(text) => cell_time(text, "run.cell-time")?,
                None => CELL_TIME,
            },
            quick: variant(stored.run.quick).context("run.quick")?,
            full: variant(stored.run.full).context("run.full")?,
        },
        binaries: Vec::new(),
    })
}

/// A time limit of cells.
fn cell_time(text: &str, place: &str) -> Result<Duration> {
    let time = parse_duration(text).map_err(|problem| anyhow!("{place}: {problem}"))?;
    if time.is_zero() {
        bail!("{place}: {text}, expected a time above 0");
    }
    Ok(time)
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
