//! The limit of dirty pages holds for file systems that count theirs apart from their device's.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use testkit::{BESIDE_DEAD_MOUNTS, Need, has_dirty_limit, needs, report_left_out};

use crate::{folder, records};

const PLAN: &str = r#"
name = "limited"
[environment]
device = "DEVICE"
size = "160m"
dirty-limit = "16m"
[workload]
size = "4m"
record = "64k"
final-sync = "timed"
[defaults]
path = "native"
[[exhibit]]
name = "one"
x = "fs"
axes.fs = ["btrfs"]
"#;

/// Longest time of the study.
const PATIENCE: Duration = Duration::from_secs(240);

/// The settings of dirty pages in a folder of the kernel: share of the machine's limit, strictness.
fn rules(bdi: &Path) -> Option<[String; 2]> {
    let read = |name: &str| Some(fs::read_to_string(bdi.join(name)).ok()?.trim().to_owned());
    Some([read("max_ratio_fine")?, read("strict_limit")?])
}

/// A study whose mkfs.btrfs does not see mounts whose daemon is gone; stopped on drop.
struct Running(Child);

impl Running {
    fn start(place: &Path) -> Self {
        let path = env::var("PATH").unwrap_or_default();
        let makers = place.join("makers");
        let maker = makers.join("mkfs.btrfs");
        let script = format!(
            "#!/bin/sh\nPATH=\"$MAKERS_OF:/usr/sbin:/sbin\"\nexec unshare -m sh -c '{BESIDE_DEAD_MOUNTS}' mkfs mkfs.btrfs \"$@\"\n"
        );
        fs::create_dir_all(&makers).expect("it is writable");
        fs::write(&maker, script).expect("it is writable");
        fs::set_permissions(&maker, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let study = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["study", "run", "p.toml", "-d", "s", "--rounds", "2"])
            .current_dir(place)
            .env("PATH", format!("{}:{path}", makers.display()))
            .env("MAKERS_OF", path)
            .env("TIDEGATE_HISTORY", "off")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(study.expect("the binary runs"))
    }

    /// Calls `look` with the name of the device of the study's btrfs while it is mounted.
    fn watch(&mut self, place: &Path, mut look: impl FnMut(&str)) -> ExitStatus {
        let began = Instant::now();
        // Only its end: the kernel writes blanks otherwise.
        let own = place.file_name().expect("it has a name").to_string_lossy();
        let mounted = format!("{own}/s/mounts/native btrfs ");
        loop {
            let mounts = fs::read_to_string("/proc/self/mounts").expect("/proc is mounted");
            let line = mounts.lines().find(|line| line.contains(&mounted));
            let device = line.and_then(|line| line.strip_prefix("/dev/")?.split(' ').next());
            device.into_iter().for_each(&mut look);
            if let Some(status) = self.0.try_wait().expect("it is a child") {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "the study does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let id = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

fn can_run() -> bool {
    let tools = [
        Need::Root,
        Need::LOOP,
        Need::FUSE,
        Need::Program("mkfs.btrfs"),
        Need::Program("unshare"),
    ];
    if !needs(&tools) {
        return false;
    }
    // It may be a module that nothing has used yet.
    let _ = Command::new("modprobe").args(["-q", "btrfs"]).status();
    let known = fs::read_to_string("/proc/filesystems").expect("/proc is mounted");
    if !known.contains("btrfs") {
        report_left_out("no btrfs here");
        return false;
    }
    has_dirty_limit()
}

#[test]
fn a_device_s_limit_holds_for_the_dirty_pages_that_btrfs_counts_itself() {
    if !can_run() {
        return;
    }
    for kind in ["card:gt-i9300", "image"] {
        let place = folder();
        let place = place.path();
        fs::write(place.join("p.toml"), PLAN.replace("DEVICE", kind)).unwrap();
        let (mut seen, mut name) = (Vec::new(), String::new());
        let status = Running::start(place).watch(place, |device| {
            let entries = fs::read_dir("/sys/fs/btrfs").unwrap().flatten();
            let own = entries
                .map(|entry| entry.path())
                .find(|path| path.join("devices").join(device).exists());
            let of_device = rules(&Path::new("/sys/block").join(device).join("bdi"));
            seen.extend(own.map(|path| (rules(&path.join("bdi")), of_device)));
            device.clone_into(&mut name);
        });
        assert_eq!(status.code(), Some(0), "{kind}");
        let records = records(&place.join("s"));
        assert!(records.iter().all(|record| record["complete"] == true), "{kind}");
        let holds = seen.iter().any(|(own, device)| {
            own == device
                && own
                    .as_ref()
                    .is_some_and(|[ratio, strict]| ratio != "1000000" && strict == "1")
        });
        assert!(holds, "{kind}: {:?}", seen.last());
        // The device is gone, or another test may have attached something to it meanwhile.
        let device = Path::new("/sys/block").join(&name);
        let after = rules(&device.join("bdi"));
        let is_free = !device.join("loop/backing_file").exists();
        let is_lifted = after
            .as_ref()
            .is_none_or(|[ratio, strict]| ratio == "1000000" && strict == "0");
        assert!(!is_free || is_lifted, "{kind}: {name}: {after:?}");
    }
}
