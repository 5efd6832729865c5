//! Read-ahead for sequential reads.
//!
//! The kernel asks for at most 128 KiB at a time. Once a file is being read sequentially, the data ahead is fetched
//! in one request of up to the window size: an array can use all of its members in parallel, and the index is
//! searched once. Each window is loaded once; concurrent readers wait for it.
//!
//! A window holds the content of one version of the file; a change of the file invalidates it.
//!
//! The window size grows with the length of the sequential run, so that little is read unnecessarily. If any part of
//! a window is damaged, the window is dropped and each read fetches only its own range.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::file_system::{Ubifs, UbifsError};
use crate::format::{Inode, InodeNumber};
use crate::scan::to_usize;

/// Maximum number of windows over all files; bounds the memory.
const WINDOWS: usize = 32;
/// Requests of one sequential stream may arrive out of order within this distance.
const DISORDER_BYTES: u64 = 512 << 10;

/// Number of version counters, shared by all files.
const VERSIONS: usize = 64;

/// Content versions of files; several files may share a counter.
pub(super) struct ContentVersions([AtomicU64; VERSIONS]);

impl ContentVersions {
    pub(super) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; VERSIONS])
    }

    fn counter(&self, file: InodeNumber) -> &AtomicU64 {
        &self.0[to_usize(file.0) % VERSIONS]
    }

    pub(super) fn get(&self, file: InodeNumber) -> u64 {
        self.counter(file).load(Ordering::Acquire)
    }

    /// Records a change; there must be no concurrent reader of the file.
    pub(super) fn note_change(&self, file: InodeNumber) {
        self.counter(file).fetch_add(1, Ordering::AcqRel);
    }
}

/// Read-ahead state shared by all files of a mount.
pub(super) struct Windows {
    bytes_max: u64,
    count: Arc<AtomicUsize>,
}

impl Windows {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            count: Arc::default(),
        }
    }
}

/// Read-ahead state of an open file.
#[derive(Default)]
pub(super) struct ReadAhead(Mutex<Stream>);

#[derive(Default)]
struct Stream {
    /// Expected offset of the next sequential read.
    next: u64,
    /// Bytes read sequentially so far.
    run: u64,
    window: Option<Arc<Window>>,
}

struct Window {
    start: u64,
    end: u64,
    version: u64,
    /// `None` if any of it is damaged.
    content: OnceLock<Option<Vec<u8>>>,
    count: Arc<AtomicUsize>,
}

impl Drop for Window {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ReadAhead {
    /// Reads from a file whose version does not change during the call.
    pub(super) fn read(
        &self,
        windows: &Windows,
        ubifs: &Ubifs,
        (file, version): (&Inode, u64),
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize, UbifsError> {
        let wanted = u64::try_from(out.len()).unwrap_or(u64::MAX);
        let end = offset.saturating_add(wanted).min(file.size_bytes);
        if end <= offset {
            return Ok(0);
        }
        let window = self.window(windows, (file, version), offset, end);
        let content = window
            .as_ref()
            .and_then(|window| window.content.get_or_init(|| window.load(ubifs, file)).as_ref());
        let (Some(window), Some(content)) = (&window, content) else {
            return ubifs.read(file, offset, out);
        };
        let small = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let part = &content[small(offset - window.start)..small(end - window.start)];
        out[..part.len()].copy_from_slice(part);
        Ok(part.len())
    }

    /// The window that contains `offset..end`; it may not be loaded yet.
    fn window(
        &self,
        windows: &Windows,
        (file, version): (&Inode, u64),
        offset: u64,
        end: u64,
    ) -> Option<Arc<Window>> {
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let in_sequence = offset.abs_diff(stream.next) <= DISORDER_BYTES;
        let run = if in_sequence { stream.run } else { 0 };
        stream.run = run.saturating_add(end - offset);
        stream.next = if in_sequence { stream.next.max(end) } else { end };
        stream.window.take_if(|window| window.version != version);
        let held = stream.window.as_ref();
        if let Some(window) = held.filter(|window| window.start <= offset && end <= window.end) {
            return Some(Arc::clone(window));
        }
        let is_behind = held.is_none_or(|window| offset >= window.end);
        let bytes = run.min(windows.bytes_max);
        if !in_sequence || !is_behind || bytes <= end - offset {
            return None;
        }
        if windows.count.fetch_add(1, Ordering::Relaxed) >= WINDOWS {
            windows.count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let window = Arc::new(Window {
            start: offset,
            end: offset.saturating_add(bytes).min(file.size_bytes),
            version,
            content: OnceLock::new(),
            count: Arc::clone(&windows.count),
        });
        stream.window = Some(Arc::clone(&window));
        Some(window)
    }
}

impl Window {
    fn load(&self, ubifs: &Ubifs, file: &Inode) -> Option<Vec<u8>> {
        let mut content = vec![0; usize::try_from(self.end - self.start).ok()?];
        ubifs.read(file, self.start, &mut content).ok()?;
        Some(content)
    }
}
