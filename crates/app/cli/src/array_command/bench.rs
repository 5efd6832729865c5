//! `tidegate array bench`: a table of throughput, relative to one device and to the physical limit.

use anyhow::{Context as _, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use nand::{Preset, Timing};
use programs::command_line::one_of;
use serde_json::json;

use super::measure::{Cell, Design, Measured, Time, limit_ns};
use crate::Finding;
use crate::output::print_line;
use crate::quantity::{parse_bytes, show_bytes};

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

/// Size of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    Bytes(u64),
    Rows(u64),
}

impl Record {
    /// Record size in bytes. With parity the minimum write is a row, so it is a multiple of the row size.
    fn bytes(self, cell: &Cell) -> u64 {
        let page = u64::from(cell.preset.model().geometry.page_bytes());
        let row = u64::from(cell.data_devices()) * page;
        match self {
            Self::Bytes(bytes) if cell.has_parity() => bytes.next_multiple_of(row),
            Self::Bytes(bytes) => bytes,
            Self::Rows(rows) => rows * row,
        }
    }

    fn show(self) -> String {
        match self {
            Self::Bytes(bytes) => show_bytes(bytes),
            Self::Rows(rows) => format!("{rows} rows"),
        }
    }
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
        false => print_table(&rows)?,
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
                            design: *design,
                            time: *time,
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

struct Row {
    cell: Cell,
    record: Record,
    measured: Measured,
    base: Measured,
}

/// Results of one direction, write or read.
struct Figures {
    bytes_per_s: f64,
    to_one: f64,
    to_limit: f64,
}

impl Row {
    fn figures(
        &self,
        devices: u32,
        time: fn(&Measured) -> u64,
        cells: fn(&Timing) -> media::Nanos,
    ) -> Figures {
        let rate = |measured: &Measured| rate(measured.bytes, time(measured));
        let timing = self.cell.preset.model().timing;
        let limit = limit_ns(self.cell.preset, devices, self.measured.bytes, cells(&timing));
        let limit = self::rate(self.measured.bytes, limit);
        let own = rate(&self.measured);
        Figures {
            bytes_per_s: own,
            to_one: own / rate(&self.base),
            to_limit: own / limit,
        }
    }

    fn both(&self) -> (Figures, Figures) {
        (
            self.figures(
                self.cell.data_devices(),
                |measured| measured.write_ns,
                |timing| timing.program_page,
            ),
            self.figures(
                self.cell.devices,
                |measured| measured.read_ns,
                |timing| timing.read_page,
            ),
        )
    }

    fn json(&self) -> serde_json::Value {
        let (write, read) = self.both();
        json!({
            "time": name(&self.cell.time), "mode": name(&self.cell.design),
            "cells": self.cell.preset.name(), "devices": self.cell.devices,
            "record_bytes": self.cell.record_bytes, "bytes": self.measured.bytes,
            "write_ns": self.measured.write_ns, "read_ns": self.measured.read_ns,
            "write_bytes_per_s": write.bytes_per_s, "read_bytes_per_s": read.bytes_per_s,
            "write_to_one_device": write.to_one, "read_to_one_device": read.to_one,
            "write_to_limit": write.to_limit, "read_to_limit": read.to_limit,
        })
    }
}

/// Bytes per second; infinite for chips that take no time.
fn rate(bytes: u64, nanos: u64) -> f64 {
    let exact = |number: u64| results::nearest_f64(number);
    exact(bytes) * 1e9 / exact(nanos)
}

fn name<T: clap::ValueEnum>(value: &T) -> String {
    value
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

fn print_table(rows: &[Row]) -> Result<()> {
    print_line(
        "time     mode       cells       record     devices   write MB/s  x one  of limit    read MB/s  x one  of limit",
    )?;
    for row in rows {
        let (write, read) = row.both();
        let figures = |figures: &Figures| {
            let megabytes = figures.bytes_per_s / 1e6;
            format!(
                "{megabytes:>12.2} {:>6.2} {:>9.3}",
                figures.to_one, figures.to_limit
            )
        };
        print_line(&format!(
            "{:<8} {:<10} {:<11} {:<10} {:>7} {} {}",
            name(&row.cell.time),
            name(&row.cell.design),
            row.cell.preset.name(),
            row.record.show(),
            row.cell.devices,
            figures(&write),
            figures(&read)
        ))?;
    }
    print_line(
        "The limit: devices x page bytes / (transfer + tPROG or tR), of writes with parity without one of the devices. A record in rows grows\n\
         with the devices; with parity every record is rounded up to whole rows, and fewer than 3 devices have none.",
    )?;
    Ok(())
}
