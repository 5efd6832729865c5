//! The words of `tidegate unpack` beside its output: content that is missing is a loss, and the report is that of the files
//! on the disk.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use nand::FileNand;
use serde_json::Value;
use ubi::{AttachOptions, Volume, VolumeId, scan};
use ubifs::format::{DirectoryEntry, Inode, NodeKind, ROOT_INODE, check, seal};
use ubifs::mkfs::Time;
use ubifs::{NewFile, OpenOptions, Ubifs, Writer};

use crate::parts::{BLOCK, PAGE, Parts, done, noise, text, tidegate, ubi, volume};

const LEB: usize = BLOCK - 2 * PAGE;

fn report_of(out: &Path) -> Value {
    let raw = fs::read(out.join("report.json")).expect("a report");
    serde_json::from_slice(&raw).expect("a document")
}

/// A volume without compression, made from a folder.
fn plain_ubifs(parts: &Parts, tree: &str, name: &str) -> Vec<u8> {
    let (tree, file) = (parts.path(tree), parts.path(name));
    let shape = [
        "ubifs", "mkfs", "-m", "2048", "-e", "126976", "-c", "200", "-x", "none",
    ];
    done(&[&shape[..], &["-r", text(&tree), text(&file)]].concat());
    fs::read(file).expect("it was made")
}

/// A whole UBI image in a file, without compression, has its headers in the dump as they are.
#[test]
fn a_bare_file_system_that_holds_an_image_of_ubi_is_whole() {
    let parts = Parts::make();
    fs::write(parts.path("conf/update.ubi"), &parts.second).expect("made");
    // Its headers do not begin at the blocks of the file.
    let shifted = [b"header", parts.second.as_slice()].concat();
    fs::write(parts.path("conf/update.bin"), shifted).expect("made");
    // A file system in a file has a superblock.
    fs::write(
        parts.path("conf/inner"),
        fs::read(parts.path("conf.ubifs")).expect("made"),
    )
    .expect("made");
    let bare = plain_ubifs(&parts, "conf", "outer.ubifs");
    let dump = [noise(700, 1), bare, noise(3 * BLOCK, 2), parts.first.clone()].concat();
    let (output, out) = parts.unpack(&dump, &[]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    parts.check_tree("conf", &out.join("ubifs-0x2bc/files"));
    parts.check_first(&out.join("1001"));
    assert_eq!(fs::read_dir(&out).expect("a folder").count(), 3, "{output:?}");
    assert!(
        message.contains("parts of an image in a volume or file"),
        "{message}"
    );
}

#[test]
fn a_bare_file_system_ends_where_the_next_one_begins() {
    let parts = Parts::make();
    let whole = fs::read(parts.path("conf.ubifs")).expect("made");
    let dump = [&whole[..whole.len() - 2 * LEB], &whole].concat();
    let (_, out) = parts.unpack(&dump, &[]);
    let second = format!("ubifs-{:#x}/files", whole.len() - 2 * LEB);
    parts.check_tree("conf", &out.join(second));
    let report = report_of(&out);
    let first = &report["parts"][0];
    let missing = |part: usize| report["parts"][part]["missing_bytes"].as_u64().expect("a number");
    assert_eq!(missing(0) - missing(1), u64::try_from(2 * LEB).expect("small"));
    assert_eq!(first["bytes"].as_u64(), u64::try_from(whole.len() - 2 * LEB).ok());
}

/// A squashfs with the length of its superblock.
fn squashfs(bytes: usize) -> Vec<u8> {
    let mut content = noise(bytes, 7);
    content[..4].copy_from_slice(b"hsqs");
    content[28..32].copy_from_slice(&[4, 0, 0, 0]);
    content[40..48].copy_from_slice(&u64::try_from(bytes).expect("small").to_le_bytes());
    content
}

#[test]
fn a_hole_in_a_squashfs_and_a_volume_without_blocks_are_losses() {
    let parts = Parts::make();
    let folder = parts.folder.path();
    fs::write(folder.join("app.squashfs"), squashfs(5 * LEB + 100)).expect("made");
    fs::write(folder.join("small"), noise(2000, 3)).expect("made");
    let image = ubi(
        folder,
        "7",
        &[
            volume(folder, "small", "small", "static", 0),
            volume(folder, "app", "app.squashfs", "dynamic", 1),
        ],
    );
    // Blocks 0 and 1 have the volume table, 2 is the static volume, 3 to 8 are the squashfs.
    assert_eq!(image.len(), 9 * BLOCK);
    let told = |dump: &[u8], expected: &[&str]| {
        let (output, out) = parts.unpack(dump, &[]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        for expected in expected {
            assert!(message.contains(expected), "{expected}: {message}");
        }
        assert_eq!(report_of(&out)["complete"], Value::Bool(false));
    };
    let (output, _) = parts.unpack(&image, &[]);
    assert_eq!(
        (output.status.code(), output.stderr.len()),
        (Some(0), 0),
        "{output:?}"
    );
    for fill in [noise(BLOCK, 5), vec![0xFF; BLOCK]] {
        let mut dump = image.clone();
        dump[5 * BLOCK..6 * BLOCK].copy_from_slice(&fill);
        told(&dump, &["7/app: LEB 2 is missing and reads as 0xff"]);
        let mut dump = image.clone();
        dump[2 * BLOCK..3 * BLOCK].copy_from_slice(&fill);
        told(&dump, &["7/small: no block of this static volume was found"]);
    }
    // Cut between two blocks: nothing but the length in the squashfs says so.
    told(
        &image[..7 * BLOCK],
        &["7/app: 2 LEBs are missing and read as 0xff, the first is LEB 4"],
    );
    let cut = fs::metadata(parts.path("out/7/app.squashfs")).expect("a file");
    assert_eq!(cut.len(), u64::try_from(6 * LEB).expect("small"));
}

fn file(mode: u32) -> NewFile {
    NewFile {
        mode,
        user: 0,
        group: 0,
        data: Vec::new(),
    }
}

const NOW: Time = Time {
    seconds: 1_700_000_000,
    nanoseconds: 0,
};

/// A chip with files that were synced and not committed.
fn synced_chip(parts: &Parts) -> Vec<u8> {
    let chip = parts.path("chip");
    fs::write(&chip, vec![0xFF; 96 * BLOCK]).expect("written");
    let name = text(&chip);
    done(&["ubi", "format", name, "--page", "2k", "--block", "128k"]);
    done(&["ubi", "mkvol", name, "-N", "conf", "-S", "60"]);
    done(&["ubifs", "mkfs", "-r", text(&parts.path("conf")), name]);
    let nand = FileNand::open(chip.as_ref(), nand::Access::ReadWrite, None).expect("a chip");
    let scanned = scan(nand, AttachOptions::linux(ubi::Access::ReadWrite)).expect("it is UBI");
    let device = scanned.attach().expect("it is UBI");
    let volume: Arc<dyn Volume> = Arc::new(device.open(VolumeId(0)).expect("there is one"));
    let mut writer = Writer::open(volume, OpenOptions::standard()).expect("a file system");
    for number in 0..20 {
        let name = format!("synced-{number}");
        let inode = writer
            .create(ROOT_INODE, name.as_bytes(), &file(0o100_644), NOW)
            .expect("there is room");
        writer
            .write(inode, 0, &noise(20_000, number), NOW)
            .expect("there is room");
    }
    writer.fsync().expect("the chip takes it");
    drop(writer);
    fs::read(chip).expect("readable")
}

/// A mount takes a bud whose LEB is unmapped for one that was never written.
#[test]
fn a_lost_block_of_the_journal_is_a_loss() {
    let parts = Parts::make();
    let whole = synced_chip(&parts);
    let (output, out) = parts.unpack(&whole, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let folder = report_of(&out)["parts"][0]["folder"]
        .as_str()
        .expect("a name")
        .to_owned();
    assert!(fs::read(out.join(&folder).join("conf/synced-7")).expect("a file") == noise(20_000, 7));
    let nand = FileNand::open(parts.path("chip").as_ref(), nand::Access::ReadOnly, None).expect("a chip");
    let scanned = scan(nand, AttachOptions::linux(ubi::Access::ReadOnly)).expect("it is UBI");
    let device = scanned.attach().expect("it is UBI");
    let volume: Arc<dyn Volume> = Arc::new(device.open(VolumeId(0)).expect("there is one"));
    let ubifs = Ubifs::open(volume, OpenOptions::standard()).expect("a file system");
    let new = ubifs
        .replay_report()
        .buds
        .iter()
        .filter(|bud| bud.offset == 0 && bud.nodes > 0);
    let leb = new
        .map(|bud| bud.leb)
        .next()
        .expect("the files fill more than one LEB");
    let is_of_leb = |block: &usize| {
        let header = &whole[block * BLOCK + PAGE..][..64];
        header.starts_with(b"UBI!") && header[8..12] == [0; 4] && header[12..16] == leb.to_be_bytes()
    };
    let block = (0..96).find(is_of_leb).expect("it is on the chip");
    for fill in [noise(BLOCK, 5), vec![0xFF; BLOCK]] {
        let mut dump = whole.clone();
        dump[block * BLOCK..(block + 1) * BLOCK].copy_from_slice(&fill);
        let (output, _) = parts.unpack(&dump, &[]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        let expected = format!("journal: LEB {leb} is missing, to which the log leads");
        assert!(message.contains(&expected), "{message}");
    }
}

#[test]
fn a_member_of_an_array_is_told_with_the_command_that_reads_all() {
    let parts = Parts::make();
    let members: Vec<String> = (0..2)
        .map(|number| text(&parts.path(&format!("m{number}"))).to_owned())
        .collect();
    for member in &members {
        fs::write(member, vec![0xFF; 64 * BLOCK]).expect("written");
    }
    let all = members.join(",");
    done(&[
        "ubi", "format", &all, "--page", "2k", "--block", "128k", "--label", "media",
    ]);
    done(&["ubifs", "mkfs", "-r", text(&parts.path("conf")), &all]);
    for (number, member) in members.iter().enumerate() {
        let (output, out) = parts.unpack(&fs::read(member).expect("readable"), &["--salvage"]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        let expected = format!("it is member {number} of the 2 of array media");
        assert!(message.contains(&expected), "{message}");
        assert!(
            message.contains("`tidegate ubifs extract DUMP0,DUMP1 -o DIRECTORY`"),
            "{message}"
        );
        assert!(
            !message.contains("superblock") && !message.contains("--salvage may get more"),
            "{message}"
        );
        let written = report_of(&out)["parts"][0]["volumes"][0]["output"]
            .as_str()
            .map(str::to_owned);
        assert!(
            written.is_some_and(|written| out.join(written).is_file()),
            "{message}"
        );
    }
    let none = parts.path("none");
    for dumps in [&[all.as_str()][..], &[&members[0], &members[1]]] {
        let output = tidegate(&[&["unpack", "-o", text(&none)], dumps].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(
            message.contains(&format!("tidegate ubifs extract {all}")),
            "{message}"
        );
    }
}

#[test]
fn a_dump_is_never_replaced_by_its_archive() {
    let parts = Parts::make();
    let dump = parts.path("dump");
    fs::write(&dump, &parts.second).expect("written");
    fs::hard_link(&dump, parts.path("again")).expect("made");
    std::os::unix::fs::symlink(&dump, parts.path("link")).expect("made");
    for name in ["dump", "again", "link"] {
        let archive = parts.path(name);
        for words in [
            ["unpack", text(&dump), "--tar", text(&archive)],
            ["ubifs", "extract", text(&dump), "--tar"],
        ] {
            let words = match words[0] {
                "ubifs" => [&words[..], &[text(&archive)]].concat(),
                _ => words.to_vec(),
            };
            let output = tidegate(&words);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        }
    }
    assert!(fs::read(&dump).expect("there") == parts.second);
    assert_eq!(fs::metadata(&dump).expect("there").nlink(), 2);
}

/// A file that takes long to write.
fn long_file(parts: &Parts) -> String {
    fs::create_dir(parts.path("long")).expect("made");
    fs::write(parts.path("long/file"), b"tide".repeat(12 << 20)).expect("made");
    let image = parts.path("long.ubifs");
    let shape = ["ubifs", "mkfs", "-m", "2048", "-e", "126976", "-c", "2000", "-r"];
    done(&[&shape[..], &[text(&parts.path("long")), text(&image)]].concat());
    text(&image).to_owned()
}

/// Starts a command and interrupts it when `has_begun`; returns its exit code.
fn interrupted(words: &[&str], has_begun: &dyn Fn() -> bool) -> Option<i32> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    while !has_begun() {
        assert!(
            child.try_wait().expect("it can be asked").is_none(),
            "it ended too early"
        );
        std::thread::yield_now();
    }
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("it runs");
    child.wait().expect("it ends").code()
}

#[test]
fn an_interrupted_archive_is_not_there_and_an_interrupted_folder_has_the_files_of_its_report() {
    let parts = Parts::make();
    let image = long_file(&parts);
    let (folder, out) = (parts.path("archives"), parts.path("stopped"));
    fs::create_dir(&folder).expect("made");
    let archive = folder.join("all.tar");
    let sizes = || {
        let entries = fs::read_dir(&folder).expect("a folder").flatten();
        entries
            .filter_map(|entry| entry.metadata().ok())
            .map(|found| found.len())
            .max()
    };
    let code = interrupted(&["unpack", &image, "--tar", text(&archive)], &|| {
        sizes().is_some_and(|bytes| bytes > 1 << 20)
    });
    assert_eq!(code, Some(2));
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0);
    let file = out.join("ubifs-0x0/files/file");
    let code = interrupted(&["unpack", &image, "-o", text(&out)], &|| {
        fs::metadata(&file).is_ok_and(|found| found.len() > 0)
    });
    assert_eq!(code, Some(1));
    assert!(!file.exists());
    let report = report_of(&out);
    let part = &report["parts"][0];
    assert_eq!(
        (
            report["complete"].as_bool(),
            part["files"].as_u64(),
            part["content_bytes"].as_u64()
        ),
        (Some(false), Some(0), Some(0)),
        "{report}"
    );
}

#[test]
fn the_report_counts_what_was_written() {
    let parts = Parts::make();
    let table = parts.path("devices");
    fs::write(&table, "/console c 600 0 0 5 1 0 0 -\n").expect("made");
    fs::write(parts.path("conf/large"), noise(90_000, 1)).expect("made");
    let image = parts.path("with.ubifs");
    let shape = ["ubifs", "mkfs", "-m", "2048", "-e", "126976", "-c", "200", "-D"];
    let tree = parts.path("conf");
    let words = [text(&table), "-r", text(&tree), text(&image)];
    done(&[&shape[..], &words].concat());
    let dump = fs::read(&image).expect("made");
    let (output, out) = parts.unpack(&dump, &["--max-size", "60k"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    let report = report_of(&out);
    let part = &report["parts"][0];
    let found = Command::new("find")
        .args([text(&out.join("ubifs-0x0/files")), "-type", "f"])
        .output()
        .expect("find runs");
    let lines = found.stdout.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(
        part["files"].as_u64(),
        u64::try_from(lines).ok(),
        "{report}: {message}"
    );
    // The link; the device is left out.
    assert_eq!(part["others"].as_u64(), Some(1), "{report}");
    assert_eq!(part["bytes"].as_u64(), u64::try_from(dump.len()).ok(), "{report}");
    // Nothing is damaged, so that a salvage would get no more.
    assert!(message.contains("it is a device"), "{message}");
    assert!(!message.contains("--salvage"), "{message}");
}

#[test]
fn a_volume_that_was_left_out_has_no_bytes_in_the_report() {
    let parts = Parts::make();
    let (output, out) = parts.unpack(&parts.first, &["--max-size", "1k", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = report_of(&out);
    let volumes = report["parts"][0]["volumes"].as_array().expect("volumes");
    let kernel = volumes
        .iter()
        .find(|volume| volume["name"] == "kernel")
        .expect("a kernel");
    assert!(!out.join("1001/kernel.bin").exists());
    assert_eq!(
        (kernel["bytes"].as_u64(), &kernel["output"]),
        (Some(0), &Value::Null)
    );
    let lost = kernel["lost"].to_string();
    assert!(lost.contains("300001 bytes are left out"), "{lost}");
}

/// Directories that hold themselves, their parent, and the root: entries of files are changed to lead there.
#[test]
fn directories_in_a_cycle_are_told_and_written_once() {
    let parts = Parts::make();
    let tree = parts.path("cycle");
    fs::create_dir_all(tree.join("outer/inner")).expect("made");
    for name in ["self", "inner/parent", "inner/root"] {
        fs::write(tree.join("outer").join(name), "x").expect("made");
    }
    let mut dump = plain_ubifs(&parts, "cycle", "cycle.ubifs");
    let entries: BTreeMap<Vec<u8>, usize> = (0..dump.len())
        .step_by(8)
        .filter_map(|place| {
            let end = (place + 4096).min(dump.len());
            let header = check(&dump[place..end]).ok()?;
            let node = &dump[place..place + usize::try_from(header.bytes).expect("small")];
            let entry = DirectoryEntry::decode(node, NodeKind::Entry).ok()?;
            (header.kind == NodeKind::Entry).then_some((entry.name, place))
        })
        .collect();
    let outer = entries[&b"outer"[..]] + 40;
    let outer: [u8; 8] = dump[outer..outer + 8].try_into().expect("8 bytes");
    for (name, target) in [("self", outer), ("parent", outer), ("root", 1_u64.to_le_bytes())] {
        let place = entries[name.as_bytes()];
        let header = check(&dump[place..place + 512]).expect("an entry");
        let node = &mut dump[place..place + usize::try_from(header.bytes).expect("small")];
        node[40..48].copy_from_slice(&target);
        // The type of a directory.
        node[49] = 1;
        seal(node, header.kind, header.group, header.sequence);
    }
    let image = parts.path("cycle.ubifs");
    fs::write(&image, &dump).expect("written");
    let second = "the directory has a second place in the tree; it is left out here";
    for words in [&[][..], &["--salvage"], &["--deleted"]] {
        let (output, out) = parts.unpack(&dump, words);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {message}");
        assert!(message.contains(second), "{words:?}: {message}");
        // A salvage keeps the newest name alone, which is below the directory itself.
        let (host, told) = match words.contains(&"--salvage") {
            true => ("lost+found/65", "the directory is below itself"),
            false => ("outer", second),
        };
        let host = out.join("ubifs-0x0/files").join(host);
        assert!(message.contains(told), "{words:?}: {message}");
        assert!(host.join("inner").is_dir(), "{words:?}: {message}");
        assert!(!host.join("inner/parent").exists() && !host.join("self").exists());
    }
    for words in [
        &["ubifs", "tree"][..],
        &["ubireader", "list-files", "-r", "-P", "/"],
    ] {
        let output = tidegate(&[words, &[text(&image)]].concat());
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {message}");
        assert_eq!(message.matches(second).count(), 3, "{words:?}: {message}");
    }
}

/// The block behind the end is found by the list of the file's blocks alone, as no read reaches it.
#[test]
fn a_file_whose_inode_has_a_size_that_is_too_small_is_told() {
    let parts = Parts::make();
    let size = 8192_u64 + 1234;
    fs::write(parts.path("conf/cut"), noise(9426, 5)).expect("made");
    let mut image = plain_ubifs(&parts, "conf", "cut.ubifs");
    let mut changed = 0;
    for place in (0..image.len()).step_by(8) {
        let end = (place + 4096).min(image.len());
        let Ok(header) = check(&image[place..end]) else {
            continue;
        };
        let node = &mut image[place..place + usize::try_from(header.bytes).expect("small")];
        if header.kind == NodeKind::Inode && Inode::decode(node).is_ok_and(|inode| inode.size_bytes == size) {
            node[48..56].copy_from_slice(&4096_u64.to_le_bytes());
            seal(node, header.kind, header.group, header.sequence);
            changed += 1;
        }
    }
    assert_eq!(changed, 1);
    let (output, out) = parts.unpack(&image, &[]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    let lines: Vec<&str> = message
        .lines()
        .filter(|line| line.contains("files/cut: "))
        .collect();
    assert_eq!(lines.len(), 1, "{message}");
    assert!(lines[0].contains("4096"), "{message}");
    let found = fs::read(out.join("ubifs-0x0/files/cut")).expect("what the size says");
    assert!(found == noise(9426, 5)[..4096]);
}
