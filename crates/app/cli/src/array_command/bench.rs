//! `tidegate array bench`: a table of throughput, relative to one device and to the physical limit.

use anyhow::{Context as _, Result, bail};
use chipbench::array_table::{self, Record, Row};
use chipbench::array_throughput::{self, Cell, Measured};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use nand::Preset;
use programs::command_line::one_of;

use crate::Finding;
use crate::output::print_line;
use crate::quantity::parse_bytes;

/// The array's design (seeds/001 section 3.1), with or without parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Design {
    /// Virtual UBI: a volume of volumes (figure 3)
    Hierarchy,
    /// Virtual UBI with rotating parity; 3 devices or more
    Parity,
    /// MTD proxy: a chip of chips, under an ordinary UBI (figure 2)
    Proxy,
}

/// The clock to measure by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Time {
    /// Exact, and the same on every machine
    Virtual,
    /// This machine's clock, with one thread per device
    Real,
}

impl Design {
    const fn measured(self) -> array_throughput::Design {
        match self {
            Self::Hierarchy => array_throughput::Design::Hierarchy,
            Self::Parity => array_throughput::Design::Parity,
            Self::Proxy => array_throughput::Design::Proxy,
        }
    }
}

impl Time {
    const fn measured(self) -> array_throughput::Time {
        match self {
            Self::Virtual => array_throughput::Time::Virtual,
            Self::Real => array_throughput::Time::Real,
        }
    }
}

/// Arguments of `tidegate array bench`.
#[derive(Debug, Args)]
pub struct ArrayBenchArguments {
    /// Numbers of devices, separated by commas; 1 is always measured, for comparison
    #[arg(long, value_name = "N,...", default_value = "1,2,4,8", value_delimiter = ',')]
    devices: Vec<u32>,
    /// Kinds of chips, separated by commas: slc, mlc, tlc, micron-mlc, nandsim
    #[arg(long, value_name = "NAME,...", default_value = "slc,mlc,tlc", value_delimiter = ',', hide_possible_values = true, value_parser = one_of::<Preset>(Preset::ALL.map(Preset::name)))]
    cells: Vec<Preset>,
    /// Record sizes, separated by commas: bytes with any usual suffix, or a number of rows as in 64rows
    #[arg(long, value_name = "SIZE,...", default_value = "4K,64K,1M,64rows", value_delimiter = ',', value_parser = parse_record)]
    records: Vec<Record>,
    /// Designs, separated by commas
    #[arg(long, default_value = "hierarchy,proxy", value_delimiter = ',', value_enum)]
    mode: Vec<Design>,
    /// Measure in virtual time (exact), real time (this machine's clock), or both
    #[arg(long, default_value = "virtual", value_delimiter = ',', value_enum)]
    time: Vec<Time>,
    /// Bytes to write and read in each measurement
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = parse_bytes)]
    total: u64,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

fn parse_record(text: &str) -> Result<Record, String> {
    match text.strip_suffix("rows") {
        None => parse_bytes(text).map(Record::Bytes),
        Some(rows) => match rows.trim().parse() {
            Ok(rows @ 1..) => Ok(Record::Rows(rows)),
            _ => Err(format!(
                "{text:?} is no number of rows; expected for example 64rows"
            )),
        },
    }
}

/// Runs the command.
pub fn run(arguments: &ArrayBenchArguments) -> Result<Finding> {
    let cells = plan(arguments)?;
    let progress = ProgressBar::new(u64::try_from(cells.len())?);
    progress.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}")?);
    let mut rows = Vec::new();
    let mut one: Option<(Cell, Measured)> = None;
    for (cell, record) in cells {
        progress.set_message(format!(
            "{} x {}, {}",
            cell.devices,
            cell.preset.name(),
            record.show()
        ));
        let measured = cell
            .measure()
            .with_context(|| format!("{} devices of {}", cell.devices, cell.preset.name()))?;
        progress.inc(1);
        if cell.devices == 1 {
            one = Some((cell, measured));
        }
        let base = one.as_ref().context("one device is measured first")?.1;
        rows.push(Row {
            cell,
            record,
            measured,
            base,
        });
    }
    progress.finish_and_clear();
    match arguments.json {
        true => rows
            .iter()
            .try_for_each(|row| print_line(&row.json().to_string()).map(|_| ()))?,
        false => {
            print_line(array_table::HEADER)?;
            for row in &rows {
                print_line(&row.text())?;
            }
            print_line(array_table::FOOTER)?;
        }
    }
    Ok(Finding::Nothing)
}

fn plan(arguments: &ArrayBenchArguments) -> Result<Vec<(Cell, Record)>> {
    let mut devices = arguments.devices.clone();
    devices.push(1);
    devices.sort_unstable();
    devices.dedup();
    if let Some(wrong) = devices
        .iter()
        .find(|count| !(1..=array::MAX_MEMBERS).contains(count))
    {
        bail!(
            "--devices {wrong}: an array has 1 to {} devices",
            array::MAX_MEMBERS
        );
    }
    let mut cells = Vec::new();
    for time in &arguments.time {
        for design in &arguments.mode {
            for preset in &arguments.cells {
                for record in &arguments.records {
                    for count in &devices {
                        let mut cell = Cell {
                            preset: *preset,
                            devices: *count,
                            design: design.measured(),
                            time: time.measured(),
                            record_bytes: 0,
                            total_bytes: 0,
                        };
                        let record_bytes = record.bytes(&cell);
                        let page = u64::from(preset.model().geometry.page_bytes());
                        if record_bytes == 0 || !record_bytes.is_multiple_of(page) {
                            bail!(
                                "--records {}: no whole pages of {page} bytes, which {} chips have",
                                record.show(),
                                preset.name()
                            );
                        }
                        cell.record_bytes = record_bytes;
                        cell.total_bytes = arguments.total.max(record_bytes);
                        cells.push((cell, *record));
                    }
                }
            }
        }
    }
    Ok(cells)
}
