//! `tidegate emmc paper`: reproduces the study's tables and figures beside the paper's, and judges its claims.

use std::io::{IsTerminal, stderr};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use emmc::paper::{PaperScale, World};
use indicatif::ProgressBar;
use runs::paper::{Options, Reproduction, exhibit_named, fitted};

use super::setup::OnOff;
use crate::{Finding, output};

/// Arguments of `tidegate emmc paper`.
#[derive(Args, Debug)]
#[command(
    after_help = "Each claim is one number and a range stated beforehand. Kinds: \"input\", the paper's value went into \
                  the model; \"fitted\", a parameter was moved until it came out (tidegate emmc fit); \"held out\", \
                  the model was made without it. The band is the claim's number over the plausible ranges of the assumed \
                  numbers (banks, word lines, channel, copies, commands, interrupts, background, dirty limit, seed), \
                  one at a time, and the other way to count halts. A claim holds or fails if it does so over the whole \
                  band; otherwise it is open, and the assumptions that decide are named. With --bands off it is only \
                  inside or outside of its range.\n\
                  Exit codes: 0 all hold, 1 some are open or fail, 2 could not do it."
)]
pub struct PaperArguments {
    /// Part of each experiment to run, per mille; shapes need about 100, the paper's counts 1000
    #[arg(long, value_name = "PERMILLE", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=1000))]
    pub scale: u64,
    /// Show only this table or figure, such as "table 1" or "figure 8"
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Vary the assumed numbers; off measures once, and gives no bands
    #[arg(long, value_name = "on|off", value_enum, default_value = "on")]
    pub bands: OnOff,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Use the parameters of this result of `tidegate emmc fit --json` [default: those of the card gt-i9300-fit]
    #[arg(long, value_name = "FILE")]
    pub fit: Option<PathBuf>,
    /// Write an HTML page to this file
    #[arg(long = "report", visible_alias = "html", value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// A progress bar, on a terminal.
pub fn progress_bar() -> ProgressBar {
    if stderr().is_terminal() {
        ProgressBar::new_spinner()
    } else {
        ProgressBar::hidden()
    }
}

/// Runs the command.
pub fn run(arguments: &PaperArguments) -> Result<Finding> {
    let only = arguments.only.as_deref().map(exhibit_named).transpose()?;
    let mut world = World::new(arguments.seed)?;
    if let Some(path) = &arguments.fit {
        let name = path.display().to_string();
        let text = programs::small_text::read(path).with_context(|| format!("{name} can't be read"))?;
        world = fitted(world, &name, &text)?;
    }
    let options = Options {
        scale: PaperScale {
            permille: arguments.scale,
        },
        only,
        bands: arguments.bands == OnOff::On,
        seed: arguments.seed,
    };
    let bar = progress_bar();
    let found = Reproduction::measure(&world, options, |name| {
        if let Some(name) = name {
            bar.set_message(name.to_owned());
        }
        bar.tick();
    })?;
    bar.finish_and_clear();
    if let Some(path) = &arguments.html {
        output::write_result(path, &found.page())?;
    }
    if arguments.scale < 1000 {
        output::print_error(&format!(
            "scaled to {} of 1000: claims about counts need --scale 1000, and may fail here",
            arguments.scale
        ));
    }
    if arguments.json {
        output::print_line(&found.document().to_string())?;
    } else {
        output::print_line(found.text().trim_end())?;
    }
    Ok(if found.all_hold() {
        Finding::Nothing
    } else {
        Finding::Something
    })
}
