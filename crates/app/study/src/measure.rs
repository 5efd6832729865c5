//! Measures the blocks of a plan: the sides of a series of the [`runner`] are its blocks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};
use results::words::counted;
use results::{RunRecord, counter, nearest_f64};
use runner::{Measured, Series, Settle, Turn, Watcher, environment};

use crate::bed::{Bed, FileSystem};
use crate::cell::{Block, Cell};
use crate::child::{Children, STEP_TIME};
use crate::evidence;
use crate::folder::{self, BlockRound, FIELD, Folder, Place};
use crate::gate;
use crate::plan::{BINARY, Plan};
use crate::traced;
use crate::tune::Race;
use crate::warm;
use crate::words::{self, bench_words};

/// Context switches of the daemon during a cell.
pub const CONTEXT_SWITCHES_DAEMON: &str = "context_switches_daemon_count";

/// Memory that was in use until the cell began, because the host takes back free memory.
pub const USED_BEFORE: &str = "free_memory_used_before_bytes";

/// Name of the trace of the cell that is measured.
pub const TRACE: &str = "cell.jsonl";

/// Fewer rounds give no interval whose width would count.
const WIDTH_ROUNDS: u32 = 5;

/// The records of a block and round that count, after they were measured again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    New,
    Old,
}

/// When the rounds end before their number is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// No round begins after this time.
    pub time: Option<Duration>,
    /// The rounds end when each interval of a share is at most this wide, relative to its value.
    pub width: Option<f64>,
    /// The rounds end when the programs under test are told apart.
    pub decided: Option<gate::Rule>,
}

/// The blocks of a plan as a series.
pub struct Blocks<'run> {
    /// The plan.
    pub plan: &'run Plan,
    /// Its blocks.
    pub blocks: &'run [Block],
    /// Numbers of the blocks that are measured one after the other, as one side of a round: those of the guest together.
    pub sides: Vec<Vec<usize>>,
    /// Receives the records.
    pub folder: &'run Folder,
    /// Starts the measurements.
    pub children: Children<'run>,
    /// Speed of the card.
    pub scale: f64,
    /// Records of earlier rounds: what is there is not measured again.
    pub stored: Vec<RunRecord>,
    /// Records of blocks and rounds that are measured again; they stay until the new ones are there.
    pub replaced: BTreeSet<BlockRound>,
    /// When to stop.
    pub limits: Limits,
    /// The race that chooses the cells of each round; all cells run without one.
    pub race: Option<Race>,
    /// Shows messages of the race.
    pub watcher: &'run dyn Watcher,
    /// The greatest number of rounds.
    pub rounds: u32,
    /// When it began.
    pub began: Instant,
    /// Why the guest can't be used any more.
    pub without_guest: Option<String>,
    /// Memory that is held between cells.
    pub memory: warm::Held,
}

/// The sides of a round: each block of this machine, and those of the guest, which share a boot.
#[must_use]
pub fn sides(blocks: &[Block]) -> Vec<Vec<usize>> {
    let (guest, host): (Vec<usize>, Vec<usize>) =
        (0..blocks.len()).partition(|number| blocks[*number].is_in_guest());
    let host = host.into_iter().map(|number| vec![number]);
    host.chain((!guest.is_empty()).then_some(guest)).collect()
}

impl Series for Blocks<'_> {
    type Error = Error;

    fn title(&self, turn: Turn) -> String {
        let blocks = self.sides[turn.side].iter().map(|number| {
            let values: Vec<&str> = self.blocks[*number].values.values().map(String::as_str).collect();
            (values.join(" "), self.cells(*number, turn.round).len())
        });
        let (names, counts): (Vec<String>, Vec<usize>) = blocks.unzip();
        format!(
            "{}, {}",
            names.join(", "),
            counted(counts.iter().sum::<usize>(), "cell")
        )
    }

    fn measure(&mut self, turn: Turn) -> Result<Vec<Measured>> {
        let has_run = |number: usize| {
            self.stored.iter().any(|record| {
                record.round == turn.round && folder::place(record).is_some_and(|place| place.block == number)
            })
        };
        let blocks = self.sides[turn.side].iter().copied();
        let missing: Vec<usize> = blocks
            .filter(|number| !has_run(*number) && !self.cells(*number, turn.round).is_empty())
            .collect();
        let records = match missing.first() {
            None => None,
            Some(first) if self.blocks[*first].is_in_guest() => self.in_guest(&missing, turn.round)?,
            Some(first) => self.block(*first, turn.round)?,
        };
        let Some(records) = records else {
            return Ok(Vec::new());
        };
        let kept = self.store(&records)?;
        let mut measured = Vec::new();
        let mut failures = Vec::new();
        for record in records {
            let place = folder::place(&record);
            match place.as_ref().and_then(|place| place.failed.as_ref()) {
                Some(reason) => failures.push(format!("{}: {reason}", record.label)),
                None if place.as_ref().is_some_and(|place| place.left_out.is_some()) => {}
                None => measured.push(Measured::plain(record.clone())),
            }
            if kept == Kept::New {
                self.stored.push(record);
            }
        }
        match measured.first_mut() {
            Some(first) => first.notes = failures,
            None if failures.is_empty() => {}
            None => anyhow::bail!("{}", failures.join("\n")),
        }
        Ok(measured)
    }

    fn failed(&mut self, turn: Turn, error: Error) -> Result<String> {
        Ok(format!(
            "{}: left out: {}",
            self.title(turn),
            programs::output::with_causes(&error)
        ))
    }

    fn goes_on(&mut self, rounds_done: u32, _records: &[RunRecord]) -> bool {
        if let Some(race) = &mut self.race {
            let (message, goes_on) = race.after_round(rounds_done, &self.stored);
            if let Some(message) = message {
                self.watcher.say(&message);
            }
            return goes_on;
        }
        let is_late = self.limits.time.is_some_and(|time| self.began.elapsed() >= time);
        let is_narrow = self.limits.width.is_some_and(|width| {
            rounds_done >= WIDTH_ROUNDS
                && evidence::widest(self.plan, &self.stored).is_some_and(|widest| widest <= width)
        });
        let is_decided = self
            .limits
            .decided
            .is_some_and(|rule| rule.is_decided(self.plan, &self.stored, rounds_done, self.rounds));
        !(is_late || is_narrow || is_decided)
    }
}

impl<'run> Blocks<'run> {
    /// Stores the records of the blocks of a side; those of an earlier attempt stay if fewer of them failed.
    fn store(&mut self, records: &[RunRecord]) -> Result<Kept> {
        let keys = folder::blocks_of(records);
        if keys.is_disjoint(&self.replaced) {
            self.folder.append(records)?;
            return Ok(Kept::New);
        }
        let old = self.folder.replace(records)?;
        self.replaced.retain(|key| !keys.contains(key));
        let Some(old) = old else {
            return Ok(Kept::New);
        };
        self.watcher
            .say("more cells failed than before; the earlier records of the block are kept");
        self.stored.extend(old);
        Ok(Kept::Old)
    }

    /// The records of all cells of a block, failed ones among them; `None` if the study was stopped.
    pub(crate) fn block(&self, number: usize, round: u32) -> Result<Option<Vec<RunRecord>>> {
        let is_stopped = || self.children.stop.load(std::sync::atomic::Ordering::Relaxed);
        let bed = Bed::make(
            self.children,
            self.folder.path(),
            &self.plan.environment,
            self.scale,
        );
        let mut file_system: Option<Result<FileSystem, String>> = None;
        let mut records = Vec::new();
        for cell in self.cells(number, round) {
            let measured = match &bed {
                Ok(bed) if cell.is_raw() => self.cell(bed, cell, None, round),
                Ok(bed) => {
                    let made = file_system.get_or_insert_with(|| {
                        bed.check()
                            .and_then(|()| bed.file_system(cell))
                            .map_err(|error| programs::output::with_causes(&error))
                    });
                    match made {
                        Ok(made) => self.cell(bed, cell, Some(made), round),
                        Err(reason) => Err(Error::msg(reason.clone())),
                    }
                }
                Err(error) => Err(Error::msg(programs::output::with_causes(error))),
            };
            if is_stopped() {
                return Ok(None);
            }
            records.push(self.record(number, cell, round, measured));
        }
        Ok(Some(records))
    }

    /// Measures a cell once, with memory that is held before and after.
    pub(crate) fn cell(
        &self,
        bed: &Bed,
        cell: &Cell,
        file_system: Option<&FileSystem>,
        round: u32,
    ) -> Result<RunRecord> {
        self.memory.hold(cell, self.children.stop);
        let measured = self.on_bed(bed, cell, file_system, round);
        self.memory.hold(cell, self.children.stop);
        measured
    }

    fn on_bed(
        &self,
        bed: &Bed,
        cell: &Cell,
        file_system: Option<&FileSystem>,
        round: u32,
    ) -> Result<RunRecord> {
        bed.check()?;
        bed.set_scheduler(cell.value("scheduler"))?;
        let Some(file_system) = file_system else {
            let device = bed.device().context("there is no raw device")?;
            return self.bench(cell, device, None, round);
        };
        Settle::FileSystem(file_system.data.clone()).settle();
        let mounted = bed.mount(cell, file_system, self.program(cell))?;
        let before = mounted.statistics()?;
        let is_traced = ["trace", "replay"]
            .iter()
            .any(|axis| !cell.value(axis).is_empty());
        let traced = bed.device().filter(|_| is_traced);
        let writes_before = bed.device_writes();
        let mut record = self.bench(cell, &mounted.directory, traced, round)?;
        // A mount through FUSE has no device of its own: the measuring process counts none.
        if let (Some(before), Some(after)) = (writes_before, bed.device_writes()) {
            let writes = nearest_f64(after.saturating_sub(before));
            record.counters.insert(counter::DEVICE_WRITES.to_owned(), writes);
        }
        if let (Some(before), Some(after)) = (before, mounted.statistics()?) {
            let count = |pointer: &str| {
                let value = |document: &serde_json::Value| document.pointer(pointer)?.as_u64();
                Some(nearest_f64(value(&after)?.saturating_sub(value(&before)?)))
            };
            let switches = ["voluntary", "involuntary"]
                .map(|kind| count(&format!("/session/context_switches_{kind}")).unwrap_or(0.0));
            let writes = count("/backing/writes");
            record
                .counters
                .insert(CONTEXT_SWITCHES_DAEMON.to_owned(), switches.iter().sum());
            record
                .counters
                .extend(writes.map(|writes| (counter::BACKING_WRITES.to_owned(), writes)));
        }
        mounted.unmount()?;
        // Tells the card which space is free again; not every device can be told.
        let trim = [file_system.data.display().to_string()];
        let _ = self.children.run(Path::new("fstrim"), &trim, STEP_TIME);
        Ok(record)
    }

    /// The cells of a block that are measured in a round, in its order.
    pub(crate) fn cells(&self, number: usize, round: u32) -> Vec<&Cell> {
        let block: &Block = &self.blocks[number];
        let cells = block.order(round).into_iter().map(|index| &block.cells[index]);
        let runs = |cell: &&Cell| self.race.as_ref().is_none_or(|race| race.runs(cell));
        cells.filter(runs).collect()
    }

    /// The program that serves the mount of a cell.
    fn program(&self, cell: &Cell) -> &'run Path {
        let named = |(name, _): &&(String, PathBuf)| name == cell.value(BINARY);
        let under_test = self.plan.binaries.iter().find(named);
        under_test.map_or(self.children.tidegate, |(_, path)| path)
    }

    /// Measures a target, with the memory that was held until now; `traced` is the device whose requests are recorded meanwhile.
    fn bench(&self, cell: &Cell, target: &Path, traced: Option<&Path>, round: u32) -> Result<RunRecord> {
        let mut words = bench_words(cell, round);
        words.push(target.display().to_string());
        let used_before = self.memory.free();
        let mut record = match traced {
            None => self.measured(&words)?,
            Some(device) => self.traced(cell, words, device)?,
        };
        let used_before = used_before.map(|bytes| (USED_BEFORE.to_owned(), nearest_f64(bytes)));
        record.counters.extend(used_before);
        Ok(record)
    }

    /// Measures what a command does while the requests of a device are recorded, and replays them if the cell says so.
    fn traced(&self, cell: &Cell, command: Vec<String>, device: &Path) -> Result<RunRecord> {
        let trace = self.folder.path().join(TRACE);
        let trace_name = trace.display().to_string();
        let device = device.display().to_string();
        let tidegate = self.children.tidegate.display().to_string();
        let mut recording = [
            "trace",
            "record",
            "--no-driver",
            "--sync",
            "--force",
            "-o",
            &trace_name,
            "-d",
            &device,
            "--",
            &tidegate,
        ]
        .map(str::to_owned)
        .to_vec();
        recording.extend(command);
        let mut record = self.measured(&recording)?;
        traced::add(&mut record, &trace)?;
        let scheduler = cell.value("replay");
        if !scheduler.is_empty() {
            let words = [
                "emmc",
                "run",
                "--json",
                "--replay",
                &trace_name,
                "--scheduler",
                scheduler,
            ]
            .map(str::to_owned);
            record.samples = self.measured(&words)?.samples;
        }
        Ok(record)
    }

    fn measured(&self, words: &[String]) -> Result<RunRecord> {
        let output = self.children.tidegate(words, self.plan.run.cell_time)?;
        words::record(&output)
    }

    /// The record as it is stored: with its place, or with the reason of a failure.
    pub(crate) fn record(
        &self,
        block: usize,
        cell: &Cell,
        round: u32,
        measured: Result<RunRecord>,
    ) -> RunRecord {
        let mut place = Place {
            block,
            cell: cell.clone(),
            failed: None,
            left_out: None,
            machine: None,
        };
        let mut record = measured.unwrap_or_else(|error| {
            place.failed = Some(programs::output::with_causes(&error));
            empty_record()
        });
        record.round = round;
        record.label = cell.label(self.plan);
        record.command = programs::own_arguments();
        if let Some(workload) = record.workload.as_object_mut() {
            let place = serde_json::to_value(&place).unwrap_or_default();
            workload.insert(FIELD.to_owned(), place);
        }
        record
    }
}

/// The record of a cell that was not measured.
pub(crate) fn empty_record() -> RunRecord {
    RunRecord {
        schema: results::SCHEMA.to_owned(),
        command: Vec::new(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        started_unix_ns: 0,
        host: environment::host(),
        target: results::TargetInfo::default(),
        label: String::new(),
        round: 0,
        workload: serde_json::json!({}),
        samples: Vec::new(),
        counters: std::collections::BTreeMap::new(),
        complete: false,
    }
}

/// A record for tests with this speed in MB/s; 0 gives one without time, and so without a speed.
#[cfg(test)]
pub(crate) fn record_of(cell: &Cell, round: u32, speed: u64) -> RunRecord {
    let window = results::TimedWindow::of(if speed == 0 { 0 } else { 1_000_000_000 });
    let latency = results::LatencyHistogram::default();
    let sample = results::Sample::new("write", (1, speed * 1_000_000), window, latency);
    RunRecord {
        round,
        workload: serde_json::json!({ FIELD: { "block": 0, "cell": cell } }),
        samples: vec![sample.expect("no latency was recorded")],
        complete: true,
        host: results::HostInfo {
            // It changes between two records.
            load_average: None,
            ..environment::host()
        },
        ..empty_record()
    }
}
