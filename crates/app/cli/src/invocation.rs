//! Rewrites the calls of mount(8) and `mount.fuse3` into `tidegate mount ...`, a call through a link named `mobibench`
//! into `tidegate mobibench ...`, and one through `ubireader_extract_files` into `tidegate ubireader extract-files ...`.
//!
//! Three forms start a mount: `tidegate mount SOURCE MOUNTPOINT`, a program name that starts with `mount.` (mount(8) looks
//! for the helper `/sbin/mount.fuse.tidegate`), and `tidegate SOURCE MOUNTPOINT` (run by `mount.fuse3` for the type
//! `fuse.tidegate`). The helpers' short flags are those of mount(8): `-n -v -w` have no effect on the mount, `-s` accepts
//! unknown options, `-r` mounts read-only, `-t` names the type, and `-f` only checks.
//!
//! Does not parse options; `arguments.rs` parses the result.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Rewrites the arguments, program name first, into the form that `arguments.rs` parses.
///
/// `commands` are the names of the subcommands; `exists` tells whether a path exists.
pub fn normalise(
    arguments: Vec<OsString>,
    commands: &[&str],
    exists: impl Fn(&Path) -> bool,
) -> Vec<OsString> {
    if arguments.first().is_some_and(|program| is_mobibench(program)) {
        let rest = arguments.into_iter().skip(1);
        return ["tidegate".into(), "mobibench".into()]
            .into_iter()
            .chain(rest)
            .collect();
    }
    if let Some(tool) = arguments.first().and_then(|program| ubireader_tool(program)) {
        let rest = arguments.into_iter().skip(1);
        return ["tidegate".into(), "ubireader".into(), tool]
            .into_iter()
            .chain(rest)
            .collect();
    }
    let helper = arguments.first().is_some_and(|program| is_mount_helper(program));
    if !helper && !is_bare_mount(&arguments, commands, exists) {
        return arguments;
    }
    let mut normalised: Vec<OsString> = vec!["tidegate".into(), "mount".into()];
    if helper {
        // The default options that mount(8) promises, as mount.fuse3 adds them; later options override them. The kernel
        // refuses both to ordinary users.
        normalised.push("--quiet".into());
        if !is_remount(&arguments) {
            normalised.extend(["-o", "suid,dev"].map(OsString::from));
        }
    }
    let mut rest = arguments.into_iter().skip(1);
    while let Some(argument) = rest.next() {
        match argument.as_bytes() {
            b"--" => {
                normalised.push(argument);
                normalised.extend(rest.by_ref());
            }
            b"-o" => {
                normalised.push(argument);
                normalised.extend(rest.next());
            }
            b"-t" => drop(rest.next()),
            // A helper of mount(8) prints nothing unless -v is given.
            [b'-', letters @ ..] if helper && is_flag_cluster(letters) && letters.contains(&b'v') => {
                normalised.retain(|word| word != "--quiet");
                normalised.extend(
                    letters
                        .iter()
                        .filter_map(|letter| flag_for(*letter, helper))
                        .map(OsString::from),
                );
            }
            [b'-', letters @ ..] if is_flag_cluster(letters) => {
                normalised.extend(
                    letters
                        .iter()
                        .filter_map(|letter| flag_for(*letter, helper))
                        .map(OsString::from),
                );
            }
            _ => normalised.push(argument),
        }
    }
    normalised
}

fn is_mobibench(program: &OsStr) -> bool {
    Path::new(program)
        .file_name()
        .is_some_and(|name| name == "mobibench")
}

/// The tool of ubi_reader that a link is named by.
fn ubireader_tool(program: &OsStr) -> Option<OsString> {
    let name = Path::new(program).file_name()?.to_str()?;
    let tool = name.strip_prefix("ubireader_")?;
    Some(tool.replace('_', "-").into())
}

fn is_mount_helper(program: &OsStr) -> bool {
    Path::new(program)
        .file_name()
        .is_some_and(|name| name.as_bytes().starts_with(b"mount."))
}

/// Returns true for `tidegate SOURCE MOUNTPOINT ...`. The source must look like a path, so that a misspelt command is still
/// reported as one.
fn is_bare_mount(arguments: &[OsString], commands: &[&str], exists: impl Fn(&Path) -> bool) -> bool {
    let [_, source, _, ..] = arguments else {
        return false;
    };
    let is_command = commands.iter().any(|name| OsStr::new(name) == source);
    !is_command
        && !source.as_bytes().starts_with(b"-")
        && (source.as_bytes().contains(&b'/') || exists(Path::new(source)))
}

/// A remount keeps the options in force, so it gets no defaults.
fn is_remount(arguments: &[OsString]) -> bool {
    arguments.windows(2).any(|pair| {
        let mut options = pair[1].as_bytes().split(|byte| *byte == b',');
        pair[0] == "-o" && options.any(|option| option == b"remount")
    })
}

fn is_flag_cluster(letters: &[u8]) -> bool {
    !letters.is_empty() && letters.iter().all(|letter| b"nsvfrw".contains(letter))
}

fn flag_for(letter: u8, helper: bool) -> Option<&'static str> {
    match letter {
        b's' => Some("--sloppy"),
        b'r' => Some("--read-only"),
        b'f' if helper => Some("--fake"),
        b'f' => Some("--foreground"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str]) -> Vec<String> {
        let arguments = words.iter().map(OsString::from).collect();
        let exists = |path: &Path| path == Path::new("folder");
        normalise(arguments, &["mount", "stats"], exists)
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_command_is_left_as_it_is() {
        let words = ["tidegate", "stats", "/mnt", "-v"];
        assert_eq!(run(&words), words);
    }

    #[test]
    fn a_misspelt_command_is_left_for_its_error_message() {
        let words = ["tidegate", "stat", "/mnt"];
        assert_eq!(run(&words), words);
    }

    #[test]
    fn mount_fuse3_form_becomes_a_mount() {
        assert_eq!(
            run(&["tidegate", "/source", "/mnt", "-o", "rw,dev,suid"]),
            ["tidegate", "mount", "/source", "/mnt", "-o", "rw,dev,suid"]
        );
        assert_eq!(
            run(&["tidegate", "folder", "mnt"]),
            ["tidegate", "mount", "folder", "mnt"]
        );
    }

    #[test]
    fn a_link_named_mobibench_is_the_original() {
        assert_eq!(
            run(&["/data/bin/mobibench", "-p", "/data/x", "-a1"]),
            ["tidegate", "mobibench", "-p", "/data/x", "-a1"]
        );
        let words = ["mobibench-old", "stats"];
        assert_eq!(run(&words), words);
    }

    #[test]
    fn a_link_named_as_a_tool_of_ubi_reader_is_that_tool() {
        assert_eq!(
            run(&["/usr/bin/ubireader_extract_files", "-w", "-o", "out", "image"]),
            [
                "tidegate",
                "ubireader",
                "extract-files",
                "-w",
                "-o",
                "out",
                "image"
            ]
        );
    }

    #[test]
    fn the_flags_of_a_mount_helper_are_translated() {
        assert_eq!(
            run(&[
                "/sbin/mount.fuse.tidegate",
                "src",
                "/mnt",
                "-nsv",
                "-r",
                "-t",
                "fuse.tidegate",
                "-o",
                "-n",
                "-f"
            ]),
            [
                "tidegate",
                "mount",
                "-o",
                "suid,dev",
                "src",
                "/mnt",
                "--sloppy",
                "--read-only",
                "-o",
                "-n",
                "--fake"
            ]
        );
    }

    #[test]
    fn a_remount_is_given_no_defaults() {
        assert_eq!(
            run(&["mount.fuse.tidegate", "src", "/mnt", "-o", "rw,remount,ro"]),
            [
                "tidegate",
                "mount",
                "--quiet",
                "src",
                "/mnt",
                "-o",
                "rw,remount,ro"
            ]
        );
    }

    #[test]
    fn after_two_dashes_nothing_is_a_flag() {
        assert_eq!(
            run(&["mount.tidegate", "--", "-n", "/mnt"]),
            [
                "tidegate", "mount", "--quiet", "-o", "suid,dev", "--", "-n", "/mnt"
            ]
        );
    }
}
