//! Compares two sets of records: for each workload and operation found in both, a ratio with its interval.
//!
//! Workloads match when their descriptions are equal, apart from the fields that only give location or order
//! ([`NOT_PART_OF_THE_WORKLOAD`]). Labels separate the runs when a set has several labels. When each set has one
//! label, the label is the configuration under comparison and need not agree. Rounds are paired only when the start
//! times show that the two sets were interleaved; otherwise the ratio is that of two unpaired groups (see
//! [`Estimate::of_ratio`]).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::interval::{Estimate, Noise, RatioVerdict};
use crate::rate::{RateUnit, has_own_speed};
use crate::record::{HostInfo, RunRecord, TargetInfo};
use crate::statistics::{RoundValue, paired_ratio};

/// Fields of a workload's description that may differ between compared runs.
pub const NOT_PART_OF_THE_WORKLOAD: [&str; 8] = [
    "directory",
    "job",
    "seed",
    "cache_state",
    "cache_method",
    "keep_files",
    "library_version",
    "path",
];

/// Fields that identify an unnamed workload in tables.
const TELLING_FIELDS: [&str; 9] = [
    "pattern",
    "operation",
    "record_bytes",
    "mode",
    "journal_mode",
    "journal",
    "synchronous",
    "threads",
    "engine",
];

/// Reasons why two sets of records cannot be compared.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ComparisonError {
    /// A set has no complete record.
    #[error("{set} has no complete record")]
    Empty {
        /// `A` or `B`.
        set: &'static str,
    },
    /// The sets have no workload in common.
    #[error("A and B have no workload in common: A ran {a}, B ran {b}{difference}")]
    NothingInCommon {
        /// Workloads of A.
        a: String,
        /// Workloads of B.
        b: String,
        /// Differences between the first workload of each set; empty if the titles above already show them.
        difference: String,
    },
}

/// Comparison of one kind of operation of one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedOperation {
    /// Short description of the workload.
    pub workload: String,
    /// The configuration, if a set has several.
    pub label: Option<String>,
    /// The operation.
    pub operation: String,
    /// Unit of `a` and `b`.
    pub unit: RateUnit,
    /// Median speed of A.
    pub a: Estimate,
    /// Median speed of B.
    pub b: Estimate,
    /// B over A.
    pub ratio: Estimate,
    /// Verdict on B, from the ratio.
    pub verdict: RatioVerdict,
    /// True when rounds were interleaved and the ratio was formed within each.
    pub paired: bool,
}

/// Comparison of two sets of records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordComparison {
    /// In the order of A's records; at least one.
    pub operations: Vec<ComparedOperation>,
    /// Operations that only one set has.
    pub left_out: Vec<String>,
    /// Reasons to doubt the comparison: different machines, noise, incomplete runs.
    pub warnings: Vec<String>,
}

/// The workload without the fields that may differ, and the label if labels matter.
type GroupKey = (String, Option<String>);

/// Records of one workload and label.
type Groups<'records> = BTreeMap<GroupKey, Vec<&'records RunRecord>>;

impl RecordComparison {
    /// Compares `b` with `a`, which is the baseline.
    ///
    /// # Errors
    /// When a set is empty or they have no workload in common.
    pub fn of(a: &[RunRecord], b: &[RunRecord]) -> Result<Self, ComparisonError> {
        let mut warnings = incomplete(a, "A");
        warnings.extend(incomplete(b, "B"));
        let complete = |records: &[RunRecord]| -> Vec<RunRecord> {
            records.iter().filter(|one| one.complete).cloned().collect()
        };
        let (a, b) = (complete(a), complete(b));
        for (records, set) in [(&a, "A"), (&b, "B")] {
            if records.is_empty() {
                return Err(ComparisonError::Empty { set });
            }
        }
        let labels_matter = has_several_labels(&a) || has_several_labels(&b);
        let (groups_a, groups_b) = (groups(&a, labels_matter), groups(&b, labels_matter));
        let mut left_out: Vec<String> = Vec::new();
        for (from, into, set) in [(&groups_a, &groups_b, "A"), (&groups_b, &groups_a, "B")] {
            let alone = from.iter().filter(|(key, _)| !into.contains_key(*key));
            left_out
                .extend(alone.map(|(key, records)| format!("only in {set}: {}", group_title(key, records))));
        }
        let operations: Vec<ComparedOperation> = ordered(&groups_a)
            .into_iter()
            .filter_map(|key| Some((key, groups_a.get(key)?, groups_b.get(key)?)))
            .flat_map(|(key, of_a, of_b)| compared(key.1.as_deref(), of_a, of_b))
            .collect();
        if operations.is_empty() {
            return Err(nothing_in_common(&a, &b));
        }
        warnings.extend(host_differences(&a[0].host, &b[0].host));
        for (groups, others, set) in [(&groups_a, &groups_b, "A"), (&groups_b, &groups_a, "B")] {
            let compared = groups.iter().filter(|(key, _)| others.contains_key(*key));
            warnings.extend(
                compared.flat_map(|(key, records)| noise_of(&format!("{set} is noisy"), key, records)),
            );
        }
        Ok(Self {
            operations,
            left_out,
            warnings,
        })
    }
}

/// Noise found in the repeated runs, one sentence for each finding of each workload.
#[must_use]
pub fn noise_by_workload(records: &[RunRecord]) -> Vec<String> {
    let groups = groups(records, true);
    ordered(&groups)
        .into_iter()
        .filter_map(|key| Some((key, groups.get(key)?)))
        .flat_map(|(key, records)| noise_of("noisy", key, records))
        .collect()
}

/// Short description of the file system and device.
#[must_use]
pub fn target_title(target: &TargetInfo) -> String {
    let kind = target
        .file_system_type
        .as_deref()
        .unwrap_or("unknown file system");
    let device = target.block_device.as_deref().or(target.mount_source.as_deref());
    device.map_or_else(
        || format!("{} ({kind})", target.path),
        |device| format!("{} ({kind}, {device})", target.path),
    )
}

/// Short description of a workload: its name, or its kind and its identifying fields.
#[must_use]
pub fn workload_title(workload: &Value) -> String {
    let text = |field: &str| workload.get(field).and_then(Value::as_str).map(str::to_owned);
    let mut words = vec![
        text("name")
            .or_else(|| text("kind"))
            .unwrap_or_else(|| "workload".to_owned()),
    ];
    if text("name").is_none() {
        words.extend(TELLING_FIELDS.iter().filter_map(|field| telling(workload, field)));
    }
    words.join(" ")
}

fn telling(workload: &Value, field: &str) -> Option<String> {
    match (field, workload.get(field)?) {
        ("threads", Value::Number(threads)) if threads.as_u64() == Some(1) => None,
        ("threads", Value::Number(threads)) => Some(format!("{threads} threads")),
        ("record_bytes", Value::Number(bytes)) => bytes.as_u64().map(|bytes| {
            if bytes.is_multiple_of(1024) {
                format!("{}k", bytes / 1024)
            } else {
                format!("{bytes} bytes")
            }
        }),
        (_, Value::String(text)) => Some(text.replace('_', "-")),
        // An enum variant with values, such as {"mixed":{"read_percent":70}}.
        (_, Value::Object(variant)) => {
            let (name, values) = variant.iter().next()?;
            let value = values.as_object().and_then(|values| values.values().next());
            Some(value.map_or_else(|| name.clone(), |value| format!("{name} {value}")))
        }
        _ => None,
    }
}

fn workload_key(record: &RunRecord) -> String {
    let mut workload = record.workload.clone();
    if let Some(fields) = workload.as_object_mut() {
        fields.retain(|name, _| !NOT_PART_OF_THE_WORKLOAD.contains(&name.as_str()));
    }
    workload.to_string()
}

fn has_several_labels(records: &[RunRecord]) -> bool {
    records.iter().any(|record| record.label != records[0].label)
}

fn groups(records: &[RunRecord], labels_matter: bool) -> Groups<'_> {
    let mut groups = Groups::new();
    for record in records {
        let label = labels_matter.then(|| record.label.clone());
        groups
            .entry((workload_key(record), label))
            .or_default()
            .push(record);
    }
    groups
}

/// The group keys, ordered by their first run.
fn ordered<'groups>(groups: &'groups Groups<'_>) -> Vec<&'groups GroupKey> {
    let mut all: Vec<_> = groups.iter().collect();
    all.sort_by_key(|(_, records)| records.iter().map(|record| record.started_unix_ns).min());
    all.into_iter().map(|(key, _)| key).collect()
}

fn group_title(key: &GroupKey, records: &[&RunRecord]) -> String {
    let workload = records
        .first()
        .map_or_else(String::new, |record| workload_title(&record.workload));
    match &key.1 {
        Some(label) => format!("{workload} ({label})"),
        None => workload,
    }
}

fn noise_of(beginning: &str, key: &GroupKey, records: &[&RunRecord]) -> Vec<String> {
    let title = group_title(key, records);
    let records: Vec<RunRecord> = records.iter().map(|&record| record.clone()).collect();
    let noise = Noise::of(&records);
    noise
        .iter()
        .map(|noise| format!("{beginning}, {title}: {noise}"))
        .collect()
}

fn compared(label: Option<&str>, a: &[&RunRecord], b: &[&RunRecord]) -> Vec<ComparedOperation> {
    let paired = are_interleaved(a, b);
    let one = |operation: &str| {
        let unit = RateUnit::of(a[0].sample(operation)?);
        let rates = |records: &[&RunRecord]| -> Vec<RoundValue> {
            let rate = |record: &&RunRecord| {
                Some(RoundValue {
                    round: record.round,
                    value: unit.rate(record.sample(operation)?)?,
                })
            };
            records.iter().filter_map(rate).collect()
        };
        let values = |rounds: &[RoundValue]| -> Vec<f64> { rounds.iter().map(|one| one.value).collect() };
        let (rates_a, rates_b) = (rates(a), rates(b));
        let (values_a, values_b) = (values(&rates_a), values(&rates_b));
        let ratio = if paired {
            Estimate::of_paired_ratio(&paired_ratio(&rates_a, &rates_b)?)?
        } else {
            Estimate::of_ratio(&values_a, &values_b)?
        };
        Some(ComparedOperation {
            workload: workload_title(&a[0].workload),
            label: label.map(str::to_owned),
            operation: operation.to_owned(),
            unit,
            a: Estimate::of_median(&values_a)?,
            b: Estimate::of_median(&values_b)?,
            ratio,
            verdict: ratio.verdict(),
            paired,
        })
    };
    a[0].samples
        .iter()
        .filter(|sample| has_own_speed(sample))
        .filter_map(|sample| one(&sample.operation))
        .collect()
}

/// True when both sets ran exactly once in every round, and each round of both began after the previous round of
/// both.
fn are_interleaved(a: &[&RunRecord], b: &[&RunRecord]) -> bool {
    let rounds = |records: &[&RunRecord]| -> BTreeMap<u32, u64> {
        let starts = records
            .iter()
            .map(|record| (record.round, record.started_unix_ns));
        starts.collect()
    };
    let (rounds_a, rounds_b) = (rounds(a), rounds(b));
    if rounds_a.len() != a.len() || rounds_b.len() != b.len() || !rounds_a.keys().eq(rounds_b.keys()) {
        return false;
    }
    let spans: Vec<(u64, u64)> = rounds_a
        .values()
        .zip(rounds_b.values())
        .map(|(&one, &other)| (one.min(other), one.max(other)))
        .collect();
    spans.len() > 1 && spans.windows(2).all(|pair| pair[0].1 < pair[1].0)
}

fn incomplete(records: &[RunRecord], set: &str) -> Vec<String> {
    let count = records.iter().filter(|record| !record.complete).count();
    (count > 0)
        .then(|| format!("{set}: {count} runs were stopped before their end and are left out"))
        .into_iter()
        .collect()
}

fn host_differences(a: &HostInfo, b: &HostInfo) -> Vec<String> {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let differences = [
        ("kernel", a.kernel.clone(), b.kernel.clone()),
        ("architecture", a.machine.clone(), b.machine.clone()),
        ("processor", text(&a.processor), text(&b.processor)),
        ("processors", a.cpus.to_string(), b.cpus.to_string()),
        ("frequency governor", text(&a.governor), text(&b.governor)),
    ];
    differences
        .into_iter()
        .filter(|(_, of_a, of_b)| of_a != of_b)
        .map(|(what, of_a, of_b)| format!("the machines differ in {what}: A {of_a}, B {of_b}"))
        .collect()
}

fn nothing_in_common(a: &[RunRecord], b: &[RunRecord]) -> ComparisonError {
    let titles = |records: &[RunRecord]| -> String {
        let all: BTreeSet<String> = records
            .iter()
            .map(|record| workload_title(&record.workload))
            .collect();
        let mut all: Vec<String> = all.into_iter().collect();
        if all.len() > 4 {
            all.truncate(4);
            all.push("...".to_owned());
        }
        all.join(", ")
    };
    let differing = differing_fields(&a[0].workload, &b[0].workload);
    let same_workload = workload_key(&a[0]) == workload_key(&b[0]);
    let difference = if same_workload {
        format!("; the labels differ ({}, {})", a[0].label, b[0].label)
    } else if differing.is_empty() {
        String::new()
    } else {
        format!("; the first of each differ in {}", differing.join(", "))
    };
    ComparisonError::NothingInCommon {
        a: titles(a),
        b: titles(b),
        difference,
    }
}

fn differing_fields(a: &Value, b: &Value) -> Vec<String> {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else {
        return Vec::new();
    };
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let shown = |value: Option<&Value>| value.map_or_else(|| "not there".to_owned(), ToString::to_string);
    names
        .into_iter()
        .filter(|name| !NOT_PART_OF_THE_WORKLOAD.contains(&name.as_str()) && a.get(*name) != b.get(*name))
        .map(|name| format!("{name} ({}, {})", shown(a.get(name)), shown(b.get(name))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    /// One run per round with the given lengths: the first starts at `start`, each next one `step` later.
    fn runs(label: &str, lengths_ms: &[u64], start: u64, step: u64) -> Vec<RunRecord> {
        (0_u32..)
            .zip(lengths_ms)
            .map(|(round, ms)| {
                let mut one = record(label, round, 1 << 20, ms * 1_000_000);
                one.started_unix_ns = start + u64::from(round) * step;
                one
            })
            .collect()
    }

    #[test]
    fn groups_measured_after_each_other_are_not_paired() {
        let a = runs("a", &[100, 101, 102, 103], 1_000, 10);
        let b = runs("b", &[50, 51, 50, 49], 2_000, 10);
        let compared = RecordComparison::of(&a, &b).unwrap();
        let write = &compared.operations[0];
        assert!(!write.paired && write.label.is_none());
        assert_eq!(write.verdict, RatioVerdict::Higher);
        assert!((write.ratio.value - 2.0).abs() < 0.1, "{write:?}");
    }

    #[test]
    fn interleaved_rounds_are_paired() {
        // The machine slows down tenfold in the middle; inside each round B takes half as long.
        let a = runs("a", &[100, 100, 100, 1000, 1000, 1000], 0, 10);
        let b = runs("b", &[50, 50, 50, 500, 500, 500], 5, 10);
        let compared = RecordComparison::of(&a, &b).unwrap();
        assert!(compared.operations[0].paired);
        assert_eq!(compared.operations[0].ratio.low, 2.0);
        assert_eq!(compared.operations[0].verdict, RatioVerdict::Higher);
        assert!(
            compared.warnings.iter().any(|warning| warning.contains("noisy")),
            "{compared:?}"
        );
    }

    #[test]
    fn several_labels_are_compared_each_with_its_own() {
        let of = |start| {
            let mut both = runs("native", &[100, 101, 102], start, 10);
            both.extend(runs("fuse", &[200, 201, 202], start + 500, 10));
            both
        };
        let compared = RecordComparison::of(&of(0), &of(9_000)).unwrap();
        let labels: Vec<_> = compared
            .operations
            .iter()
            .map(|one| one.label.as_deref())
            .collect();
        assert_eq!(labels, [Some("native"), Some("fuse")]);
    }

    #[test]
    fn other_workloads_are_refused_with_the_field_that_differs() {
        let a = runs("a", &[100], 0, 1);
        let mut b = runs("b", &[100], 0, 1);
        b[0].workload["record_bytes"] = 8192.into();
        let error = RecordComparison::of(&a, &b).unwrap_err().to_string();
        assert!(
            error.contains("workload 4k") && error.contains("record_bytes (4096, 8192)"),
            "{error}"
        );
    }

    #[test]
    fn what_only_one_has_is_named() {
        let a = runs("a", &[100, 100, 100], 0, 1);
        let mut b = a.clone();
        b[2].workload["name"] = "files-10k".into();
        let compared = RecordComparison::of(&a, &b).unwrap();
        assert_eq!(compared.left_out, ["only in B: files-10k"]);
    }

    #[test]
    fn place_and_seed_do_not_make_another_workload() {
        let a = runs("a", &[100], 0, 1);
        let mut b = a.clone();
        b[0].workload["directory"] = "/elsewhere".into();
        b[0].workload["seed"] = 7.into();
        assert!(RecordComparison::of(&a, &b).is_ok());
    }

    #[test]
    fn other_machines_and_stopped_runs_are_warned_of() {
        let a = runs("a", &[100, 100], 0, 1);
        let mut b = a.clone();
        b[0].host.kernel = "Linux 9".to_owned();
        b[1].complete = false;
        let warnings = RecordComparison::of(&a, &b).unwrap().warnings.join("\n");
        assert!(
            warnings.contains("kernel") && warnings.contains("1 runs were stopped"),
            "{warnings}"
        );
        b[0].complete = false;
        assert_eq!(
            RecordComparison::of(&a, &b),
            Err(ComparisonError::Empty { set: "B" })
        );
    }
}
