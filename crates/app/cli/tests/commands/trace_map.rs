//! `tidegate trace map` as a program: text, JSON, exit codes. The crate `fsmap` tests the mapping itself.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

/// Makes an ext4 image with one file, without mounting it.
fn image(folder: &Path) -> Option<String> {
    let tree = folder.join("tree");
    fs::create_dir(&tree).expect("a folder can be made");
    fs::write(tree.join("notes"), vec![7; 5000]).expect("a file can be written");
    let image = folder.join("image");
    fs::File::create(&image)
        .and_then(|file| file.set_len(8 << 20))
        .expect("an image can be made");
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F", "-b", "1024", "-d"])
        .args([&tree, &image])
        .env("PATH", path)
        .status();
    made.is_ok_and(|status| status.success())
        .then(|| image.to_str().expect("temporary names are text").to_owned())
}

fn map(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["trace", "map"])
        .args(words)
        .output()
        .expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn sectors_are_listed_with_their_file_and_damage_sets_the_exit_code() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let Some(image) = image(folder.path()) else {
        testkit::report_left_out("no mkfs.ext4 with -d");
        return;
    };
    let all = map(&[&image]);
    assert_eq!(all.status.code(), Some(0), "{}", text(&all.stderr));
    let listing = text(&all.stdout);
    let line = listing
        .lines()
        .find(|line| line.ends_with(" /notes"))
        .expect("the file is listed");
    assert!(line.contains(" data "), "{line}");

    let header = listing.lines().next().expect("a header");
    assert!(header.starts_with("sectors of 512 bytes"), "{header}");

    // The sectors of one file.
    for name in ["/notes", "notes"] {
        let found = text(&map(&[&image, "--file", name]).stdout);
        assert_eq!(found.lines().skip(1).collect::<Vec<_>>(), [line], "{found}");
    }
    let absent = map(&[&image, "--file", "/absent"]);
    assert_eq!(absent.status.code(), Some(2));
    assert!(text(&absent.stderr).contains("no file /absent"));

    // Look up the same block as JSON, by its sector.
    let first = line.split('+').next().expect("a line starts with a sector");
    let one = map(&["--json", &image, first]);
    let object: serde_json::Value = serde_json::from_slice(&one.stdout).expect("one line of JSON");
    assert_eq!(object["paths"], serde_json::json!(["/notes"]));
    assert_eq!(object["type"], "data");
    assert_eq!(object["file_offset_bytes"], 0);
    assert_eq!(object["length_bytes"], 512);

    let summary = text(&map(&[&image, "--summary"]).stdout);
    assert!(summary.contains("inode table"), "{summary}");

    let file = fs::File::options()
        .write(true)
        .open(&image)
        .expect("it can be written");
    // Change the label, which the superblock's checksum covers.
    file.write_all_at(b"other", 1024 + 0x78)
        .expect("it can be written");
    let damaged = map(&[&image, first]);
    assert_eq!(damaged.status.code(), Some(1));
    assert!(
        text(&damaged.stderr).contains("superblock: expected checksum"),
        "{}",
        text(&damaged.stderr)
    );
    assert!(text(&damaged.stdout).contains("/notes"));
}

#[test]
fn files_without_a_map_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("zeros");
    fs::write(&path, vec![0; 4096]).expect("a file can be written");
    let path = path.to_str().expect("temporary names are text");
    let refused = map(&[path]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("no ext2, ext3, ext4 or FAT"),
        "{}",
        text(&refused.stderr)
    );
    assert_eq!(map(&[path, "8-7"]).status.code(), Some(2));
}
