//! `tidegate trace record` and `trace top` on a loop device; needs root, otherwise skipped with a reason.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::disk::{Disk, run, text, tidegate};

/// Writes that reach the device at once.
const O_SYNC: i32 = 0o4_010_000;

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
fn the_exit_code_is_that_of_a_command_that_fails() {
    let Some(disk) = Disk::make() else { return };
    for (name, script, code) in [
        ("three", "exit 3", 3),
        ("killed", "kill -9 $$", 137),
        ("fine", "true", 0),
    ] {
        let arguments = ["record", "-d", &disk.device, "-o", name, "--", "sh", "-c", script];
        let output = tidegate(disk.folder.path(), &arguments);
        let messages = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{script}: {messages}");
        assert_eq!(
            messages.contains("the command ended with"),
            code != 0,
            "{messages}"
        );
    }
}

#[test]
fn beside_a_trace_on_standard_output_a_command_prints_to_standard_error() {
    let Some(disk) = Disk::make() else { return };
    let script = format!("echo noise; echo x > {}/a; sync", disk.mountpoint.display());
    let arguments = ["record", "-d", &disk.device, "-o", "-", "--", "sh", "-c", &script];
    let output = tidegate(disk.folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("noise\n"),
        "{}",
        text(&output.stderr)
    );
    for line in text(&output.stdout).lines() {
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(line);
        assert!(parsed.is_ok(), "{line}");
    }
    assert!(text(&output.stdout).contains("\"/a\""), "the trace is there");
}

#[test]
fn renames_on_a_file_system_that_was_mounted_later_are_told_to_be_missing() {
    let Some(disk) = Disk::make() else { return };
    let place = disk.mountpoint.display();
    run("umount", &[&place.to_string()]);
    let script = format!(
        "mount {0} {place} && echo x > {place}/a && mv {place}/a {place}/b && sync",
        disk.device
    );
    let arguments = [
        "record",
        "-d",
        &disk.device,
        "-o",
        "late",
        "--",
        "sh",
        "-c",
        &script,
    ];
    let output = tidegate(disk.folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told = text(&output.stderr);
    assert!(told.contains("some renames of files: 1 file systems"), "{told}");
}

#[test]
fn without_a_device_that_of_the_current_folder_is_traced_or_the_options_are_named() {
    let Some(disk) = Disk::make() else { return };
    let trace = disk.folder.path().join("here").to_str().unwrap().to_owned();
    let output = tidegate(
        &disk.mountpoint,
        &[
            "record",
            "-o",
            &trace,
            "--json",
            "--",
            "sh",
            "-c",
            "echo x > f; sync f",
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(summary["written_bytes"].as_u64() >= Some(4096), "{summary}");

    // A file system in memory is on no device.
    let output = tidegate(
        disk.folder.path(),
        &["record", "-o", &trace, "--force", "--", "true"],
    );
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("-m DIRECTORY or --device DEVICE"), "{message}");
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

/// The recorder rests while the program goes on: what does not fit into the ring is lost, counted and told.
#[test]
fn a_program_that_makes_more_requests_than_are_taken_in_is_traced_with_gaps_that_are_told() {
    let Some(disk) = Disk::make() else { return };
    let script = "kill -STOP $PPID; dd if=/dev/zero of=\"$1\" bs=4k count=2000 oflag=direct 2>/dev/null; \
                  kill -CONT $PPID";
    let file = disk.mountpoint.join("flood").to_str().unwrap().to_owned();
    let arguments = [
        "record",
        "-d",
        &disk.device,
        "-o",
        "f.trace",
        "--ring",
        "64k",
        "--",
    ];
    let command = ["sh", "-c", script, "sh", &file];
    let output = tidegate(disk.folder.path(), &[&arguments[..], &command[..]].concat());
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("records were lost"), "{told}");
    let info = tidegate(disk.folder.path(), &["info", "f.trace", "--json"]);
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    assert!(info["header"]["lost_records"].as_u64().unwrap() > 1000, "{info}");
}

#[test]
fn a_killed_recorder_leaves_a_partial_trace_that_is_read_up_to_its_last_checkpoint() {
    let Some(disk) = Disk::make() else { return };
    // Writes until a checkpoint has counted requests, then kills the recorder.
    let script = "while grep -q '\"requests\": 0' killed.trace.partial/header.json; do \
                  dd if=/dev/zero of=\"$1\" bs=4k count=8 oflag=sync conv=notrunc 2>/dev/null || exit; done; \
                  kill -9 $PPID";
    let file = disk.mountpoint.join("file").to_str().unwrap().to_owned();
    let arguments = [
        "record",
        "-d",
        &disk.device,
        "-o",
        "killed",
        "--",
        "sh",
        "-c",
        script,
        "sh",
        &file,
    ];
    let output = tidegate(disk.folder.path(), &arguments);
    assert_eq!(output.status.code(), None, "{}", text(&output.stderr));
    let info = tidegate(disk.folder.path(), &["info", "killed.trace.partial", "--json"]);
    assert_eq!(info.status.code(), Some(1), "{}", text(&info.stderr));
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!(info["header"]["complete"], false);
    let kept = info["counts"]["requests"].as_u64().unwrap();
    assert!(kept > 0, "{info}");
    // The partial trace converts to an ordinary one.
    let convert = tidegate(
        disk.folder.path(),
        &["convert", "killed.trace.partial", "saved.trace"],
    );
    assert_eq!(convert.status.code(), Some(0), "{}", text(&convert.stderr));
    let saved = tidegate(disk.folder.path(), &["info", "saved.trace", "--json"]);
    let saved: serde_json::Value = serde_json::from_slice(&saved.stdout).unwrap();
    assert_eq!(saved["counts"]["requests"], kept);
}

#[test]
fn a_trace_by_tracefs_names_files_and_their_writers_on_ext4() {
    let Some(disk) = Disk::make() else { return };
    let old = disk.mountpoint.join("old").to_str().unwrap().to_owned();
    fs::write(&old, vec![1; 64 << 10]).unwrap();
    assert!(run("sync", &["-f", &old]).is_some());
    // `old` exists before the recording; `new` is created during it, in a folder also created during it.
    let script = "dd if=/dev/zero of=$1/old bs=4k count=4 conv=notrunc 2>/dev/null; mkdir $1/folder; \
                  dd if=/dev/zero of=$1/folder/new bs=64k count=4 conv=fsync 2>/dev/null";
    let folder = disk.mountpoint.to_str().unwrap();
    let record = [
        "record",
        "-d",
        &disk.device,
        "-o",
        "t.jsonl",
        "--method",
        "tracefs",
        "--sync",
        "--",
    ];
    let command = ["sh", "-c", script, "sh", folder];
    let output = tidegate(disk.folder.path(), &[&record[..], &command[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let trace = fs::read_to_string(disk.folder.path().join("t.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> = trace
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let written = |path: &str| -> u64 {
        let runs = lines.iter().filter_map(|line| line["request"]["runs"].as_array());
        let ours = runs.flatten().filter(|run| {
            run["path"] == path
                && run["block_type"] == "data"
                && run["cause"]["name"] == "dd"
                && run["cause_quality"] == "write_call"
        });
        ours.filter_map(|run| run["bytes"].as_u64()).sum()
    };
    assert_eq!(written("/old"), 16 << 10, "{trace}");
    assert_eq!(written("/folder/new"), 256 << 10, "{trace}");
    let synced = |line: &&serde_json::Value| {
        line["event"]["kind"] == "fsync" && line["event"]["path"] == "/folder/new"
    };
    assert_eq!(lines.iter().filter(synced).count(), 1, "{trace}");
    let header = &lines.last().unwrap()["header"];
    assert_eq!(header["method"], "tracefs");
}

/// Allocates memory and swaps it out at once: `madvise` with `MADV_PAGEOUT`.
const SWAPPED_OUT: &str = "import mmap, os\n\
                           m = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                           m.write(os.urandom(8 << 20))\n\
                           m.madvise(21)\n";

/// Active swap space; turned off on drop.
struct Swap<'place>(&'place str);

impl<'place> Swap<'place> {
    fn on(place: &'place str) -> Option<Self> {
        // Another program may look at a new loop device just then, and it is busy.
        let made = (0..20).find_map(|_| {
            let made = run("mkswap", &[place]).and_then(|_| run("swapon", &["--priority", "32767", place]));
            if made.is_none() {
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            made
        });
        if made.is_none() {
            testkit::report_left_out(format!("{place} can't be made swap space"));
        }
        made.map(|_| Self(place))
    }
}

impl Drop for Swap<'_> {
    fn drop(&mut self) {
        let _ = run("swapoff", &[self.0]);
    }
}

#[test]
fn swapped_memory_is_told_as_swap_in_a_file_and_on_a_device() {
    let Some(disk) = Disk::make() else { return };
    if run("python3", &["-c", ""]).is_none() {
        testkit::report_left_out("no python3 to swap out memory with");
        return;
    }
    let file = disk.mountpoint.join("swapfile").to_str().unwrap().to_owned();
    fs::write(&file, vec![0; 16 << 20]).unwrap();
    assert!(run("chmod", &["600", &file]).is_some());
    let swapped = |name: &str| {
        let record = [
            "record",
            "-d",
            &disk.device,
            "-o",
            name,
            "--",
            "python3",
            "-c",
            SWAPPED_OUT,
        ];
        let output = tidegate(disk.folder.path(), &record);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let trace = fs::read_to_string(disk.folder.path().join(name)).unwrap();
        let requests = trace.lines().filter_map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            (line["request"]["mode"] == "swap").then(|| line["request"].clone())
        });
        let requests: Vec<serde_json::Value> = requests.collect();
        let is_swap = |run: &serde_json::Value| run["block_type"] == "swap" && run["file"].is_null();
        let all_are = requests
            .iter()
            .all(|request| request["runs"].as_array().unwrap().iter().all(is_swap));
        assert!(all_are, "{requests:?}");
        requests
            .iter()
            .filter_map(|request| request["bytes"].as_u64())
            .sum::<u64>()
    };
    // The kernel may leave pages of the 8 MiB in memory, most of them on a busy machine.
    let is_swapped = |name: &str| (0..5).any(|time| swapped(&format!("{name}{time}.jsonl")) >= 4 << 20);
    {
        let Some(_swap) = Swap::on(&file) else { return };
        assert!(is_swapped("file"));
    }
    assert!(run("umount", &[disk.mountpoint.to_str().unwrap()]).is_some());
    let Some(_swap) = Swap::on(&disk.device) else {
        return;
    };
    assert!(is_swapped("device"));
}

#[test]
fn top_names_the_process_and_the_file_that_write() {
    let Some(disk) = Disk::make() else { return };
    let ended = AtomicBool::new(false);
    let file = disk.mountpoint.join("busy");
    let is_ours = |row: &serde_json::Value| {
        row["file"] == "/busy" && row["pid"] == std::process::id() && row["type"] == "data"
    };
    let row = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut options = fs::OpenOptions::new();
            let opened = options.create(true).write(true).custom_flags(O_SYNC).open(&file);
            let mut file = opened.unwrap();
            while !ended.load(Ordering::Relaxed) {
                std::io::Seek::rewind(&mut file).unwrap();
                file.write_all(&[7; 8192]).unwrap();
            }
        });
        // On a busy machine whole intervals can pass without a write.
        let mut top = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["trace", "top", "-d", &disk.device])
            .args(["--interval", "300ms", "--count", "200", "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut tables = BufReader::new(top.stdout.take().unwrap()).lines();
        let row = tables.find_map(|line| {
            let table: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            table["rows"]
                .as_array()
                .unwrap()
                .iter()
                .find(|row| is_ours(row))
                .cloned()
        });
        ended.store(true, Ordering::Relaxed);
        let _ = top.kill();
        let _ = top.wait();
        row
    });
    let row = row.expect("top ended, and named no write of ours");
    assert!(row["written_bytes"].as_u64().unwrap() >= 8192, "{row}");
    assert!(row["latency_p99_ns"].as_u64().unwrap() > 0, "{row}");
}
