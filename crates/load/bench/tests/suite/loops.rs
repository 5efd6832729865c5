//! Workloads whose threads repeat calls on small files, on a real directory. The calls themselves are counted by strace
//! in the tests of the program. A new one is a line at the end.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bench::{
    FileLoop, Fileserver, Loops, LoopsSpec, NoProgress, Outcome, Phase, Progress, Varmail, Webproxy, Workload,
};

use crate::file_faults::Mount;
use crate::stopping::StopWhenMeasuring;

fn spec<L>(directory: &Path) -> LoopsSpec<L> {
    let loops = Loops {
        threads: 4,
        files: 41,
        mean_bytes: 16 << 10,
        append_bytes: 16 << 10,
        run_ns: 600_000_000_000,
        loops: Some(30),
    };
    LoopsSpec::new(directory.to_owned(), loops)
}

fn done<L: FileLoop>(spec: &LoopsSpec<L>, seed: u64) -> Outcome {
    spec.run(seed, &NoProgress, &AtomicBool::new(false))
        .expect("the workload must run")
}

/// Kind, count and bytes of each sample.
fn amounts(outcome: &Outcome) -> Vec<(&str, u64, u64)> {
    let samples = outcome.samples.iter();
    samples
        .map(|sample| (sample.operation.as_str(), sample.operations_count, sample.bytes))
        .collect()
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).expect("the directory exists").count()
}

/// Holds for each workload; `a_loop` is kind and number of the calls of one loop.
fn check<L: FileLoop>(a_loop: &[(&str, u64)]) {
    operations_follow_from_the_seed::<L>(a_loop);
    a_time_ends_the_loops_and_a_stop_ends_the_run::<L>();
    a_full_disk_is_an_error_with_call_and_file::<L>();
}

fn operations_follow_from_the_seed<L: FileLoop>(a_loop: &[(&str, u64)]) {
    let directory = tempfile::tempdir().expect("a folder");
    let spec = spec::<L>(directory.path());
    let outcome = done(&spec, 7);
    assert!(outcome.complete && outcome.notes.is_empty(), "{outcome:?}");
    assert_eq!(outcome.workload["kind"], L::NAME);
    let counts: Vec<_> = amounts(&outcome)
        .iter()
        .map(|(kind, count, _)| (*kind, *count))
        .collect();
    let of_kind = |(kind, calls): &(_, _)| (*kind, calls * 120);
    let expected: Vec<_> = a_loop.iter().map(of_kind).collect();
    assert_eq!(counts, expected, "4 threads with 30 loops each");
    let calls = expected.iter().map(|(_, calls)| calls).sum::<u64>();
    assert_eq!(outcome.counters["operations_count"], results::nearest_f64(calls));
    assert!(outcome.counters["operations_per_s"] > 0.0);
    assert_eq!(amounts(&done(&spec, 7)), amounts(&outcome));
    assert_ne!(amounts(&done(&spec, 8)), amounts(&outcome));
    // Appends of 1 byte to 16 KiB, all equally likely: 240 of them have a mean within 5 % of the half with 95 %.
    for (kind, calls, bytes) in amounts(&outcome) {
        assert!(
            kind != "append" || (7_000..9_400).contains(&(bytes / calls)),
            "{bytes}"
        );
    }
    assert_eq!(entries(directory.path()), 0);
}

fn a_time_ends_the_loops_and_a_stop_ends_the_run<L: FileLoop>() {
    let directory = tempfile::tempdir().expect("a folder");
    let mut short = spec::<L>(directory.path());
    (short.loops.loops, short.loops.run_ns) = (None, 50_000_000);
    let outcome = done(&short, 1);
    assert!(outcome.complete);
    let elapsed_ns = outcome.samples[0].elapsed_ns;
    assert!(elapsed_ns >= 50_000_000, "{elapsed_ns}");
    assert!(
        outcome.counters["loops_count"] >= 4.0,
        "each thread had its first loop"
    );

    short.loops.run_ns = 600_000_000_000;
    let stop = AtomicBool::new(false);
    let outcome = short
        .run(1, &StopWhenMeasuring(&stop), &stop)
        .expect("a partial outcome");
    assert!(!outcome.complete);
    assert_eq!(entries(directory.path()), 0);

    // A stop ends the preparation too: these files would take minutes.
    (short.loops.files, short.loops.mean_bytes) = (100_000, 4096);
    let outcome = short
        .run(1, &NoProgress, &AtomicBool::new(true))
        .expect("an empty outcome");
    assert!(!outcome.complete && outcome.samples.is_empty(), "{outcome:?}");
    assert_eq!(entries(directory.path()), 0);
}

fn a_full_disk_is_an_error_with_call_and_file<L: FileLoop>() {
    let Some(mount) = Mount::new(&["-t", "tmpfs", "-o", "size=4m", "none"]) else {
        return;
    };
    let mut spec = spec::<L>(mount.path());
    let error = |spec: &LoopsSpec<L>, progress: &dyn Progress| {
        let ran = spec.run(1, progress, &AtomicBool::new(false));
        ran.expect_err("it does not fit").to_string()
    };
    /// Another program uses the space after the check.
    struct FillDisk(PathBuf, AtomicBool);
    impl Progress for FillDisk {
        fn advance(&self, phase: Phase, _done: u64, _total: u64) {
            if phase == Phase::Measure && !self.1.swap(true, Ordering::Relaxed) {
                let mut file = fs::File::create(self.0.join("other")).expect("a file");
                while file.write_all(&[1; 4096]).is_ok() {}
            }
        }
    }
    let filler = FillDisk(mount.path().to_owned(), AtomicBool::new(false));
    let message = error(&spec, &filler);
    assert!(
        message.starts_with("write of ") && ["/file-0", "/log-0"].iter().any(|file| message.contains(file)),
        "{message}"
    );
    assert!(
        message.ends_with("No space left on device (os error 28)"),
        "{message}"
    );
    fs::remove_file(mount.path().join("other")).expect("a file");
    assert_eq!(entries(mount.path()), 0);
    spec.loops.files = 1000;
    assert!(error(&spec, &NoProgress).contains("the workload needs"));
    assert_eq!(entries(mount.path()), 0);
}

#[test]
fn a_set_that_cannot_be_is_refused_before_anything_is_touched() {
    let refused = |change: &dyn Fn(&mut LoopsSpec<Varmail>)| {
        let mut spec = spec::<Varmail>(Path::new("/nowhere"));
        change(&mut spec);
        spec.check().unwrap_err().to_string()
    };
    let of = [
        refused(&|spec| spec.loops.files = 3),
        refused(&|spec| spec.loops.threads = 0),
        refused(&|spec| spec.loops.run_ns = 0),
        refused(&|spec| spec.loops.append_bytes = 0),
        refused(&|spec| spec.loops.mean_bytes = 1 << 40),
    ];
    let expected = [
        "files: 3, expected 4 to 10000000",
        "threads: 0, expected 1 to 1024",
        "runtime in ns: 0, expected 1 to 18446744073709551615",
        "append: 0, expected 1 to 67108864",
        "mean size: 1099511627776, expected 1 to 67108864",
    ];
    assert_eq!(of, expected);
    let error = spec::<Varmail>(Path::new("/nowhere")).run(1, &NoProgress, &AtomicBool::new(false));
    assert!(error.unwrap_err().to_string().starts_with("statvfs of /nowhere"));
    // A share of one file is deleted and created again.
    let directory = tempfile::tempdir().unwrap();
    let mut smallest = spec::<Varmail>(directory.path());
    smallest.loops.files = 4;
    assert_eq!(amounts(&done(&smallest, 1))[3], ("delete", 120, 0));
}

#[test]
fn varmail() {
    check::<Varmail>(&[
        ("append", 2),
        ("close", 3),
        ("create", 1),
        ("delete", 1),
        ("open", 2),
        ("read", 2),
        ("sync", 2),
    ]);
}

#[test]
fn fileserver() {
    check::<Fileserver>(&[
        ("append", 1),
        ("close", 3),
        ("create", 1),
        ("delete", 1),
        ("open", 2),
        ("read", 1),
        ("stat", 1),
        ("write", 1),
    ]);
    let directory = tempfile::tempdir().unwrap();
    let mut smallest = spec::<Fileserver>(directory.path());
    smallest.loops.files = 19;
    let refused = smallest.check().unwrap_err().to_string();
    assert_eq!(refused, "files: 19, expected 20 to 10000000");
    smallest.loops.files = 20;
    assert_eq!(amounts(&done(&smallest, 1))[3], ("delete", 120, 0));
}

#[test]
fn webproxy() {
    check::<Webproxy>(&[
        ("append", 2),
        ("close", 6),
        ("create", 1),
        ("delete", 1),
        ("open", 5),
        ("read", 5),
    ]);
}
