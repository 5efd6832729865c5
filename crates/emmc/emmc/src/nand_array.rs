//! NAND banks behind one channel: computes when a read, program or erase ends. Holds times, no data.
//!
//! The rules (seeds/002 figure 3 and section 2.1.1):
//! - transferring a page between controller and bank (PC, `transfer`) occupies the channel; transfers never overlap;
//! - programs, reads and erases of different banks overlap, those of one bank do not;
//! - a copy of an endangered page to the SLC buffer (read and SLC program) occupies its bank and the one buffer, so
//!   copies never overlap, whatever their banks;
//! - operations occupy channel and bank in the order of the calls, except that with [`NandArray::reorder_reads`] the
//!   transfer of a read may take a gap before the transfers of earlier calls (command queue).
//!
//! The translation layer decides whether a copy is needed: it knows which data was acknowledged.

use std::collections::VecDeque;

use media::Nanos;
use serde::{Deserialize, Serialize};

use crate::cell::WordLines;
use crate::geometry::{PagePlace, index};

/// Durations of the steps of an operation, by the bit of the page where that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NandTiming {
    /// From the cells to the bank's register (tR), for the first, second and third bit.
    pub read: [Nanos; 3],
    /// From the register to the cells (tPROG), for the first, second and third bit.
    pub program: [Nanos; 3],
    /// Program of a page of the SLC buffer, or of a block used as SLC.
    pub program_slc: Nanos,
    /// Erase of a block (tBERS).
    pub erase: Nanos,
    /// Transfer of one page over the channel (PC).
    pub transfer: Nanos,
}

/// Electrical power of a bank by operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NandPower {
    /// While it is read, milliwatts.
    pub read_mw: u64,
    /// While it is programmed, milliwatts.
    pub program_mw: u64,
    /// While it is erased, milliwatts.
    pub erase_mw: u64,
    /// While it is idle, microwatts.
    pub standby_uw: u64,
}

/// How a page is programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramMode {
    /// In the native mode of its cells.
    Native,
    /// One bit per cell, whatever the capacity of the cells.
    Slc,
}

/// Counters of the banks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NandCounters {
    /// Pages programmed, without copies to the SLC buffer.
    pub programs: u64,
    /// Pages read, without those for copies.
    pub reads: u64,
    /// Blocks erased, counted per bank.
    pub erases: u64,
    /// Pages copied to the SLC buffer.
    pub backups: u64,
    /// Time that banks were occupied by programs, including transfers, nanoseconds summed over banks.
    pub program_ns: u64,
    /// The same for reads, including the wait for the channel.
    pub read_ns: u64,
    /// The same for erases.
    pub erase_ns: u64,
    /// The same for copies to the SLC buffer.
    pub backup_ns: u64,
    /// Energy of all these operations, picojoules; 0 without a known power.
    pub energy_pj: u128,
}

impl NandCounters {
    /// The part counted after `before` was taken.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            programs: self.programs - before.programs,
            reads: self.reads - before.reads,
            erases: self.erases - before.erases,
            backups: self.backups - before.backups,
            program_ns: self.program_ns - before.program_ns,
            read_ns: self.read_ns - before.read_ns,
            erase_ns: self.erase_ns - before.erase_ns,
            backup_ns: self.backup_ns - before.backup_ns,
            energy_pj: self.energy_pj - before.energy_pj,
        }
    }

    /// Time that banks were occupied by all kinds of operations, nanoseconds summed over banks.
    #[must_use]
    pub const fn busy_ns(&self) -> u64 {
        self.program_ns + self.read_ns + self.erase_ns + self.backup_ns
    }
}

/// The energy of some nanoseconds at some milliwatts: a card of the highest power that a file may have needs more than 64
/// bits within days.
pub(crate) fn energy_pj(time_ns: u64, power_mw: u64) -> u128 {
    u128::from(time_ns) * u128::from(power_mw)
}

/// The banks and their shared resources.
#[derive(Clone, Debug)]
pub struct NandArray {
    timing: NandTiming,
    power: NandPower,
    bits: Vec<u8>,
    channel_free: Nanos,
    /// Transfers over the channel, if reads may use the gaps between them.
    transfers: Option<Transfers>,
    backup_free: Nanos,
    bank_free: Vec<Nanos>,
    busy_ns: Vec<u64>,
    counters: NandCounters,
}

impl NandArray {
    /// Idle banks.
    #[must_use]
    pub fn new(banks: u32, word_lines: &WordLines, timing: NandTiming) -> Self {
        Self {
            timing,
            power: NandPower::default(),
            bits: (0..word_lines.pages())
                .map(|page| word_lines.role(page).bit)
                .collect(),
            channel_free: Nanos::ZERO,
            transfers: None,
            backup_free: Nanos::ZERO,
            bank_free: vec![Nanos::ZERO; index(banks)],
            busy_ns: vec![0; index(banks)],
            counters: NandCounters::default(),
        }
    }

    /// Counts energy with this power.
    pub const fn set_power(&mut self, power: NandPower) {
        self.power = power;
    }

    /// Durations and power of the operations.
    #[must_use]
    pub const fn rates(&self) -> (NandTiming, NandPower) {
        (self.timing, self.power)
    }

    /// Sets the clock of idle banks to zero.
    pub fn restart_clock(&mut self) {
        self.channel_free = Nanos::ZERO;
        self.backup_free = Nanos::ZERO;
        self.bank_free.fill(Nanos::ZERO);
        if let Some(transfers) = &mut self.transfers {
            *transfers = Transfers::default();
        }
    }

    /// From here on the transfer of a read takes the first gap of the channel after its cells were read.
    pub fn reorder_reads(&mut self) {
        self.transfers.get_or_insert_default();
    }

    /// Programs a page whose data is available at `ready`, after copying `backups` pages of its bank to the SLC
    /// buffer. Returns the end.
    pub fn program(&mut self, place: PagePlace, ready: Nanos, backups: u32, mode: ProgramMode) -> Nanos {
        let bank = index(place.bank);
        for _ in 0..backups {
            let start = self.backup_free.max(self.bank_free[bank]).max(ready);
            let end = start + self.timing.read[0] + self.timing.program_slc;
            self.backup_free = end;
            self.counters.backup_ns += self.occupy(bank, start, end);
            self.counters.backups += 1;
            self.counters.energy_pj += energy_pj(self.timing.read[0].0, self.power.read_mw)
                + energy_pj(self.timing.program_slc.0, self.power.program_mw);
        }
        let start = self.channel_free.max(self.bank_free[bank]).max(ready);
        let sent = start + self.timing.transfer;
        self.channel_free = sent;
        if let Some(transfers) = &mut self.transfers {
            transfers.append(start, sent);
        }
        let end = sent
            + match mode {
                ProgramMode::Native => self.timing.program[usize::from(self.bits[index(place.page)])],
                ProgramMode::Slc => self.timing.program_slc,
            };
        let busy = self.occupy(bank, start, end);
        self.counters.program_ns += busy;
        self.counters.energy_pj += energy_pj(busy, self.power.program_mw);
        self.counters.programs += 1;
        end
    }

    /// Reads a page, no earlier than `ready`. Returns the time at which the controller has it.
    pub fn read(&mut self, place: PagePlace, ready: Nanos) -> Nanos {
        let bank = index(place.bank);
        let start = self.bank_free[bank].max(ready);
        let in_register = start + self.timing.read[usize::from(self.bits[index(place.page)])];
        let end = match &mut self.transfers {
            Some(transfers) => transfers.take_gap(in_register, self.timing.transfer),
            None => in_register.max(self.channel_free) + self.timing.transfer,
        };
        self.channel_free = self.channel_free.max(end);
        let busy = self.occupy(bank, start, end);
        self.counters.read_ns += busy;
        self.counters.energy_pj += energy_pj(busy, self.power.read_mw);
        self.counters.reads += 1;
        end
    }

    /// Erases one block of every bank, no earlier than `ready`. Returns the end of the last erase.
    pub fn erase_all(&mut self, ready: Nanos) -> Nanos {
        let mut last = ready;
        for bank in 0..self.bank_free.len() {
            let start = self.bank_free[bank].max(ready);
            let end = start + self.timing.erase;
            let busy = self.occupy(bank, start, end);
            self.counters.erase_ns += busy;
            self.counters.energy_pj += energy_pj(busy, self.power.erase_mw);
            self.counters.erases += 1;
            last = last.max(end);
        }
        last
    }

    /// Time at which all banks are idle.
    #[must_use]
    pub fn idle_at(&self) -> Nanos {
        self.bank_free.iter().copied().max().unwrap_or_default()
    }

    /// Counters of the banks.
    #[must_use]
    pub const fn counters(&self) -> NandCounters {
        self.counters
    }

    /// Busy time of each bank, nanoseconds.
    #[must_use]
    pub fn busy_ns(&self) -> &[u64] {
        &self.busy_ns
    }

    fn occupy(&mut self, bank: usize, start: Nanos, end: Nanos) -> u64 {
        let busy = (end - start).0;
        self.busy_ns[bank] += busy;
        self.bank_free[bank] = end;
        busy
    }
}

/// Recent transfers over the channel, in ascending order, without overlaps.
#[derive(Clone, Debug, Default)]
struct Transfers {
    recent: VecDeque<(Nanos, Nanos)>,
    /// No gap before this time is used.
    floor: Nanos,
}

/// Number of transfers between which gaps are found: two for each task of a command queue.
const RECENT_TRANSFERS: usize = 64;

impl Transfers {
    /// Records a transfer behind all others.
    fn append(&mut self, start: Nanos, end: Nanos) {
        self.recent.push_back((start, end));
        self.limit();
    }

    /// Takes the first gap of this length, no earlier than `ready`. Returns its end.
    fn take_gap(&mut self, ready: Nanos, length: Nanos) -> Nanos {
        let mut start = ready.max(self.floor);
        let mut at = 0;
        for (from, to) in &self.recent {
            if start + length <= *from {
                break;
            }
            start = start.max(*to);
            at += 1;
        }
        self.recent.insert(at, (start, start + length));
        self.limit();
        start + length
    }

    fn limit(&mut self) {
        if self.recent.len() > RECENT_TRANSFERS
            && let Some((_, end)) = self.recent.pop_front()
        {
            self.floor = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::CellKind;

    const fn micros(count: u64) -> Nanos {
        Nanos::from_micros(count)
    }

    /// PC 10, LSB 100, MSB 300, tR 20 / 30, SLC 50, erase 1000; all in microseconds.
    fn four_banks() -> NandArray {
        let timing = NandTiming {
            read: [micros(20), micros(30), micros(30)],
            program: [micros(100), micros(300), micros(300)],
            program_slc: micros(50),
            erase: micros(1000),
            transfer: micros(10),
        };
        NandArray::new(4, &WordLines::new(CellKind::Mlc, 4), timing)
    }

    const fn at(bank: u32, page: u32) -> PagePlace {
        PagePlace { bank, page }
    }

    fn program(array: &mut NandArray, place: PagePlace, backups: u32) -> Nanos {
        array.program(place, Nanos::ZERO, backups, ProgramMode::Native)
    }

    /// One page: 10 transfer + 100 program = 110.
    #[test]
    fn one_program_is_its_transfer_and_its_program() {
        assert_eq!(program(&mut four_banks(), at(0, 0), 0), micros(110));
    }

    /// Figure 3, first half: four banks start at 0, 10, 20, 30; the last ends at 30 + 10 + 100 = 140.
    #[test]
    fn programs_of_four_banks_overlap_but_for_their_transfers() {
        let mut array = four_banks();
        let ends: Vec<_> = (0..4).map(|bank| program(&mut array, at(bank, 0), 0)).collect();
        assert_eq!(ends, [micros(110), micros(120), micros(130), micros(140)]);
    }

    /// Figure 3, second half: each copy takes 20 + 50 = 70 and waits for the previous one: they end at 70, 140, 210,
    /// 280. Bank 3 then transfers from 280 to 290 and programs an MSB page (300) until 590.
    #[test]
    fn copies_to_the_slc_buffer_do_not_overlap() {
        let mut array = four_banks();
        let ends: Vec<_> = (0..4).map(|bank| program(&mut array, at(bank, 2), 1)).collect();
        assert_eq!(ends, [micros(380), micros(450), micros(520), micros(590)]);
        assert_eq!(array.counters().backups, 4);
    }

    /// Two pages of one bank: 10 + 100, then 10 + 100 again (page 1 is an LSB page) = 220.
    #[test]
    fn one_bank_programs_one_page_after_the_other() {
        let mut array = four_banks();
        program(&mut array, at(0, 0), 0);
        assert_eq!(program(&mut array, at(0, 1), 0), micros(220));
    }

    /// An MSB page takes 10 + 300 = 310; the same page used as SLC 10 + 50 = 60.
    #[test]
    fn the_bit_of_the_page_decides_how_long_a_program_takes() {
        assert_eq!(program(&mut four_banks(), at(0, 2), 0), micros(310));
        let mut array = four_banks();
        assert_eq!(
            array.program(at(0, 2), Nanos::ZERO, 0, ProgramMode::Slc),
            micros(60)
        );
    }

    /// Reads of two banks: registers are full at 20 and 20; the channel moves one until 30, the other until 40.
    #[test]
    fn reads_overlap_in_the_cells_and_queue_for_the_channel() {
        let mut array = four_banks();
        assert_eq!(array.read(at(0, 0), Nanos::ZERO), micros(30));
        assert_eq!(array.read(at(1, 0), Nanos::ZERO), micros(40));
    }

    /// An MSB page takes 30 + 10 = 40.
    #[test]
    fn a_read_of_an_upper_page_takes_longer() {
        assert_eq!(four_banks().read(at(0, 2), Nanos::ZERO), micros(40));
    }

    /// Data that arrives at 500: 500 + 10 + 100 = 610.
    #[test]
    fn a_program_waits_for_its_data() {
        let end = four_banks().program(at(0, 0), micros(500), 0, ProgramMode::Native);
        assert_eq!(end, micros(610));
    }

    /// Bank 0 is busy until 110, the others are free: erases end at 1110 and 1000.
    #[test]
    fn an_erase_takes_all_banks_each_when_it_is_free() {
        let mut array = four_banks();
        program(&mut array, at(0, 0), 0);
        assert_eq!(array.erase_all(Nanos::ZERO), micros(1110));
        assert_eq!(array.counters().erases, 4);
        assert_eq!(array.busy_ns(), [1_110_000, 1_000_000, 1_000_000, 1_000_000]);
    }

    /// An MSB page with one copy: copy 20 us x 1 mW + 50 x 3 = 170 nJ, program 310 x 3 = 930; a read 40 x 1 = 40; the erase
    /// of four banks 4000 x 5 = 20,000: 21,140 nJ.
    #[test]
    fn energy_is_time_by_power_of_each_operation() {
        let mut array = four_banks();
        array.set_power(NandPower {
            read_mw: 1,
            program_mw: 3,
            erase_mw: 5,
            standby_uw: 0,
        });
        program(&mut array, at(0, 2), 1);
        array.read(at(1, 2), micros(5000));
        array.erase_all(micros(9000));
        assert_eq!(array.counters().energy_pj, 21_140_000);
    }

    /// Two million erases of one second at 10 W are 2 x 10^19 pJ, more than 64 bits hold.
    #[test]
    fn the_energy_of_a_long_life_does_not_wrap() {
        let slow = NandTiming {
            erase: Nanos(1_000_000_000),
            ..four_banks().timing
        };
        let mut array = NandArray {
            timing: slow,
            ..four_banks()
        };
        array.set_power(NandPower {
            erase_mw: 10_000,
            ..NandPower::default()
        });
        for _ in 0..500_000 {
            array.erase_all(Nanos::ZERO);
        }
        assert_eq!(array.counters().energy_pj, 20_000_000_000_000_000_000);
    }

    /// A TLC page of bit 2 endangers two: 2 x 70 of copies, then 10 + 300 = 450.
    #[test]
    fn two_copies_come_before_a_page_that_endangers_two() {
        assert_eq!(program(&mut four_banks(), at(0, 2), 2), micros(450));
    }

    /// Bank 0 is read twice: registers full at 20 and 50 (30 + 20). Bank 1, asked last, is in its register at 20: its
    /// transfer takes the gap between 30 and 60 when reads are reordered, and waits for both otherwise.
    #[test]
    fn a_reordered_read_takes_a_gap_of_the_channel() {
        let read = |array: &mut NandArray, bank| array.read(at(bank, 0), Nanos::ZERO);
        let mut fixed = four_banks();
        let ends = [0, 0, 1].map(|bank| read(&mut fixed, bank));
        assert_eq!(ends, [micros(30), micros(60), micros(70)]);
        let mut reordered = four_banks();
        reordered.reorder_reads();
        let ends = [0, 0, 1].map(|bank| read(&mut reordered, bank));
        assert_eq!(ends, [micros(30), micros(60), micros(40)]);
    }
}
