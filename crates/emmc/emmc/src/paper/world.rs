//! The world of the paper's experiments: cards, host and the numbers that the paper does not give.

use media::Nanos;

use crate::card::CardFile;
use crate::error::CardError;
use crate::host::HostFile;

/// Everything that an experiment uses.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    /// Card of the GT-I9300 and the Pandaboard.
    pub phone: CardFile,
    /// Card of the GT-I9100.
    pub older: CardFile,
    /// Host of the phones.
    pub host: HostFile,
    /// Dirty limit of the page cache, bytes.
    pub dirty_bytes: u64,
    /// Interval of in-place writes of file system blocks.
    pub metadata_every: Nanos,
    /// Interval of reads by other programs; zero for none.
    pub reads_every: Nanos,
    /// Interval of journal commits.
    pub commits_every: Nanos,
    /// Seed of all random choices.
    pub seed: u64,
}

/// A change of one assumed number.
#[derive(Clone, Copy, Debug)]
pub struct Variation {
    /// Its description.
    pub name: &'static str,
    change: fn(&mut World),
}

impl World {
    /// The presets; intervals are results of the joint fit (`tidegate emmc fit`).
    ///
    /// # Errors
    /// If a preset is invalid.
    pub fn new(seed: u64) -> Result<Self, CardError> {
        Ok(Self {
            phone: CardFile::preset("gt-i9300-fit")?,
            older: CardFile::preset("gt-i9100")?,
            host: HostFile::preset("mshci")?,
            dirty_bytes: 64 << 20,
            metadata_every: Nanos::from_millis(1450),
            reads_every: Nanos::from_millis(15),
            commits_every: Nanos::from_millis(5000),
            seed,
        })
    }

    /// The world with one assumed number changed.
    #[must_use]
    pub fn varied(&self, variation: &Variation) -> Self {
        let mut world = self.clone();
        (variation.change)(&mut world);
        world
    }

    /// The ends of the plausible ranges of the assumed numbers.
    #[must_use]
    pub const fn variations() -> &'static [Variation] {
        &VARIATIONS
    }
}

const fn variation(name: &'static str, change: fn(&mut World)) -> Variation {
    Variation { name, change }
}

fn cards(world: &mut World, change: impl Fn(&mut CardFile)) {
    change(&mut world.phone);
    change(&mut world.older);
}

fn interrupts(world: &mut World, percent: u32) {
    for cost in [
        &mut world.host.interrupt_ns,
        &mut world.host.wake_ns,
        &mut world.host.complete_ns,
    ] {
        *cost = *cost / 100 * percent;
    }
}

/// Sources of the ranges: cards of the time have 4 to 32 banks and blocks of 64 to 256 pages; channels of 8 KiB pages
/// ran at 40 to 166 MB/s; interrupt and wake-up of ARM phones took some 10 to 100 us; `dirty_ratio` leaves tens of MiB.
const VARIATIONS: [Variation; 13] = [
    variation("banks halved", |world| cards(world, |card| card.flash.banks /= 2)),
    variation("banks doubled", |world| {
        cards(world, |card| card.flash.banks *= 2)
    }),
    variation("32 word lines", |world| {
        cards(world, |card| card.flash.word_lines = 32)
    }),
    variation("128 word lines", |world| {
        cards(world, |card| card.flash.word_lines = 128)
    }),
    variation("channel time x 0.7", |world| {
        cards(world, |card| {
            card.flash.transfer_ns = card.flash.transfer_ns / 10 * 7
        });
    }),
    variation("channel time x 1.4", |world| {
        cards(world, |card| {
            card.flash.transfer_ns = card.flash.transfer_ns / 10 * 14
        });
    }),
    variation("copy to SLC x 0.7", |world| {
        cards(world, |card| {
            card.flash.program_slc_us = card.flash.program_slc_us * 7 / 10
        });
    }),
    variation("copy to SLC x 1.4", |world| {
        cards(world, |card| {
            card.flash.program_slc_us = card.flash.program_slc_us * 14 / 10
        });
    }),
    variation("interrupt costs x 0.5", |world| interrupts(world, 50)),
    variation("interrupt costs x 2", |world| interrupts(world, 200)),
    variation("dirty limit 32 MiB", |world| world.dirty_bytes = 32 << 20),
    variation("dirty limit 128 MiB", |world| world.dirty_bytes = 128 << 20),
    variation("another seed", |world| world.seed += 1000),
];
