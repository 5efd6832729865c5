//! setuid, setgid and file capabilities after a change of content or owner.

use vfs::{CopyRange, FallocateMode, FileSystem, Ino, OpenFlags, Privileges, SetAttr, XattrFlags};

use crate::source::{Source, caller, write_mode};

/// Privileges for a caller that owns [`file`]s and has no `CAP_FSETID`.
const KILL: Privileges = Privileges::Kill { gid: 1234 };

/// Creates a file with `mode`, owned by a user, as root.
fn file(source: &Source, name: &str, mode: u32) -> (vfs::Entry, vfs::Handle) {
    let (entry, opened) = source
        .create_as(&caller(1234, 1234), Ino::ROOT, name, 0o755)
        .unwrap();
    let change = SetAttr {
        mode: Some(mode),
        ..Default::default()
    };
    source.fs.setattr(entry.ino, None, &change).unwrap();
    (entry, opened.handle)
}

fn mode_of(source: &Source, entry: &vfs::Entry) -> u32 {
    source.fs.getattr(entry.ino, None).unwrap().mode & 0o7777
}

#[test]
fn a_users_write_drops_setuid_and_a_privileged_one_does_not() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    let (entry, handle) = file(&source, "file", 0o6755);
    source
        .fs
        .write(entry.ino, handle, 0, b"by root", write_mode(Privileges::Keep))
        .unwrap();
    assert_eq!(mode_of(&source, &entry), 0o6755);
    source
        .fs
        .write(entry.ino, handle, 0, b"by user", write_mode(KILL))
        .unwrap();
    assert_eq!(mode_of(&source, &entry), 0o755);
    let change = SetAttr {
        mode: Some(0o6755),
        ..Default::default()
    };
    source.fs.setattr(entry.ino, None, &change).unwrap();
    assert_eq!(
        mode_of(&source, &entry),
        0o6755,
        "the thread got its capability back"
    );
}

#[test]
fn a_users_write_keeps_setgid_without_group_execution() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    let (entry, handle) = file(&source, "file", 0o6745);
    source
        .fs
        .write(entry.ino, handle, 0, b"by user", write_mode(KILL))
        .unwrap();
    let native = tempfile::NamedTempFile::new().unwrap();
    let expected = native_mode_after_user_write(native.path(), 0o6745);
    assert_eq!(mode_of(&source, &entry), expected);
}

#[test]
fn a_write_from_outside_the_files_group_drops_setgid_also_without_group_execution() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    let group_left = |gid, name: &str| {
        let (entry, handle) = file(&source, name, 0o2767);
        let change = SetAttr {
            mode: Some(0o2745),
            ..Default::default()
        };
        source.fs.setattr(entry.ino, None, &change).unwrap();
        let mode = write_mode(Privileges::Kill { gid });
        source.fs.write(entry.ino, handle, 0, b"by user", mode).unwrap();
        mode_of(&source, &entry)
    };
    assert_eq!(group_left(4321, "by another"), 0o745);
    // The daemon's own group and its supplementary ones are not the caller's.
    assert_eq!(group_left(0, "by group 0"), 0o745);
    assert_eq!(group_left(1234, "by a member"), 0o2745);
}

#[test]
fn what_is_made_after_a_users_write_belongs_to_its_maker() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    let (entry, handle) = file(&source, "first", 0o644);
    source
        .fs
        .write(entry.ino, handle, 0, b"by user", write_mode(KILL))
        .unwrap();
    let (made, _) = source
        .create_as(&caller(0, 0), Ino::ROOT, "second", 0o644)
        .unwrap();
    assert_eq!((made.attr.uid, made.attr.gid), (0, 0));
}

/// `mode` after a native write by the owner, who is not root and in no other group.
fn native_mode_after_user_write(path: &std::path::Path, mode: u32) -> u32 {
    use rustix::thread::{
        CapabilitySet, CapabilitySets, set_capabilities, set_thread_groups, set_thread_res_gid,
        set_thread_res_uid,
    };
    use std::os::unix::fs::{FileExt, PermissionsExt};
    std::os::unix::fs::chown(path, Some(1234), Some(1234)).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (uid, gid) = (rustix::fs::Uid::from_raw(1234), rustix::fs::Gid::from_raw(1234));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            // A thread that has served calls passes on the setting that its capabilities survive a change of user.
            let none = CapabilitySets {
                effective: CapabilitySet::empty(),
                permitted: CapabilitySet::empty(),
                inheritable: CapabilitySet::empty(),
            };
            set_capabilities(None, none).unwrap();
            file.write_at(b"by user", 0).unwrap();
        });
    });
    file.metadata().unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_users_truncation_drops_setuid_by_setattr_and_by_open() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    let truncate = |privileges| SetAttr {
        size: Some(3),
        privileges,
        ..Default::default()
    };
    let (entry, handle) = file(&source, "one", 0o4755);
    source
        .fs
        .setattr(entry.ino, Some(handle), &truncate(Privileges::Keep))
        .unwrap();
    assert_eq!(mode_of(&source, &entry), 0o4755);
    source
        .fs
        .setattr(entry.ino, Some(handle), &truncate(KILL))
        .unwrap();
    assert_eq!(mode_of(&source, &entry), 0o755);

    let (entry, _) = file(&source, "two", 0o4755);
    let flags = OpenFlags(libc::O_WRONLY | libc::O_TRUNC);
    source.fs.open(entry.ino, flags, Privileges::Keep).unwrap();
    assert_eq!(mode_of(&source, &entry), 0o4755);
    source.fs.open(entry.ino, flags, KILL).unwrap();
    assert_eq!(mode_of(&source, &entry), 0o755);
}

#[test]
fn a_change_of_owner_drops_what_it_drops_natively() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    for mode in [0o4755, 0o2755, 0o2745, 0o6777] {
        let source = Source::new();
        let (entry, _) = file(&source, "file", mode);
        let native = tempfile::NamedTempFile::new().unwrap();
        std::os::unix::fs::chown(native.path(), Some(1234), Some(1234)).unwrap();
        std::fs::set_permissions(native.path(), PermissionsExt::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(native.path(), Some(4321), None).unwrap();
        let expected = native.path().metadata().unwrap().permissions().mode() & 0o7777;
        let change = SetAttr {
            uid: Some(4321),
            privileges: KILL,
            ..Default::default()
        };
        source.fs.setattr(entry.ino, None, &change).unwrap();
        assert_eq!(mode_of(&source, &entry), expected, "mode {mode:o}");
    }
}

#[test]
fn a_write_drops_file_capabilities() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    let (entry, handle) = file(&source, "file", 0o755);
    // Revision 2, effective, CAP_NET_RAW permitted.
    let mut capability = 0x0200_0001_u32.to_le_bytes().to_vec();
    capability.extend(0x2000_u32.to_le_bytes());
    capability.extend([0; 12]);
    source
        .fs
        .setxattr(
            entry.ino,
            b"security.capability",
            &capability,
            XattrFlags(0),
            false,
        )
        .unwrap();
    source
        .fs
        .write(entry.ino, handle, 0, b"changed", write_mode(KILL))
        .unwrap();
    assert_eq!(
        source.fs.getxattr(entry.ino, b"security.capability"),
        Err(vfs::FsError::NoData)
    );
}

#[test]
fn a_users_allocation_or_copy_drops_setuid_and_a_privileged_one_does_not() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    let from = source.create("from");
    source.write(from, 0, b"0123456789").unwrap();
    for privileges in [Privileges::Keep, KILL] {
        let expected = if privileges.are_killed() { 0o755 } else { 0o6755 };
        let name = |what| format!("{what} {privileges:?}");
        let (entry, handle) = file(&source, &name("allocated"), 0o6755);
        source
            .fs
            .fallocate(entry.ino, handle, FallocateMode(0), 0, 4096, privileges)
            .unwrap();
        assert_eq!(mode_of(&source, &entry), expected);

        let (entry, handle) = file(&source, &name("copied"), 0o6755);
        let copy = CopyRange {
            source: (from.0.ino, from.1),
            source_offset: 0,
            target: (entry.ino, handle),
            target_offset: 0,
            length: 10,
            privileges,
        };
        assert_eq!(source.fs.copy_file_range(&copy), Ok(10));
        assert_eq!(mode_of(&source, &entry), expected);
    }
}
