//! Builds UBI images without a chip, ready to be flashed. Output is byte-identical to `ubinize`.
//!
//! The first two blocks hold the volume table; the LEBs of each volume follow in the given order. All sequence
//! numbers are 0 and all erase counters are equal; gaps are 0xFF.

use std::io::{self, Read};

use crate::attach::VolumeId;
use crate::format::volume_table::{self, RECORD_BYTES, TableLimits, VolumeName, VolumeRecord};
use crate::format::{
    Compatibility, EcHeader, HEADER_BYTES, LAYOUT_VOLUME, LAYOUT_VOLUME_LEBS, VidHeader, VolumeKind, crc32,
};
use crate::layout::Layout;
use media::{NandGeometry, index};
use thiserror::Error;

/// Options that all blocks of an image share.
#[derive(Clone, Copy, Debug)]
pub struct ImageOptions {
    /// Offsets of headers and data.
    pub layout: Layout,
    /// Geometry of the chip; its number of blocks is ignored.
    pub geometry: NandGeometry,
    /// Image sequence number in all EC headers.
    pub image_sequence: u32,
    /// Erase counter in all EC headers.
    pub erase_counter: u32,
}

/// A volume of an image.
#[derive(Clone, Debug)]
pub struct ImageVolume {
    /// Volume number.
    pub id: VolumeId,
    /// Volume name.
    pub name: VolumeName,
    /// Static or dynamic.
    pub kind: VolumeKind,
    /// Minimum capacity in bytes.
    pub bytes: u64,
    /// The LEB size is rounded down to a multiple of this; 1 for no alignment.
    pub alignment: u32,
    /// The volume grows into all free blocks at the first attach.
    pub autoresize: bool,
    /// Skip the CRC check when this static volume is opened.
    pub skip_check: bool,
    /// Size of the content in bytes; 0 for none.
    pub content_bytes: u64,
}

/// Error of building an image.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The volume number is used twice or exceeds the table.
    #[error("volume {id} of the image: {why}")]
    Volume {
        /// Volume number.
        id: u32,
        /// Description of the conflict.
        why: String,
    },
    /// Reading content or writing the image failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The host's error.
        source: io::Error,
    },
}

/// LEB size in bytes of a volume with this alignment.
#[must_use]
pub fn aligned_leb_bytes(layout: &Layout, alignment: u32) -> u32 {
    layout.leb_bytes() - layout.leb_bytes() % alignment.max(1)
}

/// Builds an image. Each volume's content must have exactly `content_bytes` bytes.
pub fn build_image<R: Read>(
    options: &ImageOptions,
    volumes: Vec<(ImageVolume, R)>,
    write: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), ImageError> {
    let limits = TableLimits {
        leb_bytes: options.layout.leb_bytes(),
        min_io_bytes: options.layout.min_io_bytes(),
        good_pebs: u32::MAX,
    };
    let mut table = vec![None; index(limits.slots())];
    for (volume, _) in &volumes {
        let record = record(options, volume)?;
        let fail = |why: String| ImageError::Volume { id: volume.id.0, why };
        let slots = table.len();
        let place = table
            .get_mut(index(volume.id.0))
            .ok_or_else(|| fail(format!("the volume table has {slots} places, from 0")))?;
        if place.is_some() {
            return Err(fail("the number is used twice".to_owned()));
        }
        *place = Some(record);
    }
    let raw = volume_table::encode(&table);
    if let Err(error) = volume_table::decode(&raw, &limits) {
        return Err(ImageError::Volume {
            id: 0,
            why: error.to_string(),
        });
    }
    let write_failed = |source| ImageError::Io {
        what: "writing the image",
        source,
    };
    for leb in 0..LAYOUT_VOLUME_LEBS {
        let header = VidHeader {
            compatibility: Compatibility::Reject,
            ..header(LAYOUT_VOLUME, leb)
        };
        write(&block(options, &header, &raw)).map_err(write_failed)?;
    }
    assert!(raw.len().is_multiple_of(RECORD_BYTES));
    for (volume, mut content) in volumes {
        write_volume(options, &volume, &mut content, &mut |bytes| {
            write(bytes).map_err(write_failed)
        })?;
    }
    Ok(())
}

fn record(options: &ImageOptions, volume: &ImageVolume) -> Result<VolumeRecord, ImageError> {
    let fail = |why: String| ImageError::Volume { id: volume.id.0, why };
    if volume.alignment == 0 || volume.alignment > options.layout.leb_bytes() {
        return Err(fail(format!(
            "an alignment of {} bytes is not from 1 to the LEB's {}",
            volume.alignment,
            options.layout.leb_bytes()
        )));
    }
    let leb_bytes = u64::from(aligned_leb_bytes(&options.layout, volume.alignment));
    if volume.content_bytes > volume.bytes {
        return Err(fail(format!(
            "its content of {} bytes does not fit its size of {}",
            volume.content_bytes, volume.bytes
        )));
    }
    let lebs = u32::try_from(volume.bytes.div_ceil(leb_bytes));
    Ok(VolumeRecord {
        reserved_pebs: lebs
            .ok()
            .filter(|lebs| *lebs > 0)
            .ok_or_else(|| fail("its size is 0 or too large".to_owned()))?,
        alignment: volume.alignment,
        data_padding: options.layout.leb_bytes() % volume.alignment,
        kind: volume.kind,
        update_marker: false,
        name: volume.name.clone(),
        autoresize: volume.autoresize,
        skip_check: volume.skip_check,
    })
}

fn write_volume(
    options: &ImageOptions,
    volume: &ImageVolume,
    content: &mut impl Read,
    write: &mut dyn FnMut(&[u8]) -> Result<(), ImageError>,
) -> Result<(), ImageError> {
    let leb_bytes = u64::from(aligned_leb_bytes(&options.layout, volume.alignment));
    let lebs = u32::try_from(volume.content_bytes.div_ceil(leb_bytes)).expect("the size was checked");
    let mut left = volume.content_bytes;
    for leb in 0..lebs {
        let bytes = left.min(leb_bytes);
        left -= bytes;
        let mut data = vec![0; usize::try_from(bytes).expect("at most a LEB")];
        content.read_exact(&mut data).map_err(|source| ImageError::Io {
            what: "reading the content of a volume",
            source,
        })?;
        let plain = VidHeader {
            data_padding: options.layout.leb_bytes() % volume.alignment,
            ..header(volume.id.0, leb)
        };
        let header = match volume.kind {
            VolumeKind::Dynamic => plain,
            VolumeKind::Static => VidHeader {
                kind: VolumeKind::Static,
                used_lebs: lebs,
                data_size: u32::try_from(bytes).expect("at most a LEB"),
                data_crc: crc32(&data),
                ..plain
            },
        };
        write(&block(options, &header, &data))?;
    }
    Ok(())
}

fn header(volume: u32, leb: u32) -> VidHeader {
    VidHeader {
        kind: VolumeKind::Dynamic,
        copied: false,
        compatibility: Compatibility::None,
        volume,
        leb,
        data_size: 0,
        used_lebs: 0,
        data_padding: 0,
        data_crc: 0,
        sequence_number: 0,
        generation: 0,
    }
}

fn block(options: &ImageOptions, header: &VidHeader, data: &[u8]) -> Vec<u8> {
    let layout = options.layout;
    let mut block = vec![0xFF; index(options.geometry.block_bytes())];
    let ec_header = EcHeader {
        erase_counter: options.erase_counter,
        vid_header_offset: layout.vid_header_offset(),
        data_offset: layout.data_offset(),
        image_sequence: options.image_sequence,
    };
    let mut place = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    place(0, &ec_header.encode());
    place(index(layout.vid_header_offset()), &header.encode());
    place(index(layout.data_offset()), data);
    assert_eq!(header.encode().len(), HEADER_BYTES);
    block
}
