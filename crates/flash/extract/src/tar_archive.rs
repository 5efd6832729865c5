//! Writes a file system as a tar archive in one pass: PAX (POSIX.1-2001) with extended attributes as `SCHILY.xattr.*` and
//! holes in the sparse format 1.0 of GNU tar, which GNU tar and bsdtar read.
//!
//! A header states the length of the content that follows, so lost blocks become zeros. No name occurs twice, and only
//! folders have names below theirs, so the archive is safe to unpack.

use std::collections::HashMap;
use std::io::{self, Cursor, Read, Write};

use results::shown;
use tar::{Builder, EntryType, Header};
use ubifs::format::{EntryKind, InodeNumber};
use ubifs::{Ubifs, UbifsError};

use crate::budget::Budget;
use crate::content::{Run, RunReader, runs};
use crate::error::{Context, Result, refused};
use crate::losses::Losses;
use crate::progress::Progress;
use crate::walk::{Named, Next, Visited, walk};

/// Size of the name and link target fields of a header; longer ones go to PAX records only.
const NAME_BYTES: usize = 100;
/// Names that are tried for the folder of sparse files.
const SPARSE_NAMES_MAX: u64 = 10_000;
/// Block size of an archive.
const TAR_BLOCK: usize = 512;

/// Writes `start` and everything below it as an archive.
///
/// # Errors
/// If the archive can't be written, or the extraction is stopped: then it is of no use.
pub fn write(
    ubifs: &Ubifs,
    start: Named,
    out: &mut dyn Write,
    budget: &Budget,
    losses: &mut Losses,
    progress: &mut Progress,
) -> Result<()> {
    let mut builder = Builder::new(out);
    add_tree(&mut builder, b"./", (ubifs, start), budget, losses, progress)?;
    builder.into_inner()?.flush()?;
    Ok(())
}

/// Appends a file or folder with everything below it to an archive. Its names begin with `prefix`, which ends in a slash.
pub(crate) fn add_tree<W: Write>(
    builder: &mut Builder<W>,
    prefix: &[u8],
    (ubifs, start): (&Ubifs, Named),
    budget: &Budget,
    losses: &mut Losses,
    progress: &mut Progress,
) -> Result<()> {
    let mut archive = Archive {
        ubifs,
        budget,
        builder,
        prefix,
        first_names: HashMap::new(),
        sparse_name: sparse_name(ubifs, start, prefix),
    };
    walk(ubifs, start, losses, &mut |visited, losses| {
        check_stop(budget)?;
        if !budget.take_file() {
            losses.leave_out(&visited.path, &budget.too_many_files());
            return Ok(Next::Stop);
        }
        progress.visit(visited);
        match archive.add(visited, losses) {
            // An archive that can't be written ends the walk.
            Err(error) if error.host().is_some() => Err(error),
            Err(error) => {
                // The file's next name must not become a link to a name that the archive lacks.
                archive.first_names.remove(&visited.number);
                losses.tell_error(&visited.path, &error);
                Ok(Next::Past)
            }
            Ok(()) => {
                progress.count(visited.inode.kind(), visited.inode.size_bytes);
                Ok(Next::Below)
            }
        }
    })
}

/// Appends a regular file of `bytes` bytes, owned by root, without times.
pub(crate) fn add_content<W: Write>(
    builder: &mut Builder<W>,
    name: &[u8],
    bytes: u64,
    content: impl Read,
    budget: &Budget,
) -> Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(bytes);
    let mut records = Records::new();
    put_name(&mut header, &mut records, name);
    if bytes >= 1 << 33 {
        records.push(("size".to_owned(), bytes.to_string().into_bytes()));
    }
    append(builder, header, &records, Stoppable(content, budget))
}

/// Appends a folder, owned by root, without times. Its name ends in a slash.
pub(crate) fn add_folder<W: Write>(builder: &mut Builder<W>, name: &[u8]) -> Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Directory);
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    let mut records = Records::new();
    put_name(&mut header, &mut records, name);
    append(builder, header, &records, io::empty())
}

fn append<W: Write>(
    builder: &mut Builder<W>,
    mut header: Header,
    records: &Records,
    content: impl Read,
) -> Result<()> {
    let records = records
        .iter()
        .map(|(keyword, value)| (keyword.as_str(), value.as_slice()));
    builder.append_pax_extensions(records)?;
    header.set_cksum();
    builder.append(&header, content)?;
    Ok(())
}

/// Half an archive is of no use: the output goes with the error.
fn check_stop(budget: &Budget) -> io::Result<()> {
    match budget.is_stopped() {
        true => Err(io::Error::other("stopped before the end of the archive")),
        false => Ok(()),
    }
}

/// Content that ends with an error when the extraction is stopped.
struct Stoppable<'a, R>(R, &'a Budget);

impl<R: Read> Read for Stoppable<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        check_stop(self.1)?;
        self.0.read(buffer)
    }
}

struct Archive<'a, W: Write> {
    ubifs: &'a Ubifs,
    budget: &'a Budget,
    builder: &'a mut Builder<W>,
    /// Beginning of all names.
    prefix: &'a [u8],
    /// First name of each file. Kept for all files, because the link count of an image can't be trusted.
    first_names: HashMap<InodeNumber, Vec<u8>>,
    /// Name of sparse files for readers that don't know them.
    sparse_name: Vec<u8>,
}

/// A name in a folder that the image lacks: as a link, the image's one could lead such a reader elsewhere.
fn sparse_name(ubifs: &Ubifs, start: Named, prefix: &[u8]) -> Vec<u8> {
    let folder = |number: u64| format!("GNUSparseFile.{number}");
    let is_free = |number: &u64| {
        matches!(
            ubifs.lookup(start.inode, folder(*number).as_bytes()),
            Err(UbifsError::NoName { .. })
        )
    };
    // Any number in a folder that can't be read: it has no other names then.
    let number = (0..SPARSE_NAMES_MAX).find(is_free).unwrap_or(SPARSE_NAMES_MAX);
    [prefix, format!("{}/content", folder(number)).as_bytes()].concat()
}

impl<W: Write> Archive<'_, W> {
    fn add(&mut self, visited: &Visited, losses: &mut Losses) -> Result<()> {
        let inode = &visited.inode;
        let kind = inode
            .kind()
            .with_context(|| format!("mode {:o} is no kind of file", inode.mode))?;
        let mut name = [self.prefix, visited.path.as_slice()].concat();
        if kind == EntryKind::Directory && !visited.path.is_empty() {
            name.push(b'/');
        }
        let mut records = self.records(visited, losses);
        let mut header = header_of(visited);
        if kind != EntryKind::Directory {
            if let Some(first) = self.first_names.get(&visited.number) {
                header.set_entry_type(EntryType::Link);
                let first = first.clone();
                put_name(&mut header, &mut records, &name);
                put_target(&mut header, &mut records, &first);
                return self.append(header, &records, io::empty());
            }
            self.first_names.insert(visited.number, name.clone());
        }
        match kind {
            EntryKind::File => return self.add_file(visited, name, header, records, losses),
            EntryKind::Directory => header.set_entry_type(EntryType::Directory),
            EntryKind::Symlink => {
                header.set_entry_type(EntryType::Symlink);
                put_target(&mut header, &mut records, &self.ubifs.read_link(inode)?);
            }
            EntryKind::Fifo => header.set_entry_type(EntryType::Fifo),
            EntryKind::Socket => {
                return refused("an archive has no form for sockets; it is left out");
            }
            EntryKind::BlockDevice | EntryKind::CharacterDevice => {
                let (major, minor) = inode.device().context("the device has no number")?;
                header.set_entry_type(match kind {
                    EntryKind::BlockDevice => EntryType::Block,
                    _ => EntryType::Char,
                });
                header.set_device_major(major)?;
                header.set_device_minor(minor)?;
            }
        }
        put_name(&mut header, &mut records, &name);
        self.append(header, &records, io::empty())
    }

    fn add_file(
        &mut self,
        visited: &Visited,
        name: Vec<u8>,
        mut header: Header,
        mut records: Records,
        losses: &mut Losses,
    ) -> Result<()> {
        let inode = &visited.inode;
        self.ubifs.check_key(inode)?;
        let mut lost = Vec::new();
        let runs = runs(self.ubifs, inode, &mut lost);
        let stored: u64 = runs.iter().map(|run| run.bytes).sum();
        self.budget.take_bytes(stored)?;
        let is_sparse = stored < inode.size_bytes;
        let map = if is_sparse {
            records.push(("GNU.sparse.major".to_owned(), b"1".to_vec()));
            records.push(("GNU.sparse.minor".to_owned(), b"0".to_vec()));
            records.push(("GNU.sparse.name".to_owned(), name));
            records.push((
                "GNU.sparse.realsize".to_owned(),
                inode.size_bytes.to_string().into_bytes(),
            ));
            put_name(&mut header, &mut records, &self.sparse_name);
            sparse_map(&runs, inode.size_bytes)
        } else {
            put_name(&mut header, &mut records, &name);
            Vec::new()
        };
        let bytes = u64::try_from(map.len())? + stored;
        header.set_size(bytes);
        if bytes >= 1 << 33 {
            records.push(("size".to_owned(), bytes.to_string().into_bytes()));
        }
        let mut content = RunReader::new(self.ubifs, inode, &runs);
        let appended = self.append(
            header,
            &records,
            Cursor::new(map).chain(Stoppable(&mut content, self.budget)),
        );
        for finding in lost.iter().chain(&content.lost) {
            losses.tell(&visited.path, finding);
        }
        appended
    }

    fn append(&mut self, header: Header, records: &Records, content: impl Read) -> Result<()> {
        append(self.builder, header, records, content)
    }

    /// PAX records of nanosecond times and extended attributes.
    fn records(&self, visited: &Visited, losses: &mut Losses) -> Records {
        let inode = &visited.inode;
        let mut records = vec![
            (
                "mtime".to_owned(),
                time(inode.modified_seconds, inode.modified_nanoseconds),
            ),
            (
                "atime".to_owned(),
                time(inode.accessed_seconds, inode.accessed_nanoseconds),
            ),
        ];
        let mut lost = Vec::new();
        for xattr in self.ubifs.xattrs_lossy(visited.number, &mut lost) {
            match String::from_utf8(xattr.name) {
                // A keyword ends at the first `=`.
                Ok(name) if !name.contains('=') => {
                    records.push((format!("SCHILY.xattr.{name}"), xattr.value));
                }
                Ok(name) => losses.leave_out(&visited.path, &unnameable(name.as_bytes())),
                Err(error) => losses.leave_out(&visited.path, &unnameable(error.as_bytes())),
            }
        }
        for finding in &lost {
            losses.tell(&visited.path, finding);
        }
        records
    }
}

/// Keywords and values.
type Records = Vec<(String, Vec<u8>)>;

fn unnameable(name: &[u8]) -> String {
    format!(
        "an archive has no form for the name of the extended attribute {}; it is left out",
        shown::name(name)
    )
}

fn header_of(visited: &Visited) -> Header {
    let inode = &visited.inode;
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(inode.mode & 0o7777);
    header.set_uid(inode.user.into());
    header.set_gid(inode.group.into());
    // Times before 1970 go to the PAX record only.
    header.set_mtime(inode.modified_seconds.cast_signed().max(0).cast_unsigned());
    header.set_size(0);
    header
}

fn put_name(header: &mut Header, records: &mut Records, name: &[u8]) {
    let in_header = name.len().min(NAME_BYTES);
    header.as_old_mut().name[..in_header].copy_from_slice(&name[..in_header]);
    if name.len() > NAME_BYTES || !name.is_ascii() {
        records.push(("path".to_owned(), name.to_vec()));
    }
}

fn put_target(header: &mut Header, records: &mut Records, target: &[u8]) {
    let in_header = target.len().min(NAME_BYTES);
    header.as_old_mut().linkname[..in_header].copy_from_slice(&target[..in_header]);
    if target.len() > NAME_BYTES || !target.is_ascii() {
        records.push(("linkpath".to_owned(), target.to_vec()));
    }
}

/// Seconds since 1970 with nine decimals, negative before 1970.
fn time(seconds: u64, nanoseconds: u32) -> Vec<u8> {
    let nanos = i128::from(seconds.cast_signed()) * 1_000_000_000 + i128::from(nanoseconds.min(999_999_999));
    let sign = if nanos < 0 { "-" } else { "" };
    let (whole, rest) = (
        nanos.unsigned_abs() / 1_000_000_000,
        nanos.unsigned_abs() % 1_000_000_000,
    );
    match rest {
        0 => format!("{sign}{whole}").into_bytes(),
        rest => format!("{sign}{whole}.{rest:09}").into_bytes(),
    }
}

/// The map before a sparse file's content: the number of runs, then offset and length of each, padded to a block.
fn sparse_map(runs: &[Run], size: u64) -> Vec<u8> {
    let ends_in_hole = runs.last().is_none_or(|run| run.offset + run.bytes < size);
    let end = ends_in_hole.then_some(Run {
        offset: size,
        bytes: 0,
    });
    let mut map = format!("{}\n", runs.len() + usize::from(ends_in_hole));
    for run in runs.iter().copied().chain(end) {
        map.push_str(&format!("{}\n{}\n", run.offset, run.bytes));
    }
    let mut map = map.into_bytes();
    map.resize(map.len().next_multiple_of(TAR_BLOCK), 0);
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_parts_of_seconds_are_decimal() {
        assert_eq!(time(5, 0), b"5");
        assert_eq!(time(5, 40), b"5.000000040");
        assert_eq!(time((-2_i64).cast_unsigned(), 500_000_000), b"-1.500000000");
    }

    #[test]
    fn a_map_has_whole_blocks_and_ends_with_the_file() {
        let map = sparse_map(
            &[Run {
                offset: 4096,
                bytes: 10,
            }],
            9000,
        );
        assert_eq!(map.len(), 512);
        assert!(map.starts_with(b"2\n4096\n10\n9000\n0\n\0"));
        assert!(sparse_map(&[], 7).starts_with(b"1\n7\n0\n\0"));
    }
}
