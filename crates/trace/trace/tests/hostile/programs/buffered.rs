//! Writes through the page cache by calls.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use super::{Opened, PAGE, Place, Random, fork, join};
use crate::ledger::{Act, now};

/// Pages of a file.
const PAGES: u64 = 64;

fn write_at(place: &Place, opened: &Opened, offset: u64, bytes: u64) -> io::Result<()> {
    let content = vec![0x5A; usize::try_from(bytes).unwrap_or(0)];
    let end = opened.file.metadata()?.len();
    let from = now();
    place.log.act(Act::Dirtied, opened.as_named(), offset, || {
        opened.file.write_all_at(&content, offset)?;
        Ok(bytes)
    })?;
    // The rest of what was the last page is filled with zeros.
    if offset > end && end % PAGE != 0 {
        place.log.ended(Act::Dirtied, opened.as_named(), end, 1, from)?;
    }
    Ok(())
}

/// Writes of any length at any place, some over dirty pages, some followed by an fsync.
pub fn random(place: &Place) -> io::Result<()> {
    let mut random = Random(1);
    for number in 0..place.count(4) {
        let opened = place.create(&format!("file-{number}"), 0)?;
        for _ in 0..48 {
            let offset = random.below(PAGES * PAGE - 3 * PAGE);
            write_at(place, &opened, offset, 1 + random.below(2 * PAGE))?;
            if random.below(12) == 0 {
                opened.file.sync_data()?;
            }
        }
    }
    Ok(())
}

/// A process and its children write through one descriptor, each other pages, and the same ones after an fsync.
pub fn inherited(place: &Place) -> io::Result<()> {
    for number in 0..place.count(4) {
        let opened = place.create(&format!("file-{number}"), 0)?;
        write_at(place, &opened, 0, PAGES * PAGE)?;
        opened.file.sync_all()?;
        let mut children = Vec::new();
        for child in 0..3 {
            children.push(fork(|| {
                for page in (0..PAGES).filter(|page| page % 4 == child) {
                    write_at(place, &opened, page * PAGE, PAGE)?;
                }
                Ok(())
            })?);
        }
        for page in (0..PAGES).filter(|page| page % 4 == 3) {
            write_at(place, &opened, page * PAGE, PAGE)?;
        }
        children.into_iter().try_for_each(join)?;
        opened.file.sync_all()?;
        // The same page by one after the other.
        for _ in 0..2 {
            join(fork(|| write_at(place, &opened, 0, PAGE))?)?;
            write_at(place, &opened, 0, 100)?;
            opened.file.sync_data()?;
            join(fork(|| write_at(place, &opened, 0, PAGE))?)?;
            opened.file.sync_data()?;
        }
    }
    Ok(())
}

/// Data that comes to the file out of a pipe.
pub fn spliced(place: &Place) -> io::Result<()> {
    for number in 0..place.count(4) {
        let opened = place.create(&format!("file-{number}"), 0)?;
        let (reader, mut writer) = io::pipe()?;
        for piece in 0..8 {
            let mut offset = i64::try_from(piece * 8 * PAGE).unwrap_or(0);
            io::Write::write_all(&mut writer, &[0x5B; 8 * 4096])?;
            let start = piece * 8 * PAGE;
            place.log.act(Act::Dirtied, opened.as_named(), start, || {
                let mut left = 8 * 4096;
                while left > 0 {
                    // SAFETY: the call writes only to the offset.
                    let moved = unsafe {
                        libc::splice(
                            reader.as_raw_fd(),
                            std::ptr::null_mut(),
                            opened.file.as_raw_fd(),
                            &raw mut offset,
                            left,
                            0,
                        )
                    };
                    left -= usize::try_from(moved).map_err(|_| io::Error::last_os_error())?;
                }
                Ok(8 * PAGE)
            })?;
        }
        if number % 2 == 0 {
            opened.file.sync_all()?;
        }
    }
    Ok(())
}

/// Copies by `sendfile` and by `copy_file_range`, from a file whose pages are not in the cache.
pub fn copied(place: &Place) -> io::Result<()> {
    let bytes = PAGES * PAGE;
    let length = usize::try_from(bytes).unwrap_or(0);
    for number in 0..place.count(3) {
        let source = place.create(&format!("source-{number}"), 0)?;
        write_at(place, &source, 0, bytes)?;
        source.file.sync_all()?;
        // SAFETY: the call takes only numbers.
        unsafe { libc::posix_fadvise(source.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        let target = place.create(&format!("target-{number}"), 0)?;
        place.log.act(Act::Dirtied, target.as_named(), 0, || {
            place.log.act(Act::Read, source.as_named(), 0, || {
                let (mut from, mut to) = (0, 0);
                let mut left = length;
                while left > 0 {
                    // SAFETY: both calls write only to the offsets.
                    let moved = unsafe {
                        if number % 2 == 0 {
                            libc::sendfile(
                                target.file.as_raw_fd(),
                                source.file.as_raw_fd(),
                                &raw mut from,
                                left,
                            )
                        } else {
                            libc::copy_file_range(
                                source.file.as_raw_fd(),
                                &raw mut from,
                                target.file.as_raw_fd(),
                                &raw mut to,
                                left,
                                0,
                            )
                        }
                    };
                    left -= usize::try_from(moved).map_err(|_| io::Error::last_os_error())?;
                }
                Ok(bytes)
            })
        })?;
        target.file.sync_all()?;
    }
    Ok(())
}

/// Files are cut and removed as soon as they are on the medium, and others take their blocks.
pub fn reused(place: &Place) -> io::Result<()> {
    for round in 0..place.count(6) {
        let opened = place.create(&format!("file-{round}"), 0)?;
        write_at(place, &opened, 0, PAGES * PAGE)?;
        opened.file.sync_all()?;
        place.log.act(Act::Dirtied, opened.as_named(), 0, || {
            opened.file.set_len(PAGE / 2)?;
            Ok(PAGE / 2)
        })?;
        opened.file.sync_all()?;
        if round % 2 == 0 {
            let from = now();
            fs::remove_file(place.folder.join(format!("file-{round}")))?;
            place.log.removed(from, opened.name)?;
        }
        let path = place.folder.join(format!("after-{round}"));
        let after = place.create_at(&path, 0)?;
        write_at(place, &after, 0, PAGES * PAGE)?;
        if round % 3 == 0 {
            after.file.sync_all()?;
        }
    }
    Ok(())
}

/// Children in cgroups of their own write to one file.
pub fn grouped(place: &Place) -> io::Result<()> {
    let opened = place.create("file", 0)?;
    write_at(place, &opened, 0, PAGES * PAGE)?;
    opened.file.sync_all()?;
    let mut children = Vec::new();
    for child in 0..2 {
        children.push(fork(|| {
            let group = super::memory::Group::enter(&format!("group-{child}"), None);
            for _ in 0..place.count(2) {
                for page in (0..PAGES).filter(|page| page % 2 == child) {
                    write_at(place, &opened, page * PAGE, PAGE)?;
                }
                opened.file.sync_data()?;
            }
            drop(group);
            Ok(())
        })?);
    }
    children.into_iter().try_for_each(join)
}

/// Writes to a file by way of a bind mount of its folder's folder.
pub fn bound(place: &Place) -> io::Result<()> {
    let Some(bind) = &place.bind else {
        return Ok(());
    };
    for number in 0..place.count(2) {
        let opened = place.create(&format!("file-{number}"), 0)?;
        // The bind mount shows the folder in which all programs' folders are.
        let again = bind.join("bound").join(format!("file-{number}"));
        let again = Opened {
            file: OpenOptions::new().read(true).write(true).open(again)?,
            name: opened.name,
        };
        write_at(place, &again, 0, PAGES * PAGE)?;
        again.file.sync_all()?;
        write_at(place, &opened, 0, PAGE)?;
        write_at(place, &again, PAGE, PAGE)?;
    }
    Ok(())
}
