//! Directories and cluster chains of FAT.

use std::collections::VecDeque;

use super::boot::Boot;
use super::name::{LongName, short};
use super::table::{Link, Table};
use crate::block_type::BlockType;
use crate::bytes::{byte, count, index, joined, le16, le32};
use crate::files::{FileKind, FileRecord, FileTable, Life};
use crate::finding::{FindingKind, Findings, Place};
use crate::resolve::{Claim, Content, NO_FILE, Rank, push_joined};
use crate::source::Source;

const ENTRY: usize = 32;
const DELETED: u8 = 0xE5;
const LABEL: u8 = 0x08;
const DIRECTORY: u8 = 0x10;
const LONG: u8 = 0x0F;
/// Bytes of a directory that are read at once.
const CHUNK_BYTES: u64 = 1 << 20;
/// The driver's number of the root.
const ROOT: u64 = 1;

pub(crate) struct Walk<'a, 'b> {
    source: &'a Source,
    boot: &'a Boot,
    table: &'b mut Table<'a>,
    files: FileTable,
    claims: Vec<Claim>,
    /// A bit per cluster, set if a chain owns it.
    taken: Vec<u8>,
    pending: VecDeque<(u32, Vec<Claim>)>,
}

/// An entry of a directory.
struct Entry<'e> {
    directory: u32,
    byte: u64,
    raw: &'e [u8],
}

impl<'a, 'b> Walk<'a, 'b> {
    pub(crate) fn new(
        source: &'a Source,
        boot: &'a Boot,
        table: &'b mut Table<'a>,
        claims: Vec<Claim>,
    ) -> Self {
        let bits = index(u64::from(boot.cluster_end) / 8 + 1);
        Self {
            source,
            boot,
            table,
            files: FileTable::default(),
            claims,
            taken: vec![0; bits],
            pending: VecDeque::new(),
        }
    }

    pub(crate) fn finish(mut self) -> (FileTable, Vec<Claim>) {
        self.files.sort();
        (self.files, self.claims)
    }

    /// Walks the tree from the root, directory by directory.
    pub(crate) fn run(&mut self, findings: &mut Findings) {
        let root = self.files.push(FileRecord::new(ROOT, 0, FileKind::Directory));
        let root = root.expect("it is the first file");
        self.files.set_root(root);
        let extents = if self.boot.root_bytes > 0 {
            let claim = Claim {
                file: root,
                ..Claim::area(
                    self.boot.root_start,
                    self.boot.root_bytes,
                    BlockType::Directory,
                    Rank::Layout,
                )
            };
            self.claims.push(claim);
            vec![claim]
        } else {
            self.chain(root, ROOT, self.boot.root_cluster, BlockType::Directory, findings)
        };
        self.pending.push_back((root, extents));
        while let Some((directory, extents)) = self.pending.pop_front() {
            self.directory(directory, &extents, findings);
        }
    }

    fn take(&mut self, cluster: u32) -> bool {
        let (at, bit) = (index(u64::from(cluster / 8)), 1_u8 << (cluster % 8));
        let Some(byte) = self.taken.get_mut(at) else {
            return false;
        };
        let free = *byte & bit == 0;
        *byte |= bit;
        free
    }

    fn cluster(&self, cluster: u32, offset: u64, file: u32, kind: BlockType) -> Claim {
        Claim {
            start: self.boot.data_start + (u64::from(cluster) - 2) * self.boot.cluster_bytes,
            length: self.boot.cluster_bytes,
            file_offset: offset,
            file,
            kind,
            content: Content::Written,
            rank: Rank::Trusted,
            shared: false,
        }
    }

    /// Claims a chain of clusters; returns its extents in order.
    fn chain(
        &mut self,
        file: u32,
        inode: u64,
        first: u32,
        kind: BlockType,
        findings: &mut Findings,
    ) -> Vec<Claim> {
        let mut extents: Vec<Claim> = Vec::new();
        let (mut cluster, mut offset) = (first, 0);
        let place = Place::Inode(inode);
        if !(2..self.boot.cluster_end).contains(&first) {
            findings.add(
                FindingKind::OutOfRange,
                place,
                format!("a first cluster from 2 to {}", self.boot.cluster_end - 1),
                first.to_string(),
            );
            return extents;
        }
        loop {
            let claim = self.cluster(cluster, offset, file, kind);
            if !self.take(cluster) {
                let own = extents
                    .iter()
                    .any(|extent| extent.start <= claim.start && claim.start < extent.end());
                if own {
                    findings.add(
                        FindingKind::Loop,
                        place,
                        "a chain that ends",
                        format!("cluster {cluster} again"),
                    );
                } else {
                    // One cluster with two owners: the table of claims reports both.
                    self.claims.push(claim);
                }
                break;
            }
            push_joined(&mut extents, claim);
            offset += self.boot.cluster_bytes;
            match self.table.link(cluster, findings) {
                Link::Next(next) => cluster = next,
                Link::End => break,
                other => {
                    findings.add(
                        FindingKind::Field,
                        place,
                        format!("a cluster or an end behind cluster {cluster}"),
                        format!("{other:?}"),
                    );
                    break;
                }
            }
        }
        self.claims.extend_from_slice(&extents);
        extents
    }

    fn directory(&mut self, directory: u32, extents: &[Claim], findings: &mut Findings) {
        let mut long = LongName::default();
        for extent in extents {
            let mut done = 0;
            while done < extent.length {
                let mut raw = vec![0; index((extent.length - done).min(CHUNK_BYTES))];
                let start = extent.start + done;
                if let Err(error) = self.source.read(start, &mut raw) {
                    let place = Place::Directory {
                        inode: self.files.get(directory).map_or(0, |record| record.inode),
                        byte: start,
                    };
                    findings.add(
                        FindingKind::Unreadable,
                        place,
                        "a readable directory",
                        error.to_string(),
                    );
                    return;
                }
                for (number, entry) in (0_u64..).zip(raw.chunks_exact(ENTRY)) {
                    if byte(entry, 0) == 0 {
                        return;
                    }
                    let entry = Entry {
                        directory,
                        byte: start + number * count(ENTRY),
                        raw: entry,
                    };
                    self.entry(&entry, &mut long, findings);
                }
                done += count(raw.len());
            }
        }
    }

    fn entry(&mut self, entry: &Entry<'_>, long: &mut LongName, findings: &mut Findings) {
        let raw = entry.raw;
        let place = Place::Byte(entry.byte);
        let attributes = byte(raw, 11);
        if byte(raw, 0) == DELETED {
            *long = LongName::default();
            if attributes != LONG && attributes & LABEL == 0 {
                self.deleted(entry);
            }
            return;
        }
        if attributes & 0x3F == LONG {
            if !long.push(raw) {
                let expected = "parts of a long name in order";
                findings.add(
                    FindingKind::Field,
                    place,
                    expected,
                    format!("part {:#04x}", byte(raw, 0)),
                );
            }
            return;
        }
        let expects_long = !long.is_empty();
        let long_name = long.finish(raw);
        if attributes & LABEL != 0 {
            return;
        }
        let alias = short(raw);
        if alias == "." || alias == ".." {
            return;
        }
        if expects_long && long_name.is_none() {
            findings.add(
                FindingKind::Checksum,
                place.clone(),
                format!("a long name that belongs to {alias:?}"),
                "parts of another name",
            );
        }
        let name = long_name.unwrap_or(alias);
        if name.contains(['/', '\0']) || name.is_empty() {
            findings.add(
                FindingKind::Field,
                place,
                "a name without / and NUL",
                format!("{name:?}"),
            );
            return;
        }
        self.file(entry, &name, attributes & DIRECTORY != 0, findings);
    }

    fn first_cluster(&self, raw: &[u8]) -> u32 {
        let high = if self.boot.root_bytes == 0 {
            u32::from(le16(raw, 20))
        } else {
            0
        };
        high << 16 | u32::from(le16(raw, 26))
    }

    fn file(&mut self, entry: &Entry<'_>, name: &str, is_directory: bool, findings: &mut Findings) {
        let inode = entry.byte / count(ENTRY);
        let size = joined(le32(entry.raw, 28), 0);
        let kind = if is_directory {
            FileKind::Directory
        } else {
            FileKind::Regular
        };
        let record = FileRecord {
            size,
            ..FileRecord::new(inode, 0, kind)
        };
        let added = self.files.push(record);
        let named = added.map(|file| self.files.add_name(file, entry.directory, name.as_bytes(), false));
        let (Some(file), Some(Ok(()))) = (added, named) else {
            let place = Place::Byte(entry.byte);
            findings.add(
                FindingKind::Bound,
                place,
                "fewer files and names than 2^32",
                "more",
            );
            return;
        };
        let first = self.first_cluster(entry.raw);
        if first == 0 && !is_directory {
            if size > 0 {
                let found = format!("{size} bytes without a cluster");
                findings.add(FindingKind::Field, Place::Inode(inode), "a first cluster", found);
            }
            return;
        }
        let block_type = if is_directory {
            BlockType::Directory
        } else {
            BlockType::Data
        };
        let extents = self.chain(file, inode, first, block_type, findings);
        let there: u64 = extents.iter().map(|extent| extent.length).sum();
        if is_directory {
            self.pending.push_back((file, extents));
        } else if there != size.next_multiple_of(self.boot.cluster_bytes) {
            findings.add(
                FindingKind::Field,
                Place::Inode(inode),
                format!("clusters for {size} bytes"),
                format!("clusters of {there} bytes"),
            );
        }
    }

    /// Claims the blocks of a deleted file: if it was contiguous, it occupied the clusters behind its first one, as far
    /// as no other file owns them.
    fn deleted(&mut self, entry: &Entry<'_>) {
        let (first, size) = (self.first_cluster(entry.raw), u64::from(le32(entry.raw, 28)));
        if !(2..self.boot.cluster_end).contains(&first) || size == 0 || byte(entry.raw, 11) & DIRECTORY != 0 {
            return;
        }
        let record = FileRecord {
            size,
            links: 0,
            life: Life::Deleted,
            ..FileRecord::new(entry.byte / count(ENTRY), 0, FileKind::Regular)
        };
        let Some(file) = self.files.push(record) else {
            return;
        };
        // The first character is lost; no real name can contain a question mark.
        let mut raw = entry.raw.to_vec();
        raw[0] = b'?';
        if self
            .files
            .add_name(file, entry.directory, short(&raw).as_bytes(), false)
            .is_err()
        {
            return;
        }
        let start = self.cluster(first, 0, file, BlockType::Deleted);
        let end = self.boot.data_start + u64::from(self.boot.cluster_end - 2) * self.boot.cluster_bytes;
        let length = size
            .next_multiple_of(self.boot.cluster_bytes)
            .min(end - start.start);
        self.claims.push(Claim {
            length,
            rank: Rank::Stale,
            ..start
        });
        debug_assert!(file != NO_FILE);
    }
}
