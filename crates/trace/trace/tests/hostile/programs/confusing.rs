//! Processes whose writes look like those of others: stores over truncated data, calls that fail, direct I/O over the data
//! of another process, programs that one process executes.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::memory::Map;
use super::{Opened, PAGE, Place, fork, join, pause};
use crate::ledger::{Act, Log, now};
use crate::{Outcome, failed as step};

/// Pages that the other process writes.
const PAGES: u64 = 16;
/// Times that a page is made dirty for others that sync it; journalled data never is.
const TRIES: u32 = 10;
/// Pages of a call that fails behind its first page.
const LONG_CALL: u64 = 1024;
/// `FS_IOC_SETFLAGS` and `FS_NOCOW_FL`.
const SETFLAGS: libc::c_ulong = 0x4008_6602;
static NOCOW: libc::c_long = 0x0080_0000;

fn write(place: &Place, opened: &Opened, page: u64, pages: u64) -> io::Result<()> {
    let content = vec![0x5E; usize::try_from(pages * PAGE).unwrap_or(0)];
    place.log.act(Act::Dirtied, opened.as_named(), page * PAGE, || {
        opened.file.write_all_at(&content, page * PAGE)?;
        Ok(pages * PAGE)
    })?;
    Ok(())
}

/// Maps the first pages, stores to all of them, and unmaps them: nothing shows later that they were mapped.
fn store(place: &Place, opened: &Opened) -> io::Result<()> {
    let map = Map::new(Some(&opened.file), PAGES * PAGE)?;
    place.log.act(Act::Stored, opened.as_named(), 0, || {
        map.store(0, PAGES * PAGE, 0x5F);
        Ok(PAGES * PAGE)
    })?;
    Ok(())
}

/// Stores to a file in which another process's data was truncated before it was written out.
pub fn truncated(place: &Place) -> io::Result<()> {
    for number in 0..place.count(4) {
        let opened = place.create(&format!("file-{number}"), 0)?;
        join(fork(|| write(place, &opened, 0, PAGES))?)?;
        opened.file.set_len(0)?;
        opened.file.set_len(PAGES * PAGE)?;
        store(place, &opened)?;
        opened.file.sync_all()?;
    }
    Ok(())
}

/// Stores over another process's data right after a call that wrote elsewhere.
pub fn stored(place: &Place) -> io::Result<()> {
    for number in 0..place.count(4) {
        let opened = place.create(&format!("file-{number}"), 0)?;
        join(fork(|| {
            write(place, &opened, 0, PAGES)?;
            opened.file.sync_all()
        })?)?;
        write(place, &opened, 6 * PAGES, 1)?;
        store(place, &opened)?;
        opened.file.sync_all()?;
    }
    Ok(())
}

/// Asks for memory of a file that can be stored to, where another process's data waits, and stores nothing.
pub fn populated(place: &Place) -> io::Result<()> {
    for number in 0..place.count(4) {
        let opened = place.create(&format!("file-{number}"), 0)?;
        join(fork(|| write(place, &opened, 0, PAGES))?)?;
        let map = Map::new(Some(&opened.file), PAGES * PAGE)?;
        let bytes = usize::try_from(PAGES * PAGE).unwrap_or(0);
        place.log.act(Act::Touched, opened.as_named(), 0, || {
            // SAFETY: the range is the mapping's, and its content does not change.
            match unsafe { libc::madvise(map.address().cast(), bytes, libc::MADV_POPULATE_WRITE) } {
                0 => Ok(PAGES * PAGE),
                _ => Err(io::Error::last_os_error()),
            }
        })?;
        drop(map);
        opened.file.sync_all()?;
    }
    Ok(())
}

/// Writes far behind the end of a file whose last page, with data of another process, waits: the kernel fills it with zeros.
pub fn extended(place: &Place) -> io::Result<()> {
    const BYTES: u64 = 5000;
    for number in 0..place.count(4) {
        let opened = place.create(&format!("file-{number}"), 0)?;
        let first = || {
            opened.file.write_all_at(&[0x61; 5000], 0)?;
            Ok(BYTES)
        };
        // If the machine is synced meanwhile, the page has no data but the kernel's zeros, of which nothing is told.
        for _ in 0..TRIES {
            join(fork(|| {
                place
                    .log
                    .act(Act::Dirtied, opened.as_named(), 0, first)
                    .map(|_| ())
            })?)?;
            if testkit::CachedPages::of(&opened.file).is_none_or(|pages| pages.dirty > 0) {
                break;
            }
        }
        place.log.act(Act::Touched, opened.as_named(), PAGE, || {
            write(place, &opened, 3 * PAGES, 1)?;
            Ok(PAGE)
        })?;
        opened.file.sync_all()?;
    }
    Ok(())
}

/// Calls that fail, or are cut short, over the data of another process that waits to be written out.
pub fn failed(place: &Place) -> io::Result<()> {
    for number in 0..place.count(4) {
        let opened = place.create(&format!("file-{number}"), 0)?;
        let is_short = number % 2 == 1;
        join(fork(|| {
            write(place, &opened, if is_short { LONG_CALL / 2 } else { 0 }, PAGES)
        })?)?;
        if is_short {
            cut_short(place, &opened)?;
        } else {
            // SAFETY: the kernel checks the address, and refuses it.
            let written = unsafe {
                let nowhere = std::ptr::without_provenance(16);
                let bytes = usize::try_from(PAGES * PAGE).unwrap_or(0);
                libc::pwrite(opened.file.as_raw_fd(), nowhere, bytes, 0)
            };
            if written != -1 {
                return Err(io::Error::other("a write from nowhere succeeded"));
            }
        }
        opened.file.sync_all()?;
    }
    Ok(())
}

/// A long call whose memory ends behind its first page.
fn cut_short(place: &Place, opened: &Opened) -> io::Result<()> {
    let memory = Map::new(None, LONG_CALL * PAGE)?;
    let bytes = |pages: u64| usize::try_from(pages * PAGE).unwrap_or(0);
    let from = now();
    // SAFETY: the mapping is this function's, and nothing uses it after its first page.
    let written = unsafe {
        libc::munmap(memory.address().add(bytes(1)).cast(), bytes(LONG_CALL - 1));
        libc::pwrite(
            opened.file.as_raw_fd(),
            memory.address().cast(),
            bytes(LONG_CALL),
            0,
        )
    };
    let written = u64::try_from(written).map_err(|_| io::Error::last_os_error())?;
    if written > PAGE {
        return Err(io::Error::other("more was written than there is"));
    }
    // The kernel may write out the whole folio of what was copied.
    place
        .log
        .ended(Act::Stored, opened.as_named(), 0, LONG_CALL / 2 * PAGE, from)
}

/// Direct writes over what another process wrote through the cache, of a file that btrfs writes in place.
pub fn in_place(place: &Place) -> io::Result<()> {
    for number in 0..place.count(4) {
        let opened = place.create(&format!("file-{number}"), 0)?;
        // SAFETY: the call reads a long. Only btrfs knows the flag.
        let _ = unsafe { libc::ioctl(opened.file.as_raw_fd(), SETFLAGS, &raw const NOCOW) };
        join(fork(|| {
            write(place, &opened, 0, PAGES)?;
            opened.file.sync_all()?;
            // A direct write over cached data may go through the cache.
            Ok(rustix::fs::fadvise(
                &opened.file,
                0,
                None,
                rustix::fs::Advice::DontNeed,
            )?)
        })?)?;
        let direct = std::fs::OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(place.folder.join(format!("file-{number}")))?;
        let memory = Map::new(None, PAGE)?;
        for page in 0..PAGES {
            place
                .log
                .act(Act::WroteDirectly, opened.as_named(), page * PAGE, || {
                    let offset = i64::try_from(page * PAGE).unwrap_or(0);
                    let bytes = usize::try_from(PAGE).unwrap_or(0);
                    // SAFETY: the memory is a page of a mapping that outlives the call.
                    let written =
                        unsafe { libc::pwrite(direct.as_raw_fd(), memory.address().cast(), bytes, offset) };
                    u64::try_from(written).map_err(|_| io::Error::last_os_error())
                })?;
        }
        direct.sync_all()?;
    }
    Ok(())
}

/// One thread writes the same pages twice: under another name, or as another program that it executes in between.
pub fn executed(place: &Place) -> io::Result<()> {
    for number in 0..place.count(4) {
        let path = place.folder.join(format!("file-{number}"));
        let opened = place.create_at(&path, 0)?;
        join(fork(|| {
            (0..PAGES).try_for_each(|page| write(place, &opened, page, 1))?;
            pause();
            if number % 2 == 0 {
                rustix::thread::set_name(c"second")?;
                return (0..PAGES).try_for_each(|page| write(place, &opened, page, 1));
            }
            let mut command = Command::new("/proc/self/exe");
            command.arg("executed").args([&path, &place.ledger]);
            Err(command.arg(opened.name.to_string()).exec())
        })?)?;
        pause();
        opened.file.sync_all()?;
    }
    Ok(())
}

/// The second program: `executed FILE LEDGER NAME`. It writes to the same pages, which may still be dirty.
pub fn executed_second(path: &str, ledger: &str, name: &str) -> Outcome<()> {
    let name = name.parse().map_err(|error| step("name", error))?;
    let file = std::fs::OpenOptions::new().write(true).open(path);
    let file = file.map_err(|error| step(path, error))?;
    let log = Log::open(Path::new(ledger)).map_err(|error| step("ledger", error))?;
    let written = (0..PAGES).try_for_each(|page| {
        let write = || {
            file.write_all_at(&[0x60; 4096], page * PAGE)?;
            Ok(PAGE)
        };
        log.act(Act::Dirtied, (&file, name), page * PAGE, write)
            .map(|_| ())
    });
    written.map_err(|error| step(path, error))
}
