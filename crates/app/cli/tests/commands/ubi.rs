//! `tidegate ubi` as a program: makes, changes, dumps and checks images.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const SHAPE: [&str; 6] = ["--page", "2k", "--block", "128k", "--subpage", "512"];

struct Bench {
    folder: TempDir,
}

impl Bench {
    /// An erased chip of 64 blocks.
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        std::fs::write(folder.path().join("nand.img"), vec![0xFF; 64 * 131_072]).expect("room for it");
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, words: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .arg("ubi")
            .args(words)
            .current_dir(&self.folder)
            .output()
            .expect("the program runs")
    }

    fn done(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(
            output.status.success(),
            "{words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("text")
    }

    fn fails(&self, words: &[&str], code: i32) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
    }

    fn formatted() -> Self {
        let bench = Self::new();
        bench.done(&[&["format", "nand.img", "--image-seq", "77"], &SHAPE[..]].concat());
        bench
    }
}

#[test]
fn a_volume_is_made_updated_dumped_renamed_resized_and_removed() {
    let bench = Bench::formatted();
    let content: Vec<u8> = (0..300_000_u32)
        .flat_map(u32::to_le_bytes)
        .take(300_000)
        .collect();
    std::fs::write(bench.path("content"), &content).expect("room for it");
    bench.done(&[
        "mkvol", "nand.img", "-N", "boot", "--kind", "static", "-s", "512k",
    ]);
    bench.done(&["mkvol", "nand.img", "-N", "data", "-S", "10"]);
    bench.done(&["update", "nand.img", "boot", "content"]);
    bench.done(&["dump", "nand.img", "boot", "-o", "out"]);
    assert_eq!(std::fs::read(bench.path("out")).expect("dumped"), content);
    bench.done(&["rename", "nand.img", "boot", "data", "data", "boot"]);
    bench.done(&["resize", "nand.img", "boot", "-S", "12"]);
    let info: serde_json::Value =
        serde_json::from_str(&bench.done(&["info", "nand.img", "--json"])).expect("JSON");
    assert_eq!(info["volumes"][0]["name"], "data");
    assert_eq!(info["volumes"][0]["data_bytes"], 300_000);
    assert_eq!(info["volumes"][1]["lebs"], 12);
    assert_eq!(info["image_sequence"], 77);
    assert!(info["memory_bytes"].as_u64().expect("a number") <= 64 * 8 + 300 * 1024);
    bench.done(&["rmvol", "nand.img", "data"]);
    let text = bench.done(&["info", "nand.img"]);
    assert!(text.contains("boot") && !text.contains("data      "), "{text}");
    assert!(bench.done(&["check", "nand.img"]).starts_with("nothing wrong"));
}

#[test]
fn damage_is_listed_with_its_place_and_code_1() {
    let bench = Bench::formatted();
    bench.done(&["mkvol", "nand.img", "-N", "boot", "-t", "static", "-S", "3"]);
    std::fs::write(bench.path("content"), vec![7; 200_000]).expect("room for it");
    bench.done(&["update", "nand.img", "boot", "content"]);
    let mut image = std::fs::read(bench.path("nand.img")).expect("there");
    let at = image
        .windows(64)
        .position(|bytes| bytes == [7; 64])
        .expect("the content is there");
    image[at] ^= 1;
    std::fs::write(bench.path("nand.img"), image).expect("room for it");
    let said = bench.fails(&["check", "nand.img"], 1);
    let peb = at / 131_072;
    assert!(
        said.contains(&format!("PEB {peb}, byte {}", at % 131_072)),
        "{said}"
    );
    assert!(said.contains("CRC is"), "{said}");

    let said = bench.fails(&["dump", "nand.img", "boot", "-o", "out"], 2);
    assert!(
        said.contains("\"boot\"") && said.contains(&format!("PEB {peb}")) && said.contains("--damaged"),
        "{said}"
    );
    assert!(!bench.path("out").exists());
    let said = bench.fails(&["dump", "nand.img", "boot", "-o", "out", "--damaged"], 1);
    assert!(
        said.contains(&format!("PEB {peb}")) && said.contains("CRC"),
        "{said}"
    );
    let out = std::fs::read(bench.path("out")).expect("dumped");
    assert_eq!(out.len(), 200_000);
    assert_eq!(out.iter().filter(|byte| **byte != 7).count(), 1);
}

/// Nothing but ECC vouches for the data of a dynamic volume: `--damaged` wrote it out without a word, with exit code 0.
#[test]
fn pages_of_a_dynamic_volume_that_can_not_be_read_are_listed_with_code_1() {
    let bench = Bench::new();
    let create = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "nand",
            "create",
            "worn.img",
            "--page",
            "2k",
            "--pages-per-block",
            "64",
        ])
        .args(["--blocks", "64", "--reads-per-bit-flip", "10"])
        .current_dir(&bench.folder)
        .output()
        .expect("the program runs");
    assert!(create.status.success(), "{create:?}");
    bench.done(&["format", "worn.img"]);
    bench.done(&["mkvol", "worn.img", "-N", "root", "-S", "4"]);
    std::fs::write(bench.path("content"), vec![7; 200_000]).expect("room for it");
    bench.done(&["update", "worn.img", "root", "content"]);
    let said = bench.fails(&["dump", "worn.img", "root", "-o", "out"], 2);
    assert!(said.contains("LEB 0") && said.contains("--damaged"), "{said}");
    assert!(!bench.path("out").exists());
    let said = bench.fails(&["dump", "worn.img", "root", "-o", "out", "--damaged"], 1);
    assert!(said.contains("LEB 0") && said.contains("LEB 1"), "{said}");
    assert!(std::fs::read(bench.path("out")).expect("dumped").len() > 200_000);
}

#[test]
fn a_check_says_that_a_leb_may_be_lost_where_and_what_it_can_not_verify() {
    let bench = Bench::formatted();
    bench.done(&["mkvol", "nand.img", "-N", "root", "-S", "9"]);
    std::fs::write(bench.path("content"), vec![7; 600_000]).expect("room for it");
    bench.done(&["update", "nand.img", "root", "content"]);
    let whole = bench.done(&["check", "nand.img"]);
    assert!(
        whole.contains("no checksum of the data of dynamic volumes, here 0 (root)"),
        "{whole}"
    );
    // Random bytes over one block and part of the next block's data, as from a stray write.
    let mut image = std::fs::read(bench.path("nand.img")).expect("there");
    let holds_data = |peb: &usize| image[peb * 131_072 + 100_000..][..64] == [7; 64];
    let peb = (1..64)
        .find(|peb| holds_data(peb) && holds_data(&(peb + 1)))
        .expect("data in a row");
    for (byte, value) in image[peb * 131_072..][..200_000]
        .iter_mut()
        .zip((0_u8..=250).cycle())
    {
        *byte = value;
    }
    std::fs::write(bench.path("nand.img"), image).expect("room for it");
    let said = bench.fails(&["check", "nand.img"], 1);
    assert!(
        said.contains("a LEB may be lost") && !said.contains("nothing is lost"),
        "{said}"
    );
    assert!(
        said.contains("2 blocks may have held LEBs that are lost"),
        "{said}"
    );
    assert!(
        said.contains("volume 0 (root, dynamic): no block holds LEB "),
        "{said}"
    );
    let json = bench.fails(&["check", "nand.img", "--json"], 1);
    let sum: serde_json::Value = serde_json::from_str(json.lines().last().expect("lines")).expect("JSON");
    assert_eq!(sum["blocks_that_may_have_held_a_lost_leb"], 2);
    assert_eq!(sum["volumes_with_holes"][0]["name"], "root");
    assert_eq!(sum["volumes_without_checksum"], serde_json::json!([0]));
}

#[test]
fn a_file_without_ubi_is_refused_with_the_next_step_and_stays_unchanged() {
    let bench = Bench::new();
    let before = std::fs::read(bench.path("nand.img")).expect("there");
    let said = bench.fails(&[&["info", "nand.img"], &SHAPE[..]].concat(), 2);
    assert!(
        said.contains("blank") && said.contains("tidegate ubi format"),
        "{said}"
    );
    let said = bench.fails(&["mkvol", "nand.img", "-N", "a", "-S", "1"], 2);
    assert!(said.contains("--page and --block"), "{said}");
    assert_eq!(std::fs::read(bench.path("nand.img")).expect("there"), before);
    let bench = Bench::formatted();
    bench.done(&["mkvol", "nand.img", "-N", "a", "-S", "1"]);
    let said = bench.fails(&["format", "nand.img"], 2);
    assert!(said.contains("--force") && said.contains('a'), "{said}");
    let said = bench.fails(&["dump", "nand.img", "b", "-o", "-"], 2);
    assert!(said.contains("it has a (0)"), "{said}");
}

#[test]
fn commands_that_change_something_tell_programs_what_is_there_now() {
    let bench = Bench::new();
    let json = |words: &[&str]| -> serde_json::Value {
        let words = [words, &["--json"]].concat();
        serde_json::from_str(&bench.done(&words)).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    };
    let device = json(&[&["format", "nand.img", "--image-seq", "9"], &SHAPE[..]].concat());
    assert_eq!(
        (&device["image_sequence"], &device["blocks"]),
        (&9.into(), &64.into())
    );
    let made = json(&["mkvol", "nand.img", "-N", "boot", "-t", "static", "-S", "4"]);
    assert_eq!((&made["name"], &made["lebs"]), (&"boot".into(), &4.into()));
    assert_eq!(json(&["mkvol", "nand.img", "-N", "data", "-S", "2"])["id"], 1);
    std::fs::write(bench.path("content"), vec![7; 200_000]).expect("room for it");
    let updated = json(&["update", "nand.img", "boot", "content"]);
    assert_eq!(
        (&updated["data_bytes"], &updated["mapped_lebs"]),
        (&200_000.into(), &2.into())
    );
    let renamed = json(&["rename", "nand.img", "boot", "data", "data", "boot"]);
    assert_eq!(renamed["volumes"][0]["name"], "data");
    assert_eq!(renamed["volumes"][1]["name"], "boot");
    assert_eq!(json(&["resize", "nand.img", "boot", "-S", "5"])["lebs"], 5);
    let removed = json(&["rmvol", "nand.img", "boot"]);
    assert_eq!((&removed["name"], &removed["lebs"]), (&"boot".into(), &5.into()));
    let info = json(&["info", "nand.img"]);
    assert_eq!(info["volumes"].as_array().map(Vec::len), Some(1));
    assert_eq!(info["volumes"][0]["name"], "data");
}

#[test]
fn a_scrub_moves_data_off_flipping_bits() {
    let bench = Bench::new();
    let nand = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .arg("nand")
            .args(words)
            .current_dir(&bench.folder)
            .output()
            .expect("the program runs");
        assert!(output.status.success(), "{output:?}");
    };
    let chip = [
        "create",
        "worn.img",
        "--page",
        "2k",
        "--pages-per-block",
        "64",
        "--subpage",
        "512",
        "--blocks",
        "48",
    ];
    // After a few hundred reads of a block's pages, ECC steps have three wrong bits: correctable, but due for scrubbing.
    nand(&[&chip[..], &["--reads-per-bit-flip", "400", "--seed", "4"]].concat());
    bench.done(&["format", "worn.img"]);
    bench.done(&["mkvol", "worn.img", "-N", "data", "-S", "6"]);
    std::fs::write(bench.path("content"), vec![7; 700_000]).expect("room for it");
    bench.done(&["update", "worn.img", "data", "content"]);
    let mut moved = 0;
    for _ in 0..12 {
        let done: serde_json::Value =
            serde_json::from_str(&bench.done(&["scrub", "worn.img", "--json"])).expect("JSON");
        assert_eq!(done["unreadable_lebs"], 0);
        moved += done["scrubbed_blocks"].as_u64().expect("a number");
    }
    assert!(moved >= 6, "{moved} blocks moved");
    bench.done(&["dump", "worn.img", "data", "-o", "out"]);
    let out = std::fs::read(bench.path("out")).expect("dumped");
    assert!(out[..700_000].iter().all(|byte| *byte == 7));
    let text = bench.done(&["scrub", "worn.img"]);
    assert!(text.contains("0 LEBs can't be"), "{text}");
}

/// Configurations whose images must equal ubinize's, byte for byte.
const INIS: [(&str, &[&str]); 4] = [
    (
        "[a]\nmode=ubi\nvol_id=0\nimage=content\nvol_type=static\nvol_name=root\n",
        &["-p", "128KiB", "-m", "2048", "-s", "512"],
    ),
    (
        "[a]\nmode=ubi\nvol_id=3\nimage=content\nvol_size=2MiB\nvol_name=data\nvol_alignment=4096\nvol_flags=autoresize\n\
         [b]\nmode=ubi\nvol_id=1\nvol_size=1MiB\nvol_type=dynamic\nvol_name=empty\n",
        &["-p", "128KiB", "-m", "2048", "-e", "9"],
    ),
    (
        "[a]\nmode=ubi\nvol_id=0\nimage=content\nvol_size=400KiB\nvol_name=x\n",
        &["-p", "16KiB", "-m", "512", "-s", "256"],
    ),
    (
        "# a comment\n[a]\nmode=ubi\nvol_id=0\nimage=content\nvol_type=static\nvol_name=y\n",
        &["-p", "128KiB", "-m", "2048", "-s", "512", "-O", "2048"],
    ),
];

#[test]
fn an_image_is_that_of_ubinize_byte_for_byte() {
    let Some(ubinize) = ["/usr/sbin/ubinize", "/sbin/ubinize", "/usr/bin/ubinize"]
        .into_iter()
        .find(|path| Path::new(path).exists())
    else {
        testkit::report_left_out("there is no ubinize (mtd-utils)");
        return;
    };
    let bench = Bench::new();
    let content: Vec<u8> = (0..100_000_u32)
        .flat_map(u32::to_le_bytes)
        .take(300_001)
        .collect();
    std::fs::write(bench.path("content"), content).expect("room for it");
    for (number, (ini, options)) in INIS.into_iter().enumerate() {
        std::fs::write(bench.path("x.ini"), ini).expect("room for it");
        let theirs = Command::new(ubinize)
            .args(["-o", "theirs", "-Q", "1234"])
            .args(options)
            .arg("x.ini")
            .current_dir(&bench.folder)
            .output()
            .expect("it runs");
        assert!(theirs.status.success(), "configuration {number}: {theirs:?}");
        bench.done(&[&["build", "-o", "ours", "-Q", "1234"], options, &["x.ini"]].concat());
        let (ours, theirs) = (
            std::fs::read(bench.path("ours")).expect("made"),
            std::fs::read(bench.path("theirs")).expect("made"),
        );
        let differs = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
        assert_eq!(
            (differs, ours.len()),
            (None, theirs.len()),
            "configuration {number}"
        );
    }
}

#[test]
fn a_built_image_is_flashed_and_its_volume_takes_what_is_free() {
    let bench = Bench::new();
    let content: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(bench.path("content"), &content).expect("room for it");
    let ini = "[a]\nmode=ubi\nvol_id=0\nimage=content\nvol_size=1MiB\nvol_name=data\nvol_flags=autoresize\n";
    std::fs::write(bench.path("x.ini"), ini).expect("room for it");
    bench.done(&[
        "build", "-o", "x.ubi", "-p", "128k", "-m", "2k", "-s", "512", "x.ini",
    ]);
    bench.done(&[&["format", "nand.img", "--image-file", "x.ubi"], &SHAPE[..]].concat());
    let said = bench.fails(&["mkvol", "nand.img", "-N", "late", "-S", "1"], 2);
    assert!(said.contains("0 are available"), "{said}");
    let info: serde_json::Value =
        serde_json::from_str(&bench.done(&["info", "nand.img", "--json"])).expect("JSON");
    assert!(info["volumes"][0]["lebs"].as_u64().expect("a number") > 50);
    bench.done(&["dump", "nand.img", "data", "-o", "out"]);
    assert!(
        std::fs::read(bench.path("out"))
            .expect("dumped")
            .starts_with(&content)
    );
}
