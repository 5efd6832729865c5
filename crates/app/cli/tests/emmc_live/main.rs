//! `tidegate emmc attach` and related commands, with real loop devices and file systems; needs root, otherwise skipped with
//! a reason. `TIDEGATE_FULL` raises the number of power cuts to a hundred and, with `XFSTESTS_DIR`, adds ten minutes of
//! fsstress.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod bed;
mod dirty_limit;
mod power_cuts;
mod streams;
mod stress;
mod time_scale;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::Command;

use serde_json::Value;

use crate::bed::{Bed, content, device_of, must, pid_of, text};

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
    let maps = format!("{image}.maps");
    let whole = fs::read(&maps).unwrap();
    fs::write(&maps, &whole[..whole.len() / 2]).unwrap();
    let damaged = bed.emmc("attach", &["--store", &image]);
    let message = text(&damaged.stderr);
    assert!(
        message.contains(&maps) && message.contains("remove it"),
        "{message}"
    );
    assert_eq!(damaged.status.code(), Some(2));
}

#[test]
fn requests_have_the_flags_that_the_kernel_tells_of() {
    let Some(bed) = Bed::make() else { return };
    let instances = "/sys/kernel/tracing/instances";
    if !fs::exists(instances).unwrap() {
        testkit::report_left_out("no tracefs at /sys/kernel/tracing");
        return;
    }
    let device = device_of(&bed.attach(&["--size", "64m", "--request-flags", "on"]));
    must("mkfs.ext4", &["-q", "-F", &device]);
    let before = bed.stats(&device);
    bed.mount(&device);
    fs::write(bed.path("mounted/file"), content(2)).unwrap();
    must("sync", &["-f", &bed.path("mounted/file")]);
    bed.unmount();
    let after = bed.stats(&device);
    let more = |name: &str| after[name].as_u64().unwrap() - before[name].as_u64().unwrap();
    assert!(
        more("meta_requests_count") > 0 && more("sync_requests_count") > 0,
        "{after}"
    );
    assert_eq!(after["flags_unknown_count"], 0, "{after}");
    assert!(
        more("flags_joined_count") > more("meta_requests_count"),
        "{after}"
    );
    bed.done("detach", &[&device]);
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
    let pid = pid_of(&report);
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    rustix::process::pidfd_send_signal(&process, rustix::process::Signal::KILL).unwrap();
    let mut watched = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut watched, None)).unwrap();
    bed.done("detach", &["--all"]);
    // Another test may have taken the minor for its own file.
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

/// A process that does not answer, such as one that waits for memory for ever, blocks all who write to its card.
#[test]
fn a_card_whose_process_does_not_answer_is_detached_by_force_and_its_writers_go_on() {
    let Some(bed) = Bed::make() else { return };
    let report = bed.attach(&["--size", "64m"]);
    let device = device_of(&report);
    must("mkfs.ext4", &["-q", "-F", &device]);
    bed.mount(&device);
    let pid = pid_of(&report);
    // From here on, only what the page cache has can be used.
    let mut file = File::create(bed.path("mounted/file")).unwrap();
    file.write_all(&[1; 4096]).unwrap();
    file.sync_all().unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    file.write_all(&[2; 4096]).unwrap();
    let writer = std::thread::spawn(move || file.sync_all());
    let refused = bed.emmc("detach", &[&device]);
    let message = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(
        message.contains("did not answer") && message.contains("--force"),
        "{message}"
    );
    let command = format!("tidegate emmc detach {device} --run-folder {}", bed.path("run"));
    assert!(message.contains(&command), "{message}");
    assert!(!writer.is_finished(), "the card answers");
    bed.done("detach", &["--force", &device]);
    assert!(writer.join().unwrap().is_err());
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    let own = bed.folder.path().to_str().unwrap();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!table.contains(own), "{table}");
    assert_eq!(fs::read_dir(bed.path("run")).unwrap().count(), 0);
    let ended = || fs::read_to_string(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    let began = std::time::Instant::now();
    while ended().contains("attach") && began.elapsed() < std::time::Duration::from_secs(20) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(!ended().contains("attach"), "the process is still there");
}

#[test]
fn a_card_that_was_open_at_a_detach_is_detached_later() {
    let Some(bed) = Bed::make() else { return };
    let device = device_of(&bed.attach(&["--size", "64m"]));
    let opened = File::open(&device).unwrap();
    let refused = bed.emmc("detach", &[&device]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("still open"),
        "{}",
        text(&refused.stderr)
    );
    drop(opened);
    // Its name alone is enough.
    bed.done("detach", &[device.trim_start_matches("/dev/")]);
    assert_eq!(fs::read_dir(bed.path("run")).unwrap().count(), 0);
}

#[test]
fn xfs_and_btrfs_are_made_and_mounted_on_it() {
    let Some(bed) = Bed::make() else { return };
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    let device = device_of(&bed.attach(&["--size", "512m"]));
    for (name, maker, force) in [("xfs", "mkfs.xfs", "-f"), ("btrfs", "mkfs.btrfs", "-f")] {
        if !known.contains(name) || Command::new(maker).arg("-V").output().is_err() {
            testkit::report_left_out(format!("no {name} here"));
            continue;
        }
        must(
            "unshare",
            &[
                "-m",
                "sh",
                "-c",
                testkit::BESIDE_DEAD_MOUNTS,
                maker,
                maker,
                "-q",
                force,
                &device,
            ],
        );
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
fn attached_cards_are_listed_with_their_counters() {
    let Some(bed) = Bed::make() else { return };
    let device = device_of(&bed.attach(&["--size", "64m"]));
    let list: Value = serde_json::from_str(&bed.done("stats", &["--json"])).unwrap();
    assert_eq!(
        (&list["device"], &list["answers"]),
        (&device.as_str().into(), &true.into())
    );
    assert!(bed.done("stats", &[]).contains(&device));
    let shown = bed.done("stats", &[&device]);
    assert!(
        shown.starts_with(&format!("{device}: card ")) && shown.contains(", up "),
        "{shown}"
    );
    let metrics = bed.done("stats", &[&device, "--prometheus"]);
    assert!(
        metrics.contains("# TYPE tidegate_source_late_p50_ns gauge")
            && metrics.contains("# TYPE tidegate_source_time_scale_ratio gauge"),
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

#[test]
fn a_device_of_another_run_folder_is_answered_with_that_folder() {
    let (Some(bed), Some(other)) = (Bed::make(), Bed::make()) else {
        return;
    };
    let device = device_of(&bed.attach(&["--size", "64m"]));
    for command in ["stats", "cut", "detach"] {
        let refused = other.emmc(command, &[&device]);
        let message = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{command}: {message}");
        assert!(
            message.contains(&format!("run folder {}", other.path("run")))
                && message.contains(&format!("add --run-folder {}\n", bed.path("run"))),
            "{command}: {message}"
        );
    }
    let unknown = text(&other.emmc("stats", &["/dev/loop9999"]).stderr);
    assert!(
        unknown.contains(&other.path("run")) && unknown.contains("with --run-folder"),
        "{unknown}"
    );
    let none = text(&other.emmc("stats", &[]).stderr);
    assert!(none.contains(&other.path("run")), "{none}");
    bed.done("detach", &[&device]);
}
