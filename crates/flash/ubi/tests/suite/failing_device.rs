//! Failures of the device other than wear: read and erase glitches are retried, and after a panic nothing is written.

use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use crate::support::faulty_chip::{Chip, ChipFault, ChipOperation, ChipPlan, FaultyChip};
use media::{Leb, NandGeometry};
use nand::{ChipModel, FaultModel, SimNand};
use ubi::format::VolumeKind;
use ubi::format::volume_table::VolumeName;
use ubi::{
    Access, AttachOptions, FormatOptions, Layout, MemberVolume, NewVolume, ReadPart, SizeInLebs, Ubi,
    UbiVolume, Volume, VolumeError, VolumeId, scan,
};

const LEBS: u32 = 8;
/// Number of read attempts, the first one included, as in Linux.
const ATTEMPTS: u32 = 4;

type Device = (Ubi, UbiVolume);

/// A chip with a volume whose LEBs each hold a page with their number.
fn formatted() -> Chip {
    let geometry = NandGeometry::new(512, 8, 64).expect("a geometry");
    let chip = SimNand::new("chip", ChipModel::new(geometry), FaultModel::none());
    let chip = Arc::new(Mutex::new(chip));
    let options = FormatOptions {
        layout: Layout::usual(&geometry).expect("a layout"),
        image_sequence: 1,
        erase_counter: None,
    };
    let ubi = Ubi::format(Arc::clone(&chip), options, &mut |_| {}).expect("formatted");
    let new = NewVolume {
        id: None,
        name: VolumeName::new(b"data").expect("a name"),
        kind: VolumeKind::Dynamic,
        size: SizeInLebs::Exactly(LEBS),
        alignment: 1,
        autoresize: false,
        skip_check: false,
    };
    let id = ubi.make_volume(new).expect("room for it");
    let volume = ubi.open(id).expect("it is there");
    for leb in 0..LEBS {
        volume.write(Leb(leb), 0, &page_of(leb)).expect("it takes writes");
    }
    chip
}

fn page_of(leb: u32) -> [u8; 512] {
    [u8::try_from(leb + 1).expect("few"); 512]
}

fn attach(chip: &Chip, plan: &ChipPlan) -> Result<Device, ubi::AttachError> {
    let chip = FaultyChip {
        chip: Arc::clone(chip),
        plan: plan.clone(),
    };
    let ubi = scan(chip, AttachOptions::linux(Access::ReadWrite))?.attach()?;
    let volume = ubi.open(VolumeId(0)).expect("it is there");
    Ok((ubi, volume))
}

fn assert_all_read(volume: &impl Volume, what: &str) {
    for leb in 0..LEBS {
        let mut out = [0; 512];
        volume
            .read(Leb(leb), 0, &mut out)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(out, page_of(leb), "{what}: LEB {leb}");
    }
}

#[test]
fn a_read_that_fails_is_tried_three_times_again_before_it_is_an_error() {
    let chip = formatted();
    for fault in [ChipFault::Host, ChipFault::Uncorrectable] {
        for times in 1..=ATTEMPTS {
            let plan = ChipPlan::default();
            let (_ubi, volume) = attach(&chip, &plan).unwrap();
            let before = plan.done(ChipOperation::Read);
            plan.fail(ChipOperation::Read, 0, fault(times));
            let mut out = [0; 512];
            let read = volume.read(Leb(3), 0, &mut out);
            let tries = plan.done(ChipOperation::Read) - before;
            let what = format!("{:?}: {read:?}", fault(times));
            assert_eq!(tries, u64::from((times + 1).min(ATTEMPTS)), "{what}");
            assert_eq!(read.is_ok(), times < ATTEMPTS, "{what}");
            assert!(read.is_err() || out == page_of(3), "{what}");
            assert_all_read(&volume, &what);
        }
    }
}

/// A single failure that Linux retries three times marked a block bad and froze the device.
#[test]
fn an_erase_that_fails_is_tried_three_times_again_before_its_block_is_bad() {
    let chip = formatted();
    for times in 1..=ATTEMPTS {
        let plan = ChipPlan::default();
        let (ubi, volume) = attach(&chip, &plan).unwrap();
        volume.unmap(Leb(0)).unwrap();
        volume.write(Leb(0), 0, &page_of(0)).unwrap();
        let before = plan.done(ChipOperation::Erase);
        plan.fail(ChipOperation::Erase, 0, ChipFault::Host(times));
        let worked = ubi.work();
        let tries = plan.done(ChipOperation::Erase) - before;
        let what = format!("{times} failures: {worked:?}");
        assert_eq!(tries, u64::from((times + 1).min(ATTEMPTS)), "{what}");
        assert_eq!(worked.is_ok(), times < ATTEMPTS, "{what}");
        assert_all_read(&volume, &what);
    }
    let (ubi, volume) = attach(&chip, &ChipPlan::default()).unwrap();
    ubi.settle().unwrap();
    drop((ubi, volume));
    for (fault, bad) in [(ChipFault::Once, 0), (ChipFault::Everywhere, 1)] {
        let plan = ChipPlan::default();
        let (ubi, volume) = attach(&chip, &plan).unwrap();
        volume.unmap(Leb(0)).unwrap();
        volume.write(Leb(0), 0, &page_of(0)).unwrap();
        plan.fail(ChipOperation::Erase, 0, fault);
        let worked = ubi.work();
        assert_eq!(ubi.summary().bad_blocks, bad, "{fault:?}: {worked:?}");
    }
}

#[test]
fn several_parts_are_each_tried_again() {
    let chip = formatted();
    let plan = ChipPlan::default();
    let (_ubi, volume) = attach(&chip, &plan).unwrap();
    plan.fail(ChipOperation::Read, 1, ChipFault::Host(ATTEMPTS - 1));
    let mut outs = [[0; 512]; 3];
    let mut parts: Vec<ReadPart<'_>> = (0..)
        .zip(&mut outs)
        .map(|(leb, out)| ReadPart {
            leb: Leb(leb),
            offset: 0,
            out,
        })
        .collect();
    volume.read_many(&mut parts).unwrap();
    assert_eq!(outs, [0, 1, 2].map(page_of));
}

#[test]
fn each_read_of_an_attach_is_tried_again() {
    let start = formatted();
    let copy = || Arc::new(Mutex::new(start.lock().expect("no panic").clone()));
    let sound = ChipPlan::default();
    drop(attach(&copy(), &sound).unwrap());
    let reads = sound.done(ChipOperation::Read);
    assert!(reads > 64, "{reads}");
    for read in 0..reads {
        for fault in [ChipFault::Host(1), ChipFault::Uncorrectable(ATTEMPTS - 1)] {
            let (chip, plan) = (copy(), ChipPlan::default());
            plan.fail(ChipOperation::Read, read, fault);
            let attached = attach(&chip, &plan);
            let what = format!("read {read}, {fault:?}, {:?}", plan.hit());
            let (ubi, volume) = attached.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_all_read(&volume, &what);
            assert_eq!(ubi.frozen(), None, "{what}");
        }
    }
}

/// The lock poisoned by the panic was taken as if nothing had happened, so operations relied on half-changed state.
#[test]
fn after_a_panic_in_an_operation_nothing_is_written_and_reads_go_on() {
    type Call = fn(&UbiVolume) -> Result<(), VolumeError>;
    let calls: [(&str, Call); 4] = [
        ("write", |volume| volume.write(Leb(1), 512, &[9; 512])),
        ("change", |volume| volume.leb_change(Leb(1), &page_of(1))),
        ("map", |volume| {
            volume.unmap(Leb(1)).and_then(|()| volume.map(Leb(1)))
        }),
        ("flush", |volume| {
            volume.leb_change(Leb(1), &page_of(1))?;
            volume.flush()
        }),
    ];
    for (what, call) in calls {
        let chip = formatted();
        let plan = ChipPlan::default();
        let (ubi, volume) = attach(&chip, &plan).unwrap();
        let operation = match what {
            "flush" => ChipOperation::Erase,
            _ => ChipOperation::Program,
        };
        plan.fail(operation, 0, ChipFault::Panic);
        let panicked = catch_unwind(AssertUnwindSafe(|| call(&volume)));
        assert!(panicked.is_err(), "{what}: {panicked:?}");
        let writes = || plan.done(ChipOperation::Program) + plan.done(ChipOperation::Erase);
        let before = writes();
        let reason = ubi.frozen().unwrap_or_else(|| panic!("{what}: it goes on"));
        assert!(reason.contains("panicked"), "{what}: {reason}");
        assert_eq!(volume.frozen(), Some(reason), "{what}");
        let refused = [
            volume.write(Leb(2), 512, &[9; 512]),
            volume.leb_change(Leb(2), &[9; 512]),
            volume.unmap(Leb(2)),
            volume
                .prepare_change(Leb(2), &[9; 512], NonZeroU64::MIN)
                .map(drop),
            volume.flush(),
        ];
        for refused in refused {
            assert!(
                matches!(refused, Err(VolumeError::ReadOnly { .. })),
                "{what}: {refused:?}"
            );
        }
        ubi.work().expect_err("it is frozen");
        ubi.remove_volume(VolumeId(0)).expect_err("it is frozen");
        assert_eq!(writes(), before, "{what}: it was written to");
        for leb in (0..LEBS).filter(|leb| *leb != 1) {
            let mut out = [0; 512];
            volume.read(Leb(leb), 0, &mut out).unwrap();
            assert_eq!(out, page_of(leb), "{what}: LEB {leb}");
        }
        drop((volume, ubi));
        // Acknowledged data is there; of the operation that panicked all or nothing, or, for a write, a part.
        let (_ubi, volume) = attach(&chip, &ChipPlan::default()).unwrap();
        for leb in (0..LEBS).filter(|leb| *leb != 1 || what == "change" || what == "flush") {
            let mut out = [0; 512];
            volume.read(Leb(leb), 0, &mut out).unwrap();
            assert_eq!(out, page_of(leb), "{what}: LEB {leb} after it was attached again");
        }
    }
}
