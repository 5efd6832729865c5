//! Tasks one after the other: each begins when all pieces of the one before are done.

use std::collections::VecDeque;

use super::{Actor, Step, View};

struct Chain {
    actors: VecDeque<Box<dyn Actor>>,
}

/// One task that does what `actors` do, one after the other.
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
