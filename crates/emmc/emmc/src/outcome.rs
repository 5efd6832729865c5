//! What a run was like: times, commands, packs and why they ended, and what the card did inside.

use std::collections::BTreeMap;

use media::Nanos;
use results::{ImpossibleLatency, LatencyHistogram, Sample, TimedWindow, nearest_f64};
use serde::{Deserialize, Serialize};

use crate::nand_array::NandCounters;
use crate::packing::Stop;
use crate::translation::TranslationCounters;

/// Halts by reason, in the order of [`Stop::WORDS`].
pub type Halts = [u64; Stop::WORDS.len()];

/// What the driver sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverCounters {
    /// Commands with data, a pack being one.
    pub commands: u64,
    /// Packs of two requests and more.
    pub packs: u64,
    /// Halts of all attempts at packing, those that ended with one request included.
    pub halts_of_attempts: Halts,
    /// Halts of packs of two requests and more.
    pub halts_of_packs: Halts,
    /// Attempts by how many requests they gathered.
    pub pack_sizes: Vec<u64>,
    /// Interrupts taken.
    pub interrupts: u64,
    /// Write requests.
    pub write_requests: u64,
    /// Write requests that went in a pack.
    pub packed_write_requests: u64,
    /// Bytes of writes.
    pub write_bytes: u64,
    /// Bytes of writes that went in a pack.
    pub packed_write_bytes: u64,
    /// Bytes of full packs, and the time that they took.
    pub full_pack_bytes: u64,
    /// Time that full packs took, nanoseconds.
    pub full_pack_ns: u64,
    /// Time with a command under way, nanoseconds.
    pub busy_ns: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
}

impl DriverCounters {
    /// Counts an attempt at packing that ended with `size` requests.
    pub fn attempt(&mut self, stop: Stop, size: usize) {
        self.halts_of_attempts[stop.place()] += 1;
        if size > 1 {
            self.packs += 1;
            self.halts_of_packs[stop.place()] += 1;
        }
        if self.pack_sizes.len() <= size {
            self.pack_sizes.resize(size + 1, 0);
        }
        self.pack_sizes[size] += 1;
    }

    /// Mean number of requests of packs.
    #[must_use]
    pub fn mean_pack(&self) -> Option<f64> {
        let (mut packs, mut requests) = (0, 0);
        for (size, count) in (0_u64..).zip(&self.pack_sizes).skip(2) {
            packs += count;
            requests += size * count;
        }
        (packs > 0).then(|| nearest_f64(requests) / nearest_f64(packs))
    }

    /// Halts of packs for one reason.
    #[must_use]
    pub fn halts(&self, stop: Stop) -> u64 {
        self.halts_of_packs[stop.place()]
    }

    /// Packs that were as large as they may be.
    #[must_use]
    pub fn full_packs(&self) -> u64 {
        let full = Stop::WORDS.iter().filter(|(stop, _)| stop.is_full());
        full.map(|(stop, _)| self.halts(*stop)).sum()
    }

    /// Share of write requests that went in a pack, percent.
    #[must_use]
    pub fn packed_percent(&self) -> Option<f64> {
        let share = nearest_f64(self.packed_write_requests) / nearest_f64(self.write_requests);
        (self.write_requests > 0).then_some(share * 100.0)
    }

    /// The share of packs with at most `size` requests, percent (the CDF of figure 13).
    #[must_use]
    pub fn packs_up_to_percent(&self, size: usize) -> Option<f64> {
        let packs: u64 = self.pack_sizes.iter().skip(2).sum();
        let within: u64 = self.pack_sizes.iter().take(size + 1).skip(2).sum();
        (packs > 0).then(|| nearest_f64(within) / nearest_f64(packs) * 100.0)
    }
}

/// Requests of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindOutcome {
    /// How many.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
    /// From submission to completion.
    pub latency: LatencyHistogram,
}

impl Default for KindOutcome {
    fn default() -> Self {
        Self {
            requests: 0,
            bytes: 0,
            latency: LatencyHistogram::new(),
        }
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// From the start until everything was done.
    pub elapsed_ns: u64,
    /// Reads.
    pub reads: KindOutcome,
    /// Writes.
    pub writes: KindOutcome,
    /// The driver.
    pub driver: DriverCounters,
    /// The translation layer.
    pub translation: TranslationCounters,
    /// The banks.
    pub nand: NandCounters,
    /// How long each bank was busy, nanoseconds.
    pub bank_busy_ns: Vec<u64>,
    /// Least and most erases of a super block.
    pub erases: (u32, u32),
}

impl Outcome {
    /// Bytes written over the whole run, MB/s (10^6 bytes a second).
    #[must_use]
    pub fn write_mb_per_s(&self) -> Option<f64> {
        rate(self.writes.bytes, self.elapsed_ns)
    }

    /// Bytes written over the time in which commands were under way, MB/s: what the driver sees.
    #[must_use]
    pub fn device_mb_per_s(&self) -> Option<f64> {
        rate(self.writes.bytes, self.driver.busy_ns)
    }

    /// Bytes of full packs over their time, MB/s.
    #[must_use]
    pub fn full_pack_mb_per_s(&self) -> Option<f64> {
        rate(self.driver.full_pack_bytes, self.driver.full_pack_ns)
    }

    /// Operations for a run record.
    ///
    /// # Errors
    /// When a request took longer than the run.
    pub fn samples(&self) -> Result<Vec<Sample>, ImpossibleLatency> {
        [("read", &self.reads), ("write", &self.writes)]
            .into_iter()
            .filter(|(_, kind)| kind.requests > 0)
            .map(|(operation, kind)| {
                let amounts = (kind.requests, kind.bytes);
                let window = TimedWindow::of(self.elapsed_ns);
                Sample::new(operation, amounts, window, kind.latency.clone())
            })
            .collect()
    }

    /// Further numbers for a run record; the unit is the last word of a name.
    #[must_use]
    pub fn counters(&self) -> BTreeMap<String, f64> {
        let mut counters = BTreeMap::new();
        let mut put = |name: &str, value: u64| {
            counters.insert(name.to_owned(), nearest_f64(value));
        };
        put("emmc_commands_count", self.driver.commands);
        put("emmc_packs_count", self.driver.packs);
        put("emmc_full_packs_count", self.driver.full_packs());
        put("emmc_interrupts_count", self.driver.interrupts);
        put(
            "emmc_packed_write_requests_count",
            self.driver.packed_write_requests,
        );
        put("emmc_flushes_count", self.driver.flushes);
        put("emmc_discards_count", self.driver.discards);
        put("emmc_busy_ns", self.driver.busy_ns);
        put("emmc_lsb_backups_count", self.nand.backups);
        put("emmc_programs_count", self.nand.programs);
        put("emmc_erases_count", self.nand.erases);
        put("emmc_copied_units_count", self.translation.copied_units);
        put("emmc_collections_count", self.translation.collections);
        for (stop, _) in Stop::WORDS {
            put(
                &format!("emmc_halts_{}_count", stop.counter_name()),
                self.driver.halts(stop),
            );
        }
        if let Some(ratio) = self.translation.write_amplification() {
            counters.insert("write_amplification_ratio".to_owned(), ratio);
        }
        counters
    }
}

fn rate(bytes: u64, ns: u64) -> Option<f64> {
    (bytes > 0 && ns > 0).then(|| nearest_f64(bytes) * 1e3 / nearest_f64(ns))
}

/// The time between two moments, for histograms.
#[must_use]
pub(crate) const fn between(from: Nanos, to: Nanos) -> u64 {
    to.0.saturating_sub(from.0)
}
