//! The RAM cache of a page map (DFTL): whole map pages with LRU replacement.
//!
//! DFTL as published caches single entries and writes a page's dirty entries back together; this cache holds whole
//! pages, as later cards do. It manages page numbers, and knows nothing about flash.

use crate::geometry::index;

const NONE: u32 = u32::MAX;

/// Flash operations required by an access to a map page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The page was not in RAM and has to be read.
    pub missed: bool,
    /// This page was evicted and has to be written first.
    pub write_back: Option<u32>,
}

/// The set of map pages in RAM.
#[derive(Clone, Debug)]
pub struct MapCache {
    capacity: u32,
    cached: u32,
    dirty: Vec<bool>,
    present: Vec<bool>,
    newer: Vec<u32>,
    older: Vec<u32>,
    newest: u32,
    oldest: u32,
}

impl MapCache {
    /// An empty cache of `capacity` pages (at least 1), for a map of `pages` pages.
    pub fn new(pages: u32, capacity: u32) -> Self {
        let size = index(pages);
        Self {
            capacity: capacity.max(1),
            cached: 0,
            dirty: vec![false; size],
            present: vec![false; size],
            newer: vec![NONE; size],
            older: vec![NONE; size],
            newest: NONE,
            oldest: NONE,
        }
    }

    /// Accesses a page, and makes it dirty if `writes` says so.
    pub fn touch(&mut self, page: u32, writes: Writes) -> Touch {
        let mut touch = Touch {
            missed: false,
            write_back: None,
        };
        if self.present[index(page)] {
            if self.newest != page {
                self.unlink(page);
                self.link_newest(page);
            }
        } else {
            touch.missed = true;
            if self.cached == self.capacity {
                let oldest = self.oldest;
                self.unlink(oldest);
                self.present[index(oldest)] = false;
                self.cached -= 1;
                if std::mem::take(&mut self.dirty[index(oldest)]) {
                    touch.write_back = Some(oldest);
                }
            }
            self.present[index(page)] = true;
            self.cached += 1;
            self.link_newest(page);
        }
        self.dirty[index(page)] |= writes == Writes::Yes;
        touch
    }

    /// Marks a page dirty if it is in RAM. Returns whether it is.
    pub fn dirty_if_present(&mut self, page: u32) -> bool {
        let present = self.present[index(page)];
        self.dirty[index(page)] |= present;
        present
    }

    fn unlink(&mut self, page: u32) {
        let (newer, older) = (self.newer[index(page)], self.older[index(page)]);
        match newer {
            NONE => self.newest = older,
            newer => self.older[index(newer)] = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.newer[index(older)] = newer,
        }
    }

    fn link_newest(&mut self, page: u32) {
        self.older[index(page)] = self.newest;
        self.newer[index(page)] = NONE;
        match self.newest {
            NONE => self.oldest = page,
            newest => self.newer[index(newest)] = page,
        }
        self.newest = page;
    }
}

/// Whether an access modifies the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// It does.
    Yes,
    /// It does not.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Capacity of two: 0 (written), 1, 0 again, 2 evicts 1 (clean), 3 evicts 0 (dirty).
    #[test]
    fn the_least_recently_used_page_goes_and_is_written_when_dirty() {
        let mut cache = MapCache::new(8, 2);
        let missed = |write_back| Touch {
            missed: true,
            write_back,
        };
        assert_eq!(cache.touch(0, Writes::Yes), missed(None));
        assert_eq!(cache.touch(1, Writes::No), missed(None));
        assert!(!cache.touch(0, Writes::No).missed);
        assert_eq!(cache.touch(2, Writes::No), missed(None));
        assert_eq!(cache.touch(3, Writes::No), missed(Some(0)));
        assert!(cache.dirty_if_present(2));
        assert!(!cache.dirty_if_present(0));
    }
}
