//! Linux as the judge, in the lab guest: it writes, its power is cut, we read the flash as it was left, and then Linux recovers
//! it. What we read and what Linux recovered is the same, in every file, attribute and time.
//!
//! `TIDEGATE_UBIFS_CUTS=N`: N cuts at points that follow from their numbers, instead of one.

mod support {
    pub mod lab_lines;
    pub mod sha256;
}

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use media::NandGeometry;
use nand::{Access, ChipModel, FileNand, ImageKind, PlainImage};
use support::lab_lines::{Lines, assert_same, lines, tree_of};
use testkit::lab::{Ended, FlashFile, Guest, Job, Lab, Options};
use ubi::{AttachOptions, Ubi, VolumeId};
use ubifs::{OpenOptions, Ubifs};

const CHIP_BYTES: u64 = 32 << 20;

struct Bench {
    lab: Lab,
    folder: PathBuf,
    chip: FlashFile,
}

impl Bench {
    #[expect(clippy::print_stderr, reason = "a test that is left out says why")]
    fn new(name: &str) -> Option<Self> {
        let lab = match Lab::with_flash() {
            Ok(lab) => lab,
            Err(why) => {
                eprintln!("left out: {why}");
                return None;
            }
        };
        let folder = std::env::temp_dir().join(format!("tidegate-ubifs-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder takes one");
        let chip = FlashFile::erased(&folder.join("chip"), CHIP_BYTES).expect("there is room for a chip");
        Some(Self { lab, folder, chip })
    }

    fn boot(&self) -> Guest {
        let options = Options {
            flash: vec![self.chip.clone()],
            ..Options::default()
        };
        self.lab.boot(&options).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Linux writes until its power goes.
    fn write_until_cut(&self, flash: &str, load: &str, options: &str) -> String {
        self.chip.load(&[]).expect("it is erased");
        let job = Job::ready_made("write.sh").expect("the script is in the repository");
        let job = job
            .variable("FLASH", flash)
            .variable("LOAD", load)
            .variable("OPTIONS", options);
        let mut guest = self.boot();
        let outcome = guest.run(&job).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(outcome.ended, Ended::GuestEnded, "{}", outcome.text());
        outcome.text()
    }

    /// What Linux makes of the chip.
    fn recovered(&self) -> Lines {
        let mut guest = self.boot();
        let job = Job::ready_made("check.sh").expect("the script is in the repository");
        let outcome = guest
            .run(&job)
            .unwrap_or_else(|error| panic!("{error}"))
            .expect_success();
        lines(&outcome.read_text("files.txt").expect("the job wrote it"))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A chip's file as a file system; it stays as it is.
fn open(chip: &Path) -> Ubifs {
    let geometry = NandGeometry::new(2048, 64, 1).expect("a geometry");
    let plain = PlainImage {
        model: ChipModel::new(geometry),
        kind: ImageKind::Data,
    };
    let chip = FileNand::open(chip, Access::ReadOnly, Some(plain)).expect("a chip");
    let scanned = ubi::scan(chip, AttachOptions::linux(ubi::Access::ReadOnly)).expect("attaches");
    let device: Ubi<FileNand> = scanned.attach().expect("attaches");
    let volume = device.open(VolumeId(0)).expect("the volume is there");
    Ubifs::open(Arc::new(volume), OpenOptions::standard()).expect("it is a file system")
}

#[test]
fn files_that_were_synced_and_never_committed_are_all_there_after_a_power_cut() {
    let Some(bench) = Bench::new("synced") else { return };
    let load = r#"python3 -c '
import os
def put(folder, count, sync):
    os.makedirs(folder)
    for n in range(count):
        handle = os.open(f"{folder}/{n}", os.O_CREAT | os.O_WRONLY)
        os.write(handle, bytes([n % 251]) * (100 + 37 * n % 9000))
        sync and os.fsync(handle)
        os.close(handle)
put("base", 100, False)
os.sync()
put("synced", 500, True)
os.mknod("device", 0o020644, os.makedev(5, 1)); os.mkfifo("fifo"); os.symlink("base/1", "link")
os.fsync(os.open(".", os.O_RDONLY))
' && lab-cut"#;
    bench.write_until_cut("", load, "");
    let ubifs = open(bench.chip.path());
    let ours = tree_of(&ubifs);
    let synced = ours.keys().filter(|path| path.starts_with("synced/")).count();
    assert_eq!(synced, 500);
    assert!(
        !ubifs.replay_report().was_clean && ubifs.findings().is_empty(),
        "{:?}",
        ubifs.findings()
    );
    assert_same(&ours, &bench.recovered(), "synced");
}

#[test]
fn whatever_a_power_cut_leaves_is_read_as_linux_recovers_it() {
    let Some(bench) = Bench::new("cuts") else { return };
    let cuts = std::env::var("TIDEGATE_UBIFS_CUTS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    for cut in 1..=cuts {
        let at = 1100 + cut * 977 % 4000;
        let flash = format!("cut_at={at} torn={}", cut * 700 % 2048);
        let sync = if cut % 2 == 0 { "--sync" } else { "" };
        let compression = ["lzo", "zstd", "zlib", "none"][cut % 4];
        let load = format!("lab-load . {cut} 100000 {sync} >/dev/null");
        bench.write_until_cut(&flash, &load, &format!("compr={compression}"));
        let ubifs = open(bench.chip.path());
        let ours = tree_of(&ubifs);
        let what = format!("cut {cut}: {flash} {compression}: {:?}", ubifs.replay_report());
        assert!(ubifs.findings().is_empty(), "{what}: {:?}", ubifs.findings());
        assert!(ours.len() > 10, "{what}: nothing was written before the cut");
        assert_same(&ours, &bench.recovered(), &what);
    }
}
