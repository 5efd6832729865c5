//! Removes what a study made: measuring processes, mounts, cards, loop devices, the image and the folder of work.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::bed::{self, CARDS, IMAGE, MOUNTS, WORK, WORK_PREFIX};
use crate::child::{Children, STEP_TIME, STUDY_VARIABLE};
use crate::claim::is_claimed;
use crate::dirty_limit;
use crate::folder::Folder;
use crate::guest::SHARE;

/// Time to wait for the end of killed processes.
const PATIENCE: Duration = Duration::from_secs(2);

/// Removes what a killed study left. Plan and records stay.
///
/// # Errors
/// If no study has begun in the folder, it can't be opened, or something stays.
pub fn clean(folder: &Path, tidegate: &Path) -> Result<Vec<String>> {
    // Before it is opened, which would make a lock.
    if !is_claimed(folder) {
        bail!(
            "{} is no folder of a study, so nothing in it is removed; expected the folder that `tidegate study run -d` \
             named",
            folder.display()
        );
    }
    let cards = folder.join(CARDS);
    let opened = Folder::open(folder).map_err(|error| match cards.is_dir() {
        true => anyhow!(
            "{error:#}; if it does not end, `tidegate emmc detach --all --force --run-folder {}` ends its card",
            cards.display()
        ),
        false => error,
    });
    sweep(&opened?, tidegate)
}

/// Removes what the study of an opened folder left.
///
/// # Errors
/// If something stays.
pub fn sweep(folder: &Folder, tidegate: &Path) -> Result<Vec<String>> {
    let (never, path) = (AtomicBool::new(false), folder.path());
    let children = Children {
        tidegate,
        study: path,
        stop: &never,
    };
    let mut done = end_processes(path);
    let (mounts, cards) = (path.join(MOUNTS), path.join(CARDS));
    // First the cards: to unmount a file system is to write to its card, which may not answer any more.
    let detached = cards.is_dir().then(|| {
        let cards = bed::text(&cards)?;
        let words = ["emmc", "detach", "--all", "--force", "--run-folder", &cards];
        children.tidegate(&words, STEP_TIME)
    });
    for mountpoint in mounts_below(&mounts) {
        bed::unmount(&mountpoint);
        done.push(format!("unmounted {}", mountpoint.display()));
    }
    if let Some(detached) = detached {
        detached?;
        done.push("detached the cards".to_owned());
    }
    done.extend(remove_image(&children, path)?);
    let share = path.join(SHARE);
    let left = [&mounts, &cards, &share].map(|folder| mounts_below(folder));
    if let Some(left) = left.iter().flatten().next() {
        bail!("{} is still mounted", left.display());
    }
    let _ = fs::remove_dir_all(&cards);
    let _ = fs::remove_dir_all(&share);
    // Never what is in them: that could be another file system.
    for name in ["native", "fuse", ""] {
        let _ = fs::remove_dir(mounts.join(name));
    }
    done.extend(remove_work(path)?);
    Ok(done)
}

/// Detaches the loop devices on the image of a study, and removes it.
pub fn remove_image(children: &Children<'_>, folder: &Path) -> Result<Vec<String>> {
    let image = folder.join(IMAGE);
    let mut done = Vec::new();
    for device in loops_of(&image) {
        dirty_limit::lift(Path::new(&device));
        let words = ["--detach", &device];
        children.run(Path::new("losetup"), &words, STEP_TIME)?;
        done.push(format!("detached {device}"));
    }
    if image.symlink_metadata().is_ok() {
        fs::remove_file(&image).with_context(|| format!("{} can't be removed", image.display()))?;
        done.push(format!("removed {}", image.display()));
    }
    Ok(done)
}

/// Removes the folder that cells without a device used; a link in the study's folder names it.
pub fn remove_work(folder: &Path) -> Result<Option<String>> {
    let link = folder.join(WORK);
    let Ok(work) = fs::read_link(&link) else {
        return Ok(None);
    };
    let name = work.file_name().unwrap_or_default().to_string_lossy();
    if !name.starts_with(WORK_PREFIX) {
        bail!(
            "{}: expected a link to a folder {WORK_PREFIX}*, found one to {}, which no study has made; remove the link",
            link.display(),
            work.display()
        );
    }
    match fs::remove_dir_all(&work) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("{} can't be removed", work.display()));
        }
        _ => {}
    }
    fs::remove_file(&link).with_context(|| format!("{} can't be removed", link.display()))?;
    Ok(Some(format!("removed {}", work.display())))
}

/// Mount points below a folder, the deepest first.
fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    // Not as text: any user can mount something under a name that is not UTF-8.
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let points = table
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    let mut below: Vec<PathBuf> = points
        .map(unescaped)
        .filter(|point| point.starts_with(folder))
        .collect();
    below.reverse();
    below
}

/// A path of the mount table, where blanks and backslashes are octal numbers.
fn unescaped(mut text: &[u8]) -> PathBuf {
    let mut raw = Vec::new();
    while let Some((first, rest)) = text.split_first() {
        let digits = rest.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match byte {
            Some(byte) if *first == b'\\' => {
                raw.push(byte);
                text = &rest[3..];
            }
            _ => {
                raw.push(*first);
                text = rest;
            }
        }
    }
    PathBuf::from(OsString::from_vec(raw))
}

/// Ends the children of a study, whatever they run, except the daemons of cards, which are detached, and the shells
/// beside QEMU, which end with it and remove its files.
fn end_processes(folder: &Path) -> Vec<String> {
    let pids = processes_of(folder);
    for pid in &pids {
        // It may have ended by itself.
        let _ = kill_process(*pid, Signal::KILL);
    }
    let began = Instant::now();
    while began.elapsed() < PATIENCE && !processes_of(folder).is_empty() {
        thread::sleep(Duration::from_millis(5));
    }
    let ended = pids.iter();
    ended
        .map(|pid| format!("ended process {}", pid.as_raw_nonzero()))
        .collect()
}

fn processes_of(folder: &Path) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let variable = [STUDY_VARIABLE.as_bytes(), b"=", folder.as_os_str().as_bytes()].concat();
    let has = |file: &str, pid: i32, wanted: &[u8]| {
        let words = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == wanted)
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_kept = |pid: i32| {
        [&b"emmc"[..], guest::KEEPER.as_bytes()]
            .iter()
            .any(|word| has("cmdline", pid, word))
    };
    let ours = pids.filter(|pid| has("environ", *pid, &variable) && !is_kept(*pid));
    ours.filter_map(Pid::from_raw)
        .filter(|pid| *pid != getpid())
        .collect()
}

/// The loop devices on a file.
fn loops_of(file: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir("/sys/block") else {
        return Vec::new();
    };
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .map(|name| format!("/dev/{name}"))
        .filter(|device| backing_of(Path::new(device)).as_deref() == Some(file))
        .collect()
}

/// The file behind a loop device.
pub fn backing_of(device: &Path) -> Option<PathBuf> {
    let name = device.file_name()?.to_str()?;
    let mut raw = fs::read(format!("/sys/block/{name}/loop/backing_file")).ok()?;
    raw.pop_if(|byte| *byte == b'\n');
    Some(PathBuf::from(OsString::from_vec(raw)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_mount_table_are_bytes() {
        assert_eq!(unescaped(b"/a\\040b\\134040\\"), PathBuf::from("/a b\\040\\"));
        let odd = unescaped(b"/\xff");
        assert_eq!(odd.as_os_str().as_bytes(), b"/\xff");
    }
}
