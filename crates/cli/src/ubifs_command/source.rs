//! Where a file system comes from: a bare volume in a file, a volume of a chip, or an array of chips.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use nand::MtdNand;
use ubi::{Access, Ubi, Volume, VolumeId};
use ubifs::{ImageVolume, OpenOptions, Ubifs};

use super::Losses;
use crate::ubi_command::chip::{Chip, ChipArguments, find_volume};
use crate::ubi_command::several;

/// Which file system.
#[derive(Args, Debug, Clone)]
pub struct SourceArguments {
    /// The chip, or an image of a UBIFS volume alone
    #[command(flatten)]
    pub chip: ChipArguments,
    /// Name or number of the volume [default: the only one]
    #[arg(long, value_name = "VOLUME")]
    pub volume: Option<String>,
    /// A further member of the array that IMAGE is the first of; once for each, in their order
    #[arg(long = "with", value_name = "IMAGE", conflicts_with = "volume")]
    pub with: Vec<PathBuf>,
}

impl SourceArguments {
    /// Opens the file system. What is damaged goes to `losses`.
    pub fn open(&self, losses: &mut Losses) -> Result<Ubifs> {
        self.open_with(OpenOptions::standard(), losses)
    }

    /// The same with other options.
    pub fn open_with(&self, options: OpenOptions, losses: &mut Losses) -> Result<Ubifs> {
        let ubifs = Ubifs::open(self.volume()?, options)?;
        for finding in ubifs.findings() {
            losses.tell(&[], finding);
        }
        Ok(ubifs)
    }

    /// What is mounted, for people.
    pub fn name(&self) -> String {
        let images = std::iter::once(&self.chip.image).chain(&self.with);
        let names: Vec<String> = images.map(|image| image.display().to_string()).collect();
        names.join(",")
    }

    /// Opens the volume that the file system is on.
    pub fn volume(&self) -> Result<Arc<dyn Volume>> {
        let image = &self.chip.image;
        if let Some(chips) = self.members()? {
            if let Some(volume) = &self.volume {
                bail!("--volume {volume}: an array has one volume over all its members");
            }
            let array = several::attach(&chips, Access::ReadOnly)?;
            let volume: Arc<dyn Volume> = array.volume().clone();
            return Ok(volume);
        }
        if !MtdNand::is_mtd(image) {
            let bare =
                ImageVolume::open(image).with_context(|| format!("{} can't be read", image.display()))?;
            if let Some(volume) = bare {
                return Ok(Arc::new(volume));
            }
        }
        let ubi = self.chip.attach(Access::ReadOnly)?;
        let id = choose_volume(&ubi, image, self.volume.as_deref())?;
        Ok(Arc::new(ubi.open(id)?))
    }

    /// The chips, where several are named.
    fn members(&self) -> Result<Option<Vec<ChipArguments>>> {
        if self.with.is_empty() {
            return self.chip.members();
        }
        let images = std::iter::once(&self.chip.image).chain(&self.with);
        let one = |image: &PathBuf| ChipArguments {
            image: image.clone(),
            ..self.chip.clone()
        };
        Ok(Some(images.map(one).collect()))
    }
}

/// The volume of that name or number; without one, the only volume.
pub fn choose_volume(ubi: &Ubi<Chip>, image: &Path, volume: Option<&str>) -> Result<VolumeId> {
    if let Some(text) = volume {
        return find_volume(ubi, image, text);
    }
    match ubi.volumes().as_slice() {
        [only] => Ok(only.id),
        [] => bail!("{}: there is no volume", image.display()),
        several => {
            let names: Vec<_> = several
                .iter()
                .map(|volume| volume.record.name.to_string())
                .collect();
            bail!(
                "{}: say with --volume which of {}",
                image.display(),
                names.join(", ")
            )
        }
    }
}
