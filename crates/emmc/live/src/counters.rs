//! The counters of an attached card for `tidegate stats` and `tidegate emmc stats`.

use emmc::packing::Stop;
use nand::TimeScale;
use serde_json::{Map, Value, json};

use crate::{LiveStatistics, Power};

/// Names of values that can fall; all others only grow.
pub const LEVELS: &[&str] = &[
    "late_p50_ns",
    "late_p99_ns",
    "late_max_ns",
    "path_small_read_before_ns",
    "path_small_read_after_ns",
    "path_large_read_before_ns",
    "path_large_read_after_ns",
    "path_small_write_before_ns",
    "path_small_write_after_ns",
    "path_large_write_before_ns",
    "path_large_write_after_ns",
    "time_scale_ratio",
    "volatile_writes_level",
    "power_is_on",
    "write_amplification_ratio",
];

/// A flat object; each name ends with its unit. All times are virtual; `scale` is virtual time per real time.
#[must_use]
pub fn of(statistics: &LiveStatistics, scale: TimeScale) -> Map<String, Value> {
    let outcome = &statistics.outcome;
    let (driver, nand, layer) = (&outcome.driver, &outcome.nand, &outcome.translation);
    let late = statistics.late.summary();
    let path = &statistics.path;
    let mut counters = Map::new();
    counters.insert("time_base".to_owned(), "virtual".into());
    counters.insert("time_scale_ratio".to_owned(), json!(scale.ratio()));
    for (name, value) in [
        ("card_time_ns", statistics.card_time.0),
        ("reads_count", outcome.reads.requests),
        ("read_bytes", outcome.reads.bytes),
        ("writes_count", outcome.writes.requests),
        ("written_bytes", outcome.writes.bytes),
        ("commands_count", driver.commands),
        ("packs_count", driver.packs),
        ("packed_writes_count", driver.packed_write_requests),
        ("full_packs_count", driver.full_packs()),
        ("interrupts_count", driver.interrupts),
        ("flushes_count", driver.flushes),
        ("discards_count", driver.discards),
        ("busy_ns", driver.busy_ns),
        ("programs_count", nand.programs),
        ("lsb_backups_count", nand.backups),
        ("flash_reads_count", nand.reads),
        ("erases_count", nand.erases),
        ("copied_units_count", layer.copied_units),
        ("collections_count", layer.collections),
        ("power_cuts_count", statistics.power.cuts),
        ("late_p50_ns", late.map_or(0, |late| late.p50_ns)),
        ("late_p99_ns", late.map_or(0, |late| late.p99_ns)),
        ("late_max_ns", late.map_or(0, |late| late.max_ns)),
        ("path_small_read_before_ns", path.reads[0].before.0),
        ("path_small_read_after_ns", path.reads[0].after.0),
        ("path_large_read_before_ns", path.reads[1].before.0),
        ("path_large_read_after_ns", path.reads[1].after.0),
        ("path_small_write_before_ns", path.writes[0].before.0),
        ("path_small_write_after_ns", path.writes[0].after.0),
        ("path_large_write_before_ns", path.writes[1].before.0),
        ("path_large_write_after_ns", path.writes[1].after.0),
    ] {
        counters.insert(name.to_owned(), value.into());
    }
    for (stop, _) in Stop::WORDS {
        let name = format!("halts_{}_count", stop.counter_name());
        counters.insert(name, driver.halts_of_attempts[stop.place()].into());
    }
    if let Some(flags) = &statistics.flags {
        for (name, value) in [
            ("flags_joined_count", flags.joined),
            ("flags_unknown_count", flags.unknown),
            ("sync_requests_count", flags.sync),
            ("meta_requests_count", flags.meta),
        ] {
            counters.insert(name.to_owned(), value.into());
        }
    }
    counters.insert(
        "volatile_writes_level".to_owned(),
        statistics.volatile_writes.into(),
    );
    counters.insert(
        "power_is_on".to_owned(),
        (statistics.power.power == Power::On).into(),
    );
    counters.insert(
        "write_amplification_ratio".to_owned(),
        json!(layer.write_amplification()),
    );
    counters
}
