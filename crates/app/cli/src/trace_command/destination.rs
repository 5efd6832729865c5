//! Opens the output of a trace: a native folder, a file of another tool, or standard output; shared by all commands.

use std::io::stdout;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use formats::export::{self, ForeignFormat, Target};
use formats::native::{self, Existing, NativeWriter, TraceId};
use formats::{TraceSink, WriteError};
use results::block_trace::TraceHeader;

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// A folder of Parquet tables.
    Native,
    /// A file of another tool.
    Foreign(ForeignFormat),
}

impl To {
    const NATIVE_WORD: &'static str = "native";

    /// The format of a file name's extension.
    pub fn by_name(path: &Path) -> Option<Self> {
        if path
            .extension()
            .is_some_and(|extension| extension == native::EXTENSION)
        {
            return Some(Self::Native);
        }
        ForeignFormat::by_extension(path).map(Self::Foreign)
    }

    /// The format's name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Native => Self::NATIVE_WORD,
            Self::Foreign(format) => format.word(),
        }
    }
}

/// Parses a format name.
pub fn to_parser() -> impl TypedValueParser<Value = To> {
    let native = PossibleValue::new(To::NATIVE_WORD).help("folder of Parquet tables");
    let foreign = ForeignFormat::WORDS.map(|(_, word, _, help)| PossibleValue::new(word).help(help));
    PossibleValuesParser::new(std::iter::once(native).chain(foreign)).try_map(|word| {
        if word == To::NATIVE_WORD {
            Ok(To::Native)
        } else {
            word.parse::<ForeignFormat>().map(To::Foreign)
        }
    })
}

/// Opens the output. `header` holds the facts known so far; an interrupted native trace keeps them.
pub fn create(
    output: &Path,
    to: To,
    header: &TraceHeader,
    existing: Existing,
) -> Result<Box<dyn TraceSink>, WriteError> {
    Ok(match to {
        To::Native => Box::new(NativeWriter::create(output, trace_id(output), header, existing)?),
        To::Foreign(format) if output.as_os_str() == "-" => {
            let target = Target::Stream(Box::new(stdout()), PathBuf::from("standard output"));
            export::create(target, format)?
        }
        To::Foreign(format) => export::create(Target::File(output.to_owned()), format)?,
    })
}

/// The effect of `--force` on an existing native trace.
pub const fn existing(force: bool) -> Existing {
    if force {
        Existing::Replace
    } else {
        Existing::Refuse
    }
}

fn trace_id(output: &Path) -> TraceId {
    let name = output.file_stem().unwrap_or_default().to_string_lossy();
    let made = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TraceId::new(&name, made.as_nanos(), std::process::id())
}
