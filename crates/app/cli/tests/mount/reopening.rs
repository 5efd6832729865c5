//! Files that are opened again soon after they were closed: the daemon defers the close of those that were only read.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::harness::Mounted;

/// A mount under passthrough whose source has files `0` to `99`.
fn start() -> Option<Mounted> {
    let prepare = |source: &Path| {
        for number in 0..100 {
            fs::write(source.join(number.to_string()), "content").unwrap();
        }
    };
    let mounted = Mounted::start_over(prepare, &["--passthrough", "auto"])?;
    if mounted.report["negotiated"]["passthrough"] == true {
        return Some(mounted);
    }
    testkit::report_left_out("passthrough");
    None
}

fn reopened(mounted: &Mounted) -> u64 {
    mounted.stats()["session"]["files_reopened"].as_u64().unwrap()
}

/// The source's files that the daemon holds open, by the names that they had.
fn held(mounted: &Mounted) -> Vec<String> {
    let folder = format!("/proc/{}/fd", mounted.pid().as_raw_nonzero());
    let links = fs::read_dir(folder).unwrap().map_while(Result::ok);
    let links = links.filter_map(|link| fs::read_link(link.path()).ok());
    // Their folder is that of the daemon's own mounts.
    let names = links.filter_map(|link| Some(link.file_name()?.to_str()?.replace(" (deleted)", "")));
    names.filter(|name| name.parse::<u32>().is_ok()).collect()
}

/// Time until `is_so`, which must come soon.
fn time_until(what: &str, is_so: impl Fn() -> bool) -> Duration {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(20), "not {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
    started.elapsed()
}

#[test]
fn a_file_that_is_read_again_is_still_open_and_closed_after_a_while() {
    let Some(mounted) = start() else { return };
    let file = mounted.mountpoint().join("0");
    // Closes reach the daemon after close(2) has returned.
    time_until("reopened and held", || {
        fs::read(&file).unwrap();
        reopened(&mounted) > 0 && held(&mounted) == ["0"]
    });
    // The kernel reads the file itself: a change behind the mount is there at once.
    fs::write(mounted.source().join("0"), "another content").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"another content");
    time_until("closed", || held(&mounted).is_empty());
    let before = reopened(&mounted);
    assert_eq!(fs::read(&file).unwrap(), b"another content");
    assert_eq!(reopened(&mounted), before, "it was closed");
}

#[test]
fn a_deferred_file_is_written_replaced_and_truncated_as_any_other() {
    let Some(mounted) = start() else { return };
    let root = mounted.mountpoint();
    for number in 0..100 {
        let (file, source) = (
            root.join(number.to_string()),
            mounted.source().join(number.to_string()),
        );
        assert_eq!(fs::read(&file).unwrap(), b"content");
        let expected: &[u8] = match number % 4 {
            0 => {
                let mut open = OpenOptions::new().append(true).open(&file).unwrap();
                open.write_all(b" more").unwrap();
                b"content more"
            }
            1 => {
                fs::write(&file, "new").unwrap();
                b"new"
            }
            2 => {
                fs::write(root.join("beside"), "replaced").unwrap();
                fs::rename(root.join("beside"), &file).unwrap();
                b"replaced"
            }
            _ => {
                OpenOptions::new()
                    .write(true)
                    .open(&file)
                    .unwrap()
                    .set_len(3)
                    .unwrap();
                b"con"
            }
        };
        assert_eq!(fs::read(&file).unwrap(), expected);
        assert_eq!(fs::read(&source).unwrap(), expected);
        assert_eq!(fs::read(&file).unwrap(), expected);
    }
    assert!(reopened(&mounted) > 0);
    time_until("closed", || held(&mounted).is_empty());
}

#[test]
fn a_removed_file_is_closed_without_delay() {
    let Some(mounted) = start() else { return };
    let (mut shortest, mut were_held) = (Duration::MAX, 0);
    for number in 0..50 {
        let file = mounted.mountpoint().join(number.to_string());
        fs::read(&file).unwrap();
        fs::read(&file).unwrap();
        were_held += held(&mounted).len();
        fs::remove_file(&file).unwrap();
        shortest = shortest.min(time_until("closed", || held(&mounted).is_empty()));
    }
    assert!(
        were_held > 0 && shortest < Duration::from_millis(400),
        "{were_held} {shortest:?}"
    );
    // Behind the mount it keeps its space for a second longer.
    for number in 50..100 {
        fs::read(mounted.mountpoint().join(number.to_string())).unwrap();
        fs::remove_file(mounted.source().join(number.to_string())).unwrap();
    }
    time_until("closed", || held(&mounted).is_empty());
}
