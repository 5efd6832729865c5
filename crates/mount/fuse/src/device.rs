//! The transport over `/dev/fuse`: one `read(2)` per request, or several if it polls, one `writev(2)` per reply.
//!
//! A worker reads requests into its own region so that the data of a WRITE starts on a page boundary; the data of a
//! READ is placed at the same address, so that the file system below can use direct I/O for both.

use std::io;
use std::io::IoSlice;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use vfs::FsError;
use zerocopy::IntoBytes;

use crate::abi::{InHeader, OutHeader, WriteIn, opcode};
use crate::dispatch::{Answer, Dispatcher};
use crate::poll::Poller;
use crate::region::Region;
use crate::reply::error_out;
use crate::request::Request;
use crate::worker::Serve;

/// Offset of WRITE and READ data in a worker's region.
const DATA_AT: usize = 4096;
/// Offset of a message that makes its WRITE data start at [`DATA_AT`].
const MESSAGE_AT: usize = DATA_AT - size_of::<InHeader>() - size_of::<WriteIn>();
/// Minimum size of the data area: the kernel refuses to deliver requests into less than 8 KiB, and the value of an
/// extended attribute may have 64 KiB whatever the I/O unit is.
pub const DATA_BYTES_LEAST: usize = 128 << 10;
/// A small reply buffer that has grown beyond this is freed.
const SMALL_REPLY_BYTES: usize = 16 << 10;

/// The number of a request, and where it was read and is answered.
#[derive(Clone, Copy)]
struct Received {
    unique: u64,
    by_polling: bool,
}

/// One worker's end of the connection.
pub struct Channel {
    device: Arc<OwnedFd>,
    poller: Option<Arc<Poller>>,
    /// The request that was received and not answered: it panicked, or arrived after the session's end.
    unanswered: Option<Received>,
    region: Region,
    small: Vec<u8>,
}

impl Channel {
    /// Creates a channel for requests with up to `data_bytes_max` of data.
    pub fn new(device: Arc<OwnedFd>, poller: Option<Arc<Poller>>, data_bytes_max: usize) -> io::Result<Self> {
        Ok(Self {
            device,
            poller,
            unanswered: None,
            region: Region::new(DATA_AT + data_bytes_max.max(DATA_BYTES_LEAST))?,
            small: Vec::new(),
        })
    }

    fn give_up_unanswered(&mut self) -> io::Result<()> {
        match self.unanswered.take() {
            Some(received) => {
                let device = device_of(&self.device, self.poller.as_deref(), received);
                reply(device, received.unique, Err(FsError::Io))
            }
            None => Ok(()),
        }
    }
}

impl Serve for Channel {
    fn serve(&mut self, dispatcher: &Dispatcher) -> io::Result<()> {
        self.give_up_unanswered()?;
        loop {
            let memory = &mut self.region.as_mut_slice()[MESSAGE_AT..];
            let sleep = |memory: &mut [u8]| rustix::io::read(self.device.as_fd(), memory);
            let (length, arrival) = match &self.poller {
                None => (sleep(memory), None),
                Some(poller) => match poller.next(memory, sleep) {
                    Ok(arrival) => (Ok(arrival.length), Some(arrival)),
                    Err(errno) => (Err(errno), None),
                },
            };
            let length = match length {
                Ok(length) => length,
                // ENOENT: the request was interrupted before it was read.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
                Err(Errno::NODEV | Errno::CONNABORTED | Errno::BADF) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            };
            let by_polling = arrival.as_ref().is_some_and(|arrival| arrival.polled);
            let ControlFlow::Continue(bytes) = self.serve_one(dispatcher, length, by_polling)? else {
                return self.give_up_unanswered();
            };
            if let (Some(poller), Some(arrival)) = (&self.poller, &arrival) {
                poller.answered(arrival, bytes);
            }
        }
    }
}

impl Channel {
    /// Returns the bytes of the request, or of the data that it reads. Breaks if the session accepts no more requests.
    fn serve_one(
        &mut self,
        dispatcher: &Dispatcher,
        length: usize,
        by_polling: bool,
    ) -> io::Result<ControlFlow<(), usize>> {
        let memory = self.region.as_mut_slice();
        let Some((request, input)) = Request::from_message(&memory[MESSAGE_AT..MESSAGE_AT + length]) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("request of {length} bytes is cut short"),
            ));
        };
        let unique = request.header.unique;
        let received = Received { unique, by_polling };
        self.unanswered = Some(received);
        let device = device_of(&self.device, self.poller.as_deref(), received);
        if let Some(poller) = &self.poller {
            poller.begins(request.header.opcode, request.header.pid);
        }
        let Some(_in_flight) = dispatcher.enter() else {
            return Ok(ControlFlow::Break(()));
        };
        if request.header.opcode == opcode::READ {
            let result = dispatcher.read(&request, &mut memory[DATA_AT..]);
            let data = result.map(|bytes| &memory[DATA_AT..DATA_AT + bytes]);
            let reached = DATA_AT + result.unwrap_or(0);
            reply(device, unique, data)?;
            self.unanswered = None;
            self.region.note_reach(reached);
            return Ok(ControlFlow::Continue(reached - DATA_AT));
        }
        self.small.clear();
        let answer = dispatcher.serve(&request, input, &mut self.small);
        if let Answer::Reply(result) = answer {
            reply(device, unique, result.map(|()| self.small.as_slice()))?;
        }
        self.unanswered = None;
        self.region.note_reach(MESSAGE_AT + length);
        if self.small.capacity() > SMALL_REPLY_BYTES {
            self.small = Vec::new();
        }
        Ok(ControlFlow::Continue(length))
    }
}

/// The kernel accepts the reply to a request only from the descriptor that delivered it.
fn device_of<'a>(own: &'a OwnedFd, poller: Option<&'a Poller>, received: Received) -> &'a OwnedFd {
    match poller {
        Some(poller) if received.by_polling => poller.device(),
        _ => own,
    }
}

/// Sends a reply.
///
/// The kernel accepts the reply to every request that it delivered, even if the caller was killed meanwhile, so that no
/// handle or entry in the reply is lost. It refuses a reply only once the connection has ended (`ENOENT` among other
/// errors).
pub fn reply(device: &OwnedFd, unique: u64, result: Result<&[u8], FsError>) -> io::Result<()> {
    let (error, data) = match result {
        Ok(data) => (0, data),
        Err(error) => (error_out(error), &[][..]),
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
