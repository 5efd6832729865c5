//! Descriptions of a UBIFS and of its files, for people and as JSON.

mod file_system;
mod journal;
mod listing;

pub use self::file_system::{file_system, file_system_json, uuid};
pub use self::journal::{journal, journal_json};
pub use self::listing::{attributes, details, target, timestamp};
