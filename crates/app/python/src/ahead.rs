//! Reads files ahead: programs read a tree in the order of its listings, and a batch of the next files is read by all
//! processors where one file would be read by one.
//!
//! There are no threads but during a call. One that stayed would hold the locks of a process that forks, as Python's
//! `multiprocessing` does.
//!
//! - Only whole files of at most 1 MiB are read ahead, and only after two that were listed one after the other.
//! - A batch doubles as long as all of the one before was wanted, up to [`BATCH_BYTES_MAX`]: that bounds the memory.
//! - Files are known by their inodes' numbers; a dump does not change. Lost blocks are kept with the content.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use image::{Threads, in_parallel};
use ubifs::format::{EntryKind, Inode};

use crate::tree::Note;

/// Files that are remembered; more are as many as the half of them that was listed last.
const LISTED_MAX: usize = 1 << 14;
/// Largest file that is read ahead, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Size of the first batch, and of the largest, bytes.
const BATCH_BYTES_MIN: u64 = 256 << 10;
const BATCH_BYTES_MAX: u64 = 4 << 20;
/// Files of a batch.
const BATCH_FILES_MAX: usize = 1024;
/// Files that may be left out between two that are read, such as those of another suffix.
const GAP_MAX: usize = 16;

/// The content of a file, and its losses.
pub type Content = (Vec<u8>, Vec<Note>);

/// Listed files, and the contents of those that were read ahead.
#[derive(Debug, Default)]
pub struct Ahead(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Files that can be read ahead, in the order of the listings.
    listed: Vec<Inode>,
    /// Position in `listed` by number of the inode; of a hard link the last one.
    positions: HashMap<u32, usize>,
    /// Contents that nobody asked for yet.
    ready: HashMap<u32, Content>,
    /// Position behind the file that was asked for last.
    next: Option<usize>,
    /// Size of the last batch, bytes; 0 before the first.
    batch_bytes: u64,
}

/// The way to a content.
enum Way {
    /// It was read ahead.
    Ready(Content),
    /// This file is the first one of a batch.
    Batch(Vec<Inode>),
    /// The file is read by itself.
    Alone,
}

fn can_be_read_ahead(inode: &Inode) -> bool {
    inode.kind() == Some(EntryKind::File) && (1..=FILE_BYTES_MAX).contains(&inode.size_bytes)
}

impl Ahead {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the files of a directory.
    pub fn listed<'a>(&self, files: impl Iterator<Item = &'a Inode>) {
        let mut state = self.lock();
        for inode in files.filter(|inode| can_be_read_ahead(inode)) {
            if state.listed.len() == LISTED_MAX {
                state.forget_half();
            }
            let position = state.listed.len();
            state.positions.insert(inode.key.inode_number().0, position);
            state.listed.push(inode.clone());
        }
    }

    /// The whole content of a file, by `read`, if it was read ahead or begins a batch; otherwise `None`, and the caller
    /// reads it.
    pub fn whole(&self, file: &Inode, read: &(impl Fn(&Inode) -> Content + Sync)) -> Option<Content> {
        if !can_be_read_ahead(file) {
            return None;
        }
        let way = self.lock().way(file);
        match way {
            Way::Ready(content) => Some(content),
            Way::Alone => None,
            Way::Batch(files) => {
                let mut contents = in_parallel(Threads::Processors, &files, read).into_iter();
                let first = contents.next();
                let mut state = self.lock();
                for (inode, content) in files.iter().skip(1).zip(contents) {
                    state.ready.insert(inode.key.inode_number().0, content);
                }
                first
            }
        }
    }
}

impl State {
    fn way(&mut self, file: &Inode) -> Way {
        let number = file.key.inode_number().0;
        let position = self.positions.get(&number).copied();
        // It may be a file of another name for an inode, or of another listing.
        let Some(position) = position.filter(|position| self.listed[*position] == *file) else {
            return Way::Alone;
        };
        let last = self.next.replace(position + 1);
        if let Some(content) = self.ready.remove(&number) {
            return Way::Ready(content);
        }
        let in_order = last.is_some_and(|next| (next..=next + GAP_MAX).contains(&position));
        let is_wanted = self.ready.is_empty();
        self.ready.clear();
        self.batch_bytes = match in_order {
            false => 0,
            true if is_wanted => (2 * self.batch_bytes).clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX),
            true => BATCH_BYTES_MIN,
        };
        let mut bytes = 0;
        let batch = self.listed[position..].iter().take(BATCH_FILES_MAX);
        let batch = batch.take_while(|inode| {
            bytes += inode.size_bytes;
            bytes <= self.batch_bytes
        });
        let batch: Vec<Inode> = batch.cloned().collect();
        match batch.len() {
            0 | 1 => Way::Alone,
            _ => Way::Batch(batch),
        }
    }

    fn forget_half(&mut self) {
        let gone = self.listed.len() / 2;
        self.listed.drain(..gone);
        self.next = self.next.and_then(|next| next.checked_sub(gone));
        self.positions
            .retain(|_, position| match position.checked_sub(gone) {
                Some(later) => {
                    *position = later;
                    true
                }
                None => false,
            });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ubifs::format::InodeNumber;

    use super::*;

    fn file(number: u32, size_bytes: u64) -> Inode {
        Inode {
            mode: 0o100_644,
            size_bytes,
            ..Inode::unknown(InodeNumber(number))
        }
    }

    fn content(inode: &Inode) -> Content {
        (inode.key.inode_number().0.to_le_bytes().to_vec(), Vec::new())
    }

    /// Asks for files; the sizes of the batches that were read, 0 for each file that is left to the caller.
    fn batches(ahead: &Ahead, files: &[Inode]) -> Vec<usize> {
        let found = RefCell::new(Vec::new());
        for inode in files {
            let read = AtomicUsize::new(0);
            let whole = ahead.whole(inode, &|inode: &Inode| {
                read.fetch_add(1, Ordering::Relaxed);
                content(inode)
            });
            match whole {
                None => found.borrow_mut().push(0),
                Some(whole) => {
                    assert_eq!(whole, content(inode));
                    if read.load(Ordering::Relaxed) > 0 {
                        found.borrow_mut().push(read.into_inner());
                    }
                }
            }
        }
        found.into_inner()
    }

    #[test]
    fn files_in_the_order_of_a_listing_are_read_in_batches_that_double() {
        let files: Vec<Inode> = (100..200).map(|number| file(number, 64 << 10)).collect();
        let ahead = Ahead::default();
        ahead.listed(files.iter());
        assert_eq!(batches(&ahead, &files), [0, 4, 8, 16, 32, 39]);
        assert!(ahead.lock().ready.is_empty());
    }

    #[test]
    fn files_in_another_order_are_read_one_by_one() {
        let mut files: Vec<Inode> = (100..140).map(|number| file(number, 64 << 10)).collect();
        let ahead = Ahead::default();
        ahead.listed(files.iter());
        files.reverse();
        assert_eq!(batches(&ahead, &files), [0; 40]);
        // Each twentieth one.
        let few = [files[39].clone(), files[19].clone()];
        assert_eq!(batches(&ahead, &few), [0; 2]);
    }

    #[test]
    fn a_batch_that_is_not_wanted_is_dropped() {
        let files: Vec<Inode> = (100..200).map(|number| file(number, 64 << 10)).collect();
        let ahead = Ahead::default();
        ahead.listed(files.iter());
        assert_eq!(batches(&ahead, &files[..6]), [0, 4, 8]);
        assert_eq!(ahead.lock().ready.len(), 7);
        assert_eq!(batches(&ahead, &files[60..61]), [0]);
        assert!(ahead.lock().ready.is_empty());
    }

    #[test]
    fn neither_large_files_nor_unknown_ones_are_read_ahead() {
        let files = [file(1, 9), file(2, FILE_BYTES_MAX + 1), file(3, 9), file(4, 0)];
        let ahead = Ahead::default();
        assert_eq!(batches(&ahead, &files), [0; 4], "nothing is listed");
        ahead.listed(files.iter());
        assert_eq!(batches(&ahead, &files), [0, 0, 0, 0]);
        // The inode of a listing that was made anew, as by a salvage.
        assert_eq!(batches(&ahead, &[file(1, 9), file(3, 8)]), [0, 0]);
    }

    #[test]
    fn more_files_than_are_remembered_forget_the_first_ones() {
        let files: Vec<Inode> = (0..40_000).map(|number| file(number, 1 << 10)).collect();
        let ahead = Ahead::default();
        for part in files.chunks(1000) {
            ahead.listed(part.iter());
            // All of them are asked for before the next listing, as a walk does.
            batches(&ahead, part);
        }
        let state = ahead.lock();
        assert!(state.listed.len() <= LISTED_MAX && state.positions.len() == state.listed.len());
    }
}
