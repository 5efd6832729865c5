//! The commands of `tidegate ubi` on several chips that form one array.

use std::collections::BTreeSet;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result, bail};
use array::{
    Array, ArrayError, ArrayState, Execution, LostShare, MAX_MEMBERS, MIN_MEMBERS_WITH_PARITY,
    MemberIdentity, NewMember, Rebuilt, Redundancy, Resolution,
};
use media::{Leb, Nand};
use nand::{Access, FileError, MtdError};
use serde_json::{Value, json};
use ubi::{AttachOptions, FormatOptions, Layout, Volume};

use super::chip::{Chip, ChipArguments, bar, finish, in_real_time};
use super::dump::DumpArguments;
use super::format::FormatArguments;
use super::info;
use super::update::UpdateArguments;
use crate::Finding;
use crate::output::{print_error, print_line};
use crate::quantity::show_bytes;

/// Attaches an array and prints its state and damage.
pub fn attach(chips: &[ChipArguments], access: ubi::Access) -> Result<Array> {
    let array = open(chips, access)?;
    for line in told(&array, chips) {
        print_error(&line);
    }
    Ok(array)
}

/// Attaches the rest of an array for a salvage. Chips that can't be opened are told; the missing members are told by
/// [`missing_told`].
pub fn attach_rest(chips: &[ChipArguments]) -> Result<Array> {
    refuse_one_file(chips)?;
    let mut open = Vec::with_capacity(chips.len());
    let mut failed = Vec::new();
    for chip in chips {
        match chip.open(Access::ReadOnly) {
            Ok(chip) => open.push(chip),
            Err(error) => failed.push(error),
        }
    }
    if open.is_empty() {
        return Err(failed.pop().context("an array has members")?);
    }
    for error in failed {
        print_error(&format!("{error:#}"));
    }
    let array = array::attach_rest(open, Execution::Threads)?;
    let lines = match is_replaced(&array) {
        true => told(&array, chips),
        false => damage_told(&array, chips),
    };
    for line in lines {
        print_error(&line);
    }
    Ok(array)
}

/// The lines about missing members that parity does not replace.
pub fn missing_told(array: &Array) -> Vec<String> {
    let identity = array.identity();
    let missing = array.absent_places();
    if is_replaced(array) {
        return Vec::new();
    }
    let line = |place: usize| {
        let why = array.absent().filter(|absent| absent.place == place);
        let why = why.map_or_else(String::new, |absent| format!(" ({})", absent.why));
        format!(
            "array {}: member {place} of {} is missing{why}: its pages are holes",
            identity.label, identity.members
        )
    };
    missing.into_iter().map(line).collect()
}

/// Whether parity replaces all absent members.
fn is_replaced(array: &Array) -> bool {
    array.identity().redundancy == Redundancy::Parity && array.absent_places().len() <= 1
}

fn open(chips: &[ChipArguments], access: ubi::Access) -> Result<Array> {
    adopt(chips, &[], access)
}

/// Attaches an array and readmits the members in `adopted`, which it would refuse.
pub fn adopt(chips: &[ChipArguments], adopted: &[u32], access: ubi::Access) -> Result<Array> {
    for place in adopted {
        check_place(media::index(*place), chips)?;
    }
    let of_nand = match access {
        ubi::Access::ReadOnly => Access::ReadOnly,
        ubi::Access::ReadWrite => Access::ReadWrite,
    };
    let (open, missing) = open_all(chips, of_nand)?;
    let attached = array::adopt(open, adopted, AttachOptions::linux(access), Execution::Threads);
    match (attached, missing) {
        (Ok(array), Some(error)) => {
            print_error(&format!("{error:#}"));
            Ok(array)
        }
        // Without parity, the chip that can't be opened is the actual error.
        (Err(ArrayError::Missing { .. }), Some(error)) => Err(error),
        (attached, _) => Ok(attached?),
    }
}

/// Runs `work` on an array that is open for writing, and closes it whether the work succeeds or not: until then Linux
/// refuses the members.
pub fn closing<T>(array: &Array, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = work();
    let closed = array.close();
    // An array that can't be closed has a reason, which is the work's.
    let done = done?;
    closed?;
    Ok(done)
}

/// Refuses chips of which two are one file: its lock would be said to be held by another process.
fn refuse_one_file(chips: &[ChipArguments]) -> Result<()> {
    let mut seen: Vec<((u64, u64), &ChipArguments)> = Vec::new();
    for chip in chips {
        // A missing file is reported when it is opened.
        let Ok(metadata) = std::fs::metadata(&chip.image) else {
            continue;
        };
        let file = (metadata.dev(), metadata.ino());
        if let Some((_, first)) = seen.iter().find(|(other, _)| *other == file) {
            bail!(
                "{} and {} are the same file; give each chip once",
                first.image.display(),
                chip.image.display()
            );
        }
        seen.push((file, chip));
    }
    Ok(())
}

fn check_place(place: usize, chips: &[ChipArguments]) -> Result<()> {
    match place < chips.len() {
        true => Ok(()),
        false => bail!("member {place}: there are {} chips, numbered from 0", chips.len()),
    }
}

/// Opens an array with parity for writing, and has the chip at `place` become its member there. Damage of the others is told.
pub fn with_new_member(chips: &[ChipArguments], place: usize, force: bool) -> Result<Array> {
    check_place(place, chips)?;
    refuse_one_file(chips)?;
    // --force is about the chip's volumes. It must not take the redundancy from an array that has all of its members.
    refuse_sound_member(chips, place)?;
    let is_real = chips.iter().any(|chip| chip.in_real_time);
    let mut open = chips
        .iter()
        .map(|chip| chip.open(Access::ReadWrite))
        .collect::<Result<Vec<_>>>()?;
    if !force {
        refuse_volumes_but_of_rebuild(&mut open, place, &chips[place])?;
    }
    if is_real {
        open = in_real_time(open);
    }
    let device = open.remove(place);
    let formatting = bar(u64::from(device.geometry().blocks()), "formatting");
    let new = NewMember {
        device: Box::new(device),
        place,
        image_sequence: super::format::random(),
        progress: &mut |_| formatting.inc(1),
    };
    let array = array::with_new_member(open, new, Execution::Threads)?;
    formatting.finish_and_clear();
    for line in damage_told(&array, chips) {
        print_error(&line);
    }
    Ok(array)
}

/// Refuses to rebuild a member of an array with parity that has all of its members.
fn refuse_sound_member(chips: &[ChipArguments], place: usize) -> Result<()> {
    let Ok(array) = open(chips, ubi::Access::ReadOnly) else {
        // The attach without the member reports errors of the others.
        return Ok(());
    };
    let has_parity = array.identity().redundancy == Redundancy::Parity;
    match !has_parity || array.absent().is_some() || array.rebuilding().is_some() {
        true => Ok(()),
        false => bail!(
            "array {}: member {place} is there and is not refused, so there is nothing to rebuild; formatting it would take the array's \
             redundancy. To replace it, give another chip in its place. Nothing was changed",
            array.identity().label
        ),
    }
}

/// Refuses a chip with volumes, unless they are of an interrupted rebuild of this member of this array.
fn refuse_volumes_but_of_rebuild(open: &mut [Chip], place: usize, chip: &ChipArguments) -> Result<()> {
    let unfinished = match &volume_names(&mut open[place])[..] {
        [name] => MemberIdentity::of_rebuild(name),
        _ => None,
    };
    let of_place = unfinished.filter(|identity| media::index(identity.index) == place);
    let is_own = of_place.is_some_and(|unfinished| {
        let others = (0..).zip(open.iter_mut()).filter(|(other, _)| *other != place);
        let mut members = others.filter_map(|(_, other)| volume_names(other).first()?.parse().ok());
        members.any(|member: MemberIdentity| member.array == unfinished.array)
    });
    match is_own {
        true => Ok(()),
        false => super::format::refuse_volumes(&mut open[place], &chip.image),
    }
}

/// Names of a chip's volumes; none if it can't be attached.
pub fn volume_names(device: &mut Chip) -> Vec<String> {
    let volumes = ubi::volume_table(device).unwrap_or_default();
    let names = volumes.iter().flatten().map(|volume| volume.name.to_string());
    names.collect()
}

/// The LEBs of which a rebuild could not make the share.
pub fn incomplete(array: &Array, rebuilt: &Rebuilt) -> String {
    let mut named: Vec<String> = rebuilt
        .incomplete
        .iter()
        .take(LOST_SHOWN)
        .map(ToString::to_string)
        .collect();
    if let Some(more) = rebuilt
        .incomplete
        .len()
        .checked_sub(LOST_SHOWN)
        .filter(|more| *more > 0)
    {
        named.push(format!("{more} more"));
    }
    format!(
        "array {}: the new member lacks its share of {}: another member can't read all of its share",
        array.identity().label,
        named.join(", ")
    )
}

/// Opens the chips. One may be missing if there are enough for parity; its error is returned beside the others. For
/// writing, a chip that is there and can't be used at the moment counts as an error: the array would leave it behind.
pub fn open_all(chips: &[ChipArguments], access: Access) -> Result<(Vec<Chip>, Option<anyhow::Error>)> {
    let is_real = chips.iter().any(|chip| chip.in_real_time);
    refuse_one_file(chips)?;
    let (mut open, mut missing) = (Vec::with_capacity(chips.len()), None);
    for chip in chips {
        match chip.open(access) {
            Ok(chip) => open.push(chip),
            Err(error) if access == Access::ReadWrite && chips.len() > 2 && is_there(&error) => {
                return Err(error.context(
                    "a member can't be written to, and would be out of date if the array were without it",
                ));
            }
            Err(error) if missing.is_none() && chips.len() > 2 => missing = Some(error),
            Err(error) => return Err(missing.unwrap_or(error)),
        }
    }
    if is_real {
        open = in_real_time(open);
    }
    Ok((open, missing))
}

/// Whether a chip that can't be opened is there: something else uses it, or this process may not write to it.
fn is_there(error: &anyhow::Error) -> bool {
    let is_of_host = |error: &std::io::Error| {
        matches!(
            error.kind(),
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::ResourceBusy
        )
    };
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(FileError::Locked { .. }))
            || matches!(
                cause.downcast_ref(),
                Some(MtdError::Locked { .. } | MtdError::Busy { .. })
            )
            || cause.downcast_ref().is_some_and(is_of_host)
    })
}

/// The image of the member at an index of the array.
pub fn name_of(array: &Array, chips: &[ChipArguments], place: usize) -> String {
    let members = usize::try_from(array.identity().members).unwrap_or(usize::MAX);
    let given = match array.absent() {
        Some(absent) if chips.len() < members && place == absent.place => None,
        Some(absent) if chips.len() < members && place > absent.place => place.checked_sub(1),
        _ => Some(place),
    };
    match given.and_then(|given| chips.get(given)) {
        Some(chip) => chip.image.display().to_string(),
        None => format!("member {place}"),
    }
}

/// Refuses volume commands on an array.
pub fn refuse_volumes(chip: &ChipArguments, what: &str) -> Result<()> {
    match chip.members()? {
        None => Ok(()),
        Some(_) => {
            bail!("{what}: an array has one volume over all its members, which `tidegate ubi format` made")
        }
    }
}

/// `tidegate ubi format` on several chips.
pub fn format(arguments: &FormatArguments, chips: &[ChipArguments]) -> Result<()> {
    if arguments.image_file.is_some() {
        bail!(
            "--image-file: an image of one device can't be written to an array; format it, then `tidegate ubi update`"
        );
    }
    let mut open = Vec::with_capacity(chips.len());
    for chip in chips {
        let mut device = chip.open(Access::ReadWrite)?;
        if !arguments.force {
            super::format::refuse_volumes(&mut device, &chip.image)?;
        }
        open.push(device);
    }
    if arguments.parity && open.len() < usize::try_from(MIN_MEMBERS_WITH_PARITY)? {
        bail!(
            "--parity: an array with parity has {MIN_MEMBERS_WITH_PARITY} to {MAX_MEMBERS} devices, not {}",
            open.len()
        );
    }
    let first = open.first().context("an array has members")?.geometry();
    let layout = match arguments.vid_header_offset {
        None => Layout::usual(&first)?,
        Some(offset) => Layout::with_vid_header_at(&first, u32::try_from(offset)?)?,
    };
    let options = FormatOptions {
        layout,
        image_sequence: arguments.image_seq.unwrap_or_else(super::format::random),
        erase_counter: arguments.erase_counter,
    };
    let blocks: u64 = open
        .iter()
        .map(|device| u64::from(device.geometry().blocks()))
        .sum();
    let progress = bar(blocks, "formatting");
    let identity = MemberIdentity {
        array: random_id(),
        index: 0,
        members: 0,
        redundancy: match arguments.parity {
            true => Redundancy::Parity,
            false => Redundancy::None,
        },
        label: arguments.label.clone(),
    };
    array::format(open, options, &identity, &mut |_, _| progress.inc(1))?;
    progress.finish_and_clear();
    Ok(())
}

/// A random array identifier from the host's entropy.
fn random_id() -> u128 {
    let half = || u128::from(RandomState::new().hash_one(std::process::id()));
    half() << 64 | half()
}

/// `tidegate ubi info` on several chips.
pub fn info(arguments: &info::InfoArguments, chips: &[ChipArguments]) -> Result<()> {
    let array = open(chips, ubi::Access::ReadOnly)?;
    let (identity, geometry) = (array.identity(), array.volume().geometry());
    let resolution = array.resolution();
    if arguments.json {
        let member = |device: &ubi::Ubi| info::as_json(&device.summary(), &device.volumes());
        let document = json!({
            "array": format!("{:032x}", identity.array),
            "label": identity.label,
            "devices": identity.members,
            "parity": identity.redundancy == Redundancy::Parity,
            "absent": absent(&array),
            "rebuild": rebuild(&array),
            "leb_bytes": geometry.leb_bytes,
            "lebs": geometry.lebs,
            "min_io_bytes": geometry.min_io_bytes,
            "max_write_bytes": geometry.max_write_bytes,
            "state": state_name(resolution.state),
            "epoch": resolution.epoch,
            "update_marker": resolution.update_marker,
            "last_generation": resolution.last_generation,
            "lebs_rolled_back": resolution.rolled_back,
            "lebs_forgotten": resolution.forgotten,
            "lost_shares": resolution
                .lost_shares
                .iter()
                .map(|share| json!({ "leb": share.leb.0, "member": share.member }))
                .collect::<Vec<_>>(),
            "members": array.devices().iter().map(member).collect::<Vec<_>>(),
        });
        print_line(&document.to_string())?;
        return Ok(());
    }
    print_line(&format!(
        "array {} ({:032x}) of {} devices{}: {} LEBs of {}, pages of {}, rows of {}",
        identity.label,
        identity.array,
        identity.members,
        match identity.redundancy {
            Redundancy::None => "",
            Redundancy::Parity => " with parity",
        },
        geometry.lebs,
        show_bytes(u64::from(geometry.leb_bytes)),
        show_bytes(u64::from(page_bytes(&array))),
        show_bytes(u64::from(geometry.max_write_bytes)),
    ))?;
    if let Some(line) = state(resolution) {
        print_line(&line)?;
    }
    for line in told(&array, chips) {
        print_line(&line)?;
    }
    for (place, device) in array.members() {
        print_line("")?;
        print_line(&info::as_text(
            &name_of(&array, chips, place),
            &device.summary(),
            &device.volumes(),
            arguments.width,
        ))?;
    }
    Ok(())
}

/// State, epoch and damage of an array for the statistics of a mount.
pub fn statistics(array: &Array) -> Value {
    let resolution = array.resolution();
    json!({
        "state": state_name(resolution.state),
        "epoch": resolution.epoch,
        "lebs_rolled_back": resolution.rolled_back,
        "lebs_forgotten": resolution.forgotten,
        "lost_shares": array.volume().lost_shares().len() - array.lebs_to_rebuild().len(),
        "parity": array.identity().redundancy == Redundancy::Parity,
        "absent": absent(array),
        "rebuild": rebuild(array),
    })
}

/// The member that is being rebuilt, and how many LEBs it lacks its share of.
fn rebuild(array: &Array) -> Value {
    array.rebuilding().map_or(
        Value::Null,
        |member| json!({ "member": member, "lebs_left": array.lebs_to_rebuild().len() }),
    )
}

/// The index of the absent member of a parity array and the reason, or null.
fn absent(array: &Array) -> Value {
    array.absent().map_or(
        Value::Null,
        |absent| json!({ "member": absent.place, "why": absent.why }),
    )
}

/// Page size of the members, bytes.
fn page_bytes(array: &Array) -> u32 {
    let geometry = array.volume().geometry();
    match array.identity().redundancy {
        Redundancy::None => geometry.min_io_bytes,
        Redundancy::Parity => geometry.min_io_bytes / (array.identity().members - 1),
    }
}

const fn state_name(state: ArrayState) -> &'static str {
    match state {
        ArrayState::Unmarked => "unmarked",
        ArrayState::Closed => "closed",
        ArrayState::Open => "open",
    }
}

fn state(resolution: &Resolution) -> Option<String> {
    let epoch = resolution.epoch;
    match resolution.state {
        ArrayState::Unmarked => None,
        ArrayState::Closed => Some(format!("the array was closed (epoch {epoch})")),
        ArrayState::Open => Some(format!(
            "the array was not closed (epoch {epoch}); the next attach for writing recovers it"
        )),
    }
}

/// Notes to print: the absent member, damage, and operations that a power cut interrupted.
fn told(array: &Array, chips: &[ChipArguments]) -> Vec<String> {
    let absent = array.absent().map(|absent| {
        format!(
            "{}: member {} is absent ({}); the array works by its parity and survives no further loss. Make a new member: \
             `tidegate array rebuild --member {}`",
            name_of(array, chips, absent.place),
            absent.place,
            absent.why,
            absent.place
        )
    });
    let mut all: Vec<String> = absent.into_iter().chain(rebuilding(array, chips)).collect();
    all.extend(damage_told(array, chips));
    all
}

/// The member whose rebuild did not end.
fn rebuilding(array: &Array, chips: &[ChipArguments]) -> Option<String> {
    array.rebuilding().map(|place| {
        format!(
            "{}: the rebuild of member {place} did not end: it lacks its share of {} LEBs, and the array survives no further loss. \
             `tidegate array rebuild --member {place}` resumes it, and so does a mount for writing",
            name_of(array, chips, place),
            array.lebs_to_rebuild().len()
        )
    })
}

/// Damage, and the operations that a power cut interrupted.
fn damage_told(array: &Array, chips: &[ChipArguments]) -> Vec<String> {
    let resolution = array.resolution();
    let name = |member: &usize| name_of(array, chips, *member);
    let moved = resolution.moved.iter().map(|member| {
        format!(
            "{}: something else attached this member and moved blocks of it since the array was closed; nothing shows that it changed data",
            name(member)
        )
    });
    let marks = resolution.lost_marks.iter().map(|member| {
        format!(
            "{}: the mark of this member can't be read; it is taken for what the array left, as a damaged block explains it",
            name(member)
        )
    });
    let update = resolution.update_marker.then(|| {
        "an update of the array did not end: it holds neither the old content nor the new, and can't be used before it is updated again"
            .to_owned()
    });
    let others = interrupted(resolution).into_iter().chain(lost(array, chips));
    moved.chain(marks).chain(update).chain(others).collect()
}

fn interrupted(resolution: &Resolution) -> Option<String> {
    let &Resolution {
        rolled_back,
        forgotten,
        ..
    } = resolution;
    (rolled_back + forgotten > 0).then(|| {
        format!(
            "a power cut interrupted operations: {rolled_back} LEBs have their content of before, {forgotten} are not \
             mapped; an attach for writing erases the rest"
        )
    })
}

/// Describes the shares lost to damage and the remedy.
fn lost(array: &Array, chips: &[ChipArguments]) -> Option<String> {
    let shares = &array.resolution().lost_shares;
    if shares.is_empty() {
        return None;
    }
    if array.identity().redundancy == Redundancy::Parity {
        return Some(format!(
            "damaged headers hide data of the array: {}; {}",
            name_shares(shares, array, chips),
            by_parity(shares, array)
        ));
    }
    Some(format!(
        "damaged headers hide data of the array: {}; the other members' part of these LEBs can be read and is kept. \
         Copy what can be read; a LEB is whole again once it is written anew or unmapped",
        name_shares(shares, array, chips)
    ))
}

/// Tells which of the LEBs with these lost shares parity restores.
fn by_parity(shares: &[LostShare], array: &Array) -> String {
    let lost = array.volume().lost_shares();
    let lebs: BTreeSet<Leb> = shares.iter().map(|share| share.leb).collect();
    let absent = usize::from(array.absent().is_some());
    let lacking = |leb: Leb| absent + lost.iter().filter(|share| share.leb == leb).count();
    let beyond = lebs.iter().filter(|leb| lacking(**leb) > 1).count();
    let left = lebs.iter().filter(|leb| lacking(**leb) == 1).count();
    let restored = match left {
        0 => "written anew from parity".to_owned(),
        left => format!(
            "read by parity where no other page of the row is unreadable; an attach for writing writes them anew ({left} LEBs are not yet)"
        ),
    };
    match (beyond, lebs.len() - beyond) {
        (0, _) => format!("they are {restored}"),
        (_, 0) => {
            "another member lacks its part of these LEBs, too, so that parity can't replace them".to_owned()
        }
        (beyond, _) => format!(
            "another member lacks its part of {beyond} of these LEBs, too, so that parity can't replace them; the others are {restored}"
        ),
    }
}

/// Names the first [`LOST_SHOWN`] lost shares.
pub fn name_shares(shares: &[LostShare], array: &Array, chips: &[ChipArguments]) -> String {
    let name = |share: &LostShare| format!("{} on {}", share.leb, name_of(array, chips, share.member));
    let mut named: Vec<String> = shares.iter().take(LOST_SHOWN).map(name).collect();
    if let Some(more) = shares.len().checked_sub(LOST_SHOWN).filter(|more| *more > 0) {
        named.push(format!("{more} more"));
    }
    named.join(", ")
}

/// Maximum number of lost shares in a message; there can be thousands.
const LOST_SHOWN: usize = 8;

/// `tidegate ubi check` on several chips: each one, then the array.
pub fn check(arguments: &super::check::CheckArguments, chips: &[ChipArguments]) -> Result<Finding> {
    let mut finding = Finding::Nothing;
    for chip in chips {
        if !arguments.json {
            print_line(&format!("{}:", chip.image.display()))?;
        }
        match super::check::check_one(chip, arguments.json) {
            Ok(Finding::Something) => finding = Finding::Something,
            Ok(_) => {}
            // One member of a parity array may be missing.
            Err(error) if chips.len() > 2 => {
                finding = Finding::Something;
                print_error(&format!("{error:#}"));
            }
            Err(error) => return Err(error),
        }
    }
    let mut state_line = None;
    let found = match open(chips, ubi::Access::ReadOnly) {
        Ok(array) => {
            state_line = state(array.resolution());
            told(&array, chips)
        }
        Err(error) => vec![format!("they make no array: {error}")],
    };
    let agree = found.is_empty();
    let agreement = "the members agree".to_owned();
    let lines: Vec<String> = match agree {
        true => std::iter::once(agreement).chain(state_line).collect(),
        false => state_line.into_iter().chain(found).collect(),
    };
    let line = lines.join("; ");
    print_line(&match arguments.json {
        true => json!({ "together": line, "agree": agree }).to_string(),
        false => line,
    })?;
    Ok(if agree { finding } else { Finding::Something })
}

/// `tidegate ubi dump` on several chips.
pub fn dump(arguments: &DumpArguments, chips: &[ChipArguments]) -> Result<()> {
    let array = attach(chips, ubi::Access::ReadOnly)?;
    check_name(&array, &arguments.volume)?;
    let volume = array.volume();
    let geometry = volume.geometry();
    let progress = bar(
        u64::from(geometry.leb_bytes) * u64::from(geometry.lebs),
        "reading",
    );
    crate::output::to_output(&arguments.output, &mut |out: &mut dyn Write| {
        let mut data = vec![0; usize::try_from(geometry.leb_bytes)?];
        for leb in (0..geometry.lebs).map(Leb) {
            volume.read(leb, 0, &mut data)?;
            out.write_all(&data)?;
            progress.inc(u64::from(geometry.leb_bytes));
        }
        Ok(out.flush()?)
    })?;
    progress.finish_and_clear();
    Ok(())
}

fn check_name(array: &Array, name: &str) -> Result<()> {
    let label = &array.identity().label;
    if name == label || name == "0" {
        return Ok(());
    }
    bail!("there is no volume \"{name}\" on this array; it has {label} (0)")
}

/// `tidegate ubi update` on several chips. An interrupted update leaves all members marked.
pub fn update(arguments: &UpdateArguments, chips: &[ChipArguments]) -> Result<()> {
    let path = &arguments.file;
    let (content, bytes): (Box<dyn Read>, Option<u64>) = if path.as_os_str() == "-" {
        (Box::new(std::io::stdin().lock()), None)
    } else {
        let file = File::open(path).with_context(|| format!("{} can't be opened", path.display()))?;
        let bytes = file.metadata()?.len();
        (Box::new(file), Some(bytes))
    };
    let array = attach(chips, ubi::Access::ReadWrite)?;
    let written = closing(&array, || replace_content(arguments, &array, content, bytes))?;
    if arguments.json {
        let geometry = array.volume().geometry();
        let document = json!({
            "id": 0,
            "name": array.identity().label,
            "leb_bytes": geometry.leb_bytes,
            "lebs": geometry.lebs,
            "data_bytes": u64::from(geometry.leb_bytes) * u64::from(geometry.lebs),
            "written_bytes": written,
        });
        print_line(&document.to_string())?;
    }
    Ok(())
}

/// Replaces the content of the volume. Returns the bytes written.
fn replace_content(
    arguments: &UpdateArguments,
    array: &Array,
    mut content: Box<dyn Read>,
    bytes: Option<u64>,
) -> Result<u64> {
    check_name(array, &arguments.volume)?;
    let path = &arguments.file;
    let volume = array.volume();
    let geometry = volume.geometry();
    let room = u64::from(geometry.leb_bytes) * u64::from(geometry.lebs);
    if let Some(bytes) = bytes.filter(|bytes| *bytes > room) {
        bail!(
            "{}: {bytes} bytes do not fit into the volume of {room} bytes",
            path.display()
        );
    }
    array.begin_update()?;
    let progress = bar(bytes.unwrap_or(room), "updating");
    let leb_bytes = u64::from(geometry.leb_bytes);
    let mut written = 0;
    for leb in (0..geometry.lebs).map(Leb) {
        let mut data = Vec::with_capacity(usize::try_from(leb_bytes)?);
        content
            .by_ref()
            .take(leb_bytes)
            .read_to_end(&mut data)
            .with_context(|| {
                format!(
                    "{} can't be read; the volume stays marked, update it again",
                    path.display()
                )
            })?;
        let taken = u64::try_from(data.len())?;
        written += taken;
        data.resize(
            data.len()
                .next_multiple_of(usize::try_from(geometry.min_io_bytes)?),
            0xFF,
        );
        match data.is_empty() {
            true => volume.unmap(leb)?,
            false => volume.leb_change(leb, &data)?,
        }
        progress.inc(taken);
    }
    let mut more = [0];
    if content.read(&mut more)? > 0 {
        bail!(
            "{}: there is more than the volume's {room} bytes; it stays marked, update it again",
            path.display()
        );
    }
    array.end_update()?;
    progress.finish_and_clear();
    array.devices().iter().try_for_each(finish)?;
    Ok(written)
}
