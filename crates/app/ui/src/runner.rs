//! Executes one run at a time: a job in a child process, whose output is read line by line.
//!
//! A stop interrupts the child as Ctrl-C would and waits for it: the child removes its files and prints its results
//! so far, marked partial. Each child has its own process group, so a Ctrl-C for the server reaches it once, through
//! the server.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use history::{History, RunId};
use results::RunRecord;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::plan::{self, Preset};
use crate::run_state::{ProgressLine, RunState, Status};
use crate::settings::{Settings, StepKind};

/// Maximum number of messages kept per child.
const MESSAGES_MAX: usize = 20;

/// Starts, stops and observes runs.
#[derive(Clone, Debug)]
pub struct Runner {
    program: PathBuf,
    history: Option<PathBuf>,
    state: Arc<watch::Sender<Option<RunState>>>,
    stop: Arc<watch::Sender<bool>>,
}

/// Result of a child process.
#[derive(Default)]
struct Outcome {
    stored: Option<RunId>,
    records: usize,
    is_partial: bool,
    last_message: Option<String>,
    code: Option<i32>,
}

impl Runner {
    /// A runner without a run.
    pub fn new(program: PathBuf, history: Option<PathBuf>) -> Self {
        Self {
            program,
            history,
            state: Arc::new(watch::Sender::new(None)),
            stop: Arc::new(watch::Sender::new(false)),
        }
    }

    /// The current or latest run; changes wake the receiver.
    pub fn watch(&self) -> watch::Receiver<Option<RunState>> {
        self.state.subscribe()
    }

    /// Starts a run; returns `false` if one is in progress.
    pub fn start(&self, preset: Preset, settings: &Settings, steps: &[StepKind]) -> bool {
        let begun = self.state.send_if_modified(|state| {
            if is_running(state) {
                return false;
            }
            let number = state.as_ref().map_or(1, |run| run.number + 1);
            *state = Some(RunState::new(
                number,
                preset,
                &settings.directory,
                settings.rounds,
                steps,
            ));
            true
        });
        if begun {
            self.stop.send_replace(false);
            let job = plan::job(steps, settings);
            tokio::spawn(self.clone().run(plan::arguments(settings), job));
        }
        begun
    }

    /// Requests the end of the run; returns `false` if none is in progress.
    pub fn stop(&self) -> bool {
        let running = is_running(&self.state.borrow());
        if running {
            self.stop.send_replace(true);
        }
        running
    }

    /// Stops the run, if any, and waits for the exit of its child.
    pub async fn shut_down(&self) {
        self.stop();
        let mut state = self.watch();
        // An error means that nothing can change the state any more.
        let _ = state.wait_for(|state| !is_running(state)).await;
    }

    async fn run(self, arguments: Vec<String>, job: String) {
        let (status, reason) = match self.child(&arguments, &job).await {
            Ok(outcome) => self.judge(outcome),
            Err(error) => {
                let reason = format!("{} can't be run: {error}", self.program.display());
                (Status::Failed, Some(reason))
            }
        };
        self.change(|run| {
            run.error = reason;
            run.end(status);
        });
    }

    /// Status of the run, and the reason of a failure.
    fn judge(&self, outcome: Outcome) -> (Status, Option<String>) {
        if *self.stop.borrow() || outcome.is_partial {
            return (Status::Stopped, None);
        }
        if outcome.records > 0 && matches!(outcome.code, Some(0 | 1)) {
            return (Status::Done, None);
        }
        let unsaid = || format!("the measurement ended with code {:?}", outcome.code);
        (
            Status::Failed,
            Some(outcome.last_message.clone().unwrap_or_else(unsaid)),
        )
    }

    async fn child(&self, arguments: &[String], job: &str) -> std::io::Result<Outcome> {
        let mut child = Command::new(&self.program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            // A child that exits without reading reports the reason on its standard error.
            let _ = input.write_all(job.as_bytes()).await;
        }
        let mut records = lines(child.stdout.take());
        let mut errors = lines(child.stderr.take());
        let mut stop = self.stop.subscribe();
        let (mut interrupted, mut records_end, mut errors_end) = (false, false, false);
        let mut outcome = Outcome::default();
        while !(records_end && errors_end) {
            tokio::select! {
                line = next(&mut records), if !records_end => match line {
                    Some(line) => self.take_record(&line, &mut outcome).await,
                    None => records_end = true,
                },
                line = next(&mut errors), if !errors_end => match line {
                    Some(line) => self.take_message(&line, &mut outcome),
                    None => errors_end = true,
                },
                // The sender lives as long as this runner.
                () = asked(&mut stop), if !interrupted => {
                    interrupted = true;
                    interrupt(&child);
                }
            }
        }
        outcome.code = child.wait().await?.code();
        Ok(outcome)
    }

    fn take_message(&self, line: &str, outcome: &mut Outcome) {
        if let Ok(progress) = serde_json::from_str::<ProgressLine>(line) {
            self.change(|run| run.progress(&progress.progress));
        } else if !line.trim().is_empty() {
            let message = line.strip_prefix("tidegate: ").unwrap_or(line);
            self.say(message);
            outcome.last_message = Some(message.to_owned());
        }
    }

    /// Adds a message, unless it differs from an earlier one only by step and numbers.
    fn say(&self, message: &str) {
        self.change(|run| {
            let is_new = run.messages.iter().all(|known| words(known) != words(message));
            if is_new && run.messages.len() < MESSAGES_MAX {
                run.messages.push(message.to_owned());
            }
        });
    }

    async fn take_record(&self, line: &str, outcome: &mut Outcome) {
        let record: RunRecord = match serde_json::from_str(line) {
            Ok(record) => record,
            Err(error) => return self.say(&format!("a record can't be read: {error}")),
        };
        outcome.records += 1;
        outcome.is_partial |= !record.complete;
        self.store(&record, &mut outcome.stored).await;
        self.change(|run| {
            run.history_id = outcome.stored.map(|id| id.0);
            run.record(record);
        });
    }

    /// Adds a record to the history; a failure becomes a message of the run.
    async fn store(&self, record: &RunRecord, stored: &mut Option<RunId>) {
        let Some(path) = self.history.clone() else {
            return;
        };
        let (record, run) = (record.clone(), *stored);
        let done = tokio::task::spawn_blocking(move || History::open(&path)?.append(run, &record)).await;
        let failure = match done {
            Ok(Ok(run)) => {
                *stored = Some(run);
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        self.say(&format!("not stored in the history: {failure}"));
    }

    fn change(&self, change: impl FnOnce(&mut RunState)) {
        self.state.send_modify(|state| {
            if let Some(run) = state {
                change(run);
            }
        });
    }
}

/// A message without its step and its numbers.
fn words(message: &str) -> String {
    let of_any_step = message
        .strip_prefix("step `")
        .and_then(|rest| rest.split_once("`: "));
    let message = of_any_step.map_or(message, |(_, rest)| rest);
    message.replace(|letter: char| letter.is_ascii_digit() || letter == '.', "")
}

async fn asked(stop: &mut watch::Receiver<bool>) {
    // An error means that no stop can be requested any more; the run then continues to its end.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn is_running(state: &Option<RunState>) -> bool {
    state.as_ref().is_some_and(|run| run.status == Status::Running)
}

type ChildLines = Option<Lines<BufReader<Box<dyn AsyncRead + Send + Unpin>>>>;

fn lines(stream: Option<impl AsyncRead + Send + Unpin + 'static>) -> ChildLines {
    let stream: Box<dyn AsyncRead + Send + Unpin> = Box::new(stream?);
    Some(BufReader::new(stream).lines())
}

/// The next line; `None` at the end. Invalid UTF-8 counts as the end, as our programs never print it.
async fn next(lines: &mut ChildLines) -> Option<String> {
    lines.as_mut()?.next_line().await.ok().flatten()
}

fn interrupt(child: &Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        // It may have exited a moment ago.
        let _ = kill_process(pid, Signal::INT);
    }
}
