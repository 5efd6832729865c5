//! Reads file contents: blocks and holes.
//!
//! A read fetches all its nodes in one request and decompresses each directly into the caller's buffer.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use crate::decompress::{DecompressError, Decompressor};
use crate::encryption::FileKey;
use crate::fetch;
use crate::file_system::{Ubifs, UbifsError};
use crate::finding::{Damage, Finding, Place, Subject};
use crate::format::{BLOCK_BYTES, Compression, Data, Inode, InodeNumber, Key, KeyKind, NodeKind};
use crate::scan::to_usize;

/// Maximum number of blocks per request: 1 MiB of a file.
const REQUEST_BLOCKS: usize = 256;
/// Maximum number of pooled workspaces; roughly the number of concurrent readers.
const WORKSPACES: usize = 16;

impl Ubifs {
    /// Reads a file from `offset` on; holes read as zeros. Returns the number of bytes up to the end of the file.
    pub fn read(&self, file: &Inode, offset: u64, out: &mut [u8]) -> Result<usize, UbifsError> {
        let mut lost = Vec::new();
        let bytes = self.read_lossy(file, offset, out, &mut lost);
        // The requested bytes were read.
        lost.retain(|finding| !matches!(finding.damage, Damage::BeyondSize { .. }));
        self.strict(lost)?;
        Ok(bytes)
    }

    /// Like [`Ubifs::read`], but unreadable blocks read as zeros and are added to `lost`, and so is a block that goes on
    /// behind the end of the file: the size is wrong then.
    pub fn read_lossy(&self, file: &Inode, offset: u64, out: &mut [u8], lost: &mut Vec<Finding>) -> usize {
        let rest = file.size_bytes.saturating_sub(offset);
        let bytes = usize::try_from(rest).unwrap_or(usize::MAX).min(out.len());
        let out = &mut out[..bytes];
        let Some(last_byte) = u64::try_from(bytes)
            .ok()
            .filter(|bytes| *bytes > 0)
            .map(|bytes| offset + bytes - 1)
        else {
            return 0;
        };
        let number = file.key.inode_number();
        let (first, last) = (block_of(offset), block_of(last_byte));
        let found = self.places(Key::data(number, first), Key::data(number, last), lost);
        let file_key = match (self.file_key(file), found.first()) {
            (Ok(key), _) => key,
            (Err(locked), Some((_, place))) => {
                lost.push(Finding {
                    inode: Some(number),
                    subject: Subject::Encrypted,
                    place: *place,
                    damage: locked.into(),
                });
                out.fill(0);
                return bytes;
            }
            // No blocks, so no key is needed.
            (Err(_), None) => None,
        };
        let mut workspace = self.workspace();
        let Workspace { nodes, unpacker } = &mut *workspace;
        let file_key = file_key.as_deref();
        let mut window = Window {
            offset,
            out,
            filled: 0,
        };
        for request in found.chunks(REQUEST_BLOCKS) {
            let places: Vec<Place> = request.iter().map(|(_, place)| *place).collect();
            let mut take = |number_in_request: usize, raw: Result<&[u8], Damage>| {
                let (key, place) = request[number_in_request];
                let unpacked = raw.and_then(|raw| unpacker.unpack(file_key, key, raw, &mut window));
                let start = u64::from(key.low()) * u64::from(BLOCK_BYTES);
                let checked = unpacked.and_then(|bytes| match start + bytes > file.size_bytes {
                    true => Err(beyond(file)),
                    false => Ok(()),
                });
                if let Err(damage) = checked {
                    lost.push(Finding {
                        inode: Some(number),
                        subject: Subject::Block(key.low()),
                        place,
                        damage,
                    });
                }
            };
            fetch::nodes(&*self.volume, &places, NodeKind::Data, nodes, &mut take);
        }
        window.zero_up_to(bytes);
        bytes
    }

    /// Numbers of the blocks (4096 bytes) that a file has; the others are holes.
    pub fn blocks_lossy(&self, file: InodeNumber, lost: &mut Vec<Finding>) -> Vec<u32> {
        let places = self.block_places(file, lost);
        places.into_iter().map(|(key, _)| key.low()).collect()
    }

    /// Numbers of the blocks that a file has up to its size, as [`Ubifs::blocks_lossy`]. A block that lies behind it is
    /// added to `lost`: a truncation removes blocks from the index, so the size is wrong and cuts content off.
    pub fn file_blocks_lossy(&self, file: &Inode, lost: &mut Vec<Finding>) -> Vec<u32> {
        let number = file.key.inode_number();
        let mut found = self.block_places(number, lost);
        let is_inside =
            |(key, _): &(Key, Place)| u64::from(key.low()) * u64::from(BLOCK_BYTES) < file.size_bytes;
        let inside = found.partition_point(is_inside);
        if let Some((key, place)) = found.get(inside) {
            lost.push(Finding {
                inode: Some(number),
                subject: Subject::Block(key.low()),
                place: *place,
                damage: beyond(file),
            });
        }
        found.truncate(inside);
        found.into_iter().map(|(key, _)| key.low()).collect()
    }

    /// Keys and places of all blocks of a file, by number.
    fn block_places(&self, file: InodeNumber, lost: &mut Vec<Finding>) -> Vec<(Key, Place)> {
        let (low, high) = (Key::first(file, KeyKind::Data), Key::last(file, KeyKind::Data));
        self.places(low, high, lost)
    }

    /// The first byte at or behind `from` that is in a block or in a hole, as `target` says; `None` if none exists
    /// before the end of the file.
    pub fn seek(&self, file: &Inode, from: u64, target: SeekTarget) -> Result<Option<u64>, UbifsError> {
        let Some(last_byte) = file.size_bytes.checked_sub(1).filter(|last| from <= *last) else {
            return Ok(None);
        };
        let number = file.key.inode_number();
        let (mut first, end) = (block_of(from), block_of(last_byte));
        // Start with a short range and double it: cheap if the answer is near, few steps across a large hole.
        let mut ahead = 64_u32;
        loop {
            let last = first.saturating_add(ahead - 1).min(end);
            let mut lost = Vec::new();
            let found = self.places(Key::data(number, first), Key::data(number, last), &mut lost);
            self.strict(lost)?;
            let mut present = found.iter().map(|(key, _)| key.low());
            let block = match target {
                SeekTarget::Data => present.next(),
                SeekTarget::Hole => (first..=last).find(|block| present.next() != Some(*block)),
            };
            if let Some(block) = block {
                return Ok(Some(from.max(u64::from(block) * u64::from(BLOCK_BYTES))));
            }
            if last == end {
                return Ok(None);
            }
            (first, ahead) = (last + 1, ahead.saturating_mul(2));
        }
    }

    /// Takes a workspace (memory and decompressors for one call) from the pool; dropping it returns it.
    pub(crate) fn workspace(&self) -> Lent<'_> {
        Lent {
            pool: &self.workspaces,
            workspace: self.workspaces.lock().pop().unwrap_or_default(),
        }
    }
}

/// Target of [`Ubifs::seek`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// A block that exists.
    Data,
    /// A hole.
    Hole,
}

/// A truncation removes what lies behind the end of a file, and a longer size is written before the blocks are.
const fn beyond(file: &Inode) -> Damage {
    Damage::BeyondSize {
        size_bytes: file.size_bytes,
    }
}

fn block_of(byte: u64) -> u32 {
    u32::try_from(byte / u64::from(BLOCK_BYTES))
        .unwrap_or(u32::MAX)
        .min(Key::LOW_MAX)
}

/// Scratch memory of one call.
#[derive(Default)]
pub(crate) struct Workspace {
    /// Nodes as read from the medium.
    pub(crate) nodes: Vec<u8>,
    unpacker: Unpacker,
}

/// Pool of free workspaces.
#[derive(Default)]
pub(crate) struct Workspaces(Mutex<Vec<Workspace>>);

impl Workspaces {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Workspace>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A workspace in use.
pub(crate) struct Lent<'a> {
    pool: &'a Workspaces,
    workspace: Workspace,
}

impl Deref for Lent<'_> {
    type Target = Workspace;

    fn deref(&self) -> &Workspace {
        &self.workspace
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut Workspace {
        &mut self.workspace
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut free = self.pool.lock();
        if free.len() < WORKSPACES {
            free.push(std::mem::take(&mut self.workspace));
        }
    }
}

/// The caller's buffer, which covers the file from `offset` on. Filled upwards; skipped parts are zeroed.
struct Window<'a> {
    offset: u64,
    out: &'a mut [u8],
    filled: usize,
}

impl Window<'_> {
    fn zero_up_to(&mut self, end: usize) {
        if end > self.filled {
            self.out[self.filled..end].fill(0);
            self.filled = end;
        }
    }

    /// Start of a block in `out`, and the number of its bytes before `out`.
    fn position(&self, key: Key) -> (usize, usize) {
        let small = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let start = u64::from(key.low()) * u64::from(BLOCK_BYTES);
        match start.checked_sub(self.offset) {
            Some(at) => (small(at), 0),
            None => (0, small(self.offset - start)),
        }
    }
}

#[derive(Default)]
struct Unpacker {
    decompressor: Decompressor,
    /// Buffer for a block that is needed only in part.
    block: Vec<u8>,
    /// Decrypted bytes of a data node.
    plain: Vec<u8>,
}

impl Unpacker {
    /// Unpacks the part of a block that the window shows. Returns the number of bytes of the whole block.
    fn unpack(
        &mut self,
        file_key: Option<&FileKey>,
        key: Key,
        raw: &[u8],
        window: &mut Window<'_>,
    ) -> Result<u64, Damage> {
        let (data, stored) = Data::split(raw)?;
        if data.key != key {
            return Err(Damage::Contradiction("it has another key than the index says"));
        }
        let stored = match file_key {
            None => stored,
            Some(file_key) => {
                self.plain.clear();
                self.plain.extend_from_slice(stored);
                file_key.decrypt_block(key.low(), &mut self.plain)?;
                let whole = self.plain.get(..usize::from(data.compressed_bytes));
                whole.ok_or(Damage::Contradiction(
                    "it holds fewer bytes than it says were encrypted",
                ))?
            }
        };
        let unknown = DecompressError::Unknown {
            number: data.compression,
        };
        let compression = Compression::from_number(data.compression).ok_or(unknown)?;
        let bytes = to_usize(data.size_bytes);
        let (at, skip) = window.position(key);
        if skip == 0 && at >= window.filled && at.saturating_add(bytes) <= window.out.len() {
            window.zero_up_to(at);
            // A stream that breaks off may have written part of it; since `filled` does not advance, that is zeroed
            // later.
            self.decompressor
                .fill(compression, stored, &mut window.out[at..at + bytes])?;
            window.filled = at + bytes;
            return Ok(data.size_bytes.into());
        }
        self.block.resize(bytes, 0);
        self.decompressor.fill(compression, stored, &mut self.block)?;
        let wanted = self.block.get(skip..).unwrap_or_default();
        window.zero_up_to(at.min(window.out.len()));
        let out = window.out.get_mut(at..).unwrap_or_default();
        let count = wanted.len().min(out.len());
        out[..count].copy_from_slice(&wanted[..count]);
        window.filled = window.filled.max(at + count);
        Ok(data.size_bytes.into())
    }
}
