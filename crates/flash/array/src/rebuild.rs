//! A new member of an array with parity, made from the others.
//!
//! The new device is formatted with a volume whose name does not make it a member yet, and gets a mark of the array, for which Linux refuses it.
//! The array is open for writing meanwhile, with the new device in its place: it lacks its share of every LEB, and gets everything that is written.
//! Each share is made anew ([`VirtualVolume::mend`]), and last the volume gets the name of a member. Until then the mark stays, also when the array is closed.
//!
//! A rebuild that a power cut or a kill interrupts is taken up where it ended as long as the array was not opened for writing without the device:
//! then its epoch is that of the array. Each share with the generation of its LEB is there, and the others are lost ([`crate::resolve`]).
//!
//! [`VirtualVolume::mend`]: crate::VirtualVolume::mend

use std::sync::PoisonError;

use media::{Leb, Nand, Peb, index};
use ubi::format::volume_table::VolumeName;
use ubi::{Access, AttachOptions, FormatOptions, Layout, Ubi, UbiVolume, Volume, VolumeError, VolumeId};

use crate::error::ArrayError;
use crate::executor::Execution;
use crate::identity::{MemberIdentity, Redundancy};
use crate::membership::Absent;
use crate::open::{Array, Extra, Slot, open, share_of_array};
use crate::resolve::LostShare;
use crate::virtual_volume::Mended;

/// A device that takes the place of a member.
pub struct NewMember<'a, N> {
    /// The device; all that it holds is lost, but for a rebuild that was cut.
    pub device: N,
    /// The place of the member, from 0.
    pub place: usize,
    /// A number that all of its blocks get, and that no other image should have; not 0.
    pub image_sequence: u32,
    /// Told of every block that is formatted.
    pub progress: &'a mut dyn FnMut(Peb),
}

/// The result of a rebuild.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// LEBs of which the new member has its share.
    pub lebs: u32,
    /// LEBs of which it could not be made, since another member can't read its own.
    pub incomplete: Vec<Leb>,
}

/// Opens an array with parity for writing with a new device in the place of one member. `devices` are the others, in their order. The device is
/// formatted, unless a rebuild onto it was cut and can be taken up. [`Array::rebuild`] does the rest.
pub fn with_new_member<N: Nand + 'static>(
    devices: Vec<N>,
    new: NewMember<'_, N>,
    execution: Execution,
) -> Result<Array<N>, ArrayError> {
    let options = AttachOptions::linux(Access::ReadWrite);
    open(devices, Extra::Rebuild(new), options, execution).map_err(|error| match error {
        ArrayError::Missing {
            label,
            redundancy: Redundancy::None,
            ..
        } => ArrayError::NoParity { label },
        error => error,
    })
}

/// How far a rebuild is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// All LEBs below this one were tried.
    next: u32,
    lebs: u32,
}

/// A step of a rebuild.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebuildStep {
    /// The new member has its share of this LEB, unless another member can't read its own.
    Tried(Leb),
    /// The new member is a member.
    Ended(Rebuilt),
    /// No member is being rebuilt.
    Idle,
}

impl<N: Nand + 'static> Array<N> {
    /// Makes all shares that the new member lacks, and makes it a member. `progress` is told of every LEB.
    pub fn rebuild(&self, progress: &mut dyn FnMut(Leb)) -> Result<Rebuilt, ArrayError> {
        loop {
            match self.rebuild_step()? {
                RebuildStep::Tried(leb) => progress(leb),
                RebuildStep::Ended(rebuilt) => return Ok(rebuilt),
                RebuildStep::Idle => return Ok(Rebuilt::default()),
            }
        }
    }

    /// LEBs of which the new member lacks its share.
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

    /// Makes the next share that the new member lacks; without one, makes it a member. The array may be used meanwhile.
    pub fn rebuild_step(&self) -> Result<RebuildStep, ArrayError> {
        // Held to the end: steps are taken one after the other.
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

/// Whether a device holds a member at this place whose rebuild did not end.
pub(crate) fn is_of_rebuild<N: Nand>(device: &mut N, place: usize) -> bool {
    let options = AttachOptions::linux(Access::ReadOnly);
    ubi::scan(device, options).is_ok_and(|scanned| {
        let mut names = scanned
            .volumes()
            .iter()
            .flatten()
            .map(|volume| volume.name.to_string());
        names.any(|name| {
            MemberIdentity::of_rebuild(&name).is_some_and(|identity| index(identity.index) == place)
        })
    })
}

/// Refuses a rebuild for which the others don't have all that it takes.
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

/// Formats a device that is to become a member, with `lebs` LEBs.
pub(crate) fn format_new_member<N: Nand>(
    new: NewMember<'_, N>,
    identity: &MemberIdentity,
    layout: Layout,
    lebs: u32,
) -> Result<Ubi<N>, ArrayError> {
    let options = FormatOptions {
        layout,
        image_sequence: new.image_sequence,
        erase_counter: None,
    };
    let identity = identity.at(u32::try_from(new.place).expect("16 at most"));
    let device = new.device.name();
    let ubi = Ubi::format(new.device, options, new.progress)?;
    let found = ubi.summary().available_lebs;
    if found < lebs {
        return Err(ArrayError::TooSmall {
            device,
            found,
            needed: lebs,
        });
    }
    let name = volume_name(&identity.name_of_rebuild());
    ubi.make_volume(share_of_array(name, lebs))?;
    ubi.settle()?;
    Ok(ubi)
}

/// The shares of a member of all LEBs that others have mapped.
pub(crate) fn all_shares<N: Nand>(members: &[Slot<N>], member: usize) -> Result<Vec<LostShare>, ArrayError> {
    let mut shares = Vec::new();
    let present = || members.iter().flatten().map(|(volume, _)| volume);
    let lebs = present().map(|volume| volume.geometry().lebs).min().unwrap_or(0);
    for leb in (0..lebs).map(Leb) {
        for volume in present() {
            if is_mapped(volume, leb)? {
                shares.push(LostShare { leb, member });
                break;
            }
        }
    }
    Ok(shares)
}

fn is_mapped<N: Nand>(volume: &UbiVolume<N>, leb: Leb) -> Result<bool, ArrayError> {
    match volume.is_mapped(leb) {
        Ok(is_mapped) => Ok(is_mapped),
        // An update did not end: nobody reads or writes the volume before another one does, and that maps all LEBs anew.
        Err(VolumeError::Unusable { .. }) => Ok(false),
        Err(source) => Err(ArrayError::Rebuild {
            label: volume.name().to_string(),
            source,
        }),
    }
}

fn volume_name(name: &str) -> VolumeName {
    VolumeName::new(name.as_bytes()).expect("an identity fits a volume's name")
}
