//! System calls by kind, counted by the kernel's trace points through `perf_event_open`.
//!
//! Counting only, no sampling: one file descriptor per kind, inherited by threads started after it was opened. The
//! trace point numbers come from tracefs; if that is not mounted, a private instance is opened that is attached
//! nowhere and disappears with its descriptor.
//!
//! JUSTIFICATION for `unsafe`: `perf_event_open` and its ioctls have no safe wrapper here. A crate for it
//! (perf-event2) would add a hundred times the code of this file.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use results::{counter, nearest_f64};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

/// The counted kinds, in kernel spelling; kinds that this architecture lacks are skipped.
const KINDS: [&str; 21] = [
    "read",
    "pread64",
    "readv",
    "preadv2",
    "write",
    "pwrite64",
    "writev",
    "pwritev2",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "msync",
    "openat",
    "close",
    "unlink",
    "unlinkat",
    "ftruncate",
    "fallocate",
    "fcntl",
    "lseek",
    "io_uring_enter",
];

/// `PERF_TYPE_TRACEPOINT`.
const TYPE_TRACEPOINT: u32 = 2;
/// `PERF_ATTR_SIZE_VER0`: the first version of the structure, which every kernel accepts.
const ATTRIBUTES_BYTES: u32 = 64;
/// Bits `disabled` and `inherit`.
const DISABLED_AND_INHERITED: u64 = 0b11;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;
/// `PERF_EVENT_IOC_ENABLE` and `PERF_EVENT_IOC_DISABLE`.
const ENABLE: libc::Ioctl = 0x2400;
const DISABLE: libc::Ioctl = 0x2401;

/// The first version of `struct perf_event_attr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    event_type: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

/// Open counters; they count nothing until [`CallCounters::start`].
#[derive(Debug)]
pub struct CallCounters {
    /// Counter of all calls.
    total: OwnedFd,
    kinds: Vec<(&'static str, OwnedFd)>,
}

impl CallCounters {
    /// Opens a counter per kind, for this thread and those that it will start; an error is the reason.
    pub fn open() -> Result<Self, String> {
        let events = events_folder()?;
        let total = open_counter(identifier(&events, "raw_syscalls/sys_enter")?)?;
        let mut kinds = Vec::new();
        for kind in KINDS {
            if let Ok(identifier) = identifier(&events, &format!("syscalls/sys_enter_{kind}")) {
                kinds.push((kind, open_counter(identifier)?));
            }
        }
        Ok(Self { total, kinds })
    }

    /// Starts counting.
    pub fn start(&self) -> Result<(), String> {
        // The total comes last, so that it does not count the switching of the others.
        for counter in self.kinds.iter().map(|(_, counter)| counter).chain([&self.total]) {
            switch(counter, ENABLE)?;
        }
        Ok(())
    }

    /// Stops counting and returns the counters for a run record.
    pub fn stop(self) -> Result<BTreeMap<String, f64>, String> {
        for counter in [&self.total]
            .into_iter()
            .chain(self.kinds.iter().map(|(_, counter)| counter))
        {
            switch(counter, DISABLE)?;
        }
        // Switching the total off was a call too, and was still counted.
        let total = read_counter(&self.total)?.saturating_sub(1);
        let mut counters = BTreeMap::from([(counter::SYSTEM_CALLS.to_owned(), nearest_f64(total))]);
        for (kind, counter) in &self.kinds {
            counters.insert(
                format!("system_calls_{kind}_count"),
                nearest_f64(read_counter(counter)?),
            );
        }
        Ok(counters)
    }
}

/// The `events` directory of tracefs.
fn events_folder() -> Result<OwnedFd, String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for place in ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"] {
        if let Ok(folder) = rustix::fs::open(place, flags, Mode::empty()) {
            return Ok(folder);
        }
    }
    let private = || {
        let context = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(&context)?;
        let mount = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        rustix::fs::openat(&mount, "events", flags, Mode::empty())
    };
    private().map_err(|errno| {
        format!(
            "the numbers of the trace points can't be read: /sys/kernel/tracing is not readable and a tracefs of our own \
             can't be opened ({errno}); run as root, or mount tracefs and make it readable"
        )
    })
}

/// The number of a trace point.
fn identifier(events: &OwnedFd, name: &str) -> Result<u64, String> {
    let wrong = |reason: String| format!("trace point {name}: {reason}");
    let file = rustix::fs::openat(
        events,
        format!("{name}/id"),
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|errno| wrong(errno.to_string()))?;
    let mut text = [0; 32];
    let length = rustix::io::read(&file, &mut text).map_err(|errno| wrong(errno.to_string()))?;
    let text = String::from_utf8_lossy(&text[..length]);
    text.trim()
        .parse()
        .map_err(|_| wrong(format!("number is {:?}, expected digits", text.trim())))
}

fn open_counter(identifier: u64) -> Result<OwnedFd, String> {
    let attributes = Attributes {
        event_type: TYPE_TRACEPOINT,
        size: ATTRIBUTES_BYTES,
        config: identifier,
        flags: DISABLED_AND_INHERITED,
        ..Attributes::default()
    };
    let (this_thread, any_processor, no_group): (libc::pid_t, libc::c_int, libc::c_int) = (0, -1, -1);
    // SAFETY: the pointer is to a live structure of the length that its `size` field names; the kernel reads it only
    // during the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            this_thread,
            any_processor,
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    let descriptor = i32::try_from(answer).ok().filter(|descriptor| *descriptor >= 0);
    let Some(descriptor) = descriptor else {
        let error = io::Error::last_os_error();
        return Err(format!(
            "perf_event_open refused trace point {identifier} ({error}); run as root or with CAP_PERFMON, or set \
             kernel.perf_event_paranoid to 1 or less"
        ));
    };
    // SAFETY: the kernel has just created this descriptor for us, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn switch(counter: &OwnedFd, request: libc::Ioctl) -> Result<(), String> {
    let only_this_event: libc::c_int = 0;
    // SAFETY: the descriptor is open, and these two requests take a number and access no memory of ours.
    let answer = unsafe { libc::ioctl(counter.as_raw_fd(), request, only_this_event) };
    if answer < 0 {
        return Err(format!(
            "a counter of system calls can't be switched: {}",
            io::Error::last_os_error()
        ));
    }
    Ok(())
}

fn read_counter(counter: &OwnedFd) -> Result<u64, String> {
    let mut value = [0; 8];
    match rustix::io::read(counter.as_fd(), &mut value) {
        Ok(8) => Ok(u64::from_ne_bytes(value)),
        Ok(length) => Err(format!(
            "a counter of system calls has {length} bytes, expected 8"
        )),
        Err(errno) => Err(format!("a counter of system calls can't be read: {errno}")),
    }
}
