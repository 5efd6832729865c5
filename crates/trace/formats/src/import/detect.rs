//! Detects the format of a file by its beginning, and opens a reader for it.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use results::words::expected;

use super::alibaba::AlibabaParser;
use super::biotracer::BiotracerParser;
use super::blkparse::BlkparseParser;
use super::blktrace::BlktraceSource;
use super::fio_iolog::FioIologParser;
use super::ftrace::FtraceParser;
use super::json_lines::JsonLinesSource;
use super::lines::{BadLines, Lines, beginning};
use super::most::MostParser;
use super::msr::MsrParser;
use super::pixel_csv::PixelCsvParser;
use super::text_source::{LineParser, TextSource};
use super::{blktrace, json_lines};
use crate::error::ReadError;
use crate::stream::TraceSource;

/// Bytes at the beginning of a file that detection reads.
const HEAD_BYTES: u64 = 64 << 10;

/// A new format of lines needs a file for its parser, and a row here. Detection tries the parsers in this order.
macro_rules! formats {
    (
        others { $($other:ident $other_word:literal $other_description:literal,)+ }
        lines { $($name:ident $word:literal $description:literal $parser:ty,)+ }
    ) => {
        /// A format for reading or writing traces.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Format {
            $(#[doc = $other_description] $other,)+
            $(#[doc = $description] $name,)+
        }

        impl Format {
            /// Every format with its option value and description.
            pub const WORDS: [(Self, &str, &str); [$($other_word,)+ $($word,)+].len()] = [
                $((Self::$other, $other_word, $other_description),)+
                $((Self::$name, $word, $description),)+
            ];

            /// The formats of lines, with their tests.
            const TESTS: [(Self, LineTest); [$($word,)+].len()] = [
                $((Self::$name, <$parser as LineParser>::is_line),)+
            ];

            /// Opens a file of lines; `None` for the other formats.
            fn open_lines(self, whole: Lines, source: String, bad_lines: BadLines) -> Option<Box<dyn TraceSource>> {
                match self {
                    $(Self::$other => None,)+
                    $(Self::$name => Some(Box::new(TextSource::<$parser>::new(whole, source, bad_lines))),)+
                }
            }
        }
    };
}

formats! {
    others {
        Native "native" "folder of Parquet tables",
        Blktrace "blktrace" "binary files of blktrace, one for each processor or merged",
        JsonLines "jsonl" "JSON, one object a line",
    }
    lines {
        FioIolog "fio" "I/O log of fio" FioIologParser,
        Blkparse "blkparse" "text of blkparse" BlkparseParser,
        Most "most" "text of MOST" MostParser,
        Biotracer "biotracer" "eight columns of BIOTracer" BiotracerParser,
        Msr "msr" "CSV of the MSR Cambridge traces" MsrParser,
        Alibaba "alibaba" "CSV of the Alibaba Cloud block traces" AlibabaParser,
        PixelCsv "pixel-csv" "CSV of the Pixel traces" PixelCsvParser,
        Ftrace "ftrace" "text of ftrace, trace-cmd report or perf script" FtraceParser,
    }
}

impl Format {
    /// Its option value.
    #[must_use]
    pub fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(format, _, _)| *format == self);
        found.map_or("unknown", |(_, word, _)| word)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.word())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::WORDS.iter().find(|(_, known, _)| *known == word);
        found.map(|(format, _, _)| *format).ok_or_else(|| {
            let known: Vec<&str> = Self::WORDS.iter().map(|(_, word, _)| *word).collect();
            format!(
                "{word:?} is no format of traces; known are: {}",
                expected(word, &known)
            )
        })
    }
}

/// Options for reading a trace.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// The format, or `None` to detect it.
    pub format: Option<Format>,
    /// Handling of lines that cannot be parsed.
    pub bad_lines: BadLines,
}

/// Opens the trace at `path`, whatever its format.
///
/// # Errors
/// If it cannot be read, or has no known format.
pub fn open(path: &Path, options: ReadOptions) -> Result<Box<dyn TraceSource>, ReadError> {
    #[cfg(feature = "native")]
    if options.format == Some(Format::Native) || (options.format.is_none() && crate::native::is_native(path))
    {
        return Ok(Box::new(crate::native::NativeReader::open(path)?));
    }
    let failed = |source| ReadError::Io {
        path: path.to_owned(),
        source,
    };
    // The files of all processors belong together, and their common name need not be an existing file.
    let is_wanted = options.format == Some(Format::Blktrace);
    let is_one = path.to_string_lossy().contains(".blktrace.");
    let files = blktrace::files_of(path);
    if !files.is_empty() && (is_wanted || options.format.is_none()) && (is_one || !path.exists()) {
        return open_blktrace(&files, path, options);
    }
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Err(ReadError::UnknownFormat {
            path: path.to_owned(),
            found: "a folder without the header of a trace".to_owned(),
        });
    }
    open_reader(Box::new(BufReader::with_capacity(1 << 18, file)), path, options)
}

/// Reads a trace from a stream, such as standard input; `name` is its name for messages.
///
/// # Errors
/// As [`open`]; a native trace is a folder and can't be read from a stream.
pub fn open_reader(
    mut reader: Box<dyn BufRead + Send>,
    name: &Path,
    options: ReadOptions,
) -> Result<Box<dyn TraceSource>, ReadError> {
    let head = read_head(&mut *reader).map_err(|source| ReadError::Io {
        path: name.to_owned(),
        source,
    })?;
    let format = match options.format {
        Some(format) => format,
        None => detect(&head).ok_or_else(|| ReadError::UnknownFormat {
            path: name.to_owned(),
            found: what_is_there(&head),
        })?,
    };
    let whole: Box<dyn BufRead + Send> = Box::new(Cursor::new(head).chain(reader));
    let bad_lines = options.bad_lines;
    let source = format!("{} ({format})", name.display());
    if format == Format::Blktrace {
        let files = vec![(whole, name.to_owned())];
        return Ok(Box::new(BlktraceSource::new(files, source, bad_lines)));
    }
    let lines = Lines::new(whole, name);
    if format == Format::JsonLines {
        return Ok(Box::new(JsonLinesSource::new(lines, source, bad_lines)));
    }
    format
        .open_lines(lines, source, bad_lines)
        .ok_or_else(|| ReadError::UnknownFormat {
            path: name.to_owned(),
            found: "a file, where a native trace is a folder".to_owned(),
        })
}

/// Opens the files of all processors as one source.
fn open_blktrace(
    files: &[PathBuf],
    path: &Path,
    options: ReadOptions,
) -> Result<Box<dyn TraceSource>, ReadError> {
    let mut readers: Vec<(Box<dyn BufRead + Send>, PathBuf)> = Vec::with_capacity(files.len());
    for file in files {
        let reader = File::open(file).map_err(|source| ReadError::Io {
            path: file.clone(),
            source,
        })?;
        readers.push((Box::new(BufReader::with_capacity(1 << 18, reader)), file.clone()));
    }
    let source = format!("{} (blktrace, {} files)", path.display(), files.len());
    Ok(Box::new(BlktraceSource::new(readers, source, options.bad_lines)))
}

fn read_head(reader: &mut dyn BufRead) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    reader.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(head)
}

/// Tests whether a line belongs to a format.
type LineTest = fn(&str) -> bool;

/// Detects the format of a file that begins with `head`.
#[must_use]
pub fn detect(head: &[u8]) -> Option<Format> {
    if blktrace::is_blktrace(head) {
        return Some(Format::Blktrace);
    }
    let text = String::from_utf8_lossy(head);
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.clone().next()?;
    if json_lines::is_head(first) {
        return Some(Format::JsonLines);
    }
    // A few bad lines at the beginning do not prevent detection; the last line may be cut.
    lines.by_ref().take(200).find_map(|line| {
        let found = Format::TESTS.iter().find(|(_, fits)| fits(line));
        found.map(|(format, _)| *format)
    })
}

fn what_is_there(head: &[u8]) -> String {
    let text = String::from_utf8_lossy(head);
    match text.lines().find(|line| !line.trim().is_empty()) {
        None => "nothing".to_owned(),
        Some(line) => format!("`{}`", beginning(line)),
    }
}
