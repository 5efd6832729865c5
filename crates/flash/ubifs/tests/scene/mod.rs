//! Images made by `mkfs.ubifs`, in memory, and a volume over them that records requests.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use media::Leb;
use ubi::{ReadPart, Volume, VolumeError, VolumeGeometry};

/// Makes an image of a tree. Returns `None`, and prints why, if `mkfs.ubifs` is missing.
pub fn image_of(tree: &Path, min_io: u32, leb: u32, more: &[&str]) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    let output = Command::new("mkfs.ubifs")
        .args(["-m", &min_io.to_string(), "-e", &leb.to_string(), "-c", "400"])
        .args(more)
        .arg("-r")
        .arg(tree)
        .arg("-o")
        .arg(&image)
        .output();
    let Ok(output) = output else {
        testkit::report_left_out("there is no mkfs.ubifs (apt install mtd-utils)");
        return None;
    };
    assert!(output.status.success(), "{output:?}");
    Some(fs::read(&image).expect("it was made"))
}

/// Incompressible bytes from a seed.
pub fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(bytes).collect()
}

/// Requests, each a list of locations: LEB, offset, bytes.
pub type Requests = Vec<Vec<(u32, u32, usize)>>;

/// An image in memory that records each request.
pub struct CountingVolume {
    image: Vec<u8>,
    geometry: VolumeGeometry,
    requests: Mutex<Requests>,
    /// Called before each read.
    pub before: Box<dyn Fn() + Send + Sync>,
}

impl CountingVolume {
    pub fn new(image: Vec<u8>, leb_bytes: u32, before: Box<dyn Fn() + Send + Sync>) -> Self {
        let lebs = u32::try_from(image.len()).expect("small").div_ceil(leb_bytes);
        let geometry = VolumeGeometry {
            leb_bytes,
            lebs,
            min_io_bytes: 2048,
            max_write_bytes: 2048,
        };
        Self {
            image,
            geometry,
            requests: Mutex::default(),
            before,
        }
    }

    /// Returns the requests since the last call.
    pub fn take(&self) -> Requests {
        std::mem::take(&mut self.requests.lock().expect("no panic under it"))
    }
}

impl Volume for CountingVolume {
    fn name(&self) -> Arc<str> {
        "counting".into()
    }

    fn geometry(&self) -> VolumeGeometry {
        self.geometry
    }

    fn read(&self, leb: Leb, offset: u32, out: &mut [u8]) -> Result<(), VolumeError> {
        self.read_many(&mut [ReadPart { leb, offset, out }])
    }

    fn read_many(&self, parts: &mut [ReadPart<'_>]) -> Result<(), VolumeError> {
        let places = parts
            .iter()
            .map(|part| (part.leb.0, part.offset, part.out.len()))
            .collect();
        self.requests.lock().expect("no panic under it").push(places);
        (self.before)();
        for part in parts {
            let start = usize::try_from(part.leb.0 * self.geometry.leb_bytes + part.offset).expect("small");
            let there = self.image.get(start..).unwrap_or_default();
            let bytes = there.len().min(part.out.len());
            part.out[..bytes].copy_from_slice(&there[..bytes]);
            part.out[bytes..].fill(0xFF);
        }
        Ok(())
    }

    fn write(&self, _: Leb, _: u32, _: &[u8]) -> Result<(), VolumeError> {
        unreachable!("a reader writes nothing")
    }

    fn leb_change(&self, _: Leb, _: &[u8]) -> Result<(), VolumeError> {
        unreachable!("a reader writes nothing")
    }

    fn map(&self, _: Leb) -> Result<(), VolumeError> {
        unreachable!("a reader writes nothing")
    }

    fn unmap(&self, _: Leb) -> Result<(), VolumeError> {
        unreachable!("a reader writes nothing")
    }

    fn is_mapped(&self, _: Leb) -> Result<bool, VolumeError> {
        Ok(true)
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
