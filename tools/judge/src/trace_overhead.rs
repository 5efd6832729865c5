//! `judge trace-overhead`: cost of tracing. Measures 4 KiB direct I/O at queue depth 1 on a file system in memory and
//! on a disk, with and without the tracer, in interleaved rounds; and checks that the tracer loses no records at
//! 200,000 requests per second.
//!
//! To reach this rate, a RAM-backed loop device is discarded with `discard_max_bytes=4096`: one call of blkdiscard(8)
//! makes half a million requests and leaves most of the two processors to the tracer.
//!
//! The I/O loop is this program itself (`judge direct-load`), run either as the tracer's command or directly, so both
//! sides run the same code on the same file. The verdict uses medians over rounds; the report has every round.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use results::{median, nearest_f64};
use serde::{Deserialize, Serialize};

use crate::contest::say;
use crate::error::JudgeError;
use crate::program::Program;

const BLOCK: usize = 4096;
const FILE_BYTES: u64 = 64 << 20;
const IMAGE_BYTES: u64 = 512 << 20;
/// `O_DIRECT` of Linux on x86-64 and most other architectures; 64-bit ARM has its own value.
const O_DIRECT: i32 = if cfg!(target_arch = "aarch64") {
    0o200_000
} else {
    0o40_000
};
const TOOLS: &str = "install util-linux and e2fsprogs, and run as root";
/// With the tracer: maximum time added per request, and minimum share of requests per second.
const ADDED_NS_MOST: f64 = 600.0;
const RATE_LEAST: f64 = 0.95;
/// Minimum share on a disk, where a request takes far longer.
const RATE_LEAST_ON_DISK: f64 = 0.99;
/// Rate and duration at which no record may be lost.
const FAST_REQUESTS: f64 = 200_000.0;
const FAST_SECONDS: u64 = 10;
/// Size of the image that is discarded.
const FAST_BYTES: u64 = 2 << 30;

/// Arguments of `judge trace-overhead`.
#[derive(Args, Debug)]
pub struct TraceOverheadArguments {
    /// Program under test
    #[arg(long, value_name = "PATH")]
    pub tidegate: PathBuf,
    /// Put the image and the traces into this directory, which must be in memory
    #[arg(long, value_name = "FOLDER", default_value = "/dev/shm")]
    pub memory: PathBuf,
    /// Run the second part in this directory on a disk; an empty value skips it
    #[arg(long, value_name = "FOLDER", default_value = "/var/tmp")]
    pub disk: PathBuf,
    /// Run N rounds, each with and without the tracer
    #[arg(long, value_name = "N", default_value_t = 9)]
    pub rounds: u32,
    /// Measure for SECONDS per run
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    pub seconds: u64,
    /// Pass these options to `tidegate trace record`, comma-separated (`--no-calls`)
    #[arg(long, value_name = "WORD", value_delimiter = ',', allow_hyphen_values = true)]
    pub record: Vec<String>,
    /// Append each run to this file, one JSON object per line
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `judge direct-load`, which `trace-overhead` runs.
#[derive(Args, Debug)]
pub struct DirectLoadArguments {
    /// Existing file of 64 MiB to write to
    pub file: PathBuf,
    /// Write the result to this file
    pub result: PathBuf,
    /// Run for this time, in seconds
    pub seconds: u64,
}

/// Result of one run of the loop.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct LoadResult {
    #[serde(default)]
    place: String,
    #[serde(default)]
    traced: bool,
    #[serde(default)]
    round: u32,
    operations: u64,
    p50_ns: u64,
    per_second: f64,
}

/// The I/O loop: writes at random offsets, one at a time.
pub fn load(arguments: &DirectLoadArguments) -> Result<(), JudgeError> {
    let wrong = |operation| move |source| JudgeError::io(operation, &arguments.file, source);
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(O_DIRECT)
        .open(&arguments.file)
        .map_err(wrong("open"))?;
    let memory = vec![0x5A_u8; 2 * BLOCK];
    let shift = memory.as_ptr().align_offset(BLOCK);
    let block = &memory[shift..shift + BLOCK];
    let blocks = FILE_BYTES / 4096;
    let mut random = 0x2545_F491_4F6C_DD1D_u64;
    let mut latencies: Vec<u64> = Vec::with_capacity(1 << 21);
    let start = Instant::now();
    let mut now = start;
    let end = start + Duration::from_secs(arguments.seconds);
    while now < end {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        file.write_all_at(block, random % blocks * 4096)
            .map_err(wrong("write"))?;
        let after = Instant::now();
        latencies.push(u64::try_from((after - now).as_nanos()).unwrap_or(u64::MAX));
        now = after;
    }
    let operations = u64::try_from(latencies.len()).unwrap_or(u64::MAX);
    latencies.sort_unstable();
    let result = LoadResult {
        operations,
        p50_ns: latencies.get(latencies.len() / 2).copied().unwrap_or(0),
        per_second: nearest_f64(operations) / (now - start).as_secs_f64(),
        ..LoadResult::default()
    };
    let text = serde_json::to_string(&result).expect("numbers have a JSON form");
    fs::write(&arguments.result, text).map_err(|source| JudgeError::io("write", &arguments.result, source))
}

/// Runs all parts and returns the report; true if every requirement is met.
pub fn run(arguments: &TraceOverheadArguments) -> Result<(bool, String), JudgeError> {
    let in_memory = compared(arguments, &Place::in_memory(&arguments.memory)?, "memory")?;
    let mut promises = vec![
        Promise {
            what: format!("in memory: at most {ADDED_NS_MOST} ns more (p50)"),
            found: format!("{:.0} ns", in_memory.added_ns),
            is_kept: in_memory.added_ns <= ADDED_NS_MOST,
        },
        Promise {
            what: format!("in memory: at least {RATE_LEAST} of the requests a second"),
            found: format!("{:.3}", in_memory.rate),
            is_kept: in_memory.rate >= RATE_LEAST,
        },
    ];
    let mut rounds = vec![("memory", in_memory)];
    if !arguments.disk.as_os_str().is_empty() {
        let on_disk = compared(
            arguments,
            &Place::on_disk(&arguments.memory, &arguments.disk)?,
            "disk",
        )?;
        promises.push(Promise {
            what: format!("on the disk: at least {RATE_LEAST_ON_DISK} of the requests a second"),
            found: format!("{:.3}", on_disk.rate),
            is_kept: on_disk.rate >= RATE_LEAST_ON_DISK,
        });
        rounds.push(("disk", on_disk));
    }
    promises.push(highest_rate(arguments)?);
    let mut text = format!(
        "## trace-overhead\n\n\
         Direct writes of 4 KiB, one at a time: on ext4 on a loop device in memory, and in a file on {}; {} rounds, medians.\n\n\
         | promise | found | verdict |\n|---|---:|---|\n",
        arguments.disk.display(),
        arguments.rounds,
    );
    for promise in &promises {
        let verdict = if promise.is_kept { "kept" } else { "not kept" };
        text.push_str(&format!("| {} | {} | {verdict} |\n", promise.what, promise.found));
    }
    for (place, compared) in &rounds {
        text.push_str(&format!(
            "\n{place}: added ns by round {:.0?}; ratio by round {:.3?}\n",
            compared.all_added_ns, compared.all_rates
        ));
    }
    Ok((promises.iter().all(|promise| promise.is_kept), text))
}

/// One requirement, with its result.
struct Promise {
    what: String,
    found: String,
    is_kept: bool,
}

/// Results of all rounds at one place.
struct Compared {
    added_ns: f64,
    rate: f64,
    all_added_ns: Vec<f64>,
    all_rates: Vec<f64>,
}

fn compared(arguments: &TraceOverheadArguments, place: &Place, name: &str) -> Result<Compared, JudgeError> {
    let mut runs = Vec::new();
    for round in 0..arguments.rounds {
        for traced in [round % 2 == 0, round % 2 != 0] {
            let mut result = place.run(arguments, traced)?;
            result.round = round;
            result.traced = traced;
            name.clone_into(&mut result.place);
            let line = serde_json::to_string(&result).expect("numbers have a JSON form");
            say(&line);
            keep(arguments.output.as_deref(), &line)?;
            runs.push(result);
        }
    }
    let of = |traced: bool, value: fn(&LoadResult) -> f64| -> Vec<f64> {
        let mut picked: Vec<&LoadResult> = runs.iter().filter(|run| run.traced == traced).collect();
        picked.sort_by_key(|run| run.round);
        picked.into_iter().map(value).collect()
    };
    let pairs = |value: fn(&LoadResult) -> f64| of(true, value).into_iter().zip(of(false, value));
    let all_added_ns: Vec<f64> = pairs(|run| nearest_f64(run.p50_ns))
        .map(|(with, without)| with - without)
        .collect();
    let all_rates: Vec<f64> = pairs(|run| run.per_second)
        .map(|(with, without)| with / without)
        .collect();
    Ok(Compared {
        added_ns: median(&all_added_ns).unwrap_or(f64::INFINITY),
        rate: median(&all_rates).unwrap_or(0.0),
        all_added_ns,
        all_rates,
    })
}

/// Issues discards as fast as one caller can; requires the full rate without lost records.
fn highest_rate(arguments: &TraceOverheadArguments) -> Result<Promise, JudgeError> {
    let folder = scratch(&arguments.memory)?;
    let image = folder.path().join("image");
    let device = LoopDevice::make(&image, FAST_BYTES)?;
    let name = Path::new(&device.0).file_name().unwrap_or_default().to_owned();
    let limit = Path::new("/sys/block").join(name).join("queue/discard_max_bytes");
    fs::write(&limit, "4096").map_err(|source| JudgeError::io("write", &limit, source))?;
    let load = format!(
        "end=$(($(date +%s) + {FAST_SECONDS})); while [ $(date +%s) -lt $end ]; do blkdiscard {}; done",
        device.0
    );
    let answer = recorder(arguments, folder.path(), ["-d".as_ref(), device.0.as_ref()])
        .args(["--", "sh", "-c", load.as_str()])
        .answer()?;
    let summary: Summary = serde_json::from_str(&answer).map_err(|_| JudgeError::Answer {
        command: "tidegate trace record --json".to_owned(),
        expected: "a summary".to_owned(),
        found: answer.clone(),
    })?;
    let rate = nearest_f64(summary.requests) / summary.duration_seconds;
    Ok(Promise {
        what: format!("nothing lost at {FAST_REQUESTS} requests a second for {FAST_SECONDS} s"),
        found: format!(
            "{} lost of {} at {rate:.0} a second",
            summary.lost_records, summary.requests
        ),
        is_kept: summary.lost_records == 0 && rate >= FAST_REQUESTS,
    })
}

/// The tracer, tracing one device or the device of a directory; writes the trace into `folder`.
fn recorder(arguments: &TraceOverheadArguments, folder: &Path, traced: [&OsStr; 2]) -> Program {
    Program::new(
        &arguments.tidegate,
        "build it with `cargo build --release -p cli`",
    )
    .args(["trace", "record", "--json", "--force"])
    .args(traced)
    .args(["-o".into(), folder.join("recorded.trace")])
    .args(&arguments.record)
}

fn scratch(parent: &Path) -> Result<tempfile::TempDir, JudgeError> {
    tempfile::TempDir::with_prefix_in("tidegate-overhead-", parent)
        .map_err(|source| JudgeError::io("make a folder in", parent, source))
}

fn keep(path: Option<&Path>, line: &str) -> Result<(), JudgeError> {
    use std::io::Write;

    let Some(path) = path else {
        return Ok(());
    };
    let opened = OpenOptions::new().append(true).create(true).open(path);
    let written = opened.and_then(|mut file| writeln!(file, "{line}"));
    written.map_err(|source| JudgeError::io("write", path, source))
}

/// The fields of `tidegate trace record --json` that are checked.
#[derive(Debug, Deserialize)]
struct Summary {
    requests: u64,
    duration_seconds: f64,
    lost_records: u64,
}

/// A loop device over a new file; detached on drop.
struct LoopDevice(String);

impl LoopDevice {
    fn make(image: &Path, bytes: u64) -> Result<Self, JudgeError> {
        let made = fs::File::create(image).and_then(|file| file.set_len(bytes));
        made.map_err(|source| JudgeError::io("make", image, source))?;
        let found = Program::new("losetup", TOOLS)
            .args(["-f", "--show"])
            .args([image])
            .answer()?;
        Ok(Self(found.trim().to_owned()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Program::new("losetup", TOOLS).args(["-d", &self.0]).answer();
    }
}

/// A mounted file system; unmounted on drop.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Program::new("umount", TOOLS).args([&self.0]).answer();
    }
}

/// Target of the loop. Fields are dropped in declaration order: unmount, detach, remove.
struct Place {
    /// The file on the traced file system.
    file: PathBuf,
    _mounted: Option<Mounted>,
    _device: Option<LoopDevice>,
    _on_disk: Option<tempfile::TempDir>,
    /// Directory in memory for traces and results.
    folder: tempfile::TempDir,
}

impl Place {
    /// An ext4 file system on a loop device over a file in memory.
    fn in_memory(memory: &Path) -> Result<Self, JudgeError> {
        let folder = scratch(memory)?;
        let mountpoint = folder.path().join("mounted");
        fs::create_dir(&mountpoint).map_err(|source| JudgeError::io("make", &mountpoint, source))?;
        let device = LoopDevice::make(&folder.path().join("image"), IMAGE_BYTES)?;
        Program::new("mkfs.ext4", TOOLS)
            .args(["-q", &device.0])
            .answer()?;
        Program::new("mount", TOOLS)
            .args([&device.0])
            .args([&mountpoint])
            .answer()?;
        Self {
            file: mountpoint.join("file"),
            _mounted: Some(Mounted(mountpoint)),
            _device: Some(device),
            _on_disk: None,
            folder,
        }
        .filled()
    }

    /// A file in a new directory on the user's disk.
    fn on_disk(memory: &Path, disk: &Path) -> Result<Self, JudgeError> {
        let on_disk = scratch(disk)?;
        Self {
            file: on_disk.path().join("file"),
            _mounted: None,
            _device: None,
            _on_disk: Some(on_disk),
            folder: scratch(memory)?,
        }
        .filled()
    }

    fn filled(self) -> Result<Self, JudgeError> {
        let content = vec![1; usize::try_from(FILE_BYTES).unwrap_or(BLOCK)];
        fs::write(&self.file, content).map_err(|source| JudgeError::io("write", &self.file, source))?;
        Program::new("sync", TOOLS).answer()?;
        Ok(self)
    }

    fn run(&self, arguments: &TraceOverheadArguments, traced: bool) -> Result<LoadResult, JudgeError> {
        let result = self.folder.path().join("result.json");
        let own =
            std::env::current_exe().map_err(|source| JudgeError::io("find", Path::new("judge"), source))?;
        let mut words = vec![
            own.into_os_string(),
            "direct-load".into(),
            self.file.clone().into(),
            result.clone().into(),
        ];
        words.push(arguments.seconds.to_string().into());
        if traced {
            let folder = self.file.parent().unwrap_or(Path::new("/"));
            recorder(arguments, self.folder.path(), ["-m".as_ref(), folder.as_ref()])
                .args(["--"])
                .args(&words)
                .answer()?;
        } else {
            Program::new(&words[0], TOOLS).args(&words[1..]).answer()?;
        }
        let text = fs::read_to_string(&result).map_err(|source| JudgeError::io("read", &result, source))?;
        serde_json::from_str(&text).map_err(|_| JudgeError::Answer {
            command: "judge direct-load".to_owned(),
            expected: "a result".to_owned(),
            found: text,
        })
    }
}
