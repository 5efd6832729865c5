//! The links named as the tools of ubi_reader: their options, the layout of their output, and their exit codes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::fs::{CWD, FileType, Mode};
use rustix::process::{Pid, Signal, kill_process};

use super::parts::{Parts, done, noise, text};

/// The program through a link with this name, in a folder.
fn command(folder: &Path, name: &str, words: &[&str]) -> Command {
    let link = folder.join(format!("ubireader_{name}"));
    if !link.exists() {
        symlink(env!("CARGO_BIN_EXE_tidegate"), &link).expect("a link");
    }
    let mut command = Command::new(link);
    command.args(words).current_dir(folder);
    command
}

/// Runs it.
fn tool(folder: &Path, name: &str, words: &[&str]) -> Output {
    command(folder, name, words).output().expect("it runs")
}

/// Runs it, and stops it by a signal while it waits for the reader of an output, which is made as a FIFO.
fn stopped_at(fifo: &Path, folder: &Path, name: &str, words: &[&str]) -> Output {
    rustix::fs::mknodat(CWD, fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("made");
    let mut command = command(folder, name, words);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().expect("it runs");
    // Until the tool opens it, too.
    let reader = fs::File::open(fifo).expect("a FIFO");
    let process = Pid::from_raw(i32::try_from(child.id()).expect("small")).expect("not 0");
    kill_process(process, Signal::INT).expect("it waits");
    let output = child.wait_with_output().expect("it ends");
    drop(reader);
    output
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The call of unblob.
#[test]
fn files_are_in_a_folder_by_sequence_and_volume() {
    let parts = Parts::make();
    let folder = parts.folder.path();
    fs::write(parts.path("dump"), parts.dump()).expect("written");
    let output = tool(folder, "extract_files", &["dump", "-w", "-o", "out"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        printed(&output).contains("Extracting files to: out/1001/rootfs"),
        "{output:?}"
    );
    parts.check_first(&parts.path("out/1001"));
    parts.check_tree("conf", &parts.path("out/1002/conf"));
    // A second run into the same folder.
    let output = tool(folder, "extract_files", &["-o", "out", "dump"]);
    assert_ne!(output.status.code(), Some(0));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("Output directory is not empty"),
        "{output:?}"
    );
    // A volume without UBI goes to the folder itself.
    let output = tool(folder, "extract_files", &["conf.ubifs"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    parts.check_tree("conf", &parts.path("ubifs-root"));
}

#[test]
fn modes_are_those_of_new_files_unless_they_are_kept() {
    let parts = Parts::make();
    let folder = parts.folder.path();
    let program = parts.path("conf/program");
    fs::write(&program, "x").expect("made");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4751)).expect("changed");
    let made = parts.path("made.ubifs");
    let shape = ["ubifs", "mkfs", "-m", "2048", "-e", "126976", "-c", "200", "-r"];
    done(&[&shape[..], &[text(&parts.path("conf")), text(&made)]].concat());
    for (words, expected) in [(&["-o", "new"][..], 0o644), (&["-k", "-o", "kept"][..], 0o4751)] {
        let output = tool(folder, "extract_files", &[words, &["made.ubifs"]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let file = parts.path(words[words.len() - 1]).join("program");
        let umask = fs::metadata(parts.path("made.ubifs"))
            .expect("there")
            .permissions()
            .mode()
            & 0o666;
        let mode = fs::metadata(file).expect("there").permissions().mode() & 0o7777;
        assert!(mode == expected || expected == 0o644 && mode == umask, "{mode:o}");
    }
}

/// The call of binwalk.
#[test]
fn images_are_named_by_sequence_and_volume() {
    let parts = Parts::make();
    let folder = parts.folder.path();
    fs::write(parts.path("dump"), parts.dump()).expect("written");
    let output = tool(folder, "extract_images", &["-i", "-v", "-w", "-o", "out", "dump"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let image = |name: &str| fs::read(parts.path("out/dump").join(name)).expect(name);
    assert!(image("img-1001_vol-kernel.ubifs") == parts.kernel);
    // Whole LEBs.
    let conf = image("img-1002_vol-conf.ubifs");
    assert!(conf.len().is_multiple_of(126_976));
    assert!(conf.starts_with(&fs::read(parts.path("conf.ubifs")).expect("made")));
    assert!(image("img-1001_vol-app.ubifs").starts_with(&parts.squashfs));
    let output = tool(folder, "extract_images", &["-u", "UBI", "dump"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(fs::read(parts.path("ubifs-root/dump/img-1002.ubi")).expect("made") == parts.second);
    assert!(fs::read(parts.path("ubifs-root/dump/img-1001.ubi")).expect("made") == parts.first);
    let output = tool(folder, "extract_images", &["conf.ubifs"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// The first image goes to a FIFO, so that the tool waits for its reader when the signal comes.
#[test]
fn a_stopped_run_leaves_whole_files_and_exits_with_130() {
    let parts = Parts::make();
    let folder = parts.folder.path();
    fs::write(parts.path("dump"), parts.dump()).expect("written");
    let output = tool(folder, "extract_images", &["-o", "whole", "dump"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let images = parts.path("out/dump");
    fs::create_dir_all(&images).expect("made");
    let fifo = images.join("img-1001_vol-kernel.ubifs");
    let output = stopped_at(&fifo, folder, "extract_images", &["-w", "-o", "out", "dump"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{message}");
    assert!(message.contains("stopped before its end"), "{message}");
    let left: Vec<_> = fs::read_dir(&images).expect("a folder").collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn a_copy_of_a_file_is_whole_or_told() {
    let parts = Parts::make();
    let folder = parts.folder.path();
    fs::write(parts.path("dump"), parts.dump()).expect("written");
    let output = tool(folder, "list_files", &["-C", "/text", "-D", "copied", "dump"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(
        message.contains("3 file systems have this file; the copy is that of the last one"),
        "{message}"
    );
    assert!(
        fs::read(parts.path("copied"))
            .expect("a copy")
            .starts_with(b"confconf")
    );
    let output = tool(
        folder,
        "list_files",
        &["-P", "/", "-C", "/nothing", "-D", "other", "dump"],
    );
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("/nothing: no file system of the dump has it"),
        "{message}"
    );

    // More than a pipe holds, so that the tool can't end before the signal.
    fs::create_dir(parts.path("tree")).expect("made");
    fs::write(parts.path("tree/large"), noise(300_000, 4)).expect("made");
    let (tree, image) = (parts.path("tree"), parts.path("large.ubifs"));
    let shape = ["ubifs", "mkfs", "-m", "2048", "-e", "126976", "-c", "200", "-r"];
    done(&[&shape[..], &[text(&tree), text(&image)]].concat());
    let copy = ["-C", "/large", "-D", "fifo", "large.ubifs"];
    let output = stopped_at(&parts.path("fifo"), folder, "list_files", &copy);
    assert_eq!(output.status.code(), Some(130), "{output:?}");
}

#[test]
fn a_loss_is_exit_code_1_and_0_when_it_is_only_warned_of() {
    let parts = Parts::make();
    let folder = parts.folder.path();
    let mut dump = parts.first.clone();
    dump[3 * super::BLOCK + super::PAGE + 10] ^= 1;
    fs::write(parts.path("dump"), dump).expect("written");
    let output = tool(folder, "extract_images", &["-o", "out", "dump"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let output = tool(folder, "extract_images", &["-w", "-o", "warned", "dump"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    fs::write(parts.path("noise"), noise(50_000, 1)).expect("written");
    for name in [
        "extract_files",
        "extract_images",
        "display_info",
        "list_files",
        "utils_info",
    ] {
        assert_eq!(tool(folder, name, &["noise"]).status.code(), Some(1), "{name}");
        assert_eq!(tool(folder, name, &["nothing"]).status.code(), Some(2), "{name}");
        assert_eq!(tool(folder, name, &[]).status.code(), Some(2), "{name}");
    }
}

#[test]
fn lists_settings_and_superblocks_have_the_lines_that_scripts_look_for() {
    let parts = Parts::make();
    let folder = parts.folder.path();
    fs::write(parts.path("dump"), parts.dump()).expect("written");
    let list = printed(&tool(folder, "list_files", &["-P", "/", "dump"]));
    assert!(
        list.lines()
            .any(|line| line.starts_with(" 40755 ") && line.ends_with(" a")),
        "{list}"
    );
    assert!(
        list.lines()
            .any(|line| line.starts_with("120777 ") && line.ends_with(" link -> a/b")),
        "{list}"
    );
    let list = printed(&tool(folder, "list_files", &["-r", "-P", "/a", "dump"]));
    assert!(list.lines().any(|line| line.ends_with(" /a/b/conf-2")), "{list}");
    let output = tool(
        folder,
        "list_files",
        &["-C", "/a/b/rootfs-7", "-D", "copied", "dump"],
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let original = fs::read(parts.path("rootfs/a/b/rootfs-7")).expect("there");
    assert!(fs::read(parts.path("copied")).expect("a copy") == original);

    let info = printed(&tool(folder, "display_info", &["dump"]));
    for line in [
        "\tPEB Size: 131072",
        "\tLEB Size: 126976",
        "\tImage: 1001",
        "\t\tVolume Name:rootfs",
        "\t\t\t\tvol_type: 'static'",
    ] {
        assert!(info.lines().any(|other| other == line), "{line:?}: {info}");
    }
    let info = printed(&tool(folder, "display_info", &["-u", "dump"]));
    for line in [
        "UBIFS Image",
        "\tUBIFS Super Block Node",
        "\t\tleb_size: 126976",
        "\t\tmax_leb_cnt: 200",
    ] {
        assert!(info.lines().any(|other| other == line), "{line:?}: {info}");
    }

    let output = tool(folder, "utils_info", &["-o", "out", "dump"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let script = parts.path("out/dump/img-1002/create_ubi_img-1002.sh");
    let mode = fs::metadata(&script).expect("a script").permissions().mode() & 0o7777;
    assert_eq!(mode, 0o755, "as ubi_reader's");
    let script = fs::read_to_string(script).expect("a script");
    assert!(
        script.contains("mkfs.ubifs -m 2048 -e 126976 -c 200 -x lzo -f 8 -k r5 -p 1"),
        "{script}"
    );
    assert!(
        script.contains("ubinize -p 131072 -m 2048 -O 2048 -s 2048 -x 1 -Q 1002"),
        "{script}"
    );
    let ini = fs::read_to_string(parts.path("out/dump/img-1002/img-1002.ini")).expect("settings");
    assert!(
        ini.starts_with("[conf]\nmode = ubi\nimage = img-1002_0.ubifs\nvol_type = dynamic\n"),
        "{ini}"
    );
}
