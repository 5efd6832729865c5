//! `tidegate mount -o remount,...`: changes the generic flags of a running mount, for mount(8).
//!
//! The flags in force are read from the mount table, so that flags not named are kept. The daemon is not involved. Its own
//! options (`buffer=...`) can't be changed; naming them with their current values is accepted, because mount(8) repeats the
//! options of /etc/fstab.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use anyhow::{Context, Result, bail};
use clap::{CommandFactory, Parser};

use crate::arguments::{Arguments, Command, MountArguments};
use crate::mount_options::{all_options, differs, is_generic};
use crate::mount_table::{self, Mount};
use crate::stats_document;

/// Returns true if the options request a remount.
pub fn is_asked(arguments: &MountArguments) -> bool {
    all_options(arguments).iter().any(|option| option == "remount")
}

/// Runs the command.
pub fn run(arguments: &MountArguments) -> Result<()> {
    let mount = mount_table::find_tidegate(&arguments.mountpoint)?;
    let (generic, own): (Vec<String>, Vec<String>) = all_options(arguments)
        .into_iter()
        .partition(|option| is_generic(option));
    if has_own_flags(arguments) || !own.is_empty() {
        let running = arguments_of_daemon(&mount)?;
        if differs(&running, arguments, &own)? {
            bail!(
                "{}: {} can't be changed while mounted: unmount first",
                mount.mountpoint.display(),
                if own.is_empty() {
                    "tidegate's own flags".to_owned()
                } else {
                    own.join(",")
                }
            );
        }
    }
    if arguments.fake {
        return Ok(());
    }
    Ok(fuse::remount(
        &mount.mountpoint,
        &words(&mount, generic, arguments.read_only),
    )?)
}

/// The options in force, then the given ones. Drops `rw`, which the table shows for the mount or its file system even if
/// the other is `ro`.
fn words(mount: &Mount, given: Vec<String>, read_only: bool) -> Vec<String> {
    let in_force = mount.options.iter().filter(|word| *word != "rw").cloned();
    let flag = read_only.then(|| "ro".to_owned());
    in_force.chain(given).chain(flag).collect()
}

fn has_own_flags(arguments: &MountArguments) -> bool {
    let others = MountArguments {
        source: arguments.source.clone(),
        mountpoint: arguments.mountpoint.clone(),
        ..MountArguments::default()
    };
    let plain = |arguments: &MountArguments| MountArguments {
        options: Vec::new(),
        read_only: false,
        foreground: false,
        json: false,
        over: false,
        log_file: None,
        sloppy: false,
        quiet: false,
        fake: false,
        ..arguments.clone()
    };
    plain(arguments) != plain(&others)
}

/// Parses the command line of a mount's daemon.
fn arguments_of_daemon(mount: &Mount) -> Result<MountArguments> {
    let unknown = || {
        format!(
            "{}: its daemon can't be asked for its options; give generic ones only (ro, nosuid ...)",
            mount.mountpoint.display()
        )
    };
    let document = stats_document::read(&mount.mountpoint).with_context(unknown)?;
    if document.pid_namespace != stats_document::own_pid_namespace() {
        bail!(unknown());
    }
    let line = std::fs::read(format!("/proc/{}/cmdline", document.pid)).with_context(unknown)?;
    let words = crate::normalised(&Arguments::command(), words_of(&line));
    match Arguments::try_parse_from(words).with_context(unknown)?.command {
        Command::Mount(arguments) => Ok(arguments.into_inner()),
        _ => bail!(unknown()),
    }
}

/// Splits a command line of /proc, in which each word ends with a zero byte.
fn words_of(line: &[u8]) -> Vec<OsString> {
    let line = line.strip_suffix(&[0]).unwrap_or(line);
    let words = line.split(|byte| *byte == 0);
    words.map(|word| OsString::from_vec(word.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_in_force_come_first_and_half_a_ro_is_ro() {
        let mount = Mount {
            id: "98".to_owned(),
            root: "/".into(),
            device: "0:50".to_owned(),
            mountpoint: "/mnt".into(),
            kind: "fuse.tidegate".into(),
            source: "/src".into(),
            options: ["rw", "nosuid", "ro", "user_id=0"].map(str::to_owned).to_vec(),
        };
        let given = vec!["remount".to_owned(), "suid".to_owned()];
        assert_eq!(
            words(&mount, given, false),
            ["nosuid", "ro", "user_id=0", "remount", "suid"]
        );
    }
}
