//! Executes one call of a trace as one system call.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use results::call_trace::{Access, Action, Call, OpenFlags, Outcome, Whence};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use super::context::ReplayContext;
use super::prepare::IMAGE;
use super::{DirectIo, descriptor};
use crate::data::AlignedMemory;
use crate::order::mixed;

/// Largest transfer of one call; the kernel itself limits transfers to 2 GiB.
pub const TRANSFER_BYTES_MAX: u64 = 64 << 20;

/// A read with a known result requests at most this, or the recorded result if that is larger.
const READ_BYTES_BEYOND_ANSWER: u64 = 1 << 20;

/// Buffer size of one `getdents`, as in the C library.
const LISTING_BYTES: usize = 32 << 10;

/// The descriptors that a call uses, looked up before it is timed.
#[derive(Debug)]
pub enum Operands {
    /// None: the call uses names, or opens a descriptor.
    None,
    /// One descriptor, shared with other calls.
    One(Arc<OwnedFd>),
    /// A source and a destination.
    Two(Arc<OwnedFd>, Arc<OwnedFd>),
    /// A descriptor that the call closes.
    Owned(Option<OwnedFd>),
}

/// The result of a successful call.
#[derive(Debug)]
pub enum Answer {
    /// No relevant result.
    Nothing,
    /// Number of bytes transferred.
    Moved(u64),
    /// A new descriptor.
    Opened(OwnedFd),
}

impl Operands {
    /// `None` if a descriptor is not open.
    pub fn of(context: &ReplayContext<'_>, action: Action) -> Option<Self> {
        match action {
            Action::Close { handle } => Some(Self::Owned(Some(context.take(handle)?))),
            Action::Copy { from, to, .. } => {
                Some(Self::Two(context.descriptor(from)?, context.descriptor(to)?))
            }
            Action::Duplicate { handle, .. }
            | Action::Read { handle, .. }
            | Action::Write { handle, .. }
            | Action::ReadAt { handle, .. }
            | Action::WriteAt { handle, .. }
            | Action::Fsync { handle }
            | Action::Fdatasync { handle }
            | Action::SyncRange { handle, .. }
            | Action::Seek { handle, .. }
            | Action::TruncateHandle { handle, .. }
            | Action::Allocate { handle, .. }
            | Action::StatHandle { handle }
            | Action::List { handle } => Some(Self::One(context.descriptor(handle)?)),
            Action::BlockRead { .. }
            | Action::BlockWrite { .. }
            | Action::BlockDiscard { .. }
            | Action::BlockFlush => Some(Self::One(context.image()?)),
            Action::Open { .. }
            | Action::Truncate { .. }
            | Action::Stat { .. }
            | Action::Access { .. }
            | Action::Unlink { .. }
            | Action::Rename { .. }
            | Action::Link { .. }
            | Action::MakeDirectory { .. }
            | Action::RemoveDirectory { .. } => Some(Self::None),
        }
    }

    fn first(&self) -> Result<&OwnedFd, Errno> {
        match self {
            Self::One(descriptor) | Self::Two(descriptor, _) => Ok(descriptor),
            Self::None | Self::Owned(_) => Err(Errno::BADF),
        }
    }

    fn second(&self) -> Result<&OwnedFd, Errno> {
        match self {
            Self::Two(_, descriptor) => Ok(descriptor),
            Self::None | Self::One(_) | Self::Owned(_) => Err(Errno::BADF),
        }
    }
}

/// Write and read buffers of one thread; each grows to the largest call.
#[derive(Debug)]
pub struct Buffers {
    seed: u64,
    written: u64,
    content: AlignedMemory,
    memory: AlignedMemory,
    /// Length of the current call.
    length: usize,
}

impl Buffers {
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            written: 0,
            content: AlignedMemory::new(0, 0),
            memory: AlignedMemory::new(0, 0),
            length: 0,
        }
    }

    /// Prepares the buffers for `call`. Returns true if the call is too large and will be cut.
    pub fn make_room(&mut self, call: &Call) -> bool {
        let asked = transfer_bytes(call.action);
        let takes = reads(call.action) || matches!(call.action, Action::Copy { .. });
        let bytes = match (takes, call.outcome) {
            (true, Outcome::Done(got)) => asked.min(got.max(READ_BYTES_BEYOND_ANSWER)),
            (true, Outcome::Failed(_)) => asked.min(READ_BYTES_BEYOND_ANSWER),
            _ => asked,
        };
        let cut = bytes.min(TRANSFER_BYTES_MAX);
        self.length = usize::try_from(cut).expect("64 MiB fit into memory");
        if reads(call.action) && self.length > self.memory.as_slice().len() {
            self.memory = AlignedMemory::new(self.length.next_power_of_two(), 0);
        }
        if writes(call.action) {
            if self.length > self.content.as_slice().len() {
                self.content = random_memory(self.length.next_power_of_two(), self.seed);
            }
            self.stamp();
        }
        bytes > cut
    }

    /// Makes each written block unique.
    fn stamp(&mut self) {
        for block in self.content.as_mut_slice()[..self.length].chunks_mut(4096) {
            self.written = self.written.wrapping_add(1);
            let stamp = mixed(self.seed ^ self.written).to_le_bytes();
            let length = block.len().min(stamp.len());
            block[..length].copy_from_slice(&stamp[..length]);
        }
    }

    fn content(&self) -> &[u8] {
        &self.content.as_slice()[..self.length]
    }

    fn memory(&mut self) -> &mut [u8] {
        &mut self.memory.as_mut_slice()[..self.length]
    }
}

fn random_memory(length: usize, seed: u64) -> AlignedMemory {
    let mut memory = AlignedMemory::new(length, 0);
    for (number, word) in (0_u64..).zip(memory.as_mut_slice().chunks_mut(8)) {
        word.copy_from_slice(&mixed(seed.wrapping_add(number)).to_le_bytes()[..word.len()]);
    }
    memory
}

/// Executes the call.
pub fn execute(
    context: &ReplayContext<'_>,
    action: Action,
    operands: &mut Operands,
    buffers: &mut Buffers,
) -> Result<Answer, Errno> {
    let root = &context.root;
    match action {
        Action::Open { name, flags, .. } => {
            let flags = open_flags(flags, context.spec.direct);
            let mode = Mode::RUSR | Mode::WUSR;
            return rustix::fs::openat(root, context.path(name)?, flags, mode).map(Answer::Opened);
        }
        Action::Close { .. } => {
            if let Operands::Owned(owned) = operands
                && let Some(owned) = owned.take()
            {
                descriptor::close(owned)?;
            }
        }
        Action::Duplicate { .. } => {
            return rustix::io::fcntl_dupfd_cloexec(operands.first()?, 0).map(Answer::Opened);
        }
        Action::Truncate { name, bytes } => {
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(root, context.path(name)?, flags, Mode::empty())?;
            rustix::fs::ftruncate(file, bytes)?;
        }
        Action::Stat { name } => {
            rustix::fs::statat(root, context.path(name)?, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Action::Access { name } => {
            let exists = rustix::fs::Access::EXISTS;
            rustix::fs::accessat(root, context.path(name)?, exists, AtFlags::empty())?;
        }
        Action::Unlink { name } => rustix::fs::unlinkat(root, context.path(name)?, AtFlags::empty())?,
        Action::RemoveDirectory { name } => {
            rustix::fs::unlinkat(root, context.path(name)?, AtFlags::REMOVEDIR)?;
        }
        Action::Rename { from, to } => {
            rustix::fs::renameat(root, context.path(from)?, root, context.path(to)?)?;
        }
        Action::Link { from, to } => {
            rustix::fs::linkat(
                root,
                context.path(from)?,
                root,
                context.path(to)?,
                AtFlags::empty(),
            )?;
        }
        Action::MakeDirectory { name } => rustix::fs::mkdirat(root, context.path(name)?, Mode::RWXU)?,
        other => return on_descriptor(other, operands, buffers),
    }
    Ok(Answer::Nothing)
}

fn on_descriptor(action: Action, operands: &Operands, buffers: &mut Buffers) -> Result<Answer, Errno> {
    let file = operands.first()?;
    match action {
        Action::Read { .. } => return moved(retry_on_intr(|| rustix::io::read(file, buffers.memory()))),
        Action::Write { .. } => return moved(retry_on_intr(|| rustix::io::write(file, buffers.content()))),
        Action::ReadAt { offset, .. } | Action::BlockRead { offset, .. } => {
            return moved(retry_on_intr(|| {
                rustix::io::pread(file, buffers.memory(), offset)
            }));
        }
        Action::WriteAt { offset, .. } | Action::BlockWrite { offset, .. } => {
            return moved(retry_on_intr(|| {
                rustix::io::pwrite(file, buffers.content(), offset)
            }));
        }
        Action::Copy { .. } => {
            let to = operands.second()?;
            return moved(rustix::fs::copy_file_range(file, None, to, None, buffers.length));
        }
        Action::Fsync { .. } => rustix::fs::fsync(file)?,
        Action::Fdatasync { .. } | Action::BlockFlush => rustix::fs::fdatasync(file)?,
        Action::SyncRange { offset, bytes, .. } => descriptor::sync_range(file, offset, bytes)?,
        Action::Seek { offset, whence, .. } => {
            rustix::fs::seek(file, seek_from(offset, whence)?)?;
        }
        Action::TruncateHandle { bytes, .. } => rustix::fs::ftruncate(file, bytes)?,
        Action::Allocate {
            mode, offset, bytes, ..
        } => {
            let mode = FallocateFlags::from_bits_retain(mode);
            rustix::fs::fallocate(file, mode, offset, bytes)?;
        }
        Action::BlockDiscard { offset, bytes } => {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(file, hole, offset, bytes)?;
        }
        Action::StatHandle { .. } => {
            rustix::fs::fstat(file)?;
        }
        Action::List { .. } => {
            let mut entries = [MaybeUninit::uninit(); LISTING_BYTES];
            // The first entry makes the one system call that fills the buffer.
            RawDir::new(file, &mut entries).next().transpose()?;
        }
        _ => return Err(Errno::INVAL),
    }
    Ok(Answer::Nothing)
}

fn moved(answer: Result<usize, Errno>) -> Result<Answer, Errno> {
    answer.map(|bytes| Answer::Moved(u64::try_from(bytes).expect("lengths in memory fit in 64 bits")))
}

fn seek_from(offset: i64, whence: Whence) -> Result<SeekFrom, Errno> {
    let from_start = u64::try_from(offset).map_err(|_| Errno::INVAL);
    Ok(match whence {
        Whence::Start => SeekFrom::Start(from_start?),
        Whence::Current => SeekFrom::Current(offset),
        Whence::End => SeekFrom::End(offset),
        Whence::Data => SeekFrom::Data(from_start?),
        Whence::Hole => SeekFrom::Hole(from_start?),
    })
}

/// The system's flags for the trace's open flags. Links are never followed: the trace's names are paths inside the
/// root, and a link could lead out of it.
fn open_flags(flags: OpenFlags, direct: DirectIo) -> OFlags {
    let mut found = OFlags::CLOEXEC | OFlags::NOFOLLOW;
    found |= match flags.access {
        Access::Read => OFlags::RDONLY,
        Access::Write => OFlags::WRONLY,
        Access::ReadWrite => OFlags::RDWR,
    };
    let names = [
        (flags.create, OFlags::CREATE),
        (flags.exclusive, OFlags::EXCL),
        (flags.truncate, OFlags::TRUNC),
        (flags.append, OFlags::APPEND),
        (flags.sync, OFlags::SYNC),
        (flags.data_sync, OFlags::DSYNC),
        (flags.direct && direct == DirectIo::AsTraced, OFlags::DIRECT),
        (flags.directory, OFlags::DIRECTORY),
        (flags.path_only, OFlags::PATH),
        (flags.no_access_time, OFlags::NOATIME),
    ];
    for (is_set, flag) in names {
        found.set(flag, found.contains(flag) || is_set);
    }
    found
}

/// Bytes that the call requests to transfer; 0 for calls that transfer none.
pub const fn transfer_bytes(action: Action) -> u64 {
    match action {
        Action::Read { bytes, .. }
        | Action::Write { bytes, .. }
        | Action::ReadAt { bytes, .. }
        | Action::WriteAt { bytes, .. }
        | Action::Copy { bytes, .. }
        | Action::BlockRead { bytes, .. }
        | Action::BlockWrite { bytes, .. } => bytes,
        _ => 0,
    }
}

const fn reads(action: Action) -> bool {
    matches!(
        action,
        Action::Read { .. } | Action::ReadAt { .. } | Action::BlockRead { .. }
    )
}

const fn writes(action: Action) -> bool {
    matches!(
        action,
        Action::Write { .. } | Action::WriteAt { .. } | Action::BlockWrite { .. }
    )
}

/// The file of the call, for messages.
pub fn path_of(context: &ReplayContext<'_>, action: Action) -> PathBuf {
    let mut action = action;
    let root = context.root_path;
    if let [Some(name), _] = action.names_mut() {
        return context
            .trace
            .path(*name)
            .map_or_else(|| root.to_owned(), |path| root.join(path));
    }
    let Some(handle) = action.handles_mut()[0].as_deref().copied() else {
        return root.join(IMAGE);
    };
    let opened = context.trace.calls.iter().find_map(|call| match call.action {
        Action::Open {
            name, handle: opened, ..
        } if opened == handle => context.trace.path(name),
        _ => None,
    });
    opened.map_or_else(|| root.to_owned(), |path| root.join(path))
}

/// The file offset of the call, for messages.
pub const fn offset_of(action: Action) -> Option<u64> {
    match action {
        Action::ReadAt { offset, .. }
        | Action::WriteAt { offset, .. }
        | Action::Allocate { offset, .. }
        | Action::BlockRead { offset, .. }
        | Action::BlockWrite { offset, .. }
        | Action::BlockDiscard { offset, .. } => Some(offset),
        _ => None,
    }
}
