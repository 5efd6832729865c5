//! Unclaimed blocks: free by the block bitmaps, or used with an unknown owner. Also reports claimed blocks that are
//! marked free.

use super::groups::{Bitmap, Group, read_bitmap};
use super::medium::Medium;
use crate::block_type::BlockType;
use crate::finding::{FindingKind, Findings, Place};
use crate::resolve::{Claim, NO_FILE, Rank, push_joined};

/// Completes sorted owners so that they cover the whole file system.
pub(crate) fn fill(
    medium: &Medium,
    groups: &[Group],
    owners: &[Claim],
    findings: &mut Findings,
) -> Vec<Claim> {
    let mut filler = Filler {
        medium,
        owners,
        at: 0,
        out: Vec::with_capacity(owners.len() + groups.len()),
    };
    filler.copy_before(medium.byte_of(medium.superblock.first_data_block));
    for (number, group) in (0_u64..).zip(groups) {
        filler.group(number, group, findings);
    }
    filler.out
}

struct Filler<'a> {
    medium: &'a Medium,
    owners: &'a [Claim],
    /// The first owner that does not end before the current position.
    at: usize,
    out: Vec<Claim>,
}

/// A group, its range in bytes and the state of its blocks.
struct Area<'a> {
    number: u64,
    start: u64,
    end: u64,
    bitmap: Option<&'a Bitmap>,
    /// The bitmap was never written: all unclaimed blocks are free.
    unused: bool,
}

impl Filler<'_> {
    /// Copies the owners in front of the first group: the boot block.
    fn copy_before(&mut self, end: u64) {
        while let Some(owner) = self.owners.get(self.at).filter(|owner| owner.end() <= end) {
            self.out.push(*owner);
            self.at += 1;
        }
    }

    fn group(&mut self, number: u64, group: &Group, findings: &mut Findings) {
        let superblock = &self.medium.superblock;
        let bits = superblock.blocks_per_group / superblock.cluster_blocks;
        let readable = !group.blocks_unused && group.block_bitmap != 0;
        let bitmap = readable
            .then(|| {
                let checksum = group.block_bitmap_checksum;
                read_bitmap(
                    self.medium,
                    number,
                    group.block_bitmap,
                    bits,
                    checksum,
                    "a block bitmap",
                    findings,
                )
            })
            .flatten();
        let area = Area {
            number,
            start: self.medium.byte_of(superblock.group_start(number)),
            end: self.medium.byte_of(superblock.group_end(number)),
            bitmap: bitmap.as_ref(),
            unused: group.blocks_unused,
        };
        let mut position = area.start;
        while position < area.end {
            match self.owners.get(self.at).copied() {
                Some(owner) if owner.end() <= position => self.at += 1,
                Some(owner) if owner.start <= position => {
                    let end = owner.end().min(area.end);
                    self.owned(&area, &owner, position, end, findings);
                    position = end;
                    if owner.end() <= area.end {
                        self.at += 1;
                    }
                }
                next => {
                    let end = next.map_or(area.end, |owner| owner.start.min(area.end));
                    self.gap(&area, position, end, next.as_ref(), findings);
                    position = end;
                }
            }
        }
    }

    fn bit(&self, area: &Area<'_>, byte: u64) -> u64 {
        (byte - area.start) / self.medium.superblock.cluster_bytes()
    }

    fn owned(&mut self, area: &Area<'_>, owner: &Claim, start: u64, end: u64, findings: &mut Findings) {
        if owner.rank == Rank::Stale {
            // A used block has an unknown owner; an unused one may still hold deleted data.
            self.by_bitmap(
                area,
                start,
                end,
                &mut |filler, start, end, used, _| {
                    let kind = if used {
                        BlockType::Unknown
                    } else {
                        BlockType::Deleted
                    };
                    let part = Claim {
                        start,
                        length: end - start,
                        file_offset: owner.file_offset + (start - owner.start),
                        kind,
                        file: if used { NO_FILE } else { owner.file },
                        ..*owner
                    };
                    push_joined(&mut filler.out, part);
                },
                findings,
            );
            return;
        }
        let part = Claim {
            start,
            length: end - start,
            file_offset: owner.file_offset + (start - owner.start),
            ..*owner
        };
        push_joined(&mut self.out, part);
        let first = self.bit(area, start);
        let last = self.bit(area, end - 1) + 1;
        let free = match area.bitmap {
            Some(bitmap) if bitmap.trusted => bitmap.run_end(first, last, true) < last,
            Some(_) => false,
            None => area.unused && owner.rank != Rank::Layout,
        };
        if free {
            findings.add(
                FindingKind::UsedButFree,
                Place::Byte(start),
                format!(
                    "blocks of {} to be marked used in group {}",
                    owner.kind, area.number
                ),
                "some that are marked free",
            );
        }
    }

    fn gap(
        &mut self,
        area: &Area<'_>,
        mut start: u64,
        mut end: u64,
        next: Option<&Claim>,
        findings: &mut Findings,
    ) {
        let cluster = self.medium.superblock.cluster_bytes();
        let mut behind = None;
        if self.medium.superblock.cluster_blocks > 1 {
            // Parts of a cluster whose other part belongs to a neighbour are its slack.
            let before = self
                .out
                .last()
                .filter(|last| last.end() == start && last.rank != Rank::Stale)
                .copied();
            if let Some(owner) = before.filter(|_| !(start - area.start).is_multiple_of(cluster)) {
                let boundary = (area.start + (start - area.start).next_multiple_of(cluster)).min(end);
                push_joined(&mut self.out, slack(&owner, start, boundary));
                start = boundary;
            }
            let shared = next.filter(|next| next.start == end && !(end - area.start).is_multiple_of(cluster));
            if let Some(owner) = shared.filter(|owner| owner.rank != Rank::Stale) {
                let boundary = (end - (end - area.start) % cluster).max(start);
                behind = (boundary < end).then(|| slack(owner, boundary, end));
                end = boundary;
            }
        }
        self.by_bitmap(
            area,
            start,
            end,
            &mut |filler, start, end, used, findings| {
                let kind = if used { BlockType::Unknown } else { BlockType::Free };
                push_joined(
                    &mut filler.out,
                    Claim::area(start, end - start, kind, Rank::Trusted),
                );
                if used {
                    let count = (end - start) / filler.medium.block_bytes();
                    findings.add(
                        FindingKind::UsedButUnowned,
                        Place::Byte(start),
                        "an owner or a free mark",
                        format!("{count} blocks marked used that nobody owns"),
                    );
                }
            },
            findings,
        );
        if let Some(claim) = behind {
            push_joined(&mut self.out, claim);
        }
    }

    /// Calls `emit` with each run of equally marked blocks.
    fn by_bitmap(
        &mut self,
        area: &Area<'_>,
        start: u64,
        end: u64,
        emit: &mut dyn FnMut(&mut Self, u64, u64, bool, &mut Findings),
        findings: &mut Findings,
    ) {
        let Some(bitmap) = area.bitmap else {
            if start < end && area.unused {
                emit(self, start, end, false, findings);
            } else if start < end {
                push_joined(
                    &mut self.out,
                    Claim::area(start, end - start, BlockType::Unknown, Rank::Doubtful),
                );
            }
            return;
        };
        let cluster = self.medium.superblock.cluster_bytes();
        let mut position = start;
        while position < end {
            let first = self.bit(area, position);
            let last = self.bit(area, end - 1) + 1;
            let used = bitmap.is_set(first);
            let run = bitmap.run_end(first, last, used);
            let run_end = (area.start + run * cluster).min(end);
            emit(self, position, run_end, used, findings);
            position = run_end;
        }
    }
}

fn slack(owner: &Claim, start: u64, end: u64) -> Claim {
    Claim {
        file: owner.file,
        rank: owner.rank,
        ..Claim::area(start, end - start, BlockType::Slack, owner.rank)
    }
}
