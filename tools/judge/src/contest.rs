//! Interleaved rounds: in each round every side runs once, and the starting side rotates by one.
//!
//! Every match first gets three rounds, then the requested number. While the time budget lasts, matches with too wide
//! an interval then get further rounds. Only the width of the interval decides, never the direction of the ratio.

use std::io::{Write, stderr};
use std::time::{Duration, Instant};

use runner::Schedule;

use crate::error::JudgeError;
use crate::journal::{Journal, Speed};
use crate::verdict::{Row, Rule, row};

/// A match whose interval is wider than this fraction of its median gets further rounds.
const WIDE: f64 = 0.15;

/// Rounds of every match before any match gets more, so that all have results when the time is up.
const FIRST_ROUNDS: u32 = 3;

/// Further rounds per match at a time, and the maximum in total.
const FURTHER_ROUNDS: u32 = 2;
const ROUNDS_MAX: u32 = 31;

/// A participant that runs once per round.
pub struct Side<'run> {
    /// Name in the records.
    pub name: &'static str,
    /// Runs once; the argument is the round.
    pub run: Box<dyn FnMut(u32) -> Result<Speed, JudgeError> + 'run>,
}

/// The sides of a match, created when the match starts, and the work per run.
pub struct Sides<'run> {
    /// Bytes of all files, or transactions.
    pub work_count: u64,
    /// Participants of each round.
    pub sides: Vec<Side<'run>>,
}

/// One comparison.
pub struct Match<'run> {
    /// Its name in the results.
    pub name: String,
    /// The side that tidegate is compared with.
    pub peer: &'static str,
    /// Requirement for the ratio.
    pub rule: Rule,
    /// Remark for readers of the table.
    pub note: Option<&'static str>,
    /// Creates the sides; the argument is the work per run, if an earlier start already chose it.
    pub sides: Box<dyn Fn(Option<u64>) -> Result<Sides<'run>, JudgeError> + 'run>,
}

/// Number of rounds and time budget.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds of each match.
    pub rounds: u32,
    /// Time for the suite; time left after the rounds goes to matches with too wide an interval.
    pub budget: Duration,
    /// Duration of a round, as measured on two processors.
    pub round: Duration,
}

/// Runs the matches and returns their verdicts, in order.
///
/// # Errors
/// The error of the first side that failed.
pub fn play(journal: &mut Journal, matches: &[Match<'_>], effort: Effort) -> Result<Vec<Row>, JudgeError> {
    let began = Instant::now();
    let count = u32::try_from(matches.len()).unwrap_or(u32::MAX);
    let expected = effort.round.saturating_mul(effort.rounds).saturating_mul(count);
    let suite = journal.suite();
    say(&format!(
        "{suite}: {count} matches of {} rounds, about {} s",
        effort.rounds,
        expected.as_secs() + 1
    ));
    let time_is_up = || !effort.budget.is_zero() && began.elapsed() >= effort.budget;
    let mut rows = Vec::new();
    let first = effort.rounds.min(FIRST_ROUNDS);
    for (done, one) in (1_u32..).zip(matches) {
        play_rounds(journal, one, first)?;
        let found = verdict(journal, one);
        let rest = began.elapsed() / done * (count - done);
        let line = found.line();
        say(&format!(
            "{suite} {done}/{count}, about {} s left of {first} rounds: {line}",
            rest.as_secs()
        ));
        rows.push(found);
    }
    for (one, found) in matches.iter().zip(&mut rows) {
        if first < effort.rounds && !time_is_up() {
            play_rounds(journal, one, effort.rounds)?;
            *found = verdict(journal, one);
            say(&format!("{suite} {} rounds: {}", effort.rounds, found.line()));
        }
    }
    let mut rounds = effort.rounds;
    while !effort.budget.is_zero() && !time_is_up() && rounds < ROUNDS_MAX && rows.iter().any(is_wide) {
        rounds += FURTHER_ROUNDS;
        for (one, found) in matches.iter().zip(&mut rows) {
            if is_wide(found) && !time_is_up() {
                play_rounds(journal, one, rounds)?;
                *found = verdict(journal, one);
                say(&format!("{suite} {rounds} rounds: {}", found.line()));
            }
        }
    }
    say(&format!("{suite}: {} s", began.elapsed().as_secs()));
    Ok(rows)
}

fn is_wide(row: &Row) -> bool {
    let width = row.ratio.as_ref().and_then(results::Estimate::relative_width);
    width.is_none_or(|width| width > WIDE)
}

fn verdict(journal: &Journal, one: &Match<'_>) -> Row {
    let mut found = row(journal, &one.name, one.peer, one.rule);
    if let Some(note) = one.note {
        let gap = if found.reason.is_empty() { "" } else { "; " };
        found.reason = format!("{}{gap}{note}", found.reason);
    }
    found
}

/// Runs the rounds that the journal does not have yet.
fn play_rounds(journal: &mut Journal, one: &Match<'_>, rounds: u32) -> Result<(), JudgeError> {
    if (0..rounds).all(|round| journal.has_round(&one.name, round)) {
        return Ok(());
    }
    let mut made = (one.sides)(journal.work_count(&one.name))?;
    let schedule = Schedule::interleaved(rounds, made.sides.len());
    for round in 0..rounds {
        if journal.has_round(&one.name, round) {
            continue;
        }
        let mut speeds = Vec::new();
        for side in schedule.round(round) {
            let side = &mut made.sides[side];
            speeds.push((side.name, (side.run)(round)?));
        }
        journal.add_round(&one.name, round, made.work_count, &speeds)?;
    }
    Ok(())
}

/// Prints a message for people. A closed stderr does not stop the work.
pub fn say(text: &str) {
    let _ = writeln!(stderr(), "judge: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::side;
    use std::cell::RefCell;

    type Order = RefCell<Vec<(u32, &'static str)>>;

    /// A match in which tidegate takes `ours_us(round)` and the peer 100 us.
    fn one<'run>(order: &'run Order, ours_us: impl Fn(u32) -> u64 + Copy + 'run) -> Match<'run> {
        let sides = move |_| {
            let sides = [side::OURS, side::C, side::CONTROL].map(|name| Side {
                name,
                run: Box::new(move |round| {
                    order.borrow_mut().push((round, name));
                    let elapsed_us = if name == side::OURS { ours_us(round) } else { 100 };
                    Ok(Speed::new(1, elapsed_us * 1000))
                }),
            });
            Ok(Sides {
                work_count: 1,
                sides: Vec::from(sides),
            })
        };
        Match {
            name: "match".to_owned(),
            peer: side::C,
            rule: Rule::Within(0.05),
            note: None,
            sides: Box::new(sides),
        }
    }

    fn effort(rounds: u32, budget_s: u64) -> Effort {
        Effort {
            rounds,
            budget: Duration::from_secs(budget_s),
            round: Duration::ZERO,
        }
    }

    #[test]
    fn the_side_that_begins_moves_on_and_finished_rounds_are_not_run_again() {
        let order = Order::default();
        let mut journal = Journal::open("fio", None).unwrap();
        play(&mut journal, &[one(&order, |_| 100)], effort(1, 0)).unwrap();
        play(&mut journal, &[one(&order, |_| 100)], effort(2, 0)).unwrap();
        let [a, b, c] = [side::OURS, side::C, side::CONTROL];
        assert_eq!(*order.borrow(), [(0, a), (0, b), (0, c), (1, b), (1, c), (1, a)]);
    }

    #[test]
    fn only_what_is_too_wide_gets_further_rounds_and_not_for_ever() {
        let (steady, wild) = (Order::default(), Order::default());
        let mut journal = Journal::open("fio", None).unwrap();
        let mut matches = [
            one(&steady, |_| 100),
            one(&wild, |round| 50 + 100 * u64::from(round % 2)),
        ];
        matches[1].name = "wild".to_owned();
        play(&mut journal, &matches, effort(3, 1000)).unwrap();
        assert_eq!(steady.borrow().len(), 3 * 3);
        assert_eq!(wild.borrow().len(), 31 * 3);
    }
}
