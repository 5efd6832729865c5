//! The contract suite: required behaviour of every [`vfs::FileSystem`]. The clauses are stated in the crate `vfs`; each
//! is a module here, and each case a sentence of it.
//!
//! | clause | module | runs by |
//! |---|---|---|
//! | names, content | `names`, `data` | [`run_all`] |
//! | appending | `appending` | [`run_all`] |
//! | short reads | `short_reads` | [`run_all`] |
//! | size, times and extents | `visibility` | [`run_all`] |
//! | handles | `handles` | [`run_all`] |
//! | credentials | `credentials` | [`run_all`], as root |
//! | durability, sync | `durability` | [`run_durability`], with a readable medium |
//! | errors | `errors` | [`run_errors`], with faults below |
//!
//! Each case has a fresh, empty file system, and a thread named after it, so that a panic names the broken promise.
//! Features that a file system may lack by the contract (special files, extended attributes, allocation) are checked
//! only if it does not answer [`FsError::NotSupported`]. Permissions are not tested: they are the caller's
//! responsibility.

mod appending;
mod credentials;
mod data;
mod durability;
mod errors;
mod handles;
mod names;
mod short_reads;
mod visibility;

use vfs::{
    Attr, Caller, DirEntry, DirSink, Entry, FileSystem, FsError, Handle, Ino, NewNode, OpenFlags, Privileges,
    WriteMode,
};

pub use durability::{PowerCut, run_durability};
pub use errors::run_errors;

type Case<F> = (&'static str, fn(&Scene<'_, F>));

/// The cases of a clause, each with the name of its function.
macro_rules! cases {
    ($generic:ident: $($case:ident),* $(,)?) => {
        vec![$((stringify!($case), $case::<$generic>)),*]
    };
}
use cases;

/// Runs every case that needs only a file system, each on a new one from `make`: empty, with space for a few MiB.
pub fn run_all<F: FileSystem>(make: impl Fn() -> F + Sync) {
    let cases = clauses::<F>().into_iter().flat_map(|(_, cases)| cases);
    run_each(cases, |case| {
        let file_system = make();
        case(&Scene {
            file_system: &file_system,
        });
    });
}

fn clauses<F: FileSystem>() -> Vec<(&'static str, Vec<Case<F>>)> {
    vec![
        ("content", data::cases()),
        ("names", names::cases()),
        ("appending", appending::cases()),
        ("short reads", short_reads::cases()),
        ("size, times and extents", visibility::cases()),
        ("handles", handles::cases()),
        ("credentials", credentials::cases()),
    ]
}

/// Runs each case in a thread with its name, and lists the failed ones at the end.
fn run_each<C: Send>(cases: impl IntoIterator<Item = (&'static str, C)>, run: impl Fn(C) + Sync) {
    let fails = |(name, case): (&'static str, C)| {
        let failed = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name(name.into());
            let running = thread.spawn_scoped(scope, || run(case));
            running.expect("a thread for the case").join().is_err()
        });
        failed.then(|| name.replace('_', " "))
    };
    let broken: Vec<String> = cases.into_iter().filter_map(fails).collect();
    assert!(broken.is_empty(), "the contract is broken: {}", broken.join("; "));
}

/// This process as the caller: a host file system lets any user create files of their own.
#[must_use]
pub fn caller() -> Caller {
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        pid: 0,
    }
}

/// A regular file of mode 0644.
pub const FILE: NewNode = NewNode {
    mode: libc::S_IFREG | 0o644,
    umask: 0,
    rdev: 0,
};
/// A directory of mode 0755.
pub const DIRECTORY: NewNode = NewNode {
    mode: libc::S_IFDIR | 0o755,
    umask: 0,
    rdev: 0,
};

/// An ordinary buffered write by a privileged caller.
#[must_use]
pub const fn plain(flags: i32) -> WriteMode {
    WriteMode {
        flags: OpenFlags(flags),
        privileges: Privileges::Keep,
        from_page_cache: false,
    }
}

/// The file system under test, with the calls that most cases make.
struct Scene<'a, F> {
    file_system: &'a F,
}

/// An open file of a case.
#[derive(Clone, Copy, Debug)]
struct File {
    ino: Ino,
    handle: Handle,
}

impl<F: FileSystem> Scene<'_, F> {
    fn create(&self, name: &[u8]) -> File {
        let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT | libc::O_EXCL);
        let made = self.file_system.create(&caller(), Ino::ROOT, name, FILE, flags);
        let (entry, opened) = made.expect("a new file can be made");
        File {
            ino: entry.ino,
            handle: opened.handle,
        }
    }

    fn open(&self, ino: Ino, flags: i32) -> File {
        let opened = self
            .file_system
            .open(ino, OpenFlags(flags), Privileges::Keep)
            .expect("the file can be opened");
        File {
            ino,
            handle: opened.handle,
        }
    }

    fn close(&self, file: File) {
        self.file_system
            .flush(file.ino, file.handle)
            .expect("no write failed");
        self.file_system.release(file.ino, file.handle);
    }

    fn write(&self, file: File, offset: u64, data: &[u8]) {
        let written = self
            .file_system
            .write(file.ino, file.handle, offset, data, plain(libc::O_RDWR));
        assert_eq!(
            written,
            Ok(data.len()),
            "write of {} bytes at {offset}",
            data.len()
        );
    }

    fn read(&self, file: File, offset: u64, length: usize) -> Vec<u8> {
        let mut out = vec![0xAA; length];
        let read = self
            .file_system
            .read(file.ino, file.handle, offset, &mut out)
            .expect("the file can be read");
        out.truncate(read);
        out
    }

    fn attr(&self, ino: Ino) -> Attr {
        self.file_system
            .getattr(ino, None)
            .expect("the inode has attributes")
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry, FsError> {
        self.file_system.lookup(parent, name)
    }

    fn mkdir(&self, parent: Ino, name: &[u8]) -> Ino {
        self.file_system
            .mkdir(&caller(), parent, name, DIRECTORY)
            .expect("a directory can be made")
            .ino
    }

    /// Names and inodes of a directory, `batch` at a time, without `.` and `..`.
    fn list(&self, ino: Ino, batch: usize, with_entries: bool) -> Vec<(Vec<u8>, Option<Entry>)> {
        let handle = self.file_system.opendir(ino).expect("a directory can be opened");
        let mut all = Vec::new();
        let mut offset = 0;
        loop {
            let mut sink = Names {
                found: Vec::new(),
                batch,
                offset,
            };
            let listed = if with_entries {
                self.file_system.readdir_plus(ino, handle, offset, &mut sink)
            } else {
                self.file_system.readdir(ino, handle, offset, &mut sink)
            };
            listed.expect("a directory can be listed");
            offset = sink.offset;
            if sink.found.is_empty() {
                break;
            }
            all.append(&mut sink.found);
        }
        self.file_system.releasedir(ino, handle);
        all.retain(|(name, _)| name != b"." && name != b"..");
        all
    }
}

/// A sink for `batch` names.
struct Names {
    found: Vec<(Vec<u8>, Option<Entry>)>,
    batch: usize,
    offset: u64,
}

impl DirSink for Names {
    fn fits(&self, _name_bytes: usize) -> bool {
        self.found.len() < self.batch
    }

    fn push(&mut self, name: &DirEntry<'_>, entry: Option<&Entry>) {
        self.found.push((name.name.to_vec(), entry.copied()));
        self.offset = name.next_offset;
    }
}
