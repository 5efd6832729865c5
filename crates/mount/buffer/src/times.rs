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
        if let Some(settled) = &mut self.settled {
            let has_mtime = settled.below.mtime == attr.mtime;
            let has_ctime = settled.below.ctime == attr.ctime;
            if !is_dirty && (has_mtime || has_ctime) {
                // Told from here on, whatever a query from before the write-out is answered.
                settled.told.get_or_insert(settled.below);
            }
            if let Some(told) = settled.told {
                attr.mtime = if has_mtime { told.mtime } else { attr.mtime };
                attr.ctime = if has_ctime { told.ctime } else { attr.ctime };
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
        let later = |told: Option<Stamp>| Some(told.map_or(latest, |told| told.later(latest)));
        // Data that has been written out meanwhile keeps its times, too.
        if let Some(settled) = &mut self.settled {
            settled.told = later(settled.told);
        }
        if self.looked || self.settled.is_none() {
            self.told = later(self.told);
        }
    }

    /// True if a query may return other times than the file system below.
    pub fn differ(&self) -> bool {
        self.settled
            .is_some_and(|settled| settled.told.is_some_and(|told| told != settled.below))
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

    fn tell(times: &mut Times, below: Timestamp, is_dirty: bool) -> Timestamp {
        let mut attr = changed_at(below);
        times.tell(&mut attr, is_dirty);
        assert_eq!(attr.mtime, attr.ctime);
        attr.mtime
    }

    /// A file with data that is written out, but not settled, and the times of acknowledgement and write-out.
    fn written_out() -> (Times, Timestamp, Timestamp) {
        let mut times = Times::default();
        times.note_write();
        let acknowledged = times.written;
        let below = Timestamp {
            nanoseconds: acknowledged.nanoseconds.saturating_add(1),
            ..acknowledged
        };
        (times, acknowledged, below)
    }

    #[test]
    fn times_never_go_back_for_one_who_asked_before_the_write() {
        let (mut times, acknowledged, below) = written_out();
        // The first is answered after the write-out; another one asked between the two.
        times.note_look();
        assert_eq!(tell(&mut times, below, false), below);
        assert_eq!(tell(&mut times, Timestamp::default(), true), acknowledged);
        times.settle(Some(Stamp::of(&changed_at(below))), true);
        assert_eq!(tell(&mut times, below, false), below);
    }

    #[test]
    fn times_never_go_back_by_the_late_answer_to_another() {
        let (mut times, acknowledged, below) = written_out();
        times.note_look();
        times.settle(Some(Stamp::of(&changed_at(below))), true);
        assert_eq!(tell(&mut times, below, false), below);
        assert!(!times.differ(), "the file's own times need no state");
        assert_eq!(tell(&mut times, Timestamp::default(), true), acknowledged);
        assert_eq!(tell(&mut times, below, false), below);
    }

    #[test]
    fn times_never_go_back_by_a_late_answer_after_two_settlings() {
        let (mut times, _, first) = written_out();
        let second = Timestamp {
            nanoseconds: first.nanoseconds.saturating_add(1),
            ..first
        };
        times.note_look();
        tell(&mut times, Timestamp::default(), true);
        for below in [first, second] {
            times.settle(Some(Stamp::of(&changed_at(below))), false);
        }
        let told = tell(&mut times, first, true);
        assert!(tell(&mut times, second, true) >= told);
    }
}
