//! Paired pages. A cell of an MLC chip holds one bit of each of two pages of its word line: the lower page is
//! programmed first, the upper one some pages later, by adding charge to the same cells. A power cut during that
//! destroys both.
//!
//! Only the effect of a power cut is modelled. Because of it, Linux's UBI runs on MLC chips only if one page of each
//! pair stays unused (SLC mode): otherwise a later write to the same block could destroy acknowledged data. See
//! `docs/reference/media.md`.

use media::Page;

/// Pairs of pages in a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pairing {
    /// No pairs: SLC, or a chip whose pairs are not simulated.
    #[default]
    None,
    /// Pairs as in data sheets of MLC chips: 0 and 2, 1 and 4, 3 and 6, 5 and 8, and so on; the last page with the
    /// one two before it.
    Mlc,
}

impl Pairing {
    /// The page programmed earlier into the same cells as `page`; `None` if `page` is the lower page of its pair.
    #[must_use]
    pub fn lower_page(self, page: Page, pages_per_block: u32) -> Option<Page> {
        let last = page.0 + 1 == pages_per_block;
        match (self, page.0) {
            (Self::None, _) | (Self::Mlc, 0 | 1) => None,
            (Self::Mlc, number) if last => Some(Page(number - 2)),
            (Self::Mlc, 2) => Some(Page(0)),
            (Self::Mlc, number) => (number % 2 == 0).then(|| Page(number - 3)),
        }
    }

    /// Whether blocks of `pages_per_block` pages can have these pairs.
    #[must_use]
    pub const fn fits(self, pages_per_block: u32) -> bool {
        match self {
            Self::None => true,
            Self::Mlc => pages_per_block.is_multiple_of(2) && matches!(pages_per_block, 4..=0xFFFE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_in_one_pair_and_the_lower_one_comes_first() {
        for pages in [4, 6, 64, 128, 256] {
            let mut seen = vec![0; media::index(pages)];
            for page in (0..pages).map(Page) {
                if let Some(lower) = Pairing::Mlc.lower_page(page, pages) {
                    assert!(lower < page, "{lower} and {page} of {pages}");
                    seen[media::index(lower.0)] += 1;
                    seen[media::index(page.0)] += 1;
                }
                assert_eq!(Pairing::None.lower_page(page, pages), None);
            }
            assert!(seen.iter().all(|times| *times == 1), "{pages} pages: {seen:?}");
        }
    }

    #[test]
    fn pairs_are_those_of_data_sheets() {
        let lower = |page| Pairing::Mlc.lower_page(Page(page), 128).map(|page| page.0);
        assert_eq!(
            [0, 1, 2, 3, 4, 6, 8, 126, 127].map(lower),
            [
                None,
                None,
                Some(0),
                None,
                Some(1),
                Some(3),
                Some(5),
                Some(123),
                Some(125)
            ]
        );
        assert!(Pairing::Mlc.fits(128) && !Pairing::Mlc.fits(2) && !Pairing::Mlc.fits(63));
    }
}
