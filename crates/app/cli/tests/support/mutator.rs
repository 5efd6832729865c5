//! Mutates a volume in ways that checksums do not detect: other fields, names and keys, with repaired CRCs and hashes.

use testkit::prng::Prng;
use ubifs::format::{
    DirectoryEntry, Group, HEADER_BYTES, IndexNode, Inode, Key, NodeKind, check, name_hash_r5, seal,
};

/// Names that lead outside or do not exist.
const NAMES: [&[u8]; 6] = [b"..", b".", b"link", b"a/b", b"\x1b[2J", b"../victim/own"];

/// A volume in memory, with the offsets and types of its nodes.
#[derive(Clone)]
pub struct Volume {
    pub raw: Vec<u8>,
    leb_bytes: usize,
    nodes: Vec<(usize, NodeKind, usize)>,
}

impl Volume {
    pub fn new(raw: Vec<u8>, leb_bytes: usize) -> Self {
        let places = (0..raw.len() - HEADER_BYTES).step_by(8);
        let nodes = places.filter_map(|at| {
            let header = check(&raw[at..]).ok()?;
            Some((at, header.kind, usize::try_from(header.bytes).expect("small")))
        });
        let nodes = nodes.collect();
        Self {
            raw,
            leb_bytes,
            nodes,
        }
    }

    /// Changes one to four nodes.
    pub fn mutate(&mut self, random: &mut Prng) {
        for _ in 0..=random.below(4) {
            match random.below(8) {
                0..=3 => self.change_entry(random),
                4 | 5 => self.change_inode(random),
                _ => self.change_any(random),
            }
        }
    }

    fn pick(&self, kind: NodeKind, random: &mut Prng) -> (usize, usize) {
        let of_kind: Vec<_> = self.nodes.iter().filter(|node| node.1 == kind).collect();
        let (at, _, bytes) = **random.pick(&of_kind);
        (at, bytes)
    }

    /// Changes name, inode or type; half of the new names get a matching key, also in the index.
    fn change_entry(&mut self, random: &mut Prng) {
        let (at, bytes) = self.pick(NodeKind::Entry, random);
        let Ok(mut entry) = DirectoryEntry::decode(&self.raw[at..at + bytes], NodeKind::Entry) else {
            return;
        };
        match random.below(4) {
            0 => entry.inode = random.below(90),
            1 => entry.kind = u8::try_from(random.below(9)).expect("small"),
            _ => {
                let name = random.pick(&NAMES);
                let kept = name.len().min(entry.name.len());
                entry.name = [&name[..kept], &entry.name[kept..]].concat();
                if random.chance(30) {
                    entry.name.truncate(kept);
                }
            }
        }
        let mut node = entry.encode(NodeKind::Entry, 1, Group::None);
        node.resize(bytes, 0);
        if random.chance(50) {
            let key = Key::entry(entry.key.inode_number(), name_hash_r5(&entry.name));
            entry.key = key;
            node = entry.encode(NodeKind::Entry, 1, Group::None);
            node.resize(bytes, 0);
            self.change_branch(at, key);
        }
        // The length field counts, not the bytes after the name.
        entry.name_bytes = u16::try_from(entry.name.len()).expect("short");
        node[50..52].copy_from_slice(&entry.name_bytes.to_le_bytes());
        seal(&mut node, NodeKind::Entry, Group::None, 1);
        self.raw[at..at + bytes].copy_from_slice(&node);
    }

    /// Changes the key of the index branch that leads to a node, and keeps the order.
    fn change_branch(&mut self, target: usize, key: Key) {
        let place = (target / self.leb_bytes, target % self.leb_bytes);
        let indexes: Vec<_> = self
            .nodes
            .iter()
            .filter(|node| node.1 == NodeKind::Index)
            .copied()
            .collect();
        for (at, _, bytes) in indexes {
            let Ok(mut index) = IndexNode::decode(&self.raw[at..at + bytes]) else {
                continue;
            };
            let found = index.branches.iter_mut().find(|branch| {
                let at = (usize::try_from(branch.leb), usize::try_from(branch.offset));
                at == (Ok(place.0), Ok(place.1))
            });
            let Some(branch) = found else { continue };
            branch.key = key;
            index.branches.sort_by_key(|branch| branch.key);
            let node = index.encode(1);
            if node.len() == bytes {
                self.raw[at..at + bytes].copy_from_slice(&node);
            }
        }
    }

    /// Changes type, size or link count.
    fn change_inode(&mut self, random: &mut Prng) {
        let (at, bytes) = self.pick(NodeKind::Inode, random);
        let Ok(mut inode) = Inode::decode(&self.raw[at..at + bytes]) else {
            return;
        };
        let kinds = [
            0o010_000, 0o020_000, 0o040_000, 0o060_000, 0o100_000, 0o120_000, 0o140_000,
        ];
        match random.below(3) {
            0 => inode.mode = random.pick(&kinds) | 0o6755,
            1 => inode.size_bytes = *random.pick(&[0, 1 << 30, 1 << 41, u64::MAX, 5000]),
            _ => inode.links = *random.pick(&[0, 1, 2, u32::MAX]),
        }
        let node = inode.encode(1, Group::None);
        if node.len() == bytes {
            self.raw[at..at + bytes].copy_from_slice(&node);
        }
    }

    /// Changes a word of any node after its header.
    fn change_any(&mut self, random: &mut Prng) {
        let (at, kind, bytes) = *random.pick(&self.nodes);
        let word = HEADER_BYTES + 4 * random.below_usize((bytes.min(200) - HEADER_BYTES).div_ceil(4).max(1));
        let node = &mut self.raw[at..at + bytes];
        if let Some(word) = node.get_mut(word..word + 4) {
            let value = *random.pick(&[0, 1, 0x7FFF_FFFF, u32::MAX]);
            word.copy_from_slice(&value.to_le_bytes());
            seal(node, kind, Group::None, 1);
        }
    }
}
