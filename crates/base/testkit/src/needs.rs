//! Requirements of a test on the machine, and a record of every test that was left out for one.
//!
//! libtest hides the output of a test that returns early, so each such return is appended to the file that `TIDEGATE_LEFT_OUT`
//! names; `scripts/test.sh` prints that list at the end. With `TIDEGATE_NEEDS=all`, which `.ci/run` sets, leaving out a test that
//! this machine could run fails it: a missing program (setup installs all of them), and a refusal by the machine that
//! `.ci/may-be-missing` does not list. Root and device nodes are probed, and their absence is only recorded.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// A requirement that can be probed.
#[derive(Debug, Clone, Copy)]
pub enum Need {
    /// The effective user id is 0.
    Root,
    /// A device node or another path that exists where the kernel has the feature.
    Path(&'static str),
    /// A program on the search path.
    Program(&'static str),
}

impl Need {
    /// FUSE's device node.
    pub const FUSE: Self = Self::Path("/dev/fuse");
    /// Loop devices.
    pub const LOOP: Self = Self::Path("/dev/loop-control");

    fn is_met(self) -> bool {
        match self {
            Self::Root => rustix::process::geteuid().is_root(),
            Self::Path(path) => Path::new(path).exists(),
            Self::Program(name) => is_on_path(name),
        }
    }

    fn describe(self) -> String {
        match self {
            Self::Root => "not root".to_owned(),
            Self::Path(path) => format!("there is no {path}"),
            Self::Program(name) => format!("{name} is not installed"),
        }
    }
}

/// Returns true if the machine meets all requirements; otherwise records the test as left out.
#[must_use]
pub fn needs(all: &[Need]) -> bool {
    let missing: Vec<_> = all.iter().filter(|need| !need.is_met()).collect();
    for need in &missing {
        let cause = if matches!(need, Need::Program(_)) {
            Cause::NotInstalled
        } else {
            Cause::Absent
        };
        record(&cause, &need.describe());
    }
    missing.is_empty()
}

/// Records a test, or a part of it, as left out because the machine refused something that can't be probed beforehand.
///
/// # Panics
///
/// With `TIDEGATE_NEEDS=all`, unless `.ci/may-be-missing` lists the refusal.
pub fn report_left_out(why: impl Display) {
    record(&Cause::Refused, &why.to_string());
}

/// Returns true if the kernel can limit the dirty pages of a device; otherwise records the test as left out.
///
/// # Panics
///
/// As [`report_left_out`].
#[must_use]
pub fn has_dirty_limit() -> bool {
    let mut devices = fs::read_dir("/sys/class/bdi").into_iter().flatten().flatten();
    let has = devices.any(|device| device.path().join("strict_limit").exists());
    if !has {
        report_left_out("no strict_limit in /sys/class/bdi: it needs Linux 6.2");
    }
    has
}

pub(crate) enum Cause {
    /// A full run has it.
    Long,
    /// The user or the kernel lacks it.
    Absent,
    NotInstalled,
    Refused,
}

#[expect(clippy::print_stderr, reason = "beside the record, for a run of one test")]
pub(crate) fn record(cause: &Cause, why: &str) {
    let why = why.trim().replace('\n', " ");
    eprintln!("left out: {why}");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a thread of a test");
    if let Some(path) = std::env::var_os("TIDEGATE_LEFT_OUT") {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // One write a line: several processes append.
        file.write_all(format!("{why}\t{test}\n").as_bytes())
            .expect("the list of tests left out takes a line");
    }
    let is_strict = std::env::var_os("TIDEGATE_NEEDS").is_some_and(|value| value == "all");
    assert!(
        !is_strict || may_be_left_out(cause, &why, &allowed()),
        "{test} was left out on a machine that should run it: {why}\nnext: install or mend it, or list it in .ci/may-be-missing"
    );
}

fn may_be_left_out(cause: &Cause, why: &str, allowed: &str) -> bool {
    match cause {
        Cause::Long | Cause::Absent => true,
        Cause::NotInstalled | Cause::Refused => allowed
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .any(|line| why.contains(line)),
    }
}

/// Refusals that are no fault of a machine for continuous integration, one fragment of the reason a line.
fn allowed() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3);
    let list = root
        .expect("this crate is in crates/base/testkit")
        .join(".ci/may-be-missing");
    fs::read_to_string(&list).unwrap_or_else(|error| panic!("{}: {error}", list.display()))
}

fn is_on_path(name: &str) -> bool {
    // The shell's own look-up: some programs have no option that only starts and ends them.
    Command::new("sh")
        .args(["-c", "command -v \"$0\"", name])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_name() {
        assert!(needs(&[Need::Program("sh")]));
        assert!(!is_on_path("no-such-program-anywhere"));
    }

    #[test]
    fn a_machine_that_could_run_a_test_may_not_leave_it_out() {
        let listed = "# of kernels\nbtrfs\n";
        assert!(may_be_left_out(&Cause::Absent, "there is no /dev/fuse", listed));
        assert!(may_be_left_out(&Cause::Refused, "btrfs can't be mounted", listed));
        assert!(!may_be_left_out(&Cause::Refused, "strace may not trace", listed));
        assert!(!may_be_left_out(
            &Cause::NotInstalled,
            "fio is not installed",
            listed
        ));
    }
}
