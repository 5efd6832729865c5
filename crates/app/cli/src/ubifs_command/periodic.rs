//! A thread that repeats background work beside a mount until it is stopped.
//!
//! A panic ends only its own round: locked state detects it by poisoning, and unsynced data is still written by later
//! rounds. It is not forgotten: [`Periodic::finish`] fails.

use std::any::Any;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// A thread that runs a round of work after each interval.
pub struct Periodic {
    /// Ends the thread when dropped.
    stop: Sender<()>,
    /// Returns the message of the first panic.
    thread: JoinHandle<Option<String>>,
}

impl Periodic {
    /// Starts the thread; a round that returns `Break` is the last one.
    pub fn start(
        name: &str,
        interval: Duration,
        mut round: impl FnMut() -> ControlFlow<()> + Send + 'static,
    ) -> Result<Self> {
        let (stop, stopped) = channel();
        let rounds = move || {
            let mut panicked = None;
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                match catch_unwind(AssertUnwindSafe(&mut round)) {
                    Ok(ControlFlow::Continue(())) => {}
                    Ok(ControlFlow::Break(())) => break,
                    // The panic hook has printed it.
                    Err(panic) => {
                        panicked.get_or_insert_with(|| text_of(&*panic));
                    }
                }
            }
            panicked
        };
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(rounds)
            .context("the thread for background work can't be started")?;
        Ok(Self { stop, thread })
    }

    /// Waits for the current round. Fails if any round panicked.
    pub fn finish(self) -> Result<()> {
        drop(self.stop);
        let panicked = self.thread.join().unwrap_or_else(|panic| Some(text_of(&*panic)));
        match panicked {
            None => Ok(()),
            Some(text) => bail!("the work beside it panicked: {text}; this is a defect of the program"),
        }
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    #[test]
    fn a_panic_ends_its_round_alone_and_is_told_at_the_end() {
        let (sender, rounds) = channel();
        let mut count = 0;
        let periodic = Periodic::start("work", SOON, move || {
            count += 1;
            sender.send(count).expect("the test waits");
            assert!(count != 2, "round {count}");
            match count {
                4 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        })
        .expect("the host has threads");
        assert_eq!(rounds.iter().collect::<Vec<u32>>(), [1, 2, 3, 4]);
        let why = periodic.finish().expect_err("a round panicked").to_string();
        assert!(why.contains("panicked: round 2;"), "{why}");
    }

    #[test]
    fn without_a_panic_it_ends_well() {
        let (sender, rounds) = channel();
        let round = move || {
            // The test may have dropped its receiver.
            let _ = sender.send(());
            ControlFlow::Continue(())
        };
        let periodic = Periodic::start("work", SOON, round).expect("the host has threads");
        rounds.recv().expect("there are rounds");
        periodic.finish().expect("none panicked");
    }
}
