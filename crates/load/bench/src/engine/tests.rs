use std::fs;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::access::issued::Issued;
use crate::operation_log::LogLimits;
use crate::order::offsets;
use crate::spec::{Mode, Order, Pattern, Rate, WriteTarget};
use crate::threads::{PROGRESS_EVERY, STACK_BYTES};

const RECORD: u64 = 512;
const RECORDS: u64 = 21;

/// The calls of a worker, in their order.
fn issued_by(spec: &FileSpec) -> Vec<Issued> {
    let file = spec.directory.join("file");
    fs::write(&file, vec![7; 512 * 21]).unwrap();
    let stop = AtomicBool::new(false);
    let (shared, files) = (&Shared::new(1, &stop), &[file]);
    let work = || {
        let order = RecordOrder::of_all(spec).remove(0);
        run(spec, 0, files, order, shared)?;
        Ok(Some(issued::take()))
    };
    let watch = |(): &mut ()| PROGRESS_EVERY;
    let ran = shared.run(("test", STACK_BYTES), vec![work], || (), watch);
    ran.unwrap().1.remove(0)
}

#[test]
fn all_loops_issue_the_same_calls_in_the_same_order() {
    let directory = tempfile::tempdir().unwrap();
    let mut specs = Vec::new();
    for (pattern, order, passes, mode) in [
        (Pattern::SequentialRead, Order::EachOnce, 2, Mode::BUFFERED),
        (Pattern::RandomRead, Order::EachOnce, 3, Mode::BUFFERED),
        (Pattern::RandomRead, Order::WithReplacement, 1, Mode::BUFFERED),
        (Pattern::SequentialWrite, Order::EachOnce, 2, Mode::BUFFERED),
        (Pattern::RandomWrite, Order::Mobibench, 1, Mode::BUFFERED),
        (Pattern::RandomWrite, Order::EachOnce, 1, Mode::FDATASYNC),
        (
            Pattern::Mixed { read_percent: 40 },
            Order::EachOnce,
            2,
            Mode::FSYNC,
        ),
    ] {
        let whole = FileSpec {
            order,
            passes,
            mode,
            sync_every: if mode == Mode::FSYNC { 3 } else { 1 },
            write_target: WriteTarget::ExistingFile,
            ..FileSpec::plain(directory.path().to_owned(), pattern, RECORD, RECORD * RECORDS)
        };
        for records in [1, 7, 8, 9, 20] {
            let part = FileSpec {
                records_max: Some(records),
                ..whole.clone()
            };
            specs.push(part);
        }
        specs.push(whole);
    }
    for spec in specs {
        let found = issued_by(&spec);
        let transfers = found.iter().filter(|(kind, ..)| *kind != "sync");
        let visited: Vec<u64> = transfers.map(|(_, offset, _)| *offset).collect();
        assert_eq!(
            visited,
            offsets(&spec, 0).unwrap().collect::<Vec<_>>(),
            "{spec:?}"
        );
        let logged = FileSpec {
            log: LogLimits {
                latencies_max: 1,
                seconds_max: 0,
            },
            ..spec.clone()
        };
        let limited = FileSpec {
            rate: Some(Rate::OperationsPerSecond(1_000_000)),
            ..spec.clone()
        };
        let ring = FileSpec {
            engine: Engine::IoUring { depth: 1 },
            ..spec.clone()
        };
        for other in [logged, limited, ring] {
            assert_eq!(issued_by(&other), found, "{other:?}");
        }
    }
}
