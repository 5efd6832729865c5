//! Child processes with a time limit: this program again, and system programs such as mkfs.
//!
//! Each runs in a process group of its own, so that an interrupt at the terminal reaches only the study, which then
//! ends the child and everything that the child started in its group.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

/// Time limit of steps other than the workload: attach, mkfs, mount, unmount, detach.
pub const STEP_TIME: Duration = Duration::from_secs(120);

/// Pause between two looks at a running child.
const LOOK: Duration = Duration::from_millis(2);

/// Time between the request to end and the end by force.
const GRACE: Duration = Duration::from_secs(5);

/// Name of the environment variable by which the children of a study are found: its value is the study's folder.
pub const STUDY_VARIABLE: &str = "TIDEGATE_STUDY";

/// Starts children.
#[derive(Clone, Copy, Debug)]
pub struct Children<'run> {
    /// This program, or the one under test.
    pub tidegate: &'run Path,
    /// The study's folder.
    pub study: &'run Path,
    /// Raised by a signal: running children are ended.
    pub stop: &'run AtomicBool,
}

impl Children<'_> {
    /// Runs `tidegate` with these words and returns its standard output.
    ///
    /// # Errors
    /// If it fails, does not end in time, or the study is stopped; with what it said.
    pub fn tidegate<W: AsRef<str>>(&self, words: &[W], limit: Duration) -> Result<String> {
        self.run(self.tidegate, words, limit)
    }

    /// Runs a program and returns its standard output. System programs are also searched in `/sbin` and `/usr/sbin`.
    ///
    /// # Errors
    /// As for [`Children::tidegate`].
    pub fn run<W: AsRef<str>>(&self, program: &Path, words: &[W], limit: Duration) -> Result<String> {
        let words = words.iter().map(AsRef::as_ref);
        let name = program.file_name().map_or_else(
            || program.display().to_string(),
            |name| name.to_string_lossy().into_owned(),
        );
        let path = std::env::var("PATH").unwrap_or_default();
        let mut child = Command::new(program)
            .args(words)
            .env("PATH", format!("{path}:/usr/sbin:/sbin"))
            .env(STUDY_VARIABLE, self.study)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("{name} can't be run"))?;
        let texts = [reader(child.stdout.take()), reader(child.stderr.take())];
        // The output of a child that did not end is not waited for: it, or its own children, may still hold the pipes.
        let status = self.wait(&mut child, limit).with_context(|| name.clone())?;
        let [output, errors] = texts.map(|text| text.join().unwrap_or_default());
        if !status.success() {
            let said = errors.trim_end();
            bail!(
                "{name} ended with {status}: {}",
                if said.is_empty() { "it said nothing" } else { said }
            );
        }
        Ok(output)
    }

    fn wait(&self, child: &mut Child, limit: Duration) -> Result<ExitStatus> {
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if self.stop.load(Ordering::Relaxed) {
                end(child)?;
                bail!("stopped");
            }
            if began.elapsed() >= limit {
                end(child)?;
                bail!("it did not end within {} s", limit.as_secs());
            }
            thread::sleep(LOOK);
        }
    }
}

/// Ends a child with its group: first by SIGTERM, then by SIGKILL. One that waits in the kernel for a daemon that does
/// not answer ends later, when its mount is removed.
fn end(child: &mut Child) -> Result<()> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let group = group.context("a process id")?;
    for signal in [Signal::TERM, Signal::KILL] {
        // The group is gone if the child has just ended.
        let _ = kill_process_group(group, signal);
        let began = Instant::now();
        while began.elapsed() < GRACE {
            if child.try_wait()?.is_some() {
                return Ok(());
            }
            thread::sleep(LOOK);
        }
    }
    Ok(())
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut raw = Vec::new();
        if let Some(mut pipe) = pipe {
            // The text up to an error is the best that can be shown.
            let _ = pipe.read_to_end(&mut raw);
        }
        String::from_utf8_lossy(&raw).into_owned()
    })
}

/// The program's own file.
///
/// # Errors
/// If /proc is not mounted.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("the path of this program can't be found; is /proc mounted?")
}
