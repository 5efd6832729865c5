//! Flags of `open`, stored by name: their numbers differ between architectures, so neither traces nor replays keep
//! them.

use std::fmt::{self, Display};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// Access mode of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// `O_RDONLY`.
    #[default]
    Read,
    /// `O_WRONLY`.
    Write,
    /// `O_RDWR`.
    ReadWrite,
}

/// Flags of an open. Flags that don't affect the file system (`O_CLOEXEC`, `O_LARGEFILE`) are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each flag is named for the O_ flag that it stands for"
)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent flags of one system call"
)]
pub struct OpenFlags {
    pub access: Access,
    pub create: bool,
    pub exclusive: bool,
    pub truncate: bool,
    pub append: bool,
    pub sync: bool,
    pub data_sync: bool,
    pub direct: bool,
    pub directory: bool,
    pub path_only: bool,
    pub no_access_time: bool,
}

/// A word that is not a flag name.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{0}` is no flag of open")]
pub struct UnknownFlag(pub String);

type Field = fn(&mut OpenFlags) -> &mut bool;

/// Name in a trace, name in C, and field of each flag.
const FLAGS: [(&str, &str, Field); 10] = [
    ("create", "O_CREAT", |flags| &mut flags.create),
    ("exclusive", "O_EXCL", |flags| &mut flags.exclusive),
    ("truncate", "O_TRUNC", |flags| &mut flags.truncate),
    ("append", "O_APPEND", |flags| &mut flags.append),
    ("sync", "O_SYNC", |flags| &mut flags.sync),
    ("data-sync", "O_DSYNC", |flags| &mut flags.data_sync),
    ("direct", "O_DIRECT", |flags| &mut flags.direct),
    ("directory", "O_DIRECTORY", |flags| &mut flags.directory),
    ("path-only", "O_PATH", |flags| &mut flags.path_only),
    ("no-access-time", "O_NOATIME", |flags| &mut flags.no_access_time),
];

impl OpenFlags {
    /// Opens for reading.
    pub const READ: Self = Self::for_access(Access::Read);
    /// Opens for writing.
    pub const WRITE: Self = Self::for_access(Access::Write);
    /// Opens for reading and writing.
    pub const READ_WRITE: Self = Self::for_access(Access::ReadWrite);

    const fn for_access(access: Access) -> Self {
        Self {
            access,
            create: false,
            exclusive: false,
            truncate: false,
            append: false,
            sync: false,
            data_sync: false,
            direct: false,
            directory: false,
            path_only: false,
            no_access_time: false,
        }
    }

    /// Adds `O_CREAT`.
    #[must_use]
    pub const fn creating(mut self) -> Self {
        self.create = true;
        self
    }

    /// Adds `O_TRUNC`.
    #[must_use]
    pub const fn truncating(mut self) -> Self {
        self.truncate = true;
        self
    }

    /// Adds `O_APPEND`.
    #[must_use]
    pub const fn appending(mut self) -> Self {
        self.append = true;
        self
    }

    /// True when the descriptor is writable.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self.access, Access::Read)
    }

    /// Parses flags in C spelling (`O_RDWR|O_CREAT`). Flags that are not kept are ignored.
    #[must_use]
    pub fn from_c_words(text: &str) -> Self {
        let mut flags = Self::default();
        for word in text.split('|') {
            match word.trim() {
                "O_WRONLY" => flags.access = Access::Write,
                "O_RDWR" => flags.access = Access::ReadWrite,
                word => {
                    if let Some((_, _, field)) = FLAGS.iter().find(|(_, c, _)| *c == word) {
                        *field(&mut flags) = true;
                    }
                }
            }
        }
        flags
    }
}

impl Display for OpenFlags {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.access {
            Access::Read => "read",
            Access::Write => "write",
            Access::ReadWrite => "read-write",
        })?;
        let mut copy = *self;
        for (name, _, field) in FLAGS {
            if *field(&mut copy) {
                write!(formatter, ",{name}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for OpenFlags {
    type Err = UnknownFlag;

    fn from_str(text: &str) -> Result<Self, UnknownFlag> {
        let mut flags = Self::default();
        for word in text.split(',') {
            match word {
                "read" => flags.access = Access::Read,
                "write" => flags.access = Access::Write,
                "read-write" => flags.access = Access::ReadWrite,
                word => {
                    let known = FLAGS.iter().find(|(name, _, _)| *name == word);
                    let (_, _, field) = known.ok_or_else(|| UnknownFlag(word.to_owned()))?;
                    *field(&mut flags) = true;
                }
            }
        }
        Ok(flags)
    }
}

impl Serialize for OpenFlags {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for OpenFlags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_survive_as_text() {
        let flags = OpenFlags::READ_WRITE.creating().appending();
        assert_eq!(flags.to_string(), "read-write,create,append");
        assert_eq!("read-write,create,append".parse(), Ok(flags));
        assert_eq!("red".parse::<OpenFlags>(), Err(UnknownFlag("red".to_owned())));
    }

    #[test]
    fn flags_of_c_are_understood_and_those_without_effect_passed_over() {
        let flags = OpenFlags::from_c_words("O_WRONLY|O_CREAT|O_TRUNC|O_LARGEFILE|O_CLOEXEC");
        assert_eq!(flags, OpenFlags::WRITE.creating().truncating());
        assert_eq!(OpenFlags::from_c_words("O_RDONLY"), OpenFlags::READ);
    }
}
