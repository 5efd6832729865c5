//! The exhibits of a plan.

use anyhow::{Result, bail};
use results::words::unknown;
use serde::Deserialize;
use toml::Table;

use super::values::{axes, values};
use crate::plan::{Basis, Claim, Exhibit, Quantity, Values};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StoredExhibit {
    pub name: String,
    #[serde(default)]
    title: String,
    x: String,
    series: Option<String>,
    y: Option<String>,
    rounds: Option<u32>,
    #[serde(default)]
    axes: Table,
    #[serde(default, rename = "where")]
    fixed: Table,
    #[serde(default)]
    claim: Vec<StoredClaim>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StoredClaim {
    sentence: String,
    #[serde(default)]
    cell: Table,
    of: Option<Table>,
    paper: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    #[serde(default)]
    calibrated: bool,
    #[serde(default)]
    exact: bool,
}

pub fn exhibit(stored: StoredExhibit, general: &[(String, Vec<String>)]) -> Result<Exhibit> {
    if stored.rounds == Some(0) {
        bail!("rounds: 0, expected at least 1");
    }
    let mut axes = axes(&stored.axes, "axes")?;
    let fixed = values(&stored.fixed, "where")?;
    let is_new = |axis: &String| !fixed.contains_key(axis) && !axes.iter().any(|(own, _)| own == axis);
    let inherited: Vec<_> = general.iter().filter(|(axis, _)| is_new(axis)).cloned().collect();
    axes.extend(inherited);
    for axis in [Some(&stored.x), stored.series.as_ref()].into_iter().flatten() {
        if !axes.iter().any(|(own, _)| own == axis) {
            let known: Vec<&str> = axes.iter().map(|(own, _)| own.as_str()).collect();
            bail!("x or series: {}", unknown(axis, &known));
        }
    }
    let y = match stored.y.as_deref() {
        None | Some("mb-per-s") => Quantity::Throughput,
        Some("share-of-max") => Quantity::ShareOfMax,
        Some("layout") => Quantity::Layout,
        Some(name) if name.contains('_') => Quantity::Counter(name.to_owned()),
        Some(other) => {
            bail!("y: `{other}`, expected mb-per-s, share-of-max, layout or the name of a counter")
        }
    };
    let claims = stored.claim.into_iter().map(claim).collect::<Result<_>>()?;
    Ok(Exhibit {
        title: stored.title,
        name: stored.name,
        x: stored.x,
        series: stored.series,
        y,
        axes,
        fixed,
        claims,
        rounds: stored.rounds,
    })
}

fn claim(stored: StoredClaim) -> Result<Claim> {
    if stored.low.is_none() && stored.high.is_none() {
        bail!("claim `{}`: neither low nor high", stored.sentence);
    }
    let bounds = [stored.low, stored.high, stored.paper];
    let (low, high) = (stored.low.unwrap_or(f64::MIN), stored.high.unwrap_or(f64::MAX));
    if bounds.iter().flatten().any(|bound| !bound.is_finite()) || low > high {
        bail!(
            "claim `{}`: low {low} and high {high}, expected finite numbers, low not above high",
            stored.sentence
        );
    }
    Ok(Claim {
        cell: values(&stored.cell, "claim.cell")?,
        of: stored.of.map(|table| values(&table, "claim.of")).transpose()?,
        sentence: stored.sentence,
        paper: stored.paper,
        low: stored.low,
        high: stored.high,
        is_exact: stored.exact,
        basis: if stored.calibrated {
            Basis::Calibrated
        } else {
            Basis::Predicted
        },
    })
}

/// The exhibit of a plan without any: all cells, along its first axis.
pub fn plain_exhibit(axes: &[(String, Vec<String>)]) -> Result<Vec<Exhibit>> {
    let Some((first, others)) = axes.split_first() else {
        bail!("neither [axes] nor [[exhibit]]: there is nothing to measure");
    };
    Ok(vec![Exhibit {
        name: "all cells".to_owned(),
        title: String::new(),
        x: first.0.clone(),
        series: others.first().map(|(axis, _)| axis.clone()),
        y: Quantity::Throughput,
        axes: axes.to_vec(),
        fixed: Values::new(),
        claims: Vec::new(),
        rounds: None,
    }])
}
