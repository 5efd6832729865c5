//! Ranges of a piece's sectors that requests have taken.
//!
//! A bio may be split into hundreds of thousands of requests (a discard of a whole device), which arrive nearly in
//! order: so adjacent ranges are merged, and the cost of a query depends on the ranges nearby, not on all of them.

use std::collections::BTreeMap;

/// Disjoint ranges, no two of which are adjacent.
#[derive(Debug, Default)]
pub struct Ranges {
    /// First sector, and the one behind the last.
    by_start: BTreeMap<u64, u64>,
    /// Total number of sectors.
    pub sectors: u64,
}

impl Ranges {
    /// Adds a range that overlaps none.
    pub fn insert(&mut self, (start, end): (u64, u64)) {
        self.sectors += end - start;
        let behind = self.by_start.remove(&end).unwrap_or(end);
        if let Some((_, before)) = self.by_start.range_mut(..start).next_back()
            && *before == start
        {
            *before = behind;
            return;
        }
        self.by_start.insert(start, behind);
    }

    /// The parts of `start..end` that are not covered, in order.
    #[must_use]
    pub fn missing(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut missing = Vec::new();
        let mut at = start;
        let before = self.by_start.range(..start).next_back();
        for (from, to) in before
            .into_iter()
            .chain(self.by_start.range(start..end.max(start)))
        {
            if *from > at {
                missing.push((at, *from));
            }
            at = at.max(*to);
        }
        if at < end {
            missing.push((at, end));
        }
        missing
    }
}

/// The ranges without this one.
#[must_use]
pub fn subtract(ranges: &[(u64, u64)], (start, end): (u64, u64)) -> Vec<(u64, u64)> {
    ranges
        .iter()
        .flat_map(|(from, to)| [(*from, (*to).min(start)), ((*from).max(end), *to)])
        .filter(|(from, to)| from < to)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_range_in_whatever_order_they_come() {
        let mut ranges = Ranges::default();
        for range in [(8, 16), (24, 32), (0, 8), (16, 24)] {
            ranges.insert(range);
        }
        assert_eq!(ranges.by_start.len(), 1);
        assert_eq!(ranges.sectors, 32);
        assert_eq!(ranges.missing(0, 40), [(32, 40)]);
    }

    #[test]
    fn what_is_missing_is_told_between_and_around_the_ranges() {
        let mut ranges = Ranges::default();
        ranges.insert((8, 16));
        ranges.insert((24, 32));
        assert_eq!(ranges.missing(4, 40), [(4, 8), (16, 24), (32, 40)]);
        assert_eq!(ranges.missing(10, 26), [(16, 24)]);
        assert_eq!(ranges.missing(16, 16), []);
        assert_eq!(ranges.missing(25, 31), []);
    }
}
