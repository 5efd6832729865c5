//! The content of files and their attributes. The blocks of a write come one by one, and its inode after them.

use super::buffers::HeadKind;
use super::journal::NewNode;
use super::names::touch;
use super::{WriteError, Writer};
use crate::format::{
    BLOCK_BYTES, Compression, Data, EntryKind, INODE_COMPRESS, Inode, InodeNumber, Key, Truncation,
};
use crate::mkfs::Time;
use crate::scan::to_usize;

/// The largest data node: a block as it is, behind the fixed part.
const DATA_NODE_BYTES: u32 = 48 + BLOCK_BYTES;
/// The inode of a file.
const FILE_INODE_BYTES: u32 = 160;

impl Writer {
    /// Writes content at an offset; returns how many bytes there was room for, of which there is at least one. It is safe once
    /// [`Writer::fsync`] returned.
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
        // Room for the inode first: blocks without it would be lost.
        let room = self
            .make_room_for(HeadKind::Base, FILE_INODE_BYTES, self.growth())
            .and_then(|()| self.reserve(HeadKind::Base, FILE_INODE_BYTES));
        self.guard(room)?;
        let mut done = 0;
        let mut stopped = None;
        while done < content.len() {
            let at = offset + u64::try_from(done).expect("fits into memory");
            let in_block = to_usize(u32::try_from(at % u64::from(BLOCK_BYTES)).expect("less than a block"));
            let rest = &content[done..];
            let part = &rest[..rest.len().min(to_usize(BLOCK_BYTES) - in_block)];
            let result = self.write_part(&mut file, at, in_block, part);
            if let Err(error) = self.guard(result) {
                stopped = Some(error);
                break;
            }
            done += part.len();
            let end = at + u64::try_from(part.len()).expect("less than a block");
            file.size_bytes = file.size_bytes.max(end);
        }
        match stopped {
            Some(error) if done == 0 => Err(error),
            Some(error @ (WriteError::Volume(_) | WriteError::Damaged { .. })) => Err(error),
            // What was written so far counts.
            _ => {
                let result = self.write_group(&[NewNode::Inode(file)]);
                self.guard(result)?;
                Ok(done)
            }
        }
    }

    fn write_part(
        &mut self,
        file: &mut Inode,
        at: u64,
        in_block: usize,
        part: &[u8],
    ) -> Result<(), WriteError> {
        let number = block_number(at)?;
        let start = u64::from(number) * u64::from(BLOCK_BYTES);
        let mut block = part.to_vec();
        if in_block > 0 || start + u64::try_from(part.len()).unwrap_or(0) < file.size_bytes {
            let mut whole = vec![0; to_usize(BLOCK_BYTES)];
            let known = self.ubifs.read(file, start, &mut whole)?;
            whole.truncate(known.max(in_block + part.len()));
            whole[in_block..in_block + part.len()].copy_from_slice(part);
            block = whole;
        }
        self.make_room_for(HeadKind::Data, DATA_NODE_BYTES, self.growth())?;
        let data = self.block(file, number, &block);
        self.write_block(data)
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

    /// Makes a file shorter or longer.
    pub fn truncate(&mut self, inode: InodeNumber, bytes: u64, now: Time) -> Result<(), WriteError> {
        let mut file = self.regular(inode)?;
        let old_bytes = file.size_bytes;
        let in_block = to_usize(u32::try_from(bytes % u64::from(BLOCK_BYTES)).expect("less than a block"));
        // A file of the largest size has no block behind it.
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
        self.removal_operation(&nodes)
    }

    /// Changes attributes: `change` gets the inode.
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

/// The block that a byte is in.
fn block_number(byte: u64) -> Result<u32, WriteError> {
    u32::try_from(byte / u64::from(BLOCK_BYTES))
        .ok()
        .filter(|number| *number <= Key::LOW_MAX)
        .ok_or(WriteError::FileBytes { asked: byte })
}
