//! Interoperability with Linux, in the lab guest: images written here attach there and the other way round, with
//! identical LEBs.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};

use media::{Leb, Nand, NandGeometry, Peb};
use nand::{ChipModel, CutPoint, CutTime, FaultModel, PowerCut, SimNand};
use testkit::lab::{self, Ended, FlashFile, Job, Lab, Outcome};
use testkit::prng::Prng;
use ubi::format::VolumeKind;
use ubi::format::volume_table::VolumeName;
use ubi::{
    Access, AttachOptions, FormatOptions, Layout, MemberVolume, NewVolume, SizeInLebs, Ubi, Volume, VolumeId,
    scan,
};

type Chip = Arc<Mutex<SimNand>>;

/// 64 MiB, 2 KiB pages, 512-byte sub-pages, 128 KiB blocks.
const CHIP: &str = "0x20,0xa2,0x00,0x15";
const BLOCKS: u32 = 512;

fn chip() -> SimNand {
    let geometry = NandGeometry::new(2048, 64, BLOCKS)
        .and_then(|geometry| geometry.with_subpage(512))
        .expect("a geometry");
    SimNand::new("chip", ChipModel::new(geometry), FaultModel::none())
}

fn format(chip: &Chip) -> Ubi {
    let options = FormatOptions {
        layout: Layout::usual(&chip.geometry()).expect("a layout"),
        image_sequence: 0x1234,
        erase_counter: Some(3),
    };
    Ubi::format(Arc::clone(chip), options, &mut |_| {}).expect("formatted")
}

fn attach(chip: &Chip, access: Access) -> Ubi {
    let scanned = scan(Arc::clone(chip), AttachOptions::linux(access)).expect("attaches");
    scanned.attach().expect("attaches")
}

fn volume(name: &str, kind: VolumeKind, lebs: u32, alignment: u32) -> NewVolume {
    NewVolume {
        id: None,
        name: VolumeName::new(name.as_bytes()).expect("a name"),
        kind,
        size: SizeInLebs::Exactly(lebs),
        alignment,
        autoresize: false,
        skip_check: false,
    }
}

/// Creates volumes of every kind, with LEBs in every state.
fn fill(ubi: &Ubi, seed: u64) {
    let mut prng = Prng::named(seed, "volumes for Linux");
    let data = ubi.make_volume(volume("data", VolumeKind::Dynamic, 40, 1));
    let data = data.and_then(|id| ubi.open(id)).expect("a volume");
    let boot = ubi
        .make_volume(volume("boot", VolumeKind::Static, 5, 1))
        .expect("a volume");
    let array = ubi.make_volume(volume("array", VolumeKind::Dynamic, 6, 4096));
    let array = array.and_then(|id| ubi.open(id)).expect("a volume");
    let content = prng.bytes(300_001);
    let mut update = ubi.update(boot, 300_001).expect("it fits");
    update
        .write(&content)
        .and_then(|()| update.finish())
        .expect("it fits");
    for round in 0..120_u32 {
        let leb = Leb(u32::try_from(prng.below(40)).expect("few"));
        let pages = usize::try_from(1 + prng.below(20)).expect("few");
        match round % 6 {
            0 => data.unmap(leb),
            _ => data.leb_change(leb, &prng.bytes(pages * 2048)),
        }
        .expect("room for it");
        if round % 3 == 0 {
            ubi.work().expect("nothing fails");
        }
    }
    for leb in 0..6 {
        array
            .map_with_generation(Leb(leb), NonZeroU64::new(77).expect("not 0"))
            .expect("not mapped yet");
        array.write(Leb(leb), 0, &prng.bytes(8192)).expect("room for it");
    }
    let renamed = VolumeName::new(b"array of four").expect("a name");
    ubi.rename_volumes(&[(array.id(), renamed)]).expect("a free name");
}

fn image(chip: &Chip) -> Vec<u8> {
    let geometry = chip.geometry();
    let block = usize::try_from(geometry.block_bytes()).expect("it is small");
    let mut chip = chip.lock().expect("no panic");
    let mut image = vec![0; block * usize::try_from(geometry.blocks()).expect("few")];
    for (peb, out) in geometry.pebs().zip(image.chunks_mut(block)) {
        let _ = chip.read(peb, 0, out).expect("every block can be read");
    }
    image
}

/// The dump of a volume: mapped LEBs, 0xFF for unmapped ones; for a static volume the data bytes.
fn content(ubi: &Ubi, id: VolumeId) -> Vec<u8> {
    let volume = ubi.open(id).expect("it is there");
    let geometry = volume.geometry();
    let mut all =
        vec![0; usize::try_from(u64::from(geometry.leb_bytes) * u64::from(geometry.lebs)).expect("small")];
    let leb_bytes = usize::try_from(geometry.leb_bytes).expect("small");
    for (leb, out) in (0..).zip(all.chunks_mut(leb_bytes)) {
        volume.read(Leb(leb), 0, out).expect("it can be read");
    }
    let summary = ubi
        .volumes()
        .into_iter()
        .find(|volume| volume.id == id)
        .expect("it is there");
    all.truncate(usize::try_from(summary.data_bytes).expect("small"));
    all
}

fn expect_equal(ours: &Ubi, outcome: &Outcome, what: &str) {
    let numbers: Vec<String> = ours
        .volumes()
        .iter()
        .map(|volume| volume.id.0.to_string())
        .collect();
    match outcome.read_text("volumes.txt") {
        Ok(theirs) => {
            let mut theirs: Vec<&str> = theirs.lines().filter_map(|line| line.split(' ').next()).collect();
            theirs.sort_unstable();
            assert_eq!(theirs, numbers, "{what}: which volumes there are");
        }
        Err(_) => assert!(!numbers.is_empty(), "{what}: nothing to compare"),
    }
    for volume in ours.volumes() {
        let marked = outcome.read(format!("volume-{}.marked", volume.id.0)).is_ok();
        assert_eq!(
            marked, volume.record.update_marker,
            "{what}: {}: whether its update ended",
            volume.id
        );
        if marked {
            continue;
        }
        let theirs = outcome
            .read(format!("volume-{}.img", volume.id.0))
            .unwrap_or_else(|error| panic!("{what}: {error}\n{}", outcome.text()));
        let ours = content(ours, volume.id);
        assert_eq!(theirs.len(), ours.len(), "{what}: {}", volume.id);
        let leb_bytes = usize::try_from(volume.leb_bytes).expect("small");
        let pairs = ours.chunks(leb_bytes).zip(theirs.chunks(leb_bytes));
        for (leb, (ours, theirs)) in (0..).zip(pairs) {
            assert!(ours == theirs, "{what}: LEB {leb} of {} differs", volume.id);
        }
    }
}

fn linux_attaches(guest: &mut lab::Guest, chip: &Chip, bad_blocks: &str, what: &str) {
    let _ = attached_by_linux(guest, chip, bad_blocks, "", what);
}

/// Attaches the chip in Linux with these ubiattach options, and compares. Returns the content that Linux read.
fn attached_by_linux(
    guest: &mut lab::Guest,
    chip: &Chip,
    bad_blocks: &str,
    options: &str,
    what: &str,
) -> Outcome {
    let mut job = Job::ready_made("attach.sh")
        .expect("the script is there")
        .file("image.bin", image(chip))
        .variable("IMAGE", "image.bin")
        .variable("ATTACH", options)
        .variable("CHIP", CHIP);
    if !bad_blocks.is_empty() {
        job = job.variable("NANDSIM", format!("badblocks={bad_blocks}"));
    }
    let outcome = guest.run(&job).expect("the guest works");
    assert_eq!(outcome.ended, Ended::Code(0), "{what}:\n{}", outcome.text());
    let scanned = scan(Arc::clone(chip), AttachOptions::linux(Access::ReadOnly)).expect("attaches");
    expect_equal(&scanned.attach().expect("attaches"), &outcome, what);
    outcome
}

#[test]
fn linux_attaches_what_is_written_here() {
    let Some(mut guest) = lab::shared() else {
        return;
    };
    let clean = Arc::new(Mutex::new(chip()));
    let ubi = format(&clean);
    fill(&ubi, 1);
    ubi.settle().expect("nothing fails");
    linux_attaches(&mut guest, &clean, "", "clean");

    let with_bad_blocks = Arc::new(Mutex::new(chip()));
    for peb in [3, 100, 101, 511] {
        with_bad_blocks.mark_bad_for_test(Peb(peb));
    }
    fill(&format(&with_bad_blocks), 2);
    linux_attaches(
        &mut guest,
        &with_bad_blocks,
        "3,100,101,511",
        "bad blocks and lazy erases",
    );

    let all = [(1313, 70), (1001, 5), (700, 900), (1312, 2000)];
    let cuts = if testkit::is_full() { &all[..] } else { &all[..1] };
    for &(cut, point) in cuts {
        let chip = Arc::new(Mutex::new(chip()));
        let ubi = format(&chip);
        let supply = chip.lock().expect("no panic").supply().clone();
        supply.plan(PowerCut {
            time: CutTime::Write(supply.writes() + cut, CutPoint::Partway(point)),
            torn_is_uncorrectable: false,
        });
        let filled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fill(&ubi, cut)));
        assert!(
            filled.is_err() && supply.is_off(),
            "the cut at {cut} was not reached"
        );
        drop(ubi);
        supply.power_on();
        linux_attaches(&mut guest, &chip, "", &format!("power cut at write {cut}"));
    }
}

/// `Arc<Mutex<_>>` implements `Nand` with `&mut self`; tests share it.
trait MarkBad {
    fn mark_bad_for_test(&self, peb: Peb);
}

impl MarkBad for Chip {
    fn mark_bad_for_test(&self, peb: Peb) {
        self.lock()
            .expect("no panic")
            .mark_bad(peb)
            .expect("the block is there");
    }
}

/// A chip with these bytes.
fn chip_with(image: &[u8]) -> Chip {
    let chip = Arc::new(Mutex::new(chip()));
    let block = usize::try_from(chip.geometry().block_bytes()).expect("small");
    for (peb, data) in (0..BLOCKS).map(Peb).zip(image.chunks(block)) {
        let written = data
            .iter()
            .rposition(|byte| *byte != 0xFF)
            .map_or(0, |last| last + 1);
        let written = written.next_multiple_of(512);
        if written > 0 {
            let mut chip = chip.lock().expect("no panic");
            // Each header is a separate program, as the rules of the chip require for later programs.
            for (number, part) in (0..4).zip(data.chunks(512)) {
                if part.iter().any(|byte| *byte != 0xFF) {
                    chip.program(peb, number * 512, part).expect("erased");
                }
            }
            if written > 2048 {
                chip.program(peb, 2048, &data[2048..written]).expect("erased");
            }
        }
    }
    assert!(self::image(&chip) == image, "the chip holds other bytes");
    chip
}

const WRITE: &str = r#"
modprobe nandsim id_bytes=$CHIP || exit 2
modprobe ubi || exit 2
ubiformat -q -y /dev/mtd0 -e 5 || exit 3
ubiattach -m 0 >/dev/null || exit 3
ubimkvol /dev/ubi0 -N data -s 4MiB >/dev/null && ubimkvol /dev/ubi0 -N boot -t static -s 600KiB >/dev/null || exit 4
ubimkvol /dev/ubi0 -N aligned -s 1MiB -a 4096 >/dev/null && ubimkvol /dev/ubi0 -N gone -s 1MiB >/dev/null || exit 4
dd if=/dev/urandom of=/tmp/a bs=1k count=3000 2>/dev/null; dd if=/dev/urandom of=/tmp/b bs=1 count=300001 2>/dev/null
ubiupdatevol /dev/ubi0_0 /tmp/a && ubiupdatevol /dev/ubi0_1 /tmp/b && ubiupdatevol /dev/ubi0_3 /tmp/a -s 500000 || exit 5
ubiupdatevol /dev/ubi0_2 /tmp/b && ubiupdatevol /dev/ubi0_0 /tmp/b || exit 5
ubirename /dev/ubi0 data old boot data && ubirmvol /dev/ubi0 -N gone && ubirsvol /dev/ubi0 -N old -s 3MiB || exit 6
for number in 0 1 2; do cat /dev/ubi0_$number > /host/volume-$number.img || exit 7; done
dd if=/dev/mtd0 of=/host/flash.img bs=1M 2>/dev/null
"#;

#[test]
fn what_linux_wrote_is_attached_here() {
    if testkit::left_to_full("it takes a minute of a guest") {
        return;
    }
    let Some(mut guest) = lab::shared() else {
        return;
    };
    let job = Job::new(WRITE).variable("CHIP", CHIP);
    let outcome = guest.run(&job).expect("the guest works");
    assert_eq!(outcome.ended, Ended::Code(0), "{}", outcome.text());
    let image = outcome.read("flash.img").expect("the flash is there");
    let chip = chip_with(&image);
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let ubi = attach(&chip, access);
        let names: Vec<String> = ubi
            .volumes()
            .iter()
            .map(|volume| volume.record.name.to_string())
            .collect();
        assert_eq!(names, ["old", "data", "aligned"]);
        expect_equal(&ubi, &outcome, "written by Linux");
    }
    let ubi = attach(&chip, Access::ReadWrite);
    ubi.settle().expect("nothing fails");
    drop(ubi);
    linux_attaches(&mut guest, &chip, "", "written by Linux, changed here");
}

/// Linux creates and writes volumes until a power cut: first the table, then an update, then UBIFS.
const WRITE_UNTIL_CUT: &str = r#"
lab-chip && modprobe ubi && modprobe ubifs || exit 2
ubiformat -q -y /dev/mtd0 -e 5 && ubiattach -m 0 >/dev/null || exit 3
ubimkvol /dev/ubi0 -N data -s 20MiB >/dev/null && ubimkvol /dev/ubi0 -N boot -t static -s 600KiB >/dev/null || exit 4
head -c 300001 /dev/urandom >/tmp/boot && ubiupdatevol /dev/ubi0_1 /tmp/boot || exit 5
mkdir -p /mnt/cut && mount -t ubifs ubi0_0 /mnt/cut && cd /mnt/cut || exit 6
lab-load . $SEED 100000 --sync >/dev/null
"#;

/// Write at which power is cut, and the bytes of it that are done. Formatting takes 1024 writes, the first table 24,
/// a volume about 28, the static volume 250.
const CUTS: [(u32, u32); 3] = [(1115, 30), (1250, 700), (3000, 1100)];

#[test]
fn what_linux_left_when_the_power_went_is_what_linux_itself_attaches() {
    if testkit::left_to_full("it takes a minute of a guest") {
        return;
    }
    let lab = match Lab::with_flash() {
        Ok(lab) => lab,
        Err(why) => return testkit::report_left_out(why),
    };
    let mut cuts = CUTS[1..2].to_vec();
    if testkit::is_full() {
        cuts = CUTS.to_vec();
        let torn = [0, 30, 64, 2047, 700, 1024];
        cuts.extend(
            (0..17)
                .zip(torn.into_iter().cycle())
                .map(|(step, torn)| (1060 + 217 * step, torn)),
        );
    }
    let bytes = u64::from(BLOCKS) * 131_072;
    let path = std::env::temp_dir().join(format!("tidegate-ubi-cuts-{}", std::process::id()));
    let flash = RemovedAtEnd(FlashFile::erased(&path, bytes).expect("there is room for a chip"));
    for (cut, torn_bytes) in cuts {
        let what = format!("Linux cut at operation {cut} after {torn_bytes} bytes");
        flash.0.load(&[]).expect("it fits");
        let options = lab::Options {
            flash: vec![flash.0.clone()],
            ..lab::Options::default()
        };
        let mut writer = lab.boot(&options).unwrap_or_else(|error| panic!("{error}"));
        let job = Job::new(WRITE_UNTIL_CUT)
            .variable("FLASH", format!("cut_at={cut} torn={torn_bytes}"))
            .variable("SEED", cut.to_string());
        let written = writer.run(&job).expect("the guest works");
        assert_eq!(written.ended, Ended::GuestEnded, "{what}:\n{}", written.text());
        drop(writer);
        let image = std::fs::read(&path).expect("the chip is a file");
        let chip = chip_with(&image[..usize::try_from(bytes).expect("small")]);
        let Some(mut judge) = lab::shared() else { return };
        let outcome = attached_by_linux(&mut judge, &chip, "", "-O 2048", &what);
        // Again after the repair of the traces of the cut.
        let ubi = attach(&chip, Access::ReadWrite);
        ubi.settle().expect("nothing fails");
        expect_equal(&ubi, &outcome, &format!("{what}, repaired"));
    }
}

/// Removes the chip's file at the end of the test, even if it fails.
struct RemovedAtEnd(FlashFile);

impl Drop for RemovedAtEnd {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.path());
    }
}
