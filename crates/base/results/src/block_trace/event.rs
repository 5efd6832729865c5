//! What happens beside requests: life of files, commits of the journal, counts of system calls.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::request::{FileIdentity, Process};
use super::vocabulary::UnknownWord;

/// Something that is no request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, ns since the trace's start.
    pub time_ns: u64,
    /// What.
    pub kind: EventKind,
    /// Who.
    pub process: Option<Arc<Process>>,
    /// On which file.
    pub file: Option<FileIdentity>,
    /// Its path then (for a rename: the new one).
    pub path: Option<Arc<str>>,
    /// The kind's word: name of a system call, type of a journal handle.
    pub name: Option<Arc<str>>,
    /// The kind's number: see [`EventKind`].
    pub value: u64,
}

/// Kinds of events, and what their `name` and `value` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A file was made. No value.
    Create,
    /// A name was removed; the file lives on while it is open. Value: names left.
    Unlink,
    /// A file got another name. No value.
    Rename,
    /// A file is gone, its space is free. Value: its last size in bytes.
    Delete,
    /// `fsync`. Value: how long it took, ns.
    Fsync,
    /// `fdatasync`. Value: how long it took, ns.
    Fdatasync,
    /// A transaction of the journal was committed. Value: its number.
    Commit,
    /// A process took part in a transaction. Name: type of the handle; value: the transaction.
    Contribution,
    /// System calls of a process over the whole trace, told once at its end. Name: the call; value: how many.
    CallCount,
    /// Records were lost here. Value: how many.
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
