//! Random calls by the user that a mount with `uid=` and `gid=` shows as the owner of everything: they may change in the
//! source only the attributes in the table of docs/guide/mount.md.
//!
//! `TIDEGATE_FULL` makes 10,000 calls instead of 600; `TIDEGATE_SEED` replays.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, IFlags, Mode, RenameFlags, XattrFlags, ioctl_getflags,
    ioctl_setflags, lgetxattr, llistxattr, lremovexattr, lsetxattr, renameat_with,
};
use testkit::prng::Prng;

use crate::harness::{LONG_AGO, Mounted, NOBODY, in_a_thread_of_nobody};

/// `VFS_CAP_REVISION_2`: CAP_NET_RAW, permitted and effective.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// `user::rwx`, a named user, `group::r-x`, `mask::rwx`, `other::r-x`.
fn acl(user: u32) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [
        (1_u16, 7_u16, u32::MAX),
        (2, 7, user),
        (4, 5, u32::MAX),
        (0x10, 7, u32::MAX),
        (0x20, 5, u32::MAX),
    ] {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// All metadata of an inode in the source except its access time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    mode: u32,
    owner: (u32, u32),
    flags: Option<u32>,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    size: u64,
    links: u64,
    times: [i64; 4],
}

/// The inodes of the source by number, and the paths to them.
#[derive(Default)]
struct Snapshot {
    inodes: BTreeMap<u64, Known>,
    paths: BTreeMap<PathBuf, u64>,
}

fn attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 4096];
    let length = llistxattr(path, names.as_mut_slice()).expect("there is room");
    names.truncate(length);
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 4096];
        let length = lgetxattr(path, name, value.as_mut_slice()).expect("it was listed");
        value.truncate(length);
        value
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}

fn snapshot(source: &Path) -> Snapshot {
    let mut all = Snapshot::default();
    let mut pending = vec![source.to_owned()];
    while let Some(path) = pending.pop() {
        let found = fs::symlink_metadata(&path).expect("it is there");
        let kind = found.file_type();
        if kind.is_dir() {
            pending.extend(
                fs::read_dir(&path)
                    .expect("listed")
                    .map(|entry| entry.expect("listed").path()),
            );
        }
        let has_flags = kind.is_dir() || kind.is_file();
        let flags = has_flags.then(|| File::open(&path).expect("root may"));
        let known = Known {
            mode: found.mode(),
            owner: (found.uid(), found.gid()),
            flags: flags
                .and_then(|file| ioctl_getflags(file).ok())
                .map(|flags| flags.bits()),
            attributes: attributes(&path),
            size: found.size(),
            links: found.nlink(),
            times: [
                found.mtime(),
                found.mtime_nsec(),
                found.ctime(),
                found.ctime_nsec(),
            ],
        };
        all.inodes.insert(found.ino(), known);
        let name = path.strip_prefix(source).expect("it is below it");
        all.paths.insert(name.to_owned(), found.ino());
    }
    all
}

/// Files, folders and special files of several owners, with everything that grants rights.
fn furnish(source: &Path) {
    fs::set_permissions(source, Permissions::from_mode(0o755)).expect("it is ours");
    let set = |path: &Path, name: &str, value: &[u8]| {
        lsetxattr(path, name, value, XattrFlags::empty())
            .expect("root may, on a file system with attributes");
    };
    for (name, mode, owner) in [
        ("plain", 0o600, 0),
        ("setuid", 0o4755, 0),
        ("setgid", 0o2775, 0),
        ("capable", 0o755, 0),
        ("listed", 0o640, 0),
        ("other", 0o600, 4321),
    ] {
        let path = source.join(name);
        fs::write(&path, vec![7; 5000]).expect("made");
        chown(&path, Some(owner), Some(owner)).expect("root may");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
        set(&path, "user.mark", b"of the source");
        set(&path, "trusted.mark", b"of root");
        set(&path, "security.mark", b"of root");
    }
    set(&source.join("capable"), "security.capability", &CAPABILITY);
    set(&source.join("listed"), "system.posix_acl_access", &acl(4321));
    let flagged = File::open(source.join("plain")).expect("it is ours");
    // Fails on a file system without inode flags, which has none to change.
    let _unknown = ioctl_setflags(&flagged, IFlags::NODUMP);
    for (name, mode, owner) in [
        ("folder", 0o755, 0),
        ("others-folder", 0o700, 4321),
        ("closed", 0o1777, 0),
    ] {
        let path = source.join(name);
        fs::create_dir(&path).expect("made");
        fs::write(path.join("inside"), "inside").expect("made");
        chown(&path, Some(owner), Some(owner)).expect("root may");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
    }
    set(&source.join("folder"), "system.posix_acl_default", &acl(4321));
    symlink("plain", source.join("link")).expect("made");
    lchown(source.join("link"), Some(4321), Some(4321)).expect("root may");
    let fifo = rustix::fs::mknodat(
        CWD,
        source.join("fifo"),
        FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    );
    fifo.expect("made");
}

const NAMES: [&str; 14] = [
    "plain",
    "setuid",
    "setgid",
    "capable",
    "listed",
    "other",
    "folder",
    "others-folder",
    "closed",
    "link",
    "fifo",
    "folder/inside",
    "closed/inside",
    "",
];
const ATTRIBUTES: [&str; 8] = [
    "user.mark",
    "user.more",
    "trusted.mark",
    "security.mark",
    "security.capability",
    "security.selinux",
    "system.posix_acl_access",
    "system.posix_acl_default",
];

/// A call: its description, and the paths that it may change.
struct Made {
    words: String,
    touched: Vec<PathBuf>,
    may_change_content: bool,
}

/// An existing or former name.
fn pick(random: &mut Prng) -> PathBuf {
    match random.chance(30) {
        true => new_name(random),
        false => (*random.pick(&NAMES)).into(),
    }
}

fn new_name(random: &mut Prng) -> PathBuf {
    let folder = *random.pick(&["", "folder/", "closed/", "others-folder/"]);
    format!("{folder}new-{}", random.below(4)).into()
}

fn mode(random: &mut Prng) -> u32 {
    u32::try_from(random.below(0o10000)).expect("small")
}

/// Makes a random call on the mount. Its result does not matter.
#[expect(clippy::too_many_lines, reason = "a table of calls")]
fn call(root: &Path, random: &mut Prng) -> Made {
    let (name, other) = (pick(random), pick(random));
    let (path, second) = (root.join(&name), root.join(&other));
    let mut touched = vec![name.clone()];
    // Some calls follow links.
    let led_to = fs::canonicalize(&path).ok();
    let led_to = led_to.and_then(|path| Some(path.strip_prefix(root).ok()?.to_owned()));
    let mut may_change_content = false;
    let number = random.below(18);
    let words = match number {
        0 => {
            let mode = mode(random);
            let result = fs::set_permissions(&path, Permissions::from_mode(mode));
            format!("chmod {mode:o} {}: {result:?}", name.display())
        }
        1 => {
            let id = *random.pick(&[Some(0), Some(NOBODY), Some(4321), None]);
            let result = lchown(&path, id, *random.pick(&[Some(0), Some(NOBODY), None]));
            format!("chown {id:?} {}: {result:?}", name.display())
        }
        2 | 3 => {
            let attribute = *random.pick(&ATTRIBUTES);
            let value = match attribute {
                "security.capability" => CAPABILITY.to_vec(),
                name if name.starts_with("system.") => acl(NOBODY),
                _ => b"mine".to_vec(),
            };
            let result = lsetxattr(&path, attribute, &value, XattrFlags::empty());
            format!("setxattr {attribute} {}: {result:?}", name.display())
        }
        4 => {
            let attribute = *random.pick(&ATTRIBUTES);
            let result = lremovexattr(&path, attribute);
            format!("removexattr {attribute} {}: {result:?}", name.display())
        }
        5 => {
            let result = rustix::fs::utimensat(CWD, &path, &LONG_AGO, AtFlags::SYMLINK_NOFOLLOW);
            format!("utimens {}: {result:?}", name.display())
        }
        6..=9 => {
            may_change_content = true;
            let mut options = OpenOptions::new();
            let opened = options.read(true).write(true).truncate(number == 6).open(&path);
            let changed = opened.and_then(|mut file| match number {
                6 => Ok(()),
                7 => {
                    let at = random.below(9000);
                    file.seek(SeekFrom::Start(at))
                        .and_then(|_| file.write_all(b"mine"))
                }
                8 => {
                    let flags = *random.pick(&[FallocateFlags::empty(), FallocateFlags::KEEP_SIZE]);
                    Ok(rustix::fs::fallocate(&file, flags, 0, 1 + random.below(9000))?)
                }
                _ => Ok(ioctl_setflags(
                    &file,
                    *random.pick(&[IFlags::empty(), IFlags::NOATIME, IFlags::APPEND]),
                )?),
            });
            format!("content {number} {}: {changed:?}", name.display())
        }
        10 | 11 => {
            let name = new_name(random);
            touched = vec![name.clone()];
            let mode = mode(random);
            // Opened for reading too: a FIFO opened only for writing would wait for a reader.
            let mut options = OpenOptions::new();
            options
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .mode(mode);
            let result = options.open(root.join(&name));
            touched.extend(
                fs::canonicalize(root.join(&name))
                    .ok()
                    .and_then(|path| Some(path.strip_prefix(root).ok()?.to_owned())),
            );
            may_change_content = true;
            let written = result.and_then(|mut file| match random.chance(50) {
                true => file.write_all(b"mine"),
                false => Ok(()),
            });
            format!("create {mode:o} {}: {written:?}", name.display())
        }
        12 => {
            let name = new_name(random);
            touched = vec![name.clone()];
            let mode = mode(random);
            let result = fs::DirBuilder::new().mode(mode).create(root.join(&name));
            format!("mkdir {mode:o} {}: {result:?}", name.display())
        }
        13 => {
            let name = new_name(random);
            touched = vec![name.clone()];
            let kind = *random.pick(&[FileType::RegularFile, FileType::Fifo, FileType::CharacterDevice]);
            let mode = Mode::from_raw_mode(mode(random));
            let result = rustix::fs::mknodat(CWD, root.join(&name), kind, mode, 0);
            format!("mknod {kind:?} {mode:?} {}: {result:?}", name.display())
        }
        14 => {
            let result = fs::hard_link(&path, &second);
            touched.push(other.clone());
            format!("link {} {}: {result:?}", name.display(), other.display())
        }
        15 => {
            let result = symlink(&name, &second);
            touched = vec![other.clone()];
            format!("symlink {} {}: {result:?}", name.display(), other.display())
        }
        16 => {
            let (name, other) = (new_name(random), new_name(random));
            touched = vec![name.clone(), other.clone()];
            let flags = *random.pick(&[RenameFlags::empty(), RenameFlags::EXCHANGE]);
            let result = renameat_with(CWD, root.join(&name), CWD, root.join(&other), flags);
            format!(
                "rename {flags:?} {} {}: {result:?}",
                name.display(),
                other.display()
            )
        }
        _ => {
            let name = new_name(random);
            touched = vec![name.clone()];
            let removed = fs::remove_file(root.join(&name)).or_else(|_| fs::remove_dir(root.join(&name)));
            format!("remove {}: {removed:?}", name.display())
        }
    };
    touched.extend(led_to);
    let folders: Vec<_> = touched
        .iter()
        .filter_map(|path| path.parent())
        .map(Path::to_owned)
        .collect();
    touched.extend(folders);
    Made {
        words,
        touched,
        may_change_content,
    }
}

/// Checks that all differences are permitted by the table.
fn assert_in_table(before: &Known, after: &Known, is_touched: bool, made: &Made, replay: &str) {
    let why = || format!("{}: {before:?} became {after:?}; {replay}", made.words);
    assert_eq!(before.owner, after.owner, "{}", why());
    assert_eq!(before.flags, after.flags, "{}", why());
    if !is_touched {
        assert_eq!(before, after, "{}", why());
    }
    let mut gone = before.mode & !after.mode;
    if made.may_change_content {
        gone &= !0o6000;
    }
    assert_eq!((gone, after.mode & !before.mode), (0, 0), "{}", why());
    let giving_rights = |known: &Known| {
        let mut attributes = known.attributes.clone();
        attributes.retain(|name, _| !name.starts_with(b"user."));
        attributes
    };
    let (mut rights, now) = (giving_rights(before), giving_rights(after));
    if made.may_change_content && !now.contains_key(b"security.capability".as_slice()) {
        rights.remove(b"security.capability".as_slice());
    }
    assert_eq!(rights, now, "{}", why());
}

fn assert_harmless(new: &Known, made: &Made, replay: &str) {
    let why = || format!("{}: made {new:?}; {replay}", made.words);
    assert_eq!(new.owner, (0, 0), "{}", why());
    assert_eq!(new.mode & 0o7000, 0, "{}", why());
    let is_inherited = |name: &Vec<u8>| name.starts_with(b"system.posix_acl_") || name.starts_with(b"user.");
    assert!(new.attributes.keys().all(is_inherited), "{}", why());
}

/// A furnished source whose mount shows everything as [`NOBODY`]'s. `None`, with a reason printed, where there can be none.
fn mapped(passthrough: &str) -> Option<Mounted> {
    if !testkit::needs(&[testkit::Need::Root]) {
        return None;
    }
    let options = format!("allow_other,uid={NOBODY},gid={NOBODY},umask=0,passthrough={passthrough}");
    let mounted = Mounted::start_over(furnish, &["-o", &options])?;
    let root = mounted.mountpoint();
    fs::set_permissions(root.parent().expect("it has one"), Permissions::from_mode(0o755)).expect("ours");
    Some(mounted)
}

#[test]
fn a_mapped_owner_changes_nothing_outside_of_the_table() {
    let calls = if testkit::is_full() { 10_000 } else { 600 };
    let seed = std::env::var("TIDEGATE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or(18);
    for mode in ["auto", "off"] {
        let Some(mounted) = mapped(mode) else { return };
        let (source, root) = (mounted.source(), mounted.mountpoint());
        let mut random = Prng::named(seed, mode);
        let mut before = snapshot(&source);
        let mut changes = 0_u64;
        for number in 0..calls / 2 {
            let replay = format!("call {number}, passthrough={mode}, TIDEGATE_SEED={seed}");
            let made = in_a_thread(|| call(&root, &mut random));
            let after = snapshot(&source);
            let numbers = |snapshot: &Snapshot| -> Vec<u64> {
                let found = made
                    .touched
                    .iter()
                    .filter_map(|path| snapshot.paths.get(path).copied());
                found.collect()
            };
            let touched = [numbers(&before), numbers(&after)].concat();
            for (inode, known) in &after.inodes {
                match before.inodes.get(inode) {
                    Some(was) if was.mode & 0o170_000 == known.mode & 0o170_000 => {
                        changes += u64::from(was != known);
                        assert_in_table(was, known, touched.contains(inode), &made, &replay);
                    }
                    _ => assert_harmless(known, &made, &replay),
                }
            }
            before = after;
        }
        assert!(
            changes > calls / 20,
            "only {changes} of {calls} calls changed something"
        );
        tell(&format!(
            "passthrough={mode}: {} calls, {changes} changes, 0 outside the table",
            calls / 2
        ));
    }
}

#[expect(clippy::print_stderr, reason = "the figures of a long run")]
fn tell(figures: &str) {
    eprintln!("{figures}");
}

/// Runs work in a thread of the mapped owner.
fn in_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let mut outcome = None;
    in_a_thread_of_nobody(|| outcome = Some(work()));
    outcome.expect("it ran")
}

/// Otherwise programs of root with content written by a mapped owner would run that user's code as root.
#[test]
fn files_of_a_mapped_owner_get_no_rights_of_the_source() {
    for mode in ["auto", "off"] {
        let Some(mounted) = mapped(mode) else { return };
        let (source, root) = (mounted.source(), mounted.mountpoint());
        for name in ["setuid", "setgid", "capable"] {
            in_a_thread_of_nobody(|| {
                let opened = OpenOptions::new().write(true).open(root.join(name));
                let written = opened.and_then(|mut file| file.write_all(b"mine"));
                written.unwrap_or_else(|error| panic!("{name}, passthrough={mode}: {error}"));
            });
            let path = source.join(name);
            assert_eq!(
                fs::read(&path).expect("there")[..5],
                *b"mine\x07",
                "{name}, passthrough={mode}"
            );
            let mode_now = fs::metadata(&path).expect("there").mode();
            assert_eq!(
                mode_now & 0o6000,
                0,
                "{name} has mode {mode_now:o}, passthrough={mode}"
            );
            let kept = attributes(&path);
            assert!(
                !kept.contains_key(b"security.capability".as_slice()),
                "{name}, passthrough={mode}"
            );
        }
    }
}
