//! Experiments of other publications, and the cost of the study's own tracer. None was used for the model.
//!
//! - seeds/000: sequential writes of 512 MB on the Galaxy S3, to the raw device and to ext4 (sections 2.3, 5.1 and 5.3).
//! - A. Gupta, Y. Kim, B. Urgaonkar, DFTL (ASPLOS 2009), abstract: DFTL against FAST under random writes.
//! - L. Xiang, B. M. Kurkoski, arXiv 1110.4245, abstract: write amplification by spare flash.

use results::block_trace::Operation;

use super::World;
use super::loads::{DATA_START, PaperScale};
use crate::block::SchedulerKind;
use crate::card::{CardFile, TranslationKind};
use crate::error::CardError;
use crate::outcome::Outcome;
use crate::packing::PackRules;
use crate::simulation::{Setup, Simulation};
use crate::workload::{DirectRules, JournalRules, Order, StreamRules, direct, stream};

/// Exhibits of this module.
pub(super) const TRACER: &str = "section 3.1.1";
pub(super) const GALAXY_S3: &str = "Galaxy S3";
pub(super) const DFTL: &str = "DFTL 2009";
pub(super) const XIANG: &str = "Xiang 2011";

/// Bytes of the file in seeds/000.
pub(super) const FILE_BYTES: u64 = 512 << 20;

/// Cost of the study's tracer: "50~100 micro seconds per IO", here 75. A write wakes the driver twice.
const TRACER_NS_PER_WAKE: u32 = 37_500;

/// Bytes of the card that is overwritten until its write amplification is steady.
const FULL_CARD_BYTES: u64 = 4 << 30;

/// Bytes of the card under the two translation layers. Its map has as small a part in RAM as that of a card of 16 GiB.
const SMALL_CARD_BYTES: u64 = 2 << 30;

/// Outcomes of the experiments of this module; `None` for those not wanted.
#[derive(Clone, Debug)]
pub(super) struct OtherSources {
    pub(super) traced: Option<Traced>,
    pub(super) galaxy_s3: Option<GalaxyS3>,
    pub(super) translation: Option<Layers>,
    /// 8 KiB at random over a full card with 30 % of spare flash.
    pub(super) overwritten: Option<Outcome>,
}

/// The study's loads with its tracer.
#[derive(Clone, Debug)]
pub(super) struct Traced {
    pub(super) sequential: Outcome,
    pub(super) sequential_traced: Outcome,
    pub(super) random: Outcome,
    pub(super) random_traced: Outcome,
}

/// 512 MB written to the raw device or to ext4, by scheduler.
#[derive(Clone, Debug)]
pub(super) struct GalaxyS3 {
    pub(super) raw_noop: Outcome,
    pub(super) raw_cfq: Outcome,
    pub(super) ext4_cfq: Outcome,
    pub(super) ext4_deadline: Outcome,
}

/// Random writes of 4 KiB on the older card, by translation layer.
#[derive(Clone, Debug)]
pub(super) struct Layers {
    pub(super) fast: Outcome,
    pub(super) cached_map: Outcome,
}

impl OtherSources {
    pub(super) fn run(
        world: &World,
        scale: PaperScale,
        mut wanted: impl FnMut(&str) -> bool,
    ) -> Result<Self, CardError> {
        let mut when = |exhibit| wanted(exhibit).then_some(());
        Ok(Self {
            traced: when(TRACER).map(|()| Traced::run(world, scale)).transpose()?,
            galaxy_s3: when(GALAXY_S3)
                .map(|()| GalaxyS3::run(world, scale))
                .transpose()?,
            translation: when(DFTL).map(|()| Layers::run(world, scale)).transpose()?,
            overwritten: when(XIANG).map(|()| world.overwritten(scale)).transpose()?,
        })
    }
}

impl Traced {
    fn run(world: &World, scale: PaperScale) -> Result<Self, CardError> {
        let mut traced = world.clone();
        traced.host.wake_ns += TRACER_NS_PER_WAKE;
        let sequential =
            |world: &World| world.tio_seq(scale, SchedulerKind::Cfq, PackRules::PHONE.max_requests);
        Ok(Self {
            sequential: sequential(world)?,
            sequential_traced: sequential(&traced)?,
            random: world.tio_rand(scale, 1, None)?,
            random_traced: traced.tio_rand(scale, 1, None)?,
        })
    }
}

impl GalaxyS3 {
    fn run(world: &World, scale: PaperScale) -> Result<Self, CardError> {
        let ext4 = world.journal();
        let raw = JournalRules {
            interval: media::Nanos::ZERO,
            in_place: media::Nanos::ZERO,
            ..ext4
        };
        let written = |scheduler, journal| {
            let load = stream(StreamRules {
                total_bytes: scale.of(FILE_BYTES) / 4096 * 4096,
                start: DATA_START,
                chunk_bytes: 4 << 20,
                memory_bytes_per_s: world.memory_bytes_per_s,
                dirty_bytes: world.dirty_bytes,
                journal,
            });
            world.run(
                &world.setup(scheduler, PackRules::PHONE),
                world.with_readers(load),
                None,
            )
        };
        Ok(Self {
            raw_noop: written(SchedulerKind::Noop, raw)?,
            raw_cfq: written(SchedulerKind::Cfq, raw)?,
            ext4_cfq: written(SchedulerKind::Cfq, ext4)?,
            ext4_deadline: written(SchedulerKind::Deadline, ext4)?,
        })
    }
}

impl Layers {
    fn run(world: &World, scale: PaperScale) -> Result<Self, CardError> {
        let written = |kind| {
            // More than the spare flash and than the log blocks hold, so that both layers collect from the start.
            world.random_writes(world.small_card(kind), 8, scale.of(8000).max(500), 20_000)
        };
        Ok(Self {
            fast: written(TranslationKind::Fast)?,
            cached_map: written(TranslationKind::CachedMap)?,
        })
    }
}

impl World {
    /// The older card with another translation layer, smaller.
    pub(super) fn small_card(&self, kind: TranslationKind) -> CardFile {
        let mut card = self.older.clone();
        let smaller = (card.flash.capacity_bytes / SMALL_CARD_BYTES).max(1);
        card.flash.capacity_bytes = SMALL_CARD_BYTES;
        card.translation.kind = kind;
        card.translation.cached_map_pages /= u32::try_from(smaller).unwrap_or(u32::MAX);
        card
    }

    /// The card with 30 % of spare flash.
    pub(super) fn spare_card(&self, scale: PaperScale) -> CardFile {
        let mut card = self.phone.clone();
        card.flash.capacity_bytes = scale.of(FULL_CARD_BYTES).max(1 << 30);
        card.flash.spare_permille = 300;
        // A page is the unit, so that the writes before the run leave no page half empty.
        card.translation.unit_bytes = card.flash.page_bytes;
        card
    }

    /// Writes of one page at random over a full card with 30 % of spare flash, after two card sizes of such writes.
    fn overwritten(&self, scale: PaperScale) -> Result<Outcome, CardError> {
        let card = self.spare_card(scale);
        let pages = card.flash.capacity_bytes / u64::from(card.flash.page_bytes);
        let sectors = u64::from(card.flash.page_bytes / 512);
        self.random_writes(card, sectors, pages, 2 * pages)
    }

    /// Writes of one size, one at a time, at random over a full card that was overwritten in this way before.
    fn random_writes(
        &self,
        card: CardFile,
        sectors: u64,
        count: u64,
        overwritten: u64,
    ) -> Result<Outcome, CardError> {
        let range = card.flash.capacity_bytes / 512;
        let load = direct(DirectRules {
            operation: Operation::Write,
            order: Order::Random,
            sectors,
            piece_sectors: 1024,
            count,
            start: 0,
            range,
            depth: 1,
            seed: self.seed,
        });
        let setup = Setup {
            card,
            ..self.setup(SchedulerKind::Noop, PackRules::OFF)
        };
        let simulation = Simulation::new(&setup, vec![load])?
            .with_written(0, range)
            .with_overwritten(overwritten, self.seed);
        Ok(simulation.run(|_| std::ops::ControlFlow::Continue(())).0)
    }
}
