//! Interoperability with a Linux that has fastmaps, in the lab guest: an attach here by a fastmap of Linux gives the
//! same result as a full scan, and Linux attaches by a fastmap written here. Debian's UBI lacks fastmaps, so this
//! needs `lab/setup.sh --fastmap`.

use std::sync::{Arc, Mutex};

use crate::linux_fastmap::write_fastmap;
use media::{Leb, Nand, NandGeometry, Peb, RamNand, index};
use testkit::lab::{self, Ended, Guest, Job, Outcome};
use testkit::prng::Prng;
use ubi::format::VolumeKind;
use ubi::format::volume_table::VolumeName;
use ubi::{
    Access, AttachOptions, AttachedBy, FastmapUse, FormatOptions, Layout, NewVolume, SizeInLebs, Ubi, Volume,
    VolumeId, scan,
};

type Chip = Arc<Mutex<RamNand>>;

/// 64 MiB, 2 KiB pages, 512-byte sub-pages, 128 KiB blocks.
const CHIP: &str = "0x20,0xa2,0x00,0x15";
const BLOCKS: u32 = 512;
const BLOCK_BYTES: usize = 128 << 10;

/// Exit code of the scripts if the guest lacks the module.
const NO_MODULE: i32 = 77;

/// A clean image, and one as after a power cut: the fastmap, and blocks of its pools that were written later.
const WRITE: &str = r#"
module=/lib/modules/$(uname -r)/ubi-with-fastmap
[ -e $module ] || exit 77
modprobe ubi && rmmod ubi && insmod $module fm_autoconvert=1 fm_debug=1 || exit 2
modprobe nandsim id_bytes=$CHIP || exit 2
ubiformat -q -y /dev/mtd0 -e 5 && ubiattach -m 0 >/dev/null || exit 3
ubimkvol /dev/ubi0 -N data -s 4MiB >/dev/null && ubimkvol /dev/ubi0 -N boot -t static -s 600KiB >/dev/null || exit 4
head -c 3000000 /dev/urandom >/tmp/a && head -c 300001 /dev/urandom >/tmp/b
ubiupdatevol /dev/ubi0_0 /tmp/a && ubiupdatevol /dev/ubi0_1 /tmp/b || exit 5
ubidetach -m 0 && dd if=/dev/mtd0 of=/host/clean.img bs=128k 2>/dev/null || exit 6
dmesg -c >/dev/null
ubiattach -m 0 >/dev/null || exit 7
dmesg | grep "attached by fastmap" || exit 8
for number in 0 1; do cat /dev/ubi0_$number >/host/clean-$number.img || exit 9; done
ubiupdatevol /dev/ubi0_0 /tmp/b || exit 10
for number in 0 1; do cat /dev/ubi0_$number >/host/cut-$number.img || exit 9; done
sync; dd if=/dev/mtd0 of=/host/cut.img bs=128k 2>/dev/null
"#;

const ATTACH: &str = r#"
module=/lib/modules/$(uname -r)/ubi-with-fastmap
[ -e $module ] || exit 77
modprobe ubi && rmmod ubi && insmod $module fm_debug=1 || exit 2
lab-chip || exit 2
dmesg -c >/dev/null
ubiattach -m 0 >/dev/null 2>/host/why
dmesg >/host/attach.log
cat /host/attach.log
[ -e /dev/ubi0_0 ] || exit 3
for number in 0 1; do cat /dev/ubi0_$number >/host/volume-$number.img || exit 4; done
"#;

fn geometry() -> NandGeometry {
    NandGeometry::new(2048, 64, BLOCKS)
        .and_then(|geometry| geometry.with_subpage(512))
        .expect("a geometry")
}

fn chip_with(image: &[u8]) -> Chip {
    let mut chip = RamNand::new("chip", geometry());
    for (peb, data) in (0..BLOCKS).map(Peb).zip(image.chunks(BLOCK_BYTES)) {
        // Each header is a separate program, as the rules of the chip require for later programs.
        let (first_page, rest) = data.split_at(2048);
        for (number, part) in (0..4).zip(first_page.chunks(512)) {
            if part.iter().any(|byte| *byte != 0xFF) {
                chip.program(peb, number * 512, part).expect("erased");
            }
        }
        let written = rest
            .iter()
            .rposition(|byte| *byte != 0xFF)
            .map_or(0, |last| last + 1);
        if written > 0 {
            let written = written.next_multiple_of(512);
            chip.program(peb, 2048, &rest[..written]).expect("erased");
        }
    }
    Arc::new(Mutex::new(chip))
}

fn image(chip: &Chip) -> Vec<u8> {
    let mut image = vec![0; BLOCK_BYTES * index(BLOCKS)];
    let mut chip = chip.lock().expect("no panic");
    for (peb, out) in (0..BLOCKS).map(Peb).zip(image.chunks_mut(BLOCK_BYTES)) {
        let _ = chip.read(peb, 0, out).expect("in range");
    }
    image
}

fn attach(chip: &Chip, fastmap: FastmapUse, by: &AttachedBy) -> Ubi {
    let options = AttachOptions {
        fastmap,
        ..AttachOptions::linux(Access::ReadWrite)
    };
    let scanned = scan(Arc::clone(chip), options).expect("attaches");
    assert_eq!(scanned.attached_by(), by);
    scanned.attach().expect("attaches")
}

/// Attaches two copies of the chip, one by its fastmap and one by a full scan.
fn both_ways(chip: &Chip) -> [Ubi; 2] {
    let copy = || Arc::new(Mutex::new(chip.lock().expect("no panic").clone()));
    [
        attach(&copy(), FastmapUse::IfValid, &AttachedBy::Fastmap),
        attach(&copy(), FastmapUse::Never, &AttachedBy::Scan),
    ]
}

fn content(ubi: &Ubi, volume: VolumeId) -> Vec<u8> {
    let summary = ubi
        .volumes()
        .into_iter()
        .find(|one| one.id == volume)
        .expect("it is there");
    let opened = ubi.open(volume).expect("whole");
    let mut all = Vec::new();
    for leb in (0..opened.geometry().lebs).map(Leb) {
        let mut data = vec![0; index(summary.leb_bytes)];
        opened.read(leb, 0, &mut data).expect("it can be read");
        all.extend(data);
    }
    all.truncate(usize::try_from(summary.data_bytes).expect("small"));
    all
}

fn expect_equal(ubi: &Ubi, outcome: &Outcome, name: &str) {
    for volume in [VolumeId(0), VolumeId(1)] {
        let theirs = outcome
            .read(format!("{name}-{}.img", volume.0))
            .expect("the volume is there");
        assert!(content(ubi, volume) == theirs, "{name}: {volume} differs");
    }
}

fn run(guest: &mut Guest, job: &Job) -> Option<Outcome> {
    let outcome = guest.run(job).expect("the guest works");
    if outcome.ended == Ended::Code(NO_MODULE) {
        skipped();
        return None;
    }
    assert_eq!(outcome.ended, Ended::Code(0), "{}", outcome.text());
    Some(outcome)
}

fn skipped() {
    testkit::report_left_out("the guest's UBI has no fastmaps; `lab/setup.sh --fastmap` makes one that has");
}

#[test]
fn fastmaps_are_understood_in_both_directions() {
    if testkit::left_to_full("it takes a minute of a guest") {
        return;
    }
    let Some(mut guest) = lab::shared() else { return };
    let Some(written) = run(&mut guest, &Job::new(WRITE).variable("CHIP", CHIP)) else {
        return;
    };
    for name in ["clean", "cut"] {
        let chip = chip_with(&written.read(format!("{name}.img")).expect("the flash is there"));
        let [by_map, by_scan] = both_ways(&chip);
        expect_equal(&by_map, &written, name);
        for volume in [VolumeId(0), VolumeId(1)] {
            assert_eq!(
                by_map.mapping(volume),
                by_scan.mapping(volume),
                "{name}: {volume}"
            );
        }
        attach_after_change(&chip);
    }

    let made = made_here();
    let [by_map, _] = both_ways(&made);
    let job = Job::new(ATTACH)
        .file("image.bin", image(&made))
        .variable("IMAGE", "image.bin")
        .variable("CHIP", CHIP);
    let Some(attached) = run(&mut guest, &job) else {
        return;
    };
    let log = attached.read_text("attach.log").expect("the kernel's log");
    assert!(log.contains("attached by fastmap"), "{log}");
    expect_equal(&by_map, &attached, "volume");
}

/// A write makes a fastmap stale, so it is erased: the next attach is a full scan and finds the change.
fn attach_after_change(chip: &Chip) {
    let ubi = attach(chip, FastmapUse::IfValid, &AttachedBy::Fastmap);
    let data = ubi.open(VolumeId(0)).expect("whole");
    data.leb_change(Leb(3), &[0xEE; 2048]).expect("room for it");
    drop((data, ubi));
    let ubi = attach(chip, FastmapUse::IfValid, &AttachedBy::Scan);
    assert_eq!(content(&ubi, VolumeId(0))[3 * 129_024..][..2048], [0xEE; 2048]);
}

/// Two volumes, and a fastmap encoded by `ubi::format::fastmap`.
fn made_here() -> Chip {
    let chip = Arc::new(Mutex::new(RamNand::new("chip", geometry())));
    let options = FormatOptions {
        layout: Layout::usual(&geometry()).expect("a layout"),
        image_sequence: 0x77,
        erase_counter: Some(2),
    };
    let ubi = Ubi::format(Arc::clone(&chip), options, &mut |_| {}).expect("formatted");
    let mut prng = Prng::named(3, "a fastmap for Linux");
    for (name, kind, lebs) in [("data", VolumeKind::Dynamic, 40), ("boot", VolumeKind::Static, 5)] {
        let new = NewVolume {
            id: None,
            name: VolumeName::new(name.as_bytes()).expect("a name"),
            kind,
            size: SizeInLebs::Exactly(lebs),
            alignment: 1,
            autoresize: false,
            skip_check: false,
        };
        let id = ubi.make_volume(new).expect("room for it");
        if kind == VolumeKind::Static {
            let mut update = ubi.update(id, 300_001).expect("it fits");
            update
                .write(&prng.bytes(300_001))
                .and_then(|()| update.finish())
                .expect("it fits");
            continue;
        }
        let volume = ubi.open(id).expect("it is there");
        for leb in (0..30).map(Leb) {
            volume.leb_change(leb, &prng.bytes(4096)).expect("room for it");
        }
    }
    ubi.settle().expect("nothing fails");
    drop(ubi);
    let volumes = [(0, VolumeKind::Dynamic, 40), (1, VolumeKind::Static, 5)];
    let map = write_fastmap(&mut chip.lock().expect("no panic"), &volumes);
    assert!(map.blocks[0].peb < 64, "the anchor is among the first blocks");
    chip
}
