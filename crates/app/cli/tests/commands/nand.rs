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
