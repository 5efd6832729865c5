//! Chips in files: the image, which any tool can read, and the side-car with the state that an image lacks. Spec:
//! `docs/formats/nand-image.md`.
//!
//! Invariants:
//! - A writer holds an exclusive lock on the image while the chip is open; readers hold a shared one.
//! - The record of a block is written before its bytes. If the process dies in between, the block looks as after a
//!   power cut: with a partly programmed page, or half erased.
//! - The content has priority over the side-car: an image modified without it (another mtime) is scanned, and a block
//!   with more data than its record says gets a corrected record.

mod cells;
mod error;

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use media::{Nanos, index};
use outfile::{OutFile, Unfinished};

pub use self::cells::FileCells;
use self::cells::record_at;
pub use self::error::FileError;
use self::error::host;
use crate::sidecar::{HEADER_BYTES, Header, ImageKind, MOMENT_AT, Moment, RECORD_BYTES, decode_block};
use crate::{Access, BlockState, Cells, ChipModel, FaultModel, FileNand};

/// Description of an image without a side-car. The number of blocks follows from the file size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainImage {
    /// Model of the chip.
    pub model: ChipModel,
    /// Whether the image contains OOB areas.
    pub kind: ImageKind,
}

/// Path of an image's side-car: the image's name with `.nand` appended.
#[must_use]
pub fn sidecar_path(image: &Path) -> PathBuf {
    let mut name = image.as_os_str().to_owned();
    name.push(".nand");
    PathBuf::from(name)
}

impl FileNand {
    /// Creates an erased chip in a new file, with its factory-bad blocks marked, and opens it. Calls `progress` with
    /// the number of bytes written. The file appears under its name when it is complete.
    pub fn create(
        path: &Path,
        model: ChipModel,
        faults: FaultModel,
        kind: ImageKind,
        mut progress: impl FnMut(u64),
    ) -> Result<Self, FileError> {
        if path.exists() {
            return Err(FileError::Exists { path: path.into() });
        }
        let making = |source| host(path, "creating the image", source);
        let output = OutFile::create(path, Unfinished::Remove).map_err(making)?;
        let image = output.file().try_clone().map_err(making)?;
        lock(&image, path, Access::ReadWrite)?;
        let geometry = model.geometry;
        let mut blocks = vec![BlockState::default(); index(geometry.blocks())];
        for peb in faults.factory_bad(&geometry) {
            blocks[index(peb.0)].is_bad = true;
        }
        let mut cells = FileCells::new(image, None, geometry, kind, Access::ReadWrite, Nanos::ZERO);
        let made = geometry
            .pebs()
            .try_for_each(|peb| {
                cells.erase(peb)?;
                progress(cells.block_at(peb) + cells.block_stride());
                Ok(())
            })
            .and_then(|()| {
                let header = Header { kind, model, faults };
                let sidecar = sidecar_path(path);
                // The side-car of a former image.
                match std::fs::remove_file(&sidecar) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => cells.sidecar = Some(Arc::new(new_sidecar(&sidecar, &header)?)),
                }
                for peb in geometry.pebs() {
                    cells.save(peb, &blocks[index(peb.0)], Nanos::ZERO)?;
                }
                cells.sync(Nanos::ZERO, &blocks)?;
                output.finish()
            });
        if let Err(source) = made {
            return Err(host(path, "writing the image", source));
        }
        let name = path.display().to_string();
        Ok(Self::from_parts(&name, model, faults, cells, blocks, Nanos::ZERO))
    }

    /// Opens a chip in a file. `plain` describes an image without a side-car; a side-car is created if the access
    /// allows writing. If there is a side-car, `plain` must agree with it.
    pub fn open(path: &Path, access: Access, plain: Option<PlainImage>) -> Result<Self, FileError> {
        Self::open_image(path, access, plain, LastBlock::Whole)
    }

    /// Opens an image read-only whose last block may be truncated ([`FileNand::missing_bytes`]). For a geometry that is
    /// certain: with a wrong one nearly every image looks truncated.
    pub fn open_truncated(path: &Path, plain: PlainImage) -> Result<Self, FileError> {
        Self::open_image(path, Access::ReadOnly, Some(plain), LastBlock::MayBeTruncated)
    }

    fn open_image(
        path: &Path,
        access: Access,
        plain: Option<PlainImage>,
        last_block: LastBlock,
    ) -> Result<Self, FileError> {
        let image = loop {
            let image = options(access)
                .open(path)
                .map_err(|source| host(path, "opening the image", source))?;
            lock(&image, path, access)?;
            if is_at(&image, path) {
                break image;
            }
        };
        let length = image
            .metadata()
            .map_err(|source| host(path, "asking for the image's length", source))?
            .len();
        let sidecar_path = sidecar_path(path);
        let sidecar = match options(access).open(&sidecar_path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(host(&sidecar_path, "opening the side-car", source)),
        };
        let name = path.display().to_string();
        let (header, cells, blocks, now) = match sidecar {
            Some(sidecar) => recorded(path, image, sidecar, access, plain, length)?,
            None => adopted(path, image, access, plain, last_block, length)?,
        };
        let chip = Self::from_parts(&name, header.model, header.faults, cells, blocks, now);
        Ok(chip.with_access(access))
    }

    /// Whether the image contains OOB areas.
    #[must_use]
    pub fn image_kind(&self) -> ImageKind {
        self.cells().kind
    }

    /// Whether the state of the chip comes from a side-car. Without one, an image tells only the programmed data.
    #[must_use]
    pub fn has_sidecar(&self) -> bool {
        self.cells().sidecar.is_some()
    }

    /// Bytes that the last block of a truncated image lacks; they read as erased. `None` for a whole image.
    #[must_use]
    pub fn missing_bytes(&self) -> Option<u64> {
        let cells = self.cells();
        let expected = cells.block_stride() * u64::from(cells.geometry.blocks());
        Some(expected.saturating_sub(cells.truncated_at?))
    }
}

/// Condition for the size of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastBlock {
    Whole,
    MayBeTruncated,
}

type Opened = (Header, FileCells, Vec<BlockState>, Nanos);

/// Opens an image with a side-car.
fn recorded(
    path: &Path,
    image: File,
    sidecar: File,
    access: Access,
    plain: Option<PlainImage>,
    length: u64,
) -> Result<Opened, FileError> {
    let sidecar_path = sidecar_path(path);
    let raw = read_all(&sidecar).map_err(|source| host(&sidecar_path, "reading the side-car", source))?;
    let header = Header::decode(&raw).map_err(|source| FileError::Sidecar {
        path: sidecar_path.clone(),
        source,
    })?;
    let geometry = header.model.geometry;
    if let Some(plain) = plain {
        let asked = plain.model.geometry;
        let same_blocks = asked.with_blocks(geometry.blocks()).unwrap_or(asked);
        if same_blocks.with_bitflip_threshold(geometry.bitflip_threshold()) != geometry {
            return Err(FileError::Contradiction {
                path: path.into(),
                recorded: Box::new(geometry),
                asked: Box::new(asked),
            });
        }
    }
    let mut cells = FileCells::new(image, Some(sidecar), geometry, header.kind, access, Nanos::ZERO);
    let expected = cells.block_stride() * u64::from(geometry.blocks());
    if length != expected {
        return Err(FileError::Length {
            path: path.into(),
            found: length,
            expected,
        });
    }
    let moment = record(&raw, MOMENT_AT).and_then(|raw| Moment::decode(&raw));
    let modified = cells
        .modified()
        .map_err(|source| host(path, "asking for its time", source))?;
    let is_unchanged =
        moment.is_some_and(|moment| (moment.modified_seconds, moment.modified_nanos) == modified);
    let mut blocks = Vec::with_capacity(index(geometry.blocks()));
    for peb in geometry.pebs() {
        let stored = record(&raw, record_at(peb)).and_then(|raw| decode_block(&raw, &geometry));
        let state = match stored {
            Some(state) if is_unchanged => state,
            stored => {
                let found = cells
                    .scan(peb)
                    .map_err(|source| host(path, "looking through the image", source))?;
                let stored = stored.unwrap_or_default();
                BlockState {
                    programmed_bytes: stored.programmed_bytes.max(found.programmed_bytes),
                    is_bad: stored.is_bad || found.is_bad,
                    ..stored
                }
            }
        };
        blocks.push(state);
    }
    cells.now = moment.map_or(Nanos::ZERO, |moment| moment.now);
    let now = cells.now;
    Ok((header, cells, blocks, now))
}

/// Opens an image without a side-car; creates one if the access allows writing.
fn adopted(
    path: &Path,
    image: File,
    access: Access,
    plain: Option<PlainImage>,
    last_block: LastBlock,
    length: u64,
) -> Result<Opened, FileError> {
    let Some(PlainImage { model, kind }) = plain else {
        return Err(FileError::UnknownChip { path: path.into() });
    };
    let mut cells = FileCells::new(image, None, model.geometry, kind, access, Nanos::ZERO);
    let block_bytes = cells.block_stride();
    let is_whole = length.is_multiple_of(block_bytes);
    let may_lack_bytes = last_block == LastBlock::MayBeTruncated && length > block_bytes;
    cells.truncated_at = (!is_whole).then_some(length);
    let geometry = u32::try_from(length.div_ceil(block_bytes))
        .ok()
        .filter(|_| is_whole || may_lack_bytes)
        .and_then(|blocks| model.geometry.with_blocks(blocks).ok())
        .ok_or_else(|| FileError::PartialBlock {
            path: path.into(),
            found: length,
            block_bytes,
        })?;
    cells.geometry = geometry;
    let header = Header {
        kind,
        model: ChipModel { geometry, ..model },
        faults: FaultModel::none(),
    };
    let blocks = cells
        .scan_all()
        .map_err(|source| host(path, "looking through the image", source))?;
    if access == Access::ReadWrite {
        let sidecar_path = sidecar_path(path);
        new_sidecar(&sidecar_path, &header)
            .and_then(|file| {
                cells.sidecar = Some(Arc::new(file));
                cells.keep_all(Nanos::ZERO, &blocks)
            })
            .map_err(|source| host(&sidecar_path, "writing the side-car", source))?;
    }
    Ok((header, cells, blocks, Nanos::ZERO))
}

fn options(access: Access) -> std::fs::OpenOptions {
    let mut options = File::options();
    options.read(true).write(access == Access::ReadWrite);
    options
}

fn lock(image: &File, path: &Path, access: Access) -> Result<(), FileError> {
    crate::lock::lock(image, access).map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => FileError::Locked { path: path.into() },
        error => host(path, "locking the image", error.into()),
    })
}

/// Whether a path still leads to an open file: who had the lock may have replaced it, and what is written to the file then is lost.
fn is_at(image: &File, path: &Path) -> bool {
    let of = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let found = image.metadata().map(of).ok();
    found == path.metadata().map(of).ok()
}

fn new_sidecar(path: &Path, header: &Header) -> io::Result<File> {
    let file = options(Access::ReadWrite).create_new(true).open(path)?;
    file.write_all_at(&header.encode(), 0)?;
    Ok(file)
}

fn read_all(file: &File) -> io::Result<Vec<u8>> {
    let mut raw = Vec::with_capacity(HEADER_BYTES);
    io::Read::read_to_end(&mut &*file, &mut raw)?;
    Ok(raw)
}

fn record(raw: &[u8], at: u64) -> Option<[u8; RECORD_BYTES]> {
    raw.get(usize::try_from(at).ok()?..)?.first_chunk().copied()
}
