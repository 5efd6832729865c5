//! Runs commands on many images with changed nodes and repaired CRCs and hashes. No command may create a file outside its
//! folder, panic, take ten seconds or 256 MiB, or extract a device or a setuid file.
//!
//! 40 images, 4,000 with `TIDEGATE_FULL`, or `TIDEGATE_HOSTILE=N`; `TIDEGATE_HOSTILE_SEED` sets the first seed.

mod support {
    pub mod bench;
    pub mod mutator;
}

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use support::bench::Bench;
use support::mutator::Volume;
use testkit::prng::Prng;

/// Limits: 256 MiB of data and ten seconds.
const LIMITED: &str = "ulimit -d 262144; exec timeout 10 \"$0\" \"$@\"";

const COMMANDS: [&str; 5] = [
    "ubifs extract hostile -o out",
    "ubifs extract hostile --tar archive",
    "ubifs tree hostile",
    "ubifs check hostile",
    "ubifs info hostile",
];

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_command_is_led_astray_by_an_image() {
    let bench = Bench::new();
    fill(&bench);
    bench.make_volume();
    let good = Volume::new(fs::read(bench.path("volume")).expect("it was made"), 126_976);
    let images = setting("TIDEGATE_HOSTILE").unwrap_or(if testkit::is_full() { 4000 } else { 40 });
    let first = setting("TIDEGATE_HOSTILE_SEED").unwrap_or(0);
    let victim = |bench: &Bench| {
        (
            names(&bench.path("victim")),
            fs::read(bench.path("victim/own")).expect("there"),
        )
    };
    let before = victim(&bench);
    let mut told = 0;
    for seed in first..first + images {
        let mut volume = good.clone();
        volume.mutate(&mut Prng::new(seed));
        fs::write(bench.path("hostile"), &volume.raw).expect("there is room");
        let replay = format!("replay with TIDEGATE_HOSTILE_SEED={seed} TIDEGATE_HOSTILE=1");
        for words in COMMANDS {
            let code = run(&bench, words, &replay);
            told += u64::from(code != 0);
        }
        assert_eq!(victim(&bench), before, "{replay}");
        let expected = ["archive", "hostile", "out", "tree", "victim", "volume"].map(OsString::from);
        let strangers: Vec<_> = names(bench.0.path())
            .into_iter()
            .filter(|name| !expected.contains(name))
            .collect();
        assert_eq!(strangers, Vec::<OsString>::new(), "{replay}");
        remove_harmless(&bench.path("out"), &replay);
        let _ = fs::remove_file(bench.path("archive"));
    }
    assert!(
        told * 10 > images,
        "only {told} runs found something in {images} images"
    );
}

/// Folders, links that lead outside, colliding names, programs.
fn fill(bench: &Bench) {
    fs::create_dir(bench.path("victim")).expect("made");
    fs::write(bench.path("victim/own"), "own").expect("made");
    let tree = bench.path("tree");
    symlink(bench.path("victim"), tree.join("link")).expect("made");
    symlink("../../victim", tree.join("back")).expect("made");
    for number in 0..6 {
        let folder = tree.join(format!("dir{number}"));
        fs::create_dir_all(folder.join("sub")).expect("made");
        fs::write(folder.join("file"), vec![number; 9000]).expect("made");
        fs::write(folder.join("evil"), "#!/bin/sh\n").expect("made");
        fs::set_permissions(folder.join("evil"), fs::Permissions::from_mode(0o4755)).expect("changed");
        fs::hard_link(folder.join("file"), folder.join("sub/name")).expect("made");
        symlink(bench.path("victim"), folder.join("link")).expect("made");
    }
}

/// Returns the exit code, which must be one that the program documents.
fn run(bench: &Bench, words: &str, replay: &str) -> i32 {
    let output = Command::new("sh")
        .args(["-c", LIMITED, env!("CARGO_BIN_EXE_tidegate")])
        .args(words.split(' '))
        .current_dir(&bench.0)
        .output()
        .expect("sh runs");
    let told = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    assert!(matches!(code, Some(0..=2)), "{words}: {code:?}, {told}; {replay}");
    assert!(!told.contains("panicked"), "{words}: {told}; {replay}");
    assert!(
        !told.contains('\x1b'),
        "{words}: an escape reached the terminal; {replay}"
    );
    code.expect("checked above")
}

fn names(folder: &Path) -> BTreeSet<OsString> {
    let entries = fs::read_dir(folder).expect("it is listed");
    entries
        .map(|entry| entry.expect("it is listed").file_name())
        .collect()
}

/// Removes an extracted folder, if it exists, and checks each file.
fn remove_harmless(folder: &Path, replay: &str) {
    let Ok(status) = fs::symlink_metadata(folder) else {
        return;
    };
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        let status = fs::symlink_metadata(&path).expect("it is there");
        let kind = status.file_type();
        let is_device = kind.is_block_device() || kind.is_char_device();
        assert!(!is_device, "{}: a device; {replay}", path.display());
        let rights = status.mode() & 0o6000;
        assert_eq!(rights, 0, "{}: setuid or setgid; {replay}", path.display());
        if kind.is_dir() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("it is ours");
            pending.extend(names(&path).into_iter().map(|name| path.join(name)));
        }
    }
    // The root of the image may have changed to any file type.
    let removed = match status.is_dir() {
        true => fs::remove_dir_all(folder),
        false => fs::remove_file(folder),
    };
    removed.expect("it is ours");
}
