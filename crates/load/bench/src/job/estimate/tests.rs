//! Runs are played with times that are given: no clock is read, and nothing is measured.

use std::time::Duration;

use super::*;
use crate::job::rehearsal::Rehearsed;
use crate::progress::Phase;
use crate::spec::{Cache, FileSpec, FinalSync, Mode, Pattern, WriteTarget};

/// What a step really takes.
#[derive(Clone, Copy)]
struct Truth {
    /// Preparation that reports itself, and such that does not, as a sync.
    prepare_s: f64,
    silent_s: f64,
    timed_s: f64,
    after_s: f64,
    operations_per_s: f64,
    /// How long its rehearsal takes, and how far off what it finds is.
    rehearsal: Option<(f64, f64)>,
    /// Of the silent part: it is not rehearsed, but taken to be so long.
    guessed_s: f64,
}

/// How often the child reports, or lets time go on.
const TICK_S: f64 = 0.1;

/// A device for which every time is known: what the estimator is told and what it must find out.
struct Device {
    prepare_s: f64,
    silent_s: f64,
    /// Time that a step by amount takes, as a multiple of the guess.
    slowness: f64,
    after_s: f64,
}

impl Device {
    fn truth(&self, step: &Expectation) -> Truth {
        Truth {
            prepare_s: self.prepare_s,
            silent_s: self.silent_s,
            timed_s: match step.timed {
                Timed::ByClock(seconds) => seconds,
                // Five seconds for the 1000 operations of a step where a device is as fast as was guessed.
                Timed::ByAmount { limit_s, .. } => (5.0 * self.slowness).min(limit_s.unwrap_or(f64::MAX)),
            },
            after_s: self.after_s,
            operations_per_s: 200.0 / self.slowness,
            rehearsal: None,
            guessed_s: 0.0,
        }
    }
}

fn by_clock(kind: &str, seconds: f64) -> Expectation {
    Expectation {
        kind: kind.to_owned(),
        prepare_s: 0.5,
        timed: Timed::ByClock(seconds),
        timed_phases: 1,
        after_s: 0.05,
        is_rehearsed: false,
    }
}

fn by_amount(kind: &str, seconds: f64, limit_s: Option<f64>) -> Expectation {
    let operations = Some(1000);
    Expectation {
        timed: Timed::ByAmount {
            seconds,
            operations,
            limit_s,
        },
        ..by_clock(kind, 0.0)
    }
}

fn all(guess_s: f64) -> Vec<Expectation> {
    let mut steps = vec![by_clock("file", 5.0); 4];
    steps.extend(vec![by_amount("sqlite", guess_s, Some(5.0)); 3]);
    steps
}

/// Plays a run and returns each moment (real share of the time, shown share).
fn played(steps: &[Expectation], device: &Device) -> Vec<(f64, f64)> {
    let truths: Vec<Truth> = steps.iter().map(|step| device.truth(step)).collect();
    moments(steps, &truths, 1)
}

fn moments(steps: &[Expectation], truths: &[Truth], turns: u32) -> Vec<(f64, f64)> {
    let mut play = Play {
        estimator: Estimator::new(steps, turns),
        now_s: 0.0,
        moments: Vec::new(),
    };
    if truths.iter().any(|truth| truth.rehearsal.is_some()) {
        play.estimator.rehearse();
        for (step, truth) in truths.iter().enumerate() {
            play.rehearse(step, truth);
        }
        play.estimator.begin(play.now());
    }
    for truth in (0..turns).flat_map(|_| truths) {
        play.step(truth);
    }
    let end_s = play.now_s;
    play.moments
        .iter()
        .map(|(at, shown)| (at / end_s, *shown))
        .collect()
}

struct Play {
    estimator: Estimator,
    now_s: f64,
    moments: Vec<(f64, f64)>,
}

impl Play {
    fn now(&self) -> Duration {
        Duration::from_secs_f64(self.now_s)
    }

    fn saw(&mut self, shown: Shown) {
        self.moments.push((self.now_s, shown.fraction));
    }

    /// Lets time go by; `report` is given the share of it that is over, in thousandths.
    fn pass(&mut self, seconds: f64, report: impl Fn(&mut Estimator, Duration, u64) -> Shown) {
        let began_s = self.now_s;
        while self.now_s < began_s + seconds {
            self.now_s = (self.now_s + TICK_S).min(began_s + seconds);
            let share = ((self.now_s - began_s) / seconds * 1000.0).to_string();
            let done = share.split('.').next().unwrap().parse().unwrap();
            let shown = report(&mut self.estimator, Duration::from_secs_f64(self.now_s), done);
            self.saw(shown);
        }
    }

    fn rehearse(&mut self, step: usize, truth: &Truth) {
        let Some((seconds, factor)) = truth.rehearsal else {
            return;
        };
        self.pass(seconds, |estimator, now, _| estimator.tick(now));
        let found = Rehearsed {
            prepare_s: truth.prepare_s * factor + truth.guessed_s,
            timed_s: truth.timed_s * factor,
            after_s: truth.after_s * factor,
        };
        let shown = self.estimator.rehearsed(self.now(), step, found);
        self.saw(shown);
    }

    fn step(&mut self, truth: &Truth) {
        self.pass(truth.prepare_s, |estimator, now, done| {
            estimator.advance(now, Phase::Prepare, done, 1000)
        });
        self.pass(truth.silent_s, |estimator, now, _| estimator.tick(now));
        // The begin of the window is reported, and then it every tenth of a second and at its end.
        let shown = self.estimator.advance(self.now(), Phase::Measure, 0, 1000);
        self.saw(shown);
        self.pass(truth.timed_s, |estimator, now, done| {
            estimator.advance(now, Phase::Measure, done, 1000)
        });
        self.pass(truth.after_s, |estimator, now, _| estimator.tick(now));
        let done = Done {
            operations_per_s: Some(truth.operations_per_s),
            window: Some(Duration::from_secs_f64(truth.timed_s)),
        };
        let shown = self.estimator.step_done(self.now(), done);
        self.saw(shown);
    }
}

fn worst(moments: &[(f64, f64)]) -> f64 {
    moments
        .iter()
        .map(|(real, shown)| (real - shown).abs())
        .fold(0.0, f64::max)
}

#[test]
fn the_share_shown_is_right_to_a_tenth_on_fast_and_slow_devices() {
    for (name, guess_s, prepare_s, silent_s, slowness, after_s) in [
        ("memory", 0.8, 0.02, 0.0, 0.05, 0.0),
        ("fast disk", 3.75, 0.1, 0.3, 0.5, 0.05),
        ("flash card", 3.75, 2.0, 2.0, 1.0, 0.5),
        ("slow card", 3.75, 0.1, 12.0, 8.0, 3.0),
        ("network", 3.75, 10.0, 1.0, 3.0, 0.0),
    ] {
        let device = Device {
            prepare_s,
            silent_s,
            slowness,
            after_s,
        };
        let moments = played(&all(guess_s), &device);
        assert!(worst(&moments) <= 0.10, "{name}: off by {:.3}", worst(&moments));
        assert_eq!(moments.last().unwrap().1, 1.0, "{name}");
    }
}

/// Seconds of an operation, and what else decides how long the steps of the page take.
struct Speeds {
    sequential_write_s: f64,
    random_write_s: f64,
    read_s: f64,
    transaction_s: f64,
    prepare_bytes_per_s: f64,
    /// The first time, and then.
    empty_caches_s: [f64; 2],
    /// What each run has once: its folder, its threads, its environment.
    once_s: f64,
}

/// The seven steps of All on the web page at their default sizes, which all end with their amount: 10 MiB written, 32
/// MiB read, 100 transactions, as guessed and as they are.
fn all_of_the_page(speeds: &Speeds) -> (Vec<Expectation>, Vec<Truth>) {
    let file = |pattern: Pattern, mib: u64, cache: Cache| FileSpec {
        mode: Mode::Direct,
        cache,
        write_target: WriteTarget::ExistingFile,
        final_sync: FinalSync::Timed,
        ..FileSpec::plain("/".into(), pattern, 4096, mib << 20)
    };
    let mut steps = Vec::new();
    let mut truths = Vec::new();
    for (pattern, mib, operation_s) in [
        (Pattern::SequentialWrite, 10, speeds.sequential_write_s),
        (Pattern::SequentialRead, 32, speeds.read_s),
        (Pattern::RandomWrite, 10, speeds.random_write_s),
        (Pattern::RandomRead, 32, speeds.read_s),
    ] {
        let cache = if pattern.writes() {
            Cache::AsIs
        } else {
            Cache::Cold
        };
        let spec = file(pattern, mib, cache);
        let bytes = results::nearest_f64(spec.file_bytes);
        steps.push(Expectation::of_file(&spec));
        truths.push(Truth {
            prepare_s: speeds.once_s + bytes / speeds.prepare_bytes_per_s,
            silent_s: match pattern {
                Pattern::SequentialRead => speeds.empty_caches_s[0],
                Pattern::RandomRead => speeds.empty_caches_s[1],
                _ => 0.0,
            },
            timed_s: bytes / 4096.0 * operation_s,
            after_s: speeds.once_s / 2.0,
            operations_per_s: 1.0 / operation_s,
            rehearsal: None,
            guessed_s: 0.0,
        });
    }
    for _ in 0..3 {
        steps.push(by_amount("sqlite", 0.2, None));
        truths.push(Truth {
            prepare_s: speeds.once_s + 3.0 * speeds.transaction_s,
            silent_s: 0.0,
            timed_s: 100.0 * speeds.transaction_s,
            after_s: speeds.once_s / 2.0,
            operations_per_s: 1.0 / speeds.transaction_s,
            rehearsal: None,
            guessed_s: 0.0,
        });
    }
    (steps, truths)
}

/// A rehearsal does a part of the operations and all of what is done once, but empties no caches; what it finds is off.
fn with_rehearsals(truths: &mut [Truth]) {
    let off = [1.3, 0.75, 1.2, 0.8, 1.35, 0.75, 1.25];
    for (truth, factor) in truths.iter_mut().zip(off) {
        let seconds = truth.prepare_s / 10.0 + truth.timed_s / 16.0 + truth.after_s;
        truth.rehearsal = Some((seconds, factor));
        truth.guessed_s = if truth.silent_s > 0.0 { 0.3 } else { 0.0 };
    }
}

const DEVICES: [(&str, Speeds); 4] = [
    (
        "solid state disk",
        Speeds {
            sequential_write_s: 70e-6,
            random_write_s: 70e-6,
            read_s: 60e-6,
            transaction_s: 1.2e-3,
            prepare_bytes_per_s: 500e6,
            empty_caches_s: [0.2, 0.1],
            once_s: 0.01,
        },
    ),
    (
        "flash card",
        Speeds {
            sequential_write_s: 2e-3,
            random_write_s: 8e-3,
            read_s: 700e-6,
            transaction_s: 30e-3,
            prepare_bytes_per_s: 15e6,
            empty_caches_s: [0.3, 0.1],
            once_s: 0.1,
        },
    ),
    (
        "hard disk",
        Speeds {
            sequential_write_s: 150e-6,
            random_write_s: 5e-3,
            read_s: 6e-3,
            transaction_s: 40e-3,
            prepare_bytes_per_s: 120e6,
            empty_caches_s: [0.5, 0.1],
            once_s: 0.05,
        },
    ),
    (
        "board with a fast device and full caches",
        Speeds {
            sequential_write_s: 30e-6,
            random_write_s: 30e-6,
            read_s: 40e-6,
            transaction_s: 300e-6,
            prepare_bytes_per_s: 1e9,
            empty_caches_s: [1.0, 0.1],
            once_s: 0.01,
        },
    ),
];

#[test]
fn steps_that_end_with_their_amount_are_right_to_a_tenth_once_they_were_rehearsed() {
    for (name, speeds) in DEVICES {
        for turns in [1, 3] {
            let (steps, mut truths) = all_of_the_page(&speeds);
            with_rehearsals(&mut truths);
            let moments = moments(&steps, &truths, turns);
            let off = worst(&moments);
            assert!(
                off <= 0.10,
                "{name}, {turns} rounds: off by {off:.3}: {moments:.2?}"
            );
            assert!(moments.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{name}");
            assert_eq!(moments.last().unwrap().1, 1.0, "{name}");
        }
    }
}

#[test]
fn canary_the_same_steps_without_a_rehearsal_are_off_by_far_more() {
    let off = DEVICES.map(|(_, speeds)| {
        let (steps, truths) = all_of_the_page(&speeds);
        worst(&moments(&steps, &truths, 1))
    });
    assert!(off.into_iter().fold(0.0, f64::max) > 0.3, "{off:?}");
}

#[test]
fn steps_by_amount_are_learnt_from_each_other() {
    let device = Device {
        prepare_s: 0.2,
        silent_s: 0.0,
        slowness: 2.0,
        after_s: 0.0,
    };
    let moments = played(&vec![by_amount("file", 5.0, None); 6], &device);
    let second_half: Vec<_> = moments.into_iter().filter(|(real, _)| *real > 0.3).collect();
    assert!(worst(&second_half) <= 0.05, "off by {:.3}", worst(&second_half));
}

#[test]
fn the_share_never_goes_back() {
    let device = Device {
        prepare_s: 0.1,
        silent_s: 4.0,
        slowness: 30.0,
        after_s: 1.0,
    };
    let mut steps = all(5.0);
    steps.push(by_amount("file", 1.0, None));
    let moments = played(&steps, &device);
    assert!(moments.windows(2).all(|pair| pair[0].1 <= pair[1].1));
}

#[test]
fn canary_equal_weights_by_bytes_would_be_off_by_more() {
    let steps = [by_clock("file", 1.0), by_clock("file", 9.0)];
    let device = Device {
        prepare_s: 0.0,
        silent_s: 0.0,
        slowness: 1.0,
        after_s: 0.0,
    };
    let naive = played(&steps, &device)
        .iter()
        .map(|(real, _)| (*real, if *real <= 0.1 { real * 5.0 } else { 0.5 }))
        .collect::<Vec<_>>();
    assert!(worst(&naive) > 0.10);
    assert!(worst(&played(&steps, &device)) <= 0.05);
}
