//! Writes run records in the layout of fio 3's JSON, for programs that read it.
//!
//! Each key that fio 3.33 prints for a job is present, with its meaning and unit. Values that fio samples during the
//! run and we do not (`bw_min`, `iops_stddev` ...) have no samples: `bw_samples` is 0, and so are the fields beside
//! it. `slat_ns` is empty, as with fio's synchronous engines, and submission is part of `clat_ns`.

use jobs::table::step_name;
use results::{LatencyHistogram, RunRecord, Sample, calendar, counter, nearest_f64};
use serde_json::{Map, Value, json};

/// The percentiles that fio prints by default.
const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99,
];

/// Bounds of the latency classes, for both nanoseconds and microseconds.
const BOUNDS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];

/// The end time of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
}

/// The records as one document; each record is a job, in the given order.
#[must_use]
pub fn document(records: &[RunRecord], tool_version: &str, now: &Moment) -> Value {
    json!({
        "fio version": format!("tidegate-{tool_version}"),
        "timestamp": now.unix_ms / 1000,
        "timestamp_ms": now.unix_ms,
        "time": calendar::ctime(i64::try_from(now.unix_ms / 1000).unwrap_or(i64::MAX)),
        "global options": {},
        "jobs": records.iter().enumerate().map(|(group, record)| job(record, group)).collect::<Vec<_>>(),
        "disk_util": records.first().map(disk_util).into_iter().flatten().collect::<Vec<_>>(),
    })
}

fn job(record: &RunRecord, group: usize) -> Value {
    let elapsed_ns = record
        .samples
        .iter()
        .map(|sample| sample.elapsed_ns)
        .max()
        .unwrap_or(0);
    let threads = record
        .workload
        .get("threads")
        .and_then(Value::as_u64)
        .unwrap_or(1)
        .max(1);
    let counted = |name: &str| record.counters.get(name).copied().unwrap_or(0.0);
    let worked_ns = nearest_f64(elapsed_ns) * nearest_f64(threads);
    let share = |time_ns: f64| {
        if worked_ns > 0.0 {
            100.0 * time_ns / worked_ns
        } else {
            0.0
        }
    };
    let user_ns = counted(counter::WORKER_CPU_USER);
    let system_ns = (counted(counter::WORKER_CPU) - user_ns).max(0.0);
    let switches =
        counted(counter::CONTEXT_SWITCHES_VOLUNTARY) + counted(counter::CONTEXT_SWITCHES_INVOLUNTARY);
    let runtime_ms = elapsed_ns / 1_000_000;
    let mut all = LatencyHistogram::new();
    for sample in record.samples.iter().filter(|sample| sample.operation != "sync") {
        all.merge(&sample.latency);
    }
    let depth = depth(record);
    let mut job = Map::new();
    for (key, value) in [
        ("jobname", json!(step_name(record))),
        ("groupid", json!(group)),
        // fio has errno numbers here; our runs end at an error, before there is a record.
        ("error", json!(0)),
        ("eta", json!(0)),
        ("elapsed", json!(elapsed_ns.div_ceil(1_000_000_000))),
        ("job options", options(record)),
        ("read", direction(record.sample("read"))),
        ("write", direction(record.sample("write"))),
        ("trim", direction(None)),
        ("sync", syncs(record.sample("sync"))),
        ("job_runtime", json!(runtime_ms.saturating_mul(threads))),
        ("usr_cpu", json!(share(user_ns))),
        ("sys_cpu", json!(share(system_ns))),
        ("ctx", whole(switches)),
        ("majf", json!(0)),
        ("minf", json!(0)),
        (
            "iodepth_level",
            depths(
                &["1", "2", "4", "8", "16", "32", ">=64"],
                &class_of(depth, &[1, 2, 4, 8, 16, 32]),
            ),
        ),
        (
            "iodepth_submit",
            depths(&["0", "4", "8", "16", "32", "64", ">=64"], "4"),
        ),
        (
            "iodepth_complete",
            depths(&["0", "4", "8", "16", "32", "64", ">=64"], "4"),
        ),
        ("latency_ns", classes(&all, 1, false)),
        ("latency_us", classes(&all, 1000, false)),
        ("latency_ms", classes(&all, 1_000_000, true)),
        ("latency_depth", json!(depth)),
        ("latency_target", json!(0)),
        ("latency_percentile", json!(100.0)),
        ("latency_window", json!(0)),
    ] {
        job.insert(key.to_owned(), value);
    }
    Value::Object(job)
}

fn direction(sample: Option<&Sample>) -> Value {
    let (bytes, operations) = sample.map_or((0, 0), |sample| (sample.bytes, sample.operations_count));
    let elapsed_ns = sample.map_or(0, |sample| sample.elapsed_ns);
    let per_second = |amount: u64| {
        if elapsed_ns == 0 {
            0.0
        } else {
            nearest_f64(amount) * 1e9 / nearest_f64(elapsed_ns)
        }
    };
    let bytes_per_s = per_second(bytes);
    let mut block = Map::new();
    for (key, value) in [
        ("io_bytes", json!(bytes)),
        ("io_kbytes", json!(bytes / 1024)),
        ("bw_bytes", whole(bytes_per_s)),
        ("bw", whole(bytes_per_s / 1024.0)),
        ("iops", json!(per_second(operations))),
        ("runtime", json!(elapsed_ns / 1_000_000)),
        ("total_ios", json!(operations)),
        ("short_ios", json!(0)),
        ("drop_ios", json!(0)),
        ("slat_ns", latency(None, false)),
        ("clat_ns", latency(sample.map(|sample| &sample.latency), true)),
        ("lat_ns", latency(sample.map(|sample| &sample.latency), false)),
        ("bw_min", json!(0)),
        ("bw_max", json!(0)),
        ("bw_agg", json!(0.0)),
        ("bw_mean", json!(0.0)),
        ("bw_dev", json!(0.0)),
        ("bw_samples", json!(0)),
        ("iops_min", json!(0)),
        ("iops_max", json!(0)),
        ("iops_mean", json!(0.0)),
        ("iops_stddev", json!(0.0)),
        ("iops_samples", json!(0)),
    ] {
        block.insert(key.to_owned(), value);
    }
    Value::Object(block)
}

fn syncs(sample: Option<&Sample>) -> Value {
    json!({
        "total_ios": sample.map_or(0, |sample| sample.operations_count),
        "lat_ns": latency(sample.map(|sample| &sample.latency), true),
    })
}

/// fio omits the percentiles if there was no operation.
fn latency(histogram: Option<&LatencyHistogram>, with_percentiles: bool) -> Value {
    let found = histogram.and_then(|histogram| Some((histogram, histogram.summary()?)));
    let Some((histogram, summary)) = found else {
        return json!({ "min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0 });
    };
    let mut value = json!({
        "min": summary.min_ns,
        "max": summary.max_ns,
        "mean": summary.mean_ns,
        "stddev": histogram.standard_deviation_ns(),
        "N": summary.count,
    });
    if with_percentiles {
        let percentiles: Map<String, Value> = PERCENTILES
            .iter()
            .map(|percent| (format!("{percent:.6}"), json!(histogram.percentile_ns(*percent))))
            .collect();
        value["percentile"] = Value::Object(percentiles);
    }
    value
}

/// Shares of operations by latency class: above the previous bound, up to the class's own.
fn classes(all: &LatencyHistogram, unit_ns: u64, is_last: bool) -> Value {
    let total = nearest_f64(all.count().max(1));
    let share = |above_ns: u64, limit_ns: Option<u64>| {
        let above = if above_ns == 0 {
            all.count()
        } else {
            all.count_above(above_ns)
        };
        let beyond = limit_ns.map_or(0, |limit_ns| all.count_above(limit_ns));
        json!(100.0 * nearest_f64(above.saturating_sub(beyond)) / total)
    };
    let mut found = Map::new();
    // The lower bound of the first class: 1000 of the smaller unit, which is 1 of this one.
    let mut below_ns = if unit_ns == 1 { 0 } else { unit_ns };
    for bound in BOUNDS {
        found.insert(bound.to_string(), share(below_ns, Some(bound * unit_ns)));
        below_ns = bound * unit_ns;
    }
    if is_last {
        found.insert("2000".to_owned(), share(below_ns, Some(2000 * unit_ns)));
        found.insert(">=2000".to_owned(), share(2000 * unit_ns, None));
    }
    Value::Object(found)
}

fn depths(names: &[&str], full: &str) -> Value {
    let share = |name: &str| if name == full { 100.0 } else { 0.0 };
    names
        .iter()
        .map(|name| ((*name).to_owned(), json!(share(name))))
        .collect::<Map<_, _>>()
        .into()
}

fn class_of(depth: u64, bounds: &[u64]) -> String {
    if depth >= 64 {
        return ">=64".to_owned();
    }
    let class = bounds
        .iter()
        .rev()
        .find(|bound| **bound <= depth)
        .copied()
        .unwrap_or(1);
    class.to_string()
}

fn depth(record: &RunRecord) -> u64 {
    record
        .workload
        .pointer("/engine/io_uring/depth")
        .and_then(Value::as_u64)
        .unwrap_or(1)
}

/// The workload's description, with its values as text.
fn options(record: &RunRecord) -> Value {
    let fields = record.workload.as_object().into_iter().flatten();
    fields
        .filter(|(_, value)| !value.is_null() && !value.is_object())
        .map(|(key, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (key.clone(), json!(text))
        })
        .collect::<Map<_, _>>()
        .into()
}

fn disk_util(record: &RunRecord) -> Option<Value> {
    let name = record.target.block_device.as_deref()?;
    let counted = |name: &str| record.counters.get(name).copied().unwrap_or(0.0);
    let elapsed_ns = record
        .samples
        .iter()
        .map(|sample| sample.elapsed_ns)
        .max()
        .unwrap_or(0);
    let busy_ms = counted(counter::DEVICE_BUSY);
    let elapsed_ms = (nearest_f64(elapsed_ns) / 1e6).max(1.0);
    Some(json!({
        "name": name,
        "read_ios": whole(counted(counter::DEVICE_READS)),
        "write_ios": whole(counted(counter::DEVICE_WRITES)),
        "read_merges": 0,
        "write_merges": 0,
        "read_ticks": 0,
        "write_ticks": 0,
        "in_queue": 0,
        "util": (100.0 * busy_ms / elapsed_ms).min(100.0),
    }))
}

/// Converts a count that was stored as a floating-point number back to an integer.
fn whole(value: f64) -> Value {
    let text = format!("{:.0}", value.max(0.0));
    json!(text.parse::<u64>().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_in_one_class() {
        let mut histogram = LatencyHistogram::new();
        for latency_ns in [1, 3, 900, 5_000, 400_000, 3_000_000, 5_000_000_000] {
            histogram.record(latency_ns);
        }
        let sum: f64 = [(1, false), (1000, false), (1_000_000, true)]
            .into_iter()
            .flat_map(|(unit, is_last)| {
                let classes = classes(&histogram, unit, is_last);
                let shares = classes
                    .as_object()
                    .expect("an object")
                    .values()
                    .cloned()
                    .collect::<Vec<_>>();
                shares.into_iter().filter_map(|share| share.as_f64())
            })
            .sum();
        assert!((sum - 100.0).abs() < 1e-9, "{sum}");
    }
}
