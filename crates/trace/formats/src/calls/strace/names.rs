//! Calls on path names.

use results::call_trace::{Action, Descriptor, Name, Outcome};

use super::line::{self, descriptor};
use super::transfers::unsigned;
use super::{Done, Tracer, not_replayed, path_of_annotation};
use crate::calls::{KERNEL_FILE, is_kernel_file, path_of_bytes};

pub(super) const CUT_SHORT: &str = "name that strace cut short or did not show";

/// Calls on path names whose first argument is a directory.
const AT_CALLS: [&str; 10] = [
    "newfstatat",
    "fstatat64",
    "statx",
    "faccessat",
    "faccessat2",
    "unlinkat",
    "mkdirat",
    "renameat",
    "renameat2",
    "linkat",
];

impl Tracer {
    /// A path argument, made absolute as far as the trace allows.
    pub(super) fn path(&self, done: &Done<'_>, directory: Option<&str>, argument: &str) -> Option<Vec<u8>> {
        let path = line::string(argument)?;
        if path.starts_with(b"/") {
            return Some(path);
        }
        let base = match directory {
            None | Some("AT_FDCWD") => self.directories.get(&done.thread).cloned(),
            Some(argument) => {
                let (number, annotation) = descriptor(argument);
                let of_handle = match number.and_then(|number| self.tables.get(done.thread, number)) {
                    Some(Descriptor::File(handle)) => self.paths.get(&handle).cloned(),
                    _ => None,
                };
                let annotated = annotation
                    .filter(|path| path.starts_with('/'))
                    .map(path_of_annotation);
                annotated.or(of_handle)
            }
        };
        let mut whole = base.unwrap_or_default();
        whole.push(b'/');
        whole.extend_from_slice(&path);
        Some(whole)
    }

    pub(super) fn name(&mut self, done: &Done<'_>, directory: Option<&str>, argument: &str) -> Option<Name> {
        let Some(path) = self.path(done, directory, argument) else {
            self.skip(CUT_SHORT);
            return None;
        };
        let path = path_of_bytes(&path);
        if is_kernel_file(&path) {
            self.skip(KERNEL_FILE);
            return None;
        }
        Some(self.collector.trace.name(&path))
    }

    /// Handles calls on path names; false if `name` is not one of them.
    pub(super) fn on_names(&mut self, name: &str, done: &Done<'_>) -> bool {
        let at = AT_CALLS.contains(&name);
        let (directory, first) = if at {
            (Some(done.argument(0)), 1)
        } else {
            (None, 0)
        };
        let outcome = match done.outcome() {
            Outcome::Done(_) => Outcome::Done(0),
            other => other,
        };
        let path = done.argument(first);
        let action = match name {
            "newfstatat" | "fstatat64" | "statx" if path == "\"\"" => {
                if let Some(handle) = self.file(done) {
                    self.push(done, Action::StatHandle { handle }, outcome);
                }
                return true;
            }
            "stat" | "lstat" | "stat64" | "lstat64" | "newfstatat" | "fstatat64" | "statx" => {
                self.name(done, directory, path).map(|name| Action::Stat { name })
            }
            "access" | "faccessat" | "faccessat2" => self
                .name(done, directory, path)
                .map(|name| Action::Access { name }),
            "unlinkat" if done.argument(2).contains("AT_REMOVEDIR") => self
                .name(done, directory, path)
                .map(|name| Action::RemoveDirectory { name }),
            "unlink" | "unlinkat" => self
                .name(done, directory, path)
                .map(|name| Action::Unlink { name }),
            "mkdir" | "mkdirat" => self
                .name(done, directory, path)
                .map(|name| Action::MakeDirectory { name }),
            "rmdir" => self
                .name(done, None, path)
                .map(|name| Action::RemoveDirectory { name }),
            "truncate" | "truncate64" => {
                let bytes = unsigned(done.argument(1));
                let name = self.name(done, None, path);
                name.zip(bytes)
                    .map(|(name, bytes)| Action::Truncate { name, bytes })
            }
            "renameat2" if done.argument(4).contains("EXCHANGE") => {
                self.skip(&not_replayed("RENAME_EXCHANGE"));
                return true;
            }
            "rename" | "link" | "renameat" | "renameat2" | "linkat" => {
                let (to_directory, to) = if at {
                    (Some(done.argument(2)), done.argument(3))
                } else {
                    (None, done.argument(1))
                };
                let from = self.name(done, directory, path);
                let to = self.name(done, to_directory, to);
                from.zip(to).map(|(from, to)| {
                    if name.starts_with("link") {
                        Action::Link { from, to }
                    } else {
                        Action::Rename { from, to }
                    }
                })
            }
            _ => return false,
        };
        if let Some(action) = action {
            self.push(done, action, outcome);
        }
        true
    }
}
