//! Times of a file with buffered writes.
//!
//! A buffered write's time is that of its acknowledgement; the file system below gives the file another one when the
//! data reaches it. The difference is only visible if the times were queried in between, so:
//!
//! - While data is buffered, a query returns the time of the last write, or the one below if that is later (a change of
//!   the source).
//! - When data has been written out after such a query, the file system below is asked for its times. As long as it
//!   returns those times, a query returns the ones that were reported before. Any other time below is a later change,
//!   and is returned.
//! - Without a query the file system below is not asked: that would make each fsync of ext4 commit the inode.
//!
//! This state is kept for as long as the file is open or known to the kernel; then the times are the source's own.

use rustix::time::{ClockId, clock_gettime};
use vfs::{Attr, Timestamp};

/// Modification and change time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    mtime: Timestamp,
    ctime: Timestamp,
}

impl Stamp {
    /// The times of `attr`.
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

/// Times of one file that were reported, and those to report.
#[derive(Debug, Default)]
pub struct Times {
    /// Time of the last buffered write's acknowledgement.
    written: Timestamp,
    /// The times were queried while data was buffered that still is.
    looked: bool,
    /// The latest times reported by such queries.
    told: Option<Stamp>,
    settled: Option<Settled>,
}

/// Times after the write-out of data whose times had been queried.
#[derive(Clone, Copy, Debug)]
struct Settled {
    /// The times below after the write-out.
    below: Stamp,
    /// Times to report in their place, if any.
    told: Option<Stamp>,
}

impl Times {
    /// Notes the acknowledgement of a write.
    pub fn note_write(&mut self) {
        // The clock of the host's file times, which advances by ticks.
        self.written = clock(ClockId::RealtimeCoarse);
    }

    /// Notes that the times of buffered data are about to be reported.
    pub const fn note_look(&mut self) {
        self.looked = true;
    }

    /// True if the times below are needed after the write-out: [`Times::settle`].
    pub const fn are_looked_at(&self) -> bool {
        self.looked
    }

    /// Notes the times below after the write-out of data whose times had been queried, if they are known. `is_clean`:
    /// no data is left.
    pub fn settle(&mut self, below: Option<Stamp>, is_clean: bool) {
        let told = self.told;
        self.settled = below.map(|below| Settled { below, told });
        if is_clean {
            self.looked = false;
            self.told = None;
        }
    }

    /// Replaces the times returned by the file system below by those to report. `is_dirty`: data was buffered before
    /// the call.
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
        // A query that began before the data was buffered may return the time of its write-out to one caller, while
        // others are told that of the acknowledgement.
        if !is_dirty && !self.looked {
            return;
        }
        let now = clock(ClockId::Realtime);
        let last_change = |below: Timestamp| match below {
            // Set explicitly, before the write.
            future if future > now => self.written,
            below => below.max(self.written),
        };
        let latest = Stamp {
            mtime: last_change(attr.mtime),
            ctime: last_change(attr.ctime),
        };
        if is_dirty {
            (attr.mtime, attr.ctime) = (latest.mtime, latest.ctime);
        }
        // Data that has been written out meanwhile keeps its times, too.
        let told = match &mut self.settled {
            Some(settled) if !self.looked => &mut settled.told,
            _ => &mut self.told,
        };
        *told = Some(told.map_or(latest, |told| told.later(latest)));
    }

    /// True if a query may return other times than the file system below.
    pub fn differ(&self) -> bool {
        self.settled.is_some_and(|settled| settled.told.is_some())
    }

    /// Drops the state because times were set: the times below are right.
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

#[cfg(test)]
mod tests {
    use testkit::MemFs;
    use vfs::{FileSystem, Ino};

    use super::*;

    /// The attributes of a file below that changed at `time`.
    fn changed_at(time: Timestamp) -> Attr {
        let attr = MemFs::new()
            .getattr(Ino::ROOT, None)
            .expect("a root has attributes");
        Attr {
            mtime: time,
            ctime: time,
            ..attr
        }
    }

    #[test]
    fn times_never_go_back_for_one_who_asked_while_data_was_being_written_out() {
        let mut times = Times::default();
        times.note_write();
        let acknowledged = times.written;
        let written_out = Timestamp {
            seconds: acknowledged.seconds,
            nanoseconds: acknowledged.nanoseconds.saturating_add(1),
        };
        let tell = |times: &mut Times, below: Timestamp, is_dirty: bool| {
            let mut attr = changed_at(below);
            times.tell(&mut attr, is_dirty);
            (attr.mtime, attr.ctime)
        };
        // Two ask: the first before the write, but is answered after its write-out; the second between the two.
        times.note_look();
        let first = tell(&mut times, written_out, false);
        let second = tell(&mut times, Timestamp::default(), true);
        times.settle(Some(Stamp::of(&changed_at(written_out))), true);
        let again = tell(&mut times, written_out, false);
        assert_eq!(first, (written_out, written_out));
        assert_eq!(second, (acknowledged, acknowledged));
        assert_eq!(again, first);
    }
}
