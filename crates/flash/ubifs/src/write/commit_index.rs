//! Writing the index in a commit: new nodes are appended behind the old ones, which stay valid until the master node
//! that refers to the new index is written. If no LEB is empty, new nodes go into gaps between old ones.

use media::Leb;
use ubi::{Volume, VolumeError};

use super::index_gaps::Gaps;
use super::merge::{Edits, merge};
use super::space_table::SpaceTable;
use super::{WriteError, Writer};
use crate::finding::{Finding, Place, Subject};
use crate::format::{IndexNode, Master, pad};
use crate::scan::to_usize;
use crate::space::LebSpace;

/// A complete index on the medium that the master node does not refer to yet.
pub(super) struct NewIndex {
    pub(super) root: Place,
    /// Nodes of the old index that the new one does not use.
    pub(super) freed: Vec<Place>,
    /// Nodes of the new index that the old one does not have.
    pub(super) written: Vec<(Place, IndexNode)>,
}

/// Writes new index nodes behind the index head and into gaps.
struct IndexWriter<'a> {
    volume: &'a dyn Volume,
    space: &'a mut SpaceTable,
    leb_bytes: u32,
    min_io_bytes: u32,
    head: Option<IndexHead>,
    /// Gaps to use when no LEB is empty.
    gaps: Gaps,
}

/// A LEB with index nodes; those from `offset` on are buffered.
struct IndexHead {
    leb: u32,
    offset: u32,
    buffer: Vec<u8>,
}

impl Writer {
    /// Writes the changed index and enters it into `master`; returns `None` if nothing changes.
    pub(super) fn write_index(
        &mut self,
        mut edits: Edits,
        master: &mut Master,
    ) -> Result<Option<NewIndex>, WriteError> {
        if edits.is_empty() {
            return Ok(None);
        }
        for insertion in &edits.insertions {
            assert!(
                self.space
                    .get(insertion.place.leb)
                    .is_some_and(|space| !space.index)
            );
        }
        let superblock = &self.ubifs.superblock;
        let head = self.index_head.map(|(leb, offset)| IndexHead {
            leb,
            offset,
            buffer: Vec::new(),
        });
        let mut nodes = IndexWriter {
            volume: &*self.volume,
            space: &mut self.space,
            leb_bytes: superblock.leb_bytes,
            min_io_bytes: superblock.min_io_bytes,
            head,
            gaps: std::mem::take(&mut edits.gaps),
        };
        let (sequence, mut written) = (&mut self.sequence, Vec::new());
        let merged = merge(&self.ubifs.index, superblock.fanout, edits, &mut |node| {
            *sequence += 1;
            let place = nodes.append(&node.encode(*sequence))?;
            written.push((place, node.clone()));
            Ok(place)
        });
        let finished = merged.and_then(|merged| {
            let head = nodes.head.take().map(|head| nodes.flush(head)).transpose()?;
            let shape = (nodes.leb_bytes, nodes.min_io_bytes);
            nodes.gaps.write(nodes.volume, nodes.space, shape)?;
            Ok((merged, head))
        });
        let (merged, head) = finished.map_err(|failed| match failed {
            Failed::Volume(error) => WriteError::Volume(error),
            Failed::Index(finding) => self.damaged(finding),
            Failed::NoLeb => {
                let root = (master.root_leb, master.root_offset);
                self.contradiction(Subject::Index, root, "no LEB is left for the index")
            }
        })?;
        self.index_head = head;
        let freed = merged
            .freed
            .iter()
            .map(|place| u64::from(place.bytes.next_multiple_of(8)));
        master.index_bytes = master.index_bytes + merged.new_bytes - freed.sum::<u64>();
        for place in &merged.freed {
            self.space.add_dirty(*place);
        }
        let root = merged.root;
        (master.root_leb, master.root_offset, master.root_bytes) = (root.leb, root.offset, root.bytes);
        Ok(Some(NewIndex {
            root,
            freed: merged.freed,
            written,
        }))
    }

    /// Number of empty LEBs that writing these changes takes.
    pub(super) fn lebs_for(&self, edits: &Edits) -> Result<u32, WriteError> {
        let lebs = self.lebs_beside_gaps(edits, u32::MAX)?;
        Ok(lebs.unwrap_or(u32::MAX))
    }

    /// Like [`Self::lebs_for`], with at most `empty` LEBs and the rest in gaps; `None` if they do not fit.
    pub(super) fn lebs_beside_gaps(&self, edits: &Edits, empty: u32) -> Result<Option<u32>, WriteError> {
        if edits.is_empty() {
            return Ok(Some(0));
        }
        let leb_bytes = self.ubifs.superblock.leb_bytes;
        let (mut lebs, mut end) = (0, self.index_head.map_or(leb_bytes, |(_, offset)| offset));
        let (mut gaps, mut fits) = (edits.gaps.clone(), true);
        let fanout = self.ubifs.superblock.fanout;
        let merged = merge(&self.ubifs.index, fanout, edits.clone(), &mut |node| {
            let bytes = node.bytes();
            if end + bytes <= leb_bytes {
                end += bytes.next_multiple_of(8);
            } else if lebs < empty {
                (lebs, end) = (lebs + 1, bytes.next_multiple_of(8));
            } else {
                fits &= gaps.place(bytes).is_some();
            }
            Ok::<_, Box<Finding>>(Place {
                leb: 0,
                offset: 0,
                bytes,
            })
        });
        merged.map_err(|finding| self.unreadable(finding))?;
        Ok(fits.then_some(lebs))
    }

    /// Empties index LEBs without live nodes as of this commit; they stay taken until the master node is written.
    pub(super) fn free_index_lebs(&mut self) -> Vec<u32> {
        let freed = self.space.reclaimable(true);
        for leb in &freed {
            self.space.set_empty(*leb);
            self.space.take(*leb);
        }
        freed
    }
}

impl IndexWriter<'_> {
    fn append(&mut self, node: &[u8]) -> Result<Place, Failed> {
        let bytes = u32::try_from(node.len()).expect("less than a LEB");
        let leb_bytes = self.leb_bytes;
        let is_full = |head: &IndexHead| head.end() + bytes > leb_bytes;
        if self.head.as_ref().is_none_or(is_full) {
            let Some(leb) = self.space.take_empty() else {
                return self.gaps.append(node).ok_or(Failed::NoLeb);
            };
            if let Some(full) = self.head.take() {
                let (leb, _) = self.flush(full)?;
                self.space.release(leb);
            }
            let space = LebSpace {
                index: true,
                ..LebSpace::empty(leb_bytes)
            };
            self.space.set(leb, space);
            self.volume.unmap(Leb(leb))?;
            self.head = Some(IndexHead {
                leb,
                offset: 0,
                buffer: Vec::new(),
            });
        }
        let head = self.head.as_mut().ok_or(Failed::NoLeb)?;
        let place = Place {
            leb: head.leb,
            offset: head.end(),
            bytes,
        };
        head.buffer.extend_from_slice(node);
        head.buffer.resize(head.buffer.len().next_multiple_of(8), 0);
        Ok(place)
    }

    /// Writes the buffered nodes; returns the new position of the head.
    fn flush(&mut self, mut head: IndexHead) -> Result<(u32, u32), VolumeError> {
        let end = head.buffer.len();
        let padded = end.next_multiple_of(to_usize(self.min_io_bytes));
        head.buffer.resize(padded, 0);
        pad(&mut head.buffer[end..]);
        if padded > 0 {
            self.volume.write(Leb(head.leb), head.offset, &head.buffer)?;
        }
        let padding = u32::try_from(padded - end).expect("less than a unit");
        let bytes = head.end() - head.offset;
        self.space.fill(head.leb, bytes, padding);
        Ok((head.leb, head.offset + bytes))
    }
}

impl IndexHead {
    fn end(&self) -> u32 {
        self.offset + u32::try_from(self.buffer.len()).expect("less than a LEB")
    }
}

/// Why writing the index failed.
pub(super) enum Failed {
    Volume(VolumeError),
    Index(Box<Finding>),
    NoLeb,
}

impl From<VolumeError> for Failed {
    fn from(error: VolumeError) -> Self {
        Self::Volume(error)
    }
}

impl From<Box<Finding>> for Failed {
    fn from(finding: Box<Finding>) -> Self {
        Self::Index(finding)
    }
}
