//! Nodes of the file system's structure: superblock, master, log, index, orphans. Byte tables:
//! `docs/formats/ubifs.md`.

use super::key::Key;
use super::layout::{get, node_layout};
use super::{Group, NodeDefect, NodeKind, seal};

node_layout! {
    /// The superblock: parameters fixed when the file system was made.
    Superblock, 4096 {
        /// Name hash: 0 is r5, 1 is the test hash.
        key_hash: u8 = 26,
        /// Key format; 0 (simple) is the only one.
        key_format: u8 = 27,
        /// [`SuperblockFlags`].
        flags: u32 = 28,
        /// Write unit, bytes.
        min_io_bytes: u32 = 32,
        /// Bytes of a LEB.
        leb_bytes: u32 = 36,
        /// LEBs in use.
        lebs: u32 = 40,
        /// Number of LEBs the file system may grow to.
        lebs_max: u32 = 44,
        /// Maximum size of the journal, bytes.
        journal_bytes_max: u64 = 48,
        /// LEBs of the log.
        log_lebs: u32 = 56,
        /// LEBs of the LPT.
        lpt_lebs: u32 = 60,
        /// LEBs of the orphan area.
        orphan_lebs: u32 = 64,
        /// Journal heads.
        journal_heads: u32 = 68,
        /// Maximum number of branches in an index node.
        fanout: u32 = 72,
        /// LEB numbers in the LPT's save table.
        saved_lebs: u32 = 76,
        /// Version of the format.
        version: u32 = 80,
        /// Default compressor.
        compression: u16 = 84,
        /// User allowed to use the reserved pool.
        reserve_user: u32 = 88,
        /// Group allowed to use the reserved pool.
        reserve_group: u32 = 92,
        /// Size of the reserved pool, bytes.
        reserve_bytes: u64 = 96,
        /// Timestamp granularity, ns.
        time_granularity_ns: u32 = 104,
        /// UUID.
        uuid: [u8; 16] = 108,
        /// Minimum format version that a reader must support.
        read_version: u32 = 124,
        /// Keyed hash of the superblock.
        hmac: [u8; 64] = 128,
        /// Keyed hash of a known text.
        hmac_of_known: [u8; 64] = 192,
        /// Hash algorithm of authenticated file systems.
        hash_algorithm: u16 = 256,
        /// Hash of the first master node.
        master_hash: [u8; 64] = 258,
    }
}

/// Flags of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperblockFlags(pub u32);

impl SuperblockFlags {
    /// The LPT uses the big model.
    pub const BIG_LPT: Self = Self(0x02);
    /// Free-space fixup: the first read-write mount has to erase the free space properly.
    pub const SPACE_FIXUP: Self = Self(0x04);
    /// Entries carry cookies. Linux sets this flag on file systems that it creates itself.
    pub const DOUBLE_HASH: Self = Self(0x08);
    /// Some files are encrypted.
    pub const ENCRYPTION: Self = Self(0x10);
    /// Nodes are authenticated by hashes.
    pub const AUTHENTICATION: Self = Self(0x20);

    /// Whether `flag` is set.
    #[must_use]
    pub const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}

/// The file system was not unmounted.
pub const MASTER_DIRTY: u32 = 1;
/// There are no orphans.
pub const MASTER_NO_ORPHANS: u32 = 2;
/// A recovery wrote this node.
pub const MASTER_RECOVERED: u32 = 4;

node_layout! {
    /// The master node: all locations as of the last commit.
    Master, 512 {
        /// Highest inode number.
        highest_inode: u64 = 24,
        /// Number of the last commit.
        commit: u64 = 32,
        /// `MASTER_*`.
        flags: u32 = 40,
        /// First LEB of the log.
        log_leb: u32 = 44,
        /// Root of the index: LEB.
        root_leb: u32 = 48,
        /// Root of the index: offset.
        root_offset: u32 = 52,
        /// Root of the index: bytes.
        root_bytes: u32 = 56,
        /// LEB reserved for garbage collection.
        gc_leb: u32 = 60,
        /// Index head (next index nodes): LEB.
        index_head_leb: u32 = 64,
        /// Index head: offset.
        index_head_offset: u32 = 68,
        /// Size of the index, bytes.
        index_bytes: u64 = 72,
        /// Free bytes.
        free_bytes: u64 = 80,
        /// Dirty bytes.
        dirty_bytes: u64 = 88,
        /// Used bytes.
        used_bytes: u64 = 96,
        /// Dead bytes: free or dirty space too small for any node.
        dead_bytes: u64 = 104,
        /// Dark bytes: space that may be too small for the next node.
        dark_bytes: u64 = 112,
        /// Root of the LPT: LEB.
        lpt_leb: u32 = 120,
        /// Root of the LPT: offset.
        lpt_offset: u32 = 124,
        /// LPT head (next LPT nodes): LEB.
        lpt_head_leb: u32 = 128,
        /// LPT head: offset.
        lpt_head_offset: u32 = 132,
        /// LPT's LEB table (ltab): LEB.
        ltab_leb: u32 = 136,
        /// LPT's LEB table (ltab): offset.
        ltab_offset: u32 = 140,
        /// LPT's save table (lsave): LEB.
        lsave_leb: u32 = 144,
        /// LPT's save table (lsave): offset.
        lsave_offset: u32 = 148,
        /// LEB at which the last scan for space stopped.
        scanned_leb: u32 = 152,
        /// Empty LEBs.
        empty_lebs: u32 = 156,
        /// LEBs of the index.
        index_lebs: u32 = 160,
        /// LEBs in use.
        lebs: u32 = 164,
        /// Hash of the root of the index.
        root_hash: [u8; 64] = 168,
        /// Hash of the LPT.
        lpt_hash: [u8; 64] = 232,
        /// Keyed hash of this node.
        hmac: [u8; 64] = 296,
    }
}

node_layout! {
    /// A reference of the log to a bud: a LEB of the journal.
    LogReference, 64 {
        /// The bud's LEB.
        leb: u32 = 24,
        /// Offset at which the bud starts.
        offset: u32 = 28,
        /// Journal head: 0 garbage collection, 1 base, 2 data.
        head: u32 = 32,
    }
}

node_layout! {
    /// The start of a commit.
    CommitStart, 32 {
        /// Number of the commit.
        commit: u64 = 24,
    }
}

/// Flag in [`Orphans::commit`] that marks the last orphan node of a commit.
pub const COMMIT_LAST_FLAG: u64 = 1 << 63;

node_layout! {
    /// Orphans: unlinked inodes that were open.
    Orphans, 32 {
        /// Commit number, with [`COMMIT_LAST_FLAG`].
        commit: u64 = 24,
    }
    then {
        /// Inode numbers.
        inodes: Vec<u64>,
    }
}

/// A branch of an index node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexBranch {
    /// LEB of the child node.
    pub leb: u32,
    /// Offset of the child node.
    pub offset: u32,
    /// Length of the child node, bytes.
    pub bytes: u32,
    /// The smallest key below it.
    pub key: Key,
    /// Hash of the child node, on authenticated file systems.
    pub hash: Vec<u8>,
}

/// An index node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexNode {
    /// 0: branches point to leaf nodes (inodes, blocks, names); otherwise to index nodes one level below.
    pub level: u16,
    /// Branches, sorted by key.
    pub branches: Vec<IndexBranch>,
}

const fn field(kind: NodeKind, why: &'static str) -> NodeDefect {
    NodeDefect::Field { kind, why }
}

macro_rules! fixed_node {
    ($name:ident, $kind:expr) => {
        impl $name {
            /// Decodes a node that passed [`super::check`].
            pub fn decode(raw: &[u8]) -> Result<Self, NodeDefect> {
                Self::fields_of(raw).ok_or(field($kind, "it is too short"))
            }

            /// Encodes the node with its header.
            #[must_use]
            pub fn encode(&self, sequence: u64) -> Vec<u8> {
                let mut raw = self.put_fields();
                seal(&mut raw, $kind, Group::None, sequence);
                raw
            }
        }
    };
}

fixed_node!(Superblock, NodeKind::Superblock);
fixed_node!(Master, NodeKind::Master);
fixed_node!(LogReference, NodeKind::Reference);
fixed_node!(CommitStart, NodeKind::CommitStart);

impl Master {
    /// A master node with all fields zero.
    pub(crate) const fn unknown() -> Self {
        Self {
            highest_inode: 0,
            commit: 0,
            flags: 0,
            log_leb: 0,
            root_leb: 0,
            root_offset: 0,
            root_bytes: 0,
            gc_leb: 0,
            index_head_leb: 0,
            index_head_offset: 0,
            index_bytes: 0,
            free_bytes: 0,
            dirty_bytes: 0,
            used_bytes: 0,
            dead_bytes: 0,
            dark_bytes: 0,
            lpt_leb: 0,
            lpt_offset: 0,
            lpt_head_leb: 0,
            lpt_head_offset: 0,
            ltab_leb: 0,
            ltab_offset: 0,
            lsave_leb: 0,
            lsave_offset: 0,
            scanned_leb: 0,
            empty_lebs: 0,
            index_lebs: 0,
            lebs: 0,
            root_hash: [0; 64],
            lpt_hash: [0; 64],
            hmac: [0; 64],
        }
    }
}

impl Orphans {
    /// Decodes a node that passed [`super::check`]; `raw` is exactly one node.
    pub fn decode(raw: &[u8]) -> Result<Self, NodeDefect> {
        let numbers = raw.get(Self::BYTES..).unwrap_or_default().as_chunks::<8>().0;
        let inodes = numbers.iter().map(|raw| u64::from_le_bytes(*raw)).collect();
        Self::fields_of(raw, inodes).ok_or(field(NodeKind::Orphans, "it is too short"))
    }

    /// Encodes the node with its header.
    #[must_use]
    pub fn encode(&self, sequence: u64) -> Vec<u8> {
        let mut raw = self.put_fields();
        for inode in &self.inodes {
            raw.extend_from_slice(&inode.to_le_bytes());
        }
        seal(&mut raw, NodeKind::Orphans, Group::None, sequence);
        raw
    }
}

impl IndexNode {
    /// Bytes before the first branch.
    pub const BYTES: usize = 28;
    /// Bytes of a branch without a hash.
    pub const BRANCH_BYTES: usize = 20;

    /// Length of the node in bytes, without hashes.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        let bytes = Self::BYTES + self.branches.len() * Self::BRANCH_BYTES;
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Decodes a node that passed [`super::check`]; `raw` is exactly one node. The hash length follows from the
    /// node's length.
    pub fn decode(raw: &[u8]) -> Result<Self, NodeDefect> {
        let defect = |why| field(NodeKind::Index, why);
        let short = defect("it is too short");
        let count = usize::from(get::<u16>(raw, 24).ok_or(short)?);
        let level = get(raw, 26).ok_or(short)?;
        let body = raw.get(Self::BYTES..).ok_or(short)?;
        if count == 0 {
            return Err(defect("it has no branch"));
        }
        let each = body.len() / count;
        if !body.len().is_multiple_of(count) || each < Self::BRANCH_BYTES {
            return Err(defect("its length does not fit the number of its branches"));
        }
        let branches: Option<Vec<_>> = body.chunks_exact(each).map(branch).collect();
        let branches = branches.ok_or(short)?;
        if branches.windows(2).any(|pair| pair[0].key > pair[1].key) {
            return Err(defect("its keys are not in order"));
        }
        Ok(Self { level, branches })
    }

    /// Encodes the node with its header.
    ///
    /// # Panics
    ///
    /// When there are more than 65535 branches.
    #[must_use]
    pub fn encode(&self, sequence: u64) -> Vec<u8> {
        use super::layout::Field;
        let mut raw = vec![0; Self::BYTES];
        let count = u16::try_from(self.branches.len()).expect("an index node has few branches");
        count.store(&mut raw[24..26]);
        self.level.store(&mut raw[26..28]);
        for branch in &self.branches {
            for number in [branch.leb, branch.offset, branch.bytes] {
                raw.extend_from_slice(&number.to_le_bytes());
            }
            let at = raw.len();
            raw.resize(at + Key::BRANCH_BYTES, 0);
            branch.key.store(&mut raw[at..]);
            raw.extend_from_slice(&branch.hash);
        }
        seal(&mut raw, NodeKind::Index, Group::None, sequence);
        raw
    }
}

fn branch(raw: &[u8]) -> Option<IndexBranch> {
    Some(IndexBranch {
        leb: get(raw, 0)?,
        offset: get(raw, 4)?,
        bytes: get(raw, 8)?,
        key: get(raw, 12)?,
        hash: raw.get(IndexNode::BRANCH_BYTES..)?.to_vec(),
    })
}
