//! The layout of a dump, by trial.
//!
//! Known layouts, or those of a family or a text, are tried on steps of programmed pages that are spread over the dump.
//! Each match weighs as much as it is improbable: a fitting parity of n bits by 2^-n, one after a correction of e bits by
//! that times the number of ways to choose them. A layout is found if most steps match and an accident, over all trials,
//! is less probable than 2^-[`EVIDENCE_BITS_MIN`].
//!
//! The first pass computes parities only, which suffices if some steps are free of errors. If no layout fits then, the
//! second pass decodes. Two threads work, on codes over the same field, whose tables they share. The code doesn't tell whether a byte was exchanged for a bad-block mark; the
//! exchange is assumed if the mark reads as 0xFF on nearly all pages.

use std::cmp::Ordering;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicUsize};
use std::thread;

use thiserror::Error;

use super::bch::WORDS_MAX;
use super::candidates::{Candidate, Candidates, Origin};
use super::decoder::{Decoder, Scratch};
use super::field::Field;
use super::layout::{Code, Codec, Layout, Placement, choices_log2};
use super::samples::Samples;
use super::source::Source;
use super::spec::SpecError;
use super::table::Family;

/// Bits of evidence for a layout, at least.
pub const EVIDENCE_BITS_MIN: f64 = 48.0;
/// Steps that the first pass looks at, and the second one before it gives a layout up.
const FIRST_STEPS: usize = 16;
const DECODED_STEPS: usize = 8;
/// The latter for codes of [`STRONG`] and more bits, whose decoding takes long and whose matches are certain.
const STRONG_STEPS: usize = 4;
const STRONG: u32 = 16;
/// Steps that decide.
const STEPS_MAX: usize = 192;
/// Share of pages whose bad-block mark may be something else than 0xFF, in percent.
const MARKED_PERCENT_MAX: usize = 10;

/// Which layouts are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// All known ones.
    Auto,
    /// Those of [`Family::named`].
    Family(&'static str),
    /// The one of this text, with all known sizes of pages unless it has them.
    Spec(String),
}

impl Choice {
    /// Reads `auto`, the name of a family, or the text of a layout.
    ///
    /// # Errors
    /// If the text is none of them.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        if let Some(family) = Family::named(text) {
            return Ok(Self::Family(family.name));
        }
        if let (Some(_), Some(_)) = Layout::sizes_in(text)? {
            Layout::parse(text, None)?;
        }
        Ok(Self::Spec(text.to_owned()))
    }
}

/// A question to [`find`].
#[derive(Clone, Debug)]
pub struct FindOptions {
    /// Bytes of the dump to look at; the first one begins a page.
    pub range: Range<u64>,
    /// Bytes of a page, if they are known.
    pub page_bytes: Option<u32>,
    /// Bytes of an OOB area, if they are known.
    pub oob_bytes: Option<u32>,
    /// Bytes of a block with its OOB areas, if they are known: pages that do not divide it are not tried.
    pub block_bytes: Option<u64>,
    /// Layouts to try.
    pub choice: Choice,
}

/// The layout of a dump.
#[derive(Clone, Debug)]
pub struct Found {
    /// The layout.
    pub layout: Layout,
    /// Its family, unless it was given as text.
    pub family: Option<&'static str>,
    /// Sampled pages.
    pub pages: usize,
    /// Sampled steps whose content says something.
    pub steps: usize,
    /// Those without a wrong bit.
    pub clean: usize,
    /// Those that could be corrected.
    pub corrected: usize,
    /// Layouts tried.
    pub tried: usize,
    /// The evidence: an accident has the probability 2^-this.
    pub evidence_bits: f64,
}

/// No layout was found.
#[derive(Debug, Error)]
pub enum FindError {
    /// The dump can't be read.
    #[error("the dump can't be read: {0}")]
    Read(#[from] io::Error),
    /// The dump is empty or erased.
    #[error("no programmed page was found in {bytes} bytes; the layout of erased pages can't be told")]
    NothingWritten {
        /// Bytes looked at.
        bytes: u64,
    },
    /// The text of a layout fits no page.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// No layout fits.
    #[error(
        "none of {tried} layouts fits: {pages} programmed places were tried{}; the dump may have no OOB areas, be \
         scrambled or begin inside a page, or its controller is unknown: give the layout as text",
        best.as_ref().map(|best| format!(
            ", and the best layout ({}) fits only {} of {} steps", best.layout, best.clean + best.corrected, best.steps
        )).unwrap_or_default()
    )]
    NotFound {
        /// Layouts tried.
        tried: usize,
        /// Programmed places looked at.
        pages: usize,
        /// The layout that comes nearest, if any has more evidence than an accident.
        best: Option<Box<Found>>,
    },
}

/// Finds the layout of a dump.
///
/// # Errors
/// If the dump can't be read, holds nothing, or no layout fits.
pub fn find(source: &(impl Source + ?Sized), options: &FindOptions) -> Result<Found, FindError> {
    let candidates = Candidates::new(options)?;
    let samples = Samples::take(source, options.range.clone())?;
    if samples.len() == 0 {
        let bytes = options.range.end.saturating_sub(options.range.start);
        return Err(FindError::NothingWritten { bytes });
    }
    let mut best = trial(&samples, &candidates, Pass::Clean);
    if !best.as_ref().is_some_and(Found::is_certain) {
        let second = trial(&samples, &candidates, Pass::Decoded);
        best = [best, second].into_iter().flatten().reduce(better);
    }
    match best {
        Some(found) if found.is_certain() => Ok(found),
        best => Err(FindError::NotFound {
            tried: candidates.len(),
            pages: samples.len(),
            best: best.map(Box::new),
        }),
    }
}

impl Found {
    fn is_certain(&self) -> bool {
        let matched = self.clean + self.corrected;
        matched * 2 > self.steps && self.evidence_bits >= EVIDENCE_BITS_MIN
    }

    /// Without the share of the choice among layouts, which is the same for all.
    fn evidence_of_step(&self) -> f64 {
        let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        (self.evidence_bits + number(self.tried).log2()) / number(self.matched().max(1))
    }

    fn matched(&self) -> usize {
        self.clean + self.corrected
    }
}

/// The better of two layouts; the first one if they are equal.
///
/// The word of a strong code is also one of each weaker code over the same field, so of two that match alike the one
/// with more evidence in each step is right. A page of half the size has the same data, except for exchanged bytes.
fn better(one: Found, other: Found) -> Found {
    match (one.is_certain(), other.is_certain()) {
        (true, false) => return one,
        (false, true) => return other,
        _ => {}
    }
    // Shares of matched steps, without division.
    let (left, right) = (one.matched() * other.steps, other.matched() * one.steps);
    let exchanges = |found: &Found| matches!(found.layout.placement, Placement::Inline { swap: Some(_), .. });
    let is_other_better = match left.cmp(&right) {
        Ordering::Less => true,
        Ordering::Greater => false,
        Ordering::Equal => {
            let gain = other.evidence_of_step() - one.evidence_of_step();
            // A page of many steps may match in a dump that holds few of them.
            let has_more = |one: &Found, other: &Found| one.matched() * 2 > other.matched() * 3;
            let is_preferred = exchanges(&other) && !exchanges(&one) && !has_more(&one, &other);
            gain > 2.0 || (gain > -2.0 && (has_more(&other, &one) || is_preferred))
        }
    };
    if is_other_better { other } else { one }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Only layouts with a step that is free of errors.
    Clean,
    /// All, as long as one of the first steps matches.
    Decoded,
    /// All steps of a layout that is worth it.
    Full,
}

/// The best layout of one pass.
fn trial(samples: &Samples, candidates: &Candidates<'_>, pass: Pass) -> Option<Found> {
    let mut codes: Vec<(Code, &[Candidate])> = candidates.by_code().collect();
    let field = |code: Code| match code {
        Code::Hamming(_) => None,
        Code::Bch {
            field, polynomial, ..
        } => Some((field, polynomial)),
    };
    codes.sort_by_key(|(code, _)| field(*code));
    let mut found: Vec<(Candidate, Found)> = codes
        .chunk_by(|one, other| field(one.0) == field(other.0))
        .flat_map(|codes| trial_of_field(samples, candidates, codes, pass))
        .collect();
    found.sort_by_key(|(candidate, _)| *candidate);
    found.into_iter().map(|(_, result)| result).reduce(better)
}

/// The fitting layouts of codes over one field, by two threads.
fn trial_of_field(
    samples: &Samples,
    candidates: &Candidates<'_>,
    codes: &[(Code, &[Candidate])],
    pass: Pass,
) -> Vec<(Candidate, Found)> {
    let field = codes.first().and_then(|(code, _)| code.field());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        while let Some((_, members)) = codes.get(next.fetch_add(1, atomic::Ordering::Relaxed)) {
            found.extend(trial_of_code(samples, candidates, (&field, members), pass));
        }
        found
    };
    thread::scope(|scope| {
        let other = (codes.len() > 1).then(|| scope.spawn(work));
        let mut found = work();
        match other.map(thread::ScopedJoinHandle::join) {
            Some(Ok(more)) => found.extend(more),
            // The panic continues in the thread that asked for the work.
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => {}
        }
        found
    })
}

/// The fitting layouts of one code, whose tables are held meanwhile.
fn trial_of_code(
    samples: &Samples,
    candidates: &Candidates<'_>,
    (field, members): (&Option<Arc<Field>>, &[Candidate]),
    pass: Pass,
) -> Vec<(Candidate, Found)> {
    let mut found = Vec::new();
    let mut codec: Option<Codec> = None;
    for (candidate, origin, layout) in candidates.layouts(members) {
        let Ok(map) = layout.map() else { continue };
        let bits = map.message_bits_max();
        // Hamming codes depend on the step; their tables are small.
        let tables = match (&codec, layout.code) {
            (Some(tables), Code::Bch { .. }) if tables.fits(bits) => Some(tables.clone()),
            _ => layout.codec_over(field.clone(), bits).ok(),
        };
        let Some(tables) = tables else { continue };
        codec = Some(tables.clone());
        let Ok(decoder) = Decoder::with_codec(&layout, map, tables) else {
            continue;
        };
        if let Some(mut result) = evaluate(samples, (origin, &layout), &decoder, pass) {
            result.tried = candidates.len();
            result.evidence_bits -= f64::from(u32::try_from(candidates.len()).unwrap_or(u32::MAX)).log2();
            // The others are accidents, of which short codes have hundreds.
            if result.evidence_bits >= EVIDENCE_BITS_MIN {
                found.push((candidate, result));
            }
        }
    }
    found
}

/// Steps of the sampled pages, one step of each page after the other.
fn steps<'a>(decoder: &'a Decoder, pages: &'a [&'a [u8]]) -> impl Iterator<Item = (&'a [u8], usize)> {
    let count = decoder.steps().len();
    (0..count).flat_map(move |turn| {
        pages
            .iter()
            .enumerate()
            .map(move |(number, page)| (*page, (turn + number) % count))
    })
}

fn evaluate(
    samples: &Samples,
    (origin, layout): (Origin<'_>, &Layout),
    decoder: &Decoder,
    pass: Pass,
) -> Option<Found> {
    let pages = samples.pages(layout.raw_bytes());
    let mut scratch = Scratch::default();
    let tried_steps = match decoder.strength() < STRONG {
        true => DECODED_STEPS,
        false => STRONG_STEPS,
    };
    let (mut telling, mut clean, mut corrected, mut evidence) = (0_usize, 0_usize, 0_usize, 0.0_f64);
    for (page, number) in steps(decoder, &pages) {
        let step = &decoder.steps()[number];
        decoder.gather(page, step, &mut scratch);
        if !Decoder::is_telling(&scratch, step) {
            continue;
        }
        telling += 1;
        let word_bits = step.message_bits + layout.code.parity_bits();
        let difference = decoder.difference(&scratch);
        if difference == [0; WORDS_MAX] {
            clean += 1;
            evidence -= layout.code.accident_log2(word_bits, 0);
        } else if pass != Pass::Clean
            && let Some(wrong) = decoder.locate(&difference, step)
        {
            corrected += 1;
            let errors = u32::try_from(wrong.len()).unwrap_or(u32::MAX);
            evidence -= layout.code.accident_log2(word_bits, errors);
        }
        if pass == Pass::Clean && clean > 0 {
            return evaluate(samples, (origin, layout), decoder, Pass::Full);
        }
        let gives_up = match pass {
            Pass::Full => false,
            Pass::Clean => telling >= FIRST_STEPS,
            Pass::Decoded => telling >= tried_steps && clean + corrected == 0,
        };
        if gives_up {
            return None;
        }
        if telling == STEPS_MAX {
            break;
        }
    }
    let matched = clean + corrected;
    if matched == 0 {
        return None;
    }
    let mut layout = layout.clone();
    if origin.family().is_some()
        && is_exchange_refuted(&layout, &pages)
        && let Placement::Inline { swap, .. } = &mut layout.placement
    {
        *swap = None;
    }
    Some(Found {
        layout,
        family: origin.family(),
        pages: pages.len(),
        steps: telling,
        clean,
        corrected,
        tried: 0,
        evidence_bits: evidence - choices_log2(telling, matched),
    })
}

/// Whether the byte that would be a bad-block mark is something else on too many pages.
fn is_exchange_refuted(layout: &Layout, pages: &[&[u8]]) -> bool {
    let Placement::Inline {
        swap: Some((mark, _)),
        ..
    } = layout.placement
    else {
        return false;
    };
    let other = |page: &&&[u8]| {
        page.get(media::index(mark))
            .is_some_and(|byte| byte.count_zeros() > 2)
    };
    pages.iter().filter(other).count() * 100 > pages.len() * MARKED_PERCENT_MAX
}
