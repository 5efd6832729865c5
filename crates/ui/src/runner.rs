//! One run at a time: its steps are child processes, read line by line.
//!
//! A stop interrupts the child as Ctrl-C would and waits for it: the child removes its files and prints what it measured
//! so far, marked partial. Children are in a process group of their own, so that a Ctrl-C for the server reaches them
//! once, through the server.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use history::{History, RunId};
use results::RunRecord;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader, Lines};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::plan::{Preset, Step};
use crate::rows::result_rows;
use crate::run_state::{ProgressLine, RunState, Status};
use crate::settings::Settings;

/// Lines of messages that are kept of a child.
const MESSAGES_MAX: usize = 20;

/// Starts, stops and shows runs.
#[derive(Clone, Debug)]
pub struct Runner {
    program: PathBuf,
    history: Option<PathBuf>,
    state: Arc<watch::Sender<Option<RunState>>>,
    stop: Arc<watch::Sender<bool>>,
}

/// What a child left behind.
struct Outcome {
    records: Vec<RunRecord>,
    messages: Vec<String>,
    code: Option<i32>,
}

impl Runner {
    /// Nothing runs yet.
    pub fn new(program: PathBuf, history: Option<PathBuf>) -> Self {
        Self {
            program,
            history,
            state: Arc::new(watch::Sender::new(None)),
            stop: Arc::new(watch::Sender::new(false)),
        }
    }

    /// The run, the latest when none is under way; changes wake the receiver.
    pub fn watch(&self) -> watch::Receiver<Option<RunState>> {
        self.state.subscribe()
    }

    /// Begins a run; false when one is under way.
    pub fn start(&self, preset: Preset, settings: &Settings, steps: Vec<Step>) -> bool {
        let kinds: Vec<_> = steps.iter().map(|step| step.kind).collect();
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
                &kinds,
            ));
            true
        });
        if begun {
            self.stop.send_replace(false);
            tokio::spawn(self.clone().run(steps));
        }
        begun
    }

    /// Asks the run to end; false when none is under way.
    pub fn stop(&self) -> bool {
        let running = is_running(&self.state.borrow());
        if running {
            self.stop.send_replace(true);
        }
        running
    }

    /// Stops the run, if any, and waits until its child is gone.
    pub async fn shut_down(&self) {
        self.stop();
        let mut state = self.watch();
        // An error means that nobody can change the state any more.
        let _ = state.wait_for(|state| !is_running(state)).await;
    }

    async fn run(self, steps: Vec<Step>) {
        let mut stored = None;
        let mut status = Status::Done;
        for (index, step) in steps.iter().enumerate() {
            self.change(|run| run.begin(index));
            status = self.step(step, &mut stored).await;
            if status != Status::Done {
                break;
            }
        }
        self.change(|run| {
            run.status = status;
            if status == Status::Done {
                run.fraction = 1.0;
            }
        });
    }

    async fn step(&self, step: &Step, stored: &mut Option<RunId>) -> Status {
        let outcome = match self.child(step).await {
            Ok(outcome) => outcome,
            Err(error) => {
                let reason = format!("{} can't be run: {error}", self.program.display());
                self.change(|run| {
                    run.end(Status::Failed, Vec::new());
                    run.error = Some(reason.clone());
                });
                return Status::Failed;
            }
        };
        self.store(&outcome.records, stored).await;
        let is_whole = outcome.records.iter().all(|record| record.complete);
        let status = if *self.stop.borrow() || (!outcome.records.is_empty() && !is_whole) {
            Status::Stopped
        } else if outcome.records.is_empty() || !matches!(outcome.code, Some(0 | 1)) {
            Status::Failed
        } else {
            Status::Done
        };
        self.change(|run| {
            run.end(status, result_rows(&outcome.records));
            run.history_id = stored.map(|id| id.0);
            for message in &outcome.messages {
                // The same sentence with other numbers, step after step, is said once.
                let is_new = run.messages.iter().all(|known| words(known) != words(message));
                if is_new {
                    run.messages.push(message.clone());
                }
            }
            if status == Status::Failed {
                run.error = Some(
                    outcome
                        .messages
                        .last()
                        .cloned()
                        .unwrap_or_else(|| format!("the measurement ended with code {:?}", outcome.code)),
                );
            }
        });
        status
    }

    async fn child(&self, step: &Step) -> std::io::Result<Outcome> {
        let mut child = Command::new(&self.program)
            .args(&step.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let mut records = lines(child.stdout.take());
        let mut errors = lines(child.stderr.take());
        let mut stop = self.stop.subscribe();
        let (mut interrupted, mut records_end, mut errors_end) = (false, false, false);
        let mut outcome = Outcome {
            records: Vec::new(),
            messages: Vec::new(),
            code: None,
        };
        while !(records_end && errors_end) {
            tokio::select! {
                line = next(&mut records), if !records_end => match line {
                    Some(line) => outcome.take_record(&line),
                    None => records_end = true,
                },
                line = next(&mut errors), if !errors_end => match line {
                    Some(line) => self.take_message(&line, &mut outcome),
                    None => errors_end = true,
                },
                // The sender lives as long as this runner.
                _ = stop.wait_for(|stop| *stop), if !interrupted => {
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
        } else if !line.trim().is_empty() && outcome.messages.len() < MESSAGES_MAX {
            let message = line.strip_prefix("tidegate: ").unwrap_or(line);
            outcome.messages.push(message.to_owned());
        }
    }

    /// Adds records to the history; a failure is a message of the run.
    async fn store(&self, records: &[RunRecord], stored: &mut Option<RunId>) {
        let Some(path) = self.history.clone().filter(|_| !records.is_empty()) else {
            return;
        };
        let (records, mut run) = (records.to_vec(), *stored);
        let done = tokio::task::spawn_blocking(move || {
            let mut history = History::open(&path)?;
            for record in &records {
                run = Some(history.append(run, record)?);
            }
            Ok::<_, history::HistoryError>(run)
        })
        .await;
        let failure = match done {
            Ok(Ok(run)) => {
                *stored = run;
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        self.change(|run| {
            run.messages.push(format!("not stored in the history: {failure}"));
        });
    }

    fn change(&self, change: impl FnOnce(&mut RunState)) {
        self.state.send_modify(|state| {
            if let Some(run) = state {
                change(run);
            }
        });
    }
}

impl Outcome {
    fn take_record(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(record) => self.records.push(record),
            Err(error) => self.messages.push(format!("a record can't be read: {error}")),
        }
    }
}

/// A message without its numbers.
fn words(message: &str) -> String {
    message.replace(|letter: char| letter.is_ascii_digit() || letter == '.', "")
}

fn is_running(state: &Option<RunState>) -> bool {
    state.as_ref().is_some_and(|run| run.status == Status::Running)
}

type ChildLines = Option<Lines<BufReader<Box<dyn AsyncRead + Send + Unpin>>>>;

fn lines(stream: Option<impl AsyncRead + Send + Unpin + 'static>) -> ChildLines {
    let stream: Box<dyn AsyncRead + Send + Unpin> = Box::new(stream?);
    Some(BufReader::new(stream).lines())
}

/// The next line; `None` at the end. What is not UTF-8 ends it, as nothing of ours prints such.
async fn next(lines: &mut ChildLines) -> Option<String> {
    lines.as_mut()?.next_line().await.ok().flatten()
}

fn interrupt(child: &Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid.and_then(Pid::from_raw) {
        // It may have ended by itself a moment ago.
        let _ = kill_process(pid, Signal::INT);
    }
}
