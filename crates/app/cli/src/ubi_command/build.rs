//! `tidegate ubi build`: ubinize's job, from ubinize's .ini file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use ubi::format::VolumeKind;
use ubi::{ImageOptions, ImageVolume, Layout, VolumeId, aligned_leb_bytes, build_image};

use super::chip::{bar, geometry};
use super::format::random;
use super::ini::{self, Section};
use super::volumes::volume_name;
use crate::output::to_file;
use crate::quantity::parse_bytes;

/// Arguments of `tidegate ubi build`. The short options are ubinize's.
#[derive(Args, Debug)]
#[command(
    after_help = "Keys of a section: mode=ubi, image=FILE, vol_id=N, vol_type=dynamic|static, vol_size=SIZE, \
                  vol_name=NAME, vol_alignment=N, vol_flags=autoresize or skip-check. Files are looked for \
                  beside the .ini file if not here."
)]
pub struct BuildArguments {
    /// The .ini file, with one section per volume
    pub ini: PathBuf,
    /// Write the image to this file
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: PathBuf,
    /// Size of an eraseblock, bytes
    #[arg(long, short = 'p', value_name = "SIZE", value_parser = parse_bytes)]
    pub block: u64,
    /// Size of a page, bytes
    #[arg(long, short = 'm', value_name = "SIZE", value_parser = parse_bytes)]
    pub page: u64,
    /// Size of a sub-page, bytes [default: the page]
    #[arg(long, short = 's', value_name = "SIZE", value_parser = parse_bytes)]
    pub subpage: Option<u64>,
    /// Offset of the VID header in a block, bytes [default: the second sub-page]
    #[arg(long, short = 'O', value_name = "BYTES", value_parser = parse_bytes)]
    pub vid_header_offset: Option<u64>,
    /// Erase counter of all EC headers [default: 0]
    #[arg(
        long,
        short = 'e',
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub erase_counter: u32,
    /// Image sequence number, decimal or 0x..., the same in all blocks of the image [default: random]
    #[arg(long, short = 'Q', value_name = "N", value_parser = parse_number)]
    pub image_seq: Option<u32>,
}

/// Runs the command.
pub fn run(arguments: &BuildArguments) -> Result<()> {
    let options = options(arguments)?;
    let text = std::fs::read_to_string(&arguments.ini)
        .with_context(|| format!("{} can't be read", arguments.ini.display()))?;
    let place = || arguments.ini.display().to_string();
    let sections = ini::parse(&text).with_context(place)?;
    if sections.is_empty() {
        bail!("{}: it has no sections, and so no volumes", place());
    }
    let mut blocks = 2;
    for section in &sections {
        let volume =
            volume(section, &arguments.ini, &options).with_context(|| where_is(section, &arguments.ini))?;
        let leb_bytes = u64::from(aligned_leb_bytes(&options.layout, volume.0.alignment));
        blocks += volume.0.content_bytes.div_ceil(leb_bytes.max(1));
    }
    let progress = bar(blocks, "building");
    to_file(&arguments.output, &mut |out| {
        let volumes = sections
            .iter()
            .map(|section| {
                let (volume, path) = volume(section, &arguments.ini, &options)
                    .with_context(|| where_is(section, &arguments.ini))?;
                let content: Box<dyn Read> = match path {
                    None => Box::new(std::io::empty()),
                    Some(path) => Box::new(
                        File::open(&path).with_context(|| format!("{} can't be opened", path.display()))?,
                    ),
                };
                Ok((volume, content))
            })
            .collect::<Result<Vec<_>>>()?;
        build_image(&options, volumes, &mut |block| {
            progress.inc(1);
            out.write_all(block)
        })
        .with_context(|| arguments.ini.display().to_string())
    })?;
    progress.finish_and_clear();
    Ok(())
}

fn where_is(section: &Section, ini: &Path) -> String {
    format!(
        "{}, line {}, section [{}]",
        ini.display(),
        section.line,
        section.name
    )
}

fn options(arguments: &BuildArguments) -> Result<ImageOptions> {
    let size = |bytes: u64| u32::try_from(bytes).context("a size is too large");
    let page = size(arguments.page)?;
    let subpage = arguments.subpage.map_or(Ok(page), size)?;
    let geometry = geometry(page, size(arguments.block)?, subpage, 0)?;
    let layout = match arguments.vid_header_offset {
        None => Layout::usual(&geometry)?,
        Some(offset) => Layout::with_vid_header_at(&geometry, size(offset)?)?,
    };
    Ok(ImageOptions {
        layout,
        geometry,
        image_sequence: arguments.image_seq.unwrap_or_else(random),
        erase_counter: arguments.erase_counter,
    })
}

/// The volume that a section describes, and the file with its content.
fn volume(section: &Section, ini: &Path, options: &ImageOptions) -> Result<(ImageVolume, Option<PathBuf>)> {
    const KEYS: [&str; 8] = [
        "mode",
        "image",
        "vol_id",
        "vol_type",
        "vol_size",
        "vol_name",
        "vol_alignment",
        "vol_flags",
    ];
    if let Some((key, _)) = section
        .entries
        .iter()
        .find(|(key, _)| !KEYS.contains(&key.as_str()))
    {
        bail!("`{key}` is no key of a volume; these are: {}", KEYS.join(", "));
    }
    let need = |key: &str| section.get(key).with_context(|| format!("`{key}` is missing"));
    if need("mode")? != "ubi" {
        bail!("mode is `{}`, and ubi is the only one there is", need("mode")?);
    }
    let kind = match section.get("vol_type").unwrap_or("dynamic") {
        "dynamic" => VolumeKind::Dynamic,
        "static" => VolumeKind::Static,
        other => bail!("vol_type is `{other}`, expected dynamic or static"),
    };
    let file = section.get("image").map(|name| beside(ini, name));
    let content_bytes = match &file {
        None => 0,
        Some(path) => std::fs::metadata(path)
            .with_context(|| format!("{} can't be opened", path.display()))?
            .len(),
    };
    let alignment = section.get("vol_alignment").map_or(Ok(1), str::parse);
    let alignment: u32 = alignment.context("vol_alignment is no number")?;
    if alignment != 1 && (alignment == 0 || !alignment.is_multiple_of(options.layout.min_io_bytes())) {
        bail!("vol_alignment is {alignment}, expected 1 or a multiple of the page");
    }
    let bytes = match section.get("vol_size") {
        Some(text) => parse_bytes(text).map_err(anyhow::Error::msg)?,
        None if content_bytes > 0 => content_bytes,
        None => bail!("`vol_size` is missing, and there is no image to take it from"),
    };
    let (mut autoresize, mut skip_check) = (false, false);
    for flag in section
        .get("vol_flags")
        .into_iter()
        .flat_map(|flags| flags.split(','))
    {
        match flag.trim() {
            "autoresize" => autoresize = true,
            "skip-check" => skip_check = true,
            other => bail!("vol_flags has `{other}`, expected autoresize or skip-check"),
        }
    }
    let id = need("vol_id")?.parse().context("vol_id is no number")?;
    let volume = ImageVolume {
        id: VolumeId(id),
        name: volume_name(need("vol_name")?)?,
        kind,
        bytes,
        alignment,
        autoresize,
        skip_check,
        content_bytes,
    };
    Ok((volume, file))
}

/// Resolves a file name: relative to the current folder, as in ubinize, or else to the folder of the .ini file.
fn beside(ini: &Path, name: &str) -> PathBuf {
    let here = PathBuf::from(name);
    match (here.exists(), ini.parent()) {
        (false, Some(folder)) if here.is_relative() => folder.join(name),
        _ => here,
    }
}

fn parse_number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("`{text}` is no number from 0 to 4294967295; write for example 77 or 0x4d"))
}
