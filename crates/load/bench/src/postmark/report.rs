//! A PostMark run as a run record, and as the lines that people know from the original.

use results::{ImpossibleLatency, RunRecord, Sample, TimedWindow, nearest_f64};
use serde_json::json;

use super::PostmarkOutcome;
use crate::record::{RunIdentity, described, finished, usage_counters};

impl PostmarkOutcome {
    /// Length of the three phases together.
    #[must_use]
    pub const fn elapsed_ns(&self) -> u64 {
        self.create_ns
            .saturating_add(self.transactions_ns)
            .saturating_add(self.delete_ns)
    }

    /// The outcome as a record: one sample for each kind of operation in each phase.
    ///
    /// # Errors
    /// When a latency is longer than its phase.
    pub fn into_record(self, identity: RunIdentity) -> Result<RunRecord, ImpossibleLatency> {
        let samples = self.samples()?;
        let mut counters = usage_counters(self.processor, self.worker);
        for (name, count) in [
            ("postmark_transactions_count", self.transactions_count),
            ("postmark_appends_skipped_count", self.appends_skipped_count),
            ("postmark_creates_skipped_count", self.creates_skipped_count),
        ] {
            counters.insert(name.to_owned(), nearest_f64(count));
        }
        let mut workload = described("postmark", &self.spec, &self.spec.directory);
        workload["layer"] = json!("system_calls");
        workload["ran_out_of_files"] = json!(self.ran_out_of_files);
        Ok(finished(
            identity,
            self.started_unix_ns,
            workload,
            samples,
            counters,
            self.complete,
        ))
    }

    /// What each kind of operation did in each phase.
    pub(super) fn samples(&self) -> Result<Vec<Sample>, ImpossibleLatency> {
        let kinds = [
            ("create_alone", &self.create_alone, self.create_ns),
            ("create_mixed", &self.create_mixed, self.transactions_ns),
            ("read", &self.read, self.transactions_ns),
            ("append", &self.append, self.transactions_ns),
            ("delete_mixed", &self.delete_mixed, self.transactions_ns),
            ("delete_alone", &self.delete_alone, self.delete_ns),
        ];
        let done = kinds.into_iter().filter(|(_, done, _)| done.count > 0);
        done.map(|(operation, done, elapsed_ns)| done.sample(operation, TimedWindow::of(elapsed_ns)))
            .collect()
    }

    /// The report in the form of the original. Rates use the phases that the original uses.
    #[must_use]
    pub fn describe(&self) -> String {
        let (total, mixed) = (self.elapsed_ns(), self.transactions_ns);
        let per_second = |count: u64, window_ns: u64| rate(count, window_ns);
        let created = self.create_alone.count + self.create_mixed.count;
        let deleted = self.delete_alone.count + self.delete_mixed.count;
        let written = self.create_alone.bytes + self.create_mixed.bytes + self.append.bytes;
        let mut text = format!(
            "Time:\n  {:.3} seconds total\n  {:.3} seconds of transactions ({:.0} per second)\n\nFiles:\n",
            seconds(total),
            seconds(mixed),
            per_second(self.transactions_count, mixed),
        );
        for (name, count, window_ns) in [
            ("  created", created, total),
            ("    creation alone", self.create_alone.count, self.create_ns),
            ("    mixed with transactions", self.create_mixed.count, mixed),
            ("  read", self.read.count, mixed),
            ("  appended", self.append.count, mixed),
            ("  deleted", deleted, total),
            ("    deletion alone", self.delete_alone.count, self.delete_ns),
            ("    mixed with transactions", self.delete_mixed.count, mixed),
        ] {
            text.push_str(&format!(
                "{name:<28} {count:>9} files ({:.0} per second)\n",
                per_second(count, window_ns)
            ));
        }
        text.push_str("\nData:\n");
        for (name, bytes) in [("  read", self.read.bytes), ("  written", written)] {
            let megabytes = nearest_f64(bytes) / 1e6;
            text.push_str(&format!(
                "{name:<28} {megabytes:>9.2} MB ({:.2} MB per second)\n",
                rate(bytes, total) / 1e6
            ));
        }
        if self.appends_skipped_count + self.creates_skipped_count > 0 {
            text.push_str(&format!(
                "\nSkipped by the rules of PostMark: {} appends to files of full size, {} creates with a full table\n",
                self.appends_skipped_count, self.creates_skipped_count
            ));
        }
        if self.ran_out_of_files {
            text.push_str(
                "\nOut of files before the last transaction: raise the files or lower the transactions\n",
            );
        }
        text
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nearest_f64(nanoseconds) / 1e9
}

fn rate(amount: u64, window_ns: u64) -> f64 {
    if window_ns == 0 {
        0.0
    } else {
        nearest_f64(amount) / seconds(window_ns)
    }
}
