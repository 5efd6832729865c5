//! Output files under a name where another user, or a habit such as `-o /dev/null`, has put another kind of file.

mod support {
    pub mod bench;
}

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use support::bench::Bench;

/// A volume `volume`, a chip `chip` with a UBI volume `data`, and commands that write one output each; OUT is its name.
fn commands(bench: &Bench) -> [&'static str; 4] {
    fs::write(bench.path("tree/file"), vec![7; 10_000]).expect("made");
    bench.make_volume();
    fs::write(bench.path("chip"), vec![0xFF; 32 * 131_072]).expect("room for it");
    bench.ends(0, "ubi format chip --page 2k --block 128k --subpage 512");
    bench.ends(0, "ubi mkvol chip -N data -S 4");
    [
        "ubifs extract volume --tar OUT",
        "ubi dump chip data -o OUT",
        "nand dump chip OUT",
        "ubifs mkfs -r tree -m 2048 --peb 128k -c 200 -y OUT",
    ]
}

#[test]
fn a_device_is_written_and_stays_a_device() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let bench = Bench::new();
    for words in commands(&bench) {
        let null = bench.path("null");
        let made = mknodat(
            CWD,
            &null,
            FileType::CharacterDevice,
            Mode::from_raw_mode(0o666),
            makedev(1, 3),
        );
        made.expect("root may");
        bench.ends(0, &words.replace("OUT", "null"));
        let found = fs::symlink_metadata(&null).expect("there");
        assert!(found.file_type().is_char_device(), "{words}");
        bench.ends(0, &words.replace("OUT", "result"));
        assert!(
            fs::metadata(bench.path("result")).expect("there").is_file(),
            "{words}"
        );
        fs::remove_file(null).expect("it is there");
    }
    assert!(
        fs::symlink_metadata("/dev/null")
            .expect("there")
            .file_type()
            .is_char_device()
    );
}

#[test]
fn links_that_others_planted_are_not_followed() {
    let bench = Bench::new();
    let commands = commands(&bench);
    let shared = bench.path("shared");
    fs::create_dir(&shared).expect("made");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).expect("changed");
    let secret = bench.path("secret");
    for words in commands {
        fs::write(&secret, "of its owner").expect("written");
        for name in ["result", "result.partial"] {
            let _ = fs::remove_file(shared.join(name));
            symlink(&secret, shared.join(name)).expect("planted");
        }
        bench.ends(0, &words.replace("OUT", "shared/result"));
        let kept = fs::read(&secret).expect("there");
        assert!(kept == b"of its owner", "{words}: {} bytes", kept.len());
        assert!(
            fs::symlink_metadata(shared.join("result"))
                .expect("there")
                .is_file(),
            "{words}"
        );
    }
}

/// The kind of path that a shell passes for `>(...)`. The crate `outfile` tests `/dev/stdout`.
#[test]
fn a_descriptor_by_its_name_is_written() {
    let bench = Bench::new();
    for words in commands(&bench) {
        let (code, shown, told) = bench.run(&words.replace("OUT", "/dev/fd/1"));
        assert_eq!(code, 0, "{words}: {told}");
        assert!(!shown.is_empty(), "{words}");
    }
}

#[test]
fn a_log_file_is_not_written_through_a_link_of_another_user() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let bench = Bench::new();
    let (secret, link) = (bench.path("secret"), bench.path("log"));
    fs::write(&secret, "of its owner").expect("written");
    fs::create_dir(bench.path("mnt")).expect("made");
    symlink(&secret, &link).expect("planted");
    std::os::unix::fs::lchown(&link, Some(1234), None).expect("root may");
    let (code, _, told) = bench.run("mount --log-file log tree mnt");
    if code == 0 {
        bench.ends(0, "unmount mnt");
    }
    assert_eq!(fs::read_to_string(&secret).expect("there"), "of its owner");
    assert_eq!(code, 2, "{told}");
    assert!(told.contains("another user's symbolic link"), "{told}");
}
