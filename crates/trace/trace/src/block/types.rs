//! The kernel's type information (BTF), as far as libbpf does not read it: names of tracepoints, and members of enums without
//! a name.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

/// Type information of the kernel and its modules.
pub(crate) const FOLDER: &str = "/sys/kernel/btf";
/// That of the kernel itself. A module's names are numbered from the end of its names on.
const KERNEL: &str = "vmlinux";
/// Size of the header: magic, version, flags, its own size, and offset and size of types and names, after it.
const HEADER_BYTES: usize = 24;
/// Kind of an enum of 32 bits.
const ENUM: u32 = 6;

/// The names and numbers that the tracer needs.
#[derive(Debug, Default)]
pub(crate) struct KernelTypes {
    /// Names of the tracepoints, including those of loaded modules.
    pub tracepoints: BTreeSet<String>,
    /// Number of the bit of btrfs for data that waits for its place on the medium, where the kernel tells it (since 6.5).
    pub btrfs_waiting_bit: Option<u32>,
}

impl KernelTypes {
    /// Reads all of it.
    pub(crate) fn read() -> io::Result<Self> {
        const TRACEPOINT: &[u8] = b"btf_trace_";
        let mut types = Self::default();
        let kernel_names = Sections::of(&fs::read(Path::new(FOLDER).join(KERNEL))?)
            .map_or(0, |sections| sections.names.len());
        for entry in fs::read_dir(FOLDER)? {
            let entry = entry?;
            let bytes = fs::read(entry.path())?;
            let Some(sections) = Sections::of(&bytes) else {
                continue;
            };
            let first_name = if entry.file_name() == KERNEL {
                0
            } else {
                kernel_names
            };
            let names = sections.names.split(|byte| *byte == 0);
            let tracepoints = names.filter_map(|name| name.strip_prefix(TRACEPOINT));
            types
                .tracepoints
                .extend(tracepoints.map(|name| String::from_utf8_lossy(name).into_owned()));
            let bit = sections.member(b"__EXTENT_DELALLOC_BIT", first_name);
            let bit = bit.filter(|bit| *bit < u32::BITS);
            types.btrfs_waiting_bit = types.btrfs_waiting_bit.or(bit);
        }
        Ok(types)
    }
}

/// The parts of a file.
#[derive(Debug)]
struct Sections<'a> {
    types: &'a [u8],
    names: &'a [u8],
}

impl<'a> Sections<'a> {
    /// `None`: it is no type information in this machine's byte order.
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let word = |at: usize| {
            let four = bytes.get(at..at + 4)?.try_into().ok()?;
            usize::try_from(u32::from_ne_bytes(four)).ok()
        };
        let is_it = bytes.get(..2)? == 0xEB9F_u16.to_ne_bytes() && word(4)? >= HEADER_BYTES;
        let content = bytes.get(word(4)?..).filter(|_| is_it)?;
        let part = |at: usize| content.get(word(at)?..)?.get(..word(at + 4)?);
        Some(Self {
            types: part(8)?,
            names: part(16)?,
        })
    }

    /// Value of an enum's member. `first_name`: the number of this file's first name.
    fn member(&self, name: &[u8], first_name: usize) -> Option<u32> {
        let wanted = [b"\0", name, b"\0"].concat();
        let at = self
            .names
            .windows(wanted.len())
            .position(|found| found == wanted)?
            + 1;
        let number = u32::try_from(first_name + at).ok()?;
        let (words, _) = self.types.as_chunks::<4>();
        let mut rest = words.iter().map(|word| u32::from_ne_bytes(*word));
        while let Some(_name) = rest.next() {
            let (information, _size) = (rest.next()?, rest.next()?);
            let kind = information >> 24 & 0x1F;
            let members = usize::try_from(information & 0xFFFF).ok()?;
            if kind == ENUM {
                for _ in 0..members {
                    let (name, value) = (rest.next()?, rest.next()?);
                    if name == number {
                        return Some(value);
                    }
                }
                continue;
            }
            let words = match kind {
                // An integer, a variable, a tag of a declaration.
                1 | 14 | 17 => 1,
                // An array.
                3 => 3,
                // Structures, unions, sections of variables, enums of 64 bits.
                4 | 5 | 15 | 19 => 3 * members,
                // Parameters of functions.
                13 => 2 * members,
                _ => 0,
            };
            if words > 0 {
                rest.nth(words - 1)?;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(types: &[u32], names: &[u8]) -> Vec<u8> {
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let bytes = |length: usize| u32::try_from(length).unwrap();
        let header = [24, 0, bytes(types.len()), bytes(types.len()), bytes(names.len())];
        let header = header.iter().flat_map(|word: &u32| word.to_ne_bytes());
        let mut file = [&0xEB9F_u16.to_ne_bytes()[..], &[1, 0]].concat();
        file.extend(header);
        [&file, &types[..], names].concat()
    }

    #[test]
    fn a_member_is_found_by_the_number_of_its_name() {
        // An enum without a name: two members.
        let types = [0, 6 << 24 | 2, 4, 101, 7, 105, 9];
        let file = file(&types, b"\0one\0two\0");
        let sections = Sections::of(&file).unwrap();
        assert_eq!(sections.member(b"one", 100), Some(7));
        assert_eq!(sections.member(b"two", 100), Some(9));
        assert_eq!(sections.member(b"wo", 100), None);
        assert_eq!(sections.member(b"two", 0), None);
        for end in 0..types.len() {
            let cut = self::file(&types[..end], b"\0one\0two\0");
            assert_ne!(Sections::of(&cut).unwrap().member(b"two", 100), Some(7));
        }
    }

    #[test]
    fn other_types_with_the_same_numbers_in_them_are_passed_over() {
        let pointer = [0, 2 << 24, 101];
        let structure = [101, 4 << 24 | 1, 8, 101, 101, 101];
        let array = [0, 3 << 24, 0, 101, 101, 101];
        let function = [0, 13 << 24 | 2, 101, 101, 101, 101, 101];
        let constant = [0, 6 << 24 | 1, 4, 101, 7];
        let types = [&pointer[..], &structure, &array, &function, &constant].concat();
        let file = file(&types, b"\0one\0");
        assert_eq!(Sections::of(&file).unwrap().member(b"one", 100), Some(7));
    }

    #[test]
    fn anything_else_has_no_sections() {
        let whole = file(&[1, 2], b"\0a\0");
        for end in 0..whole.len() {
            assert!(Sections::of(&whole[..end]).is_none(), "{end}");
        }
        assert!(Sections::of(b"\x7FELF").is_none());
    }
}
