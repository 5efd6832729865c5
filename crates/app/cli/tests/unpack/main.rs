//! `tidegate unpack` as a program: dumps of several partitions, with everything around and inside of them that real dumps
//! have. All images are made by the commands of this program, which equal those of mtd-utils byte by byte.

#[path = "../../../../flash/nand/tests/ecc/controllers.rs"]
mod controllers;
mod ecc;
#[path = "../../../../flash/nand/tests/ecc/encoder.rs"]
mod encoder;
mod large;
mod parts;
mod salvage;
mod truth;
mod ubireader;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use parts::{BLOCK, NOISE, PAGE, Parts, done, noise, text, tidegate, ubi, volume};

/// Pages with OOB areas behind them.
fn with_oob(dump: &[u8], page: usize, oob: usize) -> Vec<u8> {
    let pages = dump.chunks(page);
    pages
        .flat_map(|page| page.iter().copied().chain(std::iter::repeat_n(0xA7, oob)))
        .collect()
}

#[test]
fn all_partitions_volumes_and_files_are_found_whatever_is_around_them() {
    let parts = Parts::make();
    let dump = parts.dump();
    let report = parts.check_whole(&dump);
    let list = report["parts"].as_array().expect("parts");
    assert_eq!(list.len(), 2);
    assert_eq!(list[0]["offset"].as_u64(), u64::try_from(NOISE).ok());
    assert_eq!(
        (list[0]["image_sequence"].as_u64(), list[0]["oob_bytes"].as_u64()),
        (Some(1001), Some(0))
    );
    let kinds: Vec<_> = report["areas"]
        .as_array()
        .expect("areas")
        .iter()
        .map(|area| &area["content"])
        .collect();
    assert_eq!(kinds, ["other", "erased"]);

    // A tail that is no whole block, and a beginning that is none.
    let mut tailed = dump.clone();
    tailed.extend(noise(777, 4));
    parts.check_whole(&tailed);
    parts.check_whole(&dump[1000..]);
    parts.check_whole(&tailed[1001..]);

    let oob = with_oob(&dump, PAGE, 64);
    let report = parts.check_whole(&oob);
    let shape = &report["parts"][0];
    assert_eq!(
        (shape["page_bytes"].as_u64(), shape["oob_bytes"].as_u64()),
        (Some(2048), Some(64))
    );
    assert_eq!(shape["block_bytes"].as_u64(), u64::try_from(BLOCK).ok());
    parts.check_whole(&oob[1000..]);

    // A bad block in the middle: the image was written around it.
    let mut bad = dump.clone();
    let at = NOISE + 10 * BLOCK;
    bad.splice(at..at, noise(BLOCK, 5));
    let report = parts.check_whole(&bad);
    assert_eq!(report["parts"][0]["blocks"]["other"].as_u64(), Some(1));
    let mut bad = dump;
    bad.splice(at..at, vec![0; BLOCK]);
    parts.check_whole(&with_oob(&bad, PAGE, 64));
}

#[test]
fn two_copies_of_one_image_are_two_partitions() {
    let parts = Parts::make();
    let mut dump = parts.first.clone();
    dump.extend(&parts.first);
    let (output, out) = parts.unpack(&dump, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    parts.check_first(&out.join("1001"));
    parts.check_first(&out.join("1001~2"));
    // Erased blocks, and another alignment, between them.
    let mut dump = parts.first.clone();
    dump.resize(dump.len() + 3 * BLOCK + 5000, 0xFF);
    dump.extend(&parts.first);
    let (output, out) = parts.unpack(&dump, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    parts.check_first(&out.join("1001"));
    parts.check_first(&out.join("1001~2"));
}

#[test]
fn a_cut_dump_gives_the_rest_and_says_what_is_missing() {
    let parts = Parts::make();
    let dump = parts.dump();
    // In the middle of the last block: the second partition lacks a part of a LEB.
    let (output, out) = parts.unpack(&dump[..dump.len() - BLOCK / 2], &[]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("the dump lacks 65536 bytes of this block"),
        "{message}"
    );
    parts.check_first(&out.join("1001"));
    // In the first block, whose VID header is behind the cut: the copy of the volume table is there, too.
    let (output, out) = parts.unpack(&parts.first[1000..], &[]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("the dump lacks 1000 bytes of this block"),
        "{message}"
    );
    parts.check_first(&out.join("1001"));
}

#[test]
fn without_a_volume_table_the_volumes_have_numbers() {
    let parts = Parts::make();
    let mut dump = parts.first.clone();
    for block in 0..2 {
        dump[block * BLOCK + 2 * PAGE..(block + 1) * BLOCK].fill(0);
    }
    let (output, out) = parts.unpack(&dump, &[]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("neither copy of the volume table can be read"),
        "{message}"
    );
    parts.check_tree("rootfs", &out.join("1001/volume_1"));
    parts.check_tree("data", &out.join("1001/volume_2"));
    assert!(fs::read(out.join("1001/volume_0.bin")).expect("a kernel") == parts.kernel);
    // One damaged record of each copy, in different ones: nothing is lost.
    let mut dump = parts.first.clone();
    dump[2 * PAGE + 20] ^= 1;
    dump[BLOCK + 2 * PAGE + 172 + 20] ^= 1;
    let (output, out) = parts.unpack(&dump, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    parts.check_first(&out.join("1001"));
}

#[test]
fn damaged_headers_cost_their_block_at_most() {
    let parts = Parts::make();
    // An EC header: the VID header tells everything.
    let mut dump = parts.first.clone();
    dump[5 * BLOCK + 10] ^= 1;
    let (output, out) = parts.unpack(&dump, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("the EC header is damaged"),
        "{output:?}"
    );
    parts.check_first(&out.join("1001"));
    // The VID header of a LEB of the kernel.
    let mut dump = parts.first.clone();
    dump[3 * BLOCK + PAGE + 10] ^= 1;
    let (output, out) = parts.unpack(&dump, &[]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("LEB 1 is missing and reads as 0xff"),
        "{message}"
    );
    let kernel = fs::read(out.join("1001/kernel.bin")).expect("a kernel");
    assert_eq!(kernel.len(), parts.kernel.len());
    assert_eq!(kernel[..126_976], parts.kernel[..126_976]);
    assert_eq!(kernel[2 * 126_976..], parts.kernel[2 * 126_976..]);
    // A bit of its data.
    let mut dump = parts.first.clone();
    dump[3 * BLOCK + 2 * PAGE + 10] ^= 1;
    let (output, _) = parts.unpack(&dump, &[]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("LEB 1: its data has a wrong CRC"), "{message}");
}

#[test]
fn an_image_inside_of_a_volume_is_no_partition() {
    let parts = Parts::make();
    let folder = parts.folder.path();
    fs::write(folder.join("update"), &parts.second).expect("written");
    let outer = ubi(folder, "7", &[volume(folder, "update", "update", "static", 0)]);
    let (output, out) = parts.unpack(&outer, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!out.join("1002").exists(), "{output:?}");
    assert!(fs::read(out.join("7/update.bin")).expect("the image") == parts.second);
}

#[test]
fn a_bare_volume_is_unpacked_too() {
    let parts = Parts::make();
    let mut dump = noise(5001, 1);
    dump.extend(fs::read(parts.path("conf.ubifs")).expect("made"));
    dump.extend(noise(300, 2));
    let (output, out) = parts.unpack(&dump, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    parts.check_tree("conf", &out.join("ubifs-0x1389/files"));
}

#[test]
fn a_file_system_for_lebs_of_another_size_is_read_as_one_stream() {
    let parts = Parts::make();
    let folder = parts.folder.path();
    let (tree, file) = (folder.join("conf"), folder.join("other.ubifs"));
    done(&[
        "ubifs",
        "mkfs",
        "-m",
        "2048",
        "-e",
        "129024",
        "-c",
        "200",
        "-r",
        text(&tree),
        text(&file),
    ]);
    let image = ubi(folder, "7", &[volume(folder, "v", "other.ubifs", "dynamic", 0)]);
    let (output, out) = parts.unpack(&image, &[]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(message.contains("made for LEBs of 129024 bytes"), "{message}");
    parts.check_tree("conf", &out.join("7/v"));
}

#[test]
fn a_part_of_a_dump_a_pipe_and_given_geometry_work() {
    let parts = Parts::make();
    let dump = parts.dump();
    let from = (NOISE + parts.first.len()).to_string();
    let (output, out) = parts.unpack(&dump, &["--offset", &from]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!out.join("1001").exists());
    parts.check_tree("conf", &out.join("1002/conf"));
    let first = parts.first.len().to_string();
    let (output, out) = parts.unpack(&dump, &["--offset", "0x18000", "--length", &first]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!out.join("1002").exists());
    parts.check_first(&out.join("1001"));
    let shape = ["--page", "2k", "--block", "128k", "--oob", "64"];
    let (output, out) = parts.unpack(&with_oob(&dump, PAGE, 64), &shape);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    parts.check_first(&out.join("1001"));

    let out = parts.path("piped");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["unpack", "-", "-o", text(&out)])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it runs");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(&dump)
        .expect("it reads all");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    parts.check_first(&out.join("1001"));
}

#[test]
fn an_archive_holds_the_same() {
    let parts = Parts::make();
    let (image, archive, out) = (parts.path("dump"), parts.path("all.tar"), parts.path("untarred"));
    fs::write(&image, parts.dump()).expect("written");
    let output = tidegate(&["unpack", text(&image), "--tar", text(&archive)]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    fs::create_dir(&out).expect("made");
    let untar = Command::new("tar")
        .args(["-xf", text(&archive), "-C", text(&out)])
        .output()
        .expect("tar runs");
    assert!(untar.status.success(), "{untar:?}");
    parts.check_first(&out.join("1001"));
    parts.check_tree("conf", &out.join("1002/conf"));
    assert!(out.join("report.json").exists());
}

#[test]
fn a_list_writes_nothing_and_targets_are_never_overwritten() {
    let parts = Parts::make();
    let image = parts.path("dump");
    fs::write(&image, parts.dump()).expect("written");
    let output = tidegate(&["unpack", text(&image), "--list"]);
    let list = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for expected in [
        "UBI 1001 at byte 0x18000",
        "kernel (static, unknown)",
        "rootfs (dynamic, ubifs)",
        "app (dynamic, squashfs)",
    ] {
        assert!(list.contains(expected), "{list}");
    }
    let out = parts.path("used");
    fs::create_dir(&out).expect("made");
    fs::write(out.join("mine"), "x").expect("made");
    let output = tidegate(&["unpack", text(&image), "-o", text(&out)]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("not an empty folder"),
        "{output:?}"
    );
    // The new folder is as open as the umask says.
    let (output, out) = parts.unpack(&parts.dump(), &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    fs::create_dir(parts.path("usual")).expect("made");
    let mode = |path: &Path| fs::metadata(path).expect("a folder").permissions().mode();
    assert_eq!(mode(&out), mode(&parts.path("usual")));
    let too_small = parts.unpack(&parts.dump(), &["--max-size", "100k"]);
    assert_eq!(too_small.0.status.code(), Some(1), "{:?}", too_small.0);
}

#[test]
fn a_file_that_is_no_dump_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, out) = (folder.path().join("file"), folder.path().join("out"));
    for (content, expected) in [
        (noise(100_000, 1), "no UBI and no UBIFS was found"),
        (Vec::new(), "empty"),
        (vec![0xFF; 100_000], "erased"),
    ] {
        fs::write(&file, content).expect("written");
        let output = tidegate(&["unpack", text(&file), "-o", text(&out)]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(expected), "{message}");
        assert!(!out.exists());
    }
    let output = tidegate(&["unpack", text(&file)]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("-o DIRECTORY"),
        "{output:?}"
    );
    let output = tidegate(&["unpack", "/dev/zero", "-o", text(&out)]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// The names of volumes come from the dump, and so do those of the files that they become.
#[test]
fn hostile_names_of_volumes_stay_in_the_folder_and_differ() {
    use ubi::format::volume_table::{VolumeName, decode, encode};
    let parts = Parts::make();
    let mut dump = parts.first.clone();
    let limits = ubi::format::volume_table::TableLimits {
        leb_bytes: 126_976,
        min_io_bytes: 2048,
        good_pebs: 1000,
    };
    let names: [(usize, &[u8]); 4] = [
        (0, b"../../kernel"),
        (1, b"data.img"),
        (2, b"\x1b[2J/etc"),
        (5, b".."),
    ];
    for block in 0..2 {
        let at = block * BLOCK + 2 * PAGE;
        let mut table = decode(&dump[at..at + 128 * 172], &limits).expect("a table");
        for (volume, name) in names {
            let record = table[volume].as_mut().expect("a volume");
            record.name = VolumeName::new(name).expect("a name");
        }
        let raw = encode(&table);
        dump[at..at + raw.len()].copy_from_slice(&raw);
    }
    let (output, out) = parts.unpack(&dump, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!output.stdout.contains(&0x1B) && !output.stderr.contains(&0x1B));
    let entries = fs::read_dir(out.join("1001")).expect("a folder");
    let mut found: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    found.sort();
    assert_eq!(
        found,
        ["_...squashfs", "_.._.._kernel.bin", "_u001b[2J_etc", "data.img"]
    );
    parts.check_tree("rootfs", &out.join("1001/data.img"));
}
