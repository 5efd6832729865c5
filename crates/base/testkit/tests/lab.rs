//! The lab guest itself: results of jobs, and the end of a guest.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testkit::lab::{Ended, Guest, Job, Lab, Options, shared};

/// An empty folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder takes one");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_job_hands_back_its_exit_code_output_and_files() {
    let Some(mut guest) = shared() else { return };
    let job = Job::new("tr a-z A-Z </host/word >/host/loud; echo \"$GREETING\"; exit 7")
        .file("word", "tide")
        .variable("GREETING", "it's a gate");
    let outcome = guest.run(&job).expect("the guest runs it");
    assert_eq!(outcome.ended, Ended::Code(7));
    assert_eq!(outcome.text(), "it's a gate\n");
    assert_eq!(outcome.read_text("loud").expect("the job wrote it"), "TIDE");
}

#[test]
fn a_program_built_on_the_host_runs_in_the_guest() {
    let Some(mut guest) = shared() else { return };
    let this = std::env::current_exe().expect("a test knows its program");
    let outcome = guest
        .run(&Job::new(format!("uname -r; exec {} --list", this.display())))
        .expect("the guest runs it")
        .expect_success();
    let text = outcome.text();
    assert!(
        text.contains("a_program_built_on_the_host_runs_in_the_guest: test"),
        "{text}"
    );
}

#[test]
fn what_a_job_leaves_mounted_attached_and_running_is_gone_for_the_next() {
    if testkit::left_to_full("it takes half a minute of a guest") {
        return;
    }
    let Some(mut guest) = shared() else { return };
    let text = guest
        .run(&Job::new(LEAVES_ALL))
        .expect("the guest runs it")
        .expect_success()
        .text();
    assert!(text.contains("mtd0: 04000000 00020000"), "{text}");
    assert!(guest.is_alive(), "something could not be taken away");
    let text = guest
        .run(&Job::new(
            "cat /proc/mtd; ls /sys/class/ubi; cat /proc/mounts; losetup -a; pgrep -l sleep; true",
        ))
        .expect("the guest runs it")
        .expect_success()
        .text();
    for left in ["mtd0", "ubi0", "/mnt/left", "sleep", "/dev/loop0"] {
        assert!(!text.contains(left), "{left} is left:\n{text}");
    }
}

/// Leaves a mounted UBIFS on an attached chip, a program running in it, and a mounted loop device.
const LEAVES_ALL: &str = "
set -e
modprobe nandsim id_bytes=0x20,0xa2,0x00,0x15
modprobe ubifs
ubiattach -m 0 >/dev/null
ubimkvol /dev/ubi0 -N left -m >/dev/null
mkdir -p /mnt/left /mnt/left-loop
mount -t ubifs ubi0:left /mnt/left
cd /mnt/left
sleep 1000 >file &
modprobe loop
truncate -s 8M /dev/shm/disk
mke2fs -q /dev/shm/disk
mount -o loop /dev/shm/disk /mnt/left-loop
cat /proc/mtd
";

#[test]
fn a_job_over_its_time_ends_the_guest_and_the_next_one_gets_another() {
    if testkit::left_to_full("it takes half a minute of a guest") {
        return;
    }
    let Some(mut guest) = shared() else { return };
    let job = Job::new("echo begun; sleep 1000").timeout(Duration::from_millis(1500));
    let outcome = guest.run(&job).expect("the guest runs it");
    assert_eq!(outcome.ended, Ended::TimedOut);
    assert_eq!(outcome.text(), "begun\n");
    assert!(!guest.is_alive());
    drop(outcome);
    drop(guest);
    let Some(mut guest) = shared() else { return };
    let outcome = guest.run(&Job::new("true")).expect("another guest is there");
    assert_eq!(outcome.ended, Ended::Code(0));
}

#[test]
fn every_file_system_of_the_ground_truth_runs_is_made_used_and_unmounted() {
    if testkit::left_to_full("it takes half a minute of a guest") {
        return;
    }
    let Some(mut guest) = shared() else { return };
    for kind in ["ext4-dm", "f2fs", "nilfs2", "vfat", "swap"] {
        let job = Job::ready_made("on-filesystem.sh")
            .expect("the script is in the repository")
            .variable("KIND", kind)
            .variable("SIZE", "400")
            .variable("RUN", RUN);
        let outcome = guest.run(&job).expect("the guest runs it");
        let text = format!("{}{}", outcome.text(), outcome.last_words);
        assert_eq!(outcome.ended, Ended::Code(0), "{kind}: {text}");
        let expected = match kind {
            "ext4-dm" => "ext2/ext3",
            "swap" => "swap",
            kind => kind,
        };
        assert_eq!(text.trim(), expected);
    }
}

/// Prints the file system type, and writes to it.
const RUN: &str = r#"
if [ "$FOLDER" ]; then
    echo tide >"$FOLDER/file" && sync && stat -f -c %T "$FOLDER" | sed 's/^msdos$/vfat/;s/^nilfs$/nilfs2/'
else
    grep -q ^/dev/loop /proc/swaps && echo swap
fi"#;

#[test]
fn a_guest_ends_with_the_process_that_booted_it_and_leaves_nothing() {
    // Prints the reason if there is no guest.
    if shared().is_none() {
        return;
    }
    let folder = Folder::new("lab-owner");
    let (job, temporary) = (folder.0.join("job"), folder.0.join("t"));
    fs::create_dir_all(&job).expect("the folder is ours");
    fs::create_dir_all(&temporary).expect("the folder is ours");
    fs::write(job.join("run.sh"), "sleep 1000").expect("the folder is ours");
    let mut owner = Command::new(env!("CARGO_BIN_EXE_lab"))
        .arg("run")
        .arg(&job)
        .env("TMPDIR", &temporary)
        .spawn()
        .expect("cargo built it");
    let entries = || fs::read_dir(&temporary).expect("the folder is ours").count();
    wait_until("QEMU has started", || {
        let started = fs::read_dir(&temporary).expect("the folder is ours").flatten();
        started
            .into_iter()
            .any(|entry| entry.path().join("control").exists())
    });
    owner.kill().expect("it runs");
    owner.wait().expect("it is ours");
    // The shell that removes it waits for QEMU's end.
    wait_until("the guest's folder is gone", || entries() == 0);
}

#[test]
fn a_resident_guest_runs_jobs_of_several_processes_until_it_is_stopped() {
    if testkit::left_to_full("it takes half a minute of a guest") {
        return;
    }
    let Some(mut shared) = shared() else { return };
    // One guest at a time is enough for this machine.
    shared.kill();
    let folder = Folder::new("lab-resident");
    for name in ["a", "b"] {
        fs::create_dir_all(folder.0.join(name)).expect("the folder is ours");
        fs::write(
            folder.0.join(name).join("run.sh"),
            format!("echo {name} >/host/out; exit 3"),
        )
        .expect("the folder is ours");
    }
    let lab = Lab::available().expect("there was one a moment ago");
    lab.boot_resident(&Options::default(), &folder.0)
        .unwrap_or_else(|error| panic!("{error}"));
    for name in ["a", "b"] {
        let mut process = Command::new(env!("CARGO_BIN_EXE_lab"))
            .arg("job")
            .args([&folder.0, &PathBuf::from(name)])
            .stdout(Stdio::piped())
            .spawn()
            .expect("cargo built it");
        let output = BufReader::new(process.stdout.take().expect("it is piped"))
            .lines()
            .count();
        assert_eq!(output, 0);
        assert_eq!(process.wait().expect("it is ours").code(), Some(3));
        let written = fs::read_to_string(folder.0.join(name).join("out")).expect("the job wrote it");
        assert_eq!(written.trim(), name);
    }
    let own_folder = fs::read_to_string(folder.0.join(".lab-guest")).expect("a resident guest has one");
    Guest::resident(&folder.0, ".")
        .unwrap_or_else(|error| panic!("{error}"))
        .kill();
    assert!(!PathBuf::from(own_folder).exists());
    assert!(Guest::resident(&folder.0, ".").is_err());
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited a minute until {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
