//! Raw flash: NAND dumps, UBI and UBIFS, at the beginning of a file or inside a larger dump.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use media::{Leb, NandGeometry};
use nand::{Access, FileError, FileNand, ImageKind, MtdNand, PlainImage};
use results::words::counted;
use serde_json::json;
use ubi::format::{Decoded, EcHeader, HEADER_BYTES};
use ubi::{AttachError, AttachOptions, FastmapUse, Ubi, Volume};
use ubifs::ImageVolume;
use ubifs::format::{NodeKind, Superblock, check_expected};

use super::content::Head;
use super::identity::{Geometry, Identity, Kind, Part, partial_block, quoted, stride};
use crate::quantity::show_bytes;
use crate::ubi_command::chip::{Chip, GUESS_BYTES, geometry, plain};
use crate::ubi_command::info::kind_name;

/// Bytes of a larger dump that are searched for UBI and UBIFS.
const SEARCH_BYTES_MAX: u64 = 1 << 30;

/// Bytes read before the next search.
const STEP_BYTES: usize = 1 << 20;

/// A NAND chip of this machine.
pub fn mtd(path: &Path) -> Result<Option<Identity>> {
    if !MtdNand::is_mtd(path) {
        return Ok(None);
    }
    let chip = MtdNand::open(path, Access::ReadOnly)?;
    let geometry = media::Nand::geometry(&chip);
    let known = chip_geometry(&geometry, geometry.oob_bytes(), "from the kernel");
    Ok(Some(of_chip(Box::new(chip), known)))
}

/// A NAND image, or a bare UBIFS volume, from byte 0.
pub fn image(path: &Path, head: &Head) -> Result<Option<Identity>> {
    let bare = ImageVolume::open(path).with_context(|| format!("{} can't be read", path.display()))?;
    if let Some(volume) = bare {
        return Ok(Some(bare_volume(&volume, head.file_bytes)));
    }
    match FileNand::open(path, Access::ReadOnly, None) {
        Ok(chip) => {
            let known = media::Nand::geometry(&chip);
            let oob = match chip.image_kind() {
                ImageKind::Data => 0,
                ImageKind::DataAndOob => known.oob_bytes(),
            };
            let known = chip_geometry(&known, oob, "from its side-car");
            Ok(Some(of_chip(Box::new(chip), known)))
        }
        Err(FileError::UnknownChip { .. }) => guessed(path, head),
        // It has a side-car that is damaged or contradicts it, or it is in use.
        Err(error @ (FileError::Sidecar { .. } | FileError::Length { .. } | FileError::Locked { .. })) => {
            let identity = Identity {
                unusual: vec![error.to_string()],
                ..Identity::new(Kind::Nand, "a NAND chip with a side-car")
            };
            Ok(Some(identity.then("tidegate nand info FILE")))
        }
        Err(_) => Ok(None),
    }
}

fn chip_geometry(geometry: &NandGeometry, oob: u32, source: &'static str) -> Geometry {
    Geometry::Chip {
        page: geometry.page_bytes(),
        subpage: geometry.subpage_bytes(),
        block: geometry.block_bytes(),
        oob,
        blocks: u64::from(geometry.blocks()),
        source,
    }
}

/// An image without a side-car that begins with UBI.
fn guessed(path: &Path, head: &Head) -> Result<Option<Identity>> {
    if ubi_header(&head.bytes).is_none() {
        return Ok(None);
    }
    let failed = || format!("{} can't be read", path.display());
    let file = File::open(path).with_context(failed)?;
    let Some(shape) = ubi::guess_shape(file, GUESS_BYTES).with_context(failed)? else {
        let mut identity = Identity::new(Kind::Ubi, "a UBI image");
        identity.unusual.push(
            "fewer than two blocks have UBI headers, which is too few to guess the geometry".to_owned(),
        );
        return Ok(Some(
            identity.then("tidegate ubi info --page SIZE --block SIZE FILE"),
        ));
    };
    let block_stride = stride(shape.page_bytes, shape.block_bytes, shape.oob_bytes);
    let known = Geometry::Chip {
        page: shape.page_bytes,
        subpage: shape.subpage_bytes,
        block: shape.block_bytes,
        oob: shape.oob_bytes,
        blocks: head.file_bytes.div_ceil(block_stride.max(1)),
        source: "guessed from its headers",
    };
    let one_block = geometry(
        shape.page_bytes,
        shape.block_bytes,
        shape.subpage_bytes,
        shape.oob_bytes,
    );
    let image = one_block.map(|geometry| -> PlainImage { plain(geometry, shape.oob_bytes) });
    let opened = image.and_then(|image| Ok(FileNand::open_truncated(path, image)?));
    let mut identity = match opened {
        Ok(chip) => of_chip(Box::new(chip), known),
        Err(error) => Identity {
            geometry: Some(known),
            unusual: vec![error.to_string()],
            ..ubi_image(known).then("tidegate ubi info FILE")
        },
    };
    if let Some((found, expected)) = partial_block(head.file_bytes, block_stride) {
        identity.unusual.push(format!(
            "truncated: the last block has {found} of {expected} bytes"
        ));
    }
    Ok(Some(identity))
}

fn ubi_image(geometry: Geometry) -> Identity {
    let description = match geometry {
        Geometry::Chip { oob: 1.., .. } => "a UBI image with OOB",
        _ => "a UBI image",
    };
    Identity::new(Kind::Ubi, description)
}

/// A chip by its content.
fn of_chip(chip: Chip, geometry: Geometry) -> Identity {
    let options = AttachOptions {
        fastmap: FastmapUse::IfValid,
        ..AttachOptions::linux(ubi::Access::ReadOnly)
    };
    let nand = |description: &str| Identity {
        geometry: Some(geometry),
        ..Identity::new(Kind::Nand, description)
    };
    let scanned = match ubi::scan(chip, options) {
        Ok(scanned) => scanned,
        Err(AttachError::Blank { .. }) => {
            return nand("an erased NAND chip").then("tidegate ubi format FILE");
        }
        Err(AttachError::NotUbi { .. }) => {
            return nand("a NAND chip without UBI").then("tidegate nand info FILE");
        }
        Err(error) => {
            let mut identity = ubi_image(geometry).then("tidegate ubi check FILE");
            identity.geometry = Some(geometry);
            identity.unusual.push(error.to_string());
            return identity;
        }
    };
    let damaged = scanned.damaged_blocks();
    let mut identity = ubi_image(geometry);
    identity.geometry = Some(geometry);
    if damaged > 0 {
        let number = usize::try_from(damaged).unwrap_or(usize::MAX);
        identity.unusual.push(format!(
            "{} damaged (tidegate ubi check)",
            counted(number, "block")
        ));
    }
    match scanned.attach() {
        Ok(ubi) => list_volumes(&mut identity, &ubi),
        Err(error) => {
            identity.unusual.push(error.to_string());
            identity.next = Some("tidegate ubi check FILE".to_owned());
        }
    }
    identity
}

fn list_volumes(identity: &mut Identity, ubi: &Ubi) {
    let volumes = ubi.volumes();
    identity.description = format!("{} of {}", identity.description, counted(volumes.len(), "volume"));
    identity.next = Some("tidegate ubi info FILE".to_owned());
    for summary in &volumes {
        let superblock = ubi
            .open(summary.id)
            .ok()
            .and_then(|volume| superblock_of(&volume));
        let name = summary.record.name.to_string();
        let holds = match superblock {
            Some(_) => ", UBIFS",
            None => "",
        };
        identity.parts.push(Part {
            text: format!(
                "volume {} \"{name}\", {}, {} LEBs of {}{holds}",
                summary.id.0,
                kind_name(summary.record.kind),
                summary.record.reserved_pebs,
                show_bytes(u64::from(summary.leb_bytes)),
            ),
            value: json!({
                "id": summary.id.0,
                "name": name,
                "kind": kind_name(summary.record.kind),
                "lebs": summary.record.reserved_pebs,
                "leb_bytes": summary.leb_bytes,
                "content": superblock.map(|_| "ubifs"),
            }),
        });
        if superblock.is_some()
            && !identity
                .next
                .as_deref()
                .is_some_and(|next| next.contains("ubifs"))
        {
            identity.next = Some(match volumes.len() {
                1 => "tidegate ubifs ls FILE".to_owned(),
                _ => format!("tidegate ubifs ls --volume {} FILE", quoted(&name)),
            });
        }
    }
}

fn superblock_of(volume: &dyn Volume) -> Option<()> {
    let mut raw = vec![0; Superblock::BYTES];
    volume.read(Leb(0), 0, &mut raw).ok()?;
    ubifs_superblock(&raw).map(|_| ())
}

fn ubifs_superblock(raw: &[u8]) -> Option<Superblock> {
    let raw = raw.get(..Superblock::BYTES)?;
    check_expected(raw, NodeKind::Superblock, 4096).ok()?;
    Superblock::decode(raw).ok()
}

fn ubi_header(raw: &[u8]) -> Option<EcHeader> {
    let raw = raw.first_chunk::<HEADER_BYTES>()?;
    match EcHeader::decode(raw) {
        Decoded::Header(header) if raw.starts_with(b"UBI#") => Some(header),
        _ => None,
    }
}

fn bare_volume(volume: &ImageVolume, file_bytes: u64) -> Identity {
    let geometry = volume.geometry();
    let mut identity = Identity {
        geometry: Some(Geometry::Volume {
            leb: geometry.leb_bytes,
            lebs: geometry.lebs,
            min_io: geometry.min_io_bytes,
        }),
        ..Identity::new(Kind::Ubifs, "a bare UBIFS volume").then("tidegate ubifs ls FILE")
    };
    if let Some((found, expected)) = partial_block(file_bytes, u64::from(geometry.leb_bytes)) {
        identity
            .unusual
            .push(format!("truncated: the last LEB has {found} of {expected} bytes"));
    }
    identity
}

/// Result of a search through a file.
pub enum Searched {
    /// UBI or UBIFS, not at byte 0.
    Found(Box<Identity>),
    /// Only 0xFF.
    Erased,
    /// Neither.
    Nothing,
}

/// Searches a larger dump for the first UBI or UBIFS header with a valid checksum.
pub fn search(path: &Path) -> Result<Searched> {
    let failed = || format!("{} can't be read", path.display());
    let mut file = File::open(path).with_context(failed)?.take(SEARCH_BYTES_MAX);
    let mut is_erased = true;
    let mut window = Vec::new();
    let mut window_at: u64 = 0;
    loop {
        let before = window.len();
        let step = u64::try_from(STEP_BYTES).unwrap_or(u64::MAX);
        let read = file
            .by_ref()
            .take(step)
            .read_to_end(&mut window)
            .with_context(failed)?;
        is_erased &= window[before..].iter().all(|byte| *byte == 0xFF);
        // A header near the end of the window is looked at again with the next bytes.
        let end = match read {
            0 => window.len(),
            _ => window.len().saturating_sub(Superblock::BYTES) & !7,
        };
        if let Some((at, magic)) = first_header(&window, end) {
            let offset = window_at + u64::try_from(at).unwrap_or(u64::MAX);
            return Ok(Searched::Found(Box::new(inside(path, offset, magic)?)));
        }
        if read == 0 {
            return Ok(if is_erased {
                Searched::Erased
            } else {
                Searched::Nothing
            });
        }
        window.drain(..end);
        window_at += u64::try_from(end).unwrap_or(u64::MAX);
    }
}

#[derive(Clone, Copy)]
enum Magic {
    Ubi,
    Ubifs,
}

/// Headers lie at multiples of 8 bytes, as pages with OOB do.
fn first_header(window: &[u8], end: usize) -> Option<(usize, Magic)> {
    (0..end).step_by(8).find_map(|at| {
        let raw = &window[at..];
        if raw.starts_with(b"UBI#") && ubi_header(raw).is_some() {
            return Some((at, Magic::Ubi));
        }
        let is_superblock = raw.starts_with(&UBIFS_MAGIC) && ubifs_superblock(raw).is_some();
        is_superblock.then_some((at, Magic::Ubifs))
    })
}

/// 0x06101831, little-endian: the first bytes of each UBIFS node.
const UBIFS_MAGIC: [u8; 4] = [0x31, 0x18, 0x10, 0x06];

/// UBI or UBIFS inside a larger dump.
fn inside(path: &Path, offset: u64, magic: Magic) -> Result<Identity> {
    let next = "tidegate unpack FILE -o DIRECTORY";
    let mut identity = match magic {
        Magic::Ubifs => Identity::new(Kind::Ubifs, "a larger dump with a bare UBIFS volume").then(next),
        Magic::Ubi => {
            let mut identity = Identity::new(Kind::Ubi, "a larger dump with a UBI image").then(next);
            let failed = || format!("{} can't be read", path.display());
            let mut file = File::open(path).with_context(failed)?;
            let file_bytes =
                std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).with_context(failed)?;
            std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(offset)).with_context(failed)?;
            let shape = ubi::guess_shape(file, GUESS_BYTES).with_context(failed)?;
            identity.geometry = shape.map(|shape| Geometry::Chip {
                page: shape.page_bytes,
                subpage: shape.subpage_bytes,
                block: shape.block_bytes,
                oob: shape.oob_bytes,
                blocks: (file_bytes - offset)
                    .div_ceil(stride(shape.page_bytes, shape.block_bytes, shape.oob_bytes).max(1)),
                source: "guessed from its headers",
            });
            identity
        }
    };
    identity.offset_bytes = offset;
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_found_at_any_multiple_of_eight() {
        let header = EcHeader {
            erase_counter: 1,
            vid_header_offset: 512,
            data_offset: 2048,
            image_sequence: 7,
        };
        let mut window = vec![0x11; 10_000];
        window[4096 + 24..][..HEADER_BYTES].copy_from_slice(&header.encode());
        let found = first_header(&window, window.len());
        assert!(matches!(found, Some((4120, Magic::Ubi))));
        // A bare magic is no header.
        let mut window = vec![0x11; 10_000];
        window[512..516].copy_from_slice(b"UBI#");
        window[1024..1028].copy_from_slice(&UBIFS_MAGIC);
        assert!(first_header(&window, window.len()).is_none());
    }
}
