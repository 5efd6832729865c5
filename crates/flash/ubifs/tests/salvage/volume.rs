//! A volume in memory, which a test can copy and damage.

use std::sync::{Arc, Mutex, MutexGuard};

use media::Leb;
use ubi::{Volume, VolumeError, VolumeGeometry};

/// LEBs in memory; unmapped ones are `None`.
#[derive(Debug)]
pub struct MemoryVolume {
    geometry: VolumeGeometry,
    lebs: Mutex<Vec<Option<Vec<u8>>>>,
    /// Parts that can't be read: LEB, offset, bytes.
    pub holes: Vec<(u32, u32, u32)>,
}

/// LEB size of all volumes here.
pub const LEB_BYTES: u32 = 15_872;
/// Write unit.
pub const PAGE_BYTES: u32 = 512;

impl MemoryVolume {
    pub fn new(lebs: u32) -> Self {
        Self {
            geometry: VolumeGeometry {
                leb_bytes: LEB_BYTES,
                lebs,
                min_io_bytes: PAGE_BYTES,
                max_write_bytes: PAGE_BYTES,
            },
            lebs: Mutex::new(vec![None; usize::try_from(lebs).expect("few")]),
            holes: Vec::new(),
        }
    }

    /// A volume with this content.
    pub fn of(raw: &[u8], holes: Vec<(u32, u32, u32)>) -> Self {
        let leb_bytes = usize::try_from(LEB_BYTES).expect("small");
        let volume = Self::new(u32::try_from(raw.len() / leb_bytes).expect("few"));
        for (place, leb) in volume.lock().iter_mut().zip(raw.chunks(leb_bytes)) {
            *place = Some(leb.to_vec());
        }
        Self { holes, ..volume }
    }

    /// The content of all LEBs.
    pub fn raw(&self) -> Vec<u8> {
        let empty = vec![0xFF; usize::try_from(LEB_BYTES).expect("small")];
        let lebs = self.lock();
        lebs.iter()
            .flat_map(|leb| leb.as_ref().unwrap_or(&empty).clone())
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Vec<u8>>>> {
        self.lebs.lock().expect("no panic")
    }

    fn put(&self, leb: Leb, content: Option<Vec<u8>>) {
        self.lock()[usize::try_from(leb.0).expect("few")] = content;
    }
}

impl Volume for MemoryVolume {
    fn name(&self) -> Arc<str> {
        "memory".into()
    }

    fn geometry(&self) -> VolumeGeometry {
        self.geometry
    }

    fn read(&self, leb: Leb, offset: u32, out: &mut [u8]) -> Result<(), VolumeError> {
        self.geometry.check_range(&self.name(), leb, offset, out.len())?;
        let end = offset + u32::try_from(out.len()).expect("small");
        let is_lost = |hole: &(u32, u32, u32)| hole.0 == leb.0 && hole.1 < end && offset < hole.1 + hole.2;
        if self.holes.iter().any(is_lost) {
            return Err(VolumeError::Unusable {
                volume: self.name(),
                why: "pages of a member are missing",
            });
        }
        match &self.lock()[usize::try_from(leb.0).expect("few")] {
            None => out.fill(0xFF),
            Some(content) => {
                let from = usize::try_from(offset).expect("small");
                out.copy_from_slice(&content[from..from + out.len()]);
            }
        }
        Ok(())
    }

    fn write(&self, leb: Leb, offset: u32, data: &[u8]) -> Result<(), VolumeError> {
        self.geometry.check_write(&self.name(), leb, offset, data.len())?;
        let mut lebs = self.lock();
        let empty = || vec![0xFF; usize::try_from(LEB_BYTES).expect("small")];
        let content = lebs[usize::try_from(leb.0).expect("few")].get_or_insert_with(empty);
        let from = usize::try_from(offset).expect("small");
        content[from..from + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn leb_change(&self, leb: Leb, data: &[u8]) -> Result<(), VolumeError> {
        let mut content = data.to_vec();
        content.resize(usize::try_from(LEB_BYTES).expect("small"), 0xFF);
        self.put(leb, Some(content));
        Ok(())
    }

    fn map(&self, leb: Leb) -> Result<(), VolumeError> {
        self.put(leb, Some(vec![0xFF; usize::try_from(LEB_BYTES).expect("small")]));
        Ok(())
    }

    fn unmap(&self, leb: Leb) -> Result<(), VolumeError> {
        self.put(leb, None);
        Ok(())
    }

    fn is_mapped(&self, leb: Leb) -> Result<bool, VolumeError> {
        Ok(self.lock()[usize::try_from(leb.0).expect("few")].is_some())
    }

    fn flush(&self) -> Result<(), VolumeError> {
        Ok(())
    }

    fn sync(&self) -> Result<(), VolumeError> {
        Ok(())
    }

    fn freeze(&self, _: &str) {}

    fn frozen(&self) -> Option<Arc<str>> {
        None
    }
}
