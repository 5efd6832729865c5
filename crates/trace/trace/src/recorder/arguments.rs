//! The arguments of calls, and the numbers of processes, as the kernel passes them.

use libc::pid_t;

use crate::call::Watch;

/// The names in a call's arguments: the directory that they are relative to, and the address of the text.
pub(super) fn names_of(watch: Watch, arguments: &[u64; 6]) -> [Option<(Option<i32>, u64)>; 2] {
    let directory = |place: usize| Some(word(arguments[place])).filter(|number| *number >= 0);
    let plain = |place: usize| Some((None, arguments[place]));
    let below = |place: usize| Some((directory(place), arguments[place + 1]));
    match watch {
        Watch::Open
        | Watch::Creat
        | Watch::Stat
        | Watch::Access
        | Watch::Unlink
        | Watch::RemoveDirectory
        | Watch::MakeDirectory
        | Watch::Truncate => [plain(0), None],
        Watch::OpenAt
        | Watch::OpenAt2
        | Watch::StatAt { .. }
        | Watch::AccessAt
        | Watch::UnlinkAt
        | Watch::MakeDirectoryAt => [below(0), None],
        Watch::Rename | Watch::Link => [plain(0), plain(1)],
        Watch::RenameAt { .. } | Watch::LinkAt => [below(0), below(2)],
        _ => [None, None],
    }
}

/// An argument of type `int`: the upper half of its register is undefined.
pub(super) fn word(argument: u64) -> i32 {
    i32::from_ne_bytes(low_bytes(argument))
}

pub(super) fn low_bytes(argument: u64) -> [u8; 4] {
    let [one, two, three, four, ..] = argument.to_le_bytes();
    u32::from_le_bytes([one, two, three, four]).to_ne_bytes()
}

/// A flag of the C library as an argument.
pub(super) fn number_of(flag: i32) -> u64 {
    u64::try_from(flag).expect("flags are positive numbers")
}

pub(super) fn id(process: pid_t) -> u32 {
    u32::try_from(process).expect("the kernel's numbers of processes are positive")
}
