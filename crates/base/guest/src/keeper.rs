//! Ends a QEMU process with its owner: a shell beside it waits on a pipe from the owner and kills QEMU when the pipe
//! closes, which the kernel ensures however the owner ends. The shell also removes the guest's folder.
//!
//! A shell rather than `PR_SET_PDEATHSIG`, as that applies to the thread that started the process (each test has its
//! own) and needs code between fork and exec.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode, OFlags};

/// The word in the command line of the shell beside QEMU by which others recognise it.
pub const KEEPER: &str = "tidegate-lab-keeper";

/// `$1` is the folder to remove, the rest the command. A line on the pipe, or its end, kills the command. The line
/// `remove`, or the end of the pipe, removes the folder, in a shell that may outlive this one. `rm` has the name of the
/// shell among its arguments, which is no file there: who ends the processes of a study must know it too.
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
{ while read -r word <&4 && [ "$word" != remove ]; do :; done; [ ! -L "$folder" ] && cd "$folder" && rm -rf -- "$0" "$folder"; } &
exit $code
"#;

/// Time limit after SIGKILL for a command that is not a child of this process.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// A running command. Unless it is detached, it ends with this value and with this process.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The shell, unless another process started it.
    shell: Option<Child>,
    pipe: File,
    folder: PathBuf,
    detached: bool,
}

impl Kept {
    /// Starts `command` with its output appended to `log`; `folder` is removed after its end.
    pub(crate) fn start(command: &Command, log: &Path, folder: &Path) -> io::Result<Self> {
        let mut shell = shell(command, log, folder)?.stdin(Stdio::piped()).spawn()?;
        let pipe = shell.stdin.take().expect("standard input is a pipe");
        Ok(Self {
            shell: Some(shell),
            pipe: File::from(OwnedFd::from(pipe)),
            folder: folder.to_owned(),
            detached: false,
        })
    }

    /// Like [`Kept::start`], for a command that outlives this process; [`Kept::reattach`] finds it by its folder.
    pub(crate) fn start_detached(command: &Command, log: &Path, folder: &Path) -> io::Result<Self> {
        let name = folder.join("keeper");
        rustix::fs::mknodat(rustix::fs::CWD, &name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        // The shell holds both ends, so that it sees no end of file while no other process has the pipe open.
        let both_ends = OpenOptions::new().read(true).write(true).open(&name)?;
        let shell = shell(command, log, folder)?
            .stdin(both_ends.try_clone()?)
            .spawn()?;
        Ok(Self {
            shell: Some(shell),
            pipe: both_ends,
            folder: folder.to_owned(),
            detached: true,
        })
    }

    /// Connects to a detached command that another process started.
    pub(crate) fn reattach(folder: &Path) -> io::Result<Self> {
        let pipe = OpenOptions::new()
            .write(true)
            // Opening fails if no shell reads the pipe.
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(folder.join("keeper"))?;
        Ok(Self {
            shell: None,
            pipe,
            folder: folder.to_owned(),
            detached: true,
        })
    }

    /// Whether the command is running; always true for another process's.
    pub(crate) fn is_running(&mut self) -> bool {
        self.shell
            .as_mut()
            .is_none_or(|shell| matches!(shell.try_wait(), Ok(None)))
    }

    /// Kills the command with SIGKILL and returns when it is gone. The folder stays, except that of a detached command.
    pub(crate) fn kill(&mut self) {
        // A pipe without a reader, and a child that can't be waited for, mean that it has ended.
        let _ = self.pipe.write_all(b"end\n");
        if self.detached {
            self.remove();
        }
        match &mut self.shell {
            Some(shell) => {
                let _ = shell.wait();
            }
            None => self.wait_for_removal(),
        }
    }

    /// Removes the folder once the command has ended. False if nobody is there who would.
    fn remove(&mut self) -> bool {
        self.pipe.write_all(b"remove\n").is_ok()
    }

    /// The shell that removes the folder is no child of this process.
    fn wait_for_removal(&self) {
        let deadline = Instant::now() + END_TIMEOUT;
        while self.folder.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.detached {
            self.kill();
            if self.remove() {
                self.wait_for_removal();
            }
        }
    }
}

fn shell(command: &Command, log: &Path, folder: &Path) -> io::Result<Command> {
    let log = File::options().create(true).append(true).open(log)?;
    let mut shell = Command::new("sh");
    shell
        // An interrupt at the terminal reaches only the owner.
        .process_group(0)
        .args(["-c", SCRIPT, KEEPER])
        .arg(folder)
        .arg(command.get_program())
        .args(command.get_args())
        .stdout(log.try_clone()?)
        .stderr(log);
    Ok(shell)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The arguments of the processes of a group.
    fn arguments(group: u32) -> Vec<Vec<u8>> {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let of_group = processes.filter(|process| {
            let stat = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
            let fields = stat.rsplit_once(") ").map(|(_, fields)| fields.split(' '));
            fields.and_then(|mut fields| fields.nth(2)) == Some(&group.to_string())
        });
        let arguments = of_group.map(|process| fs::read(process.path().join("cmdline")).unwrap_or_default());
        arguments.filter(|arguments| !arguments.is_empty()).collect()
    }

    #[test]
    fn whatever_removes_the_folder_is_known_by_the_name_of_the_keeper() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join("own");
        fs::create_dir(&own).unwrap();
        for number in 0..20_000 {
            fs::write(own.join(number.to_string()), "").unwrap();
        }
        let mut command = Command::new("sleep");
        command.arg("1000");
        let kept = Kept::start(&command, &place.path().join("log"), &own).unwrap();
        let group = kept.shell.as_ref().unwrap().id();
        let removal = std::thread::spawn(move || drop(kept));
        let mut removing = 0;
        while !removal.is_finished() {
            for arguments in arguments(group) {
                let mut words = arguments.split(|byte| *byte == 0);
                let is_kept = words.clone().next() == Some(b"sleep");
                assert!(
                    is_kept || words.any(|word| word == KEEPER.as_bytes()),
                    "{}",
                    String::from_utf8_lossy(&arguments)
                );
                removing += usize::from(arguments.starts_with(b"rm"));
            }
        }
        removal.join().unwrap();
        assert!(!own.exists());
        assert!(removing > 0, "the removal was over too soon to be seen");
    }
}
