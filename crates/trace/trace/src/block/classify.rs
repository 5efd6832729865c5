//! Determines the type of a block from the programs' information about its owner.

use results::block_trace::{BlockType, IoMode, Operation};

use super::record::{RunPart, run_flag, run_kind};

const FORMAT_BITS: u16 = 0xF000;
const DIRECTORY: u16 = 0x4000;
const SYMLINK: u16 = 0xA000;
const REGULAR: u16 = 0x8000;

const EXT4_MAGIC: u32 = 0xEF53;
const F2FS_MAGIC: u32 = 0xF2F5_2010;
const NILFS_MAGIC: u32 = 0x3434;
const BTRFS_MAGIC: u32 = 0x9123_683E;

/// The type of block, and the file system's own term if it is finer.
pub(crate) fn block_type(part: &RunPart) -> (BlockType, Option<String>) {
    match part.kind {
        run_kind::PAGES | run_kind::DIRECT | run_kind::BTRFS => file_block(part),
        run_kind::METADATA => (content(part.flags).unwrap_or(BlockType::Metadata), None),
        run_kind::JOURNAL | run_kind::JOURNAL_PLACE => (BlockType::Journal, None),
        run_kind::JOURNAL_CONTROL => (BlockType::JournalControl, None),
        run_kind::FAST_COMMIT => (BlockType::FastCommit, None),
        run_kind::XFS_BUFFER => {
            let name = xfs_name(part);
            (xfs_type(&name), (!name.is_empty()).then_some(name))
        }
        run_kind::XFS_LOG => (BlockType::Log, None),
        run_kind::SUPERBLOCK => (BlockType::Superblock, None),
        run_kind::RAW => (BlockType::Raw, None),
        run_kind::SWAP => (BlockType::Swap, None),
        _ => (BlockType::Unknown, None),
    }
}

/// The type of an ext4 metadata block, by its content.
pub(crate) fn content(flags: u8) -> Option<BlockType> {
    if flags & run_flag::EXTENTS != 0 {
        Some(BlockType::ExtentTree)
    } else if flags & run_flag::XATTR != 0 {
        Some(BlockType::Xattr)
    } else if flags & run_flag::DIRECTORY != 0 {
        Some(BlockType::Directory)
    } else if flags & run_flag::JOURNAL_BLOCK != 0 {
        Some(BlockType::JournalControl)
    } else {
        None
    }
}

fn file_block(part: &RunPart) -> (BlockType, Option<String>) {
    let special = |block_type, word: &str| (block_type, Some(word.to_owned()));
    match (part.magic, part.inode) {
        (F2FS_MAGIC, 1) => return (BlockType::Node, None),
        (F2FS_MAGIC, 2) => return (BlockType::Checkpoint, None),
        (NILFS_MAGIC, 3) => return special(BlockType::Metadata, "dat"),
        (NILFS_MAGIC, 4) => return special(BlockType::Checkpoint, "cpfile"),
        (NILFS_MAGIC, 5) => return special(BlockType::Metadata, "sufile"),
        (NILFS_MAGIC, 6) => return special(BlockType::InodeTable, "ifile"),
        (NILFS_MAGIC, inode) if inode > 10 && part.generation == 0 => return (BlockType::TreeNode, None),
        (BTRFS_MAGIC, 1) => return (BlockType::TreeNode, None),
        (EXT4_MAGIC, 3 | 4) => return (BlockType::Quota, None),
        _ => {}
    }
    let block_type = match part.mode & FORMAT_BITS {
        REGULAR => BlockType::Data,
        DIRECTORY => BlockType::Directory,
        SYMLINK => BlockType::Symlink,
        _ => BlockType::Metadata,
    };
    (block_type, None)
}

/// The name of an XFS buffer's operations, stored in the fields that other runs use for home and entry.
fn xfs_name(part: &RunPart) -> String {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&part.home.to_ne_bytes());
    bytes[8..].copy_from_slice(&part.dentry.to_ne_bytes());
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn xfs_type(name: &str) -> BlockType {
    let word = name.strip_prefix("xfs_").unwrap_or(name);
    match word {
        "sb" | "sb_quiet" | "rtsb" => BlockType::Superblock,
        "agf" | "agi" | "agfl" => BlockType::AllocationGroup,
        "inode" | "inode_ra" => BlockType::InodeTable,
        "bmbt" => BlockType::ExtentTree,
        "symlink" => BlockType::Symlink,
        _ if word.starts_with("dir3") || word.starts_with("da3") => BlockType::Directory,
        _ if word.starts_with("attr3") => BlockType::Xattr,
        _ if word.starts_with("dquot") => BlockType::Quota,
        _ if word.ends_with("bt") => BlockType::TreeNode,
        _ => BlockType::Metadata,
    }
}

/// The I/O mode of the data.
pub(crate) fn mode(part: &RunPart, operation: Operation, by_kernel: bool) -> IoMode {
    match part.kind {
        run_kind::DIRECT | run_kind::RAW => IoMode::Direct,
        run_kind::JOURNAL
        | run_kind::JOURNAL_PLACE
        | run_kind::JOURNAL_CONTROL
        | run_kind::FAST_COMMIT
        | run_kind::XFS_LOG => IoMode::Journal,
        run_kind::METADATA | run_kind::XFS_BUFFER | run_kind::SUPERBLOCK => IoMode::Metadata,
        run_kind::SWAP => IoMode::Swap,
        run_kind::PAGES | run_kind::BTRFS => match (file_block(part).0, operation) {
            (BlockType::Data | BlockType::Directory | BlockType::Symlink, Operation::Read) => {
                IoMode::CachedRead
            }
            (BlockType::Data | BlockType::Directory | BlockType::Symlink, _) if by_kernel => {
                IoMode::Writeback
            }
            (BlockType::Data | BlockType::Directory | BlockType::Symlink, _) => IoMode::Synchronous,
            _ => IoMode::Metadata,
        },
        _ => IoMode::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    fn xfs(name: &str) -> RunPart {
        let mut bytes = [0; 16];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        RunPart {
            kind: run_kind::XFS_BUFFER,
            home: u64::from_ne_bytes(bytes[..8].try_into().unwrap()),
            dentry: u64::from_ne_bytes(bytes[8..].try_into().unwrap()),
            ..RunPart::new_zeroed()
        }
    }

    #[test]
    fn xfs_tells_by_the_name_of_a_buffers_operations() {
        for (name, expected) in [
            ("xfs_agfl", BlockType::AllocationGroup),
            ("xfs_inode", BlockType::InodeTable),
            ("xfs_cntbt", BlockType::TreeNode),
            ("xfs_dir3_block", BlockType::Directory),
            ("xfs_attr3_leaf", BlockType::Xattr),
            ("xfs_bmbt", BlockType::ExtentTree),
        ] {
            assert_eq!(block_type(&xfs(name)), (expected, Some(name.to_owned())));
        }
    }

    #[test]
    fn special_files_of_a_file_system_are_its_metadata() {
        let part = |magic, inode| RunPart {
            kind: run_kind::PAGES,
            magic,
            inode,
            mode: REGULAR,
            generation: 7,
            ..RunPart::new_zeroed()
        };
        assert_eq!(block_type(&part(F2FS_MAGIC, 1)).0, BlockType::Node);
        assert_eq!(block_type(&part(BTRFS_MAGIC, 1)).0, BlockType::TreeNode);
        assert_eq!(block_type(&part(BTRFS_MAGIC, 257)).0, BlockType::Data);
        assert_eq!(block_type(&part(NILFS_MAGIC, 5)).1.as_deref(), Some("sufile"));
    }
}
