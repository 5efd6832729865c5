//! A simulated chip that fails at one operation, and afterwards as long as the fault says. Operations are counted
//! over all chips of a plan. It sits below UBI: the layers above must not notice faults that UBI can handle.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use media::{Clock, Host, Nand, NandError, NandGeometry, Page, Peb, ReadReport};
use nand::{Failing, SimNand};

/// A chip that survives its users.
pub type Chip = Arc<Mutex<SimNand>>;

/// Class of operations with a common counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChipOperation {
    Read,
    Program,
    Erase,
}

/// Kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChipFault {
    /// The host fails (`EIO`) for this number of operations.
    Host(u32),
    /// This number of reads return wrong data and report it as uncorrectable.
    Uncorrectable(u32),
    /// The range read becomes uncorrectable until the block is erased or [`ChipPlan::mend`] is called.
    Lost,
    /// Bits of the pages read flip permanently: few enough for the ECC, enough to require scrubbing.
    Flips,
    /// One program of a page, or one erase, fails.
    Once,
    /// The page can never be programmed again, or the block never erased again.
    ForEver,
    /// No operation of this class succeeds any more, in any block.
    Everywhere,
    /// The operation panics.
    Panic,
}

#[derive(Debug, Default)]
struct State {
    fault: Option<(ChipOperation, u64, ChipFault)>,
    done: BTreeMap<ChipOperation, u64>,
    /// Number of operations still to fail.
    left: u32,
    /// Chip, block and byte range that are lost.
    lost: Option<(Arc<str>, Peb, Range<u32>)>,
    hit: Option<String>,
    mended: bool,
}

/// The faults of all chips.
#[derive(Clone, Debug, Default)]
pub struct ChipPlan(Arc<Mutex<State>>);

impl ChipPlan {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Injects a fault into the nth operation of a class from here on, counted from 0.
    pub fn fail(&self, operation: ChipOperation, number: u64, fault: ChipFault) {
        let mut state = self.state();
        let before = state.done.get(&operation).copied().unwrap_or(0);
        state.fault = Some((operation, before + number, fault));
        (state.hit, state.left, state.mended, state.lost) = (None, 0, false, None);
    }

    /// Number of operations of a class so far.
    pub fn done(&self, operation: ChipOperation) -> u64 {
        self.state().done.get(&operation).copied().unwrap_or(0)
    }

    /// The first operation that failed.
    pub fn hit(&self) -> Option<String> {
        self.state().hit.clone()
    }

    /// Ends all faults, except for blocks that went bad.
    pub fn mend(&self) {
        self.state().mended = true;
    }

    /// Whether the bytes of a read are lost; `now` makes them lost from this read on.
    fn are_lost(&self, chip: &Arc<str>, peb: Peb, bytes: &Range<u32>, now: bool) -> bool {
        let mut state = self.state();
        if now {
            state.lost = Some((Arc::clone(chip), peb, bytes.clone()));
        }
        let overlaps = |(of, block, lost): &(Arc<str>, Peb, Range<u32>)| {
            of == chip && *block == peb && lost.start < bytes.end && bytes.start < lost.end
        };
        !state.mended && state.lost.as_ref().is_some_and(overlaps)
    }

    fn erased(&self, chip: &Arc<str>, peb: Peb) {
        let is_it = |(of, block, _): &mut (Arc<str>, Peb, Range<u32>)| of == chip && *block == peb;
        self.state().lost.take_if(is_it);
    }

    /// Counts an operation and returns the fault it shall meet, if any.
    fn judge(&self, operation: ChipOperation, what: impl FnOnce() -> String) -> Option<ChipFault> {
        let mut state = self.state();
        let number = state.done.entry(operation).or_default();
        let now = *number;
        *number += 1;
        let (class, at, fault) = state.fault?;
        if class != operation || state.mended {
            return None;
        }
        if now == at {
            state.hit = Some(what());
            state.left = match fault {
                ChipFault::Host(times) | ChipFault::Uncorrectable(times) => times,
                ChipFault::Everywhere => u32::MAX,
                ChipFault::Lost
                | ChipFault::Flips
                | ChipFault::Once
                | ChipFault::ForEver
                | ChipFault::Panic => 1,
            };
        }
        if state.left == 0 {
            return None;
        }
        state.left -= 1;
        Some(fault)
    }
}

/// A chip with the faults of a plan.
#[derive(Clone, Debug)]
pub struct FaultyChip {
    pub chip: Chip,
    pub plan: ChipPlan,
}

impl FaultyChip {
    fn chip(&self) -> MutexGuard<'_, SimNand> {
        self.chip.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn host_error(&self, action: String) -> NandError {
        NandError::Host {
            device: self.name(),
            action,
            source: io::Error::from_raw_os_error(5),
        }
    }

    /// The chip's number of its next write.
    fn next_write(&self) -> u64 {
        let statistics = self.chip().statistics();
        statistics.page_programs + statistics.block_erases
    }
}

impl Nand for FaultyChip {
    fn name(&self) -> Arc<str> {
        self.chip().name()
    }

    fn geometry(&self) -> NandGeometry {
        self.chip().geometry()
    }

    fn clock(&self) -> Clock {
        self.chip().clock()
    }

    fn read(&mut self, peb: Peb, offset: u32, out: &mut [u8]) -> Result<ReadReport, NandError> {
        let what = || format!("reading {peb} at offset {offset}, {} bytes", out.len());
        let fault = self.plan.judge(ChipOperation::Read, what);
        let geometry = self.geometry();
        let (first, parts) = (geometry.page_of(offset), geometry.page_parts(offset, out.len()));
        let bytes = offset..offset + u32::try_from(out.len()).expect("at most a block");
        let are_lost = self
            .plan
            .are_lost(&self.name(), peb, &bytes, fault == Some(ChipFault::Lost));
        match fault {
            None if !are_lost => self.chip().read(peb, offset, out),
            None | Some(ChipFault::Lost | ChipFault::Uncorrectable(_)) => {
                let mut report = self.chip().read(peb, offset, out)?;
                for byte in out.iter_mut().step_by(7) {
                    *byte ^= 0x11;
                }
                report.uncorrectable = vec![first];
                Ok(report)
            }
            Some(ChipFault::Flips) => {
                let bits = geometry.bitflip_threshold();
                for part in parts {
                    self.chip().inject_bit_flips(peb, part.page, bits);
                }
                self.chip().read(peb, offset, out)
            }
            Some(ChipFault::Panic) => panic!("a test has a read of {peb} panic"),
            Some(_) => {
                out.fill(0x5A);
                Err(self.host_error(format!("reading {peb}")))
            }
        }
    }

    fn program(&mut self, peb: Peb, offset: u32, data: &[u8]) -> Result<(), NandError> {
        let what = || format!("programming {peb} at offset {offset}, {} bytes", data.len());
        let fault = self.plan.judge(ChipOperation::Program, what);
        // A page in the middle, so that the earlier ones are programmed.
        let page_bytes = self.geometry().page_bytes();
        let pages = u32::try_from(data.len()).expect("at most a block") / page_bytes;
        match fault {
            None => {}
            Some(ChipFault::Once | ChipFault::Everywhere) => {
                let write = self.next_write() + u64::from(pages / 2);
                self.chip().fail_write(write);
            }
            Some(ChipFault::ForEver) => {
                let page = Page(offset / page_bytes + pages / 2);
                let program_at = Some(page);
                let erases = false;
                self.chip().set_failing(peb, Failing { program_at, erases })?;
            }
            Some(ChipFault::Panic) => panic!("a test has a program of {peb} panic"),
            Some(_) => return Err(self.host_error(format!("programming {peb}"))),
        }
        self.chip().program(peb, offset, data)
    }

    fn erase(&mut self, peb: Peb) -> Result<(), NandError> {
        let fault = self.plan.judge(ChipOperation::Erase, || format!("erasing {peb}"));
        match fault {
            None => {}
            Some(ChipFault::Once | ChipFault::Everywhere) => {
                let write = self.next_write();
                self.chip().fail_write(write);
            }
            Some(ChipFault::ForEver) => {
                let (program_at, erases) = (None, true);
                self.chip().set_failing(peb, Failing { program_at, erases })?;
            }
            Some(ChipFault::Panic) => panic!("a test has an erase of {peb} panic"),
            Some(_) => return Err(self.host_error(format!("erasing {peb}"))),
        }
        self.plan.erased(&self.name(), peb);
        self.chip().erase(peb)
    }

    fn is_bad(&mut self, peb: Peb) -> Result<bool, NandError> {
        self.chip().is_bad(peb)
    }

    fn mark_bad(&mut self, peb: Peb) -> Result<(), NandError> {
        self.chip().mark_bad(peb)
    }

    fn sync(&mut self) -> Result<(), NandError> {
        self.chip().sync()
    }

    fn host(&self) -> Option<Arc<dyn Host>> {
        self.chip().host()
    }
}
