//! The checker finds no fault in images of `mkfs.ubifs`, and reports damage with its location; the stock fsck.ubifs
//! agrees in both cases.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::image::Image;
use crate::support::patient::{Patient, judged};
use crate::support::tool::{content, has_mkfs};
use ubifs::ImageVolume;
use ubifs::check::{Area, CheckReport, check};
use ubifs::format::{Inode, InodeNumber, Key, NodeKind};

fn report(image: &Path) -> CheckReport {
    let volume = ImageVolume::open(image).expect("it can be read");
    check(&volume.expect("it has a superblock"))
}

fn told(report: &CheckReport) -> Vec<String> {
    let line = |finding: &ubifs::check::CheckFinding| {
        let path = finding
            .path
            .as_ref()
            .map(|path| String::from_utf8_lossy(path).into_owned());
        format!(
            "{:?} {path:?} {:?} {:?} {}",
            finding.area, finding.inode, finding.at, finding.fault
        )
    };
    report.findings.iter().map(line).collect()
}

fn make_tree(root: &Path) -> PathBuf {
    let tree = root.join("tree");
    fs::create_dir_all(tree.join("folder/below")).expect("made");
    for number in 0..120_usize {
        fs::write(
            tree.join(format!("folder/file-{number}")),
            content(number * 90, 4),
        )
        .expect("made");
    }
    fs::write(tree.join("large"), content(300_000, 5)).expect("made");
    fs::hard_link(tree.join("large"), tree.join("folder/below/second")).expect("made");
    std::os::unix::fs::symlink("large", tree.join("link")).expect("made");
    tree
}

/// Write unit, LEB size, further options: both models of the LPT, all compressors, several geometries.
const KINDS: [(u32, u32, &[&str]); 6] = [
    (2048, 126_976, &["-x", "none"]),
    (512, 15_872, &["-x", "zlib"]),
    (4096, 253_952, &["-x", "zstd"]),
    (16_384, 1_015_808, &["-x", "favor_lzo"]),
    (2048, 126_976, &["-x", "lzo", "-c", "300000"]),
    (8, 65_408, &["-x", "lzo", "-f", "16", "-k", "test"]),
];

#[test]
fn nothing_is_wrong_with_images_of_mkfs_and_fsck_agrees() {
    if !has_mkfs() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let tree = make_tree(folder.path());
    for (min_io, leb, more) in KINDS {
        let image = Image::make(folder.path(), &tree, min_io, leb, more);
        let report = report(&image.path);
        assert_eq!(told(&report), Vec::<String>::new(), "{min_io} {leb} {more:?}");
        let counts = report.counts;
        assert_eq!(
            (counts.directories, counts.files, counts.blocks_lost),
            (3, 122, 0),
            "{min_io} {leb} {more:?}"
        );
        assert!(counts.blocks > 200 && counts.index_nodes > 10, "{counts:?}");
        // On a volume larger than the image, fsck.ubifs reports the big model's LPT of mkfs.ubifs as corrupted.
        let is_big = more.contains(&"300000");
        if let Some(judged) = judged(&image, min_io).filter(|_| !is_big) {
            assert!(judged.clean, "{min_io} {leb} {more:?}: {}", judged.text);
        }
    }
}

/// A kind of damage, and the area in which it must be reported.
struct Case {
    what: &'static str,
    area: Area,
    damage: fn(&mut Patient),
}

const CASES: [Case; 12] = [
    Case {
        what: "a bit of a block",
        area: Area::Data,
        damage: |image| image.flip(NodeKind::Data, 60),
    },
    Case {
        what: "a bit of a name",
        area: Area::Entry,
        damage: |image| image.flip(NodeKind::Entry, 57),
    },
    Case {
        what: "a bit of an inode",
        area: Area::Inode,
        damage: |image| image.flip(NodeKind::Inode, 100),
    },
    Case {
        what: "a bit of the index",
        area: Area::Index,
        damage: |image| image.flip(NodeKind::Index, 30),
    },
    Case {
        what: "links of a file",
        area: Area::Inode,
        damage: |image| image.change(NodeKind::Inode, |node| node[92] += 1),
    },
    Case {
        what: "size of the root directory",
        area: Area::Inode,
        damage: |image| image.change_inode(InodeNumber(1), |node| node[48] ^= 8),
    },
    Case {
        what: "a file shorter than its blocks",
        area: Area::Data,
        damage: |image| {
            let number = image.image.inode_with(|inode| inode.size_bytes == 300_000);
            image.change_inode(number, |node| {
                node[48..56].copy_from_slice(&5000_u64.to_le_bytes())
            });
        },
    },
    Case {
        what: "a name of an inode that does not exist",
        area: Area::Entry,
        damage: |image| image.change(NodeKind::Entry, |node| node[42] = 9),
    },
    Case {
        what: "extended attributes that are not there",
        area: Area::Inode,
        damage: |image| image.change(NodeKind::Inode, |node| node[116] = 3),
    },
    Case {
        what: "the number of empty LEBs",
        area: Area::Space,
        damage: |image| image.change_all(NodeKind::Master, |node| node[156] ^= 1),
    },
    Case {
        what: "the sum of dirty bytes",
        area: Area::Space,
        damage: |image| image.change_all(NodeKind::Master, |node| node[89] ^= 1),
    },
    Case {
        what: "a bit of the LPT",
        area: Area::Lpt,
        damage: |image| image.flip_lpt(),
    },
];

#[test]
fn damage_is_told_with_its_place_and_fsck_finds_it_as_well() {
    if !has_mkfs() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let tree = make_tree(folder.path());
    let (min_io, leb, more) = KINDS[0];
    let good = Image::make(folder.path(), &tree, min_io, leb, more);
    assert!(judged(&good, min_io).is_none_or(|judged| judged.clean));
    for Case { what, area, damage } in CASES {
        let mut patient = Patient::of(&good);
        damage(&mut patient);
        let report = report(patient.write());
        let found = report.findings.iter().find(|finding| finding.area == area);
        let found = found.unwrap_or_else(|| panic!("{what}: {:?}", told(&report)));
        let at = found.at.unwrap_or_else(|| panic!("{what}: it has no place"));
        let places: Vec<_> = patient
            .changed
            .iter()
            .map(|at| (at / good.leb, at % good.leb))
            .collect();
        let place = (u64::from(at.leb), u64::from(at.offset));
        let is_there = places
            .iter()
            .any(|(leb, offset)| *leb == place.0 && *offset >= place.1);
        // Blocks behind the end of a file are reported at their own location.
        assert!(
            is_there || what.contains("shorter"),
            "{what}: {place:?}, damaged is {places:?}"
        );
        if let Some(judged) = judged(&patient.image, min_io) {
            // It extends such a file in memory and reports nothing.
            let is_told = what != "a file shorter than its blocks";
            assert_eq!(
                !judged.clean, is_told,
                "{what}: fsck.ubifs finds nothing: {}",
                judged.text
            );
        }
    }
}

#[test]
fn a_damaged_inode_is_told_with_the_path_of_the_file() {
    if !has_mkfs() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let tree = make_tree(folder.path());
    let (min_io, leb, more) = KINDS[0];
    let mut image = Image::make(folder.path(), &tree, min_io, leb, more);
    let number = image.inode_with(|inode| inode.size_bytes == 90 * 77);
    let at = image.place_of(|raw| Inode::decode(raw).is_ok_and(|inode| inode.key == Key::inode(number)));
    image.raw[at + 100] ^= 1;
    image.write();
    let report = report(&image.path);
    let finding = report
        .findings
        .iter()
        .find(|finding| finding.inode == Some(number));
    let finding = finding.unwrap_or_else(|| panic!("{:?}", told(&report)));
    assert_eq!(finding.path.as_deref(), Some(b"folder/file-77".as_slice()));
    assert_eq!(
        (report.counts.files, report.counts.files_damaged),
        (122, 1),
        "{:?}",
        told(&report)
    );
}

#[test]
fn a_change_of_an_authenticated_image_is_found_by_its_hashes_though_its_crc_is_mended() {
    if !has_mkfs() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let tree = make_tree(folder.path());
    let Some((key, certificate)) = make_key(folder.path()) else {
        return;
    };
    let words = [
        "-x",
        "lzo",
        "--hash-algo",
        "sha256",
        "--auth-key",
        &key,
        "--auth-cert",
        &certificate,
    ];
    let image = Image::make(folder.path(), &tree, 2048, 126_976, &words);
    assert_eq!(told(&report(&image.path)), Vec::<String>::new());
    let mut patient = Patient::of(&image);
    patient.change(NodeKind::Data, |node| node[70] ^= 1);
    let report = report(patient.write());
    let told = told(&report);
    assert!(told.len() == 1 && told[0].contains("hash"), "{told:?}");
}

/// A key and its certificate for signed images.
fn make_key(folder: &Path) -> Option<(String, String)> {
    let path = |name: &str| folder.join(name).display().to_string();
    let (key, certificate) = (path("key.pem"), path("certificate.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=test",
            "-keyout",
            &key,
            "-out",
            &certificate,
        ])
        .output();
    if made.as_ref().is_ok_and(|output| output.status.success()) {
        return Some((key, certificate));
    }
    testkit::report_left_out(format!("openssl makes no key: {made:?}"));
    None
}

/// The checker may share only the format and the decompressors with the file system.
#[test]
fn the_checker_does_not_use_the_file_system_that_it_judges() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/check");
    let mut files = 0;
    for entry in fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("it is there").path();
        let text = fs::read_to_string(&path).expect("it is text");
        assert_eq!(foreign(&text), Vec::<&str>::new(), "{}", path.display());
        files += 1;
    }
    assert!(files > 5, "nothing was looked at");
    assert_eq!(
        foreign("use crate::replay::replay;"),
        ["replay"],
        "the gate must be able to fail"
    );
}

fn foreign(text: &str) -> Vec<&str> {
    let parts = text.split("crate::").skip(1);
    let modules = parts.filter_map(|rest| {
        rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .next()
    });
    modules
        .filter(|module| !["format", "decompress"].contains(module))
        .collect()
}
