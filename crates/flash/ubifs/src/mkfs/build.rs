//! Builds the LEBs from a tree and options.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek};

use rustix::io::Errno;

use super::index::{self, Leaf};
use super::options::{Areas, DATA_HEADS, MAIN_LEBS_MIN};
use super::{Attributes, Content, FileNumber, Identity, KeyHash, LebCount, LebSink, MkfsError, MkfsOptions};
use super::{Time, Tree, TreeFile};
use crate::compress::Packer;
use crate::finding::Place;
use crate::format::{
    BLOCK_BYTES, CommitStart, Compression, Data, DirectoryEntry, EntryKind, Group, INODE_COMPRESS,
    INODE_DATA_BYTES_MAX, INODE_XATTR, Inode, InodeNumber, Key, LOG_LEB, MASTER_LEB, MASTER_NO_ORPHANS,
    Master, NAME_BYTES_MAX, NodeKind, ROOT_INODE, SUPERBLOCK_LEB, Superblock, SuperblockFlags, name_hash_r5,
    name_hash_test, pad,
};
use crate::lpt::{LptGeometry, LptInput, Region, TableSpace, lay_out};
use crate::scan::to_usize;
use crate::space::{LebSpace, Watermarks};

/// Content of a file, which is read in blocks.
trait BlockSource: Read {
    /// Passes over a hole that begins at `at`, the place of the next byte. Returns the place of the next byte to read: at the
    /// beginning of a block with data, or of the last one.
    fn skip_hole(&mut self, at: u64) -> io::Result<u64> {
        Ok(at)
    }
}

impl BlockSource for &[u8] {}

impl BlockSource for File {
    fn skip_hole(&mut self, at: u64) -> io::Result<u64> {
        let last = self.metadata()?.len().saturating_sub(1);
        let data = match rustix::fs::seek(&*self, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => data.min(last),
            // No data up to the end.
            Err(Errno::NXIO) => last,
            // The host's file system does not know its holes.
            Err(_) => at,
        };
        let block = u64::from(BLOCK_BYTES);
        let next = (data / block * block).max(at);
        self.seek(io::SeekFrom::Start(next))
    }
}

/// Inode numbers up to this one are reserved.
const RESERVED_INODES: u32 = 64;
const FORMAT_VERSION: u32 = 4;
/// Creation sequence number of all inodes: Linux expects it to be lower than that of any directory entry.
const FIRST_SEQUENCE: u64 = 1;
const TIME_GRANULARITY_NS: u32 = 1_000_000_000;
const XATTR_NAMES_BYTES_MAX: u32 = 65_536;

/// Report about a new file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MkfsReport {
    /// Number of LEBs.
    pub lebs: u32,
    /// End of the LEBs written, counted from the first.
    pub lebs_written_end: u32,
    /// Number of inodes.
    pub inodes: u64,
    /// Bytes of regular file content.
    pub content_bytes: u64,
    /// Bytes of all leaf nodes, aligned.
    pub stored_bytes: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// UUID.
    pub uuid: [u8; 16],
}

/// Creates a file system with the files of `tree`. `progress` is called for each file.
pub fn make(
    tree: &Tree,
    options: &MkfsOptions,
    sink: &mut dyn LebSink,
    progress: &mut dyn FnMut(),
) -> Result<MkfsReport, MkfsError> {
    let areas = options.areas()?;
    let mut builder = Builder::new(options, areas, sink);
    builder.files(tree, progress)?;
    builder.finish()
}

struct Builder<'a> {
    options: &'a MkfsOptions,
    areas: Areas,
    sink: &'a mut dyn LebSink,
    packer: Packer,
    /// The LEB being filled, with its content in `buffer`.
    leb: u32,
    buffer: Vec<u8>,
    /// Lprops of the main area, as far as it is written.
    spaces: Vec<LebSpace>,
    leaves: Vec<Leaf>,
    sequence: u64,
    highest_inode: u32,
    digest: [u64; 2],
    report: MkfsReport,
}

impl<'a> Builder<'a> {
    fn new(options: &'a MkfsOptions, areas: Areas, sink: &'a mut dyn LebSink) -> Self {
        Self {
            options,
            areas,
            sink,
            packer: Packer::thorough(options.compressor),
            leb: areas.main_first,
            buffer: Vec::new(),
            spaces: Vec::new(),
            leaves: Vec::new(),
            sequence: FIRST_SEQUENCE,
            highest_inode: RESERVED_INODES,
            digest: [0xCBF2_9CE4_8422_2325, 0x9E37_79B9_7F4A_7C15],
            report: MkfsReport {
                lebs: 0,
                lebs_written_end: 0,
                inodes: 0,
                content_bytes: 0,
                stored_bytes: 0,
                index_bytes: 0,
                uuid: [0; 16],
            },
        }
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn next_inode(&mut self, path: &[u8]) -> Result<InodeNumber, MkfsError> {
        self.highest_inode = self
            .highest_inode
            .checked_add(1)
            .ok_or_else(|| file_error(path, "there are more than 2^32 inodes".to_owned()))?;
        Ok(InodeNumber(self.highest_inode))
    }

    /// Writes all files, each after its children, names in order.
    fn files(&mut self, tree: &Tree, progress: &mut dyn FnMut()) -> Result<(), MkfsError> {
        let mut links: HashMap<FileNumber, u32> = HashMap::new();
        for number in 0..tree.count() {
            if let Content::Directory(names) = &tree.file(FileNumber(number)).content {
                for file in names.values() {
                    *links.entry(*file).or_default() += 1;
                }
            }
        }
        let mut numbers = HashMap::from([(Tree::ROOT, ROOT_INODE)]);
        let mut pending = vec![(Tree::ROOT, Vec::new())];
        while let Some((file, path)) = pending.pop() {
            let number = numbers[&file];
            let TreeFile { attributes, content } = tree.file(file);
            if let Content::Directory(names) = content {
                let mut below = Vec::new();
                for (name, child) in names {
                    let path = [&path[..], b"/", name].concat();
                    let known = numbers.get(child).copied();
                    let inode = match known {
                        Some(_) if kind_of(&tree.file(*child).content) == EntryKind::Directory => {
                            return Err(file_error(&path, "a directory has two names".to_owned()));
                        }
                        Some(inode) => inode,
                        None => self.next_inode(&path)?,
                    };
                    self.entry(number, name, inode, kind_of(&tree.file(*child).content), &path)?;
                    if numbers.insert(*child, inode).is_none() {
                        below.push((*child, path));
                    }
                }
                pending.extend(below.into_iter().rev());
            }
            self.file(
                tree,
                number,
                attributes,
                content,
                links.get(&file).copied().unwrap_or(0),
                &path,
            )?;
            self.report.inodes += 1;
            progress();
        }
        Ok(())
    }

    fn file(
        &mut self,
        tree: &Tree,
        number: InodeNumber,
        attributes: &Attributes,
        content: &Content,
        links: u32,
        path: &[u8],
    ) -> Result<(), MkfsError> {
        let mut inode = self.inode(number, attributes, kind_of(content));
        inode.links = links;
        match content {
            Content::Directory(names) => {
                let is_directory =
                    |file: &FileNumber| matches!(tree.file(*file).content, Content::Directory(_));
                let below = names.values().filter(|file| is_directory(file)).count();
                inode.links = u32::try_from(below).unwrap_or(u32::MAX).saturating_add(2);
                let entries: u64 = names.keys().map(|name| entry_bytes(name.len())).sum();
                inode.size_bytes = 160 + entries;
            }
            Content::HostFile(host) => {
                let failed = |source| MkfsError::Read {
                    path: host.display().to_string(),
                    source,
                };
                let mut open = File::open(host).map_err(failed)?;
                inode.size_bytes = self.blocks(number, path, &mut open, &failed)?;
            }
            Content::Bytes(bytes) => {
                let failed = |source| MkfsError::Read {
                    path: shown(path),
                    source,
                };
                inode.size_bytes = self.blocks(number, path, &mut &bytes[..], &failed)?;
            }
            Content::Symlink(target) => inode.data.clone_from(target),
            Content::CharacterDevice { major, minor } | Content::BlockDevice { major, minor } => {
                if *major > 0xFFF || *minor > 0xF_FFFF {
                    let why = format!("device {major}:{minor}: numbers up to 4095:1048575 can be stored");
                    return Err(file_error(path, why));
                }
                let device = (minor & 0xFF) | (major << 8) | ((minor & 0xF_FF00) << 12);
                inode.data = device.to_le_bytes().to_vec();
            }
            Content::Fifo | Content::Socket => {}
        }
        inode.data_bytes = u32::try_from(inode.data.len()).unwrap_or(u32::MAX);
        if inode.data_bytes > INODE_DATA_BYTES_MAX || (inode.data.is_empty() && inode.mode >> 12 == 0o12) {
            let why = format!("the link has {} bytes; 1 to 4096 can be stored", inode.data_bytes);
            return Err(file_error(path, why));
        }
        if inode.data_bytes > 0 {
            inode.size_bytes = inode.data_bytes.into();
        }
        self.xattrs(&mut inode, &attributes.xattrs, path)?;
        self.put_inode(&inode)
    }

    fn inode(&self, number: InodeNumber, attributes: &Attributes, kind: EntryKind) -> Inode {
        let compression = self.options.compressor.default_of_files();
        let [accessed, changed, modified] = [attributes.accessed, attributes.changed, attributes.modified]
            .map(|Time { seconds, nanoseconds }| (seconds.cast_unsigned(), nanoseconds));
        Inode {
            key: Key::inode(number),
            created_sequence: FIRST_SEQUENCE,
            size_bytes: 0,
            accessed_seconds: accessed.0,
            changed_seconds: changed.0,
            modified_seconds: modified.0,
            accessed_nanoseconds: accessed.1,
            changed_nanoseconds: changed.1,
            modified_nanoseconds: modified.1,
            links: 1,
            user: attributes.user,
            group: attributes.group,
            mode: kind.mode() | (attributes.permissions & 0o7777),
            flags: match compression {
                Compression::None => 0,
                _ => INODE_COMPRESS,
            },
            data_bytes: 0,
            xattr_count: 0,
            xattr_bytes: 0,
            xattr_names_bytes: 0,
            compression: compression.number(),
            data: Vec::new(),
        }
    }

    /// Writes the blocks of a file; blocks of zeros become holes. Holes of the host's file are passed over unread.
    fn blocks(
        &mut self,
        number: InodeNumber,
        path: &[u8],
        content: &mut dyn BlockSource,
        failed: &dyn Fn(io::Error) -> MkfsError,
    ) -> Result<u64, MkfsError> {
        let block_bytes = u64::from(BLOCK_BYTES);
        let (mut at, mut size) = (0_u64, 0_u64);
        let mut block = Vec::with_capacity(to_usize(BLOCK_BYTES));
        loop {
            block.clear();
            let mut part = Read::take(&mut *content, block_bytes);
            let bytes = part.read_to_end(&mut block).map_err(failed)?;
            if bytes == 0 {
                break;
            }
            let index = u32::try_from(at / block_bytes).ok();
            let Some(index) = index.filter(|index| *index <= Key::LOW_MAX) else {
                return Err(file_error(path, "it has more than 2 TiB".to_owned()));
            };
            size = at + u64::try_from(bytes).unwrap_or(0);
            at += block_bytes;
            if block.iter().all(|byte| *byte == 0) {
                at = content.skip_hole(at).map_err(failed)?;
                continue;
            }
            let (compression, stored) = self.packer.pack(&block);
            let data = Data {
                key: Key::data(number, index),
                size_bytes: u32::try_from(bytes).unwrap_or(BLOCK_BYTES),
                compression: compression.number(),
                compressed_bytes: 0,
                stored,
            };
            let sequence = self.next_sequence();
            self.put(data.key, Vec::new(), &data.encode(sequence, Group::None))?;
        }
        self.report.content_bytes += size;
        Ok(size)
    }

    fn xattrs(
        &mut self,
        host: &mut Inode,
        xattrs: &BTreeMap<Vec<u8>, Vec<u8>>,
        path: &[u8],
    ) -> Result<(), MkfsError> {
        for (name, value) in xattrs {
            let bytes = u32::try_from(value.len()).unwrap_or(u32::MAX);
            let name_bytes = u32::try_from(name.len()).unwrap_or(u32::MAX);
            let names = host.xattr_names_bytes.saturating_add(name_bytes);
            if bytes > INODE_DATA_BYTES_MAX || names.saturating_add(host.xattr_count) >= XATTR_NAMES_BYTES_MAX
            {
                let why = format!(
                    "extended attribute {} of {bytes} bytes: up to 4096 bytes, and names of up to 64 KiB in all, \
                     can be stored",
                    name.escape_ascii()
                );
                return Err(file_error(path, why));
            }
            let number = self.next_inode(path)?;
            let plain = Attributes {
                xattrs: BTreeMap::new(),
                permissions: 0o777,
                accessed: Time::default(),
                modified: Time::default(),
                changed: Time::default(),
                user: host.user,
                group: host.group,
            };
            let mut inode = self.inode(number, &plain, EntryKind::File);
            inode.flags = INODE_XATTR;
            inode.size_bytes = bytes.into();
            inode.data_bytes = bytes;
            inode.data.clone_from(value);
            let key = Key::xattr(host.key.inode_number(), self.hash(name));
            self.named(key, NodeKind::XattrEntry, name, number, EntryKind::File, path)?;
            self.put_inode(&inode)?;
            host.xattr_count += 1;
            host.xattr_names_bytes = names;
            let space = entry_bytes(name.len()) + u64::from((160 + bytes + 1).next_multiple_of(8));
            host.xattr_bytes += u32::try_from(space).unwrap_or(u32::MAX);
        }
        Ok(())
    }

    fn hash(&self, name: &[u8]) -> u32 {
        match self.options.key_hash {
            KeyHash::R5 => name_hash_r5(name),
            KeyHash::Test => name_hash_test(name),
        }
    }

    fn entry(
        &mut self,
        directory: InodeNumber,
        name: &[u8],
        inode: InodeNumber,
        kind: EntryKind,
        path: &[u8],
    ) -> Result<(), MkfsError> {
        let key = Key::entry(directory, self.hash(name));
        self.named(key, NodeKind::Entry, name, inode, kind, path)
    }

    fn named(
        &mut self,
        key: Key,
        node: NodeKind,
        name: &[u8],
        inode: InodeNumber,
        kind: EntryKind,
        path: &[u8],
    ) -> Result<(), MkfsError> {
        let name_bytes = u16::try_from(name.len())
            .ok()
            .filter(|bytes| (1..=NAME_BYTES_MAX).contains(&u32::from(*bytes)) && !name.contains(&0));
        let Some(name_bytes) = name_bytes else {
            return Err(file_error(
                path,
                format!(
                    "a name of {} bytes; 1 to 255 without a zero can be stored",
                    name.len()
                ),
            ));
        };
        let entry = DirectoryEntry {
            key,
            inode: inode.0.into(),
            kind: kind.number(),
            name_bytes,
            cookie: 0,
            name: name.to_vec(),
        };
        let sequence = self.next_sequence();
        self.put(key, name.to_vec(), &entry.encode(node, sequence, Group::None))
    }

    fn put_inode(&mut self, inode: &Inode) -> Result<(), MkfsError> {
        let sequence = self.next_sequence();
        self.put(inode.key, Vec::new(), &inode.encode(sequence, Group::None))
    }

    fn put(&mut self, key: Key, name: Vec<u8>, node: &[u8]) -> Result<(), MkfsError> {
        let place = self.append(node, false)?;
        self.report.stored_bytes += u64::from(place.bytes.next_multiple_of(8));
        self.leaves.push(Leaf { key, name, place });
        Ok(())
    }

    /// Appends a node to the LEB being filled, or to the next one.
    fn append(&mut self, node: &[u8], index: bool) -> Result<Place, MkfsError> {
        if self.buffer.len() + node.len() > to_usize(self.options.leb_bytes) {
            self.close_leb(index)?;
        }
        if self.buffer.is_empty() && self.leb >= self.options.lebs_max {
            return Err(self.full());
        }
        for lane in &mut self.digest {
            let crc: [u8; 4] = node[4..8].try_into().expect("a node has a header");
            *lane = (*lane ^ u64::from(u32::from_le_bytes(crc)))
                .wrapping_mul(0x0000_0100_0000_01B3)
                .rotate_left(23);
        }
        let place = Place {
            leb: self.leb,
            offset: u32::try_from(self.buffer.len()).expect("less than a LEB"),
            bytes: u32::try_from(node.len()).expect("less than a LEB"),
        };
        self.buffer.extend_from_slice(node);
        self.buffer.resize(self.buffer.len().next_multiple_of(8), 0);
        Ok(place)
    }

    const fn full(&self) -> MkfsError {
        MkfsError::Full {
            lebs: self.options.lebs_max,
            leb_bytes: self.options.leb_bytes,
        }
    }

    /// Writes the LEB being filled unless it is empty, and moves to the next one.
    fn close_leb(&mut self, index: bool) -> Result<(), MkfsError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let end = u32::try_from(self.buffer.len()).expect("less than a LEB");
        let (leb_bytes, unit) = (self.options.leb_bytes, self.options.min_io_bytes);
        self.spaces.push(LebSpace::written(end, index, leb_bytes, unit));
        let nodes = std::mem::take(&mut self.buffer);
        self.write(self.leb, nodes)?;
        self.leb += 1;
        Ok(())
    }

    /// Writes nodes with padding to the write unit.
    fn write(&mut self, leb: u32, mut nodes: Vec<u8>) -> Result<(), MkfsError> {
        let end = nodes.len().next_multiple_of(8);
        nodes.resize(end, 0);
        nodes.resize(end.next_multiple_of(to_usize(self.options.min_io_bytes)), 0);
        pad(&mut nodes[end..]);
        self.write_raw(leb, &nodes)
    }

    fn write_raw(&mut self, leb: u32, bytes: &[u8]) -> Result<(), MkfsError> {
        self.report.lebs_written_end = self.report.lebs_written_end.max(leb + 1);
        self.sink
            .put(leb, bytes)
            .map_err(|source| MkfsError::Write { leb, source })
    }

    fn finish(mut self) -> Result<MkfsReport, MkfsError> {
        self.close_leb(false)?;
        let gc_leb = self.leb;
        if gc_leb >= self.options.lebs_max {
            return Err(self.full());
        }
        self.spaces.push(LebSpace::empty(self.options.leb_bytes));
        self.leb += 1;
        let leaves = std::mem::take(&mut self.leaves);
        let index = index::write(leaves, self.options.fanout, &mut |node| {
            let sequence = self.next_sequence();
            self.append(&node.encode(sequence), true)
        })?;
        let head_offset = u32::try_from(self.buffer.len()).expect("less than a LEB");
        let head = (self.leb, head_offset.next_multiple_of(self.options.min_io_bytes));
        self.close_leb(true)?;
        let lebs = match self.options.lebs {
            LebCount::Fewest => self.leb.max(self.areas.main_first + MAIN_LEBS_MIN),
            LebCount::Exactly(lebs) if lebs >= self.leb => lebs,
            LebCount::Exactly(_) => return Err(self.full()),
        };
        self.report.lebs = lebs;
        self.report.index_bytes = index.bytes;
        let empty = LebSpace::empty(self.options.leb_bytes);
        self.spaces.resize(to_usize(lebs - self.areas.main_first), empty);
        let mut master = self.master(gc_leb, index.root, index.bytes, head, lebs);
        self.lpt(&mut master)?;
        let sequence = self.next_sequence();
        self.write(LOG_LEB, CommitStart { commit: 0 }.encode(sequence))?;
        let sequence = self.next_sequence();
        let node = master.encode(sequence);
        self.write(MASTER_LEB, node.clone())?;
        self.write(MASTER_LEB + 1, node)?;
        let superblock = self.superblock(lebs);
        self.report.uuid = superblock.uuid;
        let sequence = self.next_sequence();
        self.write(SUPERBLOCK_LEB, superblock.encode(sequence))?;
        Ok(self.report)
    }

    fn master(
        &self,
        gc_leb: u32,
        root: Place,
        index_bytes: u64,
        (index_head_leb, index_head_offset): (u32, u32),
        lebs: u32,
    ) -> Master {
        let sums = Watermarks::new(self.options.leb_bytes, self.options.min_io_bytes).sum(&self.spaces);
        Master {
            highest_inode: self.highest_inode.into(),
            flags: MASTER_NO_ORPHANS,
            log_leb: LOG_LEB,
            root_leb: root.leb,
            root_offset: root.offset,
            root_bytes: root.bytes,
            gc_leb,
            index_head_leb,
            index_head_offset,
            index_bytes,
            free_bytes: sums.free,
            dirty_bytes: sums.dirty,
            used_bytes: sums.used,
            dead_bytes: sums.dead,
            dark_bytes: sums.dark,
            scanned_leb: self.areas.main_first,
            empty_lebs: sums.empty_lebs,
            index_lebs: sums.index_lebs,
            lebs,
            ..Master::unknown()
        }
    }

    /// Writes the LPT and enters its location into the master node.
    fn lpt(&mut self, master: &mut Master) -> Result<(), MkfsError> {
        let main_lebs = master.lebs - self.areas.main_first;
        let geometry = LptGeometry::new(LptInput {
            main_lebs,
            lebs: master.lebs,
            ..self.areas.lpt.input
        });
        let first = LptGeometry::first_leb(self.areas.log_lebs);
        let area = 0..geometry.input.lpt_lebs;
        let regions: Vec<_> = area.clone().map(|leb| Region { leb, offset: 0 }).collect();
        let erased = TableSpace {
            free: self.options.leb_bytes,
            dirty: 0,
        };
        let saved = vec![self.areas.main_first; to_usize(geometry.input.saved_lebs)];
        let layout = lay_out(
            &geometry,
            &self.spaces,
            &saved,
            &regions,
            area.map(|_| erased).collect(),
        )
        .expect("the area has four times the size of the tree");
        for write in layout.writes {
            self.write_raw(first + write.at.leb, &write.bytes)?;
        }
        (master.lpt_leb, master.lpt_offset) = (first + layout.root.leb, layout.root.offset);
        (master.lpt_head_leb, master.lpt_head_offset) = (first + layout.head.leb, layout.head.offset);
        (master.ltab_leb, master.ltab_offset) = (first + layout.table.leb, layout.table.offset);
        if let Some(saved) = layout.saved {
            (master.lsave_leb, master.lsave_offset) = (first + saved.leb, saved.offset);
        }
        Ok(())
    }

    fn superblock(&self, lebs: u32) -> Superblock {
        let (options, areas) = (self.options, &self.areas);
        let flags = [
            (areas.lpt.input.big, SuperblockFlags::BIG_LPT),
            (options.space_fixup, SuperblockFlags::SPACE_FIXUP),
        ];
        Superblock {
            key_hash: match options.key_hash {
                KeyHash::R5 => 0,
                KeyHash::Test => 1,
            },
            key_format: 0,
            flags: flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag.0).sum(),
            min_io_bytes: options.min_io_bytes,
            leb_bytes: options.leb_bytes,
            lebs,
            lebs_max: options.lebs_max,
            journal_bytes_max: areas.journal_bytes,
            log_lebs: areas.log_lebs,
            lpt_lebs: areas.lpt.input.lpt_lebs,
            orphan_lebs: areas.orphan_lebs,
            journal_heads: DATA_HEADS,
            fanout: options.fanout,
            saved_lebs: areas.lpt.input.saved_lebs,
            version: FORMAT_VERSION,
            compression: options.compressor.default_of_files().number(),
            reserve_user: 0,
            reserve_group: 0,
            reserve_bytes: options.reserved_bytes,
            time_granularity_ns: TIME_GRANULARITY_NS,
            uuid: self.uuid(),
            read_version: 0,
            hmac: [0; 64],
            hmac_of_known: [0; 64],
            hash_algorithm: 0,
            master_hash: [0; 64],
        }
    }

    /// The UUID; derived from the content it is a UUID of version 8 (custom).
    fn uuid(&self) -> [u8; 16] {
        match self.options.identity {
            Identity::Uuid(uuid) => uuid,
            Identity::FromContent => {
                let mut uuid = [0; 16];
                let (low, high) = uuid.split_at_mut(8);
                low.copy_from_slice(&self.digest[0].to_le_bytes());
                high.copy_from_slice(&self.digest[1].to_le_bytes());
                uuid[6] = 0x80 | (uuid[6] & 0x0F);
                uuid[8] = 0x80 | (uuid[8] & 0x3F);
                uuid
            }
        }
    }
}

/// Contribution of an entry to the size of its directory.
fn entry_bytes(name_bytes: usize) -> u64 {
    u64::try_from((56 + name_bytes + 1).next_multiple_of(8)).unwrap_or(u64::MAX)
}

const fn kind_of(content: &Content) -> EntryKind {
    match content {
        Content::Directory(_) => EntryKind::Directory,
        Content::HostFile(_) | Content::Bytes(_) => EntryKind::File,
        Content::Symlink(_) => EntryKind::Symlink,
        Content::CharacterDevice { .. } => EntryKind::CharacterDevice,
        Content::BlockDevice { .. } => EntryKind::BlockDevice,
        Content::Fifo => EntryKind::Fifo,
        Content::Socket => EntryKind::Socket,
    }
}

fn shown(path: &[u8]) -> String {
    match path.is_empty() {
        true => "/".to_owned(),
        false => String::from_utf8_lossy(path).into_owned(),
    }
}

fn file_error(path: &[u8], why: String) -> MkfsError {
    MkfsError::File {
        path: shown(path),
        why,
    }
}
