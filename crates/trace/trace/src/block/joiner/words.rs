//! Words of the kernel's records: statuses, priorities, halves of times.

use results::block_trace::IoPriority;

/// `blk_status_t` to errno; statuses without one are EIO.
const STATUSES: [(u32, i32); 8] = [
    (1, 95),
    (2, 110),
    (3, 28),
    (4, 67),
    (5, 121),
    (6, 52),
    (7, 61),
    (9, 12),
];
pub(super) const EIO: i32 = 5;

/// The low half of a time, by which records that belong together are recognised.
pub(crate) fn low_half(time: u64) -> u32 {
    u32::try_from(time & u64::from(u32::MAX)).unwrap_or(0)
}

/// The class is in the upper 3 of 16 bits; 0 means not set.
pub(super) fn priority(word: u16) -> Option<IoPriority> {
    let class = u8::try_from(word >> 13).unwrap_or(0);
    (class != 0).then_some(IoPriority {
        class,
        level: word & 0x1FFF,
    })
}

pub(super) fn status(word: u32) -> i32 {
    if word == 0 {
        return 0;
    }
    STATUSES
        .iter()
        .find(|(known, _)| *known == word)
        .map_or(EIO, |(_, errno)| *errno)
}
