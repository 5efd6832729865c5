//! The transport over `/dev/fuse`: one `read(2)` a request, one `write(2)` or `writev(2)` a reply.
//!
//! A worker reads requests into a region of its own so that the data of a WRITE starts at a page; the data of a READ
//! is put at the same page, so that a file system below can use direct I/O on both.

use std::io;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use vfs::{FsError, Ino};
use zerocopy::IntoBytes;

use crate::abi::{InHeader, NOTIFY_INVAL_INODE, NotifyInvalInodeOut, OutHeader, WriteIn, opcode};
use crate::dispatch::{Answer, Dispatcher};
use crate::region::Region;
use crate::request::Request;

/// Where data of a WRITE and a READ stands in a worker's region.
const DATA_AT: usize = 4096;
/// Where a message must start for its WRITE data to stand there.
const MESSAGE_AT: usize = DATA_AT - size_of::<InHeader>() - size_of::<WriteIn>();
/// The least room for data: the kernel refuses to hand out requests into less than 8 KiB, and the value of an extended
/// attribute may have 64 KiB whatever the I/O unit is.
pub const DATA_BYTES_LEAST: usize = 128 << 10;
/// A small reply buffer that has grown past this is given back.
const SMALL_REPLY_BYTES: usize = 16 << 10;
/// What a region keeps of its memory while requests are small.
const KEPT_BYTES: usize = 64 << 10;
/// Small requests in a row after which the rest is given back: a stream that is mixed with a few of them keeps it.
const SMALL_REQUESTS: u32 = 256;

/// One worker's end of the connection.
pub struct Channel {
    device: Arc<OwnedFd>,
    region: Region,
    /// Requests in a row that stayed within [`KEPT_BYTES`], while the region has more; `None` when it has not.
    small_run: Option<u32>,
    small: Vec<u8>,
}

impl Channel {
    /// A channel that can carry `data_bytes_max` of data a request.
    pub fn new(device: Arc<OwnedFd>, data_bytes_max: usize) -> io::Result<Self> {
        Ok(Self {
            device,
            region: Region::new(DATA_AT + data_bytes_max.max(DATA_BYTES_LEAST))?,
            small_run: None,
            small: Vec::new(),
        })
    }

    /// Serves requests until the connection ends (unmount, abort) or the dispatcher is closed.
    pub fn serve(&mut self, dispatcher: &Dispatcher) -> io::Result<()> {
        loop {
            let received =
                rustix::io::read(self.device.as_fd(), &mut self.region.as_mut_slice()[MESSAGE_AT..]);
            let length = match received {
                Ok(length) => length,
                // ENOENT: the request was interrupted while it was being read.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
                Err(Errno::NODEV | Errno::CONNABORTED | Errno::BADF) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            };
            if !dispatcher.enter() {
                return Ok(());
            }
            let result = self.serve_one(dispatcher, length);
            dispatcher.leave();
            result?;
        }
    }

    fn serve_one(&mut self, dispatcher: &Dispatcher, length: usize) -> io::Result<()> {
        let memory = self.region.as_mut_slice();
        let Some((request, input)) = Request::from_message(&memory[MESSAGE_AT..MESSAGE_AT + length]) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("request of {length} bytes is cut short"),
            ));
        };
        let unique = request.header.unique;
        if request.header.opcode == opcode::READ {
            let result = dispatcher.read(&request, &mut memory[DATA_AT..]);
            let data = result.map(|bytes| &memory[DATA_AT..DATA_AT + bytes]);
            let reached = DATA_AT + result.unwrap_or(0);
            reply(&self.device, unique, data)?;
            self.note_reach(reached);
            return Ok(());
        }
        self.small.clear();
        let answer = dispatcher.serve(&request, input, &mut self.small);
        self.note_reach(MESSAGE_AT + length);
        let Answer::Reply(result) = answer else {
            return Ok(());
        };
        reply(&self.device, unique, result.map(|()| self.small.as_slice()))?;
        if self.small.capacity() > SMALL_REPLY_BYTES {
            self.small = Vec::new();
        }
        Ok(())
    }
}

impl Channel {
    /// A request used the region up to here. A worker that had large ones and has only small ones for a while gives
    /// back what they do not need: a mebibyte for each worker, of the six that a daemon may take.
    fn note_reach(&mut self, reached: usize) {
        if reached > KEPT_BYTES {
            self.small_run = Some(0);
        } else if let Some(run) = &mut self.small_run {
            *run += 1;
            if *run == SMALL_REQUESTS {
                self.region.give_back(KEPT_BYTES);
                // So do the pages of the program that the stream needed, and those that lie around them.
                crate::resident::drop_start_up_pages();
                self.small_run = None;
            }
        }
    }
}

/// Tells the kernel that its cached attributes of `ino` are void. Data stays: a mapping of it may be held by the very
/// caller that is being served.
pub fn forget_attributes(device: &OwnedFd, ino: Ino) {
    let body = NotifyInvalInodeOut {
        ino: ino.0,
        off: -1,
        len: 0,
    };
    let length = size_of::<OutHeader>() + size_of::<NotifyInvalInodeOut>();
    let length = u32::try_from(length).expect("a few dozen bytes");
    let header = OutHeader {
        len: length,
        error: NOTIFY_INVAL_INODE,
        unique: 0,
    };
    // ENOENT says that the kernel does not know the inode: then it has no attributes of it either.
    let _ = rustix::io::writev(
        device,
        &[IoSlice::new(header.as_bytes()), IoSlice::new(body.as_bytes())],
    );
}

/// Sends a reply.
///
/// The kernel takes the reply to every request that it handed out, also when its caller was killed meanwhile, so that no
/// handle or entry in it is lost; it waits no longer only once the connection has ended (`ENOENT` among other errors).
pub fn reply(device: &OwnedFd, unique: u64, result: Result<&[u8], FsError>) -> io::Result<()> {
    let (error, data) = match result {
        Ok(data) => (0, data),
        Err(error) => (-error.errno(), &[][..]),
    };
    let length = u32::try_from(size_of::<OutHeader>() + data.len()).expect("replies are below 4 GiB");
    let header = OutHeader {
        len: length,
        error,
        unique,
    };
    loop {
        return match rustix::io::writev(device, &[IoSlice::new(header.as_bytes()), IoSlice::new(data)]) {
            Ok(_) => Ok(()),
            Err(Errno::INTR) => continue,
            Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => Ok(()),
            Err(errno) => Err(io::Error::from(errno)),
        };
    }
}
