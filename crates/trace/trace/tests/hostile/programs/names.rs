//! Files with several names, names that change, and names that go.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::memory::Map;
use super::{Opened, PAGE, Place, fork, join, new_name, pause};
use crate::ledger::{Act, now};

fn write(place: &Place, opened: &Opened, page: u64) -> io::Result<()> {
    place.log.act(Act::Dirtied, opened.as_named(), page * PAGE, || {
        opened.file.write_all_at(&[0x5D; 4096], page * PAGE)?;
        Ok(PAGE)
    })?;
    Ok(())
}

/// Two names of a file, each with a descriptor. Pages are written by one or the other, or by one after the other, by one
/// process or by two.
pub fn linked(place: &Place) -> io::Result<()> {
    for number in 0..place.count(8) {
        let first_path = place.folder.join(format!("first-{number}"));
        let second_path = place.folder.join(format!("second-{number}"));
        let first = place.create_at(&first_path, 0)?;
        let from = now();
        fs::hard_link(&first_path, &second_path)?;
        let second = Opened {
            file: OpenOptions::new().read(true).write(true).open(&second_path)?,
            name: new_name(),
        };
        place
            .log
            .named(from, second.name, &second.file, &place.told(&second_path))?;
        match number % 4 {
            // Only through the older name.
            0 => (0..16).try_for_each(|page| write(place, &first, page))?,
            1 => {
                for page in 0..16 {
                    write(place, if page % 2 == 0 { &first } else { &second }, page)?;
                }
            }
            // The same pages by both names.
            2 => {
                (0..8).try_for_each(|page| write(place, &first, page))?;
                pause();
                (0..8).try_for_each(|page| write(place, &second, page))?;
                pause();
            }
            _ => {
                let child = fork(|| (0..8).try_for_each(|page| write(place, &second, page)))?;
                (8..16).try_for_each(|page| write(place, &first, page))?;
                join(child)?;
            }
        }
        if number % 2 == 0 {
            first.file.sync_all()?;
        }
        // One of the names changes, and then goes.
        let moved = place.folder.join(format!("moved-{number}"));
        let from = now();
        fs::rename(&first_path, &moved)?;
        place
            .log
            .renamed(from, first.name, &first.file, &place.told(&moved))?;
        (16..20).try_for_each(|page| write(place, &first, page))?;
        first.file.sync_all()?;
        let from = now();
        fs::remove_file(&second_path)?;
        place.log.removed(from, second.name)?;
        write(place, &first, 20)?;
        first.file.sync_all()?;
    }
    Ok(())
}

/// Renames while the kernel writes the file, within a folder, into another, and over another file.
pub fn renamed(place: &Place) -> io::Result<()> {
    let other = place.folder.join("other");
    fs::create_dir(&other)?;
    // The process has another name once it is known under its first one.
    place.create("first", 0)?.file.sync_all()?;
    rustix::thread::set_name(c"renamer")?;
    for number in 0..place.count(8) {
        let mut path = place.folder.join(format!("file-{number}"));
        let opened = place.create_at(&path, 0)?;
        for round in 0..4_u64 {
            for page in 0..32 {
                write(place, &opened, page)?;
            }
            // Starts the write, and doesn't wait.
            rustix::fs::fadvise(&opened.file, 0, None, rustix::fs::Advice::DontNeed)?;
            let new = match round % 2 {
                0 => other.join(format!("moved-{number}-{round}")),
                _ => place.folder.join(format!("back-{number}-{round}")),
            };
            let victim = if round == 3 {
                Some(place.create_at(&new, 0)?)
            } else {
                None
            };
            let from = now();
            fs::rename(&path, &new)?;
            place
                .log
                .renamed(from, opened.name, &opened.file, &place.told(&new))?;
            if let Some(victim) = victim {
                place.log.removed(from, victim.name)?;
                write(place, &victim, 0)?;
                victim.file.sync_all()?;
            }
            path = new;
            opened.file.sync_data()?;
        }
    }
    Ok(())
}

/// Files that have no name any more when they are written.
pub fn unlinked(place: &Place) -> io::Result<()> {
    for number in 0..place.count(8) {
        let path = place.folder.join(format!("file-{number}"));
        let opened = place.create_at(&path, 0)?;
        (0..8).try_for_each(|page| write(place, &opened, page))?;
        let from = now();
        fs::remove_file(&path)?;
        place.log.removed(from, opened.name)?;
        (8..16).try_for_each(|page| write(place, &opened, page))?;
        opened.file.sync_all()?;
    }
    Ok(())
}

/// Gives a file another name, without a descriptor of its own.
fn link(place: &Place, from: &Path, opened: &Opened, path: &Path) -> io::Result<()> {
    let started = now();
    rustix::fs::linkat(
        rustix::fs::CWD,
        from,
        rustix::fs::CWD,
        path,
        rustix::fs::AtFlags::SYMLINK_FOLLOW,
    )?;
    place
        .log
        .named(started, new_name(), &opened.file, &place.told(path))
}

/// Files with several names that are written by one which is gone, through the cache and past it, and by none.
pub fn gone(place: &Place) -> io::Result<()> {
    for number in 0..place.count(4) {
        let at = |name: &str| place.folder.join(format!("{name}-{number}"));
        let flags = if number % 2 == 0 { 0 } else { libc::O_DIRECT };
        let opened = place.create_at(&at("a"), flags)?;
        for other in ["b", "c"] {
            link(place, &at("a"), &opened, &at(other))?;
        }
        if flags == 0 {
            (0..8).try_for_each(|page| write(place, &opened, page))?;
        }
        let from = now();
        fs::remove_file(at("a"))?;
        place.log.removed(from, opened.name)?;
        pause();
        if flags != 0 {
            let memory = Map::new(None, PAGE)?;
            place.log.act(Act::WroteDirectly, opened.as_named(), 0, || {
                let bytes = usize::try_from(PAGE).unwrap_or(0);
                // SAFETY: the memory is a page of a mapping that outlives the call.
                let written =
                    unsafe { libc::pwrite(opened.file.as_raw_fd(), memory.address().cast(), bytes, 0) };
                u64::try_from(written).map_err(|_| io::Error::last_os_error())
            })?;
        }
        opened.file.sync_all()?;
        unnamed(place, &at("first"), &at("second"))?;
    }
    Ok(())
}

/// A file that is made without a name, written out while it has none, and gets two.
fn unnamed(place: &Place, first: &Path, second: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).custom_flags(libc::O_TMPFILE);
    let opened = Opened {
        file: options.open(&place.folder)?,
        name: new_name(),
    };
    for _ in 0..2 {
        opened.file.sync_all()?;
        (0..8).try_for_each(|page| write(place, &opened, page))?;
    }
    let own = format!("/proc/self/fd/{}", opened.file.as_raw_fd());
    for path in [first, second] {
        link(place, Path::new(&own), &opened, path)?;
    }
    pause();
    opened.file.sync_all()
}
