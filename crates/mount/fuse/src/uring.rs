//! The transport over io_uring: requests arrive as completions; one system call sends a reply and waits for the next
//! request.
//!
//! The kernel keeps one queue per processor and assigns a request to the queue of the processor on which it was made. A
//! worker has its own ring with one registered entry, so that a slow request (an fsync) occupies one worker and the
//! queue's next request finds another. Forgets and interrupts still arrive by `/dev/fuse`, so one device worker
//! remains.
//!
//! Source: the kernel's `Documentation/filesystems/fuse/fuse-io-uring.rst` and `fuse.h` 7.42. JUSTIFICATION of the
//! unsafe code here: the kernel reads and writes the entry's memory while a command is in flight. This module touches
//! the memory only between a completion and the following commit, and never frees it while the kernel may still hold
//! the entry: commands of a closed ring end with a delay.

use std::io;
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode as ring_op, types};
use vfs::{FsError, FsResult};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{
    InHeader, OutHeader, URING_CMD_COMMIT_AND_FETCH, URING_CMD_REGISTER, URING_HEADER_BYTES, UringCmdReq,
    UringEntInOut, opcode,
};
use crate::device::DATA_BYTES_LEAST;
use crate::dispatch::{Answer, Dispatcher};
use crate::region::Region;
use crate::reply::error_out;
use crate::request::Request;
use crate::worker::Serve;

/// Offset of the payload in the region; the page before it holds the headers.
const PAYLOAD_AT: usize = 4096;
/// Offset of the entry's own structure behind the two header areas.
const ENTRY_AT: usize = 2 * URING_HEADER_BYTES;
const HEADERS_BYTES: usize = ENTRY_AT + size_of::<UringEntInOut>();

/// One worker's ring, registered with one queue of the connection.
pub struct RingChannel {
    ring: IoUring<Entry128, cqueue::Entry>,
    device: Arc<OwnedFd>,
    queue: u16,
    /// The entry's memory; freed by `drop` only if the kernel has returned the entry.
    region: ManuallyDrop<Region>,
    vectors: ManuallyDrop<Box<[libc::iovec; 2]>>,
    with_kernel: bool,
    small: Vec<u8>,
    /// The request that was received and not answered, see [`crate::device::Channel`].
    unanswered: Option<Pending>,
}

/// The kernel's identifiers of a request.
#[derive(Clone, Copy)]
struct Pending {
    unique: u64,
    commit_id: u64,
}

// SAFETY: the vectors point into `region`, which moves with them; only one thread at a time uses the ring.
unsafe impl Send for RingChannel {}

impl RingChannel {
    /// Creates a ring for the queue of processor `queue`, for requests with up to `data_bytes_max` of data.
    pub fn new(device: Arc<OwnedFd>, queue: u16, data_bytes_max: usize) -> io::Result<Self> {
        let data_bytes = data_bytes_max.max(DATA_BYTES_LEAST);
        let ring = IoUring::<Entry128, cqueue::Entry>::builder()
            .setup_submit_all()
            .build(2)?;
        let mut region = Region::new(PAYLOAD_AT + data_bytes)?;
        let start = region.as_mut_ptr();
        let payload = region.as_mut_slice()[PAYLOAD_AT..].as_mut_ptr();
        let vectors = Box::new([
            libc::iovec {
                iov_base: start.cast(),
                iov_len: HEADERS_BYTES,
            },
            libc::iovec {
                iov_base: payload.cast(),
                iov_len: data_bytes,
            },
        ]);
        Ok(Self {
            ring,
            device,
            queue,
            region: ManuallyDrop::new(region),
            vectors: ManuallyDrop::new(vectors),
            with_kernel: false,
            small: Vec::new(),
            unanswered: None,
        })
    }

    fn push(&mut self, command: u32, commit_id: u64) -> io::Result<()> {
        let mut area = [0; 80];
        let request = UringCmdReq {
            commit_id,
            qid: self.queue,
            ..UringCmdReq::default()
        };
        area[..size_of::<UringCmdReq>()].copy_from_slice(request.as_bytes());
        let mut entry = ring_op::UringCmd80::new(types::Fd(self.device.as_raw_fd()), command)
            .cmd(area)
            .addr(Some(
                u64::try_from(self.vectors.as_ptr().addr()).expect("addresses have at most 64 bits"),
            ))
            .build();
        // The wrapper has no setter for `len`, in which REGISTER expects the number of vectors.
        const LEN_AT: usize = 24;
        const { assert!(size_of::<Entry128>() == 128) };
        // SAFETY: `Entry128` is the kernel's 128-byte submission entry, whose u32 `len` is at byte 24.
        unsafe { (&raw mut entry).cast::<u8>().add(LEN_AT).cast::<u32>().write(2) };
        self.with_kernel = true;
        // SAFETY: the vectors and the memory they name live until the command's completion; see the module's
        // justification.
        unsafe { self.ring.submission().push(&entry) }
            .map_err(|_| io::Error::other("the submission queue of one entry is full"))
    }
}

impl Serve for RingChannel {
    fn serve(&mut self, dispatcher: &Dispatcher) -> io::Result<()> {
        pin_to(self.queue);
        match self.unanswered {
            // Requests arrive once every queue of the connection has an entry.
            None => self.push(URING_CMD_REGISTER, 0)?,
            Some(pending) => self.answer(pending, Err(FsError::Io))?,
        }
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let Some(completion) = self.ring.completion().next() else {
                continue;
            };
            self.with_kernel = false;
            match completion.result() {
                0 => {}
                code if code == -libc::EINTR || code == -libc::EAGAIN => {
                    self.push(URING_CMD_REGISTER, 0)?;
                    continue;
                }
                code if [libc::ENOTCONN, libc::ECANCELED, libc::ENODEV, libc::ECONNABORTED]
                    .contains(&-code) =>
                {
                    return Ok(());
                }
                code => return Err(io::Error::from_raw_os_error(-code)),
            }
            if self.serve_one(dispatcher)?.is_break() {
                return Ok(());
            }
        }
    }
}

impl RingChannel {
    /// Breaks if the session accepts no more requests.
    fn serve_one(&mut self, dispatcher: &Dispatcher) -> io::Result<ControlFlow<()>> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let (headers, payload) = self.region.as_mut_slice().split_at_mut(PAYLOAD_AT);
        let (entry, _) = UringEntInOut::read_from_prefix(&headers[ENTRY_AT..])
            .map_err(|_| invalid("ring entry cut short"))?;
        let (header, _) =
            InHeader::read_from_prefix(&headers[..]).map_err(|_| invalid("ring request header cut short"))?;
        let pending = Pending {
            unique: header.unique,
            commit_id: entry.commit_id,
        };
        self.unanswered = Some(pending);
        let Some(_in_flight) = dispatcher.enter() else {
            return Ok(ControlFlow::Break(()));
        };
        let fixed_bytes = opcode::fixed_bytes(header.opcode);
        let request = Request::new(
            header,
            &headers[URING_HEADER_BYTES..URING_HEADER_BYTES + fixed_bytes],
        );
        let input_bytes = usize::try_from(entry.payload_sz)
            .expect("32 bits fit")
            .min(payload.len());
        let result = if header.opcode == opcode::READ {
            dispatcher.read(&request, payload)
        } else {
            self.small.clear();
            match dispatcher.serve(&request, &payload[..input_bytes], &mut self.small) {
                Answer::None => Ok(0),
                Answer::Reply(result) => result.map(|()| {
                    payload[..self.small.len()].copy_from_slice(&self.small);
                    self.small.len()
                }),
            }
        };
        let reached = PAYLOAD_AT + input_bytes.max(result.unwrap_or(0));
        self.answer(pending, result)?;
        self.region.note_reach(reached);
        Ok(ControlFlow::Continue(()))
    }

    /// Queues the reply to the request in the region, whose payload is in place.
    fn answer(&mut self, pending: Pending, result: FsResult<usize>) -> io::Result<()> {
        let (error, bytes) = match result {
            Ok(bytes) => (0, u32::try_from(bytes).expect("replies are below 4 GiB")),
            Err(error) => (error_out(error), 0),
        };
        let out = OutHeader {
            len: bytes,
            error,
            unique: pending.unique,
        };
        let entry_out = UringEntInOut {
            commit_id: pending.commit_id,
            payload_sz: bytes,
            ..UringEntInOut::default()
        };
        let headers = &mut self.region.as_mut_slice()[..HEADERS_BYTES];
        headers[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        headers[ENTRY_AT..].copy_from_slice(entry_out.as_bytes());
        self.push(URING_CMD_COMMIT_AND_FETCH, pending.commit_id)?;
        self.unanswered = None;
        Ok(())
    }
}

impl Drop for RingChannel {
    fn drop(&mut self) {
        if !self.with_kernel {
            // SAFETY: each is dropped once, here, and not used again; no command that refers to the memory is in
            // flight.
            unsafe {
                ManuallyDrop::drop(&mut self.vectors);
                ManuallyDrop::drop(&mut self.region);
            }
        }
    }
}

/// Number of queues of the connection: processors that can ever be online.
pub fn queue_count() -> u16 {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = possible
        .trim()
        .rsplit(['-', ','])
        .next()
        .and_then(|number| number.parse::<u16>().ok());
    last.map_or(1, |number| number + 1)
}

/// Pins the calling thread to the processor whose queue it serves.
fn pin_to(processor: u16) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(usize::from(processor));
    // Requests can arrive on a processor that is offline or excluded from this process: serve them from any processor.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
