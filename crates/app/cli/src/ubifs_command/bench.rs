//! `tidegate ubifs bench`: the speed of UBIFS on one device and on arrays, beside the figures of seeds/001 for MA-UBIFS.
//!
//! Everything runs in this process through the file-system layer, on simulated chips and in virtual time: the results are
//! the same on every machine.

use anyhow::{Result, bail};
use bench::app::Scale;
use chipbench::mounting::Content;
use chipbench::promise::Verdict;
use chipbench::throughput::Plan;
use chipbench::{application, mounting, promise, throughput};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use nand::Preset;
use programs::command_line::one_of;
use serde_json::Value;

use crate::Finding;
use crate::bench_command::app::parse_scale;
use crate::output::print_line;
use crate::quantity::{parse_bytes, show_bytes};

/// Arguments of `tidegate ubifs bench`.
#[derive(Args, Debug)]
#[command(
    after_help = "Simulated chips in virtual time: the time of the chips only, exact and the same on every \
                  machine. The calls go directly to the file system, without FUSE and its page cache.\n\
                  Exit codes: 0 done, 1 with --check a promise was missed, 2 could not do it."
)]
pub struct UbifsBenchArguments {
    /// Measurements to run, separated by commas
    #[arg(
        long,
        default_value = "throughput,mount,applications",
        value_delimiter = ',',
        value_enum
    )]
    pub what: Vec<What>,
    /// Kinds of chips, separated by commas: slc, mlc, tlc (table 1 of the MA-UBIFS study), micron-mlc; applications run
    /// only on mlc if it is among them
    #[arg(long, value_name = "NAME,...", default_value = "slc,mlc,tlc", value_delimiter = ',', hide_possible_values = true, value_parser = one_of::<Preset>(Preset::ALL.map(Preset::name)))]
    pub cells: Vec<Preset>,
    /// Numbers of devices, separated by commas; 1 is always measured for comparison
    #[arg(long, value_name = "N,...", default_value = "1,2,4", value_delimiter = ',')]
    pub devices: Vec<u32>,
    /// Total size of all devices, whatever their number
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = parse_bytes)]
    pub size: u64,
    /// Throughput: record sizes, separated by commas
    #[arg(long, value_name = "SIZE,...", default_value = "4k,64k,1m,16m", value_delimiter = ',', value_parser = parse_bytes)]
    pub records: Vec<u64>,
    /// Throughput: amount that each workload writes or reads, at least one record
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = parse_bytes)]
    pub total: u64,
    /// Mount: contents of the file system, separated by commas: empty, one:SIZE for a file, files:N for N files of 2 KiB
    #[arg(
        long,
        default_value = "empty,one:50m,one:100m,files:16000,files:35000",
        value_delimiter = ',',
        value_parser = parse_content
    )]
    pub contents: Vec<Content>,
    /// Applications: fraction of each to run, as a factor
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse_scale)]
    pub scale: Scale,
    /// Check the results against the promised ones
    #[arg(long)]
    pub check: bool,
    /// Print one JSON object per line instead of tables
    #[arg(long)]
    pub json: bool,
}

fn parse_content(text: &str) -> Result<Content, String> {
    let wrong = || format!("`{text}` is none of empty, one:SIZE, files:NUMBER; write for example one:50m");
    match text.split_once(':') {
        None if text == "empty" => Ok(Content::Empty),
        Some(("one", size)) => parse_bytes(size).map(Content::One),
        Some(("files", count)) => count.parse().map(Content::Files).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Throughput of writing and reading records, by record size
    Throughput,
    /// Time to attach and mount
    Mount,
    /// Response times of the study's five applications
    Applications,
}

/// Prints rows as they are measured.
struct Table {
    json: bool,
    progress: ProgressBar,
}

impl Table {
    fn line(&self, line: &str) -> Result<()> {
        self.progress.suspend(|| print_line(line)).map(|_| ())
    }

    fn note(&self, line: &str) -> Result<()> {
        match self.json {
            true => Ok(()),
            false => self.line(line),
        }
    }

    fn row(&self, text: impl FnOnce() -> String, json: impl FnOnce() -> Value) -> Result<()> {
        match self.json {
            true => self.line(&json().to_string()),
            false => self.line(&text()),
        }
    }
}

/// Runs the command.
pub fn run(arguments: &UbifsBenchArguments) -> Result<Finding> {
    let devices = devices(arguments)?;
    let table = Table {
        json: arguments.json,
        progress: ProgressBar::new_spinner(),
    };
    table
        .progress
        .set_style(ProgressStyle::with_template("{spinner} {pos} {msg}")?);
    let mut verdicts = Vec::new();
    for what in &arguments.what {
        verdicts.extend(match what {
            What::Throughput => throughput(arguments, &devices, &table)?,
            What::Mount => mount(arguments, &devices, &table)?,
            What::Applications => applications(arguments, &devices, &table)?,
        });
        table.note("")?;
    }
    table.progress.finish_and_clear();
    if !arguments.check {
        return Ok(Finding::Nothing);
    }
    for verdict in &verdicts {
        table.row(|| verdict.text(), || verdict.json())?;
    }
    Ok(match verdicts.iter().any(Verdict::is_missed) {
        true => Finding::Something,
        false => Finding::Nothing,
    })
}

fn throughput(arguments: &UbifsBenchArguments, devices: &[u32], table: &Table) -> Result<Vec<Verdict>> {
    let plan = Plan {
        cells: &arguments.cells,
        devices,
        records: &arguments.records,
        total_bytes: arguments.total,
        size_bytes: arguments.size,
    };
    table.note(throughput::HEADER)?;
    let rows = plan.measure(&mut || table.progress.inc(1), &mut |row| {
        table.row(|| row.text(), || row.json())
    })?;
    table.note(throughput::FOOTER)?;
    Ok(promise::judge(&rows))
}

fn mount(arguments: &UbifsBenchArguments, devices: &[u32], table: &Table) -> Result<Vec<Verdict>> {
    let UbifsBenchArguments {
        cells,
        contents,
        size,
        ..
    } = arguments;
    table.note(mounting::HEADER)?;
    let rows = mounting::measure(cells, devices, contents, *size, &mut |row| {
        table.progress.inc(1);
        table.row(|| row.text(), || row.json())
    })?;
    table.note(mounting::FOOTER)?;
    Ok(vec![mounting::judge(&rows)])
}

fn applications(arguments: &UbifsBenchArguments, devices: &[u32], table: &Table) -> Result<Vec<Verdict>> {
    let cells = match arguments.cells.contains(&Preset::Mlc) {
        true => &[Preset::Mlc],
        false => arguments.cells.as_slice(),
    };
    table.note(application::HEADER)?;
    let mut rows = Vec::new();
    for preset in cells {
        rows.extend(application::measure(
            *preset,
            devices,
            arguments.size,
            arguments.scale,
            &mut |row| {
                table.progress.inc(1);
                table.row(|| row.text(), || row.json())
            },
        )?);
    }
    table.note(application::FOOTER)?;
    Ok(application::judge(&rows))
}

fn devices(arguments: &UbifsBenchArguments) -> Result<Vec<u32>> {
    let mut devices = arguments.devices.clone();
    devices.push(1);
    devices.sort_unstable();
    devices.dedup();
    let largest = array::MAX_MEMBERS;
    if let Some(wrong) = devices.iter().find(|count| !(1..=largest).contains(count)) {
        bail!("--devices {wrong}: an array has 1 to {largest} devices");
    }
    if let Some(wrong) = arguments.records.iter().find(|bytes| **bytes == 0) {
        bail!("--records {}: a record has a byte at least", show_bytes(*wrong));
    }
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_read_as_they_are_named() {
        assert_eq!(parse_content("empty"), Ok(Content::Empty));
        assert_eq!(parse_content("one:50m"), Ok(Content::One(50 << 20)));
        assert_eq!(parse_content("files:16000"), Ok(Content::Files(16_000)));
        for wrong in ["", "one", "one:", "files:x", "two:3"] {
            parse_content(wrong).expect_err(wrong);
        }
    }
}
