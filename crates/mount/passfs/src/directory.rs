//! The stream of names of one open directory.
//!
//! Offsets are the host's (`d_off`), which stay valid while names are added and removed. Names are read in blocks; a
//! caller that continues at the current position gets the rest of the block, one that seeks makes the host seek.

use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::SeekFrom;
use vfs::{FileKind, FsError, FsResult};

use crate::identity::errno;

/// Size of a block of names; the C library's choice too.
const BLOCK_BYTES: usize = 32 * 1024;
/// `struct linux_dirent64`: inode (8), offset (8), length (2), type (1), then the name up to a NUL.
const NAME_OFFSET: usize = 19;

/// One name as the host lists it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostName<'a> {
    pub name: &'a [u8],
    pub inode: u64,
    pub kind: FileKind,
    pub next_offset: u64,
}

/// Position in a directory and the block of names read ahead from there.
#[derive(Debug, Default)]
pub(crate) struct DirStream {
    block: Vec<u8>,
    filled: usize,
    position: usize,
    /// Directory offset of the name at `position`.
    offset: u64,
    ended: bool,
}

impl DirStream {
    /// Continues at `offset`; 0 reads the directory afresh.
    pub(crate) fn seek(&mut self, directory: impl AsFd, offset: u64) -> FsResult<()> {
        let untouched = self.filled == 0 && !self.ended;
        let stays = self.offset == offset && (offset != 0 || untouched);
        if stays {
            return Ok(());
        }
        rustix::fs::seek(directory, SeekFrom::Start(offset)).map_err(errno)?;
        (self.filled, self.position, self.ended) = (0, 0, false);
        self.offset = offset;
        Ok(())
    }

    /// The name at the current position, `None` at the end. [`DirStream::advance`] moves past it.
    pub(crate) fn peek(&mut self, directory: impl AsFd) -> FsResult<Option<HostName<'_>>> {
        if self.position >= self.filled && !self.fill(directory)? {
            return Ok(None);
        }
        parse(&self.block[self.position..self.filled]).map(|(name, _)| Some(name))
    }

    /// Moves past the name that [`DirStream::peek`] returned.
    pub(crate) fn advance(&mut self) -> FsResult<()> {
        let (name, length) = parse(&self.block[self.position..self.filled])?;
        self.offset = name.next_offset;
        self.position += length;
        Ok(())
    }

    /// Reads the next block. The end is not final: the next call asks the host again, which may have more names by
    /// then.
    fn fill(&mut self, directory: impl AsFd) -> FsResult<bool> {
        self.block.resize(BLOCK_BYTES, 0);
        (self.filled, self.position) = (0, 0);
        self.filled = read_block(directory, &mut self.block)?;
        self.ended = self.filled == 0;
        Ok(!self.ended)
    }
}

fn read_block(directory: impl AsFd, block: &mut [u8]) -> FsResult<usize> {
    let fd = directory.as_fd().as_raw_fd();
    // SAFETY: the pointer and the length describe `block`, which is writable and outlives the call.
    let read = unsafe { libc::syscall(libc::SYS_getdents64, fd, block.as_mut_ptr(), block.len()) };
    usize::try_from(read).map_err(|_| FsError::from(std::io::Error::last_os_error()))
}

/// The first record of `bytes` and its length; an invalid record is an I/O error of the host.
fn parse(bytes: &[u8]) -> FsResult<(HostName<'_>, usize)> {
    let inode = bytes.first_chunk::<8>().ok_or(FsError::Io)?;
    let next_offset = bytes
        .get(8..)
        .and_then(|rest| rest.first_chunk::<8>())
        .ok_or(FsError::Io)?;
    let length = bytes
        .get(16..)
        .and_then(|rest| rest.first_chunk::<2>())
        .ok_or(FsError::Io)?;
    let length = usize::from(u16::from_ne_bytes(*length));
    let kind = u32::from(*bytes.get(18).ok_or(FsError::Io)?);
    let name = bytes.get(NAME_OFFSET..length).ok_or(FsError::Io)?;
    let name_bytes = name.iter().position(|byte| *byte == 0).ok_or(FsError::Io)?;
    let found = HostName {
        name: &name[..name_bytes],
        inode: u64::from_ne_bytes(*inode),
        kind: FileKind::of_mode(kind << 12),
        next_offset: u64::from_ne_bytes(*next_offset),
    };
    Ok((found, length))
}
