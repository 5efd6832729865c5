//! Power cuts at every program and every erase of a scripted workload: acknowledged data survives, a change is old or
//! new, and the device stays usable.
//!
//! The script is divided into segments. Each starts with an attach of the chip as the previous segment left it, so a
//! cut in a segment needs only a run of that segment. A failure names its cut;
//! `TIDEGATE_REPLAY=SEGMENT:CUT:POINT:ECC` reruns it. By default each write is cut once, in one of five ways in
//! rotation; with `TIDEGATE_FULL` it is cut in all five, and power is cut a second time during recovery.

use std::sync::{Arc, Mutex};

use media::{Leb, NandGeometry};
use nand::{ChipModel, FaultModel, PowerCut, SimNand};
use testkit::prng::Prng;
use ubi::format::VolumeKind;
use ubi::format::volume_table::VolumeName;
use ubi::{
    Access, AttachOptions, FormatOptions, Layout, NewVolume, SizeInLebs, Ubi, UbiVolume, Volume, VolumeError,
    VolumeId, VolumeTableError, scan,
};

type Chip = Arc<Mutex<SimNand>>;

const SEED: u64 = 0x0BAD_CAFE;
const LEBS: u32 = 20;
const PAGE: u32 = 512;
const PAGE_BYTES: usize = 512;
const SEGMENTS: u64 = 70;
const OPERATIONS: u64 = 14;

/// Possible content of a LEB after a power cut.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    NotMapped,
    /// These bytes, then this number of pages with arbitrary content, then 0xFF.
    Bytes(Vec<u8>, u32),
}

/// The state that the user of the volumes expects: the possible contents of each LEB, the likeliest last.
#[derive(Clone, Debug)]
struct Model {
    lebs: Vec<Vec<Content>>,
    names: Vec<Vec<u8>>,
    sizes: Vec<u32>,
}

impl Model {
    fn fresh() -> Self {
        Self {
            lebs: vec![vec![Content::NotMapped]; usize::try_from(LEBS).expect("few")],
            names: vec![b"other".to_vec()],
            sizes: vec![3],
        }
    }

    fn leb(&mut self, leb: Leb) -> &mut Vec<Content> {
        &mut self.lebs[usize::try_from(leb.0).expect("few")]
    }

    /// Runs one operation; after success the model holds only `after`, after a power cut both contents are possible.
    fn attempt<E>(
        &mut self,
        leb: Leb,
        after: Vec<Content>,
        during: Vec<Content>,
        operation: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let outcome = operation();
        let known = self.leb(leb);
        if outcome.is_ok() {
            *known = after;
        } else {
            known.extend(during);
        }
        outcome
    }
}

#[derive(Debug)]
enum Stop {
    PowerCut,
    Other(#[expect(dead_code, reason = "shown by Debug")] String),
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

impl From<VolumeTableError> for Stop {
    fn from(error: VolumeTableError) -> Self {
        match error {
            VolumeTableError::Device { power_cut: true, .. } => Self::PowerCut,
            other => Self::Other(other.to_string()),
        }
    }
}

fn chip() -> SimNand {
    let geometry = NandGeometry::new(PAGE, 8, 44)
        .and_then(|geometry| geometry.with_subpage(128))
        .expect("a geometry");
    SimNand::new("chip", ChipModel::new(geometry), FaultModel::none())
}

fn formatted() -> SimNand {
    let chip = Arc::new(Mutex::new(chip()));
    let layout = Layout::usual(&media::Nand::geometry(&chip)).expect("a layout");
    let options = FormatOptions {
        layout,
        image_sequence: 1,
        erase_counter: None,
    };
    let ubi = Ubi::format(Arc::clone(&chip), options, &mut |_| {}).expect("formatted");
    for (text, lebs) in [("data", LEBS), ("other", 3)] {
        let new = NewVolume {
            id: None,
            name: VolumeName::new(text.as_bytes()).expect("a name"),
            kind: VolumeKind::Dynamic,
            size: SizeInLebs::Exactly(lebs),
            alignment: 1,
            autoresize: false,
            skip_check: false,
        };
        ubi.make_volume(new).expect("room for it");
    }
    drop(ubi);
    Arc::into_inner(chip)
        .expect("one user")
        .into_inner()
        .expect("no panic")
}

fn attach(chip: &Chip, replay: &str) -> Result<Ubi, Stop> {
    let options = AttachOptions {
        wear_threshold: 3,
        ..AttachOptions::linux(Access::ReadWrite)
    };
    let off = || chip.lock().expect("no panic").supply().is_off();
    let attached = scan(Arc::clone(chip), options).and_then(ubi::Scanned::attach);
    attached.map_err(|error| match off() {
        true => Stop::PowerCut,
        false => panic!("{replay}: the chip is not attached: {error}"),
    })
}

fn pages(prng: &mut Prng, count: u64) -> Vec<u8> {
    let count = usize::try_from(count).expect("few");
    // No page is all 0xFF.
    let mut data = prng.bytes(count * PAGE_BYTES);
    data.chunks_mut(PAGE_BYTES).for_each(|page| page[0] = 0x11);
    data
}

/// One operation of the script.
fn step(ubi: &Ubi, volume: &UbiVolume, model: &mut Model, prng: &mut Prng) -> Result<(), Stop> {
    let leb = Leb(u32::try_from(prng.below(u64::from(LEBS))).expect("few"));
    let known = model.leb(leb).last().expect("it knows something").clone();
    let before = model.leb(leb).clone();
    match prng.below(100) {
        0..40 => {
            let start = match &known {
                Content::NotMapped => Vec::new(),
                Content::Bytes(bytes, 0) => bytes.clone(),
                Content::Bytes(..) => panic!("the model is collapsed before the script goes on"),
            };
            let room = 7 - u64::try_from(start.len() / PAGE_BYTES).expect("few");
            if room == 0 {
                return Ok(());
            }
            let count = 1 + prng.below(room);
            let data = pages(prng, count);
            let offset = u32::try_from(start.len()).expect("a LEB");
            let whole = [&start[..], &data].concat();
            let loose = u32::try_from(count).expect("few");
            model.attempt(
                leb,
                vec![Content::Bytes(whole, 0)],
                vec![Content::Bytes(start, loose)],
                || volume.write(leb, offset, &data),
            )?;
        }
        40..70 => {
            let count = prng.below(8);
            let data = pages(prng, count);
            let new = vec![Content::Bytes(data.clone(), 0)];
            // A change of an unmapped LEB maps it first.
            let mapped = (known == Content::NotMapped).then_some(Content::Bytes(Vec::new(), 0));
            let during = mapped.into_iter().chain(new.clone()).collect();
            model.attempt(leb, new, during, || volume.leb_change(leb, &data))?;
        }
        70..80 => {
            // Erased lazily: until then the old content may reappear.
            let after = [before, vec![Content::NotMapped]].concat();
            model.attempt(leb, after.clone(), after, || volume.unmap(leb))?;
        }
        80..85 if known == Content::NotMapped => {
            let empty = vec![Content::Bytes(Vec::new(), 0)];
            model.attempt(leb, empty.clone(), empty, || volume.map(leb))?;
        }
        80..86 => {
            volume.flush()?;
            for known in &mut model.lebs {
                if known.last() == Some(&Content::NotMapped) {
                    *known = vec![Content::NotMapped];
                }
            }
        }
        86..97 => drop(ubi.work()?),
        97..99 => {
            let name = format!("name {}", prng.below(1000)).into_bytes();
            model.names.push(name.clone());
            let new = VolumeName::new(&name).expect("a name");
            ubi.rename_volumes(&[(VolumeId(1), new)])?;
            model.names = vec![name];
        }
        _ => {
            let lebs = 1 + u32::try_from(prng.below(4)).expect("few");
            model.sizes.push(lebs);
            ubi.resize_volume(VolumeId(1), SizeInLebs::Exactly(lebs))?;
            model.sizes = vec![lebs];
        }
    }
    Ok(())
}

/// Compares the device with the model, and resets the model to the actual state.
fn verify(ubi: &Ubi, model: &mut Model, replay: &str) {
    let other = &ubi.volumes()[1];
    let name = other.record.name.as_bytes().to_vec();
    assert!(model.names.contains(&name), "{replay}: name {name:?}");
    let size = other.record.reserved_pebs;
    assert!(model.sizes.contains(&size), "{replay}: size {size}");
    (model.names, model.sizes) = (vec![name], vec![size]);

    let volume = ubi.open(VolumeId(0)).expect("the volume is there");
    for leb in (0..LEBS).map(Leb) {
        let mapped = volume.is_mapped(leb).expect("in range");
        let mut bytes = Vec::new();
        let mut torn = false;
        for page in 0..7 {
            let mut raw = [0; PAGE_BYTES];
            match volume.read(leb, page * PAGE, &mut raw) {
                Ok(()) => {}
                Err(VolumeError::Uncorrectable { .. }) => torn = true,
                Err(error) => panic!("{replay}: {leb}: {error}"),
            }
            bytes.extend_from_slice(&raw);
        }
        let fits = |content: &Content| match content {
            Content::NotMapped => !mapped,
            Content::Bytes(known, loose) => {
                let loose = usize::try_from(*loose).expect("few") * PAGE_BYTES;
                let tail = (known.len() + loose).min(bytes.len());
                mapped
                    && bytes[..known.len()] == known[..]
                    && bytes[tail..].iter().all(|byte| *byte == 0xFF)
                    && (loose > 0 || !torn)
            }
        };
        let known = model.leb(leb);
        let Some(content) = known.iter().find(|content| fits(content)) else {
            let kinds: Vec<String> = known.iter().map(describe).collect();
            panic!("{replay}: {leb} is mapped: {mapped}, torn: {torn}, and none of {kinds:?}");
        };
        let content = content.clone();
        *known = vec![content.clone()];
        if let Content::Bytes(known_bytes, 1..) = content {
            // A LEB with a torn end is rewritten, since its next writable offset is unknown.
            volume.leb_change(leb, &known_bytes).expect("room for it");
            *model.leb(leb) = vec![Content::Bytes(known_bytes, 0)];
        }
    }
}

fn describe(content: &Content) -> String {
    match content {
        Content::NotMapped => "not mapped".to_owned(),
        Content::Bytes(bytes, loose) => format!("{} bytes and {loose} pages of anything", bytes.len()),
    }
}

/// Runs a segment of the script on a chip. Updates the model up to the end of the segment or the power cut.
fn run_segment(chip: &Chip, model: &mut Model, segment: u64, replay: &str) -> Result<(), Stop> {
    let ubi = attach(chip, replay)?;
    let volume = ubi.open(VolumeId(0))?;
    let mut prng = Prng::named(SEED, &format!("segment {segment}"));
    (0..OPERATIONS).try_for_each(|_| step(&ubi, &volume, model, &mut prng))
}

fn writes(chip: &Chip) -> u64 {
    chip.lock().expect("no panic").supply().writes()
}

fn cut_and_recover(start: &SimNand, model: &Model, segment: u64, cut: u64, way: usize, second: Option<u64>) {
    let replay = format!("seed {SEED:#x}, TIDEGATE_REPLAY={segment}:{cut}:{way}, second cut {second:?}");
    let chip = start.clone();
    let base = chip.supply().writes();
    chip.supply().plan(PowerCut::of_write(base + cut, way));
    let chip = Arc::new(Mutex::new(chip));
    let mut model = model.clone();
    match run_segment(&chip, &mut model, segment, &replay) {
        Err(Stop::PowerCut) => {}
        other => panic!("{replay}: the segment ended by {other:?}, not by the power cut"),
    }
    chip.lock().expect("no panic").supply().power_on();
    if let Some(second) = second {
        let supply = chip.lock().expect("no panic").supply().clone();
        supply.plan(PowerCut::of_write(supply.writes() + second, way));
        if let Ok(ubi) = attach(&chip, &replay) {
            // May fail by the power cut; the erases concern blocks without a LEB.
            let _ = ubi.settle();
        }
        supply.power_on();
    }
    let ubi = attach(&chip, &replay).expect("power is on");
    verify(&ubi, &mut model, &replay);
    drop(ubi);
    if let Err(stop) = run_segment(&chip, &mut model, segment + 1000 + cut, &replay) {
        panic!("{replay}: the workload after the cut failed: {stop:?}");
    }
    let ubi = attach(&chip, &replay).expect("power is on");
    verify(&ubi, &mut model, &replay);
}

#[test]
fn a_power_cut_in_any_write_loses_nothing_that_was_acknowledged() {
    let full = testkit::is_full();
    let only = std::env::var("TIDEGATE_REPLAY").ok();
    let wanted = |segment: u64, cut: u64, way: usize| {
        only.as_ref()
            .is_none_or(|only| *only == format!("{segment}:{cut}:{way}"))
    };
    let mut chip = formatted();
    let mut model = Model::fresh();
    let (mut swept, mut cuts) = (0, 0);
    for segment in 0..SEGMENTS {
        let (start, at_start) = (chip.clone(), model.clone());
        let shared = Arc::new(Mutex::new(chip));
        let before = writes(&shared);
        run_segment(&shared, &mut model, segment, "no cut").expect("nothing fails without a cut");
        verify(
            &attach(&shared, "no cut").expect("power is on"),
            &mut model,
            "no cut",
        );
        let after_verify = writes(&shared);
        chip = Arc::into_inner(shared)
            .expect("one user")
            .into_inner()
            .expect("no panic");
        // The verification may have written, too; only the writes of the segment are cut.
        let segment_writes = count_writes(&start, &at_start, segment);
        assert!(before + segment_writes <= after_verify);
        swept += segment_writes;
        for cut in 0..segment_writes {
            for way in 0..PowerCut::WAYS {
                let turn = usize::try_from(segment + cut).expect("few") % PowerCut::WAYS == way;
                if (full || turn || only.is_some()) && wanted(segment, cut, way) {
                    cut_and_recover(&start, &at_start, segment, cut, way, None);
                    cuts += 1;
                    if full {
                        cut_and_recover(&start, &at_start, segment, cut, way, Some(cut % 7));
                    }
                }
            }
        }
    }
    assert!(
        swept >= 2000,
        "the workload has {swept} writes, which are too few"
    );
    assert!(cuts > 0, "nothing was cut");
}

fn count_writes(start: &SimNand, model: &Model, segment: u64) -> u64 {
    let chip = Arc::new(Mutex::new(start.clone()));
    let before = writes(&chip);
    run_segment(&chip, &mut model.clone(), segment, "count").expect("nothing fails without a cut");
    writes(&chip) - before
}
