//! Requests of walks over an unchanged tree.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD};

use super::start_told;
use crate::harness::{LONG_AGO, Mounted};
use crate::requests::requests_of;

/// The fewest requests that `work` needs in several attempts, or the first that are at most `wanted`: while another test fills
/// the host's queue of events, everything is invalidated again and again.
fn fewest_requests_of(mounted: &Mounted, wanted: u64, work: impl Fn()) -> BTreeMap<String, u64> {
    let mut fewest = requests_of(mounted, &work);
    let started = Instant::now();
    while total(&fewest) > wanted && started.elapsed() < QUIET_WITHIN {
        std::thread::sleep(QUIET_WITHIN / 100);
        let again = requests_of(mounted, &work);
        if total(&again) < total(&fewest) {
            fewest = again;
        }
    }
    fewest
}

/// Longest time that other tests fill the queue.
const QUIET_WITHIN: Duration = Duration::from_secs(20);

fn total(requests: &BTreeMap<String, u64>) -> u64 {
    requests.values().sum()
}

fn run(words: &[&str], folder: &Path) {
    let output = Command::new(words[0])
        .args(&words[1..])
        .current_dir(folder)
        .output();
    let output = output.expect("the program runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
}

const FOLDERS: u64 = 60;

fn make_tree(source: &Path) {
    for folder in 0..FOLDERS {
        let path = source.join(format!("{}/{folder}", folder % 7));
        fs::create_dir_all(&path).unwrap();
        for file in 0..6 {
            let name = path.join(format!("file {file}"));
            fs::write(&name, vec![1; 300 * file]).unwrap();
            // git reads files again that are as young as its index.
            rustix::fs::utimensat(CWD, &name, &LONG_AGO, AtFlags::empty()).unwrap();
        }
        symlink("file 0", path.join("link")).unwrap();
        // It reads the object of a young link, too.
        rustix::fs::utimensat(CWD, path.join("link"), &LONG_AGO, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

#[test]
fn a_second_walk_of_a_tree_sends_next_to_no_request() {
    let Some(mounted) = start_told(make_tree, &[]) else {
        return;
    };
    let walks = [
        &["find", ".", "-type", "f", "-size", "+1k"][..],
        &["ls", "-lR", "."],
        &["find", ".", "-name", "absent"],
    ];
    for walk in walks {
        let walk = || run(walk, &mounted.mountpoint());
        walk();
        // A listing that was read from the daemon may have changed the folder's access time.
        let second = fewest_requests_of(&mounted, FOLDERS + 7 + 8, walk);
        assert!(total(&second) <= FOLDERS + 7 + 8, "{second:?}");
        let third = fewest_requests_of(&mounted, 8, walk);
        assert!(total(&third) <= 8, "{third:?}");
    }
    let stat_absent = || {
        for number in 0..200 {
            let name = format!("absent {number}");
            assert!(fs::symlink_metadata(mounted.mountpoint().join(name)).is_err());
        }
    };
    assert!(
        total(&requests_of(&mounted, stat_absent)) >= 200,
        "the first time"
    );
    let second = fewest_requests_of(&mounted, 8, stat_absent);
    assert!(total(&second) <= 8, "names that do not exist: {second:?}");
}

#[test]
fn a_second_git_status_sends_next_to_no_request() {
    if !testkit::needs(&[testkit::Need::Program("git")]) {
        return;
    }
    let Some(mounted) = start_told(make_tree, &[]) else {
        return;
    };
    let folder = mounted.mountpoint();
    let git = |words: &[&str]| {
        let identity = [
            "git",
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "-c",
            "safe.directory=*",
        ];
        run(&[&identity, words].concat(), &folder);
    };
    git(&["init", "-q"]);
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "all"]);
    let status = || git(&["--no-optional-locks", "status", "--porcelain"]);
    status();
    status();
    let per_file = [
        "lookup",
        "getattr",
        "statx",
        "readdirplus",
        "readdir",
        "opendir",
        "open",
    ];
    let mut attempts = Vec::new();
    // As in `fewest_requests_of`.
    for _ in 0..10 {
        let again = requests_of(&mounted, status);
        let looks: u64 = per_file.iter().filter_map(|name| again.get(*name)).sum();
        // Opening and reading a dozen files of .git.
        if looks <= 50 {
            return;
        }
        attempts.push(again);
    }
    panic!("{attempts:?}");
}
