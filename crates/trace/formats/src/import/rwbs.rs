//! The letters by which the kernel and its tools describe a request (`rwbs`): `FWFSM` is a write that flushes the cache
//! first, goes to the medium (FUA), is synchronous and is metadata.
//!
//! Letters before the operation: F (preflush). Operations: R, W, D, DE (secure erase), F (flush), WZ (write zeroes), ZA
//! (zone append), other Z* (zone management), N (none of those). Letters after it: F (FUA), A (read-ahead), S (sync), M
//! (metadata), U (atomic), P (priority).

use results::block_trace::{Operation, RequestFlags};

/// Parses the letters. `bytes` distinguishes a flush (which moves no data) from a write. `None` for invalid letters.
pub fn parse(letters: &str, bytes: u64) -> Option<(Operation, RequestFlags)> {
    let (operation, flags) = read(letters)?;
    Some((settle(operation, flags, bytes), flags))
}

/// The operation and flags that the letters tell, whatever the number of bytes.
pub fn read(letters: &str) -> Option<(Operation, RequestFlags)> {
    let mut flags = RequestFlags::default();
    let mut rest = letters.as_bytes();
    // `F` by itself, or before another letter of an operation.
    if let [b'F', tail @ ..] = rest
        && tail.first().is_none_or(|next| b"RWDFNZ".contains(next))
    {
        flags = flags.with(RequestFlags::PREFLUSH);
        rest = tail;
    }
    let (operation, mut rest) = match rest {
        [] if flags.contains(RequestFlags::PREFLUSH) => (Operation::Flush, rest),
        [b'W', b'Z', tail @ ..] => (Operation::WriteZeroes, tail),
        [b'W', tail @ ..] => (Operation::Write, tail),
        [b'R', tail @ ..] => (Operation::Read, tail),
        [b'D', b'E', tail @ ..] => (Operation::SecureErase, tail),
        [b'D', tail @ ..] => (Operation::Discard, tail),
        [b'F', tail @ ..] => (Operation::Flush, tail),
        [b'Z', b'A', tail @ ..] => (Operation::ZoneAppend, tail),
        [b'Z', tail @ ..] => {
            let letters = tail.iter().take_while(|letter| b"ROCFA".contains(letter)).count();
            (Operation::ZoneManagement, &tail[letters..])
        }
        [b'N', tail @ ..] => (Operation::Driver, tail),
        _ => return None,
    };
    while let [letter, tail @ ..] = rest {
        flags = flags.with(match letter {
            b'F' => RequestFlags::FUA,
            b'A' => RequestFlags::READAHEAD,
            b'S' => RequestFlags::SYNC,
            b'M' => RequestFlags::META,
            b'U' => RequestFlags::ATOMIC,
            b'P' => RequestFlags::PRIO,
            // A barrier of kernels before 2.6.37: both of its successors.
            b'B' => RequestFlags::PREFLUSH.with(RequestFlags::FUA),
            _ => return None,
        });
        rest = tail;
    }
    Some((operation, flags))
}

/// Decides by the number of bytes between operations with the same letters.
pub fn settle(operation: Operation, flags: RequestFlags, bytes: u64) -> Operation {
    match operation {
        Operation::Write if bytes == 0 => Operation::Flush,
        Operation::Driver if bytes == 0 && flags.contains(RequestFlags::PREFLUSH) => Operation::Flush,
        // Kernels before 6.17 have no letters for it, and no other used operation without letters has a sector and
        // bytes.
        Operation::Driver if bytes > 0 => Operation::WriteZeroes,
        other => other,
    }
}

/// Formats the letters of a request.
pub fn letters(operation: Operation, flags: RequestFlags) -> String {
    let mut letters = String::new();
    if flags.contains(RequestFlags::PREFLUSH) {
        letters.push('F');
    }
    letters.push_str(match operation {
        Operation::Read => "R",
        Operation::Write => "W",
        Operation::Flush => "F",
        Operation::Discard => "D",
        Operation::SecureErase => "DE",
        Operation::WriteZeroes => "WZ",
        Operation::ZoneAppend => "ZA",
        Operation::ZoneManagement => "ZR",
        Operation::Driver => "N",
    });
    let behind = [
        (RequestFlags::FUA, 'F'),
        (RequestFlags::READAHEAD, 'A'),
        (RequestFlags::SYNC, 'S'),
        (RequestFlags::META, 'M'),
        (RequestFlags::ATOMIC, 'U'),
    ];
    letters.extend(
        behind
            .iter()
            .filter(|(flag, _)| flags.contains(*flag))
            .map(|(_, letter)| letter),
    );
    letters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_the_kernel_are_understood() {
        let flags = |flags: &[RequestFlags]| {
            flags
                .iter()
                .fold(RequestFlags::default(), |all, flag| all.with(*flag))
        };
        use RequestFlags as F;
        for (letters, bytes, operation, expected) in [
            ("R", 8, Operation::Read, flags(&[])),
            ("RAM", 8, Operation::Read, flags(&[F::READAHEAD, F::META])),
            ("WS", 8, Operation::Write, flags(&[F::SYNC])),
            (
                "FWFSM",
                8,
                Operation::Write,
                flags(&[F::PREFLUSH, F::FUA, F::SYNC, F::META]),
            ),
            ("FWS", 0, Operation::Flush, flags(&[F::PREFLUSH, F::SYNC])),
            ("FF", 0, Operation::Flush, flags(&[F::PREFLUSH])),
            ("F", 0, Operation::Flush, flags(&[F::PREFLUSH])),
            ("FN", 0, Operation::Flush, flags(&[F::PREFLUSH])),
            ("D", 8, Operation::Discard, flags(&[])),
            ("DS", 8, Operation::Discard, flags(&[F::SYNC])),
            ("DE", 8, Operation::SecureErase, flags(&[])),
            ("N", 8, Operation::WriteZeroes, flags(&[])),
            ("WZS", 8, Operation::WriteZeroes, flags(&[F::SYNC])),
            ("ZAS", 8, Operation::ZoneAppend, flags(&[F::SYNC])),
            ("ZRA", 0, Operation::ZoneManagement, flags(&[])),
            ("WAS", 8, Operation::Write, flags(&[F::READAHEAD, F::SYNC])),
        ] {
            assert_eq!(parse(letters, bytes), Some((operation, expected)), "{letters}");
        }
        for wrong in ["", "X", "WX", "8", "ww"] {
            assert_eq!(parse(wrong, 8), None, "{wrong}");
        }
    }

    #[test]
    fn letters_that_are_written_are_read_again() {
        for (operation, _) in Operation::WORDS {
            let bytes = u64::from(!matches!(
                operation,
                Operation::Flush | Operation::Driver | Operation::ZoneManagement
            ));
            for bits in 0..32 {
                let flags = RequestFlags(bits);
                let letters = letters(*operation, flags);
                let expected = settle(*operation, flags, bytes);
                // A flush always flushes the cache, and `FF` means the same.
                let read = parse(&letters, bytes).unwrap();
                assert_eq!(read.0, expected, "{letters}");
                // Letters after `ZR` may be parsed as the kind of zone management.
                if !matches!(operation, Operation::Flush | Operation::ZoneManagement) {
                    assert_eq!(read.1, flags, "{letters}");
                }
            }
        }
    }
}
