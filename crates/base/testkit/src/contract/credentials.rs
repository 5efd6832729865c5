//! Cases of the clause on credentials. Without root there is only one user, and nothing to test.

use vfs::{Caller, FileSystem, Ino, NewNode, OpenFlags, Privileges, SeekFrom, SetAttr, WriteMode};

use super::{Case, DIRECTORY, FILE, Scene, caller, cases, plain};

pub fn cases<F: FileSystem>() -> Vec<Case<F>> {
    cases![F:
        what_is_made_belongs_to_its_caller_whoever_called_before,
        no_call_is_made_with_the_ids_of_an_earlier_caller,
        a_change_of_mode_keeps_setgid_after_a_write_that_drops_it,
    ]
}

const NOBODY: u32 = 65534;

fn as_user(uid: u32) -> Caller {
    Caller {
        uid,
        gid: uid,
        pid: 0,
    }
}

fn what_is_made_belongs_to_its_caller_whoever_called_before<F: FileSystem>(scene: &Scene<'_, F>) {
    if !crate::needs(&[crate::Need::Root]) {
        return;
    }
    let file_system = scene.file_system;
    for (turn, uid) in [1000, 0, NOBODY, 1000, 0].into_iter().enumerate() {
        let caller = as_user(uid);
        let name = |kind: &str| format!("{kind} {turn}").into_bytes();
        let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT | libc::O_EXCL);
        let fifo = NewNode {
            mode: libc::S_IFIFO | 0o600,
            ..FILE
        };
        let created = file_system.create(&caller, Ino::ROOT, &name("file"), FILE, flags);
        let made = [
            ("create", created.map(|(entry, _)| entry)),
            (
                "mkdir",
                file_system.mkdir(&caller, Ino::ROOT, &name("folder"), DIRECTORY),
            ),
            (
                "symlink",
                file_system.symlink(&caller, Ino::ROOT, &name("link"), b"target"),
            ),
            (
                "mknod",
                file_system.mknod(&caller, Ino::ROOT, &name("fifo"), fifo),
            ),
        ];
        for (call, entry) in made {
            let attr = entry.expect("there is room").attr;
            assert_eq!((attr.uid, attr.gid), (uid, uid), "{call} by {uid}");
        }
    }
}

/// File system uid and gid of the calling thread: the fourth number of each line.
fn thread_ids() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("/proc is mounted");
    let fourth = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        line.and_then(|line| line.split_whitespace().nth(3).map(str::to_owned))
    };
    ["Uid:", "Gid:"].into_iter().filter_map(fourth).collect()
}

fn no_call_is_made_with_the_ids_of_an_earlier_caller<F: FileSystem>(scene: &Scene<'_, F>) {
    if !crate::needs(&[crate::Need::Root]) {
        return;
    }
    let file_system = scene.file_system;
    let before = thread_ids();
    let file = scene.create(b"file");
    scene.write(file, 0, &[1; 1000]);
    let folder = scene.mkdir(Ino::ROOT, b"folder");
    let change = SetAttr {
        mode: Some(0o640),
        ..SetAttr::default()
    };
    let kill = WriteMode {
        privileges: Privileges::Kill { gid: NOBODY },
        ..plain(libc::O_RDWR)
    };
    let opens = || {
        scene.close(scene.open(file.ino, libc::O_RDONLY));
        true
    };
    let calls: [(&str, &dyn Fn() -> bool); 15] = [
        ("lookup", &|| scene.lookup(Ino::ROOT, b"file").is_ok()),
        ("getattr", &|| file_system.getattr(file.ino, None).is_ok()),
        ("setattr", &|| {
            file_system.setattr(file.ino, None, &change).is_ok()
        }),
        ("open", &opens),
        ("read", &|| scene.read(file, 0, 10).len() == 10),
        ("write", &|| {
            file_system
                .write(file.ino, file.handle, 0, b"x", plain(libc::O_RDWR))
                .is_ok()
        }),
        ("flush", &|| file_system.flush(file.ino, file.handle).is_ok()),
        ("fsync", &|| {
            file_system.fsync(file.ino, file.handle, false).is_ok()
        }),
        ("lseek", &|| {
            file_system
                .lseek(file.ino, file.handle, SeekFrom::Data(0))
                .is_ok()
        }),
        ("statfs", &|| file_system.statfs(file.ino).is_ok()),
        ("readdir", &|| scene.list(folder, 10, true).len() < 2),
        ("sync", &|| file_system.sync().is_ok()),
        ("link", &|| file_system.link(file.ino, folder, b"link").is_ok()),
        ("unlink", &|| {
            file_system.unlink(&caller(), folder, b"link").is_ok()
        }),
        ("rmdir", &|| {
            file_system.rmdir(&caller(), Ino::ROOT, b"folder").is_ok()
        }),
    ];
    for (turn, (call, make)) in calls.into_iter().enumerate() {
        let name = format!("of nobody {turn}").into_bytes();
        let made = file_system.mkdir(&as_user(NOBODY), Ino::ROOT, &name, DIRECTORY);
        assert_eq!(made.map(|entry| entry.attr.uid), Ok(NOBODY));
        let written = file_system.write(file.ino, file.handle, 0, b"y", kill);
        assert_eq!(written, Ok(1));
        assert!(make(), "{call} failed");
        assert_eq!(
            thread_ids(),
            before,
            "{call} was made with the ids of an earlier caller"
        );
    }
}

fn a_change_of_mode_keeps_setgid_after_a_write_that_drops_it<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    let mode = WriteMode {
        privileges: Privileges::Kill { gid: NOBODY },
        ..plain(libc::O_RDWR)
    };
    let written = scene
        .file_system
        .write(file.ino, file.handle, 0, b"by an ordinary user", mode);
    assert_eq!(written, Ok(19));
    let change = SetAttr {
        mode: Some(0o2755),
        ..SetAttr::default()
    };
    let changed = scene.file_system.setattr(file.ino, None, &change);
    assert_eq!(changed.map(|attr| attr.mode & 0o7777), Ok(0o2755));
    let group = caller().gid;
    assert_eq!(scene.attr(file.ino).gid, group);
}
