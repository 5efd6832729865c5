//! Names in images.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::Command;

use rustix::fs::{XattrFlags, lsetxattr};
use testkit::report_left_out;

use super::run;
use super::support::bench::Bench;
use super::support::shown::{self, NAME, TEXT, WORD, assert_harmless};

#[test]
fn listings_of_ubifs_and_its_errors_show_names_escaped() {
    let bench = Bench::new();
    let folder = bench.path("tree").join(shown::name());
    fs::create_dir(&folder).expect("made");
    for name in [shown::name(), TEXT.as_ref()] {
        fs::write(folder.join(name), vec![7; 9000]).expect("made");
    }
    symlink(shown::name(), folder.join("link")).expect("made");
    let has_attributes = lsetxattr(folder.join(TEXT), "user.mark", NAME, XattrFlags::empty()).is_ok();
    fs::write(bench.path("tree").join(TEXT), "").expect("made");
    bench.make_volume();
    let commands = |must_name: bool| {
        for (words, names) in [
            ("ubifs ls volume", true),
            ("ubifs ls volume -l", true),
            ("ubifs tree volume", true),
            ("ubifs check volume", false),
            ("ubifs check volume --json", false),
            ("ubifs log volume --nodes", false),
            ("ubifs log volume --json", false),
            ("ubifs info volume", false),
            ("ubifs extract volume -o out", false),
            ("ubifs extract volume --tar archive", false),
        ] {
            let shown = assert_harmless(words, &run(bench.0.path(), words));
            assert!(
                shown.contains(WORD) || !(names && must_name),
                "{words} names nothing: {shown}"
            );
            let _ = fs::remove_dir_all(bench.path("out"));
        }
    };
    commands(true);
    let stat = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["ubifs", "stat", "volume", TEXT])
        .current_dir(&bench.0)
        .output()
        .expect("the program runs");
    let told = assert_harmless("ubifs stat", &stat);
    assert!(told.contains(WORD), "{told}");
    assert!(has_attributes || cfg!(not(target_os = "linux")));
    // With damage in each place, errors name the file.
    let good = fs::read(bench.path("volume")).expect("it was made");
    let mut named = 0;
    for step in 0..24 {
        let mut raw = good.clone();
        let nodes: Vec<usize> = (0..raw.len() - 24)
            .step_by(8)
            .filter(|at| raw[*at..].starts_with(&[0x31, 0x18, 0x10, 0x06]) && raw[at + 20] <= 2)
            .collect();
        let at = nodes[nodes.len() * step / 24];
        raw[at + 40] ^= 0xFF;
        fs::write(bench.path("volume"), &raw).expect("there is room");
        let check = run(bench.0.path(), "ubifs check volume");
        named += u64::from(assert_harmless("ubifs check", &check).contains(WORD));
        commands(false);
    }
    assert!(named > 0, "no finding names a file");
}

#[test]
fn volumes_of_ubi_are_listed_with_escaped_names() {
    let bench = Bench::new();
    bench.ends(0, "nand create chip --page 2048 --pages-per-block 64 --blocks 40");
    bench.ends(0, "ubi format chip");
    let made = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["ubi", "mkvol", "chip", "-s", "1m", "-N", TEXT])
        .current_dir(&bench.0)
        .output()
        .expect("the program runs");
    assert_harmless("ubi mkvol", &made);
    for words in ["ubi info chip", "ubi info chip --json", "ubi check chip"] {
        let shown = assert_harmless(words, &run(bench.0.path(), words));
        assert!(
            shown.contains(WORD) || words.contains("check"),
            "{words}: {shown}"
        );
    }
}

#[test]
fn a_map_shows_names_and_labels_escaped() {
    let bench = Bench::new();
    fs::write(bench.path("tree").join(shown::name()), vec![7; 5000]).expect("made");
    let image = bench.path("image");
    let file = File::create(&image).expect("made");
    file.set_len(8 << 20).expect("there is room");
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F", "-b", "1024", "-L", "l\x1b[2J\nforged:\u{9b}", "-d"])
        .args([&bench.path("tree"), &image])
        .env(
            "PATH",
            format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()),
        )
        .status();
    if !made.is_ok_and(|status| status.success()) {
        report_left_out("a map of names: no mkfs.ext4 with -d");
        return;
    }
    for words in [
        "trace map image",
        "trace map image --json",
        "trace map image --summary",
        "trace map image --journal",
    ] {
        let shown = assert_harmless(words, &run(bench.0.path(), words));
        assert!(
            shown.contains(WORD) || words.contains("summary"),
            "{words} names nothing"
        );
    }
}
