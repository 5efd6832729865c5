//! File content and attributes. A write emits its blocks one by one and the inode last; a small synchronous write
//! puts blocks and inode into one group.

use super::buffers::HeadKind;
use super::held::OrphanChange;
use super::journal::NewNode;
use super::names::touch;
use super::{WriteError, Writer};
use crate::format::{
    BLOCK_BYTES, Compression, Data, EntryKind, INODE_COMPRESS, Inode, InodeNumber, Key, NodeKind, Truncation,
};
use crate::mkfs::Time;
use crate::scan::to_usize;

/// Maximum size of a data node: an uncompressed block.
const DATA_NODE_BYTES: u32 = NodeKind::Data.length_range().0 + BLOCK_BYTES;
/// Size of the inode node of a regular file.
const FILE_INODE_BYTES: u32 = NodeKind::Inode.length_range().0;
/// Maximum size of a group for a synchronous write: covers up to four blocks at any offset, and the inode.
const GROUP_BYTES_MAX: u32 = 5 * DATA_NODE_BYTES + FILE_INODE_BYTES;

impl Writer {
    /// Writes content at an offset. Returns the number of bytes written, at least one, which is less than asked if
    /// space runs out. Durable after [`Writer::fsync`].
    pub fn write(
        &mut self,
        inode: InodeNumber,
        offset: u64,
        content: &[u8],
        now: Time,
    ) -> Result<usize, WriteError> {
        self.check_usable()?;
        let mut file = self.regular(inode)?;
        touch(&mut file, now, true);
        // Reserve space for the inode first: blocks without it would be lost.
        let room = self
            .make_room_for(HeadKind::Base, FILE_INODE_BYTES, self.growth())
            .and_then(|()| self.reserve(HeadKind::Base, FILE_INODE_BYTES));
        self.guard(room)?;
        let mut done = 0;
        let mut stopped = None;
        for (at, in_block, part) in blocks_of(offset, content) {
            let result = self.write_part(&mut file, at, in_block, part);
            if let Err(error) = self.guard(result) {
                stopped = Some(error);
                break;
            }
            done += part.len();
            file.size_bytes = file.size_bytes.max(end_of(at, part));
            self.unwritten_inode = Some(file.clone());
        }
        self.unwritten_inode = None;
        match stopped {
            Some(error) if done == 0 => Err(error),
            Some(error @ (WriteError::Volume(_) | WriteError::Damaged { .. })) => Err(error),
            // The blocks written so far are kept.
            _ => {
                let result = self.write_group(&[NewNode::Inode(file)]);
                // Blocks behind the end of the file would become visible when it grows; after a mount they would
                // extend it.
                let result = result.map_err(|error| self.fatal(error));
                self.guard(result)?;
                Ok(done)
            }
        }
    }

    /// Like [`Writer::write`], but durable on return. A small write is one group with its inode: it survives a power cut
    /// entirely or not at all, and the inode needs no separate write.
    pub fn write_synced(
        &mut self,
        inode: InodeNumber,
        offset: u64,
        content: &[u8],
        now: Time,
    ) -> Result<usize, WriteError> {
        self.check_usable()?;
        let group_max = GROUP_BYTES_MAX.min(self.ubifs.superblock.leb_bytes / 4);
        let blocks = u32::try_from(blocks_of(offset, content).count()).unwrap_or(u32::MAX);
        let bytes = blocks
            .saturating_mul(DATA_NODE_BYTES)
            .saturating_add(FILE_INODE_BYTES);
        let grouped = (bytes <= group_max).then(|| self.write_group_of(inode, offset, content, now));
        let written = match grouped {
            Some(Ok(())) => content.len(),
            // A partial write may fit.
            None | Some(Err(WriteError::NoSpace { .. })) => self.write(inode, offset, content, now)?,
            Some(Err(error)) => return Err(error),
        };
        self.fsync()?;
        Ok(written)
    }

    fn write_group_of(
        &mut self,
        inode: InodeNumber,
        offset: u64,
        content: &[u8],
        now: Time,
    ) -> Result<(), WriteError> {
        let mut file = self.regular(inode)?;
        touch(&mut file, now, true);
        let mut nodes = Vec::new();
        for (at, in_block, part) in blocks_of(offset, content) {
            nodes.push(NewNode::Data(self.changed_block(&file, at, in_block, part)?));
            file.size_bytes = file.size_bytes.max(end_of(at, part));
        }
        nodes.push(NewNode::Inode(file));
        self.operation(&nodes)
    }

    fn write_part(
        &mut self,
        file: &mut Inode,
        at: u64,
        in_block: usize,
        part: &[u8],
    ) -> Result<(), WriteError> {
        let data = self.changed_block(file, at, in_block, part)?;
        self.make_room_for(HeadKind::Data, DATA_NODE_BYTES, self.growth())?;
        self.write_block(data)
    }

    /// A block with part of it replaced.
    fn changed_block(
        &mut self,
        file: &Inode,
        at: u64,
        in_block: usize,
        part: &[u8],
    ) -> Result<Data, WriteError> {
        let number = block_number(at)?;
        let start = u64::from(number) * u64::from(BLOCK_BYTES);
        let ends_inside = start + u64::try_from(part.len()).unwrap_or(0) < file.size_bytes;
        if part.len() == to_usize(BLOCK_BYTES) || in_block == 0 && !ends_inside {
            return Ok(self.block(file, number, part));
        }
        let mut whole = vec![0; to_usize(BLOCK_BYTES)];
        let known = self.ubifs.read(file, start, &mut whole)?;
        whole.truncate(known.max(in_block + part.len()));
        whole[in_block..in_block + part.len()].copy_from_slice(part);
        Ok(self.block(file, number, &whole))
    }

    fn block(&mut self, file: &Inode, number: u32, block: &[u8]) -> Data {
        let (compression, stored) = match file.flags & INODE_COMPRESS {
            0 => (Compression::None, block.to_vec()),
            _ => self.packer.pack(block),
        };
        Data {
            key: Key::data(file.key.inode_number(), number),
            size_bytes: u32::try_from(block.len()).expect("at most a block"),
            compression: compression.number(),
            compressed_bytes: 0,
            stored,
        }
    }

    /// Truncates or extends a file.
    pub fn truncate(&mut self, inode: InodeNumber, bytes: u64, now: Time) -> Result<(), WriteError> {
        let mut file = self.regular(inode)?;
        let old_bytes = file.size_bytes;
        let in_block = to_usize(u32::try_from(bytes % u64::from(BLOCK_BYTES)).expect("less than a block"));
        // A file of the maximum size has no block behind its end.
        let number = if in_block > 0 { block_number(bytes)? } else { 0 };
        let mut last = None;
        if bytes < old_bytes && in_block > 0 && self.plain_place(Key::data(inode, number))?.is_some() {
            let mut block = vec![0; in_block];
            self.ubifs
                .read(&file, u64::from(number) * u64::from(BLOCK_BYTES), &mut block)?;
            last = Some(self.block(&file, number, &block));
        }
        file.size_bytes = bytes;
        touch(&mut file, now, true);
        let mut nodes = vec![NewNode::Inode(file)];
        if bytes >= old_bytes {
            return self.operation(&nodes);
        }
        nodes.push(NewNode::Truncation(Truncation {
            inode: inode.0,
            old_bytes,
            new_bytes: bytes,
        }));
        nodes.extend(last.map(NewNode::Data));
        self.removal_operation(&nodes, OrphanChange::None)
    }

    /// Changes attributes: `change` modifies the inode.
    pub fn set_attributes(
        &mut self,
        inode: InodeNumber,
        change: &dyn Fn(&mut Inode),
    ) -> Result<(), WriteError> {
        let mut file = self.ubifs.inode(inode)?;
        let before = file.clone();
        change(&mut file);
        let fixed = |inode: &Inode| {
            (
                inode.key,
                inode.size_bytes,
                inode.links,
                inode.mode >> 12,
                inode.data.clone(),
            )
        };
        if fixed(&before) != fixed(&file) {
            return Err(WriteError::Invalid("these attributes follow from the content"));
        }
        self.operation(&[NewNode::Inode(file)])
    }

    fn regular(&self, inode: InodeNumber) -> Result<Inode, WriteError> {
        let found = self.ubifs.inode(inode)?;
        match found.kind() {
            Some(EntryKind::File) => Ok(found),
            Some(EntryKind::Directory) => Err(WriteError::IsDirectory { inode }),
            _ => Err(WriteError::Invalid("the file has no content")),
        }
    }
}

/// Splits content at block boundaries: yields the offset in the file, the offset in the block, and the data of each
/// part.
fn blocks_of(offset: u64, content: &[u8]) -> impl Iterator<Item = (u64, usize, &[u8])> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let rest = content.get(done..).filter(|rest| !rest.is_empty())?;
        let at = offset + u64::try_from(done).expect("fits into memory");
        let in_block = to_usize(u32::try_from(at % u64::from(BLOCK_BYTES)).expect("less than a block"));
        let part = &rest[..rest.len().min(to_usize(BLOCK_BYTES) - in_block)];
        done += part.len();
        Some((at, in_block, part))
    })
}

fn end_of(at: u64, part: &[u8]) -> u64 {
    at + u64::try_from(part.len()).expect("less than a block")
}

/// The number of the block that contains a byte.
fn block_number(byte: u64) -> Result<u32, WriteError> {
    u32::try_from(byte / u64::from(BLOCK_BYTES))
        .ok()
        .filter(|number| *number <= Key::LOW_MAX)
        .ok_or(WriteError::FileBytes { asked: byte })
}
