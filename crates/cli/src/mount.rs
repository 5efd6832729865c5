//! `tidegate mount`: checks everything, then serves in the foreground or starts a background process that does.
//!
//! The background process is this executable again with the same arguments and the hidden flag `--daemon`. It reports
//! by one line of JSON on its standard output, a pipe: [`Report`]. Nothing is forked without exec.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::arguments::MountArguments;
use crate::mount_options::MountPlan;
use crate::{daemon, output, remount};

/// What the process that serves a mount tells the one that asked for it.
#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Report {
    /// The mount answers.
    Mounted {
        /// Always true.
        ok: bool,
        /// The folder that is shown.
        source: String,
        /// Where.
        mountpoint: String,
        /// What the kernel granted, in words.
        negotiated: String,
        /// The process that serves.
        pid: u32,
    },
    /// Nothing is mounted.
    Failed {
        /// Why.
        error: String,
    },
}

impl Report {
    /// The report of a mount that this process serves.
    pub fn mounted(plan: &MountPlan, negotiated: String) -> Self {
        Self::Mounted {
            ok: true,
            source: plan.source.display().to_string(),
            mountpoint: plan.mountpoint.display().to_string(),
            negotiated,
            pid: std::process::id(),
        }
    }

    fn print(&self, arguments: &MountArguments) -> Result<()> {
        match self {
            Self::Failed { error } => bail!("{error}"),
            Self::Mounted { .. } if arguments.quiet => return Ok(()),
            Self::Mounted { .. } if arguments.json => output::print_line(&serde_json::to_string(self)?)?,
            Self::Mounted {
                source,
                mountpoint,
                negotiated,
                ..
            } => output::print_line(&format!("mounted {source} on {mountpoint}: {negotiated}"))?,
        };
        Ok(())
    }
}

/// Runs the command; `words` are the arguments it was parsed from, `mount` among them.
pub fn run(arguments: &MountArguments, words: &[OsString]) -> Result<()> {
    if arguments.daemon {
        return run_as_daemon(arguments);
    }
    if remount::is_asked(arguments) {
        return remount::run(arguments);
    }
    let plan = MountPlan::from_arguments(arguments)?;
    if arguments.fake {
        return Ok(());
    }
    if arguments.foreground {
        return daemon::serve(&plan, |negotiated| {
            Report::mounted(&plan, negotiated.to_string()).print(arguments)
        });
    }
    start_in_background(arguments, words)?.print(arguments)
}

fn run_as_daemon(arguments: &MountArguments) -> Result<()> {
    daemon::leave_session();
    let mounted = MountPlan::from_arguments(arguments).and_then(|plan| {
        daemon::serve(&plan, |negotiated| {
            send(&Report::mounted(&plan, negotiated.to_string()))?;
            daemon::let_go_of_terminal(arguments.log_file.as_deref())
        })
    });
    if let Err(error) = &mounted {
        // After the mount was up this reaches nobody, and main() writes the message to the log.
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

fn start_in_background(arguments: &MountArguments, words: &[OsString]) -> Result<Report> {
    let mut child = spawn_daemon(arguments, words)?;
    let pipe = child
        .stdout
        .take()
        .context("the background process has no pipe")?;
    let mut line = String::new();
    // A bound, because the line comes from another process.
    BufReader::new(pipe.take(1 << 20))
        .read_line(&mut line)
        .context("the background process can't be heard")?;
    if line.is_empty() {
        let status = child
            .wait()
            .context("the background process can't be waited for")?;
        bail!("the background process ended before the mount answered: {status}");
    }
    let report = serde_json::from_str(&line)
        .map_err(|error| anyhow!("the background process reported `{}`: {error}", line.trim_end()))?;
    if matches!(report, Report::Failed { .. }) {
        child
            .wait()
            .context("the background process can't be waited for")?;
    }
    Ok(report)
}

fn spawn_daemon(arguments: &MountArguments, words: &[OsString]) -> Result<Child> {
    let program =
        std::env::current_exe().context("the path of this program can't be found; is /proc mounted?")?;
    let after_mount = words.iter().skip(2);
    let mut command = Command::new(&program);
    command
        .args(["mount", "--daemon"])
        .args(after_mount)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    // A failure comes back by the pipe; a second copy of the message on the terminal would only confuse.
    command.stderr(match &arguments.log_file {
        Some(path) => Stdio::from(daemon::open_log(path)?),
        None => Stdio::null(),
    });
    command
        .spawn()
        .with_context(|| format!("{} can't be started", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_the_pipe() {
        let mounted = Report::Mounted {
            ok: true,
            source: "/a \"b\"".into(),
            mountpoint: "/mnt\n".into(),
            negotiated: "FUSE 7.45\n  not in use: uring".into(),
            pid: 7,
        };
        for report in [mounted, Report::Failed { error: "no".into() }] {
            let line = serde_json::to_string(&report).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Report>(&line).unwrap(), report);
        }
    }
}
