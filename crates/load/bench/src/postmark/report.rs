//! Converts a PostMark run to a run record, and to the report format of the original.

use std::sync::atomic::AtomicBool;

use results::{ImpossibleLatency, Sample, TimedWindow, nearest_f64};

use super::{PostmarkOutcome, PostmarkSpec};
use crate::error::BenchError;
use crate::progress::Progress;
use crate::workload::{Measurement, Outcome, TextForm, Workload, usage_counters};

impl PostmarkOutcome {
    /// Total duration of the three phases.
    #[must_use]
    pub const fn elapsed_ns(&self) -> u64 {
        self.create_ns
            .saturating_add(self.transactions_ns)
            .saturating_add(self.delete_ns)
    }

    /// One sample per kind of operation and phase.
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

    /// The report in the original's format. Rates use the same phases as the original.
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

impl Measurement for PostmarkOutcome {
    fn outcome(self) -> Result<Outcome, ImpossibleLatency> {
        let mut outcome = Outcome::new("postmark", &self.spec, &self.spec.directory);
        outcome.complete = self.complete;
        outcome.started_unix_ns = self.started_unix_ns;
        outcome.samples = self.samples()?;
        outcome.counters = usage_counters(self.processor, self.worker);
        for (name, count) in [
            ("postmark_transactions_count", self.transactions_count),
            ("postmark_appends_skipped_count", self.appends_skipped_count),
            ("postmark_creates_skipped_count", self.creates_skipped_count),
        ] {
            outcome.count(name, count);
        }
        outcome.fact("layer", "system_calls");
        outcome.fact("ran_out_of_files", self.ran_out_of_files);
        outcome.leftover(self.leftover.as_ref());
        if self.ran_out_of_files {
            outcome.notes.push(format!(
                "no file was left after {} transactions; raise --files or --create-bias",
                self.transactions_count
            ));
        }
        outcome.text = self.describe() + "\n";
        outcome.text_form = TextForm::Table;
        Ok(outcome)
    }
}

impl Workload for PostmarkSpec {
    /// The seed has no effect: the original's seed is part of the specification.
    fn run(&self, _seed: u64, progress: &dyn Progress, stop: &AtomicBool) -> Result<Outcome, BenchError> {
        Ok(super::run(self, progress, stop)?.outcome()?)
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
