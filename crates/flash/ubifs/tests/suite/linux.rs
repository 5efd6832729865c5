//! Linux as the reference, in the lab guest: it writes, its power is cut, we read the flash in that state, then Linux
//! recovers it. Our reading must equal the recovery in every file, attribute and time; our checker and the stock
//! fsck.ubifs must find no fault.
//!
//! `TIDEGATE_UBIFS_CUTS=N`: N cuts at points derived from their numbers, instead of one (12 with `TIDEGATE_FULL`).
//! `TIDEGATE_UBIFS_MOMENTS=N`: N snapshots during a load (50 with `TIDEGATE_FULL`).
//! `TIDEGATE_UBIFS_KEEP=FOLDER`: keeps the images, and the listings of what Linux recovered, for other tools.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::support::lab_lines::{Lines, assert_same, escaped, lines, tree_of};
use crate::support::linux::{Bench, Load, dump, open, recovered, volume};
use crate::support::shown::shown_by;
use testkit::lab::{Fsck, Guest, Job};
use ubifs::format::{EntryKind, InodeNumber, ROOT_INODE};
use ubifs::{MasterKey, Ubifs};

const CHIP_BYTES: u64 = 32 << 20;

fn setting(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

/// Our listing of the chip, after both checkers found no fault.
fn read_and_check(bench: &Bench, what: &str) -> Lines {
    let ubifs = open(bench.chip.path());
    assert!(ubifs.findings().is_empty(), "{what}: {:?}", ubifs.findings());
    let volume = volume(bench.chip.path());
    let report = ubifs::check::check(&*volume);
    let found: Vec<_> = report
        .findings
        .iter()
        .map(|finding| format!("{finding:?}"))
        .collect();
    assert!(found.is_empty(), "{what}: {}", found.join("\n"));
    assert!(report.counts.files > 0, "{what}: the checker saw no file");
    if let Ok(fsck) = Fsck::available() {
        let (path, geometry) = (bench.folder().join("volume"), volume.geometry());
        dump(&*volume, &path);
        let report = fsck.check(&path, geometry.leb_bytes, geometry.min_io_bytes);
        let report = report.expect("fsck.ubifs runs");
        assert!(report.clean, "{what}: {}", report.text);
        fs::remove_file(path).expect("it was made");
    }
    let tree = tree_of(&ubifs);
    assert_same(&shown_by(ubifs), &tree, &format!("{what}: as a mount shows it"));
    tree
}

#[test]
fn files_that_were_synced_and_never_committed_are_all_there_after_a_power_cut() {
    if testkit::left_to_full("it takes a minute of a guest") {
        return;
    }
    let Some(bench) = Bench::new("synced", CHIP_BYTES) else {
        return;
    };
    let load = r#"python3 -c '
import os
def put(folder, count, sync):
    os.makedirs(folder)
    for n in range(count):
        handle = os.open(f"{folder}/{n}", os.O_CREAT | os.O_WRONLY)
        os.write(handle, bytes([n % 251]) * (100 + 37 * n % 9000))
        sync and os.fsync(handle)
        os.close(handle)
put("base", 100, False)
os.sync()
put("synced", 500, True)
os.mknod("device", 0o020644, os.makedev(5, 1)); os.mkfifo("fifo"); os.symlink("base/1", "link")
os.setxattr("base/2", "user.colour", b"blue\0ish"); os.setxattr("base", "trusted.of-root", b"")
os.fsync(os.open(".", os.O_RDONLY))
' && lab-cut"#;
    let load = Load {
        command: load.to_owned(),
        ..Load::default()
    };
    bench.write_until_cut(&mut bench.boot(), &load);
    assert!(!open(bench.chip.path()).replay_report().was_clean);
    let ours = read_and_check(&bench, "synced");
    let synced = ours.keys().filter(|path| path.starts_with("synced/")).count();
    assert_eq!(synced, 500);
    recover_and_compare(&bench, &mut bench.boot(), &ours, "synced");
}

/// Linux recovers the chip and must list the same files. Keeps the image as it was before, if the user asks for that.
fn recover_and_compare(bench: &Bench, guest: &mut Guest, ours: &Lines, name: &str) {
    let kept = keep_folder().inspect(|folder| {
        fs::create_dir_all(folder).expect("it can be made");
        fs::copy(bench.chip.path(), folder.join(format!("{name}.img"))).expect("there is room");
    });
    let linux = recovered(guest);
    if let Some(folder) = kept {
        fs::write(folder.join(format!("{name}.txt")), &linux).expect("there is room");
    }
    assert_same(ours, &lines(&linux), name);
}

fn keep_folder() -> Option<PathBuf> {
    std::env::var_os("TIDEGATE_UBIFS_KEEP").map(PathBuf::from)
}

/// Load and cut number `cut`: repeated changes of a few files, a tree with all kinds of files, or such a tree cut
/// while it has open orphans.
fn load(cut: usize) -> Load {
    let compression = ["lzo", "zstd", "zlib", "none"][cut % 4];
    let sync = if cut.is_multiple_of(2) { "--sync" } else { "" };
    let files = 100 + cut * 37 % 400;
    let at = format!("cut_at={} torn={}", 900 + cut * 977 % 4000, cut * 700 % 2048);
    let changes = format!("lab-load . {cut} 100000 {sync} >/dev/null");
    let (flash, command) = match cut % 3 {
        0 => (at, changes),
        1 => (at, format!("lab-tree . {cut} {files} {sync} && {changes}")),
        _ => (String::new(), format!("lab-tree . {cut} {files} --sync --cut")),
    };
    Load {
        flash,
        command,
        options: format!("compr={compression}"),
    }
}

#[test]
fn whatever_a_power_cut_leaves_is_read_as_linux_recovers_it() {
    if testkit::left_to_full("it takes a minute of a guest") {
        return;
    }
    let Some(bench) = Bench::new("cuts", CHIP_BYTES) else {
        return;
    };
    let cuts = setting("TIDEGATE_UBIFS_CUTS").unwrap_or(if testkit::is_full() { 12 } else { 1 });
    let mut guest = bench.boot();
    // Each boot recovers the result of the previous one and writes the next.
    for cut in 1..=cuts {
        let load = load(cut);
        bench.write_until_cut(&mut guest, &load);
        let what = format!("cut {cut}: {load:?}");
        let ours = read_and_check(&bench, &what);
        assert!(ours.len() > 10, "{what}: nothing was written before the cut");
        guest = bench.boot();
        recover_and_compare(&bench, &mut guest, &ours, &format!("cut-{cut}"));
    }
}

/// Copies the chip while Linux writes to it, as if power had gone at dozens of moments of one boot.
#[test]
#[expect(clippy::print_stderr, reason = "a test that is left out says why")]
fn whatever_is_on_the_chip_at_any_moment_is_read_as_linux_recovers_it() {
    let moments = setting("TIDEGATE_UBIFS_MOMENTS").unwrap_or(if testkit::is_full() { 50 } else { 0 });
    if moments == 0 && testkit::left_to_full("it takes minutes") {
        return;
    }
    let Some(bench) = Bench::new("moments", CHIP_BYTES) else {
        return;
    };
    let mut guest = bench.boot();
    let load = "n=0; until [ -e /host/stop ]; do n=$((n + 1)); rm -rf ./*
        lab-tree . $n 250 --sync && lab-load . $n 150 --sync >/dev/null || exit 1; done";
    let compressions = ["lzo", "zstd", "none"];
    let mut images = Vec::new();
    for (number, compression) in compressions.iter().enumerate() {
        let load = Load {
            command: load.to_owned(),
            options: format!("compr={compression}"),
            ..Load::default()
        };
        let share = moments / compressions.len() + usize::from(number < moments % compressions.len());
        images.extend(bench.copies_while_written(&mut guest, &load, share));
    }
    assert_eq!(images.len(), moments);
    for (number, image) in images.iter().enumerate() {
        let name = format!("moment-{number}");
        bench
            .chip
            .load(&fs::read(image).expect("it was written"))
            .expect("it fits");
        let ours = read_and_check(&bench, &name);
        recover_and_compare(&bench, &mut guest, &ours, &name);
        eprintln!("{name}: {} files, all as Linux recovers them", ours.len());
    }
}

#[test]
fn a_tree_of_30_000_files_is_read_as_linux_reads_it_unmounted_and_cut() {
    if testkit::left_to_full("it takes minutes of a guest") {
        return;
    }
    let Some(bench) = Bench::new("large", 2 * CHIP_BYTES) else {
        return;
    };
    let load = |words: &str| Load {
        command: format!("lab-tree . 1 30000 {words}"),
        ..Load::default()
    };
    let mut guest = bench.boot();
    let written = bench.write(&mut guest, &load("")).expect_success();
    let linux = written.read_text("files.txt").expect("the job wrote it");
    let ours = read_and_check(&bench, "unmounted");
    assert!(ours.len() > 27_000, "{} files", ours.len());
    assert_same(&ours, &lines(&linux), "unmounted");
    bench.write_until_cut(&mut guest, &load("--sync --cut"));
    let ours = read_and_check(&bench, "cut");
    assert!(ours.len() > 27_000, "{} files", ours.len());
    recover_and_compare(&bench, &mut bench.boot(), &ours, "large-cut");
}

/// Two directories with keys of 64 bytes, and files below them. The ioctl numbers add a key and set a policy.
const LOAD: &str = r#"python3 -c '
import fcntl, os, struct
def encrypted(folder, version, modes, key):
    os.mkdir(folder)
    handle = os.open(folder, os.O_RDONLY)
    name = b"" if version == 2 else b"tidegate"
    argument = bytearray(struct.pack("II32sII32s", version, 0, name, len(key), 0, b"") + key)
    fcntl.ioctl(handle, 0xC0506617, argument, True)
    name = bytes(argument[8:24])
    policy = struct.pack("BBBB4s16s", 2, *modes, b"", name) if version == 2 else struct.pack("BBBB8s", 0, *modes, b"tidegate")
    fcntl.ioctl(handle, 0x800C6613, policy)
    os.mkdir(f"{folder}/below")
    for length in (1, 4, 16, 17, 32, 33, 100, 149, 150, 180, 255):
        with open(f"{folder}/below/" + "n" * length, "wb") as file:
            file.write((b"text " * 5000 + os.urandom(9000))[:length * 200])
        if length < 200:
            os.symlink("t" * length, f"{folder}/link-{length}")
    os.setxattr(f"{folder}/below", "user.colour", b"blue")
    with open(f"{folder}/sparse", "wb") as file:
        file.seek(300000)
        file.write(b"end")
encrypted("version-2", 2, (1, 4, 3), bytes(range(64)))
encrypted("version-1", 1, (5, 6, 0), bytes(range(100, 164)))
os.mkdir("plain")
open("plain/file", "w").write("not encrypted")
os.sync()
'"#;

const LIST: &str = r#"
lab-chip && modprobe ubi && modprobe ubifs && ubiattach -m 0 >/dev/null || exit 2
mkdir -p /mnt/listed && mount -t ubifs -o ro ubi0_0 /mnt/listed || exit 3
cd /mnt/listed && find . -mindepth 1 -printf '%P\n' >/host/names.txt
"#;

fn paths(ubifs: &Ubifs) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    let mut pending: Vec<(InodeNumber, String)> = vec![(ROOT_INODE, String::new())];
    while let Some((directory, path)) = pending.pop() {
        for entry in ubifs.read_directory(directory).expect("names can be read") {
            let path = format!("{path}{}", escaped(&entry.name));
            if entry.kind == Some(EntryKind::Directory) {
                pending.push((entry.inode, format!("{path}/")));
            }
            paths.insert(path);
        }
    }
    paths
}

#[test]
fn what_linux_encrypts_is_read_with_its_keys_and_listed_without_as_linux_does() {
    if testkit::left_to_full("it takes a boot of the guest") {
        return;
    }
    let Some(bench) = Bench::new("encrypted", CHIP_BYTES) else {
        return;
    };
    let load = Load {
        command: LOAD.to_owned(),
        options: "compr=zstd".to_owned(),
        ..Load::default()
    };
    let mut guest = bench.boot();
    let written = bench.write(&mut guest, &load).expect_success();
    let linux = written.read_text("files.txt").expect("the job wrote it");
    let key = |from: u8| MasterKey::new((from..from + 64).collect()).expect("64 bytes");
    let keys = vec![key(0), key(100).with_descriptor(*b"tidegate")];
    let opened = || open(bench.chip.path()).with_keys(keys.clone());
    let ours = tree_of(&opened());
    assert!(ours.len() > 45, "{} files", ours.len());
    assert_same(&ours, &lines(&linux), "with keys");
    assert_same(&shown_by(opened()), &ours, "as a mount shows it");
    let listed = guest
        .run(&Job::new(LIST))
        .expect("the guest works")
        .expect_success();
    let names = listed.read_text("names.txt").expect("the job wrote it");
    let linux: BTreeSet<String> = names.lines().map(str::to_owned).collect();
    assert_eq!(paths(&open(bench.chip.path())), linux, "without keys");
}
