//! The cost of the harness: the workload against a plain C loop with the same offsets, on a file system in memory.
//!
//! Runs are interleaved, and the median of the rounds' ratios counts. The quick test has little work and an
//! unoptimized build, so it only detects a harness that has become many times slower; the target of 0.95 is measured
//! by `CEILING_BYTES=536870912 CEILING_ROUNDS=9 cargo test --release -p bench --test ceiling -- --nocapture`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use bench::{Cache, FileSpec, Mode, NoProgress, Pattern, WriteTarget, run};
use runner::environment;

const RECORD: u64 = 4096;

/// Smallest ratio for an unoptimized build.
const QUICK_RATIO: f64 = 0.3;

/// Smallest ratio for an optimized build.
const RATIO: f64 = 0.95;

fn number(name: &str, usual: u64) -> u64 {
    env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(usual)
}

/// Compiles the C loop; `None` without a C compiler.
fn ceiling(directory: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tools/judge/c/file_loop.c");
    let program = directory.join("file_loop");
    let compiled = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    compiled.is_ok_and(|status| status.success()).then_some(program)
}

/// The speed of one side in operations per second, by wall clock and by processor time.
struct Speed {
    wall: f64,
    processor: f64,
}

fn speed_of_the_loop(program: &Path, spec: &FileSpec, offsets: &Path) -> Speed {
    let output = Command::new(program)
        .arg("--directory")
        .arg(&spec.directory)
        .args(["--mode", spec.mode.name(), "--warm", "--prefault"])
        .args(["--record", &spec.record_bytes.to_string()])
        .args(["--size", &spec.file_bytes.to_string()])
        .args(["--read-percent", if spec.pattern.reads() { "100" } else { "0" }])
        .arg("--offsets")
        .arg(offsets)
        .output()
        .expect("the loop starts");
    assert!(output.status.success(), "the loop failed");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    let number = |name: &str| answer[name].as_f64().expect("a number");
    Speed {
        wall: number("operations") * 1e9 / number("elapsed_ns"),
        processor: number("operations") * 1e9 / number("cpu_ns"),
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

/// The median of the ratios of the rounds.
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
        testkit::report_left_out("/dev/shm is no tmpfs");
        return;
    }
    let tools = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory is writable");
    let Some(program) = ceiling(tools.path()) else {
        testkit::report_left_out("there is no C compiler");
        return;
    };
    let directory = tempfile::tempdir_in(memory).expect("/dev/shm is writable");
    let (bytes, rounds) = (number("CEILING_BYTES", 8 << 20), number("CEILING_ROUNDS", 3));
    let offsets_file = tools.path().join("offsets");
    let target = if cfg!(debug_assertions) {
        QUICK_RATIO
    } else {
        RATIO
    };
    let mut too_slow = Vec::new();
    for (pattern, mode) in [
        (Pattern::SequentialRead, Mode::BUFFERED),
        (Pattern::RandomRead, Mode::BUFFERED),
        (Pattern::SequentialWrite, Mode::BUFFERED),
        (Pattern::RandomWrite, Mode::BUFFERED),
        (Pattern::RandomRead, Mode::MMAP),
        (Pattern::RandomWrite, Mode::MMAP),
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
        fs::write(&offsets_file, offsets).expect("there is space");
        let done: Vec<(Speed, Speed)> = (0..rounds)
            .map(|_| {
                (
                    our_speed(&spec),
                    speed_of_the_loop(&program, &spec, &offsets_file),
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
        // Processor time, because others may use the machine too.
        let ratio = processor;
        // A mapping has no system call: the clock by itself costs a considerable part of a 4 KiB copy.
        if !mode.is_mapped() && ratio < target {
            too_slow.push(format!("{pattern:?} {mode}: {ratio:.3}"));
        }
    }
    assert!(too_slow.is_empty(), "below {target}: {too_slow:?}");
}
