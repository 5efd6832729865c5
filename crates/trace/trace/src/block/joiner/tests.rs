//! Records in, requests out: merging, splitting, losses, and the order of reports.

use results::block_trace::{BlockType, CauseQuality};
use zerocopy::FromZeros;

use super::*;
use crate::block::record::{EventRecord, ProcessReference, driver_flag, event_kind, run_kind};

const DEVICE: u32 = 8 << 20;
const OWN_PID: u32 = 77;
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 2;
const SYNC: u32 = 1 << 11;
const PREFLUSH: u32 = 1 << 18;

fn joiner() -> Joiner {
    let bits = [("__REQ_SYNC", 11), ("__REQ_PREFLUSH", 18)];
    Joiner::new(
        Attribution::default(),
        FlagBits::from_members(bits.into_iter()),
        OWN_PID,
    )
}

/// A direct transfer of a file by process `pid`; `sector` and `sectors` on the disk.
fn bio(pid: u32, time: u64, operation: u32, sector: u64, sectors: u32) -> Record {
    let mut bio = BioRecord::new_zeroed();
    bio.device = DEVICE;
    bio.time = time;
    bio.bio = time;
    bio.sector = sector;
    bio.bytes = sectors * 512;
    bio.operation = operation;
    bio.submitter = ProcessReference {
        tgid: pid,
        tid: pid,
        name: 0,
    };
    bio.run.kind = run_kind::DIRECT;
    bio.run.inode = u64::from(pid);
    bio.run.mode = 0x8000;
    bio.run.bytes = bio.bytes;
    Record::Bio(bio)
}

fn request(issued: u64, operation: u32, sector: u64, sectors: u32) -> Record {
    let mut request = RequestRecord::new_zeroed();
    request.device = DEVICE;
    request.sector = sector;
    request.bytes = sectors * 512;
    request.issued = issued;
    request.completed = issued + 50;
    request.operation = operation;
    Record::Request(request)
}

/// Processes the records and returns all requests.
fn joined(joiner: &mut Joiner, records: &[Record]) -> Vec<Request> {
    for record in records {
        joiner.take(record);
    }
    joiner.finish();
    let mut requests = Vec::new();
    while let Some(item) = joiner.next_of_rest() {
        if let Item::Request(request) = item {
            requests.push(*request);
        }
    }
    requests
}

/// First sector, bytes and cause of each run.
fn runs(request: &Request) -> Vec<(u64, u64, Option<u32>)> {
    let of = |run: &Run| {
        (
            run.sector,
            run.bytes,
            run.cause.as_ref().map(|process| process.pid),
        )
    };
    request.runs.iter().map(of).collect()
}

#[test]
fn bios_that_were_merged_are_one_request_with_a_run_for_each() {
    let records = [
        bio(1, 100, WRITE | SYNC, 8, 8),
        bio(2, 110, WRITE, 16, 8),
        request(200, WRITE, 8, 16),
    ];
    let requests = joined(&mut joiner(), &records);
    assert_eq!(requests.len(), 1);
    let one = &requests[0];
    assert_eq!(runs(one), [(8, 4096, Some(1)), (16, 4096, Some(2))]);
    assert_eq!(
        (one.queued_ns, one.issued_ns, one.completed_ns),
        (Some(100), Some(200), Some(250))
    );
    assert_eq!(
        one.submitter.as_ref().map(|process| process.pid),
        Some(1),
        "the first one's"
    );
    assert!(
        one.flags.contains(RequestFlags::SYNC),
        "flags are all that any has"
    );
}

#[test]
fn a_bio_that_was_split_is_told_with_each_of_its_requests() {
    let records = [
        bio(1, 100, WRITE, 0, 24),
        request(200, WRITE, 0, 16),
        request(210, WRITE, 16, 8),
    ];
    let requests = joined(&mut joiner(), &records);
    let all: Vec<_> = requests.iter().map(runs).collect();
    assert_eq!(all, [[(0, 8192, Some(1))], [(16, 4096, Some(1))]]);
    assert!(requests.iter().all(|request| request.queued_ns == Some(100)));
    assert_eq!(
        requests[1].runs[0].file_offset,
        Some(8192),
        "the place in the file goes with it"
    );
}

#[test]
fn a_read_and_a_write_of_the_same_place_do_not_take_each_others_bios() {
    let records = [
        bio(1, 100, WRITE, 8, 8),
        bio(2, 110, READ, 8, 8),
        request(200, READ, 8, 8),
        request(210, WRITE, 8, 8),
    ];
    let requests = joined(&mut joiner(), &records);
    let told: Vec<_> = requests
        .iter()
        .map(|request| (request.operation, runs(request)))
        .collect();
    assert_eq!(
        told,
        [
            (Operation::Write, vec![(8, 4096, Some(1))]),
            (Operation::Read, vec![(8, 4096, Some(2))])
        ]
    );
}

#[test]
fn a_place_that_is_written_twice_is_joined_in_the_order_of_queueing() {
    let records = [
        bio(1, 100, WRITE, 8, 8),
        bio(2, 110, WRITE, 8, 8),
        request(200, WRITE, 8, 8),
        request(300, WRITE, 8, 8),
    ];
    let requests = joined(&mut joiner(), &records);
    let causes: Vec<_> = requests
        .iter()
        .map(|request| (request.issued_ns, runs(request)[0].2))
        .collect();
    assert_eq!(causes, [(Some(200), Some(1)), (Some(300), Some(2))]);
}

#[test]
fn sectors_without_a_bio_are_an_unknown_run_and_nothing_is_guessed() {
    let records = [bio(1, 100, WRITE, 8, 8), request(200, WRITE, 8, 24)];
    let requests = joined(&mut joiner(), &records);
    assert_eq!(runs(&requests[0]), [(8, 4096, Some(1)), (16, 8192, None)]);
    let unknown = &requests[0].runs[1];
    assert_eq!(
        (unknown.block_type, unknown.cause_quality),
        (BlockType::Unknown, CauseQuality::None)
    );
}

#[test]
fn a_devices_flush_is_that_of_the_first_who_asked_and_answers_all() {
    let records = [
        bio(1, 100, WRITE | PREFLUSH, 0, 0),
        bio(2, 110, WRITE | PREFLUSH, 0, 0),
        // Made after the first flush was issued, which therefore does not answer it.
        bio(3, 220, WRITE | PREFLUSH, 0, 0),
        request(200, FLUSH, 0, 0),
        request(400, FLUSH, 0, 0),
        request(600, FLUSH, 0, 0),
    ];
    let requests = joined(&mut joiner(), &records);
    let submitters: Vec<_> = requests
        .iter()
        .map(|request| request.submitter.as_ref().map(|process| process.pid))
        .collect();
    assert_eq!(
        submitters,
        [Some(1), Some(3), None],
        "nobody waits for the last one"
    );
    assert!(
        requests
            .iter()
            .all(|request| request.operation == Operation::Flush)
    );
}

#[test]
fn a_bio_whose_request_never_comes_is_told_at_the_end_without_times() {
    let requests = joined(&mut joiner(), &[bio(1, 100, WRITE, 8, 8)]);
    assert_eq!(requests.len(), 1);
    assert_eq!((requests[0].issued_ns, requests[0].status), (None, None));
    assert_eq!(runs(&requests[0]), [(8, 4096, Some(1))]);
}

#[test]
fn requests_of_the_tracer_itself_are_counted_and_left_out() {
    let mut joiner = joiner();
    let records = [
        bio(OWN_PID, 100, WRITE, 8, 8),
        request(200, WRITE, 8, 8),
        bio(1, 300, WRITE, 16, 8),
        request(400, WRITE, 16, 8),
    ];
    let requests = joined(&mut joiner, &records);
    assert_eq!(requests.len(), 1);
    assert_eq!((requests[0].sector, joiner.own_requests), (16, 1));
}

#[test]
fn items_come_in_the_order_of_their_first_times_and_not_before_their_turn() {
    let mut joiner = joiner();
    let mut unlink = EventRecord::new_zeroed();
    unlink.event = event_kind::UNLINK;
    unlink.time = 150;
    for record in [
        bio(1, 100, WRITE, 8, 8),
        bio(2, 200, WRITE, 64, 8),
        request(300, WRITE, 64, 8),
        Record::Event(unlink),
    ] {
        joiner.take(&record);
    }
    assert!(joiner.next().is_none(), "the first bio is still under way");
    joiner.take(&request(400, WRITE, 8, 8));
    // No earlier item can follow once the newest record is this much later.
    joiner.take(&bio(3, 10 * DISORDER_NS, WRITE, 128, 8));
    let mut told = Vec::new();
    while let Some(item) = joiner.next() {
        told.push(match item {
            Item::Request(request) => request.sector,
            Item::Event(_) => 0,
        });
    }
    assert_eq!(told, [8, 0, 64]);
}

#[test]
fn a_device_without_requests_completes_its_bios() {
    let mut records = [bio(1, 100, WRITE, 8, 8)];
    if let Record::Bio(bio) = &mut records[0] {
        bio.without_requests = 1;
    }
    let mut done = BioDoneRecord::new_zeroed();
    (done.device, done.bio, done.time, done.status) = (DEVICE, 100, 180, 10);
    let requests = joined(&mut joiner(), &[records[0], Record::BioDone(done)]);
    assert_eq!(requests.len(), 1);
    assert_eq!(
        (requests[0].completed_ns, requests[0].status),
        (Some(180), Some(EIO))
    );
}

#[test]
fn a_command_of_the_driver_stands_with_its_request_or_by_itself() {
    let mut transfer = DriverRecord::new_zeroed();
    (transfer.device, transfer.sector, transfer.bytes) = (DEVICE, 8, 4096);
    (transfer.issued, transfer.completed, transfer.code, transfer.tries) = (210, 240, 25, 1);
    transfer.flags = driver_flag::HAS_DATA;
    let mut status = DriverRecord::new_zeroed();
    (status.device, status.code, status.issued, status.completed) = (DEVICE, 13, 260, 270);
    let records = [
        bio(1, 100, WRITE, 8, 8),
        Record::Driver(transfer),
        request(200, WRITE, 8, 8),
        Record::Driver(status),
        // Belongs to a request that was issued before the trace.
        Record::Driver(DriverRecord {
            sector: 512,
            ..transfer
        }),
    ];
    let requests = joined(&mut joiner(), &records);
    let told: Vec<_> = requests
        .iter()
        .map(|request| (request.operation, request.command.map(|command| command.code)))
        .collect();
    assert_eq!(
        told,
        [
            (Operation::Write, Some(25)),
            (Operation::Driver, Some(25)),
            (Operation::Driver, Some(13))
        ]
    );
}

/// A discard of a whole device is split into pieces that may be small: the cost of each must not grow with their
/// number.
#[test]
fn a_bio_that_is_split_into_very_many_requests_is_joined_piece_by_piece() {
    const PIECES: u32 = 200_000;
    const DISCARD: u32 = 3;
    let mut joiner = joiner();
    joiner.take(&bio(1, 100, DISCARD, 0, PIECES * 8));
    let mut joined = 0_u32;
    for piece in 0..PIECES {
        joiner.take(&request(200 + u64::from(piece), DISCARD, u64::from(piece) * 8, 8));
        while joiner.next().is_some() {
            joined += 1;
        }
    }
    joiner.finish();
    while let Some(item) = joiner.next_of_rest() {
        let Item::Request(request) = item else { continue };
        assert_eq!((request.bytes, request.queued_ns), (4096, Some(100)));
        joined += 1;
    }
    assert_eq!(joined, PIECES);
}
