//! Read-write mounts of images with a forged master node that has a good CRC: whatever it says, no LEB with files or
//! the index may be erased. The mount is refused before anything is written, or all files are there afterwards.
//!
//! `TIDEGATE_MASTERS=N`: N masters of each image instead of 600 (20,000 with `TIDEGATE_FULL`), starting at
//! `TIDEGATE_MASTERS_SEED`.

use std::panic::catch_unwind;
use std::sync::{Arc, Mutex};

use crate::support::rig::{Chip, Lines, Model, SMALL, Weight, attach, lines_of, open};
use media::Leb;
use nand::SimNand;
use testkit::prng::Prng;
use ubi::Volume;
use ubifs::format::{Group, MASTER_LEB, Master, NodeKind, seal};
use ubifs::{OpenOptions, Ubifs, WriteError};

const SEED: u64 = 0x3A57;

/// Fields of the master node: offset and length.
const FIELDS: [(usize, usize); 28] = [
    (24, 8),
    (32, 8),
    (40, 4),
    (44, 4),
    (48, 4),
    (52, 4),
    (56, 4),
    (60, 4),
    (64, 4),
    (68, 4),
    (72, 8),
    (80, 8),
    (88, 8),
    (96, 8),
    (104, 8),
    (112, 8),
    (120, 4),
    (124, 4),
    (128, 4),
    (132, 4),
    (136, 4),
    (140, 4),
    (144, 4),
    (148, 4),
    (152, 4),
    (156, 4),
    (160, 4),
    (164, 4),
];

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn copy(chip: &Chip) -> Chip {
    let now: SimNand = chip.lock().expect("no panic").clone();
    Arc::new(Mutex::new(now))
}

/// A cleanly unmounted chip, and one cut in the middle of its journal. Both have seen many collections and commits,
/// so that old master nodes, logs and trees are still around.
fn images() -> [(&'static str, Chip); 2] {
    let chip: Chip = Arc::new(Mutex::new(SMALL.formatted()));
    let mut model = Model::fresh();
    let mut prng = Prng::named(SEED, "images");
    let mut run = |steps: u32| {
        let mut writer = open(attach(&chip).expect("it attaches")).expect("it opens");
        for step in 0..steps {
            let weight = match step % 3 {
                0 => Weight::Names,
                _ => Weight::Content,
            };
            match model.step(&mut writer, &mut prng, weight) {
                Ok(_) | Err(WriteError::NoSpace { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            if step % 40 == 39 {
                writer.commit().expect("it commits");
            }
        }
        writer
    };
    run(600).unmount().expect("it unmounts");
    let clean = copy(&chip);
    run(150).fsync().expect("it syncs");
    [("unmounted", clean), ("cut", copy(&chip))]
}

fn volume(chip: &Chip) -> Arc<dyn Volume> {
    attach(chip).expect("it attaches")
}

fn files(chip: &Chip, what: &str) -> Lines {
    let ubifs =
        Ubifs::open(volume(chip), OpenOptions::standard()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(ubifs.findings().is_empty(), "{what}: {:?}", ubifs.findings());
    lines_of(&ubifs)
}

fn set_master(volume: &dyn Volume, raw: &[u8]) {
    for leb in [MASTER_LEB, MASTER_LEB + 1] {
        volume.leb_change(Leb(leb), raw).expect("it takes it");
    }
}

fn number(raw: &[u8]) -> u64 {
    raw.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// A master node with some fields changed.
fn lie(good: &[u8], prng: &mut Prng, lebs: u64, leb_bytes: u64) -> Vec<u8> {
    let mut raw = good.to_vec();
    for _ in 0..1 + prng.below(3) {
        let (at, bytes) = *prng.pick(&FIELDS);
        let (other, other_bytes) = *prng.pick(&FIELDS);
        let old = number(&raw[at..at + bytes]);
        let new = match prng.below(10) {
            0 => 0,
            1 => u64::MAX,
            2 => old.wrapping_add(1),
            3 => old.wrapping_sub(1),
            4 => old.wrapping_sub(512 * (1 + prng.below(8))),
            5 => old.wrapping_add(512 * (1 + prng.below(8))),
            6 => prng.below(lebs),
            7 => prng.below(leb_bytes) / 8 * 8,
            8 => number(&raw[other..other + other_bytes]),
            _ => old ^ 1 << prng.below(32),
        };
        raw[at..at + bytes].copy_from_slice(&new.to_le_bytes()[..bytes]);
    }
    let sequence = number(&good[8..16]);
    seal(&mut raw, NodeKind::Master, Group::None, sequence);
    raw
}

#[test]
fn a_mount_for_writing_of_a_master_that_lies_erases_nothing() {
    let count = setting("TIDEGATE_MASTERS").unwrap_or(if testkit::is_full() { 20_000 } else { 600 });
    let first = setting("TIDEGATE_MASTERS_SEED").unwrap_or(0);
    for (name, chip) in images() {
        let expected = files(&chip, name);
        let start = Ubifs::open(volume(&copy(&chip)), OpenOptions::standard()).expect("it is a file system");
        let superblock = start.superblock().clone();
        let good = start.master().encode(u64::MAX >> 24);
        let (mut granted, mut refused) = (0_u64, 0_u64);
        for seed in first..first + count {
            let what = format!("{name}; replay with TIDEGATE_MASTERS_SEED={seed} TIDEGATE_MASTERS=1");
            let chip = copy(&chip);
            let mut prng = Prng::named(seed, name);
            let raw = lie(
                &good,
                &mut prng,
                superblock.lebs.into(),
                superblock.leb_bytes.into(),
            );
            set_master(&*volume(&chip), &raw);
            let opened = catch_unwind(|| open(volume(&chip)));
            match opened.unwrap_or_else(|_| panic!("{what}: a panic")) {
                Ok(writer) => {
                    granted += 1;
                    let unmounted = writer.unmount();
                    unmounted.unwrap_or_else(|error| panic!("{what}: {error}"));
                }
                Err(_) => {
                    refused += 1;
                    set_master(&*volume(&chip), &good);
                }
            }
            let found = files(&chip, &what);
            let lost: Vec<_> = expected
                .iter()
                .filter(|(path, line)| found.get(*path) != Some(line))
                .collect();
            assert!(
                lost.is_empty(),
                "{what}: {:?}; lost: {lost:#?}",
                Master::decode(&raw)
            );
        }
        assert!(
            granted > count / 10 && refused > count / 10,
            "{name}: {granted} granted, {refused} refused"
        );
    }
}

/// Error of a read-write mount that must not change the chip.
fn refusal(chip: &Chip) -> String {
    let before = crate::support::rig::all_of(&*volume(chip));
    let refused = open(volume(chip)).err().expect("it is refused");
    assert!(
        before == crate::support::rig::all_of(&*volume(chip)),
        "something was written"
    );
    refused.to_string()
}

#[test]
fn an_index_whose_root_cannot_be_read_is_refused_before_anything_is_written() {
    for (name, chip) in images() {
        let ubifs = Ubifs::open(volume(&chip), OpenOptions::standard()).expect("it is a file system");
        let (leb, offset) = (ubifs.master().root_leb, ubifs.master().root_offset);
        let volume = volume(&chip);
        let mut raw = vec![0; usize::try_from(volume.geometry().leb_bytes).expect("small")];
        volume.read(Leb(leb), 0, &mut raw).expect("it can be read");
        raw[usize::try_from(offset).expect("small") + 30] ^= 1;
        let end = raw
            .iter()
            .rposition(|byte| *byte != 0xFF)
            .map_or(0, |last| last + 1);
        let changed = volume.leb_change(Leb(leb), &raw[..end.next_multiple_of(512)]);
        changed.expect("it takes it");
        drop(volume);
        let said = refusal(&chip);
        assert!(
            said.contains("index") && said.contains("can be read, not written"),
            "{name}: {said}"
        );
    }
}

#[test]
fn an_index_head_in_the_middle_of_the_index_is_refused() {
    for (name, chip) in images() {
        let ubifs = Ubifs::open(volume(&chip), OpenOptions::standard()).expect("it is a file system");
        let master = Master {
            index_head_leb: ubifs.master().root_leb,
            index_head_offset: 0,
            ..ubifs.master().clone()
        };
        set_master(&*volume(&chip), &master.encode(u64::MAX >> 24));
        let said = refusal(&chip);
        assert!(said.contains("head of the index"), "{name}: {said}");
    }
}
