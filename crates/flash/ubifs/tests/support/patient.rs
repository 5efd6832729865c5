//! Damages an image, and runs the stock fsck.ubifs on it.

use std::fs;
use std::path::PathBuf;

use testkit::lab::{Fsck, FsckReport};
use ubifs::format::{Group, Inode, InodeNumber, Key, Master, NodeKind, check, seal};

use super::image::Image;

/// An image to be damaged.
pub struct Patient {
    pub image: Image,
    /// Offsets of the changes.
    pub changed: Vec<u64>,
}

impl Patient {
    /// Copies an image to another file.
    pub fn of(image: &Image) -> Self {
        Self {
            image: image.copy(),
            changed: Vec::new(),
        }
    }

    /// Writes the image to its file and returns the path.
    pub fn write(&self) -> &PathBuf {
        self.image.write();
        &self.image.path
    }

    fn some(&self, kind: NodeKind) -> (usize, usize) {
        let nodes = self.image.nodes();
        let of_kind: Vec<_> = nodes.iter().filter(|node| node.1 == kind).collect();
        let (at, _, bytes) = of_kind[of_kind.len() / 2];
        (*at, *bytes)
    }

    /// Flips a bit in the middle node of a kind.
    pub fn flip(&mut self, kind: NodeKind, byte: usize) {
        let (at, _) = self.some(kind);
        self.image.raw[at + byte] ^= 1;
        self.changed.push(u64::try_from(at).expect("small"));
    }

    /// Changes the middle node of a kind and fixes its CRC.
    pub fn change(&mut self, kind: NodeKind, change: impl Fn(&mut [u8])) {
        let (at, bytes) = self.some(kind);
        self.change_at(at, bytes, &change);
    }

    /// Like [`Self::change`], for all nodes of a kind.
    pub fn change_all(&mut self, kind: NodeKind, change: impl Fn(&mut [u8])) {
        for (at, _, bytes) in self.image.nodes().into_iter().filter(|node| node.1 == kind) {
            self.change_at(at, bytes, &change);
        }
    }

    /// Like [`Self::change`], for an inode.
    pub fn change_inode(&mut self, number: InodeNumber, change: impl Fn(&mut [u8])) {
        let at = self.image.place_of(|raw| {
            let kind = check(raw).map(|header| header.kind);
            kind == Ok(NodeKind::Inode)
                && Inode::decode(raw).is_ok_and(|inode| inode.key == Key::inode(number))
        });
        let bytes = check(&self.image.raw[at..]).expect("it is a node").bytes;
        self.change_at(at, usize::try_from(bytes).expect("small"), &change);
    }

    fn change_at(&mut self, at: usize, bytes: usize, change: &dyn Fn(&mut [u8])) {
        let header = check(&self.image.raw[at..]).expect("it is a node");
        let node = &mut self.image.raw[at..at + bytes];
        change(node);
        seal(node, header.kind, Group::None, header.sequence);
        self.changed.push(u64::try_from(at).expect("small"));
    }

    /// Flips a bit in the root of the LPT.
    pub fn flip_lpt(&mut self) {
        let (at, _) = self.some(NodeKind::Master);
        let master = Master::decode(&self.image.raw[at..]).expect("it is a master node");
        let at = u64::from(master.lpt_leb) * self.image.leb + u64::from(master.lpt_offset);
        self.image.raw[usize::try_from(at).expect("small") + 3] ^= 1;
        self.changed.push(at);
    }
}

/// Runs the stock fsck.ubifs if it is installed, on a volume large enough for the journal, which `mkfs.ubifs` leaves
/// to the first mount.
pub fn judged(image: &Image, min_io: u32) -> Option<FsckReport> {
    let fsck = Fsck::available().ok()?;
    let path = image.path.with_extension("volume");
    let lebs = image
        .raw
        .len()
        .div_ceil(usize::try_from(image.leb).expect("small"));
    let room = u64::try_from(lebs).expect("small") + (16 << 20) / image.leb + 20;
    let mut raw = image.raw.clone();
    raw.resize(usize::try_from(room * image.leb).expect("small"), 0xFF);
    fs::write(&path, raw).expect("there is room");
    let leb = u32::try_from(image.leb).expect("a LEB is small");
    let report = fsck.check(&path, leb, min_io).expect("it runs");
    fs::remove_file(&path).expect("it was made");
    Some(report)
}
