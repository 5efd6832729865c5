//! Writes a report with sample numbers, for a visual check: `cargo run -p report --example sample_report --
//! report.html`.

use std::{env, fs, io};

#[path = "../tests/sample/mod.rs"]
mod sample;

fn main() -> io::Result<()> {
    let path = env::args_os().nth(1).unwrap_or_else(|| "report.html".into());
    let mut input = sample::input();
    if env::args().any(|argument| argument == "--groups") {
        let one = input.ladder.clone();
        input.ladder.clear();
        for group in ["ext4", "xfs", "f2fs"] {
            input
                .ladder
                .extend(one.iter().cloned().map(|row| report::LadderRow {
                    group: group.to_owned(),
                    ..row
                }));
        }
    }
    fs::write(path, report::render(&input))
}
