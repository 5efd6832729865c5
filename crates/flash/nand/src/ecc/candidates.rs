//! Layouts to try, grouped by code.
//!
//! There are more than 6000 for a dump of which nothing is known. A candidate is stored as its place in the table of
//! layouts, in 6 bytes; its layout is made when it is tried.

use super::find::{Choice, FindOptions};
use super::layout::{Code, Layout};
use super::spec::{Shape, SpecError};
use super::table::{FAMILIES, Family, shapes};

/// Source of layouts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin<'a> {
    Family(&'static Family),
    /// The text of a layout.
    Spec(&'a str),
}

/// A layout: its number among those that an origin has for a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    origin: u8,
    shape: u8,
    number: u16,
}

/// All layouts to try.
#[derive(Debug)]
pub(super) struct Candidates<'a> {
    origins: Vec<Origin<'a>>,
    shapes: Vec<Shape>,
    /// Each code, and the end of its candidates in `members`.
    codes: Vec<(Code, usize)>,
    members: Vec<Candidate>,
}

impl Origin<'_> {
    /// Its layouts of a page, those that no page can have among them.
    fn layouts(self, shape: Shape) -> Vec<Layout> {
        match self {
            Self::Family(family) => (family.layouts)(shape),
            Self::Spec(text) => Layout::parse(text, Some(shape)).into_iter().collect(),
        }
    }

    pub(super) fn family(self) -> Option<&'static str> {
        match self {
            Self::Family(family) => Some(family.name),
            Self::Spec(_) => None,
        }
    }
}

impl<'a> Candidates<'a> {
    pub(super) fn new(options: &'a FindOptions) -> Result<Self, SpecError> {
        let mut shapes = shapes_of(options);
        let origins = match &options.choice {
            Choice::Auto => FAMILIES.iter().map(Origin::Family).collect(),
            Choice::Family(name) => Family::named(name).map(Origin::Family).into_iter().collect(),
            Choice::Spec(text) => {
                shapes = shapes_of_text(text, shapes)?;
                vec![Origin::Spec(text)]
            }
        };
        let mut candidates = Self {
            origins,
            shapes,
            codes: Vec::new(),
            members: Vec::new(),
        };
        let mut found: Vec<(u16, Candidate)> = Vec::with_capacity(candidates.each(&mut |_, _| {}));
        let mut codes: Vec<Code> = Vec::new();
        candidates.each(&mut |candidate, layout| {
            let known = codes.iter().position(|code| *code == layout.code);
            let code = known.unwrap_or_else(|| {
                codes.push(layout.code);
                codes.len() - 1
            });
            found.extend(u16::try_from(code).ok().map(|code| (code, candidate)));
        });
        found.sort_unstable();
        candidates.members = found.iter().map(|(_, candidate)| *candidate).collect();
        let end = |code: usize| found.partition_point(|(other, _)| usize::from(*other) <= code);
        candidates.codes = codes
            .iter()
            .enumerate()
            .map(|(number, code)| (*code, end(number)))
            .collect();
        Ok(candidates)
    }

    /// Calls `visit` with each layout that a page can have; returns their number.
    fn each(&self, visit: &mut dyn FnMut(Candidate, &Layout)) -> usize {
        let mut count = 0;
        for (origin, from) in (0..).zip(&self.origins) {
            for (shape, sizes) in (0..).zip(&self.shapes) {
                for (number, layout) in (0..).zip(from.layouts(*sizes)) {
                    if layout.map().is_ok() {
                        count += 1;
                        visit(
                            Candidate {
                                origin,
                                shape,
                                number,
                            },
                            &layout,
                        );
                    }
                }
            }
        }
        count
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// The codes, each with its candidates.
    pub(super) fn by_code(&self) -> impl Iterator<Item = (Code, &[Candidate])> {
        let mut start = 0;
        self.codes.iter().map(move |(code, end)| {
            let members = &self.members[start..*end];
            start = *end;
            (*code, members)
        })
    }

    /// The layouts of candidates, which follow each other in their order.
    pub(super) fn layouts<'b>(
        &'b self,
        members: &'b [Candidate],
    ) -> impl Iterator<Item = (Candidate, Origin<'a>, Layout)> + 'b {
        let is_of_one_page =
            |one: &Candidate, other: &Candidate| (one.origin, one.shape) == (other.origin, other.shape);
        members.chunk_by(is_of_one_page).flat_map(|of_page| {
            let first = of_page[0];
            let origin = self.origins[usize::from(first.origin)];
            let mut layouts: Vec<Option<Layout>> = origin
                .layouts(self.shapes[usize::from(first.shape)])
                .into_iter()
                .map(Some)
                .collect();
            of_page
                .iter()
                .filter_map(|candidate| {
                    let layout = layouts.get_mut(usize::from(candidate.number))?.take()?;
                    Some((*candidate, origin, layout))
                })
                .collect::<Vec<_>>()
        })
    }
}

/// The sizes of pages that are known or tried.
fn shapes_of(options: &FindOptions) -> Vec<Shape> {
    let mut shapes: Vec<Shape> = match (options.page_bytes, options.oob_bytes) {
        (Some(page_bytes), Some(oob_bytes)) => vec![Shape {
            page_bytes,
            oob_bytes,
        }],
        _ => shapes().collect(),
    };
    shapes.retain(|shape| {
        let raw_bytes = u64::from(shape.page_bytes) + u64::from(shape.oob_bytes);
        options.page_bytes.is_none_or(|bytes| bytes == shape.page_bytes)
            && options.oob_bytes.is_none_or(|bytes| bytes == shape.oob_bytes)
            && options
                .block_bytes
                .is_none_or(|block| block.is_multiple_of(raw_bytes))
    });
    shapes
}

/// Those of `shapes` that the text of a layout fits, or the one in the text.
fn shapes_of_text(text: &str, mut shapes: Vec<Shape>) -> Result<Vec<Shape>, SpecError> {
    let (page_bytes, oob_bytes) = Layout::sizes_in(text)?;
    if let (Some(page_bytes), Some(oob_bytes)) = (page_bytes, oob_bytes) {
        Layout::parse(text, None)?;
        return Ok(vec![Shape {
            page_bytes,
            oob_bytes,
        }]);
    }
    shapes.retain(|shape| page_bytes.is_none_or(|bytes| bytes == shape.page_bytes));
    shapes.retain(|shape| oob_bytes.is_none_or(|bytes| bytes == shape.oob_bytes));
    let mut failure = None;
    shapes.retain(|shape| match Layout::parse(text, Some(*shape)) {
        Ok(_) => true,
        Err(error) => {
            failure.get_or_insert(error);
            false
        }
    });
    match failure {
        Some(error) if shapes.is_empty() => Err(error),
        None if shapes.is_empty() => Layout::parse(text, None).map(|_| shapes),
        _ => Ok(shapes),
    }
}
