//! Linux as the reference for power cuts: a sample of the results of the sweep in `mounted_power_cuts` is mounted in
//! the lab guest with all self-checks of UBIFS enabled. Linux recovers the same files, attributes and contents as we
//! do, and continues to use them; the result passes our checker. In one of three cases power goes a second time,
//! during our recovery.
//!
//! An array is shown to Linux as one chip, whose volume has LEBs as long as the array's and a maximum write size of a
//! stripe row. Runs only with `TIDEGATE_FULL`; `TIDEGATE_LINUX_CUTS` is the number of cuts per medium (80).
#![expect(
    clippy::print_stdout,
    reason = "how many cuts there were, for who asks with --nocapture"
)]

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::lab_lines::{Lines, assert_same, lines, tree_of};
use crate::support::medium::{Medium, assert_sound, raw};
use crate::support::one_chip::on_chip;
use crate::support::rig::{SMALL, all_of};
use crate::support::sweep::{QUICK, Sweep, Which, cut_recovery};
use media::NandGeometry;
use nand::{Access, ChipModel, FaultModel, FileNand, ImageKind, PlainImage, SimNand};
use testkit::lab::{FlashFile, Guest, Job, Lab, Options};
use ubi::{AttachOptions, Ubi, VolumeId};
use ubifs::{OpenOptions, Ubifs};

/// Chips in the guest.
const CHIPS: usize = 16;

/// The state after a cut as shown to Linux, with our listing of it.
struct Shown {
    replay: String,
    image: Vec<u8>,
    expected: Lines,
}

/// Geometry of the chip that shows a medium of `members` members.
fn geometry(members: u32) -> NandGeometry {
    NandGeometry::new(SMALL.page, SMALL.pages * members, SMALL.blocks).expect("a geometry")
}

fn shown(medium: &Medium, members: u32, replay: String) -> Shown {
    // Copy first: attaching writes.
    let untouched = medium.copy();
    let volume = medium
        .volume()
        .unwrap_or_else(|error| panic!("{replay}: {error}"));
    let image = match members {
        1 => untouched.raw(),
        _ => {
            let chip = SimNand::new("one", ChipModel::new(geometry(members)), FaultModel::none());
            let chip = Arc::new(Mutex::new(chip));
            let shape = volume.geometry();
            drop(on_chip(&chip, shape.lebs, shape.leb_bytes, &all_of(&*volume)));
            raw(&chip)
        }
    };
    let ubifs = Ubifs::open(volume, OpenOptions::standard());
    let ubifs = ubifs.unwrap_or_else(|error| panic!("{replay}: {error}"));
    assert!(ubifs.findings().is_empty(), "{replay}: {:?}", ubifs.findings());
    Shown {
        expected: tree_of(&ubifs),
        image,
        replay,
    }
}

/// `count` cuts of a sweep, or a few more.
fn sample(members: u32, count: u64) -> Vec<Shown> {
    let sweep = Sweep {
        members: usize::try_from(members).expect("few"),
        segments: 6,
        steps: 60,
        ..QUICK
    };
    let segments = sweep.segments();
    let each = count.div_ceil(sweep.segments);
    let mut all = Vec::new();
    for segment in &segments {
        for number in 0..each {
            let cut = number * segment.writes / each;
            // The guest's chips have no ECC: torn pages read without an error.
            let cut = if cut % 5 == 1 { cut + 1 } else { cut };
            let which = match members > 1 && number % 2 == 1 {
                true => Which::OneMember,
                false => Which::All,
            };
            if let Some((medium, _)) = sweep.cut(segment, cut, which) {
                let mut replay = sweep.replay(segment, cut, which);
                if number % 3 == 2 && cut_recovery(&medium, cut, cut) {
                    replay += ", second cut";
                }
                all.push(shown(&medium, members, replay));
            }
        }
    }
    all
}

fn judge(guest: &mut Guest, chips: &[FlashFile], members: u32, batch: &[Shown]) {
    for (chip, shown) in chips.iter().zip(batch) {
        chip.load(&shown.image).expect("it fits");
    }
    let shape = geometry(members);
    let bytes = shape.total_bytes().0;
    let sizes = vec![bytes.to_string(); CHIPS].join(",");
    let (page, block) = (shape.page_bytes(), shape.block_bytes());
    let row = page * members;
    let job = Job::ready_made("check-many.sh")
        .expect("the script is in the repository")
        .variable("COUNT", batch.len().to_string())
        .variable(
            "FLASH",
            format!("page={page} block={block} writebuf={row} sizes={sizes}"),
        )
        .variable("USE", "echo usable >after-the-cut && sync && rm after-the-cut")
        .timeout(Duration::from_secs(900));
    let outcome = guest.run(&job).unwrap_or_else(|error| panic!("{error}"));
    let replays: Vec<&str> = batch.iter().map(|shown| shown.replay.as_str()).collect();
    let code = outcome.ended;
    assert_eq!(
        code,
        testkit::lab::Ended::Code(0),
        "chips from 0 on: {replays:#?}\n{}",
        outcome.text()
    );
    let text = outcome.read_text("files.txt").expect("the job wrote it");
    let trees: Vec<&str> = match batch.len() {
        1 => vec![&text],
        _ => text
            .split("== ")
            .skip(1)
            .map(|tree| tree.split_once('\n').map_or("", |(_, rest)| rest))
            .collect(),
    };
    assert_eq!(trees.len(), batch.len(), "{text}");
    for ((shown, tree), chip) in batch.iter().zip(trees).zip(chips) {
        assert_same(&shown.expected, &lines(tree), &shown.replay);
        assert_whole(chip.path(), shape, &shown.replay);
    }
}

/// Asserts that the state left by Linux passes our checker.
fn assert_whole(path: &Path, geometry: NandGeometry, replay: &str) {
    let bytes = usize::try_from(geometry.total_bytes().0).expect("small");
    let copy = path.with_extension("copy");
    let chip = fs::read(path).expect("it is there");
    fs::write(&copy, &chip[..bytes]).expect("there is room");
    let plain = PlainImage {
        model: ChipModel::new(geometry),
        kind: ImageKind::Data,
    };
    let nand = FileNand::open(&copy, Access::ReadOnly, Some(plain)).expect("a chip");
    let scanned = ubi::scan(nand, AttachOptions::linux(ubi::Access::ReadOnly)).expect("attaches");
    let device: Ubi = scanned.attach().expect("attaches");
    let volume = device.open(VolumeId(0)).expect("the volume is there");
    assert_sound(&volume, &format!("{replay}, after Linux"));
}

#[test]
fn linux_recovers_what_a_cut_left_of_a_chip_or_an_array_as_we_do() {
    if testkit::left_to_full("power cuts shown to Linux take minutes") {
        return;
    }
    let lab = match Lab::with_flash() {
        Ok(lab) => lab,
        Err(why) => {
            testkit::report_left_out(why);
            return;
        }
    };
    let count = std::env::var("TIDEGATE_LINUX_CUTS").ok();
    let count = count.map_or(80, |count| count.parse().expect("a number"));
    let folder = tempfile::tempdir().expect("a folder");
    let largest = geometry(4).total_bytes().0;
    let chip = |number| FlashFile::erased(&folder.path().join(format!("chip-{number}")), largest);
    let chips: Vec<FlashFile> = (0..CHIPS)
        .map(|number| chip(number).expect("there is room"))
        .collect();
    let options = Options {
        flash: chips.clone(),
        ..Options::default()
    };
    let mut guest = lab.boot(&options).unwrap_or_else(|error| panic!("{error}"));
    for members in [1, 2, 4] {
        let all = sample(members, count);
        for batch in all.chunks(CHIPS) {
            judge(&mut guest, &chips, members, batch);
        }
        println!("{members} members: Linux recovers {} cuts as we do", all.len());
    }
}
