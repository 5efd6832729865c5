//! A synchronous source: files and folders with the attributes `S` and `D` of chattr(1), and file systems mounted with
//! `sync` or `dirsync`. Counts flushes of the source's device.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;

use testkit::Ext4;

use crate::harness::Mounted;

const WRITES: u64 = 20;

const MODES: [&[&str]; 7] = [
    &[],
    &["--passthrough", "off"],
    &["--passthrough", "off", "--flusher", "inline"],
    &["--passthrough", "off", "--flusher", "off"],
    &["--passthrough", "off", "--direct-io", "on"],
    &["--passthrough", "off", "--direct-io", "off"],
    &["--passthrough", "off", "--writeback", "on"],
];

/// `None`, with a printed reason, without root, a loop device or ext4.
fn ext4(options: &str) -> Option<Ext4> {
    let made = Ext4::mounted_with(64, options);
    made.map_err(|reason| testkit::report_left_out(&reason)).ok()
}

fn mount(ext4: &Ext4, mode: &[&str]) -> Option<Mounted> {
    let shows_ext4 = |source: &Path| {
        fs::remove_dir(source).expect("it is empty");
        symlink(ext4.folder(), source).expect("a temporary folder takes links");
    };
    Mounted::start_over(shows_ext4, mode)
}

fn chattr(attribute: &str, path: &Path) {
    let output = Command::new("chattr").arg(attribute).arg(path).output();
    let output = output.expect("e2fsprogs are there, as mkfs.ext4 was");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    let opened = options.write(true).create(true).truncate(false).open(path);
    opened.expect("a file in the mount")
}

/// Number of device flushes while a descriptor writes block after block.
fn flushes(ext4: &Ext4, file: &File) -> u64 {
    let before = ext4.flushes();
    for number in 0..WRITES {
        file.write_all_at(&[7; 4096], number * 4096)
            .expect("there is room");
    }
    ext4.flushes() - before
}

#[test]
fn each_write_to_a_file_with_the_attribute_s_is_synced_in_every_mode() {
    for mode in MODES {
        let Some(ext4) = ext4("async") else {
            return;
        };
        let folder = ext4.folder().join("folder");
        fs::create_dir(&folder).unwrap();
        chattr("+S", &folder);
        File::create(ext4.folder().join("old")).unwrap();
        chattr("+S", &ext4.folder().join("old"));
        let Some(mounted) = mount(&ext4, mode) else {
            return;
        };
        for name in ["old", "folder/inherits"] {
            let file = open(&mounted.mountpoint().join(name));
            let flushes = flushes(&ext4, &file);
            assert!(
                flushes >= WRITES,
                "{name}: {flushes} flushes for {WRITES} writes in mode {mode:?}"
            );
        }
        let plain = flushes(&ext4, &open(&mounted.mountpoint().join("plain")));
        assert!(
            plain < WRITES,
            "plain: {plain} flushes for {WRITES} writes in mode {mode:?}"
        );
    }
}

#[test]
fn each_write_is_synced_where_the_source_is_mounted_with_sync() {
    for mode in MODES {
        let Some(ext4) = ext4("sync") else {
            return;
        };
        let Some(mounted) = mount(&ext4, mode) else {
            return;
        };
        let flushes = flushes(&ext4, &open(&mounted.mountpoint().join("file")));
        assert!(
            flushes >= WRITES,
            "{flushes} flushes for {WRITES} writes in mode {mode:?}"
        );
    }
}

/// Skips `writeback=on`, where the kernel decides when the file is opened.
#[test]
fn the_attribute_s_set_through_the_mount_holds_at_once_for_open_files() {
    for mode in MODES {
        if mode.contains(&"--writeback") {
            continue;
        }
        let Some(ext4) = ext4("async") else {
            return;
        };
        let Some(mounted) = mount(&ext4, mode) else {
            return;
        };
        let path = mounted.mountpoint().join("file");
        let file = open(&path);
        for (attribute, is_synced) in [("-S", false), ("+S", true), ("-S", false)] {
            chattr(attribute, &path);
            let flushes = flushes(&ext4, &file);
            assert_eq!(
                flushes >= WRITES,
                is_synced,
                "{attribute}: {flushes} flushes for {WRITES} writes in mode {mode:?}"
            );
        }
    }
}

/// Each name change covered by `dirsync` (mount(8)), with its number of device flushes.
fn name_changes(ext4: &Ext4, folder: &Path) -> Vec<(&'static str, u64)> {
    fs::create_dir(folder.join("from")).unwrap();
    fs::create_dir(folder.join("to")).unwrap();
    let at = |name: &str| folder.join(name);
    let mkdir_at = |name: &str| fs::create_dir(at(name));
    let mknod_at = |name: &str| {
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        Ok(rustix::fs::mknodat(rustix::fs::CWD, at(name), kind, mode, 0)?)
    };
    let steps: [(&str, &dyn Fn() -> std::io::Result<()>); 9] = [
        ("create", &|| File::create(at("from/file")).map(drop)),
        ("mkdir", &|| mkdir_at("from/folder")),
        ("mknod", &|| mknod_at("from/fifo")),
        ("symlink", &|| symlink("file", at("from/symlink"))),
        ("link", &|| fs::hard_link(at("from/file"), at("from/link"))),
        ("rename", &|| fs::rename(at("from/link"), at("from/moved"))),
        ("rename to another folder", &|| {
            fs::rename(at("from/moved"), at("to/moved"))
        }),
        ("unlink", &|| fs::remove_file(at("to/moved"))),
        ("rmdir", &|| fs::remove_dir(at("from/folder"))),
    ];
    let flushes = steps.map(|(name, step)| {
        let before = ext4.flushes();
        step().unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, ext4.flushes() - before)
    });
    flushes.to_vec()
}

#[test]
fn changes_of_names_are_synced_where_the_source_or_the_mount_asks_for_it() {
    for (source, attribute, mode) in [
        ("dirsync", None, &[][..]),
        ("sync", None, &[]),
        ("async", Some("+D"), &[]),
        ("async", Some("+S"), &["--passthrough", "off"]),
        ("async", None, &["-o", "dirsync"]),
        ("async", None, &["-o", "dirsync", "--passthrough", "off"]),
        ("async", None, &["-o", "sync"]),
    ] {
        let Some(ext4) = ext4(source) else {
            return;
        };
        if let Some(attribute) = attribute {
            chattr(attribute, ext4.folder());
        }
        let Some(mounted) = mount(&ext4, mode) else {
            return;
        };
        for (name, flushes) in name_changes(&ext4, &mounted.mountpoint()) {
            assert!(
                flushes > 0,
                "{name}: not synced; source {source} {attribute:?}, mount {mode:?}"
            );
        }
        assert_eq!(ext4.after_power_cut(Path::new("from/file")), Some(Vec::new()));
        assert_eq!(ext4.after_power_cut(Path::new("to/moved")), None);
    }
}

#[test]
fn a_mount_with_sync_syncs_sizes_attributes_and_copies_and_no_others_do() {
    for (option, is_synced) in [("async", false), ("dirsync", false), ("sync", true)] {
        let Some(ext4) = ext4("async") else {
            return;
        };
        let Some(mounted) = mount(&ext4, &["-o", option]) else {
            return;
        };
        let path = mounted.mountpoint().join("file");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        file.write_all_at(&[7; 10_000], 0).unwrap();
        file.sync_all().unwrap();
        let no_flags = rustix::fs::XattrFlags::empty();
        let other = open(&mounted.mountpoint().join("other"));
        other.sync_all().unwrap();
        let steps: [(&str, &dyn Fn() -> std::io::Result<()>); 7] = [
            ("copy", &|| {
                let copied = rustix::fs::copy_file_range(&file, None, &other, None, 4096)?;
                assert_eq!(copied, 4096);
                Ok(())
            }),
            ("ftruncate", &|| file.set_len(5000)),
            ("truncate", &|| {
                rustix::fs::ftruncate(File::options().write(true).open(&path)?, 100)?;
                Ok(())
            }),
            ("open that truncates", &|| File::create(&path).map(drop)),
            ("setxattr", &|| {
                Ok(rustix::fs::setxattr(&path, "user.name", b"value", no_flags)?)
            }),
            ("removexattr", &|| {
                Ok(rustix::fs::removexattr(&path, "user.name")?)
            }),
            ("setxattr of a folder", &|| {
                Ok(rustix::fs::setxattr(
                    mounted.mountpoint(),
                    "user.name",
                    b"value",
                    no_flags,
                )?)
            }),
        ];
        for (name, step) in steps {
            let before = ext4.flushes();
            step().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(ext4.flushes() > before, is_synced, "{name} with -o {option}");
        }
    }
}
