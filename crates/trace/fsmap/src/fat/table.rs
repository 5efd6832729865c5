//! The file allocation table: the successor of each cluster in its chain. Read in pages, a bounded number of which is
//! kept.

use std::collections::HashMap;

use super::boot::Boot;
use crate::bytes::{index, le16, le32};
use crate::finding::{FindingKind, Findings, Place};
use crate::source::Source;
use crate::volume::FileSystemKind;

/// A multiple of the three bytes in which FAT12 stores two entries.
const PAGE_BYTES: u64 = 3 << 14;
/// Maximum number of pages kept: 48 MiB.
const PAGES_MAX: usize = 1024;

/// Content of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Free,
    Next(u32),
    Bad,
    End,
    /// No cluster has this number.
    Wild(u32),
}

/// The FAT in use.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    source: &'a Source,
    boot: &'a Boot,
    start: u64,
    pages: HashMap<u64, Vec<u8>>,
}

impl<'a> Table<'a> {
    pub(crate) fn new(source: &'a Source, boot: &'a Boot) -> Self {
        Self {
            source,
            boot,
            start: boot.fat_start + u64::from(boot.active_fat) * boot.fat_bytes,
            pages: HashMap::new(),
        }
    }

    fn page(&mut self, number: u64, findings: &mut Findings) -> &[u8] {
        if self.pages.len() >= PAGES_MAX && !self.pages.contains_key(&number) {
            self.pages.clear();
        }
        let (source, boot, start) = (self.source, self.boot, self.start);
        self.pages.entry(number).or_insert_with(|| {
            let from = number * PAGE_BYTES;
            let mut page = vec![0; index(PAGE_BYTES.min(boot.fat_bytes.saturating_sub(from)))];
            if let Err(error) = source.read(start + from, &mut page) {
                let place = Place::Fat(boot.active_fat);
                findings.add(
                    FindingKind::Unreadable,
                    place,
                    "a readable FAT",
                    error.to_string(),
                );
                page.fill(0);
            }
            page
        })
    }

    /// The successor of `cluster`, which must exist.
    pub(crate) fn link(&mut self, cluster: u32, findings: &mut Findings) -> Link {
        let number = u64::from(cluster);
        let kind = self.boot.kind;
        let at = match kind {
            FileSystemKind::Fat12 => number + number / 2,
            FileSystemKind::Fat16 => number * 2,
            _ => number * 4,
        };
        let page = self.page(at / PAGE_BYTES, findings);
        let within = index(at % PAGE_BYTES);
        let (value, bad) = match kind {
            // Two entries in three bytes never span two pages.
            FileSystemKind::Fat12 => (
                u32::from(le16(page, within) >> (4 * (cluster & 1)) & 0xFFF),
                0xFF7,
            ),
            FileSystemKind::Fat16 => (u32::from(le16(page, within)), 0xFFF7),
            _ => (le32(page, within) & 0x0FFF_FFFF, 0x0FFF_FFF7),
        };
        match value {
            0 => Link::Free,
            next if (2..self.boot.cluster_end).contains(&next) => Link::Next(next),
            end if end > bad => Link::End,
            other if other == bad => Link::Bad,
            other => Link::Wild(other),
        }
    }

    /// Compares the copies with the FAT in use.
    pub(crate) fn compare_copies(&self, findings: &mut Findings) {
        if !self.boot.mirrored {
            return;
        }
        for copy in 1..self.boot.fats {
            let mut at = 0;
            while at < self.boot.fat_bytes {
                let length = index(PAGE_BYTES.min(self.boot.fat_bytes - at));
                let (mut first, mut second) = (vec![0; length], vec![0; length]);
                let start = self.boot.fat_start + u64::from(copy) * self.boot.fat_bytes + at;
                let read = self.source.read(self.start + at, &mut first).is_ok()
                    && self.source.read(start, &mut second).is_ok();
                if !read || first != second {
                    let differing = first.iter().zip(&second).position(|(a, b)| a != b);
                    let byte = at + differing.map_or(0, crate::bytes::count);
                    findings.add(
                        FindingKind::Field,
                        Place::Fat(copy),
                        "a copy of the first FAT",
                        format!("another value at its byte {byte}"),
                    );
                    break;
                }
                at += PAGE_BYTES;
            }
        }
    }
}
