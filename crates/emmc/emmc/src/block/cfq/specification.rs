//! CFQ once more, as an executable specification: each rule of the module's documentation as a sentence over plain lists,
//! nothing cached or sorted. It is the judge of the scheduler on random lists of requests, because no kernel of today has
//! CFQ.

use media::Nanos;
use results::block_trace::{Operation, RequestFlags};

use super::*;
use crate::block::scheduler::tests::insert;

/// A request as the specification sees it.
#[derive(Clone, Debug)]
struct Seen {
    id: RequestId,
    task: Key,
    sector: u64,
    end: u64,
    arrived: Nanos,
    is_metadata: bool,
    ends_burst: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    InDriver,
    Done,
}

/// A task's turn, as the specification sees it.
#[derive(Clone, Debug, Default)]
struct Turn {
    task: Key,
    /// Busy since this time; its tree then. The lowest goes first.
    busy: Option<(i128, u64, &'static str)>,
    began: Option<Nanos>,
    ends: Option<Nanos>,
    served: u32,
    looked_for_expired: bool,
    wants_new_slice: bool,
    unused: i128,
    quiet: bool,
    deep: bool,
    history: Vec<bool>,
    last_end: Option<u64>,
    favourite: Option<RequestId>,
}

struct Specification {
    rules: CfqRules,
    requests: Vec<Seen>,
    turns: Vec<Turn>,
    served: Option<Key>,
    tree: (&'static str, Nanos),
    timer: Option<Nanos>,
    head: u64,
    late: Option<Nanos>,
    arrivals: u64,
    deepest: usize,
    observations: u32,
    takes_many: Option<bool>,
}

const ASYNC: &str = "async";
const QUIET: &str = "sync without idling";
const SYNC: &str = "sync";

impl Specification {
    fn new(rules: CfqRules) -> Self {
        Self {
            rules,
            requests: Vec::new(),
            turns: Vec::new(),
            served: None,
            tree: (QUIET, Nanos::ZERO),
            timer: None,
            head: 0,
            late: None,
            arrivals: 0,
            deepest: 0,
            observations: 0,
            takes_many: None,
        }
    }

    fn turn(&mut self, task: Key) -> &mut Turn {
        if !self.turns.iter().any(|turn| turn.task == task) {
            self.turns.push(Turn {
                task,
                ..Turn::default()
            });
        }
        let found = self.turns.iter_mut().find(|turn| turn.task == task);
        found.expect("it was added")
    }

    fn look(&self, task: Key) -> &Turn {
        let found = self.turns.iter().find(|turn| turn.task == task);
        found.expect("a task with requests has a turn")
    }

    fn count(&self, state: State, of: impl Fn(Key) -> bool) -> usize {
        let these = self
            .requests
            .iter()
            .filter(|seen| seen.state == state && of(seen.task));
        these.count()
    }

    fn waiting(&self, task: Key) -> usize {
        self.count(State::Waits, |key| key == task)
    }

    fn in_driver(&self, task: Key) -> usize {
        self.count(State::InDriver, |key| key == task)
    }

    fn busy(&self, of: impl Fn(&Turn) -> bool) -> usize {
        self.turns
            .iter()
            .filter(|turn| turn.busy.is_some() && of(turn))
            .count()
    }

    fn kind(&self, task: Key) -> &'static str {
        match task {
            None => ASYNC,
            Some(_) if self.look(task).quiet => QUIET,
            Some(_) => SYNC,
        }
    }

    fn slice(&self, task: Key) -> Nanos {
        if task.is_some() {
            self.rules.slice_sync
        } else {
            self.rules.slice_async
        }
    }

    fn is_over(&self, task: Key, now: Nanos) -> bool {
        matches!(self.look(task).ends, Some(end) if end <= now)
    }

    fn no_point_in_idling(&self) -> bool {
        self.rules.device == DeviceKind::Flash && self.takes_many != Some(false)
    }

    fn worth_waiting(&self, task: Key) -> bool {
        if self.rules.slice_idle.0 == 0 {
            return false;
        }
        let turn = self.look(task);
        if task.is_some() && !turn.quiet && !self.no_point_in_idling() {
            return true;
        }
        let mine = turn.busy.map(|(.., tree)| tree);
        let others = self.busy(|other| other.busy.map(|(.., tree)| tree) == mine);
        mine.is_some() && others == 1 && task.is_some()
    }

    fn line_up(&mut self, task: Key, now: Nanos) {
        self.turn(task).busy = None;
        let others = i128::try_from(self.busy(|_| true)).expect("few");
        let longest = i128::from(self.rules.slice_sync.0 / 5 * 9);
        let shorter = (longest - i128::from(self.slice(task).0)).max(0);
        let (kind, arrival) = (self.kind(task), self.arrivals);
        self.arrivals += 1;
        let turn = self.turn(task);
        let since = i128::from(now.0) + shorter * others - std::mem::take(&mut turn.unused);
        turn.busy = Some((since, arrival, kind));
    }

    fn jump_the_queue(&mut self, task: Key, now: Nanos) {
        self.turn(task).busy = None;
        let kind = self.kind(task);
        let in_tree = self
            .turns
            .iter()
            .filter_map(|turn| turn.busy.filter(|busy| busy.2 == kind));
        let first = in_tree
            .map(|(since, ..)| since)
            .min()
            .unwrap_or(i128::from(now.0));
        let arrival = self.arrivals;
        self.arrivals += 1;
        self.turn(task).busy = Some((first - 1_000_000_000, arrival, kind));
    }

    fn first_of(&self, kind: &str) -> Option<(i128, u64, Key)> {
        let of_kind = self.turns.iter().filter_map(|turn| {
            let (since, arrival, tree) = turn.busy?;
            (tree == kind).then_some((since, arrival, turn.task))
        });
        of_kind.min()
    }

    fn end_turn(&mut self, task: Key, keeps_rest: bool, now: Nanos) {
        self.timer = None;
        self.served = None;
        let slice = self.slice(task);
        let turn = self.turn(task);
        turn.wants_new_slice = false;
        if keeps_rest {
            turn.unused = match turn.ends {
                Some(end) => i128::from(end.0) - i128::from(now.0),
                None => i128::from(slice.0),
            };
        }
        if self.waiting(task) == 0 {
            self.turn(task).busy = None;
        } else {
            self.line_up(task, now);
        }
    }

    fn begin_turn(&mut self, task: Key) {
        let turn = self.turn(task);
        turn.ends = None;
        turn.served = 0;
        turn.looked_for_expired = false;
        turn.wants_new_slice = false;
    }

    fn ring_timer(&mut self, now: Nanos) {
        if !matches!(self.timer, Some(at) if at <= now) {
            return;
        }
        self.timer = None;
        let Some(task) = self.served else {
            return;
        };
        if self.is_over(task, now) || self.waiting(task) == 0 {
            self.turn(task).deep = false;
            self.end_turn(task, true, now);
        }
    }

    fn cost(&self, sector: u64, from: u64) -> Option<u64> {
        match sector.checked_sub(from) {
            Some(forward) => Some(forward),
            None if from - sector > self.rules.back_seek_max => None,
            None => Some((from - sector) * self.rules.back_seek_penalty),
        }
    }

    /// The better of two requests: metadata, then the cheaper way, then the upper one; of two far behind the lower one.
    fn better(&self, one: Option<RequestId>, two: Option<RequestId>, from: u64) -> Option<RequestId> {
        let (Some(a), Some(b)) = (one, two) else {
            return one.or(two);
        };
        let find = |id| {
            self.requests
                .iter()
                .find(|seen| seen.id == id && seen.state != State::Done)
        };
        let (Some(a), Some(b)) = (find(a), find(b)) else {
            return one;
        };
        if a.id == b.id {
            return one;
        }
        let wins = if a.is_metadata != b.is_metadata {
            a.is_metadata
        } else {
            match (self.cost(a.sector, from), self.cost(b.sector, from)) {
                (Some(one), Some(two)) if one == two => a.sector >= b.sector,
                (Some(one), Some(two)) => one < two,
                (None, None) => a.sector <= b.sector,
                (one, _) => one.is_some(),
            }
        };
        Some(if wins { a.id } else { b.id })
    }

    fn arrives(&mut self, seen: Seen, sectors: u64, now: Nanos) {
        self.ring_timer(now);
        let (task, id, sector) = (seen.task, seen.id, seen.sector);
        let (is_metadata, end) = (seen.is_metadata, seen.end);
        self.requests.push(seen);
        let favourite = self.turn(task).favourite;
        let favourite = self.better(favourite, Some(id), self.head);
        self.turn(task).favourite = favourite;
        if self.look(task).busy.is_none() {
            self.line_up(task, now);
        }
        if task.is_some() {
            let waiting = self.waiting(task);
            let ends = self
                .requests
                .iter()
                .any(|seen| Some(seen.id) == favourite && seen.state == State::Waits && seen.ends_burst);
            let (device, idle) = (self.rules.device, self.rules.slice_idle);
            let turn = self.turn(task);
            let far = turn
                .last_end
                .is_some_and(|end| end != 0 && end.abs_diff(sector) > 800);
            turn.history.push(match device {
                DeviceKind::Flash => sectors < 64,
                DeviceKind::Disk => far,
            });
            turn.last_end = Some(end);
            turn.deep |= waiting >= 4;
            turn.quiet = ends || idle.0 == 0 || !turn.deep && is_random(&turn.history);
        }
        if self.served == Some(task) {
            self.timer = None;
            return;
        }
        let Some(served) = self.served else {
            return;
        };
        let no_metadata = !self
            .requests
            .iter()
            .any(|seen| seen.task == served && seen.state == State::Waits && seen.is_metadata);
        let quiet_takes_over = self.tree.0 == QUIET
            && self.kind(task) == QUIET
            && self.busy(|turn| turn.busy.is_some_and(|busy| busy.2 == QUIET)) == 2
            && self.waiting(served) == 0;
        let preempts = match (task, served) {
            (Some(_), None) => true,
            (Some(_), Some(_)) => self.is_over(served, now) || quiet_takes_over || is_metadata && no_metadata,
            (None, _) => self.is_over(served, now),
        };
        if preempts {
            let tree = self.look(served).busy.map(|busy| busy.2);
            let changes = tree != Some(self.kind(task));
            self.end_turn(served, true, now);
            if changes {
                self.tree.1 = now.saturating_sub(Nanos(1));
            }
            self.jump_the_queue(task, now);
            self.begin_turn(task);
        }
    }

    /// The task to serve, or nothing.
    fn whose_turn(&mut self, now: Nanos) -> Option<Key> {
        if self.count(State::Waits, |_| true) == 0 {
            return None;
        }
        if let Some(task) = self.served {
            let alone = self.busy(|_| true) == 1;
            let (waiting, driven) = (self.waiting(task) > 0, self.in_driver(task) > 0);
            let restart = self.look(task).wants_new_slice && waiting;
            if !restart {
                if self.is_over(task, now) {
                    if alone && !waiting && driven && self.worth_waiting(task) {
                        return None;
                    }
                } else if waiting {
                    return Some(task);
                } else if self.timer.is_some() {
                    return None;
                } else {
                    self.stop_idling_for_slow(task, now);
                    if driven && self.worth_waiting(task) {
                        return None;
                    }
                }
                if self.rules.group_idle.0 > 0 && alone && self.count(State::InDriver, |_| true) > 0 {
                    return None;
                }
            }
            self.end_turn(task, false, now);
        }
        let (tree, until) = self.tree;
        if self.first_of(tree).is_none() || now > until {
            let kinds = [ASYNC, QUIET, SYNC];
            let waits = kinds
                .into_iter()
                .filter_map(|kind| Some((self.first_of(kind)?.0, kind)));
            let oldest = waits.min_by_key(|(since, _)| *since);
            if let Some((_, kind)) = oldest {
                let of_kind = self.busy(|turn| turn.busy.is_some_and(|busy| busy.2 == kind));
                let all = self.busy(|_| true);
                let share =
                    300_000_000 * u64::try_from(of_kind).expect("few") / u64::try_from(all).expect("few");
                let share = if kind == ASYNC {
                    share * self.rules.slice_async.0 / self.rules.slice_sync.0.max(1)
                } else {
                    share.max(2 * self.rules.slice_idle.0)
                };
                self.tree = (kind, now + Nanos(share.max(2_000_000)));
            }
        }
        let (.., task) = self.first_of(self.tree.0)?;
        self.timer = None;
        self.served = Some(task);
        self.begin_turn(task);
        Some(task)
    }

    fn stop_idling_for_slow(&mut self, task: Key, now: Nanos) {
        let turn = self.turn(task);
        let little_used = match (turn.began, turn.ends) {
            (_, None) => true,
            (began, Some(end)) => end.saturating_sub(now) > now.saturating_sub(began.unwrap_or_default()),
        };
        if !turn.quiet && is_random(&turn.history) && little_used {
            turn.deep = false;
            turn.quiet = true;
        }
    }

    fn allowed(&self, task: Key, now: Nanos) -> bool {
        let driven = self.in_driver(task);
        if self.worth_waiting(task) && self.in_driver(None) > 0 {
            return false;
        }
        if task.is_none() && self.count(State::InDriver, |key| key.is_some()) > 0 {
            return false;
        }
        let quantum = usize::try_from(self.rules.quantum).expect("small");
        let half = (quantum / 2).max(1);
        let only_one = self.busy(|_| true) == 1
            || task.is_some() && self.busy(|turn| turn.busy.is_some_and(|busy| busy.2 != ASYNC)) == 1;
        let mut allowed = half;
        if driven >= half {
            if only_one {
                allowed = usize::MAX;
            } else {
                let spoken_for = Nanos(self.rules.slice_idle.0 * u64::try_from(driven).expect("few"));
                let turn = self.look(task);
                let enough_left = turn.ends.is_some_and(|end| now + spoken_for <= end);
                if !enough_left {
                    return false;
                }
                allowed = quantum;
            }
        }
        if task.is_none() && self.rules.ramp_up == RampUp::On {
            let since = self
                .late
                .map_or(now.0 + 1_000_000_000, |late| now.0.saturating_sub(late.0));
            let mut depth = usize::try_from(since / self.rules.slice_sync.0.max(1)).expect("64 bits");
            if driven == 0 {
                depth = depth.max(1);
            }
            allowed = allowed.min(depth);
        }
        driven < allowed
    }

    fn dispatch(&mut self, now: Nanos) -> Option<RequestId> {
        self.ring_timer(now);
        let task = self.whose_turn(now)?;
        if !self.allowed(task, now) {
            return None;
        }
        let expiry = if task.is_some() {
            self.rules.expire_sync
        } else {
            self.rules.expire_async
        };
        let looked = std::mem::replace(&mut self.turn(task).looked_for_expired, true);
        let oldest = self
            .requests
            .iter()
            .find(|seen| seen.task == task && seen.state == State::Waits);
        let expired = oldest
            .filter(|seen| !looked && seen.arrived + expiry <= now)
            .map(|seen| seen.id);
        let id = expired.or(self.look(task).favourite)?;
        let at = self
            .requests
            .iter()
            .position(|seen| seen.id == id && seen.state == State::Waits)?;
        self.requests[at].state = State::InDriver;
        let (sector, end) = (self.requests[at].sector, self.requests[at].end);
        let mut rest: Vec<(u64, RequestId)> = self
            .requests
            .iter()
            .filter(|seen| seen.task == task && seen.state == State::Waits)
            .map(|seen| (seen.sector, seen.id))
            .collect();
        rest.sort_unstable();
        let above = rest.iter().find(|other| **other > (sector, id)).or(rest.first());
        let below = rest.iter().rev().find(|other| **other < (sector, id));
        let favourite = self.better(above.map(|(_, id)| *id), below.map(|(_, id)| *id), sector);
        let turn = self.turn(task);
        turn.favourite = favourite;
        turn.served += 1;
        let served = turn.served;
        self.head = end;
        if task.is_none() && self.busy(|_| true) > 1 && served >= self.rules.slice_async_requests {
            self.end_turn(task, false, now);
        }
        Some(id)
    }

    fn completes(&mut self, id: RequestId, now: Nanos) {
        self.ring_timer(now);
        self.observe();
        let seen = self
            .requests
            .iter_mut()
            .find(|seen| seen.id == id && seen.state == State::InDriver);
        let seen = seen.expect("it is in the driver");
        seen.state = State::Done;
        let (task, arrived) = (seen.task, seen.arrived);
        if task.is_some() && arrived + self.rules.expire_sync <= now {
            self.late = Some(now);
        }
        if self.served != Some(task) {
            return;
        }
        let (slice, empty) = (self.slice(task), self.waiting(task) == 0);
        let alone = self.busy(|_| true) == 1;
        if self.look(task).ends.is_none() {
            let turn = self.turn(task);
            turn.began = Some(now);
            turn.ends = Some(now + slice);
        }
        if empty && alone && self.is_over(task, now) {
            let more = match self.rules.slice_idle.0 {
                0 => self.rules.group_idle,
                _ => self.rules.slice_idle,
            };
            let turn = self.turn(task);
            turn.ends = Some(now + more);
            turn.wants_new_slice = true;
        }
        if self.is_over(task, now) {
            self.end_turn(task, true, now);
        } else if empty && task.is_some() && !self.no_point_in_idling() && self.in_driver(task) == 0 {
            if self.worth_waiting(task) {
                self.timer = Some(now + self.rules.slice_idle);
            } else if alone && self.rules.group_idle.0 > 0 {
                self.timer = Some(now + self.rules.group_idle);
            }
        }
    }

    fn observe(&mut self) {
        let (driven, waiting) = (
            self.count(State::InDriver, |_| true),
            self.count(State::Waits, |_| true),
        );
        self.deepest = self.deepest.max(driven);
        let shallow = driven <= 5 && waiting <= 5;
        let kept_low = self.served.is_some_and(|task| {
            let idles = task.is_some() && !self.look(task).quiet;
            idles && self.in_driver(task) + self.waiting(task) < 5 && driven < 5
        });
        if self.takes_many == Some(true) || shallow || kept_low {
            return;
        }
        self.observations += 1;
        if self.observations > 50 {
            self.takes_many = Some(self.deepest >= 5);
        }
    }
}

/// More than four of the last 32.
fn is_random(history: &[bool]) -> bool {
    history.iter().rev().take(32).filter(|random| **random).count() > 4
}

/// Random settings.
fn random_rules(random: &mut crate::workload::Random) -> CfqRules {
    let mut one_of = |values: &[u64]| {
        let place = random.below(u64::try_from(values.len()).unwrap());
        values[usize::try_from(place).unwrap()]
    };
    CfqRules {
        quantum: u32::try_from(one_of(&[1, 2, 4, 8, 16, 64])).unwrap(),
        slice_idle: Nanos::from_millis(one_of(&[0, 8, 8, 8])),
        group_idle: Nanos::from_millis(one_of(&[0, 8, 8])),
        slice_sync: Nanos::from_millis(one_of(&[100, 20])),
        slice_async: Nanos::from_millis(one_of(&[40, 10])),
        ramp_up: if one_of(&[0, 1]) == 0 {
            RampUp::On
        } else {
            RampUp::Off
        },
        device: if one_of(&[0, 1]) == 0 {
            DeviceKind::Flash
        } else {
            DeviceKind::Disk
        },
        back_seek_max: one_of(&[0, 500, 16 << 11]),
        ..CfqRules::USUAL
    }
}

/// Random lists of requests of up to four tasks, on drivers of random depth and speed: both dispatch the same requests
/// at the same times, and hold back at the same times.
#[test]
fn the_scheduler_dispatches_as_the_specification_says() {
    for seed in 0..400 {
        let mut random = crate::workload::Random::named(seed, "cfq");
        let rules = random_rules(&mut random);
        let (mut scheduler, mut specification) = (Cfq::new(rules), Specification::new(rules));
        let mut pool = Pool::default();
        let (tasks, depth) = (1 + random.below(4), 1 + random.below(20));
        let step_us = [50, 1000, 9000][usize::try_from(random.below(3)).unwrap()];
        let mut driven: Vec<RequestId> = Vec::new();
        let mut now = Nanos::from_millis(random.below(2) * 10_000);
        for step in 0..500 {
            now += Nanos::from_micros(random.below(step_us));
            match random.below(4) {
                0 => {
                    for _ in 0..=random.below(3) {
                        let operation = if random.below(2) == 0 {
                            Operation::Read
                        } else {
                            Operation::Write
                        };
                        let mut flags = RequestFlags::default();
                        for (flag, one_in) in [
                            (RequestFlags::SYNC, 2),
                            (RequestFlags::IDLE, 3),
                            (RequestFlags::META, 10),
                        ] {
                            if random.below(one_in) == 0 {
                                flags = flags.with(flag);
                            }
                        }
                        let range = 1 << random.below(16);
                        let sector = random.below(range) * 8;
                        let actor = u16::try_from(random.below(tasks)).unwrap();
                        let id = insert(&mut scheduler, &mut pool, sector, operation, flags, actor, now);
                        let request = pool.get(id);
                        let seen = Seen {
                            id,
                            task: key_of(request),
                            sector,
                            end: request.end(),
                            arrived: now,
                            is_metadata: flags.contains(RequestFlags::META),
                            ends_burst: ends_burst(request),
                            state: State::Waits,
                        };
                        specification.arrives(seen, request.sectors, now);
                    }
                }
                1 if !driven.is_empty() => {
                    let count = u64::try_from(driven.len()).unwrap();
                    let id = driven.swap_remove(usize::try_from(random.below(count)).unwrap());
                    scheduler.completed(&pool, id, now);
                    specification.completes(id, now);
                    pool.remove(id);
                }
                _ if u64::try_from(driven.len()).unwrap() < depth => {
                    let found = scheduler.dispatch(&pool, now);
                    let expected = specification.dispatch(now);
                    assert_eq!(found, expected, "seed {seed}, step {step}, at {now}, {rules:?}");
                    if let Some(id) = found {
                        pool.get_mut(id).waiting = false;
                        driven.push(id);
                    }
                }
                _ => {}
            }
            assert_eq!(
                scheduler.wake_at(),
                specification.timer,
                "seed {seed}, step {step}, at {now}, {rules:?}"
            );
        }
    }
}
