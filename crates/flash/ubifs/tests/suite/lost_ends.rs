//! The end of a journal head or of the log on an array, lost after the process was killed: through two damages in one
//! row, or without parity through one. It looks like a write that a power cut tore. Either every synced file is right, or
//! the loss is told by the checker, by a reader and by a mount.
#![expect(
    clippy::print_stdout,
    reason = "how many damages there were, for who asks with --nocapture"
)]

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::lost::{BITS, Files, NEW_FILE, VID_PAGE};
use crate::support::medium::Medium;
use crate::support::rig::SMALL;
use array::{Execution, Redundancy};
use media::{Leb, Page, Peb, index};
use testkit::prng::Prng;
use ubi::{Access, AttachOptions, Volume, VolumeId};
use ubifs::check::check;
use ubifs::format::ROOT_INODE;
use ubifs::mkfs::Time;
use ubifs::{OpenOptions, Ubifs, UbifsError, Writer};

fn attached(medium: &Medium, access: Access) -> array::Array {
    let chips = medium.chips().to_vec();
    array::attach(chips, AttachOptions::linux(access), Execution::Inline).expect("it attaches")
}

/// Files that are not as they were synced, with the cause.
#[derive(Debug, Default)]
struct Faults {
    /// Damage is the answer to a read: nobody takes it for the file.
    errors: Vec<String>,
    wrong: Vec<String>,
}

fn faults(ubifs: &Ubifs, files: &Files) -> Faults {
    let mut faults = Faults::default();
    for (name, content) in files {
        match is_right(ubifs, name, content) {
            Ok(true) => {}
            Ok(false) => faults.wrong.push(name.clone()),
            Err(error @ UbifsError::Damaged { .. }) => faults.errors.push(format!("{name}: {error}")),
            Err(error) => faults.wrong.push(format!("{name}: {error}")),
        }
    }
    faults
}

fn is_right(ubifs: &Ubifs, name: &str, content: &[u8]) -> Result<bool, UbifsError> {
    let entry = ubifs.lookup(ROOT_INODE, name.as_bytes())?;
    let inode = ubifs.inode(entry.inode)?;
    let mut found = vec![0; content.len()];
    let read = ubifs.read(&inode, 0, &mut found)?;
    let is_of_size = inode.size_bytes == u64::try_from(content.len()).expect("small");
    Ok(read == content.len() && is_of_size && found == content)
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
    // A LEB that looks like an interrupted map: every command on the array says so.
    let told_by_array = array.resolution().forgotten > 0;
    let report = check(&*volume);
    let told_by_check = told_by_array || !report.findings.is_empty() || !report.doubts.is_empty();
    let ubifs = Ubifs::open(volume, OpenOptions::standard()).expect("superblock and master are whole");
    let told_by_open =
        told_by_array || !ubifs.findings().is_empty() || !ubifs.replay_report().doubts.is_empty();
    let found = faults(&ubifs, files);
    let is_right = found.errors.is_empty() && found.wrong.is_empty();
    done.wrong += u32::from(!is_right);
    assert!(
        is_right || told_by_check,
        "{what}: {found:?}, and the checker says nothing"
    );
    assert!(
        found.wrong.is_empty() || told_by_open,
        "{what}: {found:?}, and a reader says nothing"
    );
    drop(array);
    let array = attached(damaged, Access::ReadWrite);
    match Writer::open(array.volume().clone(), OpenOptions::standard()) {
        Err(_) => done.refused += 1,
        Ok(writer) => {
            let found = faults(writer.read(), files);
            let is_told = told_by_array || !writer.read().replay_report().doubts.is_empty();
            assert!(
                found.wrong.is_empty() || is_told,
                "{what}: {found:?}, and a mount for writing says nothing"
            );
        }
    }
}

/// A place at which the log or a journal head of a killed process ends.
struct End<'a> {
    killed: &'a Medium,
    /// Files as they were synced.
    files: &'a Files,
    /// The block of the LEB on each member.
    blocks: Vec<Option<Peb>>,
    /// The last written unit of the LEB: a row with parity, a page of one member without.
    unit: u32,
    what: String,
}

fn any(prng: &mut Prng, below: usize) -> usize {
    usize::try_from(prng.below(u64::try_from(below).expect("few"))).expect("few")
}

/// Writes and syncs random files, and calls `damage` for each end after each sync.
fn at_each_end(
    redundancy: Redundancy,
    members: usize,
    seed: u64,
    damage: &mut dyn FnMut(&End<'_>, &mut Prng, &mut Done),
) {
    let medium = Medium::formatted_with(redundancy, SMALL, members);
    let array = attached(&medium, Access::ReadWrite);
    let mut writer = Writer::open(array.volume().clone(), OpenOptions::standard()).expect("it mounts");
    let mut prng = Prng::named(seed, "lost ends");
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
        let units_of_leb = volume.geometry().leb_bytes / volume.geometry().min_io_bytes;
        let report = check(&*volume);
        assert!(
            report.doubts.is_empty() && report.findings.is_empty(),
            "{report:?}"
        );
        for (leb, unit) in ends(&volume, units_of_leb) {
            let blocks = whole
                .devices()
                .iter()
                .map(|device| device.mapping(VolumeId(0))[index(leb)])
                .collect();
            let end = End {
                killed: &killed,
                files: &files,
                blocks,
                unit,
                what: format!("{members} members, seed {seed}, step {step}, LEB {leb}, unit {unit}"),
            };
            damage(&end, &mut prng, &mut done);
        }
    }
    println!("{members} members: {done:?}");
    assert!(done.wrong > 0, "{done:?}");
}

fn two_losses_at_each_end(members: usize, seed: u64) {
    at_each_end(Redundancy::Parity, members, seed, &mut |end, prng, done| {
        let first = any(prng, members);
        let second = (first + 1 + any(prng, members - 1)) % members;
        for kinds in [
            [Damage::Page, Damage::Page],
            [Damage::Page, Damage::Header],
            [Damage::Header, Damage::Header],
        ] {
            let damages = [(first, kinds[0]), (second, kinds[1])];
            let what = format!("{}, {damages:?}", end.what);
            let damaged = end.killed.copy();
            apply(&damaged, &end.blocks, end.unit, &damages);
            judge(&damaged, end.files, &what, done);
            // A single damage costs nothing.
            let damaged = end.killed.copy();
            apply(&damaged, &end.blocks, end.unit, &damages[1..]);
            let array = attached(&damaged, Access::ReadWrite);
            let writer = Writer::open(array.volume().clone(), OpenOptions::standard());
            let writer = writer.unwrap_or_else(|error| panic!("{what}, only the second: {error}"));
            let found = faults(writer.read(), end.files);
            let is_right = found.errors.is_empty() && found.wrong.is_empty();
            assert!(is_right, "{what}, only the second: {found:?}");
            let doubts = &writer.read().replay_report().doubts;
            assert!(doubts.is_empty(), "{what}, only the second: {doubts:?}");
        }
    });
}

#[test]
fn two_losses_at_the_end_of_a_head_are_told_by_arrays_of_three() {
    two_losses_at_each_end(3, 4152);
}

#[test]
fn two_losses_at_the_end_of_a_head_are_told_by_arrays_of_four() {
    two_losses_at_each_end(4, 4146);
}

/// Regression: an unreadable last page of the log was taken for a torn write, and all files were empty without a word.
#[test]
fn one_loss_at_the_end_of_a_head_is_told_by_arrays_without_parity() {
    for members in [2, 3, 4] {
        at_each_end(Redundancy::None, members, 4160, &mut |end, _, done| {
            let pages = u32::try_from(members).expect("few");
            // The last write may have had several pages.
            for page in end.unit.saturating_sub(2 * pages)..=end.unit {
                for kind in [Damage::Page, Damage::Header] {
                    let member = index(page % pages);
                    let what = format!("{}, page {page}, {kind:?}", end.what);
                    let damaged = end.killed.copy();
                    apply(&damaged, &end.blocks, page / pages, &[(member, kind)]);
                    judge(&damaged, end.files, &what, done);
                }
            }
        });
    }
}
