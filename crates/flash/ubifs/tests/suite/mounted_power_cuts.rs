//! Power cuts in the writes of a script on a mounted file system, on one chip and on arrays. Afterwards everything
//! synced is there, names match the state after some number of calls, contents and sizes are explained by the calls;
//! the medium is consistent before and after recovery, and the file system keeps working. On arrays, the power of all
//! members goes, or that of a single one, which then lags behind the others in a stripe row.
//!
//! A failure prints its cut; the variables in it run that one. Without `TIDEGATE_FULL` a sample of the writes is cut.
//! With it every program and erase of a longer script is cut, and in one of eight cases power goes a second time,
//! during recovery. `fsck.ubifs` checks one cut in 40, or in `TIDEGATE_FSCK_EVERY`, before and after recovery. Best
//! run with an optimized build:
//!
//! `TIDEGATE_FULL=1 CARGO_PROFILE_TEST_OPT_LEVEL=3 cargo test -p ubifs --test suite mounted_power_cuts -- --nocapture`
#![expect(
    clippy::print_stdout,
    reason = "how many cuts there were, for who asks with --nocapture"
)]

use crate::support::ends::assert_ends_are_those_of_linux;
use crate::support::medium::Medium;
use crate::support::rig::SMALL;
use crate::support::script::{Script, tree_of};
use crate::support::sweep::{QUICK, Segment, Sweep, Which, cut_recovery, plan};
use array::Redundancy;
use testkit::contract;
use testkit::lab::Fsck;
use testkit::prng::Prng;
use vfs::{FileSystem, Handle, Ino, OpenFlags, Privileges, SetAttr};

/// Figures of a sweep.
#[derive(Debug, Default)]
struct Done {
    writes: u64,
    cuts: u64,
    member_cuts: u64,
    second_cuts: u64,
    fsck: u64,
}

/// Cuts all writes of a script, or a sample.
fn sweep(members: usize, segments: u64) -> Done {
    let only = std::env::var("TIDEGATE_REPLAY").ok();
    let fsck = Fsck::available().ok();
    let sweep = match testkit::is_full() {
        true => Sweep {
            members,
            segments,
            steps: 60,
            ..QUICK
        },
        false => Sweep { members, ..QUICK },
    };
    let mut done = Done::default();
    for segment in sweep.segments() {
        assert!(segment.writes > 50, "only {} writes", segment.writes);
        let every = if testkit::is_full() {
            1
        } else {
            segment.writes / 16
        };
        for cut in 0..segment.writes {
            for which in [Which::All, Which::OneMember] {
                let wanted = match &only {
                    Some(only) => sweep.replay(&segment, cut, which).ends_with(&format!("={only}")),
                    None => has_turn(members, cut + segment.number, every, which),
                };
                if wanted {
                    let fsck = fsck.as_ref().filter(|_| cut.is_multiple_of(fsck_every()));
                    cut_and_judge(sweep, &segment, cut, which, fsck, &mut done);
                }
            }
        }
        done.writes += segment.writes;
    }
    println!("{members} members: {done:?}");
    done
}

/// Whether to make a cut: on arrays both kinds if every write is cut, otherwise alternating.
const fn has_turn(members: usize, turn: u64, every: u64, which: Which) -> bool {
    let is_cut = turn.is_multiple_of(every);
    match which {
        Which::All => is_cut && (members == 1 || every == 1 || (turn / every).is_multiple_of(2)),
        Which::OneMember => is_cut && members > 1 && (every == 1 || !(turn / every).is_multiple_of(2)),
    }
}

/// Cuts power in a write, then removes one member or none: everything synced must be there in either case.
fn sweep_with_parity(members: usize, segments: u64) {
    let sweep = match testkit::is_full() {
        true => Sweep {
            members,
            redundancy: Redundancy::Parity,
            segments,
            steps: 60,
            ..QUICK
        },
        false => Sweep {
            members,
            redundancy: Redundancy::Parity,
            ..QUICK
        },
    };
    let mut cuts = 0;
    for segment in sweep.segments() {
        let every = if testkit::is_full() { 5 } else { segment.writes / 8 };
        for cut in (segment.number % every..segment.writes).step_by(usize::try_from(every).expect("few")) {
            let replay = sweep.replay(&segment, cut, Which::All);
            let Some((medium, script)) = sweep.cut(&segment, cut, Which::All) else {
                continue;
            };
            let gone = usize::try_from(cut).expect("few") % members;
            let left = medium.without(gone);
            let without = format!("{replay}, without {gone}");
            assert_sound_but_for_a_master_node(&left.copy(), &without);
            judge_mounted(&left, &script, None, &without);
            judge(&medium, &script, Which::OneMember, None, &replay);
            // After use, a clean unmount and the loss of another member it must still be intact.
            let other = (gone + 1) % members;
            medium
                .without(other)
                .judge(None, &format!("{replay}, then without {other}"));
            cuts += 1;
        }
    }
    println!("{members} members with parity: {cuts} cuts");
    assert!(cuts > 10, "{cuts}");
}

/// Number of cuts per run of `fsck.ubifs`.
fn fsck_every() -> u64 {
    let asked = std::env::var("TIDEGATE_FSCK_EVERY").ok();
    asked.map_or(40, |every| every.parse().expect("a number from 1 on"))
}

fn cut_and_judge(
    sweep: Sweep,
    segment: &Segment,
    cut: u64,
    which: Which,
    fsck: Option<&Fsck>,
    done: &mut Done,
) {
    let replay = sweep.replay(segment, cut, which);
    let Some((medium, script)) = sweep.cut(segment, cut, which) else {
        return;
    };
    if cut % 8 == 3 {
        let again = medium.copy();
        if cut_recovery(&again, cut, cut / 8) {
            done.second_cuts += 1;
            judge(&again, &script, which, fsck, &format!("{replay}, second cut"));
        }
    }
    match which {
        Which::All => done.cuts += 1,
        Which::OneMember => done.member_cuts += 1,
    }
    done.fsck += u64::from(fsck.is_some());
    judge(&medium, &script, which, fsck, &replay);
}

/// Asserts everything that must hold after a cut.
fn judge(medium: &Medium, script: &Script, which: Which, fsck: Option<&Fsck>, replay: &str) {
    let untouched = medium.copy();
    // fsck.ubifs assumes writes of at most a page, and only code aware of stripe rows recognizes a row with a gap as
    // torn.
    let of_torn = fsck.filter(|_| which == Which::All);
    untouched.judge(of_torn, &format!("{replay}, before it is mounted"));
    let volume = untouched.volume().expect("it attached before");
    assert_ends_are_those_of_linux(&volume, replay);
    judge_mounted(medium, script, fsck, replay);
}

/// Asserts that our checker finds no fault, except in one of the two copies of the master node. Without a member, the
/// content of a torn row is computed from parts of which some are old and some are new; if it is the row of the last
/// copy that an unmount writes, the checker cannot distinguish that from damage.
fn assert_sound_but_for_a_master_node(medium: &Medium, replay: &str) {
    let volume = medium
        .volume()
        .unwrap_or_else(|error| panic!("{replay}: {error}"));
    let mut findings = ubifs::check::check(&*volume).findings;
    if let [finding] = findings.as_slice()
        && finding.at.is_some_and(|at| at.leb == 1 || at.leb == 2)
    {
        findings.clear();
    }
    assert!(
        findings.is_empty(),
        "{replay}, before it is mounted: {findings:#?}"
    );
    assert_ends_are_those_of_linux(&volume, replay);
}

/// Mounts it, and asserts that it has what was synced, can be used, and is sound when it is unmounted.
fn judge_mounted(medium: &Medium, script: &Script, fsck: Option<&Fsck>, replay: &str) {
    let file_system = medium.mount().unwrap_or_else(|error| panic!("{replay}: {error}"));
    let orphans = file_system.statistics().orphans;
    assert_eq!(orphans, 0, "{replay}: files without a name outlived the cut");
    let found = tree_of(&file_system).unwrap_or_else(|error| panic!("{replay}: {error}"));
    if let Err(why) = script.explain(&found) {
        panic!("{replay}: {why}");
    }
    use_it(&file_system, replay);
    let closed = file_system.close();
    closed.unwrap_or_else(|error| panic!("{replay}: {error}"));
    medium.judge(fsck, replay);
}

fn use_it(file_system: &dyn FileSystem, replay: &str) {
    let run = || {
        let caller = contract::caller();
        let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT | libc::O_EXCL);
        let (entry, opened) =
            file_system.create(&caller, Ino::ROOT, b"after the cut", contract::FILE, flags)?;
        let mode = contract::plain(libc::O_RDWR);
        let written = file_system.write(entry.ino, opened.handle, 0, &[7; 9000], mode)?;
        assert_eq!(written, 9000, "{replay}");
        file_system.fsync(entry.ino, opened.handle, false)?;
        let mut back = vec![0; 9000];
        file_system.read(entry.ino, opened.handle, 0, &mut back)?;
        assert!(back == [7; 9000], "{replay}");
        file_system.release(entry.ino, opened.handle);
        file_system.forget(entry.ino, 1);
        file_system.unlink(&contract::caller(), Ino::ROOT, b"after the cut")?;
        file_system.fsync(Ino::ROOT, Handle(0), false)
    };
    let used: vfs::FsResult<()> = run();
    used.unwrap_or_else(|error| panic!("{replay}: it can't be used: {error}"));
}

fn assert_swept(done: &Done) {
    let all = !testkit::is_full() || done.cuts >= 1500 || done.cuts + done.member_cuts == 1;
    assert!(all, "{done:?}");
}

#[test]
fn one_chip_keeps_what_was_synced_when_power_goes_in_any_write() {
    let done = sweep(1, 12);
    assert_swept(&done);
}

#[test]
fn an_array_of_two_keeps_what_was_synced_when_power_goes_in_any_write() {
    let done = sweep(2, 9);
    assert_swept(&done);
}

#[test]
fn an_array_of_four_keeps_what_was_synced_when_power_goes_in_any_write() {
    let done = sweep(4, 9);
    assert_swept(&done);
}

#[test]
fn an_array_of_three_with_parity_keeps_what_was_synced_when_power_and_a_member_go() {
    sweep_with_parity(3, 6);
}

#[test]
fn an_array_of_four_with_parity_keeps_what_was_synced_when_power_and_a_member_go() {
    sweep_with_parity(4, 6);
}

/// Stripe rows padded by an fsync used to end in whole write units of padding. Linux cuts those off and continues
/// behind them, and its sums of free space did not match the medium (`fsck.ubifs` corrected them, mostly on arrays of
/// four).
#[test]
fn a_row_that_an_fsync_fills_up_ends_where_linux_takes_its_end_to_be() {
    let fsck = Fsck::available().ok();
    for members in [2, 3, 4] {
        let medium = Medium::formatted(SMALL, members);
        let file_system = medium.mount().expect("it mounts");
        let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT | libc::O_EXCL);
        let mut filled_units = 0;
        for number in 0..12 {
            let name = format!("file-{number}");
            let caller = contract::caller();
            let made = file_system.create(&caller, Ino::ROOT, name.as_bytes(), contract::FILE, flags);
            let (entry, opened) = made.expect("there is room");
            let data = Prng::new(number).bytes(300 + 450 * usize::try_from(number).expect("few"));
            let mode = contract::plain(libc::O_RDWR);
            let written = file_system.write(entry.ino, opened.handle, 0, &data, mode);
            assert_eq!(written, Ok(data.len()));
            let synced = file_system.fsync(entry.ino, opened.handle, false);
            synced.expect("it can be written");
            let what = format!("{members} members, fsync {number}");
            let cut = medium.copy();
            let volume = cut.volume().expect("it attaches");
            filled_units += assert_ends_are_those_of_linux(&volume, &what).filled_units;
            cut.judge(fsck.as_ref().filter(|_| number % 4 == 3), &what);
        }
        assert!(
            filled_units > 0 || members == 2,
            "no row of {members} was filled up"
        );
    }
}

/// A commit in the middle of a long write used to add blocks to the index that the inode did not cover: after a cut
/// they appeared once the file grew over them.
#[test]
fn nothing_of_a_write_that_was_cut_appears_behind_the_end_of_the_file() {
    const LENGTH: usize = 300_000;
    let start = Medium::formatted(SMALL, 1);
    let write = |medium: &Medium| -> Option<()> {
        let file_system = medium.mount().ok()?;
        let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT | libc::O_EXCL);
        let caller = contract::caller();
        let made = file_system.create(&caller, Ino::ROOT, b"file", contract::FILE, flags);
        let (entry, opened) = made.ok()?;
        file_system.fsync(entry.ino, opened.handle, false).ok()?;
        let data = Prng::new(9).bytes(LENGTH);
        let mode = contract::plain(libc::O_RDWR);
        let written = file_system.write(entry.ino, opened.handle, 0, &data, mode);
        (written.ok()? == LENGTH).then_some(())
    };
    let uncut = start.copy();
    let before = uncut.supply().writes();
    write(&uncut).expect("there is room for it");
    let writes = uncut.supply().writes() - before;
    for cut in (60..writes).step_by(if testkit::is_full() { 1 } else { 7 }) {
        let medium = start.copy();
        plan(&medium.supply(), cut, 2);
        assert_eq!(write(&medium), None, "cut {cut}: power did not go");
        medium.supply().power_on();
        let file_system = medium
            .mount()
            .unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        let Ok(entry) = file_system.lookup(Ino::ROOT, b"file") else {
            continue;
        };
        let longer = SetAttr {
            size: Some(entry.attr.size + 20_000),
            ..SetAttr::default()
        };
        file_system
            .setattr(entry.ino, None, &longer)
            .expect("it can grow");
        let opened = file_system.open(entry.ino, OpenFlags(libc::O_RDONLY), Privileges::Keep);
        let mut tail = vec![1; 20_000];
        let handle = opened.expect("it opens").handle;
        let read = file_system.read(entry.ino, handle, entry.attr.size, &mut tail);
        assert_eq!(read, Ok(tail.len()), "cut {cut}");
        let first = tail.iter().position(|byte| *byte != 0);
        assert_eq!(
            first, None,
            "cut {cut}: a file of {} bytes grew over old content",
            entry.attr.size
        );
    }
}
