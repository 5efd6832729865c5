//! `tidegate demo`: the ladder of the bFUSE paper on this machine.

use std::path::PathBuf;

use ::demo::Options;
use anyhow::Result;
use clap::Args;

use crate::Finding;
use crate::bench_command::progress::ProgressForm;
use crate::bench_command::terminal::Terminal;
use crate::compare::write_text;
use crate::output;
use crate::quantity::parse_bytes;

/// Arguments of `tidegate demo`.
#[derive(Args, Debug)]
#[command(
    after_help = "As root it makes an ext4 in an image file in DIRECTORY, on a loop device, and measures there; \
                  otherwise in DIRECTORY as it is. Everything that it makes is removed at the end, also after \
                  Ctrl-C, which reports the rounds done until then. It takes less than two minutes: on slow \
                  machines rounds, then sizes are cut down."
)]
pub struct DemoArguments {
    /// Work in this directory; it is created if missing
    #[arg(default_value = "out")]
    pub directory: PathBuf,
    /// Run N rounds, each with every configuration once, in rotated order [default: 6 or more, until the intervals
    /// are narrow]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Set the size of the file written, in bytes
    #[arg(long, value_name = "SIZE", default_value = "128m", value_parser = parse_bytes)]
    pub size: u64,
    /// Write the HTML report to this file, and the run records next to it as .jsonl
    #[arg(long, value_name = "FILE", default_value = "out/demo.html")]
    pub report: PathBuf,
    /// Also write a chart of the throughputs to this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print the run records as JSON lines instead of the table
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 if the configurations are not in the order of the paper
    #[arg(long)]
    pub strict: bool,
}

/// Runs the command.
pub fn run(arguments: &DemoArguments) -> Result<Finding> {
    let options = Options {
        directory: arguments.directory.clone(),
        size_bytes: arguments.size,
        rounds: arguments.rounds,
        records_file: arguments.report.with_extension("jsonl"),
        command: programs::own_arguments(),
    };
    let terminal = Terminal::new(ProgressForm::Off, 1, arguments.json);
    let stop = programs::stop_on_signals()?;
    let demo = ::demo::run(&options, &terminal, &stop)?;
    if !arguments.json {
        output::print_text(&demo.text())?;
    }
    for note in demo.noise.iter().chain(&demo.order) {
        output::print_error(note);
    }
    if let Some(path) = &arguments.svg {
        write_text(path, &demo.chart())?;
    }
    let is_refused = arguments.strict && demo.order.is_some();
    let found = match demo.is_complete && !is_refused {
        true => Finding::Nothing,
        false => Finding::Something,
    };
    write_text(&arguments.report, &demo.page())?;
    output::print_error(&format!("report: {}", arguments.report.display()));
    Ok(found)
}
