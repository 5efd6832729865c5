//! `tidegate ubifs` as a program, on images of `mkfs.ubifs` and `ubinize`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

fn tidegate(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("ubifs")
        .args(words)
        .output()
        .expect("the program runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn has_judges() -> bool {
    let found = ["mkfs.ubifs", "ubinize"]
        .iter()
        .all(|tool| Command::new(tool).arg("--version").output().is_ok());
    if !found {
        testkit::report_left_out("there is no mkfs.ubifs and ubinize (apt install mtd-utils)");
    }
    found
}

fn run(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().expect("it runs");
    assert!(
        output.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Makes a tree, a volume of it, and a UBI image of the volume.
fn make(folder: &Path) {
    let tree = folder.join("tree");
    fs::create_dir_all(tree.join("a/b")).expect("made");
    fs::write(tree.join("a/b/file"), vec![0x5A; 100_000]).expect("made");
    fs::write(tree.join("a/small"), b"small\n").expect("made");
    if !tree.join("second").exists() {
        fs::hard_link(tree.join("a/small"), tree.join("second")).expect("made");
        symlink("a/small", tree.join("link")).expect("made");
    }
    let path = |name: &str| folder.join(name).display().to_string();
    run(
        "mkfs.ubifs",
        &[
            "-m",
            "2048",
            "-e",
            "126976",
            "-c",
            "200",
            "-r",
            &path("tree"),
            "-o",
            &path("volume"),
        ],
    );
    let ini = format!(
        "[v]\nmode=ubi\nimage={}\nvol_id=0\nvol_type=dynamic\nvol_name=root\nvol_size=4MiB\n",
        path("volume")
    );
    fs::write(folder.join("ini"), ini).expect("made");
    run(
        "ubinize",
        &["-m", "2048", "-p", "128KiB", "-o", &path("chip"), &path("ini")],
    );
}

#[test]
fn a_bare_volume_and_a_ubi_image_are_listed_and_extracted() {
    if !has_judges() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path());
    for image in ["volume", "chip"] {
        let image_path = folder.path().join(image).display().to_string();
        let info = tidegate(&["info", "--json", &image_path]);
        assert!(text(&info).contains("\"clean\":true"), "{info:?}");
        let list = tidegate(&["ls", &image_path, "/"]);
        assert_eq!(
            (text(&list).as_str(), list.status.code()),
            ("a\nlink\nsecond\n", Some(0)),
            "{list:?}"
        );
        let cat = tidegate(&["cat", &image_path, "a/small"]);
        assert_eq!(cat.stdout, b"small\n", "{cat:?}");
        let tree = text(&tidegate(&["tree", &image_path]));
        assert!(
            tree.contains("link -> a/small") && tree.contains("a/b/file"),
            "{tree}"
        );
        let stat = text(&tidegate(&["stat", &image_path, "a/small"]));
        assert!(stat.contains("2 links") && stat.contains("6 bytes"), "{stat}");
        let out = folder.path().join(format!("out-{image}"));
        let extract = tidegate(&["extract", &image_path, "-o", &out.display().to_string()]);
        assert_eq!(extract.status.code(), Some(0), "{extract:?}");
        let different = Command::new("diff")
            .args(["-r", "--no-dereference"])
            .args([folder.path().join("tree"), out])
            .output()
            .expect("diff runs");
        assert!(different.status.success(), "{different:?}");
    }
}

#[test]
fn a_lost_block_is_one_line_with_its_place_and_the_rest_is_extracted() {
    if !has_judges() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path());
    let image = folder.path().join("volume");
    let mut raw = fs::read(&image).expect("it is there");
    // "small" is stored uncompressed, so its node can be found in the image.
    let at = raw
        .windows(6)
        .position(|window| window == b"small\n")
        .expect("it is not compressed");
    raw[at] ^= 1;
    fs::write(&image, raw).expect("written");
    let out = folder.path().join("out");
    let words = [
        "extract",
        &image.display().to_string(),
        "-o",
        &out.display().to_string(),
    ];
    let extract = tidegate(&words);
    let message = String::from_utf8_lossy(&extract.stderr);
    assert_eq!(extract.status.code(), Some(1), "{message}");
    assert!(
        message.lines().count() == 2 && message.contains("a/small: inode ") && message.contains("LEB "),
        "{message}"
    );
    assert!(message.contains("--salvage may get more"), "{message}");
    assert_eq!(fs::read(out.join("a/b/file")).expect("extracted").len(), 100_000);
    let again = tidegate(&words);
    assert_eq!(
        again.status.code(),
        Some(2),
        "a folder that is in use is refused: {again:?}"
    );
}

/// A listing by find(1) of all files below a folder: path, kind, mode, owner, size, time, links, target.
fn listing(folder: &Path) -> Vec<String> {
    let output = Command::new("find")
        .arg(folder)
        .args(["(", "-type", "d", "-printf", "%P %y %m %U:%G %Ts\n", ")", "-o"])
        .args(["-printf", "%P %y %m %U:%G %Ts %s %n %l\n"])
        .output()
        .expect("find runs");
    assert!(output.status.success(), "{output:?}");
    let mut lines: Vec<String> = text(&output).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn gnu_tar_unpacks_an_archive_to_the_tree_that_the_image_was_made_of() {
    if !has_judges() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("d".repeat(120)).join("e".repeat(90))).expect("made");
    fs::write(tree.join("d".repeat(120)).join("long"), b"a long path\n").expect("made");
    symlink("t".repeat(200), tree.join("long link")).expect("made");
    fs::write(tree.join("na\u{ef}ve"), b"not ASCII\n").expect("made");
    let sparse = fs::File::create(tree.join("sparse")).expect("made");
    std::os::unix::fs::FileExt::write_all_at(&sparse, &[7; 5000], 1 << 20).expect("made");
    sparse.set_len(3 << 20).expect("made");
    fs::File::create(tree.join("a hole"))
        .and_then(|file| file.set_len(70_000))
        .expect("made");
    let fifo = rustix::fs::mknodat(
        rustix::fs::CWD,
        tree.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    );
    fifo.expect("made");
    make(folder.path());
    let image = folder.path().join("volume").display().to_string();
    let archive = folder.path().join("archive.tar").display().to_string();
    let written = tidegate(&["extract", &image, "--tar", &archive, "--json"]);
    assert_eq!(written.status.code(), Some(0), "{written:?}");
    assert!(text(&written).contains("\"losses\":0"), "{written:?}");
    let streamed = tidegate(&["extract", &image, "--tar", "-"]);
    assert!(
        streamed.stdout == fs::read(&archive).expect("written"),
        "a file and a stream differ"
    );
    assert!(streamed.stdout.len() < 1 << 20, "holes are not in the archive");

    let out = folder.path().join("out").display().to_string();
    fs::create_dir(&out).expect("made");
    run("tar", &["-xpf", &archive, "-C", &out]);
    let out = Path::new(&out);
    assert_eq!(listing(out), listing(&tree));
    run(
        "diff",
        &[
            "-r",
            "--no-dereference",
            "--exclude=fifo",
            &tree.display().to_string(),
            &out.display().to_string(),
        ],
    );
    let blocks = std::os::unix::fs::MetadataExt::blocks(&fs::metadata(out.join("sparse")).expect("there"));
    assert!(blocks < 200, "the sparse file takes {blocks} blocks");
}
