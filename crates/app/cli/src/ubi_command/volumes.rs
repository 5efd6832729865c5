//! `tidegate ubi mkvol`, `rmvol`, `rename` and `resize`.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::json;
use ubi::format::VolumeKind;
use ubi::format::volume_table::VolumeName;
use ubi::{Access, NewVolume, SizeInLebs, Ubi, VolumeId, VolumeSummary};

use super::chip::{ChipArguments, find_volume, finish};
use super::info::volume_json;
use crate::output::print_line;
use crate::quantity::parse_bytes;

/// The kind of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// For file systems: LEBs are written at any time
    #[default]
    Dynamic,
    /// Written as a whole by an update; each LEB has a CRC
    Static,
}

impl From<Kind> for VolumeKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Dynamic => Self::Dynamic,
            Kind::Static => Self::Static,
        }
    }
}

/// A size in bytes, in LEBs, or all free LEBs.
#[derive(Args, Debug, Clone)]
#[group(required = true, multiple = false)]
pub struct SizeArguments {
    /// Size in bytes, rounded up to whole LEBs
    #[arg(long, short = 's', value_name = "SIZE", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Size in LEBs
    #[arg(long, short = 'S', value_name = "N")]
    pub lebs: Option<u32>,
    /// Take all free LEBs
    #[arg(long, short = 'm')]
    pub all_free: bool,
}

impl SizeArguments {
    fn in_lebs(&self, leb_bytes: u32) -> Result<SizeInLebs> {
        match (self.lebs, self.size) {
            (Some(lebs), _) => Ok(SizeInLebs::Exactly(lebs)),
            (None, Some(bytes)) => u32::try_from(bytes.div_ceil(u64::from(leb_bytes)))
                .map(SizeInLebs::Exactly)
                .context("the size is too large"),
            (None, None) => Ok(SizeInLebs::AllFree),
        }
    }
}

/// Arguments of `tidegate ubi mkvol`.
#[derive(Args, Debug)]
pub struct MakeArguments {
    /// The chip
    #[command(flatten)]
    pub chip: ChipArguments,
    /// The volume's name, at most 127 bytes
    #[arg(long, short = 'N', value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub size: SizeArguments,
    /// Kind of volume [default: dynamic]
    #[arg(
        long,
        short = 't',
        value_name = "KIND",
        value_enum,
        default_value_t,
        hide_default_value = true
    )]
    pub kind: Kind,
    /// Number of the volume [default: the lowest free one]
    #[arg(long, short = 'n', value_name = "N")]
    pub id: Option<u32>,
    /// Round the LEB size down to a multiple of this many bytes [default: 1]
    #[arg(long, short = 'a', value_name = "SIZE", value_parser = parse_bytes, default_value = "1", hide_default_value = true)]
    pub alignment: u64,
    /// Grow to all free LEBs at the next attach
    #[arg(long)]
    pub autoresize: bool,
    /// Skip the CRC check of a static volume when it is opened
    #[arg(long)]
    pub skip_check: bool,
    /// Print the volume as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `tidegate ubi rmvol`.
#[derive(Args, Debug)]
pub struct RemoveArguments {
    /// The chip
    #[command(flatten)]
    pub chip: ChipArguments,
    /// Name or number of the volume
    pub volume: String,
    /// Print the removed volume as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `tidegate ubi rename`.
#[derive(Args, Debug)]
#[command(after_help = "Example, two names exchanged:\n  tidegate ubi rename nand.img root old old root")]
pub struct RenameArguments {
    /// The chip
    #[command(flatten)]
    pub chip: ChipArguments,
    /// Pairs of a volume (name or number) and its new name
    #[arg(required = true, num_args = 2.., value_names = ["VOLUME", "NEW_NAME"])]
    pub pairs: Vec<String>,
    /// Print the renamed volumes as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `tidegate ubi resize`.
#[derive(Args, Debug)]
pub struct ResizeArguments {
    /// The chip
    #[command(flatten)]
    pub chip: ChipArguments,
    /// Name or number of the volume
    pub volume: String,
    /// The new size; data beyond it is lost
    #[command(flatten)]
    pub size: SizeArguments,
    /// Print the volume as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs `tidegate ubi mkvol`.
pub fn make(arguments: &MakeArguments) -> Result<()> {
    super::several::refuse_volumes(&arguments.chip, "mkvol")?;
    let name = volume_name(&arguments.name)?;
    let alignment = u32::try_from(arguments.alignment).context("the alignment is too large")?;
    let ubi = arguments.chip.attach(Access::ReadWrite)?;
    let leb_bytes = ubi::aligned_leb_bytes(&ubi.summary().layout, alignment);
    let new = NewVolume {
        id: arguments.id.map(VolumeId),
        name,
        kind: arguments.kind.into(),
        size: arguments.size.in_lebs(leb_bytes.max(1))?,
        alignment,
        autoresize: arguments.autoresize,
        skip_check: arguments.skip_check,
    };
    let id = ubi.make_volume(new)?;
    finish(&ubi)?;
    print_made(&ubi, id, arguments.json)
}

fn print_made(ubi: &Ubi, id: VolumeId, as_json: bool) -> Result<()> {
    if let Some(volume) = summary_of(ubi, id) {
        print_line(&match as_json {
            true => volume_json(&volume).to_string(),
            false => format!(
                "{id} \"{}\": {} LEBs of {} bytes",
                volume.record.name, volume.record.reserved_pebs, volume.leb_bytes
            ),
        })?;
    }
    Ok(())
}

/// The summary of one volume.
pub fn summary_of(ubi: &Ubi, id: VolumeId) -> Option<VolumeSummary> {
    ubi.volumes().into_iter().find(|volume| volume.id == id)
}

/// Runs `tidegate ubi rmvol`.
pub fn remove(arguments: &RemoveArguments) -> Result<()> {
    super::several::refuse_volumes(&arguments.chip, "rmvol")?;
    let ubi = arguments.chip.attach(Access::ReadWrite)?;
    let id = find_volume(&ubi, &arguments.chip.image, &arguments.volume)?;
    let removed = summary_of(&ubi, id);
    ubi.remove_volume(id)?;
    finish(&ubi)?;
    if let (true, Some(volume)) = (arguments.json, removed) {
        print_line(&volume_json(&volume).to_string())?;
    }
    Ok(())
}

/// Runs `tidegate ubi rename`.
pub fn rename(arguments: &RenameArguments) -> Result<()> {
    super::several::refuse_volumes(&arguments.chip, "rename")?;
    if !arguments.pairs.len().is_multiple_of(2) {
        bail!("the last volume has no new name: give pairs of a volume and its new name");
    }
    let ubi = arguments.chip.attach(Access::ReadWrite)?;
    let names = arguments
        .pairs
        .chunks_exact(2)
        .map(|pair| {
            let id = find_volume(&ubi, &arguments.chip.image, &pair[0])?;
            Ok((id, volume_name(&pair[1])?))
        })
        .collect::<Result<Vec<_>>>()?;
    ubi.rename_volumes(&names)?;
    finish(&ubi)?;
    if arguments.json {
        let renamed = names.iter().filter_map(|(id, _)| summary_of(&ubi, *id));
        let volumes: Vec<_> = renamed.map(|volume| volume_json(&volume)).collect();
        print_line(&json!({ "volumes": volumes }).to_string())?;
    }
    Ok(())
}

/// Runs `tidegate ubi resize`.
pub fn resize(arguments: &ResizeArguments) -> Result<()> {
    super::several::refuse_volumes(&arguments.chip, "resize")?;
    let ubi = arguments.chip.attach(Access::ReadWrite)?;
    let id = find_volume(&ubi, &arguments.chip.image, &arguments.volume)?;
    let leb_bytes = summary_of(&ubi, id).map_or(1, |volume| volume.leb_bytes);
    ubi.resize_volume(id, arguments.size.in_lebs(leb_bytes)?)?;
    finish(&ubi)?;
    print_made(&ubi, id, arguments.json)
}

/// Checks a volume name: 1 to 127 bytes without NUL.
pub fn volume_name(text: &str) -> Result<VolumeName> {
    VolumeName::new(text.as_bytes()).with_context(|| {
        format!("\"{text}\" is no name of a volume: it takes 1 to 127 bytes, none of them 0")
    })
}
