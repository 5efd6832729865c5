//! `tidegate ubifs mkfs` as a program: other commands read its files, UBI images and volumes.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use tempfile::TempDir;

struct Bench(TempDir);

impl Bench {
    /// A folder `tree` with some files.
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).expect("made");
        fs::write(tree.join("a/b/file"), vec![0x5A; 100_000]).expect("made");
        fs::write(tree.join("a/small"), b"small\n").expect("made");
        symlink("a/small", tree.join("link")).expect("made");
        fs::write(
            folder.path().join("table"),
            "/dev d 755 0 0\n/dev/tty c 620 7 5 4 0 0 1 2\n",
        )
        .expect("made");
        Self(folder)
    }

    fn run(&self, words: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(words)
            .current_dir(&self.0)
            .env("SOURCE_DATE_EPOCH", "1000000000")
            .output()
            .expect("the program runs")
    }

    fn done(&self, words: &str) -> String {
        let output = self.run(&words.split(' ').collect::<Vec<_>>());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn refused(&self, words: &str) -> String {
        let output = self.run(&words.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(2), "{words}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn assert_has_the_files(&self, image: &str) {
        assert_eq!(self.done(&format!("ubifs cat {image} a/small")), "small\n");
        assert_eq!(
            self.done(&format!("ubifs cat {image} a/b/file")),
            "Z".repeat(100_000)
        );
        let tree = self.done(&format!("ubifs tree {image}"));
        assert!(tree.contains("link"), "{tree}");
    }
}

#[test]
fn a_bare_volume_is_made_of_a_folder_and_a_device_table_and_again_with_the_same_bytes() {
    let bench = Bench::new();
    let mkfs = "ubifs mkfs -r tree -D table -U -m 2048 -e 126976 -c 200 -x zstd";
    let report = bench.done(&format!("{mkfs} --json first"));
    assert!(report.contains("\"content_bytes\":100006"), "{report}");
    bench.assert_has_the_files("first");
    let tty = bench.done("ubifs stat first dev/tty1");
    assert!(tty.contains('4') && tty.contains('7'), "{tty}");
    bench.done(&format!("{mkfs} second"));
    let bytes = |name: &str| fs::read(bench.0.path().join(name)).expect("it was made");
    assert!(bytes("first") == bytes("second"));
    let refused = bench.refused(&format!("{mkfs} first"));
    assert!(refused.contains("-y overwrites"), "{refused}");
    bench.done(&format!("{mkfs} -y first"));
}

#[test]
fn a_ubi_image_is_made_and_read() {
    let bench = Bench::new();
    bench.done("ubifs mkfs -r tree -m 2048 --peb 128k --peb-subpage 512 -c 200 image");
    bench.assert_has_the_files("image");
    assert!(bench.done("ubi info image").contains("root"));
}

#[test]
fn a_volume_of_a_chip_is_filled_and_not_overwritten_unasked() {
    let bench = Bench::new();
    fs::write(bench.0.path().join("chip"), vec![0xFF; 96 * 131_072]).expect("room for it");
    bench.done("ubi format chip --page 2k --block 128k --subpage 512");
    bench.done("ubi mkvol chip -N data -S 60");
    bench.done("ubifs mkfs -r tree chip");
    bench.assert_has_the_files("chip");
    let refused = bench.refused("ubifs mkfs chip");
    assert!(refused.contains("holds something"), "{refused}");
    bench.done("ubifs mkfs -y chip");
    assert!(!bench.done("ubifs tree chip").contains("link"));
}

#[test]
fn options_that_contradict_one_another_say_what_can_be() {
    let bench = Bench::new();
    for (words, says) in [
        ("-m 2048 -e 126976 out", "-c"),
        ("-m 2000 -e 126976 -c 100 out", "power of two"),
        ("-m 2048 -e 126976 -c 12 out", "need"),
        ("-m 2048 -e 4096 -c 100 out", "15360"),
        ("-m 2048 -e 126976 -c 100 -f 2 out", "fanout"),
        ("-m 2048 -e 126976 -c 100 -j 1000 out", "journal"),
        ("-m 2048 -e 126976 -c 100 -r missing out", "missing"),
    ] {
        let refused = bench.refused(&format!("ubifs mkfs {words}"));
        assert!(refused.contains(says), "{words}: {refused}");
        assert!(!bench.0.path().join("out").exists() && !bench.0.path().join("out.volume.partial").exists());
    }
}

/// UBIFS of Linux has no handler for `system.posix_acl_access`: an ACL in the image would be neither shown nor obeyed.
#[test]
fn acls_that_are_left_out_are_counted() {
    let bench = Bench::new();
    let made = bench.run(&words("ubifs mkfs -m 512 -e 15872 -c 100 -r tree --json none"));
    assert!(made.stderr.is_empty(), "{made:?}");
    let entry = |tag: u16, permissions: u16, id: u32| {
        [
            &tag.to_le_bytes()[..],
            &permissions.to_le_bytes(),
            &id.to_le_bytes(),
        ]
        .concat()
    };
    let nobody = u32::MAX;
    let acl = [
        2_u32.to_le_bytes().to_vec(),
        entry(1, 6, nobody),
        entry(2, 4, 1000),
        entry(4, 4, nobody),
        entry(16, 4, nobody),
        entry(32, 4, nobody),
    ];
    let file = bench.0.path().join("tree/a/small");
    rustix::fs::setxattr(
        &file,
        "system.posix_acl_access",
        &acl.concat(),
        rustix::fs::XattrFlags::empty(),
    )
    .expect("temporary folders have ACLs");
    let made = bench.run(&words("ubifs mkfs -m 512 -e 15872 -c 100 -r tree --json one"));
    let message = String::from_utf8_lossy(&made.stderr);
    assert_eq!(made.status.code(), Some(0), "{message}");
    assert!(
        message.contains("1 extended attributes are left out, such as ACLs"),
        "{message}"
    );
    let report: serde_json::Value = serde_json::from_slice(&made.stdout).expect("a report");
    assert_eq!(report["xattrs_left_out"].as_u64(), Some(1), "{report}");
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}
