//! Dumps of every known controller: the layout is found, every bit up to the strength corrected, one more reported.

use std::ops::Range;

use nand::ecc::{Choice, Corrected, FindError, FindOptions, Found, Layout, Placement, Source, Summary, find};
use testkit::prng::Prng;

use crate::controllers::{Controller, all};
use crate::encoder::{Page, flip};

fn options(dump: &[u8]) -> FindOptions {
    FindOptions {
        range: 0..dump.bytes(),
        page_bytes: None,
        oob_bytes: None,
        block_bytes: None,
        choice: Choice::Auto,
    }
}

/// The sizes are known, which makes the trial short.
fn sized(dump: &[u8], controller: &Controller) -> FindOptions {
    let bytes = |bytes: usize| u32::try_from(bytes).ok();
    FindOptions {
        page_bytes: bytes(controller.page),
        oob_bytes: bytes(controller.oob),
        ..options(dump)
    }
}

pub fn corrected(dump: &[u8], layout: &Layout) -> (Vec<u8>, Summary) {
    let corrected = Corrected::new(dump, 0..dump.bytes(), layout.clone()).expect("a possible layout");
    let mut main = Vec::new();
    let summary = corrected.copy(&mut main, &mut |_| {}).expect("memory");
    (main, summary)
}

/// Pages of random data, a page of few bytes, and every fourth page erased.
fn written(controller: &Controller, pages: usize, random: &mut Prng) -> (Vec<u8>, Vec<Option<Page>>) {
    let mut main = Vec::new();
    let mut raw = Vec::new();
    for number in 0..pages {
        let mut data = vec![0xFF; controller.page];
        if number % 4 == 3 {
            main.extend(data);
            raw.push(None);
            continue;
        }
        let used = if number == 0 { 64 } else { data.len() };
        data[..used].copy_from_slice(&random.bytes(used));
        raw.push(Some((controller.write)(&data)));
        main.extend(data);
    }
    (main, raw)
}

/// The dump of pages, with `flips(step)` wrong bits in each code word.
fn dump_of(
    controller: &Controller,
    pages: &[Option<Page>],
    random: &mut Prng,
    flips: &mut dyn FnMut(usize) -> usize,
) -> Vec<u8> {
    let mut dump = Vec::new();
    for page in pages {
        let Some(page) = page else {
            dump.extend(vec![0xFF; controller.page + controller.oob]);
            continue;
        };
        let mut raw = page.raw.clone();
        for (number, word) in page.words.iter().enumerate() {
            let mut chosen: Vec<usize> = Vec::new();
            for _ in 0..flips(number) {
                let place = loop {
                    let place = *random.pick(word);
                    if !chosen.contains(&place) {
                        break place;
                    }
                };
                chosen.push(place);
                flip(&mut raw, place);
            }
        }
        dump.extend(raw);
    }
    dump
}

fn expect_family(controller: &Controller, found: &Found) {
    let of = |bytes: u32| usize::try_from(bytes).expect("it is small");
    let (page, oob) = (of(found.layout.page_bytes), of(found.layout.oob_bytes));
    // A stream of code words is the same in pages of half the size.
    assert!(
        (page, oob) == (controller.page, controller.oob)
            || (page * controller.oob == controller.page * oob
                && matches!(found.layout.placement, Placement::Inline { .. })),
        "{} is read as {}",
        controller.family,
        found.layout
    );
    assert_eq!(found.family, Some(controller.family), "{}", found.layout);
    assert_eq!(
        of(found.layout.code.strength()),
        controller.strength,
        "{}",
        found.layout
    );
}

#[test]
fn every_layout_is_found_in_a_dump_without_errors() {
    for (number, controller) in all().iter().enumerate() {
        let mut random = Prng::new(u64::try_from(number).unwrap());
        let (main, pages) = written(controller, 12, &mut random);
        let dump = dump_of(controller, &pages, &mut random, &mut |_| 0);
        let found = find(&dump[..], &sized(&dump, controller))
            .unwrap_or_else(|error| panic!("{}: {error}", controller.family));
        expect_family(controller, &found);
        assert_eq!(found.clean, found.steps, "{}", found.layout);
        let (data, summary) = corrected(&dump, &found.layout);
        assert!(data == main, "{} {}", controller.family, found.layout);
        assert_eq!(
            (summary.corrected_bits, summary.failed_steps, summary.pages),
            (0, 0, 12)
        );
        assert_eq!(summary.erased_pages, 3);
    }
}

#[test]
fn as_many_wrong_bits_as_the_code_corrects_in_every_step_change_nothing() {
    for (number, controller) in all().iter().enumerate() {
        let mut random = Prng::new(100 + u64::try_from(number).unwrap());
        let (main, pages) = written(controller, 12, &mut random);
        let dump = dump_of(controller, &pages, &mut random, &mut |_| controller.strength);
        let found = find(&dump[..], &sized(&dump, controller))
            .unwrap_or_else(|error| panic!("{}: {error}", controller.family));
        expect_family(controller, &found);
        let (data, summary) = corrected(&dump, &found.layout);
        assert!(data == main, "{} {}", controller.family, found.layout);
        let words: usize = pages.iter().flatten().map(|page| page.words.len()).sum();
        assert_eq!(
            summary.corrected_bits,
            u64::try_from(words * controller.strength).unwrap()
        );
        assert_eq!(summary.failed_steps, 0);
        assert_eq!(
            summary.steps_by_bits[controller.strength],
            u64::try_from(words).unwrap()
        );
    }
}

#[test]
fn the_sizes_of_page_and_oob_are_found_too() {
    for (number, flips) in [(1, 0), (2, 16), (15, 8), (19, 8), (21, 2), (26, 32)] {
        let controller = &all()[number];
        let mut random = Prng::new(300 + u64::try_from(number).unwrap());
        let (main, pages) = written(controller, 8, &mut random);
        let dump = dump_of(controller, &pages, &mut random, &mut |_| flips);
        let found = find(&dump[..], &options(&dump)).unwrap();
        expect_family(controller, &found);
        assert!(corrected(&dump, &found.layout).0 == main, "{}", found.layout);
    }
}

#[test]
fn one_bit_more_is_reported_and_its_bytes_are_as_they_were_read() {
    for (number, controller) in all().iter().enumerate() {
        let mut random = Prng::new(200 + u64::try_from(number).unwrap());
        let (main, pages) = written(controller, 12, &mut random);
        let too_many = controller.strength + 1;
        // The first step of each page.
        let dump = dump_of(controller, &pages, &mut random, &mut |step| {
            if step == 0 { too_many } else { 0 }
        });
        let choice = Choice::Family(controller.family);
        let asked = FindOptions {
            choice,
            ..sized(&dump, controller)
        };
        // A layout of one step for each page can't be found in such a dump.
        let clean = dump_of(controller, &pages, &mut random, &mut |_| 0);
        let found = find(&clean[..], &asked).unwrap();
        let (data, summary) = corrected(&dump, &found.layout);
        let bad = u64::try_from(pages.iter().flatten().count()).unwrap();
        // A miscorrection of 5 or 7 bits in 512 bytes is possible, one of more is not seen in a lifetime.
        let told = summary.failed_steps;
        assert!(
            told + u64::from(too_many <= 7) >= bad,
            "{}: {told} of {bad}",
            controller.family
        );
        let lost = |at: usize| {
            summary
                .lost
                .iter()
                .any(|range| range.contains(&u64::try_from(at).unwrap()))
        };
        let wrong = (0..main.len()).filter(|at| main[*at] != data[*at]).count();
        let silent = (0..main.len())
            .filter(|at| main[*at] != data[*at] && !lost(*at))
            .count();
        assert!(wrong > 0);
        assert!(silent == 0 || told < bad, "{}: {silent} bytes", controller.family);
    }
}

#[test]
fn random_data_and_data_without_oob_have_no_layout() {
    let mut random = Prng::new(9);
    let noise = random.bytes(600_000);
    let error = find(&noise[..], &options(&noise)).unwrap_err();
    assert!(matches!(error, FindError::NotFound { best: None, .. }), "{error}");
    let erased = vec![0xFF; 300_000];
    let error = find(&erased[..], &options(&erased)).unwrap_err();
    assert!(
        matches!(error, FindError::NothingWritten { bytes: 300_000 }),
        "{error}"
    );
    let zeros = vec![0; 300_000];
    assert!(find(&zeros[..], &options(&zeros)).is_err());
    let empty: [u8; 0] = [];
    assert!(find(&empty[..], &options(&empty)).is_err());
}

#[test]
fn a_part_is_read_from_any_byte_to_any_other() {
    let controller = &all()[14];
    let mut random = Prng::new(5);
    let (main, pages) = written(controller, 8, &mut random);
    let mut dump = vec![0xA5; 1000];
    dump.extend(dump_of(controller, &pages, &mut random, &mut |_| 3));
    dump.extend([7; 777]);
    let range: Range<u64> = 1000..dump.bytes();
    let asked = FindOptions {
        range: range.clone(),
        ..options(&dump)
    };
    let found = find(&dump[..], &asked).unwrap();
    let corrected = Corrected::new(&dump[..], range, found.layout).unwrap();
    assert_eq!((corrected.bytes(), corrected.tail_bytes()), (main.bytes(), 777));
    for _ in 0..200 {
        let start = random.below_usize(main.len());
        let end = start + random.below_usize(main.len() - start + 1);
        let mut out = vec![0; end - start];
        let lost = corrected
            .read_at(u64::try_from(start).unwrap(), &mut out)
            .unwrap();
        assert!(lost.is_empty() && out == main[start..end]);
    }
    assert!(corrected.read_at(main.bytes(), &mut [0]).is_err());
}

#[test]
fn an_erased_page_with_a_few_zeros_is_erased_again() {
    for controller in &all() {
        let mut random = Prng::new(77);
        let (_, pages) = written(controller, 8, &mut random);
        let mut dump = dump_of(controller, &pages, &mut random, &mut |_| 0);
        let layout = find(&dump[..], &sized(&dump, controller)).unwrap().layout;
        let raw = controller.page + controller.oob;
        // One page with as many zeros in its first data bytes as the code corrects bits.
        let erased = 7 * raw;
        for bit in 0..controller.strength {
            flip(&mut dump, (erased + 20) * 8 + bit * 3);
        }
        let (data, summary) = corrected(&dump, &layout);
        assert!(
            data[7 * controller.page..].iter().all(|byte| *byte == 0xFF),
            "{layout}"
        );
        assert_eq!(
            summary.corrected_bits,
            u64::try_from(controller.strength).unwrap()
        );
        assert_eq!((summary.erased_pages, summary.failed_steps), (2, 0));
    }
}

/// Every eighth page with data was written in raw mode: its OOB area is erased, and none of its bits is wrong.
#[test]
fn pages_without_ecc_among_others_stay_as_they_were_read() {
    for (number, controller) in all().iter().enumerate() {
        let mut random = Prng::new(400 + u64::try_from(number).unwrap());
        let (mut main, pages) = written(controller, 64, &mut random);
        let mut dump = dump_of(controller, &pages, &mut random, &mut |_| 1);
        let clean = dump_of(controller, &pages, &mut random, &mut |_| 0);
        let layout = find(&clean[..], &sized(&clean, controller)).unwrap().layout;
        if !matches!(layout.placement, Placement::Apart { .. }) {
            continue;
        }
        let raw = controller.page + controller.oob;
        let mut bare = 0;
        for page in (0..64).step_by(8) {
            let bytes = random.bytes(controller.page);
            let place = page * controller.page..(page + 1) * controller.page;
            main[place].copy_from_slice(&bytes);
            let page = &mut dump[page * raw..(page + 1) * raw];
            page[..controller.page].copy_from_slice(&bytes);
            page[controller.page..].fill(0xFF);
            bare += 1;
        }
        let (data, summary) = corrected(&dump, &layout);
        assert!(data == main, "{layout}");
        assert_eq!(
            (summary.unprotected_pages, summary.failed_steps),
            (bare, 0),
            "{layout}"
        );
    }
}

/// The OOB area of one page is that of another layout: its steps are random words, and a few of them lie near a code word.
#[test]
fn corrections_do_not_count_in_a_page_that_does_not_have_the_layout() {
    let weak = all()
        .into_iter()
        .find(|controller| (controller.family, controller.strength, controller.page) == ("linux", 4, 2048));
    let controller = &weak.expect("a code of 4 bits");
    let mut random = Prng::new(11);
    let (_, pages) = written(controller, 16, &mut random);
    let clean = dump_of(controller, &pages, &mut random, &mut |_| 0);
    let layout = find(&clean[..], &sized(&clean, controller)).unwrap().layout;
    // One random word in 400 is corrected.
    let raw = controller.page + controller.oob;
    let dump = random.bytes(2000 * raw);
    let (data, summary) = corrected(&dump, &layout);
    let wrong = dump
        .chunks(raw)
        .zip(data.chunks(controller.page))
        .filter(|(read, data)| read[..controller.page] != **data);
    assert_eq!((wrong.count(), summary.corrected_bits), (0, 0));
    assert_eq!(summary.failed_pages, 2000);
}
