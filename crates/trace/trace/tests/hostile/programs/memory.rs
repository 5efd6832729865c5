//! Writes by stores to mapped memory.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use super::{Opened, PAGE, Place, Random, fork, join};
use crate::ledger::Act;

/// A shared mapping of a file or of memory.
pub struct Map {
    address: *mut u8,
    bytes: usize,
}

impl Map {
    /// Maps the first bytes of a file; without one, memory that is shared with children.
    pub fn new(file: Option<&fs::File>, bytes: u64) -> io::Result<Self> {
        let bytes = usize::try_from(bytes).unwrap_or(0);
        let (flags, descriptor) = match file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1),
        };
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                descriptor,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            address: address.cast(),
            bytes,
        })
    }

    pub const fn address(&self) -> *mut u8 {
        self.address
    }

    /// Fills a range.
    pub fn store(&self, offset: u64, bytes: u64, value: u8) {
        let (offset, bytes) = (
            usize::try_from(offset).unwrap_or(0),
            usize::try_from(bytes).unwrap_or(0),
        );
        assert!(offset + bytes <= self.bytes, "inside the mapping");
        // SAFETY: the range lies in the mapping, which is this value's.
        unsafe { std::ptr::write_bytes(self.address.add(offset), value, bytes) };
    }

    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is the whole mapping.
        match unsafe { libc::msync(self.address.cast(), self.bytes, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more.
        unsafe { libc::munmap(self.address.cast(), self.bytes) };
    }
}

fn store(place: &Place, opened: &Opened, map: &Map, offset: u64, bytes: u64) -> io::Result<()> {
    place.log.act(Act::Stored, opened.as_named(), offset, || {
        map.store(offset, bytes, 0x5C);
        Ok(bytes)
    })?;
    Ok(())
}

/// Stores with and without msync, by one process and by two that map the same file.
pub fn mapped(place: &Place) -> io::Result<()> {
    const PAGES: u64 = 64;
    for number in 0..place.count(4) {
        let opened = place.create(&format!("file-{number}"), 0)?;
        opened.file.set_len(PAGES * PAGE)?;
        let map = Map::new(Some(&opened.file), PAGES * PAGE)?;
        let mut random = Random(number);
        for _ in 0..16 {
            store(place, &opened, &map, random.below(PAGES) * PAGE, PAGE)?;
        }
        if number % 2 == 0 {
            map.sync()?;
            store(place, &opened, &map, random.below(PAGES) * PAGE, PAGE)?;
            map.sync()?;
        }
        if number % 4 == 3 {
            let child = fork(|| {
                for page in (0..PAGES).filter(|page| page % 2 == 1) {
                    store(place, &opened, &map, page * PAGE, PAGE)?;
                }
                map.sync()
            })?;
            for page in (0..PAGES).filter(|page| page % 2 == 0) {
                store(place, &opened, &map, page * PAGE, PAGE)?;
            }
            join(child)?;
            map.sync()?;
        }
    }
    Ok(())
}

/// A memory cgroup (version 1) of this process, removed on drop.
pub struct Group(PathBuf);

impl Group {
    /// Enters a new group; `None` where there are none.
    pub fn enter(name: &str, limit: Option<u64>) -> Option<Self> {
        let root = PathBuf::from("/sys/fs/cgroup/memory");
        let folder = root.join(format!("tidegate-hostile-{}-{name}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let group = Self(folder);
        if let Some(limit) = limit {
            fs::write(group.0.join("memory.limit_in_bytes"), limit.to_string()).ok()?;
        }
        fs::write(group.0.join("cgroup.procs"), std::process::id().to_string()).ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let pid = std::process::id().to_string();
        let _ = fs::write("/sys/fs/cgroup/memory/cgroup.procs", pid);
        let _ = fs::remove_dir(&self.0);
    }
}

/// More stores than the process may have memory for: the kernel writes pages to get at memory.
pub fn pressed(place: &Place) -> io::Result<()> {
    const MEBIBYTE: u64 = 1 << 20;
    let bytes = 24 * MEBIBYTE;
    let opened = place.create("file", 0)?;
    opened.file.set_len(bytes)?;
    let group = Group::enter("pressed", Some(12 * MEBIBYTE));
    if group.is_none() {
        return Ok(());
    }
    let map = Map::new(Some(&opened.file), bytes)?;
    for _ in 0..place.count(1).min(3) {
        for start in (0..bytes).step_by(256 << 10) {
            store(place, &opened, &map, start, 256 << 10)?;
        }
    }
    map.sync()
}
