//! Throughput of the workloads, by number of devices, kind of chip and record size.

use media::Nanos;
use media::quantity;
use nand::Preset;
use results::nearest_f64;
use serde_json::{Value, json};

use crate::array_throughput::limit_ns;
use crate::error::{Context, MeasureError, Result};
use crate::simulated_chips::Shape;
use crate::workload::Workload;
use crate::{paper, workload};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Kind of chip.
    pub preset: Preset,
    /// Number of devices.
    pub devices: u32,
    /// Bytes of a record.
    pub record_bytes: u64,
    /// The workload.
    pub workload: Workload,
    /// Bytes written or read.
    pub bytes: u64,
    /// Duration.
    pub time: Nanos,
    /// Ratio to the throughput of one device.
    pub to_one: f64,
    /// Ratio to the highest throughput that the chips can program or read.
    pub to_limit: f64,
}

/// The combinations to measure.
pub struct Plan<'a> {
    /// Kinds of chips.
    pub cells: &'a [Preset],
    /// Ascending; 1 is among them.
    pub devices: &'a [u32],
    /// Sizes of records, bytes.
    pub records: &'a [u64],
    /// Bytes written or read by each workload; at least one record.
    pub total_bytes: u64,
    /// Total size of all devices.
    pub size_bytes: u64,
}

/// Header of the table.
pub const HEADER: &str =
    "cells       record     devices  workload              MB/s   x one   paper  of limit";

/// Notes below the table.
pub const FOOTER: &str = "Virtual time: what the chips take; processor time does not count, and no cache is above the file system.\n\
     Writes are O_SYNC, and the commit at their end counts; before each workload all is unmounted and idle.\n\
     paper: the figures of the MA-UBIFS study (nandsim, kernel) where it states them; of reads it says 4 % at most.\n\
     The limit: devices x page bytes / (transfer + tPROG or tR).";

impl Plan<'_> {
    /// Measures all combinations; `told` receives each row, and `each` is called after each workload.
    pub fn measure<E: From<MeasureError>>(
        &self,
        each: &mut dyn FnMut(),
        told: &mut dyn FnMut(&Row) -> Result<(), E>,
    ) -> Result<Vec<Row>, E> {
        let mut rows: Vec<Row> = Vec::new();
        for preset in self.cells {
            for record_bytes in self.records {
                let start = rows.len();
                for devices in self.devices {
                    for row in self.cell(*preset, *devices, *record_bytes, each)? {
                        let one = rows[start..]
                            .iter()
                            .find(|one| one.devices == 1 && one.workload == row.workload);
                        let to_one = one.map_or(1.0, |one| nearest_f64(one.time.0) / nearest_f64(row.time.0));
                        rows.push(Row { to_one, ..row });
                        told(&Row { to_one, ..row })?;
                    }
                }
            }
        }
        Ok(rows)
    }

    fn cell(
        &self,
        preset: Preset,
        devices: u32,
        record_bytes: u64,
        each: &mut dyn FnMut(),
    ) -> Result<Vec<Row>> {
        let shape = Shape {
            preset,
            devices,
            bytes: self.size_bytes,
        };
        let bytes = (self.total_bytes / record_bytes).max(1) * record_bytes;
        let took = workload::run(shape, record_bytes, bytes, each)
            .with_context(|| format!("{devices} devices of {}", preset.name()))?;
        let timing = preset.model().timing;
        let row = |(workload, time): (Workload, Nanos)| {
            let cells = match workload.writes() {
                true => timing.program_page,
                false => timing.read_page,
            };
            Row {
                preset,
                devices,
                record_bytes,
                workload,
                bytes,
                time,
                to_one: 1.0,
                to_limit: nearest_f64(limit_ns(preset, devices, bytes, cells)) / nearest_f64(time.0),
            }
        };
        Ok(took.into_iter().map(row).collect())
    }
}

impl Row {
    fn paper(&self) -> Option<f64> {
        paper::throughput(self.preset, self.devices, self.record_bytes, self.workload)
    }

    fn bytes_per_s(&self) -> f64 {
        nearest_f64(self.bytes) * 1e9 / nearest_f64(self.time.0)
    }

    /// A row of the table.
    pub fn text(&self) -> String {
        let paper = self.paper().map_or("-".to_owned(), |paper| format!("{paper:.3}"));
        format!(
            "{:<11} {:<10} {:>7}  {:<17} {:>8.2} {:>7.3} {:>7} {:>9.3}",
            self.preset.name(),
            quantity::show_bytes(self.record_bytes),
            self.devices,
            self.workload.name(),
            self.bytes_per_s() / 1e6,
            self.to_one,
            paper,
            self.to_limit,
        )
    }

    /// The row as a JSON object.
    pub fn json(&self) -> Value {
        json!({
            "what": "throughput", "cells": self.preset.name(), "devices": self.devices,
            "record_bytes": self.record_bytes, "workload": self.workload.name(),
            "bytes": self.bytes, "ns": self.time.0, "bytes_per_s": self.bytes_per_s(),
            "to_one_device": self.to_one, "paper_to_one_device": self.paper(), "to_limit": self.to_limit,
        })
    }
}
