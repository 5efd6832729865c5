//! The card: takes commands, returns times. Behind it are a translation layer and flash; in front a bus driven by the
//! host.
//!
//! Without a cache a write is done when it is programmed; an epoch (data acknowledged together) is one command. With
//! a cache, a write is done when its data is in RAM, and an epoch lasts until the next flush. A write that covers
//! units partly reads the rest first.

use media::Nanos;

use crate::card::{CardFile, TranslationKind};
use crate::error::CardError;
use crate::geometry::CardGeometry;
use crate::nand_array::{NandArray, NandCounters, NandPower, NandTiming};
use crate::read_ahead::ReadAhead;
use crate::translation::{
    DataStream, Epoch, Flash, Forget, Hybrid, HybridRules, Kept, Locality, PageMap, PageMapRules, Placement,
    Translation, TranslationCounters, UnitWrite, Urgency,
};

/// A range of sectors in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First sector.
    pub sector: u64,
    /// Number of sectors.
    pub sectors: u32,
    /// Separation of the data.
    pub placement: Placement,
}

/// Required durability of a write when it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged from the cache if the card has one, else when it is programmed.
    Cached,
    /// Programmed (reliable write, FUA).
    Programmed,
}

/// Times of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteTimes {
    /// Time at which all data is transferred over the bus.
    pub data_end: Nanos,
    /// Time at which the card is not busy any more.
    pub ready: Nanos,
}

/// Counters of a card at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardCounters {
    /// Counters of the translation layer.
    pub translation: TranslationCounters,
    /// Counters of the banks.
    pub nand: NandCounters,
    /// Busy time of each bank, nanoseconds.
    pub bank_busy_ns: Vec<u64>,
    /// Units in pages that are not programmed yet.
    pub pending_units: u64,
}

/// A card; see the module.
#[derive(Clone)]
pub struct Card {
    flash: Flash,
    layer: Box<dyn Translation>,
    sector_ps: u64,
    command: Nanos,
    /// The controller is free for the next task of the command queue.
    controller_free: Nanos,
    packed_entry: Nanos,
    packed_apart: bool,
    read_ahead: ReadAhead,
    cache: bool,
    epoch: u32,
}

impl std::fmt::Debug for Card {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Card")
            .field("cache", &self.cache)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

impl Card {
    /// An erased card on a bus that transfers a sector in `sector_ps` picoseconds.
    ///
    /// # Errors
    /// If the numbers of the file contradict each other.
    pub fn new(file: &CardFile, sector_ps: u64) -> Result<Self, CardError> {
        let geometry = file.geometry()?;
        let mut array = NandArray::new(geometry.banks, &geometry.word_lines, file.timing()?);
        if let Some(power) = &file.power {
            array.set_power(power.of_banks());
        }
        let layer = layer(file, &geometry)?;
        let read_ahead = file.controller.read_ahead_bytes.div_ceil(geometry.unit_bytes);
        let buffer_pages = file.controller.buffer_bytes / u64::from(geometry.page_bytes);
        let buffer_pages = usize::try_from(buffer_pages).unwrap_or(usize::MAX).min(1 << 20);
        Ok(Self {
            flash: Flash::new(geometry, array, file.flash.lsb_backup, buffer_pages),
            layer,
            sector_ps,
            command: Nanos(u64::from(file.controller.command_ns)),
            controller_free: Nanos::ZERO,
            packed_entry: Nanos(u64::from(file.controller.packed_entry_ns)),
            packed_apart: file.controller.packed_apart,
            read_ahead: ReadAhead::new(read_ahead),
            cache: file.controller.cache,
            epoch: 1,
        })
    }

    /// Sectors visible to the host.
    #[must_use]
    pub const fn sectors(&self) -> u64 {
        self.flash.geometry.sectors
    }

    /// Writes extents that arrive as one stream of data from `start` on, preceded by `header_sectors` (a pack's
    /// header).
    pub fn write(
        &mut self,
        start: Nanos,
        header_sectors: u32,
        extents: &[Extent],
        durability: Durability,
    ) -> WriteTimes {
        let entries = u64::try_from(extents.len()).unwrap_or(u64::MAX);
        let work = self.command + self.packed_entry.times(entries.saturating_sub(1));
        self.write_after(start, work, header_sectors, extents, durability)
    }

    /// Writes extents whose data arrives from `start` on and is programmed no earlier than `work` after it arrived.
    fn write_after(
        &mut self,
        start: Nanos,
        work: Nanos,
        header_sectors: u32,
        extents: &[Extent],
        durability: Durability,
    ) -> WriteTimes {
        let data = DataStream {
            start: start + work,
            sector_ps: self.sector_ps,
            earliest: Nanos::ZERO,
        };
        self.read_ahead.clear();
        let epoch = Epoch(self.epoch);
        let waits = !self.cache || durability == Durability::Programmed;
        let mut before = u64::from(header_sectors);
        let (mut held_back, mut last_end) = (data, None);
        for extent in extents {
            let follows = last_end.is_none_or(|end| end == extent.sector);
            if waits && self.packed_apart && !follows {
                self.layer
                    .close(&mut self.flash, held_back.arrival(before), epoch);
                held_back.earliest = self.flash.durable;
            }
            self.write_extent(extent, held_back, before, epoch);
            before += u64::from(extent.sectors);
            last_end = Some(extent.sector + u64::from(extent.sectors));
        }
        let over_bus = DataStream { start, ..data }.arrival(before);
        let sent = data.arrival(before);
        if waits {
            self.layer.close(&mut self.flash, sent, epoch);
            self.next_epoch();
        }
        let data_end = over_bus.max(self.flash.admitted.saturating_sub(work));
        let ready = if waits {
            sent.max(self.flash.durable)
        } else {
            sent.max(self.flash.admitted)
        };
        WriteTimes { data_end, ready }
    }

    fn write_extent(&mut self, extent: &Extent, data: DataStream, before: u64, epoch: Epoch) {
        let unit_sectors = self.flash.geometry.unit_sectors();
        let (first, count) = self.flash.geometry.units_of(extent.sector, extent.sectors);
        // The rest of a unit that the write covers in part is read from flash before that unit can be programmed.
        let end_sector = extent.sector + u64::from(extent.sectors);
        let begins_inside = !extent.sector.is_multiple_of(u64::from(unit_sectors));
        let ends_inside = !end_sector.is_multiple_of(u64::from(unit_sectors));
        let mut data = data;
        let mut rest_read = data.start;
        if begins_inside {
            rest_read = rest_read.max(self.layer.read(&mut self.flash, first, 1, data.start));
        }
        if ends_inside && (count > 1 || !begins_inside) {
            let last = first + count - 1;
            rest_read = rest_read.max(self.layer.read(&mut self.flash, last, 1, data.start));
        }
        data.start = rest_read;
        let write = UnitWrite {
            first,
            count,
            data,
            sectors_before: before,
            sectors: u64::from(extent.sectors),
            epoch,
            placement: extent.placement,
        };
        self.layer.write(&mut self.flash, &write);
    }

    /// Prefetch hint: a write to a sector will follow. No effect on the model.
    pub fn prefetch(&self, sector: u64, urgency: Urgency) {
        let (unit, _) = self.flash.geometry.units_of(sector, 1);
        self.layer.prefetch(unit, urgency);
    }

    /// Reads extents as one stream; returns the time at which the last sector is transferred over the bus.
    pub fn read(&mut self, start: Nanos, header_sectors: u32, extents: &[Extent]) -> Nanos {
        let ready = start + self.command;
        let (mut end, mut sectors) = (ready, u64::from(header_sectors));
        for extent in extents {
            end = end.max(self.read_extent(extent, ready));
            sectors += u64::from(extent.sectors);
        }
        // The bus transfers available data while the rest is read; the last unit follows when it has arrived.
        let stream = DataStream {
            start: ready,
            sector_ps: self.sector_ps,
            earliest: Nanos::ZERO,
        };
        let last = sectors.min(u64::from(self.flash.geometry.unit_sectors()));
        let tail = DataStream { start: end, ..stream };
        stream.arrival(sectors).max(tail.arrival(last))
    }

    /// Reads an extent from flash, or from the data that was read ahead. Returns the time at which the controller has all
    /// of it.
    fn read_extent(&mut self, extent: &Extent, ready: Nanos) -> Nanos {
        let (first, count) = self.flash.geometry.units_of(extent.sector, extent.sectors);
        let (held, held_at) = self.read_ahead.take(first, count);
        let mut end = ready.max(held_at);
        if held < count {
            end = end.max(
                self.layer
                    .read(&mut self.flash, first + held, count - held, ready),
            );
        }
        let units = self.flash.geometry.units();
        if let Some((next, more)) = self
            .read_ahead
            .after(extent.sector, extent.sectors, first + count)
            && next < units
        {
            let more = more.min(units - next);
            let at = self.layer.read(&mut self.flash, next, more, ready);
            self.read_ahead.hold(next, more, at);
        }
        end
    }

    /// Accepts the header of packed reads, which arrives from `start` on. Returns the end of its transfer, and the time
    /// at which the card is ready for the reads.
    #[must_use]
    pub fn accept_header(&self, start: Nanos) -> (Nanos, Nanos) {
        let stream = DataStream {
            start,
            sector_ps: self.sector_ps,
            earliest: Nanos::ZERO,
        };
        let end = stream.arrival(1);
        (end, end + self.command)
    }

    /// Prepares the card for a command queue: reads are transferred as soon as they are there, in any order.
    pub fn enable_queue(&mut self) {
        self.flash.array.reorder_reads();
    }

    /// The controller looks at a task that arrived at `arrived`: one task after another.
    fn look_at_task(&mut self, arrived: Nanos) -> Nanos {
        self.controller_free = arrived.max(self.controller_free) + self.command;
        self.controller_free
    }

    /// Begins to read the data of a task. Returns the time from which on the bus can transfer it without a pause.
    pub fn begin_read_task(&mut self, arrived: Nanos, extent: &Extent) -> Nanos {
        let ready = self.look_at_task(arrived);
        let end = self.read_extent(extent, ready);
        let sectors = u64::from(extent.sectors);
        let last = sectors.min(u64::from(self.flash.geometry.unit_sectors()));
        // The bus may run ahead of the flash, except for the last unit.
        let ahead = Nanos(((sectors - last) * self.sector_ps).div_ceil(1000));
        ready.max(end.saturating_sub(ahead))
    }

    /// Transfers the data of a read task that is ready. Returns the end.
    #[must_use]
    pub fn transfer_read_task(&self, start: Nanos, extent: &Extent) -> Nanos {
        let stream = DataStream {
            start,
            sector_ps: self.sector_ps,
            earliest: Nanos::ZERO,
        };
        stream.arrival(u64::from(extent.sectors))
    }

    /// Accepts a write task. Returns the time at which the card is ready for its data.
    pub fn begin_write_task(&mut self, arrived: Nanos) -> Nanos {
        self.look_at_task(arrived)
    }

    /// Transfers and programs the data of a write task that is ready.
    pub fn write_task(&mut self, start: Nanos, extent: &Extent, durability: Durability) -> WriteTimes {
        self.write_after(start, Nanos::ZERO, 0, std::slice::from_ref(extent), durability)
    }

    /// TRIM or DISCARD (CMD38). Returns the time at which the card is ready. Partly covered units stay.
    pub fn forget(&mut self, start: Nanos, sector: u64, sectors: u64, how: Forget) -> Nanos {
        self.read_ahead.clear();
        let size = u64::from(self.flash.geometry.unit_sectors());
        let (first, end) = (sector.div_ceil(size), (sector + sectors) / size);
        let ready = start + self.command;
        if end <= first {
            return ready;
        }
        let unit = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        self.layer
            .forget(&mut self.flash, unit(first), unit(end - first), ready, how)
    }

    /// Whether the card answers writes from its cache.
    #[must_use]
    pub const fn has_cache(&self) -> bool {
        self.cache
    }

    /// Flushes the cache. Returns the time at which everything written is programmed.
    pub fn flush(&mut self, start: Nanos) -> Nanos {
        let ready = start + self.command;
        if !self.cache {
            return ready;
        }
        let epoch = Epoch(self.epoch);
        self.layer.close(&mut self.flash, ready, epoch);
        self.next_epoch();
        ready.max(self.flash.durable)
    }

    /// From here on records which units are programmed when; the caller has to call [`Card::take_programmed`]
    /// regularly.
    pub fn keep_record(&mut self) {
        self.flash.keep_record();
    }

    /// Returns and clears the record: units whose newest host data went into a program, and the ends of the programs.
    pub fn take_programmed(&mut self) -> Vec<(u32, Nanos)> {
        self.flash.take_programmed()
    }

    /// Sets the clock of an idle card to zero.
    pub fn restart_clock(&mut self) {
        self.flash.restart_clock();
        self.layer.restart_clock();
        self.read_ahead.clear();
        self.controller_free = Nanos::ZERO;
    }

    /// Time at which the card is idle.
    #[must_use]
    pub fn idle_at(&self) -> Nanos {
        self.flash.array.idle_at()
    }

    /// Whether a sector has data; otherwise it reads as erased.
    #[must_use]
    pub fn has_data(&self, sector: u64) -> bool {
        let (unit, _) = self.flash.geometry.units_of(sector, 1);
        self.layer.is_mapped(unit)
    }

    /// All counters, to tell those of a run from earlier ones.
    #[must_use]
    pub fn counters(&self) -> CardCounters {
        CardCounters {
            translation: self.layer.counters(),
            nand: self.flash.array.counters(),
            bank_busy_ns: self.flash.array.busy_ns().to_vec(),
            pending_units: self.layer.pending_units(),
        }
    }

    /// Durations and power of the banks' operations.
    #[must_use]
    pub const fn rates(&self) -> (NandTiming, NandPower) {
        self.flash.array.rates()
    }

    /// Units per flash page.
    #[must_use]
    pub const fn page_units(&self) -> u32 {
        self.flash.geometry.page_units()
    }

    /// Counters of the translation layer.
    #[must_use]
    pub fn translation(&self) -> TranslationCounters {
        self.layer.counters()
    }

    /// Counters of the banks.
    #[must_use]
    pub const fn nand(&self) -> NandCounters {
        self.flash.array.counters()
    }

    /// Busy time of each bank, nanoseconds.
    #[must_use]
    pub fn busy_ns(&self) -> &[u64] {
        self.flash.array.busy_ns()
    }

    /// Erase counter of each super block.
    #[must_use]
    pub fn erase_counts(&self) -> &[u32] {
        self.layer.erase_counts()
    }

    /// The persistent state after everything is programmed, and the number of the next epoch.
    pub fn keep(&mut self) -> (u32, Kept) {
        self.flush(self.idle_at());
        (self.epoch, self.layer.keep())
    }

    /// Restores the state saved by a card of the same geometry; this one has to be erased.
    ///
    /// # Errors
    /// If the state does not suit this card, which stays unchanged then.
    pub fn take_up(&mut self, epoch: u32, kept: &Kept) -> Result<(), CardError> {
        self.layer.take_up(&self.flash.geometry, kept)?;
        self.epoch = epoch.max(1);
        Ok(())
    }

    fn next_epoch(&mut self) {
        // 0 means copied by the card; the number wraps around after 2^32 commands, far beyond a block's life.
        self.epoch = self.epoch.wrapping_add(1).max(1);
    }
}

fn layer(file: &CardFile, geometry: &CardGeometry) -> Result<Box<dyn Translation>, CardError> {
    let translation = &file.translation;
    let page_map = |cached_pages| {
        PageMap::new(
            geometry,
            PageMapRules {
                cached_pages,
                data_tag: file.controller.data_tag,
                contexts: file.controller.contexts,
            },
        )
    };
    let hybrid = |locality, sequential_logs, from_bytes: u32| {
        Hybrid::new(
            geometry,
            HybridRules {
                random_logs: translation.random_log_blocks,
                sequential_logs,
                sequential_from_units: from_bytes.div_ceil(translation.unit_bytes),
                locality,
            },
        )
    };
    Ok(match translation.kind {
        TranslationKind::PageMap => Box::new(page_map(None)?),
        TranslationKind::CachedMap => Box::new(page_map(Some(translation.cached_map_pages))?),
        TranslationKind::Fast => Box::new(hybrid(Locality::Ignored, translation.sequential_log_blocks, 0)?),
        TranslationKind::Last => Box::new(hybrid(
            Locality::Parted,
            translation.sequential_log_blocks,
            translation.sequential_from_bytes,
        )?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The phone's card with simple numbers: command 100 us, PC 80, LSB 500, MSB 1300, tR 100, SLC 400; bus 6.4 us
    /// per sector.
    fn file() -> CardFile {
        let mut file = CardFile::preset("gt-i9300").unwrap();
        file.flash.transfer_ns = 80_000;
        file.flash.capacity_bytes = 1 << 28;
        file.controller.packed_apart = false;
        file
    }

    fn card(file: &CardFile) -> Card {
        Card::new(file, 6_400_000).unwrap()
    }

    const fn extent(sector: u64, sectors: u32) -> Extent {
        Extent {
            sector,
            sectors,
            placement: Placement::Default,
        }
    }

    const fn nanos_us(micros: u64, tenths: u64) -> Nanos {
        Nanos(micros * 1000 + tenths * 100)
    }

    /// 4 KiB: command 100, data 8 x 6.4 = 51.2, PC 80, LSB 500: ready at 731.2; the bus was free at 51.2.
    #[test]
    fn four_kib_take_command_data_transfer_and_program() {
        let times = card(&file()).write(Nanos::ZERO, 0, &[extent(0, 8)], Durability::Cached);
        assert_eq!(times.ready, nanos_us(731, 2));
    }

    /// A write reads the units that it covers in part, and no others.
    #[test]
    fn a_partial_write_reads_only_the_units_that_it_covers_in_part() {
        let reads = |written: Extent| {
            let mut card = card(&file());
            let start = card
                .write(Nanos::ZERO, 0, &[extent(0, 24)], Durability::Cached)
                .ready;
            card.write(start, 0, &[written], Durability::Cached);
            card.counters().nand.reads
        };
        assert_eq!(reads(extent(0, 24)), 0, "whole units");
        assert_eq!(reads(extent(0, 20)), 1, "the last one in part");
        assert_eq!(reads(extent(4, 20)), 1, "the first one in part");
        assert_eq!(reads(extent(4, 16)), 2, "both");
        assert_eq!(reads(extent(2, 4)), 1, "the middle of one");
    }

    /// A pack of two x 4 KiB: header 1 sector, then 16 sectors fill one page: 100 + 17 x 6.4 + 80 + 500 = 788.8.
    #[test]
    fn two_small_writes_of_a_pack_share_a_page() {
        let mut card = card(&file());
        let times = card.write(
            Nanos::ZERO,
            1,
            &[extent(0, 8), extent(8000, 8)],
            Durability::Cached,
        );
        assert_eq!(times.ready, nanos_us(788, 8));
        assert_eq!(card.translation().padded_units, 0);
    }

    /// The same pack on a card that programs them one after another: the first is programmed at 100 + 9 x 6.4 + 80 +
    /// 500 = 737.6; the second, whose data has arrived by then, at 737.6 + 80 + 500 = 1317.6.
    #[test]
    fn small_writes_of_a_pack_go_one_after_the_other_where_the_card_does_not_interleave() {
        let mut file = file();
        file.controller.packed_apart = true;
        let pack = [extent(0, 8), extent(8000, 8)];
        let times = card(&file).write(Nanos::ZERO, 1, &pack, Durability::Cached);
        assert_eq!(times.ready, nanos_us(1317, 6));
        let follows = [extent(0, 8), extent(8, 8)];
        let times = card(&file).write(Nanos::ZERO, 1, &follows, Durability::Cached);
        assert_eq!(times.ready, nanos_us(788, 8));
    }

    /// 128 KiB are a row of 16 LSB pages. Data arrives every 102.4 us (16 sectors), slower than PC: the last page has
    /// arrived at 100 + 16 x 102.4 = 1738.4, then 80 + 500 = 2318.4.
    #[test]
    fn a_super_page_programs_all_banks_at_once() {
        let times = card(&file()).write(Nanos::ZERO, 0, &[extent(0, 256)], Durability::Cached);
        assert_eq!(times.ready, nanos_us(2318, 4));
    }

    /// Three commands of a super page: the third is page 2 of each bank and copies 16 LSB pages, 500 us each, one
    /// after another from 1 s + 100 + 102.4 us on: 202.4 + 8000, then PC 80 and MSB 1300 = 9582.4 after its start.
    #[test]
    fn a_super_page_on_upper_pages_waits_for_sixteen_copies() {
        let mut card = card(&file());
        for second in 0..2 {
            card.write(
                Nanos(second * 100_000_000),
                0,
                &[extent(second * 256, 256)],
                Durability::Cached,
            );
        }
        let start = Nanos(1_000_000_000);
        let times = card.write(start, 0, &[extent(512, 256)], Durability::Cached);
        assert_eq!(times.ready, start + nanos_us(9582, 4));
        assert_eq!(card.nand().backups, 16);
    }

    /// The same three super pages in one command copy nothing.
    #[test]
    fn one_command_over_upper_pages_copies_nothing() {
        let mut card = card(&file());
        card.write(Nanos::ZERO, 0, &[extent(0, 768)], Durability::Cached);
        assert_eq!(card.nand().backups, 0);
    }

    /// 512 B into a unit that has data: at 10 ms + 100 the page is read (100 + 80), so data counts from 280: 280 +
    /// 6.4 + 80 + 500 = 866.4 (page 1 of the stripe is in another bank).
    #[test]
    fn a_write_of_a_part_reads_the_rest_first() {
        let mut card = card(&file());
        card.write(Nanos::ZERO, 0, &[extent(0, 8)], Durability::Cached);
        let start = Nanos::from_millis(10);
        let times = card.write(start, 0, &[extent(0, 1)], Durability::Cached);
        assert_eq!(times.ready, start + nanos_us(866, 4));
    }

    /// With a cache 4 KiB are done when they are in RAM: 100 + 51.2. A flush at 1 ms programs the padded page: 1000 +
    /// 100 + 80 + 500 = 1680.
    #[test]
    fn a_cache_answers_before_the_program_and_a_flush_waits_for_it() {
        let mut file = file();
        file.controller.cache = true;
        let mut card = card(&file);
        let times = card.write(Nanos::ZERO, 0, &[extent(0, 8)], Durability::Cached);
        assert_eq!(times.ready, nanos_us(151, 2));
        assert_eq!(card.flush(Nanos::from_millis(1)), nanos_us(1680, 0));
        assert_eq!(card.translation().padded_units, 1);
    }

    /// 12 KiB into a cache are a page and a half: the page is programmed as soon as its data has arrived, 100 + 16 x
    /// 6.4 = 202.4, + 80 + 500 = 782.4. Unit 2 waits in RAM until a flush at 1 ms: 1680. The newer of two writes
    /// counts.
    #[test]
    fn the_record_of_programs_tells_what_is_still_in_ram() {
        let mut file = file();
        file.controller.cache = true;
        let mut card = card(&file);
        card.keep_record();
        card.write(Nanos::ZERO, 0, &[extent(0, 24)], Durability::Cached);
        let end = nanos_us(782, 4);
        assert_eq!(card.take_programmed(), [(0, end), (1, end)]);
        card.flush(Nanos::from_millis(1));
        assert_eq!(card.take_programmed(), [(2, nanos_us(1680, 0))]);
    }

    /// FUA through the cache takes as long as without one: 731.2.
    #[test]
    fn fua_is_programmed_whatever_the_cache() {
        let mut file = file();
        file.controller.cache = true;
        let times = card(&file).write(Nanos::ZERO, 0, &[extent(0, 8)], Durability::Programmed);
        assert_eq!(times.ready, nanos_us(731, 2));
    }

    /// Everything between two flushes is one epoch: small writes that fill upper pages copy nothing.
    #[test]
    fn what_a_cache_has_not_promised_is_not_copied() {
        let mut file = file();
        file.controller.cache = true;
        let mut card = card(&file);
        for n in 0..200 {
            card.write(
                Nanos::from_millis(10 * n),
                0,
                &[extent(n * 8, 8)],
                Durability::Cached,
            );
        }
        assert_eq!(card.nand().backups, 0);
    }

    /// A read of 4 KiB: 100 command + 100 tR + 80 PC + 8 x 6.4 = 331.2.
    #[test]
    fn a_read_takes_cells_channel_and_bus() {
        let mut card = card(&file());
        card.write(Nanos::ZERO, 0, &[extent(0, 8)], Durability::Cached);
        let start = Nanos::from_millis(10);
        assert_eq!(card.read(start, 0, &[extent(0, 8)]), start + nanos_us(331, 2));
    }

    /// Reads of a page, one after another: 100 command + 100 tR + 80 PC + 8 x 6.4 = 331.2 (the first half leaves while the
    /// second is awaited). The second one follows the first, so the card reads on: the third is in memory, and takes command
    /// and bus, 100 + 16 x 6.4 = 202.4. After a write, and elsewhere, nothing is in memory.
    #[test]
    fn a_sequential_reader_is_answered_from_what_was_read_ahead() {
        let mut file = file();
        file.controller.read_ahead_bytes = 16384;
        let mut card = card(&file);
        card.write(Nanos::ZERO, 0, &[extent(0, 128)], Durability::Cached);
        let mut time = |millis, sector| {
            let start = Nanos::from_millis(millis);
            card.read(start, 0, &[extent(sector, 16)]) - start
        };
        let (flash, memory) = (nanos_us(331, 2), nanos_us(202, 4));
        assert_eq!([time(10, 0), time(20, 16), time(30, 32)], [flash, flash, memory]);
        assert_eq!(
            [time(40, 80), time(50, 96), time(60, 112)],
            [flash, flash, memory]
        );
        // The last page lies at sector 112: nothing is behind it.
        card.write(Nanos::from_millis(70), 0, &[extent(0, 16)], Durability::Cached);
        let start = Nanos::from_millis(80);
        assert_eq!(card.read(start, 0, &[extent(16, 16)]) - start, flash);
    }

    /// TRIM: command 100, PC 80, SLC 400 = 580. DISCARD: only the command. Both discard the data.
    #[test]
    fn trim_is_written_and_discard_is_not() {
        let mut card = card(&file());
        card.write(Nanos::ZERO, 0, &[extent(0, 16)], Durability::Cached);
        let start = Nanos::from_millis(10);
        assert_eq!(
            card.forget(start, 0, 8, Forget::Durably),
            start + nanos_us(580, 0)
        );
        let later = Nanos::from_millis(20);
        assert_eq!(card.forget(later, 8, 8, Forget::Lazily), later + nanos_us(100, 0));
        assert!(!card.has_data(0) && !card.has_data(8));
    }

    /// Tagged data goes to SLC: 100 + 51.2 + 80 + 400 = 631.2.
    #[test]
    fn tagged_data_is_programmed_as_slc() {
        let mut file = file();
        file.controller.data_tag = true;
        file.flash.spare_permille = 500;
        let tagged = Extent {
            placement: Placement::Tagged,
            ..extent(0, 8)
        };
        let times = card(&file).write(Nanos::ZERO, 0, &[tagged], Durability::Cached);
        assert_eq!(times.ready, nanos_us(631, 2));
    }

    /// A buffer of one page: the second page's data is accepted when the first is programmed, at 100 + 102.4 + 80 +
    /// 500 = 782.4; its own PC and program end at 1362.4.
    #[test]
    fn a_small_buffer_holds_the_bus() {
        let mut file = file();
        file.controller.buffer_bytes = 8192;
        let times = card(&file).write(Nanos::ZERO, 0, &[extent(0, 32)], Durability::Cached);
        assert_eq!(times.ready, nanos_us(1362, 4));
        assert_eq!(times.data_end, nanos_us(682, 4));
    }
}
