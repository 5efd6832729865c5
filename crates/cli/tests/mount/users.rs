//! Mounts of ordinary users, locks between processes, inherited ACLs, and a second life after a crash.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use crate::harness::{Mounted, NOBODY, as_nobody, can_mount_as_nobody, report_skip, tidegate};
use rustix::fs::{FlockOperation, XattrFlags};
use rustix::process::Signal;

#[test]
fn an_ordinary_user_mounts_writes_and_unmounts() {
    if !can_mount_as_nobody() {
        return;
    }
    // The user may not see the folder that the binary was built in.
    let folder = tempfile::TempDir::new().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let [binary, source, mountpoint] =
        ["tidegate", "source", "mountpoint"].map(|name| folder.path().join(name));
    fs::copy(env!("CARGO_BIN_EXE_tidegate"), &binary).unwrap();
    for owned in [&source, &mountpoint] {
        fs::create_dir(owned).unwrap();
        std::os::unix::fs::chown(owned, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let as_nobody = |program: &std::path::Path, arguments: &[&str]| {
        let output = as_nobody().arg(program).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), text)
    };
    let [from, to] = [&source, &mountpoint].map(|path| path.to_str().unwrap());
    let mounted = as_nobody(&binary, &["mount", from, to]);
    assert!(mounted.0, "{}", mounted.1);
    let script =
        format!("echo kept > {to}/file && chmod 600 {to}/file && mkdir {to}/folder && cat {to}/file");
    let wrote = as_nobody(std::path::Path::new("/bin/sh"), &["-c", &script]);
    let unmounted = as_nobody(&binary, &["unmount", to]);
    assert!(wrote.0, "{}", wrote.1);
    assert!(unmounted.0, "{}", unmounted.1);
    let file = fs::metadata(source.join("file")).unwrap();
    assert_eq!((file.uid(), file.mode() & 0o777, file.len()), (NOBODY, 0o600, 5));
}

#[test]
fn a_lock_excludes_another_process() {
    let Some(mounted) = Mounted::start(&[]) else {
        return;
    };
    let path = mounted.mountpoint().join("file");
    let file = fs::File::create(&path).unwrap();
    let other_gets_it = || {
        let status = Command::new("flock").arg("-n").arg(&path).arg("true").status();
        status.expect("flock (util-linux) runs").success()
    };
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(!other_gets_it());
    rustix::fs::flock(&file, FlockOperation::Unlock).unwrap();
    assert!(other_gets_it());
}

/// `system.posix_acl_default` granting one more user everything: version 2, then tag, permissions and id of each entry.
fn default_acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] = [
        (0x01, 7, u32::MAX),
        (0x02, 7, NOBODY),
        (0x04, 5, u32::MAX),
        (0x10, 7, u32::MAX),
        (0x20, 5, u32::MAX),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

#[test]
fn a_default_acl_is_inherited_as_in_the_source() {
    let Some(mounted) = Mounted::start(&[]) else {
        return;
    };
    let made_in = |folder: std::path::PathBuf| {
        fs::create_dir(&folder).unwrap();
        rustix::fs::setxattr(
            &folder,
            "system.posix_acl_default",
            &default_acl(),
            XattrFlags::empty(),
        )?;
        fs::File::create(folder.join("file")).unwrap();
        let mut acl = [0; 256];
        let length = rustix::fs::getxattr(folder.join("file"), "system.posix_acl_access", &mut acl[..])?;
        let mode = fs::metadata(folder.join("file")).unwrap().mode();
        Ok::<_, rustix::io::Errno>((mode, acl[..length].to_vec()))
    };
    match made_in(mounted.source().join("native")) {
        Ok(native) => assert_eq!(made_in(mounted.mountpoint().join("mounted")), Ok(native)),
        Err(error) => report_skip(&format!(
            "the temporary folder's file system has no ACLs: {error}"
        )),
    }
}

#[test]
fn a_mount_can_be_made_again_where_a_daemon_was_killed() {
    let Some(mounted) = Mounted::start(&[]) else {
        return;
    };
    mounted.end_daemon(Signal::KILL);
    let mount = || {
        tidegate()
            .arg("mount")
            .arg(mounted.source())
            .arg(mounted.mountpoint())
            .output()
            .unwrap()
    };
    let refused = mount();
    assert_eq!(refused.status.code(), Some(2));
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("tidegate unmount"), "{message}");
    assert!(mounted.run("unmount", &[]).status.success());
    let again = mount();
    assert!(
        again.status.success(),
        "{}",
        String::from_utf8_lossy(&again.stderr)
    );
    fs::write(mounted.mountpoint().join("file"), "second life").unwrap();
    assert_eq!(
        fs::read_to_string(mounted.source().join("file")).unwrap(),
        "second life"
    );
}
