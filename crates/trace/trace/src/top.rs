//! Current use of a device: the requests of an interval, summed by process, file and type of block.
//!
//! It captures nothing, reads no clock and displays nothing: requests come in, a [`Table`] goes out. A request whose
//! blocks have several owners is counted once for each of them, with its own part of the bytes; the totals count it
//! once. Latency is measured from the block layer to the completion, and each owner gets that of the whole request.
//!
//! Invariant: at most [`MAX_ROWS`] rows are kept; further ones are summed in one separate row.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use results::block_trace::{DeviceNumber, Operation, Process, Request, Run};
use results::{LatencyHistogram, nearest_f64};

/// Maximum number of rows in one interval: about 30 MiB with their histograms.
pub const MAX_ROWS: usize = 800;

/// Sort order of rows, the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Bytes read and written.
    Bytes,
    /// Bytes read.
    Read,
    /// Bytes written.
    Written,
    /// Requests.
    Requests,
    /// The latency that 99 % do not exceed.
    Latency,
}

/// Key of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Id of the process that caused the I/O; `None` if it is unknown.
    pub pid: Option<u32>,
    /// Its name.
    pub process: Option<Arc<str>>,
    /// The device; `None` in a row of several.
    pub device: Option<DeviceNumber>,
    /// The file's file system, as `stat` gives it: paths are relative to its root.
    pub file_system: Option<DeviceNumber>,
    /// Path from the file system's root.
    pub path: Option<Arc<str>>,
    /// Type of block; the operation for requests that move no data.
    pub kind: &'static str,
}

/// Sums over requests.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Requests.
    pub requests: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    latencies: Option<LatencyHistogram>,
}

impl Sums {
    fn count(&mut self, latency_ns: Option<u64>) {
        self.requests += 1;
        if let Some(latency_ns) = latency_ns {
            self.latencies.get_or_insert_default().record(latency_ns);
        }
    }

    fn move_bytes(&mut self, operation: Operation, bytes: u64) {
        match operation {
            Operation::Read => self.read_bytes += bytes,
            Operation::Write | Operation::ZoneAppend => self.written_bytes += bytes,
            _ => {}
        }
    }

    /// Mean and 99th percentile of the latencies, ns; `None` if no completion was seen.
    #[must_use]
    pub fn latency_ns(&self) -> Option<(f64, u64)> {
        let latencies = self.latencies.as_ref()?;
        Some((latencies.summary()?.mean_ns, latencies.percentile_ns(99.0)))
    }

    fn rank(&self, order: Order) -> u64 {
        match order {
            Order::Bytes => self.read_bytes + self.written_bytes,
            Order::Read => self.read_bytes,
            Order::Written => self.written_bytes,
            Order::Requests => self.requests,
            Order::Latency => self.latency_ns().map_or(0, |(_, p99)| p99),
        }
    }
}

/// Sums of an interval, ready for display.
#[derive(Clone, Debug)]
pub struct Table {
    /// Length of the interval.
    pub elapsed: Duration,
    /// Sums over all requests.
    pub total: Sums,
    /// The largest first; equal ones in the order of their keys.
    pub rows: Vec<(Key, Sums)>,
    /// Sum of the requests beyond [`MAX_ROWS`] rows.
    pub beyond: Option<Sums>,
}

impl Table {
    /// Converts an amount of the interval to a rate per second.
    #[must_use]
    pub fn a_second(&self, amount: u64) -> f64 {
        nearest_f64(amount) / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// The current interval.
#[derive(Debug, Default)]
pub struct Window {
    total: Sums,
    rows: HashMap<Key, Sums>,
    beyond: Option<Sums>,
}

impl Window {
    /// Adds one request.
    pub fn add(&mut self, request: &Request) {
        let latency_ns = request.completed_ns.and_then(|completed| {
            let first = request.first_ns()?;
            completed.checked_sub(first)
        });
        self.total.count(latency_ns);
        self.total.move_bytes(request.operation, request.bytes);
        let parts = parts_of(request);
        for (key, bytes) in parts {
            let sums = self.row(key);
            sums.count(latency_ns);
            sums.move_bytes(request.operation, bytes);
        }
    }

    /// Ends the interval and begins the next one.
    pub fn take(&mut self, elapsed: Duration, order: Order) -> Table {
        let ended = std::mem::take(self);
        let mut rows: Vec<(Key, Sums)> = ended.rows.into_iter().collect();
        rows.sort_by(|(left_key, left), (right_key, right)| {
            let by_rank = right.rank(order).cmp(&left.rank(order));
            by_rank.then_with(|| left_key.cmp(right_key))
        });
        Table {
            elapsed,
            total: ended.total,
            rows,
            beyond: ended.beyond,
        }
    }

    fn row(&mut self, key: Key) -> &mut Sums {
        if self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&key) {
            return self.beyond.get_or_insert_default();
        }
        self.rows.entry(key).or_default()
    }
}

/// The owners of a request, each once, with their bytes of it.
fn parts_of(request: &Request) -> Vec<(Key, u64)> {
    if !request.moves_data() || request.runs.is_empty() {
        return vec![(whole_key(request), request.bytes)];
    }
    let mut parts: Vec<(Key, u64)> = Vec::new();
    for run in &request.runs {
        let key = run_key(request, run);
        match parts.iter_mut().find(|(known, _)| *known == key) {
            Some((_, bytes)) => *bytes += run.bytes,
            None => parts.push((key, run.bytes)),
        }
    }
    parts
}

fn run_key(request: &Request, run: &Run) -> Key {
    let process = run.cause.as_ref().or(request.submitter.as_ref());
    key(request, process, Some(run), run.block_type.word())
}

fn whole_key(request: &Request) -> Key {
    let first = request.runs.first();
    let process = first
        .and_then(|run| run.cause.as_ref())
        .or(request.submitter.as_ref());
    key(request, process, first, request.operation.word())
}

fn key(request: &Request, process: Option<&Arc<Process>>, run: Option<&Run>, kind: &'static str) -> Key {
    Key {
        pid: process.map(|process| process.pid),
        process: process.map(|process| process.package.clone().unwrap_or_else(|| process.name.clone())),
        device: Some(request.device),
        file_system: run.and_then(|run| run.file).map(|file| file.file_system),
        path: run.and_then(|run| run.path.clone()),
        kind,
    }
}

#[cfg(test)]
mod tests {
    use results::block_trace::{BlockType, FileIdentity, IoMode, RequestFlags};

    use super::*;

    fn run(pid: u32, path: &str, bytes: u64) -> Run {
        Run {
            block_type: BlockType::Data,
            path: Some(path.into()),
            cause: Some(Arc::new(Process {
                pid,
                tid: pid,
                name: "writer".into(),
                package: None,
            })),
            ..Run::unknown(0, bytes)
        }
    }

    fn request(operation: Operation, latency_ns: u64, runs: Vec<Run>) -> Request {
        Request {
            id: 0,
            device: DeviceNumber { major: 8, minor: 0 },
            sector: 0,
            bytes: runs.iter().map(|run| run.bytes).sum(),
            operation,
            flags: RequestFlags::default(),
            priority: None,
            queued_ns: Some(1000),
            inserted_ns: None,
            issued_ns: Some(1100),
            completed_ns: Some(1000 + latency_ns),
            status: Some(0),
            in_flight: None,
            hardware_queue: None,
            submitter: None,
            mode: IoMode::Writeback,
            command: None,
            runs,
        }
    }

    #[test]
    fn a_request_of_two_owners_is_counted_with_each_and_once_in_total() {
        let mut window = Window::default();
        let runs = vec![run(7, "/a", 4096), run(8, "/b", 8192), run(7, "/a", 4096)];
        window.add(&request(Operation::Write, 500, runs));
        let table = window.take(Duration::from_secs(2), Order::Bytes);
        assert_eq!((table.total.requests, table.total.written_bytes), (1, 16384));
        let rows: Vec<_> = table
            .rows
            .iter()
            .map(|(key, sums)| (key.pid, sums.requests, sums.written_bytes))
            .collect();
        assert_eq!(rows, [(Some(7), 1, 8192), (Some(8), 1, 8192)]);
        assert!((table.a_second(table.total.written_bytes) - 8192.0).abs() < 1e-6);
    }

    #[test]
    fn the_same_path_on_two_file_systems_is_two_rows() {
        let mut window = Window::default();
        let on = |minor| {
            let mut run = run(7, "/same", 4096);
            let file_system = DeviceNumber { major: 7, minor };
            run.file = Some(FileIdentity {
                file_system,
                inode: 12,
                generation: 0,
            });
            run
        };
        window.add(&request(Operation::Write, 500, vec![on(0), on(1)]));
        let mut elsewhere = request(Operation::Write, 500, vec![on(0)]);
        elsewhere.device.minor += 1;
        window.add(&elsewhere);
        assert_eq!(window.take(Duration::from_secs(1), Order::Bytes).rows.len(), 3);
    }

    #[test]
    fn rows_come_in_the_order_that_is_asked_for() {
        let mut window = Window::default();
        window.add(&request(Operation::Read, 900_000, vec![run(1, "/slow", 512)]));
        window.add(&request(Operation::Write, 1000, vec![run(2, "/large", 1 << 20)]));
        window.add(&request(Operation::Read, 1000, vec![run(3, "/many", 4096)]));
        window.add(&request(Operation::Read, 1000, vec![run(3, "/many", 4096)]));
        let first = |order| {
            let again = Window {
                rows: window.rows.clone(),
                ..Window::default()
            };
            let table = { again }.take(Duration::from_secs(1), order);
            table.rows[0].0.pid
        };
        assert_eq!(first(Order::Bytes), Some(2));
        assert_eq!(first(Order::Written), Some(2));
        assert_eq!(first(Order::Read), Some(3));
        assert_eq!(first(Order::Requests), Some(3));
        assert_eq!(first(Order::Latency), Some(1));
        let table = window.take(Duration::from_secs(1), Order::Latency);
        let (mean_ns, p99_ns) = table.rows[0].1.latency_ns().unwrap();
        assert!((mean_ns - 900_000.0).abs() < 1.0 && (891_000..=909_000).contains(&p99_ns));
    }

    #[test]
    fn a_flush_is_told_by_its_operation_and_the_next_interval_begins_empty() {
        let mut window = Window::default();
        window.add(&request(Operation::Flush, 10, Vec::new()));
        let table = window.take(Duration::from_secs(1), Order::Bytes);
        assert_eq!((table.rows[0].0.kind, table.rows[0].0.pid), ("flush", None));
        let table = window.take(Duration::from_secs(1), Order::Bytes);
        assert_eq!((table.rows.len(), table.total.requests), (0, 0));
    }

    #[test]
    fn rows_beyond_the_limit_are_summed_in_one() {
        let mut window = Window::default();
        for pid in 0..=u32::try_from(MAX_ROWS).unwrap() {
            window.add(&request(Operation::Read, 10, vec![run(pid, "/x", 512)]));
        }
        let table = window.take(Duration::from_secs(1), Order::Bytes);
        assert_eq!(table.rows.len(), MAX_ROWS);
        assert_eq!(table.beyond.unwrap().read_bytes, 512);
    }
}
