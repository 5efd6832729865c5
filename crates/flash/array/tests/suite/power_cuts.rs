//! Cuts power in every program and every erase of a scripted workload on 1 to 4 devices, behind the proxy and as a
//! virtual volume. Acknowledged content is there, a change is old or new, at most one write unit is torn, and the next
//! workload runs.
//!
//! The script is divided into segments; each starts by attaching the chips as the previous segment left them, so that a
//! cut can be reached by running only its segment. A cut is at a write (members before it in the order have done
//! theirs), or at a moment (all overlapping operations are torn). A failure names its cut, and `TIDEGATE_REPLAY=` with
//! that name runs only this cut. The ways of cutting a write are used in turn. Without `TIDEGATE_FULL` every third
//! write is cut, with it every write, and some cuts are repeated with a second one during recovery. `TIDEGATE_WAYS=all`
//! cuts each write in all ways, each with and without a second cut, which takes hours.

use std::sync::{Arc, Mutex};

use array::{Execution, MemberIdentity, Proxy};
use media::{Leb, Nand, NandGeometry, Nanos};
use nand::{ChipModel, CutPoint, CutTime, FaultModel, PowerCut, PowerSupply, SimNand, Timing};
use testkit::prng::Prng;
use ubi::format::VolumeKind;
use ubi::format::volume_table::VolumeName;
use ubi::{
    Access, AttachOptions, FormatOptions, Layout, NewVolume, SizeInLebs, Ubi, Volume, VolumeError, VolumeId,
};

type Chip = Arc<Mutex<SimNand>>;

const SEED: u64 = 0x0A88_A1ED;
const PAGE: u32 = 512;
const PAGE_BYTES: usize = 512;
const BLOCKS: u32 = 40;
/// LEBs that the script uses: not all of them, so that erased blocks are always available.
const LEBS: u32 = 14;
const SEGMENTS: u64 = 72;
const OPERATIONS: u64 = 12;
/// A second cut, during recovery, costs several times the first.
const SECOND_CUT_EVERY: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Proxy,
    Virtual,
}

/// The way in which power is cut.
#[derive(Clone, Copy, Debug)]
enum Way {
    Write(CutPoint, bool),
    /// At a moment of the segment: its duration is divided equally among its writes, and this is the number of
    /// thousandths within the write's part.
    Moment(u64, bool),
}

const WAYS: [Way; 6] = [
    Way::Moment(500, true),
    Way::Write(CutPoint::Partway(70), true),
    Way::Moment(350, false),
    Way::Write(CutPoint::After, false),
    Way::Moment(999, false),
    Way::Write(CutPoint::Before, false),
];

#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error("power was cut")]
    PowerCut,
    #[error("{0}")]
    Other(String),
}

impl From<VolumeError> for Stop {
    fn from(error: VolumeError) -> Self {
        match (error.is_power_cut(), &error) {
            (true, _) => Self::PowerCut,
            (false, VolumeError::ReadOnly { reason, .. }) if reason.contains("power is off") => {
                Self::PowerCut
            }
            _ => Self::Other(error.to_string()),
        }
    }
}

/// A possible content of a LEB.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    NotMapped,
    Bytes(Vec<u8>),
    /// An interrupted write: the old bytes; then a number of whole units of the write, each given by its end; then one
    /// unit with any content; then 0xFF.
    Torn {
        old: Vec<u8>,
        written: Vec<u8>,
        ends: Vec<usize>,
    },
}

impl Content {
    fn describe(&self) -> String {
        let pages = |bytes: &[u8]| bytes.len() / PAGE_BYTES;
        match self {
            Self::NotMapped => "not mapped".to_owned(),
            Self::Bytes(bytes) => format!("{} pages", pages(bytes)),
            Self::Torn { old, written, ends } => {
                format!(
                    "{} pages and, torn, some of {} written in {} units",
                    pages(old),
                    pages(written),
                    ends.len() + 1
                )
            }
        }
    }

    fn fits(&self, mapped: bool, bytes: &[u8], uncorrectable: bool) -> bool {
        let blank = |from: usize| bytes[from..].iter().all(|byte| *byte == 0xFF);
        match self {
            Self::NotMapped => !mapped,
            Self::Bytes(known) => {
                mapped && !uncorrectable && bytes[..known.len()] == known[..] && blank(known.len())
            }
            Self::Torn { old, written, ends } => {
                let whole = [&old[..], written].concat();
                let starts = std::iter::once(old.len()).chain(ends.iter().map(|end| old.len() + end));
                let unit_ends = ends.iter().map(|end| old.len() + end).chain([whole.len()]);
                mapped
                    && starts
                        .zip(unit_ends)
                        .any(|(start, end)| bytes[..start] == whole[..start] && blank(end))
            }
        }
    }
}

/// The possible contents of each LEB, the likeliest last.
type Model = Vec<Vec<Content>>;

fn fresh_model() -> Model {
    vec![vec![Content::NotMapped]; usize::try_from(LEBS).expect("few")]
}

/// An attached array, from the user's perspective.
struct Opened {
    volume: Arc<dyn Volume>,
    work: Box<dyn Fn() -> Result<(), String>>,
}

/// Chips that share one power supply.
struct Rig {
    chips: Vec<Chip>,
    supply: PowerSupply,
}

impl Rig {
    fn of(chips: &[SimNand]) -> Self {
        let supply = PowerSupply::new();
        let on_supply = |chip: &SimNand| Arc::new(Mutex::new(chip.clone().with_supply(&supply)));
        Self {
            chips: chips.iter().map(on_supply).collect(),
            supply,
        }
    }

    fn into_chips(self) -> Vec<SimNand> {
        let chips = self.chips.into_iter();
        chips.map(|chip| chip.lock().expect("no panic").clone()).collect()
    }

    fn latest(&self) -> Nanos {
        self.chips
            .iter()
            .map(|chip| Nand::clock(chip).now())
            .max()
            .expect("chips")
    }

    fn open(&self, mode: Mode, replay: &str) -> Result<Opened, Stop> {
        let options = AttachOptions {
            wear_threshold: 3,
            ..AttachOptions::linux(Access::ReadWrite)
        };
        let opened = match mode {
            Mode::Virtual => open_virtual(self.chips.clone(), options),
            Mode::Proxy => open_proxy(&self.chips, options),
        };
        opened.map_err(|error| match self.supply.is_off() {
            true => Stop::PowerCut,
            false => panic!("{replay}: not attached: {error}"),
        })
    }
}

fn open_virtual(chips: Vec<Chip>, options: AttachOptions) -> Result<Opened, String> {
    let array = array::attach(chips, options, Execution::Inline).map_err(|error| error.to_string())?;
    let volume: Arc<dyn Volume> = array.volume().clone();
    Ok(Opened {
        volume,
        work: Box::new(move || {
            let step = |device: &Ubi| device.work().map(|_| ()).map_err(|error| error.to_string());
            array.devices().iter().try_for_each(step)
        }),
    })
}

fn open_proxy(chips: &[Chip], options: AttachOptions) -> Result<Opened, String> {
    let ubi = ubi::scan(proxy(chips), options)
        .and_then(ubi::Scanned::attach)
        .map_err(|error| error.to_string())?;
    Ok(Opened {
        volume: Arc::new(ubi.open(VolumeId(0)).map_err(|error| error.to_string())?),
        work: Box::new(move || ubi.work().map(|_| ()).map_err(|error| error.to_string())),
    })
}

fn proxy(chips: &[Chip]) -> Proxy {
    let boxed = chips
        .iter()
        .map(|chip| -> Box<dyn Nand> { Box::new(Arc::clone(chip)) });
    Proxy::new(boxed.collect(), Execution::Inline).expect("chips of one shape")
}

fn timing() -> Timing {
    Timing {
        read_page: Nanos(25),
        program_page: Nanos(1000),
        erase_block: Nanos(1000),
        transfer_page: Nanos(10),
    }
}

/// Chips of slightly different speeds, so that members get ahead of each other.
fn blank_chips(members: u64) -> Vec<SimNand> {
    let geometry = NandGeometry::new(PAGE, 8, BLOCKS)
        .and_then(|shape| shape.with_subpage(128))
        .expect("a geometry");
    let chip = |member: u64| {
        let program_page = Nanos(1000 + 37 * (members - member));
        let model = ChipModel::new(geometry).with_timing(Timing {
            program_page,
            ..timing()
        });
        SimNand::new(&format!("chip{member}"), model, FaultModel::none())
    };
    (0..members).map(chip).collect()
}

fn formatted(mode: Mode, members: u64) -> Vec<SimNand> {
    let rig = Rig::of(&blank_chips(members));
    let format = |shape: NandGeometry| FormatOptions {
        layout: Layout::usual(&shape).expect("a layout"),
        image_sequence: 7,
        erase_counter: None,
    };
    match mode {
        Mode::Virtual => {
            let identity = MemberIdentity {
                array: 0xF00D,
                index: 0,
                members: 0,
                redundancy: array::Redundancy::None,
                label: "sweep".to_owned(),
            };
            let options = format(Nand::geometry(&rig.chips[0]));
            array::format(rig.chips.clone(), options, &identity, &mut |_, _| {}).expect("formatted");
        }
        Mode::Proxy => {
            let proxy = proxy(&rig.chips);
            let options = format(proxy.geometry());
            let ubi = Ubi::format(proxy, options, &mut |_| {}).expect("formatted");
            let new = NewVolume {
                id: None,
                name: VolumeName::new(b"data").expect("a name"),
                kind: VolumeKind::Dynamic,
                size: SizeInLebs::AllFree,
                alignment: 1,
                autoresize: false,
                skip_check: false,
            };
            ubi.make_volume(new).expect("room for it");
        }
    }
    rig.into_chips()
}

fn pages(prng: &mut Prng, count: usize) -> Vec<u8> {
    // No page is all 0xFF, and all pages differ.
    let mut data = prng.bytes(count * PAGE_BYTES);
    data.chunks_mut(PAGE_BYTES).for_each(|page| page[0] = 0x11);
    data
}

/// Ends of the units in which a write of `len` bytes at `offset` may be torn, except the last.
fn unit_ends(mode: Mode, unit: usize, offset: usize, len: usize) -> Vec<usize> {
    let first = match mode {
        Mode::Virtual => unit - offset % unit,
        Mode::Proxy => unit,
    };
    (first..len).step_by(unit).collect()
}

/// Runs one operation of the script. After success the model has only its outcome, after a cut every possible one.
fn step(opened: &Opened, mode: Mode, model: &mut Model, prng: &mut Prng) -> Result<(), Stop> {
    let leb = Leb(u32::try_from(prng.below(u64::from(LEBS))).expect("few"));
    let place = usize::try_from(leb.0).expect("few");
    let geometry = opened.volume.geometry();
    let leb_pages = usize::try_from(geometry.leb_bytes / PAGE).expect("few");
    let known = model[place].last().expect("it knows something").clone();
    let before = model[place].clone();
    let up_to = |prng: &mut Prng, most: usize| {
        usize::try_from(prng.below(u64::try_from(most).expect("few"))).expect("few")
    };
    let (during, after, done) = match prng.below(100) {
        0..45 => {
            let old = match &known {
                Content::NotMapped => Vec::new(),
                Content::Bytes(bytes) => bytes.clone(),
                Content::Torn { .. } => panic!("the model is settled before the script goes on"),
            };
            let room = leb_pages - old.len() / PAGE_BYTES;
            if room == 0 {
                return Ok(());
            }
            let count = 1 + up_to(prng, room);
            let written = pages(prng, count);
            let whole = Content::Bytes([&old[..], &written].concat());
            let unit = usize::try_from(geometry.max_write_bytes).expect("few");
            let ends = unit_ends(mode, unit, old.len(), written.len());
            let offset = u32::try_from(old.len()).expect("a LEB");
            let done = opened.volume.write(leb, offset, &written);
            (vec![Content::Torn { old, written, ends }], vec![whole], done)
        }
        45..72 => {
            let count = up_to(prng, leb_pages + 1);
            let data = pages(prng, count);
            let done = opened.volume.leb_change(leb, &data);
            let mut during = vec![Content::Bytes(data.clone())];
            if known == Content::NotMapped {
                during.push(Content::Bytes(Vec::new()));
            }
            (during, vec![Content::Bytes(data)], done)
        }
        72..82 => {
            // Erased lazily: until then the old content may reappear.
            let after = [before.clone(), vec![Content::NotMapped]].concat();
            (vec![Content::NotMapped], after, opened.volume.unmap(leb))
        }
        82..86 if known == Content::NotMapped => {
            let empty = vec![Content::Bytes(Vec::new())];
            (empty.clone(), empty, opened.volume.map(leb))
        }
        82..88 => {
            opened.volume.flush()?;
            for known in model
                .iter_mut()
                .filter(|known| known.last() == Some(&Content::NotMapped))
            {
                *known = vec![Content::NotMapped];
            }
            return Ok(());
        }
        _ => {
            return (opened.work)().map_err(|error| match error.contains("power is off") {
                true => Stop::PowerCut,
                false => Stop::Other(error),
            });
        }
    };
    model[place] = match &done {
        Ok(()) => after,
        Err(_) => [before, during].concat(),
    };
    Ok(done?)
}

/// Compares the array with the model, and updates the model to the content found.
fn verify(opened: &Opened, model: &mut Model, replay: &str) {
    let volume = &opened.volume;
    let leb_bytes = usize::try_from(volume.geometry().leb_bytes).expect("small");
    for (leb, known) in (0..).map(Leb).zip(model) {
        let mapped = volume.is_mapped(leb).expect("in range");
        let mut bytes = vec![0; leb_bytes];
        let uncorrectable = match volume.read(leb, 0, &mut bytes) {
            Ok(()) => false,
            Err(VolumeError::Uncorrectable { .. }) => true,
            Err(error) => panic!("{replay}: {leb}: {error}"),
        };
        let fitting = known
            .iter()
            .find(|content| content.fits(mapped, &bytes, uncorrectable));
        let Some(content) = fitting.cloned() else {
            let first = bytes
                .chunks(PAGE_BYTES)
                .map(|page| format!("{:02x}{:02x}", page[0], page[1]));
            let first: Vec<String> = first.collect();
            let known: Vec<String> = known.iter().map(Content::describe).collect();
            panic!(
                "{replay}: {leb}, mapped: {mapped}, uncorrectable: {uncorrectable}, pages begin {first:?}; \
                 expected one of {known:?}"
            );
        };
        *known = match content {
            Content::Torn { old, .. } => {
                // A reader that finds a torn end rewrites the LEB, since it is unknown where writing may continue.
                volume.leb_change(leb, &old).expect("room for it");
                vec![Content::Bytes(old)]
            }
            other => vec![other],
        };
    }
}

fn run_segment(rig: &Rig, mode: Mode, model: &mut Model, segment: u64, replay: &str) -> Result<(), Stop> {
    let opened = rig.open(mode, replay)?;
    let mut prng = Prng::named(SEED, &format!("segment {segment}"));
    (0..OPERATIONS).try_for_each(|_| step(&opened, mode, model, &mut prng))
}

/// Runs a segment without a cut. Returns its number of writes, and its start and end.
fn measure(chips: &[SimNand], mode: Mode, model: &Model, segment: u64) -> (u64, Nanos, Nanos) {
    let rig = Rig::of(chips);
    let start = rig.latest();
    run_segment(&rig, mode, &mut model.clone(), segment, "measure").expect("nothing fails without a cut");
    (rig.supply.writes(), start, rig.latest())
}

struct Cut {
    mode: Mode,
    segment: u64,
    number: u64,
    of: u64,
    way: usize,
    span: (Nanos, Nanos),
}

impl Cut {
    fn name(&self, members: usize) -> String {
        format!(
            "{:?}:{members}:{}:{}:{}",
            self.mode, self.segment, self.number, self.way
        )
    }

    fn plan(&self) -> PowerCut {
        match WAYS[self.way] {
            Way::Write(point, torn_is_uncorrectable) => PowerCut {
                time: CutTime::Write(self.number, point),
                torn_is_uncorrectable,
            },
            Way::Moment(share, torn_is_uncorrectable) => {
                let (start, end) = self.span;
                let length = end.saturating_sub(start).0;
                let moment = start + Nanos(length * (self.number * 1000 + share) / (self.of * 1000));
                PowerCut {
                    time: CutTime::Moment(moment),
                    torn_is_uncorrectable,
                }
            }
        }
    }
}

fn cut_and_recover(chips: &[SimNand], model: &Model, cut: &Cut, second: Option<u64>) {
    let replay = format!(
        "TIDEGATE_REPLAY={} (second cut: {second:?})",
        cut.name(chips.len())
    );
    let rig = Rig::of(chips);
    let mut model = model.clone();
    rig.supply.plan(cut.plan());
    match (
        run_segment(&rig, cut.mode, &mut model, cut.segment, &replay),
        WAYS[cut.way],
    ) {
        (Err(Stop::PowerCut), _) | (Ok(()), Way::Moment(..)) => {}
        (other, _) => panic!("{replay}: the segment ended by {other:?}, not by the power cut"),
    }
    rig.supply.power_on();
    if let Some(second) = second {
        let time = CutTime::Write(rig.supply.writes() + second, CutPoint::Partway(70));
        rig.supply.plan(PowerCut {
            time,
            torn_is_uncorrectable: true,
        });
        if let Ok(opened) = rig.open(cut.mode, &replay) {
            // Only blocks that belong to no LEB are erased here; the power cut may interrupt an erase.
            while (opened.work)().is_ok() && rig.supply.writes() < second {}
        }
        rig.supply.power_on();
    }
    verify(
        &rig.open(cut.mode, &replay).expect("power is on"),
        &mut model,
        &replay,
    );
    if let Err(stop) = run_segment(
        &rig,
        cut.mode,
        &mut model,
        cut.segment + 1000 + cut.number,
        &replay,
    ) {
        panic!("{replay}: the workload after the cut failed: {stop}");
    }
    verify(
        &rig.open(cut.mode, &replay).expect("power is on"),
        &mut model,
        &replay,
    );
}

#[expect(clippy::print_stdout, reason = "`--nocapture` shows what was cut")]
fn sweep(mode: Mode, members: u64) {
    let all_ways = std::env::var("TIDEGATE_WAYS").is_ok_and(|ways| ways == "all");
    let full = testkit::is_full() || all_ways;
    let only = std::env::var("TIDEGATE_REPLAY").ok();
    let mut chips = formatted(mode, members);
    let mut model = fresh_model();
    let (mut writes, mut cuts) = (0, 0);
    for segment in 0..SEGMENTS {
        let (of, start, end) = measure(&chips, mode, &model, segment);
        writes += of;
        for number in 0..of {
            for way in 0..WAYS.len() {
                let cut = Cut {
                    mode,
                    segment,
                    number,
                    of,
                    way,
                    span: (start, end),
                };
                let turn = usize::try_from(segment + number).expect("few");
                let in_turn = match full {
                    true => turn % WAYS.len() == way,
                    false => turn.is_multiple_of(3) && turn / 3 % WAYS.len() == way,
                };
                let wanted = match &only {
                    Some(only) => *only == cut.name(chips.len()),
                    None => all_ways || in_turn,
                };
                if wanted {
                    cut_and_recover(&chips, &model, &cut, None);
                    cuts += 1;
                }
                let again = all_ways || number.is_multiple_of(SECOND_CUT_EVERY);
                if wanted && full && again {
                    cut_and_recover(&chips, &model, &cut, Some(number % 7));
                }
            }
        }
        let rig = Rig::of(&chips);
        run_segment(&rig, mode, &mut model, segment, "no cut").expect("nothing fails without a cut");
        verify(
            &rig.open(mode, "no cut").expect("power is on"),
            &mut model,
            "no cut",
        );
        chips = rig.into_chips();
    }
    assert!(
        writes >= 2000,
        "the workload has {writes} writes, which are too few"
    );
    assert!(cuts > 0 || only.is_some(), "nothing was cut");
    println!("{mode:?}, {members} devices: {writes} programs and erases, power cut at {cuts} of them");
}

macro_rules! sweeps {
    ($($name:ident: $mode:ident, $members:literal;)*) => {$(
        #[test]
        fn $name() {
            sweep(Mode::$mode, $members);
        }
    )*};
}

sweeps! {
    a_power_cut_loses_nothing_on_a_virtual_volume_of_one: Virtual, 1;
    a_power_cut_loses_nothing_on_a_virtual_volume_of_two: Virtual, 2;
    a_power_cut_loses_nothing_on_a_virtual_volume_of_three: Virtual, 3;
    a_power_cut_loses_nothing_on_a_virtual_volume_of_four: Virtual, 4;
    a_power_cut_loses_nothing_on_a_proxy_of_one: Proxy, 1;
    a_power_cut_loses_nothing_on_a_proxy_of_two: Proxy, 2;
    a_power_cut_loses_nothing_on_a_proxy_of_three: Proxy, 3;
    a_power_cut_loses_nothing_on_a_proxy_of_four: Proxy, 4;
}
