//! The paper's experiments as configurations and workloads.

use media::Nanos;
use results::block_trace::Operation;

use crate::block::{QueueRules, SchedulerKind};
use crate::card::CardFile;
use crate::error::CardError;
use crate::host::HostFile;
use crate::outcome::Outcome;
use crate::packing::{Contiguity, PackRules};
use crate::simulation::{Continue, DiscardMode, DriverMode, Setup, Simulation};
use crate::workload::{
    Actor, DirectRules, JournalRules, Order, Pace, PostmarkRules, RandomFileRules, StreamRules, TracedBio,
    direct, postmark, random_files, replay, stream,
};

/// First sector of tio's data, after metadata and journal.
const DATA_START: u64 = 1 << 19;

/// Scale of the experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaperScale {
    /// Permille of the paper's bytes to run.
    pub permille: u64,
    /// Seed of all random choices.
    pub seed: u64,
}

impl PaperScale {
    pub(super) const fn of(self, number: u64) -> u64 {
        number * self.permille / 1000
    }
}

/// The requests of the two real workloads, produced by the generator of applications.
#[derive(Clone, Debug, Default)]
pub struct Mixes {
    /// Google Drive synchronising.
    pub google_drive: Vec<TracedBio>,
    /// Applications being installed.
    pub app_install: Vec<TracedBio>,
}

/// The phone with a scheduler and packing rules.
pub(super) fn phone(scheduler: SchedulerKind, rules: PackRules) -> Result<Setup, CardError> {
    Ok(Setup {
        card: CardFile::preset("gt-i9300")?,
        host: HostFile::preset("mshci")?,
        queue: QueueRules::usual(scheduler),
        driver: DriverMode::Packed(rules),
        discard: DiscardMode::Discard,
    })
}

fn run(setup: &Setup, actors: Vec<Box<dyn Actor>>) -> Result<Outcome, CardError> {
    Ok(Simulation::new(setup, actors)?.run(|_| Continue::Yes).0)
}

/// tio_seq: 2 GB by one thread (published); dirty limit and memory speed of a phone with 1 GB (assumed).
pub(super) fn tio_seq(
    scale: PaperScale,
    scheduler: SchedulerKind,
    rules: PackRules,
) -> Result<Outcome, CardError> {
    let load = stream(StreamRules {
        total_bytes: scale.of(2 << 30) / 4096 * 4096,
        start: DATA_START,
        chunk_bytes: 4 << 20,
        memory_bytes_per_s: 200_000_000,
        dirty_bytes: 64 << 20,
        journal: JournalRules::ext4(scale.seed),
    });
    run(&phone(scheduler, rules)?, load)
}

/// tio_rand: 2 GB in 4 KB by 4 threads (published), with packing of random writes.
pub(super) fn tio_rand(scale: PaperScale, max_requests: u32) -> Result<Outcome, CardError> {
    let rules = PackRules {
        max_requests,
        contiguity: Contiguity::Free,
        ..PackRules::PHONE
    };
    let load = random_files(RandomFileRules {
        files: 4,
        file_bytes: 512 << 20,
        pages: scale.of((512 << 20) / 4096),
        start: DATA_START,
        batch: 48,
        page_time: Nanos::from_micros(10),
        journal: JournalRules::ext4(scale.seed),
        seed: scale.seed,
    });
    run(&phone(SchedulerKind::Cfq, rules)?, load)
}

/// uFLIP: aligned random writes of one size, at queue depth 1.
pub(super) fn granularity(scale: PaperScale, bytes: u64) -> Result<Outcome, CardError> {
    let count = (scale.of(256 << 20) / bytes).clamp(24, 2000);
    let load = direct(DirectRules {
        operation: Operation::Write,
        order: Order::Random,
        sectors: bytes / 512,
        piece_sectors: 1024,
        count,
        start: DATA_START,
        range: 4 << 21,
        depth: 1,
        seed: scale.seed,
    });
    run(&phone(SchedulerKind::Noop, PackRules::PHONE)?, vec![load])
}

/// A real workload, as fast as the card allows with the queue of a phone.
pub(super) fn mix(requests: &[TracedBio]) -> Result<Outcome, CardError> {
    let load = replay(requests.to_vec(), Pace::Depth(96));
    run(&phone(SchedulerKind::Cfq, PackRules::PHONE)?, vec![load])
}

/// postmark with flex groups on a card half of whose capacity was written before.
pub(super) fn flex(scale: PaperScale, card: &str, flex_groups: u64) -> Result<Outcome, CardError> {
    let mut setup = phone(SchedulerKind::Cfq, PackRules::PHONE)?;
    setup.card = CardFile::preset(card)?;
    let load = postmark(PostmarkRules {
        files: scale.of(5000),
        file_bytes: 1_000_000,
        transactions: scale.of(10_000),
        flex_groups,
        groups: 128,
        interval: Nanos::from_millis(5000),
        seed: scale.seed,
    });
    run(&setup, load)
}
