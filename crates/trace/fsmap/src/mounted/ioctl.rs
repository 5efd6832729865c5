//! The ioctls of a mounted file system: FIEMAP, GETFSMAP, GETVERSION and btrfs's TREE_SEARCH_V2.
//!
//! JUSTIFICATION: none of them is in rustix; the only unsafe code of the crate is the single call below. Buffers are
//! 64-bit words, so that they are aligned for all of these structures.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// An ioctl whose argument is a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    Fiemap,
    GetFsMap,
    GetVersion,
    BtrfsTreeSearch,
}

impl Request {
    fn code(self) -> libc::Ioctl {
        match self {
            Self::Fiemap => 0xC020_660B,
            Self::GetFsMap => 0xC0C0_583B,
            Self::GetVersion => 0x8008_7601,
            Self::BtrfsTreeSearch => 0xC070_9411,
        }
    }
}

/// Words of the header of FIEMAP, and of one extent.
pub(crate) const FIEMAP_HEADER: usize = 4;
pub(crate) const FIEMAP_EXTENT: usize = 7;
/// Words of the header of GETFSMAP, and of one record.
pub(crate) const FSMAP_HEADER: usize = 24;
pub(crate) const FSMAP_RECORD: usize = 8;
/// Words of the arguments of a tree search.
pub(crate) const SEARCH_HEADER: usize = 14;

/// Joins two 32-bit fields that share a word.
pub(crate) fn pair(first: u32, second: u32) -> u64 {
    let [a, b, c, d] = first.to_ne_bytes();
    let [e, f, g, h] = second.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// Splits a word into its two 32-bit fields.
pub(crate) fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
}

/// Makes a call. The buffer must hold the request's header and as many entries as its counts allow.
pub(crate) fn call(fd: impl AsFd, request: Request, buffer: &mut [u64]) -> io::Result<()> {
    assert!(
        buffer_suffices(request, buffer),
        "{request:?} with {} words",
        buffer.len()
    );
    // SAFETY: each request reads and writes its header, and behind it at most as many entries (or, for the tree search,
    // bytes) as the header's count allows; the assertion checks that against the length of the buffer, which is
    // exclusively borrowed for the call and aligned to 8 bytes.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request.code(), buffer.as_mut_ptr()) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn buffer_suffices(request: Request, buffer: &[u64]) -> bool {
    let word = |at: usize| buffer.get(at).copied().unwrap_or(0);
    let entries = |count: u32| crate::bytes::index(u64::from(count));
    match request {
        Request::GetVersion => !buffer.is_empty(),
        Request::Fiemap => buffer.len() >= FIEMAP_HEADER + FIEMAP_EXTENT * entries(halves(word(3)).0),
        Request::GetFsMap => buffer.len() >= FSMAP_HEADER + FSMAP_RECORD * entries(halves(word(1)).0),
        Request::BtrfsTreeSearch => {
            let bytes = crate::bytes::index(word(SEARCH_HEADER - 1));
            buffer.len() >= SEARCH_HEADER && bytes <= (buffer.len() - SEARCH_HEADER) * 8
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_undo_pair() {
        assert_eq!(halves(pair(7, 9)), (7, 9));
    }

    #[test]
    fn a_buffer_that_is_too_short_for_its_count_is_seen() {
        let mut buffer = vec![0; FIEMAP_HEADER + FIEMAP_EXTENT];
        buffer[3] = pair(1, 0);
        assert!(buffer_suffices(Request::Fiemap, &buffer));
        buffer[3] = pair(2, 0);
        assert!(!buffer_suffices(Request::Fiemap, &buffer));
    }
}
