//! The contract suite: tests that every [`Nand`] must pass, whatever its implementation.
//!
//! [`run_all`] gives each case a fresh, erased device of at least 4 blocks of at least 4 pages, and a thread named
//! after the case, so that a panic names the broken guarantee. It does not test faults, whose injection depends on
//! the device.

use crate::{Nand, NandError, Page, Peb, index};

type Case<N> = (&'static str, fn(&mut N));

/// Runs every case on a fresh device from `make`: erased, with at least one good block.
pub fn run_all<N: Nand>(mut make: impl FnMut() -> N) {
    for (name, case) in cases::<N>() {
        let mut device = make();
        std::thread::scope(|scope| {
            let running = std::thread::Builder::new()
                .name(name.into())
                .spawn_scoped(scope, || case(&mut device))
                .expect("a thread for the case");
            assert!(
                running.join().is_ok(),
                "the contract is broken: {}",
                name.replace('_', " ")
            );
        });
    }
}

macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        fn cases<N: Nand>() -> Vec<Case<N>> {
            vec![$((stringify!($case), $case::<N>)),*]
        }
    };
}

cases![
    an_erased_block_is_all_ones,
    what_was_programmed_is_read_at_any_offset_and_length,
    a_program_may_cover_several_pages,
    sub_pages_are_programmed_one_after_the_other,
    a_page_is_not_programmed_twice,
    pages_are_programmed_upwards,
    skipped_pages_stay_erased_and_stay_skipped,
    an_erase_makes_a_block_programmable_again,
    blocks_do_not_touch_each_other,
    what_leaves_the_device_is_refused_and_changes_nothing,
    a_misaligned_program_is_refused_and_changes_nothing,
    a_bad_block_takes_neither_programs_nor_erases,
    marking_bad_twice_is_no_error,
    the_clock_never_goes_back_and_is_one_clock,
    an_empty_read_is_no_error,
    sync_keeps_everything,
];

/// Bytes that differ from page to page and are never all 0xFF.
fn pattern(tag: u8, len: u32) -> Vec<u8> {
    (0..len)
        .map(|at| u8::try_from(at.wrapping_mul(31) >> 3 & 0x7F).unwrap_or(0) ^ tag)
        .collect()
}

fn usable<N: Nand>(device: &mut N, count: usize) -> Vec<Peb> {
    let pebs: Vec<Peb> = device
        .geometry()
        .pebs()
        .filter(|peb| !device.is_bad(*peb).expect("is_bad answers"))
        .take(count)
        .collect();
    assert_eq!(
        pebs.len(),
        count,
        "the suite needs a device with {count} good blocks"
    );
    pebs
}

fn read<N: Nand>(device: &mut N, peb: Peb, offset: u32, len: u32) -> Vec<u8> {
    let mut out = vec![0xA5; usize::try_from(len).expect("a size in memory")];
    let report = device.read(peb, offset, &mut out).expect("the read works");
    assert!(report.is_correct(), "{report:?}");
    out
}

fn an_erased_block_is_all_ones<N: Nand>(device: &mut N) {
    let bytes = device.geometry().block_bytes();
    for peb in usable(device, 2) {
        assert!(read(device, peb, 0, bytes).iter().all(|byte| *byte == 0xFF));
    }
}

fn what_was_programmed_is_read_at_any_offset_and_length<N: Nand>(device: &mut N) {
    let (peb, page) = (usable(device, 1)[0], device.geometry().page_bytes());
    let data = pattern(3, 2 * page);
    device.program(peb, 0, &data).expect("program");
    for (offset, len) in [
        (0, 2 * page),
        (1, 7),
        (page - 3, 6),
        (page, page),
        (2 * page - 1, 1),
    ] {
        let expected = &data[index(offset)..index(offset + len)];
        assert_eq!(
            read(device, peb, offset, len),
            expected,
            "{len} bytes at {offset}"
        );
    }
}

fn a_program_may_cover_several_pages<N: Nand>(device: &mut N) {
    let (peb, page) = (usable(device, 1)[0], device.geometry().page_bytes());
    let (first, rest) = (pattern(1, page), pattern(2, 3 * page));
    device.program(peb, 0, &first).expect("the first page");
    device.program(peb, page, &rest).expect("three more");
    assert_eq!(read(device, peb, 0, 4 * page), [first, rest].concat());
}

fn sub_pages_are_programmed_one_after_the_other<N: Nand>(device: &mut N) {
    let geometry = device.geometry();
    let (peb, unit) = (usable(device, 1)[0], geometry.subpage_bytes());
    let parts = geometry.page_bytes() / unit;
    let data = pattern(4, geometry.page_bytes());
    for part in 0..parts {
        let bytes = &data[index(part * unit)..index((part + 1) * unit)];
        device.program(peb, part * unit, bytes).expect("a sub-page");
    }
    assert_eq!(read(device, peb, 0, geometry.page_bytes()), data);
}

fn a_page_is_not_programmed_twice<N: Nand>(device: &mut N) {
    let (peb, page) = (usable(device, 1)[0], device.geometry().page_bytes());
    let data = pattern(5, page);
    device.program(peb, 0, &data).expect("the first time");
    let error = device.program(peb, 0, &pattern(6, page)).expect_err("twice");
    assert!(
        matches!(&error, NandError::NotErased { peb: place, page: Page(0), offset: 0, .. } if *place == peb),
        "{error}"
    );
    assert_eq!(read(device, peb, 0, page), data);
}

fn pages_are_programmed_upwards<N: Nand>(device: &mut N) {
    let (peb, page) = (usable(device, 1)[0], device.geometry().page_bytes());
    device.program(peb, 2 * page, &pattern(1, page)).expect("page 2");
    let error = device
        .program(peb, page, &pattern(2, page))
        .expect_err("downwards");
    assert!(
        matches!(error, NandError::NotErased { page: Page(1), .. }),
        "{error}"
    );
    assert_eq!(read(device, peb, page, page), vec![0xFF; index(page)]);
}

fn skipped_pages_stay_erased_and_stay_skipped<N: Nand>(device: &mut N) {
    let (peb, page) = (usable(device, 1)[0], device.geometry().page_bytes());
    let (first, third) = (pattern(1, page), pattern(3, page));
    device.program(peb, 0, &first).expect("page 0");
    device.program(peb, 2 * page, &third).expect("page 2");
    let expected = [first, vec![0xFF; index(page)], third, vec![0xFF; index(page)]].concat();
    assert_eq!(read(device, peb, 0, 4 * page), expected);
}

fn an_erase_makes_a_block_programmable_again<N: Nand>(device: &mut N) {
    let geometry = device.geometry();
    let (peb, page) = (usable(device, 1)[0], geometry.page_bytes());
    device.program(peb, page, &pattern(1, 2 * page)).expect("program");
    device.erase(peb).expect("erase");
    let erased = vec![0xFF; index(geometry.block_bytes())];
    assert_eq!(read(device, peb, 0, geometry.block_bytes()), erased);
    device.program(peb, 0, &pattern(2, page)).expect("program again");
    assert_eq!(read(device, peb, 0, page), pattern(2, page));
}

fn blocks_do_not_touch_each_other<N: Nand>(device: &mut N) {
    let page = device.geometry().page_bytes();
    let pebs = usable(device, 3);
    for (tag, peb) in (1..).zip(&pebs) {
        device.program(*peb, 0, &pattern(tag, page)).expect("program");
    }
    device.erase(pebs[1]).expect("erase");
    assert_eq!(read(device, pebs[0], 0, page), pattern(1, page));
    assert_eq!(read(device, pebs[1], 0, page), vec![0xFF; index(page)]);
    assert_eq!(read(device, pebs[2], 0, page), pattern(3, page));
}

fn what_leaves_the_device_is_refused_and_changes_nothing<N: Nand>(device: &mut N) {
    let geometry = device.geometry();
    let (peb, page) = (usable(device, 1)[0], geometry.page_bytes());
    let outside = Peb(geometry.blocks());
    let mut out = vec![0; index(2 * page)];
    let no_block = |error: &NandError| matches!(error, NandError::NoSuchBlock { .. });
    assert!(no_block(&device.read(outside, 0, &mut out).expect_err("read")));
    assert!(no_block(&device.program(outside, 0, &out).expect_err("program")));
    assert!(no_block(&device.erase(outside).expect_err("erase")));
    assert!(no_block(&device.is_bad(outside).expect_err("is_bad")));
    assert!(no_block(&device.mark_bad(outside).expect_err("mark_bad")));
    let last_page = geometry.block_bytes() - page;
    let leaves = |error: &NandError| matches!(error, NandError::OutOfBlock { .. });
    assert!(leaves(&device.read(peb, last_page, &mut out).expect_err("read")));
    assert!(leaves(
        &device.program(peb, last_page, &out).expect_err("program")
    ));
    assert_eq!(read(device, peb, last_page, page), vec![0xFF; index(page)]);
}

fn a_misaligned_program_is_refused_and_changes_nothing<N: Nand>(device: &mut N) {
    let geometry = device.geometry();
    let (peb, unit) = (usable(device, 1)[0], geometry.subpage_bytes());
    for (offset, len) in [(0, unit - 1), (unit / 2, unit), (0, 0), (0, unit + 1)] {
        let error = device
            .program(peb, offset, &vec![0; index(len)])
            .expect_err("misaligned");
        assert!(matches!(error, NandError::Misaligned { .. }), "{error}");
    }
    let bytes = geometry.block_bytes();
    assert!(read(device, peb, 0, bytes).iter().all(|byte| *byte == 0xFF));
}

fn a_bad_block_takes_neither_programs_nor_erases<N: Nand>(device: &mut N) {
    let page = device.geometry().page_bytes();
    let pebs = usable(device, 2);
    device.mark_bad(pebs[0]).expect("mark_bad");
    assert!(device.is_bad(pebs[0]).expect("is_bad"));
    assert!(!device.is_bad(pebs[1]).expect("is_bad"));
    let error = device
        .program(pebs[0], 0, &pattern(1, page))
        .expect_err("program");
    assert!(matches!(error, NandError::BadBlock { .. }), "{error}");
    let error = device.erase(pebs[0]).expect_err("erase");
    assert!(matches!(error, NandError::BadBlock { .. }), "{error}");
    device
        .program(pebs[1], 0, &pattern(1, page))
        .expect("its neighbour works");
}

fn marking_bad_twice_is_no_error<N: Nand>(device: &mut N) {
    let peb = usable(device, 1)[0];
    device.mark_bad(peb).expect("once");
    device.mark_bad(peb).expect("twice");
}

fn the_clock_never_goes_back_and_is_one_clock<N: Nand>(device: &mut N) {
    let (peb, page) = (usable(device, 1)[0], device.geometry().page_bytes());
    let clock = device.clock();
    let before = clock.now();
    device.program(peb, 0, &pattern(1, page)).expect("program");
    let programmed = clock.now();
    assert!(programmed >= before);
    let _ = read(device, peb, 0, page);
    device.erase(peb).expect("erase");
    assert!(clock.now() >= programmed);
    let later = clock.advance(crate::Nanos::from_millis(5));
    assert!(device.clock().now() >= later, "two handles, one clock");
}

fn an_empty_read_is_no_error<N: Nand>(device: &mut N) {
    let (peb, bytes) = (usable(device, 1)[0], device.geometry().block_bytes());
    assert_eq!(read(device, peb, 0, 0), Vec::<u8>::new());
    assert_eq!(read(device, peb, bytes, 0), Vec::<u8>::new());
}

fn sync_keeps_everything<N: Nand>(device: &mut N) {
    let (peb, page) = (usable(device, 1)[0], device.geometry().page_bytes());
    device.program(peb, 0, &pattern(9, page)).expect("program");
    device.sync().expect("sync");
    assert_eq!(read(device, peb, 0, page), pattern(9, page));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NandGeometry, RamNand};

    fn geometry() -> NandGeometry {
        NandGeometry::new(512, 8, 6)
            .and_then(|geometry| geometry.with_subpage(128))
            .unwrap()
    }

    #[test]
    fn the_plain_chip_in_memory_keeps_the_contract() {
        run_all(|| RamNand::new("ram", geometry()));
    }

    #[test]
    fn the_contract_holds_behind_a_shared_lock_and_a_box() {
        run_all(|| std::sync::Arc::new(std::sync::Mutex::new(RamNand::new("ram", geometry()))));
        run_all(|| -> Box<dyn Nand> { Box::new(RamNand::new("ram", geometry())) });
    }
}
