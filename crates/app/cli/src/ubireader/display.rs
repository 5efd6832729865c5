//! `ubireader_display_info`: UBI partitions with their volume tables, and superblocks and master nodes of UBIFS.

use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use extract::Losses;
use extract::ubireader::{shown_file_system, shown_partition};
use image::Content;
use ubi::Volume as _;

use super::{Common, open};
use crate::Finding;
use crate::output::{print_error, print_line};

/// Arguments of `ubireader_display_info`.
#[derive(Args, Debug)]
pub struct DisplayArguments {
    /// The dump.
    #[command(flatten)]
    pub common: Common,
    /// Show the UBIFS in the volumes in place of the partitions
    #[arg(short, long)]
    pub ubifs_info: bool,
    /// LEB size of a UBIFS; accepted, and taken from its superblock
    #[arg(short = 'e', long, value_name = "BLOCK_SIZE")]
    pub leb_size: Option<String>,
}

/// Runs `ubireader_display_info`.
pub fn run(arguments: &DisplayArguments) -> Result<Finding> {
    let common = &arguments.common;
    let Some(input) = common.open()? else {
        return Ok(Finding::Something);
    };
    let of_survey = input.tell();
    let mut losses = Losses::new(print_error);
    for partition in input.partitions() {
        if !arguments.ubifs_info {
            print_line(&shown_partition(partition))?;
            continue;
        }
        for volume in partition
            .volumes
            .iter()
            .filter(|volume| volume.content == Content::Ubifs)
        {
            let Some(ubifs) = open(Arc::new(volume.open()), None, &mut losses) else {
                continue;
            };
            let data = u64::from(partition.shape.data_offset);
            let place = |leb: u32| {
                volume
                    .mapped()
                    .find(|(mapped, _)| mapped.0 == leb)
                    .map(|(_, at)| at + data)
            };
            print_line(&shown_file_system(&ubifs, &place))?;
        }
    }
    for bare in input.bare() {
        if let Some(ubifs) = open(Arc::new(bare.open()), None, &mut losses) {
            let leb_bytes = u64::from(bare.open().geometry().leb_bytes);
            let place = |leb: u32| Some(bare.offset + u64::from(leb) * leb_bytes);
            print_line(&shown_file_system(&ubifs, &place))?;
        }
    }
    Ok(common.end(&input, of_survey + losses.count()))
}
