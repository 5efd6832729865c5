//! Read-ahead of the card: once a read begins where the one before it ended, the controller reads on, into its memory, and
//! answers the next read from there.
//!
//! One stream is followed. Any other read ends it, as do writes and erases; data that was read ahead for nothing has
//! occupied banks and channel. Holds numbers of units and times, and reads nothing itself.
//!
//! Controllers of cards and SSDs do so: US patents 8,959,307 and 12,498,882 (the latter by a maker of eMMC controllers),
//! the internal cache layer of `SimpleSSD` (`EnablePrefetch`).

use std::collections::VecDeque;

use media::Nanos;

/// The stream, and the units that were read ahead of it.
#[derive(Clone, Debug)]
pub(crate) struct ReadAhead {
    /// Most units to hold; 0: the card reads nothing ahead.
    most: u32,
    /// Sector behind the last read.
    end: Option<u64>,
    /// First unit that is held.
    first: u32,
    /// Units from there on, in parts with the time at which each is in memory.
    parts: VecDeque<(u32, Nanos)>,
}

impl ReadAhead {
    pub(crate) const fn new(most: u32) -> Self {
        Self {
            most,
            end: None,
            first: 0,
            parts: VecDeque::new(),
        }
    }

    /// Drops everything: the data may be outdated.
    pub(crate) fn clear(&mut self) {
        self.end = None;
        self.parts.clear();
    }

    fn held(&self) -> u32 {
        self.parts.iter().map(|(units, _)| units).sum()
    }

    /// Takes the units of a read that are held: their number, from the first one on, and the time at which all are in
    /// memory.
    pub(crate) fn take(&mut self, first: u32, count: u32) -> (u32, Nanos) {
        let (mut taken, mut at) = (0, Nanos::ZERO);
        if first != self.first {
            return (taken, at);
        }
        while taken < count
            && let Some((units, since)) = self.parts.front_mut()
        {
            let used = (*units).min(count - taken);
            taken += used;
            at = at.max(*since);
            *units -= used;
            if *units == 0 {
                self.parts.pop_front();
            }
        }
        self.first += taken;
        (taken, at)
    }

    /// Notes a read up to unit `next`. Returns the units to read ahead, if the read continues the one before it and at most
    /// half of them are left: the first one, and how many.
    pub(crate) fn after(&mut self, sector: u64, sectors: u32, next: u32) -> Option<(u32, u32)> {
        let follows = self.end == Some(sector);
        self.end = Some(sector + u64::from(sectors));
        if !follows || self.first != next {
            self.parts.clear();
            self.first = next;
        }
        let held = self.held();
        (follows && held <= self.most / 2 && held < self.most).then(|| (next + held, self.most - held))
    }

    /// Holds units behind those that are held.
    pub(crate) fn hold(&mut self, first: u32, units: u32, at: Nanos) {
        debug_assert_eq!(first, self.first + self.held(), "no gap in what is held");
        self.parts.push_back((units, at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of one unit of 8 sectors, 4 units ahead: the second read begins it, and it goes on at half of it.
    #[test]
    fn a_stream_is_read_ahead_from_its_second_read_on() {
        let mut ahead = ReadAhead::new(4);
        let mut read = |unit: u32| {
            let taken = ahead.take(unit, 1);
            let more = ahead.after(u64::from(unit) * 8, 8, unit + 1);
            if let Some((first, units)) = more {
                ahead.hold(first, units, Nanos(u64::from(first)));
            }
            (taken, more)
        };
        let none = (0, Nanos::ZERO);
        assert_eq!(read(10), (none, None));
        assert_eq!(read(11), (none, Some((12, 4))));
        assert_eq!(read(12), ((1, Nanos(12)), None));
        assert_eq!(read(13), ((1, Nanos(12)), Some((16, 2))));
        assert_eq!(read(14), ((1, Nanos(12)), None));
        assert_eq!(read(15), ((1, Nanos(12)), Some((18, 2))));
        assert_eq!(read(16), ((1, Nanos(16)), None));
        // Elsewhere: what was read ahead is dropped.
        assert_eq!(read(40), (none, None));
        assert_eq!(read(17), (none, None));
    }

    #[test]
    fn a_longer_read_takes_all_that_is_held_and_needs_the_rest_from_flash() {
        let mut ahead = ReadAhead::new(4);
        ahead.after(0, 64, 8);
        assert_eq!(ahead.after(64, 64, 16), Some((16, 4)));
        ahead.hold(16, 4, Nanos(7));
        assert_eq!(ahead.take(16, 8), (4, Nanos(7)));
        assert_eq!(ahead.after(128, 64, 24), Some((24, 4)));
    }

    #[test]
    fn nothing_is_held_after_a_write_or_without_read_ahead() {
        let mut ahead = ReadAhead::new(4);
        ahead.after(0, 8, 1);
        ahead.hold(1, 4, Nanos(7));
        ahead.clear();
        assert_eq!(ahead.take(1, 1), (0, Nanos::ZERO));
        let mut none = ReadAhead::new(0);
        assert_eq!((none.after(0, 8, 1), none.after(8, 8, 2)), (None, None));
    }
}
