//! State and counters of a block of a simulated chip; the content is in [`crate::Cells`].

use media::{NandGeometry, Nanos, Page};

/// State and counters of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockState {
    /// First byte that may be programmed; earlier bytes are programmed or skipped, later ones are 0xFF.
    pub programmed_bytes: u32,
    /// Marked bad, by the factory or later.
    pub is_bad: bool,
    /// An erase was interrupted: the cells hold garbage until the next erase.
    pub is_half_erased: bool,
    /// The page whose program was interrupted last, and the first byte that was not programmed.
    pub torn: Option<TornPage>,
    /// Pages that were programmed, and lost by a power cut during the program of the paired page.
    pub lost: LostPages,
    /// Failures injected into this block.
    pub failing: Failing,
    /// Number of erases, including failed ones.
    pub erases: u32,
    /// Number of programs of pages or parts of pages.
    pub programs: u64,
    /// Number of reads of pages or parts of pages.
    pub reads: u64,
    /// Number of reads since the last erase, which determines read disturb.
    pub reads_since_erase: u32,
    /// Time of the first program after the last erase.
    pub programmed_at: Nanos,
}

/// Injected failures, which repeat until they are removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failing {
    /// Programs of this page fail.
    pub program_at: Option<Page>,
    /// Erases fail.
    pub erases: bool,
}

/// The last four pages lost since the block's erase; a block rarely meets more power cuts than that between two
/// erases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostPages {
    /// Page number plus one, latest first; 0 means no page.
    places: [u16; Self::MOST],
}

impl LostPages {
    /// Capacity.
    pub const MOST: usize = 4;

    /// Whether no page is lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether `page` is lost.
    #[must_use]
    pub fn contains(&self, page: Page) -> bool {
        self.iter().any(|lost| lost == page)
    }

    /// Adds a page. Chips that can lose pages have fewer than 2^16 per block ([`crate::Pairing::fits`]).
    pub fn insert(&mut self, page: Page) {
        if let (Ok(place), false) = (u16::try_from(page.0 + 1), self.contains(page)) {
            self.places.rotate_right(1);
            self.places[0] = place;
        }
    }

    /// The lost pages, latest first.
    pub fn iter(&self) -> impl Iterator<Item = Page> {
        let lost = self.places.into_iter().filter_map(|place| place.checked_sub(1));
        lost.map(|page| Page(u32::from(page)))
    }

    pub(crate) const fn places(self) -> [u16; Self::MOST] {
        self.places
    }

    pub(crate) const fn of_places(places: [u16; Self::MOST]) -> Self {
        Self { places }
    }
}

/// A page whose program was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornPage {
    /// The page.
    pub page: Page,
    /// First byte of the page that was not programmed.
    pub byte: u32,
    /// Whether the ECC step at the cut is uncorrectable.
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
            lost: LostPages {
                places: [0; LostPages::MOST],
            },
            reads_since_erase: 0,
            programmed_at: Nanos::ZERO,
            ..self
        }
    }

    /// Whether this state is possible for a chip of this geometry.
    #[must_use]
    pub fn fits(&self, geometry: &NandGeometry) -> bool {
        let mut pages = self.lost.iter().chain(self.failing.program_at);
        let pages_fit = pages.all(|page| page.0 < geometry.pages_per_block());
        let torn_fits = match self.torn {
            None => true,
            Some(torn) => torn.page.0 < geometry.pages_per_block() && torn.byte < geometry.page_bytes(),
        };
        torn_fits && pages_fit && self.programmed_bytes <= geometry.block_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_four_lost_pages_are_remembered_once_each() {
        let mut lost = LostPages::default();
        assert!(lost.is_empty());
        for page in [7, 0, 7, 3, 9, 12] {
            lost.insert(Page(page));
        }
        assert_eq!(lost.iter().collect::<Vec<_>>(), [12, 9, 3, 0].map(Page));
        assert!(lost.contains(Page(0)) && !lost.contains(Page(7)) && !lost.is_empty());
    }

    #[test]
    fn the_state_of_a_block_is_small() {
        assert!(size_of::<BlockState>() <= 72, "{} bytes", size_of::<BlockState>());
    }
}
