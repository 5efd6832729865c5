//! A ring, its slots and their memory.
//!
//! INVARIANT: memory that the kernel may still use is never moved or freed. Each slot owns its memory for as long as the
//! queue lives, is lent out only while nothing is in flight in it, and the queue waits for everything in flight
//! before it is dropped, also when a panic drops it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::squeue::Entry;
use io_uring::types::{Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};

use crate::data::AlignedMemory;
use crate::error::BenchError;

/// What a slot asks the kernel for.
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

/// One answer of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    pub slot: usize,
    /// Bytes moved, or a negative errno.
    pub result: i32,
}

/// A ring with as many slots as operations may be in flight.
pub struct Queue {
    ring: IoUring,
    slots: Vec<Slot>,
    /// The memory of the slots is registered: the kernel need not look up its pages each time.
    is_registered: bool,
    /// Submitted and not yet answered.
    in_flight: usize,
    /// Put into the ring and not yet given to the kernel.
    waiting: usize,
    answers: Vec<Completion>,
}

struct Slot {
    memory: AlignedMemory,
    is_busy: bool,
}

impl Queue {
    /// A ring for `depth` operations of up to `record_bytes` on `file`, which must stay open for as long as the queue.
    ///
    /// It belongs to the thread that calls this.
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

    /// The memory of a slot in which nothing is in flight.
    ///
    /// # Panics
    /// When something is.
    pub fn memory(&mut self, slot: usize) -> &mut [u8] {
        let slot = &mut self.slots[slot];
        assert!(!slot.is_busy, "the kernel may still use the memory of this slot");
        slot.memory.as_mut_slice()
    }

    /// Asks for the bytes from `done` of the slot's memory, at `offset` of the file. [`Self::wait`] submits it.
    ///
    /// # Panics
    /// When something is in flight in the slot, or nothing is left of its memory.
    pub fn push(&mut self, slot: usize, call: Call, done: usize, offset: u64) -> Result<(), BenchError> {
        let entry = self.entry(slot, call, done, offset);
        self.slots[slot].is_busy = true;
        // SAFETY: the slot's memory lives as long as the queue, is not lent out while the slot is busy, and the
        // queue waits for all answers before it is dropped. The file stays open, as `new` asks for.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // A slot has one entry at most, and there is room for all slots.
        pushed.expect("the ring has an entry for each slot");
        self.waiting += 1;
        Ok(())
    }

    /// Submits what was pushed and waits for one answer at least, for `timeout_ns` at most.
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
            // Whatever was interrupted or timed out has been submitted; the next call waits again.
            Ok(_) | Err((Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY), _)) => {}
            Err((_, source)) => return Err(BenchError::Ring { source }),
        }
        let left = self.ring.submission().len();
        self.in_flight += self.waiting - left.min(self.waiting);
        self.waiting = left;
        self.take_answers();
        Ok(&self.answers)
    }

    /// Operations submitted or pushed, and not yet answered.
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

    /// False when the kernel refuses, as it does above the limit of locked memory: operations work without it.
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
                // The kernel takes no more calls on the ring, so it can't be asked when it is done with the memory:
                // that is given up for good.
                for slot in self.slots.drain(..) {
                    std::mem::forget(slot);
                }
                return;
            }
        }
        // The kernel takes a ring down in the background and would hold the file, and its blocks, until then. A ring
        // that refuses this is taken down all the same.
        let submitter = self.ring.submitter();
        let _ = submitter.unregister_files();
        let _ = submitter.unregister_buffers();
    }
}

/// A ring for one thread, which runs its completions when it waits; of an older kernel a plain one.
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
