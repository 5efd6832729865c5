//! Checks by the kernel's UBI and UBIFS, on nandsim and on flash that survives the guest.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use testkit::lab::{Ended, FlashFile, Guest, Job, Lab, Options, Outcome, shared};

const CHIP_BYTES: u64 = 32 << 20;

fn ready_made(name: &str) -> Job {
    Job::ready_made(name).expect("the script is in the repository")
}

fn run(guest: &mut Guest, job: &Job) -> Outcome {
    guest.run(job).unwrap_or_else(|error| panic!("{error}"))
}

/// Chips in a private folder, and guests with them; `None` if there is no such guest.
struct Bench {
    lab: Lab,
    folder: PathBuf,
    chips: Vec<FlashFile>,
}

impl Bench {
    fn new<const COUNT: usize>(name: &str, chip_bytes: [u64; COUNT]) -> Option<Self> {
        let lab = match Lab::with_flash() {
            Ok(lab) => lab,
            Err(why) => {
                testkit::report_left_out(why);
                return None;
            }
        };
        let folder = std::env::temp_dir().join(format!("tidegate-flash-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder takes one");
        let chip = |(number, bytes)| FlashFile::erased(&folder.join(format!("chip-{number}")), bytes);
        let chips = chip_bytes.into_iter().enumerate().map(chip);
        let chips = chips.collect::<Result<_, _>>().expect("there is room for chips");
        Some(Self { lab, folder, chips })
    }

    fn boot(&self) -> Guest {
        let options = Options {
            flash: self.chips.clone(),
            ..Options::default()
        };
        self.lab.boot(&options).unwrap_or_else(|error| panic!("{error}"))
    }

    fn chip_bytes(&self, chip: usize) -> Vec<u8> {
        fs::read(self.chips[chip].path()).expect("the chip is a file")
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The files that the load reported as kept: name, size and SHA-256 of each one's last state.
fn kept(text: &str) -> std::collections::BTreeMap<String, Option<(String, String)>> {
    let mut files = std::collections::BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["kept", _, name, size, hash] => {
                files.insert(name.to_owned(), Some((size.to_owned(), hash.to_owned())));
            }
            ["gone", _, name] => {
                files.insert(name.to_owned(), None);
            }
            _ => {}
        }
    }
    files
}

/// Files that the load promised and the tree lacks. The file of the step in progress at the power cut is not promised:
/// `begun` lines name it.
fn lost(acknowledged: &str, found: &str) -> Vec<String> {
    let promised = kept(acknowledged);
    assert!(
        promised.len() > 5,
        "the cut came too early to show anything:\n{acknowledged}"
    );
    let under_way = acknowledged
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("begun "))
        .expect("the load says what it begins");
    let mut lost = Vec::new();
    for (name, state) in promised {
        let path = format!("d{}/{name} ", folder_of(&name));
        let line = found.lines().find(|line| line.starts_with(&path));
        let is_there = match (&state, line) {
            (Some((size, hash)), Some(line)) => line.contains(&format!(" {size} ")) && line.contains(hash),
            (None, line) => line.is_none(),
            (Some(_), None) => false,
        };
        if !is_there && name != under_way {
            lost.push(format!("{name}: promised {state:?}, found {line:?}"));
        }
    }
    lost
}

/// The folder in which `lab-load` puts the file with this name.
fn folder_of(name: &str) -> u32 {
    name[1..].parse::<u32>().expect("names are a letter and a number") % 4
}

#[test]
fn the_kernel_reads_the_image_that_it_wrote_and_hands_back_every_leb() {
    if testkit::left_to_full("it takes a minute of a guest") {
        return;
    }
    let Some(mut guest) = shared() else { return };
    let write = ready_made("write.sh")
        .variable("IMAGE", "none")
        .variable("LOAD", "lab-load . 7 60");
    let written = run(&mut guest, &write).expect_success();
    let image = written.folder().join("flash.img");

    let check = ready_made("check.sh")
        .copy_of("flash.img", &image)
        .variable("IMAGE", "flash.img");
    let checked = run(&mut guest, &check).expect_success();
    let files = checked.read_text("files.txt").expect("the job wrote it");
    assert!(files.lines().count() > 20, "{files}");
    assert_eq!(files, written.read_text("files.txt").expect("the job wrote it"));

    let attach = ready_made("attach.sh")
        .copy_of("flash.img", &image)
        .variable("IMAGE", "flash.img");
    let attached = run(&mut guest, &attach).expect_success();
    assert!(
        attached.text().starts_with("0 dynamic 129024 "),
        "{}",
        attached.text()
    );
    let volume = attached.read("volume-0.img").expect("the job wrote it");
    assert_eq!(
        volume[..4],
        0x0610_1831_u32.to_le_bytes(),
        "LEB 0 holds no superblock"
    );
}

#[test]
fn an_image_that_is_none_is_refused_with_the_kernels_words() {
    if testkit::left_to_full("it takes half a minute of a guest") {
        return;
    }
    let Some(mut guest) = shared() else { return };
    let attach = ready_made("attach.sh")
        .file("noise", vec![0x5A; 1 << 20])
        .variable("IMAGE", "noise");
    let outcome = run(&mut guest, &attach);
    assert_eq!(outcome.ended, Ended::Code(3));
    assert!(outcome.text().contains("ubi0 error"), "{}", outcome.text());
}

/// Formats the chip and runs the load on it until the power fails; returns the load's output.
fn write_until(bench: &Bench, flash: &str, cut: Option<(&str, Duration)>, ended: Ended) -> String {
    let mut guest = bench.boot();
    let mut job = ready_made("write.sh")
        .variable("FLASH", flash)
        .variable("LOAD", "lab-load . 11 100000 --sync");
    if let Some((text, delay)) = cut {
        job = job.cut_after(text, delay);
    }
    let outcome = run(&mut guest, &job);
    assert_eq!(outcome.ended, ended, "{}", outcome.text());
    assert!(!guest.is_alive());
    outcome.text()
}

/// Boots again, makes the kernel recover the chip with all checks, and compares. Returns the kernel's messages.
fn recover(bench: &Bench, acknowledged: &str) -> String {
    let mut guest = bench.boot();
    // Read-write: recovery writes, and one more file shows that the file system is usable.
    let check = ready_made("check.sh").variable("USE", "sync && echo after >after && sync");
    let outcome = run(&mut guest, &check).expect_success();
    let found = outcome.read_text("files.txt").expect("the job wrote it");
    assert_eq!(lost(acknowledged, &found), Vec::<String>::new());
    outcome.read_text("kernel.txt").expect("the job wrote it")
}

#[test]
fn a_killed_guest_leaves_flash_that_the_next_boot_recovers_with_every_synced_file() {
    if testkit::left_to_full("it takes a minute of a guest") {
        return;
    }
    let Some(bench) = Bench::new("killed", [CHIP_BYTES]) else {
        return;
    };
    let said = write_until(
        &bench,
        "",
        Some(("kept 40 ", Duration::from_millis(37))),
        Ended::Cut,
    );
    assert_eq!(u64::try_from(bench.chip_bytes(0).len()), Ok(CHIP_BYTES));
    let kernel = recover(&bench, &said);
    assert!(kernel.contains("recovery needed"), "{kernel}");
}

#[test]
fn the_module_cuts_the_power_in_the_middle_of_the_operation_that_it_was_told() {
    if testkit::left_to_full("it takes half a minute of a guest") {
        return;
    }
    let Some(bench) = Bench::new("cut-at", [CHIP_BYTES]) else {
        return;
    };
    let said = write_until(&bench, "cut_at=2500 torn=700", None, Ended::GuestEnded);
    let kernel = recover(&bench, &said);
    assert!(kernel.contains("recovery needed"), "{kernel}");
}

#[test]
fn flash_that_breaks_the_rules_of_the_medium_is_refused() {
    if testkit::left_to_full("it takes half a minute of a guest") {
        return;
    }
    let Some(bench) = Bench::new("rules", [CHIP_BYTES]) else {
        return;
    };
    let mut guest = bench.boot();
    let outcome = run(&mut guest, &Job::new(RULES)).expect_success();
    let text = outcome.text();
    let expected = [
        "once: 0",
        "twice: 1",
        "below: 1",
        "part of a page: 1",
        "bad block: 1",
        "erased and again: 0",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

/// Writes pages with dd, whose exit code shows whether the chip accepted it.
const RULES: &str = r#"
lab-flash page=2048 block=131072 bad=0:3
page() { head -c "${2:-2048}" /dev/urandom | dd of=/dev/mtd0 bs=${2:-2048} seek="$1" iflag=fullblock 2>/dev/null; }
page 5; echo "once: $?"
page 5; echo "twice: $?"
page 4; echo "below: $?"
page 24 512; echo "part of a page: $?"
page 192; echo "bad block: $?"
flash_erase -q /dev/mtd0 0 1 && page 4; echo "erased and again: $?"
"#;

#[test]
fn chips_are_the_hosts_files_in_order_of_any_size_and_change_between_jobs() {
    if testkit::left_to_full("it takes a minute of a guest") {
        return;
    }
    // The second is not a power of two, which the memory of a PCI device is.
    let Some(bench) = Bench::new("several", [4 << 20, 3 << 20, 4 << 20, 4 << 20]) else {
        return;
    };
    let mut guest = bench.boot();
    let outcome = run(&mut guest, &Job::new(SEVERAL)).expect_success();
    assert_eq!(outcome.text(), "4194304 3145728 4194304 4194304\n");
    bench.chips[2].load(b"another image").expect("it fits");
    let outcome = run(&mut guest, &Job::new(HEAD_OF_THE_THIRD)).expect_success();
    assert_eq!(outcome.text(), "another image\n");
    bench.chips[2].load(&[]).expect("it fits");
    let outcome = run(&mut guest, &Job::new(SEVERAL)).expect_success();
    assert_eq!(outcome.ended, Ended::Code(0));
    guest.kill();
    for chip in 0..4 {
        let bytes = bench.chip_bytes(chip);
        assert_eq!(bytes.len(), if chip == 1 { 3 << 20 } else { 4 << 20 });
        let page = format!("{chip}").repeat(512);
        let at = bytes.len() - 512;
        assert!(
            bytes[at..] == *page.as_bytes(),
            "chip {chip} has another's page, or none"
        );
        assert!(bytes[..at].iter().all(|byte| *byte == 0xFF), "chip {chip}");
    }
}

/// Fills the last page of each chip with the chip's number.
const SEVERAL: &str = r#"
lab-flash page=512 block=16384 || exit
for chip in 0 1 2 3; do
    pages=$(($(cat /sys/class/mtd/mtd$chip/size) / 512))
    flash_erase -q /dev/mtd$chip 0 0 || exit
    head -c 512 /dev/zero | tr '\0' $chip | dd of=/dev/mtd$chip bs=512 seek=$((pages - 1)) status=none || exit
done
echo $(cat /sys/class/mtd/mtd[0-9]/size)
"#;

const HEAD_OF_THE_THIRD: &str = "lab-flash page=512 block=16384 && head -c 13 /dev/mtd2; echo";
