//! Lost data as lines.

use std::fmt::Display;

use results::shown;
use ubifs::salvage::Salvage;

use crate::error::ExtractError;

/// Receives a line for the user.
pub type Tell = fn(&str);

/// The hint after losses of a normal reading.
pub const SALVAGE_HINT: &str = "--salvage may get more: it reads all nodes that a scan of the volume finds";

/// Lost data, told as it is found, one line per loss.
#[derive(Debug)]
pub struct Losses {
    tell: Tell,
    count: u64,
    /// Copies of the lines, for a JSON document.
    lines: Vec<String>,
    /// Total length of `lines`.
    bytes: usize,
    /// Path of the file system, in front of those of its files.
    prefix: Vec<u8>,
    /// Number of losses that the medium is not the reason of.
    left_out: u64,
    /// Whether [`SALVAGE_HINT`] is needless.
    pub is_salvaged: bool,
}

/// Maximum number of lines kept for a document.
const LINES_MAX: usize = 10_000;
/// Maximum total length of these lines; paths can be long.
const LINE_BYTES_MAX: usize = 4 << 20;

impl Losses {
    /// None so far.
    #[must_use]
    pub fn new(tell: Tell) -> Self {
        Self {
            tell,
            count: 0,
            lines: Vec::new(),
            bytes: 0,
            prefix: Vec::new(),
            left_out: 0,
            is_salvaged: false,
        }
    }

    /// Losses of a file system that is one of several.
    #[must_use]
    pub fn below(tell: Tell, prefix: &[u8]) -> Self {
        Self {
            prefix: prefix.to_vec(),
            // The commands for several take no `--salvage`.
            is_salvaged: true,
            ..Self::new(tell)
        }
    }

    /// Number of losses.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Number of those that are whole and left out.
    #[must_use]
    pub(crate) const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Whether a salvage may get more: something is damaged.
    #[must_use]
    pub const fn has_damage(&self) -> bool {
        self.count > self.left_out
    }

    /// The lines, unless there were very many.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Tells a line that is no loss.
    pub fn note(&self, line: &str) {
        (self.tell)(&format!("note: {line}"));
    }

    /// Tells and counts a loss.
    pub fn tell(&mut self, path: &[u8], what: &dyn Display) {
        self.count += 1;
        let path = match (self.prefix.is_empty(), path.is_empty()) {
            (true, _) => path.to_vec(),
            (false, true) => self.prefix.clone(),
            (false, false) => [&self.prefix, b"/".as_slice(), path].concat(),
        };
        let line = match path.is_empty() {
            true => what.to_string(),
            false => format!("{}: {what}", shown::name(&path)),
        };
        (self.tell)(&line);
        if self.lines.len() < LINES_MAX && self.bytes < LINE_BYTES_MAX {
            self.bytes += line.len();
            self.lines.push(line);
        }
    }

    /// As [`Self::tell`], for something that is left out although it is whole.
    pub fn leave_out(&mut self, path: &[u8], what: &dyn Display) {
        self.left_out += 1;
        self.tell(path, what);
    }

    /// As [`Self::tell`], for an error.
    pub fn tell_error(&mut self, path: &[u8], error: &ExtractError) {
        self.left_out += u64::from(!error.is_damage());
        self.tell(path, &shown::with_causes(error));
    }
}

/// A line for each guess of a salvage.
#[must_use]
pub fn guess_lines(salvage: &Salvage) -> Vec<String> {
    let mut guesses: Vec<String> = salvage.guesses().iter().map(ToString::to_string).collect();
    if salvage.further_guesses() > 0 {
        guesses.push(format!(
            "{} more guesses are not listed",
            salvage.further_guesses()
        ));
    }
    guesses
}
