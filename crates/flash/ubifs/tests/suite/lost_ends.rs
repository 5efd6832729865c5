//! The end of a journal head or of the log on an array, lost through two damages in one row after the process was
//! killed. It looks like a write that a power cut tore. Either every synced file is right, or the loss is told by the
//! checker, by a reader and by a mount.
#![expect(
    clippy::print_stdout,
    reason = "how many damages there were, for who asks with --nocapture"
)]

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::lost::{BITS, Files, NEW_FILE, VID_PAGE};
use crate::support::medium::Medium;
use crate::support::rig::{Chip, SMALL};
use array::{Execution, Redundancy};
use media::{Leb, Page, Peb, index};
use testkit::prng::Prng;
use ubi::{Access, AttachOptions, Volume, VolumeId};
use ubifs::check::check;
use ubifs::format::ROOT_INODE;
use ubifs::mkfs::Time;
use ubifs::{OpenOptions, Ubifs, Writer};

fn attached(medium: &Medium, access: Access) -> array::Array<Chip> {
    let chips = medium.chips().to_vec();
    array::attach(chips, AttachOptions::linux(access), Execution::Inline).expect("it attaches")
}

/// Whether each file is as it was synced.
fn all_right(ubifs: &Ubifs, files: &Files) -> Result<(), String> {
    for (name, content) in files {
        let entry = ubifs.lookup(ROOT_INODE, name.as_bytes());
        let entry = entry.map_err(|error| format!("{name}: {error}"))?;
        let inode = ubifs
            .inode(entry.inode)
            .map_err(|error| format!("{name}: {error}"))?;
        let mut found = vec![0; content.len()];
        let read = ubifs
            .read(&inode, 0, &mut found)
            .map_err(|error| format!("{name}: {error}"))?;
        if read != content.len()
            || inode.size_bytes != u64::try_from(content.len()).expect("small")
            || found != *content
        {
            return Err(format!("{name} is wrong"));
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    /// The member's page of the row.
    Page,
    /// The header of the member's block: it loses its share of the LEB.
    Header,
}

/// Damages a member's part of a row, on a copy.
fn apply(medium: &Medium, blocks: &[Option<Peb>], row: u32, damages: &[(usize, Damage)]) {
    for (member, damage) in damages {
        let page = match damage {
            Damage::Page => VID_PAGE + 1 + row,
            Damage::Header => VID_PAGE,
        };
        let peb = blocks[*member].expect("it is mapped");
        let mut chip = medium.chips()[*member].lock().expect("no panic");
        chip.inject_bit_flips(peb, Page(page), BITS);
    }
}

/// The last written row of each LEB at which the log or a journal head may end.
fn ends(volume: &Arc<dyn Volume>, rows_of_leb: u32) -> BTreeSet<(u32, u32)> {
    let ubifs = Ubifs::open(Arc::clone(volume), OpenOptions::standard()).expect("undamaged");
    let report = ubifs.replay_report();
    let lebs = report
        .buds
        .iter()
        .map(|bud| bud.leb)
        .chain(report.log_lebs.clone());
    let row_bytes = volume.geometry().min_io_bytes;
    lebs.filter_map(|leb| {
        let is_written = |row: &u32| {
            let mut bytes = vec![0; index(row_bytes)];
            volume
                .read(Leb(leb), row * row_bytes, &mut bytes)
                .expect("undamaged");
            bytes.iter().any(|byte| *byte != 0xFF)
        };
        Some((leb, (0..rows_of_leb).rev().find(is_written)?))
    })
    .collect()
}

#[derive(Debug, Default)]
struct Done {
    damages: u32,
    wrong: u32,
    refused: u32,
}

/// Asserts that each wrong file of a damaged array is reported.
fn judge(damaged: &Medium, files: &Files, what: &str, done: &mut Done) {
    done.damages += 1;
    let readable = damaged.copy();
    let array = attached(&readable, Access::ReadOnly);
    let volume: Arc<dyn Volume> = array.volume().clone();
    let report = check(&*volume);
    let told_by_check = !report.findings.is_empty() || !report.doubts.is_empty();
    let ubifs = Ubifs::open(volume, OpenOptions::standard()).expect("superblock and master are whole");
    let told_by_open = !ubifs.findings().is_empty() || !ubifs.replay_report().doubts.is_empty();
    if let Err(why) = all_right(&ubifs, files) {
        done.wrong += 1;
        assert!(told_by_check, "{what}: {why}, and the checker says nothing");
        assert!(told_by_open, "{what}: {why}, and a reader says nothing");
    }
    drop(array);
    let array = attached(damaged, Access::ReadWrite);
    match Writer::open(array.volume().clone(), OpenOptions::standard()) {
        Err(_) => done.refused += 1,
        Ok(writer) => {
            if let Err(why) = all_right(writer.read(), files) {
                let told = !writer.read().replay_report().doubts.is_empty();
                assert!(told, "{what}: {why}, and a mount for writing says nothing");
            }
        }
    }
}

fn two_losses_at_each_end(members: usize, seed: u64) {
    let medium = Medium::formatted_with(Redundancy::Parity, SMALL, members);
    let array = attached(&medium, Access::ReadWrite);
    let mut writer = Writer::open(array.volume().clone(), OpenOptions::standard()).expect("it mounts");
    let mut prng = Prng::named(seed, "lost ends");
    let any = |prng: &mut Prng, below: usize| {
        usize::try_from(prng.below(u64::try_from(below).expect("few"))).expect("few")
    };
    let mut files = Files::new();
    let mut done = Done::default();
    let steps = if testkit::is_full() { 200 } else { 24 };
    for step in 0..steps {
        let name = format!("file-{}", any(&mut prng, 12));
        let bytes = 100 + any(&mut prng, 9000);
        let content = prng.bytes(bytes);
        let now = Time::default();
        let entry = writer.read().lookup(ROOT_INODE, name.as_bytes());
        let inode = match entry {
            Ok(entry) => entry.inode,
            Err(_) => writer
                .create(ROOT_INODE, name.as_bytes(), &NEW_FILE, now)
                .expect("room"),
        };
        writer.truncate(inode, 0, now).expect("room");
        writer.write(inode, 0, &content, now).expect("room");
        writer.fsync().expect("no fault");
        files.insert(name, content);
        // The process is killed here.
        let killed = medium.copy();
        let whole = attached(&killed.copy(), Access::ReadOnly);
        let volume: Arc<dyn Volume> = whole.volume().clone();
        let rows_of_leb = volume.geometry().leb_bytes / volume.geometry().min_io_bytes;
        let report = check(&*volume);
        assert!(
            report.doubts.is_empty() && report.findings.is_empty(),
            "{report:?}"
        );
        for (leb, row) in ends(&volume, rows_of_leb) {
            let blocks: Vec<Option<Peb>> = whole
                .devices()
                .iter()
                .map(|device| device.mapping(VolumeId(0))[index(leb)])
                .collect();
            let first = any(&mut prng, members);
            let second = (first + 1 + any(&mut prng, members - 1)) % members;
            for kinds in [
                [Damage::Page, Damage::Page],
                [Damage::Page, Damage::Header],
                [Damage::Header, Damage::Header],
            ] {
                let damages = [(first, kinds[0]), (second, kinds[1])];
                let what =
                    format!("{members} members, seed {seed}, step {step}, LEB {leb}, row {row}, {damages:?}");
                let damaged = killed.copy();
                apply(&damaged, &blocks, row, &damages);
                judge(&damaged, &files, &what, &mut done);
                // A single damage costs nothing.
                let damaged = killed.copy();
                apply(&damaged, &blocks, row, &damages[1..]);
                let array = attached(&damaged, Access::ReadWrite);
                let writer = Writer::open(array.volume().clone(), OpenOptions::standard());
                let writer = writer.unwrap_or_else(|error| panic!("{what}, only the second: {error}"));
                all_right(writer.read(), &files)
                    .unwrap_or_else(|why| panic!("{what}, only the second: {why}"));
                let doubts = &writer.read().replay_report().doubts;
                assert!(doubts.is_empty(), "{what}, only the second: {doubts:?}");
            }
        }
    }
    println!("{members} members: {done:?}");
    assert!(done.wrong > 0, "{done:?}");
}

#[test]
fn two_losses_at_the_end_of_a_head_are_told_by_arrays_of_three() {
    two_losses_at_each_end(3, 4152);
}

#[test]
fn two_losses_at_the_end_of_a_head_are_told_by_arrays_of_four() {
    two_losses_at_each_end(4, 4146);
}
