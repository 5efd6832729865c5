//! Power cuts of an attached card: synced data survives, unsynced data may be lost.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use serde_json::Value;

use crate::bed::{Bed, content, device_of, must, system, text};

/// Creates one file after another, syncs each with its name, and sends its number. Ends at the first error.
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
        // Remove the checked files to keep the card from filling up.
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
        // Mounting replays the journal.
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

/// Flushed data survives. Later writes are in the page cache; if another process syncs the machine meanwhile, they are in
/// the card's cache or being programmed, and some units of them may survive, each complete.
#[test]
fn a_cut_loses_the_cache_and_nothing_that_was_flushed() {
    let Some(bed) = Bed::make() else { return };
    let device = device_of(&bed.attach(&["--size", "64m", "--io-scheduler", "none"]));
    let file = OpenOptions::new().write(true).open(&device).unwrap();
    file.write_all_at(&[1; 256 << 10], 0).unwrap();
    file.sync_all().unwrap();
    assert!(bed.stats(&device)["flushes_count"].as_u64() > Some(0));
    let unflushed = 128 << 10..192 << 10;
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
    for (unit, at) in found.chunks(4096).zip((0..).step_by(4096)) {
        let newest = if unflushed.contains(&at) { 2 } else { 1 };
        assert!(
            unit.iter().all(|byte| *byte == unit[0]) && (1..=newest).contains(&unit[0]),
            "unit at {at}: {:?} ...; the cut: {report}",
            &unit[..16]
        );
    }
}

/// Unmounts a folder on drop.
struct Mounted(String);

impl Drop for Mounted {
    fn drop(&mut self) {
        system("umount", &["-l", &self.0]);
    }
}

/// A FUSE mount with a write-back cache answers SEEK_DATA without the data in its page cache.
#[test]
fn a_cut_restores_data_of_a_store_that_is_in_the_page_cache_of_a_mount() {
    let Some(bed) = Bed::make() else { return };
    let [source, shown] = ["source", "shown"].map(|name| bed.path(name));
    for folder in [&source, &shown] {
        fs::create_dir(folder).unwrap();
    }
    let options = ["--passthrough", "off", "--writeback", "on"];
    must(
        env!("CARGO_BIN_EXE_tidegate"),
        &[&["mount", &source, &shown], &options[..]].concat(),
    );
    let mounted = Mounted(shown.clone());
    let store = format!("{shown}/card.img");
    // A slow card, so that data is in the store long before it is programmed.
    let attached = bed.done("attach", &["--json", "--size", "64m", "--store", &store]);
    let device = device_of(&serde_json::from_str(&attached).unwrap());
    let open = || OpenOptions::new().write(true).open(&device).unwrap();
    let filled = |byte| {
        let file = open();
        move || {
            file.write_all_at(&[byte; 1 << 20], 0)
                .and_then(|()| file.sync_all())
        }
    };
    filled(1)().unwrap();
    let mut found = vec![0; 1 << 20];
    // A cut between two writes restores nothing.
    let is_tested = (0..20).any(|_| {
        let (fill, (tell, told)) = (filled(2), mpsc::channel());
        let writer = thread::spawn(move || {
            while fill().is_ok() {
                let _ = tell.send(());
            }
        });
        told.iter().take(3).for_each(drop);
        let report: Value = serde_json::from_str(&bed.done("cut", &[&device, "--json"])).unwrap();
        writer.join().unwrap();
        bed.done("cut", &[&device, "--reattach"]);
        File::open(&device).unwrap().read_exact(&mut found).unwrap();
        assert_eq!(found.iter().position(|byte| *byte == 0), None, "{report}");
        report["last_cut"]["reverted_bytes"] != 0
    });
    assert!(is_tested, "no cut restored anything");
    bed.done("detach", &[&device]);
    drop(mounted);
}
