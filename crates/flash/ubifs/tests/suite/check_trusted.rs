//! Values that Linux trusts at a mount with nothing to recover: each is damaged on a cleanly unmounted file system,
//! and the checker must find it.

use std::sync::{Arc, Mutex};

use crate::support::rig::{Chip, SMALL, Shape, attach, open};
use media::Leb;
use testkit::prng::Prng;
use ubi::Volume;
use ubifs::check::{Area, check};
use ubifs::format::{
    CommitStart, Group, HEADER_BYTES, LOG_LEB, MASTER_DIRTY, MASTER_LEB, Master, NodeKind, ROOT_INODE, seal,
};
use ubifs::mkfs::{Attributes, LebCount, MkfsOptions, Time, Tree, VolumeSink, make};
use ubifs::{LebSpace, NewFile, OpenOptions, Ubifs};

const NEW_FILE: NewFile = NewFile {
    mode: 0o100_644,
    user: 0,
    group: 0,
    data: Vec::new(),
};

fn to_usize(number: u32) -> usize {
    usize::try_from(number).expect("small")
}

/// Reads an integer of `width` bits, least significant bit first.
fn take(raw: &[u8], at: u32, width: u32) -> u32 {
    (0..width).rfold(0, |value, bit| {
        let byte = raw[to_usize((at + bit) / 8)];
        value << 1 | u32::from(byte >> ((at + bit) % 8) & 1)
    })
}

fn put(raw: &mut [u8], at: u32, width: u32, value: u32) {
    for bit in 0..width {
        let mask = 1 << ((at + bit) % 8);
        let byte = &mut raw[to_usize((at + bit) / 8)];
        *byte = if value >> bit & 1 == 1 {
            *byte | mask
        } else {
            *byte & !mask
        };
    }
}

/// A cleanly unmounted file system, with journal heads in the middle of LEBs and partly free LEBs.
struct Subject {
    volume: Arc<dyn Volume>,
}

impl Subject {
    fn new() -> Self {
        Self::on(&Arc::new(Mutex::new(SMALL.formatted())))
    }

    fn on(chip: &Chip) -> Self {
        // Each mount starts in new LEBs and leaves those of the previous one partly free.
        for round in 0..3 {
            let mut writer = open(attach(chip).expect("it attaches")).expect("it opens");
            let mut prng = Prng::new(round);
            for number in 0..12 {
                let name = format!("{round}-{number}");
                let made = writer.create(ROOT_INODE, name.as_bytes(), &NEW_FILE, Time::default());
                let written = writer.write(made.expect("room"), 0, &prng.bytes(1500), Time::default());
                written.expect("there is room");
            }
            writer.unmount().expect("it unmounts");
        }
        let volume: Arc<dyn Volume> = attach(chip).expect("it attaches");
        Self { volume }
    }

    fn ubifs(&self) -> Ubifs {
        Ubifs::open(Arc::clone(&self.volume), OpenOptions::standard()).expect("it is a file system")
    }

    fn master(&self) -> Master {
        self.ubifs().master().clone()
    }

    /// Lprops of the main area, with LEB numbers.
    fn spaces(&self) -> Vec<(u32, LebSpace)> {
        let ubifs = self.ubifs();
        let spaces = ubifs.space().expect("an LPT");
        let first = ubifs.superblock().lebs - u32::try_from(spaces.len()).expect("few");
        (first..).zip(spaces).collect()
    }

    /// The buds in the log: LEB and start offset.
    fn buds(&self) -> Vec<(u32, u32)> {
        let ubifs = self.ubifs();
        let buds = ubifs.replay_report().buds.iter();
        buds.map(|bud| (bud.leb, bud.offset)).collect()
    }

    /// A LEB of the main area that is not a bud and satisfies a condition.
    fn leb_with(&self, condition: impl Fn(LebSpace) -> bool) -> (u32, LebSpace) {
        let buds = self.buds();
        let is_bud = |leb| buds.iter().any(|(bud, _)| *bud == leb);
        let mut found = self.spaces().into_iter();
        let found = found.find(|(leb, space)| !is_bud(*leb) && condition(*space));
        found.expect("there is such a LEB")
    }

    /// A LEB with nodes of files.
    fn leb_in_use(&self) -> u32 {
        let bytes = self.volume.geometry().leb_bytes;
        let used = |space: LebSpace| !space.index && space.free + space.dirty < bytes;
        self.leb_with(used).0
    }

    /// A LEB of the main area with a node of a kind.
    fn leb_of(&self, kind: NodeKind) -> u32 {
        let has_one = |leb: u32| {
            let raw = self.leb(leb);
            let mut places = (0..raw.len()).step_by(8);
            places.any(|at| ubifs::format::check(&raw[at..]).is_ok_and(|header| header.kind == kind))
        };
        let mut all = self.spaces().into_iter().map(|(leb, _)| leb);
        all.find(|leb| has_one(*leb)).expect("there is such a LEB")
    }

    /// The written part of a LEB.
    fn leb(&self, leb: u32) -> Vec<u8> {
        let geometry = self.volume.geometry();
        let mut raw = vec![0; to_usize(geometry.leb_bytes)];
        self.volume.read(Leb(leb), 0, &mut raw).expect("it can be read");
        let unit = to_usize(geometry.min_io_bytes);
        let end = raw
            .iter()
            .rposition(|byte| *byte != 0xFF)
            .map_or(0, |last| last + 1);
        raw.truncate(end.next_multiple_of(unit));
        raw
    }

    fn set_leb(&self, leb: u32, raw: &[u8]) {
        self.volume.leb_change(Leb(leb), raw).expect("it takes it");
    }

    fn change_master(&self, change: impl FnOnce(&mut Master)) {
        let mut master = self.master();
        change(&mut master);
        for leb in [MASTER_LEB, MASTER_LEB + 1] {
            self.set_leb(leb, &master.encode(1 << 40));
        }
    }

    /// Writes a node at an offset of a LEB.
    fn write(&self, leb: u32, offset: u32) {
        let unit = to_usize(self.volume.geometry().min_io_bytes);
        let mut raw = CommitStart { commit: 1 }.encode(5);
        raw.resize(unit, 0);
        self.volume.write(Leb(leb), offset, &raw).expect("it takes it");
    }

    /// Changes the first node of a kind in a LEB.
    fn change_node(&self, leb: u32, kind: NodeKind, sequence: u64, change: impl FnOnce(&mut [u8])) {
        let mut raw = self.leb(leb);
        let mut places = (0..raw.len()).step_by(8);
        let found = places.find_map(|at| {
            let header = ubifs::format::check(&raw[at..]).ok()?;
            (header.kind == kind).then_some((at, to_usize(header.bytes)))
        });
        let (at, bytes) = found.expect("there is such a node");
        let node = &mut raw[at..at + bytes];
        change(&mut node[HEADER_BYTES..]);
        seal(node, kind, Group::None, sequence);
        self.set_leb(leb, &raw);
    }

    /// Changes a part of the LPT, of `bits` bits without its CRC, and fixes the CRC.
    fn change_lpt(&self, (leb, offset): (u32, u32), bits: u32, change: impl FnOnce(&mut [u8])) {
        let mut raw = self.leb(leb);
        let from = to_usize(offset);
        let part = &mut raw[from..from + to_usize((16 + bits).div_ceil(8))];
        change(part);
        let crc = part[2..].iter().fold(u16::MAX, |crc, byte| {
            (0..8).fold(crc ^ u16::from(*byte), |crc, _| match crc & 1 {
                0 => crc >> 1,
                _ => crc >> 1 ^ 0xA001,
            })
        });
        part[..2].copy_from_slice(&crc.to_le_bytes());
        self.set_leb(leb, &raw);
    }

    /// Location of the LPT's first leaf. In the small model nodes have no numbers.
    fn first_pnode(&self) -> (u32, u32) {
        let superblock = self.ubifs().superblock().clone();
        let width = |number: u32| u32::BITS - number.leading_zeros();
        let leb_bits = width(superblock.lpt_lebs);
        let master = self.master();
        let mut place = (master.lpt_leb, master.lpt_offset);
        loop {
            let part = &self.leb(place.0)[to_usize(place.1)..];
            match take(part, 16, 4) {
                0 => return place,
                kind => assert_eq!(kind, 1, "an inner node"),
            }
            let leb = LOG_LEB + superblock.log_lebs + take(part, 20, leb_bits);
            place = (leb, take(part, 20 + leb_bits, width(superblock.leb_bytes - 1)));
        }
    }

    /// Changes the lprops of a used LEB in the LPT's first leaf. `change` gets the bit offsets of its free bytes,
    /// dirty bytes and flag, and its used bytes divided by 8.
    fn change_space_in_use(&self, change: impl FnOnce(&mut [u8], [u32; 3], u32)) {
        let leb_bytes = self.volume.geometry().leb_bytes;
        let width = u32::BITS - leb_bytes.leading_zeros() - 3;
        self.change_lpt(self.first_pnode(), 4 + 4 * (2 * width + 1), |leaf| {
            let mut slots = (0..4).map(|slot| 20 + slot * (2 * width + 1));
            let used = |at: u32| leb_bytes / 8 - take(leaf, at, width) - take(leaf, at + width, width);
            let at = slots.find(|at| used(*at) > 0).expect("one is in use");
            let used = used(at);
            change(leaf, [at, at + width, at + 2 * width], used);
        });
    }

    fn findings(&self) -> Vec<(Area, String)> {
        let report = check(&*self.volume);
        let findings = report.findings.iter();
        findings
            .map(|finding| (finding.area, finding.fault.to_string()))
            .collect()
    }
}

/// Name of the damage, area of the finding, part of its message, and the damaging function.
type Case = (&'static str, Area, &'static str, fn(&Subject));

const CASES: [Case; 32] = [
    (
        "the LEB for garbage collection is in use",
        Area::Master,
        "kept for garbage collection",
        |subject| {
            let leb = subject.leb_in_use();
            subject.change_master(|master| master.gc_leb = leb);
        },
    ),
    (
        "the LEB for garbage collection is of the journal",
        Area::Master,
        "is one of the journal",
        |subject| {
            let (leb, _) = subject.buds()[0];
            subject.change_master(|master| master.gc_leb = leb);
        },
    ),
    (
        "no LEB is kept",
        Area::Master,
        "no LEB is kept for garbage collection",
        |subject| {
            subject.change_master(|master| master.gc_leb = u32::MAX);
        },
    ),
    (
        "the head of the index is too low",
        Area::Master,
        "where the head of the index goes on",
        |subject| {
            subject.change_master(|master| master.index_head_offset -= 512);
        },
    ),
    (
        "the head of the index is too high",
        Area::Master,
        "where the head of the index goes on",
        |subject| {
            subject.change_master(|master| master.index_head_offset += 512);
        },
    ),
    (
        "the head of the index is among files",
        Area::Master,
        "not the index's",
        |subject| {
            let leb = subject.leb_in_use();
            subject.change_master(|master| master.index_head_leb = leb);
        },
    ),
    (
        "written behind the head of the index",
        Area::Index,
        "behind the head of the index",
        |subject| {
            let master = subject.master();
            subject.write(master.index_head_leb, master.index_head_offset);
        },
    ),
    (
        "the head of the LPT is too low",
        Area::Master,
        "where the head of the LPT goes on",
        |subject| {
            subject.change_master(|master| master.lpt_head_offset -= 512);
        },
    ),
    (
        "the head of the LPT is elsewhere",
        Area::Master,
        "where the head of the LPT goes on",
        |subject| {
            let superblock = subject.ubifs().superblock().clone();
            let first = LOG_LEB + superblock.log_lebs;
            subject.change_master(|master| {
                master.lpt_head_leb = first + (master.lpt_head_leb + 1 - first) % superblock.lpt_lebs;
            });
        },
    ),
    (
        "written behind the head of the LPT",
        Area::Lpt,
        "behind the head of the LPT",
        |subject| {
            let master = subject.master();
            subject.write(master.lpt_head_leb, master.lpt_head_offset);
        },
    ),
    (
        "the LPT says that its own LEB is empty",
        Area::Lpt,
        "what the ltab says to be free",
        |subject| {
            let (master, superblock) = (subject.master(), subject.ubifs().superblock().clone());
            let width = u32::BITS - superblock.leb_bytes.leading_zeros();
            let number = master.ltab_leb - LOG_LEB - superblock.log_lebs;
            let place = (master.ltab_leb, master.ltab_offset);
            subject.change_lpt(place, 4 + superblock.lpt_lebs * 2 * width, |table| {
                put(table, 20 + number * 2 * width, width, superblock.leb_bytes);
                put(table, 20 + (number * 2 + 1) * width, width, 0);
            });
        },
    ),
    (
        "the LPT says that a LEB in use is dirty",
        Area::Lpt,
        "what is said to be used of the LEB",
        |subject| {
            subject.change_space_in_use(|leaf, [free, dirty, _], used| {
                let width = dirty - free;
                put(leaf, dirty, width, take(leaf, dirty, width) + used);
            });
        },
    ),
    (
        "the LPT says that a LEB has the index, or has not",
        Area::Lpt,
        "that it holds the index",
        |subject| {
            subject.change_space_in_use(|leaf, [.., is_index], _| {
                let value = take(leaf, is_index, 1);
                put(leaf, is_index, 1, 1 - value);
            });
        },
    ),
    (
        "written where a LEB is free",
        Area::Space,
        "is said to be free",
        |subject| {
            let bytes = subject.volume.geometry().leb_bytes;
            let is_partly_free = |space: LebSpace| !space.index && (512..bytes).contains(&space.free);
            let (leb, space) = subject.leb_with(is_partly_free);
            subject.write(leb, bytes - space.free + (space.free - 512) / 512 * 512);
        },
    ),
    ("written behind the journal", Area::Journal, "", |subject| {
        let (leb, _) = subject.buds()[0];
        let end = u32::try_from(subject.leb(leb).len()).expect("small");
        subject.write(leb, end + 512);
    }),
    (
        "the journal starts too early",
        Area::Log,
        "where the journal starts",
        |subject| {
            let leb = subject.master().log_leb;
            subject.change_node(leb, NodeKind::Reference, 1 << 40, |body| {
                let (_, offset) = subject.buds()[0];
                body[4..8].copy_from_slice(&(offset - 512).to_le_bytes());
            });
        },
    ),
    (
        "the journal is in a LEB of the index",
        Area::Log,
        "a LEB of the index",
        |subject| {
            let leb = subject.master().log_leb;
            subject.change_node(leb, NodeKind::Reference, 1 << 40, |body| {
                let (index, _) = subject.leb_with(|space| space.index);
                body[..4].copy_from_slice(&index.to_le_bytes());
            });
        },
    ),
    (
        "the log is of another commit",
        Area::Log,
        "the master node's commit",
        |subject| {
            subject.change_master(|master| master.commit += 1);
        },
    ),
    (
        "the log starts in a LEB that is empty",
        Area::Log,
        "the log is empty",
        |subject| {
            let leb = subject.master().log_leb;
            let next = if leb == LOG_LEB { LOG_LEB + 1 } else { LOG_LEB };
            subject.volume.unmap(Leb(next)).expect("it takes it");
            subject.change_master(|master| master.log_leb = next);
        },
    ),
    (
        "a node has a larger number than the journal",
        Area::Index,
        "the sequence number",
        |subject| {
            let leb = subject.leb_of(NodeKind::Data);
            subject.change_node(leb, NodeKind::Data, 1 << 41, |_| {});
        },
    ),
    (
        "an inode has a larger number than the master knows",
        Area::Index,
        "the inode number",
        |subject| {
            subject.change_master(|master| master.highest_inode = 64);
        },
    ),
    (
        "the LEB that was scanned last is none",
        Area::Master,
        "scanned last",
        |subject| {
            subject.change_master(|master| master.scanned_leb = 1);
        },
    ),
    ("the sum of free bytes", Area::Space, "free bytes", |subject| {
        subject.change_master(|master| master.free_bytes += 8);
    }),
    ("the sum of dirty bytes", Area::Space, "dirty bytes", |subject| {
        subject.change_master(|master| master.dirty_bytes += 8);
    }),
    ("the sum of used bytes", Area::Space, "used bytes", |subject| {
        subject.change_master(|master| master.used_bytes += 8);
    }),
    ("the sum of dead bytes", Area::Space, "dead bytes", |subject| {
        subject.change_master(|master| master.dead_bytes += 8);
    }),
    ("the sum of dark bytes", Area::Space, "dark bytes", |subject| {
        subject.change_master(|master| master.dark_bytes += 8);
    }),
    ("the number of empty LEBs", Area::Space, "empty LEBs", |subject| {
        subject.change_master(|master| master.empty_lebs += 1);
    }),
    (
        "the number of LEBs of the index",
        Area::Space,
        "LEBs of the index",
        |subject| {
            subject.change_master(|master| master.index_lebs += 1);
        },
    ),
    (
        "the size of the index",
        Area::Space,
        "the size of the index",
        |subject| {
            subject.change_master(|master| master.index_bytes += 8);
        },
    ),
    (
        "a flag that does not exist",
        Area::Master,
        "a flag that does not exist",
        |subject| {
            subject.change_master(|master| master.flags |= 0x10);
        },
    ),
    (
        "the copies of the master node differ",
        Area::Master,
        "differ",
        |subject| {
            let master = Master {
                highest_inode: 1000,
                ..subject.master()
            };
            subject.set_leb(MASTER_LEB + 1, &master.encode(1));
        },
    ),
];

#[test]
fn what_linux_trusts_at_a_clean_mount_is_checked() {
    assert_eq!(Subject::new().findings(), [], "nothing was damaged");
    for (what, area, part, damage) in CASES {
        let subject = Subject::new();
        damage(&subject);
        let found = subject.findings();
        let is_told = found.iter().any(|(of, text)| *of == area && text.contains(part));
        assert!(is_told, "{what}: {found:#?}");
    }
}

/// A mount may end with a master node that is the first in its LEBs. If power goes, or the device fails, before it is
/// written to the second LEB, that LEB has been unmapped and holds none. The checker used to report this as damage,
/// although mounts, here and in Linux, use the first one.
#[test]
fn a_second_leb_of_master_nodes_that_was_to_begin_anew_is_no_damage() {
    let second = Leb(MASTER_LEB + 1);
    let subject = Subject::new();
    subject.change_master(|_| {});
    subject.volume.unmap(second).expect("it takes it");
    assert_eq!(subject.findings(), [], "not mapped yet");
    subject.volume.map(second).expect("it takes it");
    assert_eq!(subject.findings(), [], "not written yet");
    let writer = open(Arc::clone(&subject.volume)).expect("it opens");
    writer.unmount().expect("it unmounts");
    assert_eq!(subject.findings(), [], "mounted and unmounted");

    let subject = Subject::new();
    subject.volume.unmap(second).expect("it takes it");
    let found = subject.findings();
    let is_told = found.iter().any(|(_, text)| text.contains("no master node"));
    assert!(
        is_told,
        "the first LEB holds several, so the second had some: {found:#?}"
    );
}

#[test]
fn a_file_without_a_name_that_a_mount_will_not_remove_is_found() {
    let chip: Chip = Arc::new(Mutex::new(SMALL.formatted()));
    let mut writer = open(attach(&chip).expect("it attaches")).expect("it opens");
    let made = writer.create(ROOT_INODE, b"open", &NEW_FILE, Time::default());
    writer.hold(made.expect("there is room"));
    writer
        .unlink(ROOT_INODE, b"open", Time::default())
        .expect("it is there");
    writer.commit().expect("it commits");
    drop(writer);
    let volume: Arc<dyn Volume> = attach(&chip).expect("it attaches");
    let subject = Subject { volume };
    assert_eq!(subject.findings(), [], "a mount removes it");
    subject.change_master(|master| master.flags &= !MASTER_DIRTY);
    let found = subject.findings();
    let is_told = found.iter().any(|(_, text)| text.contains("no name"));
    assert!(is_told, "{found:#?}");
}

#[test]
fn a_table_of_leb_numbers_that_a_mount_looks_up_is_checked() {
    let shape = Shape {
        blocks: 640,
        lebs: 600,
        ..SMALL
    };
    let chip: Chip = Arc::new(Mutex::new(shape.formatted()));
    let volume = attach(&chip).expect("it attaches");
    let geometry = volume.geometry();
    for leb in 0..geometry.lebs {
        volume.unmap(Leb(leb)).expect("it takes it");
    }
    // This number of LEBs needs the big model.
    let options = MkfsOptions {
        lebs: LebCount::Exactly(geometry.lebs),
        ..MkfsOptions::new(geometry.min_io_bytes, geometry.leb_bytes, 6000)
    };
    let mut sink = VolumeSink::new(&*volume).expect("it takes writes");
    let tree = Tree::empty(Attributes::default());
    make(&tree, &options, &mut sink, &mut || {}).expect("the options are good");
    sink.finish().expect("it takes writes");
    drop(volume);
    let subject = Subject::on(&chip);
    assert_eq!(subject.findings(), [], "nothing was damaged");
    let master = subject.master();
    assert!(master.lsave_leb > 0, "there is none");
    let mut raw = subject.leb(master.lsave_leb);
    raw[to_usize(master.lsave_offset) + 4] ^= 1;
    subject.set_leb(master.lsave_leb, &raw);
    let found = subject.findings();
    assert!(found.iter().any(|(area, _)| *area == Area::Lpt), "{found:#?}");
}
