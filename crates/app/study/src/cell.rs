//! Cells: what is measured once in each round, and the blocks of cells that share a freshly made file system.
//!
//! Only cells of one block and one round are divided by each other: they ran on the same device, one after the other.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use results::words::unknown;
use runner::Schedule;
use serde::{Deserialize, Serialize};

use crate::plan::{BINARY, Device, Exhibit, Plan, Quantity, Values};

/// The value of `path` for the device without a file system.
pub const RAW: &str = "raw";

/// The value of `path` for the file system without FUSE.
pub const NATIVE: &str = "native";

/// The value of `path` for `tidegate mount`.
pub const MOUNT: &str = "mount";

/// Other programs that mount a folder through FUSE: `PROGRAM SOURCE MOUNTPOINT`.
pub const PEERS: [&str; 3] = ["bindfs", "mergerfs", "passthrough_hp"];

/// The axis of the machine on which a cell runs: the host, or the lab guest with a file system that the host lacks.
pub const MACHINE: &str = "machine";

/// The value of [`MACHINE`] for the lab guest; a cell of the host has none.
pub const GUEST: &str = "guest";

/// The file system of a folder that is used as it is.
pub const AS_IT_IS: &str = "as-it-is";

/// One combination of values, without those that do not matter to it.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Cell(pub Values);

/// The part of a cell that its whole block shares: the file system, and how it is made and mounted.
pub type BlockValues = Values;

/// Flags that the study sets itself, or that would take a measurement out of its hands.
pub const RESERVED: [&str; 11] = [
    "mount.foreground",
    "mount.json",
    "mount.over",
    "workload.destroy-data",
    "workload.device",
    "workload.history",
    "workload.keep-files",
    "workload.output",
    "workload.print-offsets",
    "workload.rounds",
    "workload.warmup",
];

/// The axes of a block.
const OF_BLOCK: [&str; 4] = ["fs", MACHINE, "mkfs", "mount-options"];

/// Cells that are measured one after the other on one newly made file system.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Block {
    /// The file system, and how it is made and mounted.
    pub values: BlockValues,
    /// Its cells, without duplicates; those on the raw device come first.
    pub cells: Vec<Cell>,
    /// For each cell, the rounds after which it is no longer measured.
    pub rounds: Vec<u32>,
}

impl Block {
    /// Whether it runs in the lab guest.
    #[must_use]
    pub fn is_in_guest(&self) -> bool {
        self.values.contains_key(MACHINE)
    }

    /// Numbers of its cells in the order of a round. Raw cells overwrite the device: they run before the file system is
    /// made. The others are rotated by one with each round; cells that differ only in the program under test stay
    /// neighbours and swap their order with each round.
    #[must_use]
    pub fn order(&self, round: u32) -> Vec<usize> {
        let (raw, others): (Vec<usize>, Vec<usize>) = (0..self.cells.len())
            .filter(|index| round < self.rounds[*index])
            .partition(|index| self.cells[*index].is_raw());
        let is_pair = |left: &usize, right: &usize| {
            self.cells[*left].without(BINARY) == self.cells[*right].without(BINARY)
        };
        let groups: Vec<&[usize]> = others.chunk_by(is_pair).collect();
        let rotated = |sides: usize| Schedule::interleaved(round + 1, sides).round(round);
        let order = rotated(groups.len()).flat_map(|group| {
            let group = groups[group];
            rotated(group.len()).map(move |side| group[side])
        });
        raw.into_iter().chain(order).collect()
    }
}

impl Cell {
    /// The cell of a plan with these values beside and above the defaults.
    ///
    /// # Errors
    /// If the path is none that this program knows.
    pub fn of(plan: &Plan, layers: &[&Values]) -> Result<Self> {
        let named = layers.iter().rev().find_map(|layer| layer.get("setting"));
        let setting = match named {
            Some(name) => Some(plan.settings.get(name).with_context(|| {
                let known: Vec<&str> = plan.settings.keys().map(String::as_str).collect();
                format!("setting {}", unknown(name, &known))
            })?),
            None => None,
        };
        let mut values = plan.defaults.clone();
        for layer in setting.into_iter().chain(layers.iter().copied()) {
            values.extend(layer.clone());
        }
        values.remove("setting");
        values
            .entry("path".to_owned())
            .or_insert_with(|| MOUNT.to_owned());
        let is_folder = matches!(plan.environment.device, Device::Directory(_));
        if is_folder {
            values.insert("fs".to_owned(), AS_IT_IS.to_owned());
            values.remove("mkfs");
            values.remove("mount-options");
            values.remove("scheduler");
        } else {
            values.entry("fs".to_owned()).or_insert_with(|| "ext4".to_owned());
            values
                .entry("scheduler".to_owned())
                .or_insert_with(|| "none".to_owned());
        }
        match values.get(MACHINE).map(String::as_str) {
            None => {}
            Some("host") => drop(values.remove(MACHINE)),
            Some(GUEST) if matches!(plan.environment.device, Device::Card(_) | Device::Image) => {}
            Some(GUEST) => {
                bail!("machine = \"guest\" needs a device that the study makes: a card or an image")
            }
            Some(other) => bail!("{MACHINE}: {}", unknown(other, &["host", GUEST])),
        }
        let path = values["path"].clone();
        match path.as_str() {
            RAW if is_folder => bail!("path = \"raw\" needs a device, and the study runs in a folder"),
            RAW => values.retain(|axis, _| !axis.starts_with("workload.") || is_of_raw(axis)),
            _ if path == NATIVE || path == MOUNT || PEERS.contains(&path.as_str()) => {}
            other => bail!(
                "path: {}",
                unknown(other, &[&[RAW, NATIVE, MOUNT][..], &PEERS].concat())
            ),
        }
        if values.get("replay").is_some_and(|name| name == "off") {
            values.remove("replay");
        }
        match values.get("trace").map(String::as_str) {
            None | Some("on") => {}
            Some("off") => drop(values.remove("trace")),
            // Without a trace the cell would be another one than the plan asks for.
            Some(other) => bail!("trace: {}", unknown(other, &["on", "off"])),
        }
        if is_folder && (values.contains_key("trace") || values.contains_key("replay")) {
            bail!("trace and replay need a device, and the study runs in a folder");
        }
        if path != MOUNT {
            values.retain(|axis, _| !is_of_mount(axis));
        }
        Ok(Self(values))
    }

    /// The cell of which others are a share (MAX): the raw device without scheduler, or a folder without FUSE.
    #[must_use]
    pub fn max_of(&self) -> Self {
        let mut values = self.0.clone();
        if self.value("fs") == AS_IT_IS {
            values.retain(|axis, _| !is_of_mount(axis));
            values.insert("path".to_owned(), NATIVE.to_owned());
            return Self(values);
        }
        values.retain(|axis, _| OF_BLOCK.contains(&axis.as_str()) || is_of_raw(axis));
        values.insert("path".to_owned(), RAW.to_owned());
        values.insert("scheduler".to_owned(), "none".to_owned());
        Self(values)
    }

    /// The value of an axis; empty if the cell has none.
    #[must_use]
    pub fn value(&self, axis: &str) -> &str {
        self.0.get(axis).map_or("", String::as_str)
    }

    /// It with another value of an axis.
    #[must_use]
    pub fn with(&self, axis: &str, value: &str) -> Self {
        let mut values = self.0.clone();
        values.insert(axis.to_owned(), value.to_owned());
        Self(values)
    }

    /// It without an axis.
    #[must_use]
    pub fn without(&self, axis: &str) -> Self {
        let mut values = self.0.clone();
        values.remove(axis);
        Self(values)
    }

    /// Whether it measures the raw device.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        self.value("path") == RAW
    }

    /// The flags of an axis prefix, such as `mount.`, as `--FLAG=VALUE`; `true` and `false` are flags without value.
    pub fn flags(&self, prefix: &str) -> Vec<String> {
        let own = self
            .0
            .iter()
            .filter_map(|(axis, value)| Some((axis.strip_prefix(prefix)?, value)));
        let words = own.filter_map(|(flag, value)| match value.as_str() {
            "false" => None,
            "true" => Some(format!("--{flag}")),
            _ => Some(format!("--{flag}={value}")),
        });
        words.collect()
    }

    /// Its values in one line, without those of the workload and those that all cells of the plan share.
    #[must_use]
    pub fn label(&self, plan: &Plan) -> String {
        let differs = |(axis, value): &(&String, &String)| {
            !axis.starts_with("workload.") && plan.defaults.get(*axis) != Some(*value)
        };
        let words: Vec<String> = self
            .0
            .iter()
            .filter(differs)
            .map(|(axis, value)| format!("{}={value}", axis.trim_start_matches("mount.")))
            .collect();
        match words.is_empty() {
            true => "defaults".to_owned(),
            false => words.join(" "),
        }
    }

    fn block(&self) -> BlockValues {
        let of_block = |(axis, _): &(&String, &String)| OF_BLOCK.contains(&axis.as_str());
        let own = self.0.iter().filter(of_block);
        own.map(|(axis, value)| (axis.clone(), value.clone())).collect()
    }
}

/// Axes that only matter to `tidegate mount`.
fn is_of_mount(axis: &str) -> bool {
    axis.starts_with("mount.") || axis == BINARY
}

/// Axes of the workload that also matter to a raw device.
fn is_of_raw(axis: &str) -> bool {
    matches!(axis, "workload.size" | "workload.record" | "workload.pattern")
}

/// One bar, line point or square of an exhibit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The values of the axes of the exhibit, as the plan has them.
    pub values: Values,
    /// Its cell.
    pub cell: Cell,
}

/// The combinations of an exhibit's axes, in the order of the plan; the last axis changes fastest.
///
/// # Errors
/// If a combination is no cell.
pub fn slots(plan: &Plan, exhibit: &Exhibit) -> Result<Vec<Slot>> {
    let mut combinations = vec![Values::new()];
    for (axis, values) in &exhibit.axes {
        combinations = combinations
            .iter()
            .flat_map(|combination| {
                values.iter().map(move |value| {
                    let mut longer = combination.clone();
                    longer.insert(axis.clone(), value.clone());
                    longer
                })
            })
            .collect();
    }
    let slot = |values: Values| {
        let cell = Cell::of(plan, &[&exhibit.fixed, &values])?;
        Ok(Slot { values, cell })
    };
    combinations.into_iter().map(slot).collect()
}

/// Number of combinations, without making them.
#[must_use]
pub fn combinations(plan: &Plan) -> u64 {
    let of_one = |exhibit: &Exhibit| {
        let sizes = exhibit
            .axes
            .iter()
            .map(|(_, values)| u64::try_from(values.len()).unwrap_or(u64::MAX));
        sizes.fold(1, u64::saturating_mul)
    };
    plan.exhibits.iter().map(of_one).fold(0, u64::saturating_add)
}

/// All cells of a plan in blocks, without duplicates.
///
/// # Errors
/// If an exhibit or a claim has a combination that is no cell.
pub fn blocks(plan: &Plan) -> Result<Vec<Block>> {
    let mut by_block: BTreeMap<BlockValues, Vec<(Cell, u32)>> = BTreeMap::new();
    for exhibit in &plan.exhibits {
        let cells = cells_of(plan, exhibit).with_context(|| format!("exhibit `{}`", exhibit.name))?;
        // With programs under test, only their cells are measured.
        let wanted = cells
            .into_iter()
            .filter(|cell| plan.binaries.is_empty() || cell.0.contains_key(BINARY));
        for cell in wanted {
            let rounds = exhibit.rounds.unwrap_or(u32::MAX);
            let cells = by_block.entry(cell.block()).or_default();
            match cells.iter_mut().find(|(known, _)| *known == cell) {
                Some((_, most)) => *most = rounds.max(*most),
                None => cells.push((cell, rounds)),
            }
        }
    }
    let blocks = by_block.into_iter().map(|(values, mut cells)| {
        cells.sort_by_key(|(cell, _)| !cell.is_raw());
        let (cells, rounds) = cells.into_iter().unzip();
        Block {
            values,
            cells,
            rounds,
        }
    });
    Ok(blocks.collect())
}

fn cells_of(plan: &Plan, exhibit: &Exhibit) -> Result<Vec<Cell>> {
    let mut cells: Vec<Cell> = slots(plan, exhibit)?.into_iter().map(|slot| slot.cell).collect();
    for claim in &exhibit.claims {
        cells.push(Cell::of(plan, &[&exhibit.fixed, &claim.cell])?);
        if let Some(of) = &claim.of {
            cells.push(Cell::of(plan, &[&exhibit.fixed, of])?);
        }
    }
    if exhibit.y == Quantity::ShareOfMax {
        let limits: Vec<Cell> = cells.iter().map(Cell::max_of).collect();
        cells.extend(limits);
    }
    Ok(cells)
}
