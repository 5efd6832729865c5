//! `tidegate emmc paper`: reproduces the study's tables and figures beside the paper's.

use std::io::{IsTerminal, stderr};
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use emmc::paper::{Exhibit, Mixes, PaperScale, exhibits};
use indicatif::ProgressBar;
use report::{Column, html, table};
use results::words::expected;
use serde_json::json;

use super::load::application;
use crate::{Finding, output};

/// Arguments of `tidegate emmc paper`.
#[derive(Args, Debug)]
#[command(
    after_help = "Compares each sentence of the paper with the model's result: \"holds\" or \"fails\", and \
                  whether it validates the model, set it up (calibration), or follows from rules and load \
                  (structure).\n\
                  Exit codes: 0 all hold, 1 some fail, 2 could not do it."
)]
pub struct PaperArguments {
    /// Part of each experiment to run, per mille; shapes need about 100, the paper's counts 1000
    #[arg(long, value_name = "PERMILLE", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=1000))]
    pub scale: u64,
    /// Show only this table or figure, such as "table 1" or "figure 8"
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write an HTML page to this file
    #[arg(long = "report", visible_alias = "html", value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(arguments: &PaperArguments) -> Result<Finding> {
    let mixes = Mixes {
        google_drive: application("google-drive", arguments.seed)?,
        app_install: application("app-install", arguments.seed)?,
    };
    let bar = if stderr().is_terminal() {
        ProgressBar::new_spinner()
    } else {
        ProgressBar::hidden()
    };
    let scale = PaperScale {
        permille: arguments.scale,
        seed: arguments.seed,
    };
    let mut shown = exhibits(scale, &mixes, |name| {
        bar.set_message(name.to_owned());
        bar.tick();
    })?;
    bar.finish_and_clear();
    if let Some(only) = &arguments.only {
        let names: Vec<_> = shown.iter().map(|exhibit| exhibit.name.clone()).collect();
        let letters = |name: &str| name.to_lowercase().replace([' ', '-', '_'], "");
        shown.retain(|exhibit| letters(&exhibit.name) == letters(only));
        if shown.is_empty() {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            anyhow::bail!("there is no {only:?}; known are: {}", expected(only, &names));
        }
    }
    if let Some(path) = &arguments.html {
        output::write_result(path, &page(&shown))?;
    }
    if arguments.scale < 1000 {
        output::print_error(&format!(
            "scaled to {} of 1000: claims about counts need --scale 1000, and may fail here",
            arguments.scale
        ));
    }
    if arguments.json {
        output::print_line(&json!({ "scale_permille": arguments.scale, "exhibits": shown }).to_string())?;
    } else {
        let texts: Vec<_> = shown.iter().map(text).collect();
        output::print_line(texts.join("\n").trim_end())?;
    }
    let all_hold = shown
        .iter()
        .flat_map(|exhibit| &exhibit.claims)
        .all(|claim| claim.holds);
    Ok(if all_hold {
        Finding::Nothing
    } else {
        Finding::Something
    })
}

fn columns(exhibit: &Exhibit) -> Vec<Column> {
    let titles = exhibit.columns.iter().enumerate();
    titles
        .map(|(place, title)| {
            if place == 0 {
                Column::left(title)
            } else {
                Column::right(title)
            }
        })
        .collect()
}

fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "fails" }
}

fn text(exhibit: &Exhibit) -> String {
    let mut text = format!("{}: {}\n", exhibit.name, exhibit.title);
    text += &table(&columns(exhibit), &exhibit.rows);
    for claim in &exhibit.claims {
        text += &format!(
            "{} ({}): {} -> {}\n",
            verdict(claim.holds),
            claim.basis.word(),
            claim.paper,
            claim.ours
        );
    }
    text
}

fn page(shown: &[Exhibit]) -> String {
    let title = "Packed commands, LSB backup and flex groups: the paper and the model";
    let mut page = report::head(title);
    page += &html::text("h1", title);
    for exhibit in shown {
        page += &html::text("h2", &format!("{}: {}", exhibit.name, exhibit.title));
        page += &html::table(&columns(exhibit), &exhibit.rows);
        let rows: Vec<Vec<String>> = exhibit
            .claims
            .iter()
            .map(|claim| {
                vec![
                    claim.paper.clone(),
                    claim.ours.clone(),
                    verdict(claim.holds).to_owned(),
                    claim.basis.word().to_owned(),
                ]
            })
            .collect();
        let headings = ["the paper", "the model", "", "kind"].map(Column::left);
        page += &html::table(&headings, &rows);
    }
    page + "</body>\n</html>\n"
}
