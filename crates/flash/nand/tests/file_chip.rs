//! Chips in files: persistence, refusals, and precedence when image and side-car disagree.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use media::{Nand, NandGeometry, Nanos, Page, Peb};
use nand::{
    Access, ChipModel, FaultModel, FileError, FileNand, ImageKind, PlainImage, Preset, RawNand, SimNand,
    sidecar_path,
};
use tempfile::TempDir;

const PAGE: usize = 512;
const OOB: usize = 16;

fn model() -> ChipModel {
    let geometry = NandGeometry::new(512, 8, 8)
        .and_then(|geometry| geometry.with_subpage(128))
        .expect("a geometry");
    ChipModel::new(geometry)
}

/// A folder, and the path for a new chip.
fn place() -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("chip.img");
    (folder, path)
}

fn create(path: &Path, kind: ImageKind) -> FileNand {
    FileNand::create(path, model(), FaultModel::none(), kind, |_| {}).expect("a new chip")
}

fn open(path: &Path) -> FileNand {
    FileNand::open(path, Access::ReadWrite, None).expect("the chip opens")
}

const fn plain(kind: ImageKind, model: ChipModel) -> Option<PlainImage> {
    Some(PlainImage { model, kind })
}

fn read(chip: &mut FileNand, peb: u32, offset: u32, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    assert!(
        chip.read(Peb(peb), offset, &mut out)
            .expect("a read")
            .is_correct()
    );
    out
}

#[test]
fn chips_in_files_keep_the_contract_with_and_without_oob() {
    for kind in [ImageKind::Data, ImageKind::DataAndOob] {
        let folder = TempDir::new().unwrap();
        let mut number = 0;
        media::contract::run_all(|| {
            number += 1;
            create(&folder.path().join(number.to_string()), kind)
        });
    }
}

#[test]
fn everything_survives_the_process() {
    let (_folder, path) = place();
    let faults = FaultModel {
        factory_bad_blocks: 2,
        time_per_bit_flip: Nanos::from_millis(3000),
        ..FaultModel::seeded(3)
    };
    let model = Preset::Tlc.model().with_size(4 << 20).unwrap();
    let mut chip = FileNand::create(&path, model, faults, ImageKind::Data, |_| {}).unwrap();
    let good = (0..8).map(Peb).find(|peb| !chip.is_bad(*peb).unwrap()).unwrap();
    chip.erase(good).unwrap();
    chip.program(good, 0, &[7; 8192]).unwrap();
    let _ = chip.read(good, 0, &mut [0; 4096]).unwrap();
    chip.sync().unwrap();
    let (blocks, now) = (chip.blocks().to_vec(), chip.clock().now());
    drop(chip);
    let mut chip = open(&path);
    assert_eq!((chip.model(), chip.faults()), (&model, &faults));
    assert_eq!((chip.blocks(), chip.clock().now()), (&blocks[..], now));
    assert_eq!(read(&mut chip, good.0, 0, 8192), [7; 8192]);
    chip.program(good, 8192, &[8; 4096]).unwrap();
    chip.program(good, 0, &[8; 4096])
        .expect_err("programmed in another life");
}

#[test]
fn the_image_is_what_a_dump_of_the_chip_would_be() {
    let (_folder, path) = place();
    let mut chip = create(&path, ImageKind::Data);
    chip.program(Peb(1), 512, &[9; PAGE]).unwrap();
    let mut expected = vec![0xFF; 8 * 8 * PAGE];
    expected[9 * PAGE..10 * PAGE].fill(9);
    assert!(fs::read(&path).unwrap() == expected);

    let (_folder, path) = place();
    let mut chip = create(&path, ImageKind::DataAndOob);
    chip.program(Peb(1), 512, &[9; PAGE]).unwrap();
    chip.mark_bad(Peb(2)).unwrap();
    let mut expected = vec![0xFF; 8 * 8 * (PAGE + OOB)];
    expected[9 * (PAGE + OOB)..][..PAGE].fill(9);
    // 256 equal bytes: every byte parity is even, and so is every bit parity.
    assert_eq!(
        fs::read(&path).unwrap()[9 * (PAGE + OOB) + PAGE..][..3],
        [0xFF; 3]
    );
    expected[16 * (PAGE + OOB) + PAGE] = 0;
    assert!(fs::read(&path).unwrap() == expected);
    let mut oob = [0; OOB];
    chip.read_oob(Peb(2), Page(0), &mut oob).unwrap();
    assert_eq!((oob[0], oob[1]), (0, 0xFF), "the bad-block mark");
}

#[test]
fn oob_areas_are_the_same_whether_they_are_stored_or_made_up() {
    let (_folder, path) = place();
    let mut stored = create(&path, ImageKind::DataAndOob);
    let mut computed = SimNand::new("memory", model(), FaultModel::none());
    let data = testkit::prng::Prng::named(1, "oob").bytes(4 * PAGE);
    let chips: [&mut dyn RawNand; 2] = [&mut stored, &mut computed];
    let areas = chips.map(|chip| {
        // Two whole pages, and the first half of a third.
        chip.program(Peb(1), 0, &data[..512]).unwrap();
        chip.program(Peb(1), 512, &data[512..1024]).unwrap();
        chip.program(Peb(1), 1024, &data[1024..1280]).unwrap();
        chip.mark_bad(Peb(2)).unwrap();
        [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1)].map(|(peb, page)| {
            let mut oob = [0; OOB];
            chip.read_oob(Peb(peb), Page(page), &mut oob).unwrap();
            oob
        })
    });
    assert_eq!(areas[0], areas[1]);
    assert_eq!(areas[0][4][0], 0, "the bad-block mark");
}

#[test]
fn a_plain_dump_opens_when_told_what_it_is_of_and_gets_a_side_car_when_written() {
    for (kind, page) in [(ImageKind::Data, PAGE), (ImageKind::DataAndOob, PAGE + OOB)] {
        let (_folder, path) = place();
        let mut dump = vec![0xFF; 6 * 8 * page];
        dump[8 * page..][..130].fill(5);
        let is_marked = kind == ImageKind::DataAndOob;
        if is_marked {
            dump[24 * page + PAGE] = 0;
        }
        fs::write(&path, &dump).unwrap();
        let error = FileNand::open(&path, Access::ReadWrite, None).unwrap_err();
        assert!(matches!(error, FileError::UnknownChip { .. }), "{error}");

        let mut chip = FileNand::open(&path, Access::ReadOnly, plain(kind, model())).unwrap();
        assert_eq!(chip.geometry().blocks(), 6);
        assert_eq!(read(&mut chip, 1, 0, 131)[129..], [5, 0xFF]);
        drop(chip);
        assert!(!sidecar_path(&path).exists(), "reading leaves nothing behind");

        drop(FileNand::open(&path, Access::ReadWrite, plain(kind, model())).unwrap());
        let mut chip = open(&path);
        assert_eq!(chip.block(Peb(1)).unwrap().programmed_bytes, 256);
        assert_eq!(chip.is_bad(Peb(3)).unwrap(), is_marked);
        assert!(fs::read(&path).unwrap() == dump, "opening changes no byte");
    }
}

#[test]
fn a_chip_is_written_by_one_process_and_read_by_many_while_none_writes() {
    let (_folder, path) = place();
    let writer = create(&path, ImageKind::Data);
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let error = FileNand::open(&path, access, None).unwrap_err();
        assert!(matches!(error, FileError::Locked { .. }), "{error}");
    }
    drop(writer);
    let _first = FileNand::open(&path, Access::ReadOnly, None).unwrap();
    let _second = FileNand::open(&path, Access::ReadOnly, None).unwrap();
    let error = FileNand::open(&path, Access::ReadWrite, None).unwrap_err();
    assert!(matches!(error, FileError::Locked { .. }), "{error}");
}

#[test]
fn a_chip_that_is_replaced_while_its_lock_is_waited_for_is_not_the_one_that_opens() {
    let (_folder, path) = place();
    let other = path.with_extension("other");
    drop(create(&other, ImageKind::Data));
    let writer = create(&path, ImageKind::Data);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            fs::rename(&other, &path).expect("renamed");
            fs::rename(sidecar_path(&other), sidecar_path(&path)).expect("renamed");
            drop(writer);
        });
        let mut chip = open(&path);
        chip.program(Peb(0), 0, &[7; PAGE]).expect("it is erased");
    });
    assert_eq!(fs::read(&path).expect("an image")[..PAGE], [7; PAGE]);
}

#[test]
fn an_image_that_changed_behind_its_side_car_wins() {
    let (_folder, path) = place();
    let mut chip = create(&path, ImageKind::Data);
    chip.program(Peb(0), 0, &[1; PAGE]).unwrap();
    drop(chip);
    let image = fs::File::options().write(true).open(&path).unwrap();
    image.write_all_at(&[2; 100], 5 * 8 * 512 + 1024).unwrap();
    drop(image);
    let mut chip = open(&path);
    assert_eq!(chip.block(Peb(5)).unwrap().programmed_bytes, 1024 + 128);
    chip.program(Peb(5), 1024, &[3; PAGE])
        .expect_err("something is there");
    assert_eq!(chip.block(Peb(0)).unwrap().programs, 1, "counters stay");
}

#[test]
fn a_process_that_ends_inside_an_operation_leaves_what_a_power_cut_leaves() {
    // The record is written before the bytes. This makes a record of a program whose bytes were never written:
    let (_folder, path) = place();
    let mut chip = create(&path, ImageKind::Data);
    chip.program(Peb(0), 0, &[1; PAGE]).unwrap();
    drop(chip);
    let image = fs::File::options().write(true).open(&path).unwrap();
    image.write_all_at(&[0xFF; PAGE], 0).unwrap();
    drop(image);
    let mut chip = open(&path);
    chip.program(Peb(0), 0, &[1; PAGE])
        .expect_err("it was begun, whatever it looks like");
    chip.program(Peb(0), 512, &[1; PAGE]).unwrap();
}

#[test]
fn torn_records_are_found_again_from_the_image() {
    let (_folder, path) = place();
    let mut chip = create(&path, ImageKind::Data);
    chip.program(Peb(3), 0, &[1; PAGE]).unwrap();
    chip.erase(Peb(2)).unwrap();
    drop(chip);
    let sidecar = fs::File::options().write(true).open(sidecar_path(&path)).unwrap();
    sidecar.write_all_at(&[0x55; 7], 1024 + 3 * 64 + 20).unwrap();
    drop(sidecar);
    let chip = open(&path);
    assert_eq!(chip.block(Peb(3)).unwrap().programmed_bytes, 512);
    assert_eq!(chip.block(Peb(2)).unwrap().erases, 1);
}

#[test]
fn each_refusal_names_the_file_and_the_next_step() {
    let (_folder, path) = place();
    let refusal = |plain| {
        FileNand::open(&path, Access::ReadWrite, plain)
            .unwrap_err()
            .to_string()
    };
    assert!(refusal(None).contains("opening the image failed"));
    fs::write(&path, vec![0xFF; 5000]).unwrap();
    assert!(refusal(None).contains("--preset"));
    let text = refusal(plain(ImageKind::Data, model()));
    assert!(
        text.contains("5000 bytes are no whole number of blocks of 4096 bytes"),
        "{text}"
    );
    fs::remove_file(&path).unwrap();
    drop(create(&path, ImageKind::Data));
    let other = NandGeometry::new(1024, 8, 4).unwrap();
    let text = refusal(plain(ImageKind::Data, ChipModel::new(other)));
    assert!(text.contains("another chip"), "{text}");
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(4096)
        .unwrap();
    let text = refusal(None);
    assert!(
        text.contains("has 4096 bytes, the chip by its side-car 32768"),
        "{text}"
    );
    fs::write(sidecar_path(&path), "no side-car, but long enough".repeat(40)).unwrap();
    let text = refusal(None);
    assert!(
        text.contains("chip.img.nand: it does not begin with \"TIDENAND\""),
        "{text}"
    );
    let again = FileNand::create(&path, model(), FaultModel::none(), ImageKind::Data, |_| {});
    assert!(matches!(again.unwrap_err(), FileError::Exists { .. }));
}

#[test]
fn a_damaged_image_or_side_car_never_panics() {
    let (_folder, path) = place();
    let mut chip = create(&path, ImageKind::DataAndOob);
    chip.program(Peb(1), 0, &[1; 4 * PAGE]).unwrap();
    drop(chip);
    let (image, sidecar) = (fs::read(&path).unwrap(), fs::read(sidecar_path(&path)).unwrap());
    let mut prng = testkit::prng::Prng::named(1, "damage");
    for _ in 0..300 {
        let mut damaged = sidecar.clone();
        for _ in 0..=prng.below(4) {
            let at = prng.below_usize(damaged.len());
            damaged[at] = prng.next_u64().to_le_bytes()[0];
        }
        damaged.truncate(prng.below_usize(2 * damaged.len()));
        let shorter = prng.below_usize(2 * image.len()).min(image.len());
        fs::write(&path, &image[..shorter]).unwrap();
        fs::write(sidecar_path(&path), &damaged).unwrap();
        if let Ok(mut chip) = FileNand::open(&path, Access::ReadWrite, None) {
            for peb in chip.geometry().pebs().take(20) {
                let _ = chip.read(peb, 0, &mut [0; PAGE]);
                let _ = chip.erase(peb);
            }
        }
    }
}

#[test]
fn the_same_operations_make_the_same_chip_in_memory_and_in_a_file() {
    let (_folder, path) = place();
    let faults = FaultModel {
        factory_bad_blocks: 1,
        program_failures_ppm: 30_000,
        reads_per_bit_flip: 30,
        ..FaultModel::seeded(8)
    };
    let mut file = FileNand::create(&path, model(), faults, ImageKind::Data, |_| {}).unwrap();
    let mut memory = SimNand::new("memory", model(), faults);
    let mut prng = testkit::prng::Prng::named(2, "operations");
    for _ in 0..500 {
        let peb = Peb(u32::try_from(prng.below(8)).unwrap());
        if prng.chance(30) {
            assert_eq!(file.erase(peb).is_ok(), memory.erase(peb).is_ok());
        }
        let (offset, data) = (u32::try_from(prng.below(8)).unwrap() * 512, prng.bytes(1024));
        let programmed = memory.program(peb, offset, &data).is_ok();
        assert_eq!(file.program(peb, offset, &data).is_ok(), programmed);
        let (mut one, mut other) = ([0; 3000], [0; 3000]);
        let reports = (
            file.read(peb, 7, &mut one).unwrap(),
            memory.read(peb, 7, &mut other).unwrap(),
        );
        assert_eq!(reports.0, reports.1);
        assert!(one == other);
    }
    assert_eq!(file.blocks(), memory.blocks());
    assert!(memory.statistics().program_failures > 0);
}
