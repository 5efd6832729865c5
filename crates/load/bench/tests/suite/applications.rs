//! Generated applications against the claims of their sources.

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;

use bench::app::{
    AppSpec, Application, BlockRequests, Scale, Statistics, application, applications, describe, list, run,
};
use bench::replay::Speed;
use bench::{Cache, Measurement, NoProgress};
use results::RunIdentity;
use results::call_trace::{Action, Layer, Trace};

fn generated(application: &Application, seed: u64, scale: Scale) -> Trace {
    application
        .generate(seed, scale)
        .unwrap_or_else(|error| panic!("{}: {error}", application.name))
}

#[test]
fn everything_that_a_source_states_is_met_by_the_whole_trace() {
    for application in applications() {
        let measured = Statistics::of(&generated(application, 1, Scale::WHOLE));
        for checked in application.check(&measured, Scale::WHOLE) {
            assert!(checked.agrees, "{}: {checked:?}", application.name);
        }
        assert!(!application.claims.is_empty(), "{}", application.name);
    }
}

#[test]
fn totals_of_the_whole_trace_are_those_of_the_table() {
    for application in applications() {
        for seed in [1, 99] {
            let measured = Statistics::of(&generated(application, seed, Scale::WHOLE));
            assert_eq!(
                measured.requests(),
                application.requests(),
                "{}",
                application.name
            );
            let bytes: u64 = application.streams.iter().map(|stream| stream.bytes.value).sum();
            assert_eq!(
                measured.read_bytes + measured.written_bytes,
                bytes,
                "{}",
                application.name
            );
            assert_eq!(measured.duration_ns, application.duration_ms.value * 1_000_000);
        }
    }
}

#[test]
fn a_scaled_trace_keeps_its_shares() {
    for application in applications() {
        for ppm in [100_000, 250_000, 2_000_000] {
            let scale = Scale { ppm };
            let measured = Statistics::of(&generated(application, 7, scale));
            for checked in application.check(&measured, scale) {
                assert!(checked.agrees, "{} at {ppm} ppm: {checked:?}", application.name);
            }
        }
    }
}

#[test]
fn a_seed_repeats_its_trace_and_another_gives_another() {
    let scale = Scale { ppm: 100_000 };
    for application in applications() {
        let trace = generated(application, 1, scale);
        assert_eq!(trace, generated(application, 1, scale));
        assert_ne!(trace.calls, generated(application, 2, scale).calls);
    }
}

#[test]
fn no_trace_mixes_layers_and_times_never_go_back() {
    for application in applications() {
        let trace = generated(application, 3, Scale { ppm: 200_000 });
        assert_eq!(trace.layer, application.layer);
        assert!(
            trace
                .calls
                .iter()
                .all(|call| call.action.layer() == application.layer)
        );
        assert!(trace.calls.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
    }
}

#[test]
fn files_stay_open_from_their_first_use_to_the_end() {
    let trace = generated(application("web-browsing").unwrap(), 1, Scale { ppm: 50_000 });
    let (mut open, mut closed) = (HashSet::new(), 0);
    for call in &trace.calls {
        match call.action {
            Action::Open { handle, .. } => assert!(open.insert(handle)),
            Action::Close { handle } => {
                assert!(open.remove(&handle));
                closed += 1;
            }
            Action::ReadAt { handle, .. } | Action::WriteAt { handle, .. } => {
                assert!(open.contains(&handle) && closed == 0)
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(open.is_empty() && closed > 0);
}

#[test]
fn gaps_have_a_heavy_tail() {
    for application in applications() {
        let trace = generated(application, 1, Scale::WHOLE);
        let times: Vec<u64> = trace
            .calls
            .iter()
            .filter(|call| {
                matches!(
                    call.action,
                    Action::ReadAt { .. }
                        | Action::WriteAt { .. }
                        | Action::BlockRead { .. }
                        | Action::BlockWrite { .. }
                )
            })
            .map(|call| call.at_ns)
            .collect();
        let mut gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps.sort_unstable();
        let mean = times[times.len() - 1] / u64::try_from(gaps.len()).unwrap();
        let median = gaps[gaps.len() / 2];
        assert!(
            median * 4 < mean,
            "{}: median {median} ns, mean {mean} ns",
            application.name
        );
    }
}

#[test]
fn block_requests_are_aligned_and_stay_on_the_partition() {
    for application in applications().filter(|application| application.layer == Layer::Block) {
        for call in generated(application, 5, Scale::WHOLE).calls {
            if let Action::BlockRead { offset, bytes } | Action::BlockWrite { offset, bytes } = call.action {
                assert!(offset % 4096 == 0 && bytes % 4096 == 0 && bytes > 0);
                assert!(offset + bytes <= 5 << 30, "{}", application.name);
            }
        }
    }
}

#[test]
fn a_scale_that_leaves_too_little_is_refused_with_what_is_possible() {
    let camera = application("camera").unwrap();
    for ppm in [0, 10, u64::MAX] {
        let message = camera.generate(1, Scale { ppm }).unwrap_err().to_string();
        assert!(message.contains("expected 0.0952 to 100"), "{message}");
    }
}

#[test]
fn every_parameter_is_shown_with_its_label_source_and_layer() {
    let names = list();
    for application in applications() {
        assert!(
            names.contains(application.name) && names.contains(application.title),
            "{names}"
        );
        let text = describe(application, 1, Scale::WHOLE).unwrap();
        let layer = if application.layer == Layer::Block {
            "layer: block"
        } else {
            "layer: system-calls"
        };
        assert!(
            text.contains(layer) && text.contains(application.source),
            "{text}"
        );
        assert!(!text.contains("DIFFERS"), "{text}");
        let labels = text
            .lines()
            .filter(|line| line.contains("] ") && line.contains('['))
            .count();
        assert_eq!(labels, 3 + 6 * application.streams.len(), "{text}");
    }
}

#[test]
fn what_the_replay_counts_is_what_the_sources_state() {
    for application in applications() {
        let scale = Scale {
            ppm: 200 * 1_000_000 / application.requests(),
        };
        let directory = tempfile::tempdir().unwrap();
        let spec = AppSpec {
            directory: directory.path().to_owned(),
            application,
            scale,
            speed: Speed::AsFastAsPossible,
            block_requests: BlockRequests::AsStated,
            cache: Cache::AsIs,
            seed: 4,
            keep_files: false,
        };
        let outcome = run(&spec, &NoProgress, &AtomicBool::new(false)).unwrap();
        let notes = outcome.clone().outcome().unwrap().notes;
        assert_eq!(notes, Vec::<String>::new(), "{}", application.name);
        let expected = outcome.generated.clone();
        for checked in application.check(&expected, scale) {
            assert!(checked.agrees, "{}: {checked:?}", application.name);
        }
        let record = outcome.into_record(identity()).unwrap();
        let of = |names: [&str; 2]| {
            let samples = record
                .samples
                .iter()
                .filter(|sample| names.contains(&sample.operation.as_str()));
            samples.fold((0, 0), |(count, bytes), sample| {
                (count + sample.operations_count, bytes + sample.bytes)
            })
        };
        assert_eq!(
            of(["pread", "block-read"]),
            (expected.reads, expected.read_bytes),
            "{}",
            application.name
        );
        assert_eq!(
            of(["pwrite", "block-write"]),
            (expected.writes, expected.written_bytes)
        );
        assert_eq!(record.workload["application"], application.name);
        assert_eq!(record.workload["source"], application.source);
        let is_block = application.layer == Layer::Block;
        assert_eq!(
            record.workload["layer"],
            if is_block { "block" } else { "system_calls" }
        );
        assert!(record.complete && std::fs::read_dir(directory.path()).unwrap().count() == 0);
    }
}

fn identity() -> RunIdentity {
    RunIdentity {
        command: Vec::new(),
        tool_version: "0".to_owned(),
        label: "native".to_owned(),
        round: 0,
        host: results::HostInfo::default(),
        target: results::TargetInfo::default(),
    }
}

#[test]
fn a_recording_is_synced_before_it_is_closed() {
    let trace = generated(application("camera-video").unwrap(), 1, Scale::WHOLE);
    let syncs: Vec<_> = trace
        .calls
        .windows(2)
        .filter(|pair| matches!(pair[0].action, Action::Fsync { .. }))
        .collect();
    assert_eq!(syncs.len(), 1);
    assert!(matches!(syncs[0][1].action, Action::Close { .. }));
}
