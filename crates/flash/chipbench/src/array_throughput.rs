//! One cell of the table of `tidegate array bench`: creates an array, then writes and reads records sequentially.
//!
//! The chips are simulated. In virtual time a result is exact and the same on every machine; in real time each
//! operation sleeps for its duration, and time is measured by this machine's clock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use array::{Execution, MIN_MEMBERS_WITH_PARITY, MemberIdentity, Proxy, Redundancy};
use media::{Clock, Leb, Nand, Nanos};
use nand::{ChipModel, FaultModel, Lateness, Preset, RealClock, RealTime, SimNand};
use ubi::format::VolumeKind;
use ubi::format::volume_table::VolumeName;
use ubi::{Access, AttachOptions, FormatOptions, Layout, NewVolume, SizeInLebs, Ubi, Volume, VolumeId};

use crate::error::{Context, Result, ensure};

/// A chip of any kind.
pub(crate) type Chip = Box<dyn Nand>;

/// The array's design (seeds/001 section 3.1), with or without parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// Virtual UBI: a volume of volumes (figure 3)
    Hierarchy,
    /// Virtual UBI with rotating parity; 3 devices or more
    Parity,
    /// MTD proxy: a chip of chips, under an ordinary UBI (figure 2)
    Proxy,
}

/// The clock to measure by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Exact, and the same on every machine
    Virtual,
    /// This machine's clock, with one thread per device
    Real,
}

impl Design {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hierarchy => "hierarchy",
            Self::Parity => "parity",
            Self::Proxy => "proxy",
        }
    }
}

impl Time {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Real => "real",
        }
    }
}

/// Parameters of one cell.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Kind of chip.
    pub preset: Preset,
    /// Number of devices.
    pub devices: u32,
    /// Design of the array.
    pub design: Design,
    /// The clock.
    pub time: Time,
    /// Bytes of a record.
    pub record_bytes: u64,
    /// Bytes written and read.
    pub total_bytes: u64,
}

/// Result of a cell.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Bytes written and read.
    pub bytes: u64,
    /// Duration of the writes.
    pub write_ns: u64,
    /// Duration of the reads.
    pub read_ns: u64,
}

/// Spare LEBs beyond those with data, so that erased blocks are always available.
const SPARE_BLOCKS: u32 = 24;

impl Cell {
    /// Whether the array has parity. With fewer devices than parity requires, the cell is measured without it, for
    /// comparison.
    pub const fn has_parity(&self) -> bool {
        matches!(self.design, Design::Parity) && self.devices >= MIN_MEMBERS_WITH_PARITY
    }

    /// Number of devices that hold data in each row.
    pub const fn data_devices(&self) -> u32 {
        match self.has_parity() {
            true => self.devices - 1,
            false => self.devices,
        }
    }

    fn model(&self) -> Result<ChipModel> {
        let model = self.preset.model();
        let share = self.total_bytes.div_ceil(u64::from(self.data_devices()));
        let leb_bytes = Layout::usual(&model.geometry)?.leb_bytes();
        let blocks = u32::try_from(share.div_ceil(u64::from(leb_bytes)))? + SPARE_BLOCKS;
        // The reserve for bad blocks is 20 of 1024.
        let geometry = model.geometry.with_blocks(blocks + blocks / 40)?;
        Ok(ChipModel { geometry, ..model })
    }

    /// Creates the array, then measures writes and reads.
    pub fn measure(&self) -> Result<Measured> {
        let model = self.model()?;
        let chips = (0..self.devices).map(|member| {
            let name = format!("{}-{member}", self.preset.name());
            SimNand::new(&name, model, FaultModel::none())
        });
        let chips: Vec<SimNand> = chips.collect();
        let (clock, lateness) = (RealClock::start(), Lateness::default());
        let (execution, edge): (_, &dyn Fn(SimNand) -> Chip) = match self.time {
            Time::Virtual => (Execution::Inline, &|chip| Box::new(chip)),
            Time::Real => (Execution::Threads, &|chip| {
                Box::new(RealTime::new(chip, clock).sharing(&lateness))
            }),
        };
        match self.design {
            Design::Hierarchy | Design::Parity => self.hierarchy(chips, execution, edge),
            Design::Proxy => self.proxy(chips, execution, edge),
        }
    }

    fn hierarchy(
        &self,
        chips: Vec<SimNand>,
        execution: Execution,
        edge: &dyn Fn(SimNand) -> Chip,
    ) -> Result<Measured> {
        let options = format_options(&chips[0])?;
        let identity = MemberIdentity {
            array: 1,
            index: 0,
            members: self.devices,
            redundancy: match self.has_parity() {
                true => Redundancy::Parity,
                false => Redundancy::None,
            },
            label: "bench".to_owned(),
        };
        // Formatting is not measured, so it always runs in virtual time.
        let chips = after(chips, |blank| {
            Ok(array::format(blank, options, &identity, &mut |_, _| {})?)
        })?;
        let members = chips.into_iter().map(edge).collect();
        let array = array::attach(members, AttachOptions::linux(Access::ReadWrite), execution)?;
        self.run(array.volume().as_ref(), &array.volume().clock())
    }

    fn proxy(
        &self,
        chips: Vec<SimNand>,
        execution: Execution,
        edge: &dyn Fn(SimNand) -> Chip,
    ) -> Result<Measured> {
        let chips = after(chips, |blank| {
            let blank = Proxy::new(blank, Execution::Inline)?;
            let options = format_options(&blank)?;
            let ubi = Ubi::format(blank, options, &mut |_| {})?;
            ubi.make_volume(NewVolume {
                id: Some(VolumeId(0)),
                name: VolumeName::new(b"bench").context("a name")?,
                kind: VolumeKind::Dynamic,
                size: SizeInLebs::AllFree,
                alignment: 1,
                autoresize: false,
                skip_check: false,
            })?;
            Ok(())
        })?;
        let proxy = Proxy::new(chips.into_iter().map(edge).collect(), execution)?;
        let clock = proxy.clock();
        let ubi = ubi::scan(proxy, AttachOptions::linux(Access::ReadWrite))?.attach()?;
        let volume = ubi.open(VolumeId(0))?;
        self.run(&volume, &clock)
    }

    fn run(&self, volume: &dyn Volume, clock: &Clock) -> Result<Measured> {
        let geometry = volume.geometry();
        let record = usize::try_from(self.record_bytes)?;
        ensure(
            self.record_bytes.is_multiple_of(u64::from(geometry.min_io_bytes)) && record > 0,
            || {
                format!(
                    "records of {} bytes are no whole pages of {} bytes",
                    self.record_bytes, geometry.min_io_bytes
                )
            },
        )?;
        let records = (self.total_bytes / self.record_bytes).max(1);
        let data: Vec<u8> = (0..=250_u8).cycle().take(record).collect();
        let mut out = vec![0; record];
        let write_ns = self.took(clock, || {
            (0..records).try_for_each(|number| {
                spans(number * self.record_bytes, record, geometry.leb_bytes)
                    .try_for_each(|span| Ok(volume.write(span.leb, span.offset, &data[span.range])?))
            })
        })?;
        let mut read_ns = 0;
        for number in 0..records {
            read_ns += self.took(clock, || {
                spans(number * self.record_bytes, record, geometry.leb_bytes)
                    .try_for_each(|span| Ok(volume.read(span.leb, span.offset, &mut out[span.range])?))
            })?;
            // Not timed: verification is the benchmark's own work.
            ensure(out == data, || {
                format!("record {number} came back with other content")
            })?;
        }
        Ok(Measured {
            bytes: records * self.record_bytes,
            write_ns,
            read_ns,
        })
    }

    fn took(&self, clock: &Clock, action: impl FnOnce() -> Result<()>) -> Result<u64> {
        let (started, virtual_start) = (Instant::now(), clock.now());
        action()?;
        Ok(match self.time {
            Time::Virtual => (clock.now() - virtual_start).0,
            Time::Real => u64::try_from(started.elapsed().as_nanos())?,
        })
    }
}

/// Minimum time that `devices` need for `bytes`: each is always busy with transfers and cell operations.
pub fn limit_ns(preset: Preset, devices: u32, bytes: u64, cells: Nanos) -> u64 {
    let model = preset.model();
    let page = model.timing.transfer_page + cells;
    let pages = bytes.div_ceil(u64::from(model.geometry.page_bytes()));
    pages.div_ceil(u64::from(devices)) * page.0
}

/// The chips once `work` has used them and closed what it opened.
fn after(chips: Vec<SimNand>, work: impl FnOnce(Vec<Chip>) -> Result<()>) -> Result<Vec<SimNand>> {
    let shared: Vec<_> = chips.into_iter().map(|chip| Arc::new(Mutex::new(chip))).collect();
    let boxed = |chip: &Arc<Mutex<SimNand>>| -> Chip { Box::new(Arc::clone(chip)) };
    work(shared.iter().map(boxed).collect())?;
    let chips = shared.into_iter().map(|chip| {
        let chip = Arc::into_inner(chip).context("the formatted device is closed")?;
        Ok(chip.into_inner().unwrap_or_else(PoisonError::into_inner))
    });
    chips.collect()
}

/// Options for formatting a chip.
pub(crate) fn format_options(chip: &impl Nand) -> Result<FormatOptions> {
    Ok(FormatOptions {
        layout: Layout::usual(&chip.geometry())?,
        image_sequence: 1,
        erase_counter: None,
    })
}

/// The part of a record in one LEB.
struct Span {
    leb: Leb,
    offset: u32,
    range: std::ops::Range<usize>,
}

/// Splits a record at LEB boundaries.
fn spans(start: u64, len: usize, leb_bytes: u32) -> impl Iterator<Item = Span> {
    let mut taken = 0;
    std::iter::from_fn(move || {
        let at = start + u64::try_from(taken).ok()?;
        let offset = u32::try_from(at % u64::from(leb_bytes)).ok()?;
        let here = usize::try_from(leb_bytes - offset).ok()?.min(len - taken);
        let range = taken..taken + here;
        taken += here;
        let leb = Leb(u32::try_from(at / u64::from(leb_bytes)).ok()?);
        (here > 0).then_some(Span { leb, offset, range })
    })
}
