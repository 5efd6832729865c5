//! A simulated chip in a file on a host that can crash: any subset of the writes since the last sync may survive.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use media::{Clock, Host, Nand, NandError, NandGeometry, Peb, ReadReport};
use nand::SimNand;

/// A change of the chip.
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
    /// Changes since the last sync.
    changes: Vec<Change>,
    syncs: u64,
    /// Number of upcoming syncs that fail.
    failing: u32,
    /// [`Nand::host`] does not reveal the host.
    is_hidden: bool,
}

/// A chip that survives its users and their host.
#[derive(Clone, Debug)]
pub struct HostedChip(Arc<Mutex<State>>);

impl HostedChip {
    /// A chip whose content is synced.
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

    /// Hides the host from the users of the chip: the behaviour before erases were ordered.
    pub fn hidden(self) -> Self {
        self.state().is_hidden = true;
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of syncs so far.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Programs since the last sync.
    pub fn unsynced_programs(&self) -> usize {
        let is_program = |change: &&Change| matches!(change, Change::Programmed(..));
        self.state().changes.iter().filter(is_program).count()
    }

    /// Makes the next `count` syncs fail.
    pub fn fail_syncs(&self, count: u32) {
        self.state().failing = count;
    }

    /// The chip after a crash of the host: all erases since the last sync, and the first `programs` programs.
    pub fn crashed(&self, programs: usize) -> SimNand {
        self.crashed_with(&mut |program| program < programs)
    }

    /// As [`Self::crashed`], with the programs whose number `is_kept` accepts.
    pub fn crashed_with(&self, is_kept: &mut dyn FnMut(usize) -> bool) -> SimNand {
        let state = self.state();
        let mut left = state.synced.clone();
        let mut programs = 0..;
        for change in &state.changes {
            // Replaying a change can fail only if an earlier one is missing.
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
