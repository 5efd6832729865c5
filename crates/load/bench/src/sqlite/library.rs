//! The functions of an SQLite library: the bundled one, or one that is loaded when the run begins.
//!
//! Every call goes through this table, so that both kinds run the same code of ours and are compared fairly. A loaded
//! library is never unloaded. Two libraries in one process do not interfere: the bundled one exports no symbols, and
//! loaded ones keep their symbols local.
//!
//! JUSTIFICATION for `unsafe`: SQLite has a C interface. rusqlite wraps only the library that it was linked with.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rusqlite::ffi;
use serde::Serialize;

use super::spec::LibraryChoice;
use super::vfs::TimedVfs;
use crate::error::BenchError;

/// Name of the system's library: its ABI has had this number since 2004.
const SYSTEM_NAME: &str = "libsqlite3.so.0";

type Exec = unsafe extern "C" fn(
    *mut ffi::sqlite3,
    *const c_char,
    Option<unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_char, *mut *mut c_char) -> c_int>,
    *mut c_void,
    *mut *mut c_char,
) -> c_int;
type Prepare = unsafe extern "C" fn(
    *mut ffi::sqlite3,
    *const c_char,
    c_int,
    *mut *mut ffi::sqlite3_stmt,
    *mut *const c_char,
) -> c_int;
type BindText = unsafe extern "C" fn(
    *mut ffi::sqlite3_stmt,
    c_int,
    *const c_char,
    c_int,
    ffi::sqlite3_destructor_type,
) -> c_int;
type Open = unsafe extern "C" fn(*const c_char, *mut *mut ffi::sqlite3, c_int, *const c_char) -> c_int;

/// Generates the table and the two ways to fill it from one list, so that they cannot differ.
macro_rules! functions {
    ($($field:ident = $symbol:ident: $kind:ty;)+) => {
        /// The functions of one library.
        #[derive(Clone, Copy)]
        pub struct Functions { $(pub $field: $kind,)+ }

        impl Functions {
            fn linked() -> Self {
                Self { $($field: ffi::$symbol,)+ }
            }

            /// Takes each function from `find`, or returns the name of the first missing one.
            ///
            /// # Safety
            /// Each address that `find` returns must be that of SQLite's function of this name.
            unsafe fn found(find: impl Fn(&CStr) -> *mut c_void) -> Result<Self, &'static str> {
                Ok(Self { $($field: {
                    const NAME: &str = stringify!($symbol);
                    let name = CString::new(NAME).expect("names of functions have no zero byte");
                    let address = find(&name);
                    if address.is_null() {
                        return Err(NAME);
                    }
                    // SAFETY: the caller promises that this is the function of this name, and SQLite's documentation
                    // gives it this signature in every version that has it.
                    unsafe { std::mem::transmute::<*mut c_void, $kind>(address) }
                },)+ })
            }
        }
    };
}

functions! {
    libversion = sqlite3_libversion: unsafe extern "C" fn() -> *const c_char;
    sourceid = sqlite3_sourceid: unsafe extern "C" fn() -> *const c_char;
    compileoption_get = sqlite3_compileoption_get: unsafe extern "C" fn(c_int) -> *const c_char;
    threadsafe = sqlite3_threadsafe: unsafe extern "C" fn() -> c_int;
    open = sqlite3_open_v2: Open;
    close = sqlite3_close: unsafe extern "C" fn(*mut ffi::sqlite3) -> c_int;
    exec = sqlite3_exec: Exec;
    prepare = sqlite3_prepare_v2: Prepare;
    bind_int64 = sqlite3_bind_int64: unsafe extern "C" fn(*mut ffi::sqlite3_stmt, c_int, i64) -> c_int;
    bind_text = sqlite3_bind_text: BindText;
    step = sqlite3_step: unsafe extern "C" fn(*mut ffi::sqlite3_stmt) -> c_int;
    reset = sqlite3_reset: unsafe extern "C" fn(*mut ffi::sqlite3_stmt) -> c_int;
    finalize = sqlite3_finalize: unsafe extern "C" fn(*mut ffi::sqlite3_stmt) -> c_int;
    column_text = sqlite3_column_text: unsafe extern "C" fn(*mut ffi::sqlite3_stmt, c_int) -> *const u8;
    total_changes = sqlite3_total_changes: unsafe extern "C" fn(*mut ffi::sqlite3) -> c_int;
    limit = sqlite3_limit: unsafe extern "C" fn(*mut ffi::sqlite3, c_int, c_int) -> c_int;
    errmsg = sqlite3_errmsg: unsafe extern "C" fn(*mut ffi::sqlite3) -> *const c_char;
    extended_errcode = sqlite3_extended_errcode: unsafe extern "C" fn(*mut ffi::sqlite3) -> c_int;
    wal_checkpoint = sqlite3_wal_checkpoint: unsafe extern "C" fn(*mut ffi::sqlite3, *const c_char) -> c_int;
    vfs_find = sqlite3_vfs_find: unsafe extern "C" fn(*const c_char) -> *mut ffi::sqlite3_vfs;
    vfs_register = sqlite3_vfs_register: unsafe extern "C" fn(*mut ffi::sqlite3_vfs, c_int) -> c_int;
    initialize = sqlite3_initialize: unsafe extern "C" fn() -> c_int;
}

/// The description of a library in a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LibraryInfo {
    /// `bundled`, or the name or path of the loaded library.
    pub origin: String,
    /// `3.40.1`.
    pub version: String,
    /// Check-in from which the library was built.
    pub source_id: String,
    /// Options with which the library was built, as far as it reports them.
    pub compile_options: Vec<String>,
}

/// A library that is ready for use.
pub struct Library {
    pub functions: Functions,
    /// The library's default VFS, wrapped to time syncs.
    pub vfs: TimedVfs,
    info: LibraryInfo,
}

impl Library {
    /// Opens the library of `choice`, ready for use from any thread.
    ///
    /// # Errors
    /// If it cannot be loaded, lacks a function, or was built for one thread.
    pub fn open(choice: &LibraryChoice) -> Result<&'static Self, BenchError> {
        /// Loaded libraries are never unloaded, nor are their tables freed.
        static OPENED: Mutex<Vec<(LibraryChoice, &'static Library)>> = Mutex::new(Vec::new());
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, library)) = opened.iter().find(|(known, _)| known == choice) {
            return Ok(library);
        }
        let (functions, origin) = match choice {
            LibraryChoice::Bundled => (Functions::linked(), "bundled".to_owned()),
            LibraryChoice::System => (load(Path::new(SYSTEM_NAME))?, SYSTEM_NAME.to_owned()),
            LibraryChoice::File(path) => (load(path)?, path.display().to_string()),
        };
        let library: &'static Self = Box::leak(Box::new(Self::ready(functions, &origin)?));
        opened.push((choice.clone(), library));
        Ok(library)
    }

    /// The library's description in a record.
    pub const fn info(&self) -> &LibraryInfo {
        &self.info
    }

    fn ready(functions: Functions, origin: &str) -> Result<Self, BenchError> {
        let refused = |reason: String| BenchError::Library {
            library: origin.to_owned(),
            reason,
        };
        // SAFETY: these functions may be called at any time and from any thread.
        let (status, threadsafe) = unsafe { ((functions.initialize)(), (functions.threadsafe)()) };
        if status != ffi::SQLITE_OK {
            return Err(refused(format!("it can't be initialised: SQLite error {status}")));
        }
        if threadsafe == 0 {
            return Err(refused(
                "it was built for a single thread; use another one".to_owned(),
            ));
        }
        let vfs = TimedVfs::register(&functions).map_err(refused)?;
        // SAFETY: both functions return strings that live as long as the library.
        let (version, source_id) = unsafe { (text((functions.libversion)()), text((functions.sourceid)())) };
        let compile_options = (0..)
            // SAFETY: the function accepts any number and returns null or a string that lives as long as the library.
            .map(|number| unsafe { (functions.compileoption_get)(number) })
            .take_while(|option| !option.is_null())
            // SAFETY: as above.
            .map(|option| unsafe { text(option) })
            .collect();
        let info = LibraryInfo {
            origin: origin.to_owned(),
            version,
            source_id,
            compile_options,
        };
        Ok(Self { functions, vfs, info })
    }
}

/// Copies a string of the library.
///
/// # Safety
/// `pointer` is null or points to a string that ends with a zero byte and lives during the call.
pub unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: promised by the caller.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_string_lossy().into_owned()
}

fn load(path: &Path) -> Result<Functions, BenchError> {
    let refused = |reason: String| BenchError::Library {
        library: path.display().to_string(),
        reason,
    };
    let name = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| refused("the name contains a zero byte".to_owned()))?;
    // SAFETY: loading runs the initializers of the object; the user vouches that it is an SQLite library.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY: after a failed dlopen on this thread, dlerror returns its message.
        return Err(refused(unsafe { text(libc::dlerror()) }));
    }
    // SAFETY: the handle is valid and never closed. The user vouches that functions of these names are SQLite's.
    let found = unsafe { Functions::found(|symbol| libc::dlsym(handle, symbol.as_ptr())) };
    found.map_err(|missing| {
        refused(format!(
            "it has no function {missing}; SQLite 3.7.4 or later is needed"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn the_bundled_library_tells_its_version_and_options() {
        let library = Library::open(&LibraryChoice::Bundled).unwrap();
        assert!(library.info().version.starts_with("3."), "{:?}", library.info());
        assert!(
            library
                .info()
                .compile_options
                .iter()
                .any(|option| option == "THREADSAFE=1")
        );
        assert!(!library.info().source_id.is_empty());
    }

    #[test]
    fn what_is_no_library_is_refused_by_name() {
        let refused = |path: &str| match Library::open(&LibraryChoice::File(PathBuf::from(path))) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{path} was loaded"),
        };
        assert!(refused("/nowhere/libsqlite3.so").contains("/nowhere/libsqlite3.so"));
        // A library, but not SQLite: every Linux system with shared objects has it.
        let message = refused("libc.so.6");
        if !message.contains("cannot open shared object") {
            assert!(message.contains("has no function sqlite3_"), "{message}");
        }
    }
}
