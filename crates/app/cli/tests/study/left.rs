//! Remains of a study, plans that it refuses, and failures that stay visible.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::{Need, left_to_full, needs};

use crate::{IMAGE_PLAN, done, folder, folder_plan, refused, refused_plan, text, tidegate};

/// Runs a study and kills it when `is_there`.
fn killed(arguments: &[&str], folder: &Path, is_there: impl Fn() -> bool) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    while !is_there() {
        assert!(
            child.try_wait().expect("it runs").is_none(),
            "it ended before it was killed"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("it runs");
    child.wait().expect("it runs");
}

#[test]
fn a_killed_study_leaves_nothing_in_the_folder_that_it_measured() {
    let place = folder();
    let place = place.path();
    let plan = folder_plan(place).replace("flusher = \"off\"", "flusher = \"off\"\npath = \"native\"");
    let plan = plan.replace("size = \"1m\"", "size = \"512m\"");
    fs::write(place.join("plan.toml"), plan).unwrap();
    let data = place.join("data");
    let writes = || {
        let work = fs::read_dir(&data).unwrap().next();
        work.is_some_and(|work| {
            fs::read_dir(work.unwrap().path()).is_ok_and(|mut inside| inside.next().is_some())
        })
    };
    killed(&["study", "run", "plan.toml", "-d", "s"], place, writes);
    assert_eq!(fs::read_dir(&data).unwrap().count(), 1);
    done(&["study", "clean", "s"], place);
    let left: Vec<_> = fs::read_dir(&data).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    // The measuring process was ended, so that nothing is written again.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
}

/// A file system in memory, until it is dropped.
struct Memory(std::path::PathBuf);

impl Memory {
    fn on(path: std::path::PathBuf) -> Self {
        fs::create_dir_all(&path).expect("root can do this");
        rustix::mount::mount("none", &path, "tmpfs", rustix::mount::MountFlags::empty(), None)
            .expect("root can do this");
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .expect("root can do this");
        Self(path)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn clean_deletes_nothing_that_is_mounted_below_its_folder() {
    if !needs(&[Need::Root]) {
        return;
    }
    let place = folder();
    let place = place.path();
    let plan = folder_plan(place).replace("flusher = \"off\"", "flusher = \"off\"\npath = \"native\"");
    fs::write(place.join("plan.toml"), plan).unwrap();
    done(&["study", "run", "plan.toml", "-d", "s", "--rounds", "1"], place);
    // Any user can mount something under such a name.
    let _odd = Memory::on(place.join(std::ffi::OsStr::from_bytes(b"odd\xff")));
    let mounted = Memory::on(place.join("s/mounts/native"));
    fs::write(mounted.0.join("data"), "precious").unwrap();
    let other = fs::File::open(mounted.0.join("data")).unwrap();
    done(&["study", "clean", "s"], place);
    assert_eq!(other.metadata().unwrap().nlink(), 1, "it was deleted");
    assert!(!place.join("s/mounts").exists());
}

#[test]
fn a_folder_that_is_none_of_a_study_keeps_everything() {
    let place = folder();
    let place = place.path();
    let plan = folder_plan(place).replace("flusher = \"off\"", "flusher = \"off\"\npath = \"native\"");
    fs::write(place.join("plan.toml"), plan).unwrap();
    fs::create_dir_all(place.join("precious")).unwrap();
    fs::write(place.join("precious/thesis.txt"), "three years").unwrap();
    fs::write(place.join("load.toml"), "[workload]\nsize = \"1m\"\n").unwrap();
    let data = place.join("data");
    let data = data.to_str().unwrap();
    for name in [
        "device.img",
        "cards",
        "guest",
        "work",
        "cells.jsonl",
        "report.html",
    ] {
        let own = place.join("own");
        fs::create_dir_all(&own).unwrap();
        match name {
            "work" => std::os::unix::fs::symlink(place.join("precious"), own.join(name)).unwrap(),
            "cards" | "guest" => {
                fs::create_dir(own.join(name)).unwrap();
                fs::write(own.join(name).join("list"), "mine").unwrap();
            }
            _ => fs::write(own.join(name), "mine").unwrap(),
        }
        for words in [
            &["study", "clean", "own"][..],
            &["study", "resume", "own"],
            &["study", "run", "plan.toml", "-d", "own"],
            &[
                "study",
                "tune",
                "load.toml",
                "--folder",
                data,
                "--axes",
                "threads",
                "-d",
                "own",
            ],
        ] {
            let message = refused(words, place);
            assert!(
                message.contains("own") && (message.contains("stud") || message.contains("/dev/fuse")),
                "{words:?}: {message}"
            );
        }
        assert!(own.join(name).symlink_metadata().is_ok(), "{name} was removed");
        if own.join(name).is_dir() && name != "work" {
            assert_eq!(fs::read(own.join(name).join("list")).unwrap(), b"mine");
        }
        assert_eq!(
            fs::read(place.join("precious/thesis.txt")).unwrap(),
            b"three years"
        );
        fs::remove_dir_all(own).unwrap();
    }
}

#[test]
fn a_study_lives_in_a_folder_of_its_user_that_may_be_a_mount() {
    if !needs(&[Need::Root, Need::FUSE]) {
        return;
    }
    let place = folder();
    let place = place.path();
    fs::write(place.join("plan.toml"), folder_plan(place)).unwrap();
    let _mounted = Memory::on(place.join("m"));
    done(&["study", "run", "plan.toml", "-d", "m", "--rounds", "1"], place);
    let mode = |mode| {
        fs::set_permissions(
            place.join("m"),
            std::os::unix::fs::PermissionsExt::from_mode(mode),
        )
    };
    mode(0o777).unwrap();
    let clean = refused(&["study", "clean", "m"], place);
    assert!(clean.contains("that others can't change"), "{clean}");
    mode(0o700).unwrap();
    done(&["study", "clean", "m"], place);
    fs::create_dir(place.join("s")).unwrap();
    let refuse = || {
        refused(&["study", "clean", "s"], place);
        let run = refused(&["study", "run", "plan.toml", "-d", "s"], place);
        assert!(run.contains("that others can't change"), "{run}");
        assert_eq!(fs::read_dir(place.join("s")).unwrap().count(), 0);
    };
    fs::set_permissions(
        place.join("s"),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    refuse();
    fs::set_permissions(
        place.join("s"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    std::os::unix::fs::chown(place.join("s"), Some(65534), None).unwrap();
    refuse();
    // A member of the group could name any folder as the one to remove.
    std::os::unix::fs::chown(place.join("s"), Some(0), Some(2000)).unwrap();
    fs::set_permissions(
        place.join("s"),
        std::os::unix::fs::PermissionsExt::from_mode(0o775),
    )
    .unwrap();
    refuse();
    std::os::unix::fs::chown(place.join("s"), None, Some(0)).unwrap();
    let clean = refused(&["study", "clean", "s"], place);
    assert!(clean.contains("no folder of a study"), "{clean}");
    done(&["study", "run", "plan.toml", "-d", "s", "--rounds", "1"], place);
    done(&["study", "clean", "s"], place);
}

#[test]
fn a_folder_that_has_the_name_of_a_study_s_folder_of_work_stays() {
    if !needs(&[Need::FUSE]) {
        return;
    }
    let place = folder();
    let place = place.path();
    fs::write(place.join("plan.toml"), folder_plan(place)).unwrap();
    let script = "mkdir data/.tidegate-study-$$ && echo precious >data/.tidegate-study-$$/file && \
                  exec \"$0\" study run plan.toml -d s --rounds 1";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_tidegate")])
        .current_dir(place)
        .env("TIDEGATE_HISTORY", "off")
        .output()
        .unwrap();
    assert_ne!(output.status.code(), Some(0), "{output:?}");
    let _nothing_to_do = tidegate(&["study", "clean", "s"], place);
    let left = fs::read_dir(place.join("data")).unwrap().next().unwrap().unwrap();
    assert_eq!(
        fs::read_to_string(left.path().join("file")).unwrap(),
        "precious\n"
    );
}

#[test]
fn a_scheduler_is_the_one_that_the_plan_names() {
    if !needs(&[Need::Root, Need::LOOP]) {
        return;
    }
    let place = folder();
    let place = place.path();
    let plan = IMAGE_PLAN.replace("\"mq-deadline\"]", "\"\"]");
    fs::write(place.join("plan.toml"), plan).unwrap();
    let output = tidegate(&["study", "run", "plan.toml", "-d", "s", "--rounds", "1"], place);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    assert!(shown.contains("expected [], found"), "{shown}");
}

#[test]
fn a_plan_that_would_lie_or_write_elsewhere_is_refused() {
    let place = folder();
    let place = place.path();
    let plan = |from: &str, to: &str| refused_plan(place, from, to);
    for flag in [
        "output = \"/tmp/x\"",
        "keep-files = true",
        "rounds = 2",
        "device = true",
    ] {
        let message = plan("record =", &format!("{flag}\nrecord ="));
        assert!(message.contains("the study sets it itself"), "{message}");
    }
    for flag in ["seed = 5", "json = true"] {
        let message = plan("record =", &format!("{flag}\nrecord ="));
        assert!(message.contains("cannot be used multiple times"), "{message}");
    }
    let message = plan("[workload]", "dirty-limit = \"16m\"\n[workload]");
    assert!(message.contains("only a card, an image and a guest"), "{message}");
    let message = plan("mount.flusher", "mount.foreground = true\nmount.flusher");
    assert!(message.contains("mount.foreground"), "{message}");
    assert!(plan("name = \"folder\"", "name = \"a\\u001b[2J\"").contains("control character"));
    assert!(plan("[workload]", "[run.quick]\nrounds = 0\n[workload]").contains("at least 1"));
    assert!(plan("low = 0", "low = nan").contains("finite"));
    assert!(plan("low = 0", "low = 2\nhigh = 1").contains("low not above high"));
    let btrfs = IMAGE_PLAN.replace("[defaults]", "[defaults]\nfs = \"btrfs\"\nmkfs = \"/dev/null\"");
    fs::write(place.join("p.toml"), btrfs).unwrap();
    let message = refused(&["study", "run", "p.toml", "-d", "s"], place);
    assert!(message.contains("mkfs") || !needs(&[Need::Root]), "{message}");
}

#[test]
fn a_study_is_resumed_only_as_it_began_and_its_failures_stay_visible() {
    let place = folder();
    let place = place.path();
    let whole = folder_plan(place)
        .replace("flusher = \"off\"", "flusher = \"off\"\npath = \"native\"")
        .replace("device = \"directory:", "device = \"directory:data\" #")
        .replace("x = \"mount.io-unit\"", "x = \"workload.record\"")
        .replace(
            "axes.mount.io-unit = [\"4k\", \"512k\"]",
            "axes.workload.record = [\"64k\", \"3000\"]",
        )
        .replace(
            "cell = { mount.io-unit = \"4k\" }",
            "cell = { workload.record = \"64k\" }",
        )
        .replace("record = \"64k\"\nfinal", "mode = \"direct\"\nfinal");
    fs::write(place.join("plan.toml"), whole).unwrap();
    // Direct writes of 3000 bytes fail.
    let run = tidegate(&["study", "run", "plan.toml", "-d", "s", "--rounds", "1"], place);
    assert_eq!(run.status.code(), Some(1), "{}", text(&run.stderr));
    let again = tidegate(&["study", "resume", "s"], place);
    assert_eq!(again.status.code(), Some(1), "its failed cell is forgotten");
    for format in ["text", "json", "csv", "markdown"] {
        let report = done(&["study", "report", "s", "--format", format], place);
        assert!(report.contains("ended with exit status"), "{format}: {report}");
    }
    // Nor does a resumed study that is killed lose what was measured before.
    let cells = place.join("s/cells.jsonl");
    let before = fs::read(&cells).unwrap();
    let writes = || place.join("s/work").symlink_metadata().is_ok();
    killed(&["study", "resume", "s"], place, writes);
    assert_eq!(fs::read(&cells).unwrap(), before);
    // Another folder under the same name.
    fs::create_dir_all(place.join("other/data")).unwrap();
    let message = refused(&["study", "resume", "../s"], &place.join("other"));
    assert!(message.contains("another device"), "{message}");
    // An earlier version measured in another way.
    let environment = place.join("s/environment.json");
    let state = fs::read_to_string(&environment).unwrap();
    let earlier: serde_json::Value = serde_json::from_str(&state).unwrap();
    let mut earlier = earlier.as_object().unwrap().clone();
    assert!(earlier.remove("method").is_some());
    fs::write(&environment, serde_json::to_string(&earlier).unwrap()).unwrap();
    let message = refused(&["study", "resume", "s"], place);
    assert!(message.contains("another method of measuring"), "{message}");
    done(&["study", "report", "s"], place);
    fs::write(&environment, state).unwrap();
    // A line that is just being written.
    let stored = fs::read(&cells).unwrap();
    fs::write(&cells, &stored[..stored.len() - 20]).unwrap();
    done(&["study", "status", "s"], place);
    fs::write(&cells, &stored).unwrap();
    let plan = place.join("s/plan.toml");
    let edited = fs::read_to_string(&plan).unwrap().replace("3000", "5000");
    fs::write(&plan, edited).unwrap();
    let message = refused(&["study", "resume", "s"], place);
    assert!(
        message.contains("which was changed after the study began"),
        "{message}"
    );
    assert_eq!(fs::read(&cells).unwrap(), stored);
}

#[test]
fn a_daemon_that_does_not_answer_ends_with_its_cell() {
    if left_to_full("a stopped daemon is ended after 13 s") || !needs(&[Need::FUSE]) {
        return;
    }
    let place = folder();
    let place = place.path();
    let plan = folder_plan(place).replace("\"4k\", \"512k\"", "\"4k\"");
    let plan = plan.replace("size = \"1m\"", "size = \"512m\"");
    let plan = plan + "[run]\ncell-time = \"3s\"\n";
    let plan = plan.replace("flusher = \"off\"", "flusher = \"off\"\nmount.direct-io = \"on\"");
    fs::write(place.join("plan.toml"), plan.replace("share-of-max", "mb-per-s")).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["study", "run", "plan.toml", "-d", "s", "--rounds", "1"])
        .current_dir(place)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mountpoint = place.join("s/mounts/fuse");
    let daemon = || {
        let pids = fs::read_dir("/proc").unwrap().flatten();
        let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.find(|pid| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
            words.contains(&&b"--daemon"[..]) && words.contains(&mountpoint.as_os_str().as_bytes())
        })
    };
    let writes = || {
        let inside = fs::read_dir(place.join("data")).unwrap().flatten().next();
        inside.is_some_and(|work| fs::read_dir(work.path()).is_ok_and(|mut inside| inside.next().is_some()))
    };
    while !writes() || daemon().is_none() {
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(Duration::from_millis(1));
    }
    let pid = rustix::process::Pid::from_raw(daemon().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(daemon(), None);
    assert_eq!(fs::read_dir(place.join("data")).unwrap().count(), 0);
}
