//! Golden bytes, round trips, and bit-flip sweeps.

use super::*;

fn inode() -> Inode {
    Inode {
        key: Key::inode(InodeNumber(65)),
        created_sequence: 7,
        size_bytes: 5,
        accessed_seconds: 1,
        changed_seconds: 2,
        modified_seconds: 3,
        accessed_nanoseconds: 4,
        changed_nanoseconds: 5,
        modified_nanoseconds: 6,
        links: 1,
        user: 1000,
        group: 100,
        mode: 0o120_777,
        flags: INODE_COMPRESS,
        data_bytes: 5,
        xattr_count: 0,
        xattr_bytes: 0,
        xattr_names_bytes: 0,
        compression: 1,
        data: b"there".to_vec(),
    }
}

#[test]
fn crc_is_that_of_linux() {
    assert_eq!(crc(b"123456789"), !0xCBF4_3926);
}

#[test]
fn hashes_of_names_are_those_of_linux() {
    // By hand: (97 << 4) + (97 >> 4) = 1558, times 11.
    assert_eq!(name_hash_r5(b"a"), 17_138);
    // (17138 + (98 << 4) + (98 >> 4)) * 11
    assert_eq!(name_hash_r5(b"ab"), (17_138 + 1_568 + 6) * 11);
    assert_eq!(name_hash_r5(b""), 3);
    // Bytes from 0x80 on are negative: (-1 << 4) + (-1 >> 4) = -17.
    assert_eq!(
        name_hash_r5(&[0xFF]),
        17_u32.wrapping_mul(11).wrapping_neg() & 0x1FFF_FFFF
    );
    assert_eq!(name_hash_test(b"ab"), 0x6261);
}

#[test]
fn a_reference_node_has_its_golden_bytes() {
    let raw = LogReference {
        leb: 0x0102,
        offset: 0x0800,
        head: 2,
    }
    .encode(0x1122);
    let mut golden = vec![0x31, 0x18, 0x10, 0x06];
    golden.extend_from_slice(&crc(&raw[8..]).to_le_bytes());
    golden.extend_from_slice(&[0x22, 0x11, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 8, 0, 0, 0]);
    golden.extend_from_slice(&[0x02, 0x01, 0, 0, 0x00, 0x08, 0, 0, 2, 0, 0, 0]);
    golden.resize(64, 0);
    assert_eq!(raw, golden);
}

#[test]
fn a_key_has_its_kind_in_the_upper_three_bits() {
    let entry = DirectoryEntry {
        key: Key::entry(InodeNumber(1), 0x0ABC_DEF0),
        inode: 65,
        kind: 0,
        name_bytes: 2,
        cookie: 0,
        name: b"ab".to_vec(),
    };
    let raw = entry.encode(NodeKind::Entry, 1, Group::Last);
    assert_eq!(raw[24..32], [1, 0, 0, 0, 0xF0, 0xDE, 0xBC, 0x4A]);
    assert_eq!(raw[32..40], [0; 8]);
    assert_eq!((raw.len(), raw[21]), (59, 2));
    assert_eq!(DirectoryEntry::decode(&raw, NodeKind::Entry), Ok(entry));
}

#[test]
fn nodes_are_the_same_after_a_round_trip() {
    assert_eq!(Inode::decode(&inode().encode(1, Group::None)), Ok(inode()));
    let index = IndexNode {
        level: 1,
        branches: (0..3)
            .map(|number| IndexBranch {
                leb: number,
                offset: 8 * number,
                bytes: 188,
                key: Key::data(InodeNumber(70), number),
                hash: vec![9; 32],
            })
            .collect(),
    };
    assert_eq!(IndexNode::decode(&index.encode(1)), Ok(index));
    let orphans = Orphans {
        commit: COMMIT_LAST_FLAG | 3,
        inodes: vec![65, 70],
    };
    assert_eq!(Orphans::decode(&orphans.encode(1)), Ok(orphans));
    let data = Data {
        key: Key::data(InodeNumber(65), 3),
        size_bytes: 5,
        compression: 0,
        compressed_bytes: 0,
        stored: b"12345".to_vec(),
    };
    assert_eq!(Data::decode(&data.encode(1, Group::Inside)), Ok(data));
    let truncation = Truncation {
        inode: 65,
        old_bytes: 10,
        new_bytes: 5,
    };
    assert_eq!(
        Truncation::decode(&truncation.encode(1, Group::Last)),
        Ok(truncation)
    );
}

/// Each byte of a fixed-size node that the decoder reads is written by the encoder to the same offset.
#[test]
fn fields_of_all_fixed_nodes_do_not_overlap() {
    let pattern =
        |bytes: usize| -> Vec<u8> { (0..bytes).map(|at| u8::try_from(at % 251).unwrap()).collect() };
    let raw = pattern(4096);
    let out = Superblock::decode(&raw).unwrap().encode(1);
    let same = (24..4096).filter(|at| out[*at] == raw[*at]).count();
    assert!(
        out[26..322]
            .iter()
            .zip(&raw[26..322])
            .filter(|(a, b)| a != b)
            .count()
            == 2,
        "two bytes are reserved"
    );
    assert!(same >= 294);
    let raw = pattern(512);
    let out = Master::decode(&raw).unwrap().encode(1);
    assert_eq!(out[24..360], raw[24..360]);
    assert!(out[360..].iter().all(|byte| *byte == 0));
}

#[test]
fn one_flipped_bit_anywhere_is_never_accepted_as_a_node() {
    let good = inode().encode(9, Group::Last);
    assert!(check(&good).is_ok());
    for bit in 0..good.len() * 8 {
        let mut raw = good.clone();
        raw[bit / 8] ^= 1 << (bit % 8);
        assert!(check(&raw).is_err(), "bit {bit}");
    }
}

#[test]
fn erased_foreign_and_cut_nodes_are_told_apart() {
    let good = inode().encode(9, Group::Last);
    assert_eq!(check(&[0xFF; 200]), Err(NodeDefect::Erased));
    assert_eq!(check(&[0; 200]), Err(NodeDefect::Magic { found: 0 }));
    assert!(matches!(
        check(&good[..100]),
        Err(NodeDefect::Length { found: 165, .. })
    ));
    assert!(matches!(check(&good[..10]), Err(NodeDefect::NoRoom { room: 10 })));
}
