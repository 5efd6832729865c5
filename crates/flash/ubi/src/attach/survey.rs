//! Reads the headers of every block and classifies the blocks as Linux does. Never writes.
//!
//! The meaning of two unreadable headers, of an unreadable VID header with its data area, and the set of blocks that
//! a power cut explains follow Linux: an image that one implementation attaches must not lose blocks in the other.
//! The first reason to refuse an attach is kept and the survey continues, so that a check can list everything.

use std::sync::Arc;

use media::{Leb, Nand, NandError, NandGeometry, Peb, index};

use super::VolumeId;
use super::anomaly::{Anomaly, AnomalyKind, Behind};
use super::error::AttachError;
use super::headers::{RawHeaders, Seen};
use super::mark::{MARK_OF_ARRAY, Mark};
use crate::format::fastmap::ANCHOR_PEBS;
use crate::format::{
    Compatibility, Damage, Decoded, EcHeader, FASTMAP_DATA_VOLUME, FASTMAP_SUPERBLOCK_VOLUME, HEADER_BYTES,
    LAYOUT_VOLUME, MARK_VOLUME, MAX_VOLUMES, Refusal, VidHeader, VolumeKind,
};
use crate::layout::Layout;
use crate::peb_table::{PebState, PebTable};
use crate::retry;

/// A block with a good VID header of a user volume or the layout volume. One exists per used block while a device is
/// attached, so it is small: its sequence number is read again if another block claims the same LEB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) generation: u64,
    pub(crate) leb: u32,
    pub(crate) peb: Peb,
    /// Index into [`Survey::profiles`].
    pub(crate) profile: u16,
    pub(crate) copied: bool,
    pub(crate) chosen: bool,
}

/// Fields shared by all VID headers of a volume; a volume with two profiles is inconsistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) volume: u32,
    pub(crate) kind: VolumeKind,
    pub(crate) used_lebs: u32,
    pub(crate) data_padding: u32,
}

/// Block counts by class, except blocks with a LEB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) bad: u32,
    pub(crate) blank: u32,
    pub(crate) maybe_bad: u32,
    pub(crate) corrupted: u32,
    pub(crate) alien: u32,
}

/// Result of the scan of all blocks of a device.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) device: Arc<str>,
    pub(crate) geometry: NandGeometry,
    pub(crate) layout: Layout,
    pub(crate) image_sequence: u32,
    pub(crate) pebs: PebTable,
    pub(crate) found: Vec<Found>,
    pub(crate) profiles: Vec<Profile>,
    pub(crate) last_sequence_number: u64,
    pub(crate) tally: Tally,
    pub(crate) first_corrupted: Option<Peb>,
    pub(crate) anchor: Option<(u64, Peb)>,
    /// Blocks to erase before any other write, lowest sequence number first: fastmap anchors, of which an older one
    /// must not outlive the latest, and blocks dropped by the owner of a volume ([`super::Scanned::erase_first`]).
    pub(crate) erase_first: Vec<(u64, Peb)>,
    pub(crate) writing_forbidden: Option<Arc<str>>,
    /// The marks of an array that is open, or was not closed.
    pub(crate) marks: Vec<Mark>,
    /// Last sequence number of blocks that are neither the volume table nor a mark.
    pub(crate) last_data_sequence_number: u64,
    /// Last sequence number of blocks of user volumes without a generation.
    pub(crate) last_untagged_sequence_number: u64,
    /// Blocks with an unreadable VID header, whatever their data area holds.
    pub(crate) unreadable_headers: u32,
    pub(crate) anomalies: Vec<Anomaly>,
    /// Maximum number of anomalies to keep.
    pub(crate) anomalies_max: usize,
    pub(crate) refusal: Option<AttachError>,
}

/// Maximum number of marks: an array has one per member, and two while it changes them. Bounds memory on hostile
/// images.
const MARKS_MAX: usize = 16;

/// More profiles than volumes can have is not UBI. Bounds memory on hostile images.
const PROFILES_MAX: usize = 1024;

impl Survey {
    /// Finds the first good EC header, which determines the layout. All blocks are still unknown.
    pub(crate) fn begin(nand: &mut dyn Nand, anomalies_max: usize) -> Result<Self, AttachError> {
        let (device, geometry) = (nand.name(), nand.geometry());
        let (mut good, mut unreadable) = (0, 0);
        let mut start = None;
        for peb in geometry.pebs() {
            if nand.is_bad(peb)? {
                continue;
            }
            good += 1;
            let mut raw = [0; HEADER_BYTES];
            let report = retry::read(nand, peb, 0, &mut raw)?;
            start.get_or_insert([raw[0], raw[1], raw[2], raw[3]]);
            match (EcHeader::decode(&raw), report.is_correct()) {
                (Decoded::Header(header), _) => {
                    return Self::around(device, geometry, peb, &header, anomalies_max);
                }
                (Decoded::Erased, true) => {}
                (Decoded::Refused(source), _) => {
                    return Err(AttachError::Header {
                        device,
                        peb,
                        offset: 0,
                        header: "EC",
                        source,
                    });
                }
                (Decoded::Erased | Decoded::Damaged(_), _) => unreadable += 1,
            }
        }
        if unreadable == 0 {
            return Err(AttachError::Blank { device, blocks: good });
        }
        Err(AttachError::NotUbi {
            device,
            unreadable,
            blocks: good,
            start: u32::from_be_bytes(start.unwrap_or_default()),
            block_bytes: geometry.block_bytes(),
        })
    }

    fn around(
        device: Arc<str>,
        geometry: NandGeometry,
        peb: Peb,
        header: &EcHeader,
        anomalies_max: usize,
    ) -> Result<Self, AttachError> {
        let layout =
            Layout::found(&geometry, header.vid_header_offset, header.data_offset).map_err(|source| {
                AttachError::Layout {
                    device: Arc::clone(&device),
                    peb,
                    source,
                }
            })?;
        Ok(Self {
            device,
            geometry,
            layout,
            image_sequence: 0,
            pebs: PebTable::new(geometry.blocks()),
            found: Vec::new(),
            profiles: Vec::new(),
            last_sequence_number: 0,
            tally: Tally::default(),
            first_corrupted: None,
            anchor: None,
            erase_first: Vec::new(),
            writing_forbidden: None,
            marks: Vec::new(),
            last_data_sequence_number: 0,
            last_untagged_sequence_number: 0,
            unreadable_headers: 0,
            anomalies: Vec::new(),
            anomalies_max,
            refusal: None,
        })
    }

    /// Classifies one block.
    pub(crate) fn look_at(&mut self, nand: &mut dyn Nand, peb: Peb) -> Result<(), NandError> {
        if nand.is_bad(peb)? {
            self.pebs.set_state(peb, PebState::Bad);
            self.tally.bad += 1;
            return Ok(());
        }
        let headers = RawHeaders::read(nand, peb, &self.layout)?;
        let ec = headers.ec();
        match ec {
            Seen::Header { header, .. } => self.take_ec_header(peb, &header),
            Seen::Erased { .. } => {
                self.tally.blank += 1;
                self.pebs.set_state(peb, PebState::Erase);
                self.note(peb, 0, AnomalyKind::Blank);
                return Ok(());
            }
            Seen::Damaged { .. } => {}
            Seen::Refused(refusal) => {
                self.pebs.set_state(peb, PebState::Preserved);
                self.refuse_header(peb, 0, "EC", refusal);
                return Ok(());
            }
        }
        let ec_damage = match ec {
            Seen::Damaged {
                damage,
                uncorrectable,
            } => Some((damage, uncorrectable)),
            _ => None,
        };
        let bits_flipped = ec_damage.is_some()
            || matches!(
                ec,
                Seen::Header {
                    bits_flipped: true,
                    ..
                }
            );
        let place = self.layout.vid_header_offset();
        match headers.vid(self.layout.leb_bytes()) {
            Seen::Header {
                header,
                bits_flipped: in_vid,
            } => {
                if let Some((damage, _)) = ec_damage {
                    let (volume, leb) = (VolumeId(header.volume), Leb(header.leb));
                    self.note(peb, 0, AnomalyKind::EcHeaderOfUsed { damage, volume, leb });
                }
                self.take_vid_header(peb, &header, bits_flipped || in_vid);
            }
            Seen::Erased { bits_flipped: in_vid } => {
                let clean = !bits_flipped && !in_vid;
                let state = if clean { PebState::Free } else { PebState::Erase };
                self.pebs.set_state(peb, state);
                if let Some((damage, _)) = ec_damage {
                    let (vid, behind) = (None, Behind::NotRead);
                    self.note(peb, 0, AnomalyKind::EcHeader { damage, vid, behind });
                }
            }
            Seen::Damaged {
                damage,
                uncorrectable,
            } => {
                self.take_damaged_vid_header(nand, peb, damage, uncorrectable, ec_damage)?;
            }
            Seen::Refused(refusal) => {
                self.pebs.set_state(peb, PebState::Preserved);
                self.refuse_header(peb, place, "VID", refusal);
            }
        }
        Ok(())
    }

    pub(crate) fn note(&mut self, peb: Peb, offset: u32, kind: AnomalyKind) {
        if self.anomalies.len() < self.anomalies_max {
            self.anomalies.push(Anomaly { peb, offset, kind });
        }
    }

    /// Keeps the first reason not to attach.
    pub(crate) fn refuse(&mut self, error: AttachError) {
        self.refusal.get_or_insert(error);
    }

    fn refuse_header(&mut self, peb: Peb, offset: u32, header: &'static str, source: Refusal) {
        self.note(peb, offset, AnomalyKind::Refused(source));
        self.refuse(AttachError::Header {
            device: Arc::clone(&self.device),
            peb,
            offset,
            header,
            source,
        });
    }

    fn take_ec_header(&mut self, peb: Peb, header: &EcHeader) {
        self.pebs.set_erases(peb, header.erase_counter);
        let layout = (self.layout.vid_header_offset(), self.layout.data_offset());
        self.expect_same(peb, "VID offset", header.vid_header_offset, layout.0);
        self.expect_same(peb, "data offset", header.data_offset, layout.1);
        if self.image_sequence == 0 {
            self.image_sequence = header.image_sequence;
        }
        if header.image_sequence != 0 {
            let expected = self.image_sequence;
            self.expect_same(peb, "image sequence", header.image_sequence, expected);
        }
    }

    fn expect_same(&mut self, peb: Peb, field: &'static str, found: u32, expected: u32) {
        if found == expected {
            return;
        }
        let kind = AnomalyKind::Contradiction {
            field,
            found: u64::from(found),
            expected: u64::from(expected),
        };
        self.note(peb, 0, kind);
        self.refuse(AttachError::Mixed {
            device: Arc::clone(&self.device),
            peb,
            field,
            found,
            expected,
        });
    }

    fn take_vid_header(&mut self, peb: Peb, header: &VidHeader, bits_flipped: bool) {
        self.last_sequence_number = self.last_sequence_number.max(header.sequence_number);
        if header.volume == MARK_VOLUME {
            self.take_mark(peb, header);
            return;
        }
        let up_to = |last: &mut u64| *last = header.sequence_number.max(*last);
        if header.volume != LAYOUT_VOLUME {
            up_to(&mut self.last_data_sequence_number);
        }
        if header.volume < MAX_VOLUMES && header.generation == 0 {
            up_to(&mut self.last_untagged_sequence_number);
        }
        let fastmap = [FASTMAP_SUPERBLOCK_VOLUME, FASTMAP_DATA_VOLUME].contains(&header.volume);
        if header.volume >= MAX_VOLUMES && header.volume != LAYOUT_VOLUME && !fastmap {
            self.take_internal(peb, header);
            return;
        }
        if fastmap {
            // Stale from the first write on; an attach by fastmap reads it before this takes effect.
            self.pebs.set_state(peb, PebState::Erase);
            if header.volume == FASTMAP_SUPERBLOCK_VOLUME {
                self.erase_first.push((header.sequence_number, peb));
            }
            let newest = self
                .anchor
                .is_none_or(|(sequence, _)| header.sequence_number > sequence);
            if header.volume == FASTMAP_SUPERBLOCK_VOLUME && newest {
                self.anchor = Some((header.sequence_number, peb));
            }
            return;
        }
        let state = if bits_flipped {
            PebState::Scrub
        } else {
            PebState::Used
        };
        self.pebs.set_state(peb, state);
        if bits_flipped {
            let kind = AnomalyKind::Bits { uncorrectable: false };
            self.note(peb, self.layout.vid_header_offset(), kind);
        }
        let profile = self.profile(Profile {
            volume: header.volume,
            kind: header.kind,
            used_lebs: header.used_lebs,
            data_padding: header.data_padding,
        });
        let Some(profile) = profile else {
            self.refuse_contradiction(peb, header.volume, "kinds of VID headers", 1025, 1024);
            return;
        };
        self.push_found(Found {
            generation: header.generation,
            leb: header.leb,
            peb,
            profile,
            copied: header.copied,
            chosen: false,
        });
    }

    fn take_mark(&mut self, peb: Peb, header: &VidHeader) {
        if self.marks.len() == MARKS_MAX {
            self.refuse_contradiction(peb, header.volume, "blocks of marks", 17, 16);
            return;
        }
        self.pebs.set_state(peb, PebState::Held);
        self.marks.push(Mark {
            peb,
            epoch: header.generation,
            sequence_number: header.sequence_number,
            alone: header.leb != MARK_OF_ARRAY,
        });
    }

    /// Grows in two steps, one for the blocks scanned for a fastmap and one for all: doubling would take twice the
    /// memory.
    pub(crate) fn push_found(&mut self, found: Found) {
        if self.found.len() == self.found.capacity() {
            let first_step = index(ANCHOR_PEBS);
            let most = match self.found.len() < first_step {
                true => first_step,
                false => index(self.geometry.blocks()),
            };
            self.found.reserve_exact(most.saturating_sub(self.found.len()));
        }
        self.found.push(found);
    }

    pub(crate) fn profile(&mut self, profile: Profile) -> Option<u16> {
        let known = self.profiles.iter().position(|known| *known == profile);
        let place = known.unwrap_or_else(|| {
            self.profiles.push(profile);
            self.profiles.len() - 1
        });
        u16::try_from(place).ok().filter(|_| place < PROFILES_MAX)
    }

    pub(crate) fn refuse_contradiction(
        &mut self,
        peb: Peb,
        volume: u32,
        field: &'static str,
        found: u64,
        expected: u64,
    ) {
        let kind = AnomalyKind::Contradiction {
            field,
            found,
            expected,
        };
        self.note(peb, self.layout.vid_header_offset(), kind);
        self.refuse(AttachError::Inconsistent {
            device: Arc::clone(&self.device),
            peb,
            volume,
            field,
            found,
            expected,
        });
    }

    fn take_internal(&mut self, peb: Peb, header: &VidHeader) {
        let volume = header.volume;
        self.note(
            peb,
            self.layout.vid_header_offset(),
            AnomalyKind::Internal { volume },
        );
        let state = match header.compatibility {
            Compatibility::Delete => PebState::Erase,
            Compatibility::ReadOnly => {
                let why = format!("internal volume {volume:#x}, unknown here, demands it");
                self.writing_forbidden.get_or_insert(why.into());
                PebState::Preserved
            }
            Compatibility::Preserve => {
                self.tally.alien += 1;
                PebState::Preserved
            }
            // A user volume has no compatibility field and another number; decoding verified that.
            Compatibility::Reject | Compatibility::None => {
                self.refuse(AttachError::UnknownInternalVolume {
                    device: Arc::clone(&self.device),
                    peb,
                    volume,
                });
                PebState::Preserved
            }
        };
        self.pebs.set_state(peb, state);
    }

    fn take_damaged_vid_header(
        &mut self,
        nand: &mut dyn Nand,
        peb: Peb,
        damage: Damage,
        uncorrectable: bool,
        ec_damage: Option<(Damage, bool)>,
    ) -> Result<(), NandError> {
        self.unreadable_headers += 1;
        if let Some((ec_damage, ec_uncorrectable)) = ec_damage {
            // A block with two damaged headers is indistinguishable from one with an interrupted erase.
            if uncorrectable && ec_uncorrectable {
                self.tally.maybe_bad += 1;
            }
            self.pebs.set_state(peb, PebState::Erase);
            let kind = AnomalyKind::EcHeader {
                damage: ec_damage,
                vid: Some(damage),
                behind: Behind::NotRead,
            };
            self.note(peb, 0, kind);
            return Ok(());
        }
        let behind = self.behind_headers(nand, peb)?;
        // A power cut explains all other cases: during the write of the header, or during an erase.
        if behind == Behind::Data {
            self.pebs.set_state(peb, PebState::Preserved);
            self.tally.corrupted += 1;
            self.first_corrupted.get_or_insert(peb);
        } else {
            self.pebs.set_state(peb, PebState::Erase);
        }
        let place = self.layout.vid_header_offset();
        self.note(peb, place, AnomalyKind::VidHeader { damage, behind });
        Ok(())
    }

    /// Reads the data area of a block whose headers don't tell its content.
    pub(super) fn behind_headers(&self, nand: &mut dyn Nand, peb: Peb) -> Result<Behind, NandError> {
        let mut page = vec![0; index(self.geometry.page_bytes())];
        let mut behind = Behind::Blank;
        for offset in (self.layout.data_offset()..self.geometry.block_bytes()).step_by(page.len()) {
            let report = retry::read(nand, peb, offset, &mut page)?;
            if report.needs_scrub(&self.geometry) {
                return Ok(Behind::Unreadable);
            }
            if page.iter().any(|byte| *byte != 0xFF) {
                behind = Behind::Data;
            }
        }
        Ok(behind)
    }
}
