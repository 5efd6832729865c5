//! The files that alternate at the raced name, and the checks that they stay intact.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, XattrFlags, fgetxattr, fsetxattr, renameat_with};
use testkit::prng::Prng;

use super::SECRET;

/// Number of swaps, and of files of root that were taken or changed.
pub struct Raced {
    pub exchanges: u64,
    pub losses: u64,
}

/// Swaps the target of the name `raced`.
pub struct Racer {
    source: PathBuf,
    /// The folder of the swaps: the source, or another mount of it.
    place: PathBuf,
    caller: u32,
    moves_folders: bool,
    /// Number of calls made against it.
    pub calls: AtomicU64,
}

#[derive(Clone, Copy)]
enum Occupant {
    /// A new file for each turn: file systems reuse the inode number of the previous one.
    New {
        owner: u32,
    },
    /// Another name of a permanent file.
    HardLink,
    Symlink,
    /// A folder that moves in and out; its name in `private`.
    Folder(&'static str),
}

/// Fills the private folder: a file, and folders of root and of the caller.
pub fn furnish(private: &Path, caller: u32) {
    write_secret(&private.join("secret"));
    for (folder, mode, owner) in [
        ("root-s", 0o700, 0),
        ("root-s-wide", 0o755, 0),
        ("own", 0o755, caller),
    ] {
        let path = private.join(folder);
        DirBuilder::new().mode(mode).create(&path).expect("made");
        write_secret(&path.join("file"));
        symlink("of root", path.join("link")).expect("made");
        fs::write(path.join("of root"), "").expect("made");
        if owner != 0 {
            fs::write(path.join("file"), "own").expect("made");
            fs::remove_file(path.join("of root")).expect("made above");
            fs::remove_file(path.join("link")).expect("made above");
            symlink("own", path.join("link")).expect("made");
            for name in ["file", "link"] {
                lchown(path.join(name), Some(owner), Some(owner)).expect("root may");
            }
            chown(&path, Some(owner), Some(owner)).expect("root may");
        }
    }
    for (folder, owner) in [("root-s-empty", 0), ("own-empty", caller)] {
        let path = private.join(folder);
        DirBuilder::new().mode(0o700).create(&path).expect("made");
        chown(&path, Some(owner), Some(owner)).expect("root may");
    }
}

fn write_secret(path: &Path) {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .expect("made");
    file.write_all(SECRET).expect("there is room");
    fsetxattr(&file, "user.mark", SECRET, XattrFlags::empty()).expect("the file system has attributes");
}

/// Checks that no other user has changed the file.
fn is_whole(file: &mut File, modified: (i64, i64)) -> bool {
    let mut content = Vec::new();
    let mut value = [0; 64];
    file.rewind().expect("a file");
    file.read_to_end(&mut content).expect("it is open");
    let length = fgetxattr(&*file, "user.mark", &mut value).unwrap_or(0);
    let found = file.metadata().expect("it is open");
    content == SECRET
        && value[..length] == *SECRET
        && (found.mode() & 0o7777, found.uid(), found.gid()) == (0o600, 0, 0)
        && (found.mtime(), found.mtime_nsec()) == modified
}

impl Racer {
    pub fn new(source: PathBuf, place: PathBuf, caller: u32, moves_folders: bool) -> Self {
        Self {
            source,
            place,
            caller,
            moves_folders,
            calls: AtomicU64::new(0),
        }
    }

    pub fn run(&self, stop: &AtomicBool) -> Raced {
        let mut random = Prng::new(self.caller.into());
        let mut raced = Raced {
            exchanges: 0,
            losses: 0,
        };
        let own = self.caller;
        let all = [
            Occupant::New { owner: 0 },
            Occupant::New { owner: own },
            Occupant::HardLink,
            Occupant::New { owner: own },
            Occupant::Symlink,
            Occupant::New { owner: own },
            Occupant::Folder("root-s"),
            Occupant::Folder("own"),
            Occupant::Folder("root-s-empty"),
            Occupant::Folder("own-empty"),
        ];
        let folders = [Occupant::Folder("root-s-wide"), Occupant::Folder("own")];
        let occupants: &[Occupant] = if self.moves_folders { &folders } else { &all };
        while !stop.load(Ordering::Relaxed) {
            for occupant in occupants {
                // Alternate with the caller's own files: a later occupant may be mistaken for the caller's file before it.
                let is_kept = self.occupy(*occupant, &mut random);
                raced.losses += u64::from(!is_kept);
                raced.exchanges += 1;
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
        raced
    }

    fn name(&self) -> PathBuf {
        let folder = if self.moves_folders { "from" } else { "shared" };
        self.place.join(folder).join("raced")
    }

    /// Puts one occupant at the name for a moment. Returns false if another user got at it.
    fn occupy(&self, occupant: Occupant, random: &mut Prng) -> bool {
        let name = self.name();
        let private = self.place.join("private");
        let _made_by_the_caller = fs::remove_file(&name).or_else(|_| fs::remove_dir_all(&name));
        let pause = random.below(400);
        match occupant {
            Occupant::New { owner } => {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create_new(true).mode(0o600);
                let Ok(mut file) = options.open(&name) else {
                    return true;
                };
                if owner != 0 {
                    chown(&name, Some(owner), Some(owner)).ok();
                    self.leave(pause);
                    return true;
                }
                file.write_all(SECRET).expect("there is room");
                fsetxattr(&file, "user.mark", SECRET, XattrFlags::empty()).expect("it has attributes");
                let before = file.metadata().expect("it is open");
                self.leave(pause);
                let is_there = fs::remove_file(&name).is_ok();
                let after = file.metadata().expect("it is open");
                is_there && is_whole(&mut file, (before.mtime(), before.mtime_nsec())) && after.nlink() == 0
            }
            Occupant::HardLink => {
                let mut file = File::open(self.source.join("private/secret")).expect("it stays");
                let before = file.metadata().expect("it is open");
                if fs::hard_link(private.join("secret"), &name).is_err() {
                    return true;
                }
                self.leave(pause);
                let is_there = fs::symlink_metadata(&name).is_ok_and(|found| found.ino() == before.ino());
                let removed = fs::remove_file(&name);
                let is_whole = is_whole(&mut file, (before.mtime(), before.mtime_nsec()));
                let links = file.metadata().expect("it is open").nlink();
                self.restore_secret(links, is_whole);
                is_there && removed.is_ok() && is_whole && links == 1
            }
            Occupant::Symlink => {
                if symlink("../private/secret", &name).is_err() {
                    return true;
                }
                self.leave(pause);
                let is_there = fs::symlink_metadata(&name).is_ok_and(|found| found.is_symlink());
                is_there && fs::remove_file(&name).is_ok()
            }
            Occupant::Folder(folder) => {
                let home = private.join(folder);
                let put = |from: &Path, to: &Path| renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE);
                if put(&home, &name).is_err() {
                    return true;
                }
                self.leave(pause);
                let came_back = put(&name, &home).is_ok();
                if !came_back {
                    self.furnish_again();
                }
                came_back || folder.starts_with("own")
            }
        }
    }

    /// Leaves the occupant for some tens of microseconds; for root, which needs no luck, until it has made a few calls.
    fn leave(&self, turns: u64) {
        if self.caller != 0 {
            return (0..turns * 50).for_each(|_| std::hint::spin_loop());
        }
        let (started, before) = (Instant::now(), self.calls.load(Ordering::Relaxed));
        while self.calls.load(Ordering::Relaxed) < before + 3
            && started.elapsed() < Duration::from_millis(100)
        {
            std::thread::yield_now();
        }
    }

    /// Recreates lost files for the next round.
    fn furnish_again(&self) {
        let private = self.source.join("private");
        for name in [
            "shared/raced",
            "shared/taken",
            "from/raced",
            "to/moved",
            "shared/own",
        ] {
            let path = self.source.join(name);
            let _not_there = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
        fs::remove_dir_all(&private).expect("it is root's");
        DirBuilder::new().mode(0o700).create(&private).expect("made");
        furnish(&private, self.caller);
    }

    fn restore_secret(&self, links: u64, is_whole: bool) {
        if links != 1 || !is_whole {
            self.furnish_again();
        }
    }
}
