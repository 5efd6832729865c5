//! The limit of dirty pages of an attached card.

use std::fs::{self, File};

use live::LoopDevice;

use crate::bed::{Bed, device_of, text};

fn setting(device: &str, name: &str) -> u64 {
    let path = format!("/sys/block/{}/bdi/{name}", device.trim_start_matches("/dev/"));
    fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

/// The kernel stores a share of the machine's limit, which changes with its free memory.
fn is_limited(device: &str) -> bool {
    let bytes = setting(device, "max_bytes");
    setting(device, "strict_limit") == 1 && (55 << 20..=80 << 20).contains(&bytes)
}

#[test]
fn an_attached_card_has_its_limit_until_it_is_detached() {
    let Some(bed) = Bed::make() else { return };
    if !testkit::has_dirty_limit() {
        return;
    }
    let unlimited = device_of(&bed.attach(&["--size", "64m"]));
    assert_eq!(setting(&unlimited, "strict_limit"), 0);
    let report = bed.attach(&["--size", "64m", "--dirty-limit", "64m"]);
    let device = device_of(&report);
    assert_eq!(report["dirty_limit_bytes"], 64 << 20);
    assert!(is_limited(&device));
    assert!(bed.done("stats", &[&device]).contains("at most 64 MiB dirty"));
    // A device in use stays attached, with its limit.
    let used = File::open(&device).unwrap();
    let refused = bed.emmc("detach", &[&device]);
    assert!(
        text(&refused.stderr).contains("still open"),
        "{}",
        text(&refused.stderr)
    );
    assert!(is_limited(&device));
    drop(used);
    bed.done("detach", &["--all"]);
}

#[test]
fn a_limit_above_that_of_the_machine_is_refused_and_nothing_stays_attached() {
    let Some(bed) = Bed::make() else { return };
    if !testkit::has_dirty_limit() {
        return;
    }
    let refused = bed.emmc("attach", &["--size", "64m", "--dirty-limit", "1000t"]);
    let message = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(message.contains("vm.dirty_ratio"), "{message}");
    assert!(!fs::exists(bed.path("run")).unwrap());
    let small = bed.emmc("attach", &["--dirty-limit", "4k"]);
    assert_eq!(small.status.code(), Some(2));
    assert!(
        text(&small.stderr).contains("at least 1 MiB"),
        "{}",
        text(&small.stderr)
    );
}

#[test]
fn the_former_settings_of_a_loop_device_come_back() {
    if Bed::make().is_none() || !testkit::has_dirty_limit() {
        return;
    }
    let (device, claim) = LoopDevice::add().unwrap();
    let former = device.dirty_rules().unwrap();
    device.limit_dirty(64 << 20).unwrap();
    assert!(is_limited(&device.name()));
    device.set_dirty_rules(&former).unwrap();
    assert_eq!(device.dirty_rules().unwrap(), former);
    drop(claim);
    device.remove().unwrap();
}
