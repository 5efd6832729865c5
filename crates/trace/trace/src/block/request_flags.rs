//! The kernel's word of operation and flags, whose bits differ between kernels.

use results::block_trace::{Operation, RequestFlags};

/// Maps bits of `bi_opf` to flags in the running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlagBits {
    bits: Vec<(u32, RequestFlags)>,
}

/// Names in `enum req_flag_bits`, and the corresponding flags.
const NAMES: [(&str, RequestFlags); 13] = [
    ("__REQ_SYNC", RequestFlags::SYNC),
    ("__REQ_META", RequestFlags::META),
    ("__REQ_FUA", RequestFlags::FUA),
    ("__REQ_PREFLUSH", RequestFlags::PREFLUSH),
    ("__REQ_RAHEAD", RequestFlags::READAHEAD),
    ("__REQ_PRIO", RequestFlags::PRIO),
    ("__REQ_BACKGROUND", RequestFlags::BACKGROUND),
    ("__REQ_NOWAIT", RequestFlags::NOWAIT),
    ("__REQ_NOMERGE", RequestFlags::NOMERGE),
    ("__REQ_IDLE", RequestFlags::IDLE),
    ("__REQ_ATOMIC", RequestFlags::ATOMIC),
    ("__REQ_SWAP", RequestFlags::SWAP),
    ("__REQ_POLLED", RequestFlags::POLLED),
];

impl FlagBits {
    /// Builds the map from members of the kernel's enum: name and bit.
    pub(crate) fn from_members<'a>(members: impl Iterator<Item = (&'a str, u32)>) -> Self {
        let bits = members
            .filter_map(|(name, bit)| {
                let (_, flag) = NAMES.iter().find(|(known, _)| *known == name)?;
                Some((bit, *flag))
            })
            .collect();
        Self { bits }
    }

    /// The flags in a word.
    pub(crate) fn flags(&self, word: u32) -> RequestFlags {
        self.bits
            .iter()
            .filter(|(bit, _)| word.checked_shr(*bit).is_some_and(|rest| rest & 1 == 1))
            .fold(RequestFlags::default(), |all, (_, flag)| all.with(*flag))
    }

    /// The word of an operation and those of its flags that have a bit.
    pub(crate) fn word(&self, operation: Operation, flags: RequestFlags) -> u32 {
        let number = match operation {
            Operation::Read => 0,
            Operation::Write => 1,
            Operation::Flush => 2,
            Operation::Discard => 3,
            Operation::SecureErase => 5,
            Operation::ZoneAppend => 7,
            Operation::WriteZeroes => 9,
            Operation::ZoneManagement => 10,
            Operation::Driver => 34,
        };
        let set = self.bits.iter().filter(|(_, flag)| flags.contains(*flag));
        set.fold(number, |word, (bit, _)| word | 1 << bit)
    }
}

/// The operation in a word: its lowest 8 bits.
pub(crate) fn operation(word: u32) -> Operation {
    match word & 0xFF {
        0 => Operation::Read,
        1 => Operation::Write,
        2 => Operation::Flush,
        3 => Operation::Discard,
        5 => Operation::SecureErase,
        7 => Operation::ZoneAppend,
        9 => Operation::WriteZeroes,
        6 | 8 | 10..=17 => Operation::ZoneManagement,
        _ => Operation::Driver,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_by_the_running_kernels_bits() {
        let older = FlagBits::from_members([("__REQ_SYNC", 11), ("__REQ_FUA", 17)].into_iter());
        let other = FlagBits::from_members([("__REQ_SYNC", 3), ("__REQ_MADE_UP", 4)].into_iter());
        assert_eq!(older.flags(1 << 11 | 1), RequestFlags::SYNC);
        assert_eq!(other.flags(1 << 11 | 1), RequestFlags::default());
        assert_eq!(operation(1 << 11 | 1), Operation::Write);
    }

    #[test]
    fn a_word_of_an_operation_and_flags_is_read_as_these() {
        let bits = FlagBits::from_members([("__REQ_SYNC", 11), ("__REQ_FUA", 17)].into_iter());
        let flags = RequestFlags::SYNC.with(RequestFlags::FUA);
        for (known, _) in Operation::WORDS {
            let word = bits.word(*known, flags.with(RequestFlags::META));
            assert_eq!((operation(word), bits.flags(word)), (*known, flags));
        }
    }
}
