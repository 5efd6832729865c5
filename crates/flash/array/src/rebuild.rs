//! Rebuilds a member of an array with parity on a new device.
//!
//! The new device is formatted with a volume whose name does not make it a member yet, and gets a dirty mark of the
//! array, so that Linux refuses it. The array is open for writing meanwhile, with the new device in its place: the
//! device lacks its share of every LEB, and receives all writes. Each share is restored ([`VirtualVolume::mend`]);
//! finally the volume gets the name of a member. The mark stays to the end, even if the array is closed.
//!
//! An interrupted rebuild is resumed if the array was not opened for writing without the device since: then their
//! epochs match. Shares with the generation of their LEB are kept, and the others are lost ([`crate::resolve`]).
//!
//! [`VirtualVolume::mend`]: crate::VirtualVolume::mend

use std::sync::{Arc, PoisonError};

use media::{Leb, Nand, Peb, index};
use ubi::format::volume_table::VolumeName;
use ubi::{
    Access, AttachError, AttachOptions, FormatOptions, Layout, Ubi, Volume, VolumeId, lebs_after_format,
};

use crate::error::ArrayError;
use crate::executor::Execution;
use crate::history::judge;
use crate::identity::{MemberIdentity, Redundancy};
use crate::membership::{Absent, Present};
use crate::open::{Array, Extra, Slot, boxed, open, share_of_array};
use crate::resolve::LostShare;
use crate::virtual_volume::Mended;

/// A device that takes the place of a member.
pub struct NewMember<'a> {
    /// The device. Its content is lost, unless it is an interrupted rebuild.
    pub device: Box<dyn Nand>,
    /// The place of the member, from 0.
    pub place: usize,
    /// Image sequence number of its blocks, unique to this image; not 0.
    pub image_sequence: u32,
    /// Called for every formatted block.
    pub progress: &'a mut dyn FnMut(Peb),
}

/// The result of a rebuild.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Number of LEBs whose share was restored.
    pub lebs: u32,
    /// LEBs whose share could not be restored, since another member can't read its own.
    pub incomplete: Vec<Leb>,
}

/// Opens an array with parity for writing, with a new device in the place of one member. `devices` are the other
/// members, in their order. The device is formatted, unless it holds an interrupted rebuild that can be resumed.
/// [`Array::rebuild`] does the rest.
pub fn with_new_member(
    devices: Vec<impl Nand + 'static>,
    new: NewMember<'_>,
    execution: Execution,
) -> Result<Array, ArrayError> {
    let options = AttachOptions::linux(Access::ReadWrite);
    open(boxed(devices), Extra::Rebuild(new), options, execution).map_err(|error| match error {
        ArrayError::Missing {
            label,
            redundancy: Redundancy::None,
            ..
        } => ArrayError::NoParity { label },
        error => error,
    })
}

/// Progress of a rebuild.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// All LEBs below this one have been tried.
    next: u32,
    lebs: u32,
}

/// Result of a step of a rebuild.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebuildStep {
    /// The new member has its share of this LEB, unless another member can't read its own.
    Tried(Leb),
    /// The rebuild is finished: the new device is a member.
    Ended(Rebuilt),
    /// No member is being rebuilt.
    Idle,
}

impl Array {
    /// Restores all shares that the new member lacks, and makes it a member. Calls `progress` for every LEB.
    pub fn rebuild(&self, progress: &mut dyn FnMut(Leb)) -> Result<Rebuilt, ArrayError> {
        loop {
            match self.rebuild_step()? {
                RebuildStep::Tried(leb) => progress(leb),
                RebuildStep::Ended(rebuilt) => return Ok(rebuilt),
                RebuildStep::Idle => return Ok(Rebuilt::default()),
            }
        }
    }

    /// LEBs whose share the new member lacks.
    #[must_use]
    pub fn lebs_to_rebuild(&self) -> Vec<Leb> {
        let Some(place) = self.rebuilding() else {
            return Vec::new();
        };
        let lost = self.volume().lost_shares().into_iter();
        lost.filter(|share| share.member == place)
            .map(|share| share.leb)
            .collect()
    }

    /// Restores the next share that the new member lacks, or makes it a member if it lacks no more. The array may be
    /// used meanwhile.
    pub fn rebuild_step(&self) -> Result<RebuildStep, ArrayError> {
        // Held to the end: steps run one at a time.
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = self.rebuilding() else {
            return Ok(RebuildStep::Idle);
        };
        let failed = |source| ArrayError::Rebuild {
            label: self.identity().label.clone(),
            source,
        };
        if let Some(leb) = self.volume().next_lost(place, Leb(progress.next)) {
            let Mended { mended, .. } = self.volume().mend(leb).map_err(failed)?;
            let share = LostShare { leb, member: place };
            progress.lebs += u32::from(mended.contains(&share));
            progress.next = leb.0 + 1;
            return Ok(RebuildStep::Tried(leb));
        }
        let incomplete = self.lebs_to_rebuild();
        self.volume().sync().map_err(failed)?;
        let name = self.identity().at(u32::try_from(place).expect("16 at most"));
        let device = self.members().find(|(member, _)| *member == place);
        let (_, device) = device.expect("it was opened with the others");
        device.rename_volumes(&[(VolumeId(0), volume_name(&name.to_string()))])?;
        self.volume().end_rebuild();
        Ok(RebuildStep::Ended(Rebuilt {
            lebs: progress.lebs,
            incomplete,
        }))
    }
}

/// Whether a device holds an unfinished rebuild of the member at this place.
pub(crate) fn is_of_rebuild(device: &mut dyn Nand, place: usize) -> bool {
    let names = names_of(device).unwrap_or_default();
    let mut unfinished = names.iter().filter_map(|name| MemberIdentity::of_rebuild(name));
    unfinished.any(|identity| index(identity.index) == place)
}

/// Whether a device may have been the member of the array at this place. One that is unreadable may: damage of the volume
/// table alone hides a whole member.
pub(crate) fn may_be_former_member(device: &mut dyn Nand, of: &MemberIdentity, place: usize) -> bool {
    match names_of(device) {
        Ok(names) => names_member(&names, of, place),
        Err(AttachError::Blank { .. } | AttachError::NotUbi { .. }) => false,
        Err(_) => true,
    }
}

fn names_member(names: &[String], of: &MemberIdentity, place: usize) -> bool {
    let mut identities = names
        .iter()
        .filter_map(|name| name.parse::<MemberIdentity>().ok());
    identities.any(|identity| identity.array == of.array && index(identity.index) == place)
}

/// Refuses a device that is a member of the array beside those that are `present`, however all were given.
pub(crate) fn refuse_sound_member<'a>(
    mut new: NewMember<'a>,
    present: &mut [Present],
    options: AttachOptions,
) -> Result<NewMember<'a>, ArrayError> {
    let (of, place) = (present[0].found.identity.clone(), new.place);
    if !names_of(&mut new.device).is_ok_and(|names| names_member(&names, &of, place)) {
        return Ok(new);
    }
    let own = of.at(u32::try_from(place).expect("16 at most"));
    let name = new.device.name();
    let mut scanned = ubi::scan(new.device, options)?;
    let members = present
        .iter_mut()
        .map(|one| (&mut one.scanned, &one.found.device, &one.found.identity));
    match judge(members.chain([(&mut scanned, &name, &own)])) {
        Ok(_) => Err(ArrayError::NoneAbsent {
            label: of.label,
            place,
        }),
        Err(ArrayError::Stale { index, .. } | ArrayError::WrittenAlone { index, .. })
            if index == own.index =>
        {
            let device = scanned.into_device();
            Ok(NewMember { device, ..new })
        }
        Err(error) => Err(error),
    }
}

/// Names of a device's volumes.
fn names_of(device: &mut dyn Nand) -> Result<Vec<String>, AttachError> {
    let volumes = ubi::volume_table(device)?;
    Ok(volumes
        .iter()
        .flatten()
        .map(|volume| volume.name.to_string())
        .collect())
}

/// Refuses a rebuild unless the array has parity and the member at `place` is the absent one.
pub(crate) fn check_rebuild(
    identity: &MemberIdentity,
    absent: Option<&Absent>,
    place: usize,
) -> Result<(), ArrayError> {
    let label = || identity.label.clone();
    if identity.redundancy == Redundancy::None {
        return Err(ArrayError::NoParity { label: label() });
    }
    match absent {
        Some(absent) if absent.place == place => Ok(()),
        Some(absent) => Err(ArrayError::OtherAbsent {
            label: label(),
            place,
            absent: absent.place,
            why: absent.why.clone(),
        }),
        None => Err(ArrayError::NoneAbsent {
            label: label(),
            place,
        }),
    }
}

/// Formats a device that will become a member, with `lebs` LEBs. A device that is too small keeps its content.
pub(crate) fn format_new_member(
    new: NewMember<'_>,
    identity: &MemberIdentity,
    layout: Layout,
    lebs: u32,
) -> Result<Ubi, ArrayError> {
    let options = FormatOptions {
        layout,
        image_sequence: new.image_sequence,
        erase_counter: None,
    };
    let identity = identity.at(u32::try_from(new.place).expect("16 at most"));
    let mut chip = new.device;
    let device = chip.name();
    let too_small = |found| ArrayError::TooSmall {
        device: Arc::clone(&device),
        found,
        needed: lebs,
    };
    let found = lebs_after_format(&mut chip).map_err(AttachError::from)?;
    if found < lebs {
        return Err(too_small(found));
    }
    let ubi = Ubi::format(chip, options, new.progress)?;
    // Blocks may have become bad.
    let found = ubi.summary().available_lebs;
    if found < lebs {
        return Err(too_small(found));
    }
    let name = volume_name(&identity.name_of_rebuild());
    ubi.make_volume(share_of_array(name, lebs))?;
    ubi.settle()?;
    Ok(ubi)
}

/// A member's shares of all LEBs that other members have mapped.
pub(crate) fn all_shares(members: &[Slot], member: usize) -> Result<Vec<LostShare>, ArrayError> {
    let mut shares = Vec::new();
    let present = || members.iter().flatten().map(|(volume, _)| volume);
    let lebs = present().map(|volume| volume.geometry().lebs).min().unwrap_or(0);
    for leb in (0..lebs).map(Leb) {
        for volume in present() {
            let is_mapped = volume.is_mapped(leb).map_err(|source| ArrayError::Rebuild {
                label: volume.name().to_string(),
                source,
            })?;
            if is_mapped {
                shares.push(LostShare { leb, member });
                break;
            }
        }
    }
    Ok(shares)
}

fn volume_name(name: &str) -> VolumeName {
    VolumeName::new(name.as_bytes()).expect("an identity fits a volume's name")
}
