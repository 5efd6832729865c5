//! A chip shared with the lab guest: Linux writes to it and recovers it, and we read it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use media::{Leb, NandGeometry};
use nand::{Access, ChipModel, FileNand, ImageKind, PlainImage};
use testkit::lab::{Ended, FlashFile, Folders, Guest, Job, Lab, Options, Outcome};
use ubi::{AttachOptions, Ubi, Volume, VolumeId};
use ubifs::format::ROOT_INODE;
use ubifs::{OpenOptions, Ubifs};

/// A chip, and the guest that uses it.
pub struct Bench {
    lab: Lab,
    folder: PathBuf,
    pub chip: FlashFile,
}

impl Bench {
    /// Creates an erased chip. Returns `None`, and prints why, if there is no guest.
    pub fn new(name: &str, chip_bytes: u64) -> Option<Self> {
        let lab = match Lab::with_flash() {
            Ok(lab) => lab,
            Err(why) => {
                testkit::report_left_out(why);
                return None;
            }
        };
        let folder = std::env::temp_dir().join(format!("tidegate-ubifs-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder takes one");
        let chip = FlashFile::erased(&folder.join("chip"), chip_bytes).expect("there is room for a chip");
        Some(Self { lab, folder, chip })
    }

    /// Directory for temporary files of this bench.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Boots a guest with the chip.
    pub fn boot(&self) -> Guest {
        let options = Options {
            flash: vec![self.chip.clone()],
            // Shared as `/host` with its jobs, one at a time.
            folders: Folders::One(self.folder.clone()),
            ..Options::default()
        };
        self.lab.boot(&options).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Linux formats the chip and writes until its power is cut.
    pub fn write_until_cut(&self, guest: &mut Guest, load: &Load) {
        let outcome = self.write(guest, load);
        assert_eq!(outcome.ended, Ended::GuestEnded, "{load:?}: {}", outcome.text());
    }

    /// Linux formats the chip, writes, and unmounts unless its power is cut first.
    pub fn write(&self, guest: &mut Guest, load: &Load) -> Outcome {
        self.chip.load(&[]).expect("it is erased");
        let job = Job::ready_made("write.sh").expect("the script is in the repository");
        let job = job
            .variable("FLASH", &load.flash)
            .variable("LOAD", &load.command)
            .variable("OPTIONS", &load.options)
            .timeout(Duration::from_secs(1200));
        guest
            .run(&job)
            .unwrap_or_else(|error| panic!("{load:?}: {error}"))
    }
}

impl Bench {
    /// Takes copies of the chip while Linux writes to it. The load ends when the file `/host/stop` exists.
    pub fn copies_while_written(&self, guest: &mut Guest, load: &Load, count: usize) -> Vec<PathBuf> {
        let stop = self.folder.join("stop");
        let _ = fs::remove_file(&stop);
        thread::scope(|scope| {
            let writer = scope.spawn(|| self.write(guest, load));
            let mut copies: Vec<PathBuf> = Vec::new();
            let mut last = Vec::new();
            while copies.len() < count && !writer.is_finished() {
                // The wait only determines how often the chip is examined.
                thread::park_timeout(Duration::from_millis(300));
                let [one, other] = [(); 2].map(|()| fs::read(self.chip.path()).expect("it can be read"));
                // Two equal reads, so that nothing was written in between; and enough has changed since the last
                // copy.
                let is_moment = one == other && differing_pages(&one, &last) > 40;
                if !is_moment || !self.is_mounted_once(&one) {
                    continue;
                }
                let path = self.folder.join(format!("{}-{}", load.options, copies.len()));
                fs::write(&path, &one).expect("there is room");
                copies.push(path);
                last = one;
            }
            fs::write(&stop, b"").expect("there is room");
            let written = writer.join().expect("the guest writes").expect_success();
            assert_eq!(written.ended, Ended::Code(0));
            copies
        })
    }

    /// Whether the image has a readable file system that the load has already written to.
    fn is_mounted_once(&self, image: &[u8]) -> bool {
        let path = self.folder.join("look");
        fs::write(&path, image).expect("there is room");
        let opened = try_volume(&path).and_then(|volume| Ubifs::open(volume, OpenOptions::standard()).ok());
        opened.is_some_and(|ubifs| {
            ubifs
                .read_directory(ROOT_INODE)
                .is_ok_and(|names| names.len() > 3)
        })
    }
}

fn differing_pages(one: &[u8], other: &[u8]) -> usize {
    if one.len() != other.len() {
        return usize::MAX;
    }
    let pages = one.chunks(2048).zip(other.chunks(2048));
    pages.filter(|(one, other)| one != other).count()
}

/// The listing by Linux of the chip in the guest.
pub fn recovered(guest: &mut Guest) -> String {
    let job = Job::ready_made("check.sh").expect("the script is in the repository");
    let job = job.timeout(Duration::from_secs(1200));
    let outcome = guest
        .run(&job)
        .unwrap_or_else(|error| panic!("{error}"))
        .expect_success();
    outcome.read_text("files.txt").expect("the job wrote it")
}

/// A workload in the guest.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// Parameters of the flash module, including the power cut.
    pub flash: String,
    /// Command to run in the mounted tree.
    pub command: String,
    /// Mount options.
    pub options: String,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Opens the file system in a chip's file, without changing it.
pub fn open(chip: &Path) -> Ubifs {
    Ubifs::open(volume(chip), OpenOptions::standard()).expect("it is a file system")
}

/// The volume in a chip's file.
pub fn volume(chip: &Path) -> Arc<dyn Volume> {
    try_volume(chip).expect("there is a volume")
}

fn try_volume(chip: &Path) -> Option<Arc<dyn Volume>> {
    let geometry = NandGeometry::new(2048, 64, 1).expect("a geometry");
    let plain = PlainImage {
        model: ChipModel::new(geometry),
        kind: ImageKind::Data,
    };
    let chip = FileNand::open(chip, Access::ReadOnly, Some(plain)).ok()?;
    let scanned = ubi::scan(chip, AttachOptions::linux(ubi::Access::ReadOnly)).ok()?;
    let device: Ubi = scanned.attach().ok()?;
    Some(Arc::new(device.open(VolumeId(0)).ok()?))
}

/// Writes a volume to a file, LEB after LEB.
pub fn dump(volume: &dyn Volume, path: &Path) {
    let geometry = volume.geometry();
    let mut file = File::create(path).expect("there is room");
    let mut raw = vec![0; usize::try_from(geometry.leb_bytes).expect("small")];
    for leb in 0..geometry.lebs {
        volume.read(Leb(leb), 0, &mut raw).expect("it can be read");
        file.write_all(&raw).expect("there is room");
    }
}
