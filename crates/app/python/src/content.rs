//! The content of a volume at any offset, as [`image::Volume::stream`] gives it from the beginning on.

use std::io::{self, Read};

use image::{Finding, Volume};
use media::Leb;
use ubi::Volume as _;
use ubi::format::VolumeKind;

use crate::failure::{Failure, SALVAGE};

/// Missing LEBs of a static volume that are counted one by one.
const MISSING_MAX: u64 = 1024;

/// A readable volume.
#[derive(Debug)]
pub struct Content {
    volume: image::DumpVolume,
    bytes: u64,
    findings: Vec<Finding>,
}

impl Content {
    /// Opens a volume. A static one is read once to check the CRC of each LEB.
    #[must_use]
    pub fn open(volume: &Volume) -> Self {
        let mut stream = volume.stream();
        let bytes = stream.length_bytes();
        let mut findings = Vec::new();
        if volume.kind == VolumeKind::Static {
            // A forged header may claim any number of LEBs: only those that exist have data.
            let lebs = u64::try_from(volume.mapped().count()).unwrap_or(u64::MAX);
            let limit = lebs
                .saturating_add(MISSING_MAX)
                .saturating_mul(volume.leb_bytes.into());
            // Reading a dump does not fail.
            let _ = io::copy(&mut stream.by_ref().take(limit), &mut io::sink());
            findings = stream.findings();
        }
        Self {
            volume: volume.open(),
            bytes,
            findings,
        }
    }

    /// Length, bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Losses in a static volume.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Fills `out`, which ends before the end of the content, from `offset` on. LEBs that are missing are 0xFF.
    ///
    /// # Errors
    /// If the volume refuses the range.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Failure> {
        let geometry = self.volume.geometry();
        let leb_bytes = u64::from(geometry.leb_bytes.max(1));
        let (mut at, mut rest) = (offset, out);
        while !rest.is_empty() {
            let inside = at % leb_bytes;
            let left = usize::try_from(leb_bytes - inside).unwrap_or(usize::MAX);
            let (part, behind) = rest.split_at_mut(left.min(rest.len()));
            let leb = u32::try_from(at / leb_bytes).unwrap_or(u32::MAX);
            if leb < geometry.lebs {
                let start = u32::try_from(inside).unwrap_or(u32::MAX);
                let read = self.volume.read(Leb(leb), start, part);
                read.map_err(|error| Failure::damage(&self.volume.name(), &error, SALVAGE))?;
            } else {
                part.fill(0xFF);
            }
            at = at.saturating_add(u64::try_from(part.len()).unwrap_or(u64::MAX));
            rest = behind;
        }
        Ok(())
    }
}
