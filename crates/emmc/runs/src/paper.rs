//! The study's tables and figures beside the paper's, and its claims.

use std::sync::Mutex;

use emmc::CardError;
use emmc::paper::{
    Claim, EXHIBITS, Exhibit, Extent, Kind, Measured, Mixes, PaperScale, Verdict, World, exhibits, judge,
};
use report::{Column, html, table};
use results::words::expected;
use serde_json::{Value, json};

use crate::RunError;
use crate::load::mixes;

/// Extent of a reproduction.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Part of each experiment.
    pub scale: PaperScale,
    /// The only table or figure to show, from [`exhibit_named`].
    pub only: Option<&'static str>,
    /// Whether the assumed numbers are varied, which gives bands.
    pub bands: bool,
    /// Seed of the loads of applications.
    pub seed: u64,
}

/// Exhibits and judged claims.
#[derive(Clone, Debug)]
pub struct Reproduction {
    scale: PaperScale,
    exhibits: Vec<Exhibit>,
    claims: Vec<Claim>,
}

impl Reproduction {
    /// Measures the experiments in a world; `progress` gets the names of experiments and variations, and `None` at each
    /// further step.
    ///
    /// # Errors
    /// [`RunError`] when the model refuses a parameter.
    pub fn measure(
        world: &World,
        options: Options,
        progress: impl Fn(Option<&str>) + Sync,
    ) -> Result<Self, RunError> {
        let Options { scale, only, .. } = options;
        let mixes = mixes(options.seed)?;
        let base = Measured::run(world, scale, &mixes, (Extent::Rows, only), |name| {
            progress(Some(name))
        })?;
        let variations = match options.bands {
            true => varied(world, scale, &mixes, only, &progress)?
                .into_iter()
                .chain([(ATTEMPTS_COUNTED.to_owned(), base.counting_attempts())])
                .collect(),
            false => Vec::new(),
        };
        Ok(Self {
            scale,
            exhibits: exhibits(&base, only),
            claims: judge(&base, &variations, only),
        })
    }

    /// The results as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text: Vec<_> = self.exhibits.iter().map(exhibit_text).collect();
        text.push(claims_text(&self.claims));
        text.join("\n")
    }

    /// The results as one JSON document.
    #[must_use]
    pub fn document(&self) -> Value {
        let claims = &self.claims;
        json!({
            "scale_permille": self.scale.permille,
            "exhibits": self.exhibits,
            "claims": claims,
            "held_out_claims_that_hold_count": bands_were_measured(claims).then(|| held_out_that_hold(claims)),
        })
    }

    /// The results as an HTML page.
    #[must_use]
    pub fn page(&self) -> String {
        page(&self.exhibits, &self.claims)
    }

    /// True if no claim is open or fails.
    #[must_use]
    pub fn all_hold(&self) -> bool {
        self.claims
            .iter()
            .all(|claim| matches!(claim.verdict, Verdict::Holds | Verdict::Inside))
    }
}

/// The variation in which halts are counted in another way; the paper does not say which one is its own.
const ATTEMPTS_COUNTED: &str = "halts of single requests counted too";

/// The world with the parameters of a fit: `text` is the document in the file `name`.
///
/// # Errors
/// [`RunError`] when it is another document.
pub fn fitted(world: World, name: &str, text: &str) -> Result<World, RunError> {
    let document: Value = serde_json::from_str(text).map_err(|source| RunError::NoFit {
        name: name.to_owned(),
        source,
    })?;
    World::parameters().try_fold(world, |world, (parameter, (low, high))| {
        let found = document["parameters"]
            .as_array()
            .and_then(|all| all.iter().find(|one| one["name"] == parameter))
            .map_or(&Value::Null, |one| &one["value"]);
        let value = found
            .as_f64()
            .and_then(|value| world.with_parameter(parameter, value));
        value.ok_or_else(|| RunError::Parameter {
            name: name.to_owned(),
            parameter,
            found: found.to_string(),
            low,
            high,
        })
    })
}

/// The exhibit with this name, in any case and with or without spaces.
///
/// # Errors
/// [`RunError::NoExhibit`].
pub fn exhibit_named(name: &str) -> Result<&'static str, RunError> {
    let letters = |name: &str| name.to_lowercase().replace([' ', '-', '_'], "");
    let found = EXHIBITS.into_iter().find(|known| letters(known) == letters(name));
    found.ok_or_else(|| RunError::NoExhibit {
        name: name.to_owned(),
        expected: expected(name, &EXHIBITS),
    })
}

/// Measures all variations of the world, on all processors.
fn varied(
    world: &World,
    scale: PaperScale,
    mixes: &Mixes,
    only: Option<&str>,
    progress: &(impl Fn(Option<&str>) + Sync),
) -> Result<Vec<(String, Measured)>, RunError> {
    let left: Mutex<Vec<_>> = Mutex::new(World::variations().iter().enumerate().rev().collect());
    let next = || left.lock().ok().and_then(|mut left| left.pop());
    let work = || {
        let mut done = Vec::new();
        while let Some((place, variation)) = next() {
            progress(Some(variation.name));
            let varied = world.varied(variation);
            let measured = Measured::run(&varied, scale, mixes, (Extent::Claims, only), |_| progress(None))?;
            done.push((place, variation.name.to_owned(), measured));
        }
        Ok(done)
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all = std::thread::scope(|scope| -> Result<Vec<_>, RunError> {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for worker in workers {
            let done: Result<Vec<_>, CardError> = worker.join().map_err(|_| RunError::Panicked)?;
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
