//! Plans in TOML: where a study runs, what it varies, and what it draws.
//!
//! A *cell* is one combination of values. It begins with the defaults and the workload; a setting (a named bundle of
//! values) replaces some of them, and the axes and the `where` of an exhibit replace some of those.
//!
//! Axes: `fs`, `mkfs`, `mount-options` (of the file system), `machine` (`guest`: the lab guest), `scheduler`, `path`,
//! `setting`, `trace` (`on`: the block requests are recorded), `replay` (they are replayed in the model with this scheduler), `mount.FLAG` (a flag of
//! `tidegate mount`) and `workload.FLAG` (a flag of the workload's subcommand of `tidegate bench`).

mod parse;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Values by axis.
pub type Values = BTreeMap<String, String>;

/// Axes with plain names; those of the mount and of the workload have a prefix.
pub const AXES: [&str; 9] = [
    "fs",
    "machine",
    "mkfs",
    "mount-options",
    "path",
    "replay",
    "scheduler",
    "setting",
    "trace",
];

/// Prefixes of axes whose names are flags of another subcommand.
pub const PREFIXES: [&str; 2] = ["mount.", "workload."];

/// A whole plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Its name, for headings.
    pub name: String,
    /// The place where cells run.
    pub environment: Environment,
    /// Values of every cell, unless something more specific replaces them.
    pub defaults: Values,
    /// Named bundles of values.
    pub settings: BTreeMap<String, Values>,
    /// At least one.
    pub exhibits: Vec<Exhibit>,
    /// Rounds and time limits.
    pub run: Run,
    /// Programs under test, which serve the mounts in place of this one: values of the axis [`BINARY`].
    pub binaries: Binaries,
}

/// Programs under test by name, the baseline first.
pub type Binaries = Vec<(String, PathBuf)>;

/// The axis of the programs under test. A plan's text can't use it.
pub const BINARY: &str = "binary";

/// The place where cells run.
#[derive(Clone, Debug, PartialEq)]
pub struct Environment {
    /// The storage below the file systems.
    pub device: Device,
    /// Speed of the modelled card.
    pub time_scale: TimeScale,
    /// Upper limit of the device's dirty pages, in bytes.
    pub dirty_limit: Option<u64>,
    /// Size of the card or image, in bytes.
    pub size: Option<u64>,
    /// Whether the data on a block device may be overwritten.
    pub destroy_data: bool,
    /// The same for cells in the lab guest.
    pub guest: GuestPart,
}

/// Conditions of the cells that run in the lab guest. Emulation makes its processors many times slower than the host's,
/// so that a card of another speed suits them.
#[derive(Clone, Debug, PartialEq)]
pub struct GuestPart {
    /// Speed of the card, as a multiple of real time.
    pub time_scale: f64,
    /// Size of the card or image, in bytes, if it is not that of the host's.
    pub size: Option<u64>,
    /// Time limit of one cell.
    pub cell_time: Duration,
}

/// The storage below the file systems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// A modelled eMMC card: a preset or a file.
    Card(String),
    /// A sparse file behind a loop device.
    Image,
    /// A block device of this machine.
    Block(PathBuf),
    /// A folder as it is; neither the file system nor the scheduler can be varied.
    Directory(PathBuf),
}

/// Speed of a modelled card, as a multiple of real time.
#[derive(Clone, Debug, PartialEq)]
pub enum TimeScale {
    /// As given.
    Fixed(f64),
    /// Such that one ratio has its published value.
    Calibrate(Calibration),
}

/// The one number that a time scale is fitted to.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// The cell whose share of MAX is fitted.
    pub cell: Values,
    /// The share.
    pub target: f64,
    /// Accepted distance from it.
    pub tolerance: f64,
}

/// A figure or table: a slice of the cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Exhibit {
    /// Its name, as in the paper.
    pub name: String,
    /// Its subject.
    pub title: String,
    /// The axis along which its groups stand.
    pub x: String,
    /// The axis of the bars within a group.
    pub series: Option<String>,
    /// The quantity drawn.
    pub y: Quantity,
    /// Values of its axes, in the order drawn.
    pub axes: Vec<(String, Vec<String>)>,
    /// Fixed values.
    pub fixed: Values,
    /// Sentences of the paper about it.
    pub claims: Vec<Claim>,
    /// Rounds after which its cells are no longer measured; `None` if they are measured in all of them.
    pub rounds: Option<u32>,
}

/// The value of a cell that a figure shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Throughput in MB/s (10^6 bytes per second).
    Throughput,
    /// Throughput divided by that of the raw device in the same round on the same device.
    ShareOfMax,
    /// Place of each write request on the device over time, of traced cells.
    Layout,
    /// A counter of the record; its last word is the unit.
    Counter(String),
}

impl Quantity {
    /// Title of the axis, with the unit.
    #[must_use]
    pub fn title(&self) -> String {
        match self {
            Self::Throughput => "MB/s".to_owned(),
            Self::ShareOfMax => "share of MAX".to_owned(),
            Self::Layout => "MiB from the beginning of the device".to_owned(),
            Self::Counter(name) => name.replace('_', " "),
        }
    }
}

/// A sentence of a paper, as a range for a value or for the ratio of two.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The sentence of the paper, in our words.
    pub sentence: String,
    /// The values that select its cell from those of the exhibit.
    pub cell: Values,
    /// The cell that it is divided by.
    pub of: Option<Values>,
    /// The paper's number.
    pub paper: Option<f64>,
    /// Least value at which the sentence holds.
    pub low: Option<f64>,
    /// Greatest value at which the sentence holds.
    pub high: Option<f64>,
    /// Whether every single value has to lie in the range: for counts, which do not vary, so that one round is enough.
    pub is_exact: bool,
    /// Whether the value was fitted to the paper.
    pub basis: Basis,
}

/// Kind of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The time scale was fitted to this number: it shows nothing.
    Calibrated,
    /// Nothing was fitted to it.
    Predicted,
}

/// Rounds and time limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Rounds.
    pub rounds: u32,
    /// Time limit of one cell.
    pub cell_time: Duration,
    /// Rounds, size and exhibits of a quick study.
    pub quick: Variant,
    /// The same of a full study.
    pub full: Variant,
}

/// Changes of a quick or a full study.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variant {
    /// Rounds.
    pub rounds: Option<u32>,
    /// Size of the workload's file, as text.
    pub size: Option<String>,
    /// Names of the exhibits; empty for all.
    pub only: Vec<String>,
    /// Programs under test; empty for this program only.
    pub binaries: Binaries,
}

impl Plan {
    /// Parses a plan. `source` is its name in messages.
    ///
    /// # Errors
    /// If it is no TOML or no plan; the message names file, line and key.
    pub fn parse(source: &str, text: &str) -> anyhow::Result<Self> {
        parse::parse(source, text)
    }

    /// Applies what a quick or a full study changes.
    pub fn apply(&mut self, variant: &Variant) {
        self.run.rounds = variant.rounds.unwrap_or(self.run.rounds);
        if let Some(size) = &variant.size {
            self.defaults.insert("workload.size".to_owned(), size.clone());
        }
        if !variant.only.is_empty() {
            self.exhibits
                .retain(|exhibit| variant.only.contains(&exhibit.name));
        }
        if !variant.binaries.is_empty() {
            self.binaries.clone_from(&variant.binaries);
            let names: Vec<String> = variant.binaries.iter().map(|(name, _)| name.clone()).collect();
            for exhibit in &mut self.exhibits {
                exhibit.axes.push((BINARY.to_owned(), names.clone()));
                exhibit.y = Quantity::Throughput;
                // They are about one program.
                exhibit.claims.clear();
            }
        }
    }
}

/// The plans that are part of the program, by name.
pub const PRESETS: [(&str, &str); 2] = [
    ("paper", include_str!("../plans/paper.toml")),
    ("paper-003", include_str!("../plans/paper-003.toml")),
];

#[cfg(test)]
mod tests;
