//! Identifies the members of an array among the given devices, the one that an array with parity leaves out, and the
//! array's history. Writes nothing.

use std::sync::Arc;

use media::{Clock, Nand, index};
use ubi::{AttachError, AttachOptions, Scanned, VolumeId};

use crate::error::ArrayError;
use crate::executor::Execution;
use crate::history::{History, judge};
use crate::identity::{IdentityError, MemberIdentity, Redundancy};

/// A member's volume, as described by its volume table.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) device: Arc<str>,
    pub(crate) identity: MemberIdentity,
    pub(crate) volume: VolumeId,
    pub(crate) lebs: u32,
    pub(crate) update_marker: bool,
}

/// A member that is present.
#[derive(Debug)]
pub(crate) struct Present {
    /// Its position among the given devices.
    given: usize,
    pub(crate) scanned: Scanned,
    pub(crate) clock: Clock,
    pub(crate) found: Found,
}

/// The absent member of a degraded array with parity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// Its place.
    pub place: usize,
    /// The reason: it was not given, can't be read, or is refused.
    pub why: String,
}

/// The members of an array, and its history.
pub(crate) struct Membership {
    /// In their order, including the one that is being rebuilt.
    pub(crate) present: Vec<Present>,
    pub(crate) absent: Option<Absent>,
    /// The place of a new member whose interrupted rebuild is resumed: it has everything that the array wrote since.
    pub(crate) rebuilding: Option<usize>,
    /// A device whose rebuild can't be resumed.
    pub(crate) outdated: Option<Box<dyn Nand>>,
    pub(crate) history: History,
}

/// The members without which an array is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    /// All but one that parity replaces.
    AllButParity,
    /// Any one, for a salvage.
    Any,
}

/// The reason given for a new member whose rebuild is not finished.
const UNFINISHED: &str = "its rebuild did not end";

/// Scans `devices`, given in their order, and compares them. The one at `unfinished_at` must be readable.
pub(crate) fn gather(
    devices: Vec<Box<dyn Nand>>,
    unfinished_at: Option<usize>,
    adopted: &[u32],
    needed: Needed,
    options: AttachOptions,
    execution: Execution,
) -> Result<Membership, ArrayError> {
    let about: Vec<(Arc<str>, Clock)> = devices
        .iter()
        .map(|device| (device.name(), device.clock()))
        .collect();
    // Decisions are based on the current content of all members, so it must survive a crash of the host.
    for host in devices.iter().filter_map(Nand::host) {
        host.sync().map_err(AttachError::from)?;
    }
    let (mut present, mut failed, mut unfinished) = (Vec::new(), Vec::new(), Vec::new());
    let scans = scan_all(devices, options, execution);
    let given_devices = scans.len();
    for (given, (scan, (device, clock))) in scans.into_iter().zip(about).enumerate() {
        let identified = scan.map_err(ArrayError::from).and_then(|scanned| {
            let identified = identify(device, &scanned)?;
            Ok((scanned, identified))
        });
        match identified {
            Ok((scanned, (found, is_unfinished))) => {
                let one = Present {
                    given,
                    scanned,
                    clock,
                    found,
                };
                match is_unfinished {
                    true => unfinished.push(one),
                    false => present.push(one),
                }
            }
            Err(error) if unfinished_at == Some(given) => return Err(error),
            Err(error) => failed.push(error),
        }
    }
    let has_parity = |one: &Present| one.found.identity.redundancy == Redundancy::Parity;
    let is_enough = match needed {
        Needed::AllButParity => {
            present.first().is_some_and(has_parity) && failed.len() + unfinished.len() == 1
        }
        Needed::Any => !present.is_empty(),
    };
    let mut unfinished = match is_enough {
        true => unfinished.pop(),
        false => {
            failed.extend(unfinished.into_iter().map(of_unfinished));
            None
        }
    };
    let mut why = failed.into_iter().next();
    if !is_enough && let Some(error) = why.take() {
        return Err(error);
    }
    let members: Vec<(usize, &Found)> = present.iter().map(|one| (one.given, &one.found)).collect();
    let missing = check_membership(&members, given_devices, needed)?;
    if missing.is_none() {
        // Without a member missing, the device has no place in the array.
        let error = why.take().or_else(|| unfinished.take().map(of_unfinished));
        error.map_or(Ok(()), Err)?;
    }
    let mut absent = missing.map(|place| Absent {
        place: index(place),
        why: match (why.take(), &unfinished) {
            (Some(error), _) => error.to_string(),
            (None, Some(one)) => format!("{}: {UNFINISHED}", one.found.device),
            (None, None) => "it was not given".to_owned(),
        },
    });
    check_adopted(adopted, &present[0].found.identity, absent.as_ref())?;
    let mut history = loop {
        let error = match history_without(adopted, &mut present) {
            Ok(history) => break history,
            Err(error) => error,
        };
        let refused = match &error {
            ArrayError::Stale { index, .. } | ArrayError::WrittenAlone { index, .. } => *index,
            _ => return Err(error),
        };
        let may_lack = match needed {
            Needed::AllButParity => absent.is_none() && present.first().is_some_and(has_parity),
            Needed::Any => present.len() > 1,
        };
        if !may_lack {
            return Err(error);
        }
        present.retain(|one| one.found.identity.index != refused);
        absent.get_or_insert_with(|| Absent {
            place: index(refused),
            why: error.to_string(),
        });
    };
    let (mut rebuilding, mut outdated) = (None, None);
    if let Some(mut one) = unfinished.take() {
        let (of_array, own) = (&present[0].found.identity, &one.found.identity);
        let place = index(own.index);
        let is_own = own.array == of_array.array
            && own.members == of_array.members
            && absent.as_ref().is_some_and(|absent| absent.place == place);
        if is_own && history.takes_up(&mut one.scanned, &one.found.device, &one.found.identity)? {
            let at = present.partition_point(|other| other.found.identity.index < one.found.identity.index);
            present.insert(at, one);
            rebuilding = Some(place);
            absent = None;
        } else {
            if let Some(absent) = absent.as_mut().filter(|_| is_own) {
                absent.why = format!(
                    "{}: {UNFINISHED}, and the array was used without it since, so that the rebuild begins anew",
                    one.found.device
                );
            }
            outdated = Some(one.scanned.into_device());
        }
    }
    Ok(Membership {
        present,
        absent,
        rebuilding,
        outdated,
        history,
    })
}

/// The error about a new member whose rebuild is not finished, and which the array can't take.
fn of_unfinished(one: Present) -> ArrayError {
    ArrayError::Identity {
        device: one.found.device,
        source: IdentityError::Unfinished {
            name: one.found.identity.name_of_rebuild(),
        },
    }
}

/// Refuses to adopt members that are not there.
fn check_adopted(
    adopted: &[u32],
    identity: &MemberIdentity,
    absent: Option<&Absent>,
) -> Result<(), ArrayError> {
    for place in adopted {
        let why = match absent {
            _ if *place >= identity.members => {
                format!("it has {} members, numbered from 0", identity.members)
            }
            Some(absent) if absent.place == index(*place) => absent.why.clone(),
            _ => continue,
        };
        return Err(ArrayError::NothingToAdopt {
            label: identity.label.clone(),
            place: *place,
            why,
        });
    }
    Ok(())
}

/// Reads the history from the members that are not refused. The refused ones must be exactly the `adopted` ones.
fn history_without(adopted: &[u32], present: &mut [Present]) -> Result<History, ArrayError> {
    let label = present[0].found.identity.label.clone();
    let mut refused = Vec::new();
    loop {
        let left = present
            .iter_mut()
            .filter(|one| !refused.contains(&one.found.identity.index))
            .map(|one| (&mut one.scanned, &one.found.device, &one.found.identity));
        let mut left = left.peekable();
        if left.peek().is_none() {
            return Err(ArrayError::AllRefused { label });
        }
        match judge(left) {
            Err(ArrayError::Stale { index, .. } | ArrayError::WrittenAlone { index, .. })
                if adopted.contains(&index) =>
            {
                refused.push(index);
            }
            Err(error) => return Err(error),
            Ok(history) => {
                let sound = present.iter().map(|one| &one.found).find(|found| {
                    let index = &found.identity.index;
                    adopted.contains(index) && !refused.contains(index)
                });
                return match sound {
                    None => Ok(history),
                    Some(sound) => Err(ArrayError::NotRefused {
                        device: Arc::clone(&sound.device),
                        index: sound.identity.index,
                        label,
                    }),
                };
            }
        }
    }
}

/// Scans all devices, each in its own thread if the array has threads. In virtual time they run in parallel anyway:
/// each has its own clock.
fn scan_all(
    devices: Vec<Box<dyn Nand>>,
    options: AttachOptions,
    execution: Execution,
) -> Vec<Result<Scanned, AttachError>> {
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

/// Reads a member's identity from the name of its volume, and whether its rebuild is unfinished.
fn identify(device: Arc<str>, member: &Scanned) -> Result<(Found, bool), ArrayError> {
    let mut volumes = (0..)
        .zip(member.volumes())
        .filter_map(|(id, record)| Some((id, record.as_ref()?)));
    let (Some((id, record)), None) = (volumes.next(), volumes.next()) else {
        let found = member.volumes().iter().flatten().count();
        return Err(ArrayError::Volumes { device, found });
    };
    let name = String::from_utf8_lossy(record.name.as_bytes());
    let unfinished = MemberIdentity::of_rebuild(&name);
    let is_unfinished = unfinished.is_some();
    match unfinished.map_or_else(|| name.parse::<MemberIdentity>(), Ok) {
        Ok(identity) => Ok((
            Found {
                device,
                identity,
                volume: VolumeId(id),
                lebs: record.reserved_pebs,
                update_marker: record.update_marker,
            },
            is_unfinished,
        )),
        Err(source) => Err(ArrayError::Identity { device, source }),
    }
}

/// Checks that members belong to one array and are in order, and that none is missing that is needed: returns the place of
/// the first one missing.
fn check_membership(
    found: &[(usize, &Found)],
    devices: usize,
    needed: Needed,
) -> Result<Option<u32>, ArrayError> {
    let first = found[0].1;
    let label = || first.identity.label.clone();
    for (place, (_, member)) in found.iter().enumerate() {
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
        if let Some((_, earlier)) = found[..place]
            .iter()
            .find(|(_, earlier)| earlier.identity.index == index)
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
    let missing: Vec<u32> = (0..expected)
        .filter(|place| found.iter().all(|(_, member)| member.identity.index != *place))
        .collect();
    let most = match needed {
        Needed::AllButParity => usize::from(first.identity.redundancy == Redundancy::Parity),
        Needed::Any => usize::MAX,
    };
    if missing.len() > most {
        let missing: Vec<String> = missing.iter().map(u32::to_string).collect();
        return Err(ArrayError::Missing {
            label: label(),
            expected,
            found: devices,
            missing: missing.join(", "),
            redundancy: first.identity.redundancy,
        });
    }
    // Names decide about a rest, of which any number of devices may be omitted.
    if needed == Needed::Any && !missing.is_empty() {
        return Ok(missing.first().copied());
    }
    // If a device is omitted, those after it move up.
    let moved_up = |given: usize| match missing.first() {
        Some(absent) if devices < index(expected) && given >= index(*absent) => given + 1,
        _ => given,
    };
    let wrong = found
        .iter()
        .map(|(given, member)| (moved_up(*given), member))
        .find(|(given, member)| index(member.identity.index) != *given);
    let Some((given, member)) = wrong else {
        return Ok(missing.first().copied());
    };
    let mut order: Vec<&Found> = found.iter().map(|(_, member)| *member).collect();
    order.sort_by_key(|member| member.identity.index);
    let order: Vec<&str> = order.into_iter().map(|member| &*member.device).collect();
    Err(ArrayError::Swapped {
        device: Arc::clone(&member.device),
        found: member.identity.index,
        given: u32::try_from(given).unwrap_or(u32::MAX),
        label: label(),
        order: order.join(" "),
    })
}
