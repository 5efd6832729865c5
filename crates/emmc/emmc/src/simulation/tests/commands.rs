//! Commands on the bus and in the trace, with their arguments, worked out by hand.

use super::*;
use crate::command_list::BusCommand;
use crate::pack_header::{Direction, PackEntry, decode};
use crate::packing::PackReads;

/// The commands of a run, and those of its trace: number and argument.
fn sent(setup: &Setup, actors: Vec<Box<dyn Actor>>) -> (Vec<BusCommand>, Vec<(u16, u32)>) {
    let simulation = Simulation::new(setup, actors).unwrap();
    let log = CommandLog::new(1000).with_commands();
    let (outcome, log) = simulation.with_log(log).run(|_| ControlFlow::Continue(()));
    let mut log = log.unwrap();
    let commands = log.take_commands().unwrap().into_commands();
    let trace = log.into_trace("test".to_owned(), 1 << 19, "noop", Nanos(outcome.elapsed_ns));
    let interrupts = trace.requests.iter().filter_map(|request| request.command);
    let interrupts: u64 = interrupts.map(|command| u64::from(command.interrupts)).sum();
    assert_eq!(interrupts, outcome.driver.interrupts);
    let traced = trace
        .requests
        .iter()
        .filter_map(|request| Some((request.command?.code, request.command?.argument)));
    (commands, traced.collect())
}

fn numbers(commands: &[BusCommand]) -> Vec<(u16, u32)> {
    commands
        .iter()
        .map(|command| (command.code, command.argument))
        .collect()
}

/// One sector: CMD24. Eight: CMD23 with 8 blocks, CMD25. Metadata is written reliably: bit 31; tagged: bit 29.
#[test]
fn arguments_of_single_requests_are_those_of_the_standard() {
    let mut setup = setup(SchedulerKind::Noop, PackRules::OFF);
    let three = [
        write(100, 1, NO_FLAGS),
        write(2000, 8, NO_FLAGS),
        write(4000, 8, RequestFlags::META),
    ];
    let (commands, traced) = sent(&setup, bios(&three));
    let expected = [(24, 100), (23, 8), (25, 2000), (23, 0x8000_0008), (25, 4000)];
    assert_eq!(numbers(&commands), expected);
    assert_eq!(traced, [(24, 100), (25, 2000), (25, 4000)]);
    setup.card.controller.data_tag = true;
    setup.card.flash.spare_permille = 500;
    let (commands, _) = sent(&setup, bios(&three[2..]));
    assert_eq!(numbers(&commands), [(23, 0xA000_0008), (25, 4000)]);
}

/// Tasks in contexts 1 and 2 of a card with two contexts: bits 28:25. A card without contexts gets none.
#[test]
fn a_context_is_in_the_argument_of_cmd23() {
    let mut setup = setup(SchedulerKind::Noop, PackRules::OFF);
    let load = || {
        (1..=2)
            .map(|context| {
                let bio = write(u64::from(context) * 1000, 8, NO_FLAGS);
                let one = TracedBio { at: Nanos::ZERO, bio };
                crate::workload::in_context(replay(vec![one], Pace::Depth(1)), context)
            })
            .collect()
    };
    let (commands, _) = sent(&setup, load());
    assert_eq!(numbers(&commands), [(23, 8), (25, 1000), (23, 8), (25, 2000)]);
    setup.card.controller.contexts = 2;
    setup.card.flash.spare_permille = 500;
    let (commands, _) = sent(&setup, load());
    let expected = [(23, 0x0200_0008), (25, 1000), (23, 0x0400_0008), (25, 2000)];
    assert_eq!(numbers(&commands), expected);
}

/// One sector in a context: only CMD23 can say so. Metadata in a context is in that context on a card without data tag, and
/// tagged too on one with it.
#[test]
fn the_context_of_one_sector_and_of_metadata_is_sent() {
    let mut setup = setup(SchedulerKind::Noop, PackRules::OFF);
    setup.card.controller.contexts = 2;
    setup.card.flash.spare_permille = 500;
    let load = |sectors, flags| {
        let bio = Bio {
            context: 2,
            ..write(1000, sectors, flags)
        };
        bios(&[bio])
    };
    let (commands, _) = sent(&setup, load(1, NO_FLAGS));
    assert_eq!(numbers(&commands), [(23, 0x0400_0001), (25, 1000)]);
    let (commands, _) = sent(&setup, load(8, RequestFlags::META));
    assert_eq!(numbers(&commands), [(23, 0x8400_0008), (25, 1000)]);
    let request = |features| {
        let mut queue = RequestQueue::new(setup.queue, 1);
        let meta = Bio {
            context: 2,
            ..write(1000, 8, RequestFlags::META)
        };
        let id = queue.add(0, &meta, Nanos::ZERO).unwrap();
        driver::extent(queue.get(id), features).placement
    };
    for (data_tag, contexts, expected) in [
        (false, 2, Placement::Context(2)),
        (true, 2, Placement::Tagged),
        (false, 1, Placement::Default),
    ] {
        assert_eq!(request(Features { data_tag, contexts }), expected);
    }
}

/// Three writes of 8, 8 and 1 sectors: CMD23 with 18 blocks (the header is one) and bit 30, and CMD25 to the first one.
#[test]
fn a_pack_carries_its_header() {
    let rules = PackRules {
        contiguity: Contiguity::Free,
        ..PackRules::PHONE
    };
    let three = [
        write(0, 8, NO_FLAGS),
        write(1000, 8, RequestFlags::META),
        write(2000, 1, NO_FLAGS),
    ];
    let (commands, traced) = sent(&setup(SchedulerKind::Noop, rules), bios(&three));
    assert_eq!(numbers(&commands), [(23, 0x4000_0012), (25, 0)]);
    let header = commands[1].header.as_ref().expect("CMD25 transfers the header");
    let entry = |cmd23, sector| PackEntry { cmd23, sector };
    let entries = vec![entry(8, 0), entry(0x8000_0008, 1000), entry(1, 2000)];
    assert_eq!(decode(header), Ok((Direction::Write, entries)));
    assert_eq!(traced, [(25, 0); 3]);
}

/// Two reads of 4 KiB that were never written. Wake-up 20, fetches 4, prepare 10: 34. The header: CMD23 31, CMD25 1: its
/// sector from 66 to 72.4; interrupt and wake-up 30, CMD13 1: 103.4. Then CMD23 31, CMD18 1: 16 sectors from 135.4 to
/// 237.8; interrupt and wake-up 30: 267.8; completions 3 each: 273.8.
#[test]
fn packed_reads_are_two_commands() {
    let rules = PackRules {
        contiguity: Contiguity::Free,
        reads: PackReads::Yes,
        ..PackRules::PHONE
    };
    let setup = setup(SchedulerKind::Noop, rules);
    let two = || {
        bios(&[
            Bio::plain(Operation::Read, 0, 8),
            Bio::plain(Operation::Read, 1000, 8),
        ])
    };
    let outcome = run(&setup, two());
    assert_eq!(outcome.elapsed_ns, 273_800);
    assert_eq!((outcome.driver.commands, outcome.driver.interrupts), (2, 8));
    let (commands, traced) = sent(&setup, two());
    let expected = [(23, 0x4000_0001), (25, 0), (23, 0x4000_0010), (18, 0)];
    assert_eq!(numbers(&commands), expected);
    let header = commands[1].header.as_ref().expect("CMD25 transfers the header");
    assert_eq!(decode(header).unwrap().0, Direction::Read);
    // In the order in which they were queued; commands of the driver have none, so the time at which they were sent.
    assert_eq!(traced, [(18, 0), (18, 0), (25, 0)]);
}

/// CMD35 and CMD36 name the first and the last sector; CMD38 says 1 for TRIM and 3 for DISCARD. A flush of a cache is CMD6 on
/// byte 32 of EXT_CSD.
#[test]
fn trim_and_discard_differ_in_the_argument_of_cmd38() {
    for (discard, argument) in [(DiscardMode::Trim, 1), (DiscardMode::Discard, 3)] {
        let mut setup = setup(SchedulerKind::Noop, PackRules::OFF);
        setup.discard = discard;
        setup.card.controller.cache = true;
        let load = bios(&[
            Bio::plain(Operation::Discard, 4096, 1024),
            Bio::plain(Operation::Flush, 0, 0),
        ]);
        let (commands, traced) = sent(&setup, load);
        let expected = [(35, 4096), (36, 5119), (38, argument), (6, 0x0320_0101)];
        assert_eq!(numbers(&commands), expected);
        assert_eq!(traced, expected);
    }
}

/// A task of 8 sectors: CMD44 with its number and length (bit 30: a read), CMD45 with its sector, then CMD46 or CMD47.
#[test]
fn tasks_are_queued_and_executed_by_four_commands() {
    let mut setup = setup(SchedulerKind::None, PackRules::OFF);
    setup.driver = DriverMode::CommandQueue(4);
    let two = bios(&[Bio::plain(Operation::Read, 1000, 8), write(3000, 16, NO_FLAGS)]);
    let (commands, traced) = sent(&setup, two);
    let mut found = numbers(&commands);
    found.sort_unstable();
    let expected = [
        (44, 1 << 16 | 16),
        (44, 1 << 30 | 8),
        (45, 1000),
        (45, 3000),
        (46, 0),
        (47, 1 << 16),
    ];
    assert_eq!(found, expected);
    assert_eq!(traced, [(46, 0), (47, 1 << 16)]);
}
