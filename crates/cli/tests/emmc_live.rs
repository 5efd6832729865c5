//! `tidegate emmc attach` and what belongs to it, as root with real loop devices and file systems; skipped with a reason
//! elsewhere. `TIDEGATE_FULL` makes a hundred power cuts out of a few.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests too")]
#![expect(clippy::print_stderr, reason = "a skipped test says why")]

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc;
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A program of the system, which Debian may keep out of the path of ordinary shells.
fn system(program: &str, arguments: &[&str]) -> Output {
    let path = std::env::var("PATH").unwrap_or_default();
    Command::new(program)
        .args(arguments)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn must(program: &str, arguments: &[&str]) -> String {
    let output = system(program, arguments);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// A folder for one test: a quick card, and the descriptions of what is attached. Takes all of it away at its end.
struct Bed {
    folder: TempDir,
}

impl Bed {
    /// `None`, with a reason printed, where loop devices or FUSE can't be had.
    fn make() -> Option<Self> {
        let skip = |reason: &str| {
            eprintln!("skipped: {reason}");
            None
        };
        if !rustix::process::geteuid().is_root() {
            return skip("needs root");
        }
        for device in ["/dev/fuse", "/dev/loop-control"] {
            if let Err(error) = OpenOptions::new().read(true).write(true).open(device) {
                return skip(&format!("{device}: {error}"));
            }
        }
        let folder = TempDir::new().unwrap();
        let card = include_str!("../../emmc/cards/gt-i9300.toml")
            .replace("program_us = [500, 1300]", "program_us = [20, 40]")
            .replace("read_us = [100, 100]", "read_us = [5, 5]")
            .replace("program_slc_us = 400", "program_slc_us = 15")
            .replace("erase_us = 3500", "erase_us = 100")
            .replace("transfer_ns = 200000", "transfer_ns = 4000")
            .replace("command_ns = 100000", "command_ns = 5000")
            .replace("cache = false", "cache = true");
        fs::write(folder.path().join("quick.toml"), card).unwrap();
        fs::create_dir(folder.path().join("mounted")).unwrap();
        Some(Self { folder })
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn emmc(&self, command: &str, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["emmc", command, "--run-folder", &self.path("run")])
            .args(arguments)
            .output()
            .unwrap()
    }

    fn done(&self, command: &str, arguments: &[&str]) -> String {
        let output = self.emmc(command, arguments);
        assert!(
            output.status.success(),
            "{command} {arguments:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Attaches a quick card; gives the report.
    fn attach(&self, arguments: &[&str]) -> Value {
        let (card, host) = (self.path("quick.toml"), "cqhci-hs400");
        let fixed = ["--card", &card, "--host", host, "--json"];
        serde_json::from_str(&self.done("attach", &[&fixed, arguments].concat())).unwrap()
    }

    fn stats(&self, device: &str) -> Value {
        serde_json::from_str(&self.done("stats", &[device])).unwrap()
    }

    fn mount(&self, device: &str) {
        must("mount", &[device, &self.path("mounted")]);
    }

    fn unmount(&self) {
        must("umount", &[&self.path("mounted")]);
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Best effort: a failure here would hide the test's own message.
        let _ = self.emmc("detach", &["--all", "--force"]);
    }
}

fn device_of(report: &Value) -> String {
    report["device"].as_str().unwrap().to_owned()
}

/// What file `number` holds: of its own length and content.
fn content(number: u64) -> Vec<u8> {
    let length = 1000 + usize::try_from(number * 7919 % 60_000).unwrap();
    let mut random = testkit::prng::Prng::new(number);
    std::iter::from_fn(|| Some(random.next_u64().to_le_bytes()))
        .flatten()
        .take(length)
        .collect()
}

/// Makes one file after the other and puts each, with its name, on the medium; tells each that is there. Ends when it can't.
fn write_files(folder: &Path, first: u64, told: &mpsc::Sender<u64>) -> std::io::Result<()> {
    for number in first.. {
        let mut file = File::create(folder.join(number.to_string()))?;
        file.write_all(&content(number))?;
        file.sync_all()?;
        File::open(folder)?.sync_all()?;
        if told.send(number).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

#[test]
fn files_that_were_synced_outlive_every_power_cut() {
    let Some(bed) = Bed::make() else { return };
    let device = device_of(&bed.attach(&["--size", "128m"]));
    must(
        "mkfs.ext4",
        &[
            "-q",
            "-F",
            "-E",
            "lazy_itable_init=0,lazy_journal_init=0",
            &device,
        ],
    );
    let cuts: u64 = if testkit::is_full() { 100 } else { 4 };
    let mut next = 0;
    for cut in 0..cuts {
        bed.mount(&device);
        let folder = PathBuf::from(bed.path("mounted"));
        // The card stays small; what was checked goes.
        for old in 0..next {
            fs::remove_file(folder.join(old.to_string())).ok();
        }
        let (tell, told) = mpsc::channel();
        let (writing, first) = (folder.clone(), next);
        let writer = thread::spawn(move || write_files(&writing, first, &tell));
        let wanted = 3 + cut * 5 % 17;
        let mut kept: Vec<u64> = told.iter().take(usize::try_from(wanted).unwrap()).collect();
        let torn: &[&str] = if cut % 2 == 1 { &["--torn"] } else { &[] };
        bed.done("cut", &[&[device.as_str()], torn].concat());
        writer.join().unwrap().expect_err("the power is gone");
        kept.extend(told.iter());
        assert!(kept.len() >= 3, "cut {cut} tests nothing");
        bed.unmount();
        bed.done("cut", &[&device, "--reattach"]);
        // The journal is replayed by the mount.
        bed.mount(&device);
        for number in &kept {
            let found = fs::read(folder.join(number.to_string()));
            assert_eq!(
                found.ok(),
                Some(content(*number)),
                "file {number} after cut {cut}, torn: {torn:?}"
            );
        }
        bed.unmount();
        let check = system("e2fsck", &["-f", "-n", &device]);
        assert_eq!(
            check.status.code(),
            Some(0),
            "after cut {cut}: {}",
            text(&check.stdout)
        );
        next = kept.last().unwrap() + 2;
    }
    assert_eq!(bed.stats(&device)["power_cuts_count"], cuts);
    bed.done("detach", &[&device]);
}

/// A flush makes the first half durable. The second half is in the cache's RAM or in programs when the power goes; of it some
/// units may be there, each whole and never anything else.
#[test]
fn a_cut_loses_the_cache_and_nothing_that_was_flushed() {
    let Some(bed) = Bed::make() else { return };
    let device = device_of(&bed.attach(&["--size", "64m", "--io-scheduler", "none"]));
    let file = OpenOptions::new().write(true).open(&device).unwrap();
    file.write_all_at(&[1; 256 << 10], 0).unwrap();
    file.sync_all().unwrap();
    assert!(bed.stats(&device)["flushes_count"].as_u64() > Some(0));
    // In the page cache alone: never on the card.
    file.write_all_at(&[2; 64 << 10], 128 << 10).unwrap();
    let report: Value = serde_json::from_str(&bed.done("cut", &[&device, "--json"])).unwrap();
    assert_eq!(report["power"], "off");
    assert!(file.sync_all().is_err(), "without power nothing can be written");
    drop(file);
    let message = text(&bed.emmc("cut", &[&device]).stderr);
    assert!(message.contains("no power"), "{message}");
    bed.done("cut", &[&device, "--reattach"]);
    let mut found = vec![0; 256 << 10];
    File::open(&device).unwrap().read_exact(&mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 1), "what was flushed is there");
}

#[test]
fn discards_reach_the_model_and_read_as_zeroes() {
    let Some(bed) = Bed::make() else { return };
    let device = device_of(&bed.attach(&["--size", "64m", "--discard", "trim"]));
    let mut file = OpenOptions::new().read(true).write(true).open(&device).unwrap();
    file.write_all(&[7; 1 << 20]).unwrap();
    file.sync_all().unwrap();
    must(
        "blkdiscard",
        &["--offset", "262144", "--length", "524288", &device],
    );
    assert_eq!(bed.stats(&device)["discards_count"], 1);
    must(
        "blkdiscard",
        &["--zeroout", "--offset", "0", "--length", "4096", &device],
    );
    assert_eq!(bed.stats(&device)["discards_count"], 2);
    let mut found = vec![1; 1 << 20];
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_exact(&mut found).unwrap();
    let expected = |at: usize| {
        if at < 4096 || (262_144..786_432).contains(&at) {
            0
        } else {
            7
        }
    };
    let wrong = found
        .iter()
        .enumerate()
        .find(|(at, byte)| **byte != expected(*at));
    assert_eq!(wrong, None);
}

#[test]
fn data_in_a_file_outlives_detaching_and_is_had_by_one_at_a_time() {
    let Some(bed) = Bed::make() else { return };
    let image = bed.path("card.img");
    let device = device_of(&bed.attach(&["--size", "64m", "--store", &image]));
    let queue = format!("/sys/block/{}/queue", device.trim_start_matches("/dev/"));
    assert_eq!(
        fs::read_to_string(format!("{queue}/max_sectors_kb"))
            .unwrap()
            .trim(),
        "512"
    );
    let pattern = content(1);
    fs::write(bed.path("pattern"), &pattern).unwrap();
    must(
        "dd",
        &[
            &format!("if={}", bed.path("pattern")),
            &format!("of={device}"),
            "bs=1M",
            "conv=fsync,notrunc",
        ],
    );
    let again = bed.emmc("attach", &["--store", &image]);
    assert_eq!(again.status.code(), Some(2));
    assert!(
        text(&again.stderr).contains("another process"),
        "{}",
        text(&again.stderr)
    );
    bed.done("detach", &[&device]);
    assert_eq!(&fs::read(&image).unwrap()[..pattern.len()], &pattern[..]);
    // Size and card come from the description beside the image.
    let report: Value = serde_json::from_str(&bed.done("attach", &["--json", "--store", &image])).unwrap();
    assert_eq!(report["capacity_bytes"], 64 << 20);
    let mut found = vec![0; pattern.len()];
    File::open(device_of(&report))
        .unwrap()
        .read_exact(&mut found)
        .unwrap();
    assert_eq!(found, pattern);
    bed.done("detach", &["--all"]);
    let other = bed.emmc("attach", &["--size", "32m", "--store", &image]);
    assert!(
        text(&other.stderr).contains("67108864"),
        "{}",
        text(&other.stderr)
    );
}

#[test]
fn after_a_killed_process_detach_clears_everything_away() {
    let Some(bed) = Bed::make() else { return };
    let report = bed.attach(&["--size", "64m"]);
    let device = device_of(&report);
    must("mkfs.ext4", &["-q", "-F", &device]);
    bed.mount(&device);
    let refused = bed.emmc("detach", &[&device]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("is mounted on"),
        "{}",
        text(&refused.stderr)
    );
    fs::write(format!("{}/lost", bed.path("mounted")), [1; 100_000]).unwrap();
    let pid = i32::try_from(report["pid"].as_i64().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    rustix::process::pidfd_send_signal(&process, rustix::process::Signal::KILL).unwrap();
    let mut watched = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut watched, None)).unwrap();
    bed.done("detach", &["--all"]);
    // Another test may have the minor by now, for a file of its own.
    let bound = fs::read_to_string(format!(
        "/sys/block/{}/loop/backing_file",
        device.trim_start_matches("/dev/")
    ));
    let own = bed.folder.path().to_str().unwrap();
    assert!(
        !bound.is_ok_and(|file| file.contains(own)),
        "the loop device is still bound"
    );
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!table.contains(own), "{table}");
    assert_eq!(fs::read_dir(bed.path("run")).unwrap().count(), 0);
}

#[test]
fn xfs_and_btrfs_are_made_and_mounted_on_it() {
    let Some(bed) = Bed::make() else { return };
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    let device = device_of(&bed.attach(&["--size", "512m"]));
    for (name, maker, force) in [("xfs", "mkfs.xfs", "-f"), ("btrfs", "mkfs.btrfs", "-f")] {
        if !known.contains(name) || Command::new(maker).arg("-V").output().is_err() {
            eprintln!("skipped: no {name} here");
            continue;
        }
        must(maker, &["-q", force, &device]);
        bed.mount(&device);
        let file = format!("{}/file", bed.path("mounted"));
        fs::write(&file, content(5)).unwrap();
        bed.unmount();
        bed.mount(&device);
        assert_eq!(fs::read(&file).unwrap(), content(5), "{name}");
        bed.unmount();
    }
}

#[test]
fn what_is_attached_is_listed_with_its_counters() {
    let Some(bed) = Bed::make() else { return };
    let device = device_of(&bed.attach(&["--size", "64m"]));
    let list: Value = serde_json::from_str(&bed.done("stats", &[])).unwrap();
    assert_eq!(
        (&list["device"], &list["answers"]),
        (&device.as_str().into(), &true.into())
    );
    let metrics = bed.done("stats", &[&device, "--prometheus"]);
    assert!(
        metrics.contains("# TYPE tidegate_source_late_p50_ns gauge"),
        "{metrics}"
    );
    let unknown = bed.emmc("stats", &["/dev/loop9999"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text(&unknown.stderr).contains(&device),
        "{}",
        text(&unknown.stderr)
    );
    bed.done("detach", &[&device]);
    assert_eq!(bed.done("stats", &[]), "");
}
