//! Images on a host that crashes: synced data survives, even if all erases since the sync are on the medium and the
//! copies made before them are not.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::support::hosted_chip::HostedChip;
use crate::support::medium::Medium;
use crate::support::rig::SMALL;
use testkit::prng::Prng;
use ubi::Access;
use ubifs::format::{InodeNumber, ROOT_INODE};
use ubifs::mkfs::Time;
use ubifs::{NewFile, OpenOptions, Ubifs, WriteError, Writer};

const SEED: u64 = 0xC4A5;
const BLOCK: usize = 4096;
const BLOCKS: u64 = 2;
const NEW_FILE: NewFile = NewFile {
    mode: 0o100_644,
    user: 0,
    group: 0,
    data: Vec::new(),
};

/// Versions of a block: the last one written, and the last one synced.
#[derive(Clone, Copy, Debug, Default)]
struct Versions {
    written: u64,
    synced: u64,
}

type Model = BTreeMap<(InodeNumber, u64), Versions>;

fn content(inode: InodeNumber, block: u64, version: u64) -> Vec<u8> {
    let seed = u64::from(inode.0) << 40 | block << 32 | version;
    let mut content = Prng::new(seed).bytes(BLOCK);
    content[..8].copy_from_slice(&version.to_le_bytes());
    content
}

fn write(writer: &mut Writer, model: &mut Model, inode: InodeNumber, block: u64) -> Result<(), WriteError> {
    let version = model
        .get(&(inode, block))
        .map_or(1, |versions| versions.written + 1);
    let at = block * u64::try_from(BLOCK).expect("small");
    let written = writer.write(inode, at, &content(inode, block, version), Time::default())?;
    assert_eq!(written, BLOCK);
    model.entry((inode, block)).or_default().written = version;
    Ok(())
}

fn fsync(writer: &mut Writer, model: &mut Model) {
    writer.fsync().expect("the host works");
    for versions in model.values_mut() {
        versions.synced = versions.written;
    }
}

/// Asserts that each block is in its synced version or a later one.
fn assert_kept(chips: &[HostedChip], programs: usize, model: &Model, what: &str) {
    let left = chips
        .iter()
        .map(|chip| Arc::new(Mutex::new(chip.crashed(programs))));
    let medium = Medium::of(left.collect());
    let volume = medium.volume().unwrap_or_else(|error| panic!("{what}: {error}"));
    let writer = Writer::open(volume, OpenOptions::standard());
    let writer = writer.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_versions(writer.read(), model, what);
}

/// Like [`assert_kept`], for a read-only mount, where any programs since the last sync may be missing. The journal
/// may have gaps then; the image is not written to.
fn assert_readable(chip: &HostedChip, model: &Model, prng: &mut Prng, what: &str) {
    let all = chip.unsynced_programs();
    let first = prng.below_usize(all + 1);
    let mut is_kept: [&mut dyn FnMut(usize) -> bool; 3] = [
        &mut |program| program >= first,
        &mut |program| program + 12 >= all,
        &mut |_| prng.chance(50),
    ];
    for (way, is_kept) in is_kept.iter_mut().enumerate() {
        let what = format!("{what}, {all} programs, from {first}, way {way}");
        let left = Arc::new(Mutex::new(chip.crashed_with(*is_kept)));
        let volume = Medium::of(vec![left]).volume();
        let volume = volume.unwrap_or_else(|error| panic!("{what}: {error}"));
        let ubifs = Ubifs::open(volume, OpenOptions::standard());
        let ubifs = ubifs.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_versions(&ubifs, model, &what);
    }
}

fn assert_versions(ubifs: &Ubifs, model: &Model, what: &str) {
    for ((inode, block), versions) in model {
        let what = format!("{what}: {inode}, block {block}, {versions:?}");
        let file = match ubifs.inode(*inode) {
            Ok(file) => file,
            Err(_) if versions.synced == 0 => continue,
            Err(error) => panic!("{what}: {error}"),
        };
        let mut found = vec![0; BLOCK];
        let at = block * u64::try_from(BLOCK).expect("small");
        let read = ubifs.read(&file, at, &mut found);
        let bytes = read.unwrap_or_else(|error| panic!("{what}: {error}"));
        if versions.synced == 0 && (bytes < BLOCK || found.iter().all(|byte| *byte == 0)) {
            continue;
        }
        let version = u64::from_le_bytes(*found.first_chunk().expect("a block"));
        assert!(
            (versions.synced..=versions.written).contains(&version),
            "{what}: {version}"
        );
        assert!(found == content(*inode, *block, version), "{what}: {version}");
    }
}

/// Conditions of a run, besides the writes.
#[derive(Clone, Copy, Debug)]
struct Load {
    members: usize,
    /// Whether background work runs, and after how many writes.
    works_every: Option<u64>,
    is_hidden: bool,
}

#[derive(Debug)]
struct Figures {
    crashes: u64,
    /// Syncs of the first member.
    syncs: u64,
    collected_lebs: u64,
}

/// Overwrites blocks of files on a nearly full file system, with one sync in 40 writes, and crashes the host in some
/// of them.
fn run(load: Load, writes: u64, crash_every: u64) -> Figures {
    let chips = RefCell::new(Vec::new());
    let medium = Medium::formatted(SMALL, load.members);
    let wrap = |chip: &crate::support::rig::Chip| {
        let hosted = HostedChip::new(chip.lock().expect("no panic").clone());
        let hosted = if load.is_hidden { hosted.hidden() } else { hosted };
        chips.borrow_mut().push(hosted.clone());
        hosted
    };
    let (volume, work) = medium
        .attached_through(wrap, Access::ReadWrite)
        .expect("it attaches");
    let chips = chips.into_inner();
    let mut writer = Writer::open(volume, OpenOptions::standard()).expect("it opens");
    let stream = format!("{} members, {:?}", load.members, load.works_every);
    let (mut model, mut prng) = (Model::new(), Prng::named(SEED, &stream));
    let mut files = Vec::new();
    while writer.statistics().free_bytes > 60_000 * u64::try_from(load.members).expect("few") {
        let name = format!("file-{}", files.len());
        let inode = writer.create(ROOT_INODE, name.as_bytes(), &NEW_FILE, Time::default());
        let inode = inode.expect("there is room");
        for block in 0..BLOCKS {
            write(&mut writer, &mut model, inode, block).expect("there is room");
        }
        files.push(inode);
    }
    writer.commit().expect("there is room");
    fsync(&mut writer, &mut model);
    let (syncs, collected) = (chips[0].syncs(), writer.statistics().collected_lebs);
    let mut figures = Figures {
        crashes: 0,
        syncs: 0,
        collected_lebs: 0,
    };
    for number in 0..writes {
        let (inode, block) = (*prng.pick(&files), prng.below(BLOCKS));
        write(&mut writer, &mut model, inode, block).expect("there is room");
        if prng.chance(3) {
            fsync(&mut writer, &mut model);
        }
        if load.works_every.is_some_and(|every| number % every == 0) {
            writer.work().expect("the host works");
            work().expect("the host works");
        }
        if !load.is_hidden && number % crash_every == 0 {
            let what = format!("{load:?}, write {number}");
            assert_kept(&chips, 0, &model, &what);
            figures.crashes += 1;
            // The remains of the members of an array are not from a single point in time.
            if let [chip] = chips.as_slice() {
                let programs = prng.below_usize(chip.unsynced_programs() + 1);
                assert_kept(&chips, programs, &model, &format!("{what}, {programs} programs"));
                assert_readable(chip, &model, &mut prng, &what);
                figures.crashes += 4;
            }
        }
    }
    figures.syncs = chips[0].syncs() - syncs;
    figures.collected_lebs = writer.statistics().collected_lebs - collected;
    figures
}

#[test]
#[expect(clippy::print_stderr, reason = "the figures of a full run")]
fn what_was_synced_survives_erases_that_a_crash_of_the_host_keeps_alone() {
    let is_full = testkit::is_full();
    let (writes, crash_every) = if is_full { (3000, 7) } else { (600, 23) };
    for members in [1, 2, 4] {
        for works_every in [None, Some(25)] {
            let load = Load {
                members,
                works_every,
                is_hidden: false,
            };
            let ordered = run(load, writes, crash_every);
            let is_hidden = true;
            let before = run(Load { is_hidden, ..load }, writes, crash_every);
            eprintln!(
                "{members} members, work beside it {}: {writes} blocks, {} LEBs collected, {} crashes: {} syncs, {} without an order",
                works_every.is_some(),
                ordered.collected_lebs,
                ordered.crashes,
                ordered.syncs,
                before.syncs
            );
            assert!(ordered.collected_lebs > 20, "{load:?}: {ordered:?}");
        }
    }
}
