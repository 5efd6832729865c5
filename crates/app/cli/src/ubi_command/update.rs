//! `tidegate ubi update`.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use ubi::Access;

use super::chip::{ChipArguments, bar, find_volume, finish};
use super::info::volume_json;
use super::volumes::summary_of;
use crate::output::print_line;

/// Arguments of `tidegate ubi update`.
#[derive(Args, Debug)]
pub struct UpdateArguments {
    /// The chip
    #[command(flatten)]
    pub chip: ChipArguments,
    /// Name or number of the volume
    pub volume: String,
    /// The new content; - is standard input, read to its end before a chip is written, and as it arrives for an array
    pub file: PathBuf,
    /// Print the volume as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(arguments: &UpdateArguments) -> Result<()> {
    if let Some(chips) = arguments.chip.members()? {
        return super::several::update(arguments, &chips);
    }
    let path = &arguments.file;
    let (mut content, bytes): (Box<dyn Read>, u64) = if path.as_os_str() == "-" {
        let mut all = Vec::new();
        std::io::stdin()
            .read_to_end(&mut all)
            .context("standard input can't be read")?;
        let bytes = u64::try_from(all.len())?;
        (Box::new(std::io::Cursor::new(all)), bytes)
    } else {
        let file = File::open(path).with_context(|| format!("{} can't be opened", path.display()))?;
        let bytes = file.metadata()?.len();
        (Box::new(file), bytes)
    };
    let ubi = arguments.chip.attach(Access::ReadWrite)?;
    let id = find_volume(&ubi, &arguments.chip.image, &arguments.volume)?;
    let mut update = ubi.update(id, bytes)?;
    let progress = bar(bytes, "updating");
    let mut buffer = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let read = content
            .read(&mut buffer)
            .with_context(|| format!("{} can't be read; the volume stays marked", path.display()))?;
        let now = u64::try_from(read)?.min(left);
        if now == 0 {
            break;
        }
        update.write(&buffer[..usize::try_from(now)?])?;
        left -= now;
        progress.inc(now);
    }
    update.finish()?;
    progress.finish_and_clear();
    finish(&ubi)?;
    if let (true, Some(volume)) = (arguments.json, summary_of(&ubi, id)) {
        print_line(&volume_json(&volume).to_string())?;
    }
    Ok(())
}
