//! The trace that a command reads: a file, a folder or standard input, with a progress bar.

use std::fs;
use std::io::{BufReader, IsTerminal, stderr, stdin};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use formats::native::StoredHeader;
use formats::{BadLines, Format, ReadError, ReadOptions, Skipped, TraceSource};
use indicatif::{ProgressBar, ProgressStyle};

use crate::inspect::{BLOCK_TRACES, not_understood};
use crate::output;

/// Number of items between two updates of the bar.
const ITEMS_A_TICK: u64 = 4096;

/// The trace to read, and its format.
#[derive(Args, Debug)]
pub struct InputArguments {
    /// The trace: a native folder (or a table in one), a file of another tool, or - for standard input
    #[arg(value_name = "TRACE")]
    pub input: PathBuf,
    /// Format of the trace [default: detected from its beginning]
    #[arg(long, value_name = "FORMAT", value_parser = format_parser())]
    pub from: Option<Format>,
    /// Stop at the first unreadable line instead of skipping it
    #[arg(long)]
    pub strict: bool,
}

fn format_parser() -> impl TypedValueParser<Value = Format> {
    let words = Format::WORDS.map(|(_, word, help)| PossibleValue::new(word).help(help));
    PossibleValuesParser::new(words).try_map(|word| word.parse::<Format>())
}

impl InputArguments {
    /// Opens the trace.
    pub fn open(&self) -> Result<Box<dyn TraceSource>> {
        let options = ReadOptions {
            format: self.from,
            bad_lines: if self.strict {
                BadLines::Refuse
            } else {
                BadLines::Skip
            },
        };
        Ok(if self.is_stdin() {
            let reader = Box::new(BufReader::with_capacity(1 << 18, stdin()));
            formats::open_reader(reader, Path::new("standard input"), options)?
        } else {
            formats::open(&self.input, options).map_err(|error| explained(&self.input, error))?
        })
    }

    /// Returns true for standard input.
    pub fn is_stdin(&self) -> bool {
        self.input.as_os_str() == "-"
    }

    /// A bar over the length of the trace, shown only if standard error is a terminal and the length is known.
    pub fn bar(&self) -> Bar {
        let length = if self.is_stdin() {
            None
        } else if formats::native::is_native(&self.input) {
            StoredHeader::of(&self.input)
                .map(|header| header.counts.requests)
                .ok()
        } else {
            fs::metadata(&self.input).ok().map(|metadata| metadata.len())
        };
        Bar::new(length)
    }
}

/// The error about a file: the kind of a file that is no trace.
pub fn explained(path: &Path, error: ReadError) -> anyhow::Error {
    match error {
        ReadError::UnknownFormat { .. } => {
            not_understood(path, "a trace of block requests", &BLOCK_TRACES, error.into())
        }
        error => error.into(),
    }
}

/// Progress of reading a trace.
pub struct Bar {
    bar: ProgressBar,
    items: u64,
}

impl Bar {
    fn new(length: Option<u64>) -> Self {
        let style = ProgressStyle::with_template("[{bar:40}] {percent:>3} %  {elapsed_precise}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = match length.filter(|_| stderr().is_terminal()) {
            Some(length) => ProgressBar::new(length).with_style(style),
            None => ProgressBar::hidden(),
        };
        Self { bar, items: 0 }
    }

    /// Counts one item.
    pub fn step(&mut self, position: u64) {
        self.items += 1;
        if self.items.is_multiple_of(ITEMS_A_TICK) {
            self.bar.set_position(position);
        }
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// Prints the skipped lines to standard error.
pub fn describe_skipped(skipped: &Skipped) {
    if skipped.count == 0 {
        return;
    }
    output::print_error(&format!(
        "{} lines or records could not be read and are left out:",
        skipped.count
    ));
    for line in &skipped.first {
        output::print_error(&format!(
            "{}: expected {}, found `{}`",
            line.place, line.expected, line.found
        ));
    }
}

/// The skipped lines as JSON.
pub fn skipped_json(skipped: &Skipped) -> serde_json::Value {
    let first: Vec<_> = skipped
        .first
        .iter()
        .map(|line| {
            let (word, number) = (line.place.word(), line.place.number());
            serde_json::json!({word: number, "expected": line.expected, "found": line.found})
        })
        .collect();
    serde_json::json!({"count": skipped.count, "first": first})
}
