//! Which folders are those of a study. A study removes and replaces things by their names in its folder, so it may only
//! do that in a folder that has none of these names, or that a study claimed before.
//!
//! The lock says so from the first moment on: a study that is killed while it is calibrated has neither plan nor state.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::bed::{CARDS, IMAGE, MOUNTS, WORK};
use crate::folder::{CELLS, LOCK, PLAN, STATE, stored_plan};
use crate::guest::SHARE;
use crate::measure::TRACE;

/// Content of the lock of a study's folder.
const CLAIM: &[u8] =
    b"tidegate study: `tidegate study clean` removes what a killed study left in this folder\n";

/// Names that a study writes or removes.
const NAMES: [&str; 11] = [
    PLAN,
    CELLS,
    STATE,
    MOUNTS,
    CARDS,
    IMAGE,
    WORK,
    SHARE,
    TRACE,
    "report.html",
    "tune.json",
];

/// Whether a study has begun in this folder.
pub fn is_claimed(folder: &Path) -> bool {
    matches!(content(folder).as_deref(), Ok(CLAIM)) || stored_plan(folder).is_ok()
}

/// Claims a folder for a study that is to begin; `lock` is its open and locked file.
///
/// # Errors
/// If the folder has something that a study would replace or remove, and no study made it.
pub fn claim(folder: &Path, mut lock: &File) -> Result<()> {
    let name = folder.join(LOCK);
    let found = content(folder).with_context(|| format!("{} can't be read", name.display()))?;
    if found == CLAIM {
        return Ok(());
    }
    let foreign = (!found.is_empty()).then(|| name.clone());
    let names = NAMES.iter().map(|name| folder.join(name));
    let mut others = names.filter(|path| path.symlink_metadata().is_ok());
    if let Some(path) = foreign.or_else(|| others.next()) {
        bail!(
            "{} is not of a study, which would replace or remove it; expected a new folder, or one without that name; \
             name another folder",
            path.display()
        );
    }
    lock.write_all(CLAIM)
        .and_then(|()| lock.sync_all())
        .with_context(|| format!("{} can't be written", name.display()))
}

/// The beginning of the lock; nothing if there is none.
fn content(folder: &Path) -> std::io::Result<Vec<u8>> {
    let mut found = Vec::new();
    match File::open(folder.join(LOCK)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        file => {
            file?.take(4096).read_to_end(&mut found)?;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::folder::Folder;

    #[test]
    fn a_folder_with_things_of_others_is_never_claimed_and_nothing_in_it_changes() {
        for name in NAMES.into_iter().chain([LOCK]) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(name);
            fs::write(&path, "precious").unwrap();
            let refused = Folder::open(folder.path()).unwrap().claim().unwrap_err();
            let message = refused.to_string();
            assert!(message.contains(path.to_str().unwrap()), "{message}");
            assert!(message.ends_with("name another folder"), "{message}");
            assert_eq!(fs::read(&path).unwrap(), b"precious");
            assert!(!is_claimed(folder.path()));
        }
    }

    #[test]
    fn a_claimed_folder_stays_one_after_a_kill() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_claimed(folder.path()));
        Folder::open(folder.path()).unwrap().claim().unwrap();
        fs::write(folder.path().join(IMAGE), "of a killed study").unwrap();
        assert!(is_claimed(folder.path()));
        Folder::open(folder.path()).unwrap().claim().unwrap();
    }
}
