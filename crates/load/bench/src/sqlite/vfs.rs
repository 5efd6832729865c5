//! A wrapper VFS that times each sync and counts each write of SQLite.
//!
//! It is a copy of the library's default VFS that differs in one function: after the real open of a file, the file's
//! methods are replaced by a copy that differs in two, sync and write. All other methods are called directly, without
//! overhead. The counts are per thread: [`begin`] and [`take`] apply to the calling thread.
//!
//! The calls counted are those of SQLite's core. Directory syncs, which the default VFS makes by itself when it
//! creates or removes a journal, are part of the time of the sync or the removal and are not counted.
//!
//! JUSTIFICATION for `unsafe`: this is SQLite's C interface for the purpose. Counting from outside (trace points, a
//! tracer) needs privileges or slows the run down.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use results::LatencyHistogram;
use rusqlite::ffi::{SQLITE_IOERR, SQLITE_OK, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs};

use super::library::Functions;
use crate::clock::Clock;
use crate::latencies::LatencyCounter;

/// Name under which the VFS is registered and opened.
const NAME: &std::ffi::CStr = c"tidegate-timed";

/// The default VFS has one method table per locking style; few are ever used.
const METHOD_SETS_MAX: usize = 8;

/// The newest version of `sqlite3_io_methods` that the copy can hold.
const METHODS_VERSION_MAX: c_int = 3;

/// SQLite's file operations in one thread.
#[derive(Clone, Debug, Default)]
pub struct FileWork {
    /// Latencies of syncs.
    pub syncs: LatencyHistogram,
    /// Number of writes.
    pub writes: u64,
    /// Bytes of those writes.
    pub written_bytes: u64,
}

thread_local! {
    /// Latency of each sync since [`begin`]; `None` if the thread is not counted.
    static SYNCS: RefCell<Option<(Clock, LatencyCounter)>> = const { RefCell::new(None) };
    static WRITES: Cell<u64> = const { Cell::new(0) };
    static WRITTEN_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// Starts counting for this thread.
pub fn begin() {
    SYNCS.set(Some((Clock::best(), LatencyCounter::new())));
    WRITES.set(0);
    WRITTEN_BYTES.set(0);
}

/// Stops counting, and returns this thread's counts since [`begin`].
pub fn take() -> FileWork {
    FileWork {
        syncs: SYNCS
            .take()
            .map(|(_, count)| count.outcome(0).latency)
            .unwrap_or_default(),
        writes: WRITES.get(),
        written_bytes: WRITTEN_BYTES.get(),
    }
}

/// Proof that the VFS is registered with a library.
pub struct TimedVfs(());

/// The structure passed to SQLite, which knows only its first field and hands its address back.
#[repr(C)]
struct Layer {
    /// The library writes the link to the next VFS.
    vfs: UnsafeCell<sqlite3_vfs>,
    original: *mut sqlite3_vfs,
    methods: [OnceLock<TimedMethods>; METHOD_SETS_MAX],
}

/// Method table of a file: the copy and its original. SQLite knows only the first field.
#[repr(C)]
struct TimedMethods {
    timed: sqlite3_io_methods,
    original: *const sqlite3_io_methods,
}

// SAFETY: all pointers in it are to structures of the library that live as long as it does and are never written
// after registration, except the list link `pNext`, which only the library touches, under its own lock.
unsafe impl Send for Layer {}
// SAFETY: as above; each method table is filled once, under the lock of `OnceLock`.
unsafe impl Sync for Layer {}
// SAFETY: both pointers are to tables of functions that never change and may be read from any thread.
unsafe impl Send for TimedMethods {}
// SAFETY: as above.
unsafe impl Sync for TimedMethods {}

impl TimedVfs {
    /// Registers the VFS, not as the default.
    pub fn register(functions: &Functions) -> Result<Self, String> {
        // SAFETY: null requests the default VFS; the library is initialized.
        let original = unsafe { (functions.vfs_find)(ptr::null()) };
        if original.is_null() {
            return Err("it has no default file layer".to_owned());
        }
        // SAFETY: the pointer comes from the library; a registered VFS is never moved.
        let mut vfs = unsafe { *original };
        vfs.zName = NAME.as_ptr();
        vfs.pNext = ptr::null_mut();
        vfs.xOpen = Some(open);
        let layer: *mut Layer = Box::leak(Box::new(Layer {
            vfs: UnsafeCell::new(vfs),
            original,
            methods: Default::default(),
        }));
        // SAFETY: the pointer was just created from a box that is never freed; the library keeps it and owns `pNext`.
        // Passing the whole layer's address lets `open` get from its first field to the rest.
        let status = unsafe { (functions.vfs_register)(layer.cast(), 0) };
        if status != SQLITE_OK {
            return Err(format!("it refused a file layer of ours: SQLite error {status}"));
        }
        Ok(Self(()))
    }

    /// The name to open databases with.
    #[expect(
        clippy::unused_self,
        reason = "the name is good for nothing before the layer is registered"
    )]
    pub const fn name(&self) -> *const c_char {
        NAME.as_ptr()
    }
}

impl Layer {
    /// The copy of a method table; `None` if there are more tables than expected: their files are not timed.
    fn timed(&self, original: *const sqlite3_io_methods) -> Option<&TimedMethods> {
        for slot in &self.methods {
            let set = slot.get_or_init(|| TimedMethods {
                timed: copied(original),
                original,
            });
            if set.original == original {
                return Some(set);
            }
        }
        None
    }
}

fn copied(original: *const sqlite3_io_methods) -> sqlite3_io_methods {
    // SAFETY: the table comes from the library; its version tells how much of the structure exists. Older versions
    // are shorter than ours, so fields are read one by one, and those of newer versions only if they exist.
    unsafe {
        let version = (*original).iVersion;
        sqlite3_io_methods {
            iVersion: version.min(METHODS_VERSION_MAX),
            xClose: (*original).xClose,
            xRead: (*original).xRead,
            xWrite: Some(write),
            xTruncate: (*original).xTruncate,
            xSync: Some(sync),
            xFileSize: (*original).xFileSize,
            xLock: (*original).xLock,
            xUnlock: (*original).xUnlock,
            xCheckReservedLock: (*original).xCheckReservedLock,
            xFileControl: (*original).xFileControl,
            xSectorSize: (*original).xSectorSize,
            xDeviceCharacteristics: (*original).xDeviceCharacteristics,
            xShmMap: if version >= 2 { (*original).xShmMap } else { None },
            xShmLock: if version >= 2 { (*original).xShmLock } else { None },
            xShmBarrier: if version >= 2 {
                (*original).xShmBarrier
            } else {
                None
            },
            xShmUnmap: if version >= 2 { (*original).xShmUnmap } else { None },
            xFetch: if version >= 3 { (*original).xFetch } else { None },
            xUnfetch: if version >= 3 { (*original).xUnfetch } else { None },
        }
    }
}

/// Opens a file like the default VFS, then replaces its methods by the timed ones.
///
/// # Safety
/// Called only by SQLite, with the registered VFS and a file that it allocated.
unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite hands back the registered address, which is that of a whole, leaked `Layer`.
    let layer = unsafe { &*vfs.cast_const().cast::<Layer>() };
    // SAFETY: the default VFS is registered and never removed.
    let Some(original) = (unsafe { (*layer.original).xOpen }) else {
        return SQLITE_IOERR;
    };
    // SAFETY: the arguments are SQLite's own, for a VFS that needs the same space for a file.
    let status = unsafe { original(layer.original, name, file, flags, out_flags) };
    // SAFETY: SQLite allocated the file, and the default VFS has set its methods, to null if it failed early.
    let methods = unsafe { (*file).pMethods };
    if !methods.is_null()
        && let Some(set) = layer.timed(methods)
    {
        // SAFETY: as above; the table lives as long as the process. Its first field is the one that SQLite expects,
        // and the address is that of the whole `TimedMethods`, so that the two methods can access the rest.
        unsafe { (*file).pMethods = ptr::from_ref(set).cast() };
    }
    status
}

/// The original methods of a file.
///
/// # Safety
/// `file` was opened by [`open`] and is not closed.
unsafe fn original_of(file: *mut sqlite3_file) -> *const sqlite3_io_methods {
    // SAFETY: these two functions are only called through a `TimedMethods`, to which `pMethods` points.
    unsafe { (*(*file).pMethods.cast::<TimedMethods>()).original }
}

/// # Safety
/// Called only by SQLite, with a file that [`open`] has opened.
unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: promised by the caller; the table is the library's and never changes.
    let Some(original) = (unsafe { (*original_of(file)).xSync }) else {
        return SQLITE_IOERR;
    };
    SYNCS.with_borrow_mut(|syncs| {
        let start_ns = syncs.as_ref().map(|(clock, _)| clock.now_ns());
        // SAFETY: the arguments are SQLite's own, for the function that it would have called.
        let status = unsafe { original(file, flags) };
        if let (Some((clock, count)), Some(start_ns)) = (syncs, start_ns) {
            count.add(clock.now_ns().saturating_sub(start_ns));
        }
        status
    })
}

/// # Safety
/// Called only by SQLite, with a file that [`open`] has opened.
unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    content: *const c_void,
    length: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: promised by the caller; the table is the library's and never changes.
    let Some(original) = (unsafe { (*original_of(file)).xWrite }) else {
        return SQLITE_IOERR;
    };
    WRITES.set(WRITES.get() + 1);
    WRITTEN_BYTES.set(WRITTEN_BYTES.get() + u64::try_from(length).unwrap_or(0));
    // SAFETY: the arguments are SQLite's own, for the function that it would have called.
    unsafe { original(file, content, length, offset) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::connection::Connection;
    use crate::sqlite::library::Library;
    use crate::sqlite::spec::LibraryChoice;

    #[test]
    fn syncs_and_writes_of_this_thread_are_counted_between_begin_and_take() {
        let library = Library::open(&LibraryChoice::Bundled).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let connection = Connection::open(library, &folder.path().join("data.db")).unwrap();
        connection.execute(c"CREATE TABLE list (id INTEGER)").unwrap();
        begin();
        connection.execute(c"PRAGMA synchronous = FULL").unwrap();
        connection.execute(c"INSERT INTO list VALUES (1)").unwrap();
        let full = take();
        // The journal twice (content, then header), and the database.
        assert_eq!(full.syncs.count(), 3);
        assert!(full.writes >= 2 && full.written_bytes >= 2 * 4096, "{full:?}");
        connection.execute(c"PRAGMA synchronous = OFF").unwrap();
        begin();
        connection.execute(c"INSERT INTO list VALUES (2)").unwrap();
        let off = take();
        assert_eq!(off.syncs.count(), 0);
        assert!(off.writes > 0);
        connection.execute(c"INSERT INTO list VALUES (3)").unwrap();
        assert_eq!(take().syncs.count(), 0, "nobody asked");
    }
}
