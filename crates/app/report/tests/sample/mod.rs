//! A report input with plausible numbers, for the tests and for the example. Nothing here was measured.

use std::collections::BTreeMap;

use report::{LadderRow, LadderStep, ReportInput};
use results::{HostInfo, LatencyHistogram, RunRecord, SCHEMA, Sample, TargetInfo, TimedWindow, counter};

/// Label of the records, name, description, MB/s of three rounds, backing writes.
type Step = (&'static str, &'static str, &'static str, [u64; 3], f64);

const STEPS: [Step; 5] = [
    (
        "native",
        "native",
        "The file system itself, without anything between.",
        [455, 431, 462],
        0.0,
    ),
    (
        "fuse-4k",
        "FUSE 4 KiB",
        "Plain FUSE, requests of 4 KiB as the first Android had it.",
        [22, 21, 24],
        131_072.0,
    ),
    (
        "fuse-512k",
        "FUSE 512 KiB",
        "Plain FUSE, requests of 512 KiB.",
        [231, 219, 240],
        1_024.0,
    ),
    (
        "bfuse-8m",
        "bFUSE 8 MiB",
        "The write buffer of 8 MiB with its flush manager.",
        [392, 377, 410],
        256.0,
    ),
    (
        "tuned",
        "tuned",
        "All that the kernel grants: passthrough, largest requests.",
        [450, 436, 458],
        0.0,
    ),
];

const FILE_BYTES: u64 = 512 << 20;

/// A ladder of five steps in three rounds.
pub fn input() -> ReportInput {
    let rounds = 0..3_u32;
    let records: Vec<RunRecord> = rounds
        .flat_map(|round| STEPS.iter().map(move |step| record(step, round)))
        .collect();
    let ladder = STEPS
        .iter()
        .map(|(run_label, label, description, ..)| {
            let step = LadderStep {
                group: String::new(),
                run_label: (*run_label).to_owned(),
                label: (*label).to_owned(),
                description: (*description).to_owned(),
            };
            LadderRow::from_records(&records, "native", &step)
        })
        .collect();
    ReportInput {
        title: "How much of the native file system is left".to_owned(),
        subtitle: "512 MiB, written sequentially in records of 512 KiB, fsync at the end".to_owned(),
        records,
        ladder,
        notes: vec!["Sample numbers: nothing here was measured.".to_owned()],
    }
}

fn record(step: &Step, round: u32) -> RunRecord {
    let (label, _, _, mb_per_s, backing_writes) = step;
    let mb_per_s = mb_per_s[usize::try_from(round).expect("three rounds")];
    let elapsed_ns = FILE_BYTES * 1_000 / mb_per_s;
    let mut latency = LatencyHistogram::new();
    for record in 1..=1024 {
        latency.record(elapsed_ns / 1024 * (512 + record) / 1024);
    }
    let window = TimedWindow {
        sync_ns: elapsed_ns / 4,
        close_ns: 12_000,
        ..TimedWindow::of(elapsed_ns)
    };
    let mut counters = BTreeMap::from([
        (counter::CPU_ACTIVE.to_owned(), 61.5),
        (
            counter::CONTEXT_SWITCHES_SYSTEM.to_owned(),
            4_200.0 + backing_writes * 2.1,
        ),
    ]);
    if *label != "native" {
        counters.insert(counter::BACKING_WRITES.to_owned(), *backing_writes);
    }
    let native = *label == "native";
    RunRecord {
        schema: SCHEMA.to_owned(),
        command: ["tidegate", "demo", "--rounds", "3", "/srv/with blank"]
            .map(str::to_owned)
            .to_vec(),
        tool_version: "0.1.0".to_owned(),
        started_unix_ns: 1_767_225_600_000_000_000 + u64::from(round) * 60_000_000_000,
        host: HostInfo {
            kernel: "Linux 6.12.1".to_owned(),
            machine: "x86_64".to_owned(),
            processor: Some("Example processor".to_owned()),
            cpus: 2,
            memory_bytes: 8_321_499_136,
            ..HostInfo::default()
        },
        target: TargetInfo {
            path: "/srv/test".to_owned(),
            file_system_type: Some(if native { "ext4" } else { "fuse.tidegate" }.to_owned()),
            mount_source: Some(if native { "/dev/loop0" } else { "/srv/data" }.to_owned()),
            mount_options: Some("rw,relatime".to_owned()),
            block_device: native.then(|| "loop0".to_owned()),
            scheduler: native.then(|| "none".to_owned()),
            free_bytes: Some(2 << 30),
            ..TargetInfo::default()
        },
        label: (*label).to_owned(),
        round,
        workload: serde_json::json!({ "kind": "file" }),
        samples: vec![
            Sample::new("write", (1024, FILE_BYTES), window, latency).expect("latencies are short"),
        ],
        counters,
        complete: true,
    }
}
