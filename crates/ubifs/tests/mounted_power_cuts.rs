//! Power goes in the writes of a script that works through a mounted file system, on one chip and on arrays: what was synced is
//! there, with its content and under its name; names that were being moved are the old or the new ones; the medium is whole and
//! the file system goes on working.
//!
//! A failure names its cut; `TIDEGATE_REPLAY=MEMBERS:CUT` runs that one alone. Without `TIDEGATE_FULL` one in a few writes is cut.

mod support {
    pub mod medium;
    #[expect(dead_code, reason = "the script of the writer alone is for other tests")]
    pub mod rig;
}

use std::collections::{BTreeMap, BTreeSet};

use nand::{CutPoint, CutTime, PowerCut};
use support::medium::Medium;
use support::rig::{SMALL, Shape};
use testkit::contract;
use testkit::prng::Prng;
use ubifs::MountedWriter;
use vfs::{FileSystem, FsResult, Ino, OpenFlags, Privileges, RenameFlags, SetAttr};

const SEED: u64 = 0x3C07;
const STEPS: u64 = 90;

const WAYS: [(CutPoint, bool); 5] = [
    (CutPoint::Partway(5), false),
    (CutPoint::Partway(70), true),
    (CutPoint::After, false),
    (CutPoint::Partway(300), false),
    (CutPoint::Before, false),
];

/// What is there.
type Files = BTreeMap<String, Vec<u8>>;

/// What is known when power went.
#[derive(Clone, Default)]
struct Known {
    /// What is there when nothing was lost.
    files: Files,
    /// What was synced last.
    synced: Files,
    /// Names that something was done to since.
    loose: BTreeSet<String>,
    /// Since when no file was closed.
    steps: u64,
}

impl Known {
    fn step(&mut self, file_system: &MountedWriter, prng: &mut Prng) -> FsResult<()> {
        let names: Vec<String> = self.files.keys().cloned().collect();
        let name = match names.is_empty() || prng.chance(25) {
            true => format!("name-{}", prng.below(40)),
            false => prng.pick(&names).clone(),
        };
        self.loose.insert(name.clone());
        match prng.below(10) {
            0 => {
                if self.files.contains_key(&name) {
                    file_system.unlink(Ino::ROOT, name.as_bytes())?;
                    self.files.remove(&name);
                }
            }
            1 | 2 if self.files.contains_key(&name) => {
                let to = format!("name-{}", prng.below(40));
                self.loose.insert(to.clone());
                let replaces = prng.chance(50) || !self.files.contains_key(&to);
                let flags = if replaces { 0 } else { libc::RENAME_EXCHANGE };
                let moved = (Ino::ROOT, name.as_bytes());
                let target = (Ino::ROOT, to.as_bytes());
                file_system.rename(&contract::caller(), moved, target, RenameFlags(flags))?;
                let content = self.files.remove(&name).expect("it is known");
                let other = self.files.insert(to, content);
                if let (false, Some(other)) = (replaces, other) {
                    self.files.insert(name, other);
                }
            }
            kind => self.change(file_system, prng, &name, kind)?,
        }
        if prng.chance(60) {
            match prng.chance(15) {
                true => file_system.sync()?,
                false => file_system.fsync(Ino::ROOT, vfs::Handle(0), false)?,
            }
            self.synced = self.files.clone();
            self.loose.clear();
        }
        Ok(())
    }

    fn change(
        &mut self,
        file_system: &MountedWriter,
        prng: &mut Prng,
        name: &str,
        kind: u64,
    ) -> FsResult<()> {
        let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT);
        let made = file_system.create(
            &contract::caller(),
            Ino::ROOT,
            name.as_bytes(),
            contract::FILE,
            flags,
        );
        let (entry, opened) = made?;
        let content = self.files.entry(name.to_owned()).or_default();
        if kind == 3 {
            let size = prng.below_usize(content.len() + 4000);
            let change = SetAttr {
                size: Some(u64::try_from(size).expect("small")),
                ..SetAttr::default()
            };
            file_system.setattr(entry.ino, None, &change)?;
            content.resize(size, 0);
        } else {
            let (at, bytes) = (
                prng.below_usize(content.len().min(20_000) + 1),
                1 + prng.below_usize(9000),
            );
            let data = prng.bytes(bytes);
            let offset = u64::try_from(at).expect("small");
            let mode = contract::plain(libc::O_RDWR);
            file_system.write(entry.ino, opened.handle, offset, &data, mode)?;
            content.resize(content.len().max(at + bytes), 0);
            content[at..at + bytes].copy_from_slice(&data);
        }
        if prng.chance(30) {
            // Without a name, and open when power goes, or closed at once.
            let unnamed = (contract::caller(), contract::FILE, OpenFlags(libc::O_RDWR));
            let (made, handle) = file_system.tmpfile(&unnamed.0, Ino::ROOT, unnamed.1, unnamed.2)?;
            let mode = contract::plain(libc::O_RDWR);
            file_system.write(made.ino, handle.handle, 0, &[9; 3000], mode)?;
            if prng.chance(50) {
                file_system.release(made.ino, handle.handle);
                file_system.forget(made.ino, 1);
            }
        }
        file_system.release(entry.ino, opened.handle);
        file_system.forget(entry.ino, 1);
        Ok(())
    }
}

/// Runs the script until its end or until power goes.
fn run(medium: &Medium, members: usize) -> Known {
    let mut known = Known::default();
    let Ok(file_system) = medium.mount() else {
        return known;
    };
    let mut prng = Prng::named(SEED, &format!("{members} members"));
    for step in 0..STEPS {
        known.steps = step;
        if known.step(&file_system, &mut prng).is_err() {
            return known;
        }
    }
    if file_system.close().is_ok() {
        known.synced = known.files.clone();
        known.loose.clear();
    }
    known
}

fn content(file_system: &MountedWriter, name: &str) -> Option<Vec<u8>> {
    let entry = file_system.lookup(Ino::ROOT, name.as_bytes()).ok()?;
    let opened = file_system.open(entry.ino, OpenFlags(libc::O_RDONLY), Privileges::Keep);
    let mut out = vec![0; usize::try_from(entry.attr.size).expect("small")];
    let read = file_system.read(entry.ino, opened.expect("it opens").handle, 0, &mut out);
    assert_eq!(read, Ok(out.len()), "{name}");
    Some(out)
}

#[test]
fn what_was_synced_through_a_mount_is_there_after_a_power_cut_in_any_write() {
    let full = testkit::is_full();
    let only = std::env::var("TIDEGATE_REPLAY").ok();
    for (members, shape) in [(1, SMALL), (2, SMALL), (4, Shape { fanout: 3, ..SMALL })] {
        let start = Medium::formatted(shape, members);
        let uncut = start.copy();
        let before = uncut.supply().writes();
        let known = run(&uncut, members);
        assert!(
            known.loose.is_empty() && known.steps == STEPS - 1,
            "it fails without a cut"
        );
        let count = uncut.supply().writes() - before;
        assert!(count > 200, "only {count} writes");
        let every = if full { 1 } else { count / 40 };
        for cut in 0..count {
            let wanted = match &only {
                Some(only) => *only == format!("{members}:{cut}"),
                None => cut % every == 0,
            };
            if wanted {
                cut_and_mount(&start, members, cut);
            }
        }
    }
}

fn cut_and_mount(start: &Medium, members: usize, cut: u64) {
    let replay = format!("seed {SEED:#x}, TIDEGATE_REPLAY={members}:{cut}");
    let medium = start.copy();
    let supply = medium.supply();
    let (point, torn_is_uncorrectable) = WAYS[usize::try_from(cut % 5).expect("few")];
    supply.plan(PowerCut {
        time: CutTime::Write(supply.writes() + cut, point),
        torn_is_uncorrectable,
    });
    let known = run(&medium, members);
    assert!(supply.is_off(), "{replay}: power did not go");
    supply.power_on();
    let file_system = medium.mount().unwrap_or_else(|error| panic!("{replay}: {error}"));
    for (name, expected) in &known.synced {
        if !known.loose.contains(name) {
            let found = content(&file_system, name);
            assert!(
                found.as_ref() == Some(expected),
                "{replay}: {name} is not as it was synced"
            );
        }
    }
    for name in &known.loose {
        // Old, new, or something between where it was being written; but readable.
        let _ = content(&file_system, name);
    }
    let orphans = file_system.statistics().orphans;
    assert_eq!(orphans, 0, "{replay}: files without a name outlived the cut");
    let mut after = Known {
        files: known.synced,
        ..Known::default()
    };
    after.loose.clear();
    let worked = after.change(&file_system, &mut Prng::new(cut), "after the cut", 9);
    worked.unwrap_or_else(|error| panic!("{replay}: {error}"));
    let closed = file_system.close();
    closed.unwrap_or_else(|error| panic!("{replay}: {error}"));
    medium.judge(None, &replay);
}
