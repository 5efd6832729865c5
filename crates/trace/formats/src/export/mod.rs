//! Writers of other tools' formats.
//!
//! Each is a [`TraceSink`] over any stream. Data that a format can't represent is left out and counted in
//! [`Written`](crate::Written).

mod blkparse;
mod fio_iolog;
mod json_lines;
mod most;
mod output;
mod perfetto;
mod protobuf;
mod timeline;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use results::words::expected;

use self::blkparse::BlkparseText;
use self::fio_iolog::FioIologWriter;
use self::json_lines::JsonLinesWriter;
use self::most::MostText;
use self::output::Output;
use self::perfetto::PerfettoWriter;
use self::timeline::StepWriter;
use crate::error::WriteError;
use crate::stream::TraceSink;

pub use output::Target;

/// A format for writing traces, apart from the native one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForeignFormat {
    /// Text of blkparse.
    Blkparse,
    /// Text of MOST.
    Most,
    /// I/O log of fio, version 2.
    FioIolog2,
    /// I/O log of fio, version 3.
    FioIolog3,
    /// Protocol buffers of Perfetto.
    Perfetto,
    /// JSON, one object per line.
    JsonLines,
}

impl ForeignFormat {
    /// Every format with its option value, customary file extension, and description.
    pub const WORDS: [(Self, &'static str, &'static str, &'static str); 6] = [
        (
            Self::Blkparse,
            "blkparse",
            "blkparse",
            "text of blkparse, for iowatcher, btt's kin and scripts",
        ),
        (Self::Most, "most", "po", "text of MOST"),
        (
            Self::FioIolog3,
            "fio",
            "iolog",
            "I/O log of fio, version 3, with times, for replay",
        ),
        (
            Self::FioIolog2,
            "fio2",
            "iolog2",
            "I/O log of fio, version 2, with waits",
        ),
        (
            Self::Perfetto,
            "perfetto",
            "pftrace",
            "protocol buffers for the UI of Perfetto",
        ),
        (Self::JsonLines, "jsonl", "jsonl", "JSON, one object a line"),
    ];

    /// The format with the file extension of `path`.
    #[must_use]
    pub fn by_extension(path: &Path) -> Option<Self> {
        let extension = path.extension()?;
        let found = Self::WORDS.iter().find(|(_, _, known, _)| extension == *known);
        found.map(|(format, _, _, _)| *format)
    }

    /// Its option value.
    #[must_use]
    pub fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(format, _, _, _)| *format == self);
        found.map_or("unknown", |(_, word, _, _)| word)
    }
}

impl fmt::Display for ForeignFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.word())
    }
}

impl FromStr for ForeignFormat {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::WORDS.iter().find(|(_, known, _, _)| *known == word);
        found.map(|(format, _, _, _)| *format).ok_or_else(|| {
            let known: Vec<&str> = Self::WORDS.iter().map(|(_, word, _, _)| *word).collect();
            format!(
                "{word:?} is no format that traces are written in; known are: {}",
                expected(word, &known)
            )
        })
    }
}

/// Creates a writer of `format` to `target`.
///
/// # Errors
/// If the file cannot be created.
pub fn create(target: Target, format: ForeignFormat) -> Result<Box<dyn TraceSink>, WriteError> {
    let output = Output::create(target)?;
    Ok(match format {
        ForeignFormat::Blkparse => Box::new(StepWriter::new(BlkparseText::default(), output)),
        ForeignFormat::Most => Box::new(StepWriter::new(MostText, output)),
        ForeignFormat::FioIolog2 => Box::new(FioIologWriter::version_2(output)),
        ForeignFormat::FioIolog3 => Box::new(FioIologWriter::version_3(output)),
        ForeignFormat::Perfetto => Box::new(PerfettoWriter::new(output)),
        ForeignFormat::JsonLines => Box::new(JsonLinesWriter::new(output)),
    })
}
