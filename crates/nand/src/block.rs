//! What a simulated chip knows of one block beside its bytes.

use media::{NandGeometry, Nanos, Page};

/// State and counters of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockState {
    /// First byte that may be programmed; what lies before is programmed or skipped, what lies after is 0xFF.
    pub programmed_bytes: u32,
    /// Marked bad, by the factory or since.
    pub is_bad: bool,
    /// An erase was interrupted: the cells hold anything until the next one.
    pub is_half_erased: bool,
    /// The page whose program was interrupted last, and from which byte of it.
    pub torn: Option<TornPage>,
    /// Erases, counting those that failed.
    pub erases: u32,
    /// Programs of pages or parts of pages.
    pub programs: u64,
    /// Reads of pages or parts of pages.
    pub reads: u64,
    /// The same since the last erase, which is what disturbs.
    pub reads_since_erase: u32,
    /// When the first page after the last erase was programmed.
    pub programmed_at: Nanos,
}

/// A page whose program was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornPage {
    /// The page.
    pub page: Page,
    /// First byte of the page that did not make it.
    pub byte: u32,
    /// Whether ECC says so: the step that the cut went through can't be corrected.
    pub is_uncorrectable: bool,
}

impl BlockState {
    /// The state after an erase.
    #[must_use]
    pub const fn erased(self) -> Self {
        Self {
            programmed_bytes: 0,
            is_half_erased: false,
            torn: None,
            reads_since_erase: 0,
            programmed_at: Nanos::ZERO,
            ..self
        }
    }

    /// Whether a state can be one of a chip of this shape.
    #[must_use]
    pub const fn fits(&self, geometry: &NandGeometry) -> bool {
        let torn_fits = match self.torn {
            None => true,
            Some(torn) => torn.page.0 < geometry.pages_per_block() && torn.byte < geometry.page_bytes(),
        };
        torn_fits && self.programmed_bytes <= geometry.block_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_block_is_small() {
        assert!(size_of::<BlockState>() <= 72, "{} bytes", size_of::<BlockState>());
    }
}
