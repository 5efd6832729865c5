//! `tidegate ubi info`.

use anyhow::Result;
use clap::Args;
use programs::terminal::WidthArguments;
use report::Column;
use serde_json::{Value, json};
use ubi::format::VolumeKind;
use ubi::{Access, DeviceSummary, MemberState, VolumeSummary};

use super::chip::ChipArguments;
use crate::output::print_line;
use crate::quantity::show_bytes;

/// Arguments of `tidegate ubi info`.
#[derive(Args, Debug)]
pub struct InfoArguments {
    /// The chip
    #[command(flatten)]
    pub chip: ChipArguments,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub width: WidthArguments,
}

/// Runs the command.
pub fn run(arguments: &InfoArguments) -> Result<()> {
    if let Some(chips) = arguments.chip.members()? {
        return super::several::info(arguments, &chips);
    }
    let ubi = arguments.chip.attach(Access::ReadOnly)?;
    let (device, volumes) = (ubi.summary(), ubi.volumes());
    let text = match arguments.json {
        true => as_json(&device, &volumes).to_string(),
        false => as_text(
            &arguments.chip.image.display().to_string(),
            &device,
            &volumes,
            arguments.width,
        ),
    };
    print_line(&text)?;
    Ok(())
}

/// The name of a volume kind.
pub fn kind_name(kind: VolumeKind) -> &'static str {
    match kind {
        VolumeKind::Dynamic => "dynamic",
        VolumeKind::Static => "static",
    }
}

/// One volume as a JSON object.
pub fn volume_json(volume: &VolumeSummary) -> Value {
    json!({
        "id": volume.id.0,
        "name": volume.record.name.to_string(),
        "kind": kind_name(volume.record.kind),
        "lebs": volume.record.reserved_pebs,
        "mapped_lebs": volume.mapped_lebs,
        "leb_bytes": volume.leb_bytes,
        "data_bytes": volume.data_bytes,
        "alignment_bytes": volume.record.alignment,
        "update_marker": volume.record.update_marker,
        "autoresize": volume.record.autoresize,
        "skip_check": volume.record.skip_check,
    })
}

/// A device and its volumes as a JSON object.
pub fn as_json(device: &DeviceSummary, volumes: &[VolumeSummary]) -> Value {
    let (array_state, array_epoch) = member_state(device.member_state);
    json!({
        "array_state": array_state,
        "array_epoch": array_epoch,
        "image_sequence": device.image_sequence,
        "vid_header_offset_bytes": device.layout.vid_header_offset(),
        "data_offset_bytes": device.layout.data_offset(),
        "leb_bytes": device.layout.leb_bytes(),
        "min_io_bytes": device.layout.min_io_bytes(),
        "last_sequence_number": device.last_sequence_number,
        "blocks": device.blocks,
        "bad_blocks": device.bad_blocks,
        "preserved_blocks": device.preserved_blocks,
        "free_blocks": device.free_blocks,
        "used_blocks": device.used_blocks,
        "blocks_to_scrub": device.blocks_to_scrub,
        "blocks_to_erase": device.blocks_to_erase,
        "bad_block_reserve": device.bad_block_reserve,
        "available_lebs": device.available_lebs,
        "erase_counter_lowest": device.wear.lowest,
        "erase_counter_mean": device.wear.mean,
        "erase_counter_highest": device.wear.highest,
        "memory_bytes": device.memory_bytes,
        "volumes": volumes.iter().map(volume_json).collect::<Vec<_>>(),
    })
}

/// The array state in the device's mark, as a name, and the epoch.
pub const fn member_state(state: MemberState) -> (Option<&'static str>, Option<u64>) {
    match state {
        MemberState::Unmarked => (None, None),
        MemberState::Closed { epoch } => (Some("closed"), Some(epoch)),
        MemberState::Open { epoch } => (Some("open"), Some(epoch)),
        MemberState::WrittenAlone { epoch } => (Some("written alone"), Some(epoch)),
    }
}

/// A device and its volumes as text.
pub fn as_text(
    image: &str,
    device: &DeviceSummary,
    volumes: &[VolumeSummary],
    width: WidthArguments,
) -> String {
    let layout = device.layout;
    let mut lines = vec![
        format!("{image}: UBI, image sequence {:#010x}", device.image_sequence),
        format!(
            "  LEB {}, VID header at {}, data at {}, smallest write {}",
            show_bytes(u64::from(layout.leb_bytes())),
            layout.vid_header_offset(),
            layout.data_offset(),
            show_bytes(u64::from(layout.min_io_bytes()))
        ),
        format!(
            "  {} blocks: {} used, {} free, {} to erase, {} to scrub, {} bad, {} preserved",
            device.blocks,
            device.used_blocks,
            device.free_blocks,
            device.blocks_to_erase,
            device.blocks_to_scrub,
            device.bad_blocks,
            device.preserved_blocks
        ),
        format!(
            "  {} LEBs are free for volumes, {} blocks are kept back for bad ones",
            device.available_lebs, device.bad_block_reserve
        ),
        format!(
            "  erase counters {} to {}, mean {}",
            device.wear.lowest, device.wear.highest, device.wear.mean
        ),
        format!(
            "  memory {} bytes; promised: at most 8 a block and 300 KiB, {} bytes",
            device.memory_bytes,
            u64::from(device.blocks) * 8 + (300 << 10)
        ),
    ];
    if device.member_state != MemberState::Unmarked {
        lines.push(format!("  {}", device.member_state));
    }
    if volumes.is_empty() {
        lines.push("no volumes".to_owned());
    } else {
        lines.push(String::new());
        lines.push(volume_table(volumes, width).trim_end().to_owned());
    }
    lines.join("\n")
}

fn volume_table(volumes: &[VolumeSummary], width: WidthArguments) -> String {
    let columns = [
        Column::right("id"),
        Column::left("name").elided(),
        Column::left("kind"),
        Column::right("LEBs"),
        Column::right("mapped").optional(2),
        Column::right("LEB bytes").optional(1),
        Column::right("data bytes"),
        Column::left("flags").optional(3),
    ];
    let rows: Vec<Vec<String>> = volumes.iter().map(volume_row).collect();
    width.table(&columns, &rows)
}

fn volume_row(volume: &VolumeSummary) -> Vec<String> {
    let record = &volume.record;
    let alignment = format!("alignment {}", record.alignment);
    let flags: Vec<&str> = [
        (record.update_marker, "update not finished"),
        (record.autoresize, "autoresize"),
        (record.skip_check, "skip-check"),
        (record.alignment != 1, alignment.as_str()),
    ]
    .into_iter()
    .filter_map(|(set, name)| set.then_some(name))
    .collect();
    vec![
        volume.id.0.to_string(),
        record.name.to_string(),
        kind_name(record.kind).to_owned(),
        record.reserved_pebs.to_string(),
        volume.mapped_lebs.to_string(),
        volume.leb_bytes.to_string(),
        volume.data_bytes.to_string(),
        flags.join(", "),
    ]
}
