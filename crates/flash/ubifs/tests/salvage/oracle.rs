//! The truth about a volume before it is damaged: its files, and the bytes that each of them depends on.
//!
//! It walks index and journal by itself; only the content of the files comes from the normal reader.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use ubifs::format::{
    DirectoryEntry, EntryKind, IndexNode, Inode, InodeNumber, Key, KeyKind, Master, NodeKind, ROOT_INODE,
    Truncation, check, crc,
};
use ubifs::{Effect, Finding, MasterKey, OpenOptions, Place, Ubifs};

use super::volume::{LEB_BYTES, MemoryVolume};

/// A file as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub inode: InodeNumber,
    /// All attributes, the content, and the extended attributes.
    pub line: String,
    /// Something about it was reported.
    pub is_told: bool,
}

/// Files by path.
pub type Files = BTreeMap<Vec<u8>, Seen>;

/// Reads everything.
pub fn files_of(ubifs: &Ubifs, is_told: &dyn Fn(InodeNumber) -> bool) -> Files {
    let mut files = Files::new();
    let mut pending = vec![(ROOT_INODE, Some(EntryKind::Directory), Vec::new(), false)];
    let mut folders = HashSet::new();
    while let Some((number, kind, path, told_above)) = pending.pop() {
        let mut lost: Vec<Finding> = Vec::new();
        let Some(inode) = ubifs.inode_lossy(number, kind, &mut lost) else {
            continue;
        };
        let is_folder = inode.kind() == Some(EntryKind::Directory);
        if is_folder && !folders.insert(number) {
            continue;
        }
        let line = line(ubifs, number, &inode, &mut lost);
        let entries = match is_folder {
            true => ubifs.read_directory_lossy(number, &mut lost),
            false => Vec::new(),
        };
        let told = told_above || !lost.is_empty() || is_told(number);
        for entry in entries {
            let mut below = path.clone();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend_from_slice(&entry.name);
            pending.push((entry.inode, entry.kind, below, told));
        }
        files.insert(
            path,
            Seen {
                inode: number,
                line,
                is_told: told,
            },
        );
    }
    files
}

fn line(ubifs: &Ubifs, number: InodeNumber, inode: &Inode, lost: &mut Vec<Finding>) -> String {
    let content = match inode.kind() {
        Some(EntryKind::File) if inode.size_bytes < 1 << 20 => {
            let mut content = vec![0; usize::try_from(inode.size_bytes).expect("small")];
            ubifs.read_lossy(inode, 0, &mut content, lost);
            crc(&content)
        }
        Some(EntryKind::Symlink) => crc(&ubifs.read_link(inode).unwrap_or_default()),
        _ => 0,
    };
    let xattrs: BTreeMap<Vec<u8>, u32> = ubifs
        .xattrs_lossy(number, lost)
        .into_iter()
        .map(|xattr| (xattr.name, crc(&xattr.value)))
        .collect();
    let is_folder = inode.kind() == Some(EntryKind::Directory);
    format!(
        "{:o} {}:{} {} links, {} bytes, {}.{} {}.{} {:08x} {xattrs:?}",
        inode.mode,
        inode.user,
        inode.group,
        inode.links,
        if is_folder { 0 } else { inode.size_bytes },
        inode.modified_seconds,
        inode.modified_nanoseconds,
        inode.changed_seconds,
        inode.changed_nanoseconds,
        content
    )
}

/// Nodes on the medium: index nodes by level, and the areas.
#[derive(Default)]
pub struct Layout {
    pub index: BTreeMap<u16, Vec<Range<usize>>>,
    pub areas: HashMap<&'static str, Vec<Range<usize>>>,
    pub all: Vec<Range<usize>>,
}

/// The truth; see the module.
pub struct Oracle {
    pub files: Files,
    pub layout: Layout,
    /// Bytes that a file depends on: inode, blocks, extended attributes, and what the journal says about them.
    own: HashMap<InodeNumber, Vec<Range<usize>>>,
    /// Bytes of the names of files and their removals: directory, name.
    names: HashMap<(InodeNumber, Vec<u8>), Vec<Range<usize>>>,
}

fn range_of(place: &Place) -> Range<usize> {
    let size = |number: u32| usize::try_from(number).expect("small");
    let start = size(place.leb) * size(LEB_BYTES) + size(place.offset);
    start..start + size(place.bytes)
}

impl Oracle {
    /// Opens a sound volume.
    pub fn of(raw: &[u8], keys: &[MasterKey]) -> Self {
        let options = OpenOptions {
            lists_nodes: true,
            ..OpenOptions::standard()
        };
        let volume = Arc::new(MemoryVolume::of(raw, Vec::new()));
        let ubifs = Ubifs::open(volume, options).expect("it is sound");
        let ubifs = ubifs.with_keys(keys.to_vec());
        let files = files_of(&ubifs, &|_| false);
        assert!(files.values().all(|file| !file.is_told), "it is sound");
        let mut leaves: Vec<(Key, Range<usize>)> = Vec::new();
        let mut layout = layout_of(raw);
        let master: &Master = ubifs.master();
        let mut pending = vec![Place {
            leb: master.root_leb,
            offset: master.root_offset,
            bytes: master.root_bytes,
        }];
        while let Some(place) = pending.pop() {
            let range = range_of(&place);
            let node = IndexNode::decode(&raw[range.clone()]).expect("it is sound");
            layout.index.entry(node.level).or_default().push(range);
            for branch in node.branches {
                let place = Place {
                    leb: branch.leb,
                    offset: branch.offset,
                    bytes: branch.bytes,
                };
                match node.level {
                    0 => leaves.push((branch.key, range_of(&place))),
                    _ => pending.push(place),
                }
            }
        }
        let removals = |effect: &Effect| !matches!(effect, Effect::Inode { .. } | Effect::Block { .. });
        for applied in &ubifs.replay_report().applied {
            let range = range_of(&applied.place);
            if !removals(&applied.effect) {
                leaves.retain(|(key, _)| *key != applied.key);
            }
            leaves.push((applied.key, range));
        }
        Self::with_leaves(raw, files, layout, &leaves)
    }

    fn with_leaves(raw: &[u8], files: Files, layout: Layout, leaves: &[(Key, Range<usize>)]) -> Self {
        let mut own: HashMap<InodeNumber, Vec<Range<usize>>> = HashMap::new();
        let mut names: HashMap<(InodeNumber, Vec<u8>), Vec<Range<usize>>> = HashMap::new();
        let mut values: Vec<(InodeNumber, InodeNumber)> = Vec::new();
        let mut old_names: Vec<(InodeNumber, (InodeNumber, Vec<u8>))> = Vec::new();
        for (key, range) in leaves {
            let host = key.inode_number();
            // The journal may replace a node of the index whose LEB is erased since.
            let Ok(kind) = check(&raw[range.start..]).map(|header| header.kind) else {
                continue;
            };
            match kind {
                NodeKind::Entry | NodeKind::XattrEntry => {
                    let entry = DirectoryEntry::decode(&raw[range.clone()], kind).expect("it is sound");
                    let target = InodeNumber(u32::try_from(entry.inode).expect("small"));
                    if key.kind() == Some(KeyKind::XattrEntry) {
                        own.entry(host).or_default().push(range.clone());
                        values.push((host, target));
                    } else {
                        let name = (host, entry.name);
                        old_names.push((target, name.clone()));
                        names.entry(name).or_default().push(range.clone());
                    }
                }
                NodeKind::Truncation => {
                    let cut = Truncation::decode(&raw[range.clone()]).expect("it is sound");
                    own.entry(InodeNumber(cut.inode)).or_default().push(range.clone());
                }
                _ => own.entry(host).or_default().push(range.clone()),
            }
        }
        for (host, value) in values {
            let of_value = own.get(&value).cloned().unwrap_or_default();
            own.entry(host).or_default().extend(of_value);
        }
        // A file that was renamed in the journal depends on the removal of its old name.
        for (target, name) in old_names {
            let of_name = names[&name].clone();
            own.entry(target).or_default().extend(of_name);
        }
        Self {
            files,
            layout,
            own,
            names,
        }
    }

    /// Whether all nodes of a file are intact, under its path.
    pub fn is_intact(&self, path: &[u8], damaged: &Damaged) -> bool {
        let seen = &self.files[path];
        let is_whole = |ranges: Option<&Vec<Range<usize>>>| {
            ranges.is_none_or(|ranges| ranges.iter().all(|range| !damaged.touches(range)))
        };
        if !is_whole(self.own.get(&seen.inode)) {
            return false;
        }
        let mut at = path.to_vec();
        while !at.is_empty() {
            let slash = at.iter().rposition(|byte| *byte == b'/');
            let name = at[slash.map_or(0, |slash| slash + 1)..].to_vec();
            at.truncate(slash.unwrap_or(0));
            let folder = self.files[&at].inode;
            let is_named = is_whole(self.names.get(&(folder, name)));
            if !is_named || !is_whole(self.own.get(&folder)) {
                return false;
            }
        }
        true
    }
}

fn layout_of(raw: &[u8]) -> Layout {
    let mut layout = Layout::default();
    let leb_bytes = usize::try_from(LEB_BYTES).expect("small");
    let mut at = 0;
    while at < raw.len() {
        let rest = &raw[at..(at / leb_bytes + 1) * leb_bytes];
        let Ok(header) = check(rest) else {
            at += 8;
            continue;
        };
        let range = at..at + usize::try_from(header.bytes).expect("small");
        let area = match header.kind {
            NodeKind::Superblock => "superblock",
            NodeKind::Master => "master",
            NodeKind::CommitStart | NodeKind::Reference => "log",
            NodeKind::Orphans => "orphans",
            NodeKind::Padding => "padding",
            _ => "main",
        };
        layout.areas.entry(area).or_default().push(range.clone());
        at = range.end.next_multiple_of(8);
        layout.all.push(range);
    }
    layout
}

/// Bytes that differ from the sound volume, or can't be read.
#[derive(Default)]
pub struct Damaged(pub Vec<Range<usize>>);

impl Damaged {
    pub fn touches(&self, range: &Range<usize>) -> bool {
        self.0
            .iter()
            .any(|damaged| damaged.start < range.end && range.start < damaged.end)
    }
}
