//! A simulated chip in a file of a host that can crash: what was written since the last sync may be gone, and any of it may be there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use media::{Clock, Host, Nand, NandError, NandGeometry, Peb, ReadReport};
use nand::SimNand;

/// Something that was changed.
#[derive(Clone, Debug)]
enum Change {
    Programmed(Peb, u32, Vec<u8>),
    Erased(Peb),
    MarkedBad(Peb),
}

#[derive(Debug)]
struct State {
    now: SimNand,
    synced: SimNand,
    /// What was changed since.
    changes: Vec<Change>,
    syncs: u64,
    /// Syncs that fail from here on.
    failing: u32,
    /// Nobody is told of the host.
    is_hidden: bool,
}

/// A chip that survives its users and their host.
#[derive(Clone, Debug)]
pub struct HostedChip(Arc<Mutex<State>>);

impl HostedChip {
    /// A chip, all of which is synced.
    pub fn new(chip: SimNand) -> Self {
        Self(Arc::new(Mutex::new(State {
            synced: chip.clone(),
            now: chip,
            changes: Vec::new(),
            syncs: 0,
            failing: 0,
            is_hidden: false,
        })))
    }

    /// The same, of which nobody is told that a host keeps it: how it was before erases had an order.
    pub fn hidden(self) -> Self {
        self.state().is_hidden = true;
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Programs since the last sync.
    pub fn unsynced_programs(&self) -> usize {
        let is_program = |change: &&Change| matches!(change, Change::Programmed(..));
        self.state().changes.iter().filter(is_program).count()
    }

    /// So many syncs fail from here on.
    pub fn fail_syncs(&self, count: u32) {
        self.state().failing = count;
    }

    /// What a crash of the host leaves: all erases since the last sync, and so many programs.
    pub fn crashed(&self, programs: usize) -> SimNand {
        self.crashed_with(&mut |program| program < programs)
    }

    /// The same with those programs of which `is_kept` says so, by their numbers.
    pub fn crashed_with(&self, is_kept: &mut dyn FnMut(usize) -> bool) -> SimNand {
        let state = self.state();
        let mut left = state.synced.clone();
        let mut programs = 0..;
        for change in &state.changes {
            // What was done to the chip can be done to what is left of it, unless something before it is missing.
            let _ = match change {
                Change::Programmed(peb, offset, data) => match programs.next().is_some_and(&mut *is_kept) {
                    true => left.program(*peb, *offset, data),
                    false => Ok(()),
                },
                Change::Erased(peb) => left.erase(*peb),
                Change::MarkedBad(peb) => left.mark_bad(*peb),
            };
        }
        left
    }

    fn sync_now(&self) -> Result<(), NandError> {
        let mut state = self.state();
        state.syncs += 1;
        if state.failing > 0 {
            state.failing -= 1;
            return Err(NandError::Host {
                device: state.now.name(),
                action: "fdatasync".to_owned(),
                source: std::io::Error::from_raw_os_error(5),
            });
        }
        state.synced = state.now.clone();
        state.changes.clear();
        Ok(())
    }

    fn change(
        &self,
        change: Change,
        call: impl FnOnce(&mut SimNand) -> Result<(), NandError>,
    ) -> Result<(), NandError> {
        let mut state = self.state();
        call(&mut state.now)?;
        state.changes.push(change);
        Ok(())
    }
}

impl Host for HostedChip {
    fn sync(&self) -> Result<(), NandError> {
        self.sync_now()
    }
}

impl Nand for HostedChip {
    fn name(&self) -> Arc<str> {
        self.state().now.name()
    }

    fn geometry(&self) -> NandGeometry {
        self.state().now.geometry()
    }

    fn clock(&self) -> Clock {
        self.state().now.clock()
    }

    fn read(&mut self, peb: Peb, offset: u32, out: &mut [u8]) -> Result<ReadReport, NandError> {
        self.state().now.read(peb, offset, out)
    }

    fn program(&mut self, peb: Peb, offset: u32, data: &[u8]) -> Result<(), NandError> {
        let change = Change::Programmed(peb, offset, data.to_vec());
        self.change(change, |chip| chip.program(peb, offset, data))
    }

    fn erase(&mut self, peb: Peb) -> Result<(), NandError> {
        self.change(Change::Erased(peb), |chip| chip.erase(peb))
    }

    fn is_bad(&mut self, peb: Peb) -> Result<bool, NandError> {
        self.state().now.is_bad(peb)
    }

    fn mark_bad(&mut self, peb: Peb) -> Result<(), NandError> {
        self.change(Change::MarkedBad(peb), |chip| chip.mark_bad(peb))
    }

    fn sync(&mut self) -> Result<(), NandError> {
        self.sync_now()
    }

    fn host(&self) -> Option<Arc<dyn Host>> {
        match self.state().is_hidden {
            true => None,
            false => Some(Arc::new(self.clone())),
        }
    }
}
