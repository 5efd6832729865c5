//! The seccomp filter: a classic BPF program that stops a process only at calls on files.
//!
//! Calls of another architecture (32-bit programs) pass: their numbers have other meanings.

use libc::sock_filter;

use crate::call::{Watched, watched};

const LOAD_WORD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCHITECTURE: u32 = 4;
const OFFSET_ARGUMENTS: u32 = 16;

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xC000_00B7;

/// The low word of a descriptor of -1.
const NO_DESCRIPTOR: u32 = u32::MAX;

const fn load(offset: u32) -> sock_filter {
    sock_filter {
        code: LOAD_WORD,
        jt: 0,
        jf: 0,
        k: offset,
    }
}

const fn unless_equal_skip(value: u32, steps: u8) -> sock_filter {
    sock_filter {
        code: JUMP_EQUAL,
        jt: 0,
        jf: steps,
        k: value,
    }
}

const fn if_equal_skip(value: u32, steps: u8) -> sock_filter {
    sock_filter {
        code: JUMP_EQUAL,
        jt: steps,
        jf: 0,
        k: value,
    }
}

const fn answer(value: u32) -> sock_filter {
    sock_filter {
        code: RETURN,
        jt: 0,
        jf: 0,
        k: value,
    }
}

/// Offset of the low word of an argument, on the supported little-endian machines.
const fn argument(place: u32) -> u32 {
    OFFSET_ARGUMENTS + 8 * place
}

/// Builds the filter.
pub fn program() -> Vec<sock_filter> {
    let (stop, pass) = (answer(libc::SECCOMP_RET_TRACE), answer(libc::SECCOMP_RET_ALLOW));
    let mut steps = vec![
        load(OFFSET_ARCHITECTURE),
        if_equal_skip(NATIVE, 1),
        pass,
        load(OFFSET_NUMBER),
    ];
    for (number, watched) in watched() {
        match watched {
            Watched::Always => steps.extend([unless_equal_skip(number, 1), stop]),
            Watched::WithDescriptorAt(place) => steps.extend([
                unless_equal_skip(number, 4),
                load(argument(place)),
                if_equal_skip(NO_DESCRIPTOR, 1),
                stop,
                pass,
            ]),
            Watched::WithArgument { place, values } => {
                let count = u8::try_from(values.len()).expect("the lists in `call` are short");
                steps.push(unless_equal_skip(number, count + 3));
                steps.push(load(argument(place)));
                for (step, value) in (0..count).zip(values) {
                    // Skips the remaining comparisons and the answer that lets the call pass.
                    steps.push(if_equal_skip(*value, count - step));
                }
                steps.extend([pass, stop]);
            }
        }
    }
    steps.push(pass);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evaluates the filter for one call, as the kernel does.
    fn answered(number: u32, arguments: [u32; 6], architecture: u32) -> u32 {
        let program = program();
        let (mut place, mut word) = (0, 0);
        loop {
            let step = program[place];
            place += 1;
            match step.code {
                LOAD_WORD => {
                    word = match step.k {
                        OFFSET_NUMBER => number,
                        OFFSET_ARCHITECTURE => architecture,
                        offset => arguments[usize::try_from((offset - OFFSET_ARGUMENTS) / 8).unwrap()],
                    }
                }
                JUMP_EQUAL => place += usize::from(if word == step.k { step.jt } else { step.jf }),
                RETURN => return step.k,
                other => panic!("{other}"),
            }
        }
    }

    fn number(call: i64) -> u32 {
        u32::try_from(call).unwrap()
    }

    #[test]
    fn calls_on_files_stop_and_others_pass() {
        let (stop, pass) = (libc::SECCOMP_RET_TRACE, libc::SECCOMP_RET_ALLOW);
        for (call, expected) in [
            (libc::SYS_openat, stop),
            (libc::SYS_write, stop),
            (libc::SYS_fsync, stop),
            (libc::SYS_close_range, stop),
            (libc::SYS_futex, pass),
            (libc::SYS_brk, pass),
        ] {
            assert_eq!(answered(number(call), [0; 6], NATIVE), expected, "{call}");
        }
        assert_eq!(answered(number(libc::SYS_openat), [0; 6], NATIVE ^ 1), pass);
    }

    #[test]
    fn arguments_decide_where_most_calls_do_not_matter() {
        let (stop, pass) = (libc::SECCOMP_RET_TRACE, libc::SECCOMP_RET_ALLOW);
        let mmap = number(libc::SYS_mmap);
        assert_eq!(answered(mmap, [0, 0, 0, 0, u32::MAX, 0], NATIVE), pass);
        assert_eq!(answered(mmap, [0, 0, 0, 0, 3, 0], NATIVE), stop);
        let fcntl = number(libc::SYS_fcntl);
        for (command, expected) in [
            (libc::F_DUPFD, stop),
            (libc::F_DUPFD_CLOEXEC, stop),
            (libc::F_SETFD, stop),
            (libc::F_GETFL, pass),
            (libc::F_SETLK, pass),
        ] {
            let command = u32::try_from(command).unwrap();
            assert_eq!(
                answered(fcntl, [3, command, 0, 0, 0, 0], NATIVE),
                expected,
                "{command}"
            );
        }
    }
}
