//! The axes of a race, and the plan that they make of a workload.

use anyhow::{Context, Result, bail};
use results::words::unknown;
use toml::Table;

use super::Source;
use crate::check;

/// An axis of a race: a short name, and the values of an axis of the plan.
struct Axis {
    name: &'static str,
    /// The axis of the plan.
    key: &'static str,
    values: &'static [&'static str],
    /// It needs a device, where file systems are made.
    needs_device: bool,
    /// Values that keep acknowledged or synced data less safe, with the reason.
    unsafe_values: &'static [(&'static str, &'static str)],
}

/// Lost by a kill of the daemon.
const LOST_BY_KILL: &str = "data that was written and not synced is lost if the daemon is killed";

const AXES: [Axis; 11] = [
    Axis {
        name: "fs",
        key: "fs",
        values: &["ext4", "xfs", "btrfs", "f2fs"],
        needs_device: true,
        unsafe_values: &[],
    },
    Axis {
        name: "scheduler",
        key: "scheduler",
        values: &["none", "mq-deadline", "bfq"],
        needs_device: true,
        unsafe_values: &[],
    },
    Axis {
        name: "mount-options",
        key: "mount-options",
        values: &["defaults", "noatime", "noatime,nobarrier"],
        needs_device: true,
        unsafe_values: &[("noatime,nobarrier", "synced data is lost in a power cut")],
    },
    Axis {
        name: "unit",
        key: "mount.io-unit",
        values: &["4k", "128k", "max"],
        needs_device: false,
        unsafe_values: &[],
    },
    Axis {
        name: "buffer",
        key: "setting",
        values: &["buffer-off", "buffer-8m", "buffer-32m"],
        needs_device: false,
        unsafe_values: &[("buffer-8m", LOST_BY_KILL), ("buffer-32m", LOST_BY_KILL)],
    },
    Axis {
        name: "stream-after",
        key: "mount.stream-after",
        values: &["8m", "off"],
        needs_device: false,
        unsafe_values: &[],
    },
    Axis {
        name: "writeback",
        key: "mount.writeback",
        values: &["on", "off"],
        needs_device: false,
        unsafe_values: &[("on", LOST_BY_KILL)],
    },
    Axis {
        name: "passthrough",
        key: "mount.passthrough",
        values: &["auto", "off"],
        needs_device: false,
        unsafe_values: &[],
    },
    Axis {
        name: "uring",
        key: "mount.uring",
        values: &["auto", "off"],
        needs_device: false,
        unsafe_values: &[],
    },
    Axis {
        name: "poll",
        key: "mount.poll",
        values: &["20us", "0"],
        needs_device: false,
        unsafe_values: &[],
    },
    Axis {
        name: "threads",
        key: "mount.threads",
        values: &["1", "2", "4"],
        needs_device: false,
        unsafe_values: &[],
    },
];

/// Axes of a race on a device, if none are named.
const ON_A_DEVICE: [&str; 4] = ["fs", "scheduler", "unit", "buffer"];

/// Axes of a race in a folder, if none are named.
const IN_A_FOLDER: [&str; 3] = ["unit", "buffer", "writeback"];

/// Bundles of the axis `buffer`, which has two flags.
const SETTINGS: &str = r#"
[setting.buffer-off]
mount.flusher = "off"
[setting.buffer-8m]
mount.flusher = "thread"
mount.buffer = "8m"
[setting.buffer-32m]
mount.flusher = "thread"
mount.buffer = "32m"
"#;

/// The workload of a race, if none is given.
const WORKLOAD: &str = r#"
[workload]
kind = "file"
pattern = "sequential-write"
size = "64m"
record = "512k"
final-sync = "timed"
"#;

/// A race as asked for.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// The load; `None` for sequential writes.
    pub source: Option<Source>,
    /// The table `environment` as text; `None` if the file has one.
    pub environment: Option<String>,
    /// Scheduler of the default setting, if the file has no table `defaults`.
    pub scheduler: Option<String>,
    /// Names of the axes; empty for the usual ones.
    pub axes: Vec<String>,
    /// Axes that keep the default's value.
    pub keep: Vec<String>,
    /// Leave out values that make acknowledged or synced data less safe.
    pub durable: bool,
    /// The race is in a folder.
    pub in_folder: bool,
}

/// The plan of a race as text, and remarks on values that were left out.
///
/// # Errors
/// If the file is no part of a plan, or an axis is not known or has no value left.
pub fn plan(wish: &Wish) -> Result<(String, Vec<String>)> {
    let (name, own) = wish.source.as_ref().map_or_else(Default::default, Source::part);
    let table: Table = toml::from_str(&own).map_err(|error| {
        anyhow::anyhow!(
            "{name}: {}; tune reads a table [workload] with flags of `tidegate bench file`, a job file or a trace",
            error.message()
        )
    })?;
    for key in table.keys() {
        let known = ["name", "workload", "defaults", "environment"];
        if !known.contains(&key.as_str()) {
            bail!("{name}: {}; axes are named by --axes", unknown(key, &known));
        }
    }
    let mut text = String::new();
    if !table.contains_key("name") {
        text += "name = \"tune\"\n";
    }
    text += &own;
    if !table.contains_key("workload") {
        text += WORKLOAD;
    }
    match (&wish.environment, table.contains_key("environment")) {
        (Some(environment), false) => text += environment,
        (None, true) => {}
        (Some(_), true) => bail!("{name}: it has a table [environment]; name no device beside it"),
        (None, false) => bail!(
            "no device: give --card NAME, --device /dev/NAME --destroy-data or --folder DIRECTORY, or a table [environment]"
        ),
    }
    if let Some(scheduler) = wish
        .scheduler
        .as_ref()
        .filter(|_| !table.contains_key("defaults"))
    {
        text += &format!("[defaults]\nscheduler = \"{scheduler}\"\n");
    }
    let (axes, remarks) = axes(wish)?;
    text += SETTINGS;
    text += "[[exhibit]]\nname = \"default\"\nx = \"path\"\naxes.path = [\"mount\"]\n";
    let x = axes.first().context("no axis is left to vary")?.0;
    text += &format!("[[exhibit]]\nname = \"settings\"\nx = \"{x}\"\n");
    for (key, values) in &axes {
        let values: Vec<String> = values.iter().map(|value| format!("\"{value}\"")).collect();
        text += &format!("axes.{key} = [{}]\n", values.join(", "));
    }
    text += &format!("[run]\nrounds = {}\n", super::ROUNDS_MAX);
    Ok((text, remarks))
}

/// Axes of the plan with their values.
type Values = Vec<(&'static str, Vec<&'static str>)>;

fn axes(wish: &Wish) -> Result<(Values, Vec<String>)> {
    let known: Vec<&str> = AXES.iter().map(|axis| axis.name).collect();
    for name in wish.axes.iter().chain(&wish.keep) {
        if !known.contains(&name.as_str()) {
            bail!("axis {}", unknown(name, &known));
        }
    }
    let usual: &[&str] = match wish.in_folder {
        true => &IN_A_FOLDER,
        false => &ON_A_DEVICE,
    };
    let is_wanted = |axis: &&Axis| {
        let is_named = match wish.axes.is_empty() {
            true => usual.contains(&axis.name),
            false => wish.axes.iter().any(|name| name == axis.name),
        };
        is_named && !wish.keep.iter().any(|name| name == axis.name)
    };
    let mut remarks = Vec::new();
    let mut wanted = Values::new();
    for axis in AXES.iter().filter(is_wanted) {
        if axis.needs_device && wish.in_folder {
            bail!(
                "axis `{}`: a folder keeps its file system and device; name another axis, or --device",
                axis.name
            );
        }
        let reason = |value: &str| {
            let weak = axis.unsafe_values.iter().find(|(name, _)| *name == value);
            let weak = weak
                .filter(|_| wish.durable)
                .map(|(_, reason)| (*reason).to_owned());
            weak.or_else(|| match axis.name {
                "fs" => check::without_file_system(value),
                _ => None,
            })
        };
        let mut values = Vec::new();
        for value in axis.values {
            match reason(value) {
                Some(reason) => remarks.push(format!("left out: {} {value}: {reason}", axis.name)),
                None => values.push(*value),
            }
        }
        if values.is_empty() {
            bail!("axis `{}`: no value is left", axis.name);
        }
        wanted.push((axis.key, values));
    }
    Ok((wanted, remarks))
}
