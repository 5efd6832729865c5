//! The commands that read foreign input, on samples of mutated inputs, with limits on memory and time.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use testkit::hostile::{change_bytes, change_text};
use testkit::prng::Prng;

pub const BLKPARSE: &str = include_str!("../../../../trace/formats/tests/traces/blkparse.txt");
const STRACE: &str = include_str!("../../../../trace/formats/tests/traces/strace.txt");
pub const FIO: &str = "[global]
rw=randwrite
bs=4k
size=1m
runtime=10
[one]
iodepth=4
ioengine=io_uring
[two]
rw=read
stonewall
";

/// Limits: 256 MiB of data and ten seconds.
const LIMITED: &str = "ulimit -d 262144; exec timeout 10 \"$0\" \"$@\"";

/// The good input, a command that reads its mutated copy, and whether the input is text.
const COMMANDS: [(&str, &str, bool); 20] = [
    ("card.toml", "emmc run --card input.toml --size 256k", true),
    (
        "card.toml",
        "emmc run --card input.toml --size 256k --translation page-map",
        true,
    ),
    ("host.toml", "emmc run --host input.toml --size 256k", true),
    ("job.toml", "bench job --check input.toml", true),
    ("job.fio", "bench job --check input.fio", true),
    ("trace.txt", "trace info input.txt", true),
    ("trace.txt", "trace convert input.txt out.jsonl", true),
    ("trace.txt", "trace convert input.txt out.trace", true),
    ("strace.txt", "replay input.txt here", true),
    ("trace.bin", "trace info input.bin --from blktrace", false),
    ("chip", "nand info input", false),
    ("chip", "ubi info input", false),
    ("chip", "ubi check input", false),
    ("records.jsonl", "bench show input.jsonl", true),
    ("plan.toml", "study check input.toml", true),
    (
        "volumes.ini",
        "ubi build input.ini -o out.jsonl -p 4096 -m 512",
        true,
    ),
    ("trace.txt", "inspect input", true),
    ("chip", "inspect input", false),
    ("records.jsonl", "inspect input", true),
    ("disk", "inspect input", false),
];

/// Runs the program, which must succeed.
pub fn run_in(folder: &Path, words: &str) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(words.split(' '))
        .current_dir(folder)
        .output()
        .expect("the program runs");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{words}: {output:?}");
    output
}

/// Makes a file system with a few files.
pub fn ubifs_volume() -> Vec<u8> {
    made_ubifs("ubifs mkfs -r tree -m 2048 -e 126976 -c 100 -x none volume")
}

/// One of small LEBs.
pub fn small_ubifs_volume() -> Vec<u8> {
    made_ubifs("ubifs mkfs -r tree -m 512 -e 15872 -c 100 -x lzo volume")
}

fn made_ubifs(words: &str) -> Vec<u8> {
    let folder = TempDir::new().expect("possible on this host");
    fs::create_dir_all(folder.path().join("tree/sub")).expect("made");
    for number in 0..20 {
        fs::write(
            folder.path().join(format!("tree/sub/{number}")),
            vec![7; number * 300],
        )
        .expect("made");
    }
    run_in(folder.path(), words);
    fs::read(folder.path().join("volume")).expect("it was made")
}

/// Records of a few requests in blktrace format.
pub fn blktrace() -> Vec<u8> {
    let record = |number: u32, action: u32, category: u32, data: &[u8]| {
        let mut raw = Vec::new();
        raw.extend_from_slice(&(0x6561_7400_u32 | 7).to_le_bytes());
        raw.extend_from_slice(&number.to_le_bytes());
        raw.extend_from_slice(&(u64::from(number) * 1000).to_le_bytes());
        raw.extend_from_slice(&(2048 + u64::from(number / 3) * 8).to_le_bytes());
        for word in [4096, action | category << 16, 7, 8 << 20, 0] {
            raw.extend_from_slice(&u32::to_le_bytes(word));
        }
        raw.extend_from_slice(&[0, 0]);
        raw.extend_from_slice(&u16::try_from(data.len()).expect("short").to_le_bytes());
        raw.extend_from_slice(data);
        raw
    };
    let mut all = record(0, 0, 1 << 10, b"program\0");
    for request in 0..10 {
        // Queued, issued, completed.
        for (step, action) in [1, 7, 8].into_iter().enumerate() {
            all.extend(record(
                request * 3 + u32::try_from(step).expect("few"),
                action,
                2,
                &[],
            ));
        }
    }
    all
}

fn good(folder: &Path, name: &str) -> Vec<u8> {
    match name {
        "card.toml" => super::texts::card().into(),
        "host.toml" => include_str!("../../../../emmc/emmc/hosts/mshci.toml").into(),
        "job.toml" => include_str!("../../../../load/jobs/presets/androbench.toml").into(),
        "job.fio" => FIO.into(),
        "trace.txt" => BLKPARSE.into(),
        "strace.txt" => STRACE.into(),
        "trace.bin" => blktrace(),
        "plan.toml" => include_str!("../../../study/plans/paper.toml").into(),
        "volumes.ini" => "[one]\nmode=ubi\nvol_id=0\nvol_type=dynamic\nvol_size=4k\nvol_name=one\n".into(),
        "disk" => super::disks::gpt(),
        "chip" => {
            if !folder.join("chip").exists() {
                run_in(
                    folder,
                    "nand create chip --page 512 --pages-per-block 8 --blocks 24",
                );
                run_in(folder, "ubi format chip");
            }
            fs::read(folder.join("chip")).expect("it was made")
        }
        "records.jsonl" => {
            if !folder.join("records.jsonl").exists() {
                run_in(folder, "bench file here --size 1m --output records.jsonl");
            }
            fs::read(folder.join("records.jsonl")).expect("it was made")
        }
        _ => unreachable!("{name} is in the table"),
    }
}

fn names(folder: &Path) -> BTreeSet<OsString> {
    let entries = fs::read_dir(folder).expect("listed");
    entries.map(|entry| entry.expect("listed").file_name()).collect()
}

#[test]
fn commands() {
    let outside = TempDir::new().expect("possible on this host");
    fs::write(outside.path().join("own"), "own").expect("made");
    let folder = outside.path().join("folder");
    fs::create_dir_all(folder.join("here")).expect("made");
    let first = super::setting("TIDEGATE_SEED");
    let count = if testkit::is_full() { 300 } else { 2 };
    let seeds = first.map_or(0..count, |seed| seed..seed + 1);
    let mut accepted = 0_u64;
    for (name, words, is_text) in COMMANDS {
        let good = good(&folder, name);
        let input = words
            .split(' ')
            .find(|word| word.starts_with("input"))
            .expect("it has one");
        for seed in seeds.clone() {
            let mut raw = good.clone();
            let mut random = Prng::named(seed, words);
            match is_text {
                true => change_text(&mut raw, &mut random),
                false => change_bytes(&mut raw, &mut random),
            }
            fs::write(folder.join(input), &raw).expect("there is room");
            if name == "chip" {
                let sidecar = fs::read(folder.join("chip.nand")).expect("it was made");
                fs::write(folder.join("input.nand"), sidecar).expect("there is room");
            }
            let output = Command::new("sh")
                .args(["-c", LIMITED, env!("CARGO_BIN_EXE_tidegate")])
                .args(words.split(' '))
                .current_dir(&folder)
                .output()
                .expect("sh runs");
            let told = String::from_utf8_lossy(&output.stderr);
            let shown = String::from_utf8_lossy(&output.stdout);
            let why = || {
                format!(
                    "{words}: {:?}, {told}; replay with TIDEGATE_SEED={seed}",
                    output.status
                )
            };
            assert!(matches!(output.status.code(), Some(0..=2)), "{}", why());
            assert!(!told.contains("panicked"), "{}", why());
            assert!(
                !told.contains('\x1b') && !shown.contains('\x1b'),
                "an escape: {}",
                why()
            );
            accepted += u64::from(output.status.code() != Some(2));
            let own = fs::read(outside.path().join("own")).expect("there");
            assert_eq!(
                (own.as_slice(), names(outside.path()).len()),
                (&b"own"[..], 2),
                "{}",
                why()
            );
            for made in ["out.jsonl", "out.trace"] {
                let path = folder.join(made);
                let _not_made = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            }
        }
        for left in names(&folder) {
            assert!(!left.to_string_lossy().contains(".."), "{words}: {left:?}");
        }
    }
    assert!(accepted > 0, "every input was refused");
}
