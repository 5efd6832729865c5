//! Nodes that hold the file system together: superblock, master, log, index, orphans. Tables of their bytes:
//! `docs/formats/ubifs.md`.

use super::key::Key;
use super::layout::{get, node_layout};
use super::{Group, NodeDefect, NodeKind, seal};

node_layout! {
    /// The superblock: what does not change.
    Superblock, 4096 {
        /// Hash of names: 0 is r5, 1 is for tests.
        key_hash: u8 = 26,
        /// Form of keys: 0, the simple one.
        key_format: u8 = 27,
        /// [`SuperblockFlags`].
        flags: u32 = 28,
        /// Write unit, bytes.
        min_io_bytes: u32 = 32,
        /// Bytes of a LEB.
        leb_bytes: u32 = 36,
        /// LEBs in use.
        lebs: u32 = 40,
        /// LEBs that it may grow to.
        lebs_max: u32 = 44,
        /// Bytes of the journal, at most.
        journal_bytes_max: u64 = 48,
        /// LEBs of the log.
        log_lebs: u32 = 56,
        /// LEBs of the LPT.
        lpt_lebs: u32 = 60,
        /// LEBs of the orphan area.
        orphan_lebs: u32 = 64,
        /// Journal heads.
        journal_heads: u32 = 68,
        /// Branches of an index node, at most.
        fanout: u32 = 72,
        /// LEB numbers in the LPT's save table.
        saved_lebs: u32 = 76,
        /// Version of the format.
        version: u32 = 80,
        /// Compressor of files that say nothing else.
        compression: u16 = 84,
        /// User who may use the reserve.
        reserve_user: u32 = 88,
        /// Group that may use the reserve.
        reserve_group: u32 = 92,
        /// Reserve, bytes.
        reserve_bytes: u64 = 96,
        /// Granularity of times, ns.
        time_granularity_ns: u32 = 104,
        /// Identity.
        uuid: [u8; 16] = 108,
        /// A reader of at least this version can read it.
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
    /// The LPT is of the big model.
    pub const BIG_LPT: Self = Self(0x02);
    /// Free space is to be made really free at the first mount for writing.
    pub const SPACE_FIXUP: Self = Self(0x04);
    /// Entries carry cookies: Linux sets it in file systems that it makes itself.
    pub const DOUBLE_HASH: Self = Self(0x08);
    /// Some files are encrypted.
    pub const ENCRYPTION: Self = Self(0x10);
    /// Nodes are authenticated by hashes.
    pub const AUTHENTICATION: Self = Self(0x20);

    /// Whether a flag is there.
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
    /// The master node: where everything is after the last commit.
    Master, 512 {
        /// Largest inode number.
        highest_inode: u64 = 24,
        /// Number of the last commit.
        commit: u64 = 32,
        /// `MASTER_*`.
        flags: u32 = 40,
        /// Where the log starts.
        log_leb: u32 = 44,
        /// Root of the index: LEB.
        root_leb: u32 = 48,
        /// Root of the index: offset.
        root_offset: u32 = 52,
        /// Root of the index: bytes.
        root_bytes: u32 = 56,
        /// LEB that garbage collection keeps for itself.
        gc_leb: u32 = 60,
        /// Where the next index nodes go: LEB.
        index_head_leb: u32 = 64,
        /// Where the next index nodes go: offset.
        index_head_offset: u32 = 68,
        /// Bytes of the index.
        index_bytes: u64 = 72,
        /// Free bytes.
        free_bytes: u64 = 80,
        /// Dirty bytes.
        dirty_bytes: u64 = 88,
        /// Used bytes.
        used_bytes: u64 = 96,
        /// Dead bytes: too few in one place for any node.
        dead_bytes: u64 = 104,
        /// Dark bytes: too few in one place for any node.
        dark_bytes: u64 = 112,
        /// Root of the LPT: LEB.
        lpt_leb: u32 = 120,
        /// Root of the LPT: offset.
        lpt_offset: u32 = 124,
        /// Where the next LPT nodes go: LEB.
        lpt_head_leb: u32 = 128,
        /// Where the next LPT nodes go: offset.
        lpt_head_offset: u32 = 132,
        /// The LPT's own table: LEB.
        ltab_leb: u32 = 136,
        /// The LPT's own table: offset.
        ltab_offset: u32 = 140,
        /// The LPT's save table: LEB.
        lsave_leb: u32 = 144,
        /// The LPT's save table: offset.
        lsave_offset: u32 = 148,
        /// Last LEB that was looked at for space.
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
        /// Where the bud starts in it.
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

/// In [`Orphans::commit`]: the last node of a commit.
pub const COMMIT_LAST_FLAG: u64 = 1 << 63;

node_layout! {
    /// Inodes without a name that were open.
    Orphans, 32 {
        /// Number of the commit, and [`COMMIT_LAST_FLAG`].
        commit: u64 = 24,
    }
    then {
        /// Their numbers.
        inodes: Vec<u64>,
    }
}

/// A branch of an index node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexBranch {
    /// Where the node is: LEB.
    pub leb: u32,
    /// Where the node is: offset.
    pub offset: u32,
    /// Bytes of the node.
    pub bytes: u32,
    /// The smallest key below it.
    pub key: Key,
    /// On authenticated file systems, the hash of the node.
    pub hash: Vec<u8>,
}

/// A node of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexNode {
    /// 0: branches lead to nodes of files; otherwise to index nodes of the level below.
    pub level: u16,
    /// In the order of their keys.
    pub branches: Vec<IndexBranch>,
}

const fn field(kind: NodeKind, why: &'static str) -> NodeDefect {
    NodeDefect::Field { kind, why }
}

macro_rules! fixed_node {
    ($name:ident, $kind:expr) => {
        impl $name {
            /// From a node that [`super::check`] vouched for.
            pub fn decode(raw: &[u8]) -> Result<Self, NodeDefect> {
                Self::fields_of(raw).ok_or(field($kind, "it is too short"))
            }

            /// To a node.
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

impl Orphans {
    /// From a node that [`super::check`] vouched for; `raw` is all of it.
    pub fn decode(raw: &[u8]) -> Result<Self, NodeDefect> {
        let numbers = raw.get(Self::BYTES..).unwrap_or_default().as_chunks::<8>().0;
        let inodes = numbers.iter().map(|raw| u64::from_le_bytes(*raw)).collect();
        Self::fields_of(raw, inodes).ok_or(field(NodeKind::Orphans, "it is too short"))
    }

    /// To a node.
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

    /// Bytes of the node, without hashes.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        let bytes = Self::BYTES + self.branches.len() * Self::BRANCH_BYTES;
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// From a node that [`super::check`] vouched for; `raw` is all of it. How long the hashes are follows from its length.
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

    /// To a node.
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
