//! Records that come before the one that they belong to.

use std::collections::HashMap;

/// Maximum number of pieces of bios whose own record has not come yet, and of bios of requests whose record has not.
const PARTS_MAX: usize = 1 << 16;

/// Records that belong to one that follows, by the address and the mark that both bear.
#[derive(Debug)]
pub(super) struct Parts<T> {
    by_owner: HashMap<(u64, u32), Vec<T>>,
    count: usize,
    /// Number of times that all were dropped at the limit.
    forgotten: u64,
}

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self {
            by_owner: HashMap::new(),
            count: 0,
            forgotten: 0,
        }
    }
}

impl<T> Parts<T> {
    /// Adds parts. At the limit all are dropped: the records of most of their owners were lost.
    pub(super) fn add(&mut self, owner: (u64, u32), parts: impl IntoIterator<Item = T>) {
        if self.count >= PARTS_MAX {
            self.clear();
            self.forgotten += 1;
        }
        let known = self.by_owner.entry(owner).or_default();
        let before = known.len();
        known.extend(parts);
        self.count += known.len() - before;
    }

    pub(super) fn take(&mut self, owner: (u64, u32)) -> Vec<T> {
        if self.by_owner.is_empty() {
            return Vec::new();
        }
        let parts = self.by_owner.remove(&owner).unwrap_or_default();
        self.count -= parts.len();
        parts
    }

    /// Number of times that all were dropped at the limit.
    pub(super) const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    pub(super) fn clear(&mut self) {
        self.by_owner.clear();
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_without_owners_are_dropped_at_the_limit_and_counted() {
        let mut parts = Parts::default();
        for owner in 0..=u64::try_from(PARTS_MAX).unwrap() {
            parts.add((owner, 0), [()]);
        }
        assert_eq!((parts.count, parts.forgotten()), (1, 1));
        assert_eq!(parts.take((0, 0)).len(), 0);
    }
}
