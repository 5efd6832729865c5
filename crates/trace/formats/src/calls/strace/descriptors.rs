//! Calls that open, duplicate and close descriptors.

use results::call_trace::{Action, Closed, Descriptor, OpenFlags, Outcome};

use super::line::{self, descriptor};
use super::names::CUT_SHORT;
use super::{Done, Tracer, kind_of_annotation, not_replayed, path_of_annotation};
use crate::calls::{KERNEL_FILE, UNKNOWN_DESCRIPTOR, is_kernel_file, path_of_bytes};

impl Tracer {
    pub(super) fn open(&mut self, done: &Done<'_>, directory: Option<&str>, path: &str, flags: &str) {
        let words = flags.trim_start_matches("{flags=");
        let words = words.split([',', '}']).next().unwrap_or(words);
        let outcome = done.outcome();
        let opened = descriptor(done.answer.value).0.filter(|number| *number >= 0);
        if words.contains("O_TMPFILE") {
            self.skip(&not_replayed("O_TMPFILE"));
            if let Some(number) = opened {
                let kind = Descriptor::Other("file without a name (O_TMPFILE)");
                self.tables.insert(done.thread, number, kind, false);
            }
            return;
        }
        let annotated = done.answer.annotation.filter(|path| path.starts_with('/'));
        let path = match annotated {
            Some(annotation) => Some(path_of_annotation(annotation)),
            None => self.path(done, directory, path),
        };
        let Some(path) = path else {
            self.skip(CUT_SHORT);
            return;
        };
        let close_on_exec = words.contains("O_CLOEXEC");
        let other = done
            .answer
            .annotation
            .filter(|annotation| !annotation.starts_with('/'));
        let other = match other {
            Some(annotation) => Some(kind_of_annotation(annotation)),
            None => is_kernel_file(&path_of_bytes(&path)).then_some(KERNEL_FILE),
        };
        if let Some(what) = other {
            self.skip(what);
            if let Some(number) = opened {
                self.tables
                    .insert(done.thread, number, Descriptor::Other(what), close_on_exec);
            }
            return;
        }
        let trace = &mut self.collector.trace;
        let (name, handle) = (trace.name(&path_of_bytes(&path)), trace.new_handle());
        self.paths.insert(handle, path);
        let flags = OpenFlags::from_c_words(words);
        let outcome = if outcome.is_success() {
            Outcome::Done(0)
        } else {
            outcome
        };
        self.push(done, Action::Open { name, handle, flags }, outcome);
        if let Some(number) = opened {
            let kind = Descriptor::File(handle);
            let closed = self.tables.insert(done.thread, number, kind, close_on_exec);
            self.close_silently(done, closed);
        }
    }

    /// Adds the missing close of a number that was reused without a close in the trace.
    fn close_silently(&mut self, done: &Done<'_>, closed: Closed) {
        if let Closed::Last(handle) = closed {
            self.add(done.thread, done.at_ns, Action::Close { handle });
        }
    }

    pub(super) fn close(&mut self, done: &Done<'_>) {
        match done.closed {
            Some(Closed::Last(handle)) => {
                self.paths.remove(&handle);
                self.push(done, Action::Close { handle }, done.outcome());
            }
            Some(Closed::StillHeld) => self.skip("close of a descriptor that another process still has"),
            Some(Closed::Other(what)) => self.skip(what),
            Some(Closed::Unknown) | None => self.skip(UNKNOWN_DESCRIPTOR),
        }
    }

    pub(super) fn close_range(&mut self, done: &Done<'_>) {
        let (first, last) = (line::number(done.argument(0)), line::number(done.argument(1)));
        let bound = |number: Option<i64>, other| {
            number.map_or(other, |number| i32::try_from(number).unwrap_or(other))
        };
        if !done.outcome().is_success() || done.argument(2).contains("CLOEXEC") {
            return;
        }
        for number in self
            .tables
            .open_between(done.thread, bound(first, 0), bound(last, i32::MAX))
        {
            let closed = self.tables.close(done.thread, number);
            self.close_silently(done, closed);
        }
    }

    pub(super) fn duplicate(&mut self, done: &Done<'_>, close_on_exec: bool) {
        let Some(copy_number) = descriptor(done.answer.value).0.filter(|number| *number >= 0) else {
            self.skip(&not_replayed("dup that failed"));
            return;
        };
        match done.descriptor {
            Some(Descriptor::File(handle)) => {
                let (number, _) = descriptor(done.argument(0));
                if number == Some(copy_number) {
                    return;
                }
                let copy = self.collector.trace.new_handle();
                if let Some(path) = self.paths.get(&handle).cloned() {
                    self.paths.insert(copy, path);
                }
                let kind = Descriptor::File(copy);
                let closed = self.tables.insert(done.thread, copy_number, kind, close_on_exec);
                self.close_silently(done, closed);
                self.push(done, Action::Duplicate { handle, copy }, Outcome::Done(0));
            }
            Some(other) => {
                let closed = self.tables.insert(done.thread, copy_number, other, close_on_exec);
                self.close_silently(done, closed);
                self.file(done);
            }
            None => {
                let closed = self.tables.close(done.thread, copy_number);
                self.close_silently(done, closed);
                self.skip(UNKNOWN_DESCRIPTOR);
            }
        }
    }
}
