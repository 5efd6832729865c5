//! Files that the host lets grow only (`chattr +a`).

use std::fs::File;
use std::path::PathBuf;

use rustix::fs::IFlags;
use vfs::{FileSystem, FsError, OpenFlags, Privileges, WriteMode};

use crate::source::{Source, write_mode};

/// A file with the append-only flag, which leaves it when this is dropped: nobody could remove the file.
struct AppendOnly {
    path: PathBuf,
}

impl AppendOnly {
    /// `None`, recorded as left out, where the host has no such flag.
    fn new(path: PathBuf) -> Option<Self> {
        if !testkit::needs(&[testkit::Need::Root]) {
            return None;
        }
        std::fs::write(&path, b"first").unwrap();
        if set_flag(&path, true).is_err() {
            testkit::report_left_out("the host has no append-only files");
            return None;
        }
        Some(Self { path })
    }
}

impl Drop for AppendOnly {
    fn drop(&mut self) {
        set_flag(&self.path, false).unwrap();
    }
}

fn set_flag(path: &PathBuf, on: bool) -> rustix::io::Result<()> {
    let file = File::open(path).unwrap();
    let mut flags = rustix::fs::ioctl_getflags(&file)?;
    flags.set(IFlags::APPEND, on);
    rustix::fs::ioctl_setflags(&file, flags)
}

#[test]
fn an_append_only_file_opens_for_appending_and_for_nothing_else() {
    let source = Source::new();
    let Some(_file) = AppendOnly::new(source.path("log")) else {
        return;
    };
    let entry = source.lookup("log").unwrap();
    let open = |flags| source.fs.open(entry.ino, OpenFlags(flags), Privileges::Keep);
    assert_eq!(open(libc::O_WRONLY).err(), Some(FsError::NotPermitted));
    assert_eq!(
        open(libc::O_RDWR | libc::O_APPEND | libc::O_TRUNC).err(),
        Some(FsError::NotPermitted)
    );
    for access in [libc::O_WRONLY, libc::O_RDWR] {
        let handle = open(access | libc::O_APPEND).unwrap().handle;
        assert_eq!(source.write((entry, handle), 5, b"+more"), Ok(5));
        source.fs.release(entry.ino, handle);
    }
    assert_eq!(std::fs::read(source.path("log")).unwrap(), b"first+more+more");
}

#[test]
fn pages_written_back_to_an_append_only_file_add_only_what_it_lacks() {
    let source = Source::new();
    let Some(_file) = AppendOnly::new(source.path("log")) else {
        return;
    };
    let entry = source.lookup("log").unwrap();
    let flags = OpenFlags(libc::O_WRONLY | libc::O_APPEND);
    let handle = source.fs.open(entry.ino, flags, Privileges::Keep).unwrap().handle;
    let mode = WriteMode {
        from_page_cache: true,
        ..write_mode(Privileges::Keep)
    };
    let write = |offset, data: &[u8]| source.fs.write(entry.ino, handle, offset, data, mode);
    assert_eq!(write(0, b"first+more"), Ok(10));
    assert_eq!(write(0, b"first"), Ok(5), "nothing is added twice");
    assert_eq!(write(11, b"too far").err(), Some(FsError::Io));
    assert_eq!(std::fs::read(source.path("log")).unwrap(), b"first+more");
}
