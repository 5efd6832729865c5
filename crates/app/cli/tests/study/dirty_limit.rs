//! The limit of dirty pages holds for file systems that count theirs apart from their device's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::{Need, needs, report_left_out};

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

/// The name of the device of a btrfs that is mounted below `place`.
fn mounted_device(place: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let place = place.to_str()?;
    let found = mounts.lines().find_map(|line| {
        let (source, rest) = line.split_once(' ')?;
        let is_it = rest.starts_with(place) && rest.contains(" btrfs ");
        source.strip_prefix("/dev/").filter(|_| is_it)
    });
    found.map(str::to_owned)
}

#[test]
fn a_card_s_limit_holds_for_the_dirty_pages_that_btrfs_counts_itself() {
    let tools = [Need::Root, Need::LOOP, Need::Program("mkfs.btrfs")];
    if !needs(&tools) {
        return;
    }
    if !fs::exists("/sys/block/loop0/bdi/strict_limit").unwrap() {
        report_left_out("no strict_limit in /sys/block/loop0/bdi: it needs Linux 6.2");
        return;
    }
    let place = folder();
    fs::write(place.path().join("p.toml"), PLAN).unwrap();
    let mut study = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["study", "run", "p.toml", "-d", "s", "--rounds", "2"])
        .current_dir(place.path())
        .env("TIDEGATE_HISTORY", "off")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut seen = Vec::new();
    let status = loop {
        if let Some(device) = mounted_device(place.path()) {
            let entries = fs::read_dir("/sys/fs/btrfs").unwrap();
            let own: Vec<PathBuf> = entries
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.join("devices").join(&device).exists())
                .collect();
            let of_device = rules(&Path::new("/sys/block").join(&device).join("bdi"));
            seen.extend(
                own.iter()
                    .map(|path| (rules(&path.join("bdi")), of_device.clone())),
            );
        }
        if let Some(status) = study.try_wait().unwrap() {
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
