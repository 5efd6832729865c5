//! The workload beside a plain C loop with the same offsets on a file system in memory: what the harness costs.
//!
//! Runs are interleaved, and the median of the rounds' ratios counts. The quick test has little to do and an unoptimised build, so it only finds
//! a harness that has become many times slower; the target of 0.95 is measured by
//! `CEILING_BYTES=536870912 CEILING_ROUNDS=9 cargo test --release -p bench --test ceiling -- --nocapture`.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use bench::{Cache, FileSpec, Mode, NoProgress, Pattern, WriteTarget, environment, run};

const RECORD: u64 = 4096;

/// What an unoptimised build must reach.
const QUICK_RATIO: f64 = 0.3;

/// What an optimised build must reach.
const RATIO: f64 = 0.95;

fn number(name: &str, usual: u64) -> u64 {
    env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(usual)
}

#[expect(
    clippy::print_stderr,
    reason = "who reads the tests' output must see what did not run"
)]
fn skipped(reason: &str) {
    eprintln!("skipped: {reason}");
}

/// The loop, compiled; `None` without a C compiler.
fn ceiling(directory: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("judges/ceiling.c");
    let program = directory.join("ceiling");
    let compiled = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    compiled.is_ok_and(|status| status.success()).then_some(program)
}

/// What one side did: operations a second, by the clock on the wall and by the time that the processor gave.
struct Speed {
    wall: f64,
    processor: f64,
}

fn speed_of_the_loop(program: &Path, word: &str, file: &Path, offsets: &[u8]) -> Speed {
    let mut child = Command::new(program)
        .arg(word)
        .arg(file)
        .arg(RECORD.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the loop starts");
    let mut input = child.stdin.take().expect("it reads offsets");
    input.write_all(offsets).expect("it reads all offsets");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "the loop failed");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    let number = |name: &str| answer[name].as_f64().expect("a number");
    Speed {
        wall: number("operations_per_s"),
        processor: number("operations_count") * 1e9 / number("cpu_ns"),
    }
}

fn our_speed(spec: &FileSpec) -> Speed {
    let outcome = run(spec, &NoProgress, &AtomicBool::new(false)).expect("the workload runs");
    let done = results::nearest_f64(outcome.read.count + outcome.write.count);
    let cpu_ns = outcome
        .workers
        .expect("the kernel counts the time of threads")
        .cpu_ns;
    Speed {
        wall: done * 1e9 / results::nearest_f64(outcome.operation_ns),
        processor: done * 1e9 / results::nearest_f64(cpu_ns.max(1)),
    }
}

#[expect(clippy::print_stdout, reason = "the ratios are the result of a long run")]
fn show(line: &str) {
    println!("{line}");
}

/// The median of the ratios of one round each.
fn median_ratio(rounds: &[(Speed, Speed)], of: impl Fn(&Speed) -> f64) -> f64 {
    let mut ratios: Vec<f64> = rounds
        .iter()
        .map(|(ours, theirs)| of(ours) / of(theirs))
        .collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

#[test]
fn the_harness_costs_little_beside_a_plain_loop_in_c() {
    let memory = Path::new("/dev/shm");
    let kind = environment::target(memory)
        .ok()
        .and_then(|target| target.file_system_type);
    if kind.as_deref() != Some("tmpfs") {
        skipped("/dev/shm is no tmpfs");
        return;
    }
    let tools = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory is writable");
    let Some(program) = ceiling(tools.path()) else {
        skipped("there is no C compiler");
        return;
    };
    let directory = tempfile::tempdir_in(memory).expect("/dev/shm is writable");
    let (bytes, rounds) = (number("CEILING_BYTES", 8 << 20), number("CEILING_ROUNDS", 3));
    let file = directory.path().join("of-the-loop");
    fs::write(&file, vec![1; usize::try_from(bytes).expect("it fits in memory")]).expect("there is space");
    let target = if cfg!(debug_assertions) {
        QUICK_RATIO
    } else {
        RATIO
    };
    let mut too_slow = Vec::new();
    for (pattern, mode, word) in [
        (Pattern::SequentialRead, Mode::Buffered, "read"),
        (Pattern::RandomRead, Mode::Buffered, "read"),
        (Pattern::SequentialWrite, Mode::Buffered, "write"),
        (Pattern::RandomWrite, Mode::Buffered, "write"),
        (Pattern::RandomRead, Mode::Mmap, "mmap-read"),
        (Pattern::RandomWrite, Mode::Mmap, "mmap-write"),
    ] {
        let spec = FileSpec {
            mode,
            cache: Cache::Warm,
            write_target: WriteTarget::ExistingFile,
            ..FileSpec::plain(directory.path().to_owned(), pattern, RECORD, bytes)
        };
        let offsets: String = bench::offsets(&spec, 0)
            .expect("the workload is valid")
            .map(|offset| format!("{offset}\n"))
            .collect();
        let done: Vec<(Speed, Speed)> = (0..rounds)
            .map(|_| {
                (
                    our_speed(&spec),
                    speed_of_the_loop(&program, word, &file, offsets.as_bytes()),
                )
            })
            .collect();
        let (wall, processor) = (
            median_ratio(&done, |speed| speed.wall),
            median_ratio(&done, |speed| speed.processor),
        );
        show(&format!(
            "{pattern:?} {mode}: ratio {wall:.3}, by processor time {processor:.3}"
        ));
        // Processor time, as others may use the machine too.
        let ratio = processor;
        // A mapping has no system call: the clock alone costs a good part of a copy of 4 KiB.
        if !mode.is_mapped() && ratio < target {
            too_slow.push(format!("{pattern:?} {mode}: {ratio:.3}"));
        }
    }
    assert!(too_slow.is_empty(), "below {target}: {too_slow:?}");
}
