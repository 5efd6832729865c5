//! Starts the background process that serves a mount: this executable again, with the same arguments and the hidden flag
//! `--daemon`. It reports one line of JSON, a [`Report`], on its standard output, a pipe. Never forks without exec.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write, stderr};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, bail};
use fuse::Negotiated;
use results::shown;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::log::{self, Level};
use crate::{daemon, output};

/// Report of the serving process to the command that started it.
#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Report {
    /// The mount answers.
    Mounted {
        /// Always true.
        ok: bool,
        /// Source of the mount.
        source: String,
        /// Mount point.
        mountpoint: String,
        /// Features granted by the kernel, as in `tidegate stats`.
        negotiated: Value,
        /// The same as text.
        summary: String,
        /// Process id of the server.
        pid: u32,
        /// Members specific to this kind of mount.
        #[serde(flatten)]
        more: Map<String, Value>,
    },
    /// Nothing is mounted.
    Failed {
        /// The error message.
        error: String,
    },
}

impl Report {
    /// The report of a mount that this process serves.
    pub fn mounted(
        source: String,
        mountpoint: &Path,
        negotiated: &Negotiated,
        more: Map<String, Value>,
    ) -> Self {
        Self::Mounted {
            ok: true,
            source,
            mountpoint: mountpoint.display().to_string(),
            negotiated: serde_json::to_value(negotiated).unwrap_or_default(),
            summary: negotiated.to_string(),
            pid: std::process::id(),
            more,
        }
    }

    /// Prints it as text or as JSON. Returns an error if nothing is mounted.
    pub fn print(&self, as_json: bool) -> Result<()> {
        match self {
            Self::Failed { error } => bail!("{error}"),
            Self::Mounted { .. } if as_json => output::print_line(&serde_json::to_string(self)?)?,
            Self::Mounted {
                source,
                mountpoint,
                summary,
                ..
            } => {
                // Reasons for features that are off follow in further lines; `tidegate stats --all` shows them.
                let granted = summary.lines().next().unwrap_or_default();
                let (source, mountpoint) = (shown::line(source), shown::line(mountpoint));
                output::print_line(&format!("mounted {source} on {mountpoint}: {granted}"))?
            }
        };
        Ok(())
    }
}

/// Serves as the background process. `serve` serves a mount and passes the report to its argument once the mount answers.
pub fn serve_as_daemon(
    log_file: Option<&Path>,
    serve: impl FnOnce(&mut dyn FnMut(Report) -> Result<()>) -> Result<()>,
) -> Result<()> {
    daemon::leave_session();
    let mounted = serve(&mut |report| {
        // Before success is reported: it may be the descriptor too many.
        let nowhere = daemon::nowhere()?;
        send(&report)?;
        daemon::let_go_of_terminal(&nowhere, log_file)?;
        log::to_background(log_file);
        if let Report::Mounted {
            source,
            mountpoint,
            summary,
            ..
        } = &report
        {
            log::message(
                Level::Info,
                &format!("mounted {source} on {mountpoint}: {summary}"),
            );
        }
        Ok(())
    });
    if let Err(error) = &mounted {
        // Once the mount was up nobody reads this; main() writes the message to the log.
        let _ = send(&Report::Failed {
            error: output::with_causes(error),
        });
    }
    mounted
}

fn send(report: &Report) -> Result<()> {
    output::print_line(&serde_json::to_string(report)?)?;
    Ok(())
}

/// Starts the background process of `command`; `words` are the whole command line, starting with the program and `command`.
pub fn start(command: &[&str], words: &[OsString], log_file: Option<&Path>) -> Result<Report> {
    let mut child = spawn(command, words, log_file)?;
    let pipe = child
        .stdout
        .take()
        .context("the background process has no pipe")?;
    let messages = child.stderr.take().map(gather);
    let mut line = String::new();
    // Limit the line, because it comes from another process.
    BufReader::new(pipe.take(MOST_BYTES))
        .read_line(&mut line)
        .context("the background process can't be heard")?;
    let messages = messages.and_then(|messages| messages.join().ok());
    let messages = messages.unwrap_or_default();
    if line.is_empty() {
        print_messages(&messages);
        let status = child
            .wait()
            .context("the background process can't be waited for")?;
        bail!("the background process ended before the mount answered: {status}");
    }
    let report = serde_json::from_str(&line)
        .map_err(|error| anyhow!("the background process reported `{}`: {error}", line.trim_end()))?;
    match &report {
        Report::Mounted { .. } => print_messages(&messages),
        Report::Failed { error } => {
            print_messages(without(&messages, error));
            child
                .wait()
                .context("the background process can't be waited for")?;
        }
    }
    Ok(report)
}

/// Maximum size of a report, and of the messages before it.
const MOST_BYTES: u64 = 1 << 20;

/// Reads the messages of the background process until it lets go of the terminal.
fn gather(pipe: ChildStderr) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut messages = Vec::new();
        // Without an end there would be no report either.
        let _ = pipe.take(MOST_BYTES).read_to_end(&mut messages);
        String::from_utf8_lossy(&messages).into_owned()
    })
}

/// Prints messages of the background process, which has escaped them.
fn print_messages(messages: &str) {
    let _ = stderr().write_all(messages.as_bytes());
}

/// The messages before the one about the error, which the caller reports.
fn without<'a>(messages: &'a str, error: &str) -> &'a str {
    let first = shown::lines(error.lines().next().unwrap_or_default());
    let end = messages.rfind(&format!("tidegate: {first}"));
    end.map_or(messages, |end| &messages[..end])
}

fn spawn(command: &[&str], words: &[OsString], log_file: Option<&Path>) -> Result<Child> {
    let program =
        std::env::current_exe().context("the path of this program can't be found; is /proc mounted?")?;
    let mut child = Command::new(&program);
    child
        .args(command)
        .arg("--daemon")
        .args(words.iter().skip(1 + command.len()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    child.stderr(match log_file {
        Some(path) => Stdio::from(daemon::open_log(path)?),
        None => Stdio::piped(),
    });
    child
        .spawn()
        .with_context(|| format!("{} can't be started", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_failed_mount_is_printed_once_and_messages_before_it_are_kept() {
        let messages = "tidegate: member 2 is absent\ntidegate: no file system\n  in sight\n";
        assert_eq!(
            without(messages, "no file system\nin sight"),
            "tidegate: member 2 is absent\n"
        );
        assert_eq!(without(messages, "something else"), messages);
    }

    #[test]
    fn reports_survive_the_pipe() {
        let mounted = Report::Mounted {
            ok: true,
            source: "/a \"b\"".into(),
            mountpoint: "/mnt\n".into(),
            negotiated: serde_json::json!({"transport": "device"}),
            summary: "FUSE 7.45\n  not in use: uring".into(),
            pid: 7,
            more: Map::from_iter([("attach_ms".to_owned(), 3.into())]),
        };
        for report in [mounted, Report::Failed { error: "no".into() }] {
            let line = serde_json::to_string(&report).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Report>(&line).unwrap(), report);
        }
    }
}
