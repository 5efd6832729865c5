//! Errors, exit codes and generated texts of the command; no test mounts anything.

use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .output()
        .expect("the binary runs")
}

fn refusal(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed a result");
    String::from_utf8(output.stderr).expect("a message in UTF-8")
}

#[test]
fn an_unknown_option_is_refused_with_the_nearest_known_one() {
    let message = refusal(&["mount", "/", "/mnt", "-o", "bufer=8m"]);
    assert!(
        message.contains("bufer") && message.contains("buffer"),
        "{message}"
    );
}

#[test]
fn a_source_that_is_missing_is_named() {
    let message = refusal(&["mount", "/no/such/folder", "/mnt"]);
    assert!(message.contains("/no/such/folder"), "{message}");
}

#[test]
fn a_size_out_of_range_is_refused_before_anything_is_mounted() {
    let message = refusal(&["mount", "/", "/mnt", "--io-unit", "3k"]);
    assert!(message.contains("4k to 1m"), "{message}");
    let message = refusal(&["mount", "/", "/mnt", "--buffer", "1m", "--entry", "2m"]);
    assert!(message.contains("buffer"), "{message}");
}

#[test]
fn unmount_and_stats_refuse_what_is_no_tidegate_mount() {
    let message = refusal(&["unmount", "/proc"]);
    assert!(message.contains("proc"), "{message}");
    let message = refusal(&["stats", env!("CARGO_MANIFEST_DIR")]);
    assert!(message.contains("nothing is mounted"), "{message}");
}

#[test]
fn a_fake_mount_checks_and_does_nothing() {
    let output = run(&["mount", "--fake", "/", "/no/such/mountpoint"]);
    assert_eq!(
        output.status.code(),
        Some(2),
        "the parent of the mountpoint is checked"
    );
    assert!(
        run(&["mount", "--fake", "/", "/mnt", "-o", "buffer=8m"])
            .status
            .success()
    );
}

#[test]
fn completions_and_man_pages_come_from_the_one_definition() {
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(run(&["completions", shell]).stdout).expect("UTF-8");
        assert!(script.contains("flush-interval"), "{shell}");
    }
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let path = folder.path().join("man");
    assert!(run(&["man", path.to_str().expect("UTF-8")]).status.success());
    let page = std::fs::read_to_string(path.join("tidegate-mount.1")).expect("a page for mount");
    assert!(page.contains("flush\\-interval"), "{page}");
}

#[test]
fn a_closed_pipe_is_success() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_benchmark_prints_one_run_record_for_each_round() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let path = folder.path().to_str().expect("UTF-8");
    let output = run(&[
        "bench", "file", path, "--size", "1m", "--record", "64k", "--rounds", "2", "--json",
    ]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let records: Vec<serde_json::Value> = String::from_utf8(output.stdout)
        .expect("UTF-8")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a record in JSON"))
        .collect();
    assert_eq!(records.len(), 2);
    assert_eq!(records[1]["round"], 1);
    assert_eq!(records[0]["samples"][0]["bytes"], 1 << 20);
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("it is there").count(),
        0,
        "files were left behind"
    );
}

/// Runs `tidegate bench compare` on two folders, `native` and `other`, with further arguments.
fn compare(folder: &std::path::Path, arguments: &[&str]) -> Output {
    let target = |name: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(&path).expect("a target");
        format!("{name}={}", path.display())
    };
    let (native, other) = (target("native"), target("other"));
    let fixed = [
        "bench", "compare", "--target", &native, "--target", &other, "--rounds", "3", "--size", "1m",
        "--files", "20",
    ];
    run(&[&fixed, arguments].concat())
}

#[test]
fn a_comparison_runs_every_workload_on_every_target_and_leaves_only_its_files() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (records, page) = (path("run.jsonl"), path("run.html"));
    let warm = [
        "write-512k",
        "read-4k-warm",
        "randwrite-4k-fsync",
        "files-10k",
        "files-10k-4k",
    ];
    let mut arguments = vec!["--output", &records, "--report", &page, "--markdown", "-"];
    for workload in warm {
        arguments.extend(["--workload", workload]);
    }
    let output = compare(folder.path(), &arguments);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    let tables = String::from_utf8_lossy(&output.stdout);
    let page = std::fs::read_to_string(page).expect("a page");
    for workload in warm {
        assert!(tables.contains(&format!("\n| {workload} |")), "{tables}");
        assert!(page.contains(&format!("<h2>{workload}</h2>")), "{workload}");
    }
    assert_eq!(
        std::fs::read_to_string(&records)
            .expect("records")
            .lines()
            .count(),
        5 * 2 * 3
    );
    for target in ["native", "other"] {
        assert_eq!(
            std::fs::read_dir(folder.path().join(target))
                .expect("it is there")
                .count(),
            0
        );
    }

    let shown = run(&["bench", "show", &records]);
    assert!(shown.status.success());
    assert!(
        tables.starts_with(&*String::from_utf8_lossy(&shown.stdout)),
        "{tables}"
    );
}

#[test]
fn a_comparison_rotates_the_order_of_its_targets() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let output = compare(folder.path(), &["--workload", "write-512k", "--json"]);
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    let order: Vec<String> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("a record in JSON"))
        .map(|record: serde_json::Value| record["label"].as_str().expect("a label").to_owned())
        .collect();
    assert_eq!(order, ["native", "other", "other", "native", "native", "other"]);
}

#[test]
fn a_stopped_comparison_keeps_its_records_under_the_partial_name() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let records = folder.path().join("run.jsonl");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "bench",
            "compare",
            "--workload",
            "files-10k",
            "--files",
            "20",
            "--rounds",
            "10000",
            "--json",
        ])
        .arg("--target")
        .arg(format!("native={}", folder.path().display()))
        .arg("--output")
        .arg(&records)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut out = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    let mut first = String::new();
    std::io::BufRead::read_line(&mut out, &mut first).expect("a record");
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.expect("a process"), rustix::process::Signal::INT).expect("it runs");
    std::io::copy(&mut out, &mut std::io::sink()).expect("the rest");
    let output = child.wait_with_output().expect("it ends");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("partial"), "{message}");
    let partial = folder.path().join("run.jsonl.partial");
    let kept = std::fs::read_to_string(partial).expect("the records so far");
    assert!(kept.starts_with(&first) && !records.exists());
}

#[test]
fn a_requirement_that_is_not_met_is_named_and_makes_exit_code_1() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let with = |requirement: &str| {
        compare(
            folder.path(),
            &["--workload", "files-10k", "--require", requirement],
        )
    };
    let output = with("other:files-10k>=1000");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("required: other reaches 1000"), "{message}");
    assert!(with("other:files-10k>=0.0001").status.success());
    let output = with("other:files-10k<=0.0001");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("required: other is not above 0.0001"),
        "{message}"
    );
    assert!(with("other:files-10k<=1000").status.success());
}

#[test]
fn a_comparison_refuses_what_can_not_be_judged_before_it_measures() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    for (arguments, word) in [
        (["--baseline", "nobody"], "nobody"),
        (["--require", "nobody:files-10k>=0.5"], "nobody"),
        (["--require", "other:files-10k"], "files-10k"),
        (["--baseline", ""], "baseline"),
    ] {
        let output = compare(folder.path(), &arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn watching_takes_its_interval_only_with_an_equals_sign() {
    let message = refusal(&["stats", "--watch", "/proc"]);
    assert!(message.contains("not of tidegate"), "{message}");
    let message = refusal(&["stats", "--watch=0", "/proc"]);
    assert!(message.contains("/proc"), "{message}");
}

/// Runs a copy of `tidegate` in its own folder, with a `PATH` that does not exist.
fn alone(folder: &std::path::Path, arguments: &[&str]) -> Output {
    let program = folder.join("tidegate");
    if !program.exists() {
        install(std::path::Path::new(env!("CARGO_BIN_EXE_tidegate")), &program);
    }
    Command::new(program)
        .args(arguments)
        .env("PATH", folder.join("nowhere"))
        .output()
        .expect("the binary runs")
}

#[test]
fn analyses_are_handed_to_their_own_program_or_refused_with_the_way_to_it() {
    let words = ["trace", "report", "phone.trace", "--text"];
    handed_or_refused("tidegate-analysis", &words, "report phone.trace --text");
    // Help and usage errors do not need the other program.
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let help = alone(folder.path(), &["trace", "report", "--help"]);
    assert!(String::from_utf8_lossy(&help.stdout).contains("--memory"));
    let mistaken = alone(folder.path(), &["trace", "report", "phone.trace", "--txt"]);
    assert!(String::from_utf8_lossy(&mistaken.stderr).contains("--text"));
}

#[test]
fn the_page_is_handed_to_its_own_program_or_refused_with_the_way_to_it() {
    let words = ["ui", "--open", "--settings", "ui"];
    handed_or_refused("tidegate-ui", &words, "--open --settings ui");
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let help = alone(folder.path(), &["ui", "--help"]);
    assert!(String::from_utf8_lossy(&help.stdout).contains("--listen"));
}

/// Copies a program in another process: a process started by another test would inherit a descriptor that is open for
/// writing, and a program that is open for writing can't be run.
fn install(from: &std::path::Path, to: &std::path::Path) {
    let installed = Command::new("install")
        .args(["-m", "0755"])
        .arg(from)
        .arg(to)
        .status();
    assert!(installed.expect("install runs").success());
}

/// Writes an executable script.
fn script(path: &std::path::Path, lines: &str) {
    let source = path.with_extension("sh");
    std::fs::write(&source, format!("#!/bin/sh\n{lines}\n")).expect("written");
    install(&source, path);
}

/// The page measures with the program that was started, even if another one is installed beside it.
#[test]
fn a_part_in_the_search_path_is_told_which_program_runs_it() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let [own, installed] = ["own", "installed"].map(|name| folder.path().join(name));
    for folder in [&own, &installed] {
        std::fs::create_dir(folder).expect("a folder");
    }
    let program = own.join("tidegate");
    install(std::path::Path::new(env!("CARGO_BIN_EXE_tidegate")), &program);
    script(&installed.join("tidegate"), "exit 1");
    script(&installed.join("tidegate-ui"), "echo \"$TIDEGATE_CORE\" \"$@\"");
    // It is called by a name that is also the command's.
    let mut command = Command::new(&program);
    std::os::unix::process::CommandExt::arg0(&mut command, "ui");
    let output = command.args(["ui", "--open"]).env("PATH", &installed).output();
    let output = output.expect("the binary runs");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("{} --open\n", program.display())
    );
}

/// In `/tmp` another user may put a program beside a copy of `tidegate`.
#[test]
fn a_part_of_another_user_beside_tidegate_is_not_run() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let beside = folder.path().join("tidegate-ui");
    script(&beside, "echo run");
    std::os::unix::fs::chown(&beside, Some(65_534), None).expect("changed");
    let refused = alone(folder.path(), &["ui"]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&refused.stdout), "");
    // That of the owner of `tidegate` is run.
    std::os::unix::fs::chown(folder.path().join("tidegate"), Some(65_534), None).expect("changed");
    let output = alone(folder.path(), &["ui"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "run\n");
}

#[test]
fn a_part_in_the_current_folder_is_never_run() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let [own, current] = ["own", "current"].map(|name| folder.path().join(name));
    for folder in [&own, &current] {
        std::fs::create_dir(folder).expect("a folder");
    }
    let program = own.join("tidegate");
    install(std::path::Path::new(env!("CARGO_BIN_EXE_tidegate")), &program);
    script(&current.join("tidegate-ui"), "echo planted");
    for search in [None, Some(""), Some("/nowhere:"), Some("."), Some("../current")] {
        let mut command = Command::new(&program);
        command.arg("ui").current_dir(&current).env_remove("PATH");
        let output = command.envs(search.map(|path| ("PATH", path))).output();
        let output = output.expect("the binary runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{search:?}: {message}");
        assert!(message.contains("is not installed"), "{search:?}: {message}");
    }
}

/// Runs `tidegate WORDS` without and with a `program` beside it, which gets the words of `handed`.
fn handed_or_refused(program: &str, words: &[&str], handed: &str) {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let refused = alone(folder.path(), words);
    assert_eq!(refused.status.code(), Some(2));
    let message = String::from_utf8(refused.stderr).expect("UTF-8");
    for word in [program, "make install", "Python wheel"] {
        assert!(message.contains(word), "{message}");
    }
    script(&folder.path().join(program), "echo \"$@\"\nexit 1");
    let output = alone(folder.path(), words);
    assert_eq!(output.status.code(), Some(1), "its exit code is passed on");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{handed}\n"));
}

#[test]
fn a_wrong_command_line_is_reported_as_any_other_error() {
    for words in [
        &["mount"][..],
        &["nand", "info", "x", "--pages", "3"],
        &["bench", "history", "export", "--format", "xml"],
        &["nosuch"],
        &["ubi", "nosuch"],
    ] {
        let message = refusal(words);
        assert!(message.starts_with("tidegate: "), "{words:?}: {message}");
        assert!(
            !message.contains("error:") && !message.contains("as a value, use"),
            "{message}"
        );
    }
}

/// A page of the manual: the command, and each of its options with all names.
fn pages() -> Vec<(String, Vec<Vec<String>>)> {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let path = folder.path().to_str().expect("UTF-8").to_owned();
    assert!(run(&["man", &path]).status.success());
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder.path()).expect("pages") {
        let path = entry.expect("a page").path();
        let page = std::fs::read_to_string(&path).expect("text").replace("\\-", "-");
        let options = page.lines().filter(|line| line.starts_with("\\fB-")).map(|line| {
            let names = line
                .split("\\fB")
                .skip(1)
                .filter_map(|part| part.split("\\fR").next());
            names
                .filter(|name| name.starts_with('-'))
                .map(str::to_owned)
                .collect()
        });
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        pages.push((name, options.collect()));
    }
    pages.sort();
    pages
}

/// Options of the original programs that a command stands in for.
const OTHER_GRAMMAR: [&str; 8] = [
    "tidegate-mobibench",
    "tidegate-mount",
    "tidegate-ubi-build",
    "tidegate-ubireader-display-info",
    "tidegate-ubireader-extract-files",
    "tidegate-ubireader-extract-images",
    "tidegate-ubireader-list-files",
    "tidegate-ubireader-utils-info",
];

#[test]
fn options_have_one_grammar_over_all_commands() {
    let pages = pages();
    assert!(pages.len() > 60, "{} pages", pages.len());
    let mut wrong = Vec::new();
    for (page, options) in &pages {
        if OTHER_GRAMMAR.contains(&page.as_str()) {
            continue;
        }
        let named = |name: &str| {
            options
                .iter()
                .find(|names| names.iter().any(|other| other == name))
        };
        let has = |name: &str| named(name).is_some();
        // The geometry of a chip is one group.
        if has("--page") {
            for name in ["--block", "--pages-per-block", "--subpage", "--oob"] {
                if !has(name) {
                    wrong.push(format!("{page}: --page without {name}"));
                }
            }
        }
        // -o is --output, for files and for folders.
        if let Some(names) = named("-o")
            && !names.iter().any(|name| name == "--output")
            && !page.starts_with("tidegate-ubifs-mount")
        {
            wrong.push(format!("{page}: -o is {names:?}"));
        }
        if let Some(names) = named("--output")
            && !names.iter().any(|name| name == "-o")
        {
            wrong.push(format!("{page}: --output without -o"));
        }
        for name in [
            "--out",
            "--outdir",
            "--out-dir",
            "--output-dir",
            "--output-file",
            "--dir",
            "--path-to",
            "--block-size",
            "--page-size",
            "--leb-bytes",
            "--peb-size",
            "--human",
            "--format-json",
            "--quiet-mode",
        ] {
            if has(name) {
                wrong.push(format!("{page}: {name}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    // Canary: the pages are read.
    let dump = pages.iter().find(|(page, _)| page == "tidegate-ubi-dump");
    let (_, options) = dump.expect("a page of ubi dump");
    assert!(
        options.contains(&vec!["-o".to_owned(), "--output".to_owned()]),
        "{options:?}"
    );
}

/// The text of each page of the manual without its markup.
fn plain_pages() -> Vec<(String, String)> {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let path = folder.path().to_str().expect("UTF-8").to_owned();
    assert!(run(&["man", &path]).status.success());
    let entries = std::fs::read_dir(folder.path()).expect("pages");
    let read = entries.map(|entry| {
        let path = entry.expect("a page").path();
        let mut page = std::fs::read_to_string(&path).expect("text");
        for (markup, text) in [("\\-", "-"), ("\\fB", ""), ("\\fI", ""), ("\\fR", "")] {
            page = page.replace(markup, text);
        }
        let name = path.file_stem().expect("a name").to_string_lossy();
        (name.trim_start_matches("tidegate-").to_owned(), page)
    });
    read.collect()
}

/// Options with different kinds of values in different commands: a word of one field each, or a flag somewhere.
const SEVERAL_MEANINGS: [(&str, &str); 15] = [
    ("--baseline", "a target; the folder of a study"),
    ("--blocks", "number of a chip; by block"),
    ("--cache", "page cache; cache of a card"),
    ("--check", "a job to check; checks of the results"),
    ("--device", "a device to trace; permission to measure a device"),
    ("--devices", "members of an array; numbers of members to measure"),
    ("--journal", "mode of SQLite; owners of the journal's blocks"),
    ("--keep", "axes of a race; a folder for files"),
    ("--markdown", "a file; the form of standard output"),
    ("--only", "kinds of steps; one exhibit"),
    ("--operation", "a statement; a time of a chip"),
    (
        "--output",
        "a file; a trace, which is a folder; a folder for files",
    ),
    ("--records", "sizes; number of records"),
    ("--scale", "a factor; a part of 1000"),
    ("--workload", "a name; a part of names"),
];

#[test]
fn an_option_has_one_kind_of_value_and_a_folder_one_name_over_all_commands() {
    let mut values = std::collections::BTreeMap::<String, std::collections::BTreeSet<String>>::new();
    let mut wrong = Vec::new();
    for (page, text) in plain_pages() {
        if OTHER_GRAMMAR.contains(&format!("tidegate-{page}").as_str()) {
            continue;
        }
        for line in text.lines().filter(|line| line.starts_with('-')) {
            let names = line.split([' ', ',', '[']).filter(|word| word.starts_with("--"));
            let value = line
                .split_once('<')
                .map_or("", |(_, value)| value.split('>').next().unwrap_or(""));
            for name in names {
                let name = name.trim_end_matches('=');
                values
                    .entry(name.to_owned())
                    .or_default()
                    .insert(value.to_owned());
            }
        }
        for word in text.split(|letter: char| !letter.is_ascii_uppercase()) {
            if ["FOLDER", "DIR", "OUTDIR"].contains(&word) {
                wrong.push(format!("{page}: {word} in place of DIRECTORY"));
            }
        }
        // Folders to measure are the last operand.
        let synopsis = text.split(".SH ").find(|section| section.starts_with("SYNOPSIS"));
        let operands = synopsis.expect("a synopsis").trim_end();
        if operands.contains("DIRECTORY")
            && !operands.trim_end_matches([']', '>', ' ']).ends_with("DIRECTORY")
        {
            let is_option = operands.contains("--");
            if !is_option {
                wrong.push(format!("{page}: DIRECTORY is not the last operand"));
            }
        }
    }
    for (name, kinds) in &values {
        let is_listed = SEVERAL_MEANINGS.iter().any(|(listed, _)| listed == name);
        if (kinds.len() > 1) != is_listed {
            wrong.push(format!("{name}: {kinds:?}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    // Canary: values are read.
    assert_eq!(values["--seed"].iter().collect::<Vec<_>>(), ["N"]);
}

#[test]
fn a_folder_that_can_not_be_measured_is_named_with_the_reason() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let path = folder.path().to_str().expect("UTF-8");
    let read_only = ["-t", "tmpfs", "-o", "ro", "none", path];
    let mounted = Command::new("mount").args(read_only).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        testkit::report_left_out("a read-only mount needs root");
        return;
    }
    let message = refusal(&["bench", "file", path, "--size", "1m"]);
    assert!(
        Command::new("umount")
            .arg(path)
            .status()
            .expect("it runs")
            .success()
    );
    assert_eq!(
        message,
        format!("tidegate: {path} is on a read-only file system; name a writable folder\n")
    );
}

#[test]
fn the_first_target_is_the_baseline_where_none_is_native() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let path = folder.path().display();
    let (first, second) = (format!("b={path}"), format!("a={path}"));
    let output = run(&[
        "bench",
        "compare",
        "--target",
        &first,
        "--target",
        &second,
        "--workload",
        "files-10k",
        "--files",
        "20",
        "--rounds",
        "1",
    ]);
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(table.contains(" of b "), "{table}");
}

/// Commands with a mistyped value, and the word that was meant.
const MISTYPED: &[(&[&str], &str)] = &[
    (&["emmc", "run", "--card", "gt-i930"], "gt-i9300"),
    (&["emmc", "run", "--host", "mshc"], "mshci"),
    (&["emmc", "presets", "mlc-mqsm"], "mlc-mqsim"),
    (
        &["emmc", "paper", "--scale", "10", "--only", "tabel 1"],
        "table 1",
    ),
    (&["nand", "create", "x.img", "--preset", "micron"], "micron-mlc"),
    (&["array", "bench", "--cells", "slc,mcl"], "mlc"),
    (&["bench", "app", "install-app", "."], "app-install"),
    (&["bench", "file", ".", "--mode", "fsyn"], "fsync"),
    (&["bench", "run", "androbenc", "."], "androbench"),
    (&["bench", "job", "--show-preset", "mobibenc"], "mobibench"),
    (&["replay", "x", ".", "--format", "stracee"], "strace"),
    (&["trace", "info", "x", "--from", "blkpars"], "blkparse"),
    (&["mount", ".", "x", "--flusher", "thred"], "thread"),
    (&["mount", ".", "x", "--passthrough", "of"], "off"),
    (&["mount", ".", "x", "-o", "pasthrough=on"], "passthrough"),
];

#[test]
fn a_mistyped_value_is_answered_with_the_nearest_one() {
    for (words, meant) in MISTYPED {
        let message = refusal(words);
        let suggestions = [
            format!("did you mean `{meant}`?"),
            format!("a similar value exists: '{meant}'"),
        ];
        assert!(
            suggestions.iter().any(|suggestion| message.contains(suggestion)),
            "{words:?}: {message}"
        );
    }
}

#[test]
fn a_trace_is_not_written_into_a_folder_that_does_not_exist() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let log = path("x.iolog");
    std::fs::write(
        &log,
        "fio version 2 iolog\n/f add\n/f open\n/f write 0 4096\n/f close\n",
    )
    .expect("written");
    let nowhere = path("nowhere/below");
    let message = refusal(&["trace", "convert", &log, &format!("{nowhere}/out.trace")]);
    assert!(
        message.contains(&format!("{nowhere}: ")) && message.contains("No such file or directory"),
        "{message}"
    );
    assert!(!std::path::Path::new(&path("nowhere")).exists());
    assert!(
        run(&["trace", "convert", &log, &path("out.trace")])
            .status
            .success()
    );
}

#[test]
fn the_words_of_the_field_are_understood() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (image, archive) = (path("nand.img"), path("all.tar"));
    std::fs::write(&image, vec![0xFF; 32 * 131_072]).expect("room for it");
    let done = |words: &[&str]| {
        let output = run(words);
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {messages}");
        (String::from_utf8(output.stdout).expect("UTF-8"), messages)
    };
    // Either size of a block, in each of the commands.
    done(&["ubi", "format", &image, "--page", "2k", "--pages-per-block", "64"]);
    done(&["ubi", "mkvol", &image, "-N", "root", "-S", "20"]);
    done(&["ubifs", "mkfs", &image, "--volume", "root"]);
    std::fs::remove_file(path("nand.img.nand")).expect("a side-car");
    let by_block = done(&[
        "nand", "info", &image, "--page", "2k", "--block", "128k", "--json",
    ])
    .0;
    let by_pages = done(&[
        "nand",
        "info",
        &image,
        "--page",
        "2k",
        "--pages-per-block",
        "64",
        "--json",
    ])
    .0;
    assert_eq!(by_block, by_pages);
    done(&["ubifs", "ls", &image, "--page", "2k", "--pages-per-block", "64"]);
    // The geometry of a UBI image is guessed.
    assert!(done(&["nand", "info", &image]).0.contains("32 blocks of 128 KiB"));
    assert!(refusal(&["nand", "info", &image, "--page", "2k", "--block", "127k"]).contains("--block"));

    assert_eq!(done(&["ubi", "ls", &image]).0, done(&["ubi", "info", &image]).0);
    let message = refusal(&["ubifs", "extract", &image]);
    assert!(message.contains("-o DIRECTORY or --tar FILE"), "{message}");
    let (told, _) = done(&["ubifs", "tar", &image, "-o", &archive]);
    assert!(told.contains("0 files, 0 B to "), "{told}");
    assert!(std::fs::metadata(&archive).expect("an archive").len() >= 1024);
    // At this scale some claims fail, which is exit code 1.
    let output = run(&["emmc", "paper", "--scale", "10", "--only", "table1"]);
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    assert_ne!(
        output.status.code(),
        Some(2),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(shown.contains("table 1"), "{shown}");
}
