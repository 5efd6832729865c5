//! `ubireader_utils_info`: the settings of `mkfs.ubifs` and `ubinize` that make the images of a dump again.

use image::{Partition, Volume};
use ubi::format::VolumeKind;
use ubifs::format::Superblock;

use crate::dump::names::harmless;

const fn compressor(superblock: &Superblock) -> &'static str {
    match superblock.compression {
        0 => "none",
        2 => "zlib",
        3 => "zstd",
        _ => "lzo",
    }
}

const fn key_hash(superblock: &Superblock) -> &'static str {
    match superblock.key_hash {
        1 => "test",
        _ => "r5",
    }
}

/// The options of `mkfs.ubifs`.
#[must_use]
pub fn mkfs_options(superblock: &Superblock) -> String {
    format!(
        "-m {} -e {} -c {} -x {} -f {} -k {} -p {} -l {}",
        superblock.min_io_bytes,
        superblock.leb_bytes,
        superblock.lebs_max,
        compressor(superblock),
        superblock.fanout,
        key_hash(superblock),
        superblock.orphan_lebs,
        superblock.log_lebs
    )
}

/// The options of `ubinize`.
#[must_use]
pub fn ubinize_options(partition: &Partition) -> String {
    let shape = &partition.shape;
    format!(
        "-p {} -m {} -O {} -s {} -x 1 -Q {}",
        shape.block_bytes,
        shape.page_bytes,
        shape.vid_header_offset,
        shape.vid_header_offset.min(shape.page_bytes),
        partition.image_sequence
    )
}

/// A section of an .ini file of `ubinize`.
#[must_use]
pub fn section(volume: &Volume, first: &[String], sign: &str) -> String {
    let name = harmless(&volume.name());
    let record = volume.record.as_ref();
    let kind = match volume.kind {
        VolumeKind::Static => "static",
        VolumeKind::Dynamic => "dynamic",
    };
    let flags = match record.is_some_and(|record| record.autoresize) {
        true => "autoresize",
        false => "0",
    };
    let alignment = record.map_or(1, |record| record.alignment);
    let bytes = u64::from(volume.lebs) * u64::from(volume.leb_bytes);
    let mut lines = vec![format!("[{name}]")];
    lines.extend_from_slice(first);
    lines.extend([
        format!("vol_type{sign}{kind}"),
        format!("vol_flags{sign}{flags}"),
        format!("vol_id{sign}{}", volume.number),
        format!("vol_name{sign}{name}"),
        format!("vol_alignment{sign}{alignment}"),
        format!("vol_size{sign}{bytes}"),
    ]);
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// All settings of a volume.
#[must_use]
pub fn settings(partition: &Partition, volume: &Volume, superblock: Option<&Superblock>) -> String {
    let name = harmless(&volume.name());
    let shape = &partition.shape;
    let mut rows: Vec<(&str, String)> = vec![
        (
            "alignment\t-a",
            volume
                .record
                .as_ref()
                .map_or(1, |record| record.alignment)
                .to_string(),
        ),
        ("image_seq\t-Q", partition.image_sequence.to_string()),
        ("leb_size\t-e", volume.leb_bytes.to_string()),
        ("min_io_size\t-m", shape.page_bytes.to_string()),
        ("name\t\t-N", name.clone()),
        ("peb_size\t-p", shape.block_bytes.to_string()),
        (
            "sub_page_size\t-s",
            shape.vid_header_offset.min(shape.page_bytes).to_string(),
        ),
        ("version\t\t-x", "1".to_owned()),
        ("vid_hdr_offset\t-O", shape.vid_header_offset.to_string()),
        ("vol_id\t\t-n", volume.number.to_string()),
    ];
    if let Some(superblock) = superblock {
        rows.extend([
            ("default_compr\t-x", compressor(superblock).to_owned()),
            ("fanout\t\t-f", superblock.fanout.to_string()),
            ("key_hash\t-k", key_hash(superblock).to_owned()),
            ("log_lebs\t-l", superblock.log_lebs.to_string()),
            ("max_bud_bytes\t-j", superblock.journal_bytes_max.to_string()),
            ("max_leb_cnt\t-c", superblock.lebs_max.to_string()),
            ("orph_lebs\t-p", superblock.orphan_lebs.to_string()),
        ]);
    }
    rows.sort();
    let rows: String = rows
        .iter()
        .map(|(name, value)| format!("\t{name} {value}\n"))
        .collect();
    let ini: String = section(volume, &[], "=")
        .lines()
        .map(|line| format!("\t{line}\n"))
        .collect();
    format!("\nVolume {name}\n{rows}\n\t#ubinize.ini#\n{ini}")
}
