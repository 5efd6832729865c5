//! A mount behaves like a local file system in every mode of the write buffer.
//!
//! Tests that need unsafe code (shared mappings) are left to fsx in `scripts/judges`.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::harness::Mounted;
use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, OFlags, SeekFrom, StatxFlags, XattrFlags};
use rustix::io::Errno;

/// Modes with different data paths. With a buffer, unflushed data waits half a minute.
const MODES: [&[&str]; 5] = [
    &[],
    &["--passthrough", "off", "--flush-interval", "30s"],
    &[
        "--passthrough",
        "off",
        "--flush-interval",
        "30s",
        "--direct-io",
        "off",
    ],
    &["--passthrough", "off", "--flusher", "inline"],
    &["--passthrough", "off", "--writeback", "on"],
];

fn in_each_mode(check: impl Fn(&Mounted, &Path)) {
    for mode in MODES {
        let Some(mounted) = Mounted::start(mode) else {
            return;
        };
        check(&mounted, &mounted.mountpoint());
    }
}

fn both_ways(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .expect("the file can be opened for both")
}

#[test]
fn two_appending_descriptors_lose_nothing() {
    in_each_mode(|_, root| {
        let appending = || {
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(root.join("log"))
        };
        let (mut first, mut second) = (appending().unwrap(), appending().unwrap());
        for _ in 0..100 {
            first.write_all(b"first\n").unwrap();
            second.write_all(b"other\n").unwrap();
        }
        assert_eq!(
            fs::read_to_string(root.join("log")).unwrap(),
            "first\nother\n".repeat(100)
        );
    });
}

#[test]
fn a_file_renamed_over_keeps_its_buffered_data_and_the_new_one_its_own() {
    in_each_mode(|_, root| {
        let (old, new) = (both_ways(&root.join("old")), both_ways(&root.join("new")));
        old.write_all_at(b"of the old", 0).unwrap();
        new.write_all_at(b"of the new", 0).unwrap();
        fs::rename(root.join("new"), root.join("old")).unwrap();
        assert_eq!(fs::read(root.join("old")).unwrap(), b"of the new");
        let mut kept = [0; 10];
        old.read_exact_at(&mut kept, 0).unwrap();
        assert_eq!(&kept, b"of the old");
    });
}

#[test]
fn an_unlinked_open_file_keeps_its_buffered_data() {
    in_each_mode(|_, root| {
        let file = both_ways(&root.join("gone"));
        file.write_all_at(&[3; 100_000], 0).unwrap();
        fs::remove_file(root.join("gone")).unwrap();
        file.write_all_at(&[4; 100_000], 100_000).unwrap();
        let mut kept = vec![0; 200_000];
        file.read_exact_at(&mut kept, 0).unwrap();
        assert!(kept[..100_000].iter().all(|byte| *byte == 3));
        assert!(kept[100_000..].iter().all(|byte| *byte == 4));
        assert_eq!(file.metadata().unwrap().nlink(), 0);
    });
}

#[test]
fn hard_links_show_the_same_buffered_data() {
    in_each_mode(|_, root| {
        let file = both_ways(&root.join("one"));
        fs::hard_link(root.join("one"), root.join("two")).unwrap();
        file.write_all_at(b"shared", 0).unwrap();
        assert_eq!(fs::read(root.join("two")).unwrap(), b"shared");
        assert_eq!(fs::metadata(root.join("two")).unwrap().nlink(), 2);
    });
}

#[test]
fn holes_are_found_right_after_buffered_writes() {
    in_each_mode(|mounted, root| {
        let file = both_ways(&root.join("sparse"));
        file.write_all_at(&[1; 65_536], 1 << 20).unwrap();
        if mounted.report["negotiated"]["writeback"] == true {
            // The kernel queries data and holes without writing back its own dirty pages.
            file.sync_all().unwrap();
        }
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)), Ok(1 << 20));
        assert_eq!(
            rustix::fs::seek(&file, SeekFrom::Hole(1 << 20)),
            Ok((1 << 20) + 65_536)
        );
    });
}

#[test]
fn every_mode_of_fallocate_sees_buffered_data() {
    const PAGE: u64 = 4096;
    let page = |value: u8| vec![value; 4096];
    in_each_mode(|_, root| {
        let path = root.join("pages");
        let file = both_ways(&path);
        file.write_all_at(&[page(1), page(2), page(3), page(4)].concat(), 0)
            .unwrap();
        let allocate = |flags, start: u64| rustix::fs::fallocate(&file, flags, start, PAGE);
        let outcome = allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0);
        if outcome == Err(Errno::OPNOTSUPP) {
            return;
        }
        outcome.unwrap();
        assert_eq!(
            fs::read(&path).unwrap(),
            [page(0), page(2), page(3), page(4)].concat()
        );
        // Not every host file system has these.
        if allocate(FallocateFlags::ZERO_RANGE, PAGE).is_ok() {
            assert_eq!(
                fs::read(&path).unwrap(),
                [page(0), page(0), page(3), page(4)].concat()
            );
        }
        file.write_all_at(&page(5), PAGE).unwrap();
        if allocate(FallocateFlags::COLLAPSE_RANGE, 0).is_ok() {
            assert_eq!(fs::read(&path).unwrap(), [page(5), page(3), page(4)].concat());
            file.write_all_at(&page(6), 0).unwrap();
            allocate(FallocateFlags::INSERT_RANGE, PAGE).unwrap();
            assert_eq!(
                fs::read(&path).unwrap(),
                [page(6), page(0), page(3), page(4)].concat()
            );
        }
    });
}

#[test]
fn a_copied_range_has_what_was_buffered() {
    in_each_mode(|_, root| {
        let (from, to) = (both_ways(&root.join("from")), both_ways(&root.join("to")));
        from.write_all_at(&[7; 50_000], 0).unwrap();
        let (mut source, mut target) = (0, 0);
        let copied =
            rustix::fs::copy_file_range(&from, Some(&mut source), &to, Some(&mut target), 50_000).unwrap();
        assert_eq!(fs::read(root.join("to")).unwrap(), vec![7; copied]);
        assert!(copied > 0);
    });
}

#[test]
fn direct_and_cached_descriptors_see_each_others_writes() {
    in_each_mode(|_, root| {
        let cached = both_ways(&root.join("file"));
        let direct = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(i32::try_from(OFlags::DIRECT.bits()).unwrap())
            .open(root.join("file"))
            .unwrap();
        let mut memory = vec![8_u8; 3 * 4096];
        let start = memory.as_ptr().align_offset(4096);
        let aligned = &mut memory[start..start + 4096];
        direct.write_all_at(aligned, 0).unwrap();
        let mut seen = vec![0; 4096];
        cached.read_exact_at(&mut seen, 0).unwrap();
        assert_eq!(seen, vec![8; 4096]);
        cached.write_all_at(&[9; 4096], 0).unwrap();
        direct.read_exact_at(aligned, 0).unwrap();
        assert_eq!(aligned, &[9; 4096][..]);
    });
}

#[test]
fn whole_file_locks_exclude_each_other_within_the_mount() {
    in_each_mode(|_, root| {
        let (first, second) = (both_ways(&root.join("locked")), both_ways(&root.join("locked")));
        rustix::fs::flock(&first, FlockOperation::LockExclusive).unwrap();
        let refused = rustix::fs::flock(&second, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(refused, Err(Errno::WOULDBLOCK));
        drop(first);
        // Blocks, because a program started by another test may briefly hold a copy of the first descriptor.
        rustix::fs::flock(&second, FlockOperation::LockExclusive).unwrap();
    });
}

#[test]
fn names_of_any_bytes_and_255_of_them_come_back() {
    let longest = vec![b'n'; 255];
    in_each_mode(|_, root| {
        for name in [&b"\xff\xfe\n \x01"[..], &longest] {
            let name = OsStr::from_bytes(name);
            fs::write(root.join(name), "x").unwrap();
            let listed = fs::read_dir(root)
                .unwrap()
                .any(|entry| entry.unwrap().file_name() == name);
            assert!(listed, "{name:?}");
        }
        let too_long = fs::write(root.join(OsStr::from_bytes(&[b'n'; 256])), "x").unwrap_err();
        assert_eq!(too_long.raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));
    });
}

#[test]
fn data_past_four_gib_of_a_sparse_file_is_kept() {
    const END: u64 = 5 << 30;
    in_each_mode(|mounted, root| {
        let file = both_ways(&root.join("large"));
        file.write_all_at(b"far", END - 3).unwrap();
        file.sync_all().unwrap();
        let below = File::open(mounted.source().join("large")).unwrap();
        let mut seen = [0; 3];
        below.read_exact_at(&mut seen, END - 3).unwrap();
        assert_eq!((&seen, file.metadata().unwrap().len()), (b"far", END));
    });
}

#[test]
fn the_time_of_birth_is_that_of_the_source() {
    let born = |path: &Path| {
        let found = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), StatxFlags::BTIME).unwrap();
        (
            found.stx_mask & StatxFlags::BTIME.bits(),
            found.stx_btime.tv_sec,
            found.stx_btime.tv_nsec,
        )
    };
    in_each_mode(|mounted, root| {
        fs::write(root.join("file"), "x").unwrap();
        assert_eq!(born(&root.join("file")), born(&mounted.source().join("file")));
    });
}

#[test]
fn extended_attributes_are_those_of_the_source() {
    in_each_mode(|mounted, root| {
        fs::write(root.join("file"), "x").unwrap();
        let set = rustix::fs::setxattr(root.join("file"), "user.colour", b"green", XattrFlags::empty());
        if set == Err(Errno::OPNOTSUPP) {
            return;
        }
        set.unwrap();
        let mut value = [0_u8; 16];
        let length =
            rustix::fs::getxattr(mounted.source().join("file"), "user.colour", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"green");
    });
}

#[test]
fn a_tree_without_labels_is_a_file_system_without_labels() {
    const LABEL: &str = "security.selinux";
    in_each_mode(|mounted, root| {
        fs::write(root.join("bare"), "x").unwrap();
        fs::write(mounted.source().join("labelled"), "x").unwrap();
        let set = |path: PathBuf| rustix::fs::setxattr(path, LABEL, b"label", XattrFlags::empty());
        // An ordinary user may not, and a kernel with SELinux gives labels itself.
        if Path::new("/sys/fs/selinux").exists() || set(mounted.source().join("labelled")).is_err() {
            return;
        }
        let get = |name: &str| rustix::fs::getxattr(root.join(name), LABEL, &mut [0_u8; 16][..]);
        assert_eq!(get("bare"), Err(Errno::OPNOTSUPP));
        assert_eq!(get("labelled"), Ok(5), "a label that is there is returned");
        set(mounted.source()).unwrap();
        assert_eq!(get("bare"), Err(Errno::NODATA), "a tree with labels");
        rustix::fs::removexattr(mounted.source(), LABEL).unwrap();
        assert_eq!(get("bare"), Err(Errno::OPNOTSUPP));
    });
}

#[test]
fn sixteen_files_written_at_once_are_intact() {
    in_each_mode(|_, root| {
        std::thread::scope(|scope| {
            for number in 0_u8..16 {
                scope.spawn(move || {
                    let file = File::create(root.join(number.to_string())).unwrap();
                    for record in 0..64 {
                        file.write_all_at(&vec![number; 30_000], record * 30_000).unwrap();
                    }
                });
            }
        });
        for number in 0_u8..16 {
            let content = fs::read(root.join(number.to_string())).unwrap();
            assert_eq!(content.len(), 64 * 30_000);
            assert!(content.iter().all(|byte| *byte == number), "file {number}");
        }
    });
}

#[test]
fn a_change_of_the_source_is_seen_once_the_timeouts_are_over() {
    let Some(mounted) = Mounted::start(&["--attr-timeout", "0s", "--entry-timeout", "0s"]) else {
        return;
    };
    let (above, below) = (mounted.mountpoint(), mounted.source());
    fs::write(below.join("file"), "short").unwrap();
    assert_eq!(fs::read_to_string(above.join("file")).unwrap(), "short");
    fs::write(below.join("file"), "much longer than before").unwrap();
    assert_eq!(fs::metadata(above.join("file")).unwrap().len(), 23);
    assert_eq!(
        fs::read_to_string(above.join("file")).unwrap(),
        "much longer than before"
    );
    fs::rename(below.join("file"), below.join("other")).unwrap();
    assert!(!above.join("file").exists());
    assert!(above.join("other").exists());
}

#[test]
fn the_papers_table_of_backing_writes_comes_out() {
    let backing_writes = |arguments: &[&str]| {
        let mounted = Mounted::start(arguments)?;
        // Use a separate program: programs started by other tests would close copies of this process's descriptor, and each
        // close is a flush. dd's buffer is page-aligned, so direct I/O splits no record further.
        let mut target = std::ffi::OsString::from("of=");
        target.push(mounted.mountpoint().join("stream"));
        let written = std::process::Command::new("dd")
            .arg(target)
            .args(["if=/dev/zero", "bs=512k", "count=64", "conv=fsync", "status=none"])
            .status();
        assert!(written.unwrap().success());
        mounted.stats()["backing"]["writes"].as_u64()
    };
    let plain = ["--passthrough", "off", "--flusher", "off"];
    let Some(small) = backing_writes(&[&plain[..], &["--io-unit", "4k"]].concat()) else {
        return;
    };
    // 32 MiB, a sixteenth of the paper's file.
    assert_eq!(small, 131_072 / 16);
    assert_eq!(
        backing_writes(&[&plain[..], &["--io-unit", "512k"]].concat()),
        Some(1024 / 16)
    );
    let buffered = backing_writes(&["--passthrough", "off", "--flush-interval", "30s"]).unwrap();
    assert!(buffered <= 256 / 16, "{buffered}");
}

/// Regression: a refused open for reading with `O_TRUNC` had already truncated the program, which died of SIGBUS.
#[test]
fn a_running_program_is_not_truncated_by_an_open_that_is_refused() {
    for mode in MODES {
        let flags: Vec<&str> = mode.iter().copied().chain(["-o", "exec"]).collect();
        let Some(mounted) = Mounted::start(&flags) else {
            return;
        };
        let program = mounted.mountpoint().join("program");
        // By another process: children that other tests start inherit this one's descriptors until they execute.
        let copied = std::process::Command::new("cp")
            .arg("/bin/sleep")
            .arg(&program)
            .status();
        assert!(copied.unwrap().success());
        let length = fs::metadata(&program).unwrap().len();
        let mut running = std::process::Command::new(&program).arg("60").spawn().unwrap();
        let opened = rustix::fs::open(
            &program,
            OFlags::RDONLY | OFlags::TRUNC,
            rustix::fs::Mode::empty(),
        );
        let state = running.try_wait().unwrap();
        running.kill().unwrap();
        running.wait().unwrap();
        assert_eq!(opened.err(), Some(Errno::TXTBSY), "{mode:?}");
        assert_eq!(state, None, "{mode:?}");
        assert_eq!(fs::metadata(&program).unwrap().len(), length, "{mode:?}");
    }
}
