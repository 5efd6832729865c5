//! Keeps a QEMU process no longer than its owner: a shell beside it waits on a pipe from us and kills it when the pipe
//! closes, which the kernel sees to however this process ends. The shell also removes the guest's folder.
//!
//! It is a shell and not `PR_SET_PDEATHSIG`, as that counts the thread that started the process (a test has one of its
//! own) and needs code between fork and exec.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// `$1` is the folder to remove (or empty), the rest the command. A line on the pipe kills the command; its end also
/// removes the folder, by a shell that may outlive this one.
const SCRIPT: &str = r#"
folder=$1
shift
exec 4<&0
"$@" 4<&- </dev/null &
kept=$!
{ read -r _ <&4; kill -9 $kept; } 2>/dev/null &
watcher=$!
wait $kept
code=$?
kill $watcher 2>/dev/null
[ -z "$folder" ] || { while read -r _ <&4; do :; done; rm -rf "$folder"; } &
exit $code
"#;

/// A running command that ends with this value, or with this process.
#[derive(Debug)]
pub(super) struct Kept {
    shell: Child,
    pipe: Option<ChildStdin>,
}

impl Kept {
    /// Starts `command` with its output appended to `log`; `remove` goes away after its end.
    pub(super) fn start(command: &Command, log: &Path, remove: Option<&Path>) -> io::Result<Self> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "lab"])
            .arg(remove.unwrap_or_else(|| Path::new("")))
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let pipe = shell.stdin.take();
        Ok(Self { shell, pipe })
    }

    /// Whether the command still runs.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.shell.try_wait(), Ok(None))
    }

    /// Kills the command with SIGKILL and returns when it is gone. The folder stays.
    pub(super) fn kill(&mut self) {
        if let Some(pipe) = &mut self.pipe {
            // A pipe that nobody reads, and a child that can't be waited for, mean that it has ended.
            let _ = pipe.write_all(b"end\n");
        }
        let _ = self.shell.wait();
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.kill();
    }
}
