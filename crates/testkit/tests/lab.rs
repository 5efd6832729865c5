//! The lab guest itself: what a job gives back, and how a guest ends.

use std::time::Duration;

use testkit::lab::{Ended, Job, shared};

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
fn nandsim_makes_a_chip_and_the_next_job_does_not_see_it() {
    let Some(mut guest) = shared() else { return };
    let job = Job::new("modprobe nandsim id_bytes=0x20,0xa1,0x00,0x15 && cat /proc/mtd");
    let text = guest
        .run(&job)
        .expect("the guest runs it")
        .expect_success()
        .text();
    assert!(text.contains("mtd0: 08000000 00020000"), "{text}");
    let text = guest
        .run(&Job::new("cat /proc/mtd"))
        .expect("the guest runs it")
        .expect_success()
        .text();
    assert!(!text.contains("mtd0"), "{text}");
}

#[test]
fn a_job_over_its_time_ends_the_guest_and_the_next_one_gets_another() {
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
    let Some(mut guest) = shared() else { return };
    for kind in ["ext4-dm", "f2fs", "nilfs2", "vfat", "xfs", "btrfs", "swap"] {
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

/// Prints which file system there is, and writes to it.
const RUN: &str = r#"
if [ "$FOLDER" ]; then
    echo tide >"$FOLDER/file" && sync && stat -f -c %T "$FOLDER" | sed 's/^msdos$/vfat/;s/^nilfs$/nilfs2/'
else
    grep -q ^/dev/loop /proc/swaps && echo swap
fi"#;
