//! The rules of CFQ one by one.

use super::*;
use crate::block::scheduler::tests::{insert, next};

const LATE: Nanos = Nanos::from_millis(10_000);

const DISK: CfqRules = CfqRules {
    device: DeviceKind::Disk,
    ..CfqRules::USUAL
};

fn write(scheduler: &mut Cfq, pool: &mut Pool, sector: u64, now: Nanos) -> RequestId {
    insert(
        scheduler,
        pool,
        sector,
        Operation::Write,
        RequestFlags::default(),
        0,
        now,
    )
}

fn read(scheduler: &mut Cfq, pool: &mut Pool, sector: u64, actor: u16, now: Nanos) -> RequestId {
    insert(
        scheduler,
        pool,
        sector,
        Operation::Read,
        RequestFlags::default(),
        actor,
        now,
    )
}

fn drain(scheduler: &mut Cfq, pool: &mut Pool, now: Nanos) -> Vec<u64> {
    std::iter::from_fn(|| next(scheduler, pool, now)).collect()
}

#[test]
fn a_queue_that_is_alone_may_have_any_number_in_the_driver() {
    let (mut scheduler, mut pool) = (Cfq::new(CfqRules::USUAL), Pool::default());
    for n in 0..40 {
        write(&mut scheduler, &mut pool, n * 8, LATE);
    }
    assert_eq!(drain(&mut scheduler, &mut pool, LATE).len(), 40);
}

/// A read was late at 10 s. 250 ms later writes may have 250 / 100 = 2 requests in the driver.
#[test]
fn writes_ramp_up_after_somebody_waited_too_long() {
    let (mut scheduler, mut pool) = (Cfq::new(CfqRules::USUAL), Pool::default());
    let id = read(
        &mut scheduler,
        &mut pool,
        0,
        1,
        LATE.saturating_sub(Nanos::from_millis(200)),
    );
    assert_eq!(next(&mut scheduler, &mut pool, LATE), Some(0));
    scheduler.completed(&pool, id, LATE);
    for n in 0..40 {
        write(&mut scheduler, &mut pool, 100 + n * 8, LATE);
    }
    let soon = LATE + Nanos::from_millis(250);
    assert_eq!(drain(&mut scheduler, &mut pool, soon).len(), 2);
    let rules = CfqRules {
        ramp_up: RampUp::Off,
        ..CfqRules::USUAL
    };
    scheduler.rules = rules;
    assert_eq!(drain(&mut scheduler, &mut pool, soon).len(), 38);
}

/// Nothing was late yet: at 0 it counts as late 1 s ago, so 1000 / 100 = 10 writes may be in the driver; 50 ms
/// later still 10, at 250 ms 12.
#[test]
fn at_the_start_writes_are_as_deep_as_a_second_after_a_delay() {
    let (mut scheduler, mut pool) = (Cfq::new(CfqRules::USUAL), Pool::default());
    for n in 0..40 {
        write(&mut scheduler, &mut pool, n * 8, Nanos::ZERO);
    }
    assert_eq!(drain(&mut scheduler, &mut pool, Nanos::ZERO).len(), 10);
    assert_eq!(drain(&mut scheduler, &mut pool, Nanos::from_millis(50)).len(), 0);
    assert_eq!(drain(&mut scheduler, &mut pool, Nanos::from_millis(250)).len(), 2);
}

/// With another queue waiting, half a quantum: 4.
#[test]
fn half_a_quantum_is_in_the_driver_while_others_wait() {
    let (mut scheduler, mut pool) = (Cfq::new(CfqRules::USUAL), Pool::default());
    for n in 0..10 {
        read(&mut scheduler, &mut pool, n * 8, 1, LATE);
    }
    for n in 0..10 {
        read(&mut scheduler, &mut pool, 1000 + n * 8, 2, LATE);
    }
    assert_eq!(drain(&mut scheduler, &mut pool, LATE), [0, 8, 16, 24]);
}

/// On a disk; a card that queues requests is not idled for.
#[test]
fn the_driver_idles_for_a_reader_that_may_come_back() {
    let (mut scheduler, mut pool) = (Cfq::new(DISK), Pool::default());
    let id = read(&mut scheduler, &mut pool, 0, 1, LATE);
    assert_eq!(next(&mut scheduler, &mut pool, LATE), Some(0));
    write(&mut scheduler, &mut pool, 500, LATE);
    scheduler.completed(&pool, id, LATE);
    assert_eq!(
        next(&mut scheduler, &mut pool, LATE + Nanos::from_millis(7)),
        None
    );
    assert_eq!(scheduler.wake_at(), Some(LATE + Nanos::from_millis(8)));
    assert_eq!(
        next(&mut scheduler, &mut pool, LATE + Nanos::from_millis(8)),
        Some(500)
    );
}

/// A sync write that is alone in its tree waits until the driver has done all async writes; with another task's write in
/// that tree it does not. The scheduler knows from earlier requests that no more follow at once.
#[test]
fn the_driver_is_drained_for_a_sync_queue_that_is_alone() {
    for (others, expected) in [(0, None), (1, Some(900))] {
        let (mut scheduler, mut pool) = (Cfq::new(CfqRules::USUAL), Pool::default());
        let sync = |scheduler: &mut Cfq, pool: &mut Pool, actor: u16| {
            let sector = 1000 - 100 * u64::from(actor);
            insert(
                scheduler,
                pool,
                sector,
                Operation::Write,
                RequestFlags::SYNC,
                actor,
                LATE,
            )
        };
        for actor in 1..=1 + others {
            let id = sync(&mut scheduler, &mut pool, actor);
            assert!(next(&mut scheduler, &mut pool, LATE).is_some());
            scheduler.completed(&pool, id, LATE);
        }
        write(&mut scheduler, &mut pool, 0, LATE);
        assert_eq!(next(&mut scheduler, &mut pool, LATE), Some(0));
        for actor in 1..=1 + others {
            sync(&mut scheduler, &mut pool, actor);
        }
        assert_eq!(next(&mut scheduler, &mut pool, LATE), expected);
    }
}

#[test]
fn writes_wait_while_somebody_waits_for_a_request_in_the_driver() {
    let (mut scheduler, mut pool) = (Cfq::new(CfqRules::USUAL), Pool::default());
    let id = insert(
        &mut scheduler,
        &mut pool,
        0,
        Operation::Write,
        RequestFlags::SYNC,
        1,
        LATE,
    );
    assert_eq!(next(&mut scheduler, &mut pool, LATE), Some(0));
    write(&mut scheduler, &mut pool, 500, LATE);
    assert_eq!(next(&mut scheduler, &mut pool, LATE), None);
    scheduler.completed(&pool, id, LATE);
    assert_eq!(next(&mut scheduler, &mut pool, LATE), Some(500));
}

/// Two readers with ten requests each. Before a request of the slice is done, half a quantum of 8 is in the driver. The
/// first completion starts the slice of 100 ms: with 3 in the driver 24 ms of it are spoken for, so up to the quantum
/// may follow; that ends when 8 ms for each exceed the rest of the slice (13 x 8 > 100).
#[test]
fn a_whole_quantum_is_in_the_driver_early_in_a_slice() {
    for (quantum, first, then) in [(8, 4, 5), (16, 8, 6), (2, 1, 2), (1, 1, 1)] {
        let rules = CfqRules {
            quantum,
            ..CfqRules::USUAL
        };
        let (mut scheduler, mut pool) = (Cfq::new(rules), Pool::default());
        let mut ids = Vec::new();
        for n in 0..20 {
            ids.push(read(&mut scheduler, &mut pool, n * 8, 1, LATE));
            read(&mut scheduler, &mut pool, 1000 + n * 8, 2, LATE);
        }
        assert_eq!(
            drain(&mut scheduler, &mut pool, LATE).len(),
            first,
            "quantum {quantum}"
        );
        scheduler.completed(&pool, ids[0], LATE);
        assert_eq!(
            drain(&mut scheduler, &mut pool, LATE).len(),
            then,
            "quantum {quantum}"
        );
        // 60 ms later 40 ms of the slice are left: five requests of 8 ms, so nothing follows seven.
        scheduler.completed(&pool, ids[1], LATE + Nanos::from_millis(60));
        let late = LATE + Nanos::from_millis(60);
        let more = drain(&mut scheduler, &mut pool, late).len();
        assert_eq!(more, usize::from(quantum <= 2), "quantum {quantum}");
    }
}

/// A card that queues requests: the driver goes on with the next queue at once.
#[test]
fn the_driver_does_not_idle_on_flash_that_queues_requests() {
    let (mut scheduler, mut pool) = (Cfq::new(CfqRules::USUAL), Pool::default());
    let id = read(&mut scheduler, &mut pool, 0, 1, LATE);
    assert_eq!(next(&mut scheduler, &mut pool, LATE), Some(0));
    write(&mut scheduler, &mut pool, 500, LATE);
    scheduler.completed(&pool, id, LATE);
    assert_eq!(next(&mut scheduler, &mut pool, LATE), Some(500));
}

/// A driver that takes one request at a time shows in 51 completions with more than 5 waiting; then the driver idles.
#[test]
fn flash_without_a_queue_is_found_out_and_idled_for() {
    let (mut scheduler, mut pool) = (Cfq::new(CfqRules::USUAL), Pool::default());
    for n in 0..70 {
        read(&mut scheduler, &mut pool, n * 8, 1, LATE);
    }
    for _ in 0..70 {
        let id = scheduler.dispatch(&pool, LATE).unwrap();
        pool.get_mut(id).waiting = false;
        scheduler.completed(&pool, id, LATE);
    }
    assert_eq!(scheduler.queueing, Some(false));
    write(&mut scheduler, &mut pool, 5000, LATE);
    assert_eq!(next(&mut scheduler, &mut pool, LATE), None);
    assert_eq!(scheduler.wake_at(), Some(LATE + CfqRules::USUAL.slice_idle));
}

/// The slice of 40 ms of async writes begins with their first completion, not with their dispatch 200 ms before. When it
/// is over, nothing follows until the driver has done another request.
#[test]
fn a_slice_starts_at_its_first_completion_and_its_end_waits_for_the_driver() {
    let (mut scheduler, mut pool) = (Cfq::new(CfqRules::USUAL), Pool::default());
    let ids: Vec<_> = (0..9)
        .map(|n| write(&mut scheduler, &mut pool, n * 8, LATE))
        .collect();
    for _ in 0..3 {
        assert!(next(&mut scheduler, &mut pool, LATE).is_some());
    }
    let done = LATE + Nanos::from_millis(200);
    assert!(
        next(&mut scheduler, &mut pool, done).is_some(),
        "the slice has not begun"
    );
    scheduler.completed(&pool, ids[0], done);
    let within = done + Nanos::from_millis(39);
    assert!(next(&mut scheduler, &mut pool, within).is_some());
    let over = done + Nanos::from_millis(40);
    assert_eq!(next(&mut scheduler, &mut pool, over), None);
    scheduler.completed(&pool, ids[1], over);
    assert!(next(&mut scheduler, &mut pool, over).is_some(), "another slice");
}

/// At 1000: 900 is 100 behind, which counts 200: nearer than 1300, farther than 1100.
#[test]
fn a_short_seek_backwards_counts_twice() {
    for (above, expected) in [(1300, 900), (1100, 1100)] {
        let (mut scheduler, mut pool) = (Cfq::new(CfqRules::USUAL), Pool::default());
        write(&mut scheduler, &mut pool, 992, LATE);
        assert_eq!(next(&mut scheduler, &mut pool, LATE), Some(992));
        write(&mut scheduler, &mut pool, 900, LATE);
        write(&mut scheduler, &mut pool, above, LATE);
        assert_eq!(next(&mut scheduler, &mut pool, LATE), Some(expected));
    }
}
