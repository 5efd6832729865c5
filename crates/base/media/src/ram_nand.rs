//! A plain chip in memory: only the rules of the medium. No faults, and its operations take no time.
//!
//! It is the reference for other devices, and enough for tests without power cuts; the simulator is in `nand`.

use std::sync::Arc;

use crate::nand::Host;
use crate::{Clock, Nand, NandError, NandGeometry, Peb, ReadReport, index};

/// A chip in memory. A clone is an independent chip with the same content and time.
#[derive(Debug)]
pub struct RamNand {
    name: Arc<str>,
    geometry: NandGeometry,
    clock: Clock,
    blocks: Vec<Block>,
}

/// A block: the bytes programmed since the last erase, from the start; the rest is 0xFF.
#[derive(Clone, Debug, Default)]
struct Block {
    programmed: Vec<u8>,
    bad: bool,
}

impl RamNand {
    /// An erased chip.
    #[must_use]
    pub fn new(name: &str, geometry: NandGeometry) -> Self {
        Self {
            name: name.into(),
            geometry,
            clock: Clock::default(),
            blocks: geometry.pebs().map(|_| Block::default()).collect(),
        }
    }

    fn block(&mut self, peb: Peb) -> Result<&mut Block, NandError> {
        self.geometry.check_peb(&self.name, peb)?;
        Ok(&mut self.blocks[index(peb.0)])
    }

    fn good_block(&mut self, peb: Peb, action: &'static str) -> Result<&mut Block, NandError> {
        let device = Arc::clone(&self.name);
        let block = self.block(peb)?;
        if block.bad {
            return Err(NandError::BadBlock { device, peb, action });
        }
        Ok(block)
    }
}

impl Clone for RamNand {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            geometry: self.geometry,
            clock: Clock::starting_at(self.clock.now()),
            blocks: self.blocks.clone(),
        }
    }
}

impl Nand for RamNand {
    fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn geometry(&self) -> NandGeometry {
        self.geometry
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn read(&mut self, peb: Peb, offset: u32, out: &mut [u8]) -> Result<ReadReport, NandError> {
        self.geometry.check_read(&self.name, peb, offset, out.len())?;
        let written = self.blocks[index(peb.0)]
            .programmed
            .get(index(offset)..)
            .unwrap_or(&[]);
        let written = &written[..written.len().min(out.len())];
        let (start, rest) = out.split_at_mut(written.len());
        start.copy_from_slice(written);
        rest.fill(0xFF);
        Ok(ReadReport::default())
    }

    fn program(&mut self, peb: Peb, offset: u32, data: &[u8]) -> Result<(), NandError> {
        self.geometry.check_program(&self.name, peb, offset, data.len())?;
        let (device, page) = (Arc::clone(&self.name), self.geometry.page_of(offset));
        let block = self.good_block(peb, "programmed")?;
        let next = block.programmed.len();
        if index(offset) < next {
            return Err(NandError::NotErased {
                device,
                peb,
                page,
                offset,
                next: u32::try_from(next).expect("a block is below 4 GiB"),
            });
        }
        block.programmed.resize(index(offset), 0xFF);
        block.programmed.extend_from_slice(data);
        Ok(())
    }

    fn erase(&mut self, peb: Peb) -> Result<(), NandError> {
        self.good_block(peb, "erased")?.programmed = Vec::new();
        Ok(())
    }

    fn is_bad(&mut self, peb: Peb) -> Result<bool, NandError> {
        Ok(self.block(peb)?.bad)
    }

    fn mark_bad(&mut self, peb: Peb) -> Result<(), NandError> {
        self.block(peb)?.bad = true;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), NandError> {
        Ok(())
    }

    fn host(&self) -> Option<Arc<dyn Host>> {
        None
    }
}
