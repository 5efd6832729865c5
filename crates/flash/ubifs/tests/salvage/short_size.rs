//! The size of a file is too small, in an inode that is right otherwise: its content is cut off, and that is told.

use std::sync::Arc;

use ubifs::format::{Inode, InodeNumber, NodeKind, ROOT_INODE, check, seal};
use ubifs::{Damage, NewFile, OpenOptions, Ubifs};

use super::restored_time::{at, writer};
use super::volume::MemoryVolume;

const SIZE: u64 = 7777;
/// Offset of the size in an inode node.
const SIZE_AT: usize = 48;

/// A file system with a file of 7777 bytes whose inode says `size`.
fn volume(size: u64) -> (Arc<MemoryVolume>, InodeNumber) {
    let volume = Arc::new(MemoryVolume::new(60));
    let mut writer = writer(&volume);
    let new = NewFile {
        mode: 0o100_644,
        user: 0,
        group: 0,
        data: Vec::new(),
    };
    let inode = writer.create(ROOT_INODE, b"f", &new, at(10)).expect("it fits");
    writer.write(inode, 0, &[7; 7777], at(10)).expect("it fits");
    writer.close().expect("it unmounts");
    let mut raw = volume.raw();
    for place in (0..raw.len()).step_by(8) {
        let end = (place + 4096).min(raw.len());
        let Ok(header) = check(&raw[place..end]) else {
            continue;
        };
        let node = &mut raw[place..place + usize::try_from(header.bytes).expect("small")];
        if header.kind == NodeKind::Inode && Inode::decode(node).is_ok_and(|inode| inode.size_bytes == SIZE) {
            node[SIZE_AT..SIZE_AT + 8].copy_from_slice(&size.to_le_bytes());
            seal(node, header.kind, header.group, header.sequence);
        }
    }
    (Arc::new(MemoryVolume::of(&raw, Vec::new())), inode)
}

#[test]
fn blocks_behind_the_end_of_a_file_are_told() {
    for (size, blocks, losses) in [(0, 0, 1), (4096, 1, 1), (5000, 2, 1), (SIZE, 2, 0), (9000, 2, 0)] {
        let (volume, number) = volume(size);
        let ubifs = Ubifs::open(volume, OpenOptions::standard()).expect("it opens");
        let file = ubifs.inode(number).expect("it is there");
        assert_eq!(file.size_bytes, size);
        let mut lost = Vec::new();
        assert_eq!(ubifs.file_blocks_lossy(&file, &mut lost).len(), blocks, "{size}");
        let mut content = vec![0; 10_000];
        let read = ubifs.read_lossy(&file, 0, &mut content, &mut lost);
        assert_eq!(u64::try_from(read).ok(), Some(size));
        assert!(content[..read.min(7777)].iter().all(|byte| *byte == 7), "{size}");
        let is_told =
            |damage: &Damage| matches!(damage, Damage::BeyondSize { size_bytes } if *size_bytes == size);
        assert_eq!(lost.len(), losses, "{size}: {lost:?}");
        assert!(lost.iter().all(|finding| is_told(&finding.damage)), "{lost:?}");
        // A reader of the file itself gets what its size says.
        ubifs.read(&file, 0, &mut content).expect("its blocks are right");
    }
}
