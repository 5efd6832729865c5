//! Where a trace goes: a native folder, a file of another tool, or standard output; one choice for all commands.

use std::io::stdout;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use formats::export::{self, ForeignFormat, Target};
use formats::native::{self, Existing, NativeWriter, TraceId};
use formats::{TraceSink, WriteError};
use results::block_trace::TraceHeader;

/// A format that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// A folder of Parquet tables.
    Native,
    /// That of another tool.
    Foreign(ForeignFormat),
}

impl To {
    const NATIVE_WORD: &'static str = "native";

    /// The format that the end of a name tells.
    pub fn by_name(path: &Path) -> Option<Self> {
        if path
            .extension()
            .is_some_and(|extension| extension == native::EXTENSION)
        {
            return Some(Self::Native);
        }
        ForeignFormat::by_extension(path).map(Self::Foreign)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Native => Self::NATIVE_WORD,
            Self::Foreign(format) => format.word(),
        }
    }
}

/// Reads the word of a format.
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

/// Opens the destination; `header` is what is known of the trace, and what a native one keeps when it is interrupted.
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

/// What `--force` means for a native trace that is there.
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
