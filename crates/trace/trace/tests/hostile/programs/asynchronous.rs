//! I/O that another thread than the caller's may do: Linux AIO and io_uring.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, squeue, types};

use super::memory::Map;
use super::{Opened, PAGE, Place, Random};
use crate::ledger::{Act, now};

const PAGES: u64 = 256;
const DEPTH: u64 = 32;

/// One transfer of a page.
#[derive(Clone, Copy)]
struct Transfer {
    act: Act,
    page: u64,
}

/// Transfers of pages that no other one of the batch touches.
fn batch(random: &mut Random, writes: Act) -> Vec<Transfer> {
    let first = random.below(PAGES);
    let transfer = |number| Transfer {
        act: if random.below(3) == 0 && writes == Act::WroteDirectly {
            Act::ReadDirectly
        } else {
            writes
        },
        // 5 and 256 have no common factor, so the pages differ.
        page: (first + number * 5) % PAGES,
    };
    (0..DEPTH).map(transfer).collect()
}

fn record(place: &Place, opened: &Opened, transfers: &[Transfer], from: u64) -> io::Result<()> {
    transfers.iter().try_for_each(|transfer| {
        place
            .log
            .ended(transfer.act, opened.as_named(), transfer.page * PAGE, PAGE, from)
    })
}

fn prepare(place: &Place, flags: i32) -> io::Result<(Opened, Map)> {
    let opened = place.create("file", flags)?;
    let memory = Map::new(None, DEPTH * PAGE)?;
    Ok((opened, memory))
}

/// Writes the whole file, so that reads find data.
fn fill(mut move_all: impl FnMut(&[Transfer]) -> io::Result<()>, act: Act) -> io::Result<()> {
    for start in (0..PAGES).step_by(usize::try_from(DEPTH).unwrap_or(1)) {
        let transfers: Vec<Transfer> = (start..start + DEPTH)
            .map(|page| Transfer { act, page })
            .collect();
        move_all(&transfers)?;
    }
    Ok(())
}

/// Linux AIO.
pub fn aio(place: &Place) -> io::Result<()> {
    let (opened, memory) = prepare(place, libc::O_DIRECT)?;
    let mut context: libc::c_ulong = 0;
    // SAFETY: the call writes only the context.
    check(unsafe { libc::syscall(libc::SYS_io_setup, DEPTH, &raw mut context) })?;
    let move_all = |transfers: &[Transfer]| -> io::Result<()> {
        let mut blocks: Vec<libc::iocb> = Vec::new();
        for (slot, transfer) in transfers.iter().enumerate() {
            // SAFETY: all zeros is a valid control block.
            let mut block: libc::iocb = unsafe { std::mem::zeroed() };
            block.aio_lio_opcode = if transfer.act == Act::ReadDirectly { 0 } else { 1 };
            block.aio_fildes = u32::try_from(opened.file.as_raw_fd()).unwrap_or(0);
            block.aio_buf = address(&memory, slot);
            block.aio_nbytes = PAGE;
            block.aio_offset = i64::try_from(transfer.page * PAGE).unwrap_or(0);
            blocks.push(block);
        }
        let pointers: Vec<*const libc::iocb> = blocks.iter().map(std::ptr::from_ref).collect();
        let count = libc::c_long::try_from(blocks.len()).unwrap_or(0);
        let mut events = vec![[0_u64; 4]; blocks.len()];
        let from = now();
        // SAFETY: the control blocks, their memory and the events outlive the calls, which end when all is done.
        unsafe {
            check(libc::syscall(
                libc::SYS_io_submit,
                context,
                count,
                pointers.as_ptr(),
            ))?;
            let none = std::ptr::null::<libc::timespec>();
            check(libc::syscall(
                libc::SYS_io_getevents,
                context,
                count,
                count,
                events.as_mut_ptr(),
                none,
            ))?;
        }
        record(place, &opened, transfers, from)
    };
    fill(move_all, Act::WroteDirectly)?;
    let mut random = Random(3);
    for _ in 0..place.count(8) {
        move_all(&batch(&mut random, Act::WroteDirectly))?;
    }
    Ok(())
}

fn address(memory: &Map, slot: usize) -> u64 {
    let page = usize::try_from(PAGE).unwrap_or(0);
    u64::try_from(memory.address().addr() + slot * page).unwrap_or(0)
}

fn check(answer: libc::c_long) -> io::Result<()> {
    match answer {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// io_uring with registered memory.
pub fn uring(place: &Place) -> io::Result<()> {
    by_uring(place, IoUring::new(64)?, libc::O_DIRECT, Act::WroteDirectly)
}

/// io_uring whose submissions a thread of the kernel takes.
pub fn uring_polled(place: &Place) -> io::Result<()> {
    let ring = IoUring::builder().setup_sqpoll(50).build(64)?;
    by_uring(place, ring, libc::O_DIRECT, Act::WroteDirectly)
}

/// io_uring through the page cache.
pub fn uring_buffered(place: &Place) -> io::Result<()> {
    by_uring(place, IoUring::new(64)?, 0, Act::Dirtied)
}

fn by_uring(place: &Place, mut ring: IoUring, flags: i32, writes: Act) -> io::Result<()> {
    let (opened, memory) = prepare(place, flags)?;
    let vector = libc::iovec {
        iov_base: memory.address().cast(),
        iov_len: usize::try_from(DEPTH * PAGE).unwrap_or(0),
    };
    // SAFETY: the memory is mapped until the ring is closed.
    unsafe { ring.submitter().register_buffers(&[vector])? };
    let descriptor = types::Fd(opened.file.as_raw_fd());
    let length = u32::try_from(PAGE).unwrap_or(0);
    let mut move_all = |transfers: &[Transfer]| -> io::Result<()> {
        let from = now();
        for (slot, transfer) in transfers.iter().enumerate() {
            let page = memory
                .address()
                .wrapping_add(slot * usize::try_from(PAGE).unwrap_or(0));
            let entry: squeue::Entry = if transfer.act == Act::ReadDirectly {
                let read = opcode::ReadFixed::new(descriptor, page, length, 0);
                read.offset(transfer.page * PAGE).build()
            } else {
                let write = opcode::WriteFixed::new(descriptor, page, length, 0);
                write.offset(transfer.page * PAGE).build()
            };
            // SAFETY: the memory and the file outlive the transfer, which ends below.
            unsafe { ring.submission().push(&entry).map_err(io::Error::other)? };
        }
        ring.submit_and_wait(transfers.len())?;
        let mut left = transfers.len();
        while left > 0 {
            for done in ring.completion() {
                left -= 1;
                if done.result() < 0 {
                    return Err(io::Error::from_raw_os_error(-done.result()));
                }
            }
            std::thread::yield_now();
        }
        record(place, &opened, transfers, from)
    };
    fill(&mut move_all, writes)?;
    let mut random = Random(5);
    for round in 0..place.count(8) {
        move_all(&batch(&mut random, writes))?;
        if writes == Act::Dirtied && round % 2 == 0 {
            opened.file.sync_data()?;
        }
    }
    Ok(())
}
