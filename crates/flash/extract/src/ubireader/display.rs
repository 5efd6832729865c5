//! `ubireader_display_info`: partitions with their volume tables, and superblocks and master nodes of UBIFS.

use image::{Partition, Volume};
use results::shown;
use ubi::format::VolumeKind;
use ubi::format::volume_table::{self, VolumeRecord};
use ubifs::Ubifs;

fn indented(depth: usize, lines: &[String]) -> String {
    let tabs = "\t".repeat(depth);
    lines.iter().map(|line| format!("{tabs}{line}\n")).collect()
}

fn heading(text: &str) -> [String; 2] {
    [text.to_owned(), "---------------------".to_owned()]
}

/// A partition and its volume table.
#[must_use]
pub fn shown_partition(partition: &Partition) -> String {
    let (shape, counts) = (&partition.shape, &partition.counts);
    let data: usize = partition
        .volumes
        .iter()
        .map(|volume| volume.mapped().count())
        .sum();
    let stride = u64::from(shape.stride());
    let mut lines = heading("UBI File").to_vec();
    let numbers = [
        format!("\tMin I/O: {}", shape.page_bytes),
        format!("\tLEB Size: {}", shape.leb_bytes()),
        format!("\tPEB Size: {}", shape.block_bytes),
        format!("\tTotal Block Count: {}", partition.bytes.div_ceil(stride)),
        format!("\tData Block Count: {data}"),
        format!("\tLayout Block Count: {}", counts.layout),
        format!("\tInternal Volume Block Count: {}", counts.internal),
        format!("\tUnknown Block Count: {}", counts.damaged + counts.other),
        format!("\tFirst UBI PEB Number: {}", partition.offset / stride),
        String::new(),
        format!("\tImage: {}", partition.image_sequence),
        "\t---------------------".to_owned(),
        format!("\t\tImage Sequence Num: {}", partition.image_sequence),
    ];
    lines.extend(numbers);
    let name = |volume: &Volume| shown::name(&volume.name());
    lines.extend(
        partition
            .volumes
            .iter()
            .map(|volume| format!("\t\tVolume Name:{}", name(volume))),
    );
    let blocks = partition.volumes.iter().flat_map(Volume::mapped);
    let pebs: Vec<u64> = blocks.map(|(_, at)| at / stride).collect();
    if let (Some(first), Some(last)) = (pebs.iter().min(), pebs.iter().max()) {
        lines.push(format!("\t\tPEB Range: {first} - {last}"));
    }
    lines.push(String::new());
    let mut text = indented(0, &lines);
    for volume in &partition.volumes {
        let mut lines = heading(&format!("Volume: {}", name(volume))).to_vec();
        lines.extend([
            format!("\tVol ID: {}", volume.number),
            format!("\tName: {}", name(volume)),
            format!("\tBlock Count: {}", volume.mapped().count()),
            String::new(),
        ]);
        if let Some(record) = &volume.record {
            lines.extend(heading("Volume Record").map(|line| format!("\t{line}")));
            lines.extend(of_record(volume, record).map(|line| format!("\t\t{line}")));
            lines.extend([String::new(), String::new()]);
        }
        text += &indented(2, &lines);
    }
    text
}

fn of_record(volume: &Volume, record: &VolumeRecord) -> [String; 10] {
    let raw = volume_table::encode(&[Some(record.clone())]);
    let crc = raw
        .last_chunk::<4>()
        .map_or(0, |bytes| u32::from_be_bytes(*bytes));
    let name = shown::name(record.name.as_bytes());
    [
        format!("alignment: {}", record.alignment),
        format!("crc: '{crc:#010x}'"),
        format!("data_pad: {}", record.data_padding),
        "errors: ''".to_owned(),
        format!("flags: {}", if record.autoresize { "'autoresize'" } else { "0" }),
        format!("name: '{name}'"),
        format!("name_len: {}", record.name.as_bytes().len()),
        format!(
            "rec_index: {}\n\t\t\t\treserved_pebs: {}",
            volume.number, record.reserved_pebs
        ),
        format!("upd_marker: {}", u8::from(record.update_marker)),
        format!(
            "vol_type: '{}'",
            match record.kind {
                VolumeKind::Static => "static",
                VolumeKind::Dynamic => "dynamic",
            }
        ),
    ]
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file system; `place` tells the offset of a LEB in the dump.
pub fn shown_file_system(ubifs: &Ubifs, place: &dyn Fn(u32) -> Option<u64>) -> String {
    let (superblock, master) = (ubifs.superblock(), ubifs.master());
    let mut lines = heading("UBIFS Image").to_vec();
    lines.push(format!("Min I/O: {}", superblock.min_io_bytes));
    lines.push(format!("LEB Size: {}", superblock.leb_bytes));
    lines.push(String::new());
    let mut section = |title: &str, leb: u32, fields: &[(&str, String)]| {
        lines.push(format!("\t{title}"));
        if let Some(at) = place(leb) {
            lines.push(format!("\tFile offset: {}", at + 24));
        }
        lines.push("\t---------------------".to_owned());
        lines.extend(fields.iter().map(|(name, value)| format!("\t\t{name}: {value}")));
        lines.push(String::new());
    };
    section(
        "UBIFS Super Block Node",
        0,
        &[
            ("default_compr", superblock.compression.to_string()),
            ("fanout", superblock.fanout.to_string()),
            ("flags", superblock.flags.to_string()),
            ("fmt_version", superblock.version.to_string()),
            ("hash_algo", superblock.hash_algorithm.to_string()),
            ("jhead_cnt", superblock.journal_heads.to_string()),
            ("key_fmt", superblock.key_format.to_string()),
            ("key_hash", superblock.key_hash.to_string()),
            ("leb_cnt", superblock.lebs.to_string()),
            ("leb_size", superblock.leb_bytes.to_string()),
            ("log_lebs", superblock.log_lebs.to_string()),
            ("lpt_lebs", superblock.lpt_lebs.to_string()),
            ("lsave_cnt", superblock.saved_lebs.to_string()),
            ("max_bud_bytes", superblock.journal_bytes_max.to_string()),
            ("max_leb_cnt", superblock.lebs_max.to_string()),
            ("min_io_size", superblock.min_io_bytes.to_string()),
            ("orph_lebs", superblock.orphan_lebs.to_string()),
            ("ro_compat_version", superblock.read_version.to_string()),
            ("rp_gid", superblock.reserve_group.to_string()),
            ("rp_size", superblock.reserve_bytes.to_string()),
            ("rp_uid", superblock.reserve_user.to_string()),
            ("time_gran", superblock.time_granularity_ns.to_string()),
            ("uuid", hexadecimal(&superblock.uuid)),
        ],
    );
    section(
        "UBIFS Master Block Node",
        1,
        &[
            ("cmt_no", master.commit.to_string()),
            ("empty_lebs", master.empty_lebs.to_string()),
            ("flags", master.flags.to_string()),
            ("gc_lnum", master.gc_leb.to_string()),
            ("highest_inum", master.highest_inode.to_string()),
            ("idx_lebs", master.index_lebs.to_string()),
            ("ihead_lnum", master.index_head_leb.to_string()),
            ("ihead_offs", master.index_head_offset.to_string()),
            ("index_size", master.index_bytes.to_string()),
            ("leb_cnt", master.lebs.to_string()),
            ("log_lnum", master.log_leb.to_string()),
            ("lpt_lnum", master.lpt_leb.to_string()),
            ("lpt_offs", master.lpt_offset.to_string()),
            ("lsave_lnum", master.lsave_leb.to_string()),
            ("lsave_offs", master.lsave_offset.to_string()),
            ("lscan_lnum", master.scanned_leb.to_string()),
            ("ltab_lnum", master.ltab_leb.to_string()),
            ("ltab_offs", master.ltab_offset.to_string()),
            ("nhead_lnum", master.lpt_head_leb.to_string()),
            ("nhead_offs", master.lpt_head_offset.to_string()),
            ("root_len", master.root_bytes.to_string()),
            ("root_lnum", master.root_leb.to_string()),
            ("root_offs", master.root_offset.to_string()),
            ("total_dark", master.dark_bytes.to_string()),
            ("total_dead", master.dead_bytes.to_string()),
            ("total_dirty", master.dirty_bytes.to_string()),
            ("total_free", master.free_bytes.to_string()),
            ("total_used", master.used_bytes.to_string()),
        ],
    );
    indented(0, &lines)
}
