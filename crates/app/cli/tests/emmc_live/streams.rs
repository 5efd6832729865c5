//! A stream through `tidegate mount` to a file system on a card.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Output};

use serde_json::Value;

use crate::bed::{Bed, device_of, must, text};

const MIB: usize = 1 << 20;

fn tidegate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .output()
        .unwrap()
}

/// Writes `bytes` of `value` in records of 512 KiB.
fn append(file: &mut File, bytes: usize, value: u8) -> std::io::Result<()> {
    let record = vec![value; MIB / 2];
    (0..bytes)
        .step_by(record.len())
        .try_for_each(|_| file.write_all(&record))
}

/// Milliseconds of all requests to `device` together, and milliseconds in which it had any.
fn request_times(device: &str) -> (u64, u64) {
    let path = format!("/sys/block/{}/stat", device.trim_start_matches("/dev/"));
    let line = fs::read_to_string(path).unwrap();
    let fields: Vec<u64> = line
        .split_whitespace()
        .map(|field| field.parse().unwrap())
        .collect();
    (fields[10], fields[9])
}

/// The card takes less than 40 MB/s. 8 MiB go through the page cache, then four entries past it, all slow.
#[test]
fn a_stream_to_a_card_returns_to_the_page_cache_and_fsync_covers_it_and_tells_its_errors() {
    let Some(bed) = Bed::make() else { return };
    let attached = bed.done("attach", &["--json", "--size", "256m"]);
    let device = device_of(&serde_json::from_str(&attached).unwrap());
    must("mkfs.ext4", &["-q", "-F", &device]);
    bed.mount(&device);
    let shown = bed.path("shown");
    fs::create_dir(&shown).unwrap();
    let options = [
        "--passthrough",
        "off",
        "--writeback",
        "off",
        "--flush-interval",
        "30s",
    ];
    let mounted = tidegate(&[&["mount", &bed.path("mounted"), &shown], &options[..]].concat());
    assert!(mounted.status.success(), "{}", text(&mounted.stderr));

    let mut file = File::create(format!("{shown}/stream")).unwrap();
    append(&mut file, 24 * MIB, 1).unwrap();
    file.sync_all().unwrap();
    let stats: Value = serde_json::from_slice(&tidegate(&["stats", &shown, "--json"]).stdout).unwrap();
    let source = &stats["backing"];
    assert_eq!(
        (
            source["direct_writes"].as_u64(),
            source["write_outs_started"].as_u64()
        ),
        (Some(4), Some(8)),
        "{stats}"
    );

    let before = request_times(&device);
    append(&mut file, 16 * MIB, 1).unwrap();
    file.sync_all().unwrap();
    let after = request_times(&device);
    let (all, busy) = (after.0 - before.0, after.1 - before.1);
    // A direct write of an entry is four requests of 512 KiB.
    assert!(
        all > 4 * busy,
        "{all} ms of requests in {busy} ms: one entry at a time"
    );

    append(&mut file, 16 * MIB, 2).unwrap();
    bed.done("cut", &[&device]);
    let lost = file.sync_all();
    assert!(lost.is_err(), "data that the card does not have was synced");
    drop(file);
    tidegate(&["unmount", &shown]);
    bed.unmount();
    bed.done("cut", &[&device, "--reattach"]);
    bed.mount(&device);
    let kept = fs::read(format!("{}/stream", bed.path("mounted"))).unwrap();
    assert!(kept.len() >= 40 * MIB && kept[..40 * MIB].iter().all(|byte| *byte == 1));
    bed.unmount();
    bed.done("detach", &[&device]);
}
