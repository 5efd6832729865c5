//! `tidegate ubifs mount` on images of `mkfs.ubifs`: the mount shows the files that the image was made from, as `extract`
//! does. Extended attributes, which not every `mkfs.ubifs` writes, are compared with Linux's in the tests of the crate
//! `ubifs`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::fs::{AtFlags, CWD, FileType, Mode, SeekFrom, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};
use tempfile::TempDir;

use crate::harness::{NOBODY, as_nobody, can_mount, can_mount_as_nobody, tidegate, wait_for_end};

/// A folder with an image and its mount point.
struct Scene {
    folder: TempDir,
    pid: Option<rustix::process::Pid>,
}

impl Scene {
    /// A tree with every kind of file, and a mount point. `None`, with a printed reason, if it can't be made.
    fn new() -> Option<Self> {
        if !can_mount() {
            return None;
        }
        if Command::new("mkfs.ubifs").arg("--version").output().is_err() {
            testkit::report_left_out("there is no mkfs.ubifs (apt install mtd-utils)");
            return None;
        }
        let folder = TempDir::new().expect("possible on this host");
        fs::create_dir(folder.path().join("mountpoint")).expect("possible on this host");
        make_tree(&folder.path().join("tree"));
        Some(Self { folder, pid: None })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn make_image(&self, min_io: &str, leb: &str, more: &[&str]) {
        let output = Command::new("mkfs.ubifs")
            .args(["-m", min_io, "-e", leb, "-c", "800"])
            .args(more)
            .args(["-r", &self.text("tree"), "-o", &self.text("image")])
            .output()
            .expect("possible on this host");
        assert!(output.status.success(), "{output:?}");
    }

    fn mount(&mut self, arguments: &[&str]) -> Output {
        let output = tidegate()
            .args(["ubifs", "mount", "--json"])
            .args(arguments)
            .args([self.text("image"), self.text("mountpoint")])
            .output()
            .expect("possible on this host");
        assert!(output.status.success(), "{output:?}");
        let report: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("possible on this host");
        let pid = report["pid"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(rustix::process::Pid::from_raw);
        self.pid = Some(pid.expect("the report has the daemon's pid"));
        output
    }

    fn unmount(&mut self) {
        let daemon = pidfd_open(
            self.pid.take().expect("possible on this host"),
            PidfdFlags::empty(),
        )
        .expect("possible on this host");
        let output = tidegate()
            .args(["unmount", &self.text("mountpoint")])
            .output()
            .expect("possible on this host");
        assert!(output.status.success(), "{output:?}");
        wait_for_end(&daemon);
        let table = fs::read_to_string("/proc/self/mountinfo").expect("possible on this host");
        assert!(!table.contains(&self.text("mountpoint")));
        assert_eq!(
            fs::read_dir(self.path("mountpoint"))
                .expect("possible on this host")
                .count(),
            0
        );
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.pid.is_some() {
            // Best effort: a failure here would hide the test's own message.
            let _ = tidegate()
                .args(["unmount", "--lazy", "--timeout", "10s", &self.text("mountpoint")])
                .output();
        }
    }
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| u8::try_from(at * at / 7 % 251 % (1 + at / 5000 % 9)).expect("possible on this host"))
        .collect()
}

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b/c")).expect("possible on this host");
    fs::create_dir(root.join("many")).expect("possible on this host");
    for number in 0..700 {
        fs::write(root.join(format!("many/{number}")), content(number * 13)).expect("possible on this host");
    }
    fs::write(root.join("a/large"), content(3_000_001)).expect("possible on this host");
    fs::write(root.join("a/small"), b"small\n").expect("possible on this host");
    fs::hard_link(root.join("a/small"), root.join("a/b/same")).expect("possible on this host");
    symlink("../a/small", root.join("a/b/link")).expect("possible on this host");
    fs::write(root.join("empty"), b"").expect("possible on this host");
    let sparse = File::create(root.join("sparse")).expect("possible on this host");
    // mkfs.ubifs turns blocks of zeros into holes.
    sparse
        .write_all_at(&[7; 5000], 1 << 20)
        .expect("possible on this host");
    sparse.set_len((3 << 20) + 1).expect("possible on this host");
    fs::set_permissions(root.join("a/small"), PermissionsExt::from_mode(0o4640))
        .expect("possible on this host");
    let node = |name: &str, kind, device| {
        rustix::fs::mknodat(CWD, root.join(name), kind, Mode::from_raw_mode(0o620), device)
    };
    node("fifo", FileType::Fifo, 0).expect("possible on this host");
    if node(
        "device",
        FileType::CharacterDevice,
        rustix::fs::makedev(300, 70_000),
    )
    .is_err()
    {
        testkit::report_left_out("device nodes, as this is not root");
    } else {
        std::os::unix::fs::chown(root.join("empty"), Some(12), Some(34)).expect("possible on this host");
    }
    // mkfs.ubifs stores whole seconds.
    let mut all = Vec::new();
    walk(root, &mut |path| all.push(path.to_owned()));
    for path in all.iter().rev() {
        let time = Timespec {
            tv_sec: 1_000_000_000 + i64::try_from(path.as_os_str().len()).expect("possible on this host"),
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("possible on this host");
    }
}

fn walk(path: &Path, visit: &mut dyn FnMut(&Path)) {
    visit(path);
    if fs::symlink_metadata(path)
        .expect("possible on this host")
        .is_dir()
    {
        for entry in fs::read_dir(path).expect("possible on this host") {
            walk(&entry.expect("possible on this host").path(), visit);
        }
    }
}

/// Maps each path to all visible properties of the file.
fn seen(root: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    walk(root, &mut |path| {
        let meta = fs::symlink_metadata(path).expect("possible on this host");
        let kind = meta.file_type();
        let content = match () {
            () if kind.is_file() => format!("{:08x}", hash(&fs::read(path).expect("possible on this host"))),
            () if kind.is_symlink() => fs::read_link(path)
                .expect("possible on this host")
                .display()
                .to_string(),
            () if kind.is_char_device() => meta.rdev().to_string(),
            () => String::new(),
        };
        let (links, size) = if kind.is_dir() {
            (0, 0)
        } else {
            (meta.nlink(), meta.size())
        };
        let line = format!(
            "{:o} {links} {}:{} {size} {} {content}",
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.mtime()
        );
        files.insert(
            path.strip_prefix(root)
                .expect("possible on this host")
                .display()
                .to_string(),
            line,
        );
    });
    files
}

/// 64-bit FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3)
    })
}

#[test]
fn a_mount_shows_every_file_as_it_was_and_as_extract_gives_it() {
    let Some(mut scene) = Scene::new() else { return };
    let expected = seen(&scene.path("tree"));
    assert!(expected.len() > 700, "the comparison would be of nothing");
    let kinds = [
        ("2048", "126976", "lzo"),
        ("512", "15872", "zlib"),
        ("4096", "253952", "zstd"),
        ("16384", "1015808", "none"),
    ];
    for (min_io, leb, compression) in kinds {
        let more: &[&str] = if leb == "15872" { &["-c", "6000"] } else { &[] };
        scene.make_image(min_io, leb, &[&["-x", compression], more].concat());
        scene.mount(&["-o", "ro"]);
        let mounted = seen(&scene.path("mountpoint"));
        scene.unmount();
        let out = scene.text(compression);
        let extract = tidegate()
            .args(["ubifs", "extract", &scene.text("image"), "-o", &out])
            // The tree has a device and setuid files if root made it.
            .args(rustix::process::geteuid().is_root().then_some("--preserve"))
            .output()
            .expect("possible on this host");
        assert!(extract.status.success(), "{extract:?}");
        let extracted = seen(&scene.path(compression));
        for (path, line) in &expected {
            assert_eq!(mounted.get(path), Some(line), "{compression}: {path}");
            assert_eq!(extracted.get(path), Some(line), "{compression}: {path}");
        }
        assert_eq!((mounted.len(), extracted.len()), (expected.len(), expected.len()));
    }
}

#[test]
fn holes_are_holes_and_nothing_can_be_changed() {
    let Some(mut scene) = Scene::new() else { return };
    scene.make_image("2048", "126976", &[]);
    scene.mount(&[]);
    let root = scene.path("mountpoint");
    let sparse = File::open(root.join("sparse")).expect("possible on this host");
    let seek = |from| rustix::fs::seek(&sparse, from);
    assert_eq!(seek(SeekFrom::Data(0)), Ok(1 << 20));
    assert_eq!(seek(SeekFrom::Hole(0)), Ok(0));
    assert_eq!(seek(SeekFrom::Hole(1 << 20)), Ok((1 << 20) + 8192));
    assert_eq!(seek(SeekFrom::Data((1 << 20) + 8192)), Err(Errno::NXIO));
    assert_eq!(seek(SeekFrom::Data((3 << 20) + 1)), Err(Errno::NXIO));
    assert_eq!(sparse.metadata().expect("possible on this host").blocks(), 16);
    let space = rustix::fs::statvfs(&root).expect("possible on this host");
    assert!(space.f_blocks > 100 && space.f_bfree < space.f_blocks && space.f_namemax == 255);

    let denied = |error: std::io::Error| error.raw_os_error() == Some(Errno::ROFS.raw_os_error());
    assert!(denied(File::create(root.join("new")).unwrap_err()));
    assert!(denied(fs::remove_file(root.join("empty")).unwrap_err()));
    assert!(denied(
        File::options().append(true).open(root.join("empty")).unwrap_err()
    ));
    let set = rustix::fs::setxattr(root.join("empty"), "user.a", b"b", XattrFlags::empty());
    assert_eq!(set, Err(Errno::ROFS));
    assert_eq!(
        fs::read(root.join("a/small")).expect("possible on this host"),
        b"small\n"
    );
    drop(sparse);
    scene.unmount();
}

#[test]
fn a_damaged_block_is_an_error_of_that_place_alone() {
    let Some(mut scene) = Scene::new() else { return };
    scene.make_image("2048", "126976", &["-x", "none"]);
    let image = scene.path("image");
    let mut raw = fs::read(&image).expect("possible on this host");
    let at = raw
        .windows(6)
        .position(|window| window == b"small\n")
        .expect("possible on this host");
    raw[at] ^= 1;
    // Block 100 of the large file, in the middle of the read-ahead.
    let block = &content(3_000_001)[100 * 4096..101 * 4096];
    let at = raw
        .windows(4096)
        .position(|window| window == block)
        .expect("possible on this host");
    raw[at] ^= 1;
    fs::write(&image, raw).expect("possible on this host");
    let log = scene.text("log");
    scene.mount(&["--log-file", &log]);
    let root = scene.path("mountpoint");
    let error = fs::read(root.join("a/small")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    let large = File::open(root.join("a/large")).expect("possible on this host");
    let expected = content(3_000_001);
    let mut lost = Vec::new();
    for block in 0..expected.len() / 4096 {
        let mut out = [0; 4096];
        match large.read_exact_at(
            &mut out,
            u64::try_from(block * 4096).expect("possible on this host"),
        ) {
            Ok(()) => assert!(out == expected[block * 4096..][..4096], "block {block}"),
            Err(_) => lost.push(block),
        }
    }
    assert_eq!(lost, [100]);
    assert_eq!(
        fs::read(root.join("many/500")).expect("possible on this host"),
        content(500 * 13)
    );
    drop(large);
    scene.unmount();
    let told = fs::read_to_string(&log).expect("possible on this host");
    let of_blocks: Vec<_> = told.lines().filter(|line| line.contains("LEB ")).collect();
    assert_eq!(of_blocks.len(), 2, "{told}");
}

#[test]
fn an_ordinary_user_mounts_an_image() {
    if !can_mount_as_nobody() {
        return;
    }
    let Some(scene) = Scene::new() else { return };
    scene.make_image("2048", "126976", &[]);
    fs::set_permissions(scene.folder.path(), PermissionsExt::from_mode(0o755))
        .expect("possible on this host");
    // The user may not access the folder of the built binary.
    fs::copy(env!("CARGO_BIN_EXE_tidegate"), scene.path("tidegate")).expect("possible on this host");
    std::os::unix::fs::chown(scene.path("mountpoint"), Some(NOBODY), Some(NOBODY))
        .expect("possible on this host");
    let as_nobody = |program: &str, words: &[&str]| {
        let output = as_nobody()
            .arg(program)
            .args(words)
            .output()
            .expect("possible on this host");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            output,
        )
    };
    let (program, to) = (scene.text("tidegate"), scene.text("mountpoint"));
    let mounted = as_nobody(&program, &["ubifs", "mount", &scene.text("image"), &to]);
    assert!(mounted.0, "{:?}", mounted.2);
    // The user may read the whole image, whoever owns the files in it.
    let read = as_nobody("cat", &[&format!("{to}/a/small")]);
    let unmounted = as_nobody(&program, &["unmount", &to]);
    assert_eq!((read.0, read.1.as_str()), (true, "small\n"), "{:?}", read.2);
    assert!(unmounted.0, "{:?}", unmounted.2);
}

#[test]
fn contradictory_options_are_refused_before_anything_is_mounted() {
    let Some(scene) = Scene::new() else { return };
    scene.make_image("2048", "126976", &[]);
    for (options, says) in [
        ("rw", "can only be read"),
        ("writeback=on", "goes with rw"),
        ("buffer=8m", "folders"),
        ("index_cache=x", "index_cache=x"),
        ("nonsense", "unknown"),
    ] {
        let words = [
            "ubifs",
            "mount",
            "-o",
            options,
            &scene.text("image"),
            &scene.text("mountpoint"),
        ];
        let output = tidegate().args(words).output().expect("possible on this host");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options}: {message}");
        assert!(message.contains(says), "{options}: {message}");
    }
    let (image, mountpoint) = (scene.text("image"), scene.text("mountpoint"));
    let words = ["ubifs", "mount", "--key", &image, "-o", "rw", &image, &mountpoint];
    let output = tidegate().args(words).output().expect("possible on this host");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("--key does not go with rw"), "{message}");
}
