//! The superblock of ext2, ext3 and ext4: 1024 bytes at byte 1024, little-endian; copies in other groups.
//!
//! Spec: Documentation/filesystems/ext4 of the kernel. The primary copy is used if it is plausible and its checksum is
//! right; otherwise the first backup for which both hold; otherwise a copy that is at least plausible.

use crate::bytes::{byte, joined, le16, le32, le64};
use crate::checksum::crc32c;
use crate::finding::{FindingKind, Findings, Place};
use crate::source::Source;

/// Bytes of a superblock.
pub(crate) const SIZE: usize = 1024;
const MAGIC: u16 = 0xEF53;
/// More groups than any file system that Linux mounts from one of today's devices: 2^22 groups of 128 MiB are 512 TiB.
/// It bounds the memory that a damaged superblock can make this reader allocate (about 250 MiB).
const GROUPS_MAX: u64 = 1 << 22;

/// The minimum that mkfs makes. It bounds the number of groups of a damaged superblock.
const GROUP_BLOCKS_MIN: u64 = 256;

/// Feature bits, one constant for each that changes the layout.
pub(crate) mod compat {
    pub(crate) const HAS_JOURNAL: u32 = 0x4;
    pub(crate) const SPARSE_SUPER2: u32 = 0x200;
    pub(crate) const ORPHAN_FILE: u32 = 0x1000;
}
pub(crate) mod incompat {
    pub(crate) const JOURNAL_DEV: u32 = 0x8;
    pub(crate) const META_BG: u32 = 0x10;
    pub(crate) const BIT64: u32 = 0x80;
    pub(crate) const MMP: u32 = 0x100;
    pub(crate) const CSUM_SEED: u32 = 0x2000;
    pub(crate) const KNOWN: u32 = 0x3_E7DE;
}
pub(crate) mod ro_compat {
    pub(crate) const SPARSE_SUPER: u32 = 0x1;
    pub(crate) const GDT_CSUM: u32 = 0x10;
    pub(crate) const BIGALLOC: u32 = 0x200;
    pub(crate) const METADATA_CSUM: u32 = 0x400;
}

/// Fields of the superblock, checked for plausibility.
#[derive(Clone, Debug)]
pub(crate) struct Superblock {
    pub inodes: u64,
    /// Blocks of the file system, limited to the medium.
    pub blocks: u64,
    pub first_data_block: u64,
    pub block_bytes: u64,
    /// Blocks per cluster, the unit of allocation; 1 without bigalloc.
    pub cluster_blocks: u64,
    pub blocks_per_group: u64,
    pub inodes_per_group: u64,
    pub groups: u64,
    pub first_inode: u64,
    pub inode_bytes: u64,
    pub compat: u32,
    pub incompat: u32,
    pub ro_compat: u32,
    pub uuid: [u8; 16],
    pub label: Vec<u8>,
    pub reserved_descriptor_blocks: u64,
    pub descriptor_bytes: u64,
    pub first_meta_group: u64,
    pub journal_inode: u64,
    pub mmp_block: u64,
    pub quota_inodes: [u64; 3],
    pub orphan_file_inode: u64,
    pub backup_groups: [u64; 2],
    pub last_orphan: u64,
    /// Seed of all metadata checksums.
    pub checksum_seed: u32,
}

impl Superblock {
    pub(crate) fn has_compat(&self, bit: u32) -> bool {
        self.compat & bit != 0
    }

    pub(crate) fn has_incompat(&self, bit: u32) -> bool {
        self.incompat & bit != 0
    }

    pub(crate) fn has_ro_compat(&self, bit: u32) -> bool {
        self.ro_compat & bit != 0
    }

    /// Bytes per cluster.
    pub(crate) fn cluster_bytes(&self) -> u64 {
        self.block_bytes * self.cluster_blocks
    }

    /// First block of a group.
    pub(crate) fn group_start(&self, group: u64) -> u64 {
        self.first_data_block + group * self.blocks_per_group
    }

    /// First block behind a group.
    pub(crate) fn group_end(&self, group: u64) -> u64 {
        (self.group_start(group) + self.blocks_per_group).min(self.blocks)
    }

    /// Whether a group contains a copy of the superblock (and, without `meta_bg`, of the descriptors).
    pub(crate) fn has_copy(&self, group: u64) -> bool {
        if group == 0 {
            return true;
        }
        if self.has_compat(compat::SPARSE_SUPER2) {
            return self.backup_groups.contains(&group);
        }
        if !self.has_ro_compat(ro_compat::SPARSE_SUPER) || group == 1 {
            return true;
        }
        [3, 5, 7].iter().any(|base| {
            let mut power = *base;
            while power < group {
                power *= base;
            }
            power == group
        })
    }
}

/// Reason why bytes are not a superblock.
#[derive(Clone, Debug)]
struct Wrong {
    expected: String,
    found: String,
}

fn wrong(expected: impl Into<String>, found: impl std::fmt::Display) -> Wrong {
    Wrong {
        expected: expected.into(),
        found: found.to_string(),
    }
}

/// Whether an ext2, ext3 or ext4 file system starts here, by its primary superblock.
pub(crate) fn probe(source: &Source) -> bool {
    let mut raw = [0; SIZE];
    source.read(1024, &mut raw).is_ok() && parse(&raw, source.length()).is_ok()
}

/// Whether a file system with a lost primary superblock is here.
pub(crate) fn probe_backups(source: &Source) -> bool {
    backups(source).next().is_some()
}

/// Finds and reads the best superblock. `None` if there is not even a damaged one.
pub(crate) fn read(source: &Source, findings: &mut Findings) -> Option<Superblock> {
    let mut raw = [0; SIZE];
    let primary = match source.read(1024, &mut raw) {
        Err(error) => Err(wrong("a superblock", error)),
        Ok(()) => parse(&raw, source.length()),
    };
    let problem = match &primary {
        Err(problem) => (FindingKind::Field, problem.clone()),
        Ok(superblock) => match checksum_problem(&raw, superblock) {
            None => return primary.ok().map(|found| cut(found, source, findings)),
            Some(problem) => (FindingKind::Checksum, problem),
        },
    };
    findings.add(problem.0, Place::Superblock, problem.1.expected, problem.1.found);
    let chosen = match backups(source).next() {
        Some((at, superblock)) => {
            findings.add(
                FindingKind::Backup,
                Place::Superblock,
                "an undamaged primary superblock",
                format!("its backup at byte {at}"),
            );
            Some(superblock)
        }
        None => primary.ok(),
    };
    chosen.map(|found| cut(found, source, findings))
}

/// Plausible backups with a right checksum.
fn backups(source: &Source) -> impl Iterator<Item = (u64, Superblock)> + '_ {
    candidates(source.length()).filter_map(|(at, block_bytes, group)| {
        let mut raw = [0; SIZE];
        source.read(at, &mut raw).ok()?;
        if le16(&raw, 0x38) != MAGIC || u64::from(le16(&raw, 0x5A)) != group {
            return None;
        }
        let superblock = parse(&raw, source.length()).ok()?;
        let fits = superblock.block_bytes == block_bytes && checksum_problem(&raw, &superblock).is_none();
        fits.then_some((at, superblock))
    })
}

/// Possible positions of backups: group 1, or a power of 3, 5 or 7, for each block size and the usual sizes of groups.
fn candidates(length: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    const GROUPS: [u64; 12] = [1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343];
    (10..=16).flat_map(move |shift| {
        let block_bytes = 1_u64 << shift;
        // Groups as large as one bitmap block allows, and repeated halves of that, which `mkfs -g` makes.
        (0..4).flat_map(move |halves| {
            let group_blocks = (block_bytes * 8) >> halves;
            GROUPS.into_iter().filter_map(move |group| {
                let first = u64::from(block_bytes == 1024);
                let at = (group * group_blocks + first) * block_bytes;
                (at < length).then_some((at, block_bytes, group))
            })
        })
    })
}

fn checksum_problem(raw: &[u8; SIZE], superblock: &Superblock) -> Option<Wrong> {
    if !superblock.has_ro_compat(ro_compat::METADATA_CSUM) {
        return None;
    }
    let (stored, found) = (le32(raw, 0x3FC), crc32c(u32::MAX, &raw[..0x3FC]));
    (stored != found).then(|| {
        wrong(
            format!("checksum {stored:#010x} as the superblock says"),
            format!("{found:#010x}"),
        )
    })
}

/// Limits the number of blocks to the medium.
fn cut(mut superblock: Superblock, source: &Source, findings: &mut Findings) -> Superblock {
    let there = source.length() / superblock.block_bytes;
    if superblock.blocks > there {
        findings.add(
            FindingKind::OutOfRange,
            Place::Superblock,
            format!("{} blocks as the superblock says", superblock.blocks),
            format!("{there} blocks on the medium"),
        );
        superblock.blocks = there;
    }
    let data = superblock.blocks.saturating_sub(superblock.first_data_block);
    superblock.groups = data.div_ceil(superblock.blocks_per_group);
    superblock.inodes = superblock
        .inodes
        .min(superblock.groups * superblock.inodes_per_group);
    superblock
}

fn parse(raw: &[u8; SIZE], length: u64) -> Result<Superblock, Wrong> {
    let number = |at| u64::from(le32(raw, at));
    if le16(raw, 0x38) != MAGIC {
        return Err(wrong("magic 0xef53", format!("{:#06x}", le16(raw, 0x38))));
    }
    let (block_shift, cluster_shift) = (le32(raw, 0x18), le32(raw, 0x1C));
    if block_shift > 6 {
        return Err(wrong(
            "blocks of 1 to 64 KiB",
            format!("1024 << {block_shift} bytes"),
        ));
    }
    let block_bytes = 1024_u64 << block_shift;
    let (incompat, ro_compat) = (le32(raw, 0x60), le32(raw, 0x64));
    let bigalloc = ro_compat & ro_compat::BIGALLOC != 0;
    let bits64 = incompat & incompat::BIT64 != 0;
    if bigalloc && (cluster_shift < block_shift || cluster_shift > block_shift + 20) {
        return Err(wrong(
            "clusters of 1 to 2^20 blocks",
            format!("1024 << {cluster_shift} bytes"),
        ));
    }
    let cluster_blocks = if bigalloc {
        1_u64 << (cluster_shift - block_shift)
    } else {
        1
    };
    let revision = le32(raw, 0x4C);
    let blocks = joined(le32(raw, 0x4), if bits64 { le32(raw, 0x150) } else { 0 });
    let superblock = Superblock {
        inodes: number(0x0),
        blocks,
        first_data_block: number(0x14),
        block_bytes,
        cluster_blocks,
        blocks_per_group: number(0x20),
        inodes_per_group: number(0x28),
        groups: 0,
        first_inode: if revision == 0 { 11 } else { number(0x54) },
        inode_bytes: if revision == 0 {
            128
        } else {
            u64::from(le16(raw, 0x58))
        },
        compat: le32(raw, 0x5C),
        incompat,
        ro_compat,
        uuid: raw[0x68..0x78].try_into().expect("it is 16 bytes"),
        label: raw[0x78..0x88]
            .iter()
            .copied()
            .take_while(|byte| *byte != 0)
            .collect(),
        reserved_descriptor_blocks: u64::from(le16(raw, 0xCE)),
        descriptor_bytes: if bits64 { u64::from(le16(raw, 0xFE)) } else { 32 },
        first_meta_group: number(0x104),
        journal_inode: number(0xE0),
        mmp_block: le64(raw, 0x168),
        quota_inodes: [number(0x240), number(0x244), number(0x26C)],
        orphan_file_inode: number(0x280),
        backup_groups: [number(0x24C), number(0x250)],
        last_orphan: number(0xE8),
        checksum_seed: if incompat & incompat::CSUM_SEED != 0 {
            le32(raw, 0x270)
        } else {
            crc32c(u32::MAX, &raw[0x68..0x78])
        },
    };
    check(&superblock, byte(raw, 0x175), length)?;
    Ok(superblock)
}

fn check(superblock: &Superblock, checksum_type: u8, length: u64) -> Result<(), Wrong> {
    let Superblock {
        block_bytes,
        blocks_per_group,
        inodes_per_group,
        inode_bytes,
        descriptor_bytes,
        ..
    } = *superblock;
    let clusters_max = block_bytes * 8;
    if blocks_per_group < GROUP_BLOCKS_MIN
        || blocks_per_group % superblock.cluster_blocks != 0
        || blocks_per_group / superblock.cluster_blocks > clusters_max
    {
        return Err(wrong(
            format!("{GROUP_BLOCKS_MIN} blocks to {clusters_max} clusters a group"),
            format!("{blocks_per_group} blocks"),
        ));
    }
    if !inode_bytes.is_power_of_two() || !(128..=block_bytes).contains(&inode_bytes) {
        return Err(wrong(
            format!("inodes of 128 to {block_bytes} bytes"),
            inode_bytes,
        ));
    }
    if inodes_per_group == 0 || inodes_per_group > clusters_max {
        return Err(wrong(
            format!("1 to {clusters_max} inodes a group"),
            inodes_per_group,
        ));
    }
    if !descriptor_bytes.is_power_of_two() || !(32..=block_bytes).contains(&descriptor_bytes) {
        return Err(wrong(
            format!("descriptors of 32 to {block_bytes} bytes"),
            descriptor_bytes,
        ));
    }
    let first = superblock.first_data_block;
    if first > 1 || superblock.blocks <= first {
        return Err(wrong(
            "a first data block of 0 or 1 and more blocks than that",
            format!("{first} and {}", superblock.blocks),
        ));
    }
    let there = superblock.blocks.min(length / block_bytes);
    if there / blocks_per_group >= GROUPS_MAX {
        return Err(wrong(
            format!("at most {GROUPS_MAX} groups"),
            there / blocks_per_group,
        ));
    }
    if superblock.has_ro_compat(ro_compat::METADATA_CSUM) && checksum_type != 1 {
        return Err(wrong("checksum type 1 (CRC-32C)", checksum_type));
    }
    Ok(())
}
