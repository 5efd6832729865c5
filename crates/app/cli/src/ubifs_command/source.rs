//! The medium of a file system: a bare volume in a file, a volume of a chip, or an array of chips.

use std::convert::Infallible;
use std::fs;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use array::{Array, ArrayError, MemberIdentity, RebuildStep};
use clap::Args;
use extract::Losses;
use nand::MtdNand;
use serde_json::Value;
use ubi::{Access, Ubi, Volume, VolumeId, Work};
use ubifs::format::SuperblockFlags;
use ubifs::{ImageVolume, MasterKey, OpenError, OpenOptions, RescuedVolume, Ubifs};

use super::salvage;
use crate::output::print_error;
use crate::quantity::parse_bytes;
use crate::ubi_command::chip::{ChipArguments, find_volume, finish, guessed_image};
use crate::ubi_command::several;

/// Selects the file system.
#[derive(Args, Debug, Clone)]
pub struct SourceArguments {
    /// The chip, or an image of just a UBIFS volume.
    #[command(flatten)]
    pub chip: ChipArguments,
    /// Name or number of the volume [default: the only one]
    #[arg(long, value_name = "VOLUME")]
    pub volume: Option<String>,
    /// A further member of the array that IMAGE is the first of; repeat for each, in order
    #[arg(long = "with", value_name = "IMAGE", conflicts_with = "volume")]
    pub with: Vec<PathBuf>,
    /// Read the volume in LEBs of this size, bytes, and rebuild a damaged superblock from the other areas [default: the
    /// volume's]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub leb_size: Option<u64>,
    /// Read by all nodes that a scan of the whole volume finds, for damage that a normal reading does not survive; each
    /// guess is a line
    #[arg(long)]
    pub salvage: bool,
    /// Read the deleted files that a scan of the whole volume finds, in place of the others
    #[arg(long)]
    pub deleted: bool,
    /// A master key of encrypted files (fscrypt): a file with the raw bytes; policies of version 1 with several keys need
    /// the descriptor in hex before it; repeatable
    #[arg(long = "key", value_name = "[DESCRIPTOR=]FILE")]
    pub keys: Vec<KeyFile>,
}

/// A file with a master key, and the key's descriptor.
#[derive(Clone, Debug)]
pub struct KeyFile {
    path: PathBuf,
    descriptor: Option<[u8; 8]>,
}

impl FromStr for KeyFile {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let named = text.split_once('=').and_then(|(descriptor, path)| {
            let bytes = (descriptor.len() == 16).then(|| u64::from_str_radix(descriptor, 16).ok())??;
            Some((path, bytes.to_be_bytes()))
        });
        Ok(Self {
            path: named.map_or(text, |(path, _)| path).into(),
            descriptor: named.map(|(_, descriptor)| descriptor),
        })
    }
}

impl KeyFile {
    /// Reads the key.
    pub fn read(&self) -> Result<MasterKey> {
        let path = self.path.display();
        let raw = fs::read(&self.path).with_context(|| format!("{path} can't be read"))?;
        let bytes = raw.len();
        let key = MasterKey::new(raw)
            .with_context(|| format!("{path}: a key has 16 to 64 bytes, this has {bytes}"))?;
        Ok(match self.descriptor {
            Some(descriptor) => key.with_descriptor(descriptor),
            None => key,
        })
    }
}

/// The devices below a volume, which have their own background work.
pub enum Devices {
    /// A chip.
    One(Ubi),
    /// An array.
    Several(Box<Array>),
}

impl Devices {
    fn all(&self) -> &[Ubi] {
        match self {
            Self::One(device) => std::slice::from_ref(device),
            Self::Several(array) => array.devices(),
        }
    }

    /// Erases, scrubs and levels wear, up to `steps` operations on each device. All devices work in parallel, because a
    /// writer to all of them waits for the slowest.
    pub fn work(&self, steps: u32) -> Result<()> {
        let work = |device: &Ubi| {
            for _ in 0..steps {
                if device.work()? == Work::Idle {
                    break;
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            let working: Vec<_> = self
                .all()
                .iter()
                .map(|device| scope.spawn(move || work(device)))
                .collect();
            working
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })
    }

    /// Does some steps of the rebuild of a member. `Break` once there is nothing left to rebuild.
    pub fn rebuild(&self, steps: u32) -> Result<ControlFlow<()>> {
        let Self::Several(array) = self else {
            return Ok(ControlFlow::Break(()));
        };
        for _ in 0..steps {
            match array.rebuild_step()? {
                RebuildStep::Tried(_) => {}
                RebuildStep::Ended(rebuilt) => {
                    if !rebuilt.incomplete.is_empty() {
                        print_error(&several::incomplete(array, &rebuilt));
                    }
                    return Ok(ControlFlow::Break(()));
                }
                RebuildStep::Idle => return Ok(ControlFlow::Break(())),
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The lines about members of an array that are missing.
    pub fn missing_told(&self) -> Vec<String> {
        match self {
            Self::One(_) => Vec::new(),
            Self::Several(array) => several::missing_told(array),
        }
    }

    /// Whether a member is being rebuilt.
    pub fn is_rebuilding(&self) -> bool {
        matches!(self, Self::Several(array) if array.rebuilding().is_some())
    }

    /// The counters of an array.
    pub fn statistics(&self) -> Option<Value> {
        match self {
            Self::One(_) => None,
            Self::Several(array) => Some(several::statistics(array)),
        }
    }

    /// Closes an array whose use was refused: until then Linux refuses its members. A single device has no such state.
    pub fn close(&self) {
        if let Self::Several(array) = self {
            // The refusal is reported, and the next attach for writing recovers the array.
            let _ = array.close();
        }
    }

    /// Finishes the background work, syncs the images, and closes an array.
    pub fn finish(&self) -> Result<()> {
        self.all().iter().try_for_each(finish)?;
        match self {
            Self::One(_) => Ok(()),
            Self::Several(array) => Ok(array.close()?),
        }
    }
}

impl SourceArguments {
    /// Opens the file system. Damage goes to `losses`.
    pub fn open(&self, losses: &mut Losses) -> Result<Ubifs> {
        self.open_with(OpenOptions::standard(), losses)
    }

    /// As [`Self::open`], with other options.
    pub fn open_with(&self, options: OpenOptions, losses: &mut Losses) -> Result<Ubifs> {
        if self.salvage || self.deleted {
            return salvage::open(self, losses);
        }
        let ubifs = open_file_system(self.volume()?, options)?.with_keys(self.master_keys()?);
        if ubifs.has_encryption() && self.keys.is_empty() {
            print_error("some files are encrypted: --key FILE opens them");
        }
        if SuperblockFlags(ubifs.superblock().flags).has(SuperblockFlags::AUTHENTICATION) {
            print_error(
                "the file system is authenticated, and nothing is verified here: `tidegate ubifs check --auth-key` does",
            );
        }
        for finding in ubifs.findings().iter().chain(&ubifs.replay_report().doubts) {
            losses.tell(&[], finding);
        }
        Ok(ubifs)
    }

    /// The master keys given on the command line.
    pub fn master_keys(&self) -> Result<Vec<MasterKey>> {
        self.keys.iter().map(KeyFile::read).collect()
    }

    /// The images, separated by commas, for messages and statistics.
    pub fn name(&self) -> String {
        let images = std::iter::once(&self.chip.image).chain(&self.with);
        let names: Vec<String> = images.map(|image| image.display().to_string()).collect();
        names.join(",")
    }

    /// The images that are read.
    pub fn images(&self) -> Result<Vec<PathBuf>> {
        let members = self.members()?.unwrap_or_else(|| vec![self.chip.clone()]);
        Ok(members.into_iter().map(|member| member.image).collect())
    }

    /// Opens the volume of the file system.
    pub fn volume(&self) -> Result<Arc<dyn Volume>> {
        Ok(self.volume_and_devices()?.0)
    }

    /// As [`Self::volume`], with the devices below it unless the image is a bare volume.
    pub fn volume_and_devices(&self) -> Result<(Arc<dyn Volume>, Option<Devices>)> {
        let Some(leb_bytes) = self.leb_size else {
            return match self.guessed_volume()? {
                Some(volume) => Ok((volume, None)),
                None => self.attach(Access::ReadOnly),
            };
        };
        let leb_bytes = u32::try_from(leb_bytes).context("--leb-size is more than 4 GiB")?;
        let (volume, devices) = match self.is_bare()? {
            true => (self.bare_volume(leb_bytes)?, None),
            false => self.attach(Access::ReadOnly)?,
        };
        let name = volume.name();
        let (rescued, rebuilt) = RescuedVolume::new(volume, leb_bytes)
            .with_context(|| format!("{name}: --leb-size {leb_bytes} is no size of a LEB of this volume"))?;
        if let Some(rebuilt) = rebuilt {
            print_error(&format!(
                "{name}: the superblock is damaged; rebuilt by the other areas: {} LEBs, of them log {}, LPT {}, orphans {}",
                rebuilt.lebs, rebuilt.log_lebs, rebuilt.lpt_lebs, rebuilt.orphan_lebs
            ));
        }
        Ok((Arc::new(rescued), devices))
    }

    /// For a salvage: a bare volume without a superblock, by the size of LEBs that its nodes have.
    fn guessed_volume(&self) -> Result<Option<Arc<dyn Volume>>> {
        let image = &self.chip.image;
        if !(self.salvage || self.deleted) || !self.is_bare()? || ImageVolume::open(image)?.is_some() {
            return Ok(None);
        }
        let file = fs::File::open(image)?;
        let Some(leb_bytes) = ubifs::salvage::leb_bytes_of(&file)? else {
            bail!(
                "{}: it has no superblock, and too few nodes for the size of its LEBs: --leb-size SIZE gives it",
                image.display()
            );
        };
        print_error(&format!(
            "{}: there is no superblock: the nodes of the index fit LEBs of {leb_bytes} bytes",
            image.display()
        ));
        Ok(Some(self.bare_volume(leb_bytes)?))
    }

    /// Whether the image is a volume without UBI.
    fn is_bare(&self) -> Result<bool> {
        let image = &self.chip.image;
        if self.members()?.is_some() || MtdNand::is_mtd(image) || self.chip.page.is_some() {
            return Ok(false);
        }
        Ok(!nand::sidecar_path(image).exists() && guessed_image(image)?.is_none())
    }

    fn bare_volume(&self, leb_bytes: u32) -> Result<Arc<dyn Volume>> {
        let image = &self.chip.image;
        let opened = ImageVolume::open_as(image, leb_bytes);
        Ok(Arc::new(
            opened.with_context(|| format!("{} can't be read", image.display()))?,
        ))
    }

    /// Opens an array for writing, and has the chip at `place` become its member there.
    pub fn volume_with_new_member(&self, place: usize, force: bool) -> Result<(Arc<dyn Volume>, Devices)> {
        let chips = self
            .members()?
            .context("--rebuild: name all members of the array")?;
        let array = several::with_new_member(&chips, place, force)?;
        let volume: Arc<dyn Volume> = array.volume().clone();
        Ok((volume, Devices::Several(Box::new(array))))
    }

    /// Opens the volume for writing, with the devices below it.
    pub fn writable_volume(&self) -> Result<(Arc<dyn Volume>, Devices)> {
        if self.leb_size.is_some() {
            bail!("--leb-size is for reading; mount with -o ro");
        }
        match self.attach(Access::ReadWrite)? {
            (volume, Some(devices)) => Ok((volume, devices)),
            (_, None) => bail!(
                "{}: an image of a bare volume can only be read; write it to a chip with `tidegate ubi update`",
                self.name()
            ),
        }
    }

    fn attach(&self, access: Access) -> Result<(Arc<dyn Volume>, Option<Devices>)> {
        let image = &self.chip.image;
        if let Some(chips) = self.members()? {
            if let Some(volume) = &self.volume {
                bail!("--volume {volume}: an array has one volume over all its members");
            }
            let array = match access {
                Access::ReadOnly if self.is_salvage(access) => several::attach_rest(&chips)?,
                Access::ReadOnly => several::attach(&chips, access).map_err(with_salvage_hint)?,
                Access::ReadWrite => several::attach(&chips, access)?,
            };
            return Ok(whole(array));
        }
        if !MtdNand::is_mtd(image) {
            let bare =
                ImageVolume::open(image).with_context(|| format!("{} can't be read", image.display()))?;
            if let Some(volume) = bare {
                return Ok((Arc::new(volume), None));
            }
        }
        let ubi = self.chip.attach(access)?;
        let id = choose_volume(&ubi, image, self.volume.as_deref())?;
        if self.is_salvage(access) && is_member(&ubi, id) {
            drop(ubi);
            return Ok(whole(several::attach_rest(std::slice::from_ref(&self.chip))?));
        }
        Ok((Arc::new(ubi.open(id)?), Some(Devices::One(ubi))))
    }

    fn is_salvage(&self, access: Access) -> bool {
        access == Access::ReadOnly && (self.salvage || self.deleted)
    }

    /// The chips, if several are named.
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

/// The volume of an array with its devices.
fn whole(array: Array) -> (Arc<dyn Volume>, Option<Devices>) {
    let volume: Arc<dyn Volume> = array.volume().clone();
    (volume, Some(Devices::Several(Box::new(array))))
}

/// Whether a volume is a member of an array.
fn is_member(ubi: &Ubi, id: VolumeId) -> bool {
    let volumes = ubi.volumes();
    let volume = volumes.iter().find(|volume| volume.id == id);
    volume.is_some_and(|volume| volume.record.name.to_string().parse::<MemberIdentity>().is_ok())
}

/// The error about missing members of an array says how the rest is read.
fn with_salvage_hint(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(ArrayError::Missing { .. }) => anyhow!("{error}; --salvage reads the rest"),
        _ => error,
    }
}

/// Opens a file system; the error about a superblock says how to read it all the same.
pub fn open_file_system(volume: Arc<dyn Volume>, options: OpenOptions) -> Result<Ubifs> {
    let leb_bytes = volume.geometry().leb_bytes;
    Ubifs::open(volume, options).map_err(|error| {
        let next = match &error {
            OpenError::Superblock {
                what: "LEB size",
                found,
                ..
            } => {
                format!("; it was made for LEBs of {found} bytes: --leb-size {found} reads it")
            }
            OpenError::NotUbifs { .. } => {
                format!("; if it is damaged, --leb-size {leb_bytes} rebuilds it in memory")
            }
            OpenError::NoMaster { .. } => "; --salvage reads without it".to_owned(),
            _ => String::new(),
        };
        anyhow!("{error}{next}")
    })
}

/// Finds the volume with this name or number; without one, the only volume.
pub fn choose_volume(ubi: &Ubi, image: &Path, volume: Option<&str>) -> Result<VolumeId> {
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
                "{}: choose a volume with --volume: {}",
                image.display(),
                names.join(", ")
            )
        }
    }
}
