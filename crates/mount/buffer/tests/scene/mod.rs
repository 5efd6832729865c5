//! A buffer over a model file system with faults, and the calls that the tests make.

use std::time::Duration;

use buffer::{BufferConfig, Buffered, Flusher};
use testkit::contract::{FILE, caller, plain};
use testkit::{Faults, FaultyFs, MemFs};
use vfs::{FileSystem, FsResult, Handle, Ino, OpenFlags, Privileges};

/// An interval that no test reaches.
pub const NEVER: Duration = Duration::from_secs(30);

pub struct Scene {
    pub buffered: Buffered<FaultyFs<MemFs>>,
    pub faults: Faults,
}

#[derive(Clone, Copy, Debug)]
pub struct File {
    pub ino: Ino,
    pub handle: Handle,
}

/// Four entries of 16 KiB.
pub const fn small(flusher: Flusher, flush_interval: Duration) -> BufferConfig {
    BufferConfig {
        buffer_bytes: 64 << 10,
        entry_bytes: 16 << 10,
        flush_interval,
        flusher,
    }
}

impl Scene {
    pub fn new(config: BufferConfig) -> Self {
        Self::over(MemFs::new(), config)
    }

    pub fn over(model: MemFs, config: BufferConfig) -> Self {
        let below = FaultyFs::new(model);
        let faults = below.faults();
        Self {
            buffered: Buffered::new(below, config).expect("the configuration is valid"),
            faults,
        }
    }

    pub fn create(&self, name: &[u8]) -> File {
        let made = self.buffered.create(
            &caller(),
            Ino::ROOT,
            name,
            FILE,
            OpenFlags(libc::O_RDWR | libc::O_CREAT),
        );
        let (entry, opened) = made.expect("a file can be made");
        File {
            ino: entry.ino,
            handle: opened.handle,
        }
    }

    pub fn open(&self, ino: Ino) -> File {
        self.open_with(ino, libc::O_RDWR)
    }

    pub fn open_with(&self, ino: Ino, flags: i32) -> File {
        let opened = self
            .buffered
            .open(ino, OpenFlags(flags), Privileges::Keep)
            .expect("the file can be opened");
        File {
            ino,
            handle: opened.handle,
        }
    }

    pub fn try_write(&self, file: File, offset: u64, data: &[u8]) -> FsResult<usize> {
        self.buffered
            .write(file.ino, file.handle, offset, data, plain(libc::O_RDWR))
    }

    pub fn write(&self, file: File, offset: u64, data: &[u8]) {
        assert_eq!(self.try_write(file, offset, data), Ok(data.len()));
    }

    pub fn fsync(&self, file: File) -> FsResult<()> {
        self.buffered.fsync(file.ino, file.handle, false)
    }

    pub fn flush(&self, file: File) -> FsResult<()> {
        self.buffered.flush(file.ino, file.handle)
    }

    pub fn release(&self, file: File) {
        self.buffered.release(file.ino, file.handle);
    }

    pub fn read(&self, file: File, offset: u64, length: usize) -> Vec<u8> {
        let mut out = vec![0xAA; length];
        let read = self
            .buffered
            .read(file.ino, file.handle, offset, &mut out)
            .expect("the file can be read");
        out.truncate(read);
        out
    }
}
