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
    /// Pages that were programmed, and lost by a power cut during the program of a page with the same cells.
    pub lost: LostPages,
    /// What was told to fail here.
    pub failing: Failing,
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

/// What fails in a block each time, because somebody asked for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failing {
    /// Programs of this page.
    pub program_at: Option<Page>,
    /// Erases.
    pub erases: bool,
}

/// The last four pages of a block that were lost since its erase: hardly any block meets more power cuts in that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostPages {
    /// One more than the page, the latest first; 0 is none.
    places: [u16; Self::MOST],
}

impl LostPages {
    /// How many are remembered.
    pub const MOST: usize = 4;

    /// Whether none is lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether this one is.
    #[must_use]
    pub fn contains(&self, page: Page) -> bool {
        self.iter().any(|lost| lost == page)
    }

    /// Adds a page. Chips of which pages are lost have fewer than 2^16 in a block ([`crate::Pairing::fits`]).
    pub fn insert(&mut self, page: Page) {
        if let (Ok(place), false) = (u16::try_from(page.0 + 1), self.contains(page)) {
            self.places.rotate_right(1);
            self.places[0] = place;
        }
    }

    /// All of them, the latest first.
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
            lost: LostPages {
                places: [0; LostPages::MOST],
            },
            reads_since_erase: 0,
            programmed_at: Nanos::ZERO,
            ..self
        }
    }

    /// Whether a state can be one of a chip of this shape.
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
