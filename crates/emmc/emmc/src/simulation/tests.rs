//! Tests of whole runs: times computed by hand, and properties of every run.

mod commands;
mod task_queue;

use results::block_trace::{Operation, RequestFlags};

use super::*;
use crate::block::SchedulerKind;
use crate::card::PowerFile;
use crate::packing::{Contiguity, PackReads, Stop};
use crate::workload::{
    DirectRules, JournalRules, Order, Pace, PostmarkRules, RandomFileRules, ReaderRules, StreamRules,
    TracedBio, background_reads, chain, direct, postmark, random_files, replay, stream, write,
};

/// Simple numbers. Host: command 1 us, interrupt 10, wake-up 20, CMD23 by interrupt, fetch 2, prepare 5, complete 3,
/// poll
/// 10. Card: command 0, PC 80, LSB 500, MSB 1300. Bus 6.4 us per sector.
pub(super) fn setup(scheduler: SchedulerKind, rules: PackRules) -> Setup {
    let mut card = CardFile::preset("gt-i9300").unwrap();
    card.flash.capacity_bytes = 1 << 28;
    card.flash.transfer_ns = 80_000;
    card.controller.command_ns = 0;
    card.controller.packed_entry_ns = 0;
    card.controller.packed_apart = false;
    let host = HostFile {
        command_ns: 1_000,
        interrupt_ns: 10_000,
        wake_ns: 20_000,
        fetch_ns: 2_000,
        prepare_ns: 5_000,
        complete_ns: 3_000,
        poll_ns: 10_000,
        ..HostFile::preset("mshci").unwrap()
    };
    Setup {
        card,
        host,
        queue: QueueRules::usual(scheduler),
        driver: DriverMode::Packed(rules),
        discard: DiscardMode::Discard,
    }
}

fn run(setup: &Setup, actors: Vec<Box<dyn Actor>>) -> Outcome {
    Simulation::new(setup, actors)
        .unwrap()
        .run(|_| ControlFlow::Continue(()))
        .0
}

fn bios(bios: &[Bio]) -> Vec<Box<dyn Actor>> {
    let traced = bios.iter().map(|bio| TracedBio {
        at: Nanos::ZERO,
        bio: *bio,
    });
    vec![replay(traced.collect(), Pace::Depth(1000))]
}

const NO_FLAGS: RequestFlags = RequestFlags(0);

/// One write of 4 KiB. Wake-up 20, fetch 2, one more fetch that finds nothing (not counted), prepare 5: start at 27.
/// CMD23 1 + 10 + 20, CMD25 1: data from 59 to 110.2; PC 80, LSB 500: ready at 690.2. Data end is seen at 110.2 + 30
/// = 140.2; polls every 10: 55 of them, 690.2; CMD13 1: 691.2. Completed 3 later: 694.2.
#[test]
fn one_write_takes_the_sum_of_its_steps() {
    let outcome = run(
        &setup(SchedulerKind::Noop, PackRules::OFF),
        bios(&[write(0, 8, NO_FLAGS)]),
    );
    assert_eq!(outcome.elapsed_ns, 694_200);
    assert_eq!(outcome.driver.interrupts, 4);
}

/// One sector needs no CMD23: 27 + CMD24 1 = 28, data until 34.4, PC and LSB: 614.4. Seen: 34.4 + 30 = 64.4, 55 polls
/// to 614.4, CMD13 1, complete 3: 618.4. Three interrupts.
#[test]
fn a_single_sector_goes_without_cmd23() {
    let outcome = run(
        &setup(SchedulerKind::Noop, PackRules::OFF),
        bios(&[write(0, 1, NO_FLAGS)]),
    );
    assert_eq!(outcome.elapsed_ns, 618_400);
    assert_eq!(outcome.driver.interrupts, 3);
}

/// Two separate writes of 4 KiB, not packed. The first is seen ready at 691.2 (above). The second was prepared
/// meanwhile and starts then: CMD23 31, CMD25 1: data from 723.2 to 774.4; next page is in another bank: ready at
/// 1354.4. Seen at 774.4 + 30 = 804.4, 55 polls: 1354.4, CMD13: 1355.4, complete: 1358.4.
#[test]
fn the_second_write_is_prepared_while_the_first_is_under_way() {
    let two = [write(0, 8, NO_FLAGS), write(1000, 8, NO_FLAGS)];
    let outcome = run(&setup(SchedulerKind::Noop, PackRules::OFF), bios(&two));
    assert_eq!(outcome.elapsed_ns, 1_358_400);
    assert_eq!(outcome.driver.interrupts, 8);
}

/// The same two in a pack: fetches 2 + 2, prepare 10, after the wake-up of 20: start at 34. CMD23 31, CMD25 1: data
/// from 66, header and 16 sectors: until 174.8. Both fill one page: PC 80, LSB 500: 754.8. Seen 204.8, 55 polls:
/// 754.8, CMD13 755.8, completed 758.8 and 761.8. Four interrupts instead of eight.
#[test]
fn a_pack_of_two_takes_one_command_and_one_page() {
    let rules = PackRules {
        contiguity: Contiguity::Free,
        ..PackRules::PHONE
    };
    let two = [write(0, 8, NO_FLAGS), write(1000, 8, NO_FLAGS)];
    let outcome = run(&setup(SchedulerKind::Noop, rules), bios(&two));
    assert_eq!(outcome.elapsed_ns, 761_800);
    assert_eq!(outcome.driver.interrupts, 4);
    assert_eq!(outcome.driver.halts(Stop::NoRequest), 1);
    assert_eq!(outcome.driver.pack_sizes, [0, 0, 1]);
}

/// The second task's write continues the first one's request while the driver wakes up: one write of 8 KiB, and both
/// tasks learn of its end.
#[test]
fn a_request_of_two_tasks_ends_for_both() {
    for scheduler in [SchedulerKind::Cfq, SchedulerKind::Deadline, SchedulerKind::Noop] {
        let tasks: Vec<Box<dyn Actor>> = [write(0, 8, NO_FLAGS), write(8, 8, NO_FLAGS)]
            .iter()
            .flat_map(|bio| bios(&[*bio]))
            .collect();
        let outcome = run(&setup(scheduler, PackRules::OFF), tasks);
        assert_eq!((outcome.writes.requests, outcome.writes.bytes), (1, 8192));
    }
}

/// A read of 4 KiB that was never written: start 27, CMD23 31, CMD18 1: 59; 8 sectors: 110.2; interrupt and wake-up
/// 30: 140.2; complete 3: 143.2.
#[test]
fn a_read_of_nothing_takes_the_bus_alone() {
    let read = Bio {
        operation: Operation::Read,
        ..write(0, 8, NO_FLAGS)
    };
    let outcome = run(&setup(SchedulerKind::Noop, PackRules::OFF), bios(&[read]));
    assert_eq!(outcome.elapsed_ns, 143_200);
}

/// A flush of a card without a cache: Linux's driver sends nothing. Wake-up 20; it is completed at that time. A command
/// queue fetches for 2 and completes for 3.
#[test]
fn a_flush_without_a_cache_sends_no_command() {
    let flush = Bio {
        operation: Operation::Flush,
        ..write(0, 0, RequestFlags::PREFLUSH)
    };
    for (driver, direct_commands, elapsed) in [
        (DriverMode::Packed(PackRules::OFF), false, 20_000),
        (DriverMode::CommandQueue(32), false, 20_000),
        (DriverMode::CommandQueue(32), true, 25_000),
    ] {
        let mut setup = setup(SchedulerKind::Noop, PackRules::OFF);
        setup.driver = driver;
        setup.host.direct_commands = direct_commands;
        let simulation = Simulation::new(&setup, bios(&[flush])).unwrap();
        let log = CommandLog::new(10).with_commands();
        let (outcome, log) = simulation.with_log(log).run(|_| ControlFlow::Continue(()));
        assert_eq!(outcome.elapsed_ns, elapsed, "{driver:?} {direct_commands}");
        assert_eq!((outcome.driver.flushes, outcome.driver.interrupts), (1, 0));
        let mut log = log.unwrap();
        assert!(log.take_commands().unwrap().into_commands().is_empty());
        let trace = log.into_trace(String::new(), 8, "noop", Nanos(elapsed));
        assert_eq!(trace.requests.len(), 1, "the request alone is in the trace");
    }
}

/// A flush of a card with a cache: wake-up 20, CMD6 with interrupt and wake-up 31: 51; nothing is in the cache; seen:
/// another 30, CMD13 1: 82.
#[test]
fn a_flush_of_a_cache_is_two_commands() {
    let flush = Bio {
        operation: Operation::Flush,
        ..write(0, 0, RequestFlags::PREFLUSH)
    };
    let mut setup = setup(SchedulerKind::Noop, PackRules::OFF);
    setup.card.controller.cache = true;
    let outcome = run(&setup, bios(&[flush]));
    assert_eq!(outcome.elapsed_ns, 82_000);
    assert_eq!((outcome.driver.flushes, outcome.driver.interrupts), (1, 2));
}

/// A discard is CMD35, CMD36, CMD38: 20 + 3 x 31 = 113; seen 30 later, CMD13 1: 144.
#[test]
fn a_discard_is_three_commands() {
    let discard = Bio {
        operation: Operation::Discard,
        ..write(0, 1024, NO_FLAGS)
    };
    let outcome = run(&setup(SchedulerKind::Noop, PackRules::OFF), bios(&[discard]));
    assert_eq!(outcome.elapsed_ns, 144_000);
}

fn tio_seq(bytes: u64) -> Vec<Box<dyn Actor>> {
    stream(StreamRules {
        total_bytes: bytes,
        start: 1 << 18,
        chunk_bytes: 4 << 20,
        memory_bytes_per_s: 200_000_000,
        dirty_bytes: 32 << 20,
        journal: JournalRules {
            interval: Nanos::from_millis(500),
            ..JournalRules::ext4(1)
        },
    })
}

#[test]
fn a_stream_writes_every_byte_and_fills_packs_of_seven_under_noop() {
    let outcome = run(&setup(SchedulerKind::Noop, PackRules::PHONE), tio_seq(64 << 20));
    assert!(outcome.writes.bytes >= 64 << 20);
    assert!(
        outcome.driver.halts(Stop::FullSectors) > 5,
        "{:?}",
        outcome.driver
    );
    assert_eq!(outcome.driver.pack_sizes.len(), 8, "no pack beyond seven");
    assert_eq!(
        outcome.driver.halts(Stop::Read) + outcome.driver.halts(Stop::Reliable),
        0
    );
}

#[test]
fn a_run_made_twice_is_the_same_to_the_nanosecond() {
    let load = || {
        random_files(RandomFileRules {
            files: 4,
            file_bytes: 32 << 20,
            pages: 2000,
            start: 1 << 17,
            batch: 48,
            page_time: Nanos::from_micros(10),
            journal: JournalRules::ext4(3),
            seed: 3,
        })
    };
    for scheduler in SchedulerKind::WORDS.map(|(kind, _)| kind) {
        let setup = setup(scheduler, PackRules::PHONE);
        assert_eq!(run(&setup, load()), run(&setup, load()), "{scheduler:?}");
    }
}

#[test]
fn every_scheduler_and_mode_ends_every_load() {
    for (scheduler, word) in SchedulerKind::WORDS {
        for driver in [
            DriverMode::Packed(PackRules::PHONE),
            DriverMode::Packed(PackRules::OFF),
            DriverMode::CommandQueue(32),
        ] {
            let setup = Setup {
                driver,
                ..setup(scheduler, PackRules::PHONE)
            };
            let outcome = run(&setup, tio_seq(16 << 20));
            assert!(outcome.writes.bytes >= 16 << 20, "{word} {driver:?}");
        }
    }
}

#[test]
fn random_direct_writes_keep_their_depth_and_collect_garbage() {
    let mut setup = setup(SchedulerKind::None, PackRules::OFF);
    setup.card.flash.capacity_bytes = 64 << 20;
    let outcome = run(
        &setup,
        vec![direct(DirectRules {
            operation: Operation::Write,
            order: Order::Random,
            sectors: 8,
            piece_sectors: 1024,
            count: 60_000,
            start: 0,
            range: 64 << 11,
            depth: 8,
            seed: 1,
        })],
    );
    // Adjacent requests that wait together are merged, so this counts bytes, not requests.
    assert_eq!(outcome.writes.bytes, 60_000 * 4096);
    assert!(outcome.translation.collections > 0);
    assert!(outcome.translation.write_amplification().unwrap() > 1.0);
}

#[test]
fn every_command_is_in_the_log() {
    let rules = PackRules {
        contiguity: Contiguity::Free,
        ..PackRules::PHONE
    };
    let setup = setup(SchedulerKind::Noop, rules);
    let three = [
        write(0, 8, NO_FLAGS),
        write(1000, 8, NO_FLAGS),
        write(2000, 1, NO_FLAGS),
    ];
    let simulation = Simulation::new(&setup, bios(&three)).unwrap();
    let (outcome, log) = simulation
        .with_log(CommandLog::new(100))
        .run(|_| ControlFlow::Continue(()));
    let trace = log
        .unwrap()
        .into_trace("test".to_owned(), 1 << 19, "noop", Nanos(outcome.elapsed_ns));
    let commands: Vec<_> = trace
        .requests
        .iter()
        .filter_map(|request| request.command)
        .collect();
    assert_eq!(commands.len(), 3);
    assert!(
        commands
            .iter()
            .all(|command| command.code == 25 && command.packed_requests == 3)
    );
    assert_eq!(
        commands
            .iter()
            .map(|command| u64::from(command.interrupts))
            .sum::<u64>(),
        outcome.driver.interrupts
    );
    // The tracepoints of Linux show the argument of CMD25 for each request: the first sector of the pack.
    assert!(commands.iter().all(|command| command.argument == 0));
}

/// Reads of written units take longer than those of erased ones: the second task sees the writes of the first.
#[test]
fn a_task_of_a_chain_finds_the_card_as_the_one_before_left_it() {
    let setup = setup(SchedulerKind::None, PackRules::OFF);
    let task = |operation: Operation, depth: u32| {
        direct(DirectRules {
            operation,
            order: Order::Sequential,
            sectors: 8,
            piece_sectors: 8,
            count: 10,
            start: 0,
            range: 80,
            depth,
            seed: 1,
        })
    };
    let writes = run(&setup, vec![task(Operation::Write, 4)]).elapsed_ns;
    let erased = run(&setup, vec![task(Operation::Read, 1)]).elapsed_ns;
    let both = run(
        &setup,
        vec![chain(vec![task(Operation::Write, 4), task(Operation::Read, 1)])],
    );
    assert_eq!((both.writes.bytes, both.reads.bytes), (40_960, 40_960));
    assert!(
        both.elapsed_ns - writes > erased,
        "{} - {writes}, {erased}",
        both.elapsed_ns
    );
}

/// 16 MiB of random reads on a card of 64 MiB that was written twice: the writes before the run are not in its counters.
#[test]
fn counters_of_a_used_card_are_those_of_the_run() {
    let mut setup = setup(SchedulerKind::None, PackRules::OFF);
    setup.card.flash.capacity_bytes = 64 << 20;
    let load = |operation| {
        direct(DirectRules {
            operation,
            order: Order::Random,
            sectors: 8,
            piece_sectors: 8,
            count: 4096,
            start: 0,
            range: 64 << 11,
            depth: 4,
            seed: 1,
        })
    };
    let used = |operation| {
        let simulation = Simulation::new(&setup, vec![load(operation)]).unwrap();
        let simulation = simulation.with_written(0, 64 << 11).with_written(0, 64 << 11);
        simulation.run(|_| ControlFlow::Continue(())).0
    };
    let reads = used(Operation::Read);
    assert_eq!(reads.nand.programs, 0);
    assert_eq!((reads.translation.host_units, reads.nand.backups), (0, 0));
    assert!(reads.bank_busy_percent().unwrap().1 <= 100.0, "{reads:?}");
    let writes = used(Operation::Write);
    assert_eq!(writes.translation.host_units, 4096);
}

fn every_load(card_sectors: u64) -> Vec<(&'static str, Vec<Box<dyn Actor>>)> {
    let direct_load = |operation, order, sectors| {
        vec![direct(DirectRules {
            operation,
            order,
            sectors,
            piece_sectors: 1024,
            count: 600,
            start: 0,
            range: card_sectors,
            depth: 8,
            seed: 1,
        })]
    };
    let journal = JournalRules {
        interval: Nanos::from_millis(100),
        in_place: Nanos::from_millis(50),
        ..JournalRules::ext4(1)
    };
    let random = random_files(RandomFileRules {
        files: 4,
        file_bytes: 8 << 20,
        pages: 200,
        start: 1 << 19,
        batch: 48,
        page_time: Nanos::from_micros(10),
        journal,
        seed: 1,
    });
    let small = postmark(PostmarkRules {
        files: 20,
        file_bytes: 1_000_000,
        transactions: 40,
        flex_groups: 2,
        groups: card_sectors >> 18,
        interval: Nanos::from_millis(100),
        seed: 1,
    });
    let mixed: Vec<Bio> = (0..200)
        .map(|n: u64| {
            let operation = match n % 6 {
                0 | 4 => Operation::Read,
                1 => Operation::Discard,
                2 => Operation::Flush,
                _ => Operation::Write,
            };
            let flags = match n % 4 {
                0 => RequestFlags::META,
                1 => RequestFlags::SYNC.with(RequestFlags::FUA),
                _ => RequestFlags::default(),
            };
            let sectors = if operation == Operation::Flush {
                0
            } else {
                8 + n % 7 * 24
            };
            Bio {
                context: u8::try_from(n % 3).unwrap(),
                flags: if operation == Operation::Write {
                    flags
                } else {
                    NO_FLAGS
                },
                ..Bio::plain(operation, n * 7919 % (card_sectors / 8 - 256) * 8, sectors)
            }
        })
        .collect();
    let mut stream = stream(StreamRules {
        total_bytes: 12 << 20,
        start: 1 << 19,
        chunk_bytes: 4 << 20,
        memory_bytes_per_s: 200_000_000,
        dirty_bytes: 8 << 20,
        journal,
    });
    stream.push(background_reads(ReaderRules {
        every: Nanos::from_millis(3),
        sectors: 32,
        start: 0,
        range: card_sectors,
        seed: 1,
    }));
    vec![
        ("tio-seq", stream),
        ("tio-rand", random),
        ("random-write", direct_load(Operation::Write, Order::Random, 8)),
        ("unaligned-write", direct_load(Operation::Write, Order::Random, 3)),
        ("random-read", direct_load(Operation::Read, Order::Random, 8)),
        (
            "sequential-write",
            direct_load(Operation::Write, Order::Sequential, 256),
        ),
        ("postmark", small),
        ("mixed", bios(&mixed)),
    ]
}

/// Packs of anything, reads too.
const PACK_ALL: PackRules = PackRules {
    contiguity: Contiguity::Free,
    reads: PackReads::Yes,
    ..PackRules::PHONE
};

/// `run` checks the invariants of the counters: this gives it all loads, cards, drivers, caches and kinds of separation, on
/// new and on used cards.
#[test]
fn counters_add_up_for_every_load_and_card() {
    for name in CardFile::preset_names() {
        for (used, cache, separates, driver) in [
            (false, false, false, DriverMode::Packed(PackRules::PHONE)),
            (true, false, false, DriverMode::Packed(PackRules::PHONE)),
            (true, true, false, DriverMode::Packed(PackRules::OFF)),
            (true, false, true, DriverMode::Packed(PACK_ALL)),
            (false, true, false, DriverMode::CommandQueue(8)),
            (true, false, true, DriverMode::CommandQueue(32)),
        ] {
            let mut setup = setup(SchedulerKind::Cfq, PackRules::PHONE);
            let mut card = CardFile::preset(name).unwrap();
            card.flash.capacity_bytes = 512 << 20;
            card.flash.spare_permille = if separates { 900 } else { 150 };
            card.controller.cache = cache;
            card.controller.data_tag = separates;
            card.controller.contexts = if separates { 2 } else { 0 };
            card.power = Some(PowerFile {
                read_mw: 20,
                program_mw: 40,
                erase_mw: 30,
                standby_uw: 50,
            });
            let sectors = card.flash.capacity_bytes / 512;
            setup.card = card;
            setup.driver = driver;
            setup.discard = if cache {
                DiscardMode::Trim
            } else {
                DiscardMode::Discard
            };
            for (load, actors) in every_load(sectors) {
                let mut simulation = Simulation::new(&setup, actors).unwrap();
                if used {
                    simulation = simulation.with_written(0, sectors);
                }
                let outcome = simulation.run(|_| ControlFlow::Continue(())).0;
                let (_, most) = outcome.bank_busy_percent().unwrap();
                assert!(most <= 100.0, "{name} {load} {driver:?}: {most}");
            }
        }
    }
}

/// A run that is stopped in the middle: its counters add up as well.
#[test]
fn counters_of_an_interrupted_run_add_up() {
    for driver in [
        DriverMode::Packed(PackRules::PHONE),
        DriverMode::Packed(PACK_ALL),
        DriverMode::CommandQueue(32),
    ] {
        let mut setup = setup(SchedulerKind::Cfq, PackRules::PHONE);
        setup.driver = driver;
        let load = direct(DirectRules {
            operation: Operation::Write,
            order: Order::Random,
            sectors: 8,
            piece_sectors: 1024,
            count: 100_000,
            start: 0,
            range: 1 << 18,
            depth: 32,
            seed: 1,
        });
        let (outcome, _) = Simulation::new(&setup, vec![load])
            .unwrap()
            .run(|_| ControlFlow::Break(()));
        assert!((1..100_000).contains(&outcome.writes.requests), "{driver:?}");
    }
}
