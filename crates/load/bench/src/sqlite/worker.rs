//! One thread of an SQLite workload, from the start barrier to the checkpoint.
//!
//! A transaction's keys, values and statement text are prepared before its clock starts.

use std::ffi::CStr;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::connection::{Bind, Connection, Statement};
use super::plan::{Kind, Plan, Step, ValueStream, thread_seed};
use super::prepare::{Databases, schema, table};
use super::spec::{Journal, Place, SqliteSpec, StatementStyle, TransactionShape, VALUE_BYTES};
use super::vfs::{self, FileWork};
use crate::clock::Clock;
use crate::error::BenchError;
use crate::file::elapsed_ns;
use crate::latencies::LatencyCounter;
use crate::processor::WorkerUse;
use crate::threads::Shared;

/// Interval at which a thread in a long think time checks the stop flags.
const THINK_AT_ONCE: Duration = Duration::from_millis(50);

/// Interval of a worker's progress reports, in time spent on transactions.
const REPORT_EVERY_NS: u64 = 100_000_000;

/// A worker's state, prepared before the timed window.
pub struct Worker<'run> {
    pub spec: &'run SqliteSpec,
    pub index: u32,
    pub databases: Databases,
}

/// The transactions of one worker.
pub struct Work {
    /// Latencies, indexed by [`place_of`].
    pub kinds: [LatencyCounter; 3],
    pub unchanged_statements: u64,
    /// On the same clock as the latencies and all other times of the window, so that they can be compared.
    pub began_ns: u64,
    pub worked_ns: u64,
    pub thought_ns: u64,
    pub complete: bool,
    /// Expected number of rows in each table.
    pub rows: u64,
}

/// The outcome of one worker.
pub struct WorkerOutcome {
    pub work: Work,
    pub checkpointed_ns: u64,
    pub files: FileWork,
    pub usage: Option<WorkerUse>,
    /// The databases, for the steps after the window.
    pub databases: Databases,
}

impl Worker<'_> {
    /// Prepares the statements, calls `start`, runs the transactions and checkpoints. Returns `None` if `start`
    /// reports that the run was cancelled. `report` is called periodically between transactions.
    pub fn run(
        self,
        shared: &Shared<'_>,
        start: impl FnOnce() -> bool,
        report: impl Fn(),
    ) -> Result<Option<WorkerOutcome>, BenchError> {
        let (spec, databases) = (self.spec, self.databases);
        let transactions = Transactions::ready(spec, self.index, &databases.connection)?;
        if !start() {
            return Ok(None);
        }
        let before = WorkerUse::of_this_thread();
        let work = transactions.work(shared, report)?;
        if spec.journal == Journal::Wal && spec.checkpoint == Place::Inside && work.complete {
            checkpoint(spec, &databases.connection)?;
        }
        let checkpointed_ns = Clock::best().now_ns();
        let files = vfs::take();
        let usage = WorkerUse::of_this_thread_since(before);
        Ok(Some(WorkerOutcome {
            work,
            checkpointed_ns,
            files,
            usage,
            databases,
        }))
    }
}

/// Writes back the logs of all databases.
pub fn checkpoint(spec: &SqliteSpec, connection: &Connection) -> Result<(), BenchError> {
    (0..spec.databases).try_for_each(|database| connection.checkpoint(&schema(database)))
}

/// The transactions of one thread and their counts so far.
struct Transactions<'run> {
    spec: &'run SqliteSpec,
    index: u32,
    connection: &'run Connection,
    plan: Plan,
    values: ValueStream,
    runner: Runner<'run>,
    /// Latencies, indexed by [`place_of`].
    kinds: [LatencyCounter; 3],
    unchanged_statements: u64,
    thought_ns: u64,
    clock: Clock,
}

/// How transactions are passed to the library.
enum Runner<'run> {
    Text(TextRunner),
    Prepared(Box<PreparedRunner<'run>>),
}

impl<'run> Transactions<'run> {
    fn ready(spec: &'run SqliteSpec, index: u32, connection: &'run Connection) -> Result<Self, BenchError> {
        let runner = match spec.style {
            StatementStyle::Text => Runner::Text(TextRunner::new(spec)),
            StatementStyle::Prepared => Runner::Prepared(Box::new(PreparedRunner::new(spec, connection)?)),
        };
        Ok(Self {
            spec,
            index,
            connection,
            plan: Plan::new(spec, index),
            values: ValueStream::of_transactions(spec.values, thread_seed(spec, index)),
            runner,
            kinds: [
                LatencyCounter::new(),
                LatencyCounter::new(),
                LatencyCounter::new(),
            ],
            unchanged_statements: 0,
            thought_ns: 0,
            clock: Clock::best(),
        })
    }

    /// Runs the transactions and returns their times and counts.
    fn work(mut self, shared: &Shared<'_>, report: impl Fn()) -> Result<Work, BenchError> {
        vfs::begin();
        let began_ns = self.clock.now_ns();
        let complete = self.run(shared, report)?;
        let worked_ns = self.clock.now_ns();
        Ok(Work {
            worked_ns,
            kinds: self.kinds,
            unchanged_statements: self.unchanged_statements,
            began_ns,
            thought_ns: self.thought_ns,
            complete,
            rows: self.plan.rows(),
        })
    }

    /// Runs all transactions, or as many as the time limit allows; returns false if the run was stopped before the
    /// last.
    fn run(&mut self, shared: &Shared<'_>, report: impl Fn()) -> Result<bool, BenchError> {
        let mut unreported_ns = 0;
        let statements = self.spec.statements();
        let done = shared.done_by(self.index);
        let mut changes = self.connection.changes();
        let limit = self.spec.time_limit_us.map(Duration::from_micros);
        let began = Instant::now();
        for number in 0..self.spec.transactions {
            if shared.is_over() {
                return Ok(false);
            }
            if limit.is_some_and(|limit| began.elapsed() >= limit) {
                break;
            }
            let step = self.plan.next();
            let kind = step.kind;
            let latency_ns = match &mut self.runner {
                Runner::Text(runner) => {
                    runner.run(self.connection, &step, &self.values, number, self.clock)?
                }
                Runner::Prepared(runner) => runner.run(&step, &self.values, number, self.clock)?,
            };
            self.kinds[place_of(kind)].add(latency_ns);
            let changed = self.connection.changes();
            // The difference of the library's counts is taken modulo 2^31, because the count may wrap.
            let changed_now = changed.wrapping_sub(changes) & 0x7FFF_FFFF;
            self.unchanged_statements += statements.saturating_sub(changed_now);
            changes = changed;
            // Only this thread writes the counter.
            done.store(number + 1, Ordering::Relaxed);
            unreported_ns += latency_ns;
            if self.spec.interval_us > 0 {
                unreported_ns += self.think(shared);
            }
            if unreported_ns >= REPORT_EVERY_NS {
                unreported_ns = 0;
                report();
            }
        }
        Ok(true)
    }

    /// Waits for the think time, or until the run is over; returns the elapsed time.
    fn think(&mut self, shared: &Shared<'_>) -> u64 {
        let began = Instant::now();
        let interval = Duration::from_micros(self.spec.interval_us);
        while !shared.is_over() {
            let rest = interval.saturating_sub(began.elapsed());
            if rest.is_zero() {
                break;
            }
            thread::sleep(rest.min(THINK_AT_ONCE));
        }
        let thought_ns = elapsed_ns(began, Instant::now());
        self.thought_ns += thought_ns;
        thought_ns
    }
}

/// Index of a kind in [`Work::kinds`].
pub const fn place_of(kind: Kind) -> usize {
    match kind {
        Kind::Insert => 0,
        Kind::Update => 1,
        Kind::Delete => 2,
    }
}

/// Composes a whole transaction as one text, as the original does.
struct TextRunner {
    shape: TransactionShape,
    tables: Vec<String>,
    text: Vec<u8>,
}

impl TextRunner {
    fn new(spec: &SqliteSpec) -> Self {
        Self {
            shape: spec.shape,
            tables: tables(spec),
            text: Vec::new(),
        }
    }

    fn run(
        &mut self,
        connection: &Connection,
        step: &Step<'_>,
        values: &ValueStream,
        number: u64,
        clock: Clock,
    ) -> Result<u64, BenchError> {
        self.write(step, values, number);
        let text = CStr::from_bytes_with_nul(&self.text).expect("statements have no zero byte but the last");
        let start_ns = clock.now_ns();
        connection.execute(text)?;
        Ok(clock.now_ns().saturating_sub(start_ns))
    }

    fn write(&mut self, step: &Step<'_>, values: &ValueStream, number: u64) {
        let text = &mut self.text;
        text.clear();
        let is_explicit = self.shape == TransactionShape::Explicit;
        if is_explicit {
            text.extend_from_slice(b"BEGIN;");
        }
        let mut value = [0; VALUE_BYTES];
        for (place, (table, key)) in (0..).zip(self.tables.iter().zip(step.keys)) {
            if step.kind != Kind::Delete {
                values.fill(number * count(step.keys) + place, &mut value);
            }
            let written = match step.kind {
                Kind::Insert if is_explicit => {
                    write!(text, "INSERT INTO {table} (id, value) VALUES ({key}, '")
                        .and_then(|()| text.write_all(&value))
                        .and_then(|()| text.write_all(b"');"))
                }
                Kind::Insert => write!(text, "INSERT INTO {table} (value) VALUES ('")
                    .and_then(|()| text.write_all(&value))
                    .and_then(|()| text.write_all(b"');")),
                Kind::Update => write!(text, "UPDATE {table} SET value = '")
                    .and_then(|()| text.write_all(&value))
                    .and_then(|()| write!(text, "' WHERE id = {key};")),
                Kind::Delete => write!(text, "DELETE FROM {table} WHERE id = {key};"),
            };
            written.expect("writing to memory cannot fail");
        }
        if is_explicit {
            text.extend_from_slice(b"COMMIT;");
        }
        text.push(0);
    }
}

/// Runs statements prepared once.
struct PreparedRunner<'connection> {
    begin_and_commit: Option<[Statement<'connection>; 2]>,
    inserts: Vec<Statement<'connection>>,
    updates: Vec<Statement<'connection>>,
    deletes: Vec<Statement<'connection>>,
    gives_key: bool,
    values: Vec<[u8; VALUE_BYTES]>,
}

impl<'connection> PreparedRunner<'connection> {
    fn new(spec: &SqliteSpec, connection: &'connection Connection) -> Result<Self, BenchError> {
        let tables = tables(spec);
        let prepare = |text: &dyn Fn(&str) -> String| {
            tables
                .iter()
                .map(|table| connection.prepare(&text(table)))
                .collect::<Result<Vec<_>, _>>()
        };
        let gives_key = spec.shape == TransactionShape::Explicit;
        let begin_and_commit = match spec.shape {
            TransactionShape::Autocommit => None,
            TransactionShape::Explicit => Some([connection.prepare("BEGIN")?, connection.prepare("COMMIT")?]),
        };
        let inserts = if gives_key {
            prepare(&|table| format!("INSERT INTO {table} (id, value) VALUES (?1, ?2)"))?
        } else {
            prepare(&|table| format!("INSERT INTO {table} (value) VALUES (?1)"))?
        };
        Ok(Self {
            begin_and_commit,
            inserts,
            updates: prepare(&|table| format!("UPDATE {table} SET value = ?1 WHERE id = ?2"))?,
            deletes: prepare(&|table| format!("DELETE FROM {table} WHERE id = ?1"))?,
            gives_key,
            values: vec![[0; VALUE_BYTES]; tables.len()],
        })
    }

    fn run(
        &mut self,
        step: &Step<'_>,
        values: &ValueStream,
        number: u64,
        clock: Clock,
    ) -> Result<u64, BenchError> {
        if step.kind != Kind::Delete {
            for (place, value) in (0..).zip(&mut self.values) {
                values.fill(number * count(step.keys) + place, value);
            }
        }
        let start_ns = clock.now_ns();
        if let Some([begin, _]) = &mut self.begin_and_commit {
            begin.run(&[])?;
        }
        let statements = match step.kind {
            Kind::Insert => &mut self.inserts,
            Kind::Update => &mut self.updates,
            Kind::Delete => &mut self.deletes,
        };
        for ((statement, key), value) in statements.iter_mut().zip(step.keys).zip(&self.values) {
            match step.kind {
                Kind::Insert if self.gives_key => {
                    statement.run(&[Bind::Integer(*key), Bind::Text(value)])?;
                }
                Kind::Insert => statement.run(&[Bind::Text(value)])?,
                Kind::Update => statement.run(&[Bind::Text(value), Bind::Integer(*key)])?,
                Kind::Delete => statement.run(&[Bind::Integer(*key)])?,
            }
        }
        if let Some([_, commit]) = &mut self.begin_and_commit {
            commit.run(&[])?;
        }
        Ok(clock.now_ns().saturating_sub(start_ns))
    }
}

/// All tables of a thread, in the order of [`Step::keys`].
fn tables(spec: &SqliteSpec) -> Vec<String> {
    (0..spec.databases)
        .flat_map(|database| (0..spec.tables).map(move |number| table(database, number)))
        .collect()
}

fn count(keys: &[i64]) -> u64 {
    u64::try_from(keys.len()).expect("statements are few")
}
