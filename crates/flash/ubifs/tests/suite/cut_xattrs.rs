//! Files deleted with their extended attributes: a mount after a power cut finds the values through their entries in
//! the index, so these stay on the medium until the next commit is done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::support::cut_again::{
    Eager, assert_whole, assert_whole_for_linux, copy, create, each_cut, recover, recovered, volume, writes,
};
use crate::support::linux_journal::{add_bud, add_bud_at};
use crate::support::rig::{Chip, SMALL, lines_of, open};
use media::Leb;
use nand::PowerCut;
use testkit::lab::Fsck;
use testkit::prng::Prng;
use ubi::Volume;
use ubifs::format::{
    DirectoryEntry, Group, Inode, InodeNumber, Key, KeyKind, NodeKind, ROOT_INODE, check, pad,
};
use ubifs::mkfs::Time;
use ubifs::{OpenOptions, Ubifs, WriteError, Writer};

fn set_xattrs(writer: &mut Writer, inode: InodeNumber, count: u32) {
    for number in 0..count {
        let value = Prng::new(number.into()).bytes(3000);
        let set = writer.set_xattr(
            inode,
            format!("trusted.{number}").as_bytes(),
            &value,
            Time::default(),
        );
        set.expect("there is room");
    }
}

fn unlink(writer: &mut Writer, name: &[u8]) {
    let removed = writer.unlink(ROOT_INODE, name, Time::default());
    removed.expect("it is there");
}

/// A file system with a file that shares its LEBs with no other live node; the journal continues elsewhere.
fn prepared(writer: &mut Writer) {
    create(writer, "kept", &[1; 9000]);
    let passing = create(writer, "passing", &[]);
    set_xattrs(writer, passing, 6);
    let gone = create(writer, "gone", &[]);
    set_xattrs(writer, gone, 15);
    let behind = create(writer, "behind", &[]);
    set_xattrs(writer, behind, 6);
    unlink(writer, b"passing");
    unlink(writer, b"behind");
    writer.commit().expect("it commits");
}

#[test]
fn values_of_a_removed_file_go_though_power_goes_in_the_recovery() {
    let fsck = Fsck::available().ok();
    let chip: Chip = Arc::new(Mutex::new(SMALL.formatted()));
    let mut writer = open(volume(&chip)).expect("it opens");
    prepared(&mut writer);
    unlink(&mut writer, b"gone");
    writer.fsync().expect("it syncs");
    let expected = lines_of(writer.read());
    drop(writer);
    let count = each_cut(&chip, &recover, &mut |again, cut| {
        let what = format!("cut {cut}");
        assert_whole(again, &what);
        if let Some(fsck) = &fsck {
            assert_whole_for_linux(fsck, again, &what);
        }
        assert_eq!(recovered(again, &what).1, expected, "{what}");
    });
    assert!(count > 4, "only {count} writes");
}

/// Fills the file system, so that the next change needs the space of the deleted file.
fn filled(writer: &mut Writer) {
    let mut prng = Prng::new(1);
    for number in 0.. {
        let made = writer.create(
            ROOT_INODE,
            format!("fill {number}").as_bytes(),
            &crate::support::cut_again::NEW_FILE,
            Time::default(),
        );
        let written = made.and_then(|inode| writer.write(inode, 0, &prng.bytes(7000), Time::default()));
        match written {
            Ok(7000) => {}
            Ok(_) | Err(WriteError::NoSpace { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    writer.commit().expect("it commits");
}

/// The operations during which power may go.
fn replace(writer: &mut Writer) -> Result<(), WriteError> {
    writer.unlink(ROOT_INODE, b"gone", Time::default())?;
    for number in 0..6 {
        let name = format!("new {number}");
        let made = writer.create(
            ROOT_INODE,
            name.as_bytes(),
            &crate::support::cut_again::NEW_FILE,
            Time::default(),
        )?;
        writer.write(made, 0, &Prng::new(number).bytes(4000), Time::default())?;
        writer.fsync()?;
    }
    Ok(())
}

#[test]
fn values_of_a_removed_file_go_though_its_space_is_wanted_at_once() {
    let start: Chip = Arc::new(Mutex::new(SMALL.formatted()));
    let begun = |chip: &Chip| {
        let mut writer = open(Eager::of(chip).expect("it attaches")).expect("it opens");
        prepared(&mut writer);
        filled(&mut writer);
        writer
    };
    let uncut = copy(&start);
    let mut writer = begun(&uncut);
    let (first, reclaimed) = (writes(&uncut), writer.statistics().reclaimed_lebs);
    replace(&mut writer).expect("there is room");
    assert!(
        writer.statistics().reclaimed_lebs > reclaimed,
        "the space was not wanted"
    );
    drop(writer);
    assert_whole(&uncut, "without a cut");
    for cut in first..writes(&uncut) {
        let what = format!("cut {}", cut - first);
        let chip = copy(&start);
        let mut writer = begun(&chip);
        let supply = chip.lock().expect("no panic").supply().clone();
        supply.plan(PowerCut::of_write(cut, usize::try_from(cut % 5).expect("few")));
        // The result is ignored: power goes.
        let _ = replace(&mut writer);
        assert!(supply.is_off(), "{what}: power did not go");
        drop(writer);
        supply.power_on();
        assert_whole(&chip, &what);
        recovered(&chip, &what);
    }
}

/// The LEBs that a recovery keeps for another replay are most of a full file system.
#[test]
fn a_full_file_system_is_recovered_though_a_large_file_without_a_name_goes() {
    for is_large_in_data in [true, false] {
        let chip: Chip = Arc::new(Mutex::new(SMALL.formatted()));
        let mut writer = open(volume(&chip)).expect("it opens");
        let content = Prng::new(5).bytes(if is_large_in_data { 300_000 } else { 100 });
        let gone = create(&mut writer, "gone", &content);
        set_xattrs(&mut writer, gone, if is_large_in_data { 2 } else { 90 });
        writer.commit().expect("it commits");
        writer.hold(gone);
        unlink(&mut writer, b"gone");
        writer.commit().expect("it commits");
        filled(&mut writer);
        // Deletions must still work.
        for number in 0..3 {
            unlink(&mut writer, format!("fill {number}").as_bytes());
            writer.fsync().expect("it syncs");
        }
        let mut expected = lines_of(writer.read());
        drop(writer);
        expected.remove("/gone");
        let what = format!("large in data: {is_large_in_data}");
        assert_eq!(recovered(&chip, &what).1, expected, "{what}");
        each_cut(&chip, &recover, &mut |again, cut| {
            let what = format!("{what}, cut {cut}");
            assert_whole(again, &what);
            assert_eq!(recovered(again, &what).1, expected, "{what}");
        });
    }
}

/// The last node with a key and, for entries, a name.
struct Found {
    sequence: u64,
    leb: u32,
    offset: u32,
    raw: Vec<u8>,
}

/// The last node of each inode and name in any LEB.
fn last_nodes(volume: &dyn Volume) -> BTreeMap<(Key, Vec<u8>), Found> {
    let mut last: BTreeMap<(Key, Vec<u8>), Found> = BTreeMap::new();
    for leb in 0..volume.geometry().lebs {
        let mut raw = vec![0; usize::try_from(volume.geometry().leb_bytes).expect("small")];
        volume.read(Leb(leb), 0, &mut raw).expect("it can be read");
        for offset in (0..raw.len()).step_by(8) {
            let Ok(header) = check(&raw[offset..]) else {
                continue;
            };
            let node = &raw[offset..offset + usize::try_from(header.bytes).expect("small")];
            let named = match header.kind {
                NodeKind::Inode => (Inode::decode(node).expect("an inode").key, Vec::new()),
                NodeKind::Entry | NodeKind::XattrEntry => {
                    let entry = DirectoryEntry::decode(node, header.kind).expect("a name");
                    (entry.key, entry.name)
                }
                _ => continue,
            };
            let sequence = header.sequence;
            if last.get(&named).is_none_or(|known| known.sequence < sequence) {
                let offset = u32::try_from(offset).expect("small");
                let raw = node.to_vec();
                let found = Found {
                    sequence,
                    leb,
                    offset,
                    raw,
                };
                last.insert(named, found);
            }
        }
    }
    last
}

/// Encodes a node with a given sequence number.
type Node = Box<dyn Fn(u64) -> Vec<u8>>;

/// Between two commits, the LEB with a file's attribute entry is collected and reused by the journal, then the file
/// is deleted. A mount also looks up the entry in the index: at its location is now the entry of another file, whose
/// value was deleted.
#[test]
fn an_entry_that_came_to_the_place_of_a_removed_files_keeps_its_value() {
    let fsck = Fsck::available().ok();
    let chip: Chip = Arc::new(Mutex::new(SMALL.formatted()));
    let mut writer = open(volume(&chip)).expect("it opens");
    let kept = create(&mut writer, "kept", &[]);
    let gone = create(&mut writer, "gone", &[]);
    let set = writer.set_xattr(gone, b"user.name", b"value", Time::default());
    set.expect("there is room");
    // Move the journal to another LEB.
    let passing = create(&mut writer, "passing", &[]);
    set_xattrs(&mut writer, passing, 8);
    unlink(&mut writer, b"passing");
    writer.commit().expect("it commits");
    drop(writer);

    let volume = volume(&chip);
    let ubifs = Ubifs::open(Arc::clone(&volume), OpenOptions::standard()).expect("it is a file system");
    let root = ubifs.inode(ROOT_INODE).expect("it is there");
    let inode = |number| ubifs.inode(number).expect("it is there");
    let (kept_inode, gone_inode) = (inode(kept), inode(gone));
    let highest = u32::try_from(ubifs.master().highest_inode).expect("32 bits");
    drop(ubifs);
    let last = last_nodes(&*volume);
    drop(volume);
    let of_gone = |kind| {
        let found = last
            .iter()
            .find(|((key, _), _)| key.inode_number() == gone && key.kind() == Some(kind));
        found.expect("it is there").1
    };
    let entry_at = of_gone(KeyKind::XattrEntry);
    let entry = DirectoryEntry::decode(&entry_at.raw, NodeKind::XattrEntry).expect("a name");
    let holder = InodeNumber(u32::try_from(entry.inode).expect("32 bits"));
    let holder_at = &last[&(Key::inode(holder), Vec::new())];
    let old_holder = Inode::decode(&holder_at.raw).expect("an inode");
    let name = last.values().find_map(|found| {
        let name = DirectoryEntry::decode(&found.raw, NodeKind::Entry).ok()?;
        (name.name == b"gone").then_some(name)
    });
    let name = name.expect("it has a name");

    // Collect the LEB.
    let in_use = last.iter().filter(|((key, name), found)| {
        let is_of = [ROOT_INODE, kept, gone, holder].contains(&key.inode_number());
        is_of && name != b"passing" && found.leb == entry_at.leb
    });
    let copies: Vec<Vec<u8>> = in_use.map(|(_, found)| found.raw.clone()).collect();
    assert!(copies.len() > 2, "the entry, its value, and the file");
    add_bud(&chip, 0, copies.into_iter().map(|raw| move |_| raw.clone()));

    // Put an attribute of `kept` at the location of the one of `gone`, then delete `gone`.
    let mut before = vec![0; usize::try_from(entry_at.offset).expect("small")];
    pad(&mut before);
    let new_holder = InodeNumber(highest + 1);
    let new_entry = DirectoryEntry {
        key: Key::xattr(kept, entry.key.low()),
        inode: new_holder.0.into(),
        ..entry
    };
    let new_value = Inode {
        key: Key::inode(new_holder),
        ..old_holder
    };
    let with_value = Inode {
        xattr_count: gone_inode.xattr_count,
        xattr_bytes: gone_inode.xattr_bytes,
        xattr_names_bytes: gone_inode.xattr_names_bytes,
        ..kept_inode
    };
    let removal = DirectoryEntry { inode: 0, ..name };
    let removed = Inode {
        links: 0,
        ..gone_inode
    };
    let root = Inode {
        size_bytes: root.size_bytes - 64,
        ..root
    };
    let node = |inode: Inode| -> Node { Box::new(move |sequence| inode.encode(sequence, Group::None)) };
    let nodes: [Node; 7] = [
        Box::new(move |_| before.clone()),
        Box::new(move |sequence| new_entry.encode(NodeKind::XattrEntry, sequence, Group::None)),
        node(new_value),
        node(with_value),
        Box::new(move |sequence| removal.encode(NodeKind::Entry, sequence, Group::None)),
        node(removed),
        node(root),
    ];
    add_bud_at(&chip, entry_at.leb, 1, nodes);
    assert_whole(&chip, "cut");
    if let Some(fsck) = &fsck {
        assert_whole_for_linux(fsck, &chip, "cut");
    }
    let (chip, lines) = recovered(&chip, "recovered");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines["/kept"].contains("user.name"), "{lines:?}");
    if let Some(fsck) = &fsck {
        assert_whole_for_linux(fsck, &chip, "recovered");
    }
}
