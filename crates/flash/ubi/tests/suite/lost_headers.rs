//! A check of blocks with unreadable headers reports which LEBs are certainly lost, which may be, and of which
//! volumes.

use std::sync::{Arc, Mutex};

use media::{Leb, Nand, NandGeometry, Peb, RamNand};
use ubi::format::VolumeKind;
use ubi::format::volume_table::VolumeName;
use ubi::{Access, CheckReport, FormatOptions, Layout, NewVolume, SizeInLebs, Ubi, Volume, VolumeId, check};

type Chip = Arc<Mutex<RamNand>>;

/// The block of each LEB of a volume.
type Lebs = Vec<Option<Peb>>;

const BLOCK_BYTES: usize = 8 * 512;
const BLOCKS: u32 = 40;
const DATA: VolumeId = VolumeId(0);
const BOOT: VolumeId = VolumeId(1);

/// Offsets of headers and data of this chip.
const VID_HEADER: usize = 128;
const PAYLOAD: usize = 512;

fn geometry() -> NandGeometry {
    NandGeometry::new(512, 8, BLOCKS)
        .and_then(|geometry| geometry.with_subpage(128))
        .expect("the chip of this test works")
}

/// A chip with a dynamic volume, whose LEB 2 is not mapped, and a static one of three LEBs; and the blocks of both by
/// LEB.
fn two_volumes() -> (Vec<Vec<u8>>, Lebs, Lebs) {
    let chip = Arc::new(Mutex::new(RamNand::new("chip", geometry())));
    let options = FormatOptions {
        layout: Layout::usual(&geometry()).expect("the chip of this test works"),
        image_sequence: 77,
        erase_counter: None,
    };
    let ubi = Ubi::format(Arc::clone(&chip), options, &mut |_| {}).expect("the chip of this test works");
    for (name, kind) in [("data", VolumeKind::Dynamic), ("boot", VolumeKind::Static)] {
        let new = NewVolume {
            id: None,
            name: VolumeName::new(name.as_bytes()).expect("a name"),
            kind,
            size: SizeInLebs::Exactly(8),
            alignment: 1,
            autoresize: false,
            skip_check: false,
        };
        ubi.make_volume(new).expect("the chip of this test works");
    }
    let data = ubi.open(DATA).expect("it was made");
    for leb in [0, 1, 3, 4] {
        data.write(Leb(leb), 0, &[7; 3584])
            .expect("the chip of this test works");
    }
    let mut update = ubi.update(BOOT, 9000).expect("it was made");
    update.write(&[9; 9000]).expect("the chip of this test works");
    update.finish().expect("the chip of this test works");
    ubi.settle().expect("the chip of this test works");
    let (data, boot) = (ubi.mapping(DATA), ubi.mapping(BOOT));
    drop(ubi);
    (blocks(&chip), data, boot)
}

fn blocks(chip: &Chip) -> Vec<Vec<u8>> {
    let mut chip = chip.lock().expect("no panic");
    let read = |peb| {
        let mut block = vec![0; BLOCK_BYTES];
        let _ = chip.read(peb, 0, &mut block).expect("in range");
        block
    };
    geometry().pebs().map(read).collect()
}

/// Checks a chip with these bytes.
fn checked(blocks: &[Vec<u8>]) -> CheckReport {
    let mut chip = RamNand::new("chip", geometry());
    for (peb, block) in (0..).zip(blocks) {
        let last = block.iter().rposition(|byte| *byte != 0xFF);
        let programmed = last.map_or(0, |last| (last + 1).next_multiple_of(128));
        for (number, part) in (0..).zip(block[..programmed].chunks(128)) {
            chip.program(Peb(peb), number * 128, part).expect("it is blank");
        }
    }
    check(&mut chip, Access::ReadOnly, &mut |_| {}).expect("the chip can be read")
}

fn place(peb: Option<Peb>) -> usize {
    usize::try_from(peb.expect("it is mapped").0).expect("it is small")
}

/// Checks the chip after `damage` to the block at `place`, and returns the message about that block.
fn said_of(blocks: &[Vec<u8>], place: usize, damage: impl Fn(&mut [u8])) -> (String, CheckReport) {
    let mut damaged = blocks.to_vec();
    damage(&mut damaged[place]);
    let report = checked(&damaged);
    let of_block = |anomaly: &&ubi::Anomaly| usize::try_from(anomaly.peb.0).ok() == Some(place);
    let said: Vec<String> = report
        .anomalies
        .iter()
        .filter(of_block)
        .map(|anomaly| anomaly.kind.to_string())
        .collect();
    (said.join("\n"), report)
}

/// Overwrites bytes with garbage, as a stray write does.
fn garbage(bytes: &mut [u8]) {
    for (byte, value) in bytes.iter_mut().zip((1_u8..=250).cycle()) {
        *byte = value;
    }
}

fn holes(report: &CheckReport) -> Vec<String> {
    report.holes.iter().map(ToString::to_string).collect()
}

#[test]
fn a_whole_device_has_no_findings_and_names_the_volumes_that_no_checksum_vouches_for() {
    let (blocks, ..) = two_volumes();
    let report = checked(&blocks);
    assert!(report.anomalies.is_empty(), "{:?}", report.anomalies);
    assert_eq!((report.may_be_lost, report.holes.len()), (0, 0));
    assert_eq!(report.unverified, [(DATA, "data".to_owned())]);
}

#[test]
fn an_ec_header_alone_takes_the_erase_counter_alone_with_it() {
    let (blocks, data, boot) = two_volumes();
    for (peb, leb, volume) in [(data[3], 3, DATA), (boot[1], 1, BOOT)] {
        let (said, report) = said_of(&blocks, place(peb), |block| garbage(&mut block[..64]));
        let expected =
            format!("only the erase counter is lost: the VID header is right (LEB {leb} of {volume})");
        assert!(
            said.starts_with("EC header: magic") && said.contains(&expected),
            "{said}"
        );
        assert_eq!((report.may_be_lost, holes(&report)), (0, vec![]));
    }
}

#[test]
fn both_headers_with_data_behind_them_may_have_been_a_leb_and_volumes_with_holes_are_named() {
    let (blocks, data, boot) = two_volumes();
    // By a stray write over the whole block, and by one bit-flip in each header.
    let strays: [fn(&mut [u8]); 2] = [garbage, |block| {
        block[20] ^= 1;
        block[VID_HEADER + 20] ^= 1;
    }];
    for stray in strays {
        let (said, report) = said_of(&blocks, place(data[3]), stray);
        assert!(
            said.contains("a LEB may be lost, of which volume can't be told"),
            "{said}"
        );
        assert!(
            said.contains("erases the block") && !said.contains("nothing is lost"),
            "{said}"
        );
        assert_eq!(report.may_be_lost, 1);
        assert_eq!(
            holes(&report),
            [
                "volume 0 (data, dynamic): no block holds LEB 2 to 3, 5 to 7 of 0 to 7; \
              a file system may have unmapped them itself"
            ]
        );
        let (_, report) = said_of(&blocks, place(boot[1]), stray);
        assert_eq!(
            holes(&report),
            [
                "volume 0 (data, dynamic): no block holds LEB 2, 5 to 7 of 0 to 7; \
                 a file system may have unmapped them itself",
                "volume 1 (boot, static): no block holds LEB 1 of 0 to 2: its data is incomplete",
            ]
        );
    }
}

#[test]
fn bad_headers_of_an_empty_block_lose_the_erase_counter_alone() {
    let (blocks, data, boot) = two_volumes();
    let used: Vec<usize> = data
        .iter()
        .chain(&boot)
        .flatten()
        .map(|peb| place(Some(*peb)))
        .collect();
    let free = (0..blocks.len())
        .find(|place| !used.contains(place) && blocks[*place][VID_HEADER..].iter().all(|byte| *byte == 0xFF))
        .expect("there are free blocks");
    let damages: [fn(&mut [u8]); 2] = [
        |block| garbage(&mut block[..64]),
        |block| garbage(&mut block[..VID_HEADER + 64]),
    ];
    for damage in damages {
        let (said, report) = said_of(&blocks, free, damage);
        assert!(
            said.contains("the block is empty: only the erase counter is lost"),
            "{said}"
        );
        assert_eq!((report.may_be_lost, holes(&report)), (0, vec![]));
    }
}

#[test]
fn a_blank_header_before_data_is_no_blank_block() {
    let (blocks, data, _) = two_volumes();
    // Linux takes a block without an EC header for blank, whatever follows.
    let (said, report) = said_of(&blocks, place(data[3]), |block| block[..64].fill(0xFF));
    assert!(
        said.contains("LEB 3 of volume 0 is lost") && said.contains("erases the block"),
        "{said}"
    );
    assert_eq!((report.may_be_lost, report.holes.len()), (1, 1));
    let (said, report) = said_of(&blocks, place(data[3]), |block| block[..PAYLOAD].fill(0xFF));
    assert!(
        said.contains("a LEB may be lost, of which volume can't be told"),
        "{said}"
    );
    assert_eq!(report.may_be_lost, 1);
    // A damaged EC header before a blank VID header.
    let (said, report) = said_of(&blocks, place(data[3]), |block| {
        garbage(&mut block[..64]);
        block[VID_HEADER..PAYLOAD].fill(0xFF);
    });
    assert!(
        said.contains("VID header: it is blank; ") && said.contains("a LEB may be lost"),
        "{said}"
    );
    assert_eq!(report.may_be_lost, 1);
    let (said, report) = said_of(&blocks, place(data[3]), |block| block.fill(0xFF));
    assert_eq!(
        said,
        "no EC header, the block is blank: its erase counter is lost"
    );
    assert_eq!(report.may_be_lost, 0);
}

#[test]
fn a_bad_vid_header_before_data_is_kept_and_counted_as_a_leb_that_may_be_lost() {
    let (blocks, _, boot) = two_volumes();
    let (said, report) = said_of(&blocks, place(boot[2]), |block| block[VID_HEADER + 3] ^= 0x10);
    assert!(
        said.starts_with("VID header: magic") && said.contains("a LEB may be lost"),
        "{said}"
    );
    assert!(said.contains("kept as it is"), "{said}");
    assert_eq!(report.may_be_lost, 1);
    assert!(
        holes(&report)[1].contains("LEB 2 of 0 to 2"),
        "{:?}",
        report.holes
    );
    let (said, report) = said_of(&blocks, place(boot[2]), |block| {
        block[VID_HEADER + 3] ^= 0x10;
        block[PAYLOAD..].fill(0xFF);
    });
    assert!(
        said.contains("no data behind it, as a power cut leaves it"),
        "{said}"
    );
    assert_eq!(report.may_be_lost, 0);
}
