//! Decoders of flash formats: UBI, arrays, side-cars of chips, stored cards, UBIFS.

use std::io::Read;
use std::sync::{Arc, Mutex};

use array::{Execution, MemberIdentity};
use emmc::translation::{Kept, KeptMap, KeptOpen};
use image::{Dump, Hints, Part, open_ubifs, salvage_ubifs};
use live::KeptCard;
use media::{Leb, Nand, NandGeometry, Peb};
use nand::ecc;
use nand::{ChipModel, FaultModel, FileNand, ImageKind, SimNand, sidecar_path};
use testkit::hostile::{Decoder, Kind};
use ubi::format::fastmap::{self, Fastmap, FastmapVolume, Pool, Wear};
use ubi::format::volume_table::{self, TableLimits, VolumeName};
use ubi::format::{Decoded, EcHeader, HEADER_BYTES, VidHeader, VolumeKind};
use ubi::{Access, AttachOptions, FormatOptions, Layout, NewVolume, SizeInLebs, Ubi, Volume};
use ubifs::format::{
    CommitStart, Compression, Data, DirectoryEntry, EntryKind, Group, IndexNode, Inode, LogReference, Master,
    NodeKind, Orphans, ROOT_INODE, Superblock, Truncation, check, seal,
};
use ubifs::salvage::{Salvage, SalvageOptions};
use ubifs::{ImageVolume, OpenOptions, Ubifs};

const BLOCKS: u32 = 24;
const BLOCK_BYTES: usize = 4096;
const LEB_BYTES: u32 = 3584;
/// Volume id of the volume table.
const TABLE: [u8; 4] = 0x7FFF_EFFF_u32.to_be_bytes();

type Chip = Arc<Mutex<SimNand>>;

pub fn decoders() -> Vec<Decoder<'static>> {
    vec![
        ubi_headers(),
        ubi_table(),
        ubi_fastmap(),
        whole_array(),
        array_with_parity(),
        sidecar(),
        ecc_dump(),
        ecc_layout(),
        identity(),
        kept_card(),
        ubifs_nodes(),
        ubifs_volume(),
        ubifs_salvage(),
        whole_dump(),
    ]
}

fn geometry() -> NandGeometry {
    let geometry = NandGeometry::new(512, 8, BLOCKS).and_then(|geometry| geometry.with_subpage(128));
    geometry.expect("a geometry")
}

fn format_options() -> FormatOptions {
    FormatOptions {
        layout: Layout::usual(&geometry()).expect("a layout"),
        image_sequence: 7,
        erase_counter: None,
    }
}

fn empty_chip(name: &str) -> Chip {
    Arc::new(Mutex::new(SimNand::new(
        name,
        ChipModel::new(geometry()),
        FaultModel::none(),
    )))
}

fn read_chip(chip: &Chip) -> Vec<u8> {
    let mut chip = chip.lock().expect("no panic");
    let mut raw = vec![0; BLOCK_BYTES * usize::try_from(BLOCKS).expect("few")];
    for (peb, block) in (0..).map(Peb).zip(raw.chunks_mut(BLOCK_BYTES)) {
        let _ = chip.read(peb, 0, block).expect("in range");
    }
    raw
}

fn chip_of(name: &str, raw: &[u8]) -> Chip {
    let mut chip = SimNand::new(name, ChipModel::new(geometry()), FaultModel::none());
    for (peb, block) in (0..BLOCKS).map(Peb).zip(raw.chunks(BLOCK_BYTES)) {
        let written = block
            .iter()
            .rposition(|byte| *byte != 0xFF)
            .map_or(0, |last| last + 1);
        let mut block = block.to_vec();
        block.resize(written.next_multiple_of(128), 0xFF);
        if written > 0 {
            chip.program(peb, 0, &block).expect("erased");
        }
    }
    Arc::new(Mutex::new(chip))
}

fn put(raw: &mut [u8], at: usize, number: u32) {
    if let Some(place) = raw.get_mut(at..at + 4) {
        place.copy_from_slice(&number.to_be_bytes());
    }
}

/// Repairs the CRC at the end of a 64-byte header.
fn fix_header(raw: &mut [u8], at: usize) {
    if let Some(header) = raw.get(at..at + 60) {
        let crc = ubi::format::crc32(header);
        put(raw, at + 60, crc);
    }
}

fn fix_table(raw: &mut [u8]) {
    for at in (0..raw.len().saturating_sub(171)).step_by(172) {
        let crc = ubi::format::crc32(&raw[at..at + 168]);
        put(raw, at + 168, crc);
    }
}

/// Repairs headers, volume table records and marks in all blocks.
fn fix_blocks(raw: &mut [u8]) {
    for block in raw.chunks_mut(BLOCK_BYTES) {
        if block.starts_with(b"UBI#") {
            fix_header(block, 0);
        }
        if block.get(128..132) == Some(b"UBI!") {
            fix_header(block, 128);
            if block.get(136..140) == Some(&TABLE) {
                fix_table(block.get_mut(512..).unwrap_or_default());
            }
        }
        for page in block
            .chunks_mut(512)
            .filter(|page| page.starts_with(b"TGAM") && page.len() == 512)
        {
            let records = usize::from(u16::from_be_bytes([page[6], page[7]]));
            let end = (64 + records * 12).min(512);
            let crc = ubi::format::crc32(&[&page[..60], &page[64..end]].concat());
            put(page, 60, crc);
        }
    }
}

fn new_volume(name: &str, kind: VolumeKind) -> NewVolume {
    NewVolume {
        id: None,
        name: VolumeName::new(name.as_bytes()).expect("a name"),
        kind,
        size: SizeInLebs::Exactly(4),
        alignment: 1,
        autoresize: false,
        skip_check: false,
    }
}

/// Makes a chip with two volumes.
fn ubi_image() -> Vec<u8> {
    let chip = empty_chip("chip");
    let ubi = Ubi::format(Arc::clone(&chip), format_options(), &mut |_| {}).expect("formatted");
    ubi.make_volume(new_volume("data", VolumeKind::Dynamic))
        .expect("room for it");
    ubi.make_volume(new_volume("boot", VolumeKind::Static))
        .expect("room for it");
    let volume = ubi.open(ubi.volumes()[0].id).expect("it is there");
    for leb in 0..3 {
        volume.leb_change(Leb(leb), &[5; 1024]).expect("room for it");
    }
    ubi.settle().expect("nothing fails");
    drop(ubi);
    read_chip(&chip)
}

fn ubi_headers() -> Decoder<'static> {
    let image = ubi_image();
    let used = image
        .chunks(BLOCK_BYTES)
        .filter(|block| block[128..132] == *b"UBI!");
    Decoder {
        name: "ubi headers",
        kind: Kind::Bytes,
        good: used.map(|block| block[..192].to_vec()).collect(),
        fix: |raw| {
            fix_header(raw, 0);
            fix_header(raw, 128);
        },
        decode: Box::new(|raw| {
            let header = |at: usize| raw.get(at..at + HEADER_BYTES)?.first_chunk::<HEADER_BYTES>();
            let first = header(0).is_some_and(|raw| matches!(EcHeader::decode(raw), Decoded::Header(_)));
            let second = header(128).map(|raw| VidHeader::decode(raw, LEB_BYTES));
            first && matches!(second, Some(Decoded::Header(_)))
        }),
    }
}

fn ubi_table() -> Decoder<'static> {
    let image = ubi_image();
    let limits = TableLimits {
        leb_bytes: LEB_BYTES,
        min_io_bytes: 512,
        good_pebs: BLOCKS,
    };
    let tables = image.chunks(BLOCK_BYTES).filter(|block| block[136..140] == TABLE);
    Decoder {
        name: "ubi volume table",
        kind: Kind::Bytes,
        good: tables.map(|block| block[512..].to_vec()).collect(),
        fix: |raw| fix_table(raw),
        decode: Box::new(move |raw| volume_table::decode(raw, &limits).is_ok()),
    }
}

fn ubi_fastmap() -> Decoder<'static> {
    let wear = |peb| Wear {
        peb,
        erase_counter: 1,
    };
    let map = Fastmap {
        blocks: vec![wear(1), wear(2)],
        pool: Pool {
            pebs: vec![3, 4],
            pebs_max: 8,
        },
        free: vec![wear(5), wear(6)],
        used: vec![wear(7), wear(8)],
        scrub: vec![wear(9)],
        erase: vec![wear(10)],
        volumes: vec![FastmapVolume {
            volume: 0,
            kind: VolumeKind::Dynamic,
            data_padding: 0,
            used_lebs: 0,
            last_leb_bytes: 0,
            pebs: vec![Some(7), None, Some(8)],
        }],
        ..Fastmap::default()
    };
    let good = fastmap::encode(&map, 4 * 3584);
    Decoder {
        name: "ubi fastmap",
        kind: Kind::Bytes,
        good: vec![good],
        fix: |raw| {
            if raw.len() > 12 {
                raw[8..12].fill(0);
                let crc = ubi::format::crc32(raw);
                put(raw, 8, crc);
            }
        },
        decode: Box::new(|raw| fastmap::decode(raw).is_ok()),
    }
}

/// Two members; if they attach, the array is read, written and closed.
fn whole_array() -> Decoder<'static> {
    let chips = [empty_chip("one"), empty_chip("two")];
    let identity = MemberIdentity {
        array: 0xDA,
        index: 0,
        members: 0,
        label: "hostile".to_owned(),
        redundancy: array::Redundancy::None,
    };
    array::format(chips.to_vec(), format_options(), &identity, &mut |_, _| {}).expect("formatted");
    let attach =
        |chips: Vec<Chip>| array::attach(chips, AttachOptions::linux(Access::ReadWrite), Execution::Inline);
    let opened = attach(chips.to_vec()).expect("attached");
    for leb in 0..6 {
        opened
            .volume()
            .leb_change(Leb(leb), &[3; 1024])
            .expect("room for it");
    }
    opened.volume().unmap(Leb(2)).expect("mapped");
    opened.settle().expect("nothing fails");
    // Dropped as by a power cut, with its marks.
    drop(opened);
    let half = BLOCK_BYTES * usize::try_from(BLOCKS).expect("few");
    Decoder {
        name: "array labels and marks",
        kind: Kind::Bytes,
        good: vec![chips.iter().flat_map(read_chip).collect()],
        fix: |raw| fix_blocks(raw),
        decode: Box::new(move |raw| {
            let mut raw = raw.to_vec();
            raw.resize(2 * half, 0xFF);
            let Ok(opened) = attach(vec![chip_of("one", &raw[..half]), chip_of("two", &raw[half..])]) else {
                return false;
            };
            let volume = opened.volume();
            for leb in (0..volume.geometry().lebs.min(40)).map(Leb) {
                let mut page = [0; 512];
                // Errors are fine; only a panic is not.
                let _ = volume.read(leb, 0, &mut page);
                let _ = volume.leb_change(leb, &page);
            }
            let _ = opened.settle();
            let _ = opened.close();
            true
        }),
    }
}

/// Three members with parity, one of them absent after the first marks: if the others or all attach, the array is read,
/// written, and the absent member rebuilt.
fn array_with_parity() -> Decoder<'static> {
    const MEMBERS: usize = 3;
    let names = ["one", "two", "three"];
    let chips = names.map(empty_chip);
    let identity = MemberIdentity {
        array: 0xDA,
        index: 0,
        members: 0,
        label: "hostile".to_owned(),
        redundancy: array::Redundancy::Parity,
    };
    array::format(chips.to_vec(), format_options(), &identity, &mut |_, _| {}).expect("formatted");
    let attach =
        |chips: Vec<Chip>| array::attach(chips, AttachOptions::linux(Access::ReadWrite), Execution::Inline);
    for members in [&chips[..], &chips[..2]] {
        let opened = attach(members.to_vec()).expect("attached");
        let row = vec![3; 1024];
        for leb in (0..6).map(Leb) {
            opened.volume().leb_change(leb, &row).expect("room for it");
        }
        opened.volume().unmap(Leb(2)).expect("mapped");
        // Dropped as by a power cut, with its marks.
        opened.settle().expect("nothing fails");
    }
    let own = BLOCK_BYTES * usize::try_from(BLOCKS).expect("few");
    let use_all = |opened: &array::Array| {
        let volume = opened.volume();
        for leb in (0..volume.geometry().lebs.min(12)).map(Leb) {
            let mut page = vec![0; 1024];
            // Errors are fine; only a panic is not.
            let _ = volume.read(leb, 0, &mut page);
            let _ = volume.leb_change(leb, &page);
        }
        let _ = opened.settle();
        let _ = opened.rebuild(&mut |_| {});
        let _ = opened.close();
    };
    Decoder {
        name: "array with parity",
        kind: Kind::Bytes,
        good: vec![chips.iter().flat_map(read_chip).collect()],
        fix: |raw| fix_blocks(raw),
        decode: Box::new(move |raw| {
            let mut raw = raw.to_vec();
            raw.resize(MEMBERS * own, 0xFF);
            let present = |wanted: std::ops::Range<usize>| -> Vec<Chip> {
                let members = names.iter().zip(raw.chunks(own));
                let members = members.map(|(name, raw)| chip_of(name, raw)).collect::<Vec<_>>();
                members[wanted].to_vec()
            };
            let mut is_accepted = false;
            for wanted in [0..MEMBERS, 0..2, 1..MEMBERS] {
                if let Ok(opened) = attach(present(wanted)) {
                    use_all(&opened);
                    is_accepted = true;
                }
            }
            // The third member's content as that of an interrupted rebuild.
            let new = array::NewMember {
                device: Box::new(present(2..MEMBERS).remove(0)),
                place: 2,
                image_sequence: 9,
                progress: &mut |_| {},
            };
            if let Ok(opened) = array::with_new_member(present(0..2), new, Execution::Inline) {
                use_all(&opened);
                is_accepted = true;
            }
            is_accepted
        }),
    }
}

/// A chip in a file: mutates its side-car, then reads the whole chip.
/// Pages with BCH4 in their OOB areas; the layout is looked for, and all pages are corrected.
fn ecc_dump() -> Decoder<'static> {
    let layout = ecc::Layout::parse("bch4/512,page=512,oob=16,mask=none", None).expect("a layout");
    // A message and its parity by bchlib.
    let byte = |at: u32| ((at * at * 7 + at * 13 + 5) % 251).to_le_bytes()[0];
    let page: Vec<u8> = (0..512)
        .map(byte)
        .chain([0xFF; 9])
        .chain([0x34, 0xaf, 0xe6, 0x87, 0xf4, 0x27, 0x40])
        .collect();
    let dump = page.repeat(64);
    Decoder {
        name: "ecc dump",
        kind: Kind::Bytes,
        good: vec![dump],
        fix: |_| {},
        decode: Box::new(move |raw| {
            let range = 0..u64::try_from(raw.len()).unwrap_or(0);
            let options = ecc::FindOptions {
                range: range.clone(),
                page_bytes: Some(512),
                oob_bytes: Some(16),
                block_bytes: None,
                choice: ecc::Choice::Auto,
            };
            let is_found = ecc::find(raw, &options).is_ok();
            let Ok(corrected) = ecc::Corrected::new(raw, range, layout.clone()) else {
                return false;
            };
            let summary = corrected.copy(&mut std::io::sink(), &mut |_| {});
            summary.is_ok_and(|summary| is_found && summary.failed_steps < summary.pages)
        }),
    }
}

fn ecc_layout() -> Decoder<'static> {
    let texts = [
        "bch8/512,page=2048,oob=64,ecc=2..15+14,mask=none",
        "hamming/256,page=512,oob=16,ecc=0..4:6..8",
        "bch4/512,page=2048,oob=64,ecc=9..16+16,covers=0..9.5+16,right,mask=none",
        "bch6/512,page=2048,oob=64,inline,prefix=10,packed,swap=2048:0,lsb,mask=none",
        "bch8/516,page=2048,oob=128,inline,room=13,pad=2,skip-each=452..453,mask=00112233445566778899aabbcc",
    ];
    Decoder {
        name: "ecc layout",
        kind: Kind::Text,
        good: texts.iter().map(|text| text.as_bytes().to_vec()).collect(),
        fix: |_| {},
        decode: Box::new(|raw| {
            let Ok(text) = std::str::from_utf8(raw) else {
                return false;
            };
            let Ok(layout) = ecc::Layout::parse(text, None) else {
                return false;
            };
            let again = ecc::Layout::parse(&layout.to_string(), None);
            assert_eq!(again.as_ref(), Ok(&layout), "{text}");
            let bytes = vec![0x5A; usize::try_from(layout.raw_bytes()).unwrap_or(0) * 2];
            let range = 0..u64::try_from(bytes.len()).unwrap_or(0);
            let corrected = ecc::Corrected::new(&bytes[..], range, layout);
            corrected.is_ok_and(|corrected| corrected.copy(&mut std::io::sink(), &mut |_| {}).is_ok())
        }),
    }
}

fn sidecar() -> Decoder<'static> {
    let folder = super::folder();
    let path = folder.path().join("chip");
    let model = ChipModel::new(geometry());
    let made = FileNand::create(&path, model, FaultModel::none(), ImageKind::Data, |_| {});
    let mut chip = made.expect("there is room");
    chip.program(Peb(1), 0, &[7; 512]).expect("erased");
    chip.sync().expect("there is room");
    drop(chip);
    let good = std::fs::read(sidecar_path(&path)).expect("it is beside it");
    Decoder {
        name: "nand side-car",
        kind: Kind::Bytes,
        good: vec![good],
        fix: |raw| {
            let header = raw.len().min(512);
            let (header, rest) = raw.split_at_mut(header);
            for (record, bytes) in [(header, 512)]
                .into_iter()
                .chain(rest.chunks_mut(64).map(|record| (record, 64)))
            {
                if record.len() == bytes && record.iter().any(|byte| *byte != 0) {
                    let crc = super::crc32(&record[..bytes - 4]);
                    record[bytes - 4..].copy_from_slice(&crc.to_le_bytes());
                }
            }
        },
        decode: Box::new(move |raw| {
            std::fs::write(sidecar_path(&folder.path().join("chip")), raw).expect("there is room");
            let Ok(mut chip) = FileNand::open(&folder.path().join("chip"), nand::Access::ReadOnly, None)
            else {
                return false;
            };
            let geometry = chip.geometry();
            let mut page = vec![
                0;
                usize::try_from(geometry.page_bytes())
                    .expect("small")
                    .min(1 << 20)
            ];
            for peb in (0..geometry.blocks().min(64)).map(Peb) {
                let _ = chip.is_bad(peb);
                let _ = chip.read(peb, 0, &mut page);
            }
            true
        }),
    }
}

fn identity() -> Decoder<'static> {
    let name = "tga1-000000000000000000000000000000da-0-2-label-with-dashes";
    Decoder {
        name: "array label",
        kind: Kind::Text,
        good: vec![name.into()],
        fix: |_| {},
        decode: Box::new(|raw| String::from_utf8_lossy(raw).parse::<MemberIdentity>().is_ok()),
    }
}

fn kept_card() -> Decoder<'static> {
    let card = KeptCard {
        image_changed_ns: 9,
        epoch: 9,
        kept: Kept {
            erases: vec![1, 2],
            map: Some(KeptMap {
                slots: vec![3, emmc::translation::NO_SLOT, 4],
                erased: vec![true, false],
                open: vec![KeptOpen {
                    stream: 0,
                    block: 1,
                    filled: 5,
                    epochs: vec![7, 8],
                }],
            }),
        },
    };
    Decoder {
        name: "emmc store",
        kind: Kind::Bytes,
        good: vec![card.encode()],
        fix: |raw| {
            if raw.len() >= 32 {
                let after = u64::try_from(raw.len() - 32).expect("small");
                // Repair length and checksum.
                raw[16..24].copy_from_slice(&after.to_le_bytes());
                let crc = super::crc32(&raw[16..]);
                raw[12..16].copy_from_slice(&crc.to_le_bytes());
            }
        },
        decode: Box::new(|raw| KeptCard::decode(raw).is_ok()),
    }
}

/// Places, kinds and lengths of the nodes of a volume.
fn nodes_of(volume: &[u8]) -> impl Iterator<Item = (usize, NodeKind, usize)> {
    let places = (0..volume.len().saturating_sub(64)).step_by(8);
    places.filter_map(|at| {
        let header = check(&volume[at..]).ok()?;
        Some((at, header.kind, usize::try_from(header.bytes).ok()?))
    })
}

/// Single nodes of every kind.
fn ubifs_nodes() -> Decoder<'static> {
    let volume = super::commands::ubifs_volume();
    let mut nodes: Vec<Vec<u8>> = nodes_of(&volume)
        .filter(|(_, kind, _)| *kind != NodeKind::Padding)
        .map(|(at, _, bytes)| volume[at..at + bytes].to_vec())
        .collect();
    let truncation = Truncation {
        inode: 70,
        old_bytes: 9000,
        new_bytes: 5,
    };
    nodes.push(truncation.encode(9, Group::None));
    nodes.push(
        Orphans {
            commit: 3,
            inodes: vec![70, 71],
        }
        .encode(9),
    );
    let read = |raw: &[u8]| {
        let Ok(header) = check(raw) else { return false };
        match header.kind {
            NodeKind::Inode => Inode::decode(raw).is_ok(),
            NodeKind::Entry => DirectoryEntry::decode(raw, NodeKind::Entry).is_ok(),
            NodeKind::XattrEntry => DirectoryEntry::decode(raw, NodeKind::XattrEntry).is_ok(),
            NodeKind::Index => IndexNode::decode(raw).is_ok(),
            NodeKind::Superblock => Superblock::decode(raw).is_ok(),
            NodeKind::Master => Master::decode(raw).is_ok(),
            NodeKind::Reference => LogReference::decode(raw).is_ok(),
            NodeKind::CommitStart => CommitStart::decode(raw).is_ok(),
            NodeKind::Orphans => Orphans::decode(raw).is_ok(),
            NodeKind::Truncation => Truncation::decode(raw).is_ok(),
            NodeKind::Data => Data::decode(raw).is_ok_and(|data| {
                // Compressed data is arbitrary.
                let mut block = vec![0; usize::try_from(data.size_bytes.min(4096)).expect("small")];
                let compression = Compression::from_number(data.compression);
                compression.is_some_and(|how| ubifs::decompress(how, &data.stored, &mut block).is_ok())
            }),
            _ => false,
        }
    };
    Decoder {
        name: "ubifs nodes",
        kind: Kind::Bytes,
        good: nodes,
        fix: |raw| {
            let kind = raw.get(20).and_then(|kind| NodeKind::from_number(*kind));
            if let Some(kind) = kind.filter(|_| raw.len() >= 24) {
                seal(raw, kind, Group::None, 1);
            }
        },
        decode: Box::new(read),
    }
}

/// A whole volume: index, log, journal, orphans, LEB properties. `hostile_corpus` runs the commands on larger ones.
/// Repairs the CRCs of nodes.
fn fix_nodes(raw: &mut [u8]) {
    // The places that had a magic number have one still, mostly.
    for at in (0..raw.len().saturating_sub(24)).step_by(8) {
        let length = raw[at + 16..]
            .first_chunk()
            .map_or(0, |raw| u32::from_le_bytes(*raw));
        let kind = NodeKind::from_number(raw[at + 20]);
        let is_node = raw[at..].starts_with(&[0x31, 0x18, 0x10, 0x06]);
        let node = usize::try_from(length)
            .ok()
            .filter(|length| *length >= 24)
            .and_then(|length| raw.get_mut(at..at.checked_add(length)?));
        if let (true, Some(node), Some(_)) = (is_node, node, kind) {
            let crc = ubi::format::crc32(&node[8..]).to_le_bytes();
            node[4..8].copy_from_slice(&crc);
        }
    }
}

fn ubifs_volume() -> Decoder<'static> {
    let folder = super::folder();
    let path = folder.path().join("volume");
    let volume = super::commands::small_ubifs_volume();
    // Unused LEBs stay as they are.
    let leb = 15_872;
    let used: Vec<usize> = (0..volume.len())
        .step_by(leb)
        .filter(|at| volume[*at..*at + leb].iter().any(|byte| *byte != 0xFF))
        .collect();
    let good: Vec<u8> = used
        .iter()
        .flat_map(|at| volume[*at..*at + leb].to_vec())
        .collect();
    Decoder {
        name: "ubifs volume",
        kind: Kind::Bytes,
        good: vec![good],
        fix: |raw| fix_nodes(raw),
        decode: Box::new(move |raw| {
            let mut changed = volume.clone();
            for (from, at) in raw.chunks(leb).zip(&used) {
                changed[*at..*at + from.len()].copy_from_slice(from);
            }
            std::fs::write(&path, &changed).expect("there is room");
            let _lives = &folder;
            let Ok(Some(image)) = ImageVolume::open(&path) else {
                return false;
            };
            let report = ubifs::check::check(&image);
            let opened = Ubifs::open(Arc::new(image), OpenOptions::standard());
            opened.is_ok() && report.findings.is_empty()
        }),
    }
}

/// Salvages a volume whose used LEBs are the input, and reads all files, deleted ones too.
fn ubifs_salvage() -> Decoder<'static> {
    let folder = super::folder();
    let path = folder.path().join("salvaged");
    let leb = 15_872;
    let volume = super::commands::small_ubifs_volume();
    let used = volume
        .chunks(leb)
        .filter(|raw| raw.iter().any(|byte| *byte != 0xFF));
    let good: Vec<u8> = used.flatten().copied().collect();
    Decoder {
        name: "ubifs salvage",
        kind: Kind::Bytes,
        good: vec![good],
        fix: |raw| fix_nodes(raw),
        decode: Box::new(move |raw| {
            std::fs::write(&path, raw).expect("there is room");
            let _lives = &folder;
            let image = ImageVolume::open_as(&path, u32::try_from(leb).expect("small"));
            let volume: Arc<dyn Volume> = Arc::new(image.expect("it can be read"));
            let options = SalvageOptions {
                lists_deleted: true,
                ..SalvageOptions::standard(&*volume)
            };
            let salvage = Salvage::scan(volume, options);
            let files = read_all(salvage.tree());
            let deleted = salvage.into_deleted_tree(Vec::new());
            read_all(&deleted.expect("it was asked for"));
            files > 1
        }),
    }
}

/// A block of noise, a UBI image, an erased block, a bare file system: found, and read and salvaged as `tidegate unpack` does.
fn whole_dump() -> Decoder<'static> {
    let leb = 15_872;
    let volume = super::commands::small_ubifs_volume();
    let used = volume
        .chunks(leb)
        .filter(|raw| raw.iter().any(|byte| *byte != 0xFF));
    let mut good = vec![0x5A; BLOCK_BYTES];
    good.extend(ubi_image());
    good.extend([0xFF; BLOCK_BYTES]);
    good.extend(used.flatten());
    Decoder {
        name: "dump",
        kind: Kind::Bytes,
        good: vec![good],
        fix: |raw| {
            fix_blocks(raw);
            fix_nodes(raw);
        },
        decode: Box::new(|raw| {
            let dump = Arc::new(Dump::spool("dump", raw).expect("there is room"));
            let survey = image::survey(&dump, &Hints::default(), &mut |_| {});
            let mut is_ubi = false;
            for part in &survey.parts {
                match part {
                    Part::Ubi(partition) => {
                        for volume in &partition.volumes {
                            // A forged number of LEBs makes a stream that no limit of an unpacking takes.
                            let mut stream = volume.stream().take(1 << 20);
                            std::io::copy(&mut stream, &mut std::io::sink()).expect("it can be read");
                        }
                        is_ubi = true;
                    }
                    Part::Ubifs(bare) => {
                        if let Ok(opened) = open_ubifs(Arc::new(bare.open()), OpenOptions::standard()) {
                            read_all(&opened.ubifs);
                        }
                        read_all(salvage_ubifs(Arc::new(bare.open()), true).salvage.tree());
                    }
                }
            }
            is_ubi
        }),
    }
}

/// Reads everything as an extraction does; returns the number of files.
fn read_all(ubifs: &Ubifs) -> usize {
    let mut pending = vec![(ROOT_INODE, Some(EntryKind::Directory))];
    let mut seen = std::collections::HashSet::new();
    let mut piece = vec![0; 64 << 10];
    let mut lost = Vec::new();
    while let Some((number, kind)) = pending.pop() {
        if !seen.insert(number) {
            continue;
        }
        lost.clear();
        ubifs.xattrs_lossy(number, &mut lost);
        let Some(inode) = ubifs.inode_lossy(number, kind, &mut lost) else {
            continue;
        };
        if inode.kind() == Some(EntryKind::Directory) {
            let entries = ubifs.read_directory_lossy(number, &mut lost);
            pending.extend(entries.iter().map(|entry| (entry.inode, entry.kind)));
            continue;
        }
        for block in ubifs.blocks_lossy(number, &mut lost) {
            ubifs.read_lossy(&inode, u64::from(block) * 4096, &mut piece[..4096], &mut lost);
        }
    }
    seen.len()
}
