//! A source directory of its own for each test, and short forms of the calls that most tests make.

use std::path::PathBuf;

use passfs::{AccessTimes, PassConfig, PassFs};
use vfs::{
    Caller, Entry, FileSystem, FsResult, Handle, Ino, NewNode, OpenFlags, Opened, Privileges, WriteMode,
};

pub(crate) const PLAIN: PassConfig = PassConfig {
    id_map: None,
    read_only: false,
    write_out_bytes: None,
    stream_direct_after_bytes: None,
    stream_direct_rate_min: 0,
    offer_backing: false,
    access_times: AccessTimes::OF_SOURCE,
};

pub(crate) struct Source {
    pub fs: PassFs,
    directory: tempfile::TempDir,
}

impl Source {
    pub(crate) fn new() -> Self {
        Self::with(PLAIN)
    }

    pub(crate) fn with(config: PassConfig) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let fs = PassFs::open(directory.path(), config).unwrap();
        Self { fs, directory }
    }

    pub(crate) fn in_folder(directory: tempfile::TempDir) -> Self {
        Self::in_folder_with(directory, PLAIN)
    }

    pub(crate) fn in_folder_with(directory: tempfile::TempDir, config: PassConfig) -> Self {
        let fs = PassFs::open(directory.path(), config).unwrap();
        Self { fs, directory }
    }

    /// The same source, opened by the calling thread.
    pub(crate) fn opened_anew(self) -> Self {
        Self::in_folder(self.directory)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn create(&self, name: &str) -> (Entry, Handle) {
        let (entry, opened) = self.create_as(&daemon(), Ino::ROOT, name, 0o644).unwrap();
        (entry, opened.handle)
    }

    pub(crate) fn create_as(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &str,
        mode: u32,
    ) -> FsResult<(Entry, Opened)> {
        self.fs.create(
            caller,
            parent,
            name.as_bytes(),
            node(mode),
            OpenFlags(libc::O_RDWR | libc::O_EXCL),
        )
    }

    pub(crate) fn lookup(&self, name: &str) -> FsResult<Entry> {
        self.fs.lookup(Ino::ROOT, name.as_bytes())
    }

    pub(crate) fn write(
        &self,
        (entry, handle): (Entry, Handle),
        offset: u64,
        data: &[u8],
    ) -> FsResult<usize> {
        self.fs
            .write(entry.ino, handle, offset, data, write_mode(Privileges::Keep))
    }

    pub(crate) fn read(
        &self,
        (entry, handle): (Entry, Handle),
        offset: u64,
        bytes: usize,
    ) -> FsResult<Vec<u8>> {
        let mut out = vec![0; bytes];
        let read = self.fs.read(entry.ino, handle, offset, &mut out)?;
        out.truncate(read);
        Ok(out)
    }

    /// Descriptors of this process on the source and its files. By inode: no path leads to a mount of the daemon's own.
    pub(crate) fn descriptors(&self) -> usize {
        use std::os::unix::fs::MetadataExt;
        let key = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let mut known = std::collections::HashSet::from([key(self.directory.path().metadata().unwrap())]);
        for entry in std::fs::read_dir(self.directory.path()).unwrap() {
            known.insert(key(entry.unwrap().metadata().unwrap()));
        }
        let names = std::fs::read_dir("/proc/self/fd").unwrap();
        let found = names.filter_map(|name| std::fs::metadata(name.ok()?.path()).ok());
        found
            .filter(|metadata| known.contains(&key(metadata.clone())))
            .count()
    }
}

/// The caller that has the ids of this process.
pub(crate) fn daemon() -> Caller {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    Caller { uid, gid, pid: 1 }
}

pub(crate) fn caller(uid: u32, gid: u32) -> Caller {
    Caller { uid, gid, pid: 1 }
}

pub(crate) fn node(mode: u32) -> NewNode {
    NewNode {
        mode: libc::S_IFREG | mode,
        umask: 0o022,
        rdev: 0,
    }
}

pub(crate) fn write_mode(privileges: Privileges) -> WriteMode {
    WriteMode {
        flags: OpenFlags(libc::O_RDWR),
        privileges,
        from_page_cache: false,
    }
}
