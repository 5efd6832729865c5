//! `tidegate emmc paper`: reproduces the study's tables and figures beside the paper's, and judges its claims.

use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use emmc::paper::{
    Claim, EXHIBITS, Exhibit, Extent, Kind, Measured, Mixes, PaperScale, Verdict, World, exhibits, judge,
};
use indicatif::ProgressBar;
use report::{Column, html, table};
use results::words::expected;
use serde_json::json;

use super::load::application;
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

/// The loads that the generator of applications makes.
pub fn mixes(seed: u64) -> Result<Mixes> {
    Ok(Mixes {
        google_drive: application("google-drive", seed)?,
        app_install: application("app-install", seed)?,
    })
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
    let mixes = mixes(arguments.seed)?;
    let world = match &arguments.fit {
        Some(path) => fitted(World::new(arguments.seed)?, path)?,
        None => World::new(arguments.seed)?,
    };
    let scale = PaperScale {
        permille: arguments.scale,
    };
    let bar = progress_bar();
    let base = Measured::run(&world, scale, &mixes, (Extent::Rows, only), |name| {
        bar.set_message(name.to_owned());
        bar.tick();
    })?;
    let shown = exhibits(&base, only);
    let variations = match arguments.bands {
        OnOff::On => varied(&world, scale, &mixes, only, &bar)?
            .into_iter()
            .chain([(ATTEMPTS_COUNTED.to_owned(), base.counting_attempts())])
            .collect(),
        OnOff::Off => Vec::new(),
    };
    bar.finish_and_clear();
    let claims = judge(&base, &variations, only);
    if let Some(path) = &arguments.html {
        output::write_result(path, &page(&shown, &claims))?;
    }
    if arguments.scale < 1000 {
        output::print_error(&format!(
            "scaled to {} of 1000: claims about counts need --scale 1000, and may fail here",
            arguments.scale
        ));
    }
    if arguments.json {
        let document = json!({
            "scale_permille": arguments.scale,
            "exhibits": shown,
            "claims": claims,
            "held_out_claims_that_hold_count": bands_were_measured(&claims).then(|| held_out_that_hold(&claims)),
        });
        output::print_line(&document.to_string())?;
    } else {
        let mut text: Vec<_> = shown.iter().map(exhibit_text).collect();
        text.push(claims_text(&claims));
        output::print_line(text.join("\n").trim_end())?;
    }
    let all_hold = claims
        .iter()
        .all(|claim| matches!(claim.verdict, Verdict::Holds | Verdict::Inside));
    Ok(if all_hold {
        Finding::Nothing
    } else {
        Finding::Something
    })
}

/// The variation in which halts are counted in another way; the paper does not say which one is its own.
const ATTEMPTS_COUNTED: &str = "halts of single requests counted too";

/// The world with the parameters of a fit.
fn fitted(world: World, path: &Path) -> Result<World> {
    let name = path.display();
    let text = programs::small_text::read(path).with_context(|| format!("{name} can't be read"))?;
    let document: serde_json::Value = serde_json::from_str(&text)
        .with_context(|| format!("{name} is no result of tidegate emmc fit --json"))?;
    World::parameters().try_fold(world, |world, (parameter, (low, high))| {
        let found = document["parameters"]
            .as_array()
            .and_then(|all| all.iter().find(|one| one["name"] == parameter))
            .map_or(&serde_json::Value::Null, |one| &one["value"]);
        let value = found.as_f64().and_then(|value| world.with_parameter(parameter, value));
        value.ok_or_else(|| {
            anyhow!(
                "{name}: parameter {parameter:?} is {found}, expected {low} to {high}; write the file with tidegate \
                 emmc fit --json"
            )
        })
    })
}

/// The exhibit with this name, in any case and with or without spaces.
fn exhibit_named(name: &str) -> Result<&'static str> {
    let letters = |name: &str| name.to_lowercase().replace([' ', '-', '_'], "");
    let found = EXHIBITS.into_iter().find(|known| letters(known) == letters(name));
    found.ok_or_else(|| anyhow!("there is no {name:?}; known are: {}", expected(name, &EXHIBITS)))
}

/// Measures all variations of the world, on all processors.
fn varied(
    world: &World,
    scale: PaperScale,
    mixes: &Mixes,
    only: Option<&str>,
    bar: &ProgressBar,
) -> Result<Vec<(String, Measured)>> {
    let left: Mutex<Vec<_>> = Mutex::new(World::variations().iter().enumerate().rev().collect());
    let next = || left.lock().ok().and_then(|mut left| left.pop());
    let work = || {
        let mut done = Vec::new();
        while let Some((place, variation)) = next() {
            bar.set_message(variation.name);
            let varied = world.varied(variation);
            let measured = Measured::run(&varied, scale, mixes, (Extent::Claims, only), |_| bar.tick())?;
            done.push((place, variation.name.to_owned(), measured));
        }
        Ok(done)
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all = std::thread::scope(|scope| -> Result<Vec<_>> {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for worker in workers {
            let done: Result<Vec<_>> = worker
                .join()
                .map_err(|_| anyhow!("a run of the model panicked"))?;
            all.extend(done?);
        }
        Ok(all)
    })?;
    all.sort_by_key(|(place, ..)| *place);
    Ok(all
        .into_iter()
        .map(|(_, name, measured)| (name, measured))
        .collect())
}

fn held_out_that_hold(claims: &[Claim]) -> usize {
    let held_out = claims.iter().filter(|claim| claim.kind == Kind::HeldOut);
    held_out.filter(|claim| claim.verdict == Verdict::Holds).count()
}

fn bands_were_measured(claims: &[Claim]) -> bool {
    claims
        .iter()
        .all(|claim| !matches!(claim.verdict, Verdict::Inside | Verdict::Outside))
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

fn exhibit_text(exhibit: &Exhibit) -> String {
    let text = format!("{}: {}\n", exhibit.name, exhibit.title);
    text + &table(&columns(exhibit), &exhibit.rows)
}

/// Three significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn range((low, high): (Option<f64>, Option<f64>)) -> String {
    match (low, high) {
        (Some(low), Some(high)) => format!("{} to {}", number(low), number(high)),
        (Some(low), None) => format!("at least {}", number(low)),
        (None, Some(high)) => format!("at most {}", number(high)),
        (None, None) => "any".to_owned(),
    }
}

fn band(claim: &Claim) -> String {
    format!("{} to {}", number(claim.band.0), number(claim.band.1))
}

fn claims_text(claims: &[Claim]) -> String {
    let mut text = String::from("claims: verdict, kind, sentence: number (band), expected range\n");
    for claim in claims {
        text += &format!(
            "{:<7} {:<8} {}, {}\n      {}: {} ({}), expected {}\n",
            claim.verdict.word(),
            claim.kind.word(),
            claim.exhibit,
            claim.paper,
            claim.quantity,
            number(claim.found),
            band(claim),
            range(claim.expected),
        );
        if claim.verdict == Verdict::Open {
            text += &format!("      decided by: {}\n", claim.sensitive_to.join(", "));
        }
    }
    if !bands_were_measured(claims) {
        return text + "measured in one world only: without bands no claim holds or fails\n";
    }
    let held_out = claims.iter().filter(|claim| claim.kind == Kind::HeldOut).count();
    text + &format!(
        "{} of {held_out} held-out claims hold\n",
        held_out_that_hold(claims)
    )
}

fn page(shown: &[Exhibit], claims: &[Claim]) -> String {
    let title = "Packed commands, LSB backup and flex groups: the paper and the model";
    let mut page = report::head(title);
    page += &html::text("h1", title);
    page += &html::text("h2", "Claims");
    let rows: Vec<Vec<String>> = claims
        .iter()
        .map(|claim| {
            vec![
                claim.exhibit.to_owned(),
                claim.paper.to_owned(),
                claim.kind.word().to_owned(),
                claim.quantity.to_owned(),
                range(claim.expected),
                number(claim.found),
                band(claim),
                claim.verdict.word().to_owned(),
                claim.sensitive_to.join(", "),
            ]
        })
        .collect();
    let headings = [
        "",
        "the paper",
        "kind",
        "number",
        "expected",
        "model",
        "band",
        "verdict",
        "decided by",
    ];
    page += &html::table(&headings.map(Column::left), &rows);
    for exhibit in shown {
        page += &html::text("h2", &format!("{}: {}", exhibit.name, exhibit.title));
        page += &html::table(&columns(exhibit), &exhibit.rows);
    }
    page + "</body>\n</html>\n"
}
