//! The corrected main data of a dump, and an account of each wrong bit.
//!
//! A step that can't be corrected stays as it was read. It is counted, and the bytes of the main data that it covers are
//! listed as lost: nothing passes as data without being reported. The memory is that of a batch of pages, whatever the
//! length of the dump, and of the list of losses. Two threads decode.

use std::io::{self, Write};
use std::ops::Range;
use std::thread;

use thiserror::Error;

use super::decoder::{Decoder, Scratch, StepState};
use super::layout::{Layout, LayoutError};
use super::source::Source;
use super::spec::Shape;

/// Raw bytes of a batch, about.
const BATCH_BYTES: usize = 1 << 20;
/// Pages in the list of the worst ones.
const WORST_MAX: usize = 10;

/// A dump with a layout.
#[derive(Debug)]
pub struct Corrected<S> {
    source: S,
    decoder: Decoder,
    layout: Layout,
    start: u64,
    pages: u64,
    tail_bytes: u64,
}

/// A copy failed.
#[derive(Debug, Error)]
pub enum CopyError {
    /// The dump can't be read.
    #[error("the dump can't be read at byte {at}: {source}")]
    Read {
        /// Offset in the dump.
        at: u64,
        /// The host's error.
        source: io::Error,
    },
    /// The corrected data can't be written.
    #[error("the corrected data can't be written: {0}")]
    Write(#[source] io::Error),
}

/// A page with wrong bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageErrors {
    /// Number of the page in the dump.
    pub page: u64,
    /// Corrected bits.
    pub corrected_bits: u32,
    /// Steps that could not be corrected.
    pub failed_steps: u32,
}

/// Account of a whole dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Pages.
    pub pages: u64,
    /// Pages without a written step.
    pub erased_pages: u64,
    /// Steps with data that is right or was corrected.
    pub written_steps: u64,
    /// Erased steps.
    pub erased_steps: u64,
    /// Steps in which bits were corrected, erased ones included.
    pub corrected_steps: u64,
    /// Corrected bits.
    pub corrected_bits: u64,
    /// Steps that could not be corrected.
    pub failed_steps: u64,
    /// Pages with such steps.
    pub failed_pages: u64,
    /// Pages that were written without ECC: with data, and an erased parity. They stay as they were read.
    pub unprotected_pages: u64,
    /// Number of steps by their corrected bits, from 0 to the strength of the code.
    pub steps_by_bits: Vec<u64>,
    /// The pages with the most wrong bits, worst first.
    pub worst: Vec<PageErrors>,
    /// Bytes of the main data that belong to failed steps, in order and merged.
    pub lost: Vec<Range<u64>>,
    /// Bytes at the end of the dump that are no whole page.
    pub tail_bytes: u64,
}

impl<S: Source> Corrected<S> {
    /// The pages of a layout in `range` of a dump; the first byte of the range begins a page.
    ///
    /// # Errors
    /// If no page can have the layout.
    pub fn new(source: S, range: Range<u64>, layout: Layout) -> Result<Self, LayoutError> {
        layout.check()?;
        let decoder = Decoder::new(&layout)?;
        let length = range.end.min(source.bytes()).saturating_sub(range.start);
        let raw = u64::from(layout.raw_bytes());
        Ok(Self {
            source,
            decoder,
            start: range.start,
            pages: length / raw,
            tail_bytes: length % raw,
            layout,
        })
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Bytes of main data.
    pub fn bytes(&self) -> u64 {
        self.pages * u64::from(self.layout.page_bytes)
    }

    /// Bytes at the end of the dump that are no whole page; they are no part of the data.
    pub fn tail_bytes(&self) -> u64 {
        self.tail_bytes
    }

    /// Reads corrected main data from byte `at` on, and returns the ranges in it that could not be corrected.
    ///
    /// # Errors
    /// Those of the source; `UnexpectedEof` beyond the end.
    pub fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<Vec<Range<u64>>> {
        let page_bytes = u64::from(self.layout.page_bytes);
        let length = u64::try_from(out.len()).unwrap_or(u64::MAX);
        let end = at.checked_add(length).filter(|end| *end <= self.bytes());
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut summary = Summary::default();
        let mut raw = vec![0; self.decoder.raw_bytes()];
        let mut main = vec![0; self.decoder.page_bytes()];
        let mut scratch = Scratch::default();
        let mut next = at;
        let mut rest = out;
        while next < end {
            let page = next / page_bytes;
            self.source.read_at(self.raw_at(page), &mut raw)?;
            let states = correct_page(&self.decoder, &mut raw, &mut main, &mut scratch);
            summary.add(&self.decoder, page, &states);
            let skipped = usize::try_from(next % page_bytes).unwrap_or(usize::MAX);
            let taken = rest.len().min(main.len() - skipped);
            let (now, later) = rest.split_at_mut(taken);
            now.copy_from_slice(&main[skipped..skipped + taken]);
            rest = later;
            next += u64::try_from(taken).unwrap_or(u64::MAX);
        }
        let cut = |range: &Range<u64>| range.start.max(at)..range.end.min(end);
        Ok(summary
            .lost
            .iter()
            .map(cut)
            .filter(|range| range.start < range.end)
            .collect())
    }

    /// Writes all corrected main data. Calls `progress` with the raw bytes done so far.
    ///
    /// # Errors
    /// Those of the source and the sink.
    pub fn copy(&self, sink: &mut dyn Write, progress: &mut dyn FnMut(u64)) -> Result<Summary, CopyError> {
        let mut summary = Summary {
            tail_bytes: self.tail_bytes,
            steps_by_bits: vec![0; media::index(self.decoder.strength()) + 1],
            ..Summary::default()
        };
        let raw_bytes = self.decoder.raw_bytes();
        let pages_max = u64::try_from((BATCH_BYTES / raw_bytes).max(2))
            .unwrap_or(2)
            .min(self.pages);
        let pages_max_index = usize::try_from(pages_max).unwrap_or(2);
        let mut raw = vec![0; pages_max_index * raw_bytes];
        let mut main = vec![0; pages_max_index * self.decoder.page_bytes()];
        let mut page = 0;
        while page < self.pages {
            let pages = pages_max.min(self.pages - page);
            let count = usize::try_from(pages).unwrap_or(pages_max_index);
            let raw = &mut raw[..count * raw_bytes];
            let main = &mut main[..count * self.decoder.page_bytes()];
            let at = self.raw_at(page);
            self.source
                .read_at(at, raw)
                .map_err(|source| CopyError::Read { at, source })?;
            for states in correct_batch(&self.decoder, raw, main) {
                summary.add(&self.decoder, page, &states);
                page += 1;
            }
            sink.write_all(main).map_err(CopyError::Write)?;
            progress(page * u64::from(self.layout.raw_bytes()));
        }
        Ok(summary)
    }

    fn raw_at(&self, page: u64) -> u64 {
        self.start + page * u64::from(self.layout.raw_bytes())
    }
}

/// Result of [`copy_without_oob`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Pages.
    pub pages: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Bytes at the end of the dump that are no whole page.
    pub tail_bytes: u64,
}

/// Writes the main areas of a dump as they are, for dumps without a known code.
///
/// # Errors
/// Those of the source and the sink.
pub fn copy_without_oob(
    source: &dyn Source,
    range: Range<u64>,
    shape: Shape,
    sink: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Copied, CopyError> {
    let raw_bytes = u64::from(shape.page_bytes) + u64::from(shape.oob_bytes);
    let mut main = vec![0; media::index(shape.page_bytes)];
    let length = range.end.saturating_sub(range.start);
    let mut copied = Copied {
        tail_bytes: length % raw_bytes.max(1),
        ..Copied::default()
    };
    for page in 0..length / raw_bytes.max(1) {
        let at = range.start + page * raw_bytes;
        source
            .read_at(at, &mut main)
            .map_err(|source| CopyError::Read { at, source })?;
        sink.write_all(&main).map_err(CopyError::Write)?;
        copied.pages += 1;
        copied.bytes += u64::from(shape.page_bytes);
        progress((page + 1) * raw_bytes);
    }
    Ok(copied)
}

/// Corrects pages in two threads; returns the states of the steps of each.
fn correct_batch(decoder: &Decoder, raw: &mut [u8], main: &mut [u8]) -> Vec<Vec<StepState>> {
    let work = |raw: &mut [u8], main: &mut [u8]| {
        let mut scratch = Scratch::default();
        let pages = raw
            .chunks_exact_mut(decoder.raw_bytes())
            .zip(main.chunks_exact_mut(decoder.page_bytes()));
        pages
            .map(|(raw, main)| correct_page(decoder, raw, main, &mut scratch))
            .collect::<Vec<_>>()
    };
    let first = raw.len() / decoder.raw_bytes() / 2;
    let (raw_left, raw_right) = raw.split_at_mut(first * decoder.raw_bytes());
    let (main_left, main_right) = main.split_at_mut(first * decoder.page_bytes());
    thread::scope(|scope| {
        let other = scope.spawn(|| work(raw_right, main_right));
        let mut states = work(raw_left, main_left);
        match other.join() {
            Ok(right) => states.extend(right),
            // The panic continues in the thread that asked for the work.
            Err(panic) => std::panic::resume_unwind(panic),
        }
        states
    })
}

pub(super) fn correct_page(
    decoder: &Decoder,
    raw: &mut [u8],
    main: &mut [u8],
    scratch: &mut Scratch,
) -> Vec<StepState> {
    let states = if raw.iter().all(|byte| *byte == 0xFF) {
        vec![StepState::Erased { flipped: 0 }; decoder.steps().len()]
    } else {
        decoder.correct_steps(raw, scratch)
    };
    decoder.copy_main(raw, main);
    states
}

impl Summary {
    fn add(&mut self, decoder: &Decoder, page: u64, states: &[StepState]) {
        let mut errors = PageErrors {
            page,
            corrected_bits: 0,
            failed_steps: 0,
        };
        let mut is_erased = true;
        self.unprotected_pages += u64::from(states.contains(&StepState::Unprotected));
        let page_at = page * u64::try_from(decoder.page_bytes()).unwrap_or(u64::MAX);
        for (step, state) in decoder.steps().iter().zip(states) {
            let flipped = match state {
                StepState::Erased { flipped } => {
                    self.erased_steps += 1;
                    *flipped
                }
                StepState::Good { flipped } => {
                    self.written_steps += 1;
                    is_erased = false;
                    *flipped
                }
                StepState::Unprotected => {
                    is_erased = false;
                    continue;
                }
                StepState::Failed => {
                    is_erased = false;
                    errors.failed_steps += 1;
                    self.lose(page_at + u64::from(step.main.start)..page_at + u64::from(step.main.end));
                    continue;
                }
            };
            errors.corrected_bits += flipped;
            self.corrected_steps += u64::from(flipped > 0);
            if let Some(count) = self.steps_by_bits.get_mut(media::index(flipped)) {
                *count += 1;
            }
        }
        self.pages += 1;
        self.erased_pages += u64::from(is_erased);
        self.corrected_bits += u64::from(errors.corrected_bits);
        self.failed_steps += u64::from(errors.failed_steps);
        self.failed_pages += u64::from(errors.failed_steps > 0);
        self.rank(errors);
    }

    fn lose(&mut self, range: Range<u64>) {
        match self.lost.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.lost.push(range),
        }
    }

    fn rank(&mut self, errors: PageErrors) {
        let weight = |errors: &PageErrors| (errors.failed_steps, errors.corrected_bits);
        if weight(&errors) == (0, 0) {
            return;
        }
        let place = self
            .worst
            .partition_point(|other| weight(other) >= weight(&errors));
        if place < WORST_MAX {
            self.worst.insert(place, errors);
            self.worst.truncate(WORST_MAX);
        }
    }
}
