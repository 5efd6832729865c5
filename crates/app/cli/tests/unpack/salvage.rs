//! `tidegate unpack --salvage` and `--deleted`: volumes whose index does not survive.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nand::FileNand;
use serde_json::Value;
use ubi::{AttachOptions, Volume, VolumeId, scan};
use ubifs::format::ROOT_INODE;
use ubifs::mkfs::Time;
use ubifs::{NewFile, OpenOptions, Writer};

use crate::parts::{BLOCK, PAGE, Parts, done, noise, text, tidegate};

/// The LEBs of the file system `conf`, as offsets in the second image.
fn lebs(image: &[u8]) -> impl Iterator<Item = usize> {
    let headers =
        (0..image.len() / BLOCK).filter(move |block| image[block * BLOCK + PAGE..].starts_with(b"UBI!"));
    headers.map(|block| block * BLOCK + 2 * PAGE)
}

/// Spoils the index nodes: those of the type 9.
fn spoil_index(image: &mut [u8]) -> usize {
    let mut spoiled = 0;
    let places: Vec<usize> = lebs(image).collect();
    for leb in places {
        for at in (leb..leb + BLOCK - 2 * PAGE).step_by(8) {
            if image[at..].starts_with(&[0x31, 0x18, 0x10, 0x06]) && image[at + 20] == 9 {
                image[at + 30] ^= 0x55;
                spoiled += 1;
            }
        }
    }
    spoiled
}

#[test]
fn a_volume_without_its_index_is_salvaged_and_every_guess_is_a_line() {
    let parts = Parts::make();
    let mut image = parts.second.clone();
    assert!(spoil_index(&mut image) > 0);
    let (output, _) = parts.unpack(&image, &[]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("--salvage may get more"), "{message}");
    let (output, out) = parts.unpack(&image, &["--salvage", "--json"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(!message.contains("--salvage may get more"), "{message}");
    parts.check_tree("conf", &out.join("1002/conf"));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let guesses = report["parts"][0]["volumes"][0]["guesses"]
        .as_array()
        .expect("guesses");
    assert!(!guesses.is_empty(), "{report}");
    for guess in guesses {
        let line = format!("guess: 1002/conf: {}", guess.as_str().expect("text"));
        assert!(message.contains(&line), "{message}");
    }
}

#[test]
fn a_sound_volume_is_salvaged_without_a_guess() {
    let parts = Parts::make();
    let (output, out) = parts.unpack(&parts.second, &["--salvage", "--deleted"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*message), (Some(0), ""));
    parts.check_tree("conf", &out.join("1002/conf"));
    assert!(!out.join("1002/conf.deleted").exists());
}

#[test]
fn a_deleted_file_is_written_beside_the_others() {
    let parts = Parts::make();
    let chip = parts.path("chip");
    fs::write(&chip, vec![0xFF; 96 * BLOCK]).expect("written");
    let (chip, tree) = (text(&chip), parts.path("conf"));
    done(&["ubi", "format", chip, "--page", "2k", "--block", "128k"]);
    done(&["ubi", "mkvol", chip, "-N", "conf", "-S", "60"]);
    done(&["ubifs", "mkfs", "-r", text(&tree), chip]);
    let nand = FileNand::open(chip.as_ref(), nand::Access::ReadWrite, None).expect("a chip");
    let scanned = scan(nand, AttachOptions::linux(ubi::Access::ReadWrite)).expect("it is UBI");
    let ubi = scanned.attach().expect("it is UBI");
    let volume: Arc<dyn Volume> = Arc::new(ubi.open(VolumeId(0)).expect("there is one"));
    let mut writer = Writer::open(volume, OpenOptions::standard()).expect("a file system");
    let now = Time {
        seconds: 1_700_000_000,
        nanoseconds: 0,
    };
    let file = NewFile {
        mode: 0o100_644,
        user: 0,
        group: 0,
        data: Vec::new(),
    };
    let inode = writer
        .create(ROOT_INODE, b"removed", &file, now)
        .expect("there is room");
    writer.write(inode, 0, &[7; 9000], now).expect("there is room");
    writer.fsync().expect("the chip takes it");
    writer.unlink(ROOT_INODE, b"removed", now).expect("it is there");
    writer.close().expect("it unmounts");
    drop((writer, ubi));
    let (output, out) = parts.unpack(&fs::read(chip).expect("readable"), &["--deleted", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let part = out.join(report["parts"][0]["folder"].as_str().expect("a folder"));
    parts.check_tree("conf", &part.join("conf"));
    assert!(!part.join("conf/removed").exists());
    let found = fs::read(part.join("conf.deleted/removed")).expect("the deleted file");
    assert_eq!(found, vec![7; 9000]);
    let deleted = &report["parts"][0]["volumes"][0]["deleted"];
    assert_eq!(deleted["files"].as_u64(), Some(1), "{report}");
    assert_eq!(report["complete"], true, "{report}");

    // The tree has 9 files and folders, that of deleted files 2.
    let dump = fs::read(chip).expect("readable");
    let (output, _) = parts.unpack(&dump, &["--deleted", "--json", "--max-files", "10"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("removed: this and all that follows is left out"),
        "{message}"
    );
    assert!(!part.join("conf.deleted/removed").exists());
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(
        (output.status.code(), &report["complete"]),
        (Some(1), &Value::Bool(false)),
        "{report}"
    );
}

/// The files below a folder with their content.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(next).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => pending.push(path),
                false => {
                    let content = fs::read(&path).expect("readable");
                    found.insert(path.strip_prefix(folder).expect("below it").to_owned(), content);
                }
            }
        }
    }
    found
}

/// Without parity the pages of a missing member are holes: files without a page there are right, and other ones are told.
#[test]
fn an_array_without_a_member_is_salvaged_and_its_holes_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("tree/sub")).expect("made");
    for number in 0..60 {
        let content = noise(number % 12 * 700, u64::try_from(number).expect("small"));
        fs::write(path(&format!("tree/sub/file-{number}")), content).expect("made");
    }
    let members: Vec<PathBuf> = (0..4).map(|member| path(&format!("m{member}"))).collect();
    for member in &members {
        fs::write(member, vec![0xFF; 40 * BLOCK]).expect("written");
    }
    let names: Vec<&str> = members.iter().map(|member| text(member)).collect();
    let all = names.join(",");
    done(&[
        "ubi", "format", &all, "--page", "2k", "--block", "128k", "--label", "media",
    ]);
    done(&["ubifs", "mkfs", "-r", text(&path("tree")), &all]);
    let contents: BTreeSet<Vec<u8>> = files(&path("tree")).into_values().collect();
    for lost in 0..4 {
        let rest: Vec<&str> = (0..4)
            .filter(|member| *member != lost)
            .map(|member| names[member])
            .collect();
        let rest = rest.join(",");
        let refused = tidegate(&["ubifs", "extract", &rest, "-o", text(&path("none"))]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(message.contains("--salvage"), "{message}");
        let out = path(&format!("out-{lost}"));
        let output = tidegate(&["ubifs", "extract", "--salvage", &rest, "-o", text(&out)]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        let line = format!("array media: member {lost} of 4 is missing");
        assert!(message.contains(&line), "{message}");
        // Names may be lost with their pages: contents tell which files are right.
        let found = files(&out);
        let (right, wrong): (Vec<_>, Vec<_>) =
            found.values().partition(|content| contents.contains(*content));
        let inodes = message
            .split("inode ")
            .skip(1)
            .filter_map(|rest| rest.split(':').next());
        let told: BTreeSet<&str> = inodes.collect();
        assert!(right.len() >= 12, "{lost}: {} right: {message}", right.len());
        assert!(
            wrong.len() <= told.len(),
            "{lost}: {} wrong: {message}",
            wrong.len()
        );
    }
    // One member is a rest as well.
    let output = tidegate(&["ubifs", "ls", "--salvage", names[2]]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("array media: member 3 of 4 is missing"),
        "{message}"
    );
    // A member that can't be read is missing, too.
    fs::write(&members[1], [0xFF; 4096]).expect("written");
    let output = tidegate(&["ubifs", "ls", "--salvage", &all]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("array media: member 1 of 4 is missing"),
        "{message}"
    );
}
