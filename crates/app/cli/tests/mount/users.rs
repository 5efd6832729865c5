//! Mounts of ordinary users, locks between processes, inherited ACLs, and a new mount after a crash.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use crate::harness::{Mounted, NOBODY, as_nobody, tidegate};
use rustix::fs::{FlockOperation, XattrFlags};
use rustix::process::Signal;

#[test]
fn an_ordinary_user_mounts_writes_and_unmounts() {
    let Some(mounted) = Mounted::start_as_nobody(&[]) else {
        return;
    };
    let to = mounted.mountpoint();
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let script = "echo kept > file && chmod 600 file && mkdir folder && cat file";
    run(as_nobody()
        .args(["env", "-C"])
        .arg(&to)
        .args(["sh", "-c", script]));
    run(as_nobody().arg(mounted.binary()).arg("unmount").arg(&to));
    let source = mounted.source();
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

/// `system.posix_acl_default` that grants all rights to one more user: version 2, then tag, permissions and id of each
/// entry.
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
        Err(error) => {
            testkit::report_left_out(format!("the temporary folder's file system has no ACLs: {error}"))
        }
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

#[test]
fn workers_have_the_daemons_credentials_again_after_calls_for_another_user() {
    let as_user = as_nobody().arg("true").status();
    if !rustix::process::geteuid().is_root() || !as_user.is_ok_and(|status| status.success()) {
        testkit::report_left_out("setpriv (util-linux) is missing, or this is not root");
        return;
    }
    for mode in [
        &["-o", "allow_other"][..],
        &["-o", "allow_other", "--passthrough", "off"],
    ] {
        let Some(mounted) = Mounted::start(mode) else {
            return;
        };
        let root = mounted.mountpoint();
        fs::set_permissions(root.parent().unwrap(), PermissionsExt::from_mode(0o755)).unwrap();
        fs::set_permissions(mounted.source(), PermissionsExt::from_mode(0o777)).unwrap();
        // More concurrent requests than workers.
        let script = "for i in 1 2 3 4 5 6 7 8; do (mkdir d$i; echo $i > d$i/f; mkdir d$i; ln -s f d$i/l; \
                      truncate -s 1 d$i/f; mkfifo d$i/p) 2>/dev/null & done; wait";
        let ran = as_nobody().args(["sh", "-c", script]).current_dir(&root).status();
        assert!(ran.unwrap().success());
        assert_eq!(fs::metadata(root.join("d8/f")).unwrap().uid(), NOBODY);
        let threads = fs::read_dir(format!("/proc/{}/task", mounted.pid().as_raw_nonzero())).unwrap();
        for thread in threads {
            let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
            let ids = status
                .lines()
                .filter(|line| line.starts_with("Uid:") || line.starts_with("Gid:"));
            for line in ids {
                assert!(line.ends_with("\t0\t0\t0\t0"), "in mode {mode:?}: {status}");
            }
        }
    }
}
