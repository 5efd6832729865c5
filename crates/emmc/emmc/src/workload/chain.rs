//! Tasks in sequence: each begins when all bios of the previous one are done.

use std::collections::VecDeque;

use super::{Actor, Step, View};

struct Chain {
    actors: VecDeque<Box<dyn Actor>>,
}

/// One task that executes `actors` one after another.
#[must_use]
pub fn chain(actors: Vec<Box<dyn Actor>>) -> Box<dyn Actor> {
    Box::new(Chain {
        actors: actors.into(),
    })
}

impl Actor for Chain {
    fn step(&mut self, view: &View) -> Step {
        while let Some(actor) = self.actors.front_mut() {
            match actor.step(view) {
                Step::Done if view.outstanding > 0 => return Step::WaitBelow(0),
                Step::Done => {
                    self.actors.pop_front();
                }
                step => return step,
            }
        }
        Step::Done
    }
}
