//! Tests of the card with a clock that only advances during sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use emmc::block::{QueueRules, SchedulerKind};
use emmc::card::CardFile;
use emmc::host::HostFile;
use emmc::packing::PackRules;
use emmc::simulation::{DiscardMode, DriverMode};
use testkit::prng::Prng;

use super::*;
use crate::KeptCard;
use crate::path_cost::Way;

/// A clock that only advances during sleeps.
#[derive(Clone, Default)]
struct SleptTime(Arc<AtomicU64>);

impl TimeSource for SleptTime {
    fn now(&self) -> Nanos {
        Nanos(self.0.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, deadline: Nanos) {
        self.0.fetch_max(deadline.0, Ordering::SeqCst);
    }
}

fn setup(cache: bool) -> Setup {
    let mut card = CardFile::preset("gt-i9300").unwrap();
    card.flash.capacity_bytes = 64 << 20;
    card.controller.cache = cache;
    Setup {
        card,
        host: HostFile::preset("mshci").unwrap(),
        queue: QueueRules::usual(SchedulerKind::None),
        driver: DriverMode::Packed(PackRules::PHONE),
        discard: DiscardMode::Trim,
    }
}

fn device(cache: bool) -> (LiveDevice<SleptTime>, SleptTime) {
    let time = SleptTime::default();
    let store = Store::memory(64 << 20).unwrap();
    (LiveDevice::new(&setup(cache), store, time.clone()).unwrap(), time)
}

fn unit(device: &LiveDevice<SleptTime>, unit: u64) -> u8 {
    let mut out = [0; 4096];
    device.read(unit * 4096, &mut out).unwrap();
    assert!(out.iter().all(|byte| *byte == out[0]), "unit {unit} is whole");
    out[0]
}

/// Wake-up 40, fetch 5, prepare 20: start at 65. CMD23 4 + 15 + 40, CMD25 4: data from 128; the card's command 100,
/// 51.2 of data, PC 200, LSB 500: ready at 979.2. The data ended at 179.2; seen at 234.2 + 15 polls of 50 = 984.2,
/// CMD13 4: 988.2; completed 10 later.
#[test]
fn a_write_is_answered_when_the_model_says_and_not_late() {
    let (device, time) = device(false);
    device.write(0, &[1; 4096]).unwrap();
    assert_eq!(time.now(), Nanos(998_200));
    assert_eq!(
        device.statistics().late.summary().map(|late| late.max_ns),
        Some(0)
    );
    assert_eq!(unit(&device, 0), 1);
}

/// As above, with path latencies: the write was made 100 us before it arrived, and is seen complete 50 us after its
/// answer. Arrived at 1000, made at 900, done in the model at 1898.2: answered at 1848.2.
#[test]
fn a_client_sees_its_request_done_when_the_model_says() {
    let (device, time) = device_with_way();
    device.write(0, &[1; 4096]).unwrap();
    assert_eq!(time.now(), Nanos(1_848_200));
    assert_eq!(
        device.statistics().late.summary().map(|late| late.max_ns),
        Some(0)
    );
}

/// The same write is programmed at 1879.2 of the model, and answered at 1848.2 by the clock.
#[test]
fn what_was_answered_before_the_model_says_outlives_a_cut_at_once() {
    let (device, time) = device_with_way();
    device.write(0, &[1; 4096]).unwrap();
    let report = device.cut_power(CutKind::Clean).unwrap();
    assert_eq!(time.now(), Nanos(1_848_200));
    assert_eq!(report.last_cut.map(|cut| cut.reverted_bytes), Some(0));
    device.restore_power();
    assert_eq!(unit(&device, 0), 1);
}

fn device_with_way() -> (LiveDevice<SleptTime>, SleptTime) {
    let (device, time) = device(false);
    let way = Way {
        before: Nanos::from_micros(100),
        after: Nanos::from_micros(50),
    };
    device.make_up_for(PathCost {
        reads: [way; 2],
        writes: [way; 2],
    });
    time.sleep_until(Nanos::from_micros(1000));
    (device, time)
}

/// A real clock, 100 times as fast: the write above takes 998.2 us of the card's time, and the latencies of a rehearsal are
/// limited in real time.
#[test]
fn a_card_at_a_scale_keeps_the_time_of_its_own_clock() {
    let clock = RealClock::punctual().at_scale("100".parse().unwrap());
    let device = LiveDevice::new(&setup(false), Store::memory(64 << 20).unwrap(), clock).unwrap();
    let (outer, before) = (std::time::Instant::now(), clock.now());
    device.write(0, &[1; 4096]).unwrap();
    let passed = clock.now().saturating_sub(before);
    let outer = u64::try_from(outer.elapsed().as_nanos()).unwrap();
    assert!((998_200..=outer * 100 + 100).contains(&passed.0), "{passed}");
    let statistics = device.statistics();
    assert!(statistics.card_time >= before + passed, "{statistics:?}");
    assert_eq!(statistics.outcome.writes.requests, 1);
}

#[test]
fn a_rehearsal_takes_its_fixed_time_and_leaves_the_store_as_it_is() {
    let (device, time) = device(false);
    let empty = device.store().ranges_with_data().unwrap();
    device.rehearsal().begin(Nanos(777));
    device.write(0, &[0; 8192]).unwrap();
    assert_eq!(device.store().ranges_with_data().unwrap(), empty);
    assert_eq!(
        device
            .rehearsal()
            .last()
            .map(|times| (times.arrived, times.answered)),
        Some((Nanos(0), Nanos(777)))
    );
    // Another client's data is stored nevertheless.
    device.write(0, &[5; 4096]).unwrap();
    device.rehearsal().end();
    assert_eq!(unit(&device, 0), 5);
    assert!(time.now() > Nanos(2 * 777));
    assert_eq!(device.statistics().outcome.writes.requests, 0);
}

/// Written twice over, detached, attached again: the second run has the wear and the map of the first, reads as fast,
/// and starts garbage collection no sooner. If the image was modified in between, only the wear is restored.
#[test]
fn maps_and_wear_outlive_a_card_that_is_put_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card.img");
    let setup = setup(false);
    let open = || {
        let store = Store::file(&path, &crate::Description::new(setup.card.clone())).unwrap();
        LiveDevice::new(&setup, store, SleptTime::default())
    };
    let device = open().unwrap();
    for place in 0..256_u64 {
        device
            .write(place * 7919 % 128 * (512 << 10), &[1; 512 << 10])
            .unwrap();
    }
    device.put_away().unwrap();
    let erases = device.statistics().outcome.erases;
    let kept = device.store().kept().unwrap().unwrap();
    assert!(erases.1 > 0 && kept.kept.map.is_some(), "{erases:?}");
    drop(device);

    let device = open().unwrap();
    assert_eq!(device.statistics().outcome.erases, erases);
    assert_eq!(unit(&device, 5), 1);
    device.put_away().unwrap();
    assert_eq!(device.store().kept().unwrap().unwrap().kept, kept.kept);
    drop(device);

    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let device = open().unwrap();
    assert_eq!(device.store().kept().unwrap().unwrap().kept.map, None);
    assert_eq!(device.statistics().outcome.erases, erases);
    drop(device);

    let maps = folder.path().join("card.img.maps");
    let mut raw = std::fs::read(&maps).unwrap();
    raw.truncate(1000);
    std::fs::write(&maps, raw).unwrap();
    let message = open().err().expect("it is cut short").to_string();
    assert!(
        message.contains("1000 bytes") && message.contains("remove it"),
        "{message}"
    );
    let foreign = KeptCard {
        image_changed_ns: 0,
        epoch: 1,
        kept: emmc::translation::Kept {
            erases: vec![1; 3],
            map: None,
        },
    };
    std::fs::write(&maps, foreign.encode()).unwrap();
    let message = open().err().expect("it is another card's").to_string();
    assert!(message.contains("another card: super blocks is 3"), "{message}");
}

#[test]
fn requests_outside_of_the_card_are_refused() {
    let (device, _) = device(false);
    assert_eq!(device.write(64 << 20, &[1; 512]), Err(FsError::Invalid));
    assert_eq!(device.read(0, &mut [0; 100]), Err(FsError::Invalid));
}

#[test]
fn without_power_every_request_fails_and_with_it_again_none() {
    let (device, _) = device(false);
    device.write(0, &[1; 4096]).unwrap();
    device.cut_power(CutKind::Clean).unwrap();
    assert_eq!(device.write(0, &[2; 4096]), Err(FsError::Io));
    assert_eq!(device.read(0, &mut [0; 512]), Err(FsError::Io));
    assert_eq!(device.flush(), Err(FsError::Io));
    device.restore_power();
    assert_eq!(unit(&device, 0), 1);
    device.write(0, &[2; 4096]).unwrap();
}

/// Random writes, flushes, discards and power cuts of single units. A unit may hold its content at the last flush or
/// anything written to it since, and never anything else; without a cache it holds the last write.
#[test]
fn after_a_cut_each_unit_holds_a_version_that_it_may_hold() {
    for seed in 0..40 {
        let cache = seed % 2 == 0;
        let (device, _) = device(cache);
        let mut random = Prng::new(seed);
        let mut may_hold = vec![vec![0_u8]; 32];
        let mut lost = 0;
        for step in 0..300 {
            let place = random.below_usize(32);
            let offset = u64::try_from(place).unwrap() * 4096;
            match random.below(100) {
                0..80 => {
                    let byte = u8::try_from(random.below(256)).unwrap();
                    device.write(offset, &[byte; 4096]).unwrap();
                    may_hold[place].push(byte);
                }
                80..88 => {
                    device.flush().unwrap();
                    may_hold
                        .iter_mut()
                        .for_each(|versions| versions.drain(..versions.len() - 1).for_each(drop));
                }
                88..93 => {
                    device.zero(Operation::Discard, offset, 4096).unwrap();
                    may_hold[place] = vec![0];
                }
                _ => {
                    lost += device
                        .cut_power(CutKind::Clean)
                        .unwrap()
                        .last_cut
                        .unwrap()
                        .answered_bytes_lost;
                    device.restore_power();
                    for (versions, number) in may_hold.iter_mut().zip(0..) {
                        let found = unit(&device, number);
                        let allowed = if cache {
                            versions.contains(&found)
                        } else {
                            versions.last() == Some(&found)
                        };
                        assert!(
                            allowed,
                            "seed {seed} step {step}: unit {number} is {found}, may be {versions:?}"
                        );
                        *versions = vec![found];
                    }
                }
            }
        }
        assert_eq!(
            lost > 0,
            cache,
            "seed {seed}: a cache loses something, a card without one nothing"
        );
    }
}
