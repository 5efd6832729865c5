//! The result of an identification, as text and as JSON.

use std::path::Path;

use media::index;
use results::shown;
use serde_json::{Map, Value, json};

use crate::quantity::show_bytes;

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A raw NAND chip without UBI.
    Nand,
    /// A raw NAND chip with UBI.
    Ubi,
    /// A UBIFS volume without UBI.
    Ubifs,
    /// A partition table.
    Disk,
    /// ext2, ext3, ext4 or FAT.
    FileSystem,
    /// The data of a modelled eMMC card.
    EmmcStore,
    /// The description of an eMMC card or its host.
    EmmcCard,
    /// A trace of block requests.
    BlockTrace,
    /// A trace of system calls.
    CallTrace,
    /// A job in TOML.
    Job,
    /// A job of fio.
    FioJob,
    /// Run records.
    Records,
    /// Another output of tidegate: history, side-car, report, picture.
    Output,
    /// A folder of the host.
    Folder,
    /// A known format that no command here reads.
    Foreign,
    /// Only 0xFF.
    Erased,
    /// No bytes.
    Empty,
    /// None of these.
    Unknown,
}

impl Kind {
    /// One word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nand => "nand",
            Self::Ubi => "ubi",
            Self::Ubifs => "ubifs",
            Self::Disk => "disk",
            Self::FileSystem => "file-system",
            Self::EmmcStore => "emmc-store",
            Self::EmmcCard => "emmc-card",
            Self::BlockTrace => "block-trace",
            Self::CallTrace => "call-trace",
            Self::Job => "job",
            Self::FioJob => "fio-job",
            Self::Records => "run-records",
            Self::Output => "output",
            Self::Folder => "folder",
            Self::Foreign => "foreign",
            Self::Erased => "erased",
            Self::Empty => "empty",
            Self::Unknown => "unknown",
        }
    }
}

/// Sizes of the chip or of the volume, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Geometry {
    /// Raw NAND.
    Chip {
        /// Page without OOB.
        page: u32,
        /// Smallest unit of a program.
        subpage: u32,
        /// Block without OOB.
        block: u32,
        /// OOB of a page in the file; 0 if the file has none.
        oob: u32,
        /// Blocks, the last one possibly partial.
        blocks: u64,
        /// Source of these numbers.
        source: &'static str,
    },
    /// A UBIFS volume.
    Volume {
        /// LEB.
        leb: u32,
        /// LEBs.
        lebs: u32,
        /// Smallest unit of a write.
        min_io: u32,
    },
}

/// A volume or a partition.
#[derive(Clone, Debug)]
pub struct Part {
    /// For people.
    pub text: String,
    /// For programs.
    pub value: Value,
}

/// An identified file.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its kind.
    pub kind: Kind,
    /// A noun phrase with its article.
    pub description: String,
    /// Size of the file.
    pub bytes: Option<u64>,
    /// First byte of the format in the file.
    pub offset_bytes: u64,
    /// Sizes.
    pub geometry: Option<Geometry>,
    /// Volumes or partitions.
    pub parts: Vec<Part>,
    /// Damage, truncation and the like.
    pub unusual: Vec<String>,
    /// The next command, with FILE for the file's name.
    pub next: Option<String>,
}

impl Identity {
    /// An identity without details.
    pub fn new(kind: Kind, description: impl Into<String>) -> Self {
        Self {
            kind,
            description: description.into(),
            bytes: None,
            offset_bytes: 0,
            geometry: None,
            parts: Vec::new(),
            unusual: Vec::new(),
            next: None,
        }
    }

    /// The same with a next command; FILE stands for the file's name.
    pub fn then(self, next: impl Into<String>) -> Self {
        Self {
            next: Some(next.into()),
            ..self
        }
    }

    /// The same with a size.
    pub fn with_bytes(self, bytes: u64) -> Self {
        Self {
            bytes: Some(bytes),
            ..self
        }
    }

    fn next_for(&self, path: &Path) -> Option<String> {
        let next = self.next.as_ref()?;
        Some(next.replace("FILE", &quoted(&path.display().to_string())))
    }

    /// One line for the error of a command that needs something else.
    pub fn mismatch(&self, path: &Path, expected: &str) -> String {
        let place = match self.offset_bytes {
            0 => String::new(),
            offset => format!(" at byte {offset}"),
        };
        let next = match self.next_for(path) {
            Some(next) => format!(": use `{next}`"),
            None => String::new(),
        };
        format!("this is {}{place}, not {expected}{next}", self.description)
    }

    /// For programs.
    pub fn as_json(&self, path: &Path) -> Value {
        json!({
            "file": path.display().to_string(),
            "kind": self.kind.word(),
            "description": self.description,
            "bytes": self.bytes,
            "offset_bytes": self.offset_bytes,
            "geometry": self.geometry.map(|geometry| geometry.as_json()),
            "parts": self.parts.iter().map(|part| &part.value).collect::<Vec<_>>(),
            "unusual": self.unusual,
            "next": self.next_for(path),
        })
    }

    /// For people.
    pub fn as_text(&self, path: &Path) -> String {
        let title = format!("{}: {}", path.display(), self.description);
        let mut lines = vec![shown::line(&title).into_owned()];
        let mut line = |name: &str, text: &str| lines.push(format!("  {name:<9} {}", shown::line(text)));
        if let Some(bytes) = self.bytes {
            let exact = match show_bytes(bytes) {
                shown if shown.ends_with(" B") => shown,
                shown => format!("{shown} ({bytes} bytes)"),
            };
            line("size", &exact);
        }
        if self.offset_bytes > 0 {
            line(
                "begins",
                &format!("at byte {} ({:#x})", self.offset_bytes, self.offset_bytes),
            );
        }
        if let Some(geometry) = self.geometry {
            line("geometry", &geometry.as_text());
        }
        for part in &self.parts {
            line("holds", &part.text);
        }
        for unusual in &self.unusual {
            line("unusual", unusual);
        }
        if let Some(next) = self.next_for(path) {
            line("next", &next);
        }
        lines.join("\n")
    }
}

impl Geometry {
    fn as_text(self) -> String {
        let size = |bytes: u32| show_bytes(u64::from(bytes));
        match self {
            Self::Chip {
                page,
                subpage,
                block,
                oob,
                blocks,
                source,
            } => {
                let oob = match oob {
                    0 => "no OOB".to_owned(),
                    oob => format!("{oob} B of OOB a page"),
                };
                format!(
                    "{blocks} blocks of {}, page {}, sub-page {}, {oob} ({source})",
                    size(block),
                    size(page),
                    size(subpage)
                )
            }
            Self::Volume { leb, lebs, min_io } => {
                format!("{lebs} LEBs of {}, smallest write {}", size(leb), size(min_io))
            }
        }
    }

    fn as_json(self) -> Value {
        let pairs = match self {
            Self::Chip {
                page,
                subpage,
                block,
                oob,
                blocks,
                source,
            } => vec![
                ("page_bytes", json!(page)),
                ("subpage_bytes", json!(subpage)),
                ("block_bytes", json!(block)),
                ("oob_bytes", json!(oob)),
                ("blocks", json!(blocks)),
                ("source", json!(source)),
            ],
            Self::Volume { leb, lebs, min_io } => vec![
                ("leb_bytes", json!(leb)),
                ("lebs", json!(lebs)),
                ("min_io_bytes", json!(min_io)),
            ],
        };
        let pairs = pairs.into_iter().map(|(name, value)| (name.to_owned(), value));
        Value::Object(pairs.collect::<Map<_, _>>())
    }
}

/// A word for a shell.
pub fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=:,@%".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Bytes of the last block of a truncated image, and those it should have; `None` if it is whole.
pub fn partial_block(file_bytes: u64, stride: u64) -> Option<(u64, u64)> {
    let rest = file_bytes.checked_rem(stride)?;
    (rest > 0).then_some((rest, stride))
}

/// Bytes of a block in the file.
pub fn stride(page: u32, block: u32, oob: u32) -> u64 {
    let pages = u64::try_from(index(block) / index(page.max(1))).unwrap_or(u64::MAX);
    pages.saturating_mul(u64::from(page) + u64::from(oob))
}
