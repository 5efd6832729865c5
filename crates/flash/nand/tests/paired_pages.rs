//! Paired pages: a power cut during the program of the upper page destroys the lower one, and no other.

use media::{Nand, NandError, NandGeometry, Page, Peb, index};
use nand::{ChipModel, CutPoint, FaultModel, FileNand, ImageKind, Pairing, SimNand};

const PAGE: u32 = 512;

fn model(pairing: Pairing) -> ChipModel {
    let geometry = NandGeometry::new(PAGE, 16, 4).expect("a geometry");
    ChipModel::new(geometry)
        .with_pairing(pairing)
        .expect("16 pages make pairs")
}

fn tag(page: u32) -> Vec<u8> {
    vec![u8::try_from(page).expect("few") + 1; index(PAGE)]
}

/// Programs pages 0 to `last`, with a power cut in the middle of the last.
fn cut_in<C: nand::Cells>(chip: &mut SimNand<C>, last: u32) {
    for page in 0..last {
        chip.program(Peb(1), page * PAGE, &tag(page))
            .expect("power is on");
    }
    let supply = chip.supply().clone();
    supply.cut_at_write(supply.writes(), CutPoint::Partway(200));
    let cut = chip.program(Peb(1), last * PAGE, &tag(last));
    assert!(cut.is_err_and(|error| error.is_power_cut()));
    supply.power_on();
}

/// The pages below `end` whose content is lost; checks that each of them is reported as uncorrectable.
fn lost<C: nand::Cells>(chip: &mut SimNand<C>, end: u32) -> Vec<u32> {
    let mut lost = Vec::new();
    for page in 0..end {
        let mut out = vec![0; index(PAGE)];
        let report = chip.read(Peb(1), page * PAGE, &mut out).expect("power is on");
        let right = out == tag(page);
        assert_eq!(report.is_correct(), right, "page {page}");
        if !right {
            assert_eq!(report.uncorrectable, [Page(page)]);
            lost.push(page);
        }
    }
    lost
}

#[test]
fn a_cut_in_an_upper_page_takes_the_lower_page_of_its_cells_and_no_other() {
    for (cut, expected) in [
        (0, None),
        (1, None),
        (2, Some(0)),
        (3, None),
        (4, Some(1)),
        (14, Some(11)),
        (15, Some(13)),
    ] {
        let mut chip = SimNand::new("mlc", model(Pairing::Mlc), FaultModel::none());
        cut_in(&mut chip, cut);
        assert_eq!(
            lost(&mut chip, cut),
            Vec::from_iter(expected),
            "cut in page {cut}"
        );
        let mut chip = SimNand::new("slc", model(Pairing::None), FaultModel::none());
        cut_in(&mut chip, cut);
        assert_eq!(lost(&mut chip, cut), [0; 0], "without pairs, cut in page {cut}");
    }
}

#[test]
fn a_program_that_ends_or_never_begins_takes_nothing() {
    for point in [
        CutPoint::Before,
        CutPoint::Partway(0),
        CutPoint::Partway(PAGE),
        CutPoint::After,
    ] {
        let mut chip = SimNand::new("mlc", model(Pairing::Mlc), FaultModel::none());
        for page in 0..4 {
            chip.program(Peb(1), page * PAGE, &tag(page)).unwrap();
        }
        let supply = chip.supply().clone();
        supply.cut_at_write(supply.writes(), point);
        chip.program(Peb(1), 4 * PAGE, &tag(4)).expect_err("power goes");
        supply.power_on();
        assert_eq!(lost(&mut chip, 4), [0; 0], "{point:?}");
    }
}

#[test]
fn what_was_lost_stays_lost_in_a_file_until_the_block_is_erased() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("chip");
    let mut chip = FileNand::create(
        &path,
        model(Pairing::Mlc),
        FaultModel::none(),
        ImageKind::Data,
        |_| {},
    )
    .unwrap();
    cut_in(&mut chip, 6);
    drop(chip);
    let mut chip = FileNand::open(&path, nand::Access::ReadWrite, None).unwrap();
    assert_eq!(chip.model().pairing, Pairing::Mlc);
    assert_eq!(lost(&mut chip, 6), [3]);
    chip.erase(Peb(1)).unwrap();
    for page in 0..6 {
        chip.program(Peb(1), page * PAGE, &tag(page)).unwrap();
    }
    assert_eq!(lost(&mut chip, 6), [0; 0]);
}

#[test]
fn a_block_that_was_told_to_fails_each_time_also_after_it_was_opened_again() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("chip");
    let mut chip = FileNand::create(
        &path,
        model(Pairing::None),
        FaultModel::none(),
        ImageKind::Data,
        |_| {},
    )
    .unwrap();
    let failing = nand::Failing {
        program_at: Some(Page(1)),
        erases: true,
    };
    chip.set_failing(Peb(1), failing).unwrap();
    drop(chip);
    let mut chip = FileNand::open(&path, nand::Access::ReadWrite, None).unwrap();
    for _ in 0..2 {
        assert!(matches!(chip.erase(Peb(1)), Err(NandError::EraseFailed { .. })));
    }
    chip.set_failing(
        Peb(1),
        nand::Failing {
            erases: false,
            ..failing
        },
    )
    .unwrap();
    for _ in 0..2 {
        chip.erase(Peb(1)).unwrap();
        chip.program(Peb(1), 0, &tag(0)).unwrap();
        let failed = chip.program(Peb(1), PAGE, &tag(1));
        assert!(matches!(
            failed,
            Err(NandError::ProgramFailed { page: Page(1), .. })
        ));
    }
    chip.program(Peb(2), 0, &tag(0)).expect("another block");
    chip.set_failing(Peb(1), nand::Failing::default()).unwrap();
    chip.erase(Peb(1)).unwrap();
    chip.program(Peb(1), 0, &[tag(0), tag(1)].concat())
        .expect("mended");
}
