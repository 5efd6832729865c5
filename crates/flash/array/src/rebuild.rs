//! A new member of an array with parity, made from the others.
//!
//! The new device is formatted with a volume whose name does not make it a member yet. Then the array is opened for writing without the absent
//! member, and with the new one, which lacks its share of every LEB. Each share is made anew ([`VirtualVolume::mend`]); what is
//! written meanwhile goes to the new member, too. Last, the volume gets the name of a member. Until then a power cut, or a kill, leaves an array
//! without this member, and the rebuild is begun again.

use media::{Leb, Nand, Peb};
use std::sync::Arc;
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
    /// The device; all that it holds is lost.
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

/// Opens an array with parity for writing with a new device in the place of one member. `devices` are the others, in their order.
/// [`Array::rebuild`] does the rest.
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

impl<N: Nand + 'static> Array<N> {
    /// Makes all shares of the new member, and makes it a member. `progress` is told of every LEB.
    pub fn rebuild(&mut self, progress: &mut dyn FnMut(Leb)) -> Result<Rebuilt, ArrayError> {
        let mut rebuilt = Rebuilt::default();
        let Some(place) = self.rebuilding else {
            return Ok(rebuilt);
        };
        let volume = Arc::clone(self.volume());
        let failed = |label: &str, source| ArrayError::Rebuild {
            label: label.to_owned(),
            source,
        };
        for leb in (0..volume.geometry().lebs).map(Leb) {
            let is_there = |share: &LostShare| *share == LostShare { leb, member: place };
            let Mended { mended, .. } = volume
                .mend(leb)
                .map_err(|source| failed(&self.identity().label, source))?;
            rebuilt.lebs += u32::from(mended.iter().any(is_there));
            progress(leb);
        }
        let missing = volume.lost_shares().into_iter();
        rebuilt.incomplete = missing
            .filter(|share| share.member == place)
            .map(|share| share.leb)
            .collect();
        volume
            .sync()
            .map_err(|source| failed(&self.identity().label, source))?;
        let name = self.identity().at(u32::try_from(place).expect("16 at most"));
        let device = self.members().find(|(member, _)| *member == place);
        let (_, device) = device.expect("it was opened with the others");
        device.rename_volumes(&[(VolumeId(0), volume_name(&name.to_string()))])?;
        self.rebuilding = None;
        Ok(rebuilt)
    }
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

/// Formats a device that is to become a member, with at least `lebs` LEBs.
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
    let volume = ubi.make_volume(share_of_array(volume_name(&identity.name_of_rebuild())))?;
    ubi.settle()?;
    let found = ubi.open(volume)?.geometry().lebs;
    match found < lebs {
        false => Ok(ubi),
        true => Err(ArrayError::TooSmall {
            device,
            found,
            needed: lebs,
        }),
    }
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
