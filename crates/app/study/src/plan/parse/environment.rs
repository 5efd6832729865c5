//! The table `environment` of a plan.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use programs::quantity::parse_bytes;
use serde::Deserialize;
use toml::{Table, Value};

use super::cell_time;
use super::values::values;
use crate::plan::{Calibration, Device, Environment, GuestPart, TimeScale};

/// Accepted distance from the number of a calibration.
const TOLERANCE: f64 = 0.02;

/// Time limit of a cell in the guest if the plan has none: under emulation everything takes longer.
const GUEST_CELL_TIME: Duration = Duration::from_secs(900);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StoredEnvironment {
    device: String,
    time_scale: Option<Value>,
    calibrate: Option<StoredCalibration>,
    dirty_limit: Option<String>,
    size: Option<String>,
    #[serde(default)]
    destroy_data: bool,
    #[serde(default)]
    guest: StoredGuest,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StoredGuest {
    time_scale: Option<Value>,
    size: Option<String>,
    cell_time: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StoredCalibration {
    cell: Table,
    target: f64,
    tolerance: Option<f64>,
}

pub fn environment(stored: StoredEnvironment) -> Result<Environment> {
    let bytes = |text: &Option<String>, key: &str| {
        let parsed = text.as_deref().map(parse_bytes).transpose();
        parsed.map_err(|problem| anyhow!("environment.{key}: {problem}"))
    };
    let device = match stored.device.split_once(':') {
        Some(("card", name)) if !name.is_empty() => Device::Card(name.to_owned()),
        Some(("directory", path)) if !path.is_empty() => Device::Directory(PathBuf::from(path)),
        None if stored.device == "image" => Device::Image,
        None if stored.device.starts_with("/dev/") => Device::Block(PathBuf::from(&stored.device)),
        _ => bail!(
            "environment.device: `{}`, expected card:NAME, image, /dev/NAME or directory:PATH",
            stored.device
        ),
    };
    if matches!(device, Device::Block(_)) && !stored.destroy_data {
        bail!(
            "environment.device: everything on {} would be overwritten; if that is wanted, add destroy-data = true",
            stored.device
        );
    }
    let (is_card, guest) = (matches!(device, Device::Card(_)), guest(&stored.guest)?);
    if !is_card && (guest.time_scale - 1.0).abs() > f64::EPSILON {
        bail!(
            "environment.guest.time-scale: only a card has one, and the device is `{}`",
            stored.device
        );
    }
    let time_scale = time_scale(stored.time_scale.as_ref(), stored.calibrate)?;
    if time_scale != TimeScale::Fixed(1.0) && !is_card {
        bail!(
            "environment.time-scale: only a card has one, and the device is `{}`",
            stored.device
        );
    }
    Ok(Environment {
        device,
        time_scale,
        dirty_limit: bytes(&stored.dirty_limit, "dirty-limit")?,
        size: bytes(&stored.size, "size")?,
        destroy_data: stored.destroy_data,
        guest,
    })
}

fn guest(stored: &StoredGuest) -> Result<GuestPart> {
    let scale = stored.time_scale.as_ref();
    let time_scale = scale.map(|value| number(value, "environment.guest.time-scale"));
    let bytes = stored.size.as_deref().map(parse_bytes).transpose();
    let cell_time = |text| cell_time(text, "environment.guest.cell-time");
    let time = stored.cell_time.as_deref().map(cell_time).transpose()?;
    Ok(GuestPart {
        time_scale: time_scale.transpose()?.unwrap_or(1.0),
        size: bytes.map_err(|problem| anyhow!("environment.guest.size: {problem}"))?,
        cell_time: time.unwrap_or(GUEST_CELL_TIME),
    })
}

fn time_scale(value: Option<&Value>, calibration: Option<StoredCalibration>) -> Result<TimeScale> {
    match value {
        None => Ok(TimeScale::Fixed(1.0)),
        Some(Value::String(word)) if word == "calibrate" => {
            let stored =
                calibration.context("environment.calibrate: missing, but time-scale is \"calibrate\"")?;
            if !(stored.target > 0.0 && stored.target < 1.0) {
                bail!(
                    "environment.calibrate.target: {}, expected a share between 0 and 1",
                    stored.target
                );
            }
            Ok(TimeScale::Calibrate(Calibration {
                cell: values(&stored.cell, "environment.calibrate.cell")?,
                target: stored.target,
                tolerance: stored.tolerance.unwrap_or(TOLERANCE),
            }))
        }
        Some(Value::String(word)) => {
            bail!("environment.time-scale: `{word}`, expected a number or `calibrate`")
        }
        Some(value) => Ok(TimeScale::Fixed(number(value, "environment.time-scale")?)),
    }
}

/// Time scales that `tidegate emmc attach` takes.
const SCALES: RangeInclusive<f64> = 0.01..=1000.0;

/// A factor by which a card is faster than real time.
fn number(value: &Value, place: &str) -> Result<f64> {
    let number = match value {
        Value::Float(number) => *number,
        Value::Integer(number) => number.to_string().parse()?,
        other => bail!("{place}: {}, expected a number", other.type_str()),
    };
    if !SCALES.contains(&number) {
        bail!(
            "{place}: {number}, expected a number from {} to {}",
            SCALES.start(),
            SCALES.end()
        );
    }
    Ok(number)
}
