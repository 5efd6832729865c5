//! Times of a file with buffered writes.
//!
//! A buffered write's time is that of the moment it was acknowledged; the file system below gives the file another one
//! when the data reaches it. Nobody can tell the two apart unless somebody looked in between, so:
//!
//! - While data is buffered, a look is told the time of the last write, or the one below where that is later (a change
//!   of the source).
//! - When data that was looked at has been written out, the file system below is asked which time it gave. As long as it
//!   says that time, a look is told the one that was told before. Any other time below is a later change, and is told.
//! - Without a look nothing is asked: that would make each fsync of ext4 commit the inode.
//!
//! This is kept for as long as the file is open or known to the kernel; then the times are the source's own.

use rustix::time::{ClockId, clock_gettime};
use vfs::{Attr, Timestamp};

/// Times of content and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    mtime: Timestamp,
    ctime: Timestamp,
}

impl Stamp {
    /// Those of `attr`.
    pub const fn of(attr: &Attr) -> Self {
        Self {
            mtime: attr.mtime,
            ctime: attr.ctime,
        }
    }

    fn later(self, other: Self) -> Self {
        Self {
            mtime: self.mtime.max(other.mtime),
            ctime: self.ctime.max(other.ctime),
        }
    }
}

/// What one file's looks were told, and what they will be.
#[derive(Debug, Default)]
pub struct Times {
    /// When the last buffered write was acknowledged.
    written: Timestamp,
    /// Somebody looks, or looked, while data was buffered that still is.
    looked: bool,
    /// The latest times that such looks were told.
    told: Option<Stamp>,
    settled: Option<Settled>,
}

/// Looked-at data has been written out.
#[derive(Clone, Copy, Debug)]
struct Settled {
    /// The times below afterwards.
    below: Stamp,
    /// Those to tell in their place, if any.
    told: Option<Stamp>,
}

impl Times {
    /// A write is acknowledged.
    pub fn note_write(&mut self) {
        // The clock of the host's file times, which is that of the last tick.
        self.written = clock(ClockId::RealtimeCoarse);
    }

    /// Somebody will be told the times of buffered data.
    pub const fn note_look(&mut self) {
        self.looked = true;
    }

    /// True when the times after the write-out have to be asked for: [`Times::settle`].
    pub const fn are_looked_at(&self) -> bool {
        self.looked
    }

    /// Looked-at data has been written out, which left these times below, where that could be found out. `is_clean`: it was
    /// the last.
    pub fn settle(&mut self, below: Option<Stamp>, is_clean: bool) {
        let told = self.told;
        self.settled = below.map(|below| Settled { below, told });
        if is_clean {
            self.looked = false;
            self.told = None;
        }
    }

    /// Replaces the times that the file system below gave by those to tell. `is_dirty`: data was buffered before it was
    /// asked.
    pub fn tell(&mut self, attr: &mut Attr, is_dirty: bool) {
        if let Some(Settled {
            below,
            told: Some(told),
        }) = self.settled
        {
            if below.mtime == attr.mtime {
                attr.mtime = told.mtime;
            }
            if below.ctime == attr.ctime {
                attr.ctime = told.ctime;
            }
        }
        if !is_dirty {
            return;
        }
        let now = clock(ClockId::Realtime);
        let last_change = |below: Timestamp| match below {
            // Set by hand, before the write.
            future if future > now => self.written,
            below => below.max(self.written),
        };
        (attr.mtime, attr.ctime) = (last_change(attr.mtime), last_change(attr.ctime));
        // Data that has been written out meanwhile keeps its times, too.
        let told = match &mut self.settled {
            Some(settled) if !self.looked => &mut settled.told,
            _ => &mut self.told,
        };
        let shown = Stamp::of(attr);
        *told = Some(told.map_or(shown, |told| told.later(shown)));
    }

    /// True when a look may be told something else than what is below.
    pub fn differ(&self) -> bool {
        self.settled.is_some_and(|settled| settled.told.is_some())
    }

    /// Times were set: they are those below.
    pub const fn forget(&mut self) {
        self.told = None;
        self.settled = None;
    }
}

fn clock(id: ClockId) -> Timestamp {
    let now = clock_gettime(id);
    Timestamp {
        seconds: now.tv_sec,
        nanoseconds: u32::try_from(now.tv_nsec).expect("less than a second"),
    }
}
