//! `--coherence`: names, attributes and listings stay in the kernel until the source changes behind the mount.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::harness::Mounted;

mod changes;
mod judge;
mod limits;
mod losses;
mod walks;

/// Explicit, as the default is another one for a mount with given times.
const TOLD: [&str; 2] = ["--coherence", "auto"];
/// Far longer than any report takes, and shorter than any lifetime of what was reported.
const PATIENCE: Duration = Duration::from_secs(30);

/// A mount that watches its source. `None`, with a printed reason, if this machine has none.
fn start_told(prepare: impl FnOnce(&Path), more: &[&str]) -> Option<Mounted> {
    let mounted = Mounted::start_over(prepare, &[&TOLD, more].concat())?;
    let negotiated = &mounted.report["negotiated"];
    if negotiated["coherence"] == "watch" {
        return Some(mounted);
    }
    let reasons = negotiated["not_granted"].to_string();
    testkit::report_left_out(format!("mounts that are told of changes: {reasons}"));
    None
}

/// Everything that a walk can see of a tree, except for access times.
fn look(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut seen = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let names = fs::read_dir(root.join(&folder)).map(|names| {
            let mut names: Vec<_> = names.map_while(Result::ok).map(|name| name.file_name()).collect();
            names.sort();
            names
        });
        if let Err(error) = &names {
            // A look that sees nothing would find everything equal.
            let error = Errno::from_io_error(error);
            assert!(
                ![Some(Errno::MFILE), Some(Errno::NFILE)].contains(&error),
                "{error:?}"
            );
        }
        for name in names.unwrap_or_default() {
            let path = folder.join(name);
            let full = root.join(&path);
            let Ok(meta) = fs::symlink_metadata(&full) else {
                seen.insert(path, "vanished".to_owned());
                continue;
            };
            let mut text = format!(
                "{:o} {}:{} links {} size {} mtime {}.{:09} ctime {}.{:09}",
                meta.mode(),
                meta.uid(),
                meta.gid(),
                meta.nlink(),
                meta.size(),
                meta.mtime(),
                meta.mtime_nsec(),
                meta.ctime(),
                meta.ctime_nsec(),
            );
            if meta.is_symlink() {
                text += &format!(" to {:?}", fs::read_link(&full).ok());
            } else if meta.is_file() {
                let content = fs::read(&full).ok();
                text += &format!(" content {:?}", content.map(|bytes| sum_of(&bytes)));
                let mut value = [0; 64];
                let length = rustix::fs::getxattr(&full, "user.test", &mut value);
                text += &format!(" attribute {:?}", length.map(|length| value[..length].to_vec()));
                let acl = rustix::fs::getxattr(&full, "system.posix_acl_access", &mut value);
                text += &format!(" acl {:?}", acl.map(|length| value[..length].to_vec()));
            }
            if meta.is_dir() {
                folders.push(path.clone());
            }
            seen.insert(path, text);
        }
    }
    for absent in ["absent", "a/absent", "b/absent", "moved in"] {
        let is_there = fs::symlink_metadata(root.join(absent)).is_ok();
        seen.insert(format!("? {absent}").into(), is_there.to_string());
    }
    seen
}

fn sum_of(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(bytes.len().try_into().unwrap(), |sum: u64, byte| {
            sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte)
        })
}

/// Waits until the mount shows the source.
fn see(mounted: &Mounted) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (seen, wanted) = (look(&mounted.mountpoint()), look(&mounted.source()));
        if seen == wanted {
            return;
        }
        if Instant::now() > deadline {
            assert_eq!(seen, wanted);
        }
        std::thread::yield_now();
    }
}
