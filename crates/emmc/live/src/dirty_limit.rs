//! Limit of a device's dirty pages in the page cache: `/sys/block/NAME/bdi`, Linux 6.2 and later.
//!
//! The kernel keeps the limit as a share of the machine's own one, so `max_bytes` is rounded; `max_ratio_fine` restores
//! the former share exactly.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{LiveError, LoopDevice};

const STRICT: &str = "strict_limit";
const BYTES: &str = "max_bytes";
const RATIO: &str = "max_ratio_fine";

/// Settings of a device's dirty pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct DirtyRules {
    /// 1 if the limit holds even while the machine has few dirty pages, or 0.
    pub strict_limit: u32,
    /// Share of the machine's limit, millionths.
    pub max_ratio_fine: u32,
}

impl LoopDevice {
    /// The settings of its dirty pages.
    ///
    /// # Errors
    /// If the kernel has none (before Linux 6.2).
    pub fn dirty_rules(&self) -> Result<DirtyRules, LiveError> {
        rules_in(&self.bdi())
    }

    /// Limits its dirty pages to `bytes`, strictly.
    ///
    /// # Errors
    /// If the kernel has no such limit, or `bytes` is above that of the machine. One of two settings may be changed then.
    pub fn limit_dirty(&self, bytes: u64) -> Result<(), LiveError> {
        limit_in(&self.bdi(), bytes)
    }

    /// Restores former settings.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_dirty_rules(&self, rules: &DirtyRules) -> Result<(), LiveError> {
        restore_in(&self.bdi(), rules)
    }

    fn bdi(&self) -> PathBuf {
        PathBuf::from(format!("/sys/block/{}/bdi", self.name()))
    }
}

fn rules_in(folder: &Path) -> Result<DirtyRules, LiveError> {
    Ok(DirtyRules {
        strict_limit: number(folder, STRICT)?,
        max_ratio_fine: number(folder, RATIO)?,
    })
}

fn limit_in(folder: &Path, bytes: u64) -> Result<(), LiveError> {
    set(folder, BYTES, bytes)?;
    set(folder, STRICT, 1)
}

fn restore_in(folder: &Path, rules: &DirtyRules) -> Result<(), LiveError> {
    set(folder, STRICT, rules.strict_limit.into())?;
    set(folder, RATIO, rules.max_ratio_fine.into())
}

fn number(folder: &Path, setting: &str) -> Result<u32, LiveError> {
    let path = folder.join(setting);
    match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|_| LiveError::DirtyLimit {
            found: text.trim().to_owned(),
            source: ErrorKind::InvalidData.into(),
            path,
        }),
        Err(error) => Err(failed(path, error)),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a file of the kernel: it is there, and takes no other's place"
)]
fn set(folder: &Path, setting: &str, value: u64) -> Result<(), LiveError> {
    let path = folder.join(setting);
    // A missing file of the kernel is not created.
    let written = fs::metadata(&path).and_then(|_| fs::write(&path, value.to_string()));
    written.map_err(|source| match source.kind() {
        ErrorKind::InvalidInput => LiveError::DirtyLimitTooHigh {
            most: fs::read_to_string(&path).unwrap_or_default().trim().to_owned(),
            path,
            value,
        },
        _ => failed(path, source),
    })
}

fn failed(path: PathBuf, source: io::Error) -> LiveError {
    match source.kind() {
        ErrorKind::NotFound => LiveError::NoDirtyLimit { path },
        _ => LiveError::DirtyLimit {
            path,
            found: "nothing".to_owned(),
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_set_and_the_former_settings_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        for (name, value) in [(STRICT, "0\n"), (BYTES, "4866437120\n"), (RATIO, "730000\n")] {
            fs::write(folder.path().join(name), value).unwrap();
        }
        let former = rules_in(folder.path()).unwrap();
        limit_in(folder.path(), 64 << 20).unwrap();
        assert_eq!((read(STRICT), read(BYTES)), ("1".into(), "67108864".into()));
        restore_in(folder.path(), &former).unwrap();
        assert_eq!((read(STRICT), read(RATIO)), ("0".into(), "730000".into()));
    }

    #[test]
    fn a_kernel_without_the_limit_is_named_and_nothing_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let refused = [
            rules_in(folder.path()).map(|_| ()),
            limit_in(folder.path(), 1 << 20),
        ];
        for refused in refused {
            let message = refused.expect_err("nothing is there").to_string();
            assert!(
                message.contains("Linux 6.2") && message.contains("leave out --dirty-limit"),
                "{message}"
            );
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
