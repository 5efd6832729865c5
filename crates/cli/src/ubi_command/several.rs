//! The commands of `tidegate ubi` on several chips that are one array.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};

use anyhow::{Context, Result, bail};
use array::{Array, ArrayState, Execution, LostShare, MemberIdentity, Resolution};
use media::{Leb, Nand};
use nand::Access;
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

/// Attaches an array, and tells what damage took of it.
pub fn attach(chips: &[ChipArguments], access: ubi::Access) -> Result<Array<Chip>> {
    let array = open(chips, access)?;
    for line in told(array.resolution(), chips) {
        print_error(&line);
    }
    Ok(array)
}

fn open(chips: &[ChipArguments], access: ubi::Access) -> Result<Array<Chip>> {
    adopt(chips, &[], access)
}

/// Attaches an array, and takes refused members back.
pub fn adopt(chips: &[ChipArguments], adopted: &[u32], access: ubi::Access) -> Result<Array<Chip>> {
    let of_nand = match access {
        ubi::Access::ReadOnly => Access::ReadOnly,
        ubi::Access::ReadWrite => Access::ReadWrite,
    };
    let is_real = chips.iter().any(|chip| chip.in_real_time);
    let mut chips = chips
        .iter()
        .map(|chip| chip.open(of_nand))
        .collect::<Result<Vec<_>>>()?;
    if is_real {
        chips = in_real_time(chips);
    }
    Ok(array::adopt(
        chips,
        adopted,
        AttachOptions::linux(access),
        Execution::Threads,
    )?)
}

/// Refuses commands on volumes for an array.
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
        label: arguments.label.clone(),
    };
    array::format(open, options, &identity, &mut |_, _| progress.inc(1))?;
    progress.finish_and_clear();
    Ok(())
}

/// Two numbers of the host's entropy; arrays are told apart by it.
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
        let member = |device: &ubi::Ubi<Chip>| info::as_json(&device.summary(), &device.volumes());
        let document = json!({
            "array": format!("{:032x}", identity.array),
            "label": identity.label,
            "devices": identity.members,
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
        "array {} ({:032x}) of {} devices: {} LEBs of {}, pages of {}, rows of {}",
        identity.label,
        identity.array,
        identity.members,
        geometry.lebs,
        show_bytes(u64::from(geometry.leb_bytes)),
        show_bytes(u64::from(geometry.min_io_bytes)),
        show_bytes(u64::from(geometry.max_write_bytes)),
    ))?;
    if let Some(line) = state(resolution) {
        print_line(&line)?;
    }
    for line in told(resolution, chips) {
        print_line(&line)?;
    }
    for (chip, device) in chips.iter().zip(array.devices()) {
        print_line("")?;
        print_line(&info::as_text(
            &chip.image.display().to_string(),
            &device.summary(),
            &device.volumes(),
        ))?;
    }
    Ok(())
}

/// State, epoch and damage of an array, for the statistics of a mount.
pub fn statistics(array: &Array<Chip>) -> Value {
    let resolution = array.resolution();
    json!({
        "state": state_name(resolution.state),
        "epoch": resolution.epoch,
        "lebs_rolled_back": resolution.rolled_back,
        "lebs_forgotten": resolution.forgotten,
        "lost_shares": array.volume().lost_shares().len(),
    })
}

/// The state as one word.
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

/// Everything that an attach decided and a user should know.
fn told(resolution: &Resolution, chips: &[ChipArguments]) -> Vec<String> {
    let name = |member: &usize| chips[*member].image.display();
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
    let others = interrupted(resolution).into_iter().chain(lost(resolution, chips));
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

/// What damage took, and what to do.
fn lost(resolution: &Resolution, chips: &[ChipArguments]) -> Option<String> {
    let shares = &resolution.lost_shares;
    if shares.is_empty() {
        return None;
    }
    Some(format!(
        "damaged headers hide data of the array: {}; the other members' part of these LEBs can be read and is kept. \
         Copy what can be read; a LEB is whole again once it is written anew or unmapped",
        name_shares(shares, chips)
    ))
}

/// Names the first of the lost shares.
pub fn name_shares(shares: &[LostShare], chips: &[ChipArguments]) -> String {
    let name = |share: &LostShare| format!("{} on {}", share.leb, chips[share.member].image.display());
    let mut named: Vec<String> = shares.iter().take(LOST_SHOWN).map(name).collect();
    if let Some(more) = shares.len().checked_sub(LOST_SHOWN).filter(|more| *more > 0) {
        named.push(format!("{more} more"));
    }
    named.join(", ")
}

/// Lost shares that a message names; there can be thousands.
const LOST_SHOWN: usize = 8;

/// `tidegate ubi check` on several chips: each by itself, then all together.
pub fn check(arguments: &super::check::CheckArguments, chips: &[ChipArguments]) -> Result<Finding> {
    let mut finding = Finding::Nothing;
    for chip in chips {
        if !arguments.json {
            print_line(&format!("{}:", chip.image.display()))?;
        }
        if super::check::check_one(chip, arguments.json)? == Finding::Something {
            finding = Finding::Something;
        }
    }
    let mut state_line = None;
    let found = match open(chips, ubi::Access::ReadOnly) {
        Ok(array) => {
            state_line = state(array.resolution());
            told(array.resolution(), chips)
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

fn check_name(array: &Array<Chip>, name: &str) -> Result<()> {
    let label = &array.identity().label;
    if name == label || name == "0" {
        return Ok(());
    }
    bail!("there is no volume \"{name}\" on this array; it has {label} (0)")
}

/// `tidegate ubi update` on several chips. An update that is cut leaves all members marked.
pub fn update(arguments: &UpdateArguments, chips: &[ChipArguments]) -> Result<()> {
    let path = &arguments.file;
    let array = attach(chips, ubi::Access::ReadWrite)?;
    check_name(&array, &arguments.volume)?;
    let volume = array.volume();
    let geometry = volume.geometry();
    let room = u64::from(geometry.leb_bytes) * u64::from(geometry.lebs);
    let (mut content, bytes): (Box<dyn Read>, Option<u64>) = if path.as_os_str() == "-" {
        (Box::new(std::io::stdin().lock()), None)
    } else {
        let file = File::open(path).with_context(|| format!("{} can't be opened", path.display()))?;
        let bytes = file.metadata()?.len();
        (Box::new(file), Some(bytes))
    };
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
    array.close()?;
    if arguments.json {
        let document = json!({
            "id": 0,
            "name": array.identity().label,
            "leb_bytes": geometry.leb_bytes,
            "lebs": geometry.lebs,
            "data_bytes": room,
            "written_bytes": written,
        });
        print_line(&document.to_string())?;
    }
    Ok(())
}
