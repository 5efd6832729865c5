//! `tidegate ui --open` must not pass the secret in the browser's arguments, which every user can see.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Replaces the user's browser and writes its arguments to a file.
const OPENER: &str = "#!/bin/sh\nprintf '%s\\n' \"$*\" > \"$TIDEGATE_TEST_OPENED\"\n";

/// A server that is killed on drop.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the server has reaped the opener; otherwise each one would stay a zombie while the server runs.
fn wait_until_no_child_is_left(process: u32) {
    let children = || {
        let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
        let of_each = threads.map(|thread| {
            let path = thread.expect("listed").path().join("children");
            fs::read_to_string(path).unwrap_or_default()
        });
        of_each.collect::<String>()
    };
    let started = Instant::now();
    while !children().trim().is_empty() {
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "left behind: {}",
            children()
        );
        std::thread::yield_now();
    }
}

#[test]
fn a_browser_is_opened_with_a_file_of_its_user_alone() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("programs")).expect("made");
    fs::write(path("programs/xdg-open"), OPENER).expect("written");
    fs::set_permissions(path("programs/xdg-open"), fs::Permissions::from_mode(0o755)).expect("changed");
    fs::create_dir(path("run")).expect("made");
    mknodat(CWD, path("opened"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("made");
    let programs = format!(
        "{}:{}",
        path("programs").display(),
        std::env::var("PATH").expect("there are programs")
    );
    let child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["ui", "--open", "--settings"])
        .arg(path("ui.json"))
        .arg("--history")
        .arg(path("history.db"))
        .env("PATH", programs)
        .env("XDG_RUNTIME_DIR", path("run"))
        .env("TIDEGATE_TEST_OPENED", path("opened"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut server = Killed(child);
    let mut out = BufReader::new(server.0.stdout.take().expect("a pipe"));
    let mut address = String::new();
    out.read_line(&mut address).expect("the address");
    let address = address.trim();
    let secret = address.trim_end_matches('/').rsplit('/').next().expect("a path");
    // Blocks until the opener has written it.
    let opened = fs::read_to_string(path("opened")).expect("what was opened");
    let opened = opened.trim();
    assert!(!opened.contains(secret), "{opened}");
    let page = Path::new(opened.strip_prefix("file://").unwrap_or(opened));
    let status = fs::metadata(page).expect("a file was opened");
    assert_eq!(status.mode() & 0o7777, 0o600);
    let private = page.parent().expect("it is in a folder");
    assert_eq!(fs::metadata(private).expect("there").mode() & 0o7777, 0o700);
    let text = fs::read_to_string(page).expect("it is the user's");
    assert!(text.contains(&format!("url={address}\"")), "{text}");
    wait_until_no_child_is_left(server.0.id());
    let pid = i32::try_from(server.0.id()).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process"), Signal::INT).expect("it runs");
    assert!(server.0.wait().expect("it ends").success());
    assert!(!private.exists(), "it goes with the server");
}
