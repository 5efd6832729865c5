//! `tidegate trace record` and `trace top` on a loop device, as root; skipped with a reason elsewhere.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests too")]
#![expect(clippy::print_stderr, reason = "a skipped test says why")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes go to the device at once.
const O_SYNC: i32 = 0o4_010_000;

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

fn tidegate(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .current_dir(folder)
        .arg("trace")
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A mounted ext4 on a loop device; gone with the value.
struct Disk {
    device: String,
    mountpoint: PathBuf,
    folder: tempfile::TempDir,
}

impl Disk {
    fn make() -> Option<Self> {
        let skip = |reason: &str| eprintln!("skipped: {reason}");
        if run("id", &["-u"]).as_deref() != Some("0") {
            skip("needs root");
            return None;
        }
        let folder = tempfile::tempdir_in("/dev/shm").ok()?;
        let image = folder.path().join("image");
        let mountpoint = folder.path().join("mounted");
        fs::create_dir(&mountpoint).unwrap();
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let Some(device) = run("losetup", &["-f", "--show", image.to_str().unwrap()]) else {
            skip("no loop device can be had");
            return None;
        };
        let disk = Self {
            device,
            mountpoint,
            folder,
        };
        let mounted = run("mkfs.ext4", &["-q", &disk.device])
            .and_then(|_| run("mount", &[&disk.device, disk.mountpoint.to_str().unwrap()]));
        if mounted.is_none() {
            skip("ext4 can't be made or mounted");
            return None;
        }
        let probe = tidegate(
            disk.folder.path(),
            &["record", "-d", &disk.device, "-o", "probe", "--", "true"],
        );
        if probe.status.code() == Some(2) && text(&probe.stderr).contains("can't be traced") {
            skip(&text(&probe.stderr));
            return None;
        }
        Some(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.mountpoint).output();
        let _ = run("losetup", &["-d", &self.device]);
    }
}

#[test]
fn a_recorded_trace_is_native_and_names_the_file_and_what_is_there_is_not_replaced() {
    let Some(disk) = Disk::make() else { return };
    let file = disk.mountpoint.join("victim").to_str().unwrap().to_owned();
    let of = format!("of={file}");
    let dd = ["dd", "if=/dev/zero", &of, "bs=4k", "count=8", "oflag=sync"];
    let record = [
        &["record", "-d", &disk.device, "-o", "taken", "--json", "--"][..],
        &dd,
    ]
    .concat();
    let output = tidegate(disk.folder.path(), &record);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&summary["file"], &summary["complete"]),
        (&"taken.trace".into(), &true.into())
    );
    let lines = tidegate(
        disk.folder.path(),
        &["convert", "taken.trace", "-", "--to", "jsonl"],
    );
    let named = text(&lines.stdout)
        .lines()
        .filter(|line| line.contains("\"/victim\""))
        .count();
    assert!(named >= 8, "{named} requests of the file");

    let again = tidegate(disk.folder.path(), &record);
    assert_eq!(again.status.code(), Some(2));
    assert!(
        text(&again.stderr).contains("taken.trace exists already"),
        "{}",
        text(&again.stderr)
    );
}

#[test]
fn a_trace_on_the_traced_device_is_warned_of_and_is_not_in_itself() {
    let Some(disk) = Disk::make() else { return };
    let inside = disk.mountpoint.join("inside.jsonl").to_str().unwrap().to_owned();
    let arguments = [
        "record",
        "-d",
        &disk.device,
        "-o",
        &inside,
        "--sync",
        "--duration",
        "300ms",
    ];
    let output = tidegate(disk.folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("which is traced"),
        "{}",
        text(&output.stderr)
    );
    let trace = fs::read_to_string(&inside).unwrap();
    let data_of_itself =
        |line: &&str| line.contains("inside.jsonl") && line.contains("\"block_type\":\"data\"");
    assert_eq!(trace.lines().find(data_of_itself), None);
}

#[test]
fn a_trace_that_a_signal_ends_early_is_whole_up_to_there_and_marked() {
    let Some(disk) = Disk::make() else { return };
    let kill = "kill -INT $PPID; exec tail -f /dev/null";
    let arguments = ["record", "-d", &disk.device, "-o", "cut", "--", "sh", "-c", kill];
    let output = tidegate(disk.folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let info = tidegate(disk.folder.path(), &["info", "cut.trace", "--json"]);
    assert_eq!(info.status.code(), Some(1), "{}", text(&info.stderr));
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!(info["header"]["complete"], false);
}

#[test]
fn top_names_the_process_and_the_file_that_write() {
    let Some(disk) = Disk::make() else { return };
    let ended = AtomicBool::new(false);
    let file = disk.mountpoint.join("busy");
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut options = fs::OpenOptions::new();
            let opened = options.create(true).write(true).custom_flags(O_SYNC).open(&file);
            let mut file = opened.unwrap();
            while !ended.load(Ordering::Relaxed) {
                std::io::Seek::rewind(&mut file).unwrap();
                file.write_all(&[7; 8192]).unwrap();
            }
        });
        let arguments = [
            "top",
            "-d",
            &disk.device,
            "--interval",
            "300ms",
            "--count",
            "3",
            "--json",
        ];
        let output = tidegate(disk.folder.path(), &arguments);
        ended.store(true, Ordering::Relaxed);
        output
    });
    assert!(output.status.code() != Some(2), "{}", text(&output.stderr));
    let tables: Vec<serde_json::Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(tables.len(), 3);
    let is_ours = |row: &&serde_json::Value| {
        row["file"] == "/busy" && row["pid"] == std::process::id() && row["type"] == "data"
    };
    let mut rows = tables.iter().flat_map(|table| table["rows"].as_array().unwrap());
    let row = rows.find(is_ours);
    let row = row.unwrap_or_else(|| panic!("{}", text(&output.stdout)));
    assert!(row["written_bytes"].as_u64().unwrap() >= 8192, "{row}");
    assert!(row["latency_p99_ns"].as_u64().unwrap() > 0, "{row}");
}
