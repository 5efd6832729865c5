//! `tidegate ubifs mkfs`: makes a file system, empty or from a folder, in a file or on a volume.

use std::fs::File;
use std::io::{BufReader, Seek};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use outfile::{OutFile, Unfinished};
use serde_json::json;
use ubi::format::VolumeKind;
use ubi::{Access, ImageOptions, ImageVolume, Layout, Volume, VolumeId, build_image};
use ubifs::Compressor;
use ubifs::format::Compression;
use ubifs::mkfs::{
    Attributes, FileSink, Identity, KeyHash, LebCount, MkfsOptions, MkfsReport, Time, Tree, VolumeSink,
    apply_device_table, make, tree_of_folder,
};

use super::source::choose_volume;
use crate::output::{print_error, print_line, to_file};
use crate::quantity::parse_bytes;
use crate::ubi_command::chip::{ChipArguments, bar, finish, geometry};
use crate::ubi_command::format::random;
use crate::ubi_command::several;
use crate::ubi_command::volumes::volume_name;

/// Arguments of `tidegate ubifs mkfs`. The short options are those of `mkfs.ubifs`.
#[derive(Args, Debug)]
#[command(
    after_help = "With -e, IMAGE is a new file: a bare volume as mkfs.ubifs makes it, or with --peb an image \
                  with UBI around it. Without either, IMAGE is a chip with a UBI volume. SOURCE_DATE_EPOCH in \
                  the environment limits all times, so that the same files give the same bytes."
)]
pub struct MkfsArguments {
    /// The chip, or the file to create.
    #[command(flatten)]
    pub chip: ChipArguments,
    /// Name or number of the volume [default: the only one]
    #[arg(long, value_name = "VOLUME")]
    pub volume: Option<String>,
    /// Copy the files of this folder into the file system [default: none]
    #[arg(long, short = 'r', short_alias = 'd', value_name = "DIRECTORY")]
    pub root: Option<PathBuf>,
    /// Size of a write unit, bytes; usually a page [default: the chip's]
    #[arg(long, short = 'm', value_name = "SIZE", value_parser = parse_bytes)]
    pub min_io_size: Option<u64>,
    /// Size of a LEB, bytes; creates a file with only the volume
    #[arg(long, short = 'e', value_name = "SIZE", value_parser = parse_bytes, requires = "min_io_size")]
    pub leb_size: Option<u64>,
    /// Size of an eraseblock, bytes; creates a file with a UBI image for flashing
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, requires = "min_io_size", conflicts_with = "leb_size")]
    pub peb: Option<u64>,
    /// Size of a sub-page of the chip that the UBI image is for, bytes [default: the page]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, requires = "peb")]
    pub peb_subpage: Option<u64>,
    /// Name of the volume in the UBI image
    #[arg(long, value_name = "NAME", default_value = "root", requires = "peb")]
    pub volume_name: String,
    /// Maximum number of LEBs that the file system may grow to [default: the volume's]
    #[arg(long, short = 'c', value_name = "N")]
    pub max_leb_cnt: Option<u32>,
    /// Compressor of new files
    #[arg(long, short = 'x', value_name = "NAME", value_enum, default_value = "lzo")]
    pub compr: CompressorName,
    /// With favor_lzo: use deflate where it saves this much more, percent
    #[arg(long, short = 'X', value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub favor_percent: u32,
    /// Maximum number of branches of an index node
    #[arg(long, short = 'f', value_name = "N", default_value_t = 8)]
    pub fanout: u32,
    /// Hash function of names
    #[arg(long, short = 'k', value_name = "HASH", value_enum, default_value = "r5")]
    pub keyhash: KeyHashName,
    /// Size of the journal, bytes [default: an eighth, up to 8 MiB]
    #[arg(long, short = 'j', value_name = "SIZE", value_parser = parse_bytes)]
    pub jrn_size: Option<u64>,
    /// Number of LEBs of the log [default: what the journal needs, plus two]
    #[arg(long, short = 'l', value_name = "N")]
    pub log_lebs: Option<u32>,
    /// Number of LEBs of the orphan area
    #[arg(long, short = 'p', value_name = "N", default_value_t = 1)]
    pub orph_lebs: u32,
    /// Bytes reserved for root
    #[arg(long, short = 'R', value_name = "SIZE", value_parser = parse_bytes, default_value = "0")]
    pub reserved: u64,
    /// Let Linux rewrite free space at the first mount, for flash programmers that write pages of 0xFF
    #[arg(long, short = 'F')]
    pub space_fixup: bool,
    /// Create devices and set owners from a device table; - is standard input
    #[arg(long, short = 'D', value_name = "FILE")]
    pub devtable: Option<PathBuf>,
    /// Make root the owner of all files
    #[arg(long, short = 'U')]
    pub squash_uids: bool,
    /// The UUID, 32 hexadecimal digits with or without dashes [default: random; with SOURCE_DATE_EPOCH, from the content]
    #[arg(long, value_name = "UUID", value_parser = parse_uuid)]
    pub uuid: Option<Uuid>,
    /// Overwrite a file or volume that has content
    #[arg(long, short = 'y')]
    pub yes: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Uuid([u8; 16]);

/// Compressors, with the names of `mkfs.ubifs`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum CompressorName {
    /// No compression
    None,
    /// Fast
    Lzo,
    /// LZO, or deflate where it saves much more
    #[value(name = "favor_lzo", alias = "favor-lzo")]
    FavorLzo,
    /// Deflate: small and slow
    Zlib,
    /// Zstandard: small, and fast to read
    Zstd,
}

/// Hash functions, with the names of `mkfs.ubifs`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum KeyHashName {
    /// The default of UBIFS
    R5,
    /// For tests: names with the same beginning collide
    Test,
}

fn parse_uuid(text: &str) -> Result<Uuid, String> {
    let wrong = || format!("`{text}` is no UUID; write 32 hexadecimal digits, with or without dashes");
    let digits: Vec<u8> = text
        .chars()
        .filter(|letter| *letter != '-')
        .map(|letter| letter.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()
        .ok_or_else(wrong)?;
    let bytes: Vec<u8> = digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair.last().copied().unwrap_or(0))
        .collect();
    match digits.len() {
        32 => Ok(Uuid(bytes.try_into().map_err(|_| wrong())?)),
        _ => Err(wrong()),
    }
}

/// Runs the command.
pub fn run(arguments: &MkfsArguments) -> Result<()> {
    let epoch = source_date_epoch()?;
    let tree = tree(arguments, epoch)?;
    let progress = bar(u64::try_from(tree.count())?, "writing");
    let mut step = || progress.inc(1);
    let report = match (arguments.leb_size, arguments.peb) {
        (Some(leb_bytes), _) => bare(arguments, word(leb_bytes)?, epoch, &tree, &mut step)?,
        (None, Some(peb_bytes)) => ubi_image(arguments, word(peb_bytes)?, epoch, &tree, &mut step)?,
        (None, None) => on_chip(arguments, epoch, &tree, &mut step)?,
    };
    progress.finish_and_clear();
    let left_out = tree.xattrs_left_out();
    if left_out > 0 {
        print_error(&format!(
            "note: {left_out} extended attributes are left out, such as ACLs: UBIFS has only user.*, trusted.* and security.*"
        ));
    }
    if arguments.json {
        let uuid = extract::texts::uuid(&report.uuid);
        let document = json!({
            "lebs": report.lebs, "lebs_written": report.lebs_written_end, "inodes": report.inodes,
            "content_bytes": report.content_bytes, "stored_bytes": report.stored_bytes,
            "index_bytes": report.index_bytes, "uuid": uuid, "xattrs_left_out": left_out,
        });
        print_line(&document.to_string())?;
    }
    Ok(())
}

fn word(bytes: u64) -> Result<u32> {
    u32::try_from(bytes).context("a size is too large")
}

fn source_date_epoch() -> Result<Option<Time>> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") else {
        return Ok(None);
    };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    Ok(Some(Time {
        seconds: seconds
            .with_context(|| format!("SOURCE_DATE_EPOCH is {text:?}, which is no number of seconds"))?,
        nanoseconds: 0,
    }))
}

fn tree(arguments: &MkfsArguments, epoch: Option<Time>) -> Result<Tree> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = epoch.unwrap_or(Time {
        seconds: i64::try_from(since.as_secs())?,
        nanoseconds: since.subsec_nanos(),
    });
    let mut tree = match &arguments.root {
        Some(folder) => tree_of_folder(folder)?,
        None => Tree::empty(Attributes {
            permissions: 0o755,
            accessed: now,
            modified: now,
            changed: now,
            ..Attributes::default()
        }),
    };
    if arguments.squash_uids {
        tree.squash_owners();
    }
    if let Some(path) = &arguments.devtable {
        let text = match path.as_os_str() == "-" {
            true => std::io::read_to_string(std::io::stdin()),
            false => std::fs::read_to_string(path),
        };
        let text = text.with_context(|| format!("{} can't be read", path.display()))?;
        apply_device_table(&mut tree, &text, now).with_context(|| path.display().to_string())?;
    }
    if let Some(latest) = epoch {
        tree.clamp_times(latest);
    }
    Ok(tree)
}

fn options(
    arguments: &MkfsArguments,
    min_io_bytes: u32,
    leb_bytes: u32,
    lebs_max: u32,
    lebs: LebCount,
    epoch: Option<Time>,
) -> MkfsOptions {
    let identity = match (arguments.uuid, epoch) {
        (Some(uuid), _) => Identity::Uuid(uuid.0),
        (None, Some(_)) => Identity::FromContent,
        (None, None) => Identity::Uuid(random_uuid()),
    };
    MkfsOptions {
        lebs,
        journal_bytes: arguments.jrn_size,
        log_lebs: arguments.log_lebs,
        orphan_lebs: arguments.orph_lebs,
        fanout: arguments.fanout,
        reserved_bytes: arguments.reserved,
        compressor: match arguments.compr {
            CompressorName::None => Compressor::Only(Compression::None),
            CompressorName::Lzo => Compressor::Only(Compression::Lzo),
            CompressorName::Zlib => Compressor::Only(Compression::Zlib),
            CompressorName::Zstd => Compressor::Only(Compression::Zstd),
            CompressorName::FavorLzo => Compressor::FavorLzo {
                percent: arguments.favor_percent,
            },
        },
        key_hash: match arguments.keyhash {
            KeyHashName::R5 => KeyHash::R5,
            KeyHashName::Test => KeyHash::Test,
        },
        space_fixup: arguments.space_fixup,
        identity,
        ..MkfsOptions::new(min_io_bytes, leb_bytes, lebs_max)
    }
}

fn random_uuid() -> [u8; 16] {
    let mut uuid = [0; 16];
    for part in uuid.as_chunks_mut::<4>().0 {
        *part = random().to_le_bytes();
    }
    uuid[6] = 0x40 | (uuid[6] & 0x0F);
    uuid[8] = 0x80 | (uuid[8] & 0x3F);
    uuid
}

fn lebs_max(arguments: &MkfsArguments) -> Result<u32> {
    arguments
        .max_leb_cnt
        .context("give by -c the number of LEBs that the file system may grow to: that of its volume")
}

/// Checks that the output file does not exist, unless it may be overwritten.
fn check_new(arguments: &MkfsArguments) -> Result<&Path> {
    let path = &arguments.chip.image;
    if !arguments.yes && path.symlink_metadata().is_ok() {
        bail!("{} exists; -y overwrites it", path.display());
    }
    Ok(path)
}

fn to_volume_file(
    path: &Path,
    file: File,
    tree: &Tree,
    options: &MkfsOptions,
    step: &mut dyn FnMut(),
) -> Result<(MkfsReport, File)> {
    let mut sink = FileSink::new(file, options.leb_bytes);
    let report = make(tree, options, &mut sink, step)?;
    let written = sink.finish(report.lebs_written_end);
    let file = written.map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
    Ok((report, file))
}

/// The write unit given, or that of the volume. Only the rows of a parity array may not be a power of two.
fn write_unit(arguments: &MkfsArguments, of_volume: u32) -> Result<u32> {
    match arguments.min_io_size {
        None => Ok(of_volume),
        Some(bytes) if bytes.is_power_of_two() || bytes == u64::from(of_volume) => word(bytes),
        Some(bytes) => bail!("--min-io-size {bytes}: a power of two is needed"),
    }
}

fn bare(
    arguments: &MkfsArguments,
    leb_bytes: u32,
    epoch: Option<Time>,
    tree: &Tree,
    step: &mut dyn FnMut(),
) -> Result<MkfsReport> {
    let path = check_new(arguments)?;
    let min_io_bytes = write_unit(arguments, 0)?;
    let lebs_max = lebs_max(arguments)?;
    let options = options(
        arguments,
        min_io_bytes,
        leb_bytes,
        lebs_max,
        LebCount::Fewest,
        epoch,
    );
    let failed = || format!("{} can't be made", path.display());
    let output = OutFile::create(path, Unfinished::Remove).with_context(failed)?;
    if output.is_straight() {
        bail!(
            "{} is no regular file; an image of a volume is written to one",
            path.display()
        );
    }
    let (report, _) = to_volume_file(path, output.file().try_clone()?, tree, &options, step)?;
    output.finish().with_context(failed)?;
    Ok(report)
}

fn ubi_image(
    arguments: &MkfsArguments,
    peb_bytes: u32,
    epoch: Option<Time>,
    tree: &Tree,
    step: &mut dyn FnMut(),
) -> Result<MkfsReport> {
    let path = check_new(arguments)?;
    let page = write_unit(arguments, 0)?;
    let subpage = arguments.peb_subpage.map_or(Ok(page), word)?;
    let geometry = geometry(page, peb_bytes, subpage, 0)?;
    let layout = Layout::usual(&geometry)?;
    let lebs_max = lebs_max(arguments)?;
    let options = options(
        arguments,
        page,
        layout.leb_bytes(),
        lebs_max,
        LebCount::Fewest,
        epoch,
    );
    let image_sequence = match epoch {
        Some(_) => u32::from_be_bytes([0x54, 0x69, 0x64, 0x65]),
        None => random(),
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // A temporary file in the folder of the image, which has space for both; the folder of a device takes no files.
    let scratch = tempfile::tempfile_in(folder.unwrap_or(Path::new(".")))
        .or_else(|_| tempfile::tempfile())
        .with_context(|| {
            format!(
                "a temporary file for the volume of {} can't be made",
                path.display()
            )
        })?;
    let (report, mut scratch) = to_volume_file(path, scratch, tree, &options, step)?;
    let content_bytes = u64::from(report.lebs_written_end) * u64::from(layout.leb_bytes());
    let volume = ImageVolume {
        id: VolumeId(0),
        name: volume_name(&arguments.volume_name)?,
        kind: VolumeKind::Dynamic,
        bytes: u64::from(report.lebs) * u64::from(layout.leb_bytes()),
        alignment: 1,
        autoresize: true,
        skip_check: false,
        content_bytes,
    };
    let image = ImageOptions {
        layout,
        geometry,
        image_sequence,
        erase_counter: 0,
    };
    to_file(path, &mut |out| {
        scratch.rewind()?;
        let content = BufReader::new(&scratch);
        build_image(&image, vec![(volume.clone(), content)], &mut |block| {
            out.write_all(block)
        })?;
        Ok(())
    })?;
    Ok(report)
}

fn on_chip(
    arguments: &MkfsArguments,
    epoch: Option<Time>,
    tree: &Tree,
    step: &mut dyn FnMut(),
) -> Result<MkfsReport> {
    if let Some(chips) = arguments.chip.members()? {
        let array = several::attach(&chips, Access::ReadWrite)?;
        return several::closing(&array, || {
            on_volume(arguments, &**array.volume(), epoch, tree, step)
        });
    }
    let ubi = arguments.chip.attach(Access::ReadWrite)?;
    let id = choose_volume(&ubi, &arguments.chip.image, arguments.volume.as_deref())?;
    let volume = ubi.open(id)?;
    let report = on_volume(arguments, &volume, epoch, tree, step)?;
    finish(&ubi)?;
    Ok(report)
}

fn on_volume(
    arguments: &MkfsArguments,
    volume: &dyn Volume,
    epoch: Option<Time>,
    tree: &Tree,
    step: &mut dyn FnMut(),
) -> Result<MkfsReport> {
    let geometry = volume.geometry();
    if !arguments.yes {
        for leb in 0..geometry.lebs {
            if volume.is_mapped(media::Leb(leb))? {
                bail!("volume {} holds something; -y overwrites it", volume.name());
            }
        }
    }
    let min_io_bytes = write_unit(arguments, geometry.min_io_bytes)?;
    let max = arguments.max_leb_cnt.unwrap_or(geometry.lebs);
    let lebs = LebCount::Exactly(geometry.lebs.min(max));
    let options = options(arguments, min_io_bytes, geometry.leb_bytes, max, lebs, epoch);
    let mut sink = VolumeSink::new(volume)?;
    let report = make(tree, &options, &mut sink, step)?;
    sink.finish()?;
    Ok(report)
}
