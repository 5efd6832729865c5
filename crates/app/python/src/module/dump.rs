//! `Dump` and `Content`.

use std::path::PathBuf;
use std::sync::Arc;

use image::{BareVolume, EccHint, Finding, Hints, Part, Partition, Severity, Survey, Volume, survey};
use nand::ecc::Choice;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ubi::format::VolumeKind;
use ubifs::MasterKey;

use super::guard::{exception, fill, without_gil};
use super::source::Source;
use super::tree::Tree;
use crate::failure::{Class, Failure};
use crate::{content, tree};

/// A finding, as a dictionary.
#[derive(IntoPyObject)]
pub struct FindingRow {
    severity: &'static str,
    kind: &'static str,
    offset: Option<u64>,
    volume: Option<String>,
    leb: Option<u32>,
    leb_offset: Option<u32>,
    inode: Option<u32>,
    message: String,
}

const fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Loss => "loss",
    }
}

impl From<&Finding> for FindingRow {
    fn from(finding: &Finding) -> Self {
        Self {
            severity: severity_name(finding.severity()),
            kind: finding.what.kind(),
            offset: finding.at,
            volume: finding.volume.clone(),
            leb: None,
            leb_offset: None,
            inode: None,
            message: finding.to_string(),
        }
    }
}

impl From<&tree::Note> for FindingRow {
    fn from(note: &tree::Note) -> Self {
        Self {
            severity: severity_name(note.severity),
            kind: note.kind,
            offset: None,
            volume: None,
            leb: note.place.map(|place| place.0),
            leb_offset: note.place.map(|place| place.1),
            inode: note.inode,
            message: note.text.clone(),
        }
    }
}

fn findings(all: &[Finding]) -> Vec<FindingRow> {
    all.iter().map(FindingRow::from).collect()
}

/// A volume, as a dictionary.
#[derive(IntoPyObject)]
struct VolumeRow {
    number: u32,
    name: Vec<u8>,
    kind: &'static str,
    content: &'static str,
    leb_size: u32,
    lebs: u32,
    mapped: Vec<(u32, u64)>,
    findings: Vec<FindingRow>,
}

impl From<&Volume> for VolumeRow {
    fn from(volume: &Volume) -> Self {
        Self {
            number: volume.number,
            name: volume.name(),
            kind: match volume.kind {
                VolumeKind::Static => "static",
                VolumeKind::Dynamic => "dynamic",
            },
            content: volume.content.name(),
            leb_size: volume.leb_bytes,
            lebs: volume.lebs,
            mapped: volume.mapped().map(|(leb, at)| (leb.0, at)).collect(),
            findings: findings(&volume.findings),
        }
    }
}

/// Numbers of blocks, as a dictionary.
#[derive(IntoPyObject)]
struct BlocksRow {
    used: usize,
    layout: usize,
    internal: usize,
    free: usize,
    erased: usize,
    damaged: usize,
    other: usize,
}

/// A partition or a bare volume, as a dictionary.
#[derive(IntoPyObject)]
struct PartRow {
    kind: &'static str,
    image_sequence: Option<u32>,
    offset: u64,
    size: u64,
    page_size: Option<u32>,
    oob_size: Option<u32>,
    block_size: Option<u32>,
    leb_size: u32,
    missing: u64,
    blocks: Option<BlocksRow>,
    gaps: Vec<(u64, u64)>,
    volumes: Vec<VolumeRow>,
    findings: Vec<FindingRow>,
}

impl From<&Partition> for PartRow {
    fn from(partition: &Partition) -> Self {
        let (shape, counts) = (&partition.shape, &partition.counts);
        Self {
            kind: "ubi",
            image_sequence: Some(partition.image_sequence),
            offset: partition.offset,
            size: partition.bytes,
            page_size: Some(shape.page_bytes),
            oob_size: Some(shape.oob_bytes),
            block_size: Some(shape.block_bytes),
            leb_size: shape.block_bytes.saturating_sub(shape.data_offset),
            missing: 0,
            blocks: Some(BlocksRow {
                used: counts.used,
                layout: counts.layout,
                internal: counts.internal,
                free: counts.free,
                erased: counts.erased,
                damaged: counts.damaged,
                other: counts.other,
            }),
            gaps: partition.gaps.clone(),
            volumes: partition.volumes.iter().map(VolumeRow::from).collect(),
            findings: findings(&partition.findings),
        }
    }
}

impl From<&BareVolume> for PartRow {
    fn from(bare: &BareVolume) -> Self {
        Self {
            kind: "ubifs",
            image_sequence: None,
            offset: bare.offset,
            size: bare.bytes,
            page_size: None,
            oob_size: None,
            block_size: None,
            leb_size: bare.superblock.leb_bytes,
            missing: bare.missing_bytes,
            blocks: None,
            gaps: Vec::new(),
            volumes: Vec::new(),
            findings: Vec::new(),
        }
    }
}

/// An area that belongs to no part, as a dictionary.
#[derive(IntoPyObject)]
struct AreaRow {
    offset: u64,
    size: u64,
    is_erased: bool,
}

/// Offset and length of the part to look at, and sizes that the headers do not tell.
#[derive(FromPyObject)]
pub struct View {
    offset: u64,
    length: Option<u64>,
    page: Option<u32>,
    block: Option<u32>,
    oob: Option<u32>,
    ecc: String,
}

impl View {
    fn hints(&self) -> Result<Hints, &'static str> {
        let ecc = match self.ecc.as_str() {
            "auto" => EccHint::Find,
            "none" => EccHint::Ignore,
            text => EccHint::Given(Choice::parse(text).map_err(|_| "ecc names no layout")?),
        };
        Ok(Hints {
            page_bytes: self.page,
            block_bytes: self.block,
            oob_bytes: self.oob,
            ecc,
        })
    }
}

/// A surveyed dump.
#[pyclass(frozen, module = "tidegate._core")]
pub struct Dump {
    dump: Arc<image::Dump>,
    survey: Arc<Survey>,
}

impl Dump {
    fn surveyed(dump: image::Dump, view: &View) -> Result<Self, Failure> {
        let name = dump.name();
        let argument = |error: &dyn std::fmt::Display| Failure::new(Class::Argument, &name, error, "");
        let layouts = "`tidegate nand ecc --list` has the known ones";
        let hints = view.hints();
        let hints = hints.map_err(|error| Failure::new(Class::Argument, &name, &error, layouts))?;
        hints.check().map_err(|error| argument(&error))?;
        let dump = match (view.offset, view.length) {
            // Also of an empty file.
            (0, None) => dump,
            (offset, length) => dump.window(offset, length).map_err(|error| argument(&error))?,
        };
        let dump = Arc::new(dump);
        let survey = Arc::new(survey(&dump, &hints, &mut |_| {}));
        Ok(Self { dump, survey })
    }

    fn part(&self, number: usize) -> Result<&Part, Failure> {
        let name = self.dump.name();
        let error = || Failure::new(Class::Argument, &name, &format!("there is no part {number}"), "");
        self.survey.parts.get(number).ok_or_else(error)
    }

    /// A volume of a UBI partition.
    fn volume(&self, part: usize, volume: usize) -> Result<&Volume, Failure> {
        let name = self.dump.name();
        let error = || {
            Failure::new(
                Class::Argument,
                &name,
                &format!("part {part} has no volume {volume}"),
                "",
            )
        };
        match self.part(part)? {
            Part::Ubi(partition) => partition.volumes.get(volume).ok_or_else(error),
            Part::Ubifs(_) => Err(error()),
        }
    }

    fn readable(&self, part: usize, volume: Option<usize>) -> Result<Arc<image::DumpVolume>, Failure> {
        Ok(match (self.part(part)?, volume) {
            (Part::Ubifs(bare), _) => Arc::new(bare.open()),
            (Part::Ubi(_), volume) => Arc::new(self.volume(part, volume.unwrap_or(usize::MAX))?.open()),
        })
    }
}

fn keys(raw: Vec<(Option<[u8; 8]>, Vec<u8>)>) -> Result<Vec<MasterKey>, Failure> {
    let key = |(descriptor, raw): (Option<[u8; 8]>, Vec<u8>)| {
        let bytes = raw.len();
        let wrong = format!("a key has 16 to 64 bytes, this has {bytes}");
        let key = MasterKey::new(raw).ok_or_else(|| Failure::new(Class::Argument, "keys", &wrong, ""))?;
        Ok(match descriptor {
            Some(descriptor) => key.with_descriptor(descriptor),
            None => key,
        })
    };
    raw.into_iter().map(key).collect()
}

#[pymethods]
impl Dump {
    /// Opens a file or device and surveys it.
    #[staticmethod]
    fn of_path(py: Python<'_>, path: PathBuf, view: View) -> PyResult<Self> {
        without_gil(py, || {
            let name = path.display().to_string();
            let dump = image::Dump::open(&path).map_err(|error| Failure::open(&name, &error))?;
            Self::surveyed(dump, &view)
        })
    }

    /// Surveys the bytes that a callable returns.
    #[staticmethod]
    fn of_source(py: Python<'_>, name: String, read_at: Py<PyAny>, size: u64, view: View) -> PyResult<Self> {
        without_gil(py, || {
            let dump = image::Dump::of_source(&name, Box::new(Source(read_at)), size);
            Self::surveyed(dump, &view)
        })
    }

    #[getter]
    fn name(&self) -> String {
        self.dump.name().to_string()
    }

    #[getter]
    fn offset(&self) -> u64 {
        self.dump.base()
    }

    #[getter]
    fn size(&self) -> u64 {
        self.dump.bytes()
    }

    fn parts(&self) -> Vec<PartRow> {
        let parts = self.survey.parts.iter();
        parts
            .map(|part| match part {
                Part::Ubi(partition) => PartRow::from(partition),
                Part::Ubifs(bare) => PartRow::from(bare),
            })
            .collect()
    }

    fn areas(&self) -> Vec<AreaRow> {
        let areas = self.survey.areas.iter();
        areas
            .map(|area| AreaRow {
                offset: area.offset,
                size: area.bytes,
                is_erased: area.is_erased,
            })
            .collect()
    }

    fn findings(&self) -> Vec<FindingRow> {
        findings(&self.survey.findings)
    }

    /// Bytes of the dump's file; 0xFF outside of it.
    fn read<'py>(&self, py: Python<'py>, offset: u64, bytes: usize) -> PyResult<Bound<'py, PyBytes>> {
        let at = i64::try_from(offset).unwrap_or(i64::MAX);
        let base = i64::try_from(self.dump.base()).unwrap_or(0);
        fill(py, bytes, |out| {
            still_readable(&self.dump, || {
                self.dump.read(at - base, out);
                Ok(())
            })
        })
    }

    /// The content of a volume.
    fn content(&self, py: Python<'_>, part: usize, volume: usize) -> PyResult<Content> {
        without_gil(py, || {
            let content = content::Content::open(self.volume(part, volume)?);
            let dump = Arc::clone(&self.dump);
            Ok(Content { content, dump })
        })
    }

    /// The file system of a volume; of a bare one without a number.
    fn tree(
        &self,
        py: Python<'_>,
        part: usize,
        volume: Option<usize>,
        salvage: bool,
        keys: Vec<(Option<[u8; 8]>, Vec<u8>)>,
    ) -> PyResult<Tree> {
        let keys = self::keys(keys).map_err(|failure| exception(py, &failure))?;
        without_gil(py, || {
            let volume = self.readable(part, volume)?;
            // A journal, or a node of a salvage, that counts as erased would be missing without a loss.
            let tree = still_readable(&self.dump, || match salvage {
                true => Ok(tree::Tree::salvage(Arc::clone(&self.dump), volume, keys)),
                false => tree::Tree::open(Arc::clone(&self.dump), volume, keys),
            })?;
            Ok(Tree(Arc::new(tree)))
        })
    }
}

/// The content of a volume.
#[pyclass(frozen, module = "tidegate._core")]
pub struct Content {
    content: content::Content,
    dump: Arc<image::Dump>,
}

#[pymethods]
impl Content {
    #[getter]
    fn size(&self) -> u64 {
        self.content.bytes()
    }

    fn findings(&self) -> Vec<FindingRow> {
        findings(self.content.findings())
    }

    fn read<'py>(&self, py: Python<'py>, offset: u64, bytes: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = within(self.content.bytes(), offset, bytes);
        fill(py, bytes, |out| {
            still_readable(&self.dump, || self.content.read(offset, out))
        })
    }
}

/// Reads, and fails if the dump can't be read any more: its bytes count as erased then.
fn still_readable<T>(dump: &image::Dump, read: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let before = dump.late_failures();
    let done = read();
    match dump.late_failures() == before {
        true => done,
        false => Err(Failure::unreadable(dump)),
    }
}

/// The number of bytes, of `bytes` from `offset` on, before `end`.
pub fn within(end: u64, offset: u64, bytes: usize) -> usize {
    usize::try_from(end.saturating_sub(offset)).map_or(bytes, |left| left.min(bytes))
}
