//! The record that data was lost which a page cache above may hold.

use crate::Handle;

/// Whether a page cache above may hold data of a file that was lost, as if it were clean.
///
/// Opens have it dropped, until one of them was released: the kernel has seen the reply to that one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LostContent {
    /// None was lost, or the kernel has dropped it.
    #[default]
    None,
    /// The kernel may hold it.
    Held,
    /// The reply to this open has it dropped.
    DroppedBy(Handle),
}

impl LostContent {
    /// Records that data was lost.
    pub fn lose(&mut self) {
        *self = Self::Held;
    }

    /// True if the reply to the open of `handle` is to have content dropped.
    pub fn must_drop(&mut self, handle: Handle) -> bool {
        if *self == Self::Held {
            *self = Self::DroppedBy(handle);
        }
        self.is_recorded()
    }

    /// Records that `handle` was released.
    pub fn released(&mut self, handle: Handle) {
        if *self == Self::DroppedBy(handle) {
            *self = Self::None;
        }
    }

    /// True unless the kernel is known to hold nothing that was lost.
    #[must_use]
    pub fn is_recorded(self) -> bool {
        self != Self::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_dropped_by_each_open_until_one_of_them_is_released() {
        let mut lost = LostContent::default();
        assert!(!lost.must_drop(Handle(1)));
        lost.lose();
        assert!(lost.must_drop(Handle(2)) && lost.must_drop(Handle(3)));
        lost.released(Handle(1));
        assert!(lost.must_drop(Handle(4)), "an open before the loss was released");
        lost.released(Handle(2));
        assert!(!lost.must_drop(Handle(5)));
        lost.lose();
        assert!(lost.must_drop(Handle(6)));
        lost.lose();
        lost.released(Handle(6));
        assert!(lost.is_recorded(), "more was lost after that open");
    }
}
