//! Malicious images: `ubifs extract` and `extract --tar` must write only to the given folder or archive.
//!
//! The program makes the images itself; the tests then change them and repair their CRCs.

use std::fs;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::support::bench::Bench;
use crate::support::hostile::snapshot;
use rustix::fs::{CWD, FileType, Mode, XattrFlags, lgetxattr, lsetxattr, makedev, mknodat};
use ubifs::format::NodeKind;

/// Creates a folder `victim`, and an image with a symbolic link `link` to it and a folder `folder` with a program.
fn with_victim(bench: &Bench, link: &str, folder: &str) {
    let victim = bench.path("victim");
    fs::create_dir(&victim).expect("made");
    fs::write(victim.join("own"), "own").expect("made");
    let tree = bench.path("tree");
    fs::create_dir_all(tree.join(folder).join("sub")).expect("made");
    fs::write(tree.join(folder).join("evil"), "#!/bin/sh\n").expect("made");
    fs::set_permissions(tree.join(folder).join("evil"), fs::Permissions::from_mode(0o4755)).expect("changed");
    fs::write(tree.join(folder).join("sub/deep"), "deep").expect("made");
    symlink(&victim, tree.join(link)).expect("made");
    bench.make_volume();
}

/// Tests both orders: the keys, hashes of the original names, decide which name comes first.
#[test]
fn a_folder_with_the_name_of_a_link_leads_nowhere() {
    for (link, folder) in [("b", "a"), ("a", "b")] {
        let bench = Bench::new();
        with_victim(&bench, link, folder);
        bench.rename_in_image(folder.as_bytes(), link.as_bytes());
        let before = snapshot(&bench.path("victim"));
        let (code, _, told) = bench.run("ubifs extract volume -o out");
        assert_eq!(
            snapshot(&bench.path("victim")),
            before,
            "{link}, {folder}: {told}"
        );
        assert_eq!(code, 1, "{told}");
        assert!(told.contains("its key is not the hash of the name"), "{told}");
        assert_eq!(
            fs::read_link(bench.path("out").join(link)).expect("the link is there"),
            bench.path("victim")
        );
    }
}

/// A naive unpacker would write through the link.
#[test]
fn an_archive_has_a_name_once() {
    for (link, folder) in [("b", "a"), ("a", "b")] {
        let bench = Bench::new();
        with_victim(&bench, link, folder);
        bench.rename_in_image(folder.as_bytes(), link.as_bytes());
        let (code, _, told) = bench.run("ubifs extract volume --tar archive.tar");
        assert_eq!(code, 1, "{told}");
        let names = bench.names_in_archive("archive.tar");
        assert_eq!(names, ["./", &format!("./{link}")], "{told}");
    }
}

/// A reader that does not know sparse files writes their content under the name in the header.
#[test]
fn a_sparse_file_is_not_below_a_link_for_any_reader() {
    let bench = Bench::new();
    let tree = bench.path("tree");
    fs::create_dir(bench.path("victim")).expect("made");
    symlink(bench.path("victim"), tree.join("GNUSparseFile.0")).expect("made");
    let sparse = fs::File::create(tree.join("sparse")).expect("made");
    sparse.write_all_at(b"end", 100_000).expect("written");
    bench.make_volume();
    bench.ends(0, "ubifs extract volume --tar archive.tar");
    let raw = fs::read(bench.path("archive.tar")).expect("it was made");
    let has = |name: &[u8]| raw.windows(name.len()).any(|found| found == name);
    assert!(has(b"./GNUSparseFile.1/content") && !has(b"./GNUSparseFile.0/content"));
    assert!(
        bench
            .names_in_archive("archive.tar")
            .contains(&"./sparse".to_owned())
    );
}

#[test]
fn commands_that_list_show_a_name_once() {
    let bench = Bench::new();
    with_victim(&bench, "b", "a");
    bench.rename_in_image(b"a", b"b");
    for command in ["ls", "tree"] {
        let (code, shown, told) = bench.run(&format!("ubifs {command} volume"));
        assert_eq!(code, 1, "{command}: {told}");
        assert!(told.contains("its key is not the hash of the name"), "{told}");
        assert!(!shown.contains("evil"), "{shown}");
    }
}

/// Otherwise each name of a file with a false link count would become another copy of its content.
#[test]
fn names_of_one_file_are_links_whatever_it_says_of_their_number() {
    let bench = Bench::new();
    let tree = bench.path("tree");
    fs::write(tree.join("first"), vec![7; 50_000]).expect("made");
    for number in 0..5 {
        fs::hard_link(tree.join("first"), tree.join(format!("name-{number}"))).expect("made");
    }
    bench.make_volume();
    bench.change_inodes(|inode| {
        if inode.links == 6 {
            inode.links = 1;
        }
    });
    bench.ends(0, "ubifs extract volume -o out");
    assert_eq!(fs::metadata(bench.path("out/first")).expect("there").nlink(), 6);
    bench.ends(0, "ubifs extract volume --tar archive.tar");
    let bytes = fs::metadata(bench.path("archive.tar")).expect("there").len();
    assert!(bytes < 100_000, "{bytes} bytes");
}

/// An extraction by root of untrusted firmware must not give rights to other users of this machine.
#[test]
fn no_devices_rights_or_owners_of_others_unless_they_are_asked_for() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let bench = Bench::new();
    let tree = bench.path("tree");
    fs::create_dir(tree.join("dir")).expect("made");
    fs::write(tree.join("dir/program"), "#!/bin/sh\n").expect("made");
    std::os::unix::fs::chown(tree.join("dir/program"), Some(1234), Some(1235)).expect("root may");
    // VFS_CAP_REVISION_2: CAP_NET_RAW, permitted and effective.
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let set = |path: &str, name: &str, value: &[u8]| {
        lsetxattr(tree.join(path), name, value, XattrFlags::empty()).expect("root may");
    };
    set("dir/program", "security.capability", &capability);
    set("dir/program", "trusted.mark", b"of root");
    set("dir/program", "user.mark", b"of anybody");
    fs::set_permissions(tree.join("dir/program"), fs::Permissions::from_mode(0o6755)).expect("changed");
    fs::set_permissions(tree.join("dir"), fs::Permissions::from_mode(0o3777)).expect("changed");
    let device = mknodat(
        CWD,
        tree.join("disk"),
        FileType::BlockDevice,
        Mode::from_raw_mode(0o666),
        makedev(254, 0),
    );
    device.expect("root may");
    let fifo = mknodat(
        CWD,
        tree.join("fifo"),
        FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    );
    fifo.expect("made");
    bench.make_volume();

    let xattr = |path: &Path, name: &str| {
        let mut value = vec![0; 100];
        let bytes = lgetxattr(path, name, &mut value).ok()?;
        value.truncate(bytes);
        Some(value)
    };
    let (code, _, told) = bench.run("ubifs extract volume -o out");
    assert_eq!(code, 1, "what is left out is told: {told}");
    for words in [
        "disk: ",
        "security.capability",
        "trusted.mark",
        "dir/program: mode 6755",
        "--preserve",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert!(!bench.path("out/disk").exists());
    assert!(
        fs::metadata(bench.path("out/fifo"))
            .expect("there")
            .file_type()
            .is_fifo()
    );
    let program = bench.path("out/dir/program");
    let status = fs::metadata(&program).expect("there");
    assert_eq!(
        (status.mode() & 0o7777, status.uid(), status.gid()),
        (0o755, 0, 0)
    );
    assert_eq!(
        fs::metadata(bench.path("out/dir")).expect("there").mode() & 0o7777,
        0o1777
    );
    assert_eq!(xattr(&program, "security.capability"), None);
    assert_eq!(xattr(&program, "trusted.mark"), None);
    assert_eq!(
        xattr(&program, "user.mark").as_deref(),
        Some(b"of anybody".as_slice())
    );

    let (code, _, told) = bench.run("ubifs extract --preserve volume -o all");
    assert_eq!((code, told.as_str()), (0, ""));
    let program = bench.path("all/dir/program");
    let status = fs::metadata(&program).expect("there");
    assert_eq!(
        (status.mode() & 0o7777, status.uid(), status.gid()),
        (0o6755, 1234, 1235)
    );
    assert_eq!(
        fs::metadata(bench.path("all/dir")).expect("there").mode() & 0o7777,
        0o3777
    );
    let disk = fs::metadata(bench.path("all/disk")).expect("there");
    assert!(disk.file_type().is_block_device());
    assert_eq!(
        (disk.rdev(), disk.mode() & 0o7777),
        (
            makedev(254, 0),
            fs::metadata(tree.join("disk")).expect("there").mode() & 0o7777
        )
    );
    assert_eq!(
        xattr(&program, "security.capability").as_deref(),
        Some(capability.as_slice()),
        "chown must not have removed it"
    );
    assert_eq!(
        xattr(&program, "trusted.mark").as_deref(),
        Some(b"of root".as_slice())
    );
}

/// Such a mount would answer every call with an error, including the query of `tidegate unmount` for its daemon.
#[test]
fn an_image_whose_root_can_not_be_read_is_not_mounted() {
    if !testkit::needs(&[testkit::Need::Root, testkit::Need::FUSE]) {
        return;
    }
    let bench = Bench::new();
    fs::write(bench.path("tree/file"), "x").expect("made");
    fs::create_dir(bench.path("mountpoint")).expect("made");
    bench.make_volume();
    // The level field of an index node.
    bench.change_nodes(NodeKind::Index, |node| {
        node[26..28].copy_from_slice(&500_u16.to_le_bytes())
    });
    let (code, _, told) = bench.run("ubifs mount volume mountpoint");
    let table = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    if table.contains(&bench.path("mountpoint").display().to_string()) {
        let unmounted = Command::new("umount").arg(bench.path("mountpoint")).status();
        assert!(unmounted.expect("umount runs").success());
        panic!("it is mounted: {code}, {told}");
    }
    assert_eq!(code, 2, "{told}");
    assert!(told.contains("root folder can't be read"), "{told}");
}

#[test]
fn limits_on_size_names_and_depth_are_told() {
    let bench = Bench::new();
    let tree = bench.path("tree");
    fs::write(tree.join("small"), vec![1; 3000]).expect("made");
    fs::write(tree.join("large"), vec![2; 300_000]).expect("made");
    let deep = (0..300).fold(tree.join("deep"), |path, _| path.join("d"));
    fs::create_dir_all(&deep).expect("made");
    fs::write(deep.join("bottom"), "bottom").expect("made");
    bench.make_volume();
    for target in ["-o out", "--tar archive.tar"] {
        let (code, _, told) = bench.run(&format!("ubifs extract --max-size 100k volume {target}"));
        assert_eq!(code, 1, "{told}");
        assert!(told.contains("large: ") && told.contains("--max-size"), "{told}");
        assert!(told.contains("folders deep"), "{told}");
        assert!(!told.contains("small"), "{told}");
    }
    assert_eq!(fs::metadata(bench.path("out/small")).expect("there").len(), 3000);
    assert!(!bench.path("out/large").exists());
    assert!(bench.path("out/deep/d/d/d").exists());
    let (code, _, told) = bench.run("ubifs extract --max-files 20 volume -o few");
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("--max-files"), "{told}");
    assert_eq!(snapshot(&bench.path("few")).len(), 20);
}

/// An incomplete folder must not be accessible to others: the owners and modes inside are set only at the end.
#[test]
fn the_mode_of_the_image_s_root_is_that_of_the_folder_at_the_end() {
    let bench = Bench::new();
    fs::set_permissions(bench.path("tree"), fs::Permissions::from_mode(0o751)).expect("changed");
    fs::write(bench.path("tree/file"), "x").expect("made");
    bench.make_volume();
    bench.ends(0, "ubifs extract volume -o out");
    assert_eq!(
        fs::metadata(bench.path("out")).expect("there").mode() & 0o7777,
        0o751
    );
    bench.ends(0, "ubifs extract volume file -o one");
    assert_eq!(fs::read(bench.path("one")).expect("there"), b"x");
    bench.ends(2, "ubifs extract volume file -o one");
    symlink("nowhere", bench.path("dangling")).expect("made");
    bench.ends(2, "ubifs extract volume -o dangling");
    assert!(!bench.path("nowhere").exists());
}
