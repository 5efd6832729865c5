//! `tidegate nand`, `ubi` and `array` on several chips, as a user has them: made, formatted, filled, read back, checked.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn tidegate(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .current_dir(folder)
        .args(words)
        .output()
        .expect("the program starts")
}

fn succeeds(folder: &Path, words: &[&str]) -> String {
    let output = tidegate(folder, words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn fails(folder: &Path, words: &[&str]) -> String {
    let output = tidegate(folder, words);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn array_of_three() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let chip = ["--page", "512", "--pages-per-block", "16", "--blocks", "64"];
    let create = [&["nand", "create", "flash.img", "--devices", "3"][..], &chip].concat();
    succeeds(folder.path(), &create);
    succeeds(
        folder.path(),
        &["ubi", "format", "flash.img", "--devices", "3", "--label", "media"],
    );
    folder
}

#[test]
fn data_on_an_array_reads_back_and_the_members_agree() {
    let folder = array_of_three();
    let content: Vec<u8> = (0..200_001_u32)
        .map(|at| u8::try_from(at * 7 % 251).expect("a byte"))
        .collect();
    std::fs::write(folder.path().join("content"), &content).expect("written");
    succeeds(
        folder.path(),
        &["ubi", "update", "flash.img", "--devices", "3", "media", "content"],
    );
    let named = "flash.img.0,flash.img.1,flash.img.2";
    succeeds(folder.path(), &["ubi", "dump", named, "0", "-o", "back"]);
    let back = std::fs::read(folder.path().join("back")).expect("dumped");
    assert!(back.starts_with(&content));
    assert!(succeeds(folder.path(), &["ubi", "check", named]).contains("the members agree"));
    let info: Value =
        serde_json::from_str(&succeeds(folder.path(), &["ubi", "info", named, "--json"])).expect("JSON");
    assert_eq!((&info["label"], &info["devices"]), (&"media".into(), &3.into()));
    for member in info["members"].as_array().expect("members") {
        let (bytes, blocks) = (&member["memory_bytes"], &member["blocks"]);
        let promised = blocks.as_u64().expect("blocks") * 8 + (300 << 10);
        assert!(
            bytes.as_u64().expect("bytes") <= promised,
            "{bytes} of {promised}"
        );
    }
}

#[test]
fn members_in_the_wrong_order_and_volumes_of_ones_own_are_refused() {
    let folder = array_of_three();
    let error = fails(
        folder.path(),
        &["ubi", "info", "flash.img.1,flash.img.0,flash.img.2"],
    );
    assert!(error.contains("the right order is"), "{error}");
    let error = fails(folder.path(), &["ubi", "info", "flash.img.0,flash.img.1"]);
    assert!(error.contains("missing: member 2"), "{error}");
    let make = ["ubi", "mkvol", "flash.img", "--devices", "3", "-N", "x", "-m"];
    let error = fails(folder.path(), &make);
    assert!(error.contains("an array has one volume"), "{error}");
    let error = fails(folder.path(), &["ubi", "format", "flash.img", "--devices", "3"]);
    assert!(error.contains("--force"), "{error}");
}

#[test]
fn the_bench_of_arrays_scales_in_virtual_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = [
        "array",
        "bench",
        "--devices",
        "4",
        "--cells",
        "tlc",
        "--records",
        "64rows",
        "--total",
        "2M",
    ];
    let lines = succeeds(folder.path(), &[&bench[..], &["--json"]].concat());
    let rows: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(rows.len(), 4, "one and four devices, in two designs");
    for row in rows.iter().filter(|row| row["devices"] == 4) {
        let ratio = row["write_to_one_device"].as_f64().expect("a number");
        assert!((3.9..=4.0).contains(&ratio), "{row}");
    }
    let error = fails(folder.path(), &["array", "bench", "--devices", "17"]);
    assert!(error.contains("1 to 16 devices"), "{error}");
}

#[test]
fn a_damaged_header_of_one_member_costs_the_others_nothing_and_is_said() {
    const BLOCK: usize = 16 * 512;
    let folder = array_of_three();
    std::fs::write(folder.path().join("content"), vec![7; 200_000]).expect("written");
    let array = ["flash.img", "--devices", "3"];
    succeeds(
        folder.path(),
        &[&["ubi", "update"], &array[..], &["media", "content"]].concat(),
    );
    let member = |number: usize| folder.path().join(format!("flash.img.{number}"));
    let block_of = |number: usize, leb: u8| {
        let image = std::fs::read(member(number)).expect("there");
        let holds =
            |block: &[u8]| block[512..516] == *b"UBI!" && block[520..528] == [0, 0, 0, 0, 0, 0, 0, leb];
        let place = image.chunks(BLOCK).position(holds).expect("LEB is mapped") * BLOCK;
        (place, image[place..place + BLOCK].to_vec())
    };
    let healthy = [block_of(0, 3), block_of(2, 3)];
    let (place, _) = block_of(1, 3);
    let mut image = std::fs::read(member(1)).expect("there");
    image[place + 512..place + 572].fill(0x5A);
    std::fs::write(member(1), image).expect("written");

    let checked = tidegate(folder.path(), &[&["ubi", "check"], &array[..]].concat());
    let text = String::from_utf8_lossy(&checked.stdout);
    assert_eq!(checked.status.code(), Some(1), "{text}");
    assert!(text.contains("LEB 3 on flash.img.1"), "{text}");
    let scrubbed = tidegate(folder.path(), &[&["ubi", "scrub"], &array[..]].concat());
    let said = String::from_utf8_lossy(&scrubbed.stderr);
    assert!(said.contains("LEB 3 on flash.img.1"), "{said}");
    assert_eq!([block_of(0, 3), block_of(2, 3)], healthy);
    let said = fails(
        folder.path(),
        &[&["ubi", "dump"], &array[..], &["media", "-o", "back"]].concat(),
    );
    assert!(
        said.contains("LEB 3") && said.contains("beyond correction"),
        "{said}"
    );
    succeeds(
        folder.path(),
        &[&["ubi", "update"], &array[..], &["media", "content"]].concat(),
    );
    succeeds(
        folder.path(),
        &[&["ubi", "dump"], &array[..], &["media", "-o", "back"]].concat(),
    );
    let back = std::fs::read(folder.path().join("back")).expect("dumped");
    assert!(back[..200_000].iter().all(|byte| *byte == 7));
}

#[test]
fn a_single_member_is_not_written_to() {
    let folder = array_of_three();
    std::fs::write(folder.path().join("content"), vec![7; 5000]).expect("written");
    let member = folder.path().join("flash.img.1");
    let before = std::fs::read(&member).expect("there");
    for words in [
        &["ubi", "update", "flash.img.1", "0", "content"][..],
        &["ubi", "resize", "flash.img.1", "0", "-S", "5"],
        &["ubi", "rename", "flash.img.1", "0", "other"],
        &["ubi", "rmvol", "flash.img.1", "0"],
        &["ubi", "mkvol", "flash.img.1", "-N", "other", "-S", "3"],
        &["ubi", "scrub", "flash.img.1"],
    ] {
        let said = fails(folder.path(), words);
        assert!(
            said.contains("member 1 of the 3 of array media") && said.contains("--alone"),
            "{words:?}: {said}"
        );
        assert!(std::fs::read(&member).expect("there") == before, "{words:?}");
    }
    succeeds(folder.path(), &["ubi", "info", "flash.img.1"]);
    succeeds(folder.path(), &["ubi", "scrub", "flash.img.1", "--alone"]);
}

/// Old and new content were mixed after that, and `ubi check` said that the members agree.
#[test]
fn an_update_that_was_killed_is_marked_until_another_one_ends() {
    let folder = array_of_three();
    let array = ["flash.img", "--devices", "3"];
    std::fs::write(folder.path().join("content"), vec![7; 500_000]).expect("written");
    let update = [&["ubi", "update"], &array[..], &["media", "content"]].concat();
    succeeds(folder.path(), &update);
    let mut killed = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .current_dir(folder.path())
        .args([&["ubi", "update"], &array[..], &["media", "-"]].concat())
        .stdin(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // More than a pipe holds, so that some of it is on the chips.
    let input = killed.stdin.as_mut().expect("a pipe");
    input.write_all(&vec![9; 300_000]).expect("taken");
    killed.kill().expect("it runs");
    killed.wait().expect("it ended");

    let dump = [&["ubi", "dump"], &array[..], &["media", "-o", "back"]].concat();
    let said = fails(folder.path(), &dump);
    assert!(said.contains("update of the array did not end"), "{said}");
    let checked = tidegate(folder.path(), &[&["ubi", "check"], &array[..]].concat());
    let text = String::from_utf8_lossy(&checked.stdout);
    assert_eq!(checked.status.code(), Some(1), "{text}");
    assert!(text.contains("update of the array did not end"), "{text}");
    let info: Value = serde_json::from_str(&succeeds(
        folder.path(),
        &[&["ubi", "info", "--json"], &array[..]].concat(),
    ))
    .expect("JSON");
    assert_eq!(
        (&info["update_marker"], &info["state"]),
        (&true.into(), &"open".into())
    );
    let member = succeeds(folder.path(), &["ubi", "info", "flash.img.2"]);
    assert!(
        member.contains("not closed") && member.contains("update not finished"),
        "{member}"
    );

    succeeds(folder.path(), &update);
    succeeds(folder.path(), &dump);
    let back = std::fs::read(folder.path().join("back")).expect("dumped");
    assert!(back[..500_000].iter().all(|byte| *byte == 7));
    let text = succeeds(folder.path(), &[&["ubi", "check"], &array[..]].concat());
    assert!(text.contains("the members agree; the array was closed"), "{text}");
}

#[test]
fn a_stale_member_is_adopted_once_the_loss_is_accepted() {
    let folder = array_of_three();
    let all = ["flash.img", "--devices", "3"];
    let update = |byte: u8| {
        std::fs::write(folder.path().join("content"), vec![byte; 60_000]).expect("written");
        succeeds(
            folder.path(),
            &[&["ubi", "update"][..], &all, &["media", "content"]].concat(),
        );
    };
    let files = || {
        let names = std::fs::read_dir(folder.path()).expect("a folder");
        let paths = names.map(|entry| entry.expect("an entry").path());
        let is_of_member = |path: &std::path::PathBuf| path.to_string_lossy().contains("flash.img.1");
        paths.filter(is_of_member).collect::<Vec<_>>()
    };
    update(1);
    let earlier: Vec<_> = files()
        .into_iter()
        .map(|path| (std::fs::read(&path).expect("readable"), path))
        .collect();
    update(2);
    for (content, path) in earlier {
        std::fs::write(path, content).expect("written");
    }
    let error = fails(folder.path(), &[&["ubi", "info"][..], &all].concat());
    assert!(error.contains("tidegate array adopt"), "{error}");
    let adopt = [&["array", "adopt"][..], &all, &["--member", "1"]].concat();
    let error = fails(folder.path(), &adopt);
    assert!(
        error.contains("--accept-loss") && error.contains("of their LEBs are lost"),
        "{error}"
    );
    let error = fails(folder.path(), &[&["ubi", "info"][..], &all].concat());
    assert!(error.contains("stale"), "it was adopted without a word: {error}");
    let output = tidegate(
        folder.path(),
        &[&adopt[..], &["--accept-loss", "--json"]].concat(),
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["adopted"], serde_json::json!([1]));
    assert!(!told["lost_shares"].as_array().expect("a list").is_empty());
    succeeds(folder.path(), &[&["ubi", "info"][..], &all].concat());
    let error = fails(folder.path(), &adopt);
    assert!(error.contains("not refused"), "{error}");
}

fn array_of_four_with_parity() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let chip = ["--page", "512", "--pages-per-block", "16", "--blocks", "64"];
    let create = [&["nand", "create", "flash.img", "--devices", "4"][..], &chip].concat();
    succeeds(folder.path(), &create);
    succeeds(
        folder.path(),
        &[&["nand", "create", "new.img"][..], &chip].concat(),
    );
    let format = ["ubi", "format", "flash.img", "--devices", "4", "--parity"];
    succeeds(folder.path(), &format);
    folder
}

#[test]
fn an_array_with_parity_goes_on_without_a_member_and_gets_a_new_one() {
    let folder = array_of_four_with_parity();
    let folder = folder.path();
    let all = ["flash.img", "--devices", "4"];
    let content: Vec<u8> = (0..300_001_u32)
        .map(|at| u8::try_from(at * 7 % 251).expect("a byte"))
        .collect();
    std::fs::write(folder.join("content"), &content).expect("written");
    succeeds(
        folder,
        &[&["ubi", "update"][..], &all, &["0", "content"]].concat(),
    );
    assert!(succeeds(folder, &[&["ubi", "check"][..], &all].concat()).contains("the members agree"));
    for name in ["flash.img.2", "flash.img.2.nand", "flash.img.2.chip"] {
        let _ = std::fs::remove_file(folder.join(name));
    }
    let dumped = |from: &[&str]| {
        let output = tidegate(
            folder,
            &[&["ubi", "dump"][..], from, &["0", "-o", "back"]].concat(),
        );
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let back = std::fs::read(folder.join("back")).expect("dumped");
        std::fs::remove_file(folder.join("back")).expect("removed");
        assert!(back.starts_with(&content));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(dumped(&all).contains("member 2 is absent"));
    assert!(dumped(&["flash.img.0,flash.img.1,flash.img.3"]).contains("member 2 is absent"));
    let output = tidegate(folder, &[&["ubi", "check"][..], &all].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let info: Value = serde_json::from_str(&succeeds(
        folder,
        &[&["ubi", "info"][..], &all, &["--json"]].concat(),
    ))
    .expect("JSON");
    assert_eq!(
        (&info["parity"], &info["absent"]["member"]),
        (&true.into(), &2.into())
    );
    let replaced = "flash.img.0,flash.img.1,new.img,flash.img.3";
    let told = succeeds(folder, &["array", "rebuild", replaced, "--member", "2", "--json"]);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["incomplete_lebs"], serde_json::json!([]));
    assert!(told["lebs"].as_u64().expect("a number") > 10);
    assert_eq!(dumped(&[replaced]), "");
    assert!(succeeds(folder, &["ubi", "check", replaced]).contains("the members agree"));
    assert!(dumped(&["flash.img.0,new.img,flash.img.3"]).contains("member 1 is absent"));
    let error = fails(folder, &["array", "rebuild", replaced, "--member", "2"]);
    assert!(error.contains("nothing to rebuild"), "{error}");
    let scrubbed = succeeds(folder, &["ubi", "scrub", replaced, "--json"]);
    let scrubbed: Value = serde_json::from_str(&scrubbed).expect("JSON");
    assert_eq!(
        (&scrubbed["mended_shares"], &scrubbed["lost_pages"]),
        (&0.into(), &0.into())
    );
}

/// Regression: Linux refused the members until another command had closed the array.
#[test]
fn refused_commands_close_the_array() {
    let folder = array_of_three();
    let folder = folder.path();
    let all = ["flash.img", "--devices", "3"];
    let state = || -> Value {
        let info = succeeds(folder, &[&["ubi", "info", "--json"][..], &all].concat());
        serde_json::from_str::<Value>(&info).expect("JSON")["state"].clone()
    };
    std::fs::write(folder.join("large"), vec![7; 2 << 20]).expect("written");
    succeeds(folder, &[&["ubifs", "mkfs"][..], &all].concat());
    for (command, more) in [
        (["ubi", "update"], &["media", "absent"][..]),
        (["ubi", "update"], &["other", "large"]),
        (["ubi", "update"], &["media", "large"]),
        (["ubifs", "mkfs"], &[]),
        (["ubifs", "mount"], &["-o", "rw", "absent"]),
        (["ubifs", "mount"], &["-o", "rw", "large"]),
    ] {
        let error = fails(folder, &[&command[..], &all, more].concat());
        assert_eq!(state(), "closed", "{command:?} {more:?}: {error}");
    }
    // Without a file system.
    std::fs::create_dir(folder.join("mountpoint")).expect("possible on this host");
    std::fs::write(folder.join("none"), vec![7; 5000]).expect("written");
    succeeds(
        folder,
        &[&["ubi", "update"][..], &all, &["media", "none"]].concat(),
    );
    let error = fails(
        folder,
        &[&["ubifs", "mount", "-o", "rw"][..], &all, &["mountpoint"]].concat(),
    );
    assert!(error.contains("no UBIFS superblock"), "{error}");
    assert_eq!(state(), "closed", "{error}");
}

/// Regression: a mount in the background printed nothing, and neither did `mkfs`.
#[test]
fn an_absent_member_is_told_by_every_command_that_uses_the_array() {
    let folder = array_of_four_with_parity();
    let folder = folder.path();
    let all = ["flash.img", "--devices", "4"];
    for name in ["flash.img.2", "flash.img.2.nand"] {
        std::fs::remove_file(folder.join(name)).expect("it is there");
    }
    let told = |words: &[&str]| {
        let output = tidegate(folder, words);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("member 2 is absent"), "{words:?}: {output:?}");
        output.status.code()
    };
    assert_eq!(told(&[&["ubifs", "mkfs"][..], &all].concat()), Some(0));
    std::fs::create_dir(folder.join("mountpoint")).expect("possible on this host");
    for mode in ["rw", "ro"] {
        // A machine that can mount nothing names the members all the same.
        if told(&[&["ubifs", "mount", "-o", mode][..], &all, &["mountpoint"]].concat()) == Some(0) {
            succeeds(folder, &["unmount", "mountpoint"]);
        }
    }
}

#[test]
fn one_file_is_not_two_chips() {
    let folder = array_of_four_with_parity();
    let folder = folder.path();
    std::os::unix::fs::symlink("flash.img.0", folder.join("link")).expect("possible on this host");
    for twice in [
        "flash.img.0,flash.img.0,flash.img.2,flash.img.3",
        "flash.img.0,flash.img.1,link,flash.img.3",
    ] {
        for words in [
            &["ubi", "info", twice][..],
            &["ubi", "scrub", twice],
            &["array", "rebuild", twice, "--member", "2", "--force"],
        ] {
            let error = fails(folder, words);
            assert!(error.contains("are the same file"), "{words:?}: {error}");
        }
    }
}

/// Writes a volume's content, and returns it.
fn filled(folder: &Path, array: &[&str]) -> Vec<u8> {
    let content = vec![0x5A; 1_100_000];
    std::fs::write(folder.join("content"), &content).expect("written");
    succeeds(
        folder,
        &[&["ubi", "update"][..], array, &["0", "content"]].concat(),
    );
    content
}

/// Killed in the middle of a rebuild, at several moments.
#[test]
fn a_rebuild_that_is_killed_goes_on_where_it_ended() {
    let folder = array_of_four_with_parity();
    let folder = folder.path();
    let all = ["flash.img", "--devices", "4"];
    let content = filled(folder, &all);
    let replaced = "flash.img.0,flash.img.1,new.img,flash.img.3";
    let words = ["array", "rebuild", replaced, "--member", "2", "--json"];
    for millis in [5, 20, 40, 80] {
        let mut killed = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .current_dir(folder)
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let started = std::time::Instant::now();
        while started.elapsed().as_millis() < millis && matches!(killed.try_wait(), Ok(None)) {
            std::thread::yield_now();
        }
        let _ = killed.kill();
        killed.wait().expect("it ended");
        let dumped = tidegate(folder, &["ubi", "dump", replaced, "0", "-o", "back"]);
        assert_eq!(dumped.status.code(), Some(0), "{dumped:?}");
        assert!(
            std::fs::read(folder.join("back"))
                .expect("dumped")
                .starts_with(&content)
        );
    }
    let ended = tidegate(folder, &words);
    // It may have ended before it was killed.
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        ended.status.code() == Some(0) || said.contains("nothing to rebuild"),
        "{ended:?}"
    );
    assert!(succeeds(folder, &["ubi", "check", replaced]).contains("the members agree"));
    let without = "flash.img.1,new.img,flash.img.3";
    let dumped = tidegate(folder, &["ubi", "dump", without, "0", "-o", "back"]);
    assert_eq!(dumped.status.code(), Some(0), "{dumped:?}");
    assert!(
        std::fs::read(folder.join("back"))
            .expect("dumped")
            .starts_with(&content)
    );
}

/// Regression: the array was used without it, which made it out of date.
#[test]
fn a_member_that_is_in_use_is_not_left_behind() {
    let folder = array_of_four_with_parity();
    let folder = folder.path();
    let all = ["flash.img", "--devices", "4"];
    std::fs::write(folder.join("content"), vec![0x5A; 100_000]).expect("written");
    let update = [&["ubi", "update"][..], &all, &["0", "content"]].concat();
    succeeds(folder, &update);
    let member = std::fs::File::open(folder.join("flash.img.2")).expect("it is there");
    member.lock().expect("nothing uses it");
    for words in [&update[..], &[&["ubi", "scrub"][..], &all].concat()] {
        let error = fails(folder, words);
        assert!(
            error.contains("out of date") && error.contains("in use"),
            "{error}"
        );
    }
    // Reading without it leaves it as it is.
    succeeds(
        folder,
        &[&["ubi", "dump"][..], &all, &["0", "-o", "back"]].concat(),
    );
    drop(member);
    assert!(succeeds(folder, &[&["ubi", "check"][..], &all].concat()).contains("the members agree"));
}

const REPLACED: &str = "flash.img.0,flash.img.1,new.img,flash.img.3";

/// The rebuild of [`REPLACED`], by `ubi info`.
fn rebuild_of(folder: &Path) -> Value {
    let info = succeeds(folder, &["ubi", "info", REPLACED, "--json"]);
    serde_json::from_str::<Value>(&info).expect("JSON")["rebuild"].clone()
}

/// An array of four with content, and `new.img` as its member 2, whose rebuild was killed.
fn array_with_a_killed_rebuild() -> tempfile::TempDir {
    let folder = array_of_four_with_parity();
    let blank = [
        "--page",
        "512",
        "--pages-per-block",
        "16",
        "--blocks",
        "64",
        "--force",
    ];
    filled(folder.path(), &["flash.img", "--devices", "4"]);
    for millis in 0..400 {
        // A member that was rebuilt to the end is not formatted again.
        succeeds(
            folder.path(),
            &[&["nand", "create", "new.img"][..], &blank].concat(),
        );
        let mut killed = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .current_dir(folder.path())
            .args(["array", "rebuild", REPLACED, "--member", "2", "--force"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        std::thread::sleep(std::time::Duration::from_millis(millis));
        let _ = killed.kill();
        killed.wait().expect("it ended");
        if rebuild_of(folder.path()) != Value::Null {
            return folder;
        }
    }
    panic!("no rebuild was killed in the middle of it");
}

/// Regression: all shares were there, and the new chip was still no member.
#[test]
fn a_scrub_ends_a_rebuild_that_was_interrupted() {
    let folder = array_with_a_killed_rebuild();
    let folder = folder.path();
    succeeds(folder, &["ubi", "scrub", REPLACED]);
    assert_eq!(rebuild_of(folder), Value::Null);
    assert!(succeeds(folder, &["ubi", "check", REPLACED]).contains("the members agree"));
}

/// Regression: it was formatted without a question, and with it data that another array may have nowhere else.
#[test]
fn a_rebuild_of_another_array_is_not_overwritten_without_force() {
    let folder = array_with_a_killed_rebuild();
    let folder = folder.path();
    let chip = ["--page", "512", "--pages-per-block", "16", "--blocks", "64"];
    let create = ["nand", "create", "other.img", "--devices", "4"];
    succeeds(folder, &[&create[..], &chip].concat());
    succeeds(
        folder,
        &["ubi", "format", "other.img", "--devices", "4", "--parity"],
    );
    let before = std::fs::read(folder.join("new.img")).expect("a file");
    let others = "other.img.0,other.img.1,new.img,other.img.3";
    let error = fails(folder, &["array", "rebuild", others, "--member", "2"]);
    assert!(error.contains("tgr2-") && error.contains("--force"), "{error}");
    assert!(std::fs::read(folder.join("new.img")).expect("a file") == before);
    succeeds(folder, &["array", "rebuild", REPLACED, "--member", "2"]);
    assert_eq!(rebuild_of(folder), Value::Null);
}

/// Regression: `--force` formatted it, and until the end of the rebuild a second failure would have lost data.
#[test]
fn a_member_that_is_not_refused_is_not_formatted_by_a_rebuild() {
    let folder = array_of_four_with_parity();
    let folder = folder.path();
    let content = filled(folder, &["flash.img", "--devices", "4"]);
    let member = folder.join("flash.img.2");
    let before = std::fs::read(&member).expect("a file");
    let rebuild = ["array", "rebuild", "flash.img", "--devices", "4", "--member", "2"];
    for words in [&rebuild[..], &[&rebuild[..], &["--force"]].concat()] {
        let error = fails(folder, words);
        assert!(error.contains("nothing to rebuild"), "{error}");
        assert!(std::fs::read(&member).expect("a file") == before, "{words:?}");
    }
    // Another chip in its place is taken, also one with volumes.
    succeeds(folder, &["ubi", "format", "new.img"]);
    succeeds(folder, &["ubi", "mkvol", "new.img", "-N", "x", "-s", "10k"]);
    let replaced = "flash.img.0,flash.img.1,new.img,flash.img.3";
    let rebuild = ["array", "rebuild", replaced, "--member", "2"];
    assert!(fails(folder, &rebuild).contains("--force"));
    succeeds(folder, &[&rebuild[..], &["--force"]].concat());
    succeeds(folder, &["ubi", "dump", replaced, "0", "-o", "back"]);
    assert!(
        std::fs::read(folder.join("back"))
            .expect("dumped")
            .starts_with(&content)
    );
}

#[test]
fn a_place_that_is_none_of_the_chips_is_named() {
    let folder = array_of_three();
    let array = ["flash.img", "--devices", "3", "--member", "9"];
    for command in ["adopt", "rebuild"] {
        let message = fails(folder.path(), &[&["array", command], &array[..]].concat());
        assert_eq!(
            message,
            "tidegate: member 9: there are 3 chips, numbered from 0\n"
        );
    }
}

#[test]
fn commands_that_need_parity_are_refused_without_it() {
    let folder = array_of_three();
    let rebuild = [
        "array",
        "rebuild",
        "flash.img",
        "--devices",
        "3",
        "--member",
        "1",
        "--force",
    ];
    let error = fails(folder.path(), &rebuild);
    assert!(error.contains("no parity"), "{error}");
    let two = [
        "ubi",
        "format",
        "flash.img",
        "--devices",
        "2",
        "--parity",
        "--force",
    ];
    let error = fails(folder.path(), &two);
    assert!(error.contains("3 to 16 devices"), "{error}");
    let error = fails(
        folder.path(),
        &["ubi", "format", "flash.img.0", "--parity", "--force"],
    );
    assert!(error.contains("one chip has no parity"), "{error}");
}
