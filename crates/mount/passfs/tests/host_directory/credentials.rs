//! Calls on behalf of other users leave the thread's credentials unchanged.

use vfs::{
    CopyRange, FallocateMode, FileSystem, FsError, Ino, NewNode, OpenFlags, Privileges, RenameFlags, SetAttr,
};

use crate::source::{Source, caller, node, write_mode};

const NOBODY: u32 = 65534;
const KILL: Privileges = Privileges::Kill { gid: NOBODY };

/// The calling thread's ids and capabilities, as reported by the kernel.
fn credentials() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let wanted = ["Uid:", "Gid:", "CapEff:", "CapPrm:"];
    let lines = status
        .lines()
        .filter(|line| wanted.iter().any(|field| line.starts_with(field)));
    lines.map(str::to_owned).collect()
}

#[test]
fn each_call_for_another_user_leaves_the_thread_with_the_daemons_credentials() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    let fs = &source.fs;
    let nobody = caller(NOBODY, NOBODY);
    let own = credentials();
    assert_eq!(own.len(), 4);
    let unchanged_after = |what: &str| assert_eq!(credentials(), own, "{what}");
    let node_of = |kind| NewNode {
        mode: kind | 0o644,
        ..node(0o644)
    };

    let (entry, opened) = source.create_as(&nobody, Ino::ROOT, "file", 0o644).unwrap();
    unchanged_after("create");
    assert_eq!(entry.attr.uid, NOBODY);
    let again = source.create_as(&nobody, Ino::ROOT, "file", 0o644);
    assert_eq!(again.err(), Some(FsError::Exists));
    unchanged_after("a create that fails");
    let opens = OpenFlags(libc::O_RDWR | libc::O_TRUNC);
    let met = fs.create(&nobody, Ino::ROOT, b"file", node(0o644), opens);
    assert_eq!(met.err(), Some(FsError::Stale));
    unchanged_after("a create that meets a file");
    fs.mkdir(&nobody, Ino::ROOT, b"folder", node_of(libc::S_IFDIR))
        .unwrap();
    unchanged_after("mkdir");
    let again = fs.mkdir(&nobody, Ino::ROOT, b"folder", node_of(libc::S_IFDIR));
    assert_eq!(again.err(), Some(FsError::Exists));
    unchanged_after("a mkdir that fails");
    fs.mknod(&nobody, Ino::ROOT, b"fifo", node_of(libc::S_IFIFO))
        .unwrap();
    unchanged_after("mknod");
    fs.symlink(&nobody, Ino::ROOT, b"link", b"file").unwrap();
    unchanged_after("symlink");
    let unnamed = fs.tmpfile(&nobody, Ino::ROOT, node(0o600), OpenFlags(libc::O_RDWR));
    unchanged_after("tmpfile");
    assert!(unnamed.is_ok_and(|(entry, _)| entry.attr.uid == NOBODY));
    let whiteout = RenameFlags(libc::RENAME_WHITEOUT);
    fs.rename(&nobody, (Ino::ROOT, b"fifo"), (Ino::ROOT, b"moved"), whiteout)
        .unwrap();
    unchanged_after("rename with a whiteout");

    fs.write(entry.ino, opened.handle, 0, b"by nobody", write_mode(KILL))
        .unwrap();
    unchanged_after("write");
    let refused = fs.write(entry.ino, opened.handle, u64::MAX, b"x", write_mode(KILL));
    assert!(refused.is_err());
    unchanged_after("a write that fails");
    let truncating = OpenFlags(libc::O_WRONLY | libc::O_TRUNC);
    fs.open(entry.ino, truncating, KILL).unwrap();
    unchanged_after("an open that truncates");
    let shorter = SetAttr {
        size: Some(3),
        privileges: KILL,
        ..SetAttr::default()
    };
    fs.setattr(entry.ino, None, &shorter).unwrap();
    unchanged_after("setattr");
    fs.fallocate(entry.ino, opened.handle, FallocateMode(0), 0, 4096, KILL)
        .unwrap();
    unchanged_after("fallocate");
    let copy = CopyRange {
        source: (entry.ino, opened.handle),
        source_offset: 0,
        target: (entry.ino, opened.handle),
        target_offset: 8192,
        length: 10,
        privileges: KILL,
    };
    fs.copy_file_range(&copy).unwrap();
    unchanged_after("copy_file_range");
}
