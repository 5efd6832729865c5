//! `--coherence`: names, attributes and listings stay in the kernel until the source changes behind the mount.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timestamps, XattrFlags};
use testkit::prng::Prng;

use super::harness::{LONG_AGO, Mounted, NOBODY, as_nobody, can_mount_as_nobody, tidegate};

/// Explicit, as the default is another one for a mount with given times.
const TOLD: [&str; 2] = ["--coherence", "auto"];
/// Far longer than any report takes, and shorter than any lifetime of what was reported.
const PATIENCE: Duration = Duration::from_secs(30);

/// A mount that watches its source. `None`, with a printed reason, if this machine has none.
fn start_told(prepare: impl FnOnce(&Path), more: &[&str]) -> Option<Mounted> {
    let mounted = Mounted::start_over(prepare, &[&TOLD, more].concat())?;
    let negotiated = &mounted.report["negotiated"];
    if negotiated["coherence"] == "watch" {
        return Some(mounted);
    }
    let reasons = negotiated["not_granted"].to_string();
    testkit::report_left_out(format!("mounts that are told of changes: {reasons}"));
    None
}

/// Requests served so far, without those of `tidegate stats` itself.
fn requests(mounted: &Mounted) -> BTreeMap<String, u64> {
    let stats = mounted.stats();
    let operations = stats["session"]["operations"].as_array().unwrap();
    let counted = operations.iter().map(|one| {
        let name = one["operation"].as_str().unwrap().to_owned();
        (name, one["count"].as_u64().unwrap())
    });
    counted
        .filter(|(name, _)| !["getxattr", "forget", "batch_forget"].contains(&name.as_str()))
        .collect()
}

/// Requests that `work` needs.
fn requests_of(mounted: &Mounted, work: impl FnOnce()) -> BTreeMap<String, u64> {
    let before = requests(mounted);
    work();
    let mut after = requests(mounted);
    for (name, count) in &mut after {
        *count -= before.get(name).copied().unwrap_or(0);
    }
    after.retain(|_, count| *count > 0);
    after
}

/// The fewest requests that `work` needs in several attempts, or the first that are at most `wanted`: another test may fill
/// the host's queue of events, and then everything is invalidated.
fn fewest_requests_of(mounted: &Mounted, wanted: u64, work: impl Fn()) -> BTreeMap<String, u64> {
    let mut fewest = requests_of(mounted, &work);
    for _ in 0..10 {
        if total(&fewest) <= wanted {
            break;
        }
        let again = requests_of(mounted, &work);
        if total(&again) < total(&fewest) {
            fewest = again;
        }
    }
    fewest
}

fn total(requests: &BTreeMap<String, u64>) -> u64 {
    requests.values().sum()
}

fn run(words: &[&str], folder: &Path) {
    let output = Command::new(words[0])
        .args(&words[1..])
        .current_dir(folder)
        .output();
    let output = output.expect("the program runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
}

const FOLDERS: u64 = 60;

fn make_tree(source: &Path) {
    for folder in 0..FOLDERS {
        let path = source.join(format!("{}/{folder}", folder % 7));
        fs::create_dir_all(&path).unwrap();
        for file in 0..6 {
            let name = path.join(format!("file {file}"));
            fs::write(&name, vec![1; 300 * file]).unwrap();
            // git reads files again that are as young as its index.
            rustix::fs::utimensat(CWD, &name, &LONG_AGO, AtFlags::empty()).unwrap();
        }
        symlink("file 0", path.join("link")).unwrap();
        // It reads the object of a young link, too.
        rustix::fs::utimensat(CWD, path.join("link"), &LONG_AGO, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

#[test]
fn a_second_walk_of_a_tree_sends_next_to_no_request() {
    let Some(mounted) = start_told(make_tree, &[]) else {
        return;
    };
    let walks = [
        &["find", ".", "-type", "f", "-size", "+1k"][..],
        &["ls", "-lR", "."],
        &["find", ".", "-name", "absent"],
    ];
    for walk in walks {
        let walk = || run(walk, &mounted.mountpoint());
        walk();
        // A listing that was read from the daemon may have changed the folder's access time.
        let second = fewest_requests_of(&mounted, FOLDERS + 7 + 8, walk);
        assert!(total(&second) <= FOLDERS + 7 + 8, "{second:?}");
        let third = fewest_requests_of(&mounted, 8, walk);
        assert!(total(&third) <= 8, "{third:?}");
    }
    let stat_absent = || {
        for number in 0..200 {
            let name = format!("absent {number}");
            assert!(fs::symlink_metadata(mounted.mountpoint().join(name)).is_err());
        }
    };
    assert!(
        total(&requests_of(&mounted, stat_absent)) >= 200,
        "the first time"
    );
    let second = fewest_requests_of(&mounted, 8, stat_absent);
    assert!(total(&second) <= 8, "names that do not exist: {second:?}");
}

#[test]
fn a_second_git_status_sends_next_to_no_request() {
    if !testkit::needs(&[testkit::Need::Program("git")]) {
        return;
    }
    let Some(mounted) = start_told(make_tree, &[]) else {
        return;
    };
    let folder = mounted.mountpoint();
    let git = |words: &[&str]| {
        let identity = [
            "git",
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "-c",
            "safe.directory=*",
        ];
        run(&[&identity, words].concat(), &folder);
    };
    git(&["init", "-q"]);
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "all"]);
    let status = || git(&["--no-optional-locks", "status", "--porcelain"]);
    status();
    status();
    let per_file = [
        "lookup",
        "getattr",
        "statx",
        "readdirplus",
        "readdir",
        "opendir",
        "open",
    ];
    let mut attempts = Vec::new();
    // As in `fewest_requests_of`.
    for _ in 0..10 {
        let again = requests_of(&mounted, status);
        let looks: u64 = per_file.iter().filter_map(|name| again.get(*name)).sum();
        // Opening and reading a dozen files of .git.
        if looks <= 50 {
            return;
        }
        attempts.push(again);
    }
    panic!("{attempts:?}");
}

/// Everything that a walk can see of a tree, except for access times.
fn look(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut seen = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let names = fs::read_dir(root.join(&folder)).map(|names| {
            let mut names: Vec<_> = names.map_while(Result::ok).map(|name| name.file_name()).collect();
            names.sort();
            names
        });
        for name in names.unwrap_or_default() {
            let path = folder.join(name);
            let full = root.join(&path);
            let Ok(meta) = fs::symlink_metadata(&full) else {
                seen.insert(path, "vanished".to_owned());
                continue;
            };
            let mut text = format!(
                "{:o} {}:{} links {} size {} mtime {}.{:09} ctime {}.{:09}",
                meta.mode(),
                meta.uid(),
                meta.gid(),
                meta.nlink(),
                meta.size(),
                meta.mtime(),
                meta.mtime_nsec(),
                meta.ctime(),
                meta.ctime_nsec(),
            );
            if meta.is_symlink() {
                text += &format!(" to {:?}", fs::read_link(&full).ok());
            } else if meta.is_file() {
                let content = fs::read(&full).ok();
                text += &format!(" content {:?}", content.map(|bytes| testkit_sum(&bytes)));
                let mut value = [0; 64];
                let length = rustix::fs::getxattr(&full, "user.test", &mut value);
                text += &format!(" attribute {:?}", length.map(|length| value[..length].to_vec()));
                let acl = rustix::fs::getxattr(&full, "system.posix_acl_access", &mut value);
                text += &format!(" acl {:?}", acl.map(|length| value[..length].to_vec()));
            }
            if meta.is_dir() {
                folders.push(path.clone());
            }
            seen.insert(path, text);
        }
    }
    for absent in ["absent", "a/absent", "b/absent", "moved in"] {
        let is_there = fs::symlink_metadata(root.join(absent)).is_ok();
        seen.insert(format!("? {absent}").into(), is_there.to_string());
    }
    seen
}

fn testkit_sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(bytes.len().try_into().unwrap(), |sum: u64, byte| {
            sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte)
        })
}

/// The tree that the changes are made to.
fn make_subject(source: &Path) {
    for folder in ["a", "b", "a/deep", "b/deep", "c"] {
        fs::create_dir_all(source.join(folder)).unwrap();
        for file in ["one", "two", "three"] {
            fs::write(
                source.join(folder).join(file),
                format!("{folder}/{file} at first"),
            )
            .unwrap();
        }
        symlink("one", source.join(folder).join("link")).unwrap();
    }
}

type Act = fn(&Path, &Path, u64) -> std::io::Result<()>;

/// Kinds of change: in the source, with a folder beside it on the same file system, and a number that is never the same.
const CHANGES: &[(&str, Act)] = &[
    ("overwrite", |at, _, number| {
        let file = OpenOptions::new().write(true).open(at.join("a/one"))?;
        file.write_all_at(&number.to_be_bytes(), 0)
    }),
    ("append", |at, _, number| {
        use std::io::Write;
        let mut file = OpenOptions::new().append(true).open(at.join("a/two"))?;
        write!(file, "{number}")
    }),
    ("truncate", |at, _, number| {
        let file = OpenOptions::new().write(true).open(at.join("b/two"))?;
        file.set_len(number % 50)
    }),
    ("write of a file that stays open", |at, _, number| {
        let file = OpenOptions::new().write(true).open(at.join("b/three"))?;
        file.write_all_at(&number.to_be_bytes(), 3)?;
        // Until the end of the test: only the write itself is reported.
        std::mem::forget(file);
        Ok(())
    }),
    ("rewrite", |at, _, number| {
        fs::write(at.join("c/one"), number.to_string())
    }),
    ("replace", |at, beside, number| {
        fs::write(beside.join("new"), format!("replaced {number}"))?;
        fs::rename(beside.join("new"), at.join("a/three"))
    }),
    ("replace within", |at, _, number| {
        fs::write(at.join("c/new"), format!("replaced {number}"))?;
        fs::rename(at.join("c/new"), at.join("c/two"))
    }),
    ("times", |at, _, number| {
        let mut times: Timestamps = LONG_AGO;
        times.last_modification.tv_sec = number.try_into().unwrap();
        Ok(rustix::fs::utimensat(
            CWD,
            at.join("b/one"),
            &times,
            AtFlags::empty(),
        )?)
    }),
    ("mode", |at, _, number| {
        let mode = 0o400 + u32::try_from(number % 8).unwrap();
        fs::set_permissions(at.join("b/one"), PermissionsExt::from_mode(mode))
    }),
    ("mode of a folder", |at, _, number| {
        let mode = 0o750 + u32::try_from(number % 8).unwrap();
        fs::set_permissions(at.join("b/deep"), PermissionsExt::from_mode(mode))
    }),
    ("owner", |at, _, number| {
        std::os::unix::fs::chown(
            at.join("b/one"),
            Some(1000 + u32::try_from(number).unwrap()),
            None,
        )
    }),
    ("group of a link", |at, _, number| {
        std::os::unix::fs::lchown(
            at.join("c/link"),
            None,
            Some(1000 + u32::try_from(number).unwrap()),
        )
    }),
    ("attribute", |at, _, number| {
        let value = number.to_be_bytes();
        Ok(rustix::fs::setxattr(
            at.join("c/three"),
            "user.test",
            &value,
            XattrFlags::empty(),
        )?)
    }),
    ("attribute removed", |at, _, _| {
        let removed = rustix::fs::removexattr(at.join("c/three"), "user.test");
        Ok(removed.or_else(|error| match error {
            rustix::io::Errno::NODATA => Ok(()),
            error => Err(error),
        })?)
    }),
    ("acl", |at, _, number| {
        // Version 2; owner, the user 7, group, mask, others.
        let user = u8::try_from(number % 8).unwrap();
        let entries = [
            (1, 6, u32::MAX),
            (2, user, 7),
            (4, 4, u32::MAX),
            (0x10, 7, u32::MAX),
            (0x20, 4, u32::MAX),
        ];
        let mut acl = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            acl.extend([tag, 0, permissions, 0]);
            acl.extend(id.to_le_bytes());
        }
        let name = "system.posix_acl_access";
        Ok(rustix::fs::setxattr(
            at.join("c/three"),
            name,
            &acl,
            XattrFlags::empty(),
        )?)
    }),
    ("create", |at, _, _| File::create(at.join("a/absent")).map(drop)),
    ("remove", |at, _, _| fs::remove_file(at.join("a/absent"))),
    ("create elsewhere and remove", |at, _, number| {
        fs::write(at.join("absent"), number.to_string())?;
        fs::remove_file(at.join("absent"))
    }),
    ("make a folder", |at, _, number| {
        fs::create_dir(at.join("b/absent"))?;
        fs::write(at.join("b/absent/inside"), number.to_string())
    }),
    ("remove a folder", |at, _, _| {
        fs::remove_dir_all(at.join("b/absent"))
    }),
    ("make a fifo", |at, _, number| {
        let name = at.join(format!("a/fifo {}", number % 3));
        let _ = fs::remove_file(&name);
        Ok(rustix::fs::mknodat(CWD, name, FileType::Fifo, Mode::RUSR, 0)?)
    }),
    ("point a link elsewhere", |at, _, number| {
        fs::remove_file(at.join("a/link"))?;
        symlink(format!("to {number}"), at.join("a/link"))
    }),
    ("point a link elsewhere by a rename", |at, _, number| {
        symlink(format!("to {number}"), at.join("b/new link"))?;
        fs::rename(at.join("b/new link"), at.join("b/link"))
    }),
    ("rename", |at, _, _| {
        fs::rename(at.join("a/deep/one"), at.join("a/deep/first"))?;
        fs::rename(at.join("a/deep/two"), at.join("a/deep/one"))?;
        fs::rename(at.join("a/deep/first"), at.join("a/deep/two"))
    }),
    ("exchange", |at, _, _| {
        let (one, two) = (at.join("a/deep/one"), at.join("b/deep/two"));
        Ok(rustix::fs::renameat_with(
            CWD,
            one,
            CWD,
            two,
            RenameFlags::EXCHANGE,
        )?)
    }),
    ("exchange folders", |at, _, _| {
        let (one, two) = (at.join("a/deep"), at.join("b/deep"));
        Ok(rustix::fs::renameat_with(
            CWD,
            one,
            CWD,
            two,
            RenameFlags::EXCHANGE,
        )?)
    }),
    ("rename a folder twice", |at, _, number| {
        fs::rename(at.join("c"), at.join(format!("c {number}")))?;
        fs::rename(at.join(format!("c {number}")), at.join("c"))
    }),
    ("move a folder out", |at, beside, _| {
        fs::rename(at.join("b/deep"), beside.join("deep"))
    }),
    ("move a folder in", |at, beside, _| {
        fs::rename(beside.join("deep"), at.join("b/deep"))
    }),
    ("change a folder outside and move it in", |at, beside, number| {
        fs::rename(at.join("a/deep"), beside.join("other"))?;
        fs::write(beside.join("other/three"), format!("outside {number}"))?;
        fs::rename(beside.join("other"), at.join("a/deep"))
    }),
    ("move a file in", |at, beside, number| {
        fs::write(beside.join("file"), number.to_string())?;
        fs::rename(beside.join("file"), at.join("moved in"))
    }),
    ("move a file out", |at, beside, _| {
        fs::rename(at.join("moved in"), beside.join("out"))
    }),
    ("write by a name outside", |at, beside, number| {
        fs::hard_link(at.join("c/one"), beside.join("second name"))?;
        fs::write(beside.join("second name"), format!("by another name {number}"))?;
        fs::remove_file(beside.join("second name"))
    }),
    ("a name more", |at, _, number| {
        let name = at.join(format!("b/name {}", number % 3));
        let _ = fs::remove_file(&name);
        fs::hard_link(at.join("b/two"), name)
    }),
    ("an unnamed file gets a name", |at, _, number| {
        let file = OpenOptions::new()
            .write(true)
            .custom_flags(OFlags::TMPFILE.bits().cast_signed())
            .open(at.join("a"))?;
        file.write_all_at(&number.to_be_bytes(), 0)?;
        let name = at.join(format!("a/linked {}", number % 3));
        let _ = fs::remove_file(&name);
        let from = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        Ok(rustix::fs::linkat(CWD, from, CWD, name, AtFlags::SYMLINK_FOLLOW)?)
    }),
    ("punch a hole", |at, _, number| {
        let file = OpenOptions::new().write(true).open(at.join("c/two"))?;
        file.write_all_at(&[number.to_be_bytes()[7]; 9000], 0)?;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&file, punch, number % 4096, 2000)?)
    }),
    ("copy within the host", |at, _, number| {
        let from = File::open(at.join("a/one"))?;
        let to = OpenOptions::new().write(true).open(at.join("c/three"))?;
        let mut offset = number % 10;
        rustix::fs::copy_file_range(&from, None, &to, Some(&mut offset), 5)?;
        Ok(())
    }),
    ("a file becomes a folder", |at, _, number| {
        let name = at.join("b/kind");
        match fs::symlink_metadata(&name) {
            Ok(meta) if meta.is_dir() => fs::remove_dir(&name)?,
            Ok(_) => fs::remove_file(&name)?,
            Err(_) => {}
        }
        match number % 2 {
            0 => fs::create_dir(&name),
            _ => fs::write(&name, number.to_string()),
        }
    }),
    ("restore a backup", |at, beside, _| {
        let (at, beside) = (at.join("c"), beside.join("backup"));
        let copy = |from: &Path, to: &Path| -> std::io::Result<()> {
            let done = Command::new("cp")
                .arg("-a")
                .arg("-T")
                .arg(from)
                .arg(to)
                .status()?;
            assert!(done.success());
            Ok(())
        };
        let _ = fs::remove_dir_all(&beside);
        copy(&at, &beside)?;
        fs::remove_dir_all(&at)?;
        copy(&beside, &at)
    }),
    ("write by another process with a mapping", |at, _, number| {
        const SCRIPT: &str = "import mmap, sys; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 4); \
                              m[0:4] = sys.argv[2].encode()[-4:].rjust(4); m.close(); f.close()";
        let done = Command::new("python3")
            .args(["-c", SCRIPT])
            .arg(at.join("a/one"))
            .arg(number.to_string())
            .status()?;
        assert!(done.success());
        Ok(())
    }),
];

#[expect(clippy::print_stderr, reason = "the delays")]
fn changes_are_seen(rounds: u64, more: &[&str]) {
    let Some(mounted) = start_told(make_subject, more) else {
        return;
    };
    let given = std::env::var("TIDEGATE_SEED").ok();
    let seed = given.and_then(|text| text.parse().ok()).unwrap_or(23);
    let mut random = Prng::new(seed);
    let (source, mountpoint) = (mounted.source(), mounted.mountpoint());
    let beside = source.parent().unwrap().join("beside");
    fs::create_dir(&beside).unwrap();
    let mut delays = Vec::new();
    for number in 0..rounds {
        // The kernel knows everything as it is.
        assert_eq!(
            look(&mountpoint),
            look(&source),
            "before change {number} of seed {seed}"
        );
        let position = usize::try_from(random.below(CHANGES.len().try_into().unwrap())).unwrap();
        let (kind, change) = CHANGES[position];
        // A change that does not fit the state of the tree is left out: it failed before it changed anything, or half
        // way, and then what it did must be seen all the same.
        let _ = change(&source, &beside, number);
        let changed = Instant::now();
        let wanted = look(&source);
        loop {
            let seen = look(&mountpoint);
            if seen == wanted {
                break;
            }
            let missing: Vec<_> = wanted
                .iter()
                .filter(|(path, text)| seen.get(*path) != Some(text))
                .map(|(path, text)| format!("{path:?}: {:?} is {text}", seen.get(path)))
                .collect();
            assert!(
                changed.elapsed() < PATIENCE,
                "{kind}, change {number} of seed {seed}, is not seen: {missing:#?}"
            );
            std::thread::yield_now();
        }
        delays.push(changed.elapsed());
    }
    delays.sort_unstable();
    let at = |part: usize| delays[(delays.len() - 1) * part / 100];
    let stats = mounted.stats();
    eprintln!(
        "{rounds} changes seen: half within {:?}, 99 % within {:?}, all within {:?}; {} names and {} inodes invalidated",
        at(50),
        at(99),
        at(100),
        stats["session"]["names_invalidated"],
        stats["session"]["inodes_invalidated"],
    );
}

/// Number of changes; `TIDEGATE_CHANGES` sets another one.
fn rounds() -> u64 {
    let given = std::env::var("TIDEGATE_CHANGES").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(250)
}

#[test]
fn each_change_behind_the_mount_is_seen_at_once() {
    changes_are_seen(rounds(), &[]);
}

#[test]
fn each_change_behind_a_mount_without_passthrough_is_seen_at_once() {
    changes_are_seen(rounds(), &["--passthrough", "off"]);
}

#[test]
fn changes_through_another_mount_of_the_source_are_seen_at_once() {
    let Some(mounted) = start_told(make_subject, &[]) else {
        return;
    };
    let second = mounted.source().parent().unwrap().join("second");
    fs::create_dir(&second).unwrap();
    let output = tidegate()
        .args(["mount", "--json", "--passthrough", "off", "--flusher", "off"])
        .args([&mounted.source(), &second])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for number in 0..20_u64 {
        assert_eq!(look(&mounted.mountpoint()), look(&mounted.source()));
        fs::write(second.join("a/one"), format!("by the other mount {number}")).unwrap();
        fs::rename(second.join("a/two"), second.join("a/2")).unwrap();
        fs::rename(second.join("a/2"), second.join("a/two")).unwrap();
        fs::set_permissions(
            second.join("b"),
            PermissionsExt::from_mode(0o700 + u32::try_from(number % 8).unwrap()),
        )
        .unwrap();
        see(&mounted);
    }
    let output = tidegate().arg("unmount").arg(&second).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Waits until the mount shows the source.
fn see(mounted: &Mounted) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (seen, wanted) = (look(&mounted.mountpoint()), look(&mounted.source()));
        if seen == wanted {
            return;
        }
        if Instant::now() > deadline {
            assert_eq!(seen, wanted);
        }
        std::thread::yield_now();
    }
}

#[test]
fn changes_that_the_hosts_queue_has_lost_are_seen_once_the_daemon_goes_on() {
    let Some(mounted) = start_told(make_subject, &[]) else {
        return;
    };
    see(&mounted);
    // Names that do not exist are kept as well.
    let absent = mounted.mountpoint().join("made meanwhile");
    assert!(fs::symlink_metadata(&absent).is_err());
    let lost = lose_changes(&mounted, || {
        let source = mounted.source();
        fs::write(source.join("made meanwhile"), "").unwrap();
        fs::remove_file(source.join("a/one")).unwrap();
        fs::write(source.join("a/two"), "changed").unwrap();
        fs::set_permissions(source.join("b"), PermissionsExt::from_mode(0o711)).unwrap();
        fs::rename(source.join("c"), source.join("d")).unwrap();
    });
    if !lost {
        return;
    }
    see(&mounted);
    assert!(fs::symlink_metadata(&absent).is_ok());
    let stats = mounted.stats();
    assert_eq!(stats["negotiated"]["coherence"], "watch");
    // It goes on.
    fs::write(mounted.source().join("a/three"), "changed afterwards").unwrap();
    see(&mounted);
}

#[test]
fn what_is_mounted_on_a_folder_stays_when_the_hosts_queue_has_lost_changes() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let Some(mounted) = start_told(make_subject, &[]) else {
        return;
    };
    let nested = mounted.mountpoint().join("a/deep");
    let done = Command::new("mount")
        .args(["-t", "tmpfs", "none"])
        .arg(&nested)
        .status();
    assert!(done.unwrap().success());
    fs::write(nested.join("inside"), "").unwrap();
    let lost = lose_changes(&mounted, || {
        fs::write(mounted.source().join("a/one"), "changed").unwrap();
    });
    let is_there = nested.join("inside").exists();
    let size = fs::metadata(mounted.mountpoint().join("a/one")).unwrap().len();
    assert!(Command::new("umount").arg(&nested).status().unwrap().success());
    assert!(is_there, "the nested mount is gone");
    assert!(!lost || size == 7, "{size} bytes");
}

/// Stops the daemon, lets the host's queue overflow, makes a change, lets the daemon go on, and waits until it has noticed.
/// False, with a printed reason, if the queue is too long for that.
fn lose_changes(mounted: &Mounted, change: impl FnOnce()) -> bool {
    let limit = fs::read_to_string("/proc/sys/fs/fanotify/max_queued_events").unwrap();
    let limit: u64 = limit.trim().parse().unwrap();
    if limit > 60_000 {
        testkit::report_left_out(format!("a queue of {limit} events is too long to be filled"));
        return false;
    }
    let signal = |signal| rustix::process::kill_process(mounted.pid(), signal).unwrap();
    signal(rustix::process::Signal::STOP);
    let beside = mounted.source().parent().unwrap().join("beside");
    fs::create_dir(&beside).unwrap();
    // The host merges events of one name only. A file may have 65,000 names.
    let first = beside.join("first");
    File::create(&first).unwrap();
    for number in 0..limit + 1000 {
        fs::hard_link(&first, beside.join(number.to_string())).unwrap();
    }
    change();
    signal(rustix::process::Signal::CONT);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let stats = mounted.stats();
        let overflows = stats["backing"]["change_queue_overflows"].as_u64();
        if overflows >= Some(1) && stats["session"]["everything_invalidated"].as_u64() >= overflows {
            return true;
        }
        assert!(Instant::now() < deadline, "{}", stats["backing"]);
    }
}

#[test]
fn changes_made_while_the_daemon_was_stopped_are_seen_once_it_goes_on() {
    let Some(mounted) = start_told(make_subject, &[]) else {
        return;
    };
    for _ in 0..5 {
        see(&mounted);
        let signal = |signal| rustix::process::kill_process(mounted.pid(), signal).unwrap();
        signal(rustix::process::Signal::STOP);
        let beside = mounted.source().parent().unwrap().to_owned();
        for (number, (_, change)) in (0..).zip(CHANGES) {
            let _ = change(&mounted.source(), &beside, number);
        }
        signal(rustix::process::Signal::CONT);
        see(&mounted);
    }
}

#[test]
fn own_changes_invalidate_nothing_and_are_seen_at_once() {
    let Some(mounted) = start_told(make_subject, &["--passthrough", "off"]) else {
        return;
    };
    let root = mounted.mountpoint();
    for number in 0..200 {
        let name = root.join(format!("made {number}"));
        assert!(fs::symlink_metadata(&name).is_err());
        fs::write(&name, vec![0; number]).unwrap();
        assert_eq!(fs::metadata(&name).unwrap().len(), u64::try_from(number).unwrap());
        fs::rename(&name, root.join("moved")).unwrap();
        assert!(fs::symlink_metadata(&name).is_err());
        let listed = || {
            fs::read_dir(&root)
                .unwrap()
                .filter(|name| name.as_ref().is_ok_and(|name| name.file_name() == "moved"))
        };
        assert_eq!(listed().count(), 1);
        fs::remove_file(root.join("moved")).unwrap();
        assert_eq!(listed().count(), 0);
    }
    let stats = mounted.stats();
    assert!(
        stats["backing"]["change_events_own"].as_u64() > Some(200),
        "{}",
        stats["backing"]
    );
    // Some may be reports of other files, to which the host has given the number of a removed one.
    let invalidated = stats["session"]["names_invalidated"].as_u64();
    assert!(invalidated < Some(40), "{}", stats["session"]);
}

#[test]
fn writes_under_passthrough_are_not_reported_one_by_one() {
    let Some(mounted) = start_told(make_subject, &["--passthrough", "auto"]) else {
        return;
    };
    if mounted.report["negotiated"]["passthrough"] != true {
        testkit::report_left_out("passthrough");
        return;
    }
    let file = OpenOptions::new()
        .write(true)
        .open(mounted.mountpoint().join("a/one"))
        .unwrap();
    let events = || mounted.stats()["session"]["inodes_invalidated"].as_u64().unwrap();
    let before = events();
    for number in 0..2000 {
        file.write_all_at(b"written through the mount", number).unwrap();
        if number % 100 == 0 {
            assert_eq!(file.metadata().unwrap().len(), (number + 25).max(16));
            // Time for several batches of events, if there were any.
            events();
        }
    }
    let reported = events() - before;
    assert!(reported <= 2, "{reported} inodes were invalidated");
    drop(file);
    see(&mounted);
    // Once it is closed, changes behind the mount are reported again.
    fs::write(mounted.source().join("a/one"), "behind the mount").unwrap();
    see(&mounted);
}

#[test]
fn a_file_system_below_the_source_keeps_the_timeouts() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let mount = |source: &Path| {
        fs::create_dir(source.join("below")).unwrap();
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "none"])
            .arg(source.join("below"))
            .status();
        assert!(done.unwrap().success());
        make_subject(&source.join("below"));
    };
    let Some(mounted) = start_told(mount, &[]) else {
        return;
    };
    let beside = mounted.source().parent().unwrap().to_owned();
    for (number, (_, change)) in (0..10).zip(CHANGES) {
        see(&mounted);
        let _ = change(&mounted.source().join("below"), &beside, number);
    }
    fs::write(mounted.source().join("below/absent"), "").unwrap();
    see(&mounted);
    fs::write(mounted.source().join("beside it"), "").unwrap();
    see(&mounted);
    let below = mounted.source().join("below");
    drop(mounted);
    assert!(
        Command::new("umount")
            .arg("-l")
            .arg(below)
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn without_root_names_are_kept_for_a_limited_time() {
    if !can_mount_as_nobody() {
        return;
    }
    let Some(mounted) = Mounted::start_as_nobody(&["--coherence", "auto"]) else {
        return;
    };
    assert_eq!(mounted.report["negotiated"]["coherence"], "timeout");
    let reasons = mounted.report["negotiated"]["not_granted"].to_string();
    assert!(reasons.contains("coherence: it needs root"), "{reasons}");
    let folder = tempfile::tempdir().unwrap();
    for name in ["source", "mountpoint"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        std::os::unix::fs::chown(folder.path().join(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let output = as_nobody()
        .arg(mounted.binary())
        .args(["mount", "--coherence", "watch"])
        .args([folder.path().join("source"), folder.path().join("mountpoint")])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("coherence=watch can't be had: it needs root"),
        "{message}"
    );
}

#[test]
fn given_timeouts_are_kept() {
    for times in [["--attr-timeout", "0s"], ["--entry-timeout", "5s"]] {
        let Some(mounted) = Mounted::start(&[&TOLD[..], &times].concat()) else {
            return;
        };
        assert_eq!(mounted.report["negotiated"]["coherence"], "timeout");
    }
}
