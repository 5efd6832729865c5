//! `tidegate ubifs check`, `log` and `extract --tar` as programs, on file systems that the program makes itself. GNU tar
//! verifies the extended attributes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nand::FileNand;
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};
use serde_json::Value;
use tempfile::TempDir;
use ubi::{AttachOptions, Volume, VolumeId, scan};
use ubifs::format::ROOT_INODE;
use ubifs::mkfs::Time;
use ubifs::{NewFile, OpenOptions, Writer};

struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).expect("made");
        fs::write(tree.join("a/b/file"), vec![0x5A; 100_000]).expect("made");
        fs::write(tree.join("a/small"), b"small\n").expect("made");
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, words: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(words.split(' '))
            .current_dir(&self.0)
            .output()
            .expect("the program runs")
    }

    /// Runs a command that must end with `code`; returns its standard output and standard error.
    fn ends(&self, code: i32, words: &str) -> (String, String) {
        let output = self.run(words);
        let text = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
        let (out, errors) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{words}: {out}{errors}");
        (out, errors)
    }

    /// Makes a bare volume of the tree.
    fn make_volume(&self) {
        self.ends(0, "ubifs mkfs -r tree -m 2048 -e 126976 -c 200 -x none volume");
    }

    /// Makes a chip that lost power after two files were synced, before a commit.
    fn make_cut_chip(&self) {
        fs::write(self.path("chip"), vec![0xFF; 96 * 131_072]).expect("room for it");
        self.ends(0, "ubi format chip --page 2k --block 128k --subpage 512");
        self.ends(0, "ubi mkvol chip -N data -S 60");
        self.ends(0, "ubifs mkfs -r tree chip");
        let chip =
            FileNand::open(&self.path("chip"), nand::Access::ReadWrite, None).expect("a side-car says all");
        let options = AttachOptions::linux(ubi::Access::ReadWrite);
        let ubi = scan(chip, options)
            .and_then(ubi::Scanned::attach)
            .expect("it is UBI");
        let volume: std::sync::Arc<dyn Volume> =
            std::sync::Arc::new(ubi.open(VolumeId(0)).expect("there is one"));
        let mut writer = Writer::open(volume, OpenOptions::standard()).expect("it is a file system");
        for name in [b"first", b"other"] {
            let file = NewFile {
                mode: 0o100_644,
                user: 0,
                group: 0,
                data: Vec::new(),
            };
            let inode = writer
                .create(ROOT_INODE, name, &file, Time::default())
                .expect("there is room");
            writer
                .write(inode, 0, &[7; 9000], Time::default())
                .expect("there is room");
            writer.fsync().expect("the chip takes it");
        }
        // Dropped without an unmount.
    }
}

fn documents(lines: &str) -> Vec<Value> {
    lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line is a document"))
        .collect()
}

/// Overwrites the first page of an image at `at`.
fn destroy(path: &Path, at: usize) {
    let mut image = fs::read(path).expect("an image");
    image[at..at + 2048].fill(0x11);
    fs::write(path, image).expect("written");
}

#[test]
fn files_below_a_damaged_superblock_are_read_by_the_size_of_a_leb() {
    let bench = Bench::new();
    bench.make_volume();
    bench.ends(0, "ubifs extract volume -o whole");
    destroy(&bench.path("volume"), 0);
    bench.ends(2, "ubifs ls volume");
    let (_, told) = bench.ends(0, "ubifs extract --leb-size 126976 volume -o rescued");
    assert!(
        told.contains("the superblock is damaged; rebuilt by the other areas: "),
        "{told}"
    );
    for name in ["a/b/file", "a/small"] {
        let read = |folder: &str| fs::read(bench.path(folder).join(name)).expect("extracted");
        assert_eq!(read("rescued"), read("whole"), "{name}");
    }
    let (_, error) = bench.ends(2, "ubifs ls --leb-size 131072 volume");
    assert!(error.contains("holds no UBIFS superblock"), "{error}");
}

#[test]
fn a_journal_below_a_damaged_superblock_is_replayed() {
    let bench = Bench::new();
    bench.make_cut_chip();
    let (whole, _) = bench.ends(0, "ubifs tree chip");
    let image = fs::read(bench.path("chip")).expect("an image");
    let superblock = [0x31, 0x18, 0x10, 0x06];
    let is_superblock = |at: &usize| image[*at..].starts_with(&superblock) && image[at + 20] == 6;
    let at = (0..image.len())
        .step_by(2048)
        .find(is_superblock)
        .expect("a superblock");
    destroy(&bench.path("chip"), at);
    let (_, error) = bench.ends(2, "ubifs tree chip");
    assert!(
        error.contains("if it is damaged, --leb-size 129024 rebuilds it"),
        "{error}"
    );
    let (rescued, _) = bench.ends(0, "ubifs tree --leb-size 129024 chip");
    assert_eq!(rescued, whole);
    assert!(whole.contains("first"), "the journal was replayed: {whole}");
}

#[test]
fn without_superblock_and_master_a_salvage_gets_all_files() {
    let bench = Bench::new();
    // More files, for an index of more than one node.
    for number in 0..40 {
        fs::write(bench.path(&format!("tree/file-{number}")), vec![7; 9000]).expect("made");
    }
    bench.make_volume();
    let image = fs::read(bench.path("volume")).expect("an image");
    destroy(&bench.path("volume"), 126_976);
    destroy(&bench.path("volume"), 2 * 126_976);
    let (_, error) = bench.ends(2, "ubifs ls volume");
    assert!(error.contains("--salvage reads without it"), "{error}");
    let (_, told) = bench.ends(1, "ubifs extract --salvage volume -o salvaged");
    assert!(told.contains("there is no master node"), "{told}");
    destroy(&bench.path("volume"), 0);
    let (_, told) = bench.ends(1, "ubifs extract --salvage volume -o by-size");
    assert!(
        told.contains("the nodes of the index fit LEBs of 126976 bytes"),
        "{told}"
    );
    for name in ["a/b/file", "a/small", "file-0", "file-39"] {
        let read = |folder: &str| fs::read(bench.path(folder).join(name)).expect("extracted");
        assert_eq!(read("salvaged"), read("tree"), "{name}");
        assert_eq!(read("by-size"), read("tree"), "{name}");
    }
    // A damaged index node: the normal reading names the salvage.
    let is_index = |at: &usize| image[*at..].starts_with(&[0x31, 0x18, 0x10, 0x06]) && image[at + 20] == 9;
    let at = (0..image.len()).step_by(8).find(is_index).expect("an index node");
    let mut damaged = image.clone();
    damaged[at + 30] ^= 1;
    fs::write(bench.path("volume"), damaged).expect("written");
    let (_, told) = bench.ends(1, "ubifs extract volume -o normal");
    assert!(told.contains("--salvage may get more"), "{told}");
    let (_, told) = bench.ends(1, "ubifs extract --salvage volume -o all");
    assert!(told.contains("taken by their sequence numbers"), "{told}");
    assert!(!told.contains("--salvage may get more"), "{told}");
    for number in 0..40 {
        let read =
            |folder: &str| fs::read(bench.path(&format!("{folder}/file-{number}"))).expect("extracted");
        assert_eq!(read("all"), read("tree"));
    }
    bench.ends(2, "ubifs mount -o rw --salvage volume tree");
}

#[test]
fn deleted_files_are_listed_and_read() {
    let bench = Bench::new();
    bench.make_cut_chip();
    let chip =
        FileNand::open(&bench.path("chip"), nand::Access::ReadWrite, None).expect("a side-car says all");
    let ubi = scan(chip, AttachOptions::linux(ubi::Access::ReadWrite))
        .and_then(ubi::Scanned::attach)
        .expect("it is UBI");
    let volume: std::sync::Arc<dyn Volume> =
        std::sync::Arc::new(ubi.open(VolumeId(0)).expect("there is one"));
    let mut writer = Writer::open(volume, OpenOptions::standard()).expect("it is a file system");
    let now = Time {
        seconds: 1_700_000_000,
        nanoseconds: 0,
    };
    writer.unlink(ROOT_INODE, b"first", now).expect("it is there");
    writer.close().expect("it unmounts");
    drop((writer, ubi));
    let (normal, _) = bench.ends(0, "ubifs ls chip");
    assert!(!normal.contains("first"), "{normal}");
    let (listed, _) = bench.ends(0, "ubifs ls --deleted chip");
    assert_eq!(listed.lines().count(), 1, "{listed}");
    assert!(
        listed.starts_with("2023-11-14 22:13:20")
            && listed.contains(" 9000 ")
            && listed.contains(" whole first"),
        "{listed}"
    );
    let output = bench.run("ubifs cat --deleted chip first");
    assert_eq!(output.stdout, vec![7; 9000]);
    bench.ends(0, "ubifs extract --deleted chip -o deleted");
    assert_eq!(
        fs::read(bench.path("deleted/first")).expect("extracted"),
        vec![7; 9000]
    );
}

#[test]
fn an_image_for_lebs_of_another_size_is_read_by_that_size() {
    let bench = Bench::new();
    bench.make_volume();
    fs::write(bench.path("chip"), vec![0xFF; 96 * 131_072]).expect("room for it");
    bench.ends(0, "ubi format chip --page 2k --block 128k --subpage 512");
    bench.ends(0, "ubi mkvol chip -N data -S 60");
    bench.ends(0, "ubi update chip data volume");
    let (_, error) = bench.ends(2, "ubifs ls chip");
    assert!(error.contains("--leb-size 126976 reads it"), "{error}");
    bench.ends(0, "ubifs extract --leb-size 126976 chip -o out");
    let read = |folder: &str| fs::read(bench.path(folder).join("a/b/file")).expect("a file");
    assert_eq!(read("out"), read("tree"));
    let (_, error) = bench.ends(2, "ubifs mount -o rw --leb-size 126976 chip tree");
    assert!(error.contains("--leb-size is for reading"), "{error}");
}

#[test]
fn check_says_nothing_of_what_is_whole_and_names_place_and_path_of_what_is_not() {
    let bench = Bench::new();
    bench.make_volume();
    let (sum, notes) = bench.ends(0, "ubifs check volume");
    assert!(
        sum.starts_with("nothing wrong in 3 directories, 2 files, 26 blocks"),
        "{sum}"
    );
    assert_eq!(notes, "");
    let mut raw = fs::read(bench.path("volume")).expect("it is there");
    let at = raw
        .windows(6)
        .position(|bytes| bytes == b"small\n")
        .expect("it is stored as it is");
    raw[at] ^= 1;
    fs::write(bench.path("volume"), raw).expect("written");
    let (found, _) = bench.ends(1, "ubifs check volume");
    let (leb, offset) = (at / 126_976, at % 126_976 - 48);
    let place = format!("LEB {leb}, offset {offset}");
    let first = found.lines().next().expect("a finding");
    assert!(
        first.contains("/a/small") && first.contains(&place) && first.contains("CRC"),
        "{found}"
    );
    assert!(
        found.contains("still readable: 1 of 2 files whole, 25 of 26 blocks"),
        "{found}"
    );
    let (found, _) = bench.ends(1, "ubifs check --json volume");
    let found = documents(&found);
    let [finding, sum] = found.as_slice() else {
        panic!("a finding and a sum: {found:?}")
    };
    assert_eq!(
        (&finding["path"], &finding["leb"]),
        (&"/a/small".into(), &leb.into())
    );
    assert_eq!((&sum["findings"], &sum["blocks_lost"]), (&1.into(), &1.into()));
    fs::write(bench.path("other"), vec![0; 300_000]).expect("written");
    bench.ends(2, "ubifs check other");
}

#[test]
fn a_power_cut_is_no_finding_of_check_and_log_tells_what_is_replayed() {
    let bench = Bench::new();
    bench.make_cut_chip();
    let (sum, notes) = bench.ends(0, "ubifs check chip");
    assert!(
        sum.starts_with("nothing wrong in 3 directories, 4 files"),
        "{sum}"
    );
    assert!(notes.contains("note: not unmounted"), "{notes}");
    assert_eq!(bench.ends(0, "ubifs check --quiet chip").1, "");
    let (log, _) = bench.ends(0, "ubifs log --nodes chip");
    for expected in [
        "not unmounted: the last write of each head may be torn",
        "commit 1 starts",
        "head 1 (base)",
        "head 2 (data)",
        "name \"first\"",
        "name \"other\"",
        ": 9000 bytes",
        "block 2, up to byte 9000",
    ] {
        assert!(log.contains(expected), "{expected}: {log}");
    }
    let short = bench.ends(0, "ubifs log chip").0;
    assert!(
        !short.contains("name \"first\"") && short.len() < log.len(),
        "{short}"
    );
    let (document, _) = bench.ends(0, "ubifs log --nodes --json chip");
    let document = &documents(&document)[0];
    assert_eq!(document["clean"], false);
    let applied = document["applied"].as_array().expect("a list");
    assert_eq!(document["nodes"], applied.len());
    let nodes: u64 = document["buds"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|bud| bud["nodes"].as_u64())
        .sum();
    assert_eq!(document["nodes"], nodes);
    bench.make_volume();
    let (log, _) = bench.ends(0, "ubifs log volume");
    assert!(log.contains("unmounted: nothing can be torn"), "{log}");
}

/// Extended attributes of a file, by name.
fn attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 4096];
    let bytes = llistxattr(path, &mut names).expect("they are listed");
    let names = names[..bytes]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 4096];
        let bytes = lgetxattr(path, name, &mut value).expect("it can be read");
        value.truncate(bytes);
        value
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}

#[test]
fn gnu_tar_unpacks_extended_attributes_of_an_archive() {
    let bench = Bench::new();
    let tree = bench.path("tree");
    let is_root = rustix::process::geteuid().is_root();
    let set =
        |path: &str, name: &str, value: &[u8]| lsetxattr(tree.join(path), name, value, XattrFlags::empty());
    if let Err(error) = set("a/small", "user.text", b"a value") {
        testkit::report_left_out(format!(
            "the temporary folder takes no extended attributes: {error}"
        ));
        return;
    }
    set("a/small", "user.empty", b"").expect("possible here");
    set("a/b/file", "user.bytes", b"\0=\n\xFF\xFE").expect("possible here");
    set("a", "user.of-a-folder", &[b'x'; 600]).expect("possible here");
    if is_root {
        set("a/small", "trusted.of-root", b"\x01\0\x02").expect("root may");
        set("a/b", "security.tidegate", b"label").expect("root may");
    }
    bench.make_volume();
    bench.ends(0, "ubifs extract volume --tar archive.tar");
    fs::create_dir(bench.path("out")).expect("made");
    let tar = Command::new("tar")
        .args([
            "--xattrs",
            "--xattrs-include=*",
            "-xpf",
            "archive.tar",
            "-C",
            "out",
        ])
        .current_dir(&bench.0)
        .output()
        .expect("tar runs");
    assert!(tar.status.success(), "{tar:?}");
    for path in ["", "a", "a/small", "a/b", "a/b/file"] {
        let (expected, found) = (
            attributes(&tree.join(path)),
            attributes(&bench.path("out").join(path)),
        );
        assert_eq!(found, expected, "{path}");
        assert_eq!(
            expected.is_empty(),
            path.is_empty() || path == "a/b" && !is_root,
            "{path}"
        );
    }
    let preserve = if is_root { "--preserve " } else { "" };
    bench.ends(0, &format!("ubifs extract {preserve}volume -o folder"));
    for path in ["a", "a/small", "a/b", "a/b/file"] {
        assert_eq!(
            attributes(&bench.path("folder").join(path)),
            attributes(&tree.join(path)),
            "{path}"
        );
    }
}

#[test]
fn a_key_opens_encrypted_files_and_without_it_each_is_one_loss() {
    let bench = Bench::new();
    fs::write(bench.path("key"), (0..64).collect::<Vec<u8>>()).expect("written");
    std::os::unix::fs::symlink("a/small", bench.path("tree/link")).expect("made");
    let words = "-m 2048 -e 126976 -c 200 -r tree -K key -b 00112233aabbccdd -C AES-256-XTS -o volume";
    let made = Command::new("mkfs.ubifs")
        .args(words.split(' '))
        .current_dir(&bench.0)
        .output();
    let Ok(made) = made else {
        testkit::report_left_out("there is no mkfs.ubifs (apt install mtd-utils)");
        return;
    };
    assert!(made.status.success(), "{made:?}");
    assert_eq!(bench.ends(0, "ubifs cat --key key volume a/small").0, "small\n");
    bench.ends(0, "ubifs extract --key key volume -o open");
    let same = Command::new("diff")
        .args(["-r", "--no-dereference", "tree", "open"])
        .current_dir(&bench.0)
        .output();
    let same = same.expect("diff runs");
    assert!(same.status.success(), "{same:?}");
    bench.ends(0, "ubifs check volume");
    let (list, note) = bench.ends(0, "ubifs ls volume");
    assert!(
        list.lines().all(|name| name.len() > 24),
        "names in letters: {list}"
    );
    assert!(note.contains("--key FILE opens them"), "{note}");
    let (_, losses) = bench.ends(1, "ubifs extract volume -o closed");
    let lost = losses
        .lines()
        .filter(|line| line.contains("descriptor 00112233aabbccdd"));
    assert_eq!(lost.count(), 3, "two files and a link: {losses}");
    fs::write(bench.path("short"), [1; 8]).expect("written");
    let (_, refused) = bench.ends(2, "ubifs ls --key short volume");
    assert!(refused.contains("16 to 64 bytes, this has 8"), "{refused}");
}
