//! Events other than requests: file life cycle, journal commits, system call counts.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::request::{FileIdentity, Process};
use super::vocabulary::UnknownWord;

/// An event that is not a block request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Time, ns since the trace's start.
    pub time_ns: u64,
    /// Kind of event.
    pub kind: EventKind,
    /// Process that caused it.
    pub process: Option<Arc<Process>>,
    /// File concerned.
    pub file: Option<FileIdentity>,
    /// Path at that time (for a rename: the new one).
    pub path: Option<Arc<str>>,
    /// Meaning depends on the kind, see [`EventKind`]: name of a system call, or type of a journal handle.
    pub name: Option<Arc<str>>,
    /// Meaning depends on the kind, see [`EventKind`].
    pub value: u64,
}

/// Kinds of events, with the meaning of `name` and `value` for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A file was created. No value.
    Create,
    /// A name was removed; the file exists as long as it is open. Value: remaining names.
    Unlink,
    /// A file was renamed. No value.
    Rename,
    /// A file was deleted and its space freed. Value: its last size in bytes.
    Delete,
    /// `fsync`. Value: duration, ns.
    Fsync,
    /// `fdatasync`. Value: duration, ns.
    Fdatasync,
    /// A journal transaction was committed. Value: its number.
    Commit,
    /// A process took part in a journal transaction. Name: type of the handle; value: transaction number.
    Contribution,
    /// System calls of a process over the whole trace, reported once at its end. Name: the call; value: count.
    CallCount,
    /// Records were lost at this point. Value: count.
    Lost,
}

impl EventKind {
    /// Every kind with its word in stored traces.
    pub const WORDS: [(Self, &'static str); 10] = [
        (Self::Create, "create"),
        (Self::Unlink, "unlink"),
        (Self::Rename, "rename"),
        (Self::Delete, "delete"),
        (Self::Fsync, "fsync"),
        (Self::Fdatasync, "fdatasync"),
        (Self::Commit, "commit"),
        (Self::Contribution, "contribution"),
        (Self::CallCount, "call_count"),
        (Self::Lost, "lost"),
    ];

    /// The word in stored traces.
    #[must_use]
    pub fn word(self) -> &'static str {
        super::vocabulary::word_of(self, &Self::WORDS)
    }
}

impl std::str::FromStr for EventKind {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        super::vocabulary::parse_word(word, &Self::WORDS, "kind of event")
    }
}
