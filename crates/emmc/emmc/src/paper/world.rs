//! The world of the paper's experiments: cards, host and the numbers that the paper does not give.

use media::Nanos;

use crate::card::CardFile;
use crate::error::CardError;
use crate::host::HostFile;
use crate::workload::WRITE_CHUNK_PAGES;

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
    /// Speed at which a sequential writer dirties pages, bytes per second.
    pub memory_bytes_per_s: u64,
    /// Time that a random writer needs to dirty a page.
    pub page_time: Nanos,
    /// Interval of in-place writes of file system blocks.
    pub metadata_every: Nanos,
    /// Interval of reads by other programs; zero for none.
    pub reads_every: Nanos,
    /// Interval of journal commits.
    pub commits_every: Nanos,
    /// Pages that a random writer writes back at a time.
    pub chunk_pages: u64,
    /// Requests of a real load that wait at the same time.
    pub real_depth: u32,
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
    /// The presets, and the interval of reads that the joint fit gave (`tidegate emmc fit`).
    ///
    /// # Errors
    /// If a preset is invalid.
    pub fn new(seed: u64) -> Result<Self, CardError> {
        Ok(Self {
            phone: CardFile::preset("gt-i9300-fit")?,
            reads_every: Nanos::from_micros(14_340),
            ..Self::before_the_fit(seed)?
        })
    }

    /// The world that the joint fit starts from: the card that was set by hand, and no reads by other programs.
    ///
    /// # Errors
    /// If a preset is invalid.
    pub fn before_the_fit(seed: u64) -> Result<Self, CardError> {
        Ok(Self {
            phone: CardFile::preset("gt-i9300")?,
            older: CardFile::preset("gt-i9100")?,
            host: HostFile::preset("mshci")?,
            dirty_bytes: 64 << 20,
            memory_bytes_per_s: 200_000_000,
            page_time: Nanos::from_micros(10),
            metadata_every: Nanos::from_millis(1000),
            reads_every: Nanos::ZERO,
            commits_every: Nanos::from_millis(5000),
            chunk_pages: WRITE_CHUNK_PAGES,
            real_depth: 96,
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

fn banks(world: &mut World, phone: u32, older: u32) {
    world.phone.flash.banks = phone;
    world.older.flash.banks = older;
}

fn times(time: &mut u32, percent: u32) {
    *time = *time / 100 * percent;
}

fn interval(time: &mut Nanos, percent: u64) {
    *time = Nanos(time.0 / 100 * percent);
}

/// Sources of the ranges: cards of the time have 4 to 32 banks and blocks of 64 to 256 pages; channels move a page of 8 KiB
/// at 40 to 166 MB/s (the fit needs a slower one); programs of SLC pages take 200 to 500 us, and the study's own
/// explanation of figure 7 needs about 1 ms for a copy; interrupt and wake-up of ARM phones took some 10 to 100 us;
/// a card reads a super page ahead, nothing, or two; `dirty_ratio` leaves tens of MiB; `ratelimit_pages` is 1,024 on a
/// phone, and write-back adds half of it or not. Fitted numbers without a source (commands, metadata, reads of other
/// programs) are halved and doubled; so is the speed at which programs dirty pages.
const VARIATIONS: [Variation; 30] = [
    variation("4 banks", |world| banks(world, 4, 2)),
    variation("banks halved", |world| banks(world, 8, 2)),
    variation("banks doubled", |world| banks(world, 32, 8)),
    variation("32 word lines", |world| {
        cards(world, |card| card.flash.word_lines = 32)
    }),
    variation("128 word lines", |world| {
        cards(world, |card| card.flash.word_lines = 128)
    }),
    variation("channel of 166 MB/s", |world| {
        cards(world, |card| card.flash.transfer_ns = 49_300);
    }),
    variation("channel of 80 MB/s", |world| {
        cards(world, |card| card.flash.transfer_ns = 102_400);
    }),
    variation("channel of 40 MB/s", |world| {
        cards(world, |card| card.flash.transfer_ns = 204_800);
    }),
    variation("channel of 27 MB/s", |world| {
        cards(world, |card| card.flash.transfer_ns = 303_000);
    }),
    variation("SLC program 500 us", |world| {
        cards(world, |card| card.flash.program_slc_us = 500)
    }),
    variation("SLC program 1000 us", |world| {
        cards(world, |card| card.flash.program_slc_us = 1000)
    }),
    variation("no read-ahead by the card", |world| {
        cards(world, |card| card.controller.read_ahead_bytes = 0)
    }),
    variation("read-ahead x 2", |world| {
        cards(world, |card| card.controller.read_ahead_bytes *= 2)
    }),
    variation("interrupt costs x 0.5", |world| interrupts(world, 50)),
    variation("interrupt costs x 2", |world| interrupts(world, 200)),
    variation("command time x 0.5", |world| {
        cards(world, |card| times(&mut card.controller.command_ns, 50));
    }),
    variation("command time x 2", |world| {
        cards(world, |card| times(&mut card.controller.command_ns, 200));
    }),
    variation("time per packed request x 0.5", |world| {
        cards(world, |card| times(&mut card.controller.packed_entry_ns, 50));
    }),
    variation("time per packed request x 2", |world| {
        cards(world, |card| times(&mut card.controller.packed_entry_ns, 200));
    }),
    variation("metadata twice as often", |world| {
        interval(&mut world.metadata_every, 50)
    }),
    variation("metadata half as often", |world| {
        interval(&mut world.metadata_every, 200)
    }),
    variation("other programs read twice as often", |world| {
        interval(&mut world.reads_every, 50);
    }),
    variation("other programs read half as often", |world| {
        interval(&mut world.reads_every, 200);
    }),
    variation("write-back of 1,024 pages", |world| world.chunk_pages = 1024),
    variation("real loads 32 deep", |world| world.real_depth = 32),
    variation("dirty limit 32 MiB", |world| world.dirty_bytes = 32 << 20),
    variation("dirty limit 128 MiB", |world| world.dirty_bytes = 128 << 20),
    variation("memory half as fast", |world| {
        world.memory_bytes_per_s /= 2;
        world.page_time = world.page_time.times(2);
    }),
    variation("memory twice as fast", |world| {
        world.memory_bytes_per_s *= 2;
        world.page_time = Nanos(world.page_time.0 / 2);
    }),
    variation("another seed", |world| world.seed += 1000),
];
