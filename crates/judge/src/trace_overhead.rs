//! What tracing costs: direct I/O of 4 KiB one at a time on a file system in memory, with and without the tracer, in
//! interleaved rounds; and whether the tracer loses records at the highest rate that fio reaches.
//!
//! The I/O loop is this program itself (`judge direct-load`), run by the tracer as its command or without it; so both
//! sides run the same code on the same file. Medians over rounds are judged; every round is in the report.

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
/// `O_DIRECT` of Linux on x86-64 and most others; 64-bit ARM has its own.
const O_DIRECT: i32 = if cfg!(target_arch = "aarch64") {
    0o200_000
} else {
    0o40_000
};
const TOOLS: &str = "install util-linux and e2fsprogs, and run as root";
/// The longest that a request may take in addition, and the least share of requests a second, with the tracer.
const ADDED_NS_MOST: f64 = 600.0;
const RATE_LEAST: f64 = 0.95;

/// Arguments of `judge trace-overhead`.
#[derive(Args, Debug)]
pub struct TraceOverheadArguments {
    /// The program under test
    #[arg(long, value_name = "PATH")]
    pub tidegate: PathBuf,
    /// A folder in memory for the image and the traces
    #[arg(long, value_name = "FOLDER", default_value = "/dev/shm")]
    pub memory: PathBuf,
    /// Rounds, each with and without the tracer
    #[arg(long, value_name = "N", default_value_t = 9)]
    pub rounds: u32,
    /// Seconds of each run
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    pub seconds: u64,
    /// More words for `tidegate trace record`, comma-separated (`--no-calls`)
    #[arg(long, value_name = "WORD", value_delimiter = ',', allow_hyphen_values = true)]
    pub record: Vec<String>,
    /// fio for the highest rate; without it that part is left out
    #[arg(long, value_name = "PATH", default_value = "fio")]
    pub fio: PathBuf,
    /// Append each run to this file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `judge direct-load`, which `trace-overhead` runs.
#[derive(Args, Debug)]
pub struct DirectLoadArguments {
    /// An existing file of 64 MiB
    pub file: PathBuf,
    /// Where the result is written
    pub result: PathBuf,
    /// How long
    pub seconds: u64,
}

/// One run of the loop.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct LoadResult {
    #[serde(default)]
    traced: bool,
    #[serde(default)]
    round: u32,
    operations: u64,
    p50_ns: u64,
    per_second: f64,
}

/// The loop: writes at random places, one at a time.
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

/// All rounds and the verdict; true when both promises hold.
pub fn run(arguments: &TraceOverheadArguments) -> Result<(bool, String), JudgeError> {
    let place = Place::make(&arguments.memory)?;
    let mut runs = Vec::new();
    for round in 0..arguments.rounds {
        for traced in [round % 2 == 0, round % 2 != 0] {
            let mut result = place.run(arguments, traced)?;
            result.round = round;
            result.traced = traced;
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
    let added: Vec<f64> = pairs(|run| nearest_f64(run.p50_ns))
        .map(|(with, without)| with - without)
        .collect();
    let rates: Vec<f64> = pairs(|run| run.per_second)
        .map(|(with, without)| with / without)
        .collect();
    let added_ns = median(&added).unwrap_or(f64::INFINITY);
    let rate = median(&rates).unwrap_or(0.0);
    let (fast, highest) = place.highest_rate(arguments)?;
    let verdict = |good: bool| if good { "kept" } else { "not kept" };
    let text = format!(
        "## trace-overhead\n\n\
         Direct writes of 4 KiB, one at a time, on ext4 on a loop device in memory; {} rounds.\n\n\
         | promise | median | verdict |\n|---|---:|---|\n\
         | at most {ADDED_NS_MOST} ns more (p50) | {added_ns:.0} ns | {} |\n\
         | at least {RATE_LEAST} of the requests a second | {rate:.3} | {} |\n\
         | nothing lost | {highest} | {} |\n\n\
         Added ns by round: {added:.0?}\n\nRatio by round: {rates:.3?}\n",
        arguments.rounds,
        verdict(added_ns <= ADDED_NS_MOST),
        verdict(rate >= RATE_LEAST),
        verdict(fast),
    );
    Ok((added_ns <= ADDED_NS_MOST && rate >= RATE_LEAST && fast, text))
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

/// The part of `tidegate trace record --json` that is judged.
#[derive(Debug, Deserialize)]
struct Summary {
    requests: u64,
    duration_seconds: f64,
    lost_records: u64,
}

/// An ext4 on a loop device over a file in memory; gone with the value.
struct Place {
    folder: tempfile::TempDir,
    device: String,
    mountpoint: PathBuf,
}

impl Place {
    fn make(memory: &Path) -> Result<Self, JudgeError> {
        let folder = tempfile::TempDir::with_prefix_in("tidegate-overhead-", memory)
            .map_err(|source| JudgeError::io("make a folder in", memory, source))?;
        let image = folder.path().join("image");
        let mountpoint = folder.path().join("mounted");
        let wrong = |source| JudgeError::io("make", &image, source);
        fs::create_dir(&mountpoint).map_err(wrong)?;
        let file = fs::File::create(&image).map_err(wrong)?;
        file.set_len(IMAGE_BYTES).map_err(wrong)?;
        let found = Program::new("losetup", TOOLS)
            .args(["-f", "--show"])
            .args([&image])
            .answer()?;
        let place = Self {
            folder,
            device: found.trim().to_owned(),
            mountpoint,
        };
        Program::new("mkfs.ext4", TOOLS)
            .args(["-q", &place.device])
            .answer()?;
        Program::new("mount", TOOLS)
            .args([&place.device])
            .args([&place.mountpoint])
            .answer()?;
        let content = vec![1; usize::try_from(FILE_BYTES).unwrap_or(BLOCK)];
        fs::write(place.file(), content).map_err(|source| JudgeError::io("write", &place.file(), source))?;
        Program::new("sync", TOOLS).answer()?;
        Ok(place)
    }

    fn file(&self) -> PathBuf {
        self.mountpoint.join("file")
    }

    fn run(&self, arguments: &TraceOverheadArguments, traced: bool) -> Result<LoadResult, JudgeError> {
        let result = self.folder.path().join("result.json");
        let own =
            std::env::current_exe().map_err(|source| JudgeError::io("find", Path::new("judge"), source))?;
        let mut words = vec![
            own.into_os_string(),
            "direct-load".into(),
            self.file().into(),
            result.clone().into(),
        ];
        words.push(arguments.seconds.to_string().into());
        if traced {
            self.recorder(arguments).args(["--"]).args(&words).answer()?;
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

    fn recorder(&self, arguments: &TraceOverheadArguments) -> Program {
        Program::new(
            &arguments.tidegate,
            "build it with `cargo build --release -p cli`",
        )
        .args(["trace", "record", "--json", "--force", "-d", &self.device, "-o"])
        .args([self.folder.path().join("trace.jsonl")])
        .args(&arguments.record)
    }

    /// Random reads of 16 at a time for 10 s under the tracer: whether nothing was lost, and at which rate.
    fn highest_rate(&self, arguments: &TraceOverheadArguments) -> Result<(bool, String), JudgeError> {
        let fio = [
            "--name=rate",
            "--rw=randread",
            "--bs=4k",
            "--ioengine=libaio",
            "--iodepth=16",
            "--direct=1",
            "--runtime=10",
            "--time_based",
            "--output=/dev/null",
        ];
        let filename = format!("--filename={}", self.file().display());
        if Program::new(&arguments.fio, "")
            .args(["--version"])
            .answer()
            .is_err()
        {
            return Ok((true, "not measured: fio is missing".to_owned()));
        }
        let recorder = self.recorder(arguments).args(["--"]).args([&arguments.fio]);
        let answer = recorder.args(fio).args([filename]).answer()?;
        let summary: Summary = serde_json::from_str(&answer).map_err(|_| JudgeError::Answer {
            command: "tidegate trace record --json".to_owned(),
            expected: "a summary".to_owned(),
            found: answer.clone(),
        })?;
        let rate = nearest_f64(summary.requests) / summary.duration_seconds;
        let text = format!(
            "{} lost of {} at {rate:.0} a second",
            summary.lost_records, summary.requests
        );
        Ok((summary.lost_records == 0, text))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Program::new("umount", TOOLS).args([&self.mountpoint]).answer();
        let _ = Program::new("losetup", TOOLS).args(["-d", &self.device]).answer();
    }
}
