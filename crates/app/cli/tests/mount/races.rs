//! Races every call of another user against a process that swaps the target of the name, directly in the source or through
//! a second mount of it.
//!
//! The oracle: files private to root are never read, their content and metadata never change, and their names in a sticky
//! folder stay. `TIDEGATE_FULL` races each pair for 60 s, `TIDEGATE_RACE_SECONDS` sets the time.

mod calls;
mod occupants;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::harness::{Mounted, tidegate};
use calls::{CALLS, Outcome};
use occupants::Racer;

const SECRET: &[u8] = b"root's secret";
/// The first user id of the container, the id of its root.
const CONTAINER: u32 = 100_000;
const CONTAINER_USERS: u32 = 65_536;
/// The group that grants a caller access.
const GROUP: u32 = 2000;
/// In the process of a container: the number of the call, the paths and the time.
const ORDER: &str = "TIDEGATE_RACE_ORDER";

/// The caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// A user without privileges.
    User,
    /// A user with access by a supplementary group.
    Member,
    /// Root of a user namespace with its own user ids.
    Container,
    /// A user, on a source that is mounted with mapped ids.
    Mapped,
    /// Root itself: shows that the oracle detects violations.
    Root,
}

impl Who {
    const fn uid(self) -> u32 {
        match self {
            Self::User | Self::Member | Self::Mapped => 1001,
            Self::Container => CONTAINER,
            Self::Root => 0,
        }
    }

    const fn group_of_folders(self) -> (u32, u32) {
        match self {
            Self::Member => (GROUP, 0o770),
            _ => (0, 0o777),
        }
    }
}

/// The path through which names are swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Source,
    SecondMount,
}

/// Results of the calls of one kind.
#[derive(Debug, Default)]
struct Report {
    exchanges: u64,
    attempts: u64,
    done: u64,
    wins: u64,
}

fn time_of_a_pair() -> Duration {
    let asked = std::env::var("TIDEGATE_RACE_SECONDS").ok();
    match asked.and_then(|seconds| seconds.parse().ok()) {
        Some(seconds) => Duration::from_secs(seconds),
        None if testkit::is_full() => Duration::from_secs(60),
        None => Duration::from_millis(120),
    }
}

/// A source, a mount of it for all users, and optionally a second mount.
struct Stage {
    has_mapped_source: bool,
    mounted: Mounted,
    second: Option<(tempfile::TempDir, PathBuf)>,
}

impl Stage {
    fn new(who: Who, way: Way, options: &[&str]) -> Option<Self> {
        let (group, mode) = who.group_of_folders();
        let prepare = |source: &Path| {
            if who == Who::Mapped {
                assert!(map_ids(source), "it was possible before");
            }
            fs::set_permissions(source, PermissionsExt::from_mode(0o755)).expect("it is ours");
            for (name, mode) in [
                ("shared", 0o1000 | mode),
                ("from", mode),
                ("to", mode),
                ("private", 0o700),
            ] {
                let path = source.join(name);
                fs::create_dir(&path).expect("made");
                chown(&path, None, Some(group)).expect("root may");
                fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("it is ours");
            }
            occupants::furnish(&source.join("private"), who.uid());
        };
        let arguments = [&["-o", "allow_other"], options].concat();
        let mounted = Mounted::start_over(prepare, &arguments)?;
        let folder = mounted.mountpoint();
        let above = folder.parent().expect("it has one");
        fs::set_permissions(above, PermissionsExt::from_mode(0o755)).expect("it is ours");
        let second = (way == Way::SecondMount).then(|| {
            let folder = tempfile::TempDir::new().expect("possible on this host");
            let mountpoint = folder.path().to_owned();
            let output = tidegate()
                .arg("mount")
                .args([mounted.source(), mountpoint.clone()])
                .output()
                .expect("the binary runs");
            assert!(output.status.success(), "{output:?}");
            (folder, mountpoint)
        });
        Some(Self {
            has_mapped_source: who == Who::Mapped,
            mounted,
            second,
        })
    }

    /// The folder in which names are swapped.
    fn place(&self) -> PathBuf {
        let second = self.second.as_ref().map(|(_, mountpoint)| mountpoint.clone());
        second.unwrap_or_else(|| self.mounted.source())
    }

    /// Lets `who` make one of [`CALLS`] for `time` against the racer.
    fn race(&self, who: Who, number: usize, time: Duration) -> Report {
        let stop = AtomicBool::new(false);
        let racer = Racer::new(
            self.mounted.source(),
            self.place(),
            who.uid(),
            CALLS[number].moves_folders,
        );
        std::thread::scope(|scope| {
            let racing = scope.spawn(|| racer.run(&stop));
            let report = call_as(
                who,
                number,
                &self.mounted.mountpoint(),
                &self.mounted.source(),
                time,
                &racer.calls,
            );
            stop.store(true, Ordering::Relaxed);
            let raced = racing.join().expect("its own message is above");
            Report {
                exchanges: raced.exchanges,
                wins: report.wins + raced.losses,
                ..report
            }
        })
    }
}

/// Mounts a folder on itself with mapped ids.
fn map_ids(folder: &Path) -> bool {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mount/idmap.py");
    let mapped = Command::new("python3").arg(script).arg(folder).output();
    match mapped {
        Ok(output) if output.status.success() => return true,
        Ok(output) => testkit::report_left_out(format!(
            "a source with mapped ids: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
        Err(error) => testkit::report_left_out(format!("a source with mapped ids: python3: {error}")),
    }
    false
}

/// Takes such a mount away. The mounts of this program keep their own.
fn unmap_ids(folder: &Path) {
    let _shown_by_the_test = rustix::mount::unmount(folder, rustix::mount::UnmountFlags::DETACH);
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.has_mapped_source {
            unmap_ids(&self.mounted.source());
        }
        if let Some((_, mountpoint)) = &self.second {
            // Best effort: a failure here would hide the test's own message.
            let _ = tidegate().arg("unmount").arg("--lazy").arg(mountpoint).output();
        }
    }
}

/// Makes calls of one kind until the time is over.
fn make_calls(number: usize, mount: &Path, source: &Path, time: Duration, calls: &AtomicU64) -> Report {
    let mut report = Report::default();
    let started = Instant::now();
    while started.elapsed() < time {
        report.attempts += 1;
        calls.fetch_add(1, Ordering::Relaxed);
        match (CALLS[number].make)(mount, source) {
            Outcome::Refused => {}
            Outcome::Done => report.done += 1,
            Outcome::Won => report.wins += 1,
        }
    }
    report
}

fn call_as(
    who: Who,
    number: usize,
    mount: &Path,
    source: &Path,
    time: Duration,
    calls: &AtomicU64,
) -> Report {
    if who == Who::Container {
        return call_in_a_container(number, mount, source, time);
    }
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            if who != Who::Root {
                let groups = [Gid::from_raw(GROUP)];
                let groups = if who == Who::Member { &groups[..] } else { &[] };
                let (uid, gid) = (Uid::from_raw(who.uid()), Gid::from_raw(who.uid()));
                set_thread_groups(groups).expect("root may");
                set_thread_res_gid(gid, gid, gid).expect("root may");
                set_thread_res_uid(uid, uid, uid).expect("root may");
            }
            make_calls(number, mount, source, time, calls)
        });
        calling.join().expect("its own message is above")
    })
}

/// Makes the calls in a separate process, because threads can't enter a user namespace.
fn call_in_a_container(number: usize, mount: &Path, source: &Path, time: Duration) -> Report {
    // The user may not access the folder of this program.
    let program = mount.parent().expect("it has one").join("races");
    if !program.exists() {
        fs::copy(std::env::current_exe().expect("/proc is mounted"), &program).expect("room for it");
    }
    let order = format!(
        "{number}\n{}\n{}\n{}",
        mount.display(),
        source.display(),
        time.as_millis()
    );
    let script = "read go; exec setpriv --reuid 0 --regid 0 --clear-groups -- \"$@\"";
    let mut child = Command::new("unshare")
        .args(["--user", "--keep-caps", "--", "sh", "-c", script, "sh"])
        .arg(&program)
        .args([
            "--exact",
            "races::root_of_a_container_gets_no_more_than_was_checked",
            "--nocapture",
        ])
        .env(ORDER, order)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare runs");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    wait_for_a_namespace(child.id());
    for map in ["uid_map", "gid_map"] {
        let line = format!("0 {CONTAINER} {CONTAINER_USERS}");
        fs::write(format!("/proc/{}/{map}", child.id()), line).expect("root may");
    }
    stdin.write_all(b"go\n").expect("it waits for it");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8_lossy(&output.stdout);
    let report = told.lines().find_map(|line| line.strip_prefix("report "));
    let numbers: Vec<u64> = report
        .unwrap_or_else(|| panic!("no report: {told}"))
        .split(' ')
        .map(|number| number.parse().expect("a number"))
        .collect();
    Report {
        exchanges: 0,
        attempts: numbers[0],
        done: numbers[1],
        wins: numbers[2],
    }
}

/// Waits until `unshare` has entered the namespace, before it starts another program.
fn wait_for_a_namespace(pid: u32) {
    let own = fs::read_link("/proc/self/ns/user").expect("/proc is mounted");
    let started = Instant::now();
    while fs::read_link(format!("/proc/{pid}/ns/user")).is_ok_and(|found| found == own) {
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "unshare enters no namespace"
        );
        std::thread::yield_now();
    }
}

/// Runs in the process of a container: makes the calls and reports.
#[expect(
    clippy::print_stdout,
    reason = "the report is read by the test that started this process"
)]
fn follow(order: &str) {
    let words: Vec<&str> = order.lines().collect();
    let number = |word: &str| word.parse::<u64>().expect("a number");
    let call = usize::try_from(number(words[0])).expect("small");
    let (mount, source) = (Path::new(words[1]), Path::new(words[2]));
    let report = make_calls(
        call,
        mount,
        source,
        Duration::from_millis(number(words[3])),
        &AtomicU64::new(0),
    );
    println!("\nreport {} {} {}", report.attempts, report.done, report.wins);
}

/// Races every call against both paths. Each stage has other mount options, to cover other code.
fn races(who: Who, options: [&[&str]; 2]) {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    for (way, options) in [Way::Source, Way::SecondMount].into_iter().zip(options) {
        let Some(stage) = Stage::new(who, way, options) else {
            return;
        };
        let (mut attempts, mut exchanges) = (0, 0);
        for (number, call) in CALLS.iter().enumerate() {
            let report = stage.race(who, number, time_of_a_pair());
            assert_eq!(
                report.wins, 0,
                "{}: {who:?}, {way:?}, {options:?}: {report:?}",
                call.name
            );
            if time_of_a_pair() >= Duration::from_secs(1) {
                tell(&format!("{}: {who:?}, {way:?}: {report:?}", call.name));
                assert!(
                    report.attempts > 0 && report.exchanges > 0,
                    "{}: {report:?}",
                    call.name
                );
            }
            attempts += report.attempts;
            exchanges += report.exchanges;
        }
        assert!(
            attempts > 0 && exchanges > 0,
            "{attempts} calls, {exchanges} exchanges"
        );
        tell(&format!(
            "{who:?}, {way:?}, {options:?}: {attempts} calls, {exchanges} exchanges, 0 wins"
        ));
    }
}

#[expect(clippy::print_stderr, reason = "the figures of a long run")]
fn tell(figures: &str) {
    eprintln!("{figures}");
}

const WITHOUT_TRUST: &[&str] = &["--entry-timeout", "0s", "--attr-timeout", "0s"];

#[test]
fn a_user_gets_no_more_than_was_checked() {
    races(Who::User, [&["--passthrough", "off"], WITHOUT_TRUST]);
}

#[test]
fn a_member_of_a_supplementary_group_gets_no_more_than_was_checked() {
    races(Who::Member, [WITHOUT_TRUST, &["--passthrough", "off"]]);
}

#[test]
fn root_of_a_container_gets_no_more_than_was_checked() {
    if let Ok(order) = std::env::var(ORDER) {
        return follow(&order);
    }
    let can = Command::new("unshare")
        .args(["--user", "--keep-caps", "true"])
        .status();
    if !can.is_ok_and(|status| status.success()) {
        testkit::report_left_out("races from a user namespace: unshare can make none here");
        return;
    }
    races(Who::Container, [&[], WITHOUT_TRUST]);
}

#[test]
fn a_user_of_a_source_with_mapped_ids_gets_no_more_than_was_checked() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let folder = tempfile::TempDir::new().expect("possible on this host");
    if !map_ids(folder.path()) {
        return;
    }
    unmap_ids(folder.path());
    races(Who::Mapped, [&["--passthrough", "off"], &[]]);
}

/// Shows that the oracle detects violations: root may do everything.
#[test]
fn root_wins() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    // A name that the kernel caches for a second would mostly have another target by then.
    let Some(stage) = Stage::new(Who::Root, Way::Source, WITHOUT_TRUST) else {
        return;
    };
    for (number, call) in CALLS.iter().enumerate() {
        let started = Instant::now();
        let won = || stage.race(Who::Root, number, Duration::from_millis(200)).wins > 0;
        while !won() {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "{}: nothing was seen",
                call.name
            );
        }
    }
}
