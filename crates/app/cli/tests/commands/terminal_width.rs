//! Tables on a terminal of 80 columns, with script(1) as the terminal.

use std::process::Command;

/// Output of a command line on a terminal of 80 columns; `None` without script(1).
fn at_80_columns(words: &str) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_tidegate");
    let line = format!("stty cols 80 && '{program}' {words}");
    let output = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    assert!(output.status.success(), "{words}: {text}");
    Some(text)
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn tables_fit_a_terminal_of_80_columns_and_wide_shows_all() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let (folder, history) = (folder.path().display(), folder.path().join("h.db"));
    let history = history.display();
    let bench = format!("bench file {folder} --size 64k --record 4k --history {history} --progress off");
    if at_80_columns(&bench).is_none() {
        testkit::report_left_out("there is no script(1) (apt install bsdutils)");
        return;
    }
    for words in [
        "emmc presets",
        "nand presets",
        &format!("bench history list --history {history}"),
        &format!("bench history show 1 --history {history}"),
    ] {
        let shown = at_80_columns(words).expect("it ran before");
        let wide = at_80_columns(&format!("{words} --wide")).expect("it ran before");
        assert!(widest(&wide) > 80, "{words} needs no fitting: {wide}");
        // Sentences are left to the terminal, which wraps them: a busy machine adds some ("noisy, ...").
        let sentences = ["  command", "  machine", "noisy, "];
        let is_table = |line: &&str| !sentences.iter().any(|start| line.starts_with(start));
        for line in shown.lines().filter(is_table) {
            assert!(line.chars().count() <= 80, "{words}: {shown}");
        }
    }
}
