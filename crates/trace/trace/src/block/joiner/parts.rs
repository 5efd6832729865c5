//! Records that come before the one that they belong to.

use std::collections::HashMap;

/// Maximum number of pieces of bios whose own record has not come yet, and of bios of requests whose record has not.
const PARTS_MAX: usize = 1 << 16;

/// Records that belong to one that follows, by the address and the mark that both bear.
#[derive(Debug)]
pub(super) struct Parts<T> {
    by_owner: HashMap<(u64, u32), Vec<T>>,
    count: usize,
}

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self {
            by_owner: HashMap::new(),
            count: 0,
        }
    }
}

impl<T> Parts<T> {
    /// Adds parts. At the limit all are dropped: their owners' records were lost.
    pub(super) fn add(&mut self, owner: (u64, u32), parts: impl IntoIterator<Item = T>) {
        if self.count >= PARTS_MAX {
            self.clear();
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

    pub(super) fn clear(&mut self) {
        self.by_owner.clear();
        self.count = 0;
    }
}
