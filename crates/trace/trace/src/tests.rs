//! Recordings of real programs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use results::call_trace::{Action, Outcome, Trace, read_call_trace};

use super::*;

fn recorded(directory: &Path, words: &[&str]) -> (Recorded, Trace) {
    let spec = RecordSpec {
        command: words.iter().map(OsString::from).collect(),
        output: directory.join("calls.jsonl"),
    };
    let recorded = record(&spec, &AtomicBool::new(false)).unwrap();
    let text = fs::read(&recorded.path).unwrap();
    let trace = read_call_trace(text.as_slice(), &recorded.path, usize::MAX).unwrap();
    (recorded, trace)
}

fn shell(directory: &Path, script: &str) -> (Recorded, Trace) {
    let script = format!("cd {}; {script}", directory.display());
    recorded(directory, &["/bin/sh", "-c", &script])
}

/// Calls by kind on files below `directory`, by name or by a descriptor that was opened by one.
fn below(trace: &Trace, directory: &Path) -> BTreeMap<&'static str, u64> {
    let root = directory.strip_prefix("/").unwrap();
    let mut handles = std::collections::HashSet::new();
    let mut counts = BTreeMap::new();
    for call in &trace.calls {
        let mut action = call.action;
        let named = action.names_mut().into_iter().flatten();
        let mut is_below = named
            .into_iter()
            .any(|name| trace.path(*name).unwrap().starts_with(root));
        let used: Vec<_> = action
            .handles_mut()
            .into_iter()
            .flatten()
            .map(|handle| *handle)
            .collect();
        match call.action {
            Action::Open { handle, .. } if is_below => {
                handles.insert(handle);
            }
            Action::Duplicate { handle, copy } if handles.contains(&handle) => {
                handles.insert(copy);
            }
            _ => {}
        }
        is_below |= used.iter().any(|handle| handles.contains(handle));
        if is_below {
            *counts.entry(call.action.kind()).or_default() += 1;
        }
    }
    counts
}

#[test]
fn a_program_is_recorded_with_its_children_and_its_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    let (recorded, trace) = shell(
        &path,
        "dd if=/dev/zero of=a bs=1000 count=3 2>/dev/null; mv a b; (exit 7)",
    );
    assert_eq!(recorded.ending, Ending::Exited(7));
    assert!(recorded.complete && recorded.followed >= 3, "{recorded:?}");
    let counts = below(&trace, &path);
    assert_eq!(
        (counts.get("write"), counts.get("rename")),
        (Some(&3), Some(&1)),
        "{counts:?}"
    );
    let bytes: u64 = trace
        .calls
        .iter()
        .map(|call| match (call.action, call.outcome) {
            (Action::Write { .. }, Outcome::Done(bytes)) => bytes,
            _ => 0,
        })
        .sum();
    assert_eq!(bytes, 3000);
    assert!(
        trace
            .calls
            .iter()
            .any(|call| call.recorded_duration_ns.is_some_and(|ns| ns > 0))
    );
    assert!(
        recorded.skipped.contains_key(tracee::KERNEL_FILE),
        "{:?}",
        recorded.skipped
    );
}

#[test]
fn pipes_are_left_out_and_redirections_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    let (recorded, trace) = shell(&path, "echo hello | cat > out; cat < out >> two; test ! -e gone");
    assert!(recorded.skipped["pipe"] >= 2, "{:?}", recorded.skipped);
    let counts = below(&trace, &path);
    assert!(counts["open"] >= 3 && counts["dup"] >= 2, "{counts:?}");
    let missing = trace
        .calls
        .iter()
        .filter(|call| call.outcome == Outcome::Failed(libc::ENOENT));
    let gone = path.join("gone");
    let gone = gone.strip_prefix("/").unwrap();
    let is_gone = |call: &results::call_trace::Call| {
        let mut action = call.action;
        action.names_mut()[0]
            .as_deref()
            .is_some_and(|name| trace.path(*name) == Some(gone))
    };
    assert_eq!(missing.filter(|call| is_gone(call)).count(), 1);
    assert_eq!(fs::read(path.join("two")).unwrap(), b"hello\n");
}

#[test]
fn a_program_that_is_killed_and_one_that_does_not_exist() {
    let directory = tempfile::tempdir().unwrap();
    let (recorded, _) = shell(directory.path(), "kill -9 $$");
    assert_eq!(recorded.ending, Ending::Killed(9));
    let spec = RecordSpec {
        command: vec!["/nowhere/program".into()],
        output: directory.path().join("none.jsonl"),
    };
    let message = record(&spec, &AtomicBool::new(false)).unwrap_err().to_string();
    assert_eq!(
        message,
        "/nowhere/program: cannot be started: No such file or directory (os error 2)"
    );
    let left: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["calls.jsonl"]);
}

#[test]
fn a_raised_flag_ends_the_program_and_marks_the_trace() {
    let directory = tempfile::tempdir().unwrap();
    let spec = RecordSpec {
        command: ["/bin/sh", "-c", "echo x > /dev/null; sleep 600"]
            .map(OsString::from)
            .to_vec(),
        output: directory.path().join("calls.jsonl"),
    };
    let recorded = record(&spec, &AtomicBool::new(true)).unwrap();
    assert!(!recorded.complete && recorded.path.to_string_lossy().ends_with(".partial"));
    let text = fs::read(&recorded.path).unwrap();
    assert!(
        !read_call_trace(text.as_slice(), &recorded.path, 1000)
            .unwrap()
            .complete
    );
}

/// Forks, names that change and arguments that lie.
#[test]
fn a_program_that_forks_and_renames_itself_is_followed_to_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    let script = "i=0; while [ $i -lt 300 ]; do \
                  sh -c 'printf \"n\\033\\n$1\" > /proc/$$/comm; echo x > \"f$1\"' /sbin/init $i & \
                  i=$((i + 1)); [ $((i % 50)) = 0 ] && wait; done; wait";
    let (recorded, trace) = shell(&path, script);
    assert!(
        recorded.complete && recorded.ending == Ending::Exited(0),
        "{recorded:?}"
    );
    assert!(recorded.followed > 300, "{}", recorded.followed);
    let counts = below(&trace, &path);
    assert_eq!(counts["write"], 300, "{counts:?}");
}

#[test]
fn no_command_is_refused() {
    let spec = RecordSpec {
        command: Vec::new(),
        output: "unused".into(),
    };
    assert_eq!(
        record(&spec, &AtomicBool::new(false)).unwrap_err().to_string(),
        "no command to record"
    );
}
