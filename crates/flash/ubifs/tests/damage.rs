//! Damaged images that decoders must survive: changed fields with correct CRCs, index nodes that refer to each other,
//! huge sizes, names that leave their directory, swapped LEBs. Reading them must not panic or loop forever, and take
//! at most [`MEMORY_FACTOR`] times the image's size in memory.
//!
//! `TIDEGATE_DAMAGE=N`: N images instead of 150 (20,000 with `TIDEGATE_FULL`), starting at `TIDEGATE_DAMAGE_SEED`.

mod support {
    pub mod image;
    pub mod tool;
}

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use peak_alloc::PeakAlloc;
use support::image::Image;
use support::tool::{content, has_mkfs};
use ubifs::check::check;
use ubifs::format::{
    Data, DirectoryEntry, EntryKind, Group, IndexBranch, IndexNode, Inode, InodeNumber, Key, LogReference,
    MASTER_DIRTY, Master, NodeKind, ROOT_INODE, Superblock, Truncation, name_hash_r5, seal,
};
use ubifs::{Finding, ImageVolume, OpenOptions, Ubifs};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Memory limit for reading or checking, as a multiple of the image's size; in addition to [`MEMORY_BYTES`].
const MEMORY_FACTOR: usize = 4;
/// Fixed part of the memory limit.
const MEMORY_BYTES: usize = 1 << 20;
/// Read size.
const PIECE_BYTES: usize = 64 << 10;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn a_damaged_image_ends_in_findings_and_never_in_a_panic_a_loop_or_boundless_memory() {
    if !has_mkfs() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let good = make(folder.path());
    let nodes = good.nodes();
    let is_full = testkit::is_full();
    let images = setting("TIDEGATE_DAMAGE").unwrap_or(if is_full { 20_000 } else { 150 });
    let first = setting("TIDEGATE_DAMAGE_SEED").unwrap_or(0);
    let (sound, _) = read_all(&good.path).expect("it is sound");
    assert_eq!(
        sound.len(),
        0,
        "the image that all are made of has losses: {sound:?}"
    );
    let (mut told, mut refused, mut peak_max) = (0_u64, 0_u64, 0);
    for seed in first..first + images {
        let mut image = good.copy();
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..random.usize(1..4) {
            mutate(&mut image, &nodes, &mut random);
        }
        image.write();
        let replay = format!("replay with TIDEGATE_DAMAGE_SEED={seed} TIDEGATE_DAMAGE=1");
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        match read_all(&image.path) {
            Some((lost, findings)) => told += u64::from(lost.len() + findings > 0),
            None => refused += 1,
        }
        let peak = MEMORY.peak_usage().saturating_sub(before);
        peak_max = peak_max.max(peak);
        let bound = MEMORY_FACTOR * image.raw.len() + MEMORY_BYTES;
        assert!(
            peak <= bound,
            "{peak} bytes for an image of {}; {replay}",
            image.raw.len()
        );
    }
    print_totals(images, told, refused, peak_max, good.raw.len());
    assert!(
        told * 3 > images,
        "only {told} of {images} images were damaged, {refused} refused"
    );
}

/// Prints the results of a long run.
#[expect(clippy::print_stderr, reason = "the figures of a long run are what it is for")]
fn print_totals(images: u64, told: u64, refused: u64, peak: usize, bytes: usize) {
    eprintln!(
        "{images} images of {bytes} bytes and more: {told} with findings, {refused} refused; {peak} bytes of memory at most"
    );
}

/// Reads everything, as `extract` does, and runs the checker. Returns the losses and the number of findings of the
/// checker.
fn read_all(path: &Path) -> Option<(Vec<Finding>, usize)> {
    let volume = ImageVolume::open(path).expect("it can be read")?;
    let findings = check(&volume).findings.len();
    let ubifs = Ubifs::open(Arc::new(volume), OpenOptions::standard()).ok()?;
    let mut losses = ubifs.findings().to_vec();
    let mut pending = vec![(ROOT_INODE, Some(EntryKind::Directory))];
    let mut seen = HashSet::new();
    let mut piece = vec![0; PIECE_BYTES];
    while let Some((number, kind)) = pending.pop() {
        if !seen.insert(number) {
            continue;
        }
        let mut lost = Vec::new();
        ubifs.xattrs_lossy(number, &mut lost);
        match ubifs.inode_lossy(number, kind, &mut lost) {
            Some(inode) if inode.kind() == Some(EntryKind::Directory) => {
                let entries = ubifs.read_directory_lossy(number, &mut lost);
                pending.extend(entries.iter().map(|entry| (entry.inode, entry.kind)));
            }
            Some(inode) => {
                let mut next = 0;
                for block in ubifs.blocks_lossy(number, &mut lost) {
                    let at = u64::from(block) * 4096;
                    if at >= next {
                        ubifs.read_lossy(&inode, at, &mut piece, &mut lost);
                        next = at + u64::try_from(PIECE_BYTES).expect("small");
                    }
                }
                ubifs.read_lossy(&inode, inode.size_bytes.saturating_sub(9), &mut piece, &mut lost);
            }
            None => {}
        }
        losses.extend(lost);
    }
    Some((losses, findings))
}

/// An image of `mkfs.ubifs` followed by a journal of two heads.
fn make(folder: &Path) -> Image {
    let tree = folder.join("tree");
    fs::create_dir_all(tree.join("folder/below")).expect("made");
    for number in 0..60_usize {
        fs::write(
            tree.join(format!("folder/file-{number}")),
            content(number * 150, 6),
        )
        .expect("made");
    }
    fs::write(tree.join("large"), content(90_000, 7)).expect("made");
    std::os::unix::fs::symlink("large", tree.join("link")).expect("made");
    let mut image = Image::make(folder, &tree, 512, 15_872, &["-x", "zlib", "-f", "4"]);
    add_journal(&mut image);
    image.write();
    image
}

fn add_journal(image: &mut Image) {
    let leb_bytes = usize::try_from(image.leb).expect("small");
    let nodes = image.nodes();
    let mut superblock = Superblock::decode(&image.raw).expect("it is one");
    let bud = superblock.lebs;
    superblock.lebs += 2;
    image
        .raw
        .resize(leb_bytes * usize::try_from(superblock.lebs).expect("small"), 0xFF);
    image.raw[..Superblock::BYTES].copy_from_slice(&superblock.encode(1));
    let mut log_leb = 0;
    for (at, ..) in nodes.iter().filter(|node| node.1 == NodeKind::Master) {
        let mut master = Master::decode(&image.raw[*at..]).expect("it is one");
        master.flags |= MASTER_DIRTY;
        log_leb = usize::try_from(master.log_leb).expect("small");
        image.raw[*at..at + Master::BYTES].copy_from_slice(&master.encode(2));
    }
    let log = log_leb * leb_bytes..(log_leb + 1) * leb_bytes;
    let last = nodes
        .iter()
        .filter(|node| log.contains(&node.0))
        .map(|node| node.0 + node.2)
        .max();
    let mut at = last.expect("a commit starts there").next_multiple_of(512);
    for head in [1, 2] {
        let reference = LogReference {
            leb: bud + head - 1,
            offset: 0,
            head,
        };
        image.raw[at..at + 512].fill(ubifs::format::PADDING_BYTE);
        image.raw[at..at + LogReference::BYTES].copy_from_slice(&reference.encode(900_000 + u64::from(head)));
        at += 512;
    }
    let root = image.inode_with(|inode| inode.key == Key::inode(ROOT_INODE));
    let large = image.inode_with(|inode| inode.size_bytes == 90_000);
    let gone_at = image.place_of(|raw| {
        let entry = DirectoryEntry::decode(raw, NodeKind::Entry);
        entry.is_ok_and(|entry| entry.name == b"file-33")
    });
    let gone_name = DirectoryEntry::decode(&image.raw[gone_at..], NodeKind::Entry).expect("it is one");
    let gone = InodeNumber(u32::try_from(gone_name.inode).expect("small"));
    let no_name = DirectoryEntry {
        inode: 0,
        ..gone_name
    };
    let some = image.place_of(|raw| {
        ubifs::format::check(raw).is_ok_and(|header| header.kind == NodeKind::Inode)
            && Inode::decode(raw).is_ok_and(|inode| inode.key == Key::inode(large))
    });
    let mut inode = Inode::decode(&image.raw[some..]).expect("it is one");
    let new = InodeNumber(60_000);
    inode.key = Key::inode(new);
    inode.size_bytes = 5000;
    inode.links = 1;
    let mut removed = inode.clone();
    removed.key = Key::inode(gone);
    removed.links = 0;
    let entry = |name: &[u8], inode: u64| DirectoryEntry {
        key: Key::entry(root, name_hash_r5(name)),
        inode,
        kind: 0,
        name_bytes: u16::try_from(name.len()).expect("short"),
        cookie: 0,
        name: name.to_vec(),
    };
    let cut = Truncation {
        inode: large.0,
        old_bytes: 90_000,
        new_bytes: 40_000,
    };
    let base = [
        entry(b"new", 60_000).encode(NodeKind::Entry, 900_010, Group::Inside),
        inode.encode(900_011, Group::Last),
        no_name.encode(NodeKind::Entry, 900_012, Group::Inside),
        removed.encode(900_013, Group::Last),
        cut.encode(900_014, Group::None),
    ];
    let block = |number: u32, sequence: u64| {
        let data = Data {
            key: Key::data(new, number),
            size_bytes: 904,
            compression: 0,
            compressed_bytes: 0,
            stored: content(904, sequence),
        };
        data.encode(sequence, Group::None)
    };
    let data = [block(0, 900_015), block(1, 900_016)];
    for (leb, nodes) in (bud..).zip([base.as_slice(), data.as_slice()]) {
        let mut at = usize::try_from(leb).expect("small") * leb_bytes;
        for node in nodes {
            image.raw[at..at + node.len()].copy_from_slice(node);
            at += node.len().next_multiple_of(8);
        }
    }
}

type Node = (usize, NodeKind, usize);
/// Changes the bytes of a node, given all nodes and the LEB size for valid locations.
type Change = dyn Fn(&mut [u8], &[Node], u64, &mut fastrand::Rng);

fn mutate(image: &mut Image, nodes: &[Node], random: &mut fastrand::Rng) {
    let leb = usize::try_from(image.leb).expect("small");
    if image.raw.len() < 2 * leb {
        return;
    }
    match random.u8(..13) {
        0 => {
            let lebs = image.raw.len() / leb;
            let (from, to) = (random.usize(..lebs), random.usize(1..lebs));
            image.raw.copy_within(from * leb..(from + 1) * leb, to * leb);
        }
        1 => {
            let at = random.usize(1..image.raw.len() / leb) * leb + random.usize(..leb / 512) * 512;
            let end = image.raw.len().min(at + 512 * random.usize(1..9));
            image.raw[at..end].fill(if random.bool() { 0xFF } else { 0 });
        }
        2 => image
            .raw
            .truncate(random.usize(Superblock::BYTES..image.raw.len())),
        3..=6 => change(image, nodes, NodeKind::Index, random, &index),
        7 => change(image, nodes, NodeKind::Inode, random, &inode),
        8 => change(image, nodes, NodeKind::Entry, random, &name),
        9 => change(image, nodes, NodeKind::Data, random, &block),
        10 => multiply(image, nodes, random),
        11 => {
            let kinds = [
                NodeKind::Master,
                NodeKind::Reference,
                NodeKind::Superblock,
                NodeKind::CommitStart,
            ];
            change(image, nodes, kinds[random.usize(..4)], random, &words);
        }
        _ => {
            let kind = nodes[random.usize(..nodes.len())].1;
            change(image, nodes, kind, random, &words);
        }
    }
}

/// Builds an index in which all branches of a node refer to the same child: each level multiplies the visits of a
/// search.
fn multiply(image: &mut Image, nodes: &[Node], random: &mut fastrand::Rng) {
    let Ok(mut superblock) = Superblock::decode(&image.raw) else {
        return;
    };
    let leb = usize::try_from(image.leb).expect("small");
    let number = u32::try_from(image.raw.len() / leb).expect("small");
    superblock.lebs = number + 1;
    superblock.fanout = u32::MAX;
    image.raw[..Superblock::BYTES].copy_from_slice(&superblock.encode(1));
    image.raw.resize((image.raw.len() / leb + 1) * leb, 0xFF);
    let Some(target) = random.choice(nodes) else {
        return;
    };
    let place = u64::try_from(target.0).expect("small");
    let mut branch = IndexBranch {
        leb: u32::try_from(place / image.leb).expect("small"),
        offset: u32::try_from(place % image.leb).expect("small"),
        bytes: u32::try_from(target.2).expect("small"),
        key: Key::inode(ROOT_INODE),
        hash: Vec::new(),
    };
    let mut at = 0;
    for level in 0..5 {
        let node = IndexNode {
            level,
            branches: vec![branch.clone(); random.usize(1..150)],
        };
        let raw = node.encode(1);
        let from = usize::try_from(number).expect("small") * leb + at;
        image.raw[from..from + raw.len()].copy_from_slice(&raw);
        branch.leb = number;
        branch.offset = u32::try_from(at).expect("small");
        branch.bytes = u32::try_from(raw.len()).expect("small");
        at += raw.len().next_multiple_of(8);
    }
    for (at, ..) in nodes.iter().filter(|node| node.1 == NodeKind::Master) {
        let Some(Ok(mut master)) = image.raw.get(*at..).map(Master::decode) else {
            continue;
        };
        (master.root_leb, master.root_offset, master.root_bytes) = (branch.leb, branch.offset, branch.bytes);
        image.raw[*at..at + Master::BYTES].copy_from_slice(&master.encode(2));
    }
}

/// Changes a node of a kind; mostly fixes its CRC.
fn change(image: &mut Image, nodes: &[Node], kind: NodeKind, random: &mut fastrand::Rng, change: &Change) {
    let of_kind: Vec<_> = nodes.iter().filter(|node| node.1 == kind).collect();
    let Some((at, _, bytes)) = random.choice(of_kind).copied() else {
        return;
    };
    let Some(raw) = image.raw.get(at..at + bytes) else {
        return;
    };
    let sequence = u64::from_le_bytes(raw[8..16].try_into().expect("8 bytes"));
    let mut node = raw.to_vec();
    change(&mut node, nodes, image.leb, random);
    if random.u8(..8) != 0 {
        seal(&mut node, kind, Group::None, sequence);
    }
    image.raw[at..at + node.len()].copy_from_slice(&node);
}

/// Points branches to arbitrary nodes, including the node itself and its ancestors; changes keys and levels.
fn index(raw: &mut [u8], nodes: &[Node], leb: u64, random: &mut fastrand::Rng) {
    let Ok(mut node) = IndexNode::decode(raw) else {
        return;
    };
    for _ in 0..random.usize(1..4) {
        let number = random.usize(..node.branches.len());
        let index: Vec<_> = nodes.iter().filter(|node| node.1 == NodeKind::Index).collect();
        let target = match random.bool() {
            true => *index[random.usize(..index.len())],
            false => nodes[random.usize(..nodes.len())],
        };
        let place = u64::try_from(target.0).expect("small");
        let branch = &mut node.branches[number];
        match random.u8(..7) {
            0..=2 => {
                branch.leb = u32::try_from(place / leb).expect("small");
                branch.offset = u32::try_from(place % leb).expect("small");
                branch.bytes = u32::try_from(target.2).expect("small");
            }
            3 => branch.bytes = random.u32(..),
            4 => branch.offset = random.u32(..),
            5 => branch.key = Key::data(InodeNumber(random.u32(..100)), random.u32(..)),
            _ => node.level = random.u16(..5),
        }
    }
    if random.bool() {
        node.branches.sort_by_key(|branch| branch.key);
    }
    // All branches to one location: the visits of a search would multiply with each level.
    if random.u8(..4) == 0 {
        let first = node.branches[0].clone();
        node.branches.fill(first);
    }
    raw.copy_from_slice(&node.encode(1));
}

fn inode(raw: &mut [u8], _: &[Node], _: u64, random: &mut fastrand::Rng) {
    let sizes = [u64::MAX, 1 << 63, 1 << 41, (1 << 41) + 1, 0, 4096, random.u64(..)];
    match random.u8(..6) {
        0..=1 => raw[48..56].copy_from_slice(&sizes[random.usize(..sizes.len())].to_le_bytes()),
        2 => raw[92..96].copy_from_slice(&random.u32(..).to_le_bytes()),
        3 => raw[104..108].copy_from_slice(&random.u32(..0x1_0000).to_le_bytes()),
        4 => raw[108..112].copy_from_slice(&random.u32(..0x80).to_le_bytes()),
        _ => raw[112 + random.usize(..20)] = random.u8(..),
    }
}

fn name(raw: &mut [u8], nodes: &[Node], _: u64, random: &mut fastrand::Rng) {
    let name: &[u8] = [
        b"..".as_slice(),
        b".",
        b"/etc/passwd",
        b"a\0b",
        b"../../x",
        b"\xFF\xFE",
    ][random.usize(..6)];
    match random.u8(..4) {
        0 => raw[40..48].copy_from_slice(&random.u64(..200).to_le_bytes()),
        1 => raw[40..48].copy_from_slice(&1_u64.to_le_bytes()),
        2 => {
            let bytes = name.len().min(raw.len() - 57);
            raw[50..52].copy_from_slice(&u16::try_from(bytes).expect("short").to_le_bytes());
            raw[56..56 + bytes].copy_from_slice(&name[..bytes]);
        }
        _ => words(raw, nodes, 0, random),
    }
}

/// Other sizes and compressors, and streams that expand to far more than a block.
fn block(raw: &mut [u8], nodes: &[Node], _: u64, random: &mut fastrand::Rng) {
    let bytes = raw.len();
    match random.u8(..5) {
        0 => raw[40..44].copy_from_slice(&[0, 1, 4096, 4097, u32::MAX][random.usize(..5)].to_le_bytes()),
        1 => raw[44] = random.u8(..6),
        2 => raw[46..48].copy_from_slice(&random.u16(..).to_le_bytes()),
        3 => {
            // Deflate: one literal, then endless copies of it.
            raw[44..46].copy_from_slice(&2_u16.to_le_bytes());
            raw[48..bytes].fill(0);
            raw[48..bytes.min(53)].copy_from_slice(&[0xEC, 0xC0, 0x81, 0x00, 0x00][..bytes.min(53) - 48]);
        }
        _ => words(raw, nodes, 0, random),
    }
}

fn words(raw: &mut [u8], _: &[Node], _: u64, random: &mut fastrand::Rng) {
    for _ in 0..random.usize(1..4) {
        let at = random.usize(24..raw.len().min(164) - 3) & !3;
        let old = u32::from_le_bytes(raw[at..at + 4].try_into().expect("4 bytes"));
        let new = match random.u8(..5) {
            0 => u32::MAX,
            1 => 0,
            2 => old ^ 1 << random.u8(..32),
            3 => old.wrapping_add(random.u32(..9)),
            _ => random.u32(..),
        };
        raw[at..at + 4].copy_from_slice(&new.to_le_bytes());
    }
}
