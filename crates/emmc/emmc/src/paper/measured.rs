//! Results of the experiments in one world.

use std::collections::BTreeMap;

use results::block_trace::Operation;

use super::loads::{Mixes, PaperScale, Wear};
use super::other_sources::OtherSources;
use super::world::World;
use crate::block::SchedulerKind;
use crate::card::CardFile;
use crate::device::Card;
use crate::error::CardError;
use crate::outcome::Outcome;
use crate::packing::{PackRules, Stop};
use crate::simulation::DriverMode;
use crate::workload::Order;

/// The schedulers of the phone's kernel.
pub(super) const KERNEL_3_0: [SchedulerKind; 3] =
    [SchedulerKind::Cfq, SchedulerKind::Deadline, SchedulerKind::Noop];

/// Number of experiments to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All rows of the tables and figures.
    Rows,
    /// Only what the claims compare.
    Claims,
}

/// Outcomes of all experiments in one world.
#[derive(Clone, Debug)]
pub struct Measured {
    pub(super) sequential: BTreeMap<&'static str, Outcome>,
    pub(super) by_pack: BTreeMap<u32, Outcome>,
    pub(super) by_size: BTreeMap<u64, Outcome>,
    pub(super) random: BTreeMap<(Wear, u32), Outcome>,
    /// Without interrupt costs: single requests, packs of up to 8.
    pub(super) without_interrupts: Option<(Outcome, Outcome)>,
    /// The real loads, by name.
    pub(super) real: BTreeMap<&'static str, Outcome>,
    /// By block groups of a flex group: hybrid, page map.
    pub(super) flex: BTreeMap<u64, (Outcome, Outcome)>,
    /// By name: one command at a time, command queue.
    pub(super) queued: BTreeMap<&'static str, (Outcome, Outcome)>,
    pub(super) others: OtherSources,
}

impl Measured {
    /// Runs the experiments for all exhibits, or only for one. Calls `progress` with the name of the next one.
    ///
    /// # Errors
    /// If a card of the world cannot be built.
    pub fn run(
        world: &World,
        scale: PaperScale,
        mixes: &Mixes,
        (extent, only): (Extent, Option<&str>),
        mut progress: impl FnMut(&str),
    ) -> Result<Self, CardError> {
        let all = extent == Extent::Rows;
        // The values of a parameter: all, only those of the claims, or none if no wanted exhibit has it.
        let mut values = |exhibits: &[&str], rows: &[u32], compared: &[u32]| -> Vec<u32> {
            if only.is_some_and(|only| !exhibits.contains(&only)) {
                return Vec::new();
            }
            progress(exhibits.first().unwrap_or(&""));
            if all { rows.to_vec() } else { compared.to_vec() }
        };
        let schedulers = values(
            &["table 1", "table 2", "figure 10", "figure 11"],
            &[0, 1, 2],
            &[0, 1, 2],
        );
        let sequential = KERNEL_3_0
            .into_iter()
            .take(schedulers.len())
            .map(|kind| {
                Ok((
                    kind.word(),
                    world.tio_seq(scale, kind, PackRules::PHONE.max_requests)?,
                ))
            })
            .collect::<Result<_, CardError>>()?;
        let by_pack = values(
            &["figure 8", "Linux 3.9"],
            &[1, 2, 3, 4, 5, 6, 7, 8],
            &[1, 2, 4, 8],
        )
        .into_iter()
        .map(|most| Ok((most, world.tio_seq(scale, SchedulerKind::Cfq, most)?)))
        .collect::<Result<_, CardError>>()?;
        let shifts: Vec<u32> = (9..=23).collect();
        let by_size = values(&["figure 7"], &shifts, &[12, 13, 17, 21, 23])
            .into_iter()
            .map(|shift| Ok((1 << shift, world.granularity(scale, 1 << shift)?)))
            .collect::<Result<_, CardError>>()?;
        // Made once, as that takes longer than the experiments.
        let (mut used_phone, mut used_older) = (None, None);
        let random = values(
            &["figure 12", "figure 13"],
            &[1, 2, 4, 8, 16, 32, 62],
            &[1, 2, 4, 8, 62],
        )
        .into_iter()
        .flat_map(|most| [(Wear::New, most), (Wear::Used, most)])
        .map(|(wear, most)| {
            let used = match wear {
                Wear::New => None,
                Wear::Used => Some(worn(world, &world.phone, &mut used_phone)?),
            };
            Ok(((wear, most), world.tio_rand(scale, most, used)?))
        })
        .collect::<Result<_, CardError>>()?;
        let without_interrupts = match values(&["figure 12"], &[0], &[0]).is_empty() {
            true => None,
            false => Some(world.without_interrupts(scale)?),
        };
        let real = [
            (GOOGLE_DRIVE, &mixes.google_drive),
            (APP_INSTALL, &mixes.app_install),
        ]
        .into_iter()
        .take(values(&["table 3", "figure 14"], &[0, 1], &[0, 1]).len())
        .map(|(name, requests)| Ok((name, world.mix(requests)?)))
        .collect::<Result<_, CardError>>()?;
        let flex = values(&["figure 15"], &[1, 2, 4, 8, 16, 32, 64], &[1, 2, 64])
            .into_iter()
            .map(|groups| {
                let groups = u64::from(groups);
                let (older, phone) = (&world.older, &world.phone);
                let hybrid = world.flex(scale, (older, worn(world, older, &mut used_older)?), groups)?;
                let page_map = world.flex(scale, (phone, worn(world, phone, &mut used_phone)?), groups)?;
                Ok((groups, (hybrid, page_map)))
            })
            .collect::<Result<_, CardError>>()?;
        let queued = QUEUE_LOADS
            .into_iter()
            .take(values(&["Linux 4.16"], &[0, 1, 2], &[0, 1, 2]).len())
            .map(|(name, load)| {
                let one = world.command_queue(scale, load, DriverMode::Packed(PackRules::OFF))?;
                Ok((
                    name,
                    (
                        one,
                        world.command_queue(scale, load, DriverMode::CommandQueue(32))?,
                    ),
                ))
            })
            .collect::<Result<_, CardError>>()?;
        let others = OtherSources::run(world, scale, |exhibit| !values(&[exhibit], &[0], &[0]).is_empty())?;
        Ok(Self {
            sequential,
            by_pack,
            by_size,
            random,
            without_interrupts,
            real,
            flex,
            queued,
            others,
        })
    }

    /// The same measurements with each halt of packing counted, also of a single request, in place of those of packs. The
    /// study does not say which one its tables 1 and 2 count.
    #[must_use]
    pub fn counting_attempts(&self) -> Self {
        let mut counted = self.clone();
        let of_packing = counted
            .sequential
            .values_mut()
            .chain(counted.by_pack.values_mut())
            .map(|outcome| &mut outcome.driver);
        for driver in of_packing {
            driver.halts_of_packs = driver.halts_of_attempts;
            driver.packs = driver.halts_of_attempts.iter().sum();
        }
        counted
    }
}

/// The used card, made by the first call.
fn worn<'a>(world: &World, card: &CardFile, made: &'a mut Option<Card>) -> Result<&'a Card, CardError> {
    if made.is_none() {
        *made = Some(world.used(card)?);
    }
    Ok(made.as_ref().expect("it was just made"))
}

/// Names of the real loads.
pub(super) const GOOGLE_DRIVE: &str = "GoogleDrive";
pub(super) const APP_INSTALL: &str = "AppInstall";

/// Loads of the command queue.
const QUEUE_LOADS: [(&str, (Operation, Order, u64)); 3] = [
    ("random reads of 4 KiB", (Operation::Read, Order::Random, 8)),
    (
        "sequential reads of 512 KiB",
        (Operation::Read, Order::Sequential, 1024),
    ),
    (
        "sequential writes of 512 KiB",
        (Operation::Write, Order::Sequential, 1024),
    ),
];

/// Write throughput, MB/s.
pub(super) fn mb_per_s(outcome: &Outcome) -> f64 {
    outcome.write_mb_per_s().unwrap_or_default()
}

/// Read and write throughput, MB/s.
pub(super) fn both_mb_per_s(outcome: &Outcome) -> f64 {
    let bytes = outcome.reads.bytes + outcome.writes.bytes;
    results::nearest_f64(bytes) * 1e3 / results::nearest_f64(outcome.elapsed_ns.max(1))
}

/// Share of packs (of at least two requests) that ended for one of these reasons.
pub(super) fn share_of_packs(outcome: &Outcome, reasons: &[Stop]) -> f64 {
    let ended: u64 = reasons.iter().map(|stop| outcome.driver.halts(*stop)).sum();
    results::nearest_f64(ended) / results::nearest_f64(outcome.driver.packs.max(1))
}

/// The reasons of a full pack.
pub(super) const FULL: [Stop; 3] = [Stop::FullCount, Stop::FullSectors, Stop::FullSegments];
