//! A file is overwritten without another time: its mtime is set back, or both writes fall into one tick of the clock. Then
//! it is removed, and the newer content is lost. Its older content is no proven last state.

use std::collections::BTreeMap;
use std::sync::Arc;

use ubi::Volume;
use ubifs::format::{Compression, Inode, NodeKind, ROOT_INODE, check};
use ubifs::mkfs::{Attributes, LebCount, MkfsOptions, Time, Tree, VolumeSink, make};
use ubifs::{Compressor, NewFile, OpenOptions, Writer};

use super::salvage;
use super::volume::{LEB_BYTES, MemoryVolume, PAGE_BYTES};

pub fn at(seconds: i64) -> Time {
    Time {
        seconds,
        nanoseconds: 5,
    }
}

pub fn writer(volume: &Arc<MemoryVolume>) -> Writer {
    let options = MkfsOptions {
        lebs: LebCount::Exactly(60),
        compressor: Compressor::Only(Compression::None),
        ..MkfsOptions::new(PAGE_BYTES, LEB_BYTES, 60)
    };
    let tree = Tree::empty(Attributes {
        permissions: 0o755,
        user: 0,
        group: 0,
        accessed: at(1),
        modified: at(1),
        changed: at(1),
        xattrs: BTreeMap::new(),
    });
    let mut sink = VolumeSink::new(&**volume).expect("it takes writes");
    make(&tree, &options, &mut sink, &mut || {}).expect("it fits");
    sink.finish().expect("it takes writes");
    let shared: Arc<dyn Volume> = Arc::<MemoryVolume>::clone(volume);
    Writer::open(shared, OpenOptions::standard()).expect("it opens")
}

/// Writes OLD, then NEW at `second_write`, sets the mtime back, and removes the file. The medium. The nodes fit into one LEB:
/// a reference node between them would be lost with the log, and leave a gap that proves nothing.
fn history(second_write: Option<Time>) -> Vec<u8> {
    let volume = Arc::new(MemoryVolume::new(60));
    let mut writer = writer(&volume);
    let new = NewFile {
        mode: 0o100_644,
        user: 0,
        group: 0,
        data: Vec::new(),
    };
    let inode = writer.create(ROOT_INODE, b"f", &new, at(10)).expect("it fits");
    let write = |writer: &mut Writer, content: &[u8; 4], now: Time| {
        writer
            .write(inode, 0, &content.repeat(1024), now)
            .expect("it fits");
        writer.fsync().expect("it syncs");
    };
    write(&mut writer, b"OLD-", at(10));
    if let Some(now) = second_write {
        write(&mut writer, b"NEW!", now);
        let change = |inode: &mut Inode| inode.modified_seconds = 10;
        writer.set_attributes(inode, &change).expect("it fits");
    }
    writer.unlink(ROOT_INODE, b"f", at(30)).expect("it fits");
    writer.close().expect("it unmounts");
    volume.raw()
}

/// Erases the nodes that `is_lost` names; returns their number.
fn erase(raw: &mut [u8], is_lost: &dyn Fn(NodeKind, &[u8]) -> bool) -> usize {
    let (mut place, mut erased) = (0, 0);
    while place < raw.len() {
        let end = (place + 8192).min(raw.len());
        let Ok(header) = check(&raw[place..end]) else {
            place += 8;
            continue;
        };
        let bytes = usize::try_from(header.bytes).expect("small").next_multiple_of(8);
        let node = &mut raw[place..place + bytes];
        if is_lost(header.kind, node) {
            node.fill(0xFF);
            erased += 1;
        }
        place += bytes;
    }
    erased
}

fn is_new(node: &[u8]) -> bool {
    node.windows(8).any(|bytes| bytes == b"NEW!NEW!")
}

#[test]
fn a_file_whose_newer_content_is_lost_is_not_whole() {
    // The mtime was set back; both writes have one time.
    for second_write in [at(20), at(10)] {
        let raw = history(Some(second_write));
        let undamaged = salvage(&raw, Vec::new());
        let [file] = undamaged.deleted() else {
            panic!("{:?}", undamaged.deleted());
        };
        assert!(file.is_whole(), "{file:?}");
        let mut without_data = raw.clone();
        let erased = erase(&mut without_data, &|kind, node| {
            kind == NodeKind::Data && is_new(node)
        });
        assert_eq!(erased, 1);
        let salvaged = salvage(&without_data, Vec::new());
        let [file] = salvaged.deleted() else {
            panic!("{:?}", salvaged.deleted());
        };
        assert_eq!(file.blocks_found, file.blocks, "the older content is there");
        assert!(!file.is_whole(), "{file:?}");
    }
}

#[test]
fn a_file_that_was_written_once_is_whole() {
    let salvaged = salvage(&history(None), Vec::new());
    let [file] = salvaged.deleted() else {
        panic!("{:?}", salvaged.deleted());
    };
    assert!(file.is_whole(), "{file:?}");
}
