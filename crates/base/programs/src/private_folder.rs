//! Private temporary folders: an unpredictable name, mode 0700 (`mkdtemp`). They are removed on drop.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use tempfile::TempDir;

/// Makes a folder in `parent`; its name begins with `prefix`.
pub fn private_folder(parent: &Path, prefix: &str) -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix(prefix)
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(parent)
        .with_context(|| format!("a folder can't be made in {}", parent.display()))
}
