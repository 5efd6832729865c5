//! `tidegate bench app`: the I/O load of a phone application, generated from published data.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use bench::app::{AppSpec, Application, BlockRequests, Scale};
use bench::replay::Speed;
use bench::{Cache, Workload};
use clap::Args;
use results::words::unknown;

use super::common::BenchCommonArguments;
use super::workloads::{RunAs, WorkloadArguments};
use crate::{Finding, output};

/// Arguments of `tidegate bench app`.
#[derive(Args, Debug)]
#[command(
    after_help = "Each application is of one layer, calls on files or block requests, and says so in list, \
                  output and records; numbers of the two layers can't be compared. Block requests go to one \
                  image file that stands for the partition. `--describe NAME` shows every parameter as \
                  published, derived or assumed.\n\
                  Exit codes: 0 done, 1 stopped before its end or not run as generated, 2 could not do it."
)]
pub struct BenchAppArguments {
    /// Run this application; see --list
    #[arg(required_unless_present_any = ["list", "describe"], value_parser = parse_application)]
    pub name: Option<&'static Application>,
    /// Measure the file system of this existing directory; a subdirectory is created in it and removed
    #[arg(required_unless_present_any = ["list", "describe"])]
    pub directory: Option<PathBuf>,
    /// List all applications with their layers, and exit
    #[arg(long, conflicts_with_all = ["name", "describe"])]
    pub list: bool,
    /// Show every parameter of an application: its label, the statement of its source, and the generated value
    #[arg(long, value_name = "NAME", conflicts_with = "name", value_parser = parse_application)]
    pub describe: Option<&'static Application>,
    /// Multiply requests, bytes and duration by this factor; sizes and shares are unchanged [default: see --list]
    #[arg(long, value_name = "FACTOR", value_parser = parse_scale)]
    pub scale: Option<Scale>,
    /// Issue requests at this speed: asap, real (as the application did), or a factor of the real speed such as 10
    #[arg(long, value_name = "SPEED", default_value = "asap")]
    pub speed: Speed,
    /// Issue all block requests with O_DIRECT, even those that are buffered in the source
    #[arg(long)]
    pub direct: bool,
    /// Drop the page cache before the timed window
    #[arg(long)]
    pub cold: bool,
    /// Keep the files after the run
    #[arg(long)]
    pub keep_files: bool,
    /// Repetition and reporting.
    #[command(flatten)]
    pub common: BenchCommonArguments,
}

impl WorkloadArguments for BenchAppArguments {
    fn common(&self) -> &BenchCommonArguments {
        &self.common
    }

    fn directory(&self) -> Result<&Path> {
        self.directory.as_deref().context("a folder is missing")
    }

    fn workload(&self, _run_as: RunAs) -> Result<Box<dyn Workload>> {
        Ok(Box::new(spec(self)?))
    }

    fn show(&self) -> Result<Option<Finding>> {
        let text = match self.describe {
            Some(application) => {
                let scale = self.scale.unwrap_or(Scale::WHOLE);
                bench::app::describe(application, self.common.seed, scale)?
            }
            None if self.list => bench::app::list(),
            None => return Ok(None),
        };
        output::print_text(&text)?;
        Ok(Some(Finding::Nothing))
    }
}

fn spec(arguments: &BenchAppArguments) -> Result<AppSpec> {
    let application = arguments.name.context("the name of an application is missing")?;
    let usual = Scale {
        ppm: application.usual_scale_ppm,
    };
    Ok(AppSpec {
        directory: arguments.directory.clone().context("a folder is missing")?,
        application,
        scale: arguments.scale.unwrap_or(usual),
        speed: arguments.speed,
        block_requests: if arguments.direct {
            BlockRequests::Direct
        } else {
            BlockRequests::AsStated
        },
        cache: if arguments.cold { Cache::Cold } else { Cache::AsIs },
        seed: arguments.common.seed,
        keep_files: arguments.keep_files,
    })
}

fn parse_application(text: &str) -> Result<&'static Application, String> {
    bench::app::application(text).ok_or_else(|| {
        let names: Vec<&str> = bench::app::applications()
            .map(|application| application.name)
            .collect();
        unknown(text, &names)
    })
}

/// Parses a factor such as 0.1, with up to six decimal places.
pub fn parse_scale(text: &str) -> Result<Scale, String> {
    let wrong = || format!("`{text}` is no factor; write for example 0.1, 1 or 2.5");
    let (whole, places) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |part: &str| part.chars().all(|digit| digit.is_ascii_digit());
    if places.len() > 6 || !is_digits(whole) || !is_digits(places) || text.is_empty() {
        return Err(wrong());
    }
    let number = |part: &str| {
        if part.is_empty() {
            Ok(0)
        } else {
            part.parse::<u64>()
        }
    };
    let whole = number(whole).map_err(|_| wrong())?;
    let places = number(&format!("{places:0<6}")).map_err(|_| wrong())?;
    let ppm = whole
        .checked_mul(1_000_000)
        .and_then(|whole| whole.checked_add(places))
        .ok_or_else(wrong)?;
    Ok(Scale { ppm })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_exact_to_a_millionth() {
        for (text, ppm) in [
            ("1", 1_000_000),
            ("0.1", 100_000),
            (".05", 50_000),
            ("2.5", 2_500_000),
            ("0.000001", 1),
        ] {
            assert_eq!(parse_scale(text), Ok(Scale { ppm }), "{text}");
        }
        for text in ["", "-1", "1e3", "0.0000001", "x", "99999999999999999999"] {
            parse_scale(text).expect_err(text);
        }
    }
}
