//! Storage of a card's data: memory, or a sparse file with a description beside it. Spec:
//! `docs/formats/emmc-store.md`.
//!
//! The image contains only the data, starting with sector 0, so any tool can read it. `NAME.json` describes its card.
//! A store in use is locked (`flock`); the description is replaced atomically, and so is `NAME.maps` with the card's
//! maps and wear.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::UNIX_EPOCH;

use emmc::card::CardFile;
use emmc::translation::Kept;
use rustix::buffer::spare_capacity;
use rustix::fs::{
    FallocateFlags, FlockOperation, MemfdFlags, SeekFrom, fallocate, flock, memfd_create, seek,
};
use rustix::io::{Errno, pread, retry_on_intr};
use serde::{Deserialize, Serialize};

use crate::device::lock;
use crate::undo::Former;
use crate::{KeptCard, LiveError};

/// Version of the description.
const VERSION: u32 = 1;

/// Value of the description's first field.
const FORMAT: &str = "tidegate emmc store";

/// The card that an image belongs to.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Description {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// Size of card and image.
    pub capacity_bytes: u64,
    /// The card. Its host is not stored: that is the machine it is attached to.
    pub card: CardFile,
}

impl Description {
    /// The description of a card.
    #[must_use]
    pub fn new(card: CardFile) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            capacity_bytes: card.flash.capacity_bytes,
            card,
        }
    }

    /// Reads the description beside `image`; `None` if it does not exist.
    ///
    /// # Errors
    /// If it can't be read, or has an unsupported version.
    pub fn beside(image: &Path) -> Result<Option<Self>, LiveError> {
        let path = description_path(image);
        let raw = match std::fs::read(&path) {
            Ok(raw) => raw,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(failed(&path, "reading it")(source)),
        };
        let malformed = |source| LiveError::Description {
            path: path.clone(),
            source,
        };
        #[derive(Deserialize)]
        struct Envelope {
            version: u32,
        }
        let Envelope { version } = serde_json::from_slice(&raw).map_err(malformed)?;
        if version != VERSION {
            return Err(LiveError::Version {
                path,
                found: version,
                expected: VERSION,
            });
        }
        let description: Self = serde_json::from_slice(&raw).map_err(malformed)?;
        let checked = description.card.check();
        checked.map_err(|source| LiveError::StoredCard { path, source })?;
        Ok(Some(description))
    }

    fn write_beside(&self, image: &Path) -> Result<(), LiveError> {
        let mut text = serde_json::to_vec_pretty(self).expect("a card has string keys and finite numbers");
        text.push(b'\n');
        replace(&description_path(image), &text)
    }
}

fn description_path(image: &Path) -> PathBuf {
    beside(image, ".json")
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// Replaces a file atomically: an interruption leaves the old one or the new one.
fn replace(path: &Path, content: &[u8]) -> Result<(), LiveError> {
    outfile::write(path, content).map_err(failed(path, "writing it"))
}

fn failed(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> LiveError {
    let path = path.to_owned();
    move |source| LiveError::Store { path, doing, source }
}

/// Granularity of the record of written ranges, in bytes.
const PAGE_BYTES: u64 = 4096;

/// The pages of a range.
fn pages(offset: u64, end: u64) -> Range<usize> {
    let index = |page: u64| usize::try_from(page).expect("a vector has an element for each page");
    index(offset / PAGE_BYTES)..index(end.div_ceil(PAGE_BYTES))
}

fn nothing_written(size_bytes: u64) -> Mutex<Vec<bool>> {
    Mutex::new(vec![false; pages(0, size_bytes).end])
}

/// The data of a card.
#[derive(Debug)]
pub struct Store {
    file: File,
    path: Option<PathBuf>,
    size_bytes: u64,
    /// Pages that this process has written. `SEEK_DATA` is not asked about them, as its answer may lack data that is still in
    /// the page cache: a FUSE mount with a write-back cache does not write it out first.
    written: Mutex<Vec<bool>>,
}

impl Store {
    /// Data in memory, initially zeros; dropped with the value.
    ///
    /// # Errors
    /// If the host can't allocate it.
    pub fn memory(size_bytes: u64) -> Result<Self, LiveError> {
        let made = memfd_create("tidegate-emmc", MemfdFlags::CLOEXEC).map_err(io::Error::from);
        let file = made.map(File::from).and_then(|file| {
            file.set_len(size_bytes)?;
            Ok(file)
        });
        Ok(Self {
            file: file.map_err(failed(Path::new("ram"), "making a store"))?,
            path: None,
            size_bytes,
            written: nothing_written(size_bytes),
        })
    }

    /// Data in the file `path`, which is created if it does not exist, and used as it is if it has the card's size.
    /// Writes the description beside it.
    ///
    /// # Errors
    /// If it is not a plain file, is in use, has another size, or can't be accessed.
    pub fn file(path: &Path, description: &Description) -> Result<Self, LiveError> {
        if let Ok(metadata) = std::fs::metadata(path)
            && !metadata.is_file()
        {
            return Err(LiveError::NoFile {
                path: path.to_owned(),
            });
        }
        let file = outfile::change(path).map_err(failed(path, "opening it"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(LiveError::Locked {
                    path: path.to_owned(),
                });
            }
            Err(errno) => return Err(failed(path, "locking it")(errno.into())),
        }
        let expected = description.capacity_bytes;
        let found = file
            .metadata()
            .map_err(failed(path, "asking for its size"))?
            .len();
        if found == 0 {
            file.set_len(expected)
                .map_err(failed(path, "giving it its size"))?;
        } else if found != expected {
            return Err(LiveError::Size {
                path: path.to_owned(),
                found,
                expected,
            });
        }
        // Data of other processes that is still in the page cache may be unknown to `SEEK_DATA`.
        file.sync_data().map_err(failed(path, "syncing it"))?;
        description.write_beside(path)?;
        Ok(Self {
            file,
            path: Some(path.to_owned()),
            size_bytes: expected,
            written: nothing_written(expected),
        })
    }

    /// Size of the card in bytes.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Path of the file, or `ram`.
    #[must_use]
    pub fn name(&self) -> String {
        self.path
            .as_ref()
            .map_or_else(|| "ram".to_owned(), |path| path.display().to_string())
    }

    /// Reads all of `out`; the range lies within the card.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    /// The content that a write of a range replaces; the range lies within the card. A hole is not read.
    pub(crate) fn former(&self, offset: u64, length: usize) -> io::Result<Former> {
        let end = offset + u64::try_from(length).expect("a length fits 64 bits");
        if !lock(&self.written)[pages(offset, end)].contains(&true) {
            match seek(&self.file, SeekFrom::Data(offset)) {
                Ok(data) if data < end => {}
                Ok(_) | Err(Errno::NXIO) => return Ok(Former::Zeros),
                Err(errno) => return Err(errno.into()),
            }
        }
        let mut content = Vec::with_capacity(length);
        let mut at = offset;
        while at < end {
            match retry_on_intr(|| pread(&self.file, spare_capacity(&mut content), at))? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => at += u64::try_from(count).expect("a count fits 64 bits"),
            }
        }
        content.truncate(length);
        Ok(Former::Content(content))
    }

    /// Writes all of `data`; the range lies within the card.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        // Before the write, which may fail midway.
        let end = offset + u64::try_from(data.len()).expect("a length fits 64 bits");
        lock(&self.written)[pages(offset, end)].fill(true);
        self.file.write_all_at(data, offset)
    }

    /// Makes a range read as zeros, and frees its space if the host supports that.
    pub(crate) fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, mode, offset, length) {
            Err(Errno::OPNOTSUPP) => {}
            other => return other.map_err(io::Error::from),
        }
        let zeroes = [0; 64 << 10];
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let piece = usize::try_from(end - at).unwrap_or(usize::MAX).min(zeroes.len());
            self.write(at, &zeroes[..piece])?;
            at += u64::try_from(piece).expect("at most 64 KiB");
        }
        Ok(())
    }

    /// Ranges that hold data, as offset and length.
    ///
    /// # Errors
    /// If the host does not report them.
    pub fn ranges_with_data(&self) -> Result<Vec<(u64, u64)>, LiveError> {
        let name = self.name();
        let wrong = |errno: Errno| failed(Path::new(&name), "looking for data")(errno.into());
        let (mut ranges, mut at) = (Vec::new(), 0);
        loop {
            let start = match seek(&self.file, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => return Ok(ranges),
                Err(errno) => return Err(wrong(errno)),
            };
            at = seek(&self.file, SeekFrom::Hole(start)).map_err(wrong)?;
            ranges.push((start, at - start));
        }
    }

    /// Path of the file of maps and wear; `None` for data in memory.
    #[must_use]
    pub fn maps_path(&self) -> Option<PathBuf> {
        self.path.as_deref().map(|path| beside(path, ".maps"))
    }

    /// The state saved when the card was put away; `None` if none was saved. The map is omitted if the image was
    /// modified since, as it no longer describes the image.
    ///
    /// # Errors
    /// If the file can't be read, or is damaged.
    pub fn kept(&self) -> Result<Option<KeptCard>, LiveError> {
        let Some(path) = self.maps_path() else {
            return Ok(None);
        };
        let raw = match std::fs::read(&path) {
            Ok(raw) => raw,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(failed(&path, "reading it")(source)),
        };
        let mut card = KeptCard::decode(&raw).map_err(|source| LiveError::Kept { path, source })?;
        if card.image_changed_ns != self.changed_ns()? {
            card.kept.map = None;
        }
        Ok(Some(card))
    }

    /// Saves a card's maps and wear beside the image they describe. A no-op for data in memory.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn keep(&self, epoch: u32, kept: Kept) -> Result<(), LiveError> {
        let Some(path) = self.maps_path() else {
            return Ok(());
        };
        let card = KeptCard {
            image_changed_ns: self.changed_ns()?,
            epoch,
            kept,
        };
        replace(&path, &card.encode())
    }

    /// Mtime of the image, nanoseconds of the host's clock.
    fn changed_ns(&self) -> Result<u64, LiveError> {
        let modified = self.file.metadata().and_then(|metadata| metadata.modified());
        let modified = modified.map_err(failed(Path::new(&self.name()), "asking when it was changed"))?;
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Syncs everything to the host's medium.
    ///
    /// # Errors
    /// If the host fails.
    pub fn sync(&self) -> Result<(), LiveError> {
        self.file
            .sync_all()
            .map_err(failed(Path::new(&self.name()), "writing it to its medium"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(bytes: u64) -> Description {
        let mut card = CardFile::preset("gt-i9300").unwrap();
        card.flash.capacity_bytes = bytes;
        Description::new(card)
    }

    #[test]
    fn a_file_keeps_data_and_card_and_is_had_by_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("card.img");
        let description = description(1 << 28);
        let store = Store::file(&path, &description).unwrap();
        store.write(4096, &[7; 512]).unwrap();
        let message = Store::file(&path, &description)
            .expect_err("it is locked")
            .to_string();
        assert!(message.contains("another process"), "{message}");
        drop(store);
        assert_eq!(Description::beside(&path).unwrap(), Some(description.clone()));
        let store = Store::file(&path, &description).unwrap();
        let mut out = [0; 512];
        store.read(4096, &mut out).unwrap();
        assert_eq!(out, [7; 512]);
    }

    #[test]
    fn an_image_of_another_size_and_a_folder_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("card.img");
        std::fs::write(&path, [1; 4096]).unwrap();
        let message = Store::file(&path, &description(1 << 28))
            .expect_err("sizes differ")
            .to_string();
        assert!(
            message.contains("4096") && message.contains("268435456"),
            "{message}"
        );
        assert!(matches!(
            Store::file(folder.path(), &description(1 << 28)),
            Err(LiveError::NoFile { .. })
        ));
    }

    #[test]
    fn a_description_of_another_version_is_told_apart_from_nonsense() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("card.img");
        std::fs::write(folder.path().join("card.img.json"), br#"{"version":9}"#).unwrap();
        assert!(matches!(
            Description::beside(&image),
            Err(LiveError::Version { found: 9, .. })
        ));
        std::fs::write(folder.path().join("card.img.json"), b"nonsense").unwrap();
        assert!(matches!(
            Description::beside(&image),
            Err(LiveError::Description { .. })
        ));
        assert_eq!(Description::beside(Path::new("/nonexistent/x")).unwrap(), None);
    }

    #[test]
    fn a_description_with_numbers_beyond_the_models_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("card.img");
        let mut slow = description(1 << 28);
        slow.card.flash.transfer_ns = u32::MAX;
        slow.write_beside(&image).unwrap();
        let message = Description::beside(&image).unwrap_err().to_string();
        assert!(
            message.contains("card.img.json: ") && message.contains("transfer_ns"),
            "{message}"
        );
    }

    /// The file system does not tell of data that is still in the page cache: another process makes a hole to get its answer.
    #[test]
    fn a_range_that_was_written_is_read_whatever_the_file_system_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("card.img");
        let store = Store::file(&path, &description(1 << 28)).unwrap();
        store.write(512 << 10, &[7; 512 << 10]).unwrap();
        let other = File::options().write(true).open(&path).unwrap();
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&other, mode, 0, 1 << 28).unwrap();
        let is_read = |offset: u64| matches!(store.former(offset, 8192).unwrap(), Former::Content(_));
        let pages: Vec<u64> = (0..1024).filter(|page| is_read(page * 4096)).collect();
        assert_eq!(pages, (127..256).collect::<Vec<_>>());
    }

    #[test]
    fn zeroed_ranges_hold_no_data() {
        let store = Store::memory(1 << 20).unwrap();
        store.write(0, &[1; 128 << 10]).unwrap();
        store.zero(4096, 64 << 10).unwrap();
        let mut out = [9; 4096];
        store.read(8192, &mut out).unwrap();
        assert_eq!(out, [0; 4096]);
        assert_eq!(
            store.ranges_with_data().unwrap(),
            [(0, 4096), (68 << 10, 60 << 10)]
        );
    }
}
