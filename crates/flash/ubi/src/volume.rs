//! The contract [`Volume`]: logical eraseblocks that are written page by page, changed atomically, and unmapped.
//!
//! It is what a flash file system sees, and all that it sees: whether one chip, an array of them or memory is behind is not its
//! business. [`MemberVolume`] adds what an array needs of the volumes it is made of. No implementation is here.
//!
//! All methods take `&self` and may be called from several threads; what locks that takes is the implementation's affair.
//! Two writes into one LEB at the same time are the caller's mistake: it owns the order within a LEB.

use std::num::NonZeroU64;
use std::sync::Arc;

use media::Leb;
use thiserror::Error;

/// The shape of a volume. It does not change while the volume is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeGeometry {
    /// Bytes of each LEB.
    pub leb_bytes: u32,
    /// Number of LEBs.
    pub lebs: u32,
    /// Offsets and lengths of writes are multiples of it.
    pub min_io_bytes: u32,
    /// What one write moves to the medium at best: a caller that collects data collects that much. A multiple of
    /// `min_io_bytes`, not always a power of two.
    pub max_write_bytes: u32,
}

impl VolumeGeometry {
    /// Checks that the volume has `len` bytes at `offset` of `leb`.
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

    /// Checks the same, and that a write of these bytes is one of whole units.
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

/// One of several reads of a call.
#[derive(Debug)]
pub struct ReadPart<'a> {
    /// From which LEB.
    pub leb: Leb,
    /// From which byte of it.
    pub offset: u32,
    /// Where to.
    pub out: &'a mut [u8],
}

/// One of several writes of a call.
#[derive(Clone, Copy, Debug)]
pub struct WritePart<'a> {
    /// To which LEB.
    pub leb: Leb,
    /// From which byte of it on.
    pub offset: u32,
    /// What.
    pub data: &'a [u8],
}

/// Logical eraseblocks; see the module.
pub trait Volume: Send + Sync {
    /// What errors call it.
    fn name(&self) -> Arc<str>;

    /// Its shape.
    fn geometry(&self) -> VolumeGeometry;

    /// Reads `out.len()` bytes. What was not written since the LEB was mapped, and all of a LEB that is not mapped, is 0xFF.
    /// On [`VolumeError::Uncorrectable`], `out` holds what the medium gave: recovery may know what to make of it.
    fn read(&self, leb: Leb, offset: u32, out: &mut [u8]) -> Result<(), VolumeError>;

    /// Reads all `parts`; several devices may do it at the same time. After an error the content of all of them is undefined,
    /// but for [`VolumeError::Uncorrectable`], where all hold what the medium gave.
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

    /// Writes `data`, which is on the medium when this returns. A LEB that is not mapped is mapped first. Within a LEB, writes go
    /// upwards, and nothing is written twice until it is unmapped. A power cut leaves any part of `data`.
    fn write(&self, leb: Leb, offset: u32, data: &[u8]) -> Result<(), VolumeError>;

    /// Writes all `parts`, no two of them to one LEB; several devices may do it at the same time. All are on the medium when this
    /// returns. A power cut leaves any part of each.
    fn write_many(&self, parts: &[WritePart<'_>]) -> Result<(), VolumeError> {
        parts
            .iter()
            .try_for_each(|part| self.write(part.leb, part.offset, part.data))
    }

    /// Replaces the whole content of a LEB by `data`: after a power cut it holds the old content or the new, never a mixture.
    /// With no data, the LEB is mapped and empty.
    fn leb_change(&self, leb: Leb, data: &[u8]) -> Result<(), VolumeError>;

    /// Maps a LEB, empty, so that whatever it held before can't come back after a power cut.
    fn map(&self, leb: Leb) -> Result<(), VolumeError>;

    /// Forgets the content of a LEB. It reads as 0xFF; after a power cut the old content *may be back*, until the LEB is mapped
    /// or written, or [`Volume::flush`] returned.
    fn unmap(&self, leb: Leb) -> Result<(), VolumeError>;

    /// Whether a LEB is mapped.
    fn is_mapped(&self, leb: Leb) -> Result<bool, VolumeError>;

    /// Makes every unmap that returned final: what was forgotten does not come back.
    fn flush(&self) -> Result<(), VolumeError>;

    /// Waits until all that was written survives a crash of the host too, where there is one between us and the medium.
    fn sync(&self) -> Result<(), VolumeError>;

    /// From here on nothing is written any more, for this reason. The first reason stays.
    fn freeze(&self, reason: &str);

    /// Why nothing is written any more.
    fn frozen(&self) -> Option<Arc<str>>;
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
}

/// A volume that can be one of several behind an array: its LEBs carry a generation, and its atomic change comes in two
/// halves, so that an array does the first on all members before it does the second on any.
pub trait MemberVolume: Volume {
    /// A change that is on the medium beside the old content. Dropping it without an answer leaves the old content in force
    /// until the next attach, which finds both.
    type Prepared: Send;

    /// The generation that a LEB was mapped with; `None` where it is not mapped. It reads the medium.
    fn generation(&self, leb: Leb) -> Result<Option<u64>, VolumeError>;

    /// Maps a LEB, empty, with a generation. [`VolumeError::AlreadyMapped`] when it is mapped.
    fn map_with_generation(&self, leb: Leb, generation: NonZeroU64) -> Result<(), VolumeError>;

    /// Writes to a LEB that is mapped, otherwise as [`Volume::write`]. A member never maps by itself: [`VolumeError::NotMapped`].
    fn write_mapped(&self, leb: Leb, offset: u32, data: &[u8]) -> Result<(), VolumeError>;

    /// Writes `data` completely into a block of its own. Reads still give the old content; an attach from here on finds both,
    /// and takes the new one unless the owner of the volume says otherwise.
    fn prepare_change(
        &self,
        leb: Leb,
        data: &[u8],
        generation: NonZeroU64,
    ) -> Result<Self::Prepared, VolumeError>;

    /// Makes a prepared change the content of the LEB, and lets the old content go. It writes nothing, and so it does not fail, also
    /// where the volume was frozen meanwhile.
    fn commit_change(&self, prepared: Self::Prepared);

    /// Begins a mark of an array that is open for writing: a block of its own, which has Linux refuse the device, with the array's epoch.
    /// Marks from before stay until [`MemberVolume::drop_old_marks`].
    fn begin_mark(&self, epoch: NonZeroU64) -> Result<(), VolumeError>;

    /// Writes a page of the array's into the mark. [`Appended::Full`] when the mark takes no more: begin another one.
    fn append_to_mark(&self, page: &[u8]) -> Result<Appended, VolumeError>;

    /// Erases all marks but the one that was begun last; one of them may wait for the next erase.
    fn drop_old_marks(&self) -> Result<(), VolumeError>;

    /// Ends all background work, and writes the epoch into the headers of the volume table. The mark stays. Nothing may be written
    /// after this.
    fn seal(&self, epoch: NonZeroU64) -> Result<(), VolumeError>;

    /// Sets the update marker of the volume in the table, after which it can be used by who set it alone, or takes it away.
    fn set_update_marker(&self, marker: UpdateMarker) -> Result<(), VolumeError>;

    /// Erases all marks, which has Linux attach the member again, and waits until that is on the medium.
    fn drop_marks(&self) -> Result<(), VolumeError>;

    /// Gives up a prepared change. It is erased before this returns, so that no attach will find it.
    fn abandon_change(&self, prepared: Self::Prepared) -> Result<(), VolumeError>;
}

/// Whether a mark took a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// It is on the medium.
    Written,
    /// It is not: the mark is full, or its block failed.
    Full,
}

/// The marker of a volume whose content is being replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateMarker {
    /// It holds neither the old content nor the new.
    Set,
    /// It holds what was written.
    Cleared,
}

/// Why an operation on a volume failed.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// The volume does not reach that far. Nothing was done.
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
        /// What the volume has.
        geometry: VolumeGeometry,
    },
    /// A write that does not consist of whole units. Nothing was done.
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
        /// The unit.
        min_io_bytes: u32,
    },
    /// The LEB is mapped, or a change of it is prepared. Nothing was done.
    #[error("{volume}: {leb} is mapped already; unmap it first")]
    AlreadyMapped {
        /// Name of the volume.
        volume: Arc<str>,
        /// The LEB.
        leb: Leb,
    },
    /// A change of this LEB is prepared and waits to be committed or abandoned. Nothing was done.
    #[error("{volume}: {leb} has a prepared change; commit or abandon it first")]
    ChangePending {
        /// Name of the volume.
        volume: Arc<str>,
        /// The LEB.
        leb: Leb,
    },
    /// A part of this LEB is damaged, so nothing can be added to it. Nothing was done.
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
    /// A LEB of a member that should be mapped is not. Nothing was done.
    #[error("{volume}: {leb} is not mapped, though it is on other members of the array")]
    NotMapped {
        /// Name of the volume.
        volume: Arc<str>,
        /// The LEB.
        leb: Leb,
    },
    /// More bits are wrong than can be corrected.
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
    /// The content of this volume can't be used, or not in this way. Nothing was done.
    #[error("{volume}: {why}")]
    Unusable {
        /// Name of the volume.
        volume: Arc<str>,
        /// Why, and what to do.
        why: &'static str,
    },
    /// No block is left to write to. Of a write to a LEB that holds something, a part may be there: its block may have failed in the middle. A
    /// LEB that was to be changed may be mapped.
    #[error("{volume}: {leb}: no erased block is left and none can be made; too many blocks wore out")]
    NoSpace {
        /// Name of the volume.
        volume: Arc<str>,
        /// The LEB.
        leb: Leb,
    },
    /// Nothing is written any more.
    #[error("{volume}: read-only: {reason}")]
    ReadOnly {
        /// Name of the volume.
        volume: Arc<str>,
        /// Since what happened.
        reason: Arc<str>,
    },
    /// The device below failed. For a write, the device is frozen after that.
    #[error("{volume}: {leb}, offset {offset}: {source}")]
    Device {
        /// Name of the volume.
        volume: Arc<str>,
        /// The LEB.
        leb: Leb,
        /// First byte in it.
        offset: u32,
        /// What the device says.
        #[source]
        source: media::NandError,
    },
}

impl VolumeError {
    /// Whether power is off.
    #[must_use]
    pub const fn is_power_cut(&self) -> bool {
        matches!(self, Self::Device { source, .. } if source.is_power_cut())
    }
}
