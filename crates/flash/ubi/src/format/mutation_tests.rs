//! Golden bytes, round trips, all single bit flips, and seeded random bytes, for every structure.

use testkit::prng::Prng;

use super::fastmap::{self, Fastmap, FastmapVolume, Pool, Wear};
use super::volume_table::{self, RECORD_BYTES, TableLimits, VolumeName, VolumeRecord};
use super::{Compatibility, Decoded, EcHeader, HEADER_BYTES, LAYOUT_VOLUME, VidHeader, VolumeKind};

const LEB_BYTES: u32 = 129_024;

fn ec_header() -> EcHeader {
    EcHeader {
        erase_counter: 7,
        vid_header_offset: 512,
        data_offset: 2048,
        image_sequence: 0x1234_5678,
    }
}

fn layout_header() -> VidHeader {
    VidHeader {
        kind: VolumeKind::Dynamic,
        copied: false,
        compatibility: Compatibility::Reject,
        volume: LAYOUT_VOLUME,
        leb: 1,
        data_size: 0,
        used_lebs: 0,
        data_padding: 0,
        data_crc: 0,
        sequence_number: 2,
        generation: 0,
    }
}

fn copied_header() -> VidHeader {
    VidHeader {
        copied: true,
        compatibility: Compatibility::None,
        volume: 3,
        leb: 9,
        data_size: 4096,
        data_crc: 0xCAFE_F00D,
        sequence_number: 1 << 40,
        generation: 77,
        ..layout_header()
    }
}

fn static_header(leb: u32, data_size: u32) -> VidHeader {
    VidHeader {
        kind: VolumeKind::Static,
        compatibility: Compatibility::None,
        volume: 0,
        leb,
        data_size,
        used_lebs: 3,
        data_crc: 1,
        ..layout_header()
    }
}

fn limits() -> TableLimits {
    TableLimits {
        leb_bytes: LEB_BYTES,
        min_io_bytes: 2048,
        good_pebs: 1000,
    }
}

fn record(name: &str) -> VolumeRecord {
    VolumeRecord {
        reserved_pebs: 20,
        alignment: 4096,
        data_padding: LEB_BYTES % 4096,
        kind: VolumeKind::Static,
        update_marker: true,
        name: VolumeName::new(name.as_bytes()).unwrap(),
        autoresize: true,
        skip_check: true,
    }
}

fn table() -> Vec<Option<VolumeRecord>> {
    let mut table = vec![None; 128];
    table[0] = Some(record("root"));
    table[127] = Some(VolumeRecord {
        kind: VolumeKind::Dynamic,
        alignment: 1,
        data_padding: 0,
        update_marker: false,
        autoresize: false,
        skip_check: false,
        ..record("data")
    });
    table
}

fn map() -> Fastmap {
    let wear = |peb| Wear {
        peb,
        erase_counter: peb + 1,
    };
    Fastmap {
        blocks: vec![wear(3), wear(70)],
        pool: Pool {
            pebs: vec![10, 11],
            pebs_max: 256,
        },
        wear_levelling_pool: Pool {
            pebs: vec![12],
            pebs_max: 25,
        },
        free: vec![wear(20)],
        used: vec![wear(30), wear(31)],
        scrub: vec![wear(40)],
        erase: vec![wear(50)],
        bad_pebs: 2,
        volumes: vec![FastmapVolume {
            volume: 0,
            kind: VolumeKind::Dynamic,
            data_padding: 0,
            used_lebs: 3,
            last_leb_bytes: 129_024,
            pebs: vec![Some(30), None, Some(31)],
        }],
    }
}

/// A buffer with the given fields at their offsets, zero elsewhere.
fn golden<const N: usize>(fields: &[(usize, &[u8])]) -> [u8; N] {
    let mut raw = [0; N];
    for (at, bytes) in fields {
        raw[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
    raw
}

#[test]
fn an_ec_header_has_the_bytes_that_ubinize_writes() {
    // From an image made by ubinize 2.1.5 with -Q 0x12345678 -e 7 -s 512 -m 2048 -p 128KiB.
    let expected = golden::<HEADER_BYTES>(&[
        (0, b"UBI#\x01"),
        (15, &[7]),
        (18, &[2, 0]),
        (22, &[8, 0]),
        (24, &[0x12, 0x34, 0x56, 0x78]),
        (60, &[0xBE, 0xA5, 0xD6, 0x35]),
    ]);
    assert_eq!(ec_header().encode(), expected);
    assert_eq!(EcHeader::decode(&expected), Decoded::Header(ec_header()));
}

#[test]
fn a_vid_header_has_the_bytes_that_ubinize_writes() {
    let expected = golden::<HEADER_BYTES>(&[
        (0, b"UBI!\x01\x01\x00\x05"),
        (8, &[0x7F, 0xFF, 0xEF, 0xFF, 0, 0, 0, 1]),
        (60, &[0x1B, 0xB3, 0x4C, 0xE4]),
    ]);
    let header = VidHeader {
        sequence_number: 0,
        ..layout_header()
    };
    assert_eq!(header.encode(), expected);
    assert_eq!(VidHeader::decode(&expected, LEB_BYTES), Decoded::Header(header));
}

#[test]
fn a_volume_record_has_the_bytes_that_ubinize_writes() {
    let record = VolumeRecord {
        reserved_pebs: 1,
        update_marker: false,
        skip_check: false,
        ..record("root")
    };
    let raw = volume_table::encode(&[Some(record), None]);
    let expected = golden::<RECORD_BYTES>(&[
        (3, &[1]),
        (6, &[16, 0]),
        (10, &[8, 0]),
        (12, &[2, 0, 0, 4]),
        (16, b"root"),
        (144, &[1]),
        (168, &[0xEF, 0x2F, 0x46, 0x6C]),
    ]);
    assert_eq!(raw[..RECORD_BYTES], expected);
    let empty = golden::<RECORD_BYTES>(&[(168, &[0xF1, 0x16, 0xC3, 0x6B])]);
    assert_eq!(raw[RECORD_BYTES..], empty);
}

#[test]
fn headers_come_back_as_they_were() {
    for header in [
        layout_header(),
        copied_header(),
        static_header(0, LEB_BYTES),
        static_header(2, 5),
    ] {
        assert_eq!(
            VidHeader::decode(&header.encode(), LEB_BYTES),
            Decoded::Header(header)
        );
    }
    assert_eq!(
        volume_table::decode(&volume_table::encode(&table()), &limits()),
        Ok(table())
    );
    assert_eq!(fastmap::decode(&fastmap::encode(&map(), 8192)), Ok(map()));
}

#[test]
fn erased_bytes_are_no_damage() {
    let raw = [0xFF; HEADER_BYTES];
    assert_eq!(EcHeader::decode(&raw), Decoded::Erased);
    assert_eq!(VidHeader::decode(&raw, LEB_BYTES), Decoded::Erased);
}

#[test]
fn one_flipped_bit_anywhere_is_never_taken_for_a_header() {
    let (ec, vid) = (ec_header().encode(), copied_header().encode());
    for bit in 0..HEADER_BYTES * 8 {
        let flipped = |mut raw: [u8; HEADER_BYTES]| {
            raw[bit / 8] ^= 1 << (bit % 8);
            raw
        };
        assert!(
            matches!(EcHeader::decode(&flipped(ec)), Decoded::Damaged(_)),
            "bit {bit}"
        );
        let vid = VidHeader::decode(&flipped(vid), LEB_BYTES);
        assert!(matches!(vid, Decoded::Damaged(_)), "bit {bit}");
    }
}

#[test]
fn one_flipped_bit_anywhere_is_never_taken_for_a_table() {
    let good = volume_table::encode(&table());
    for bit in (0..RECORD_BYTES * 16).chain((good.len() - RECORD_BYTES) * 8..good.len() * 8) {
        let mut raw = good.clone();
        raw[bit / 8] ^= 1 << (bit % 8);
        volume_table::decode(&raw, &limits()).expect_err(&format!("bit {bit}"));
    }
}

#[test]
fn one_flipped_bit_anywhere_is_never_taken_for_a_fastmap() {
    let good = fastmap::encode(&map(), 3000);
    for bit in 0..good.len() * 8 {
        let mut raw = good.clone();
        raw[bit / 8] ^= 1 << (bit % 8);
        fastmap::decode(&raw).expect_err(&format!("bit {bit}"));
    }
}

#[test]
fn fields_that_contradict_one_another_are_refused_even_with_a_right_crc() {
    let cases = [
        VidHeader {
            volume: 128,
            ..copied_header()
        },
        VidHeader {
            compatibility: Compatibility::Delete,
            ..copied_header()
        },
        VidHeader {
            compatibility: Compatibility::None,
            ..layout_header()
        },
        VidHeader {
            leb: 1 << 31,
            ..copied_header()
        },
        VidHeader {
            data_padding: LEB_BYTES / 2,
            ..copied_header()
        },
        VidHeader {
            data_size: LEB_BYTES + 1,
            ..copied_header()
        },
        VidHeader {
            data_size: 0,
            ..copied_header()
        },
        VidHeader {
            data_size: 1,
            ..layout_header()
        },
        VidHeader {
            data_crc: 1,
            ..layout_header()
        },
        VidHeader {
            used_lebs: 1,
            ..layout_header()
        },
        static_header(3, 10),
        static_header(0, 10),
        static_header(2, 0),
    ];
    for header in cases {
        let decoded = VidHeader::decode(&header.encode(), LEB_BYTES);
        assert!(
            matches!(decoded, Decoded::Refused(_)),
            "{header:?} gave {decoded:?}"
        );
    }
}

#[test]
fn records_that_contradict_the_device_or_one_another_are_refused() {
    let cases: [fn(&mut VolumeRecord); 5] = [
        |record| record.alignment = 0,
        |record| record.alignment = 3,
        |record| record.data_padding += 1,
        |record| record.reserved_pebs = 1001,
        |record| record.name = VolumeName::new(b"data").unwrap(),
    ];
    for (case, change) in cases.iter().enumerate() {
        let mut table = table();
        change(table[0].as_mut().unwrap());
        let raw = volume_table::encode(&table);
        volume_table::decode(&raw, &limits()).expect_err(&format!("case {case}"));
    }
}

/// Random changes of valid bytes with a corrected CRC, so that the checks of the fields are reached.
#[test]
fn changed_fields_with_a_right_crc_never_panic_and_come_back_when_accepted() {
    for seed in 0..20_000 {
        let mut prng = Prng::named(seed, "format fields");
        let mut vid = copied_header().encode();
        let mut ec = ec_header().encode();
        let mut raw = fastmap::encode(&map(), 3000);
        for _ in 0..1 + prng.below(4) {
            let at = 4 + prng.below_usize(56);
            vid[at] = *prng.pick(&[0, 1, 2, 5, 0x7F, 0xFF]);
            ec[at] = *prng.pick(&[0, 1, 0x7F, 0xFF]);
            let at = 12 + prng.below_usize(raw.len() - 12);
            raw[at] = *prng.pick(&[0, 1, 2, 0x7F, 0xFF]);
        }
        for header in [&mut vid, &mut ec] {
            let crc = super::crc32(&header[..60]);
            super::put32(header, 60, crc);
        }
        if let Decoded::Header(header) = VidHeader::decode(&vid, LEB_BYTES) {
            let again = VidHeader::decode(&header.encode(), LEB_BYTES);
            assert_eq!(again, Decoded::Header(header), "seed {seed}");
        }
        let _ = EcHeader::decode(&ec);
        super::put32(&mut raw, 8, 0);
        let crc = super::crc32(&raw);
        super::put32(&mut raw, 8, crc);
        let _ = fastmap::decode(&raw);
    }
}
