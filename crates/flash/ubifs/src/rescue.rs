//! A volume read with LEBs of another size, and with a superblock in place of one that is damaged.
//!
//! Two accidents make a volume unreadable although all files are there: an image that was made for LEBs of another size,
//! which lies on the volume as one stream of bytes, and a damaged superblock. The areas of the file system can then be
//! told from the nodes at the beginning of each LEB: log, LPT (which has no nodes), orphans, files. Parameters that no
//! reader of files needs have the defaults of `mkfs.ubifs`. Read-only.

use std::sync::Arc;

use media::Leb;
use ubi::{TornEnd, Volume, VolumeError, VolumeGeometry};

use crate::format::{
    HEADER_BYTES, LOG_LEB, MASTER_LEB, Master, NodeKind, SUPERBLOCK_LEB, Superblock, check, check_expected,
};
use crate::scan::{is_erased, scan, to_usize};

/// Why a volume can't be read in this way.
const READ_ONLY: &str = "a volume with LEBs of another size is read-only";

/// A volume that is cut into LEBs again.
pub struct RescuedVolume {
    volume: Arc<dyn Volume>,
    geometry: VolumeGeometry,
    /// The node that replaces the superblock.
    superblock: Option<Vec<u8>>,
}

/// The parameters of a superblock that was rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebuiltSuperblock {
    /// LEBs of the log.
    pub log_lebs: u32,
    /// LEBs of the LPT.
    pub lpt_lebs: u32,
    /// LEBs of the orphan area.
    pub orphan_lebs: u32,
    /// LEBs of the file system.
    pub lebs: u32,
}

impl RescuedVolume {
    /// Reads the bytes of `volume` as LEBs of `leb_bytes`, and rebuilds the superblock if it is damaged and a master node
    /// can be read. `None` for a size that the volume can't have.
    #[must_use]
    pub fn new(volume: Arc<dyn Volume>, leb_bytes: u32) -> Option<(Self, Option<RebuiltSuperblock>)> {
        let given = volume.geometry();
        let bytes = u64::from(given.lebs) * u64::from(given.leb_bytes);
        if leb_bytes < SMALLEST_LEB || !leb_bytes.is_multiple_of(8) {
            return None;
        }
        let lebs = u32::try_from(bytes / u64::from(leb_bytes)).ok()?;
        let mut rescued = Self {
            geometry: VolumeGeometry {
                leb_bytes,
                lebs,
                ..given
            },
            volume,
            superblock: None,
        };
        if rescued.has_superblock() {
            return Some((rescued, None));
        }
        let rebuilt = rescued.rebuilt();
        rescued.superblock = rebuilt.as_ref().map(|superblock| superblock.encode(1));
        let told = rebuilt.map(|superblock| RebuiltSuperblock {
            log_lebs: superblock.log_lebs,
            lpt_lebs: superblock.lpt_lebs,
            orphan_lebs: superblock.orphan_lebs,
            lebs: superblock.lebs,
        });
        Some((rescued, told))
    }

    fn has_superblock(&self) -> bool {
        let mut raw = vec![0; Superblock::BYTES];
        let read = self.read(Leb(SUPERBLOCK_LEB), 0, &mut raw);
        read.is_ok() && check_expected(&raw, NodeKind::Superblock, 4096).is_ok()
    }

    /// The superblock by the last master node and the first node of each LEB.
    fn rebuilt(&self) -> Option<Superblock> {
        let (master, min_io_bytes) = [MASTER_LEB, MASTER_LEB + 1]
            .into_iter()
            .filter_map(|leb| self.last_master(leb))
            .max_by_key(|(master, _)| master.commit)?;
        let lebs = master.lebs.min(self.geometry.lebs);
        let areas: Vec<Area> = (LOG_LEB..lebs).map(|leb| self.area(leb)).collect();
        let is_lpt = |area: &Area| *area == Area::Lpt;
        let files = areas.iter().position(|area| *area == Area::Files)?;
        let log_used = areas[..files]
            .iter()
            .rposition(|area| *area == Area::Log)
            .map_or(0, |last| last + 1);
        let log_lebs = log_used + areas[log_used..files].iter().position(is_lpt)?;
        // Erased LEBs between the LPT and the files may belong to either side; those of the orphan area are scanned.
        let lpt_end = areas[..files].iter().rposition(is_lpt)? + 1;
        let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Some(Superblock {
            log_lebs: word(log_lebs),
            lpt_lebs: word(lpt_end - log_lebs),
            orphan_lebs: word(files - lpt_end),
            ..usual_superblock(self.geometry.leb_bytes, lebs, min_io_bytes)
        })
    }

    /// The last master node of a LEB, and the write unit, which each of them fills up.
    fn last_master(&self, leb: u32) -> Option<(Master, u32)> {
        let raw = self.whole(leb)?;
        let scanned = scan(&raw, 0);
        let mut masters = scanned
            .nodes
            .iter()
            .filter(|node| node.header.kind == NodeKind::Master);
        let first = masters.next()?;
        let second = masters.next();
        let last = masters.next_back().or(second).unwrap_or(first);
        let end = second.map_or(scanned.end, |second| second.offset);
        let step = u32::try_from(end - first.offset).ok();
        let min_io = step
            .filter(|step| step.is_power_of_two())
            .unwrap_or(self.geometry.min_io_bytes);
        Some((Master::decode(&raw[last.offset..]).ok()?, min_io))
    }

    fn whole(&self, leb: u32) -> Option<Vec<u8>> {
        let mut raw = vec![0; to_usize(self.geometry.leb_bytes)];
        match self.read(Leb(leb), 0, &mut raw) {
            Ok(()) | Err(VolumeError::Uncorrectable { .. }) => Some(raw),
            Err(_) => None,
        }
    }

    /// The area of a LEB by its first bytes.
    fn area(&self, leb: u32) -> Area {
        let Some(raw) = self.whole(leb) else {
            return Area::Unknown;
        };
        match check(&raw) {
            Ok(header) => match header.kind {
                NodeKind::CommitStart | NodeKind::Reference => Area::Log,
                NodeKind::Orphans => Area::Orphans,
                NodeKind::Superblock | NodeKind::Master => Area::Unknown,
                _ => Area::Files,
            },
            Err(_) if is_erased(&raw[..HEADER_BYTES]) => Area::Unknown,
            // The LPT is packed bit by bit.
            Err(_) => Area::Lpt,
        }
    }

    fn unusable(&self) -> VolumeError {
        VolumeError::Unusable {
            volume: self.volume.name(),
            why: READ_ONLY,
        }
    }
}

/// The smallest LEB of a UBIFS, bytes.
const SMALLEST_LEB: u32 = 15 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Area {
    Log,
    Lpt,
    Orphans,
    Files,
    /// Erased or unreadable.
    Unknown,
}

impl Volume for RescuedVolume {
    fn name(&self) -> Arc<str> {
        self.volume.name()
    }

    fn geometry(&self) -> VolumeGeometry {
        self.geometry
    }

    fn read(&self, leb: Leb, offset: u32, out: &mut [u8]) -> Result<(), VolumeError> {
        self.geometry.check_range(&self.name(), leb, offset, out.len())?;
        let below = u64::from(self.volume.geometry().leb_bytes);
        let mut at = u64::from(leb.0) * u64::from(self.geometry.leb_bytes) + u64::from(offset);
        let mut uncorrectable = Ok(());
        let mut rest = &mut *out;
        while !rest.is_empty() {
            let (number, start) = (at / below, at % below);
            let piece = usize::try_from(below - start).map_or(rest.len(), |left| left.min(rest.len()));
            let (part, further) = rest.split_at_mut(piece);
            let word = |number: u64| u32::try_from(number).expect("the range was checked");
            match self.volume.read(Leb(word(number)), word(start), part) {
                Err(error @ VolumeError::Uncorrectable { .. }) => uncorrectable = Err(error),
                other => other?,
            }
            at += u64::try_from(piece).expect("a LEB is smaller than 4 GiB");
            rest = further;
        }
        if let (SUPERBLOCK_LEB, Some(node)) = (leb.0, &self.superblock) {
            let node = node.get(to_usize(offset)..).unwrap_or_default();
            let bytes = node.len().min(out.len());
            out[..bytes].copy_from_slice(&node[..bytes]);
        }
        uncorrectable
    }

    fn write(&self, _: Leb, _: u32, _: &[u8]) -> Result<(), VolumeError> {
        Err(self.unusable())
    }

    fn leb_change(&self, _: Leb, _: &[u8]) -> Result<(), VolumeError> {
        Err(self.unusable())
    }

    fn map(&self, _: Leb) -> Result<(), VolumeError> {
        Err(self.unusable())
    }

    fn unmap(&self, _: Leb) -> Result<(), VolumeError> {
        Err(self.unusable())
    }

    fn is_mapped(&self, leb: Leb) -> Result<bool, VolumeError> {
        let mut raw = vec![0; to_usize(self.geometry.leb_bytes)];
        self.read(leb, 0, &mut raw)?;
        Ok(!is_erased(&raw))
    }

    fn flush(&self) -> Result<(), VolumeError> {
        Ok(())
    }

    fn sync(&self) -> Result<(), VolumeError> {
        Ok(())
    }

    fn freeze(&self, _: &str) {}

    fn frozen(&self) -> Option<Arc<str>> {
        Some(READ_ONLY.into())
    }

    fn torn_end(&self, leb: Leb, offset: u32) -> TornEnd {
        let below = u64::from(self.volume.geometry().leb_bytes);
        let at = u64::from(leb.0) * u64::from(self.geometry.leb_bytes) + u64::from(offset);
        match (u32::try_from(at / below), u32::try_from(at % below)) {
            (Ok(leb), Ok(offset)) => self.volume.torn_end(Leb(leb), offset),
            _ => TornEnd::Plausible,
        }
    }
}

/// The usual parameters, in place of a superblock that is lost.
pub(crate) fn usual_superblock(leb_bytes: u32, lebs: u32, min_io_bytes: u32) -> Superblock {
    Superblock {
        key_hash: 0,
        key_format: 0,
        flags: 0,
        min_io_bytes,
        leb_bytes,
        lebs,
        lebs_max: lebs,
        journal_bytes_max: 0,
        log_lebs: 0,
        lpt_lebs: 0,
        orphan_lebs: 0,
        journal_heads: 1,
        fanout: 8,
        saved_lebs: 256,
        version: 4,
        compression: 1,
        reserve_user: 0,
        reserve_group: 0,
        reserve_bytes: 0,
        time_granularity_ns: 1_000_000_000,
        uuid: [0; 16],
        read_version: 0,
        hmac: [0; 64],
        hmac_of_known: [0; 64],
        hash_algorithm: 0,
        master_hash: [0; 64],
    }
}
