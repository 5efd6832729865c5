//! Each change of the source shows on the mount.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use testkit::prng::Prng;

use super::changes::{CHANGES, make_subject};
use super::{PATIENCE, look, see, start_told};
use crate::harness::tidegate;

/// Time within which every change is seen on a machine that does little else.
const PROMISED: Duration = Duration::from_secs(1);

/// Ends the readers, also if the judge panics.
struct Reading<'a>(&'a AtomicBool);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// Makes changes, one after the other, while `readers` threads walk the mount all the time.
#[expect(clippy::print_stderr, reason = "the delays")]
fn changes_are_seen(readers: usize, more: &[&str]) {
    let Some(mounted) = start_told(make_subject, more) else {
        return;
    };
    let given = std::env::var("TIDEGATE_SEED").ok();
    let seed = given.and_then(|text| text.parse().ok()).unwrap_or(23);
    let mountpoint = mounted.mountpoint();
    let is_reading = AtomicBool::new(true);
    let judged = std::thread::scope(|scope| {
        let _end = Reading(&is_reading);
        for _ in 0..readers {
            scope.spawn(|| {
                while is_reading.load(Relaxed) {
                    look(&mountpoint);
                }
            });
        }
        judge(&mounted.source(), &mountpoint, rounds(), seed)
    });
    let mut delays = judged.delays;
    delays.sort_unstable();
    let at = |part: usize| delays[(delays.len() - 1) * part / 100];
    let late = delays.iter().filter(|delay| **delay > PROMISED).count();
    let stats = mounted.stats();
    eprintln!(
        "{} changes ({} of them refused by the state of the tree) beside {readers} readers: half seen within {:?}, 99 % \
         within {:?}, all within {:?}, {late} later than {PROMISED:?}; {} names and {} inodes invalidated, {} overflows",
        delays.len(),
        judged.refused,
        at(50),
        at(99),
        at(100),
        stats["session"]["names_invalidated"],
        stats["session"]["inodes_invalidated"],
        stats["backing"]["change_queue_overflows"],
    );
    // A short run may share its machine with others.
    assert!(late == 0 || !is_long(), "{late} changes were seen late");
}

struct Judged {
    delays: Vec<Duration>,
    refused: u64,
}

fn judge(source: &Path, mountpoint: &Path, rounds: u64, seed: u64) -> Judged {
    let mut random = Prng::new(seed);
    let beside = source.parent().unwrap().join("beside");
    fs::create_dir(&beside).unwrap();
    let mut judged = Judged {
        delays: Vec::new(),
        refused: 0,
    };
    for number in 0..rounds {
        // The kernel knows everything as it is.
        assert_eq!(
            look(mountpoint),
            look(source),
            "before change {number} of seed {seed}"
        );
        let position = usize::try_from(random.below(CHANGES.len().try_into().unwrap())).unwrap();
        let (kind, change) = CHANGES[position];
        // A change that does not fit the state of the tree is left out: it failed before it changed anything, or half
        // way, and then what it did must be seen all the same.
        judged.refused += u64::from(change(source, &beside, number).is_err());
        let changed = Instant::now();
        let wanted = look(source);
        loop {
            let seen = look(mountpoint);
            if seen == wanted {
                break;
            }
            let missing: Vec<_> = wanted
                .iter()
                .filter(|(path, text)| seen.get(*path) != Some(text))
                .map(|(path, text)| format!("{path:?}: {:?} is {text}", seen.get(path)))
                .collect();
            assert!(
                changed.elapsed() < PATIENCE,
                "{kind}, change {number} of seed {seed}, is not seen: {missing:#?}"
            );
            std::thread::yield_now();
        }
        judged.delays.push(changed.elapsed());
    }
    judged
}

fn changes_asked_for() -> Option<u64> {
    std::env::var("TIDEGATE_CHANGES").ok()?.parse().ok()
}

/// Number of changes; `TIDEGATE_CHANGES` sets another one.
fn rounds() -> u64 {
    changes_asked_for().unwrap_or(250)
}

/// The number was set: delays are judged too.
fn is_long() -> bool {
    changes_asked_for().is_some()
}

#[test]
fn each_change_behind_the_mount_is_seen_at_once() {
    changes_are_seen(0, &[]);
}

#[test]
fn each_change_behind_a_mount_without_passthrough_is_seen_at_once() {
    changes_are_seen(0, &["--passthrough", "off"]);
}

#[test]
fn each_change_is_seen_at_once_while_others_read_the_mount() {
    changes_are_seen(2, &[]);
}

#[test]
fn changes_through_another_mount_of_the_source_are_seen_at_once() {
    let Some(mounted) = start_told(make_subject, &[]) else {
        return;
    };
    let second = mounted.source().parent().unwrap().join("second");
    fs::create_dir(&second).unwrap();
    let output = tidegate()
        .args(["mount", "--json", "--passthrough", "off", "--flusher", "off"])
        .args([&mounted.source(), &second])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for number in 0..20_u64 {
        assert_eq!(look(&mounted.mountpoint()), look(&mounted.source()));
        fs::write(second.join("a/one"), format!("by the other mount {number}")).unwrap();
        fs::rename(second.join("a/two"), second.join("a/2")).unwrap();
        fs::rename(second.join("a/2"), second.join("a/two")).unwrap();
        fs::set_permissions(
            second.join("b"),
            PermissionsExt::from_mode(0o700 + u32::try_from(number % 8).unwrap()),
        )
        .unwrap();
        see(&mounted);
    }
    let output = tidegate().arg("unmount").arg(&second).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
