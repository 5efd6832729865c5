//! `tidegate mobibench`: the command line of the original Mobibench.
//!
//! Single letters, values separate or attached, bundled letters, and the last of several wins. Numbers are kept as given; the crate
//! `mobibench` interprets them. Results and the line `Err string` go to standard output, as in the original; messages also go to
//! standard error, and the exit code tells success from failure.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use bench::Cache;
use clap::{Arg, Args, ValueEnum};
use mobibench::{Options, Surroundings};
use programs::stop_on_signals;

use crate::Finding;
use crate::bench_command::progress::ProgressForm;
use crate::bench_command::terminal::Terminal;
use crate::output::{print_bytes, with_causes};

/// Arguments of `tidegate mobibench`, and of this program when called through a link named `mobibench`.
#[derive(Args, Clone, Debug)]
#[command(
    args_override_self = true,
    mut_args = may_be_negative,
    after_help = "The files (test.dat0 ..., test.db0_0 ...) stay where they are for the next run, as with the \
                  original.\n\
                  Exit codes: 0 done, 1 done but stopped before its end or not as cold as a test that reads must \
                  be, 2 could not do it. The last line is `Err string : ...`."
)]
pub struct MobibenchArguments {
    /// Put the test files into this directory; it is created if missing, but not its parents [default: ./mobibench]
    #[arg(short = 'p', value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Set the file size in KiB, divided by the threads
    #[arg(short = 'f', value_name = "KIB", default_value_t = 1024)]
    pub file_kib: i64,
    /// Set the record size in KiB
    #[arg(short = 'r', value_name = "KIB", default_value_t = 4)]
    pub record_kib: i64,
    /// Run this file test: 0 write, 1 random write, 2 read, 3 random read, 4 append
    #[arg(short = 'a', value_name = "ACCESS", default_value_t = 0)]
    pub access: i64,
    /// Sync writes by: 0 nothing, 1 O_SYNC, 2 fsync, 3 O_DIRECT, 4 O_SYNC and O_DIRECT, 5 mmap, 6 mmap and MS_ASYNC,
    /// 7 mmap and MS_SYNC, 8 fdatasync, 9 fbarrier, 10 fdatabarrier (both need a BarrierFS kernel)
    #[arg(short = 'y', value_name = "SYNC", default_value_t = 0)]
    pub sync: i64,
    /// Run this number of threads, each with its own file or databases; clamped to 1 to 100
    #[arg(short = 't', value_name = "THREADS", default_value_t = 1)]
    pub threads: i64,
    /// Test SQLite instead of files: 0 insert, 1 update, 2 delete
    #[arg(short = 'd', value_name = "OPERATION")]
    pub database: Option<i64>,
    /// Set the number of transactions, divided by the threads
    #[arg(short = 'n', value_name = "TRANSACTIONS", default_value_t = 10)]
    pub transactions: i64,
    /// Set the SQLite journal mode: 0 DELETE, 1 TRUNCATE, 2 PERSIST, 3 WAL, 4 MEMORY, 5 OFF
    #[arg(short = 'j', value_name = "JOURNAL", default_value_t = 1)]
    pub journal: i64,
    /// Set the SQLite synchronous mode: 0 OFF, 1 NORMAL, 2 FULL, 3 EXTRA
    #[arg(short = 's', value_name = "SYNCHRONOUS", default_value_t = 2)]
    pub synchronous: i64,
    /// Wait MS milliseconds after each transaction, inside the timed window; at most 10000
    #[arg(short = 'i', value_name = "MS", default_value_t = 0)]
    pub interval_ms: i64,
    /// Replay this MobiGen script in the directory mobigen_temp of the path, which must exist
    #[arg(short = 'g', value_name = "SCRIPT")]
    pub script: Option<PathBuf>,
    /// Show no progress
    #[arg(short = 'q')]
    pub quiet: bool,
    /// Append the latency of each operation to this file, in microseconds, after the run
    #[arg(short = 'L', value_name = "FILE")]
    pub latency_file: Option<PathBuf>,
    /// Append the operations of each second to this file, after the run
    #[arg(short = 'k', value_name = "FILE")]
    pub iops_file: Option<PathBuf>,
    /// Set the share of random records that repeat others, 0 to 99 percent
    #[arg(short = 'v', value_name = "PERCENT", default_value_t = 0)]
    pub overlap_percent: i64,
    /// Use this number of tables in each database, clamped to 1 to 20 [default: 3, with the preset mobibench-2013 1]
    #[arg(short = 'T', value_name = "TABLES")]
    pub tables: Option<i64>,
    /// Use this number of databases per thread, joined in one transaction; clamped to 1 to 20
    #[arg(short = 'D', value_name = "DATABASES", default_value_t = 1)]
    pub databases: i64,
    /// Insert keys in random order; the value is ignored
    #[arg(short = 'R', value_name = "ANY")]
    pub random_keys: Option<OsString>,
    /// Follow this version of the original
    #[arg(
        long,
        value_name = "NAME",
        value_enum,
        env = "MOBIBENCH_PRESET",
        default_value_t
    )]
    pub preset: Preset,
    /// Count the last fsync or msync in the time that rates are computed from (inside, as in the original) or not
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub final_sync: FinalSync,
    /// Set the page cache state at the start: cold as in the original, warm, reopened or as-is
    #[arg(long, value_name = "STATE", default_value = "cold")]
    pub cache: Cache,
    /// Print the run record as JSON instead of the original's lines
    #[arg(long)]
    pub json: bool,
    /// Words that belong to no option: ignored with a message (the original ignores them silently)
    #[arg(value_name = "WORD", hide = true)]
    pub operands: Vec<OsString>,
}

/// Options whose value is a number, which may have a sign.
const NUMBERS: &str = "fraytdnjsivTD";

fn may_be_negative(arg: Arg) -> Arg {
    let is_number = arg.get_short().is_some_and(|letter| NUMBERS.contains(letter));
    arg.allow_negative_numbers(is_number)
}

/// Version of the original.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// Follow version 1.0.4, used by the papers: `-a 0` allocates, one table, each statement commits itself
    #[value(name = "mobibench-2013", alias = "2013")]
    Paper,
    /// Follow version 1.0.9: `-a 0` overwrites, three tables, BEGIN to COMMIT
    #[default]
    #[value(name = "mobibench-head", alias = "head")]
    Head,
}

/// Accounting of the last sync of each file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FinalSync {
    /// Count it in the time that rates are computed from
    #[default]
    Inside,
    /// Wait for it, but do not count it
    Outside,
}

/// Number of words in `tidegate mobibench`.
const COMMAND_WORDS: usize = 2;

/// Runs the command. `words` is the number of words of the command line: without options it prints how to get help.
pub fn run(arguments: &MobibenchArguments, words: usize) -> Result<Finding> {
    if words <= COMMAND_WORDS {
        print_bytes(mobibench::usage().as_bytes())?;
        return Ok(Finding::Nothing);
    }
    let form = match arguments.quiet {
        true => ProgressForm::Off,
        false => ProgressForm::Auto,
    };
    let terminal = Terminal::new(form, 1, arguments.json);
    let stop = stop_on_signals()?;
    let ended = mobibench::run(
        &arguments.options(),
        Surroundings {
            watcher: &terminal,
            progress: &terminal.bar,
            stop: &stop,
            command: &programs::own_arguments(),
        },
    );
    let ended = ended.map_err(anyhow::Error::new);
    if !arguments.json {
        let message = match &ended {
            Ok(ended) => ended.message.to_owned(),
            Err(error) => with_causes(error),
        };
        print_bytes(mobibench::error_line(&message).as_bytes())?;
    }
    Ok(match ended?.is_as_requested {
        true => Finding::Nothing,
        false => Finding::Something,
    })
}

impl MobibenchArguments {
    fn options(&self) -> Options {
        let arguments = self.clone();
        Options {
            path: arguments.path,
            file_kib: arguments.file_kib,
            record_kib: arguments.record_kib,
            access: arguments.access,
            sync: arguments.sync,
            threads: arguments.threads,
            database: arguments.database,
            transactions: arguments.transactions,
            journal: arguments.journal,
            synchronous: arguments.synchronous,
            interval_ms: arguments.interval_ms,
            script: arguments.script,
            latency_file: arguments.latency_file,
            iops_file: arguments.iops_file,
            overlap_percent: arguments.overlap_percent,
            tables: arguments.tables,
            databases: arguments.databases,
            random_keys: arguments.random_keys.is_some(),
            preset: match arguments.preset {
                Preset::Paper => mobibench::Preset::Paper,
                Preset::Head => mobibench::Preset::Head,
            },
            final_sync: match arguments.final_sync {
                FinalSync::Inside => mobibench::FinalSync::Inside,
                FinalSync::Outside => mobibench::FinalSync::Outside,
            },
            cache: arguments.cache,
            operands: arguments.operands,
        }
    }
}
