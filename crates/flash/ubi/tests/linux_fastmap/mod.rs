//! Puts a fastmap on a chip as Linux would write it, for tests.

use media::{Nand, Peb, RamNand, index};
use ubi::format::fastmap::{self, Fastmap, FastmapVolume, Pool, Wear};
use ubi::format::{
    Compatibility, Decoded, EcHeader, FASTMAP_DATA_VOLUME, FASTMAP_SUPERBLOCK_VOLUME, HEADER_BYTES,
    LAYOUT_VOLUME, VidHeader, VolumeKind,
};

/// The VID header of a LEB with arbitrary data, without copy flag.
pub fn header(volume: u32, leb: u32, sequence_number: u64) -> VidHeader {
    VidHeader {
        kind: VolumeKind::Dynamic,
        copied: false,
        compatibility: match volume {
            FASTMAP_SUPERBLOCK_VOLUME | FASTMAP_DATA_VOLUME => Compatibility::Delete,
            _ => Compatibility::None,
        },
        volume,
        leb,
        data_size: 0,
        used_lebs: 0,
        data_padding: 0,
        data_crc: 0,
        sequence_number,
        generation: 0,
    }
}

/// Decodes the headers of a block.
pub fn headers(chip: &mut RamNand, peb: Peb) -> (EcHeader, Option<VidHeader>) {
    let mut raw = [0; HEADER_BYTES];
    let _ = chip.read(peb, 0, &mut raw).expect("in range");
    let Decoded::Header(ec) = EcHeader::decode(&raw) else {
        panic!("{peb} has no EC header");
    };
    let leb_bytes = chip.geometry().block_bytes() - ec.data_offset;
    let _ = chip.read(peb, ec.vid_header_offset, &mut raw).expect("in range");
    match VidHeader::decode(&raw, leb_bytes) {
        Decoded::Header(vid) => (ec, Some(vid)),
        _ => (ec, None),
    }
}

/// Writes a VID header and data into a block that has only an EC header.
pub fn write_block(chip: &mut RamNand, peb: Peb, header: &VidHeader, data: &[u8]) {
    let (ec, _) = headers(chip, peb);
    let mut raw = vec![0; index(chip.geometry().subpage_bytes())];
    raw[..HEADER_BYTES].copy_from_slice(&header.encode());
    chip.program(peb, ec.vid_header_offset, &raw).expect("free");
    if !data.is_empty() {
        chip.program(peb, ec.data_offset, data).expect("free");
    }
}

/// Writes a fastmap into free blocks, with three more free blocks in its pool. `volumes` lists number, kind and size
/// of the user volumes.
pub fn write_fastmap(chip: &mut RamNand, volumes: &[(u32, VolumeKind, u32)]) -> Fastmap {
    let blocks = chip.geometry().blocks();
    let mut map = Fastmap::default();
    let layout = (LAYOUT_VOLUME, VolumeKind::Dynamic, 2);
    let mut tables: Vec<FastmapVolume> = volumes
        .iter()
        .chain([&layout])
        .map(|(volume, kind, lebs)| FastmapVolume {
            volume: *volume,
            kind: *kind,
            data_padding: 0,
            used_lebs: *lebs,
            last_leb_bytes: 0,
            pebs: vec![None; index(*lebs)],
        })
        .collect();
    let mut free = Vec::new();
    let mut data_offset = 0;
    let mut sequence_number = 900;
    for peb in (0..blocks).map(Peb) {
        let (ec, vid) = headers(chip, peb);
        data_offset = ec.data_offset;
        let wear = Wear {
            peb: peb.0,
            erase_counter: ec.erase_counter,
        };
        let Some(vid) = vid else {
            free.push(wear);
            continue;
        };
        map.used.push(wear);
        sequence_number = sequence_number.max(vid.sequence_number + 1);
        let table = tables.iter_mut().find(|table| table.volume == vid.volume);
        let table = table.expect("a volume of the device");
        table.pebs[index(vid.leb)] = Some(peb.0);
        if vid.kind == VolumeKind::Static {
            (table.used_lebs, table.last_leb_bytes) = (vid.used_lebs, vid.data_size);
        }
    }
    let leb_bytes = index(chip.geometry().block_bytes() - data_offset);
    let bytes = usize::try_from(fastmap::bytes_for(blocks)).expect("small");
    let own = bytes.div_ceil(leb_bytes);
    map.blocks = free.drain(..own).collect();
    map.pool = Pool {
        pebs: free.drain(..3).map(|wear| wear.peb).collect(),
        pebs_max: 5,
    };
    map.free = free;
    map.volumes = tables;
    let raw = fastmap::encode(&map, own * leb_bytes);
    for (number, (wear, part)) in (0..).zip(map.blocks.iter().zip(raw.chunks(leb_bytes))) {
        let volume = match number {
            0 => FASTMAP_SUPERBLOCK_VOLUME,
            _ => FASTMAP_DATA_VOLUME,
        };
        let header = header(volume, number, sequence_number + u64::from(number));
        write_block(chip, Peb(wear.peb), &header, part);
    }
    map
}
