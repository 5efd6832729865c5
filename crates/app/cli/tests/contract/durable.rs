//! Programs whose data must survive a power cut or the death of the daemon.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::ReadWriteFlags;

use crate::mounted::{Mounted, Place, Program, programs, sync};
use crate::programs::both_ways;

pub fn programs() -> Vec<Program> {
    programs!["durability":
        writes_by_synchronous_descriptors_outlive_a_power_cut,
        writes_with_synchronous_flags_outlive_a_power_cut,
        synchronous_appends_outlive_a_power_cut,
        data_synced_by_another_process_survives_a_power_cut,
        a_file_that_is_synced_renamed_and_its_folder_synced_outlives_a_power_cut,
    ]
}

fn bytes(length: usize, seed: u64) -> Vec<u8> {
    testkit::prng::Prng::named(seed, "contract on mounts").bytes(length)
}

fn with_flags(path: &Path, flags: OFlags, append: bool) -> File {
    let flags = i32::try_from(flags.bits()).expect("small numbers");
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(!append)
        .append(append)
        .create(true)
        .custom_flags(flags);
    options.open(path).expect("the file can be made")
}

#[track_caller]
fn check(place: &Place<'_>, name: &str, expected: &[u8], what: &str) {
    let Some(left) = place.after_power_cut(name) else {
        return;
    };
    let left = left.unwrap_or_else(|| panic!("{what}: the name would be gone after a power cut"));
    assert!(
        left == expected,
        "{what}: a power cut would leave {} of {} bytes, or other ones",
        left.len(),
        expected.len()
    );
}

fn writes_by_synchronous_descriptors_outlive_a_power_cut(place: &Place<'_>) {
    for (name, flags) in [("dsync", OFlags::DSYNC), ("sync", OFlags::SYNC)] {
        let file = with_flags(&place.root.join(name), flags, false);
        sync(&place.root);
        let data = bytes(50_000, 1);
        file.write_all_at(&data[..3_000], 0).expect("there is room");
        check(place, name, &data[..3_000], name);
        file.write_all_at(&data[3_000..], 3_000).expect("there is room");
        check(place, name, &data, name);
    }
}

fn writes_with_synchronous_flags_outlive_a_power_cut(place: &Place<'_>) {
    for (name, flags) in [("dsync", ReadWriteFlags::DSYNC), ("sync", ReadWriteFlags::SYNC)] {
        let file = both_ways(&place.root.join(name));
        sync(&place.root);
        let data = bytes(5_000, 2);
        let written = rustix::io::pwritev2(&file, &[IoSlice::new(&data)], 0, flags);
        assert_eq!(written, Ok(5_000));
        check(place, name, &data, name);
    }
}

fn synchronous_appends_outlive_a_power_cut(place: &Place<'_>) {
    let mut log = with_flags(&place.root.join("log"), OFlags::DSYNC, true);
    sync(&place.root);
    let data = bytes(9_000, 3);
    for piece in data.chunks(3_000) {
        log.write_all(piece).expect("there is room");
    }
    check(place, "log", &data, "appends");
}

fn data_synced_by_another_process_survives_a_power_cut(place: &Place<'_>) {
    for (name, command) in [("all", "sync all"), ("data", "sync --data data")] {
        let file = both_ways(&place.root.join(name));
        sync(&place.root);
        let data = bytes(200_000, 4);
        file.write_all_at(&data, 0).expect("there is room");
        place.shell(&place.root, command);
        check(place, name, &data, command);
    }
}

fn a_file_that_is_synced_renamed_and_its_folder_synced_outlives_a_power_cut(place: &Place<'_>) {
    let data = bytes(20_000, 5);
    let file = both_ways(&place.root.join("temporary"));
    file.write_all_at(&data, 0).expect("there is room");
    file.sync_data().expect("it can be synced");
    drop(file);
    std::fs::rename(place.root.join("temporary"), place.root.join("name")).expect("possible");
    sync(&place.root);
    check(place, "name", &data, "a rename");
    assert!(
        place
            .after_power_cut("temporary")
            .is_none_or(|left| left.is_none()),
        "the old name came back"
    );
}

/// Kills the daemon without a power cut: only data held by the daemon may be lost.
pub fn synced_data_survives_a_killed_daemon(mut mounted: Mounted) {
    let mode = mounted.mode.name;
    let data = bytes(300_000, 6);
    let synced = both_ways(&mounted.root().join("synced"));
    synced.write_all_at(&data, 0).expect("there is room");
    synced.sync_all().expect("it can be synced");
    let direct = with_flags(&mounted.root().join("dsync"), OFlags::DSYNC, false);
    direct.write_all_at(&data, 0).expect("there is room");
    let mut names = vec!["synced", "dsync"];
    if mounted.has_source() {
        // The host has the data of closed files; UBIFS guarantees only fsync.
        let closed = both_ways(&mounted.root().join("closed"));
        closed.write_all_at(&data, 0).expect("there is room");
        names.push("closed");
    }
    mounted.kill();
    drop((synced, direct));
    let left = mounted.left();
    for name in names {
        let found = std::fs::read(left.join(name)).expect("it was made");
        assert!(
            found == data,
            "mode {mode}: {name} lost data with the daemon, {} bytes are left",
            found.len()
        );
    }
}
