//! Salvage of damaged volumes, judged by an oracle that knows the files and the place of each of their nodes.
//!
//! Each image has a random history, which ends in an unmount, a sync, or a cut, and random or targeted damage. Files
//! whose nodes are all intact must be right; a file that differs from the truth must be reported.
//!
//! `TIDEGATE_SALVAGE=N`: N images instead of 60 (5,000 with `TIDEGATE_FULL`), starting at `TIDEGATE_SALVAGE_SEED`.
//! `TIDEGATE_SALVAGE_FSCK=N`: N of them are repaired by the stock `fsck.ubifs`, too (100 with `TIDEGATE_FULL`).

mod damage;
mod generator;
mod oracle;
mod rebuilt;
mod restored_time;
mod short_size;
mod volume;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use ubifs::format::{Inode, InodeNumber, LOG_LEB, NodeKind, Superblock, check};
use ubifs::salvage::{Decision, DeletedFile, Salvage, SalvageOptions};
use ubifs::{Subject, Ubifs};

use self::damage::wreck;
use self::generator::{Made, make_volume};
use self::oracle::{Files, Oracle, files_of};
use self::volume::{LEB_BYTES, MemoryVolume};

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Figures over all images.
#[derive(Debug, Default)]
struct Totals {
    images: u64,
    /// Files whose nodes are all intact.
    intact: u64,
    intact_right: u64,
    /// Files that are right in a normal reading and by salvage.
    normal_right: u64,
    salvage_right: u64,
    /// Wrong files that are reported by a line of their own, or by one about the whole journal.
    wrong_told: u64,
    wrong_told_by_journal: u64,
    wrong_silent: u64,
    faults: Vec<String>,
}

fn lpt_of(raw: &[u8]) -> Range<usize> {
    let superblock = Superblock::decode(raw).expect("it is sound");
    let leb = |number: u32| usize::try_from(number * LEB_BYTES).expect("small");
    let first = LOG_LEB + superblock.log_lebs;
    leb(first)..leb(first + superblock.lpt_lebs)
}

fn salvage(raw: &[u8], holes: Vec<(u32, u32, u32)>) -> Salvage {
    let volume = Arc::new(MemoryVolume::of(raw, holes));
    let options = SalvageOptions {
        lists_deleted: true,
        ..SalvageOptions::standard(&*volume)
    };
    Salvage::scan(volume, options)
}

/// Whether a guess concerns an inode.
fn told_by<'a>(salvage: &'a Salvage) -> impl Fn(InodeNumber) -> bool + 'a {
    let mut ranges = Vec::new();
    let mut inodes: HashSet<InodeNumber> = HashSet::new();
    for guess in salvage.guesses() {
        inodes.extend(guess.inode);
        if let Decision::NewestNodes { first, last, .. } = guess.decision {
            ranges.push(first..=last);
        }
    }
    move |inode| inodes.contains(&inode) || ranges.iter().any(|range| range.contains(&inode))
}

/// Whether a guess is about nodes that a power cut, or the damage, cut off.
fn is_about_cuts(decision: &Decision) -> bool {
    matches!(
        decision,
        Decision::MissingNodes { .. } | Decision::Unfinished | Decision::EmptyBud
    )
}

fn is_journal_told(salvage: &Salvage) -> bool {
    let lost = salvage.losses().iter();
    let mut lost = lost.filter(|finding| finding.subject != Subject::Index);
    let mut guesses = salvage.guesses().iter();
    lost.next().is_some()
        || guesses.any(|guess| is_about_cuts(&guess.decision) || guess.decision == Decision::Boundary)
}

/// Files by inode and line, wherever they are.
fn by_inode(files: &Files) -> HashMap<(InodeNumber, &str), u32> {
    let mut found = HashMap::new();
    for seen in files.values() {
        *found.entry((seen.inode, seen.line.as_str())).or_insert(0) += 1;
    }
    found
}

fn judge(seed: u64, made: &Made, oracle: &Oracle, totals: &mut Totals) {
    let mut random = fastrand::Rng::with_seed(seed ^ 0xDA3A6E);
    let wreck = wreck(&made.raw, &oracle.layout, lpt_of(&made.raw), &mut random);
    let salvaged = salvage(&wreck.raw, wreck.holes.clone());
    let found = files_of(salvaged.tree(), &told_by(&salvaged));
    let journal_told = is_journal_told(&salvaged);
    totals.images += 1;
    let what = |path: &[u8]| {
        format!(
            "seed {seed} {:?} {:?}: {}",
            made.end,
            wreck.ways,
            path.escape_ascii()
        )
    };
    let places = by_inode(&found);
    for (path, expected) in &oracle.files {
        let is_right = found
            .get(path)
            .is_some_and(|seen| seen.line == expected.line && seen.inode == expected.inode);
        totals.salvage_right += u64::from(is_right);
        if oracle.is_intact(path, &wreck.damaged) {
            totals.intact += 1;
            totals.intact_right += u64::from(is_right);
            if !is_right {
                let elsewhere = places.contains_key(&(expected.inode, expected.line.as_str()));
                let seen = found.get(path).map(|seen| &seen.line);
                totals.faults.push(format!(
                    "INTACT {}: {} -> {seen:?}, elsewhere: {elsewhere}",
                    what(path),
                    expected.line
                ));
            }
        }
    }
    for (path, seen) in &found {
        let expected = oracle.files.get(path);
        let is_made = path == b"lost+found";
        if is_made || expected.is_some_and(|expected| expected.line == seen.line) {
            continue;
        }
        if seen.is_told {
            totals.wrong_told += 1;
        } else if journal_told {
            totals.wrong_told_by_journal += 1;
        } else {
            totals.wrong_silent += 1;
            totals.faults.push(format!(
                "SILENT {} (inode {}): {} instead of {:?}",
                what(path),
                seen.inode.0,
                seen.line,
                expected.map(|expected| &expected.line)
            ));
        }
    }
    totals.normal_right += normal_right(&wreck.raw, wreck.holes, &oracle.files);
}

/// Files that a normal reading gets right.
fn normal_right(raw: &[u8], holes: Vec<(u32, u32, u32)>, expected: &Files) -> u64 {
    let volume = Arc::new(MemoryVolume::of(raw, holes));
    let Ok(ubifs) = Ubifs::open(volume, ubifs::OpenOptions::standard()) else {
        return 0;
    };
    let found = files_of(&ubifs, &|_| false);
    let right = expected
        .iter()
        .filter(|(path, seen)| found.get(*path).is_some_and(|found| found.line == seen.line));
    u64::try_from(right.count()).expect("few")
}

#[test]
fn a_sound_volume_is_salvaged_exactly_as_it_is_read() {
    for seed in 0..if testkit::is_full() { 400 } else { 12 } {
        let made = make_volume(seed);
        let oracle = Oracle::of(&made.raw, &[]);
        let salvaged = salvage(&made.raw, Vec::new());
        let found = files_of(salvaged.tree(), &|_| false);
        let differing: BTreeMap<_, _> = oracle
            .files
            .iter()
            .filter(|(path, seen)| found.get(*path) != Some(*seen))
            .map(|(path, seen)| (path.escape_ascii().to_string(), (&seen.line, found.get(path))))
            .collect();
        assert!(differing.is_empty(), "seed {seed} {:?}: {differing:#?}", made.end);
        let more: Vec<_> = found
            .keys()
            .filter(|path| !oracle.files.contains_key(*path))
            .collect();
        assert!(more.is_empty(), "seed {seed} {:?}: {more:?}", made.end);
        let guesses: Vec<_> = salvaged
            .guesses()
            .iter()
            .filter(|guess| made.end == generator::End::Unmounted || !is_about_cuts(&guess.decision))
            .collect();
        assert!(guesses.is_empty(), "seed {seed} {:?}: {guesses:?}", made.end);
        assert!(
            salvaged.losses().is_empty(),
            "seed {seed}: {:?}",
            salvaged.losses()
        );
    }
}

#[test]
fn lebs_in_another_order_give_the_same_files() {
    let (mut all, mut wrong) = (0, Vec::new());
    for seed in 0..if testkit::is_full() { 100 } else { 4 } {
        let made = make_volume(seed);
        let oracle = Oracle::of(&made.raw, &[]);
        let mut lebs: Vec<&[u8]> = made
            .raw
            .chunks(usize::try_from(LEB_BYTES).expect("small"))
            .collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut lebs);
        let salvaged = salvage(&lebs.concat(), Vec::new());
        let told = salvaged
            .guesses()
            .iter()
            .any(|guess| guess.decision == Decision::Renumbered);
        assert!(told, "seed {seed}");
        let found = files_of(salvaged.tree(), &|_| false);
        let is_told = told_by(&salvaged);
        for (path, seen) in &oracle.files {
            all += 1;
            if found.get(path) != Some(seen) {
                assert!(is_told(seen.inode), "seed {seed}: {}", path.escape_ascii());
                wrong.push(format!("seed {seed}: {}", path.escape_ascii()));
            }
        }
    }
    print_shuffled(all, wrong.len());
    // Between two leaves of the index nothing says that a block was truncated.
    assert!(wrong.len() * 100 <= all, "{} of {all}: {wrong:?}", wrong.len());
}

/// Prints the results.
#[expect(clippy::print_stderr, reason = "the figures of a long run are what it is for")]
fn print_shuffled(all: usize, wrong: usize) {
    eprintln!("{all} files of volumes with LEBs in another order, wrong and reported: {wrong}");
}

/// Inodes that have a node with links on the medium.
fn inodes_with_links(raw: &[u8]) -> HashSet<InodeNumber> {
    let nodes = (0..raw.len()).step_by(8).filter_map(|at| {
        let end = (at + 8192).min(raw.len());
        let header = check(&raw[at..end])
            .ok()
            .filter(|header| header.kind == NodeKind::Inode)?;
        let bytes = usize::try_from(header.bytes).expect("small");
        Inode::decode(&raw[at..at + bytes]).ok()
    });
    let linked = nodes.filter(|inode| inode.links > 0);
    linked.map(|inode| inode.key.inode_number()).collect()
}

#[test]
fn deleted_files_are_listed_and_whole_ones_have_their_content() {
    let (mut remaining, mut whole, mut other_names, mut wrong) = (0, 0, 0, Vec::new());
    for seed in 0..if testkit::is_full() { 400 } else { 12 } {
        let made = make_volume(seed);
        // The last operations of a cut are not on the medium.
        if made.end == generator::End::Cut {
            continue;
        }
        let left = inodes_with_links(&made.raw);
        let salvaged = salvage(&made.raw, Vec::new());
        let live = files_of(salvaged.tree(), &|_| false);
        let live: HashSet<InodeNumber> = live.values().map(|seen| seen.inode).collect();
        let listed: HashMap<InodeNumber, DeletedFile> = salvaged
            .deleted()
            .iter()
            .map(|file| (file.inode, file.clone()))
            .collect();
        assert!(listed.keys().all(|inode| !live.contains(inode)), "seed {seed}");
        let tree = salvaged.into_deleted_tree(Vec::new()).expect("it was asked for");
        let paths = files_of(&tree, &|_| false);
        let named: HashSet<InodeNumber> = paths.values().map(|seen| seen.inode).collect();
        for removed in made
            .removed
            .iter()
            .filter(|removed| left.contains(&removed.inode))
        {
            remaining += 1;
            let file = listed.get(&removed.inode);
            let file = file.unwrap_or_else(|| panic!("seed {seed}: {removed:?} is not listed"));
            assert!(
                named.contains(&removed.inode),
                "seed {seed}: {file:?} is not in the tree"
            );
            if let Some((_, name)) = &file.name {
                other_names += usize::from(*name != removed.name);
            }
            let inode = tree.inode(removed.inode).expect("its node is there");
            let mut content = vec![0; removed.content.len()];
            tree.read(&inode, 0, &mut content).expect("its nodes are good");
            let is_right = content == removed.content && file.size_bytes == inode.size_bytes;
            if file.is_whole() {
                whole += 1;
                if !is_right {
                    wrong.push(format!("seed {seed}: {file:?}"));
                }
            }
        }
    }
    print_deleted(remaining, whole, other_names, &wrong);
    // A later node of the others may be missing, as a commit erases the log.
    assert!(
        remaining > 50 && whole * 5 > remaining,
        "{whole} of {remaining} whole"
    );
    // The last one of several names is known only if its removal is left.
    assert!(
        other_names * 100 <= remaining,
        "{other_names} of {remaining} have another name"
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Prints the results.
#[expect(clippy::print_stderr, reason = "the figures of a long run are what it is for")]
fn print_deleted(remaining: usize, whole: usize, other_names: usize, wrong: &[String]) {
    eprintln!(
        "{remaining} deleted files listed, {other_names} under another name, {whole} whole, of them wrong: {}",
        wrong.len()
    );
}

#[test]
fn intact_files_are_salvaged_and_wrong_ones_are_reported() {
    let images = setting("TIDEGATE_SALVAGE").unwrap_or(if testkit::is_full() { 5000 } else { 60 });
    let first = setting("TIDEGATE_SALVAGE_SEED").unwrap_or(0);
    let mut totals = Totals::default();
    for seed in first..first + images {
        // Several kinds of damage for each history.
        let made = make_volume(seed / 4);
        let oracle = Oracle::of(&made.raw, &[]);
        judge(seed, &made, &oracle, &mut totals);
    }
    print_totals(&totals);
    let faults = totals.faults.join("\n");
    assert_eq!(
        totals.wrong_silent, 0,
        "{faults}\nrepeat with TIDEGATE_SALVAGE_SEED=<seed> TIDEGATE_SALVAGE=1"
    );
    let wrong = totals.intact - totals.intact_right;
    assert!(
        wrong * 1000 <= totals.intact,
        "{wrong} of {} are wrong\n{faults}",
        totals.intact
    );
    assert!(totals.intact > images * 5 && totals.salvage_right > totals.normal_right);
}

/// Prints the results.
#[expect(clippy::print_stderr, reason = "the figures of a long run are what it is for")]
fn print_totals(totals: &Totals) {
    eprintln!(
        "{} images: intact files {}, right {}; right by a normal reading {}, by salvage {}; wrong and reported {}, \
         by a line about the journal {}, without a word {}",
        totals.images,
        totals.intact,
        totals.intact_right,
        totals.normal_right,
        totals.salvage_right,
        totals.wrong_told,
        totals.wrong_told_by_journal,
        totals.wrong_silent
    );
}
