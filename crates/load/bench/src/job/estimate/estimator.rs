//! Follows a run through its steps. It reads no clock: each call says what time it is, counted from the start of the run.

use std::collections::BTreeMap;
use std::time::Duration;

use super::expectation::{Expectation, Part, Timed};
use crate::job::rehearsal::Rehearsed;
use crate::progress::Phase;

/// A step's own progress is believed once it has gone on for this long: the first operations are not typical.
const BELIEVED_AFTER_S: f64 = 0.3;

/// And once this share is done, or after so long.
const BELIEVED_SHARE: f64 = 0.03;
const BELIEVED_IN_ANY_CASE_S: f64 = 1.0;

/// More is not shown while steps are rehearsed: guesses that are too low would show a share that can't be taken back.
const SHOWN_IN_REHEARSAL_MAX: f64 = 0.1;

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

/// What a step tells when it is over.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    /// How fast it was.
    pub operations_per_s: Option<f64>,
    /// How long its timed part took: reports come too rarely to tell it of a short one.
    pub window: Option<Duration>,
}

/// Time taken, and time that was expected for it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    taken_s: f64,
    expected_s: f64,
    times: f64,
}

type Learnt = BTreeMap<(String, Part), Sums>;

/// Weighs the steps of a run and follows it.
#[derive(Clone, Debug)]
pub struct Estimator {
    steps: Vec<Expectation>,
    /// Steps of one turn; the others are the same again.
    in_turn: usize,
    is_rehearsing: bool,
    current: usize,
    part: Part,
    step_began_s: f64,
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
    /// By kind and part.
    learnt: Learnt,
    /// The same when the step at work began: what its reports tell stands only until it says itself.
    learnt_before: Learnt,
    /// By kind: operations a second of the last step.
    rates: BTreeMap<String, f64>,
}

impl Estimator {
    /// For a run of these steps in this order, so many times.
    #[must_use]
    pub fn new(turn: &[Expectation], turns: u32) -> Self {
        let steps = (0..turns).flat_map(|_| turn.iter().cloned()).collect();
        Self {
            steps,
            in_turn: turn.len(),
            is_rehearsing: false,
            current: 0,
            part: Part::Prepare,
            step_began_s: 0.0,
            part_began_s: 0.0,
            part_share: 0.0,
            part_first_share: 0.0,
            phases_begun: Vec::new(),
            last_event_s: 0.0,
            now_s: 0.0,
            shown: 0.0,
            is_over: false,
            learnt: Learnt::new(),
            learnt_before: Learnt::new(),
            rates: BTreeMap::new(),
        }
    }

    /// Steps of the run.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Until [`Self::begin`] the time that goes by belongs to no step, and only `tick` and `rehearsed` are called.
    pub const fn rehearse(&mut self) {
        self.is_rehearsing = true;
    }

    /// A step of the turn was rehearsed.
    pub fn rehearsed(&mut self, now: Duration, step: usize, found: Rehearsed) -> Shown {
        for again in self.steps.iter_mut().skip(step).step_by(self.in_turn.max(1)) {
            again.rehearsed(found);
        }
        self.tick(now)
    }

    /// The first step begins.
    pub fn begin(&mut self, now: Duration) -> Shown {
        let shown = self.tick(now);
        self.is_rehearsing = false;
        self.step_began_s = self.now_s;
        shown
    }

    /// A step reports `done` of `total` of a phase.
    pub fn advance(&mut self, now: Duration, phase: Phase, done: u64, total: u64) -> Shown {
        let part = match phase {
            Phase::Rehearse | Phase::Prepare | Phase::Cache => Part::Prepare,
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
        if self.is_rehearsing {
            self.part_began_s = self.now_s;
            self.last_event_s = self.now_s;
        }
        let is_through = self.part == Part::Timed && self.part_remaining() <= 0.0 && self.part_share >= 1.0;
        if is_through && self.now_s - self.last_event_s > BELIEVED_AFTER_S {
            self.enter(Part::After);
        }
        self.shown_now()
    }

    /// The current step is over; the next one begins, if there is one.
    pub fn step_done(&mut self, now: Duration, done: Done) -> Shown {
        self.now_s = now.as_secs_f64();
        if let (Some(step), Some(rate)) = (self.steps.get(self.current), done.operations_per_s)
            && rate > 0.0
        {
            self.rates.insert(step.kind.clone(), rate);
        }
        if let Some(window) = done.window {
            self.learn_of_whole_step(window.as_secs_f64());
        } else {
            if self.part == Part::Timed {
                self.enter(Part::After);
            }
            self.learn_part(self.now_s);
        }
        self.learnt_before.clone_from(&self.learnt);
        self.current += 1;
        self.part = Part::Prepare;
        self.step_began_s = self.now_s;
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
        self.learn_part(ended_s);
        self.part = part;
        self.part_began_s = ended_s;
        self.part_share = 0.0;
        self.part_first_share = 0.0;
        self.phases_begun.clear();
    }

    fn learn_part(&mut self, ended_s: f64) {
        let taken_s = (ended_s - self.part_began_s).max(0.0);
        self.learn(self.part, taken_s);
    }

    /// The step has said how long its timed part was. What is around it is one time, shared out as it was expected.
    fn learn_of_whole_step(&mut self, window_s: f64) {
        self.learnt.clone_from(&self.learnt_before);
        let around_s = (self.now_s - self.step_began_s - window_s).max(0.0);
        self.learn(Part::Timed, window_s);
        let Some(step) = self.steps.get(self.current) else {
            return;
        };
        let (before_s, after_s) = (step.prepare_s, step.after_s);
        let share = if before_s + after_s > 0.0 {
            before_s / (before_s + after_s)
        } else {
            1.0
        };
        self.learn(Part::Prepare, around_s * share);
        self.learn(Part::After, around_s * (1.0 - share));
    }

    fn learn(&mut self, part: Part, taken_s: f64) {
        let Some(step) = self.steps.get(self.current) else {
            return;
        };
        let sums = self.learnt.entry((step.kind.clone(), part)).or_default();
        sums.taken_s += taken_s;
        sums.expected_s += step.guess(part);
        sums.times += 1.0;
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
        let most = if self.is_rehearsing {
            SHOWN_IN_REHEARSAL_MAX
        } else {
            1.0
        };
        self.shown = self.shown.max(fraction.clamp(0.0, most));
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
        let later_parts: f64 = Part::ALL
            .into_iter()
            .filter(|part| *part > self.part)
            .map(|part| self.expected(step, part))
            .sum();
        let later_steps: f64 = self.steps[self.current + 1..]
            .iter()
            .flat_map(|step| Part::ALL.map(|part| self.expected(step, part)))
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
        match limit_of(step, self.part) {
            Some(limit_s) => left.min((limit_s - gone).max(0.0)),
            None => left,
        }
    }

    /// What a part that has not begun, or has only begun, will take.
    fn expected(&self, step: &Expectation, part: Part) -> f64 {
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
            ) if !step.is_rehearsed => self
                .time_of_each(&step.kind)
                .map(|each_s| each_s * results::nearest_f64(operations)),
            _ => None,
        };
        let scaled = by_rate.unwrap_or_else(|| {
            if step.is_rehearsed && part != Part::Timed {
                (step.guess(part) + self.excess_s(&step.kind, part)).max(0.0)
            } else {
                step.guess(part) * self.slowness(step, part).unwrap_or(1.0)
            }
        });
        limit_of(step, part).map_or(scaled, |limit_s| scaled.min(limit_s))
    }

    /// What the part at work will have taken, judged by the share that it did since its first report.
    fn whole_by_its_own_account(&self) -> Option<f64> {
        let reported = self.last_event_s - self.part_began_s;
        let share = self.part_share - self.part_first_share;
        let is_believed = share >= BELIEVED_SHARE && reported >= BELIEVED_AFTER_S;
        // A step that ends with its limit may never come to much of a share.
        (is_believed || share > 0.0 && reported >= BELIEVED_IN_ANY_CASE_S).then(|| reported / share)
    }

    /// The step at work when it is of this kind, measures, and tells how long its timed part will have been.
    fn at_work(&self, kind: &str) -> Option<(&Expectation, f64)> {
        let step = self.steps.get(self.current).filter(|step| step.kind == kind)?;
        let whole_s = (self.part == Part::Timed).then(|| self.whole_by_its_own_account())??;
        Some((step, whole_s))
    }

    /// What an operation of a kind takes, as measured in the step at work or an earlier one.
    fn time_of_each(&self, kind: &str) -> Option<f64> {
        if let Some((step, whole_s)) = self.at_work(kind)
            && let Timed::ByAmount {
                operations: Some(operations),
                ..
            } = step.timed
        {
            return Some(whole_s / results::nearest_f64(operations.max(1)));
        }
        self.rates.get(kind).map(|rate| 1.0 / rate)
    }

    /// By how much steps of the kind took longer around their windows than their rehearsals, which have less around them.
    fn excess_s(&self, kind: &str, part: Part) -> f64 {
        let sums = self.learnt.get(&(kind.to_owned(), part));
        sums.map_or(0.0, |sums| (sums.taken_s - sums.expected_s) / sums.times)
    }

    /// What parts like this one took, as a multiple of what was expected. What surrounds the timed part is much alike
    /// in steps of all kinds, because the device is the same.
    fn slowness(&self, step: &Expectation, part: Part) -> Option<f64> {
        let of_kind = self.learnt.get(&(step.kind.clone(), part)).copied();
        let of_any = || {
            let alike = self.learnt.iter().filter(|((_, other), _)| *other == part);
            alike.fold((0.0, 0.0), |(taken_s, expected_s), (_, one)| {
                (taken_s + one.taken_s, expected_s + one.expected_s)
            })
        };
        let (taken_s, expected_s) = match (of_kind, part) {
            (Some(sums), _) => (sums.taken_s, sums.expected_s),
            (None, Part::Timed) => {
                let (at_work, whole_s) = self.at_work(&step.kind)?;
                (whole_s, at_work.guess(part))
            }
            (None, _) => of_any(),
        };
        if expected_s > 0.0 {
            return Some(taken_s / expected_s);
        }
        // Nothing is learnt yet, but the part at work may be late already.
        let guess = self.steps.get(self.current)?.guess(part);
        let gone = self.now_s - self.part_began_s;
        (part == self.part && guess > 0.0 && gone > guess).then(|| gone / guess)
    }
}

/// Where a part ends in any case.
fn limit_of(step: &Expectation, part: Part) -> Option<f64> {
    match (part, step.timed) {
        (Part::Timed, Timed::ByAmount { limit_s, .. }) => limit_s,
        _ => None,
    }
}
