//! Claims of other publications, and of the study about its tracer.

use super::{Kind, Measured, Stated, at_least, at_most, both_mb_per_s, mb_per_s, pack, within};
use crate::outcome::Outcome;
use crate::paper::other_sources::{DFTL, FILE_BYTES, GALAXY_S3, GalaxyS3, Layers, TRACER, Traced, XIANG};

fn queued(measured: &Measured, load: &str) -> f64 {
    let (one, queue) = &measured.queued[load];
    both_mb_per_s(queue) / both_mb_per_s(one)
}

fn traced(measured: &Measured) -> &Traced {
    measured
        .others
        .traced
        .as_ref()
        .expect("measured with its exhibit")
}

fn galaxy_s3(measured: &Measured) -> &GalaxyS3 {
    measured
        .others
        .galaxy_s3
        .as_ref()
        .expect("measured with its exhibit")
}

fn layers(measured: &Measured) -> &Layers {
    measured
        .others
        .translation
        .as_ref()
        .expect("measured with its exhibit")
}

/// Write requests for a file of 512 MiB.
fn requests(outcome: &Outcome) -> f64 {
    let files = results::nearest_f64(outcome.writes.bytes) / results::nearest_f64(FILE_BYTES);
    results::nearest_f64(outcome.writes.requests) / files
}

/// Two claims about the command queue are of kind input: the model's queue was written for the first, and its read-ahead for
/// the second. So are the number of requests, which follows from the largest one, and the tracer's cost at sequential
/// writes, which the study leaves to the reader. DFTL gives only a sign, as its traces are not those of this load.
pub(in crate::paper) const OF_OTHERS: [Stated; 15] = [
    Stated {
        name: "linux-packed",
        exhibit: "Linux 3.9",
        paper: "tiotest gains 10 to 73 % by packed commands (three cards, published with the driver)",
        quantity: "MB/s of tio_seq, packs of up to 8 per single requests",
        kind: Kind::HeldOut,
        expected: within(1.1, 1.73),
        number: |measured| pack(measured, 8) / pack(measured, 1),
    },
    Stated {
        name: "linux-cqe-random",
        exhibit: "Linux 4.16",
        paper: "the command queue gains 25 to 50 % and more for random reads of several threads",
        quantity: "MB/s, 32 tasks per one command at a time",
        kind: Kind::Input,
        expected: at_least(1.25),
        number: |measured| queued(measured, "random reads of 4 KiB"),
    },
    Stated {
        name: "linux-cqe-sequential-read",
        exhibit: "Linux 4.16",
        paper: "about 2 % drop of sequential reads",
        quantity: "MB/s, 32 tasks per one command at a time; the card reads ahead",
        kind: Kind::Input,
        expected: within(0.95, 1.05),
        number: |measured| queued(measured, "sequential reads of 512 KiB"),
    },
    Stated {
        name: "linux-cqe-sequential-write",
        exhibit: "Linux 4.16",
        paper: "no change of sequential writes",
        quantity: "MB/s, 32 tasks per one command at a time",
        kind: Kind::HeldOut,
        expected: within(0.95, 1.05),
        number: |measured| queued(measured, "sequential writes of 512 KiB"),
    },
    Stated {
        name: "tracer-random",
        exhibit: TRACER,
        paper: "its 50 to 100 us per IO cannot be ignored at small random IO",
        quantity: "MB/s of tio_rand without packs, with 75 us more per command",
        kind: Kind::HeldOut,
        expected: at_most(0.95),
        number: |measured| mb_per_s(&traced(measured).random_traced) / mb_per_s(&traced(measured).random),
    },
    Stated {
        name: "tracer-sequential",
        exhibit: TRACER,
        paper: "the tracer is used for sequential writes: its cost can be ignored there",
        quantity: "MB/s of tio_seq, with 75 us more per command",
        kind: Kind::Input,
        expected: at_least(0.95),
        number: |measured| {
            mb_per_s(&traced(measured).sequential_traced) / mb_per_s(&traced(measured).sequential)
        },
    },
    Stated {
        name: "s3-raw",
        exhibit: GALAXY_S3,
        paper: "sequential writes to the raw device under noop reach 39 and 40 MB/s (seeds/000, two kernels)",
        quantity: "MB/s",
        kind: Kind::HeldOut,
        expected: within(39.0 * 0.85, 40.0 * 1.15),
        number: |measured| mb_per_s(&galaxy_s3(measured).raw_noop),
    },
    Stated {
        name: "s3-cfq",
        exhibit: GALAXY_S3,
        paper: "cfq costs 7 and 5 % of it",
        quantity: "MB/s, cfq per noop, raw device",
        kind: Kind::HeldOut,
        expected: within(0.907, 0.967),
        number: |measured| mb_per_s(&galaxy_s3(measured).raw_cfq) / mb_per_s(&galaxy_s3(measured).raw_noop),
    },
    Stated {
        name: "s3-ext4",
        exhibit: GALAXY_S3,
        paper: "ext4 costs 14 and 16 %",
        quantity: "MB/s, ext4 under cfq per raw device under noop",
        kind: Kind::HeldOut,
        expected: within(0.787, 0.907),
        number: |measured| mb_per_s(&galaxy_s3(measured).ext4_cfq) / mb_per_s(&galaxy_s3(measured).raw_noop),
    },
    Stated {
        name: "s3-deadline",
        exhibit: GALAXY_S3,
        paper: "cfq is the slowest scheduler, deadline 5 to 12 % faster (through FUSE)",
        quantity: "MB/s on ext4, deadline per cfq",
        kind: Kind::HeldOut,
        expected: within(1.033, 1.16),
        number: |measured| {
            mb_per_s(&galaxy_s3(measured).ext4_deadline) / mb_per_s(&galaxy_s3(measured).ext4_cfq)
        },
    },
    Stated {
        name: "s3-requests",
        exhibit: GALAXY_S3,
        paper: "512 MB on ext4 are 1,030 to 1,048 write requests (through FUSE)",
        quantity: "write requests per 512 MiB, ext4 under cfq",
        kind: Kind::Input,
        expected: within(1030.0 * 0.99, 1048.0 * 1.01),
        number: |measured| requests(&galaxy_s3(measured).ext4_cfq),
    },
    Stated {
        name: "s3-metadata",
        exhibit: GALAXY_S3,
        paper: "11 to 23 of them are journal and metadata",
        quantity: "write requests per 512 MiB, ext4 less raw device, cfq",
        kind: Kind::HeldOut,
        expected: within(7.3, 30.7),
        number: |measured| requests(&galaxy_s3(measured).ext4_cfq) - requests(&galaxy_s3(measured).raw_cfq),
    },
    Stated {
        name: "dftl-latency",
        exhibit: DFTL,
        paper: "random writes take 78 % less time under DFTL than under FAST",
        quantity: "time of a random write of 4 KiB, cached map per FAST",
        kind: Kind::HeldOut,
        expected: at_most(0.85),
        number: |measured| {
            let time = |outcome: &Outcome| {
                results::nearest_f64(outcome.elapsed_ns)
                    / results::nearest_f64(outcome.writes.requests.max(1))
            };
            time(&layers(measured).cached_map) / time(&layers(measured).fast)
        },
    },
    Stated {
        name: "dftl-collector",
        exhibit: DFTL,
        paper: "the garbage collector has a third of the work",
        quantity: "units copied and units of the map, cached map per FAST",
        kind: Kind::HeldOut,
        expected: at_most(0.85),
        number: |measured| {
            let moved = |outcome: &Outcome| {
                let counters = &outcome.translation;
                results::nearest_f64(counters.copied_units + counters.map_units)
            };
            moved(&layers(measured).cached_map) / moved(&layers(measured).fast).max(1.0)
        },
    },
    Stated {
        name: "xiang-30",
        exhibit: XIANG,
        paper: "random writes with 30 % of spare flash are amplified 2.35 times",
        quantity: "units written per unit of the host",
        kind: Kind::HeldOut,
        expected: within(2.35 * 0.85, 2.35 * 1.15),
        number: |measured| {
            let outcome = measured
                .others
                .overwritten
                .as_ref()
                .expect("measured with its exhibit");
            outcome.translation.write_amplification().unwrap_or_default()
        },
    },
];
