//! WRITE: a request's data handed down with what the kernel says about it, and what the kernel makes of the reply.
//!
//! The mode goes down as it comes: durability, appending and direct I/O are the file system's to keep ([`vfs::WriteMode`]).
//! With two exceptions, both about the kernel's page cache:
//! - The kernel never looks at the count in the reply to a page that it writes back, so such a write is whole or fails.
//! - With the writeback cache the kernel's pages may end behind the file that the file system knows. Data appended behind
//!   them has its place there, not at the file system's end.

use vfs::{FsError, FsResult, Handle, OpenFlags, WriteMode};

use crate::abi::{WRITE_CACHE, WRITE_KILL_SUIDGID, WriteIn, WriteOut};
use crate::dispatch::{Dispatcher, privileges_if, usize_of};
use crate::request::Request;

impl Dispatcher {
    pub(crate) fn write(&self, request: &Request, data: &[u8]) -> FsResult<WriteOut> {
        let args: WriteIn = request.fixed()?;
        let data = data.get(..usize_of(args.size)).ok_or(FsError::Invalid)?;
        let mut mode = WriteMode {
            flags: OpenFlags(args.flags.cast_signed()),
            privileges: privileges_if(args.write_flags & WRITE_KILL_SUIDGID != 0, request),
            from_page_cache: args.write_flags & WRITE_CACHE != 0,
        };
        if self.writeback && mode.appends() && self.ends_before(request, &args)? {
            mode.flags = mode.flags.without(libc::O_APPEND);
        }
        let written = self.write_out(request, &args, data, mode)?;
        self.counters.write(written);
        self.privileges_killed(request.ino(), mode.privileges);
        Ok(WriteOut {
            size: u32::try_from(written).map_err(|_| FsError::Io)?,
            padding: 0,
        })
    }

    fn ends_before(&self, request: &Request, args: &WriteIn) -> FsResult<bool> {
        let attr = self.file_system.getattr(request.ino(), Some(Handle(args.fh)))?;
        Ok(attr.size < args.offset)
    }

    fn write_out(&self, request: &Request, args: &WriteIn, data: &[u8], mode: WriteMode) -> FsResult<usize> {
        let mut written = 0;
        loop {
            let offset = args
                .offset
                .saturating_add(u64::try_from(written).map_err(|_| FsError::FileTooBig)?);
            let rest = &data[written..];
            let more = self
                .file_system
                .write(request.ino(), Handle(args.fh), offset, rest, mode)?;
            written += more;
            if written >= data.len() || !mode.from_page_cache {
                return Ok(written);
            }
            if more == 0 {
                return Err(FsError::Io);
            }
        }
    }
}
