//! `tidegate nand` as a program, on chips in files.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

fn tidegate(folder: &TempDir, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["nand"])
        .args(words)
        .current_dir(folder.path())
        .output()
        .expect("the program starts")
}

/// Returns the output of a command that must end with `code`.
fn expect(folder: &TempDir, words: &[&str], code: i32) -> String {
    let output = tidegate(folder, words);
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {messages}");
    if code == 2 {
        return messages;
    }
    String::from_utf8(output.stdout).expect("text")
}

fn json(folder: &TempDir, words: &[&str]) -> Value {
    let words = [words, &["--json"]].concat();
    serde_json::from_str(&expect(folder, &words, 0)).expect("one JSON document")
}

const SMALL: [&str; 8] = [
    "--page",
    "2k",
    "--pages-per-block",
    "16",
    "--subpage",
    "512",
    "--size",
    "512KiB",
];

fn create(folder: &TempDir, name: &str, more: &[&str]) {
    expect(folder, &[&["create", name], &SMALL[..], more].concat(), 0);
}

fn read(folder: &TempDir, name: &str) -> Vec<u8> {
    fs::read(folder.path().join(name)).expect("the file is there")
}

#[test]
fn a_chip_is_made_loaded_dumped_and_shows_its_wear() {
    let folder = TempDir::new().unwrap();
    create(&folder, "chip", &["--bad-blocks", "2", "--seed", "5"]);
    let info = json(&folder, &["info", "chip"]);
    assert_eq!(info["geometry"]["blocks"], 16);
    assert_eq!(info["bad_blocks"].as_array().unwrap().len(), 2);
    let image: Vec<u8> = (0..100 * 1024_u32).map(|at| (at / 3).to_le_bytes()[0]).collect();
    fs::write(folder.path().join("image"), &image).unwrap();
    let loaded = json(&folder, &["load", "chip", "image"]);
    assert_eq!(loaded["programmed_blocks"], 4);
    let dumped = json(&folder, &["dump", "chip", "out", "--bad", "skip"]);
    assert_eq!(dumped["bytes"], 14 * 32 * 1024);
    assert!(read(&folder, "out")[..image.len()] == image);
    let wear = json(&folder, &["wear", "chip"]);
    let erases: u64 = wear["blocks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["erases"].as_u64().unwrap())
        .sum();
    assert_eq!(erases, 4);
    assert!(expect(&folder, &["wear", "chip"], 0).contains("erases a block: 0 to 1"));
    assert!(expect(&folder, &["wear", "chip", "--blocks"], 0).contains("bad"));
    assert!(expect(&folder, &["info", "chip"], 0).contains("16 blocks of 32 KiB"));
}

#[test]
fn a_dump_goes_through_a_pipe_and_back_in_place() {
    let folder = TempDir::new().unwrap();
    create(&folder, "first", &["--with-oob"]);
    create(&folder, "second", &[]);
    fs::write(folder.path().join("image"), vec![3; 40 * 1024]).unwrap();
    expect(&folder, &["load", "first", "image"], 0);
    let output = tidegate(&folder, &["dump", "first", "-", "--image-oob"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        output.stdout == read(&folder, "first"),
        "an image with OOB is its own dump"
    );
    fs::write(folder.path().join("dump"), &output.stdout).unwrap();
    expect(
        &folder,
        &["load", "second", "dump", "--in-place", "--image-oob"],
        0,
    );
    assert!(read(&folder, "second")[..40 * 1024] == vec![3; 40 * 1024]);
    assert_eq!(read(&folder, "second").len(), 512 * 1024);
}

#[test]
fn a_plain_dump_needs_its_geometry_and_reading_it_leaves_nothing_behind() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("dump"), vec![0xFF; 256 * 1024]).unwrap();
    let message = expect(&folder, &["info", "dump"], 2);
    assert!(message.contains("--preset"), "{message}");
    let info = json(&folder, &["info", "dump", "--preset", "nandsim"]);
    assert_eq!(info["geometry"]["blocks"], 2);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let message = expect(&folder, &["info", "dump", "--preset", "slc", "--with-oob"], 2);
    assert!(
        message.contains("no whole number of blocks of 135168 bytes"),
        "{message}"
    );
    let message = expect(&folder, &["info", "dump", "--page", "2k"], 2);
    assert!(message.contains("--pages-per-block"), "{message}");
}

#[test]
fn nothing_is_replaced_unless_asked_for_and_never_while_it_is_used() {
    let folder = TempDir::new().unwrap();
    create(&folder, "chip", &[]);
    let again = [&["create", "chip"], &SMALL[..]].concat();
    assert!(expect(&folder, &again, 2).contains("--force"));
    expect(&folder, &[&again[..], &["--force"]].concat(), 0);
    let path = folder.path().join("chip");
    let held = nand::FileNand::open(&path, nand::Access::ReadWrite, None).unwrap();
    assert!(expect(&folder, &[&again[..], &["--force"]].concat(), 2).contains("in use"));
    assert!(expect(&folder, &["info", "chip"], 2).contains("in use"));
    drop(held);
    expect(&folder, &["info", "chip"], 0);
}

#[test]
fn impossible_chips_are_refused_before_anything_is_written() {
    let folder = TempDir::new().unwrap();
    for words in [
        &["create", "chip"][..],
        &[
            "create",
            "chip",
            "--page",
            "3000",
            "--pages-per-block",
            "64",
            "--blocks",
            "8",
        ],
        &["create", "chip", "--page", "2k", "--pages-per-block", "64"],
        &["create", "chip", "--preset", "floppy"],
        &["create", "chip", "--preset", "slc", "--size", "1k"],
        &[
            "create",
            "chip",
            "--preset",
            "slc",
            "--blocks",
            "4",
            "--bad-blocks",
            "4",
        ],
        &[
            "create",
            "chip",
            "--preset",
            "slc",
            "--blocks",
            "4",
            "--program-time",
            "2d",
        ],
        &["load", "chip", "image"],
    ] {
        expect(&folder, words, 2);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_chips_of_the_paper_have_names() {
    let folder = TempDir::new().unwrap();
    let presets = json(&folder, &["presets"]);
    let names: Vec<_> = presets["presets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|preset| preset["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["slc", "mlc", "tlc", "micron-mlc", "nandsim"]);
    assert!(expect(&folder, &["presets"], 0).contains("102.4 us"));
}

#[test]
fn timing_measures_a_short_run() {
    let folder = TempDir::new().unwrap();
    let output = tidegate(&folder, &["timing", "--count", "200", "--json"]);
    // The precision depends on the machine's load and is not tested.
    assert!(matches!(output.status.code(), Some(0 | 1)));
    let measured: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(measured["virtual_ns"], 40_000_000);
    assert!(measured["real_ns"].as_u64().unwrap() >= 40_000_000);
}

#[test]
fn blocks_fail_at_the_given_places_until_they_are_mended() {
    let folder = TempDir::new().unwrap();
    create(&folder, "chip", &["--paired-pages"]);
    assert_eq!(expect(&folder, &["fail", "chip"], 0), "no place fails\n");
    let said = expect(&folder, &["fail", "chip", "--program", "3:16", "--erase", "5"], 2);
    assert!(said.contains("PEB 3") && said.contains("16 pages"), "{said}");
    let said = expect(&folder, &["fail", "chip", "--erase", "5,16"], 2);
    assert!(said.contains("there is no PEB 16"), "{said}");
    let made = json(&folder, &["fail", "chip", "--program", "3,4:2", "--erase", "4"]);
    assert_eq!(made["failing"].as_array().unwrap().len(), 2);
    assert_eq!(made["failing"][1]["program_at_page"], 2);
    let info = json(&folder, &["info", "chip"]);
    assert_eq!(info["simulated"]["failing"], made["failing"]);
    assert_eq!(info["simulated"]["paired_pages"], true);
    let text = expect(&folder, &["info", "chip"], 0);
    assert!(
        text.contains("block 4: programs of page 2 and erases fail"),
        "{text}"
    );
    assert!(text.contains("in pairs"), "{text}");

    fs::write(folder.path().join("image"), vec![7; 6 * 32 * 1024]).unwrap();
    let said = expect(&folder, &["load", "chip", "image"], 2);
    assert!(said.contains("PEB 3, page 0: the program failed"), "{said}");
    expect(&folder, &["fail", "chip", "--mend", "3"], 0);
    let said = expect(&folder, &["load", "chip", "image"], 2);
    assert!(said.contains("PEB 4: the erase failed"), "{said}");
    assert_eq!(
        expect(&folder, &["fail", "chip", "--mend", "4"], 0),
        "no place fails\n"
    );
    assert_eq!(json(&folder, &["load", "chip", "image"])["programmed_blocks"], 6);
}

/// A chip's dump with the kernel's Hamming codes, as the simulator writes them, with one wrong bit in each 256 bytes.
fn dump_with_wrong_bits(folder: &TempDir) -> Vec<u8> {
    create(folder, "chip", &[]);
    let image: Vec<u8> = (0..200 * 1024_u32)
        .map(|at| (at.wrapping_mul(at) / 7).to_le_bytes()[1])
        .collect();
    fs::write(folder.path().join("image"), &image).expect("the folder");
    expect(folder, &["load", "chip", "image"], 0);
    expect(folder, &["dump", "chip", "raw", "--image-oob"], 0);
    let mut raw = read(folder, "raw");
    for (number, page) in raw.chunks_mut(2112).take(100).enumerate() {
        for step in 0..8 {
            page[step * 256 + number] ^= 1 << (step % 8);
        }
    }
    fs::write(folder.path().join("raw"), raw).expect("the folder");
    image
}

#[test]
fn a_dump_with_oob_is_corrected_without_naming_its_layout() {
    let folder = TempDir::new().unwrap();
    let image = dump_with_wrong_bits(&folder);
    let found = json(&folder, &["ecc", "raw", "-o", "data"]);
    assert_eq!(found["family"], "linux", "{found}");
    assert_eq!(found["layout"], "hamming/256,page=2048,oob=64,ecc=40..64");
    assert_eq!(found["corrected_bits"], 800);
    assert_eq!(found["failed_steps"], 0);
    let data = read(&folder, "data");
    assert!(data[..image.len()] == image && data[image.len()..].iter().all(|byte| *byte == 0xFF));
    // The layout as it is printed, to standard output.
    let layout = found["layout"].as_str().expect("text");
    let output = tidegate(&folder, &["ecc", "raw", "--ecc", layout, "-o", "-"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout == data);
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("corrected  800 bits in 800 steps (steps by bits: 1: 800)")
    );
    // Only the OOB areas removed.
    expect(
        &folder,
        &["ecc", "raw", "--ecc", "none", "--shape", "2k+64", "-o", "as_read"],
        0,
    );
    let as_read = read(&folder, "as_read");
    assert_eq!(as_read.len(), data.len());
    assert_eq!(
        (0..data.len()).filter(|at| as_read[*at] != data[*at]).count(),
        800
    );
}

#[test]
fn a_step_with_too_many_wrong_bits_is_a_told_loss() {
    let folder = TempDir::new().unwrap();
    let image = dump_with_wrong_bits(&folder);
    let mut raw = read(&folder, "raw");
    raw[2112 * 9 + 300] ^= 0x10;
    fs::write(folder.path().join("raw"), &raw).unwrap();
    let text = expect(&folder, &["ecc", "raw", "-o", "data"], 1);
    assert!(text.contains("failed     1 steps in 1 pages"), "{text}");
    assert!(
        text.contains("the first lost bytes of the data are 18688 to 18944"),
        "{text}"
    );
    let data = read(&folder, "data");
    let wrong: Vec<_> = (0..image.len()).filter(|at| data[*at] != image[*at]).collect();
    assert_eq!(wrong, [18432 + 256 + 9, 18432 + 300], "{text}");
}

#[test]
fn a_dump_without_a_known_layout_is_refused_with_the_numbers_tried() {
    let folder = TempDir::new().unwrap();
    let noise: Vec<u8> = (0..300_000_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0])
        .collect();
    fs::write(folder.path().join("noise"), noise).unwrap();
    let message = expect(&folder, &["ecc", "noise", "--shape", "2k+64", "-o", "out"], 2);
    assert!(
        message.contains("layouts fits") && message.contains("give the layout as text"),
        "{message}"
    );
    assert!(!folder.path().join("out").exists());
    let message = expect(&folder, &["ecc", "noise", "--ecc", "bch8/512,ecc=2.."], 2);
    assert!(message.contains("fits"), "{message}");
    let message = expect(&folder, &["ecc", "noise", "--ecc", "bch99/512"], 2);
    assert!(message.contains("bch1 to bch64"), "{message}");
    let message = expect(&folder, &["ecc", "noise", "--offset", "1m"], 2);
    assert!(
        message.contains("ends after the dump, which has 300000 bytes"),
        "{message}"
    );
    let list = json(&folder, &["ecc", "--list"]);
    assert!(
        list["families"]
            .as_array()
            .expect("a list")
            .iter()
            .any(|family| family["name"] == "gpmi")
    );
}
