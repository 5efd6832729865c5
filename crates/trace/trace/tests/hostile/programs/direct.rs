//! Direct I/O, of files and of a device, from memory of several kinds, and without waiting.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use super::memory::Map;
use super::{Opened, PAGE, Place, Random};
use crate::ledger::{Act, Log, now};

const PAGES: u64 = 256;
const THREADS: u64 = 16;

/// Moves one page between a file and memory; how many bytes were moved. Refused without waiting: 0.
fn page(file: &File, memory: *mut u8, offset: u64, act: Act, flags: i32) -> io::Result<u64> {
    let vector = libc::iovec {
        iov_base: memory.cast(),
        iov_len: usize::try_from(PAGE).unwrap_or(0),
    };
    let offset = i64::try_from(offset).unwrap_or(0);
    // SAFETY: the memory is a page of a mapping that outlives the call.
    let moved = unsafe {
        match act {
            Act::ReadDirectly => libc::preadv2(file.as_raw_fd(), &raw const vector, 1, offset, flags),
            _ => libc::pwritev2(file.as_raw_fd(), &raw const vector, 1, offset, flags),
        }
    };
    match u64::try_from(moved) {
        Ok(moved) => Ok(moved),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            error => Err(error),
        },
    }
}

fn fill(log: &Log, opened: &Opened, memory: &Map) -> io::Result<()> {
    for number in 0..PAGES {
        log.act(Act::WroteDirectly, opened.as_named(), number * PAGE, || {
            page(
                &opened.file,
                memory.address(),
                number * PAGE,
                Act::WroteDirectly,
                0,
            )
        })?;
    }
    Ok(())
}

fn rewrite_and_read(place: &Place, opened: &Opened, memory: &Map, rounds: u64) -> io::Result<()> {
    let mut random = Random(rounds);
    for _ in 0..rounds {
        let offset = random.below(PAGES) * PAGE;
        let act = if random.below(2) == 0 {
            Act::ReadDirectly
        } else {
            Act::WroteDirectly
        };
        place.log.act(act, opened.as_named(), offset, || {
            page(&opened.file, memory.address(), offset, act, 0)
        })?;
    }
    Ok(())
}

/// From and to a process's own memory.
pub fn anonymous(place: &Place) -> io::Result<()> {
    let opened = place.create("file", libc::O_DIRECT)?;
    let memory = Map::new(None, PAGE)?;
    fill(&place.log, &opened, &memory)?;
    rewrite_and_read(place, &opened, &memory, place.count(200))
}

/// From and to memory that is itself a file's: of this file system, and shared memory.
pub fn shared(place: &Place) -> io::Result<()> {
    let opened = place.create("file", libc::O_DIRECT)?;
    let memory = place.create("memory", 0)?;
    memory.file.set_len(PAGE)?;
    let memory_map = Map::new(Some(&memory.file), PAGE)?;
    place.log.act(Act::Stored, memory.as_named(), 0, || {
        memory_map.store(0, PAGE, 1);
        Ok(PAGE)
    })?;
    memory.file.sync_all()?;
    fill(&place.log, &opened, &memory_map)?;
    // Writes alone: a read would make the file that is the memory dirty.
    let mut random = Random(7);
    for _ in 0..place.count(100) {
        let offset = random.below(PAGES) * PAGE;
        place.log.act(Act::WroteDirectly, opened.as_named(), offset, || {
            page(&opened.file, memory_map.address(), offset, Act::WroteDirectly, 0)
        })?;
    }
    rewrite_and_read(place, &opened, &Map::new(None, PAGE)?, place.count(100))
}

/// Threads that read a file and never wait: most of them are refused while the queue is full.
pub fn nowait(place: &Place) -> io::Result<()> {
    let opened = place.create("file", libc::O_DIRECT)?;
    fill(&place.log, &opened, &Map::new(None, PAGE)?)?;
    without_waiting(place, &opened, place.count(400))
}

fn without_waiting(place: &Place, opened: &Opened, attempts: u64) -> io::Result<()> {
    std::thread::scope(|scope| {
        let reader = |number: u64| {
            move || -> io::Result<()> {
                let memory = Map::new(None, PAGE)?;
                let mut random = Random(number);
                for _ in 0..attempts {
                    let offset = random.below(PAGES) * PAGE;
                    let from = now();
                    let read = place.log.act(Act::ReadDirectly, opened.as_named(), offset, || {
                        page(
                            &opened.file,
                            memory.address(),
                            offset,
                            Act::ReadDirectly,
                            libc::RWF_NOWAIT,
                        )
                    })?;
                    if read == 0 {
                        place
                            .log
                            .ended(Act::Refused, opened.as_named(), offset, PAGE, from)?;
                    }
                }
                Ok(())
            }
        };
        let readers: Vec<_> = (0..THREADS).map(|number| scope.spawn(reader(number))).collect();
        readers.into_iter().try_for_each(|reader| {
            reader
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        })
    })
}

fn open_device(place: &Place) -> io::Result<Opened> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).custom_flags(libc::O_DIRECT);
    let file = options.open(&place.folder)?;
    Ok(Opened { file, name: 0 })
}

/// The device itself, from shared memory.
pub fn raw_shared(place: &Place) -> io::Result<()> {
    let opened = open_device(place)?;
    let memory = Map::new(None, PAGE)?;
    fill(&place.log, &opened, &memory)?;
    rewrite_and_read(place, &opened, &memory, place.count(300))
}

/// The device itself, without waiting, by more threads than its queue has places.
pub fn raw_nowait(place: &Place) -> io::Result<()> {
    let opened = open_device(place)?;
    without_waiting(place, &opened, place.count(500))
}
