//! Messages of a background daemon, and their destinations.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::harness::Mounted;

/// A tmpfs of 1 MiB over the source; it goes with the script's namespace or is unmounted on drop.
struct SmallSource(std::path::PathBuf);

impl SmallSource {
    fn mount_at(source: &Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "small"]).arg(source);
        let output = mount.output().expect("mount(8) runs");
        if output.status.success() {
            return Some(Self(source.to_owned()));
        }
        testkit::report_left_out("a source that gets full: this needs root");
        None
    }
}

impl Drop for SmallSource {
    fn drop(&mut self) {
        // Best effort: a failure here would hide the test's own message.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn a_log_file_has_the_start_errors_with_their_file_and_the_end() {
    let folder = tempfile::TempDir::new().unwrap();
    let log = folder.path().join("log");
    let mut small = None;
    let started = Mounted::start_over(
        |source| small = SmallSource::mount_at(source),
        &["--passthrough", "off", "--log-file", log.to_str().unwrap()],
    );
    let (Some(mounted), Some(_small)) = (started, small) else {
        return;
    };
    let _ = fs::write(mounted.mountpoint().join("too-large"), vec![1; 4 << 20]);
    mounted.end_daemon(Signal::TERM);
    let text = fs::read_to_string(&log).unwrap();
    let pid = format!("Z tidegate[{}]: ", mounted.pid().as_raw_nonzero());
    for (number, wanted) in [
        "mounted ",
        "too-large: no space left",
        "ended by SIGTERM",
        "unmounted",
    ]
    .into_iter()
    .enumerate()
    {
        let line = text.lines().find(|line| line.contains(wanted));
        let line = line.unwrap_or_else(|| panic!("`{wanted}` is missing:\n{text}"));
        assert!(line.contains(&pid), "no time and process: {line}");
        assert!(
            number > 0 || text.starts_with(line),
            "the start is not the first line:\n{text}"
        );
    }
    assert!(text.lines().count() < 10, "told over and over:\n{text}");
}

/// A separate system log in a namespace with another `/dev`, so that the machine's log is not touched.
const LISTENER: &str = "
import os, socket, subprocess, sys
program, folder = sys.argv[1:]
log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
if os.path.lexists('/dev/log'): os.unlink('/dev/log')
log.bind('/dev/log')
log.settimeout(30)
def run(*words): subprocess.run([program, *words], check=True, stdout=subprocess.DEVNULL)
os.chdir(folder)
run('mount', 'source', 'mountpoint', '-o', 'passthrough=off')
run('unmount', 'mountpoint')
while True:
    message = log.recv(4096).decode()
    print(message)
    if 'unmounted' in message: break
";

#[test]
fn without_a_log_file_messages_go_to_the_system_log() {
    let folder = tempfile::TempDir::new().unwrap();
    let script = "set -e
        cd \"$1\"; mkdir source mountpoint layers; mount -t tmpfs layers layers; mkdir layers/upper layers/work
        mount -t overlay overlay -o lowerdir=/dev,upperdir=layers/upper,workdir=layers/work /dev
        : <>/dev/fuse || exit 77
        exec python3 -c \"$2\" \"$0\" \"$1\"";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_tidegate")])
        .arg(folder.path())
        .arg(LISTENER)
        .output();
    let usable = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    let Some(output) = output
        .ok()
        .filter(|output| usable && output.status.code() != Some(77))
    else {
        testkit::report_left_out(
            "a system log in a namespace of its own: this needs root, unshare and overlayfs",
        );
        return;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = messages.lines().collect();
    assert_eq!(lines.len(), 2, "{messages}{errors}");
    assert!(
        lines.iter().all(|line| line.starts_with("<30>tidegate[")),
        "{messages}"
    );
    assert!(
        lines[0].contains("]: mounted ") && lines[1].contains("unmounted"),
        "{messages}"
    );
}
