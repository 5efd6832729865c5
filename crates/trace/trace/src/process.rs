//! The unsafe part: starts a process under `ptrace`, waits for its stops, reads its memory.
//!
//! All requests to a tracee are made by the thread that started it, as `ptrace` demands. Between `fork` and `exec` the
//! child only makes system calls and touches no memory that a lock of another thread could guard.

use std::ffi::CString;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use libc::{c_char, c_int, c_void, pid_t, sock_filter, sock_fprog};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::error::RecordError;

/// `__WALL` and `__WNOTHREAD`: tracees of every kind, and only children of this thread.
const WAIT_FLAGS: c_int = libc::__WALL | libc::__WNOTHREAD;

/// Paths are shorter than this.
const PATH_BYTES_MAX: usize = 4096;

/// Reads of a tracee's memory do not cross this boundary: memory beyond it may be unmapped.
const PAGE_BYTES: u64 = 4096;

/// A stop or the end of a tracee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It exited.
    Exited(i32),
    /// It was killed by a signal.
    Killed(i32),
    /// The filter stopped it before a watched call.
    Entry { number: u64, arguments: [u64; 6] },
    /// A call that was run to its end has returned; negative answers are errors.
    Exit { answer: i64 },
    /// It created a process or thread.
    Made(pid_t),
    /// It has executed another program.
    Exec,
    /// It is new and waits to be resumed, or was continued after a stop by a signal.
    Ready,
    /// It is stopped by a signal, as in the shell's job control.
    Held,
    /// A signal is about to be delivered.
    Signal(i32),
    /// It was gone before it could be queried.
    Vanished,
}

/// How a tracee is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Run until the filter stops it, with this signal (0 for none).
    Run(i32),
    /// Run to the end of its current call.
    ToExit,
    /// Stay stopped until a signal continues it.
    Stay,
}

/// Starts `words` under `ptrace` with `filter`; it runs when it is resumed for the first time. The pipe reports the
/// error if it could not execute the program.
pub fn start(words: &[CString], filter: &[sock_filter]) -> Result<(pid_t, OwnedFd), RecordError> {
    let refused = |operation| move |source: io::Error| RecordError::Refused { operation, source };
    let (failure, report) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| refused("pipe")(errno.into()))?;
    let mut arguments: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
    arguments.push(ptr::null());
    let program = sock_fprog {
        len: u16::try_from(filter.len()).expect("the filter has a few hundred steps"),
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the child calls only what `become_program` lists, all of it safe after a fork of a process with threads.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(refused("fork")(io::Error::last_os_error()));
    }
    if child == 0 {
        // SAFETY: `arguments` ends with a null pointer and points to strings that live in this copy of the process;
        // `program` points to the filter, which does too.
        unsafe { become_program(&arguments, &program, report.as_raw_fd()) };
    }
    drop(report);
    seize(child).map_err(refused("ptrace"))?;
    Ok((child, failure))
}

/// The child's part of the start. It never returns.
///
/// # Safety
/// `arguments` ends with null and its pointers and those of `program` are valid.
unsafe fn become_program(arguments: &[*const c_char], program: &sock_fprog, report: c_int) -> ! {
    // SAFETY: plain system calls with numbers, and with pointers whose validity the caller guarantees. `_exit` ends the
    // process without running any code of the parent's.
    unsafe {
        libc::raise(libc::SIGSTOP);
        // Root may set a filter without conditions; others must promise that no program gains privileges under it.
        if libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            ptr::from_ref(program),
        ) != 0
        {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            if libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                0,
                ptr::from_ref(program),
            ) != 0
            {
                fail(report);
            }
        }
        libc::execvp(arguments[0], arguments.as_ptr());
        fail(report);
    }
}

/// Reports errno and ends.
///
/// # Safety
/// Only in a child after `fork`.
unsafe fn fail(report: c_int) -> ! {
    // SAFETY: errno belongs to this thread; the four bytes are on the stack; `_exit` does not return.
    unsafe {
        let errno = *libc::__errno_location();
        let bytes = errno.to_ne_bytes();
        libc::write(report, bytes.as_ptr().cast::<c_void>(), bytes.len());
        libc::_exit(127);
    }
}

/// The errno that the child reported, if it could not execute the program.
pub fn failure(report: OwnedFd) -> Option<io::Error> {
    let mut bytes = [0; 4];
    let mut file = std::fs::File::from(report);
    file.read_exact(&mut bytes).ok()?;
    Some(io::Error::from_raw_os_error(i32::from_ne_bytes(bytes)))
}

fn seize(child: pid_t) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    if unsafe { libc::waitpid(child, &raw mut status, libc::WUNTRACED | WAIT_FLAGS) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_EXITKILL;
    let options = usize::try_from(options).expect("options are a positive number");
    let seized = request(libc::PTRACE_SEIZE, child, 0, options);
    if seized.is_err() {
        // SAFETY: the child belongs to this process and has not been waited for, so its number has not been reused.
        unsafe { libc::kill(child, libc::SIGKILL) };
        return seized;
    }
    signal(child, libc::SIGCONT);
    Ok(())
}

/// Sends a signal to a process that has not been waited for.
pub fn signal(process: pid_t, number: c_int) {
    // SAFETY: a plain system call; if the process is gone, the error is harmless.
    unsafe { libc::kill(process, number) };
}

/// Waits for the next stop of any tracee. `None` if there are none left.
pub fn wait() -> Option<(pid_t, Stop)> {
    let mut status = 0;
    let process = loop {
        // SAFETY: `status` is valid for the call.
        let process = unsafe { libc::waitpid(-1, &raw mut status, WAIT_FLAGS) };
        if process >= 0 {
            break process;
        }
        if io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return None;
        }
    };
    Some((process, stop_of(process, status)))
}

fn stop_of(process: pid_t, status: c_int) -> Stop {
    if libc::WIFEXITED(status) {
        return Stop::Exited(libc::WEXITSTATUS(status));
    }
    if libc::WIFSIGNALED(status) {
        return Stop::Killed(libc::WTERMSIG(status));
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        libc::PTRACE_EVENT_SECCOMP => entry(process),
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
            event_message(process).map_or(Stop::Vanished, Stop::Made)
        }
        libc::PTRACE_EVENT_EXEC => Stop::Exec,
        libc::PTRACE_EVENT_STOP => match signal {
            libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => Stop::Held,
            _ => Stop::Ready,
        },
        _ if signal == libc::SIGTRAP | 0x80 => exit(process),
        _ => Stop::Signal(signal),
    }
}

fn call_info(process: pid_t) -> Option<libc::ptrace_syscall_info> {
    let mut info = MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
    let size = size_of_val(&info);
    // SAFETY: the kernel writes at most `size` bytes to `info`, which has as many.
    let answer = unsafe {
        libc::ptrace(
            libc::PTRACE_GET_SYSCALL_INFO,
            process,
            size,
            info.as_mut_ptr().cast::<c_void>(),
        )
    };
    // SAFETY: all bytes were zeroed and are part of integers, for which any bytes are valid.
    (answer > 0).then(|| unsafe { info.assume_init() })
}

fn entry(process: pid_t) -> Stop {
    match call_info(process) {
        Some(info) if info.op == libc::PTRACE_SYSCALL_INFO_SECCOMP => {
            // SAFETY: `op` says that the kernel filled this member.
            let call = unsafe { info.u.seccomp };
            Stop::Entry {
                number: call.nr,
                arguments: call.args,
            }
        }
        _ => Stop::Vanished,
    }
}

fn exit(process: pid_t) -> Stop {
    match call_info(process) {
        Some(info) if info.op == libc::PTRACE_SYSCALL_INFO_EXIT => {
            // SAFETY: `op` says that the kernel filled this member.
            let call = unsafe { info.u.exit };
            Stop::Exit { answer: call.sval }
        }
        _ => Stop::Vanished,
    }
}

fn event_message(process: pid_t) -> Option<pid_t> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the kernel writes one `unsigned long` to `message`.
    let answer = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, process, 0, &raw mut message) };
    (answer == 0).then(|| pid_t::try_from(message).ok()).flatten()
}

/// Resumes a tracee. If it is gone, there is nothing to do.
pub fn resume(process: pid_t, how: Resume) {
    let (kind, signal) = match how {
        Resume::Run(signal) => (libc::PTRACE_CONT, signal),
        Resume::ToExit => (libc::PTRACE_SYSCALL, 0),
        Resume::Stay => (libc::PTRACE_LISTEN, 0),
    };
    let _ = request(kind, process, 0, usize::try_from(signal).unwrap_or(0));
}

fn request(kind: libc::c_uint, process: pid_t, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: none of the requests made with this takes pointers: address and data are numbers to the kernel.
    let answer = unsafe { libc::ptrace(kind, process, address, data) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A string of a tracee, without its terminating zero. `None` if it is not readable or longer than a path.
pub fn read_string(process: pid_t, address: u64) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let mut address = address;
    while text.len() < PATH_BYTES_MAX {
        let mut chunk = [0; 256];
        let to_boundary = PAGE_BYTES - address % PAGE_BYTES;
        let length = usize::try_from(to_boundary).map_or(chunk.len(), |rest| rest.min(chunk.len()));
        let got = read_memory(process, address, &mut chunk[..length])?;
        if let Some(end) = chunk[..got].iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&chunk[..end]);
            return Some(text);
        }
        text.extend_from_slice(&chunk[..got]);
        address = address.checked_add(u64::try_from(got).ok().filter(|got| *got > 0)?)?;
    }
    None
}

/// Eight bytes of a tracee as a number.
pub fn read_word(process: pid_t, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    (read_memory(process, address, &mut bytes)? == bytes.len()).then(|| u64::from_ne_bytes(bytes))
}

fn read_memory(process: pid_t, address: u64, into: &mut [u8]) -> Option<usize> {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast::<c_void>(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: ptr::without_provenance_mut(usize::try_from(address).ok()?),
        iov_len: into.len(),
    };
    // SAFETY: `local` describes `into`, which is valid for writes; the remote address belongs to the tracee, and the
    // kernel checks it.
    let got = unsafe { libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(got).ok()
}
