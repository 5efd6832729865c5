//! Result of a run: times, commands, packs and the reasons why they ended, and counters of the card.

use std::collections::BTreeMap;

use media::Nanos;
use results::{ImpossibleLatency, LatencyHistogram, Sample, TimedWindow, nearest_f64};
use serde::{Deserialize, Serialize};

use crate::nand_array::NandCounters;
use crate::packing::Stop;
use crate::translation::TranslationCounters;

/// Number of packing stops by reason, in the order of [`Stop::WORDS`].
pub type Halts = [u64; Stop::WORDS.len()];

/// Counters of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverCounters {
    /// Commands with data; a pack counts as one.
    pub commands: u64,
    /// Packs of at least two requests.
    pub packs: u64,
    /// Stops of all packing attempts, including those that ended with a single request.
    pub halts_of_attempts: Halts,
    /// Stops of packs of at least two requests.
    pub halts_of_packs: Halts,
    /// Attempts by the number of requests gathered.
    pub pack_sizes: Vec<u64>,
    /// Interrupts.
    pub interrupts: u64,
    /// Write requests.
    pub write_requests: u64,
    /// Write requests that were part of a pack.
    pub packed_write_requests: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Bytes written in packs.
    pub packed_write_bytes: u64,
    /// Bytes of full packs.
    pub full_pack_bytes: u64,
    /// Time that full packs took, nanoseconds.
    pub full_pack_ns: u64,
    /// Time with a command in progress, nanoseconds.
    pub busy_ns: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
}

impl DriverCounters {
    /// Counts a packing attempt that ended with `size` requests.
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

    /// Mean number of requests per pack.
    #[must_use]
    pub fn mean_pack(&self) -> Option<f64> {
        let (mut packs, mut requests) = (0, 0);
        for (size, count) in (0_u64..).zip(&self.pack_sizes).skip(2) {
            packs += count;
            requests += size * count;
        }
        (packs > 0).then(|| nearest_f64(requests) / nearest_f64(packs))
    }

    /// Number of packs that ended for one reason.
    #[must_use]
    pub fn halts(&self, stop: Stop) -> u64 {
        self.halts_of_packs[stop.place()]
    }

    /// Packs of the maximum size.
    #[must_use]
    pub fn full_packs(&self) -> u64 {
        let full = Stop::WORDS.iter().filter(|(stop, _)| stop.is_full());
        full.map(|(stop, _)| self.halts(*stop)).sum()
    }

    /// Share of write requests that were part of a pack, percent.
    #[must_use]
    pub fn packed_percent(&self) -> Option<f64> {
        let share = nearest_f64(self.packed_write_requests) / nearest_f64(self.write_requests);
        (self.write_requests > 0).then_some(share * 100.0)
    }

    /// Share of packs with at most `size` requests, percent (the CDF of figure 13).
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
    /// Number of requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
    /// Latency from submission to completion.
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

/// Result of a run. Counters are those of the run: writes that filled the card before it are not included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Time from the start until everything was done.
    pub elapsed_ns: u64,
    /// Time from the start until the card's flash was idle too, at least [`Self::elapsed_ns`].
    pub card_ns: u64,
    /// Reads.
    pub reads: KindOutcome,
    /// Writes.
    pub writes: KindOutcome,
    /// Counters of the driver.
    pub driver: DriverCounters,
    /// Counters of the translation layer.
    pub translation: TranslationCounters,
    /// Counters of the banks.
    pub nand: NandCounters,
    /// Busy time of each bank, nanoseconds.
    pub bank_busy_ns: Vec<u64>,
    /// Energy of the flash until it is idle, with standby, picojoules; `None` if the card's power is unknown.
    pub energy_pj: Option<u128>,
    /// Wear of the card: minimum and maximum erase counter of the super blocks, including erases before the run.
    pub erases: (u32, u32),
}

impl Outcome {
    /// Write throughput over the whole run, MB/s (10^6 bytes per second).
    #[must_use]
    pub fn write_mb_per_s(&self) -> Option<f64> {
        rate(self.writes.bytes, self.elapsed_ns)
    }

    /// Write throughput over the time with commands in progress, MB/s: the view of the driver.
    #[must_use]
    pub fn device_mb_per_s(&self) -> Option<f64> {
        rate(self.writes.bytes, self.driver.busy_ns)
    }

    /// Throughput of full packs, MB/s.
    #[must_use]
    pub fn full_pack_mb_per_s(&self) -> Option<f64> {
        rate(self.driver.full_pack_bytes, self.driver.full_pack_ns)
    }

    /// Share of the time that the least and the most busy bank worked, percent; at most 100.
    #[must_use]
    pub fn bank_busy_percent(&self) -> Option<(f64, f64)> {
        let percent = |busy: u64| nearest_f64(busy) * 100.0 / nearest_f64(self.card_ns.max(1));
        let (least, most) = (self.bank_busy_ns.iter().min()?, self.bank_busy_ns.iter().max()?);
        Some((percent(*least), percent(*most)))
    }

    /// Energy of the flash in millijoules; `None` if the card's power is unknown.
    #[must_use]
    pub fn energy_mj(&self) -> Option<f64> {
        self.energy_pj.map(|energy| match u64::try_from(energy) {
            Ok(energy) => nearest_f64(energy) / 1e9,
            Err(_) => nearest_f64(u64::try_from(energy / 1_000_000_000).unwrap_or(u64::MAX)),
        })
    }

    /// Samples for a run record.
    ///
    /// # Errors
    /// If a request took longer than the run.
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

    /// Further counters for a run record; the last word of each name is the unit.
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
        if let Some(energy) = self.energy_mj() {
            counters.insert("emmc_flash_energy_mj".to_owned(), energy);
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

/// The time from `from` to `to`, for histograms.
#[must_use]
pub(crate) const fn between(from: Nanos, to: Nanos) -> u64 {
    to.0.saturating_sub(from.0)
}
