//! Traces of writers that did not finish: dropped, killed, or out of disk space.
#![expect(clippy::print_stdout, reason = "the child reports its progress")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use formats::native::{Existing, NativeReader, NativeWriter, TraceId};
use results::block_trace::BlockTrace;

use super::sample::{full_request, header, read};

/// Marks this program as the child to be killed, and holds its output path.
const CHILD: &str = "TIDEGATE_TEST_NATIVE_CHILD";
/// Printed by the child when its rows are written.
const READY: &str = "all rows are written";
/// Rows before the child's checkpoint, and after it.
const KEPT: u64 = 5000;
const LOST: u64 = 3000;

fn create(path: &Path) -> NativeWriter {
    NativeWriter::create(path, TraceId::from_text("t"), &header(), Existing::Refuse).unwrap()
}

fn requests(count: u64) -> Vec<results::block_trace::Request> {
    (0..count).map(full_request).collect()
}

#[test]
fn a_writer_that_is_dropped_leaves_a_partial_trace_with_all_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    let mut writer = create(&path);
    writer.request(&full_request(4)).unwrap();
    let partial = writer.partial_path().to_owned();
    drop(writer);
    assert!(!path.exists());
    let kept = read(&partial);
    assert_eq!(kept.requests, [full_request(4)]);
    assert!(!kept.header.complete);
}

#[test]
fn a_trace_with_checkpoints_is_as_one_without_once_it_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    let mut writer = create(&path);
    for request in requests(3000) {
        writer.request(&request).unwrap();
        if request.id % 700 == 0 {
            writer.checkpoint().unwrap();
        }
    }
    writer.finish(&header()).unwrap();
    let expected = BlockTrace {
        header: header(),
        requests: requests(3000),
        events: Vec::new(),
    };
    assert_eq!(read(&path), expected);
    assert_eq!(NativeReader::open(&path).unwrap().unfinished_bytes(), 0);
}

/// Not a test by itself: the process that [`a_killed_writer_leaves_what_its_last_checkpoint_had`] kills.
#[test]
fn child_that_is_killed() {
    let Some(path) = std::env::var_os(CHILD).map(PathBuf::from) else {
        return;
    };
    let mut writer = create(&path);
    for request in requests(KEPT + LOST) {
        writer.request(&request).unwrap();
        if writer.counts().requests == KEPT {
            writer.checkpoint().unwrap();
        }
    }
    println!("{READY}");
    // Blocks until it is killed: the other end of this pipe is never written to.
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_killed_writer_leaves_what_its_last_checkpoint_had() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "interrupted::child_that_is_killed", "--nocapture"])
        .env(CHILD, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let is_ready = output.lines().any(|line| line.unwrap().contains(READY));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_ready, "the child wrote its rows");
    assert!(!path.exists(), "what is not whole has another name");

    let partial = outfile::partial_name(&path);
    let kept = read(&partial);
    assert_eq!(kept.requests, requests(KEPT));
    assert!(!kept.header.complete);
    // As after a kill in the middle of a row group: bytes behind the last footer.
    for name in ["requests.parquet", "events.parquet"] {
        let file = fs::OpenOptions::new().append(true).open(partial.join(name));
        file.unwrap().write_all(&[0xA5; 1000]).unwrap();
    }
    assert_eq!(read(&partial), kept);
    let reader = NativeReader::open(&partial).unwrap();
    assert_eq!(reader.unfinished_bytes(), 2000);
}

/// A small file system in memory; unmounted on drop.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", size, "tidegate-test"])
            .arg(folder.path())
            .output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        testkit::report_left_out("tmpfs can't be mounted; run as root");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn a_full_disk_leaves_what_the_last_checkpoint_had() {
    let Some(disk) = SmallDisk::mount("size=512k") else {
        return;
    };
    let path = disk.0.path().join("a.trace");
    let mut writer = create(&path);
    let mut vouched_for = 0;
    let mut failure = None;
    for request in requests(400_000) {
        let written = writer.request(&request).and_then(|()| {
            if writer.counts().requests.is_multiple_of(1000) {
                writer.checkpoint()?;
                vouched_for = writer.counts().requests;
            }
            Ok(())
        });
        failure = written.err();
        if failure.is_some() {
            break;
        }
    }
    let failure = failure.expect("the disk is too small for all of it").to_string();
    assert!(failure.contains("No space left"), "{failure}");
    let partial = writer.partial_path().to_owned();
    drop(writer);
    let kept = read(&partial);
    let count = u64::try_from(kept.requests.len()).unwrap();
    assert!(
        count >= vouched_for && vouched_for > 0,
        "{count} of {vouched_for}"
    );
    assert_eq!(kept.requests, requests(count));
    assert!(!kept.header.complete);
    let reader = NativeReader::open(&partial).unwrap();
    assert_eq!(reader.unfinished_bytes(), 0, "any tool can read what is left");
}
