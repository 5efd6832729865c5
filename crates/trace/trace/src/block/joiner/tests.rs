//! Records in, requests out: merging, splitting, losses, and the order of reports.

use results::block_trace::{BlockType, CauseQuality, Run};
use zerocopy::FromZeros;

use super::words::EIO;
use super::*;
use crate::block::record::{
    AliasesRecord, BioDoneRecord, BioRecord, EventRecord, LostRecord, MERGED_BIOS, NameRecord,
    ProcessReference, WriterRecord, dirtied as dirtied_by, driver_flag, event_kind, run_flag, run_kind,
};

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
        true,
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

/// A read of a block that belongs to no file.
fn metadata(pid: u32, time: u64, sector: u64) -> Record {
    let Record::Bio(mut read) = bio(pid, time, READ, sector, 8) else {
        panic!("a bio");
    };
    (read.run.kind, read.run.inode) = (run_kind::METADATA, 0);
    Record::Bio(read)
}

#[test]
fn requests_of_the_tracer_itself_are_counted_and_left_out() {
    let mut joiner = joiner();
    let records = [
        bio(OWN_PID, 100, WRITE, 8, 8),
        request(200, WRITE, 8, 8),
        bio(1, 300, WRITE, 16, 8),
        request(400, WRITE, 16, 8),
        // These read blocks of no file.
        metadata(OWN_PID, 500, 24),
        request(600, READ, 24, 8),
        metadata(1, 700, 32),
        request(800, READ, 32, 8),
    ];
    let requests = joined(&mut joiner, &records);
    let told: Vec<u64> = requests.iter().map(|request| request.sector).collect();
    assert_eq!((told.as_slice(), joiner.untold.own), ([16, 32].as_slice(), 2));
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
    done.without_requests = 1;
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

/// A request that names its first bio and, by a record before it, the others.
fn request_of(bios: &[u64], issued: u64, operation: u32, sector: u64, sectors: u32) -> Vec<Record> {
    let Record::Request(mut named) = request(issued, operation, sector, sectors) else {
        return Vec::new();
    };
    named.bio = bios[0];
    named.merged = u32::try_from(bios.len() - 1).unwrap();
    let further = bios[1..].chunks(MERGED_BIOS).map(|bios| {
        let mut record = MergedRecord::new_zeroed();
        (record.bio, record.mark) = (named.bio, low_half(named.completed));
        record.bios[..bios.len()].copy_from_slice(bios);
        Record::Merged(record)
    });
    further.chain([Record::Request(named)]).collect()
}

fn refusal(bio: u64, operation: u32, sector: u64, sectors: u32) -> Record {
    let mut done = BioDoneRecord::new_zeroed();
    (done.device, done.bio, done.operation, done.status) = (DEVICE, bio, operation, 12);
    (done.sector, done.bytes, done.time) = (sector, sectors * 512, bio + 1);
    Record::BioDone(done)
}

fn loss(time: u64) -> Record {
    let mut lost = LostRecord::new_zeroed();
    lost.time = time;
    Record::Lost(lost)
}

#[test]
fn a_refused_bio_is_counted_and_neither_told_nor_joined_nor_waited_for() {
    let mut joiner = joiner();
    let records = [
        bio(1, 100, READ, 8, 8),
        refusal(100, READ, 8, 8),
        bio(2, 200, READ, 8, 8),
        request(300, READ, 8, 8),
    ];
    for record in &records {
        joiner.take(record);
    }
    joiner.take(&bio(3, 10 * DISORDER_NS, WRITE, 128, 8));
    let Some(Item::Request(told)) = joiner.next() else {
        panic!("the request waits for the refused bio");
    };
    assert_eq!(runs(&told), [(8, 4096, Some(2))]);
    assert_eq!(joiner.untold.refused, 1);
    joiner.finish();
    assert_eq!(
        std::iter::from_fn(|| joiner.next_of_rest()).count(),
        1,
        "the write alone"
    );
}

#[test]
fn a_bio_whose_rest_was_refused_is_told_with_what_was_done() {
    let records = [
        bio(1, 100, READ, 0, 24),
        request(200, READ, 0, 16),
        refusal(100, READ, 16, 8),
    ];
    let mut joiner = joiner();
    let requests = joined(&mut joiner, &records);
    assert_eq!(
        requests.iter().map(runs).collect::<Vec<_>>(),
        [[(0, 8192, Some(1))]]
    );
    assert_eq!(joiner.untold.refused, 1);
}

#[test]
fn a_refused_flush_is_not_that_of_the_next_one() {
    let records = [
        bio(1, 100, WRITE | PREFLUSH, 0, 0),
        refusal(100, WRITE | PREFLUSH, 0, 0),
        bio(2, 110, WRITE | PREFLUSH, 0, 0),
        request(200, FLUSH, 0, 0),
    ];
    let mut joiner = joiner();
    let requests = joined(&mut joiner, &records);
    let submitter = requests[0].submitter.as_ref().map(|process| process.pid);
    assert_eq!((submitter, joiner.untold.refused), (Some(2), 1));
}

#[test]
fn requests_of_the_same_sectors_at_the_same_time_take_the_bios_that_they_name() {
    let mut records = vec![
        bio(1, 100, READ, 8, 8),
        bio(1, 101, READ, 16, 8),
        bio(2, 102, READ, 8, 8),
        bio(2, 103, READ, 16, 8),
    ];
    records.extend(request_of(&[102, 103], 200, READ, 8, 16));
    records.extend(request_of(&[100, 101], 210, READ, 8, 16));
    let requests = joined(&mut joiner(), &records);
    let by_issue = |issued| requests.iter().find(|one| one.issued_ns == Some(issued)).unwrap();
    assert_eq!(runs(by_issue(200)), [(8, 4096, Some(2)), (16, 4096, Some(2))]);
    assert_eq!(runs(by_issue(210)), [(8, 4096, Some(1)), (16, 4096, Some(1))]);
}

#[test]
fn more_bios_than_one_record_holds_are_all_named() {
    let bios: Vec<u64> = (100..140).collect();
    let mut records: Vec<Record> = bios
        .iter()
        .map(|time| bio(1, *time, WRITE, (time - 100) * 8, 8))
        .collect();
    records.push(loss(150));
    records.extend(request_of(&bios, 200, WRITE, 0, 40 * 8));
    let requests = joined(&mut joiner(), &records);
    assert!(
        requests[0].runs.iter().all(|run| run.file.is_some()),
        "{requests:?}"
    );
}

/// The request of the first bio is lost. The second bio is of the same sectors and another process.
#[test]
fn after_a_loss_a_bio_is_not_given_to_the_next_request_of_its_sectors() {
    let mut records = vec![bio(1, 100, WRITE, 8, 8), loss(150), bio(2, 200, WRITE, 8, 8)];
    records.extend(request_of(&[200], 300, WRITE, 8, 8));
    // Its bio was lost.
    records.extend(request_of(&[999], 400, WRITE, 8, 8));
    let mut joiner = joiner();
    let requests = joined(&mut joiner, &records);
    let told: Vec<_> = requests.iter().map(runs).collect();
    assert_eq!(told, [[(8, 4096, Some(2))], [(8, 4096, None)]]);
    assert_eq!(joiner.untold.lost, 1, "the first one is counted, not invented");
}

#[test]
fn a_bio_at_the_address_of_another_shows_that_that_one_has_ended() {
    let mut first = bio(1, 100, WRITE, 8, 8);
    if let Record::Bio(bio) = &mut first {
        bio.bio = 200;
    }
    let mut records = vec![first, loss(150), bio(2, 200, WRITE, 64, 8)];
    records.extend(request_of(&[200], 300, WRITE, 64, 8));
    let mut joiner = joiner();
    let requests = joined(&mut joiner, &records);
    assert_eq!(
        requests.iter().map(runs).collect::<Vec<_>>(),
        [[(64, 4096, Some(2))]]
    );
    assert!(joiner.waiting.is_empty());
}

/// The completion of the first request passed unseen, and is told when its place is used anew.
#[test]
fn a_request_whose_completion_was_not_seen_takes_its_own_bio_although_another_has_its_address() {
    let mut second = bio(2, 300, WRITE, 8, 8);
    if let Record::Bio(bio) = &mut second {
        bio.bio = 100;
    }
    let mut unseen = request_of(&[100], 200, WRITE, 8, 8);
    if let Record::Request(request) = &mut unseen[0] {
        request.completed = 0;
    }
    let records = [
        vec![bio(1, 100, WRITE, 8, 8), second],
        unseen,
        request_of(&[100], 400, WRITE, 8, 8),
    ]
    .concat();
    let requests = joined(&mut joiner(), &records);
    let told: Vec<_> = requests.iter().map(|one| (one.status, runs(one))).collect();
    let expected = [
        (None, vec![(8, 4096, Some(1))]),
        (Some(0), vec![(8, 4096, Some(2))]),
    ];
    assert_eq!(told, expected);
}

#[test]
fn pieces_of_a_lost_bio_are_not_those_of_the_next_one_at_its_address() {
    let piece = |time: u64| {
        let mut record = RunRecord::new_zeroed();
        (record.bio, record.mark) = (200, low_half(time));
        (record.run.kind, record.run.inode, record.run.mode) = (run_kind::DIRECT, 66, 0x8000);
        record.run.bytes = 4096;
        Record::Run(record)
    };
    let Record::Bio(mut whole) = bio(2, 200, WRITE, 64, 16) else {
        return;
    };
    (whole.run.start, whole.run.bytes) = (4096, 4096);
    // The record of the bio of the first piece is lost; the second bio's first piece is lost.
    let records = [piece(100), Record::Bio(whole), request(300, WRITE, 64, 16)];
    let requests = joined(&mut joiner(), &records);
    assert_eq!(runs(&requests[0]), [(64, 4096, None), (72, 4096, Some(2))]);
    let inodes: Vec<_> = requests[0]
        .runs
        .iter()
        .map(|run| run.file.map(|file| file.inode))
        .collect();
    assert_eq!(inodes, [None, Some(2)]);
}

#[test]
fn one_bio_that_never_ends_holds_back_others_for_ten_seconds_and_top_not_at_all() {
    for (in_order, limit) in [(true, HOLD_NS), (false, 0)] {
        let bits = FlagBits::from_members(std::iter::empty());
        let mut joiner = Joiner::new(Attribution::default(), bits, OWN_PID, in_order);
        joiner.take(&bio(1, 100, WRITE, 8, 8));
        joiner.take(&bio(2, 200, WRITE, 64, 8));
        joiner.take(&request(300, WRITE, 64, 8));
        assert_eq!(joiner.next().is_some(), limit == 0);
        joiner.take(&request(300 + limit, READ, 1024, 8));
        joiner.take(&request(400 + limit + DISORDER_NS, READ, 2048, 8));
        let told = std::iter::from_fn(|| joiner.next()).count();
        assert_eq!(told, 2);
        // When it ends after all, it is joined.
        joiner.take(&request(500 + limit, WRITE, 8, 8));
        joiner.finish();
        let rest: Vec<Item> = std::iter::from_fn(|| joiner.next_of_rest()).collect();
        let owned = rest
            .iter()
            .filter(|item| matches!(item, Item::Request(one) if runs(one) == [(8, 4096, Some(1))]));
        assert_eq!(owned.count(), 1);
    }
}

const INODE: u64 = 12;

fn name(dentry: u64, parent: u64, text: &[u8]) -> Record {
    let mut name = NameRecord::new_zeroed();
    (name.dentry, name.parent) = (dentry, parent);
    name.bytes = u32::try_from(text.len()).unwrap();
    name.name[..text.len()].copy_from_slice(text);
    Record::Name(name)
}

/// A write call to a page through a directory entry.
fn dirtied(pid: u32, time: u64, page: u64, dentry: u64) -> Record {
    let mut writer = WriterRecord::new_zeroed();
    (writer.inode, writer.time, writer.dentry) = (INODE, time, dentry);
    (writer.position, writer.bytes) = (page * 4096, 4096);
    writer.process = ProcessReference {
        tgid: pid,
        tid: pid,
        name: 0,
    };
    Record::Writer(writer)
}

/// A page that became dirty, in a call through a directory entry.
fn by_folio(pid: u32, time: u64, page: u64, dentry: u64) -> Record {
    let Record::Writer(mut writer) = dirtied(pid, time, page, dentry) else {
        panic!("a writer");
    };
    writer.by = dirtied_by::IN_CALL;
    Record::Writer(writer)
}

/// Write-back of the first pages of the file by a kernel thread.
fn written_back(time: u64, pages: u32, dentry: u64, flags: u8) -> Record {
    let Record::Bio(mut bio) = bio(9, time, WRITE, 8, pages * 8) else {
        panic!("a bio");
    };
    bio.by_kernel = 1;
    bio.run.kind = run_kind::PAGES;
    (bio.run.inode, bio.run.dentry, bio.run.flags) = (INODE, dentry, flags);
    Record::Bio(bio)
}

/// Path, whether it is one of several, cause and quality of each run.
fn told(request: &Request) -> Vec<(Option<&str>, bool, Option<u32>, CauseQuality)> {
    let of = |run: &'_ Run| {
        (
            run.one_of_names,
            run.cause.as_ref().map(|cause| cause.pid),
            run.cause_quality,
        )
    };
    let runs = request.runs.iter();
    runs.map(|run| {
        let (one, pid, quality) = of(run);
        (run.path.as_deref(), one, pid, quality)
    })
    .collect()
}

#[test]
fn a_page_of_a_file_with_two_names_has_the_one_that_was_written_through_or_says_that_it_is_one_of_them() {
    const LATER: u64 = 3_000_000_000;
    let mut aliases = AliasesRecord::new_zeroed();
    aliases.inode = INODE;
    aliases.dentries[..2].copy_from_slice(&[3, 2]);
    let records = [
        name(1, 1, b"/"),
        name(2, 1, b"x"),
        name(3, 1, b"y"),
        dirtied(1, 100, 0, 2),
        dirtied(1, 110, 1, 0),
        // Not there any more.
        dirtied(1, 120, 2, 4),
        Record::Aliases(aliases),
        written_back(200, 3, 3, run_flag::ONE_OF_NAMES),
        request(300, WRITE, 8, 24),
        // The entry gets another name.
        dirtied(1, 400, 0, 2),
        // No call was seen, as the last one is long ago.
        by_folio(1, LATER, 1, 2),
        name(2, 1, b"z"),
        Record::Aliases(aliases),
        written_back(LATER + 100, 2, 3, run_flag::ONE_OF_NAMES),
        request(LATER + 200, WRITE, 8, 16),
    ];
    let mut joiner = joiner();
    for record in &records {
        joiner.take(record);
    }
    joiner.finish();
    let items: Vec<Item> = std::iter::from_fn(|| joiner.next_of_rest()).collect();
    let by_call = CauseQuality::WriteCall;
    let expected = [
        vec![
            (Some("/x"), false, Some(1), by_call),
            (Some("/y"), true, Some(1), by_call),
            (Some("/y"), true, Some(1), by_call),
        ],
        vec![
            (Some("/z"), false, Some(1), by_call),
            (Some("/z"), true, Some(1), CauseQuality::Folio),
        ],
    ];
    assert_eq!(items.len(), 2, "and no rename");
    for (item, expected) in items.iter().zip(expected) {
        let Item::Request(request) = item else {
            panic!("a request")
        };
        assert_eq!(told(request), expected);
    }
}

#[test]
fn after_a_loss_no_earlier_writer_or_name_is_told() {
    let records = [
        name(1, 1, b"/"),
        name(2, 1, b"x"),
        dirtied(1, 100, 0, 2),
        loss(150),
        dirtied(2, 160, 1, 2),
        written_back(200, 2, 2, 0),
        request(300, WRITE, 8, 16),
        written_back(400, 1, 0, run_flag::NAME_LOST),
        request(500, WRITE, 8, 8),
    ];
    let mut records = records.to_vec();
    if let Record::Request(request) = &mut records[6] {
        request.bio = 200;
    }
    if let Record::Request(request) = &mut records[8] {
        request.bio = 400;
    }
    let requests = joined(&mut joiner(), &records);
    // The first page has the last known writer of the file, with the quality that says no more than that.
    let first = [
        (Some("/x"), false, Some(2), CauseQuality::Inode),
        (Some("/x"), false, Some(2), CauseQuality::WriteCall),
    ];
    assert_eq!(told(&requests[0]), first);
    assert_eq!(requests[1].runs[0].path, None);
}

#[test]
fn pages_that_several_processes_may_store_to_have_no_sure_writer() {
    let mapped = |flags| {
        let records = [
            dirtied(1, 100, 0, 0),
            written_back(200, 1, 0, flags),
            request(300, WRITE, 8, 8),
            dirtied(2, 400, 1, 0),
            dirtied(1, 410, 0, 0),
            written_back(500, 1, 0, flags),
            request(600, WRITE, 8, 8),
        ];
        let requests = joined(&mut joiner(), &records);
        [0, 1].map(|at| requests[at].runs[0].cause_quality)
    };
    let (sure, unsure) = (CauseQuality::WriteCall, CauseQuality::Inode);
    assert_eq!(mapped(0), [sure, sure]);
    assert_eq!(
        mapped(run_flag::MAPPED),
        [sure, unsure],
        "another one wrote to it"
    );
    assert_eq!(
        mapped(run_flag::MAPPED | run_flag::MAPPED_OFTEN),
        [unsure, unsure]
    );
}
