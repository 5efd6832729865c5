//! A dump of 1 GiB: the memory of `tidegate unpack`, with and without `--salvage`. Only in full runs.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::parts::{done, noise, text, ubi, volume};

const FILES: u64 = 60;
const FILE_BYTES: usize = 15 << 20;
/// Memory beside a tenth of the dump.
const MEMORY_KIB: u64 = 64 << 10;

/// Runs the program; returns its largest memory in KiB. The kernel keeps the maximum, so the last look before the end counts.
fn peak_kib(words: &[&str]) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(words)
        .stdout(Stdio::null())
        .spawn()
        .expect("the program runs");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let ended = loop {
        if let Some(ended) = child.try_wait().expect("a child") {
            break ended;
        }
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        peak = kib.unwrap_or(0).max(peak);
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(ended.success(), "{words:?}: {ended}");
    peak
}

/// Prints the results.
#[expect(clippy::print_stderr, reason = "the figures of a long run are what it is for")]
fn print(bytes: u64, words: &[&str], peak: u64, seconds: f64) {
    eprintln!("{bytes} bytes, {words:?}: {peak} KiB, {seconds:.1} s");
}

#[test]
fn a_dump_of_1_gib_takes_a_tenth_of_it_as_memory() {
    if !testkit::is_full() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let tree = path("tree");
    fs::create_dir(&tree).expect("made");
    for number in 0..FILES {
        let mut file = fs::File::create(tree.join(format!("file-{number}"))).expect("made");
        file.write_all(&noise(FILE_BYTES, number)).expect("written");
    }
    let image = path("v.ubifs");
    done(&[
        "ubifs",
        "mkfs",
        "-m",
        "2048",
        "-e",
        "126976",
        "-c",
        "8200",
        "-x",
        "none",
        "-r",
        text(&tree),
        text(&image),
    ]);
    let section = volume(folder.path(), "v", "v.ubifs", "dynamic", 0).replace("12MiB", "990MiB");
    let mut dump = ubi(folder.path(), "1", &[section]);
    dump.resize(1 << 30, 0xFF);
    let bytes = u64::try_from(dump.len()).expect("it is small");
    let at = path("dump");
    fs::write(&at, &dump).expect("written");
    drop(dump);
    fs::remove_file(&image).expect("it is there");
    for options in [&[][..], &["--salvage"]] {
        let out = path("out");
        let start = Instant::now();
        let peak = peak_kib(&[&["unpack", text(&at), "-o", text(&out)], options].concat());
        print(bytes, options, peak, start.elapsed().as_secs_f64());
        for number in 0..FILES {
            let name = format!("file-{number}");
            let found = fs::read(out.join("1/v").join(&name)).expect("it is there");
            assert!(
                found == fs::read(tree.join(&name)).expect("it is there"),
                "{name}"
            );
        }
        fs::remove_dir_all(&out).expect("it is there");
        let limit = MEMORY_KIB + bytes / 10 / 1024;
        assert!(peak > 0 && peak <= limit, "{peak} KiB of {limit}");
    }
}
