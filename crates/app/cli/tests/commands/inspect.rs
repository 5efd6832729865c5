//! `tidegate inspect`: what each kind of file is called, and the same identification in the errors of other commands.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use testkit::report_left_out;

struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        Self {
            folder: TempDir::new().expect("a folder"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).expect("room for it");
    }

    fn run(&self, words: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(words)
            .current_dir(&self.folder)
            .output()
            .expect("the program runs")
    }

    fn done(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {messages}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Output of `inspect --json`, which must exit with `code`.
    fn inspected(&self, name: &str, code: i32) -> Value {
        let output = self.run(&["inspect", name, "--json"]);
        assert_eq!(output.status.code(), Some(code), "{name}: {output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn refused(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// `nand.img`: a UBI image of 64 blocks with the UBIFS volume `root`; `root.ubifs`: that volume by itself.
    fn with_flash() -> Self {
        let bench = Self::new();
        let shape = ["--page", "2k", "--block", "128k", "--subpage", "512"];
        bench.write("nand.img", vec![0xFF; 64 * 131_072]);
        bench.done(&[&["ubi", "format", "nand.img"], &shape[..]].concat());
        bench.done(&["ubi", "mkvol", "nand.img", "-N", "root", "-S", "40"]);
        bench.done(&["ubi", "mkvol", "nand.img", "-N", "data", "-S", "4"]);
        bench.done(&["ubifs", "mkfs", "nand.img", "--volume", "root"]);
        bench.done(&["ubi", "dump", "nand.img", "root", "-o", "root.ubifs"]);
        // Without the side-car, as a dump of another tool is.
        fs::remove_file(bench.path("nand.img.nand")).expect("a side-car");
        bench
    }
}

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR";

#[test]
fn a_ubi_image_is_identified_with_geometry_volumes_and_next_command() {
    let bench = Bench::with_flash();
    let told = bench.inspected("nand.img", 0);
    assert_eq!(told["kind"], "ubi", "{told}");
    assert_eq!(told["geometry"]["block_bytes"], 131_072);
    assert_eq!(told["geometry"]["page_bytes"], 2048);
    assert_eq!(told["geometry"]["blocks"], 64);
    assert_eq!(told["parts"][0]["name"], "root");
    assert_eq!(told["parts"][0]["content"], "ubifs");
    assert_eq!(told["parts"][1]["name"], "data");
    assert_eq!(told["unusual"], serde_json::json!([]));
    let next = told["next"].as_str().expect("a command");
    assert_eq!(next, "tidegate ubifs ls --volume root nand.img");
    let words: Vec<&str> = next.split(' ').skip(1).collect();
    bench.done(&words);

    let text = bench.done(&["identify", "nand.img"]);
    assert!(text.starts_with("nand.img: a UBI image of 2 volumes\n"), "{text}");
    assert!(text.contains("64 blocks of 128 KiB, page 2 KiB"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn a_truncated_dump_is_reported_and_can_be_read() {
    let bench = Bench::with_flash();
    let whole = fs::read(bench.path("nand.img")).expect("an image");
    bench.write("cut.img", &whole[..63 * 131_072 + 70_000]);
    let told = bench.inspected("cut.img", 0);
    assert_eq!(
        told["unusual"][0],
        "truncated: the last block has 70000 of 131072 bytes"
    );
    assert_eq!(told["geometry"]["blocks"], 64);
    let output = bench.run(&["ubi", "info", "cut.img"]);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    assert!(
        messages.contains("the last block lacks 61072 bytes"),
        "{messages}"
    );
    assert!(
        bench
            .refused(&["ubi", "mkvol", "cut.img", "-N", "x", "-S", "1"])
            .contains("truncated")
    );
    // The same with a geometry that is said, if the headers agree with it.
    let said = ["--page", "2k", "--block", "128k"];
    bench.done(&[&["ubi", "info", "cut.img"], &said[..]].concat());
    let wrong = ["--page", "2k", "--block", "256k"];
    let message = bench.refused(&[&["ubi", "info", "cut.img"], &wrong[..]].concat());
    assert!(message.contains("`truncate -s 8388608`"), "{message}");
}

#[test]
fn a_mount_of_a_flash_image_is_answered_with_the_command_that_mounts_it() {
    let bench = Bench::with_flash();
    let message = bench.refused(&["mount", "nand.img", "."]);
    assert!(
        message
            .contains("nand.img: this is a UBI image of 2 volumes, not a folder: use `tidegate ubifs mount "),
        "{message}"
    );
    assert!(message.ends_with("nand.img MOUNTPOINT`\n"), "{message}");
}

#[test]
fn a_check_finds_that_a_dump_is_truncated() {
    let bench = Bench::with_flash();
    let whole = fs::read(bench.path("nand.img")).expect("an image");
    let checked = |bytes: usize| {
        bench.write("cut.img", &whole[..bytes]);
        let output = bench.run(&["ubi", "check", "cut.img"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let partial = checked(63 * 131_072 + 70_000);
    assert!(
        partial.starts_with("truncated: the last block lacks 61072 bytes"),
        "{partial}"
    );
    assert!(partial.contains("1 finding in 64 blocks"), "{partial}");
    // Cut between two blocks: the volumes tell that there were more.
    let even = checked(16 * 131_072);
    assert!(
        even.starts_with("truncated: the volumes take at least "),
        "{even}"
    );
    assert!(
        even.contains("and the image has 16; its end is missing"),
        "{even}"
    );
}

#[test]
fn a_dump_shows_what_is_known_of_its_chip_and_names_the_rest() {
    let bench = Bench::with_flash();
    let shown = bench.done(&["nand", "info", "nand.img"]);
    assert!(
        shown.contains("2 KiB each (guessed from UBI headers)\n"),
        "{shown}"
    );
    let unknown = "unknown       bad blocks, ecc, timing, erases, clock: a plain dump does not tell\n";
    assert!(shown.ends_with(unknown), "{shown}");
    let said = bench.done(&["nand", "info", "nand.img", "--preset", "slc"]);
    assert!(said.contains("2 KiB + 64 B OOB each (as given)\n"), "{said}");
    assert!(said.contains("\ntiming        read 25 us"), "{said}");
    let json: Value =
        serde_json::from_str(&bench.done(&["nand", "info", "nand.img", "--json"])).expect("JSON");
    assert_eq!(json["geometry"]["oob_bytes"], Value::Null);
    assert_eq!(json["simulated"]["ecc_bits"], Value::Null);
    assert_eq!(json["geometry_from"], "ubi_headers");
}

#[test]
fn flash_inside_a_larger_dump_is_found_with_the_command_that_unpacks_it() {
    let bench = Bench::with_flash();
    let image = fs::read(bench.path("nand.img")).expect("an image");
    // Above one step of the search, at a multiple of eight only.
    let offset = (3 << 20) + 24;
    bench.write("full.bin", [vec![0x5A; offset], image].concat());
    let told = bench.inspected("full.bin", 0);
    assert_eq!(told["kind"], "ubi", "{told}");
    assert_eq!(told["offset_bytes"], offset);
    assert_eq!(told["geometry"]["blocks"], 64);
    let next = told["next"].as_str().expect("a command");
    assert_eq!(next, "tidegate unpack full.bin -o DIRECTORY");
    bench.done(&["unpack", "full.bin", "-o", "DIRECTORY"]);
    assert!(bench.path("DIRECTORY/report.json").exists());

    let volume = fs::read(bench.path("root.ubifs")).expect("a volume");
    bench.write("full2.bin", [vec![0x5A; 4096], volume].concat());
    let told = bench.inspected("full2.bin", 0);
    assert_eq!(
        (&told["kind"], &told["offset_bytes"]),
        (&"ubifs".into(), &4096.into())
    );
}

#[test]
fn a_bare_volume_is_identified_by_inspect_and_by_commands_that_need_ubi() {
    let bench = Bench::with_flash();
    let told = bench.inspected("root.ubifs", 0);
    assert_eq!(told["kind"], "ubifs");
    assert_eq!(told["next"], "tidegate ubifs ls root.ubifs");
    for words in [
        &["ubi", "info", "root.ubifs"][..],
        &["nand", "info", "root.ubifs"],
        &["trace", "info", "root.ubifs"],
        &["trace", "map", "root.ubifs"],
        &["mount", "root.ubifs", "."],
        &["replay", "root.ubifs", "."],
        &["bench", "run", "root.ubifs", "."],
        &["bench", "job", "--check", "root.ubifs"],
        &["bench", "show", "root.ubifs"],
        &["bench", "compare", "root.ubifs", "root.ubifs"],
    ] {
        let message = bench.refused(words);
        assert!(
            message.contains("this is a bare UBIFS volume, not ") && message.contains("use `tidegate ubifs "),
            "{words:?}: {message}"
        );
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn other_formats_and_nothing_at_all_are_named_with_code_1() {
    let bench = Bench::new();
    bench.write("picture.png", PNG);
    bench.write("empty", b"");
    bench.write("erased", vec![0xFF; 300_000]);
    let noise: Vec<u8> = (0..3000_u64)
        .flat_map(|number| {
            number
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(29)
                .to_le_bytes()
        })
        .collect();
    bench.write("noise", noise);
    for (name, kind) in [
        ("picture.png", "foreign"),
        ("empty", "empty"),
        ("erased", "erased"),
        ("noise", "unknown"),
        ("/dev/null", "foreign"),
    ] {
        assert_eq!(bench.inspected(name, 1)["kind"], kind, "{name}");
    }
    for words in [
        ["ubi", "info"],
        ["ubifs", "ls"],
        ["nand", "info"],
        ["trace", "info"],
    ] {
        let message = bench.refused(&[&words[..], &["picture.png"]].concat());
        assert!(
            message.contains("this is a PNG image, not a"),
            "{words:?}: {message}"
        );
    }
    // Unknown content keeps the message that asks for a geometry.
    for name in ["noise", "erased"] {
        assert!(bench.refused(&["ubi", "info", name]).contains("--page"));
        assert!(bench.refused(&["nand", "info", name]).contains("--page"));
    }
    assert!(bench.refused(&["inspect", "absent"]).contains("absent"));
}

#[test]
fn traces_jobs_and_records_are_identified_by_their_text() {
    let bench = Bench::new();
    bench.write(
        "phone.txt",
        "  8,0    1        1     0.000000000  1234  Q   W 223490 + 8 [dd]\n",
    );
    bench.write(
        "a.strace",
        "1234 1700000000.000001 openat(AT_FDCWD, \"/tmp/x\", O_RDONLY) = 3 <0.000010>\n",
    );
    let job = bench.done(&["bench", "job", "--show-preset", "mobibench"]);
    bench.write("job.toml", job);
    bench.write(
        "j.fio",
        "; a comment\n[global]\nbs=4k\nsize=1m\n[one]\nrw=randwrite\n",
    );
    let records = bench.done(&["bench", "file", ".", "--size", "64k", "--record", "4k", "--json"]);
    bench.write("run.jsonl", records);
    bench.write("notes.txt", "a few words\nof a text\n");
    for (name, kind, next) in [
        ("phone.txt", "block-trace", "tidegate trace info phone.txt"),
        ("a.strace", "call-trace", "tidegate replay a.strace DIR"),
        ("job.toml", "job", "tidegate bench run job.toml DIR"),
        ("j.fio", "fio-job", "tidegate bench run j.fio DIR"),
        ("run.jsonl", "run-records", "tidegate bench show run.jsonl"),
        (".", "folder", "tidegate mount . MOUNTPOINT"),
    ] {
        let told = bench.inspected(name, 0);
        assert_eq!(
            (&told["kind"], &told["next"]),
            (&kind.into(), &next.into()),
            "{name}: {told}"
        );
    }
    assert_eq!(bench.inspected("notes.txt", 1)["kind"], "unknown");
}

#[test]
fn other_outputs_are_identified_with_the_command_that_reads_them() {
    let bench = Bench::new();
    bench.done(&["nand", "create", "chip.img", "--preset", "slc", "--blocks", "8"]);
    let history = ["--history", "runs.db"];
    let measured = ["bench", "file", ".", "--size", "64k", "--record", "4k"];
    bench.done(&[&measured[..], &history[..]].concat());
    bench.write("app.json", "{\"schema\":1,\"tables\":[],\"traces\":[]}\n");
    bench.write("app.html", "<!DOCTYPE html>\n<html lang=\"en\">\n");
    for (name, description, next) in [
        (
            "chip.img.nand",
            "the side-car of a NAND image",
            Some("tidegate nand info chip.img"),
        ),
        (
            "runs.db",
            "a history of measurements",
            Some("tidegate bench history list --history runs.db"),
        ),
        (
            "app.json",
            "a report on block traces in JSON",
            Some("jq . app.json"),
        ),
        (
            "app.html",
            "an HTML page, such as a report (open it in a browser)",
            None,
        ),
    ] {
        let told = bench.inspected(name, 0);
        assert_eq!(
            (&told["kind"], &told["description"]),
            (&"output".into(), &description.into()),
            "{told}"
        );
        assert_eq!(told["next"].as_str(), next);
    }
    for words in [&["convert", "app.json", "out.trace"][..], &["report", "app.json"]] {
        let message = bench.refused(&[&["trace"], words].concat());
        assert!(
            message.contains(
                "app.json: this is a report on block traces in JSON, not a trace of block requests"
            ),
            "{message}"
        );
    }
}

#[test]
fn an_ext4_image_and_a_partition_table_are_told_by_their_superblocks() {
    if Command::new("mkfs.ext4").arg("-V").output().is_err() {
        report_left_out("there is no mkfs.ext4 (apt install e2fsprogs)");
        return;
    }
    let bench = Bench::new();
    let image = fs::File::create(bench.path("disk.img")).expect("a file");
    image.set_len(16 << 20).expect("room for it");
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F", "-L", "root"])
        .arg(bench.path("disk.img"))
        .status();
    assert!(made.expect("it runs").success());
    let told = bench.inspected("disk.img", 0);
    assert_eq!(told["kind"], "file-system");
    let description = told["description"].as_str().expect("a text");
    assert!(description.starts_with("an ext4 \"root\", "), "{description}");
    assert_eq!(told["next"], "tidegate trace map --summary disk.img");
    let message = bench.refused(&["ubi", "info", "disk.img"]);
    assert!(message.contains("this is an ext4 \"root\""), "{message}");

    // A table of one partition, with that file system in it.
    let mut table = vec![0; 1 << 20];
    table[446 + 4] = 0x83;
    table[446 + 8..][..4].copy_from_slice(&2048_u32.to_le_bytes());
    table[446 + 12..][..4].copy_from_slice(&32_768_u32.to_le_bytes());
    table[510..512].copy_from_slice(&[0x55, 0xAA]);
    let system = fs::read(bench.path("disk.img")).expect("an image");
    bench.write("whole.img", [table, system].concat());
    let told = bench.inspected("whole.img", 0);
    assert_eq!(told["kind"], "disk", "{told}");
    assert_eq!(told["parts"][0]["file_system"], "ext4");
    assert_eq!(told["parts"][0]["offset_bytes"], 1 << 20);
}
