//! From devices to an array: made once ([`format`]), and attached every time after ([`attach`]).
//!
//! Each member is a UBI device with one volume whose name says which array it belongs to and where ([`MemberIdentity`]).
//! Members are scanned in parallel; what an interrupted operation left is decided over all of them ([`crate::resolve`])
//! before any of them is written to.

use std::sync::Arc;

use media::{Clock, Nand, Peb, index};
use ubi::format::VolumeKind;
use ubi::format::volume_table::VolumeName;
use ubi::{
    AttachError, AttachOptions, FormatOptions, NewVolume, Scanned, SizeInLebs, Ubi, UbiVolume, Unwritten,
    Volume, VolumeError, VolumeId, VolumeTableError,
};

use crate::error::{ArrayError, check_shapes};
use crate::executor::{Execution, Executor};
use crate::history::{History, judge};
use crate::identity::{MAX_MEMBERS, MemberIdentity};
use crate::log::Log;
use crate::resolve::{Member, Resolution, resolve};
use crate::virtual_volume::VirtualVolume;

/// An attached array.
#[derive(Debug)]
pub struct Array<N: Nand + 'static> {
    volume: Arc<VirtualVolume<UbiVolume<N>>>,
    devices: Vec<Ubi<N>>,
    identity: MemberIdentity,
    resolution: Resolution,
}

/// Generations from here on are taken for forged: every map and change takes one, and counting on could pass the end of 64 bits.
const GENERATIONS_MAX: u64 = 1 << 63;

/// The volume of a member, by its volume table.
#[derive(Debug)]
struct Found {
    device: Arc<str>,
    identity: MemberIdentity,
    volume: VolumeId,
    lebs: u32,
    update_marker: bool,
}

/// Erases `devices` and makes an empty array of them. `identity` names array and label; its place and number of members are
/// replaced. When this is interrupted, it is begun again.
pub fn format<N: Nand>(
    devices: Vec<N>,
    options: FormatOptions,
    identity: &MemberIdentity,
    progress: &mut dyn FnMut(usize, Peb),
) -> Result<(), ArrayError> {
    let members = count(devices.len())?;
    check_shapes(&devices)?;
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
        let member = usize::try_from(place).map_or(usize::MAX, |place| place);
        let ubi = Ubi::format(device, options, &mut |peb| progress(member, peb))?;
        ubi.make_volume(NewVolume {
            id: Some(VolumeId(0)),
            name: VolumeName::new(name.as_bytes()).expect("an identity fits a volume's name"),
            kind: VolumeKind::Dynamic,
            size: SizeInLebs::AllFree,
            alignment: 1,
            autoresize: false,
            skip_check: false,
        })?;
        ubi.settle()?;
    }
    Ok(())
}

/// Attaches an array of `devices`, which are given in their order. Nothing is written when they are refused; where a device fails while it is
/// put right, those before it are put right.
pub fn attach<N: Nand + 'static>(
    devices: Vec<N>,
    options: AttachOptions,
    execution: Execution,
) -> Result<Array<N>, ArrayError> {
    adopt(devices, &[], options, execution)
}

/// Attaches an array, and takes the members at `adopted` back, which it refuses: they are stale, or were written to by themselves.
///
/// The other members alone decide what the LEBs are. Of an adopted member those blocks count whose generation is the LEB's; the
/// others are erased first of all, and the shares that it lacks are lost. Pages that were added to such a LEB while it was away, or that
/// something else added on it, are not noticed.
pub fn adopt<N: Nand + 'static>(
    devices: Vec<N>,
    adopted: &[u32],
    options: AttachOptions,
    execution: Execution,
) -> Result<Array<N>, ArrayError> {
    count(devices.len())?;
    check_shapes(&devices)?;
    let names: Vec<Arc<str>> = devices.iter().map(Nand::name).collect();
    let clocks: Vec<Clock> = devices.iter().map(Nand::clock).collect();
    // The decisions below rest on the present content of all members, so that has to survive a crash of the host.
    for host in devices.iter().filter_map(Nand::host) {
        host.sync().map_err(AttachError::from)?;
    }
    let mut scanned = scan_all(devices, options, execution)?;
    let found = scanned
        .iter()
        .zip(names)
        .map(|(member, device)| identify(device, member))
        .collect::<Result<Vec<_>, _>>()?;
    check_membership(&found)?;
    let volumes: Vec<VolumeId> = found.iter().map(|member| member.volume).collect();
    let lebs = found.iter().map(|member| member.lebs).max().unwrap_or(0);
    let history = history_without(adopted, &mut scanned, &found)?;
    let is_adopted = |found: &Found| adopted.contains(&found.identity.index);
    let members = scanned.iter_mut().zip(&found).map(|(scanned, found)| Member {
        place: index(found.identity.index),
        scanned,
        volume: found.volume,
        adopted: is_adopted(found),
    });
    let mut resolution = resolve(&mut members.collect::<Vec<_>>(), lebs, &history)?;
    resolution.update_marker = found.iter().any(|member| member.update_marker);
    if resolution.last_generation >= GENERATIONS_MAX {
        return Err(ArrayError::Generation {
            label: found[0].identity.label.clone(),
            last: resolution.last_generation,
        });
    }
    let executor =
        Executor::new(execution, scanned.len()).map_err(|source| ArrayError::Threads { source })?;
    let mut unwritten = scanned
        .into_iter()
        .map(Scanned::build)
        .collect::<Result<Vec<_>, _>>()?;
    let is_writable = unwritten.iter().all(|member| member.frozen().is_none());
    if is_writable {
        // An adopted member belongs to the array from its mark on, so what does not fit goes before.
        let fit = unwritten
            .iter_mut()
            .zip(&found)
            .filter(|(_, found)| is_adopted(found));
        fit.map(|(member, _)| member)
            .try_for_each(Unwritten::erase_dropped)?;
        unwritten
            .iter_mut()
            .try_for_each(|member| member.mark(history.next_epoch))?;
    }
    // With a member that can't be written to, nothing is written to the others.
    let finish = match is_writable {
        true => Unwritten::finish,
        false => Unwritten::finish_unwritten,
    };
    let devices = unwritten.into_iter().map(finish).collect::<Result<Vec<_>, _>>()?;
    Ubi::sync_together(&devices);
    let mut members = Vec::with_capacity(devices.len());
    for ((device, volume), clock) in devices.iter().zip(volumes).zip(clocks) {
        members.push((Arc::new(device.open(volume)?), clock));
    }
    let identity = found.into_iter().next().expect("an array has members").identity;
    let name = format!("{} of {} devices", identity.label, identity.members).into();
    let log = is_writable.then(|| Log::new(&identity, history.next_epoch));
    let volume = VirtualVolume::new(name, members, executor, &resolution, log);
    let begun = volume
        .begin()
        .and_then(|()| match adopted.is_empty() || !is_writable {
            true => Ok(()),
            // Marks for which an adopted member was refused are gone for good.
            false => volume.flush(),
        });
    begun.map_err(|source| ArrayError::Open {
        label: identity.label.clone(),
        source,
    })?;
    Ok(Array {
        volume: Arc::new(volume),
        devices,
        identity,
        resolution,
    })
}

impl<N: Nand + 'static> Array<N> {
    /// The one volume.
    #[must_use]
    pub fn volume(&self) -> &Arc<VirtualVolume<UbiVolume<N>>> {
        &self.volume
    }

    /// The members' devices, in their order.
    #[must_use]
    pub fn devices(&self) -> &[Ubi<N>] {
        &self.devices
    }

    /// Who this array is, as its first member says it.
    #[must_use]
    pub const fn identity(&self) -> &MemberIdentity {
        &self.identity
    }

    /// The decisions about operations that a power cut interrupted, and about damaged blocks.
    #[must_use]
    pub const fn resolution(&self) -> &Resolution {
        &self.resolution
    }

    /// Closes an array that was open for writing: does the background work of all members, and has them say that nothing was
    /// under way. Linux attaches them after that. Nothing can be written any more. An array that is dropped without it is as if
    /// power had gone.
    pub fn close(&self) -> Result<(), ArrayError> {
        self.volume.close().map_err(|source| ArrayError::Close {
            label: self.identity.label.clone(),
            source,
        })
    }

    /// Begins to replace the whole content: all members are marked, and until [`Self::end_update`] nobody else can use the volume, here or
    /// in Linux.
    pub fn begin_update(&self) -> Result<(), VolumeError> {
        self.volume.begin_update()
    }

    /// Ends it: what was unmapped does not come back, and then the markers go.
    pub fn end_update(&self) -> Result<(), VolumeError> {
        self.volume.end_update()
    }

    /// Does the background work of all members until there is none.
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

/// Scans all devices, each on a thread of its own where the array has threads. In virtual time they are parallel anyway:
/// each has its own clock.
fn scan_all<N: Nand>(
    devices: Vec<N>,
    options: AttachOptions,
    execution: Execution,
) -> Result<Vec<Scanned<N>>, AttachError> {
    match execution {
        Execution::Inline => devices
            .into_iter()
            .map(|device| ubi::scan(device, options))
            .collect(),
        Execution::Threads => std::thread::scope(|scope| {
            let scans: Vec<_> = devices
                .into_iter()
                .map(|device| scope.spawn(move || ubi::scan(device, options)))
                .collect();
            scans
                .into_iter()
                .map(|scan| {
                    scan.join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect()
        }),
    }
}

fn identify<N: Nand>(device: Arc<str>, member: &Scanned<N>) -> Result<Found, ArrayError> {
    let mut volumes = (0..)
        .zip(member.volumes())
        .filter_map(|(id, record)| Some((id, record.as_ref()?)));
    let (Some((id, record)), None) = (volumes.next(), volumes.next()) else {
        let found = member.volumes().iter().flatten().count();
        return Err(ArrayError::Volumes { device, found });
    };
    let name = String::from_utf8_lossy(record.name.as_bytes());
    match name.parse::<MemberIdentity>() {
        Ok(identity) => Ok(Found {
            device,
            identity,
            volume: VolumeId(id),
            lebs: record.reserved_pebs,
            update_marker: record.update_marker,
        }),
        Err(source) => Err(ArrayError::Identity { device, source }),
    }
}

/// The history by the members that are not refused. Those that are have to be `adopted`, and no others.
fn history_without<N: Nand>(
    adopted: &[u32],
    scanned: &mut [Scanned<N>],
    found: &[Found],
) -> Result<History, ArrayError> {
    let label = || found[0].identity.label.clone();
    let mut refused = Vec::new();
    loop {
        let left = scanned
            .iter_mut()
            .zip(found)
            .filter(|(_, found)| !refused.contains(&found.identity.index))
            .map(|(member, found)| (member, &found.device, &found.identity));
        let mut left = left.peekable();
        if left.peek().is_none() {
            return Err(ArrayError::AllRefused { label: label() });
        }
        match judge(left) {
            Err(ArrayError::Stale { index, .. } | ArrayError::WrittenAlone { index, .. })
                if adopted.contains(&index) =>
            {
                refused.push(index);
            }
            Err(error) => return Err(error),
            Ok(history) => {
                let sound = found.iter().find(|found| {
                    let index = &found.identity.index;
                    adopted.contains(index) && !refused.contains(index)
                });
                return match sound {
                    None => Ok(history),
                    Some(sound) => Err(ArrayError::NotRefused {
                        device: Arc::clone(&sound.device),
                        index: sound.identity.index,
                        label: label(),
                    }),
                };
            }
        }
    }
}

fn check_membership(found: &[Found]) -> Result<(), ArrayError> {
    let first = &found[0];
    let label = || first.identity.label.clone();
    for (place, member) in found.iter().enumerate() {
        if member.identity.array != first.identity.array {
            return Err(ArrayError::Foreign {
                device: Arc::clone(&member.device),
                first: Arc::clone(&first.device),
                found: member.identity.array,
                label: member.identity.label.clone(),
                expected: first.identity.array,
            });
        }
        let index = member.identity.index;
        if let Some(earlier) = found[..place]
            .iter()
            .find(|earlier| earlier.identity.index == index)
        {
            return Err(ArrayError::Twice {
                device: Arc::clone(&member.device),
                first: Arc::clone(&earlier.device),
                index,
                label: label(),
            });
        }
    }
    let expected = first.identity.members;
    let missing: Vec<String> = (0..expected)
        .filter(|place| found.iter().all(|member| member.identity.index != *place))
        .map(|place| place.to_string())
        .collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Err(ArrayError::Missing {
            label: label(),
            expected,
            found: found.len(),
            missing,
        });
    }
    let Some((given, member)) = (0..)
        .zip(found)
        .find(|(given, member)| member.identity.index != *given)
    else {
        return Ok(());
    };
    let mut order: Vec<&Found> = found.iter().collect();
    order.sort_by_key(|member| member.identity.index);
    let order: Vec<&str> = order.into_iter().map(|member| &*member.device).collect();
    Err(ArrayError::Swapped {
        device: Arc::clone(&member.device),
        found: member.identity.index,
        given,
        label: label(),
        order: order.join(" "),
    })
}
