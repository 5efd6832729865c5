//! The kind of content of a volume, by its first bytes.

use media::Leb;
use ubi::Volume as _;
use ubifs::format::MAGIC;

use crate::volume::DumpVolume;

/// The content of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// No LEB is mapped, or all bytes are 0xFF.
    Empty,
    /// A UBIFS.
    Ubifs,
    /// A squashfs.
    Squashfs,
    /// A format that is recognised, and not read here.
    Known(&'static str),
    /// Something else.
    Unknown,
}

/// Magic numbers at their offsets.
const MAGICS: &[(usize, &[u8], &str)] = &[
    (0, b"UBI#", "UBI"),
    (0, &[0x27, 0x05, 0x19, 0x56], "uImage"),
    (0, &[0xD0, 0x0D, 0xFE, 0xED], "device tree or FIT"),
    (0, &[0x7F, b'E', b'L', b'F'], "ELF"),
    (0, &[0x1F, 0x8B], "gzip"),
    (0, &[0xFD, b'7', b'z', b'X', b'Z', 0], "xz"),
    (0, &[0x28, 0xB5, 0x2F, 0xFD], "zstd"),
    (0, &[0x04, 0x22, 0x4D, 0x18], "lz4"),
    (0, b"BZh", "bzip2"),
    (0, b"PK\x03\x04", "zip"),
    (0, b"ANDROID!", "Android boot"),
    (0, b"070701", "cpio"),
    (0, &[0x45, 0x3D, 0xCD, 0x28], "cramfs"),
    (0, b"-rom1fs-", "romfs"),
    (0x38, &[0x41, 0x52, 0x4D, 0x64], "Linux arm64"),
    (0x24, &[0x18, 0x28, 0x6F, 0x01], "Linux arm zImage"),
    (257, b"ustar", "tar"),
    (1024, &[0xE2, 0xE1, 0xF5, 0xE0], "erofs"),
    (1080, &[0x53, 0xEF], "ext4"),
];

/// Magic numbers of squashfs of all versions, in both byte orders, and of its variants with other compressors.
const SQUASHFS: [&[u8]; 5] = [b"hsqs", b"sqsh", b"qshs", b"shsq", b"hsqt"];

/// Bytes that are looked at.
const HEAD_BYTES: usize = 2048;
/// LEBs that are looked at if the first one does not tell.
const LEBS_TRIED: usize = 64;

impl Content {
    /// Tells the content of a volume.
    pub(crate) fn of(volume: &DumpVolume) -> Self {
        let mapped = volume.first_mapped(LEBS_TRIED);
        let head = |leb: Leb| {
            let bytes = usize::try_from(volume.geometry().leb_bytes)
                .unwrap_or(0)
                .min(HEAD_BYTES);
            let mut raw = vec![0xFF; bytes];
            volume.read(leb, 0, &mut raw).map(|()| raw)
        };
        if volume.geometry().lebs == 0 {
            return Self::Empty;
        }
        let Ok(first) = head(Leb(0)) else {
            return Self::Unknown;
        };
        let is_node = |raw: &[u8]| raw.starts_with(&MAGIC.to_le_bytes());
        if is_node(&first) {
            return Self::Ubifs;
        }
        if SQUASHFS.iter().any(|magic| first.starts_with(magic)) {
            return Self::Squashfs;
        }
        let is_at = |at: usize, magic: &[u8]| first.get(at..).is_some_and(|rest| rest.starts_with(magic));
        if let Some((.., name)) = MAGICS.iter().find(|(at, magic, _)| is_at(*at, magic)) {
            return Self::Known(name);
        }
        // Without its superblock, a UBIFS still begins most of its LEBs with a node.
        let heads: Result<Vec<Vec<u8>>, _> = mapped.into_iter().map(head).collect();
        // A LEB that is there is no empty one, even if nothing can be said of it.
        let Ok(heads) = heads else {
            return Self::Unknown;
        };
        let nodes = heads.iter().filter(|raw| is_node(raw)).count();
        let is_erased = |raw: &[u8]| raw.iter().all(|byte| *byte == 0xFF);
        match heads.iter().filter(|raw| !is_erased(raw)).count() {
            0 => Self::Empty,
            written if nodes * 2 > written => Self::Ubifs,
            _ => Self::Unknown,
        }
    }

    /// Length of a squashfs by its superblock, bytes; `None` without one of version 4.
    pub(crate) fn squashfs_bytes(volume: &DumpVolume) -> Option<u64> {
        let mut raw = [0; 96];
        volume.read(Leb(0), 0, &mut raw).ok()?;
        let is_version_4 = raw.starts_with(b"hsqs") && raw[28..32] == [4, 0, 0, 0];
        let bytes = raw[40..48].first_chunk().copied().map(u64::from_le_bytes);
        bytes.filter(|_| is_version_4)
    }

    /// Its name, for documents.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Ubifs => "ubifs",
            Self::Squashfs => "squashfs",
            Self::Known(name) => name,
            Self::Unknown => "unknown",
        }
    }
}
