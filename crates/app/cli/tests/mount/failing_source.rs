//! A source whose medium fails in the middle of a file, or fills up in the middle of a request.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;

use crate::harness::tidegate;

const BLOCK: u64 = 4096;
const FILE_BYTES: usize = 3_000_000;
/// Number of readable blocks at the start of the file: a multiple of the largest folio (2 MiB), as
/// a kernel gives up all blocks of a folio for one bad block in it, in a source as in a mount.
const GOOD_BLOCKS: u64 = 512;

const MODES: [&[&str]; 7] = [
    &[],
    &["--passthrough", "off"],
    &["--passthrough", "off", "--flusher", "off"],
    &["--passthrough", "off", "--direct-io", "on"],
    &["--passthrough", "off", "--direct-io", "off"],
    &["--passthrough", "off", "--writeback", "on"],
    &["--passthrough", "off", "--writeback", "on", "--flusher", "off"],
];

/// A file system that can fail, mounted in a folder that serves as the source of a mount.
struct Medium {
    folder: tempfile::TempDir,
}

impl Medium {
    fn folders() -> Self {
        let medium = Self {
            folder: tempfile::TempDir::new().expect("a temporary folder"),
        };
        for folder in [medium.source(), medium.root(), medium.mountpoint()] {
            fs::create_dir(folder).expect("a temporary folder takes folders");
        }
        medium
    }

    /// Uses a tmpfs instead. `None`, with a printed reason, if this user may not mount one.
    fn in_memory(size: &str) -> Option<Self> {
        let medium = Self::folders();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]);
        if runs(mount.arg(medium.root())) {
            return Some(medium);
        }
        testkit::report_left_out("a full source needs root and tmpfs");
        None
    }

    /// `None`, with a printed reason, without root, a loop device or ext4.
    fn on_loop_device(bytes: u64) -> Option<Self> {
        let medium = Self::folders();
        let image = File::create(medium.image()).expect("a temporary folder takes files");
        image.set_len(bytes).expect("a temporary folder takes files");
        // Without a journal all metadata is at the start.
        let made = runs(
            Command::new("mkfs.ext4")
                .args(["-q", "-F", "-b", "4096", "-m", "0", "-O", "^has_journal"])
                .arg(medium.image()),
        );
        if made && medium.mount("rw") {
            return Some(medium);
        }
        testkit::report_left_out("a failing source needs root, a loop device, ext4 and mkfs.ext4");
        None
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    /// Its mount point, inside the source.
    fn root(&self) -> PathBuf {
        self.source().join("medium")
    }

    fn mountpoint(&self) -> PathBuf {
        self.folder.path().join("mountpoint")
    }

    fn mount(&self, options: &str) -> bool {
        let options = format!("loop,{options}");
        runs(
            Command::new("mount")
                .args(["-t", "ext4", "-o", &options])
                .arg(self.image())
                .arg(self.root()),
        )
    }

    fn unmount(&self) {
        assert!(runs(Command::new("umount").arg(self.root())));
    }

    /// Creates the file `bad`, of which [`GOOD_BLOCKS`] can be read: the loop device ends there.
    fn with_bad_file(self) -> Option<Self> {
        fs::write(self.root().join("bad"), vec![7; FILE_BYTES]).unwrap();
        self.unmount();
        let blocks = Command::new("debugfs")
            .args(["-R", "blocks /bad"])
            .arg(self.image())
            .output()
            .expect("debugfs comes with mkfs.ext4");
        let blocks = String::from_utf8(blocks.stdout).unwrap();
        let blocks: Vec<u64> = blocks
            .split_whitespace()
            .map(|block| block.parse().expect("block numbers"))
            .collect();
        assert_eq!(
            u64::try_from(FILE_BYTES).unwrap().div_ceil(BLOCK),
            u64::try_from(blocks.len()).unwrap()
        );
        let good = usize::try_from(GOOD_BLOCKS).unwrap();
        let end = blocks[good];
        assert!(
            blocks[..good].iter().all(|block| *block < end),
            "the file lies in one piece"
        );
        assert!(self.mount("ro"));
        let image = File::options().write(true).open(self.image()).unwrap();
        image.set_len(end * BLOCK).unwrap();
        Some(self)
    }

    fn serve(&self, arguments: &[&str]) {
        let output = tidegate()
            .arg("mount")
            .args([self.source(), self.mountpoint()])
            .args(arguments)
            .output()
            .expect("the binary runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn end(&self) {
        let output = tidegate().arg("unmount").arg(self.mountpoint()).output();
        assert!(output.expect("the binary runs").status.success());
    }
}

impl Drop for Medium {
    fn drop(&mut self) {
        // Best effort; the image goes with its folder.
        let _ = tidegate()
            .args(["unmount", "--lazy"])
            .arg(self.mountpoint())
            .output();
        let _ = Command::new("umount").arg("-l").arg(self.root()).output();
    }
}

fn runs(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

fn told<T>(answer: std::io::Result<T>) -> Option<i32> {
    answer.err().and_then(|error| error.raw_os_error())
}

const EIO: Option<i32> = Some(Errno::IO.raw_os_error());

/// Checks the results of reading the file in several ways.
fn check_bad_file(path: &Path, copy: &Path, where_: &str) {
    assert_eq!(
        fs::metadata(path).unwrap().len(),
        u64::try_from(FILE_BYTES).unwrap(),
        "{where_}"
    );
    assert_eq!(told(fs::read(path)), EIO, "read to the end {where_}");
    let mut small = File::open(path).unwrap();
    let mut block = [0; 4096];
    for number in 0..GOOD_BLOCKS {
        let answer = small.read_exact(&mut block);
        assert_eq!(told(answer), None, "block {number} {where_}");
        assert!(block == [7; 4096], "block {number} {where_}");
    }
    assert_eq!(told(small.read(&mut block)), EIO, "the first bad block {where_}");
    let across = small.read_at(&mut [0; 8192], (GOOD_BLOCKS - 1) * BLOCK);
    assert!(
        matches!(across, Ok(4096)) || told(across) == EIO,
        "across the border {where_}"
    );
    for copied in [
        Command::new("cp").arg(path).arg(copy).output().unwrap(),
        Command::new("cat").arg(path).output().unwrap(),
    ] {
        let message = String::from_utf8_lossy(&copied.stderr).into_owned();
        assert!(
            !copied.status.success(),
            "{where_}: {} bytes and success",
            copied.stdout.len()
        );
        assert!(message.contains("Input/output error"), "{where_}: {message}");
    }
}

#[test]
fn a_bad_block_of_the_source_is_an_error_of_the_reader_and_not_the_end_of_the_file() {
    let Some(medium) = Medium::on_loop_device(64 << 20).and_then(Medium::with_bad_file) else {
        return;
    };
    let copy = medium.folder.path().join("copy");
    check_bad_file(&medium.root().join("bad"), &copy, "in the source itself");
    for mode in MODES {
        medium.serve(mode);
        let (bad, within) = (
            medium.mountpoint().join("medium/bad"),
            medium.mountpoint().join("copy"),
        );
        check_bad_file(&bad, &copy, &format!("in mode {mode:?}"));
        check_bad_file(&bad, &within, &format!("copied within mode {mode:?}"));
        let (from, to) = (File::open(&bad).unwrap(), File::create(&within).unwrap());
        let mut copied = 0;
        let failure = loop {
            match rustix::fs::copy_file_range(&from, None, &to, None, FILE_BYTES) {
                Ok(0) => panic!("an end after {copied} bytes in mode {mode:?}"),
                Ok(bytes) => copied += bytes,
                Err(error) => break error,
            }
        };
        assert_eq!(failure, Errno::IO, "copy_file_range in mode {mode:?}");
        drop((from, to));
        medium.end();
    }
}

/// A tmpfs of 2 MiB in the source accepts the part of a write that fits.
#[test]
fn a_source_that_is_full_in_the_middle_of_a_request_is_told_by_write_or_fsync() {
    const NO_SPACE: Option<i32> = Some(Errno::NOSPC.raw_os_error());
    for mode in MODES {
        let Some(medium) = Medium::in_memory("2m") else {
            return;
        };
        fs::write(medium.root().join("spare"), vec![1; 100 << 10]).unwrap();
        let mut filler = File::create(medium.root().join("filler")).unwrap();
        assert_eq!((0..).find_map(|_| told(filler.write_all(&[2; 4096]))), NO_SPACE);
        fs::remove_file(medium.root().join("spare")).unwrap();
        medium.serve(mode);
        let mut file = File::create(medium.mountpoint().join("medium/file")).unwrap();
        let outcome = file.write_all(&[3; 300 << 10]).and_then(|()| file.sync_all());
        assert_eq!(told(outcome), NO_SPACE, "in mode {mode:?}");
        drop(file);
        medium.end();
    }
}
