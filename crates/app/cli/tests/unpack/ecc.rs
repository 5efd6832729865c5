//! Dumps with OOB areas whose ECC is not told: wrong bits up to the strength of the code are corrected, more are told.
//!
//! The pages are written by the encoder of the tests of `nand`, which shares nothing with the reader.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::prng::Prng;

use crate::controllers::{Controller, all};
use crate::encoder::flip;
use crate::parts::{Parts, noise, text, ubi, volume};

const PAGE: usize = 2048;
/// Pages of a bootloader without ECC in front of the partitions.
const NOISE_PAGES: usize = 5;

fn kernel(parts: &Parts) -> &[u8] {
    &parts.kernel[..60_001]
}

fn squashfs(parts: &Parts) -> &[u8] {
    &parts.squashfs[..50_000]
}

/// Two partitions: kernel and squashfs, and a file system.
fn images(parts: &Parts) -> [Vec<u8>; 2] {
    let folder = parts.folder.path();
    // Short ones: the encoder takes each bit by itself.
    fs::write(folder.join("kernel"), kernel(parts)).expect("written");
    fs::write(folder.join("squashfs"), squashfs(parts)).expect("written");
    let first = [
        volume(folder, "kernel", "kernel", "static", 0),
        volume(folder, "app", "squashfs", "dynamic", 5),
    ];
    [ubi(folder, "1001", &first), parts.second.clone()]
}

/// Raw pages of data, with `flips(page, step)` wrong bits.
fn written(
    controller: &Controller,
    data: &[u8],
    random: &mut Prng,
    flips: &mut dyn FnMut(usize, usize) -> usize,
) -> Vec<u8> {
    let mut dump = Vec::new();
    for (number, page) in data.chunks(PAGE).enumerate() {
        if page.iter().all(|byte| *byte == 0xFF) {
            dump.extend(vec![0xFF; PAGE + controller.oob]);
            continue;
        }
        let mut made = (controller.write)(page);
        for (step, word) in made.words.iter().enumerate() {
            let mut wrong: Vec<usize> = Vec::new();
            let count = flips(number, step);
            while wrong.len() < count {
                let place = *random.pick(word);
                if !wrong.contains(&place) {
                    wrong.push(place);
                    flip(&mut made.raw, place);
                }
            }
        }
        dump.extend(made.raw);
    }
    dump
}

/// A bootloader without ECC, both partitions with erased pages between them, and a tail.
fn dump(
    controller: &Controller,
    images: &[Vec<u8>; 2],
    random: &mut Prng,
    flips: &mut dyn FnMut(usize, usize) -> usize,
) -> Vec<u8> {
    let raw = PAGE + controller.oob;
    let mut dump = noise(NOISE_PAGES * raw, 9);
    dump.extend(written(controller, &images[0], random, flips));
    dump.resize(dump.len() + 64 * raw, 0xFF);
    dump.extend(written(controller, &images[1], random, flips));
    dump.extend(noise(777, 4));
    dump
}

fn check(parts: &Parts, out: &Path) {
    assert!(fs::read(out.join("1001/kernel.bin")).expect("a kernel") == kernel(parts));
    let app = fs::read(out.join("1001/app.squashfs")).expect("a squashfs");
    assert!(app.starts_with(squashfs(parts)), "the whole squashfs");
    parts.check_tree("conf", &out.join("1002/conf"));
}

fn unpacked(parts: &Parts, dump: &[u8], words: &[&str]) -> (Option<i32>, String, Value, PathBuf) {
    let (output, out) = parts.unpack(dump, &[&["--json"], words].concat());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {message}"));
    (output.status.code(), message, report, out)
}

/// Controllers with pages of 2048 bytes, by family and strength.
fn controller(family: &str, strength: usize) -> Controller {
    let mut fitting = all().into_iter().filter(|controller| {
        (controller.family, controller.strength, controller.page) == (family, strength, PAGE)
    });
    fitting.next().expect("there is one")
}

#[test]
fn wrong_bits_up_to_the_strength_of_an_untold_code_are_corrected() {
    let parts = Parts::make();
    let images = images(&parts);
    for (family, strength) in [("linux", 8), ("omap", 4), ("linux", 1), ("gpmi", 8)] {
        let controller = controller(family, strength);
        let mut random = Prng::named(u64::try_from(strength).expect("small"), family);
        let wrong = dump(&controller, &images, &mut random, &mut |_, _| strength);
        let (code, message, report, out) = unpacked(&parts, &wrong, &[]);
        let place = format!("{family} {strength}: {message}");
        assert_eq!(code, Some(0), "{place}");
        check(&parts, &out);
        for part in report["parts"].as_array().expect("parts") {
            let ecc = &part["ecc"];
            assert_eq!(ecc["family"].as_str(), Some(family), "{place} {report}");
            assert_eq!(ecc["strength"].as_u64(), u64::try_from(strength).ok(), "{place}");
            assert_eq!(ecc["failed_steps"].as_u64(), Some(0), "{place}");
            assert!(ecc["corrected_bits"].as_u64() > Some(100), "{place} {report}");
        }
        // From the middle of a page on, and with the layout that was found.
        let layout = report["parts"][0]["ecc"]["layout"]
            .as_str()
            .expect("a layout")
            .to_owned();
        let (code, message, _, out) = unpacked(&parts, &wrong[1000..], &["--ecc", &layout]);
        assert_eq!(code, Some(0), "{layout}: {message}");
        check(&parts, &out);
    }
}

#[test]
fn one_wrong_bit_too_many_is_a_told_loss() {
    let parts = Parts::make();
    let images = images(&parts);
    let controller = controller("linux", 8);
    let mut random = Prng::named(1, "too many");
    let right = dump(&controller, &images, &mut random, &mut |_, _| 0);
    // The second page with data of the squashfs, which has no CRC of its own: its first LEB, behind the headers.
    let mark = right
        .windows(4)
        .position(|bytes| bytes == b"hsqs")
        .expect("the squashfs");
    let page = mark / (PAGE + 64) * (PAGE + 64) + PAGE + 64;
    assert_eq!((mark - NOISE_PAGES * 2112) % 2112, 0, "a page begins with it");
    let mut wrong = right.clone();
    for bit in 0..9 {
        wrong[page + 17 + 40 * bit] ^= 4;
    }
    let (code, message, report, out) = unpacked(&parts, &wrong, &[]);
    assert_eq!(code, Some(1), "{message}");
    assert!(
        message.contains(
            "1 step of the ECC has more wrong bits than it corrects and stays as read; the content is wrong"
        ),
        "{message}"
    );
    assert!(message.contains("1001/app: byte 0x"), "{message}");
    assert_eq!(report["parts"][0]["ecc"]["failed_steps"].as_u64(), Some(1));
    let app = fs::read(out.join("1001/app.squashfs")).expect("a squashfs");
    let differing = app
        .iter()
        .zip(squashfs(&parts))
        .filter(|(one, other)| one != other);
    assert_eq!(differing.count(), 9);
    parts.check_tree("conf", &out.join("1002/conf"));

    // In each page of the file system: no wrong file without a word.
    let too_many = dump(
        &controller,
        &images,
        &mut random,
        &mut |page, step| match (page, step) {
            (64.., 0) => 9,
            _ => 0,
        },
    );
    let (code, message, _, out) = unpacked(&parts, &too_many, &[]);
    assert_eq!(code, Some(1), "{message}");
    let kernel = fs::read(out.join("1001/kernel.bin")).expect("a kernel");
    assert!(
        kernel == self::kernel(&parts) || message.contains("its data has a wrong CRC"),
        "{message}"
    );
    let conf = out.join("1002/conf/text");
    let is_right = fs::read(conf).is_ok_and(|found| found == "conf".repeat(5000).as_bytes());
    assert!(is_right || message.contains("1002/conf"), "{message}");
}

#[test]
fn an_ecc_can_be_ignored_and_a_wrong_one_is_told() {
    let parts = Parts::make();
    let images = images(&parts);
    let controller = controller("linux", 4);
    let mut random = Prng::named(2, "ignored");
    let right = dump(&controller, &images, &mut random, &mut |_, _| 0);
    let (code, message, report, out) = unpacked(&parts, &right, &["--ecc", "none"]);
    assert_eq!(
        (code, report["parts"][0]["ecc"].is_null()),
        (Some(0), true),
        "{message}"
    );
    check(&parts, &out);
    let (code, message, _, out) = unpacked(&parts, &right, &["--ecc", "gpmi"]);
    assert_eq!(code, Some(1), "{message}");
    assert!(
        message.contains("the OOB areas are not used: none of"),
        "{message}"
    );
    check(&parts, &out);
    let image = parts.path("dump");
    let output = crate::parts::tidegate(&["unpack", text(&image), "--list", "--ecc", "bch8"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// A page of the kernel with an erased OOB area: written in raw mode.
#[test]
fn a_page_without_ecc_among_others_is_told_and_stays_as_it_was_read() {
    let parts = Parts::make();
    let controller = controller("linux", 4);
    let mut dump = dump(&controller, &images(&parts), &mut Prng::new(7), &mut |_, _| 0);
    let raw = PAGE + controller.oob;
    let oob = (NOISE_PAGES + 2 * 64 + 10) * raw + PAGE;
    assert_ne!(dump[oob..oob + controller.oob], vec![0xFF; controller.oob]);
    dump[oob..oob + controller.oob].fill(0xFF);
    let (code, message, _, out) = unpacked(&parts, &dump, &[]);
    assert_eq!(code, Some(0), "{message}");
    assert!(message.contains("1 page was written without ECC"), "{message}");
    check(&parts, &out);
}
