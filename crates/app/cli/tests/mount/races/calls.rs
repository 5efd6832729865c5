//! The calls under race.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, RenameFlags, XattrFlags, renameat_with};

use super::SECRET;
use crate::harness::LONG_AGO;

/// Result of a call.
pub enum Outcome {
    Refused,
    Done,
    /// It revealed data private to root.
    Won,
}

pub struct RacedCall {
    pub name: &'static str,
    /// Races in the folders `from` and `to`, which have no sticky bit.
    pub moves_folders: bool,
    /// Takes the mount point and the source.
    pub make: fn(&Path, &Path) -> Outcome,
}

const fn call(name: &'static str, make: fn(&Path, &Path) -> Outcome) -> RacedCall {
    RacedCall {
        name,
        moves_folders: false,
        make,
    }
}

pub const CALLS: [RacedCall; 16] = [
    call("create", |mount, _| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        use_file(options.open(raced(mount)))
    }),
    call("open", |mount, _| {
        use_file(OpenOptions::new().read(true).write(true).open(raced(mount)))
    }),
    call("open to read", |mount, _| use_file(File::open(raced(mount)))),
    call("open in a folder", |mount, _| {
        use_file(File::open(raced(mount).join("file")))
    }),
    call("list", |mount, _| match fs::read_dir(raced(mount)) {
        Err(_) => Outcome::Refused,
        Ok(mut names) => seen(names.any(|name| name.is_ok_and(|name| name.file_name() == "of root"))),
    }),
    call("readlink", |mount, _| {
        match fs::read_link(raced(mount).join("link")) {
            Err(_) => Outcome::Refused,
            Ok(target) => seen(target == Path::new("of root")),
        }
    }),
    call("link", |mount, source| {
        let (link, below) = (mount.join("shared/linked"), source.join("shared/linked"));
        if fs::hard_link(raced(mount), &link).is_err() {
            return Outcome::Refused;
        }
        let is_foreign = fs::symlink_metadata(&below).is_ok_and(|found| found.uid() != own_uid());
        let _gone = fs::remove_file(&link);
        seen(is_foreign)
    }),
    call("unlink", |mount, _| done(fs::remove_file(raced(mount)))),
    call("rmdir", |mount, _| done(fs::remove_dir(raced(mount)))),
    call("rename", |mount, _| {
        let taken = mount.join("shared/taken");
        let _gone = fs::remove_file(&taken).or_else(|_| fs::remove_dir_all(&taken));
        done(fs::rename(raced(mount), taken))
    }),
    call("rename and leave a whiteout", |mount, _| {
        let taken = mount.join("shared/taken");
        let _gone = fs::remove_file(&taken).or_else(|_| fs::remove_dir_all(&taken));
        done(renameat_with(
            CWD,
            raced(mount),
            CWD,
            taken,
            RenameFlags::WHITEOUT,
        ))
    }),
    call("rename over", |mount, _| {
        let own = mount.join("shared/own");
        let _there = fs::write(&own, "own");
        done(fs::rename(own, raced(mount)))
    }),
    call("exchange", |mount, _| {
        let own = mount.join("shared/own");
        let _there = fs::write(&own, "own");
        done(renameat_with(CWD, own, CWD, raced(mount), RenameFlags::EXCHANGE))
    }),
    call("truncate and change attributes", |mount, _| {
        let truncated = OpenOptions::new().write(true).truncate(true).open(raced(mount));
        let changed = fs::set_permissions(raced(mount), Permissions::from_mode(0o666));
        let timed = rustix::fs::utimensat(CWD, raced(mount), &LONG_AGO, AtFlags::empty());
        done(
            truncated
                .map(drop)
                .or(changed)
                .or(timed.map_err(std::io::Error::from)),
        )
    }),
    call("attributes", |mount, _| {
        let mut value = [0; 64];
        let read = rustix::fs::getxattr(raced(mount), "user.mark", &mut value);
        let set = rustix::fs::setxattr(raced(mount), "user.mark", b"mine", XattrFlags::empty());
        let removed = rustix::fs::removexattr(raced(mount), "user.mark");
        match read {
            Ok(length) if value[..length] == *SECRET => Outcome::Won,
            _ => done(set.or(removed)),
        }
    }),
    RacedCall {
        name: "rename a folder to another",
        moves_folders: true,
        make: |mount, _| {
            let moved = mount.join("to/moved");
            let _gone = fs::remove_dir_all(&moved);
            done(fs::rename(mount.join("from/raced"), moved))
        },
    },
];

fn raced(mount: &Path) -> PathBuf {
    mount.join("shared/raced")
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

const fn seen(is_root_s: bool) -> Outcome {
    match is_root_s {
        true => Outcome::Won,
        false => Outcome::Done,
    }
}

fn done<T, E>(result: Result<T, E>) -> Outcome {
    match result {
        Ok(_) => Outcome::Done,
        Err(_) => Outcome::Refused,
    }
}

/// Reads the file and writes to it.
fn use_file(opened: std::io::Result<File>) -> Outcome {
    let Ok(mut file) = opened else {
        return Outcome::Refused;
    };
    let mut content = Vec::new();
    let _refused = file.read_to_end(&mut content);
    let _refused = file.write_all(b"overwritten");
    seen(content.starts_with(SECRET))
}
