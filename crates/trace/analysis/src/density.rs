//! Density pictures: requests counted in the cells of a grid, by time and position, and by time and latency.
//!
//! A page can't contain an element for each of a million requests. Each trace's device has a fine grid, time by
//! position (and time by latency), in which only nonempty cells are kept; if there are too many, pairs of columns and
//! rows are merged until they fit. The page draws the cells and merges further as needed.
//!
//! Invariants: the sum of requests over all cells is that of the trace; cells are in the order of row, column, series.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::DataFusionError;

use crate::AnalysisError;
use crate::session::Session;

/// Series of a picture: operation and class.
pub const SERIES: [(&str, &str); 6] = [
    ("write", "data"),
    ("write", "metadata"),
    ("write", "journal"),
    ("write", "other"),
    ("read", "data"),
    ("read", "other"),
];

/// Columns and rows of a grid before merging. Powers of two, so that merging is exact.
const COLUMNS: u64 = 4096;
const ROWS: u64 = 4096;

/// Maximum number of cells of a grid: about a megabyte of page per 100,000, drawn in some milliseconds.
const CELLS_MAX: usize = 150_000;

/// Maximum number of pictures on a page; further traces are only in the tables.
const PANELS_MAX: usize = 12;

/// Meaning of a grid's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vertical {
    /// Bytes on the device, linear.
    Place,
    /// Nanoseconds from queue to completion, logarithmic: each row is the same ratio.
    Latency,
}

/// Counted requests of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct DensityGrid {
    /// Trace of the requests.
    pub trace_id: String,
    /// Device of the requests.
    pub device: String,
    /// Meaning of the rows.
    pub vertical: Vertical,
    /// Columns after merging.
    pub columns: u64,
    /// Rows after merging.
    pub rows: u64,
    /// Start of the first column and end of the last one, ns.
    pub time_ns: (u64, u64),
    /// Lower bound of the first row and upper bound of the last.
    pub range: (u64, u64),
    /// Number of requests per cell: row, column, number in [`SERIES`].
    pub cells: BTreeMap<(u64, u64, u8), u64>,
}

/// Extent of the requests of one device of one trace.
struct Extent {
    trace_id: String,
    device: String,
    time_ns: (u64, u64),
    place: (u64, u64),
    latency_ns: Option<(u64, u64)>,
}

const EXTENTS: &str = "
SELECT trace_id, device,
    MIN(first_ns) AS first, MAX(first_ns) AS last,
    MIN(sector) AS lowest, MAX(sector) AS highest,
    MIN(CASE WHEN completed_ns >= first_ns THEN completed_ns - first_ns END) AS fastest,
    MAX(CASE WHEN completed_ns >= first_ns THEN completed_ns - first_ns END) AS slowest,
    COUNT(*) AS requests
FROM requests
WHERE moves_data AND first_ns IS NOT NULL
GROUP BY trace_id, device
ORDER BY requests DESC, trace_id, device";

const POINTS: &str = "
SELECT requests.trace_id, requests.device, requests.first_ns, requests.sector,
    CASE WHEN requests.completed_ns >= requests.first_ns THEN requests.completed_ns - requests.first_ns END AS latency_ns,
    requests.operation, COALESCE(runs.class, 'other') AS class
FROM requests
LEFT JOIN (SELECT trace_id, request_id, class FROM runs WHERE run_index = 0) AS runs
    ON runs.request_id = requests.id AND runs.trace_id = requests.trace_id
WHERE requests.moves_data AND requests.first_ns IS NOT NULL";

/// The grids of a session, devices with most requests first.
pub(crate) fn grids(session: &Session) -> Result<Vec<DensityGrid>, AnalysisError> {
    let what = "the points of the pictures";
    let on = |read: Result<(), DataFusionError>| {
        read.map(ControlFlow::Continue)
            .map_err(AnalysisError::query(what))
    };
    let mut extents = Vec::new();
    session.for_each_batch(what, EXTENTS, |batch| on(read_extents(batch, &mut extents)))?;
    extents.truncate(PANELS_MAX);
    let mut grids: Vec<DensityGrid> = extents.iter().flat_map(Extent::grids).collect();
    session.for_each_batch(what, POINTS, |batch| on(add_points(batch, &mut grids)))?;
    for grid in &mut grids {
        grid.fold_to(CELLS_MAX);
    }
    Ok(grids)
}

impl Extent {
    fn grids(&self) -> Vec<DensityGrid> {
        let grid = |vertical, range| DensityGrid {
            trace_id: self.trace_id.clone(),
            device: self.device.clone(),
            vertical,
            columns: COLUMNS,
            rows: ROWS,
            time_ns: (self.time_ns.0, self.time_ns.1 + 1),
            range,
            cells: BTreeMap::new(),
        };
        let mut grids = vec![grid(Vertical::Place, (self.place.0, self.place.1 + 1))];
        if let Some((fastest, slowest)) = self.latency_ns {
            // Whole decades, for a readable axis.
            let bottom = 10_u64.saturating_pow(fastest.max(1).ilog10());
            let top = 10_u64.saturating_pow(slowest.max(1).ilog10() + 1);
            grids.push(grid(Vertical::Latency, (bottom, top)));
        }
        grids
    }
}

impl DensityGrid {
    fn add(&mut self, time_ns: u64, value: u64, series: u8) {
        let column = bin(time_ns, self.time_ns, self.columns);
        let row = match self.vertical {
            Vertical::Place => bin(value, self.range, self.rows),
            Vertical::Latency => logarithmic_bin(value, self.range, self.rows),
        };
        *self.cells.entry((row, column, series)).or_insert(0) += 1;
        // Merging during the input also bounds memory.
        if self.cells.len() > CELLS_MAX * 2 {
            self.fold();
        }
    }

    fn fold_to(&mut self, cells: usize) {
        while self.cells.len() > cells {
            self.fold();
        }
    }

    /// Merges pairs of columns and rows.
    fn fold(&mut self) {
        let mut folded = BTreeMap::new();
        for ((row, column, series), count) in std::mem::take(&mut self.cells) {
            *folded.entry((row / 2, column / 2, series)).or_insert(0) += count;
        }
        self.cells = folded;
        self.columns /= 2;
        self.rows /= 2;
    }
}

/// Index of the value among `bins` equal parts of the range.
fn bin(value: u64, (low, high): (u64, u64), bins: u64) -> u64 {
    let width = u128::from(high.saturating_sub(low).max(1));
    let offset = u128::from(value.saturating_sub(low));
    let bin = offset * u128::from(bins) / width;
    u64::try_from(bin).unwrap_or(u64::MAX).min(bins - 1)
}

/// Index of the value among `bins` parts with equal ratios.
fn logarithmic_bin(value: u64, (low, high): (u64, u64), bins: u64) -> u64 {
    let logarithm = |value: u64| results::nearest_f64(value.max(1)).ln();
    let part = (logarithm(value) - logarithm(low)) / (logarithm(high) - logarithm(low));
    // Via whole billionths, as there is no conversion from floating point without `as`.
    let billionths = format!("{:.0}", part.clamp(0.0, 1.0) * 1e9).parse().unwrap_or(0);
    bin(billionths, (0, 1_000_000_000), bins)
}

fn read_extents(batch: &RecordBatch, extents: &mut Vec<Extent>) -> Result<(), DataFusionError> {
    let (traces, devices) = (texts(batch, 0)?, texts(batch, 1)?);
    let numbers = (2..8)
        .map(|column| integers(batch, column))
        .collect::<Result<Vec<_>, _>>()?;
    let (traces, devices) = (traces.as_string::<i32>(), devices.as_string::<i32>());
    for row in 0..batch.num_rows() {
        let value = |column: usize| {
            let values = numbers[column].as_primitive::<Int64Type>();
            values.is_valid(row).then(|| unsigned(values.value(row)))
        };
        let pair = |first, second| Some((value(first)?, value(second)?));
        if let (Some(time_ns), Some(place)) = (pair(0, 1), pair(2, 3)) {
            extents.push(Extent {
                trace_id: traces.value(row).to_owned(),
                device: devices.value(row).to_owned(),
                time_ns,
                place,
                latency_ns: pair(4, 5),
            });
        }
    }
    Ok(())
}

fn add_points(batch: &RecordBatch, grids: &mut [DensityGrid]) -> Result<(), DataFusionError> {
    let (traces, devices) = (texts(batch, 0)?, texts(batch, 1)?);
    let (times, sectors, latencies) = (integers(batch, 2)?, integers(batch, 3)?, integers(batch, 4)?);
    let (operations, classes) = (texts(batch, 5)?, texts(batch, 6)?);
    let (traces, devices) = (traces.as_string::<i32>(), devices.as_string::<i32>());
    let (operations, classes) = (operations.as_string::<i32>(), classes.as_string::<i32>());
    let (times, sectors) = (
        times.as_primitive::<Int64Type>(),
        sectors.as_primitive::<Int64Type>(),
    );
    let latencies = latencies.as_primitive::<Int64Type>();
    for row in 0..batch.num_rows() {
        let (trace, device) = (traces.value(row), devices.value(row));
        let series = series_of(operations.value(row), classes.value(row));
        let time_ns = unsigned(times.value(row));
        for grid in grids
            .iter_mut()
            .filter(|grid| grid.device == device && grid.trace_id == trace)
        {
            match grid.vertical {
                Vertical::Place => grid.add(time_ns, unsigned(sectors.value(row)), series),
                Vertical::Latency if latencies.is_valid(row) => {
                    grid.add(time_ns, unsigned(latencies.value(row)), series);
                }
                Vertical::Latency => {}
            }
        }
    }
    Ok(())
}

fn series_of(operation: &str, class: &str) -> u8 {
    match (operation, class) {
        ("write", "data") => 0,
        ("write", "metadata") => 1,
        ("write", "journal") => 2,
        ("read", "data") => 4,
        ("read", _) => 5,
        _ => 3,
    }
}

fn texts(batch: &RecordBatch, column: usize) -> Result<std::sync::Arc<dyn Array>, DataFusionError> {
    Ok(cast(batch.column(column), &DataType::Utf8)?)
}

fn integers(batch: &RecordBatch, column: usize) -> Result<std::sync::Arc<dyn Array>, DataFusionError> {
    Ok(cast(batch.column(column), &DataType::Int64)?)
}

/// The stored form has no negative numbers in these columns; if a file contains some, they count as 0.
fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(vertical: Vertical, range: (u64, u64)) -> DensityGrid {
        DensityGrid {
            trace_id: String::new(),
            device: String::new(),
            vertical,
            columns: COLUMNS,
            rows: ROWS,
            time_ns: (0, 1000),
            range,
            cells: BTreeMap::new(),
        }
    }

    #[test]
    fn the_ends_of_a_range_are_in_its_first_and_last_bin() {
        assert_eq!([0, 999, 5000].map(|value| bin(value, (0, 1000), 4)), [0, 3, 3]);
        assert_eq!(bin(u64::MAX, (0, u64::MAX), 4096), 4095);
        assert_eq!(
            [1, 11, 99, 1000].map(|value| logarithmic_bin(value, (1, 1000), 3)),
            [0, 1, 1, 2]
        );
    }

    #[test]
    fn folding_loses_no_point() {
        let mut grid = grid(Vertical::Place, (0, 1_000_000));
        for point in 0..200_000_u64 {
            grid.add(point % 1000, point * 7919 % 1_000_000, 0);
        }
        grid.fold_to(10_000);
        assert!(grid.cells.len() <= 10_000, "{}", grid.cells.len());
        assert_eq!(grid.cells.values().sum::<u64>(), 200_000);
        assert!(
            grid.cells
                .keys()
                .all(|(row, column, _)| *row < grid.rows && *column < grid.columns)
        );
    }
}
