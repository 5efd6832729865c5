//! Human-readable summary of an outcome.

use std::fmt::Write;

use results::{LatencyHistogram, counter, nearest_f64};

use super::SqliteOutcome;
use super::plan::Kind;
use super::spec::{Journal, Place};

impl SqliteOutcome {
    /// The library, the rate, latencies, and the cost of each transaction.
    #[must_use]
    pub fn describe(&self) -> String {
        let spec = &self.spec;
        let mut text = format!(
            "SQLite {} ({}), journal {}, synchronous {}, {} transactions of {} {} in {} {}, {} {}\n",
            self.library.version,
            self.library.origin,
            spec.journal,
            spec.synchronous,
            spec.shape,
            spec.tables,
            plural(u64::from(spec.tables), "table", "tables"),
            spec.databases,
            plural(u64::from(spec.databases), "database", "databases"),
            spec.threads,
            plural(u64::from(spec.threads), "thread", "threads"),
        );
        // Writing to a string cannot fail.
        let _ = self.write_rates(&mut text);
        let _ = self.write_costs(&mut text);
        text
    }

    fn write_rates(&self, text: &mut String) -> std::fmt::Result {
        if let Some(rate) = self.transactions_per_s() {
            let (done, seconds) = (self.transactions(), nearest_f64(self.elapsed_ns()) / 1e9);
            writeln!(text, "  {rate:.1} transactions/s: {done} in {seconds:.3} s")?;
        }
        writeln!(
            text,
            "  latency, us        mean        p50        p90        p99      p99.9        max"
        )?;
        for &kind in Kind::ALL {
            write_latency(text, kind.name(), &self.kind(kind).latency)?;
        }
        write_latency(text, "sync", &self.sync.latency)
    }

    fn write_costs(&self, text: &mut String) -> std::fmt::Result {
        let each = |amount: f64| amount / nearest_f64(self.transactions().max(1));
        write!(
            text,
            "  each transaction: {:.2} syncs, {:.2} writes of {:.0} bytes in all",
            each(nearest_f64(self.sync.count)),
            each(nearest_f64(self.file_writes)),
            each(nearest_f64(self.file_written_bytes)),
        )?;
        for (name, words) in [
            (counter::SYSTEM_CALLS, "system calls"),
            ("system_calls_fdatasync_count", "fdatasync"),
            ("system_calls_fsync_count", "fsync"),
        ] {
            if let Some(calls) = self.window.counters.get(name) {
                write!(text, ", {:.2} {words}", each(*calls))?;
            }
        }
        text.push('\n');
        if let Some(ratio) = self.window.counters.get(counter::WRITE_AMPLIFICATION) {
            writeln!(
                text,
                "  {ratio:.1} bytes reached the device for each byte of a value"
            )?;
        }
        if self.unchanged_statements > 0 {
            let statements = self.transactions() * self.spec.statements();
            writeln!(
                text,
                "  {} of {statements} statements changed no row: there was none with the key",
                self.unchanged_statements
            )?;
        }
        if self.spec.journal == Journal::Wal && self.spec.checkpoint == Place::Inside {
            let checkpoint_ms = nearest_f64(self.checkpoint_ns) / 1e6;
            writeln!(
                text,
                "  {checkpoint_ms:.3} ms of the window: checkpoint at the end"
            )?;
        }
        if self.spec.interval_us > 0 {
            let place = self.spec.interval_place;
            let thought_s = nearest_f64(self.think_ns) / 1e9;
            writeln!(text, "  {thought_s:.3} s of think time, {place} the window")?;
        }
        for absent in &self.window.absent {
            writeln!(text, "  not counted: {}: {}", absent.what, absent.reason)?;
        }
        Ok(())
    }
}

fn write_latency(text: &mut String, name: &str, latency: &LatencyHistogram) -> std::fmt::Result {
    let Some(summary) = latency.summary() else {
        return Ok(());
    };
    let us = |ns: u64| nearest_f64(ns) / 1e3;
    writeln!(
        text,
        "  {name:<12} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1}",
        summary.mean_ns / 1e3,
        us(summary.p50_ns),
        us(summary.p90_ns),
        us(summary.p99_ns),
        us(summary.p99_9_ns),
        us(summary.max_ns),
    )
}

const fn plural(count: u64, one: &'static str, more: &'static str) -> &'static str {
    if count == 1 { one } else { more }
}
