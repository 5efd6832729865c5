//! Formats a chip as an empty UBI device, or with the content of an image.
//!
//! Erase counters of blocks are kept; blocks without one get the mean. The erase counters of an image are not the
//! chip's, so they are replaced. An interrupted format has to be started again: a device with two image sequence
//! numbers cannot be attached.

use media::{Nand, NandError, Peb, index};

use super::core::{Core, Trouble, VolumeState, layout_volume_record};
use super::handle::Ubi;
use super::order::{EraseQueue, SyncOrder, UnmappedLebs};
use super::table::{OWN_BLOCKS, VolumeTableError};
use crate::attach::{Access, AttachOptions, MemberState};
use crate::format::volume_table::TableLimits;
use crate::format::{Decoded, EcHeader, HEADER_BYTES, LAYOUT_VOLUME_LEBS};
use crate::layout::Layout;
use crate::peb_table::{PebState, PebTable};
use crate::retry;

/// Options of a format.
#[derive(Clone, Copy, Debug)]
pub struct FormatOptions {
    /// Offsets of headers and data.
    pub layout: Layout,
    /// Image sequence number of all blocks. It must not be 0, and should differ from that of any other image.
    pub image_sequence: u32,
    /// Erase counter for all blocks; `None` keeps each block's own.
    pub erase_counter: Option<u32>,
}

impl Ubi {
    /// Erases a chip and makes it an empty UBI device. Calls `progress` for each block.
    pub fn format(
        nand: impl Nand + 'static,
        options: FormatOptions,
        progress: &mut dyn FnMut(Peb),
    ) -> Result<Self, VolumeTableError> {
        let mut core = blank(Box::new(nand), options);
        let mut format = || {
            prepare(&mut core, options)?;
            while let Some(peb) = core.erase_queue.front() {
                core.erase_one()?;
                progress(peb);
            }
            core.erase_queue.shrink();
            let table = core.table();
            core.write_table(&table)?;
            core.sync()
        };
        let formatted = format();
        finish(core, formatted)
    }

    /// Erases a chip and writes the blocks of an image to it, as made by `ubinize` or `tidegate ubi build`; the rest
    /// of the chip becomes free. Attach the device after that: this function does not look at the volumes.
    pub fn flash(
        nand: impl Nand + 'static,
        options: FormatOptions,
        image: &mut dyn Iterator<Item = Vec<u8>>,
        progress: &mut dyn FnMut(Peb),
    ) -> Result<(), VolumeTableError> {
        let mut core = blank(Box::new(nand), options);
        let mut flash = || {
            prepare(&mut core, options)?;
            let mut pending = image.next();
            for peb in core.geometry.pebs() {
                if core.pebs.state(peb) == PebState::Bad {
                    continue;
                }
                let outcome = core.erase(peb).and_then(|()| match &pending {
                    Some(block) => program_image_block(&mut core, peb, block),
                    None => Ok(()),
                });
                match outcome {
                    Ok(()) => pending = pending.take().and_then(|_| image.next()),
                    Err(error) if error.is_block_failure() => core.nand.mark_bad(peb)?,
                    Err(error) => return Err(Trouble::Device(error)),
                }
                progress(peb);
            }
            match pending {
                None => core.sync(),
                Some(_) => Err(Trouble::NoFreeBlock),
            }
        };
        flash().map_err(|trouble| core.error(&trouble))
    }
}

/// The number of LEBs that volumes can have once a chip is formatted. Writes nothing.
pub fn lebs_after_format(nand: &mut dyn Nand) -> Result<u32, NandError> {
    let (mut good, mut reserve) = (0_u32, bad_block_reserve(nand.geometry().blocks()));
    for peb in nand.geometry().pebs() {
        match nand.is_bad(peb)? {
            true => reserve = reserve.saturating_sub(1),
            false => good += 1,
        }
    }
    Ok(good
        .saturating_sub(LAYOUT_VOLUME_LEBS + OWN_BLOCKS)
        .saturating_sub(reserve))
}

/// Blocks kept back for bad ones, on a chip with so many blocks and no bad one.
fn bad_block_reserve(blocks: u32) -> u32 {
    let per_1024 = AttachOptions::linux(Access::ReadWrite).bad_block_reserve_per_1024;
    let reserve = u64::from(blocks) * u64::from(per_1024);
    u32::try_from(reserve.div_ceil(1024)).unwrap_or(u32::MAX)
}

fn finish(core: Core, formatted: Result<(), Trouble>) -> Result<Ubi, VolumeTableError> {
    match formatted {
        Ok(()) => Ok(Ubi::from_core(core)),
        Err(trouble) => Err(core.error(&trouble)),
    }
}

fn blank(nand: Box<dyn Nand>, options: FormatOptions) -> Core {
    let (device, geometry) = (nand.name(), nand.geometry());
    let limits = TableLimits {
        leb_bytes: options.layout.leb_bytes(),
        min_io_bytes: options.layout.min_io_bytes(),
        good_pebs: geometry.blocks(),
    };
    let attach = AttachOptions::linux(Access::ReadWrite);
    let sync_order = SyncOrder::alone(&nand);
    Core {
        nand,
        device,
        geometry,
        layout: options.layout,
        options: attach,
        image_sequence: options.image_sequence,
        pebs: PebTable::new(geometry.blocks()),
        volumes: (0..limits.slots()).map(|_| None).collect(),
        layout_volume: VolumeState::new(layout_volume_record()),
        last_sequence_number: 0,
        bad_block_reserve: bad_block_reserve(geometry.blocks()),
        frozen: None,
        sync_order,
        erase_queue: EraseQueue::default(),
        unmapped: UnmappedLebs::default(),
        pending_changes: Vec::new(),
        member_state: MemberState::Unmarked,
        mark: None,
        old_marks: Vec::new(),
    }
}

/// Takes over the existing erase counters, and queues every good block for its erase.
fn prepare(core: &mut Core, options: FormatOptions) -> Result<(), NandError> {
    for peb in core.geometry.pebs() {
        if core.nand.is_bad(peb)? {
            core.pebs.set_state(peb, PebState::Bad);
            core.bad_block_reserve = core.bad_block_reserve.saturating_sub(1);
            continue;
        }
        core.erase_later(peb, PebState::Erase);
        let mut raw = [0; HEADER_BYTES];
        let _ = retry::read(&mut core.nand, peb, 0, &mut raw)?;
        match (options.erase_counter, EcHeader::decode(&raw)) {
            // The upcoming erase adds one.
            (Some(erases), _) => core.pebs.set_erases(peb, erases.saturating_sub(1)),
            (None, Decoded::Header(header)) => core.pebs.set_erases(peb, header.erase_counter),
            (None, _) => {}
        }
    }
    core.pebs.assume_mean_where_unknown();
    let needed = core.needed_blocks();
    core.bad_block_reserve = core
        .bad_block_reserve
        .min(core.usable_blocks().saturating_sub(needed));
    Ok(())
}

/// Programs a block of an image, except for its EC header, which is already written, and for erased pages.
fn program_image_block(core: &mut Core, peb: Peb, block: &[u8]) -> Result<(), NandError> {
    let headers = index(core.layout.data_offset());
    let (head, data) = block.split_at(headers.min(block.len()));
    if let Some(raw) = head.get(index(core.layout.vid_header_offset())..)
        && let Some(raw) = raw.first_chunk::<HEADER_BYTES>()
        && raw.iter().any(|byte| *byte != 0xFF)
    {
        let (start, bytes) = core.layout.vid_program_of(raw);
        core.nand.program(peb, start, &bytes)?;
    }
    let page = index(core.layout.min_io_bytes());
    let written = core.written_bytes(data);
    for (number, page_data) in (0..).zip(data[..written].chunks(page)) {
        let offset = core.layout.data_offset() + number * core.layout.min_io_bytes();
        let mut whole = page_data.to_vec();
        whole.resize(page, 0xFF);
        core.nand.program(peb, offset, &whole)?;
    }
    Ok(())
}
