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
        std::fs::copy(env!("CARGO_BIN_EXE_tidegate"), &program).expect("a copy");
    }
    Command::new(program)
        .args(arguments)
        .env("PATH", folder.join("nowhere"))
        .output()
        .expect("the binary runs")
}

#[test]
fn analyses_are_handed_to_their_own_program_or_refused_with_the_way_to_it() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let words = ["trace", "report", "phone.trace", "--text"];
    let refused = alone(folder.path(), &words);
    assert_eq!(refused.status.code(), Some(2));
    let message = String::from_utf8(refused.stderr).expect("UTF-8");
    assert!(
        message.contains("tidegate-analysis") && message.contains("make install"),
        "{message}"
    );
    // Help and usage errors do not need the other program.
    let help = alone(folder.path(), &["trace", "report", "--help"]);
    assert!(String::from_utf8_lossy(&help.stdout).contains("--memory"));
    let mistaken = alone(folder.path(), &["trace", "report", "phone.trace", "--txt"]);
    assert!(String::from_utf8_lossy(&mistaken.stderr).contains("--text"));

    let beside = folder.path().join("tidegate-analysis");
    std::fs::write(&beside, "#!/bin/sh\necho \"$@\"\nexit 1\n").expect("written");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&beside, executable).expect("changed");
    let handed = alone(folder.path(), &words);
    assert_eq!(handed.status.code(), Some(1), "its exit code is passed on");
    assert_eq!(
        String::from_utf8_lossy(&handed.stdout),
        "report phone.trace --text\n"
    );
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
const OTHER_GRAMMAR: [&str; 3] = ["tidegate-mobibench", "tidegate-ubi-build", "tidegate-mount"];

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
    assert!(message.contains("-o FOLDER or --tar FILE"), "{message}");
    let (told, _) = done(&["ubifs", "tar", &image, "-o", &archive]);
    assert!(told.contains("0 files, 0 B to "), "{told}");
    assert!(std::fs::metadata(&archive).expect("an archive").len() >= 1024);
    // At this scale some claims fail, which is exit code 1.
    let output = run(&["emmc", "paper", "--scale", "100", "--only", "table1"]);
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    assert_ne!(
        output.status.code(),
        Some(2),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(shown.contains("table 1"), "{shown}");
}
