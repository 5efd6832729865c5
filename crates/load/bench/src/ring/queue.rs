//! A ring, its slots and their memory.
//!
//! INVARIANT: memory that the kernel may still use is never moved or freed. Each slot owns its memory for the
//! lifetime of the queue and lends it out only while no operation is in flight in it; before it is dropped, the queue
//! waits for all operations in flight, even if it is dropped by a panic.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::squeue::Entry;
use io_uring::types::{Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};

#[cfg(test)]
use crate::access::issued;
use crate::data::AlignedMemory;
use crate::error::BenchError;

/// The operation that a slot submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The rest of a read.
    Read,
    /// The rest of a write.
    Write,
    /// `fsync`.
    Fsync,
    /// `fdatasync`.
    Fdatasync,
}

/// One completion.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    pub slot: usize,
    /// Bytes transferred, or a negative errno.
    pub result: i32,
}

/// A ring with one slot per operation in flight.
pub struct Queue {
    ring: IoUring,
    slots: Vec<Slot>,
    /// True if the slots' memory is registered: the kernel need not look up its pages each time.
    is_registered: bool,
    /// Submitted and not yet completed.
    in_flight: usize,
    /// Pushed to the ring and not yet submitted.
    waiting: usize,
    answers: Vec<Completion>,
}

struct Slot {
    memory: AlignedMemory,
    is_busy: bool,
}

impl Queue {
    /// Creates a ring for `depth` operations of up to `record_bytes` on `file`, which must stay open for the lifetime
    /// of the queue.
    ///
    /// The ring belongs to the calling thread.
    pub fn new(depth: u32, record_bytes: usize, file: BorrowedFd<'_>) -> Result<Self, BenchError> {
        let ring = new_ring(depth).map_err(|source| BenchError::Ring { source })?;
        let registered = ring.submitter().register_files(&[file.as_raw_fd()]);
        registered.map_err(|source| BenchError::Ring { source })?;
        let mut queue = Self {
            ring,
            slots: (0..depth)
                .map(|_| Slot {
                    memory: AlignedMemory::new(record_bytes, 0xA5),
                    is_busy: false,
                })
                .collect(),
            is_registered: false,
            in_flight: 0,
            waiting: 0,
            answers: Vec::new(),
        };
        queue.is_registered = queue.register_memory();
        Ok(queue)
    }

    /// The memory of an idle slot.
    ///
    /// # Panics
    /// If an operation is in flight in the slot.
    pub fn memory(&mut self, slot: usize) -> &mut [u8] {
        let slot = &mut self.slots[slot];
        assert!(!slot.is_busy, "the kernel may still use the memory of this slot");
        slot.memory.as_mut_slice()
    }

    /// Requests the bytes from `done` of the slot's memory, at `offset` of the file. [`Self::wait`] submits the
    /// request.
    ///
    /// # Panics
    /// If an operation is in flight in the slot, or nothing is left of its memory.
    pub fn push(&mut self, slot: usize, call: Call, done: usize, offset: u64) -> Result<(), BenchError> {
        let entry = self.entry(slot, call, done, offset);
        #[cfg(test)]
        match call {
            Call::Read => issued::note("read", offset, &[]),
            Call::Write => issued::note("write", offset, &self.slots[slot].memory.as_slice()[done..]),
            Call::Fsync | Call::Fdatasync => issued::note("sync", 0, &[]),
        }
        self.slots[slot].is_busy = true;
        // SAFETY: the slot's memory lives as long as the queue, is not lent out while the slot is busy, and the queue
        // waits for all completions before it is dropped. The file stays open, as `new` requires.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // A slot has at most one entry, and the ring has an entry for each slot.
        pushed.expect("the ring has an entry for each slot");
        self.waiting += 1;
        Ok(())
    }

    /// Submits the pushed operations and waits up to `timeout_ns` for at least one completion.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> Result<&[Completion], BenchError> {
        let wanted = usize::from(self.in_flight + self.waiting > 0);
        let submitted = match timeout_ns {
            Some(ns) if self.ring.params().is_feature_ext_arg() => {
                let time = Timespec::new()
                    .sec(ns / 1_000_000_000)
                    .nsec(u32::try_from(ns % 1_000_000_000).unwrap_or(0));
                let arguments = SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(wanted, &arguments)
            }
            _ => self.ring.submitter().submit_and_wait(wanted),
        };
        match submitted.map_err(|error| (error.raw_os_error(), error)) {
            // Interrupted and timed-out calls have submitted their entries; the next call waits again.
            Ok(_) | Err((Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY), _)) => {}
            Err((_, source)) => return Err(BenchError::Ring { source }),
        }
        let left = self.ring.submission().len();
        self.in_flight += self.waiting - left.min(self.waiting);
        self.waiting = left;
        self.take_answers();
        Ok(&self.answers)
    }

    /// Operations pushed or submitted, and not yet completed.
    pub fn unanswered(&self) -> usize {
        self.in_flight + self.waiting
    }

    fn take_answers(&mut self) {
        self.answers.clear();
        for entry in self.ring.completion() {
            let slot =
                usize::try_from(entry.user_data()).expect("the number of a slot comes back as it was given");
            self.slots[slot].is_busy = false;
            self.in_flight -= 1;
            self.answers.push(Completion {
                slot,
                result: entry.result(),
            });
        }
    }

    fn entry(&mut self, slot: usize, call: Call, done: usize, offset: u64) -> Entry {
        let (number, is_registered) = (slot, self.is_registered);
        let memory = &mut self.memory(slot)[done..];
        assert!(!memory.is_empty(), "nothing is left to do in slot {number}");
        let length = u32::try_from(memory.len()).expect("records are checked to be at most 1 GiB");
        let index = u16::try_from(number).expect("queues are checked to be at most 4096 deep");
        let (start, file) = (memory.as_mut_ptr(), Fixed(0));
        let entry = match (call, is_registered) {
            (Call::Read, true) => opcode::ReadFixed::new(file, start, length, index)
                .offset(offset)
                .build(),
            (Call::Read, false) => opcode::Read::new(file, start, length).offset(offset).build(),
            (Call::Write, true) => opcode::WriteFixed::new(file, start, length, index)
                .offset(offset)
                .build(),
            (Call::Write, false) => opcode::Write::new(file, start, length).offset(offset).build(),
            (Call::Fsync, _) => opcode::Fsync::new(file).build(),
            (Call::Fdatasync, _) => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
        };
        entry.user_data(u64::try_from(number).expect("the number of a slot fits in 64 bits"))
    }

    /// Registers the slots' memory. Returns false if the kernel refuses, as it does above the limit of locked memory:
    /// operations work without it.
    fn register_memory(&mut self) -> bool {
        let vectors: Vec<libc::iovec> = self
            .slots
            .iter_mut()
            .map(|slot| {
                let memory = slot.memory.as_mut_slice();
                libc::iovec {
                    iov_base: memory.as_mut_ptr().cast(),
                    iov_len: memory.len(),
                }
            })
            .collect();
        // SAFETY: the memory of the slots is allocated, writable and outlives the ring, see the invariant above.
        unsafe { self.ring.submitter().register_buffers(&vectors) }.is_ok()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        while self.unanswered() > 0 {
            if self.wait(None).is_err() {
                // The kernel accepts no more calls on the ring, so the end of its use of the memory cannot be
                // determined: the memory is leaked.
                for slot in self.slots.drain(..) {
                    std::mem::forget(slot);
                }
                return;
            }
        }
        // The kernel tears a ring down in the background and would hold the file, and its blocks, until then. A ring
        // that refuses this is torn down all the same.
        let submitter = self.ring.submitter();
        let _ = submitter.unregister_files();
        let _ = submitter.unregister_buffers();
    }
}

/// Creates a ring for one thread, which runs completions when it waits; on an older kernel, a plain ring.
fn new_ring(depth: u32) -> io::Result<IoUring> {
    let tuned = IoUring::builder()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .setup_defer_taskrun()
        .build(depth);
    match tuned {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(depth),
        other => other,
    }
}
