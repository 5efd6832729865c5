//! How far a job is, in time: the share of the whole run that is over, and what is left.
//!
//! A share of bytes or of steps would run ahead and fall behind, because a step that reads 32 MiB and one that syncs
//! each of its writes take different times. So each step is weighted by the time that it is expected to take: exactly
//! known where a step runs by the clock, guessed from amounts where it does not, and corrected by what was measured.
//! What earlier steps of a kind took, compared with the guess, scales the guesses for the later ones; within a step
//! its own progress decides. The shown share never goes back.
//!
//! It reads no clock: each call says what time it is, counted from the start of the run.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::progress::Phase;
use crate::spec::{Cache, FileSpec};
use crate::sqlite::{SqliteSpec, Synchronous};

/// A step's own progress is believed once it has gone on for this long: the first operations are not typical.
const BELIEVED_AFTER_S: f64 = 0.3;

/// And once this share is done, or after so long.
const BELIEVED_SHARE: f64 = 0.03;
const BELIEVED_IN_ANY_CASE_S: f64 = 1.0;

/// What a step is expected to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// Steps of one kind resemble each other: what one took tells about the next.
    pub kind: String,
    /// Guessed time to make files and empty caches.
    pub prepare_s: f64,
    /// Time of the timed part.
    pub timed: Timed,
    /// Phases that the timed part reports one after the other, at least 1.
    pub timed_phases: u32,
    /// Guessed time after it: final syncs, comparing, removing files.
    pub after_s: f64,
}

/// Time of the timed part of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timed {
    /// Runs by the clock for so long.
    ByClock(f64),
    /// Guessed from the amount of work, and at most `limit_s` where there is a limit.
    ByAmount {
        /// The guess.
        seconds: f64,
        /// Operations of the step, where they are known: steps of its kind before tell how fast they go.
        operations: Option<u64>,
        /// Where the step ends in any case.
        limit_s: Option<f64>,
    },
}

/// What files are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Nothing that a sync would wait for.
    Memory,
    /// Anything else.
    Storage,
}

impl Medium {
    /// By the type of the file system.
    #[must_use]
    pub fn of_type(file_system_type: Option<&str>) -> Self {
        match file_system_type {
            Some("tmpfs" | "ramfs") => Self::Memory,
            _ => Self::Storage,
        }
    }
}

/// What to show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shown {
    /// Share of the run's time that is over, 0 to 1.
    pub fraction: f64,
    /// What is left.
    pub remaining: Duration,
    /// The step at work, counted from 0.
    pub step: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Prepare,
    Timed,
    After,
}

/// Weighs the steps of a run and follows it.
#[derive(Clone, Debug)]
pub struct Estimator {
    steps: Vec<Expectation>,
    current: usize,
    part: Part,
    /// When the part began, and what it reports of itself.
    part_began_s: f64,
    part_share: f64,
    /// What a timed part had done at its first report, which is where its time begins to count.
    part_first_share: f64,
    phases_begun: Vec<Phase>,
    last_event_s: f64,
    now_s: f64,
    shown: f64,
    is_over: bool,
    /// By kind and part: time taken, and time that was guessed for it.
    learnt: BTreeMap<(String, Part), (f64, f64)>,
    /// By kind: operations a second of the last step.
    rates: BTreeMap<String, f64>,
}

impl Estimator {
    /// For a run of these steps, in this order, repeated as often as the caller has put them in.
    #[must_use]
    pub fn new(steps: Vec<Expectation>) -> Self {
        Self {
            steps,
            current: 0,
            part: Part::Prepare,
            part_began_s: 0.0,
            part_share: 0.0,
            part_first_share: 0.0,
            phases_begun: Vec::new(),
            last_event_s: 0.0,
            now_s: 0.0,
            shown: 0.0,
            is_over: false,
            learnt: BTreeMap::new(),
            rates: BTreeMap::new(),
        }
    }

    /// Steps of the run.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// A step reports `done` of `total` of a phase.
    pub fn advance(&mut self, now: Duration, phase: Phase, done: u64, total: u64) -> Shown {
        let part = match phase {
            Phase::Prepare | Phase::Cache => Part::Prepare,
            _ => Part::Timed,
        };
        self.now_s = now.as_secs_f64();
        let is_first = part > self.part;
        if is_first {
            self.enter(part);
        }
        if part == self.part {
            if !self.phases_begun.contains(&phase) {
                self.phases_begun.push(phase);
            }
            self.part_share = self.share(part, done, total);
            if is_first {
                self.part_first_share = self.part_share;
            }
        }
        self.last_event_s = self.now_s;
        self.shown_now()
    }

    /// Nothing is reported, and time goes on.
    pub fn tick(&mut self, now: Duration) -> Shown {
        self.now_s = now.as_secs_f64();
        let is_through = self.part == Part::Timed && self.part_remaining() <= 0.0 && self.part_share >= 1.0;
        if is_through && self.now_s - self.last_event_s > BELIEVED_AFTER_S {
            self.enter(Part::After);
        }
        self.shown_now()
    }

    /// The current step is over, at so many operations a second; the next one begins, if there is one.
    pub fn step_done(&mut self, now: Duration, operations_per_s: Option<f64>) -> Shown {
        self.now_s = now.as_secs_f64();
        if let (Some(step), Some(rate)) = (self.steps.get(self.current), operations_per_s)
            && rate > 0.0
        {
            self.rates.insert(step.kind.clone(), rate);
        }
        if self.part == Part::Timed {
            self.enter(Part::After);
        }
        self.learn(self.now_s);
        self.current += 1;
        self.part = Part::Prepare;
        self.part_began_s = self.now_s;
        self.last_event_s = self.now_s;
        self.part_share = 0.0;
        self.part_first_share = 0.0;
        self.phases_begun.clear();
        self.is_over = self.current >= self.steps.len();
        self.shown_now()
    }

    /// The timed part begins with its first report, because a sync before it reports nothing; what follows it begins
    /// with its last one, for the same reason.
    fn enter(&mut self, part: Part) {
        let ended_s = match part {
            Part::After => self.last_event_s.max(self.part_began_s),
            Part::Prepare | Part::Timed => self.now_s,
        };
        self.learn(ended_s);
        self.part = part;
        self.part_began_s = ended_s;
        self.part_share = 0.0;
        self.part_first_share = 0.0;
        self.phases_begun.clear();
    }

    fn learn(&mut self, ended_s: f64) {
        let Some(step) = self.steps.get(self.current) else {
            return;
        };
        let taken = (ended_s - self.part_began_s).max(0.0);
        let guessed = step.guess(self.part);
        let sums = self
            .learnt
            .entry((step.kind.clone(), self.part))
            .or_insert((0.0, 0.0));
        sums.0 += taken;
        sums.1 += guessed;
    }

    /// How much of the current part is done, by its own account.
    fn share(&self, part: Part, done: u64, total: u64) -> f64 {
        let within = if total == 0 {
            0.0
        } else {
            (results::nearest_f64(done) / results::nearest_f64(total)).min(1.0)
        };
        let phases = match part {
            Part::Timed => self.steps.get(self.current).map_or(1, |step| step.timed_phases),
            // Of what comes before, only the making of files takes an amount of time that amounts tell.
            _ => 1,
        };
        let begun = u32::try_from(self.phases_begun.len()).unwrap_or(u32::MAX);
        let before = f64::from(begun.saturating_sub(1));
        ((before + within) / f64::from(phases.max(1))).min(1.0)
    }

    fn shown_now(&mut self) -> Shown {
        let remaining_s = if self.is_over { 0.0 } else { self.remaining() };
        let fraction = if self.is_over {
            1.0
        } else if self.now_s + remaining_s > 0.0 {
            self.now_s / (self.now_s + remaining_s)
        } else {
            0.0
        };
        self.shown = self.shown.max(fraction.clamp(0.0, 1.0));
        Shown {
            fraction: self.shown,
            remaining: Duration::try_from_secs_f64(remaining_s).unwrap_or_default(),
            step: self.current.min(self.steps.len().saturating_sub(1)),
        }
    }

    fn remaining(&self) -> f64 {
        let Some(step) = self.steps.get(self.current) else {
            return 0.0;
        };
        let later_parts: f64 = [Part::Prepare, Part::Timed, Part::After]
            .into_iter()
            .filter(|part| *part > self.part)
            .map(|part| self.expected(step, part))
            .sum();
        let later_steps: f64 = self.steps[self.current + 1..]
            .iter()
            .map(|step| {
                [Part::Prepare, Part::Timed, Part::After]
                    .into_iter()
                    .map(|part| self.expected(step, part))
                    .sum::<f64>()
            })
            .sum();
        self.part_remaining() + later_parts + later_steps
    }

    fn part_remaining(&self) -> f64 {
        let Some(step) = self.steps.get(self.current) else {
            return 0.0;
        };
        let gone = (self.now_s - self.part_began_s).max(0.0);
        let left_by_guess = (self.expected(step, self.part) - gone).max(0.0);
        if let (Part::Timed, Timed::ByClock(_)) = (self.part, step.timed) {
            return left_by_guess;
        }
        // The time of the last report counts: what is reported happened until then.
        let reported = (self.last_event_s - self.part_began_s).max(0.0);
        let mut left = left_by_guess;
        if let Some(whole_s) = self.whole_by_its_own_account() {
            left = (whole_s * (1.0 - self.part_share) - (gone - reported)).max(0.0);
        }
        match (self.part, step.timed) {
            (
                Part::Timed,
                Timed::ByAmount {
                    limit_s: Some(limit_s),
                    ..
                },
            ) => left.min((limit_s - gone).max(0.0)),
            _ => left,
        }
    }

    /// What a part that has not begun, or has only begun, will take.
    fn expected(&self, step: &Expectation, part: Part) -> f64 {
        let guess = step.guess(part);
        if let (Part::Timed, Timed::ByClock(seconds)) = (part, step.timed) {
            return seconds;
        }
        let by_rate = match (part, step.timed) {
            (
                Part::Timed,
                Timed::ByAmount {
                    operations: Some(operations),
                    ..
                },
            ) => self
                .time_of_each(&step.kind)
                .map(|each_s| each_s * results::nearest_f64(operations)),
            _ => None,
        };
        let scaled = by_rate.unwrap_or_else(|| guess * self.slowness(&step.kind, part).unwrap_or(1.0));
        match (part, step.timed) {
            (
                Part::Timed,
                Timed::ByAmount {
                    limit_s: Some(limit_s),
                    ..
                },
            ) => scaled.min(limit_s),
            _ => scaled,
        }
    }

    /// What the part at work will have taken, judged by the share that it did since its first report.
    fn whole_by_its_own_account(&self) -> Option<f64> {
        let reported = self.last_event_s - self.part_began_s;
        let share = self.part_share - self.part_first_share;
        let is_believed = share >= BELIEVED_SHARE && reported >= BELIEVED_AFTER_S;
        // A step that ends with its limit may never come to much of a share.
        (is_believed || share > 0.0 && reported >= BELIEVED_IN_ANY_CASE_S).then(|| reported / share)
    }

    /// What an operation of a kind takes, as measured in the step at work or an earlier one.
    fn time_of_each(&self, kind: &str) -> Option<f64> {
        let current = self.steps.get(self.current).filter(|step| step.kind == kind);
        if let (
            Some(Timed::ByAmount {
                operations: Some(operations),
                ..
            }),
            Part::Timed,
        ) = (current.map(|step| step.timed), self.part)
            && let Some(whole_s) = self.whole_by_its_own_account()
        {
            return Some(whole_s / results::nearest_f64(operations.max(1)));
        }
        self.rates.get(kind).map(|rate| 1.0 / rate)
    }

    /// What parts like this one took, as a multiple of what was guessed. What surrounds the timed part is much alike
    /// in steps of all kinds, because the device is the same.
    fn slowness(&self, kind: &str, part: Part) -> Option<f64> {
        let of_kind = self.learnt.get(&(kind.to_owned(), part)).copied();
        let of_any = || {
            let alike = self.learnt.iter().filter(|((_, other), _)| *other == part);
            alike.fold((0.0, 0.0), |sum: (f64, f64), (_, one)| {
                (sum.0 + one.0, sum.1 + one.1)
            })
        };
        let (taken, guessed) = match (of_kind, part) {
            (Some(sums), _) => sums,
            (None, Part::Timed) => return None,
            (None, _) => of_any(),
        };
        if guessed > 0.0 {
            return Some(taken / guessed);
        }
        // Nothing is learnt yet, but the part at work may be late already.
        let guess = self.steps.get(self.current)?.guess(part);
        let gone = self.now_s - self.part_began_s;
        (part == self.part && guess > 0.0 && gone > guess).then(|| gone / guess)
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    Duration::from_nanos(nanoseconds).as_secs_f64()
}

/// Of a limit, when nothing else is known: off by as much for the device that needs all of it as for one that needs half.
const GUESSED_SHARE_OF_LIMIT: f64 = 0.75;

/// Guesses for a device that nobody has measured yet, between a hard disk and a fast one.
const GUESSED_BYTES_PER_S: f64 = 200e6;
const GUESSED_OPERATIONS_PER_S: f64 = 10_000.0;
/// Emptying the caches of the machine, with the sync before it.
const GUESSED_CACHE_S: f64 = 0.3;

impl Expectation {
    /// For a workload on SQLite. On a medium that syncs, most of a limit is taken for what it will take.
    #[must_use]
    pub fn of_sqlite(spec: &SqliteSpec, medium: Medium) -> Self {
        let operations = spec.transactions.saturating_mul(u64::from(spec.threads));
        let limit_s = spec
            .time_limit_us
            .map(|limit| seconds(limit.saturating_mul(1000)));
        let of_each_s = match (medium, spec.synchronous) {
            (Medium::Memory, _) | (_, Synchronous::Off) => 40e-6,
            (Medium::Storage, _) => 2e-3,
        };
        let guess = results::nearest_f64(operations) * of_each_s;
        Self {
            kind: format!("sqlite {} {}", spec.journal, spec.synchronous),
            prepare_s: 0.2,
            timed: Timed::ByAmount {
                seconds: limit_s.map_or(guess, |limit_s| guess.min(limit_s * GUESSED_SHARE_OF_LIMIT)),
                operations: Some(operations),
                limit_s,
            },
            timed_phases: 1,
            after_s: 0.1,
        }
    }

    /// For a file workload.
    #[must_use]
    pub fn of_file(spec: &FileSpec) -> Self {
        let prepared = if spec.starts_with_content() {
            spec.total_bytes()
        } else {
            0
        };
        let cache_s = if spec.cache == Cache::Cold {
            GUESSED_CACHE_S
        } else {
            0.0
        };
        let operations = spec.visited_bytes() / spec.record_bytes.max(1);
        let by_bytes = results::nearest_f64(spec.visited_bytes()) / GUESSED_BYTES_PER_S;
        let by_operations = results::nearest_f64(operations) / GUESSED_OPERATIONS_PER_S;
        Self {
            kind: format!("file {} {:?}", spec.mode, spec.pattern),
            prepare_s: results::nearest_f64(prepared) / GUESSED_BYTES_PER_S + cache_s,
            timed: match spec.time {
                Some(limit) => Timed::ByClock(seconds(limit.ramp_ns.saturating_add(limit.run_ns))),
                None => Timed::ByAmount {
                    seconds: by_bytes.max(by_operations),
                    operations: Some(operations),
                    limit_s: None,
                },
            },
            timed_phases: 1,
            after_s: 0.05,
        }
    }

    /// For this workload and another one at the same time.
    #[must_use]
    pub fn together(self, other: Self) -> Self {
        let longer = if self.guess(Part::Timed) >= other.guess(Part::Timed) {
            self.timed
        } else {
            other.timed
        };
        Self {
            kind: format!("{} + {}", self.kind, other.kind),
            prepare_s: self.prepare_s + other.prepare_s,
            timed: longer,
            timed_phases: self.timed_phases.max(other.timed_phases),
            after_s: self.after_s.max(other.after_s),
        }
    }

    fn guess(&self, part: Part) -> f64 {
        match (part, self.timed) {
            (Part::Prepare, _) => self.prepare_s,
            (Part::Timed, Timed::ByClock(seconds) | Timed::ByAmount { seconds, .. }) => seconds,
            (Part::After, _) => self.after_s,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device for which every time is known: what the estimator is told and what it must find out.
    struct Device {
        prepare_s: f64,
        /// The part of the preparation that reports nothing, as a sync does.
        silent_s: f64,
        /// Time that a step by amount takes, as a multiple of the guess.
        slowness: f64,
        after_s: f64,
    }

    fn by_clock(kind: &str, seconds: f64) -> Expectation {
        Expectation {
            kind: kind.to_owned(),
            prepare_s: 0.5,
            timed: Timed::ByClock(seconds),
            timed_phases: 1,
            after_s: 0.05,
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
        let mut estimator = Estimator::new(steps.to_vec());
        let (mut now, mut moments) = (0.0, Vec::new());
        let tick_s = 0.1;
        for step in steps {
            let timed_s = match step.timed {
                Timed::ByClock(seconds) => seconds,
                // Five seconds for the 1000 operations of a step where a device is as fast as was guessed.
                Timed::ByAmount { limit_s, .. } => (5.0 * device.slowness).min(limit_s.unwrap_or(f64::MAX)),
            };
            let stages = [
                (Some(Phase::Prepare), device.prepare_s),
                (None, device.silent_s),
                (Some(Phase::Measure), timed_s),
                (None, device.after_s),
            ];
            for (phase, seconds) in stages {
                let began = now;
                while now < began + seconds {
                    now = (now + tick_s).min(began + seconds);
                    let share = ((now - began) / seconds * 1000.0).to_string();
                    let done = share.split('.').next().unwrap().parse().unwrap();
                    let at = Duration::from_secs_f64(now);
                    let shown = match phase {
                        Some(phase) => estimator.advance(at, phase, done, 1000),
                        None => estimator.tick(at),
                    };
                    moments.push((now, shown.fraction));
                }
            }
            // Every kind of operation is as slow as the device is, compared with the guess of 1000 in five seconds.
            let rate = Some(200.0 / device.slowness);
            let shown = estimator.step_done(Duration::from_secs_f64(now), rate);
            moments.push((now, shown.fraction));
        }
        moments.iter().map(|(at, shown)| (at / now, *shown)).collect()
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
}
