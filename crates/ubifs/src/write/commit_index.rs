//! The index on its way to the medium, as a part of a commit: new nodes go behind the old ones, which stay until the master node
//! that no longer leads to them is written.

use media::Leb;
use ubi::Volume;

use super::merge::{Edits, merge};
use super::{WriteError, Writer};
use crate::finding::{Damage, Place};
use crate::format::pad;
use crate::index::Index;
use crate::scan::to_usize;
use crate::space::LebSpace;

/// Index nodes on their way to the medium.
struct IndexHead {
    leb: u32,
    /// Where the buffer starts.
    offset: u32,
    buffer: Vec<u8>,
}

impl Writer {
    pub(super) fn write_index(&mut self, edits: Edits) -> Result<(), WriteError> {
        if edits.is_empty() {
            return Ok(());
        }
        for insertion in &edits.insertions {
            debug_assert!(
                self.space
                    .get(insertion.place.leb)
                    .is_some_and(|space| !space.index)
            );
        }
        let fanout = self.ubifs.superblock.fanout;
        let volume = std::sync::Arc::clone(&self.ubifs.volume);
        let cache_bytes = self.ubifs.index.cache_bytes();
        let index = std::mem::replace(
            &mut self.ubifs.index,
            Index::new(
                std::sync::Arc::clone(&volume),
                Place {
                    leb: 0,
                    offset: 0,
                    bytes: 0,
                },
                cache_bytes,
            ),
        );
        let mut head = self.index_head.map(|(leb, offset)| IndexHead {
            leb,
            offset,
            buffer: Vec::new(),
        });
        let mut written = Vec::new();
        let merged = merge(&index, fanout, edits, &mut |node| {
            let sequence = self.next_sequence();
            let place = self
                .append_index(&mut head, &node.encode(sequence))
                .map_err(Failed::Write)?;
            written.push((place, node.clone()));
            Ok(place)
        });
        let merged = merged.map_err(|failed| match failed {
            Failed::Write(error) => error,
            Failed::Damage(damage) => self.index_damaged(damage),
        })?;
        self.index_head = match head {
            Some(head) => Some(self.flush_index(head)?),
            None => None,
        };
        let freed: u64 = merged
            .freed
            .iter()
            .map(|place| u64::from(place.bytes.next_multiple_of(8)))
            .sum();
        for place in &merged.freed {
            self.space.add_dirty(*place);
        }
        let master = &mut self.ubifs.master;
        master.index_bytes = master.index_bytes + merged.new_bytes - freed;
        let root = merged.root;
        (master.root_leb, master.root_offset, master.root_bytes) = (root.leb, root.offset, root.bytes);
        self.ubifs.index = index.succeeded_by(root, &merged.freed, written);
        Ok(())
    }

    /// Empty LEBs that these changes take when they are written.
    pub(super) fn lebs_for(&self, edits: &Edits) -> Result<u32, WriteError> {
        if edits.is_empty() {
            return Ok(0);
        }
        let leb_bytes = self.ubifs.superblock.leb_bytes;
        let (mut lebs, mut end) = (0, self.index_head.map_or(leb_bytes, |(_, offset)| offset));
        let fanout = self.ubifs.superblock.fanout;
        let merged = merge(&self.ubifs.index, fanout, edits.clone(), &mut |node| {
            let bytes = node.bytes();
            if end + bytes > leb_bytes {
                (lebs, end) = (lebs + 1, 0);
            }
            end += bytes.next_multiple_of(8);
            Ok::<_, Damage>(Place {
                leb: 0,
                offset: 0,
                bytes,
            })
        });
        merged.map_err(|damage| self.index_damaged(damage))?;
        Ok(lebs)
    }

    fn append_index(&mut self, head: &mut Option<IndexHead>, node: &[u8]) -> Result<Place, WriteError> {
        let leb_bytes = self.ubifs.superblock.leb_bytes;
        let bytes = u32::try_from(node.len()).expect("less than a LEB");
        let end = |head: &IndexHead| head.offset + u32::try_from(head.buffer.len()).expect("less than a LEB");
        if let Some(full) = head.take_if(|head| end(head) + bytes > leb_bytes) {
            let (leb, _) = self.flush_index(full)?;
            self.space.release(leb);
        }
        let head = match head {
            Some(head) => head,
            None => {
                let leb = self
                    .space
                    .take_empty()
                    .ok_or_else(|| self.damaged("no LEB is left for the index"))?;
                self.space.set(
                    leb,
                    LebSpace {
                        index: true,
                        ..LebSpace::empty(leb_bytes)
                    },
                );
                self.volume.unmap(Leb(leb))?;
                head.insert(IndexHead {
                    leb,
                    offset: 0,
                    buffer: Vec::new(),
                })
            }
        };
        let place = Place {
            leb: head.leb,
            offset: end(head),
            bytes,
        };
        head.buffer.extend_from_slice(node);
        head.buffer.resize(head.buffer.len().next_multiple_of(8), 0);
        Ok(place)
    }

    /// Writes what is buffered; returns where the head is then.
    fn flush_index(&mut self, mut head: IndexHead) -> Result<(u32, u32), WriteError> {
        let end = head.buffer.len();
        head.buffer.resize(
            end.next_multiple_of(to_usize(self.ubifs.superblock.min_io_bytes)),
            0,
        );
        pad(&mut head.buffer[end..]);
        let bytes = u32::try_from(head.buffer.len()).expect("less than a LEB");
        if bytes > 0 {
            self.volume.write(Leb(head.leb), head.offset, &head.buffer)?;
        }
        let padding = u32::try_from(head.buffer.len() - end).expect("less than a unit");
        self.space.fill(head.leb, bytes, padding);
        Ok((head.leb, head.offset + bytes))
    }

    /// LEBs of the index that nothing leads into any more are empty as of this commit; until the master is written they stay taken.
    pub(super) fn free_index_lebs(&mut self) -> Vec<u32> {
        let freed = self.space.reclaimable(true);
        for leb in &freed {
            self.space.set_empty(*leb);
            self.space.take(*leb);
        }
        freed
    }
}

/// Why a merge failed.
enum Failed {
    Write(WriteError),
    Damage(Damage),
}

impl From<Damage> for Failed {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}
