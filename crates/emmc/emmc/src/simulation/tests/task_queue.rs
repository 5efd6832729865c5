//! The command queue: times computed by hand, and its effect on random reads.

use results::block_trace::BlockTrace;

use super::*;

fn with_queue(depth: u32) -> Setup {
    let mut setup = setup(SchedulerKind::None, PackRules::OFF);
    setup.driver = DriverMode::CommandQueue(depth);
    setup
}

fn read(sector: u64, sectors: u64) -> Bio {
    Bio::plain(Operation::Read, sector, sectors)
}

fn traced(setup: &Setup, actors: Vec<Box<dyn Actor>>) -> (Outcome, BlockTrace) {
    let simulation = Simulation::new(setup, actors).unwrap();
    let (outcome, log) = simulation
        .with_written(0, 1 << 12)
        .with_log(CommandLog::new(100_000))
        .run(|_| ControlFlow::Continue(()));
    let trace = log
        .unwrap()
        .into_trace("test".to_owned(), 1 << 19, "none", Nanos(outcome.elapsed_ns));
    (outcome, trace)
}

/// Two random writes of 4 KiB. Wake-up 20, fetch 2, prepare 5: CMD44 and CMD45 from 27 to 29. The card is ready at once,
/// which CMD13 shows at 30; CMD47 until 31, data until 82.2, PC until 162.2, LSB 500: 662.2. The second is prepared at 34
/// and ready at 37, but the data lines are free at 82.2: CMD47 until 83.2, data until 134.4; its PC waits for the channel
/// until 162.2, then 80 and 500: 742.2. Interrupt and wake-up 30, completion 3: 775.2.
#[test]
fn a_command_queue_overlaps_data_and_programs() {
    let two = [write(0, 8, NO_FLAGS), write(1000, 8, NO_FLAGS)];
    let outcome = run(&with_queue(32), bios(&two));
    assert_eq!(outcome.elapsed_ns, 775_200);
    assert_eq!(outcome.driver.interrupts, 2);
}

/// Sectors 0 and 8 are one page, 2048 is 1 MiB further: the eighth row, bank 0; 16 is bank 1. All are LSB pages or upper
/// pages with tR 100. The second read of bank 0 waits for the first, the read of bank 1 does not: it is executed second
/// though it was queued last.
#[test]
fn tasks_are_executed_in_the_order_in_which_they_become_ready() {
    let three = [read(0, 8), read(2048, 8), read(16, 8)];
    let (_, trace) = traced(&with_queue(32), bios(&three));
    let mut order: Vec<_> = trace
        .requests
        .iter()
        .map(|request| (request.command.unwrap().issued_ns, request.sector))
        .collect();
    order.sort_unstable();
    let sectors: Vec<u64> = order.iter().map(|(_, sector)| *sector).collect();
    assert_eq!(sectors, [0, 16, 2048]);
}

#[test]
fn no_more_tasks_are_in_the_card_than_the_queue_has() {
    for (depth, direct_commands, most) in [
        (1, true, 1),
        (2, true, 2),
        (8, true, 8),
        (32, true, 31),
        (32, false, 32),
    ] {
        let mut setup = with_queue(depth);
        setup.host.direct_commands = direct_commands;
        let many: Vec<Bio> = (0..200).map(|n| read(n * 7919 % 4096 / 8 * 8, 8)).collect();
        let (_, trace) = traced(&setup, bios(&many));
        let tasks = trace.requests.iter().filter_map(|request| request.in_flight);
        assert_eq!(tasks.max(), Some(most), "depth {depth}");
        let slots = trace.requests.iter().filter_map(|request| request.command?.tag);
        assert_eq!(
            slots.max(),
            Some(u16::try_from(most - 1).unwrap()),
            "depth {depth}"
        );
    }
}

/// A flush between two writes is a direct command: the first write ends before it, the second begins after it. The driver
/// does not wait in between. A discard empties the queue.
#[test]
fn a_flush_is_a_barrier_of_the_queue() {
    for operation in [Operation::Flush, Operation::Discard] {
        let mut setup = with_queue(32);
        setup.host.direct_commands = true;
        setup.card.controller.cache = true;
        let middle = Bio::plain(operation, 0, if operation == Operation::Flush { 0 } else { 64 });
        let three = [write(0, 8, NO_FLAGS), middle, write(1000, 8, NO_FLAGS)];
        // The flush comes while the first write is in the card.
        let timed = three.iter().zip([0, 50, 55]).map(|(bio, micros)| TracedBio {
            at: Nanos::from_micros(micros),
            bio: *bio,
        });
        let (outcome, trace) = traced(&setup, vec![replay(timed.collect(), Pace::Traced)]);
        let of = |wanted: Operation| {
            let found = trace
                .requests
                .iter()
                .filter(move |request| request.operation == wanted);
            found.map(|request| (request.issued_ns.unwrap(), request.completed_ns.unwrap()))
        };
        let writes: Vec<_> = of(Operation::Write).collect();
        let barrier = of(operation).next().unwrap();
        assert!(
            writes[0].1 <= barrier.0 && barrier.1 <= writes[1].0,
            "{writes:?} {barrier:?}"
        );
        assert_eq!(outcome.driver.flushes + outcome.driver.discards, 1);
        let round_trip = barrier.0 - writes[0].1;
        // CMD6 takes 1 us; the driver takes 30 to see the end of the task.
        assert_eq!(round_trip <= 1_000, operation == Operation::Flush, "{round_trip}");
    }
}

fn random(operation: Operation, order: Order, sectors: u64, depth: u32) -> Vec<Box<dyn Actor>> {
    vec![direct(DirectRules {
        operation,
        order,
        sectors,
        piece_sectors: 1024,
        count: 2000,
        start: 0,
        range: 64 << 11,
        depth,
        seed: 1,
    })]
}

fn on_a_queueing_host(banks: u32, driver: DriverMode, actors: Vec<Box<dyn Actor>>) -> f64 {
    let mut card = CardFile::preset("gt-i9300").unwrap();
    card.flash.banks = banks;
    throughput(card, driver, actors)
}

/// Read and write throughput of a card, MB/s.
fn throughput(mut card: CardFile, driver: DriverMode, actors: Vec<Box<dyn Actor>>) -> f64 {
    card.flash.capacity_bytes = 256 << 20;
    let setup = Setup {
        card,
        host: HostFile::preset("cqhci-hs400").unwrap(),
        queue: QueueRules::usual(SchedulerKind::None),
        driver,
        discard: DiscardMode::Discard,
    };
    let simulation = Simulation::new(&setup, actors).unwrap();
    let outcome = simulation
        .with_written(0, 64 << 11)
        .run(|_| ControlFlow::Continue(()))
        .0;
    let bytes = outcome.reads.bytes + outcome.writes.bytes;
    results::nearest_f64(bytes) * 1e3 / results::nearest_f64(outcome.elapsed_ns)
}

/// Published for Linux's engine: 25 to 50 % more random I/O of several threads.
#[test]
fn random_reads_gain_a_quarter_and_more_on_eight_banks_and_more() {
    for banks in [8, 16, 32] {
        let rate = |depth| {
            let load = random(Operation::Read, Order::Random, 8, 32);
            on_a_queueing_host(banks, DriverMode::CommandQueue(depth), load)
        };
        let (one, two, all) = (rate(1), rate(2), rate(32));
        assert!(all >= 1.25 * one, "{banks} banks: {one:.2} and {all:.2} MB/s");
        assert!(
            one < two && two <= all,
            "{banks} banks: {one:.2}, {two:.2}, {all:.2} MB/s"
        );
    }
}

/// Without read-ahead the flash waits for each command of a sequential reader, unless the queue shows it the next ones;
/// with it, it never waits. So a queue gains nothing there (published: a drop of about 2 %).
#[test]
fn a_queue_gains_nothing_for_a_sequential_reader_of_a_card_that_reads_ahead() {
    let gain = |read_ahead_bytes| {
        let rate = |driver| {
            let mut card = CardFile::preset("gt-i9300").unwrap();
            card.flash.transfer_ns = 49_300;
            card.controller.read_ahead_bytes = read_ahead_bytes;
            throughput(card, driver, random(Operation::Read, Order::Sequential, 1024, 32))
        };
        rate(DriverMode::CommandQueue(32)) / rate(DriverMode::Packed(PackRules::OFF))
    };
    let (without, with) = (gain(0), gain(128 << 10));
    assert!(without > 1.03, "{without:.3}");
    assert!((0.97..1.02).contains(&with), "{with:.3}");
    let one = |read_ahead_bytes, driver| {
        let mut card = CardFile::preset("gt-i9300").unwrap();
        card.controller.read_ahead_bytes = read_ahead_bytes;
        throughput(card, driver, random(Operation::Read, Order::Sequential, 1024, 1))
    };
    let none = one(128 << 10, DriverMode::Packed(PackRules::OFF));
    let queue = one(128 << 10, DriverMode::CommandQueue(1));
    assert!((queue / none - 1.0).abs() < 0.03, "{none:.3} and {queue:.3} MB/s");
    let waiting = one(0, DriverMode::Packed(PackRules::OFF));
    assert!(none > waiting, "{none:.3} and {waiting:.3} MB/s");
}

#[test]
fn a_queue_of_one_is_as_fast_as_none() {
    for banks in [8, 16, 32] {
        for (operation, order, sectors) in [
            (Operation::Read, Order::Random, 8),
            (Operation::Read, Order::Sequential, 1024),
            (Operation::Write, Order::Random, 8),
            (Operation::Write, Order::Sequential, 1024),
        ] {
            for depth in [1, 32] {
                let rate =
                    |driver| on_a_queueing_host(banks, driver, random(operation, order, sectors, depth));
                let none = rate(DriverMode::Packed(PackRules::OFF));
                let one = rate(DriverMode::CommandQueue(1));
                assert!(
                    (one / none - 1.0).abs() < 0.03,
                    "{banks} banks, {operation:?} {order:?} {sectors} at depth {depth}: {none:.3} and {one:.3} MB/s"
                );
            }
        }
    }
}
