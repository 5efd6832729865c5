//! Open directories: a listing is a snapshot taken by its first request; rewinding takes a new one.
//!
//! A listing with attributes (readdirplus) pins the inodes it returns. If any name changed since the snapshot, each
//! one is looked up again, so that no name is paired with another one's inode.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use vfs::{DirEntry, DirSink, Entry, FileKind, FsError, FsResult, Handle, Ino};

use super::super::directory::OpenDirectory;
use super::super::reading::number;
use super::MountedWriter;
use crate::format::InodeNumber;
use crate::write::Writer;

/// An open directory.
pub(super) struct ListedDirectory {
    pub(super) number: InodeNumber,
    listing: Mutex<Option<Listing>>,
}

#[derive(Clone)]
struct Listing {
    names: Arc<OpenDirectory>,
    /// Value of [`MountedWriter::names_changed`] at the time of the snapshot.
    version: u64,
}

/// Pins each inode that a listing returns.
struct Holding<'a> {
    sink: &'a mut dyn DirSink,
    writer: &'a Writer,
}

impl DirSink for Holding<'_> {
    fn fits(&self, name_bytes: usize) -> bool {
        self.sink.fits(name_bytes)
    }

    fn push(&mut self, name: &DirEntry<'_>, entry: Option<&Entry>) {
        if let Some(number) = entry.and_then(|entry| number(entry.ino).ok()) {
            self.writer.hold(number);
        }
        self.sink.push(name, entry);
    }
}

impl MountedWriter {
    pub(super) fn open_directory(&self, ino: Ino) -> FsResult<Handle> {
        let writer = self.writer();
        // Names are read when they are listed: a kernel that keeps listings only opens the directory.
        let reading = self.reading(&writer);
        if reading.attr(&reading.inode(ino)?)?.kind() != FileKind::Directory {
            return Err(FsError::NotADirectory);
        }
        let number = number(ino)?;
        writer.hold(number);
        Ok(self.directories.add(ListedDirectory {
            number,
            listing: Mutex::new(None),
        }))
    }

    fn read_names(&self, writer: &Writer, ino: Ino) -> FsResult<Listing> {
        let (number, names, is_whole) = self.reading(writer).names(ino)?;
        Ok(Listing {
            names: Arc::new(OpenDirectory::new(number, names, !is_whole)),
            version: self.names_changed.load(Ordering::Relaxed),
        })
    }

    /// The snapshot of an open directory. The first request of a listing refreshes it if names have changed.
    fn listing(&self, writer: &Writer, directory: &ListedDirectory, offset: u64) -> FsResult<Listing> {
        let now = self.names_changed.load(Ordering::Relaxed);
        let mut listing = directory.listing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = listing
            .as_ref()
            .filter(|known| offset > 0 || known.version == now)
        {
            return Ok(known.clone());
        }
        let read = self.read_names(writer, Ino(directory.number.0.into()))?;
        *listing = Some(read.clone());
        Ok(read)
    }

    pub(super) fn list(&self, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        let directory = self.directories.get(handle)?;
        let listing = self.listing(&self.writer(), &directory, offset)?;
        listing.names.list(offset, sink, &mut |_| Vec::new())
    }

    pub(super) fn list_with_entries(
        &self,
        handle: Handle,
        offset: u64,
        sink: &mut dyn DirSink,
    ) -> FsResult<()> {
        let directory = self.directories.get(handle)?;
        let writer = self.writer();
        let listing = self.listing(&writer, &directory, offset)?;
        let is_current = listing.version == self.names_changed.load(Ordering::Relaxed);
        let reading = self.reading(&writer);
        let mut holding = Holding {
            sink,
            writer: &writer,
        };
        listing.names.list(offset, &mut holding, &mut |names| {
            let mut entries = reading.entries(names);
            if !is_current {
                for (entry, name) in entries.iter_mut().zip(names) {
                    let found = writer.read().lookup(directory.number, &name.name);
                    entry.take_if(|_| found.is_ok_and(|found| found.inode != name.inode));
                }
            }
            entries
        })
    }
}
