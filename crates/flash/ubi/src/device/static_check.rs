//! Verification of a static volume: every LEB with data is mapped, and its CRC is correct.
//!
//! As in Linux, the first open of a volume reads it completely, unless it has the flag skip-check. Linux opens a
//! damaged volume anyway and logs the damage; here that takes [`super::Ubi::open_damaged`]. Missing LEBs are known
//! from the attach, so they are an error regardless of the flag. Uncorrectable bits do not count: the CRC decides, as
//! in Linux. Nothing is written.

use media::{Leb, Peb, index};
use thiserror::Error;

use super::core::{Core, Trouble};
use crate::attach::VolumeId;
use crate::format::{VolumeKind, crc32};
use crate::peb_table::PebState;
use crate::retry;

/// Damage of a LEB of a static volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LebDamage {
    /// No block holds it.
    #[error("{leb} is missing: no block holds it, and the volume has {used_lebs} LEBs")]
    Missing {
        /// The missing LEB.
        leb: Leb,
        /// Number of LEBs according to the headers of the others.
        used_lebs: u32,
    },
    /// The data does not match its CRC.
    #[error("{leb} at {peb}: CRC of its {bytes} bytes is {found:#010x}, expected {expected:#010x}")]
    Crc {
        /// The damaged LEB.
        leb: Leb,
        /// The block that holds it.
        peb: Peb,
        /// Bytes covered by the CRC.
        bytes: u32,
        /// CRC of the data.
        found: u32,
        /// CRC in the VID header.
        expected: u32,
    },
}

impl LebDamage {
    /// The damaged or missing LEB.
    #[must_use]
    pub const fn leb(&self) -> Leb {
        match self {
            Self::Missing { leb, .. } | Self::Crc { leb, .. } => *leb,
        }
    }
}

impl Core {
    /// Damage of a volume, LEB by LEB, evaluated lazily; empty for dynamic volumes and for volumes with an unfinished
    /// update.
    pub(super) fn static_damage(
        &mut self,
        volume: VolumeId,
    ) -> impl Iterator<Item = Result<LebDamage, Trouble>> {
        let state = self.state(volume.0);
        let lebs = match state.record.kind {
            VolumeKind::Static if !state.record.update_marker => {
                state.used_lebs.min(state.lebs().saturating_add(1))
            }
            VolumeKind::Static | VolumeKind::Dynamic => 0,
        };
        let reads_data = !(state.checked || state.record.skip_check);
        let mut buffer = Vec::new();
        (0..lebs)
            .map(Leb)
            .filter_map(move |leb| match self.mapped_static(volume.0, leb) {
                Err(missing) => Some(Ok(missing)),
                Ok(peb) if reads_data => self.leb_damage(volume.0, leb, peb, &mut buffer).transpose(),
                Ok(_) => None,
            })
    }

    fn mapped_static(&self, volume: u32, leb: Leb) -> Result<Peb, LebDamage> {
        let state = self.state(volume);
        let mapped = (leb.0 < state.lebs()).then(|| state.peb(leb)).flatten();
        mapped.ok_or(LebDamage::Missing {
            leb,
            used_lebs: state.used_lebs,
        })
    }

    fn leb_damage(
        &mut self,
        volume: u32,
        leb: Leb,
        peb: Peb,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<LebDamage>, Trouble> {
        let state = self.state(volume);
        let leb_bytes = self.layout.leb_bytes() - state.record.data_padding;
        let bytes = match leb.0 + 1 == state.used_lebs {
            true => state.last_leb_bytes.min(leb_bytes),
            false => leb_bytes,
        };
        let expected = self.vid_header(peb)?.data_crc;
        buffer.resize(index(bytes), 0);
        let report = retry::read(&mut self.nand, peb, self.layout.data_offset(), buffer)?;
        if report.needs_scrub(&self.geometry) && self.pebs.state(peb) == PebState::Used {
            self.pebs.set_state(peb, PebState::Scrub);
        }
        let found = crc32(buffer);
        Ok((found != expected).then_some(LebDamage::Crc {
            leb,
            peb,
            bytes,
            found,
            expected,
        }))
    }
}
