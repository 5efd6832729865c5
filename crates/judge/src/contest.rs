//! Interleaved rounds: in each, every side runs once, and the side that begins moves on by one.

use std::io::{Write, stderr};
use std::time::{Duration, Instant};

use crate::error::JudgeError;
use crate::journal::{Journal, Speed};

/// One who runs in each round.
pub struct Side<'run> {
    /// Name in the records.
    pub name: &'static str,
    /// Runs once; the argument is the round.
    pub run: Box<dyn FnMut(u32) -> Result<Speed, JudgeError> + 'run>,
}

/// Runs the rounds of a cell that the journal does not have.
///
/// # Errors
/// That of the first side that failed.
pub fn compete(
    journal: &mut Journal,
    cell: &str,
    rounds: u32,
    work_count: u64,
    sides: &mut [Side<'_>],
) -> Result<(), JudgeError> {
    let names: Vec<&str> = sides.iter().map(|side| side.name).collect();
    for round in 0..rounds {
        if journal.has_round(cell, round, &names) {
            continue;
        }
        let first = usize::try_from(round).unwrap_or(0) % sides.len().max(1);
        for step in 0..sides.len() {
            let side = &mut sides[(first + step) % names.len()];
            let speed = (side.run)(round)?;
            journal.add(cell, side.name, round, work_count, speed)?;
        }
    }
    Ok(())
}

/// Tells on standard error how far a suite is, and how long it will take.
pub struct Clock {
    suite: &'static str,
    cells: usize,
    done: usize,
    began: Instant,
    expected: Duration,
}

impl Clock {
    /// Says how long `cells` will take when each takes `cell_seconds`.
    pub fn start(suite: &'static str, cells: usize, cell_seconds: f64) -> Self {
        let expected =
            Duration::from_secs_f64(cell_seconds * f64::from(u32::try_from(cells).unwrap_or(u32::MAX)));
        say(&format!(
            "{suite}: {cells} cells, about {} s",
            expected.as_secs().max(1)
        ));
        Self {
            suite,
            cells,
            done: 0,
            began: Instant::now(),
            expected,
        }
    }

    /// Says that a cell is done, and with what result.
    pub fn cell(&mut self, result: &str) {
        self.done += 1;
        let spent = self.began.elapsed();
        let cells = |number: usize| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        let rest = spent.as_secs_f64() / cells(self.done) * cells(self.cells - self.done);
        say(&format!(
            "{} {}/{} (about {rest:.0} s left)  {result}",
            self.suite, self.done, self.cells
        ));
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let (spent, expected) = (self.began.elapsed().as_secs(), self.expected.as_secs());
        say(&format!("{}: {spent} s, expected {expected} s", self.suite));
    }
}

/// A line for people. When nobody reads it, the work goes on all the same.
pub fn say(text: &str) {
    let _ = writeln!(stderr(), "judge: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn the_side_that_begins_moves_on_and_finished_rounds_are_not_run_again() {
        let order = RefCell::new(Vec::new());
        let mut journal = Journal::open("fio", None).unwrap();
        let mut run = |rounds| {
            let mut sides = ["a", "b", "c"].map(|name| Side {
                name,
                run: Box::new({
                    let order = &order;
                    move |round| {
                        order.borrow_mut().push((round, name));
                        Ok(Speed {
                            operations_count: 1,
                            elapsed_ns: 1,
                        })
                    }
                }),
            });
            compete(&mut journal, "cell", rounds, 1, &mut sides).unwrap();
        };
        run(1);
        run(2);
        let expected = [(0, "a"), (0, "b"), (0, "c"), (1, "b"), (1, "c"), (1, "a")];
        assert_eq!(*order.borrow(), expected);
    }
}
