//! The verifier's reason for refusing a program, from what libbpf prints.
//!
//! A refusal is no missing privilege, although both may bear the same error number: libbpf prints the verifier's log only
//! for the former.

use std::sync::{Mutex, PoisonError};

use libbpf_rs::{PrintLevel, set_print};

const BEGIN: &str = "-- BEGIN PROG LOAD LOG --";
const END: &str = "-- END PROG LOAD LOG --";

/// The reason for the first refusal since [`listen`].
static REASON: Mutex<Option<String>> = Mutex::new(None);

/// Listens to libbpf from here on, and prints none of it.
pub(crate) fn listen() {
    *REASON.lock().unwrap_or_else(PoisonError::into_inner) = None;
    set_print(Some((PrintLevel::Warn, keep)));
}

/// The reason, if the verifier refused a program; listens no longer.
pub(crate) fn reason() -> Option<String> {
    set_print(None);
    REASON.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn keep(_: PrintLevel, text: String) {
    if let Some(found) = reason_in(&text) {
        let mut reason = REASON.lock().unwrap_or_else(PoisonError::into_inner);
        reason.get_or_insert(found);
    }
}

/// The last line of the log before its statistics, and the program's name.
fn reason_in(text: &str) -> Option<String> {
    let (head, log) = text.split_once(BEGIN)?;
    let log = log.split(END).next()?;
    let is_statistic = |line: &&str| {
        line.is_empty()
            || ["processed ", "verification time", "stack depth"]
                .iter()
                .any(|word| line.starts_with(word))
    };
    let last = log
        .lines()
        .map(str::trim)
        .rev()
        .find(|line| !is_statistic(line))?;
    let program = head.split('\'').nth(1).unwrap_or("a program");
    Some(format!("{program}: {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_line_before_the_statistics() {
        let text = "libbpf: prog 'queued': -- BEGIN PROG LOAD LOG --\n0: R1=ctx() R10=fp0\n\
            0: (79) r0 = *(u64 *)(r10 +8)\ninvalid read from stack R10 off=8 size=8\n\
            processed 1 insns (limit 1000000)\n-- END PROG LOAD LOG --\n";
        let expected = "queued: invalid read from stack R10 off=8 size=8";
        assert_eq!(reason_in(text).as_deref(), Some(expected));
        assert_eq!(
            reason_in("libbpf: prog 'x': BPF program load failed: -EPERM"),
            None
        );
    }
}
