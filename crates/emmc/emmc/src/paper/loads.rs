//! The paper's experiments as configurations and workloads.

use std::ops::ControlFlow;

use media::Nanos;
use results::block_trace::Operation;

use super::World;
use crate::block::{QueueRules, SchedulerKind};
use crate::card::{CardFile, TranslationKind};
use crate::device::Card;
use crate::error::CardError;
use crate::host::HostFile;
use crate::outcome::Outcome;
use crate::packing::{Contiguity, PackRules};
use crate::simulation::{DiscardMode, DriverMode, Setup, Simulation};
use crate::workload::{
    Actor, DirectRules, JournalRules, Order, Pace, PostmarkRules, RandomFileRules, ReaderRules, StreamRules,
    TracedBio, background_reads, direct, postmark, random_files, replay, stream,
};

/// First sector of tio's data, after metadata, journal and the files that other programs read.
pub(super) const DATA_START: u64 = 1 << 19;

/// Files of other programs: first sector and sectors.
const OTHER_FILES: (u64, u64) = (160 << 11, 96 << 11);

/// Scale of the experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaperScale {
    /// Permille of the paper's bytes to run.
    pub permille: u64,
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

/// State of the card before an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wear {
    /// Erased.
    New,
    /// After long use ([`World::used`]).
    Used,
}

impl World {
    pub(super) fn setup(&self, scheduler: SchedulerKind, rules: PackRules) -> Setup {
        Setup {
            card: self.phone.clone(),
            host: self.host.clone(),
            queue: QueueRules::usual(scheduler),
            driver: DriverMode::Packed(rules),
            discard: DiscardMode::Discard,
        }
    }

    pub(super) fn journal(&self) -> JournalRules {
        JournalRules {
            interval: self.commits_every,
            in_place: self.metadata_every,
            ..JournalRules::ext4(self.seed)
        }
    }

    /// Reads of other programs beside a load.
    pub(super) fn with_readers(&self, mut load: Vec<Box<dyn Actor>>) -> Vec<Box<dyn Actor>> {
        if self.reads_every > Nanos::ZERO {
            load.push(background_reads(ReaderRules {
                every: self.reads_every,
                sectors: 32,
                start: OTHER_FILES.0,
                range: OTHER_FILES.1,
                seed: self.seed,
            }));
        }
        load
    }

    /// A card as it is after long use: written completely; of a page map, a quarter of the units was then overwritten at
    /// random, so that garbage is collected from the start.
    pub(super) fn used(&self, card: &CardFile) -> Result<Card, CardError> {
        let setup = Setup {
            card: card.clone(),
            ..self.setup(SchedulerKind::Noop, PackRules::PHONE)
        };
        let sectors = card.flash.capacity_bytes / 512;
        let mut simulation = Simulation::new(&setup, Vec::new())?.with_written(0, sectors);
        if card.translation.kind == TranslationKind::PageMap {
            simulation = simulation.with_overwritten(sectors / 8 / 4, self.seed);
        }
        Ok(simulation.into_card())
    }

    pub(super) fn run(
        &self,
        setup: &Setup,
        load: Vec<Box<dyn Actor>>,
        used: Option<&Card>,
    ) -> Result<Outcome, CardError> {
        let mut simulation = Simulation::new(setup, load)?;
        if let Some(card) = used {
            simulation = simulation.with_card(card.clone());
        } else if self.reads_every > Nanos::ZERO {
            simulation = simulation.with_written(OTHER_FILES.0, OTHER_FILES.1);
        }
        Ok(simulation.run(|_| ControlFlow::Continue(())).0)
    }

    /// tio_seq: 2 GB by one thread (published); dirty limit and memory speed are assumed.
    pub(super) fn tio_seq(
        &self,
        scale: PaperScale,
        scheduler: SchedulerKind,
        max_requests: u32,
    ) -> Result<Outcome, CardError> {
        let load = stream(StreamRules {
            total_bytes: scale.of(2 << 30) / 4096 * 4096,
            start: DATA_START,
            chunk_bytes: 4 << 20,
            memory_bytes_per_s: self.memory_bytes_per_s,
            dirty_bytes: self.dirty_bytes,
            journal: self.journal(),
        });
        let rules = PackRules {
            max_requests,
            ..PackRules::PHONE
        };
        self.run(&self.setup(scheduler, rules), self.with_readers(load), None)
    }

    /// tio_rand: 2 GB in 4 KB by 4 threads (published), with packing of random writes.
    pub(super) fn tio_rand(
        &self,
        scale: PaperScale,
        max_requests: u32,
        used: Option<&Card>,
    ) -> Result<Outcome, CardError> {
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
            batch: self.chunk_pages,
            page_time: self.page_time,
            journal: self.journal(),
            seed: self.seed,
        });
        self.run(
            &self.setup(SchedulerKind::Cfq, rules),
            self.with_readers(load),
            used,
        )
    }

    /// tio_rand without and with packs of up to 8 on a host whose interrupts and wake-ups take no time.
    pub(super) fn without_interrupts(&self, scale: PaperScale) -> Result<(Outcome, Outcome), CardError> {
        let mut world = self.clone();
        (world.host.interrupt_ns, world.host.wake_ns) = (0, 0);
        Ok((world.tio_rand(scale, 1, None)?, world.tio_rand(scale, 8, None)?))
    }

    /// uFLIP: aligned random writes of one size, at queue depth 1.
    pub(super) fn granularity(&self, scale: PaperScale, bytes: u64) -> Result<Outcome, CardError> {
        let count = (scale.of(256 << 20) / bytes).clamp(48, 2000);
        let load = direct(DirectRules {
            operation: Operation::Write,
            order: Order::Random,
            sectors: bytes / 512,
            piece_sectors: 1024,
            count,
            start: DATA_START,
            range: 4 << 21,
            depth: 1,
            seed: self.seed,
        });
        self.run(
            &self.setup(SchedulerKind::Noop, PackRules::PHONE),
            vec![load],
            None,
        )
    }

    /// A real workload, as fast as the card allows with the queue of a phone.
    pub(super) fn mix(&self, requests: &[TracedBio]) -> Result<Outcome, CardError> {
        let load = vec![replay(requests.to_vec(), Pace::Depth(self.real_depth))];
        let setup = self.setup(SchedulerKind::Cfq, PackRules::PHONE);
        self.run(&setup, self.with_readers(load), None)
    }

    /// postmark with flex groups on a used card.
    pub(super) fn flex(
        &self,
        scale: PaperScale,
        (card, used): (&CardFile, &Card),
        flex_groups: u64,
    ) -> Result<Outcome, CardError> {
        let setup = Setup {
            card: card.clone(),
            ..self.setup(SchedulerKind::Cfq, PackRules::PHONE)
        };
        let load = postmark(PostmarkRules {
            files: scale.of(5000),
            file_bytes: 1_000_000,
            transactions: scale.of(10_000),
            flex_groups,
            groups: card.flash.capacity_bytes >> 27,
            interval: Nanos::from_millis(5000),
            seed: self.seed,
        });
        self.run(&setup, load, Some(used))
    }

    /// Direct I/O at depth 32 on the same flash with a later host, with a command queue or one command at a time.
    pub(super) fn command_queue(
        &self,
        scale: PaperScale,
        (operation, order, sectors): (Operation, Order, u64),
        driver: DriverMode,
    ) -> Result<Outcome, CardError> {
        let setup = Setup {
            card: self.phone.clone(),
            host: HostFile::preset("cqhci-hs400")?,
            queue: QueueRules::usual(SchedulerKind::None),
            driver,
            discard: DiscardMode::Discard,
        };
        let range = 1 << 19;
        let count = scale.of(20_000 * 8 / sectors.max(8)).max(200);
        let load = direct(DirectRules {
            operation,
            order,
            sectors,
            piece_sectors: 1024,
            count,
            start: 0,
            range,
            depth: 32,
            seed: self.seed,
        });
        let simulation = Simulation::new(&setup, vec![load])?.with_written(0, range);
        Ok(simulation.run(|_| ControlFlow::Continue(())).0)
    }
}
