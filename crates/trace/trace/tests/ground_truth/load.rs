//! The processes that write, each in a different way, and the ledger of their actions.
//!
//! Every sector of 512 bytes begins with a stamp of its owner. So the final content of the medium shows the file,
//! offset and process of each sector, on any file system, even for deleted files.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Outcome, failed};

pub const SECTOR: usize = 512;
const PAGE: usize = 4096;
pub const MAGIC: &[u8; 8] = b"tidegt\x01\xfe";
/// Number of processes, and of files that each writes.
pub const WORKERS: u32 = 10;
const FILES: u32 = 12;
const SHARED_PAGES: u64 = 64;
/// Workers that remove their files: after an fsync, and before writing through the descriptor that they keep.
const REMOVES_AFTER_SYNC: u32 = 5;
const REMOVES_BEFORE_WRITING: u32 = 8;
/// `FS_IOC_GETVERSION`.
const GETVERSION: libc::c_ulong = 0x8008_7601;

/// Stamp of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    pub file: u32,
    pub pid: u32,
    /// 0, or 1 if written after the file's rename or unlink.
    pub phase: u32,
    pub offset: u64,
}

impl Stamp {
    fn put(&self, sector: &mut [u8]) {
        sector[..8].copy_from_slice(MAGIC);
        sector[8..12].copy_from_slice(&self.file.to_le_bytes());
        sector[12..16].copy_from_slice(&self.pid.to_le_bytes());
        sector[16..20].copy_from_slice(&self.phase.to_le_bytes());
        sector[20..28].copy_from_slice(&self.offset.to_le_bytes());
    }

    /// `None` if the sector has no stamp.
    pub fn read(sector: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(sector.get(at..at + 4)?.try_into().ok()?));
        (sector.get(..8)? == MAGIC).then_some(())?;
        Some(Self {
            file: word(8)?,
            pid: word(12)?,
            phase: word(16)?,
            offset: u64::from_le_bytes(sector.get(20..28)?.try_into().ok()?),
        })
    }
}

/// Whether the file's worker removes it.
pub fn is_removed(file: u32) -> bool {
    [REMOVES_AFTER_SYNC, REMOVES_BEFORE_WRITING].contains(&(file / 1000))
}

/// Starts all workers and waits for them; the traced command.
pub fn run(folder: &Path, ledger: &Path) -> Outcome<()> {
    let program = std::env::current_exe().map_err(|error| failed("this program", error))?;
    shared_file(&folder.join("shared")).map_err(|error| failed("shared", error))?;
    let mut children = Vec::new();
    for number in 0..WORKERS {
        let started = Command::new(&program)
            .args(["worker", &number.to_string()])
            .args([folder, ledger])
            .spawn();
        children.push(started.map_err(|error| failed("a worker", error))?);
    }
    for mut child in children {
        let status = child.wait().map_err(|error| failed("a worker", error))?;
        if !status.success() {
            return Err(format!("a worker ended with {status}"));
        }
    }
    Ok(())
}

/// A file that two workers write alternately. It has its full length from the start, on the medium: vfat has no holes,
/// so a write past its end would first dirty the other worker's pages with zeros.
fn shared_file(path: &Path) -> std::io::Result<()> {
    let file = File::create(path)?;
    file.set_len(SHARED_PAGES * 4096)?;
    file.sync_all()
}

/// One worker.
pub fn work(number: &str, folder: &Path, ledger: &Path) -> Outcome<()> {
    let number: u32 = number.parse().map_err(|error| failed("number", error))?;
    let worker = Worker {
        number,
        folder: folder.join(format!("w{number}")),
        ledger: OpenOptions::new()
            .append(true)
            .open(ledger)
            .map_err(|error| failed("ledger", error))?,
    };
    fs::create_dir(&worker.folder).map_err(|error| failed("folder", error))?;
    for file in 0..FILES {
        worker
            .file(file)
            .map_err(|error| failed(&format!("worker {number}, file {file}"), error))?;
    }
    if number < 2 {
        worker
            .shared(folder)
            .map_err(|error| failed("shared file", error))?;
    }
    Ok(())
}

struct Worker {
    number: u32,
    folder: PathBuf,
    ledger: File,
}

impl Worker {
    fn file(&self, file: u32) -> std::io::Result<()> {
        let id = self.number * 1000 + file;
        let path = self.folder.join(format!(
            "file-{file}-with-a-name-that-is-longer-than-an-inline-one"
        ));
        let pages = 1 + usize::try_from(id * 7 % 23).unwrap_or(0);
        match self.number {
            // Buffered, left to the kernel.
            0 | 1 => self.buffered(id, &path, pages, |_| Ok(())),
            2 => {
                let mut options = OpenOptions::new();
                options.custom_flags(libc::O_SYNC);
                self.with_options(id, &path, pages, &mut options)
            }
            3 => self.mapped(id, &path, pages),
            4 => {
                let mut options = OpenOptions::new();
                options.custom_flags(libc::O_DIRECT);
                self.with_options(id, &path, pages, &mut options)
            }
            REMOVES_AFTER_SYNC => self.buffered(id, &path, pages, |out| {
                out.sync_all()?;
                fs::remove_file(&path)
            }),
            6 => self.renamed(id, &path, pages),
            // Small appends, each synced.
            7 => self.appended(id, &path, pages.min(4)),
            REMOVES_BEFORE_WRITING => self.written_after_unlink(id, &path, pages),
            // Large writes over data that is already dirty.
            _ => {
                self.buffered(id, &path, pages * 8, |_| Ok(()))?;
                self.buffered(id, &path, pages * 4, |out| out.sync_data())
            }
        }
    }

    fn buffered(
        &self,
        id: u32,
        path: &Path,
        pages: usize,
        end: impl Fn(&File) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let mut out = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        self.note(id, 0, &out, path, false)?;
        out.write_all(&self.content(id, 0, 0, pages * PAGE))?;
        end(&out)
    }

    fn with_options(
        &self,
        id: u32,
        path: &Path,
        pages: usize,
        options: &mut OpenOptions,
    ) -> std::io::Result<()> {
        let out = options.create(true).truncate(true).write(true).open(path)?;
        self.note(id, 0, &out, path, false)?;
        let bytes = self.content(id, 0, 0, pages * PAGE);
        // O_DIRECT requires memory aligned to the block size.
        let mut memory = vec![0; bytes.len() + PAGE];
        let shift = memory.as_ptr().align_offset(PAGE);
        memory[shift..shift + bytes.len()].copy_from_slice(&bytes);
        let (first, rest) = memory[shift..shift + bytes.len()].split_at(PAGE);
        out.write_all_at(first, 0)?;
        out.write_all_at(rest, u64::try_from(PAGE).unwrap_or(0))
    }

    fn mapped(&self, id: u32, path: &Path, pages: usize) -> std::io::Result<()> {
        let out = OpenOptions::new()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(path)?;
        out.set_len(u64::try_from(pages * PAGE).unwrap_or(0))?;
        self.note(id, 0, &out, path, false)?;
        let bytes = self.content(id, 0, 0, pages * PAGE);
        // SAFETY: the whole mapping lies in the file, which no other process uses; it is unmapped before it is
        // forgotten.
        unsafe {
            let memory = libc::mmap(
                std::ptr::null_mut(),
                bytes.len(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                out.as_raw_fd(),
                0,
            );
            if memory == libc::MAP_FAILED {
                return Err(std::io::Error::last_os_error());
            }
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.cast::<u8>(), bytes.len());
            if id.is_multiple_of(2) {
                libc::msync(memory, bytes.len(), libc::MS_SYNC);
            }
            libc::munmap(memory, bytes.len());
        }
        Ok(())
    }

    fn renamed(&self, id: u32, path: &Path, pages: usize) -> std::io::Result<()> {
        let mut out = File::create(path)?;
        self.note(id, 0, &out, path, false)?;
        out.write_all(&self.content(id, 0, 0, pages * PAGE))?;
        out.sync_all()?;
        let folder = self.folder.join(format!("moved-{id}"));
        fs::create_dir(&folder)?;
        let new = folder.join("new-name");
        fs::rename(path, &new)?;
        self.note(id, 1, &out, &new, false)?;
        let offset = out.stream_position()?;
        out.write_all(&self.content(id, 1, offset, pages * PAGE))?;
        out.sync_all()
    }

    fn appended(&self, id: u32, path: &Path, pages: usize) -> std::io::Result<()> {
        let mut out = File::create(path)?;
        self.note(id, 0, &out, path, false)?;
        for at in 0..pages * PAGE / SECTOR {
            let offset = u64::try_from(at * SECTOR).unwrap_or(0);
            out.seek(SeekFrom::Start(offset))?;
            out.write_all(&self.content(id, 0, offset, SECTOR))?;
            if at % 4 == 3 {
                out.sync_data()?;
            }
        }
        Ok(())
    }

    fn written_after_unlink(&self, id: u32, path: &Path, pages: usize) -> std::io::Result<()> {
        let mut out = File::create(path)?;
        fs::remove_file(path)?;
        self.note(id, 1, &out, path, true)?;
        out.write_all(&self.content(id, 1, 0, pages * PAGE))?;
        out.sync_all()
    }

    /// Two processes alternately write to the pages of one file, most of them within the same large folios.
    fn shared(&self, folder: &Path) -> std::io::Result<()> {
        let path = folder.join("shared");
        let out = OpenOptions::new().write(true).open(&path)?;
        let id = 900_000;
        self.note(id, 0, &out, &path, false)?;
        for page in (0..SHARED_PAGES).filter(|page| page % 2 == u64::from(self.number)) {
            let offset = page * 4096;
            out.write_all_at(&self.content(id, 0, offset, PAGE), offset)?;
        }
        out.sync_all()
    }

    fn content(&self, file: u32, phase: u32, offset: u64, bytes: usize) -> Vec<u8> {
        let mut content = vec![0x5A; bytes];
        for (at, sector) in content.chunks_mut(SECTOR).enumerate() {
            let stamp = Stamp {
                file,
                pid: std::process::id(),
                phase,
                offset: offset + u64::try_from(at * SECTOR).unwrap_or(0),
            };
            stamp.put(sector);
        }
        content
    }

    /// One line: file, phase, process, inode, generation, whether it has no name, path from the mountpoint.
    fn note(&self, id: u32, phase: u32, file: &File, path: &Path, deleted: bool) -> std::io::Result<()> {
        let inode = file.metadata()?.ino();
        let generation = generation(file).unwrap_or(0);
        let root = self.folder.parent().unwrap_or(Path::new("/"));
        let path = path.strip_prefix(root).unwrap_or(path);
        let line = format!(
            "{id} {phase} {} {inode} {generation} {deleted} /{}\n",
            std::process::id(),
            path.display()
        );
        (&self.ledger).write_all(line.as_bytes())
    }
}

/// The inode's generation; `None` if the file system does not report it.
pub fn generation(file: &File) -> Option<u32> {
    let mut value: libc::c_long = 0;
    // SAFETY: the call writes at most a long to the address.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), GETVERSION, &raw mut value) };
    // Only 32 bits of it are written.
    (answer == 0).then(|| u32::try_from(value & 0xFFFF_FFFF).unwrap_or(0))
}
