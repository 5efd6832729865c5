//! Ownership of new files: ids, umask, default ACLs, setgid directories, mapped ids.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use passfs::{IdMap, PassConfig};
use vfs::{FileSystem, FsError, Ino, NewNode, Privileges, SetAttr, XattrFlags};

use crate::source::{PLAIN, Source, caller, daemon, node};

fn mode_of(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn owner_of(path: &Path) -> (u32, u32) {
    let found = std::fs::symlink_metadata(path).unwrap();
    (found.uid(), found.gid())
}

fn new(mode: u32, umask: u32) -> NewNode {
    NewNode { mode, umask, rdev: 0 }
}

#[test]
fn the_callers_umask_is_applied_and_not_the_daemons() {
    let source = Source::new();
    let fs = &source.fs;
    fs.mkdir(&daemon(), Ino::ROOT, b"open", new(0o777, 0)).unwrap();
    fs.mkdir(&daemon(), Ino::ROOT, b"closed", new(0o777, 0o077))
        .unwrap();
    fs.mknod(&daemon(), Ino::ROOT, b"node", new(libc::S_IFREG | 0o666, 0o027))
        .unwrap();
    assert_eq!(mode_of(&source.path("open")) & 0o777, 0o777);
    assert_eq!(mode_of(&source.path("closed")) & 0o777, 0o700);
    assert_eq!(mode_of(&source.path("node")), 0o640);
}

/// A POSIX ACL in the kernel's xattr form: version 2, then (tag, permissions, id) in little endian.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// `user::rwx`, `user:1000:rwx`, `group::rwx`, `mask::rwx`, `other::---`.
fn shared_acl() -> Vec<u8> {
    const NO_ID: u32 = u32::MAX;
    acl(&[
        (0x01, 7, NO_ID),
        (0x02, 7, 1000),
        (0x04, 7, NO_ID),
        (0x10, 7, NO_ID),
        (0x20, 0, NO_ID),
    ])
}

#[test]
fn a_default_acl_takes_the_place_of_the_umask() {
    let source = Source::new();
    let set = source.fs.setxattr(
        Ino::ROOT,
        b"system.posix_acl_default",
        &shared_acl(),
        XattrFlags(0),
        false,
    );
    if set == Err(FsError::NotSupported) {
        return;
    }
    set.unwrap();
    source
        .fs
        .mknod(&daemon(), Ino::ROOT, b"file", new(libc::S_IFREG | 0o666, 0o077))
        .unwrap();
    assert_eq!(mode_of(&source.path("file")), 0o660);
}

#[test]
fn what_is_made_belongs_to_the_caller() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    let fs = &source.fs;
    let user = caller(1234, 2345);
    source.create_as(&user, Ino::ROOT, "file", 0o4755).unwrap();
    fs.mkdir(&user, Ino::ROOT, b"directory", node(0o755)).unwrap();
    fs.symlink(&user, Ino::ROOT, b"link", b"target").unwrap();
    fs.mknod(&user, Ino::ROOT, b"fifo", new(libc::S_IFIFO | 0o600, 0))
        .unwrap();
    source
        .create_as(&caller(0, 0), Ino::ROOT, "roots", 0o644)
        .unwrap();
    for name in ["file", "directory", "link", "fifo"] {
        assert_eq!(owner_of(&source.path(name)), (1234, 2345), "{name}");
    }
    assert_eq!(owner_of(&source.path("roots")), (0, 0));
    assert_eq!(mode_of(&source.path("file")), 0o4755);
}

#[test]
fn a_setgid_directory_gives_its_group_on() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    let shared = source
        .fs
        .mkdir(&caller(0, 0), Ino::ROOT, b"shared", new(0o777, 0))
        .unwrap();
    let change = SetAttr {
        gid: Some(777),
        mode: Some(0o2777),
        ..Default::default()
    };
    assert_eq!(
        source.fs.setattr(shared.ino, None, &change).unwrap().mode & 0o7777,
        0o2777
    );
    let user = caller(1234, 2345);
    source.create_as(&user, shared.ino, "file", 0o2644).unwrap();
    source.fs.mkdir(&user, shared.ino, b"inner", node(0o755)).unwrap();
    assert_eq!(owner_of(&source.path("shared/file")), (1234, 777));
    assert_eq!(owner_of(&source.path("shared/inner")), (1234, 777));
    assert_eq!(mode_of(&source.path("shared/inner")), 0o2755);
    assert_eq!(
        mode_of(&source.path("shared/file")),
        0o2644,
        "the kernel above allowed the bit"
    );
}

#[test]
fn an_acl_that_takes_the_setgid_bit_takes_it() {
    let source = Source::new();
    let (file, _) = source.create("file");
    let set_mode = SetAttr {
        mode: Some(0o2770),
        ..Default::default()
    };
    source.fs.setattr(file.ino, None, &set_mode).unwrap();
    let name = b"system.posix_acl_access";
    match source
        .fs
        .setxattr(file.ino, name, &shared_acl(), XattrFlags(0), false)
    {
        Err(FsError::NotSupported) => return,
        other => other.unwrap(),
    }
    assert_eq!(mode_of(&source.path("file")), 0o2770);
    source
        .fs
        .setxattr(file.ino, name, &shared_acl(), XattrFlags(0), true)
        .unwrap();
    assert_eq!(mode_of(&source.path("file")), 0o770);
}

#[test]
fn mapped_ids_are_shown_and_changes_of_owner_and_mode_have_no_effect() {
    let map = IdMap {
        uid: 1023,
        gid: 1015,
        umask: 0o007,
    };
    let source = Source::with(PassConfig {
        id_map: Some(map),
        ..PLAIN
    });
    let (entry, _) = source
        .create_as(&caller(4321, 4321), Ino::ROOT, "file", 0o666)
        .unwrap();
    assert_eq!(
        (entry.attr.uid, entry.attr.gid, entry.attr.mode & 0o7777),
        (1023, 1015, 0o640)
    );
    let own = daemon();
    assert_eq!(owner_of(&source.path("file")), (own.uid, own.gid));
    let change = SetAttr {
        uid: Some(1),
        gid: Some(1),
        mode: Some(0o777),
        size: Some(3),
        ..Default::default()
    };
    let attr = source.fs.setattr(entry.ino, None, &change).unwrap();
    assert_eq!((attr.uid, attr.mode & 0o7777, attr.size), (1023, 0o640, 3));
    assert_eq!(
        (owner_of(&source.path("file")), mode_of(&source.path("file"))),
        ((own.uid, own.gid), 0o644)
    );
}

/// Runs `body` on a thread that has dropped root and all capabilities.
fn as_ordinary_user(body: impl FnOnce() + Send) {
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    use rustix::{fs::Gid, fs::Uid};
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(65_534), Gid::from_raw(65_534));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            body();
        });
    });
}

#[test]
fn an_ordinary_users_daemon_makes_everything_its_own() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    std::os::unix::fs::chown(source.path(""), Some(65_534), Some(65_534)).unwrap();
    std::fs::write(source.path("roots"), b"private").unwrap();
    std::fs::set_permissions(source.path("roots"), PermissionsExt::from_mode(0o600)).unwrap();
    as_ordinary_user(|| {
        let source = source.opened_anew();
        let (entry, opened) = source
            .create_as(&caller(1234, 1234), Ino::ROOT, "file", 0o4755)
            .unwrap();
        assert_eq!((entry.attr.uid, entry.attr.gid), (65_534, 65_534));
        source.write((entry, opened.handle), 0, b"mine").unwrap();
        assert_eq!(source.read((entry, opened.handle), 0, 9).unwrap(), b"mine");
        assert_eq!(
            mode_of(&source.path("file")),
            0o755,
            "the host drops setuid by itself"
        );
        let linked = source.fs.link(entry.ino, Ino::ROOT, b"second").unwrap();
        assert_eq!(linked.attr.nlink, 2);
        let refused = SetAttr {
            uid: Some(0),
            ..Default::default()
        };
        assert_eq!(
            source.fs.setattr(entry.ino, None, &refused).err(),
            Some(FsError::NotPermitted)
        );
        let private = source.lookup("roots").unwrap();
        let opened = source
            .fs
            .open(private.ino, vfs::OpenFlags(libc::O_RDONLY), Privileges::Keep);
        assert_eq!(opened.err(), Some(FsError::AccessDenied));
    });
}

#[test]
fn a_file_that_may_only_be_written_is_opened_for_writing_alone() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    std::os::unix::fs::chown(source.path(""), Some(65_534), Some(65_534)).unwrap();
    as_ordinary_user(|| {
        let source = source.opened_anew();
        source.create_as(&daemon(), Ino::ROOT, "file", 0o200).unwrap();
        let entry = source.lookup("file").unwrap();
        let opened = source
            .fs
            .open(entry.ino, vfs::OpenFlags(libc::O_WRONLY), Privileges::Keep)
            .unwrap();
        source.write((entry, opened.handle), 0, b"in").unwrap();
        assert_eq!(
            source.read((entry, opened.handle), 0, 1).err(),
            Some(FsError::BadHandle)
        );
    });
}

#[test]
fn in_a_sticky_directory_a_name_that_leads_to_a_file_of_another_user_stays() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    let folder = source.path("folder");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let place = source.fs.lookup(Ino::ROOT, b"folder").unwrap().ino;
    let put = |name: &str, uid: u32| {
        std::fs::write(folder.join(name), name).unwrap();
        std::os::unix::fs::chown(folder.join(name), Some(uid), Some(uid)).unwrap();
    };
    let content = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    for name in ["own", "own too"] {
        put(name, 4321);
    }
    for name in ["foreign", "foreign too"] {
        put(name, 4322);
    }
    // No process has the number 0, so the caller's capabilities are unknown.
    let user = vfs::Caller {
        pid: 0,
        ..caller(4321, 4321)
    };
    let stale = Err(FsError::Stale);
    let fs = &source.fs;
    assert_eq!(fs.unlink(&user, place, b"foreign"), stale);
    let rename =
        |from: &[u8], to: &[u8], flags| fs.rename(&user, (place, from), (place, to), vfs::RenameFlags(flags));
    assert_eq!(rename(b"foreign", b"stolen", 0), stale);
    assert_eq!(rename(b"own", b"foreign", 0), stale);
    assert_eq!(rename(b"own", b"foreign", libc::RENAME_EXCHANGE), stale);
    assert_eq!(content("foreign").as_deref(), Some("foreign"));
    assert_eq!(content("own").as_deref(), Some("own"));

    assert_eq!(rename(b"own", b"mine", 0), Ok(()));
    assert_eq!(fs.unlink(&user, place, b"mine"), Ok(()));
    // The owner of the directory is root.
    assert_eq!(fs.unlink(&caller(0, 0), place, b"foreign too"), Ok(()));
    // The owner of the directory may, and without the sticky bit so may any user whom the kernel permits.
    put("again", 4322);
    std::os::unix::fs::chown(&folder, Some(4321), None).unwrap();
    assert_eq!(fs.unlink(&user, place, b"again"), Ok(()));
    put("once more", 4322);
    std::os::unix::fs::chown(&folder, Some(0), None).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(fs.unlink(&user, place, b"once more"), Ok(()));
}

#[test]
fn under_a_map_nothing_that_gives_rights_in_the_source_can_be_set() {
    let map = IdMap {
        uid: 1023,
        gid: 1015,
        umask: 0o077,
    };
    let source = Source::with(PassConfig {
        id_map: Some(map),
        ..PLAIN
    });
    let (file, opened) = source
        .create_as(&caller(1023, 1015), Ino::ROOT, "file", 0o600)
        .unwrap();
    let path = source.path("file");
    let names: [&[u8]; 5] = [
        b"system.posix_acl_access",
        b"system.posix_acl_default",
        b"security.capability",
        b"security.selinux",
        b"trusted.overlay.opaque",
    ];
    for name in names {
        let set = source
            .fs
            .setxattr(file.ino, name, &shared_acl(), XattrFlags(0), false);
        assert_eq!(set, Err(FsError::NotSupported), "{}", name.escape_ascii());
        let removed = source.fs.removexattr(file.ino, name);
        // The kernel above removes capabilities when content changes.
        let expected = match name == b"security.capability" {
            true => FsError::NoData,
            false => FsError::NotSupported,
        };
        assert_eq!(removed, Err(expected), "{}", name.escape_ascii());
    }
    // FS_IOC_SETFLAGS with FS_NOATIME_FL, and FS_IOC_FSSETXATTR.
    for number in [0x4008_6602, 0x401c_5820] {
        let set = source.fs.ioctl(file.ino, opened.handle, number, &[0x80; 28], 0);
        assert_eq!(set.map(|_| ()), Err(FsError::NotSupported));
    }
    assert_eq!(mode_of(&path), 0o600);
    // New files belong to the daemon, and would run as its user.
    let user = caller(1023, 1015);
    source.create_as(&user, Ino::ROOT, "program", 0o6755).unwrap();
    let device = new(libc::S_IFREG | 0o6755, 0);
    source.fs.mknod(&user, Ino::ROOT, b"node", device).unwrap();
    source
        .fs
        .mkdir(&user, Ino::ROOT, b"folder", new(0o7755, 0))
        .unwrap();
    for name in ["program", "node", "folder"] {
        assert_eq!(mode_of(&source.path(name)) & 0o7000, 0, "{name}");
    }
    // ACLs of the source are not shown either: the kernel would grant access by them.
    if rustix::fs::setxattr(
        &path,
        "system.posix_acl_access",
        &shared_acl(),
        rustix::fs::XattrFlags::empty(),
    )
    .is_ok()
    {
        assert_eq!(source.fs.getxattr(file.ino, names[0]), Err(FsError::NoData));
        assert_eq!(source.fs.listxattr(file.ino), Ok(Vec::new()));
    }
}
