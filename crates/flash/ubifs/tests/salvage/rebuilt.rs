//! Salvage beside the stock `fsck.ubifs`, which repairs (`-y`) or rebuilds (`-yb`) the same damaged volumes in copies.
//!
//! A repaired copy counts for the files that a normal reading gets right from it, at their paths. Volumes with pages that can't
//! be read are left out: in a file every byte can be.

use std::fs;
use std::path::Path;

use testkit::lab::Fsck;

use crate::damage::wreck;
use crate::generator::make_volume;
use crate::oracle::{Files, Oracle, files_of};
use crate::volume::{LEB_BYTES, PAGE_BYTES};
use crate::{lpt_of, normal_right, salvage, setting, told_by};

/// Files right after each of both repairs, and by salvage; whether `fsck.ubifs` gave up in time.
#[derive(Debug, Default)]
struct Totals {
    images: u64,
    files: u64,
    salvaged: u64,
    repaired: u64,
    rebuilt: u64,
    crashes: u64,
    fewer: Vec<String>,
}

fn right_after(fsck: &Fsck, options: &str, raw: &[u8], folder: &Path, expected: &Files) -> Option<u64> {
    let copy = folder.join("volume");
    fs::write(&copy, raw).expect("the folder is ours");
    let report = fsck.repair(&copy, (LEB_BYTES, PAGE_BYTES), options);
    report.expect("it can be started")?;
    let raw = fs::read(&copy).expect("it is there");
    Some(normal_right(&raw, Vec::new(), expected))
}

#[test]
fn no_fewer_files_are_salvaged_than_fsck_repairs_or_rebuilds() {
    let images = setting("TIDEGATE_SALVAGE_FSCK").unwrap_or(if testkit::is_full() { 100 } else { 0 });
    if images == 0 {
        return;
    }
    let fsck = match Fsck::available() {
        Ok(fsck) => fsck,
        Err(why) => return testkit::report_left_out(why),
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let first = setting("TIDEGATE_SALVAGE_SEED").unwrap_or(0);
    let mut totals = Totals::default();
    for seed in first.. {
        let made = make_volume(seed / 4);
        let oracle = Oracle::of(&made.raw, &[]);
        let mut random = fastrand::Rng::with_seed(seed ^ 0xDA3A6E);
        let wreck = wreck(&made.raw, &oracle.layout, lpt_of(&made.raw), &mut random);
        if !wreck.holes.is_empty() {
            continue;
        }
        let salvaged = salvage(&wreck.raw, Vec::new());
        let found = files_of(salvaged.tree(), &told_by(&salvaged));
        let is_right = |(path, seen): &(&Vec<u8>, &crate::oracle::Seen)| {
            found.get(*path).is_some_and(|found| found.line == seen.line)
        };
        let right = u64::try_from(oracle.files.iter().filter(is_right).count()).expect("few");
        let after = |options| right_after(&fsck, options, &wreck.raw, folder.path(), &oracle.files);
        let (repaired, rebuilt) = (after("-y"), after("-yb"));
        totals.images += 1;
        totals.files += u64::try_from(oracle.files.len()).expect("few");
        totals.salvaged += right;
        totals.repaired += repaired.unwrap_or(0);
        totals.rebuilt += rebuilt.unwrap_or(0);
        totals.crashes += u64::from(repaired.is_none()) + u64::from(rebuilt.is_none());
        if repaired.max(rebuilt).is_some_and(|theirs| theirs > right) {
            totals.fewer.push(format!(
                "seed {seed} {:?} {:?}: {right} of {}, fsck.ubifs {repaired:?} and {rebuilt:?}",
                made.end,
                wreck.ways,
                oracle.files.len()
            ));
        }
        if totals.images == images {
            break;
        }
    }
    print_totals(&totals);
    assert!(totals.fewer.is_empty(), "{:#?}", totals.fewer);
    assert!(
        totals.repaired + totals.rebuilt > 0,
        "fsck.ubifs saved nothing at all"
    );
}

/// Prints the results.
#[expect(clippy::print_stderr, reason = "the figures of a long run are what it is for")]
fn print_totals(totals: &Totals) {
    eprintln!(
        "{} images with {} files: right by salvage {}, after fsck.ubifs -y {}, after -yb {}; it crashed or took too long {} times; \
         images with fewer files by salvage: {}",
        totals.images,
        totals.files,
        totals.salvaged,
        totals.repaired,
        totals.rebuilt,
        totals.crashes,
        totals.fewer.len()
    );
}
