//! Static volumes are verified against their CRCs when they are opened.

use std::sync::{Arc, Mutex};

use media::{Leb, Nand, NandGeometry, Peb, RamNand};
use ubi::format::VolumeKind;
use ubi::format::volume_table::VolumeName;
use ubi::{
    Access, AttachOptions, FormatOptions, Layout, LebDamage, NewVolume, SizeInLebs, Ubi, Volume, VolumeId,
    VolumeTableError, scan,
};

type Chip = Arc<Mutex<RamNand>>;

const BLOCK_BYTES: usize = 8 * 512;

fn attach(chip: &Chip) -> Ubi {
    let scanned =
        scan(Arc::clone(chip), AttachOptions::linux(Access::ReadWrite)).expect("the chip of this test works");
    scanned.attach().expect("the chip of this test works")
}

/// A chip with a static volume of three LEBs, the last one not full, and the blocks of the volume.
fn with_static_volume(skip_check: bool) -> (Chip, Vec<Peb>) {
    let geometry = NandGeometry::new(512, 8, 64)
        .and_then(|geometry| geometry.with_subpage(128))
        .expect("the chip of this test works");
    let chip = Arc::new(Mutex::new(RamNand::new("chip", geometry)));
    let options = FormatOptions {
        layout: Layout::usual(&geometry).expect("the chip of this test works"),
        image_sequence: 77,
        erase_counter: None,
    };
    let ubi = Ubi::format(Arc::clone(&chip), options, &mut |_| {}).expect("the chip of this test works");
    let new = NewVolume {
        id: None,
        name: VolumeName::new(b"boot").expect("the chip of this test works"),
        kind: VolumeKind::Static,
        size: SizeInLebs::Exactly(5),
        alignment: 1,
        autoresize: false,
        skip_check,
    };
    let id = ubi.make_volume(new).expect("the chip of this test works");
    let data: Vec<u8> = (0..9000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let mut update = ubi.update(id, 9000).expect("the chip of this test works");
    update.write(&data).expect("the chip of this test works");
    update.finish().expect("the chip of this test works");
    ubi.open(id).expect("what was just written is as it was written");
    let pebs = ubi.mapping(id).into_iter().flatten().collect();
    ubi.settle().expect("the chip of this test works");
    (chip, pebs)
}

/// A copy of the chip with one block modified by `change`, or erased.
fn changed(chip: &Chip, changed: Peb, change: Option<usize>) -> Chip {
    let mut chip = chip.lock().expect("the chip of this test works");
    let geometry = chip.geometry();
    let mut copy = RamNand::new("chip", geometry);
    for peb in geometry.pebs() {
        let mut block = [0; BLOCK_BYTES];
        let _ = chip
            .read(peb, 0, &mut block)
            .expect("the chip of this test works");
        match change {
            _ if peb != changed => {}
            Some(byte) => block[byte] ^= 1,
            // Keeps the EC header: the block was erased and got its EC header again.
            None => block[128..].fill(0xFF),
        }
        let last = block.iter().rposition(|byte| *byte != 0xFF);
        let programmed = last.map_or(0, |last| (last + 1).next_multiple_of(128));
        for (number, part) in (0..).zip(block[..programmed].chunks(128)) {
            copy.program(peb, number * 128, part)
                .expect("the chip of this test works");
        }
    }
    Arc::new(Mutex::new(copy))
}

#[test]
fn a_damaged_leb_is_named_with_its_block_and_both_crcs_when_the_volume_is_opened() {
    let (chip, pebs) = with_static_volume(false);
    let chip = changed(&chip, pebs[1], Some(1000));
    let ubi = attach(&chip);
    let error = ubi.open(VolumeId(0)).unwrap_err();
    let VolumeTableError::Damaged { damage, .. } = &error else {
        panic!("{error}");
    };
    let LebDamage::Crc {
        leb,
        peb,
        found,
        expected,
        ..
    } = *damage
    else {
        panic!("{error}");
    };
    assert_eq!((leb, peb), (Leb(1), pebs[1]));
    assert_ne!(found, expected);
    let said = error.to_string();
    for part in [
        "volume 0 \"boot\"",
        "LEB 1 at",
        &pebs[1].to_string(),
        &format!("{found:#010x}"),
        &format!("{expected:#010x}"),
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(ubi.damage(VolumeId(0)).unwrap(), [*damage]);
    ubi.open(VolumeId(0)).expect_err("it is as damaged as before");
}

#[test]
fn the_last_leb_is_checked_to_its_last_byte_and_no_further() {
    let (chip, pebs) = with_static_volume(false);
    let leb_bytes = attach(&chip).volumes()[0].leb_bytes;
    let in_last = 9000 - 2 * usize::try_from(leb_bytes).unwrap();
    let data_offset = BLOCK_BYTES - usize::try_from(leb_bytes).unwrap();
    let last_byte = data_offset + in_last - 1;
    assert!(in_last % 512 != 0, "there are bytes behind it that can change");
    let ubi = attach(&changed(&chip, pebs[2], Some(last_byte + 1)));
    ubi.open(VolumeId(0)).expect("nothing of the content changed");
    let ubi = attach(&changed(&chip, pebs[2], Some(last_byte)));
    let damage = ubi.damage(VolumeId(0)).unwrap();
    assert!(
        matches!(damage[..], [LebDamage::Crc { leb: Leb(2), .. }]),
        "{damage:?}"
    );
}

#[test]
fn a_missing_leb_is_an_error_even_where_crcs_are_not_to_be_checked() {
    for skip_check in [false, true] {
        let (chip, pebs) = with_static_volume(skip_check);
        let ubi = attach(&changed(&chip, pebs[1], None));
        let error = ubi.open(VolumeId(0)).unwrap_err().to_string();
        assert!(
            error.contains("LEB 1 is missing") && error.contains("3 LEBs"),
            "{error}"
        );
        let mut out = [0; 512];
        ubi.open_damaged(VolumeId(0))
            .unwrap()
            .read(Leb(1), 0, &mut out)
            .unwrap();
        assert_eq!(out, [0xFF; 512]);
    }
}

#[test]
fn a_volume_with_skip_check_is_opened_without_a_look_at_its_data() {
    let (chip, pebs) = with_static_volume(true);
    let chip = changed(&chip, pebs[1], Some(1000));
    attach(&chip).open(VolumeId(0)).expect("nothing was checked");
}

#[test]
fn an_update_makes_a_damaged_volume_whole() {
    let (chip, pebs) = with_static_volume(false);
    let chip = changed(&chip, pebs[0], Some(1000));
    let ubi = attach(&chip);
    ubi.open(VolumeId(0)).expect_err("it is damaged");
    let mut update = ubi.update(VolumeId(0), 600).unwrap();
    update.write(&[5; 600]).unwrap();
    update.finish().unwrap();
    ubi.open(VolumeId(0)).expect("all of it is new");
    attach(&chip).open(VolumeId(0)).expect("at the next attach too");
}
