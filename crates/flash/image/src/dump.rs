//! The bytes of a dump: a regular file, a block device, `/dev/mtdN`, a stream, which is copied to a temporary file, or any
//! [`ByteSource`].
//!
//! Reading never fails: bytes outside of the dump, and bytes that the host can't read, are 0xFF, as erased flash is. The
//! latter are remembered ([`Dump::unreadable`]).
//!
//! A survey that finds an ECC layout in the OOB areas installs its correction: from then on all readers of this dump get
//! corrected pages, with the main area in front of the OOB area whatever the layout of the controller.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nand::ecc;
use thiserror::Error;

use crate::correct::Regions;
use crate::parallel::Threads;

/// Bytes that can be read at any offset, such as those of a file or of a memory map.
pub trait ByteSource: Debug + Send + Sync {
    /// Fills `out` with the bytes from `at` on.
    ///
    /// # Errors
    /// If one of them can't be read.
    fn read_exact_at(&self, out: &mut [u8], at: u64) -> io::Result<()>;

    /// The threads that may read at the same time. Only the caller if it may hold a lock that the source needs.
    fn threads(&self) -> Threads {
        Threads::Processors
    }
}

impl ByteSource for File {
    fn read_exact_at(&self, out: &mut [u8], at: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, out, at)
    }
}

/// A readable dump. Offsets are signed: a block may begin before the dump does.
#[derive(Debug)]
pub struct Dump {
    name: Arc<str>,
    source: Box<dyn ByteSource>,
    base: u64,
    bytes: u64,
    /// The ranges that could not be read so far: ends by starts, none beside another.
    unreadable: Mutex<BTreeMap<u64, u64>>,
    /// The unreadable ranges that the survey knows.
    surveyed: OnceLock<Vec<(u64, u64)>>,
    /// Number of failed reads of other ranges since.
    late_failures: AtomicU64,
    /// The parts with a known ECC; set by the first survey that finds one.
    corrected: OnceLock<Regions>,
}

/// The range asked for does not lie in the dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the part from byte {offset} on is outside of its {bytes} bytes")]
pub struct Window {
    /// First byte asked for.
    pub offset: u64,
    /// Size of the dump.
    pub bytes: u64,
}

/// Bytes that are tried by themselves after a larger read failed.
const PIECE_BYTES: u64 = 4096;

impl Dump {
    /// Opens a file or device; the content of a FIFO or another stream is copied to a temporary file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let name = path.display().to_string();
        Self::of_file(&name, File::open(path)?)
    }

    /// As [`Self::open`], with a file that is open already, such as standard input.
    pub fn of_file(name: &str, mut file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let kind = metadata.file_type();
        if metadata.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
        }
        let is_device = kind.is_block_device() || kind.is_char_device();
        let bytes = match is_device || metadata.len() > 0 {
            true => file.seek(SeekFrom::End(0)).unwrap_or(0),
            false => 0,
        };
        match bytes {
            // A terminal or /dev/zero; /dev/mtdN has a size.
            0 if kind.is_char_device() => Err(io::Error::other("it is a character device without an end")),
            // A FIFO, a socket, or a pseudo file as in /proc, which has content but no size.
            0 => Self::spool(name, file),
            bytes => Ok(Self::of_source(name, Box::new(file), bytes)),
        }
    }

    /// Copies a stream to an unlinked temporary file in `TMPDIR`.
    pub fn spool(name: &str, mut stream: impl Read) -> io::Result<Self> {
        let mut file = tempfile::tempfile()?;
        let bytes = io::copy(&mut stream, &mut file)?;
        Ok(Self::of_source(name, Box::new(file), bytes))
    }

    /// A dump of `bytes` bytes in any source.
    #[must_use]
    pub fn of_source(name: &str, source: Box<dyn ByteSource>, bytes: u64) -> Self {
        Self {
            name: name.into(),
            source,
            base: 0,
            bytes,
            unreadable: Mutex::default(),
            surveyed: OnceLock::new(),
            late_failures: AtomicU64::new(0),
            corrected: OnceLock::new(),
        }
    }

    /// Restricts the dump to `length` bytes from `offset` on, or to all of them. A length beyond the end is cut.
    pub fn window(mut self, offset: u64, length: Option<u64>) -> Result<Self, Window> {
        let left = self.bytes.checked_sub(offset).filter(|left| *left > 0);
        let left = left.ok_or(Window {
            offset,
            bytes: self.bytes,
        })?;
        self.base += offset;
        self.bytes = length.map_or(left, |length| length.min(left));
        Ok(self)
    }

    /// Name for messages.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// Size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The threads that may read it at the same time.
    #[must_use]
    pub fn threads(&self) -> Threads {
        self.source.threads()
    }

    /// Offset of this dump in its file, for messages: not 0 for a window.
    #[must_use]
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// Fills `out` with the bytes from `at` on, corrected where an ECC is known.
    pub fn read(&self, at: i64, out: &mut [u8]) {
        self.read_raw(at, out);
        if let Some(regions) = self.corrected.get() {
            regions.correct(self, at, out);
        }
    }

    /// Installs the correction of parts of the dump; the first one stays.
    pub(crate) fn correct_by(&self, regions: Regions) {
        let _ = self.corrected.set(regions);
    }

    /// The parts with a known ECC.
    pub(crate) fn corrected(&self) -> Option<&Regions> {
        self.corrected.get()
    }

    /// Fills `out` with the bytes from `at` on as they are in the file.
    pub(crate) fn read_raw(&self, at: i64, out: &mut [u8]) {
        out.fill(0xFF);
        let before = usize::try_from(at.min(0).unsigned_abs()).unwrap_or(usize::MAX);
        let Some(inside) = out.get_mut(before..) else {
            return;
        };
        let start = u64::try_from(at).unwrap_or(0);
        let left = usize::try_from(self.bytes.saturating_sub(start)).unwrap_or(usize::MAX);
        let bytes = inside.len().min(left);
        let (wanted, start) = (&mut inside[..bytes], self.base + start);
        if self.source.read_exact_at(wanted, start).is_ok() {
            return;
        }
        // A device reports one bad sector as an error of the whole request. Pieces end at multiples of their size in the file:
        // a bad sector costs the same bytes, which the survey knows, wherever a request begins.
        let (mut at, mut rest) = (start, wanted);
        while !rest.is_empty() {
            let left = PIECE_BYTES - at % PIECE_BYTES;
            let bytes = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
            let (piece, behind) = rest.split_at_mut(bytes);
            if self.source.read_exact_at(piece, at).is_err() {
                piece.fill(0xFF);
                self.note_unreadable(at, piece.len());
            }
            at += left;
            rest = behind;
        }
    }

    fn note_unreadable(&self, at: u64, bytes: usize) {
        let end = at + u64::try_from(bytes).unwrap_or(0);
        let is_known = |known: &Vec<(u64, u64)>| {
            let before = known.partition_point(|range| range.0 <= at);
            before > 0 && end <= known[before - 1].1
        };
        if self.surveyed.get().is_some_and(|known| !is_known(known)) {
            self.late_failures.fetch_add(1, Ordering::Relaxed);
        }
        let mut ranges = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut start, mut stop) = (at, end);
        // Those that touch it become one with it.
        while let Some((&near, &near_end)) = ranges.range(..=stop).next_back()
            && start <= near_end
        {
            (start, stop) = (start.min(near), stop.max(near_end));
            ranges.remove(&near);
        }
        ranges.insert(start, stop);
    }

    /// The ranges of the file, as start and end, that could not be read so far.
    #[must_use]
    pub fn unreadable(&self) -> Vec<(u64, u64)> {
        let ranges = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        ranges.iter().map(|(start, end)| (*start, *end)).collect()
    }

    /// Ends the survey: what can't be read from here on is not in its findings.
    pub(crate) fn end_survey(&self) {
        let _ = self.surveyed.set(self.unreadable());
    }

    /// The ranges that could be read by the survey, and can't be read since.
    pub(crate) fn unreadable_since(&self) -> Vec<(u64, u64)> {
        let known = self.surveyed.get().map_or(&[][..], Vec::as_slice);
        let mut ranges = self.unreadable();
        ranges.retain(|range| known.binary_search(range).is_err());
        ranges
    }

    /// Number of reads since the survey that failed where it could read: a file that was cut, or a device that fails.
    #[must_use]
    pub fn late_failures(&self) -> u64 {
        self.late_failures.load(Ordering::Relaxed)
    }

    /// Whether all bytes of a range are 0xFF.
    #[must_use]
    pub fn is_erased(&self, start: u64, end: u64) -> bool {
        let mut buffer = vec![0; 1 << 20];
        let mut at = start;
        while at < end {
            let bytes = usize::try_from(end - at).map_or(buffer.len(), |left| left.min(buffer.len()));
            let part = &mut buffer[..bytes];
            self.read(i64::try_from(at).unwrap_or(i64::MAX), part);
            if part.iter().any(|byte| *byte != 0xFF) {
                return false;
            }
            at += u64::try_from(bytes).unwrap_or(u64::MAX);
        }
        true
    }
}

/// The bytes of the file, for the search of an ECC layout.
impl ecc::Source for Dump {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_raw(i64::try_from(at).unwrap_or(i64::MAX), out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_outside_of_a_dump_are_erased() {
        let dump = Dump::spool("dump", &b"0123456789"[..]).unwrap();
        let mut out = [0; 6];
        dump.read(-2, &mut out);
        assert_eq!(&out, b"\xFF\xFF0123");
        dump.read(7, &mut out);
        assert_eq!(&out, b"789\xFF\xFF\xFF");
        dump.read(-60, &mut out);
        assert_eq!(out, [0xFF; 6]);
        dump.read(60, &mut out);
        assert_eq!(out, [0xFF; 6]);
    }

    #[test]
    fn a_window_hides_the_rest() {
        let dump = Dump::spool("dump", &b"0123456789"[..]).unwrap();
        let dump = dump.window(2, Some(3)).unwrap();
        let mut out = [0; 5];
        dump.read(-1, &mut out);
        assert_eq!(&out, b"\xFF234\xFF");
        assert_eq!((dump.base(), dump.bytes()), (2, 3));
        let nothing = Dump::spool("dump", &b"01"[..]).unwrap().window(2, None);
        assert_eq!(nothing.err(), Some(Window { offset: 2, bytes: 2 }));
    }

    #[test]
    fn an_erased_range_is_told_from_one_with_data() {
        let mut content = vec![0xFF; 3 << 20];
        content[2_500_000] = 0xFE;
        let dump = Dump::spool("dump", &content[..]).unwrap();
        assert!(dump.is_erased(0, 2_500_000));
        assert!(!dump.is_erased(0, 2_500_001));
    }
}
