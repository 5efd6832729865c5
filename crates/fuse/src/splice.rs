//! Answering a READ by splice: from the host's page cache to the kernel's FUSE side in one copy instead of two.
//!
//! A reply is its header and its data in one piece, so the header goes into the pipe first and must know the length.
//! A file that turns out shorter than its size promised (it was truncated meanwhile) leaves data in the pipe: it is
//! thrown away with the pipe, and the request is served by a plain read.

use std::io;
use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use zerocopy::IntoBytes;

use crate::abi::OutHeader;

/// Below this a copy is cheaper than the calls.
pub const BYTES_LEAST: usize = 64 << 10;
/// Bytes asked of a pipe: what an ordinary user may have (`fs.pipe-max-size`), 256 slots of a page.
const PIPE_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;

/// One worker's pipe, made at first use.
#[derive(Default)]
pub struct Splicer {
    pipe: Option<Pipe>,
    unusable: bool,
}

struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    bytes: usize,
}

impl Splicer {
    /// Answers request `unique` with `length` bytes of `file` at `offset`, or fewer at its end. `None`: nothing was
    /// sent, and the request is still to be served. `Some(Ok(0))` is a request that the kernel no longer waits for.
    pub fn answer(
        &mut self,
        device: &OwnedFd,
        unique: u64,
        file: &OwnedFd,
        offset: u64,
        length: usize,
    ) -> Option<io::Result<usize>> {
        let size = u64::try_from(rustix::fs::fstat(file).ok()?.st_size).ok()?;
        let length = usize::try_from(size.checked_sub(offset)?).map_or(length, |rest| rest.min(length));
        if length < BYTES_LEAST || self.unusable {
            return None;
        }
        if self.pipe.is_none() {
            self.pipe = Pipe::new().ok();
            self.unusable = self.pipe.is_none();
        }
        let pipe = self.pipe.as_ref()?;
        // One slot for the header, one for a first page that starts inside.
        if length + 2 * PAGE_BYTES > pipe.bytes {
            return None;
        }
        let filled = pipe.fill(unique, file, offset, length);
        if !matches!(filled, Ok(true)) {
            self.pipe = None;
            return None;
        }
        let whole = size_of::<OutHeader>() + length;
        match splice(&pipe.reader, None, device, None, whole, SpliceFlags::MOVE) {
            Ok(sent) if sent == whole => Some(Ok(length)),
            Ok(sent) => {
                self.pipe = None;
                Some(Err(io::Error::other(format!(
                    "the kernel took {sent} of {whole} bytes of a reply"
                ))))
            }
            Err(errno) => {
                self.pipe = None;
                match errno {
                    rustix::io::Errno::NOENT | rustix::io::Errno::NODEV | rustix::io::Errno::CONNABORTED => {
                        Some(Ok(0))
                    }
                    // Nothing of the reply was taken: it can still be written.
                    _ => None,
                }
            }
        }
    }
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let bytes = fcntl_setpipe_size(&writer, PIPE_BYTES)?;
        Ok(Self {
            reader,
            writer,
            bytes,
        })
    }

    /// Puts header and data into the pipe; false when the file ended early.
    fn fill(&self, unique: u64, file: &OwnedFd, offset: u64, length: usize) -> io::Result<bool> {
        let whole = size_of::<OutHeader>() + length;
        let len = u32::try_from(whole).expect("a pipe holds less than 4 GiB");
        let header = OutHeader {
            len,
            error: 0,
            unique,
        };
        rustix::io::write(&self.writer, header.as_bytes())?;
        let mut from = offset;
        let end = offset + u64::try_from(length).expect("usize fits in u64");
        while from < end {
            let rest = usize::try_from(end - from).expect("no more than `length`");
            match splice(file, Some(&mut from), &self.writer, None, rest, SpliceFlags::MOVE) {
                Ok(0) => return Ok(false),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn header_and_data_come_out_in_one_piece_and_a_short_file_is_noticed() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..200_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
        file.write_all(&content).unwrap();
        let file = OwnedFd::from(file);
        let pipe = Pipe::new().unwrap();
        assert!(pipe.fill(7, &file, 5000, 100_000).unwrap());
        let mut out = vec![0; 200_000];
        let mut got = 0;
        while let Ok(bytes) = rustix::io::read(&pipe.reader, &mut out[got..]) {
            got += bytes;
        }
        assert_eq!(got, 100_016);
        assert_eq!(&out[16..got], &content[5000..105_000]);
        assert!(!pipe.fill(8, &file, 150_000, 100_000).unwrap());
    }
}
