//! Turns devices into an array: created once ([`format`]), attached every time after ([`attach`]).
//!
//! Each member is a UBI device with one volume whose name identifies the array and the member's place in it
//! ([`MemberIdentity`]). Members are scanned in parallel; interrupted operations are resolved across all of them
//! ([`crate::resolve`]) before any of them is written to.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};

use media::{Clock, Nand, Peb, index};
use ubi::format::VolumeKind;
use ubi::format::volume_table::VolumeName;
use ubi::{
    Access, AttachOptions, FormatOptions, MemberVolume, NewVolume, SizeInLebs, Ubi, UbiVolume, Unwritten,
    Volume, VolumeError, VolumeId, VolumeTableError,
};

use crate::error::{ArrayError, check_shapes};
use crate::executor::{Execution, Executor};
use crate::history::EPOCHS_MAX;
use crate::identity::{MAX_MEMBERS, MemberIdentity, Redundancy};
use crate::log::Log;
use crate::membership::{Absent, Membership, Needed, gather};
use crate::rebuild::{
    NewMember, Progress, all_shares, check_rebuild, format_new_member, is_of_rebuild, may_be_former_member,
    refuse_sound_member,
};
use crate::resolve::{LostShare, Member, Parity, Resolution, resolve};
use crate::virtual_volume::VirtualVolume;

/// The first generation of an epoch, unless higher ones are in use: once an array is closed, the generations of
/// unmapped LEBs are no longer recorded, and a stale member may have blocks of them. With parity, epochs grow in large
/// steps, which leaves each a smaller range.
pub(crate) fn first_generation(redundancy: Redundancy, epoch: NonZeroU64) -> u64 {
    let bits = match redundancy {
        Redundancy::None => 32,
        Redundancy::Parity => 16,
    };
    match epoch.get().leading_zeros() > bits + 1 {
        true => epoch.get() << bits,
        false => 0,
    }
}

/// An attached array.
#[derive(Debug)]
pub struct Array {
    volume: Arc<VirtualVolume<UbiVolume>>,
    /// The devices of the present members.
    devices: Vec<Ubi>,
    /// Their places.
    places: Vec<usize>,
    absent: Option<Absent>,
    /// Progress of the rebuild of a member.
    pub(crate) progress: Mutex<Progress>,
    identity: MemberIdentity,
    resolution: Resolution,
}

/// Generations from here on are considered forged: every map and change takes one, and counting on could overflow 64
/// bits.
const GENERATIONS_MAX: u64 = 1 << 63;

/// Blocks of each member reserved for dirty marks: there are three while one mark replaces another, and the two that
/// UBI reserves serve changes and moves.
const MARK_BLOCKS: u32 = 2;

/// Erases `devices` and creates an empty array on them. `identity` provides array and label; its place and number of
/// members are replaced. If interrupted, it must be run again.
///
/// All members get as many LEBs as the smallest has room for, so that the array's size does not depend on which of them
/// are present.
pub fn format(
    devices: Vec<impl Nand + 'static>,
    options: FormatOptions,
    identity: &MemberIdentity,
    progress: &mut dyn FnMut(usize, Peb),
) -> Result<(), ArrayError> {
    let members = count(devices.len())?;
    let devices = boxed(devices);
    check_shapes(&devices)?;
    let mut formatted = Vec::with_capacity(devices.len());
    for (place, device) in (0..).zip(devices) {
        let own = MemberIdentity {
            index: place,
            members,
            ..identity.clone()
        };
        let name = own.to_string();
        let identity_error = |source| ArrayError::Identity {
            device: device.name(),
            source,
        };
        own.check().map_err(identity_error)?;
        let ubi = Ubi::format(device, options, &mut |peb| progress(index(place), peb))?;
        let name = VolumeName::new(name.as_bytes()).expect("an identity fits a volume's name");
        formatted.push((ubi, name));
    }
    let available = |(ubi, _): &(Ubi, VolumeName)| ubi.summary().available_lebs;
    let least = formatted.iter().map(available).min().unwrap_or(0);
    // At least one LEB: a device without room for it reports the error.
    let lebs = least.saturating_sub(MARK_BLOCKS).max(1);
    for (ubi, name) in formatted {
        ubi.make_volume(share_of_array(name, lebs))?;
        ubi.settle()?;
    }
    Ok(())
}

/// The volume of a member.
pub(crate) fn share_of_array(name: VolumeName, lebs: u32) -> NewVolume {
    NewVolume {
        id: Some(VolumeId(0)),
        name,
        kind: VolumeKind::Dynamic,
        size: SizeInLebs::Exactly(lebs),
        alignment: 1,
        autoresize: false,
        skip_check: false,
    }
}

/// One type of devices for everything behind the functions that take them, which are compiled once this way.
pub(crate) fn boxed(devices: Vec<impl Nand + 'static>) -> Vec<Box<dyn Nand>> {
    devices
        .into_iter()
        .map(|device| -> Box<dyn Nand> { Box::new(device) })
        .collect()
}

/// Attaches an array of `devices`, given in their order. If they are refused, nothing is written; if a device fails
/// during recovery, those before it have been recovered.
pub fn attach(
    devices: Vec<impl Nand + 'static>,
    options: AttachOptions,
    execution: Execution,
) -> Result<Array, ArrayError> {
    adopt(devices, &[], options, execution)
}

/// Attaches an array, and takes back the refused members at `adopted`: those that are stale, or were written to outside
/// the array.
///
/// The other members decide each LEB. On an adopted member, the blocks that have the LEB's generation count; the others
/// are erased first, and the shares that it lacks are lost. Pages that were added to such a LEB while the member was
/// away, or added on it by other software, go unnoticed.
pub fn adopt(
    devices: Vec<impl Nand + 'static>,
    adopted: &[u32],
    options: AttachOptions,
    execution: Execution,
) -> Result<Array, ArrayError> {
    open(boxed(devices), Extra::Adopt(adopted), options, execution)
}

/// Attaches the rest of an array for reading: members may be missing, out of date, or unreadable. Reads of their pages fail
/// as those of lost shares do, unless parity replaces them.
pub fn attach_rest(devices: Vec<impl Nand + 'static>, execution: Execution) -> Result<Array, ArrayError> {
    let options = AttachOptions::linux(Access::ReadOnly);
    open(boxed(devices), Extra::Rest, options, execution)
}

/// An addition to an attach.
pub(crate) enum Extra<'a> {
    /// Take these members back.
    Adopt(&'a [u32]),
    /// Do without any member.
    Rest,
    /// Put a new device in the place of the absent member.
    Rebuild(NewMember<'a>),
}

/// The volume of a member with its clock, unless the member is absent.
pub(crate) type Slot = Option<(Arc<UbiVolume>, Clock)>;

pub(crate) fn open(
    devices: Vec<Box<dyn Nand>>,
    extra: Extra<'_>,
    options: AttachOptions,
    execution: Execution,
) -> Result<Array, ArrayError> {
    count(devices.len())?;
    let replacing = match &extra {
        Extra::Adopt(_) | Extra::Rest => None,
        Extra::Rebuild(new) => Some(&new.device),
    };
    let is_rebuild = replacing.is_some();
    let needed = match &extra {
        Extra::Rest => Needed::Any,
        _ => Needed::AllButParity,
    };
    check_shapes(devices.iter().chain(replacing))?;
    let (mut devices, mut unfinished_at, mut adopted, mut new) = (devices, None, &[][..], None);
    match extra {
        Extra::Adopt(members) => adopted = members,
        Extra::Rest => {}
        Extra::Rebuild(NewMember {
            mut device,
            place,
            image_sequence,
            progress,
        }) => {
            if is_of_rebuild(&mut device, place) {
                let at = place.min(devices.len());
                devices.insert(at, device);
                unfinished_at = Some(at);
                new = Some((None, place, image_sequence, progress));
            } else {
                new = Some((Some(device), place, image_sequence, progress));
            }
        }
    }
    let Membership {
        mut present,
        mut absent,
        rebuilding,
        outdated,
        history,
    } = gather(devices, unfinished_at, adopted, needed, options, execution)?;
    // A rebuild that can't be resumed restarts.
    let new = match rebuilding {
        Some(_) => None,
        None => new.and_then(|(device, place, image_sequence, progress)| {
            Some(NewMember {
                device: device.or(outdated)?,
                place,
                image_sequence,
                progress,
            })
        }),
    };
    let new = new.map(|new| refuse_sound_member(new, &mut present, options));
    let new = new.transpose()?;
    let identity = present[0].found.identity.clone();
    let is_degraded = absent.is_some() || rebuilding.is_some();
    let parity = match (identity.redundancy, is_degraded) {
        (Redundancy::None, _) => Parity::None,
        (Redundancy::Parity, false) => Parity::Complete,
        (Redundancy::Parity, true) => Parity::Degraded,
    };
    // Shares that a rebuild has already written count if they match the other members.
    let is_adopted =
        |place: usize| rebuilding == Some(place) || adopted.iter().any(|adopted| index(*adopted) == place);
    let lebs = present.iter().map(|one| one.found.lebs).max().unwrap_or(0);
    let mut members: Vec<Member<'_>> = present
        .iter_mut()
        .map(|one| Member {
            place: index(one.found.identity.index),
            scanned: &mut one.scanned,
            volume: one.found.volume,
            adopted: is_adopted(index(one.found.identity.index)),
        })
        .collect();
    let mut resolution = resolve(&mut members, lebs, &history, parity)?;
    // A place may be given several times.
    if let (Parity::Complete, Some(place)) = (parity, adopted.first())
        && adopted.iter().all(|other| other == place)
    {
        return Err(ArrayError::RebuildInstead {
            label: identity.label,
            place: *place,
            lost: lost_beside(index(*place), &resolution),
        });
    }
    resolution.update_marker = present.iter().any(|one| one.found.update_marker);
    if is_rebuild && resolution.update_marker {
        return Err(ArrayError::UpdateFirst {
            label: identity.label,
        });
    }
    let of_rebuild = |share: &LostShare| Some(share.member) == rebuilding;
    let (to_make, lost) = resolution.lost_shares.into_iter().partition(of_rebuild);
    resolution.lost_shares = lost;
    resolution.unfinished.extend::<Vec<LostShare>>(to_make);
    // The absent member may be one generation ahead of the others.
    resolution.last_generation += u64::from(parity == Parity::Degraded);
    let epoch = match parity {
        Parity::None | Parity::Complete => history.next_epoch,
        Parity::Degraded => history.epoch_without_a_member(),
    };
    if epoch.get() >= EPOCHS_MAX {
        return Err(ArrayError::Epoch {
            label: identity.label,
            last: epoch.get(),
        });
    }
    if options.access == Access::ReadWrite {
        let first = first_generation(identity.redundancy, epoch);
        resolution.last_generation = resolution.last_generation.max(first);
    }
    if resolution.last_generation >= GENERATIONS_MAX {
        return Err(ArrayError::Generation {
            label: identity.label,
            last: resolution.last_generation,
        });
    }
    let rebuilt = match new {
        None => None,
        Some(mut new) => {
            check_rebuild(&identity, absent.as_ref(), new.place)?;
            let lost = lost_beside(new.place, &resolution);
            if lost > 0 && may_be_former_member(&mut new.device, &identity, new.place) {
                return Err(ArrayError::StillNeeded {
                    device: new.device.name(),
                    label: identity.label,
                    place: new.place,
                    lost,
                });
            }
            let clock = new.device.clock();
            let layout = present[0].scanned.layout();
            let least = present.iter().map(|one| one.found.lebs).min().unwrap_or(0);
            Some((
                new.place,
                format_new_member(new, &identity, layout, least)?,
                clock,
            ))
        }
    };
    let executor =
        Executor::new(execution, index(identity.members)).map_err(|source| ArrayError::Threads { source })?;
    let mut abouts = Vec::with_capacity(present.len());
    let mut unwritten = Vec::with_capacity(present.len());
    for one in present {
        abouts.push((index(one.found.identity.index), one.found.volume, one.clock));
        unwritten.push(one.scanned.build()?);
    }
    let is_writable = unwritten.iter().all(|member| member.frozen().is_none());
    if is_writable {
        // An adopted member belongs to the array once it is marked, so its mismatching blocks are erased before.
        let fit = unwritten
            .iter_mut()
            .zip(&abouts)
            .filter(|(_, (place, ..))| is_adopted(*place));
        fit.map(|(member, _)| member)
            .try_for_each(Unwritten::erase_dropped)?;
        for (member, (place, ..)) in unwritten.iter_mut().zip(&abouts) {
            let redundant = history.redundant_marks.get(place);
            member.erase_marks(redundant.map_or(&[], Vec::as_slice))?;
        }
        unwritten.iter_mut().try_for_each(|member| member.mark(epoch))?;
        // Every later write says that all members are marked.
        unwritten.iter_mut().try_for_each(Unwritten::sync_host)?;
    }
    // If one member can't be written to, none is.
    let finish = match is_writable {
        true => Unwritten::finish,
        false => Unwritten::finish_unwritten,
    };
    let mut devices = unwritten.into_iter().map(finish).collect::<Result<Vec<_>, _>>()?;
    let mut members: Vec<Slot> = (0..identity.members).map(|_| None).collect();
    for (device, (place, volume, clock)) in devices.iter().zip(&abouts) {
        members[*place] = Some((Arc::new(device.open(*volume)?), clock.clone()));
    }
    let mut places: Vec<usize> = abouts.iter().map(|(place, ..)| *place).collect();
    let rebuilding = rebuilding.or(rebuilt.as_ref().map(|(place, ..)| *place));
    if let Some((place, device, clock)) = rebuilt {
        let volume = device.open(VolumeId(0))?;
        let marked = volume.begin_mark(epoch);
        marked.map_err(|source| opening(&identity, source))?;
        resolution.unfinished.extend(all_shares(&members, place)?);
        members[place] = Some((Arc::new(volume), clock));
        let at = places.partition_point(|other| *other < place);
        places.insert(at, place);
        devices.insert(at, device);
        absent = None;
    }
    Ubi::sync_together(&devices);
    let name = format!("{} of {} devices", identity.label, identity.members).into();
    let log = is_writable.then(|| Log::new(&identity, epoch));
    let volume = VirtualVolume::new(
        name,
        members,
        identity.redundancy,
        executor,
        &resolution,
        log,
        rebuilding,
    );
    let begin = || {
        volume.begin()?;
        if !adopted.is_empty() && is_writable {
            // Erases the marks for which an adopted member was refused.
            volume.flush()?;
        }
        let has_all_members = parity == Parity::Complete || rebuilding.is_some();
        match is_writable && has_all_members {
            true => volume.restore_redundancy(&resolution),
            false => Ok(()),
        }
    };
    begin().map_err(|source| opening(&identity, source))?;
    Ok(Array {
        volume: Arc::new(volume),
        devices,
        places,
        absent,
        progress: Mutex::default(),
        identity,
        resolution,
    })
}

/// Number of shares that members other than the one at `place` lost.
fn lost_beside(place: usize, resolution: &Resolution) -> usize {
    let shares = resolution.lost_shares.iter();
    shares.filter(|share| share.member != place).count()
}

fn opening(identity: &MemberIdentity, source: VolumeError) -> ArrayError {
    ArrayError::Open {
        label: identity.label.clone(),
        source,
    }
}

impl Array {
    /// The array's volume.
    #[must_use]
    pub fn volume(&self) -> &Arc<VirtualVolume<UbiVolume>> {
        &self.volume
    }

    /// The devices of the present members, in their order.
    #[must_use]
    pub fn devices(&self) -> &[Ubi] {
        &self.devices
    }

    /// The devices of the present members, with their places.
    pub fn members(&self) -> impl Iterator<Item = (usize, &Ubi)> {
        self.places.iter().copied().zip(&self.devices)
    }

    /// The places of all absent members; several only of [`attach_rest`].
    #[must_use]
    pub fn absent_places(&self) -> Vec<usize> {
        let all = 0..index(self.identity.members);
        all.filter(|place| !self.places.contains(place)).collect()
    }

    /// The absent member, which parity replaces; the first one of several.
    #[must_use]
    pub const fn absent(&self) -> Option<&Absent> {
        self.absent.as_ref()
    }

    /// The place of a new member whose rebuild has not finished: it gets all writes, and lacks some earlier shares.
    #[must_use]
    pub fn rebuilding(&self) -> Option<usize> {
        self.volume.unfinished()
    }

    /// The identity of the first present member: array, label, members.
    #[must_use]
    pub const fn identity(&self) -> &MemberIdentity {
        &self.identity
    }

    /// The decisions about interrupted operations and damaged blocks.
    #[must_use]
    pub const fn resolution(&self) -> &Resolution {
        &self.resolution
    }

    /// Closes an array that was open for writing: finishes the background work of all members, and records on each that
    /// no operation was in progress. Linux attaches them after that. Nothing can be written any more. Dropping an array
    /// without closing it has the effect of a power cut.
    pub fn close(&self) -> Result<(), ArrayError> {
        self.volume.close().map_err(|source| ArrayError::Close {
            label: self.identity.label.clone(),
            source,
        })
    }

    /// Begins to replace the whole content: sets the update marker on all members. Until [`Self::end_update`] the
    /// volume can't be used by any other reader, here or in Linux.
    pub fn begin_update(&self) -> Result<(), VolumeError> {
        self.volume.begin_update()
    }

    /// Ends an update: erases unmapped LEBs so that they can't reappear, then clears the update markers.
    pub fn end_update(&self) -> Result<(), VolumeError> {
        self.volume.end_update()
    }

    /// Runs the background work of all members to completion.
    pub fn settle(&self) -> Result<(), VolumeTableError> {
        self.devices.iter().try_for_each(Ubi::settle)
    }
}

fn count(devices: usize) -> Result<u32, ArrayError> {
    u32::try_from(devices)
        .ok()
        .filter(|count| (1..=MAX_MEMBERS).contains(count))
        .ok_or(ArrayError::Count { found: devices })
}
