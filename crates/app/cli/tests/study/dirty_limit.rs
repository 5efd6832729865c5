//! The limit of dirty pages holds for file systems that count theirs apart from their device's.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testkit::{BESIDE_DEAD_MOUNTS, Need, needs, report_left_out};

use crate::{folder, records};

const PLAN: &str = r#"
name = "limited"
[environment]
device = "card:gt-i9300"
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

/// The settings of dirty pages in a folder of the kernel: share of the machine's limit, strictness.
fn rules(bdi: &Path) -> Option<[String; 2]> {
    let read = |name: &str| fs::read_to_string(bdi.join(name)).ok();
    Some([read("max_ratio_fine")?, read("strict_limit")?])
}

/// A study that runs in a mount namespace of its own, where mounts whose daemon is gone are not seen; stopped on drop.
struct Running(Child);

impl Running {
    fn start(place: &Path) -> Self {
        let study = Command::new("unshare")
            .args(["-m", "sh", "-c", BESIDE_DEAD_MOUNTS, "tidegate"])
            .arg(env!("CARGO_BIN_EXE_tidegate"))
            .args(["study", "run", "p.toml", "-d", "s", "--rounds", "2"])
            .current_dir(place)
            .env("TIDEGATE_HISTORY", "off")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(study.expect("unshare runs"))
    }

    /// The name of the device of the btrfs that is mounted there now.
    fn btrfs(&self) -> Option<String> {
        let mounts = fs::read_to_string(format!("/proc/{}/mounts", self.0.id())).ok()?;
        let found = mounts.lines().find_map(|line| {
            let is_it = line.contains("/s/mounts/native btrfs ");
            line.strip_prefix("/dev/")?.split(' ').next().filter(|_| is_it)
        });
        found.map(str::to_owned)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let id = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

#[test]
fn a_card_s_limit_holds_for_the_dirty_pages_that_btrfs_counts_itself() {
    let tools = [
        Need::Root,
        Need::LOOP,
        Need::FUSE,
        Need::Program("mkfs.btrfs"),
        Need::Program("unshare"),
    ];
    if !needs(&tools) {
        return;
    }
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    if !known.contains("btrfs") {
        report_left_out("no btrfs here");
        return;
    }
    if !fs::exists("/sys/block/loop0/bdi/strict_limit").unwrap() {
        report_left_out("no strict_limit in /sys/block/loop0/bdi: it needs Linux 6.2");
        return;
    }
    let place = folder();
    fs::write(place.path().join("p.toml"), PLAN).unwrap();
    let mut study = Running::start(place.path());
    let mut seen = Vec::new();
    let status = loop {
        if let Some(device) = study.btrfs() {
            let entries = fs::read_dir("/sys/fs/btrfs").unwrap().flatten();
            let own = entries
                .map(|entry| entry.path())
                .find(|path| path.join("devices").join(&device).exists());
            let of_device = rules(&Path::new("/sys/block").join(&device).join("bdi"));
            seen.extend(own.map(|path| (rules(&path.join("bdi")), of_device)));
        }
        if let Some(status) = study.0.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(status.code(), Some(0));
    assert!(
        records(&place.path().join("s"))
            .iter()
            .all(|record| record["complete"] == true)
    );
    let holds = seen
        .iter()
        .any(|(own, device)| own == device && own.as_ref().is_some_and(|[_, strict]| strict.trim() == "1"));
    assert!(holds, "{:?}", seen.last());
}
