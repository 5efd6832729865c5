//! `tidegate emmc fit`: fits the parameters that no source gives to the study's numbers, all together.

use anyhow::Result;
use clap::Args;
use emmc::paper::{FitRules, PaperScale, fit};
use report::{Column, table};
use runs::load::mixes;
use serde_json::json;

use super::paper::progress_bar;
use crate::{Finding, output};

/// Arguments of `tidegate emmc fit`.
#[derive(Args, Debug)]
#[command(
    after_help = "Fits to the claims of kind \"fitted\" of `tidegate emmc paper`: the shares of table 1 and the bandwidths \
                  of table 3. The others are not looked at. The search starts from the card gt-i9300 without reads of \
                  other programs. The same options give the same result; another seed searches elsewhere, and \
                  `tidegate emmc paper --fit FILE` judges the claims with its result (--json).\n\
                  Exit codes: 0 done, 2 could not do it."
)]
pub struct FitArguments {
    /// Number of evaluations; each runs tio_seq and both real loads
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub evaluations: u32,
    /// Part of tio_seq to run in each evaluation, per mille
    #[arg(long, value_name = "PERMILLE", default_value_t = 250, value_parser = clap::value_parser!(u64).range(10..=1000))]
    pub scale: u64,
    /// Seed of the search and of the loads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(arguments: &FitArguments) -> Result<Finding> {
    let rules = FitRules {
        evaluations: arguments.evaluations,
        seed: arguments.seed,
        scale: PaperScale {
            permille: arguments.scale,
        },
    };
    let bar = progress_bar();
    let found = fit(rules, &mixes(arguments.seed)?, |done, cost| {
        bar.set_message(format!(
            "{done} of {} evaluations, cost {cost:.3}",
            arguments.evaluations
        ));
        bar.tick();
    })?;
    bar.finish_and_clear();
    if arguments.json {
        output::print_line(&json!(found).to_string())?;
        return Ok(Finding::Nothing);
    }
    let parameters: Vec<Vec<String>> = found
        .parameters
        .iter()
        .map(|parameter| {
            let (low, high) = parameter.range;
            vec![
                parameter.name.to_owned(),
                format!("{:.1}", parameter.value),
                format!("{low:.0} to {high:.0}"),
                if parameter.is_at_its_end() {
                    "at its end".to_owned()
                } else {
                    String::new()
                },
            ]
        })
        .collect();
    let residuals: Vec<Vec<String>> = found
        .residuals
        .iter()
        .map(|residual| {
            vec![
                residual.claim.to_owned(),
                format!("{:.3}", residual.paper),
                format!("{:.3}", residual.ours),
                format!("{:+.2}", residual.residual),
            ]
        })
        .collect();
    let [left, right] = [Column::left, Column::right];
    let columns = [left("parameter"), right("value"), right("range"), left("")];
    let mut text = table(&columns, &parameters);
    text += "\n";
    text += &table(
        &[
            left("claim"),
            right("paper"),
            right("ours"),
            right("residual (tolerances)"),
        ],
        &residuals,
    );
    text += &format!(
        "\ncost {:.3} after {} evaluations; {:.3} before, {:.3} with the card gt-i9300-fit and its load",
        found.cost, found.evaluations, found.cost_before, found.cost_of_preset
    );
    output::print_line(&text)?;
    Ok(Finding::Nothing)
}
