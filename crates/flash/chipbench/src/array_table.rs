//! The table of `tidegate array bench`: throughput, relative to one device and to the physical limit.

use media::quantity;
use nand::Timing;
use results::nearest_f64;
use serde_json::{Value, json};

use crate::array_throughput::{Cell, Measured, limit_ns};

/// Size of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A number of bytes.
    Bytes(u64),
    /// A number of rows: pages of all devices with data.
    Rows(u64),
}

impl Record {
    /// Record size in bytes. With parity the minimum write is a row, so it is a multiple of the row size.
    #[must_use]
    pub fn bytes(self, cell: &Cell) -> u64 {
        let page = u64::from(cell.preset.model().geometry.page_bytes());
        let row = u64::from(cell.data_devices()) * page;
        match self {
            Self::Bytes(bytes) if cell.has_parity() => bytes.next_multiple_of(row),
            Self::Bytes(bytes) => bytes,
            Self::Rows(rows) => rows * row,
        }
    }

    /// The size for tables.
    #[must_use]
    pub fn show(self) -> String {
        match self {
            Self::Bytes(bytes) => quantity::show_bytes(bytes),
            Self::Rows(rows) => format!("{rows} rows"),
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Measured quantity.
    pub cell: Cell,
    /// The size of a record, as it was asked for.
    pub record: Record,
    /// The result.
    pub measured: Measured,
    /// That of one device.
    pub base: Measured,
}

/// Header of the table.
pub const HEADER: &str = "time     mode       cells       record     devices   write MB/s  x one  of limit    read MB/s  x one  of limit";

/// Notes below the table.
pub const FOOTER: &str = "The limit: devices x page bytes / (transfer + tPROG or tR), of writes with parity without one of the devices. A record in rows grows\n\
     with the devices; with parity every record is rounded up to whole rows, and fewer than 3 devices have none.";

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

    /// The row as a JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        let (write, read) = self.both();
        json!({
            "time": self.cell.time.name(), "mode": self.cell.design.name(),
            "cells": self.cell.preset.name(), "devices": self.cell.devices,
            "record_bytes": self.cell.record_bytes, "bytes": self.measured.bytes,
            "write_ns": self.measured.write_ns, "read_ns": self.measured.read_ns,
            "write_bytes_per_s": write.bytes_per_s, "read_bytes_per_s": read.bytes_per_s,
            "write_to_one_device": write.to_one, "read_to_one_device": read.to_one,
            "write_to_limit": write.to_limit, "read_to_limit": read.to_limit,
        })
    }

    /// A row of the table.
    #[must_use]
    pub fn text(&self) -> String {
        let (write, read) = self.both();
        let figures = |figures: &Figures| {
            let megabytes = figures.bytes_per_s / 1e6;
            format!(
                "{megabytes:>12.2} {:>6.2} {:>9.3}",
                figures.to_one, figures.to_limit
            )
        };
        format!(
            "{:<8} {:<10} {:<11} {:<10} {:>7} {} {}",
            self.cell.time.name(),
            self.cell.design.name(),
            self.cell.preset.name(),
            self.record.show(),
            self.cell.devices,
            figures(&write),
            figures(&read)
        )
    }
}

/// Bytes per second; infinite for chips that take no time.
fn rate(bytes: u64, nanos: u64) -> f64 {
    nearest_f64(bytes) * 1e9 / nearest_f64(nanos)
}
