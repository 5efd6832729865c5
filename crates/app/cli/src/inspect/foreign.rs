//! Formats that no command here reads, by their magic numbers.

use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt;

/// Offset, bytes, and name with its article.
const MAGICS: [(usize, &[u8], &str); 33] = [
    (0, b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"GIF8", "a GIF image"),
    (0, b"%PDF-", "a PDF document"),
    (0, b"\x7fELF", "an ELF program"),
    (0, b"#!", "a script"),
    (0, b"PK\x03\x04", "a ZIP archive (unpack it first)"),
    (0, b"\x1f\x8b", "a gzip file (unpack it first)"),
    (0, b"\xfd7zXZ\x00", "an xz file (unpack it first)"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd file (unpack it first)"),
    (0, b"BZh", "a bzip2 file (unpack it first)"),
    (0, b"\x04\x22\x4d\x18", "an LZ4 file (unpack it first)"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive (unpack it first)"),
    (257, b"ustar", "a tar archive"),
    (0, b"070701", "a cpio archive"),
    (0, b"SQLite format 3\0", "a SQLite database"),
    (0, b"PAR1", "a Parquet file"),
    (0, b"hsqs", "a squashfs image"),
    (0, b"sqsh", "a squashfs image (big-endian)"),
    (0, b"\x85\x19", "a JFFS2 image"),
    (0, b"\x19\x85", "a JFFS2 image (big-endian)"),
    (0, b"\x45\x3d\xcd\x28", "a cramfs image"),
    (
        0,
        b"\x3a\xff\x26\xed",
        "an Android sparse image (unpack it with simg2img)",
    ),
    (0, b"ANDROID!", "an Android boot image"),
    (0, b"\x27\x05\x19\x56", "a U-Boot image"),
    (0, b"\xd0\x0d\xfe\xed", "a device tree or FIT image"),
    (0, b"QFI\xfb", "a QCOW2 disk"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (0, b"XFSB", "an XFS image"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS image"),
    (1024, b"\xe2\xe1\xf5\xe0", "an EROFS image"),
    (32769, b"CD001", "an ISO 9660 image"),
    (65600, b"_BHRfS_M", "a btrfs image"),
];

/// Bytes at the beginning of a file that [`by_magic`] needs.
pub const HEAD_BYTES: u64 = 128 << 10;

/// The format of a file that begins with `head`.
pub fn by_magic(head: &[u8]) -> Option<&'static str> {
    let fits = |at: usize, magic: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(magic));
    let found = MAGICS.iter().find(|(at, magic, _)| fits(*at, magic));
    found.map(|(_, _, name)| *name)
}

/// The name of a file that holds no bytes of its own; reading it might wait or never end.
pub fn special_file(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    if kind.is_char_device() {
        Some("a character device")
    } else if kind.is_fifo() {
        Some("a named pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_magic_lies_behind_the_bytes_that_are_read() {
        for (at, magic, name) in MAGICS {
            let end = u64::try_from(at + magic.len()).unwrap();
            assert!(end <= HEAD_BYTES, "{name}");
        }
    }

    #[test]
    fn a_format_is_found_by_its_magic() {
        assert_eq!(by_magic(b"\x89PNG\r\n\x1a\n...."), Some("a PNG image"));
        assert_eq!(by_magic(b"no magic"), None);
        assert_eq!(by_magic(b""), None);
    }
}
