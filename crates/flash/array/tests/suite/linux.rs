//! Linux as the reference, in the lab guest: each member of a closed array is a UBI device that it attaches, with the
//! content that this project reads, LEB by LEB. It refuses a member of an array that was not closed, and writes nothing
//! to it.

use std::sync::{Arc, Mutex};

use array::{Array, Execution, MemberIdentity, attach, format};
use media::{Leb, Nand, NandGeometry};
use nand::{ChipModel, CutPoint, CutTime, FaultModel, PowerCut, PowerSupply, SimNand};
use testkit::lab::{self, Ended, Guest, Job, Outcome};
use testkit::prng::Prng;
use ubi::{Access, AttachOptions, FormatOptions, Layout, Volume};

type Chip = Arc<Mutex<SimNand>>;

/// 64 MiB, 2 KiB pages, 512-byte sub-pages, 128 KiB blocks, as nandsim derives them from these bytes.
const CHIP: &str = "0x20,0xa2,0x00,0x15";
const BLOCKS: u32 = 512;
const PAGE: usize = 2048;

fn chips(members: u32, supply: &PowerSupply) -> Vec<Chip> {
    let geometry = NandGeometry::new(2048, 64, BLOCKS)
        .and_then(|shape| shape.with_subpage(512))
        .expect("a geometry");
    let chip = |member| {
        let chip = SimNand::new(
            &format!("chip{member}"),
            ChipModel::new(geometry),
            FaultModel::none(),
        );
        Arc::new(Mutex::new(chip.with_supply(supply)))
    };
    (0..members).map(chip).collect()
}

fn open(chips: &[Chip]) -> Array {
    attach(
        chips.to_vec(),
        AttachOptions::linux(Access::ReadWrite),
        Execution::Inline,
    )
    .expect("attached")
}

/// Writes, changes and unmaps LEBs until power is cut.
fn load(array: &Array, prng: &mut Prng) -> Result<(), ubi::VolumeError> {
    let volume = array.volume();
    let leb_pages = u64::from(volume.geometry().leb_bytes) / 2048;
    for _ in 0..400 {
        let leb = Leb(u32::try_from(prng.below(30)).expect("few"));
        let pages = usize::try_from(1 + prng.below(leb_pages.min(40))).expect("few");
        match prng.below(3) {
            0 => volume.leb_change(leb, &prng.bytes(pages * PAGE))?,
            1 => volume.unmap(leb)?,
            _ if volume.is_mapped(leb)? => {}
            _ => volume.write(leb, 0, &prng.bytes(pages * PAGE))?,
        }
    }
    Ok(())
}

fn image(chip: &Chip) -> Vec<u8> {
    let geometry = chip.geometry();
    let block = usize::try_from(geometry.block_bytes()).expect("small");
    let mut chip = chip.lock().expect("no panic");
    let mut image = vec![0; block * usize::try_from(geometry.blocks()).expect("few")];
    for (peb, out) in geometry.pebs().zip(image.chunks_mut(block)) {
        let _ = chip.read(peb, 0, out).expect("every block can be read");
    }
    image
}

fn given_to_linux(guest: &mut Guest, chip: &Chip) -> Outcome {
    let job = Job::ready_made("attach.sh")
        .expect("the script is there")
        .file("image.bin", image(chip))
        .variable("IMAGE", "image.bin")
        .variable("CHIP", CHIP);
    guest.run(&job).expect("the guest works")
}

fn attached_by_linux(guest: &mut Guest, chip: &Chip, what: &str) -> Outcome {
    let outcome = given_to_linux(guest, chip);
    assert_eq!(outcome.ended, Ended::Code(0), "{what}:\n{}", outcome.text());
    let log = outcome.read_text("attach.log").expect("it is there");
    assert!(!log.contains("assert failed"), "{what}:\n{log}");
    outcome
}

/// Code 3 of the script: UBI refuses the image.
fn refused_by_linux(guest: &mut Guest, chip: &Chip, what: &str) {
    let outcome = given_to_linux(guest, chip);
    let text = outcome.text();
    assert_eq!(outcome.ended, Ended::Code(3), "{what}:\n{text}");
    assert!(text.contains("incompatible internal volume"), "{what}:\n{text}");
}

#[test]
fn linux_attaches_every_member_of_a_closed_array_and_none_of_an_open_one() {
    let Some(mut guest) = lab::shared() else {
        return;
    };
    let members = if testkit::is_full() { 3 } else { 2 };
    let supply = PowerSupply::new();
    let chips = chips(members, &supply);
    let options = FormatOptions {
        layout: Layout::usual(&chips[0].geometry()).expect("a layout"),
        image_sequence: 0x77,
        erase_counter: None,
    };
    let identity = MemberIdentity {
        array: 0xABCD,
        index: 0,
        members: 0,
        redundancy: array::Redundancy::None,
        label: "media".to_owned(),
    };
    format(chips.clone(), options, &identity, &mut |_, _| {}).expect("formatted");
    let mut prng = Prng::named(5, "array for Linux");
    supply.plan(PowerCut {
        time: CutTime::Write(supply.writes() + 3000, CutPoint::Partway(900)),
        torn_is_uncorrectable: false,
    });
    let stopped = load(&open(&chips), &mut prng).expect_err("power goes");
    assert!(stopped.is_power_cut(), "{stopped}");
    supply.power_on();
    for chip in &chips {
        refused_by_linux(&mut guest, chip, "right after the cut");
    }

    let array = open(&chips);
    array.settle().expect("settled");
    for chip in &chips {
        refused_by_linux(&mut guest, chip, "open, with nothing to do");
    }
    array.close().expect("nothing fails");
    for (place, (chip, member)) in chips.iter().zip(array.volume().members()).enumerate() {
        let outcome = attached_by_linux(&mut guest, chip, "closed");
        let volumes = outcome.read_text("volumes.txt").expect("it is there");
        assert!(volumes.contains(&identity.label), "{volumes}");
        let theirs = outcome.read("volume-0.img").expect("a dump");
        let geometry = member.geometry();
        let leb_bytes = usize::try_from(geometry.leb_bytes).expect("small");
        assert_eq!(
            theirs.len(),
            leb_bytes * usize::try_from(geometry.lebs).expect("few")
        );
        for (leb, theirs) in (0..).map(Leb).zip(theirs.chunks(leb_bytes)) {
            let mut ours = vec![0; leb_bytes];
            member.read(leb, 0, &mut ours).expect("readable");
            assert!(ours == theirs, "member {place}, {leb} differs");
        }
    }
}
