//! Builds the next pages of the members' dirty marks, while the array is open for writing; see [`crate::mark`].

use std::num::NonZeroU64;

use crate::identity::MemberIdentity;
use crate::mark::{MarkPage, Unmapped};

/// Builder of the dirty mark pages of an epoch.
#[derive(Debug)]
pub(crate) struct Log {
    identity: MemberIdentity,
    epoch: NonZeroU64,
}

impl Log {
    pub(crate) fn new(identity: &MemberIdentity, epoch: NonZeroU64) -> Self {
        Self {
            identity: identity.clone(),
            epoch,
        }
    }

    pub(crate) const fn epoch(&self) -> NonZeroU64 {
        self.epoch
    }

    /// Builds the next page of each member's mark.
    pub(crate) fn pages(
        &self,
        page_bytes: u32,
        complete: u64,
        unmapped: &[Unmapped],
    ) -> Vec<(usize, Vec<u8>)> {
        let page = |(place, index)| {
            let page = MarkPage {
                array: self.identity.array,
                index,
                members: self.identity.members,
                redundancy: self.identity.redundancy,
                epoch: self.epoch.get(),
                complete,
                unmapped: unmapped.to_vec(),
            };
            (place, page.encode(page_bytes))
        };
        (0..).zip(0..self.identity.members).map(page).collect()
    }
}
