//! Output of a trace: a native folder, a file of another tool, or standard output.

use std::io::stdout;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

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

impl FromStr for To {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            Self::NATIVE_WORD => Ok(Self::Native),
            word => word.parse().map(Self::Foreign),
        }
    }
}

impl To {
    /// Name of the native format.
    pub const NATIVE_WORD: &'static str = "native";

    /// The format of a file name's extension.
    #[must_use]
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
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Native => Self::NATIVE_WORD,
            Self::Foreign(format) => format.word(),
        }
    }
}

/// Opens the output; `-` is standard output. `header` holds the facts known so far; an interrupted native trace keeps them.
///
/// # Errors
/// [`WriteError`] when it can't be created.
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
#[must_use]
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
