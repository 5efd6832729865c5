//! Queries of files, answered from the buffer for the data it holds and from the file system below for the rest.
//!
//! Each reads the buffer first and the file system below second; see [`Overlay`]. Two cases write data out first: the
//! first attribute query of an open file with buffered data, so that a program that writes a file, queries and closes
//! it sees the source's times; and appended data that the source has moved.

use std::ops::Range;
use std::sync::Arc;

use vfs::{Attr, DirEntry, DirSink, Entry, FileSystem, FsResult, Handle, Ino, SeekFrom, SetAttr};

use crate::engine::Engine;
use crate::entry::{Entry as BufferEntry, byte_count};
use crate::inode::{InodeBuffer, InodeState};
use crate::overlay::Overlay;
use crate::registry::Registry;
use crate::stats::FlushCause;

/// Maximum number of attribute queries if the source moves appended data.
const ATTEMPTS_MAX: u32 = 3;

impl InodeState {
    /// The buffered data, for a caller to whom it will be reported.
    fn look(&mut self) -> Overlay {
        if !self.is_clean() {
            self.times.note_look();
        }
        self.overlay()
    }

    /// Adds the data that was buffered before the call to attributes that the file system below returned.
    fn add_to(&mut self, attr: &mut Attr, buffered: &Overlay) {
        buffered.add_to(attr);
        self.times.tell(attr, !buffered.is_empty());
    }
}

impl<F: FileSystem> Engine<F> {
    /// Attributes of a file.
    pub fn attributes(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Attr> {
        match self.registry.inode(ino) {
            Some(inode) => self.attributes_of(&inode, handle),
            None => self.inner.getattr(ino, handle),
        }
    }

    fn attributes_of(&self, inode: &Arc<InodeBuffer>, handle: Option<Handle>) -> FsResult<Attr> {
        let mut state = inode.lock();
        let is_first = !state.is_clean() && !std::mem::replace(&mut state.looked_at, true);
        drop(state);
        if is_first {
            self.flush_inode(inode, FlushCause::Query);
        }
        let mut attempt = 1;
        loop {
            let buffered = inode.lock().look();
            let mut attr = self.inner.getattr(inode.ino, handle)?;
            if buffered.appends_fit(attr.size) || attempt == ATTEMPTS_MAX {
                inode.lock().add_to(&mut attr, &buffered);
                return Ok(attr);
            }
            self.flush_inode(inode, FlushCause::Query);
            attempt += 1;
        }
    }

    /// Changes attributes. Size, owner and times are changed after a flush, as buffered writes would change them too;
    /// the mode is changed after a flush only if buffered writes clear privileges.
    pub fn change_attributes(&self, ino: Ino, handle: Option<Handle>, change: &SetAttr) -> FsResult<Attr> {
        let mode_alone = SetAttr {
            mode: change.mode,
            owner: change.owner,
            ..SetAttr::default()
        };
        let Some(inode) = self.registry.inode(ino) else {
            return self.inner.setattr(ino, handle, change);
        };
        let mut buffered = inode.lock().overlay();
        if *change != mode_alone || buffered.appends() || !buffered.killed.is_empty() {
            self.flush_inode(&inode, FlushCause::Other);
        }
        buffered = inode.lock().look();
        let mut attr = self.inner.setattr(ino, handle, change)?;
        let mut state = inode.lock();
        if change.mtime.is_some() {
            state.times.forget();
        }
        state.add_to(&mut attr, &buffered);
        Ok(attr)
    }

    /// Adds buffered data to `entry`, which the file system below found while the files `active` had data buffered.
    pub fn complete(&self, active: &[Arc<InodeBuffer>], entry: Entry) -> FsResult<Entry> {
        let mut entry = entry;
        if let Some(inode) = active.iter().find(|inode| inode.ino == entry.ino) {
            // Part of it may have been written out since the file system below answered.
            entry.attr = self.attributes_of(inode, None)?;
        } else if let Some(inode) = self.registry.inode(entry.ino) {
            inode.lock().times.tell(&mut entry.attr, false);
        }
        Ok(entry)
    }

    /// Lists a directory with attributes.
    pub fn list(&self, ino: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        let mut buffered = Vec::new();
        for inode in self.central.active() {
            let mut seen = inode.lock().look();
            if seen.appends() {
                // Check whether the source has moved the data, as the file system below may not be called within the
                // listing. If the file can't be queried, the listing reports why.
                let _ = self.attributes_of(&inode, None);
                seen = inode.lock().look();
            }
            buffered.push((inode, seen));
        }
        let mut sink = WithBuffered {
            sink,
            buffered,
            registry: &self.registry,
        };
        self.inner.readdir_plus(ino, handle, offset, &mut sink)
    }

    /// Reads by a handle.
    pub fn read(&self, ino: Ino, handle: Handle, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        let file = match self.central.is_clean() {
            true => None,
            false => self.registry.file(handle),
        };
        let Some(file) = file else {
            return self.inner.read(ino, handle, offset, out);
        };
        if !file.readable {
            // A page cache above fills a partial page by the handle that writes to it. The file system below knows
            // whether that handle may read.
            self.inner.read(ino, handle, offset, out)?;
            self.flush_inode(&file.inode, FlushCause::Query);
            return self.inner.read(ino, handle, offset, out);
        }
        let range_end = offset.saturating_add(byte_count(out.len()));
        let mut state = file.inode.lock();
        let appended = state
            .entries
            .iter()
            .map(BufferEntry::extent)
            .filter(|extent| extent.appends);
        let appended_at = appended.map(|extent| extent.start).min();
        if appended_at.is_some_and(|start| start < range_end) {
            // The offset of appended data is only certain after a flush.
            drop(state);
            self.flush_inode(&file.inode, FlushCause::Query);
            state = file.inode.lock();
        }
        let (gaps, end) = copy_buffered(&state, offset, out);
        drop(state);

        let buffered = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut count = buffered.min(out.len());
        for gap in gaps {
            let read = self
                .inner
                .read(ino, handle, offset + byte_count(gap.start), &mut out[gap.clone()])?;
            let (filled, hole_end) = (gap.start + read, gap.end.min(count));
            if read > 0 {
                count = count.max(filled);
            }
            if filled < hole_end {
                out[filled..hole_end].fill(0);
            }
        }
        if count < out.len() && appended_at.is_some_and(|start| start >= range_end) {
            // The file is shorter than assumed: appended data may be in this range.
            self.flush_inode(&file.inode, FlushCause::Query);
            return self.inner.read(ino, handle, offset, out);
        }
        Ok(count)
    }

    /// Finds the next data or hole.
    pub fn seek(&self, ino: Ino, handle: Handle, from: SeekFrom) -> FsResult<u64> {
        let below = |from| self.inner.lseek(ino, handle, from);
        if self.central.is_clean() {
            return below(from);
        }
        let Some(inode) = self.registry.inode(ino) else {
            return below(from);
        };
        let mut buffered = inode.lock().overlay();
        if buffered.appends() {
            self.flush_inode(&inode, FlushCause::Query);
            buffered = inode.lock().overlay();
        }
        if buffered.is_empty() {
            return below(from);
        }
        let size_below = self.inner.getattr(ino, Some(handle))?.size;
        buffered.seek(from, size_below, below)
    }

    /// True if buffered writes clear setuid, setgid or capabilities.
    pub fn kills_privileges(&self, ino: Ino) -> bool {
        !self.central.is_clean()
            && self
                .registry
                .inode(ino)
                .is_some_and(|inode| !inode.lock().overlay().killed.is_empty())
    }
}

/// Copies the buffered part of the file range that starts at `offset` into `out`, without data to append. Returns the
/// ranges of `out` that remain, and the end offset of the buffered data.
fn copy_buffered(state: &InodeState, offset: u64, out: &mut [u8]) -> (Vec<Range<usize>>, u64) {
    let whole = 0..out.len();
    let mut gaps = vec![whole];
    let mut end = 0;
    for entry in state.entries.iter().filter(|entry| !entry.extent().appends) {
        end = end.max(entry.end());
        let Some(copied) = entry.copy_to(offset, out) else {
            continue;
        };
        let left = gaps.into_iter().flat_map(|gap| {
            let before = gap.start..gap.end.min(copied.start);
            let behind = gap.start.max(copied.end)..gap.end;
            [before, behind].into_iter().filter(|left| !left.is_empty())
        });
        gaps = left.collect();
    }
    (gaps, end)
}

/// A directory listing whose entries include buffered data.
struct WithBuffered<'a> {
    sink: &'a mut dyn DirSink,
    /// Taken before the listing began.
    buffered: Vec<(Arc<InodeBuffer>, Overlay)>,
    registry: &'a Registry,
}

impl DirSink for WithBuffered<'_> {
    fn fits(&self, name_bytes: usize) -> bool {
        self.sink.fits(name_bytes)
    }

    fn push(&mut self, name: &DirEntry<'_>, entry: Option<&Entry>) {
        let Some(mut entry) = entry.copied() else {
            return self.sink.push(name, None);
        };
        if let Some((inode, buffered)) = self.buffered.iter().find(|(inode, _)| inode.ino == entry.ino) {
            inode.lock().add_to(&mut entry.attr, buffered);
        } else if let Some(inode) = self.registry.inode(entry.ino) {
            inode.lock().times.tell(&mut entry.attr, false);
        }
        self.sink.push(name, Some(&entry));
    }
}
