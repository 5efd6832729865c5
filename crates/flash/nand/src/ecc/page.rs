//! Correction of single raw pages, for readers that keep their own order of pages.

use std::fmt;
use std::ops::Range;

use super::corrected::correct_page;
use super::decoder::{Decoder, Scratch, StepState};
use super::layout::{Layout, LayoutError, Placement};

/// Corrects raw pages of a layout. Its tables are made once and used by any number of threads.
pub struct PageCorrector {
    layout: Layout,
    decoder: Decoder,
}

/// The state of a page as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageState {
    /// Corrected bits, those of erased steps included.
    pub corrected_bits: u32,
    /// Number of steps of the page.
    pub steps: usize,
    /// Bytes of the main area of each step that could not be corrected.
    pub failed: Vec<Range<u32>>,
    /// The page was written without ECC, and stays as it was read.
    pub is_unprotected: bool,
}

impl PageCorrector {
    /// Prepares the correction of pages.
    ///
    /// # Errors
    /// If no page can have the layout.
    pub fn new(layout: &Layout) -> Result<Self, LayoutError> {
        layout.check()?;
        Ok(Self {
            decoder: Decoder::new(layout)?,
            layout: layout.clone(),
        })
    }

    /// The layout.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether the main area lies in front of the OOB area, as it is. Otherwise data and parity of the steps alternate.
    #[must_use]
    pub const fn is_apart(&self) -> bool {
        matches!(self.layout.placement, Placement::Apart { .. })
    }

    /// Corrects a raw page in place, and copies its main area. Steps that can't be corrected stay as they were read.
    ///
    /// # Panics
    /// If `raw` or `main` do not have the size of the layout's raw page and main area.
    pub fn correct(&self, raw: &mut [u8], main: &mut [u8]) -> PageState {
        assert_eq!(
            (raw.len(), main.len()),
            (self.decoder.raw_bytes(), self.decoder.page_bytes()),
            "the sizes of a page and its main area"
        );
        let states = correct_page(&self.decoder, raw, main, &mut Scratch::default());
        let mut page = PageState {
            steps: states.len(),
            ..PageState::default()
        };
        for (step, state) in self.decoder.steps().iter().zip(states) {
            match state {
                StepState::Erased { flipped } | StepState::Good { flipped } => page.corrected_bits += flipped,
                StepState::Unprotected => page.is_unprotected = true,
                StepState::Failed => page.failed.push(step.main.clone()),
            }
        }
        page
    }
}

impl fmt::Debug for PageCorrector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PageCorrector({})", self.layout)
    }
}
