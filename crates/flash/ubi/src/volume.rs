//! The contract [`Volume`]: logical eraseblocks that are written page by page, changed atomically, and unmapped.
//!
//! This is the whole interface that a flash file system sees; whether one chip, an array or memory implements it is
//! hidden. [`MemberVolume`] adds the operations that an array needs of its members. This module contains no
//! implementation.
//!
//! All methods take `&self` and may be called from several threads; locking is up to the implementation. Concurrent
//! writes to one LEB are a bug of the caller, which owns the order within a LEB.

use std::num::NonZeroU64;
use std::sync::Arc;

use media::Leb;
use thiserror::Error;

/// Geometry of a volume. It does not change while the volume is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeGeometry {
    /// LEB size in bytes.
    pub leb_bytes: u32,
    /// Number of LEBs.
    pub lebs: u32,
    /// Offsets and lengths of writes are multiples of this.
    pub min_io_bytes: u32,
    /// Preferred write size: callers that buffer data should buffer this much. A multiple of `min_io_bytes`, not
    /// always a power of two.
    pub max_write_bytes: u32,
}

impl VolumeGeometry {
    /// Checks that `len` bytes at `offset` of `leb` lie within the volume.
    pub fn check_range(
        &self,
        volume: &Arc<str>,
        leb: Leb,
        offset: u32,
        len: usize,
    ) -> Result<(), VolumeError> {
        let end = u64::try_from(len).map_or(u64::MAX, |len| len.saturating_add(u64::from(offset)));
        if leb.0 < self.lebs && end <= u64::from(self.leb_bytes) {
            return Ok(());
        }
        Err(VolumeError::OutOfRange {
            volume: Arc::clone(volume),
            leb,
            offset,
            len,
            geometry: *self,
        })
    }

    /// As [`Self::check_range`], and checks that offset and length are multiples of the write unit.
    pub fn check_write(
        &self,
        volume: &Arc<str>,
        leb: Leb,
        offset: u32,
        len: usize,
    ) -> Result<(), VolumeError> {
        self.check_range(volume, leb, offset, len)?;
        let whole = u32::try_from(len).is_ok_and(|len| len.is_multiple_of(self.min_io_bytes));
        if whole && offset.is_multiple_of(self.min_io_bytes) {
            return Ok(());
        }
        Err(VolumeError::Misaligned {
            volume: Arc::clone(volume),
            leb,
            offset,
            len,
            min_io_bytes: self.min_io_bytes,
        })
    }
}

/// One part of a [`Volume::read_many`].
#[derive(Debug)]
pub struct ReadPart<'a> {
    /// LEB to read from.
    pub leb: Leb,
    /// Offset in the LEB, bytes.
    pub offset: u32,
    /// Destination.
    pub out: &'a mut [u8],
}

/// One part of a [`Volume::write_many`].
#[derive(Clone, Copy, Debug)]
pub struct WritePart<'a> {
    /// LEB to write to.
    pub leb: Leb,
    /// Offset in the LEB, bytes.
    pub offset: u32,
    /// Data to write.
    pub data: &'a [u8],
}

/// A volume of logical eraseblocks; see the module.
pub trait Volume: Send + Sync {
    /// Name for error messages.
    fn name(&self) -> Arc<str>;

    /// Geometry of the volume.
    fn geometry(&self) -> VolumeGeometry;

    /// Reads `out.len()` bytes. Bytes that were not written since the LEB was mapped, and unmapped LEBs, read as
    /// 0xFF. On [`VolumeError::Uncorrectable`], `out` holds the raw bytes of the medium, which recovery may be able
    /// to interpret.
    fn read(&self, leb: Leb, offset: u32, out: &mut [u8]) -> Result<(), VolumeError>;

    /// Reads all `parts`, possibly from several devices in parallel. After an error all buffers are undefined, except
    /// after [`VolumeError::Uncorrectable`], where each holds the bytes of the medium.
    fn read_many(&self, parts: &mut [ReadPart<'_>]) -> Result<(), VolumeError> {
        let mut uncorrectable = Ok(());
        for part in parts {
            match self.read(part.leb, part.offset, part.out) {
                Err(error @ VolumeError::Uncorrectable { .. }) => {
                    uncorrectable = uncorrectable.and(Err(error))
                }
                other => other?,
            }
        }
        uncorrectable
    }

    /// Writes `data`, which is on the medium when this returns. Maps the LEB if it is not mapped. Writes to a LEB
    /// have ascending offsets, and no byte is written twice until the LEB is unmapped. A power cut can leave any part
    /// of `data`.
    fn write(&self, leb: Leb, offset: u32, data: &[u8]) -> Result<(), VolumeError>;

    /// Writes all `parts`, each to a different LEB, possibly to several devices in parallel. All are on the medium
    /// when this returns. A power cut can leave any part of each.
    fn write_many(&self, parts: &[WritePart<'_>]) -> Result<(), VolumeError> {
        parts
            .iter()
            .try_for_each(|part| self.write(part.leb, part.offset, part.data))
    }

    /// Atomically replaces the whole content of a LEB with `data`: after a power cut it holds the old content or the
    /// new, never a mixture. If `data` is empty, the LEB is mapped and empty.
    fn leb_change(&self, leb: Leb, data: &[u8]) -> Result<(), VolumeError>;

    /// Maps an empty LEB. Its former content cannot reappear after a power cut.
    fn map(&self, leb: Leb) -> Result<(), VolumeError>;

    /// Discards the content of a LEB, which reads as 0xFF from here on. After a power cut the old content *may
    /// reappear*, until the LEB is mapped or written, or [`Volume::flush`] returned.
    fn unmap(&self, leb: Leb) -> Result<(), VolumeError>;

    /// Whether a LEB is mapped.
    fn is_mapped(&self, leb: Leb) -> Result<bool, VolumeError>;

    /// Makes all completed unmaps final: the discarded content does not reappear.
    fn flush(&self) -> Result<(), VolumeError>;

    /// Waits until all writes survive a crash of the host too, if there is a host between this program and the
    /// medium.
    fn sync(&self) -> Result<(), VolumeError>;

    /// Makes the volume read-only for this reason. The first reason is kept.
    fn freeze(&self, reason: &str);

    /// The reason why the volume is read-only, if it is.
    fn frozen(&self) -> Option<Arc<str>>;

    /// Explains why content at or behind `offset` of a LEB is broken, with nothing written further behind: its reader
    /// takes it for a torn write. Reading alone does not tell the two apart, as lost bytes are returned, too.
    fn torn_end(&self, leb: Leb, offset: u32) -> TornEnd {
        let _ = (leb, offset);
        TornEnd::Plausible
    }
}

/// Whether a power cut explains the broken end of a LEB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TornEnd {
    /// Nothing contradicts a torn write.
    Plausible,
    /// It may be a torn write, or an acknowledged one that was lost through this damage.
    Doubtful(Arc<str>),
    /// This damage made it unreadable; no power cut does.
    Lost(Arc<str>),
}

impl<V: Volume + ?Sized> Volume for Arc<V> {
    fn name(&self) -> Arc<str> {
        (**self).name()
    }

    fn geometry(&self) -> VolumeGeometry {
        (**self).geometry()
    }

    fn read(&self, leb: Leb, offset: u32, out: &mut [u8]) -> Result<(), VolumeError> {
        (**self).read(leb, offset, out)
    }

    fn read_many(&self, parts: &mut [ReadPart<'_>]) -> Result<(), VolumeError> {
        (**self).read_many(parts)
    }

    fn write(&self, leb: Leb, offset: u32, data: &[u8]) -> Result<(), VolumeError> {
        (**self).write(leb, offset, data)
    }

    fn write_many(&self, parts: &[WritePart<'_>]) -> Result<(), VolumeError> {
        (**self).write_many(parts)
    }

    fn leb_change(&self, leb: Leb, data: &[u8]) -> Result<(), VolumeError> {
        (**self).leb_change(leb, data)
    }

    fn map(&self, leb: Leb) -> Result<(), VolumeError> {
        (**self).map(leb)
    }

    fn unmap(&self, leb: Leb) -> Result<(), VolumeError> {
        (**self).unmap(leb)
    }

    fn is_mapped(&self, leb: Leb) -> Result<bool, VolumeError> {
        (**self).is_mapped(leb)
    }

    fn flush(&self) -> Result<(), VolumeError> {
        (**self).flush()
    }

    fn sync(&self) -> Result<(), VolumeError> {
        (**self).sync()
    }

    fn freeze(&self, reason: &str) {
        (**self).freeze(reason);
    }

    fn frozen(&self) -> Option<Arc<str>> {
        (**self).frozen()
    }

    fn torn_end(&self, leb: Leb, offset: u32) -> TornEnd {
        (**self).torn_end(leb, offset)
    }
}

/// A volume that can be a member of an array: its LEBs carry a generation, and the atomic change has two phases, so
/// that an array completes the first on all members before it begins the second on any.
pub trait MemberVolume: Volume {
    /// A prepared change: the new content is on the medium beside the old. If it is dropped without commit or
    /// abandon, the old content stays valid until the next attach, which finds both.
    type Prepared: Send;

    /// Reads the generation that a LEB was mapped with from the medium; `None` if it is not mapped.
    fn generation(&self, leb: Leb) -> Result<Option<u64>, VolumeError>;

    /// Maps an empty LEB with a generation. [`VolumeError::AlreadyMapped`] if it is mapped.
    fn map_with_generation(&self, leb: Leb, generation: NonZeroU64) -> Result<(), VolumeError>;

    /// Writes to a mapped LEB, otherwise as [`Volume::write`]. Members do not map implicitly:
    /// [`VolumeError::NotMapped`].
    fn write_mapped(&self, leb: Leb, offset: u32, data: &[u8]) -> Result<(), VolumeError>;

    /// First phase of a change: writes `data` completely into another block. Reads still return the old content; from
    /// here on an attach finds both, and takes the new one unless the owner of the volume decides otherwise.
    fn prepare_change(
        &self,
        leb: Leb,
        data: &[u8],
        generation: NonZeroU64,
    ) -> Result<Self::Prepared, VolumeError>;

    /// Second phase: makes a prepared change the content of the LEB, and releases the old block. It writes nothing,
    /// so it cannot fail, even if the volume was frozen in between.
    fn commit_change(&self, prepared: Self::Prepared);

    /// Begins a mark: a separate block with the array's epoch that says that the array is open for writing, and that
    /// makes Linux refuse the device. Earlier marks stay until [`MemberVolume::drop_old_marks`].
    fn begin_mark(&self, epoch: NonZeroU64) -> Result<(), VolumeError>;

    /// Writes a page of the array's data into the mark. On [`Appended::Full`], begin another mark.
    fn append_to_mark(&self, page: &[u8]) -> Result<Appended, VolumeError>;

    /// Erases all marks except the latest; one of them may wait for the next erase.
    fn drop_old_marks(&self) -> Result<(), VolumeError>;

    /// Finishes all background work and writes the epoch into the headers of the volume table. The mark stays. No
    /// write may follow.
    fn seal(&self, epoch: NonZeroU64) -> Result<(), VolumeError>;

    /// Sets or clears the update marker of the volume in the volume table. While it is set, only the caller that set
    /// it can use the volume.
    fn set_update_marker(&self, marker: UpdateMarker) -> Result<(), VolumeError>;

    /// Erases all marks, so that Linux attaches the member again, and waits until that is on the medium.
    fn drop_marks(&self) -> Result<(), VolumeError>;

    /// Discards a prepared change. Its block is erased before this returns, so no attach will find it.
    fn abandon_change(&self, prepared: Self::Prepared) -> Result<(), VolumeError>;
}

/// Result of appending a page to a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// The page is on the medium.
    Written,
    /// The page was not written: the mark is full, or its block failed.
    Full,
}

/// The update marker of a volume whose content is being replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateMarker {
    /// The volume holds neither the old content nor the new.
    Set,
    /// The content is complete.
    Cleared,
}

/// Error of an operation on a volume.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// The range exceeds the volume. Nothing was done.
    #[error(
        "{volume}: {leb}, offset {offset}, {len} bytes: outside of the volume, which has {} LEBs of {} bytes",
        geometry.lebs, geometry.leb_bytes
    )]
    OutOfRange {
        /// Name of the volume.
        volume: Arc<str>,
        /// The LEB.
        leb: Leb,
        /// First byte in it.
        offset: u32,
        /// Number of bytes.
        len: usize,
        /// Geometry of the volume.
        geometry: VolumeGeometry,
    },
    /// Offset or length is not a multiple of the write unit. Nothing was done.
    #[error("{volume}: {leb}, offset {offset}, {len} bytes: writes are multiples of {min_io_bytes} bytes")]
    Misaligned {
        /// Name of the volume.
        volume: Arc<str>,
        /// The LEB.
        leb: Leb,
        /// First byte in it.
        offset: u32,
        /// Number of bytes.
        len: usize,
        /// Write unit in bytes.
        min_io_bytes: u32,
    },
    /// The LEB is mapped, or has a prepared change. Nothing was done.
    #[error("{volume}: {leb} is mapped already; unmap it first")]
    AlreadyMapped {
        /// Name of the volume.
        volume: Arc<str>,
        /// The LEB.
        leb: Leb,
    },
    /// The LEB has a prepared change that was neither committed nor abandoned. Nothing was done.
    #[error("{volume}: {leb} has a prepared change; commit or abandon it first")]
    ChangePending {
        /// Name of the volume.
        volume: Arc<str>,
        /// The LEB.
        leb: Leb,
    },
    /// Part of this LEB is damaged, so nothing can be appended to it. Nothing was done.
    #[error(
        "{volume}: {leb} lost what was on {device}; it can be replaced as a whole or unmapped, not written to"
    )]
    Damaged {
        /// Name of the volume.
        volume: Arc<str>,
        /// The LEB.
        leb: Leb,
        /// The member that lost it.
        device: Arc<str>,
    },
    /// A LEB of a member should be mapped, but is not. Nothing was done.
    #[error("{volume}: {leb} is not mapped, though it is on other members of the array")]
    NotMapped {
        /// Name of the volume.
        volume: Arc<str>,
        /// The LEB.
        leb: Leb,
    },
    /// The medium returned an uncorrectable error.
    #[error("{volume}: {leb}, offset {offset}, {len} bytes: the medium's bits are wrong beyond correction")]
    Uncorrectable {
        /// Name of the volume.
        volume: Arc<str>,
        /// The LEB.
        leb: Leb,
        /// First byte in it.
        offset: u32,
        /// Number of bytes.
        len: usize,
    },
    /// The content of this volume cannot be used, or not in this way. Nothing was done.
    #[error("{volume}: {why}")]
    Unusable {
        /// Name of the volume.
        volume: Arc<str>,
        /// Reason and next step.
        why: &'static str,
    },
    /// No block is left to write to. A write to a LEB with content may be partly done, if its block failed midway. An
    /// atomic change may have mapped its LEB.
    #[error("{volume}: {leb}: no erased block is left and none can be made; too many blocks wore out")]
    NoSpace {
        /// Name of the volume.
        volume: Arc<str>,
        /// The LEB.
        leb: Leb,
    },
    /// The volume is read-only.
    #[error("{volume}: read-only: {reason}")]
    ReadOnly {
        /// Name of the volume.
        volume: Arc<str>,
        /// The event that made it read-only.
        reason: Arc<str>,
    },
    /// The device failed. After a failed write, the device is frozen.
    #[error("{volume}: {leb}, offset {offset}: {source}")]
    Device {
        /// Name of the volume.
        volume: Arc<str>,
        /// The LEB.
        leb: Leb,
        /// First byte in it.
        offset: u32,
        /// The device's error.
        #[source]
        source: media::NandError,
    },
}

impl VolumeError {
    /// Whether a power cut caused this error.
    #[must_use]
    pub const fn is_power_cut(&self) -> bool {
        matches!(self, Self::Device { source, .. } if source.is_power_cut())
    }
}
