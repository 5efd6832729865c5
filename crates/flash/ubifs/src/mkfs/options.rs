//! Options of a new file system, with defaults and limits, and the areas derived from them.

use thiserror::Error;

use crate::compress::Compressor;
use crate::format::{Compression, LOG_LEB};
use crate::lpt::{LptGeometry, LptInput};

const LEB_BYTES_MIN: u32 = 15 << 10;
const LEB_BYTES_MAX: u32 = 2 << 20;
const FANOUT_MIN: u32 = 3;
/// Minimum number of buds: one per head.
const BUDS_MIN: u32 = 3;
/// Minimum size of the main area, LEBs: the journal, garbage collection, the index, and one more for each of the
/// latter two during a commit.
pub(super) const MAIN_LEBS_MIN: u32 = BUDS_MIN + 5;
const LOG_LEBS_MIN: u32 = 2;
const JOURNAL_BYTES_MAX: u64 = 8 << 20;
/// Entries of the LPT's save table.
const SAVED_LEBS: u32 = 256;
/// Linux adds the GC head and the base head to the number in the superblock.
pub(super) const DATA_HEADS: u32 = 1;
const REFERENCE_BYTES: u64 = 64;
const COMMIT_START_BYTES: u64 = 32;
const INDEX_BRANCH_BYTES: u32 = 20;
const INDEX_HEADER_BYTES: u32 = 28;

/// Hash of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHash {
    /// The default.
    R5,
    /// For tests: names with a common prefix collide.
    Test,
}

/// Initial number of LEBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LebCount {
    /// As few as the files need: the first read-write mount grows the file system to the size of its volume.
    Fewest,
    /// This number.
    Exactly(u32),
}

/// Source of the UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// This UUID.
    Uuid([u8; 16]),
    /// Derived from the content, so that the same files give the same image.
    FromContent,
}

/// Options of a new file system.
#[derive(Clone, Copy, Debug)]
pub struct MkfsOptions {
    /// Write unit, bytes.
    pub min_io_bytes: u32,
    /// LEB size, bytes.
    pub leb_bytes: u32,
    /// Number of LEBs the file system may grow to.
    pub lebs_max: u32,
    /// Initial number of LEBs.
    pub lebs: LebCount,
    /// Maximum size of the journal, bytes; `None`: an eighth of the space, up to 8 MiB.
    pub journal_bytes: Option<u64>,
    /// LEBs of the log; `None`: as many as the journal needs, plus two.
    pub log_lebs: Option<u32>,
    /// LEBs of the orphan area.
    pub orphan_lebs: u32,
    /// Maximum number of branches in an index node.
    pub fanout: u32,
    /// Size of the reserved pool, which only its owner may fill, bytes.
    pub reserved_bytes: u64,
    /// Compression of blocks.
    pub compressor: Compressor,
    /// Hash of names.
    pub key_hash: KeyHash,
    /// Free-space fixup: the first mount by Linux erases the free space properly. For programmers that write pages of
    /// 0xFF.
    pub space_fixup: bool,
    /// Source of the UUID.
    pub identity: Identity,
}

/// An invalid option.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} is {found}, but {expected}")]
pub struct OptionError {
    /// Name of the option.
    pub what: &'static str,
    /// Value given.
    pub found: u64,
    /// Possible values.
    pub expected: String,
}

/// Areas of a file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Areas {
    pub(super) journal_bytes: u64,
    pub(super) log_lebs: u32,
    pub(super) orphan_lebs: u32,
    pub(super) lpt: LptGeometry,
    pub(super) main_first: u32,
}

fn expect(
    good: bool,
    what: &'static str,
    found: u64,
    expected: impl FnOnce() -> String,
) -> Result<(), OptionError> {
    match good {
        true => Ok(()),
        false => Err(OptionError {
            what,
            found,
            expected: expected(),
        }),
    }
}

impl MkfsOptions {
    /// The defaults of `mkfs.ubifs`.
    #[must_use]
    pub const fn new(min_io_bytes: u32, leb_bytes: u32, lebs_max: u32) -> Self {
        Self {
            min_io_bytes,
            leb_bytes,
            lebs_max,
            lebs: LebCount::Fewest,
            journal_bytes: None,
            log_lebs: None,
            orphan_lebs: 1,
            fanout: 8,
            reserved_bytes: 0,
            compressor: Compressor::Only(Compression::Lzo),
            key_hash: KeyHash::R5,
            space_fixup: false,
            identity: Identity::FromContent,
        }
    }

    /// Checks all options and computes the areas.
    pub(super) fn areas(&self) -> Result<Areas, OptionError> {
        self.check()?;
        let leb_bytes = u64::from(self.leb_bytes);
        let log_lebs_min = self.log_lebs.unwrap_or(LOG_LEBS_MIN);
        let rest = u64::from(self.lebs_max)
            .saturating_sub(u64::from(LOG_LEB) + u64::from(self.orphan_lebs) + u64::from(log_lebs_min) + 2);
        let journal_bytes = self.journal_bytes.unwrap_or_else(|| {
            let eighth = rest / 8 * leb_bytes;
            eighth.min(JOURNAL_BYTES_MAX).max(4 * leb_bytes)
        });
        expect(
            journal_bytes >= u64::from(BUDS_MIN) * leb_bytes,
            "the size of the journal in bytes",
            journal_bytes,
            || format!("its three heads need a LEB of {leb_bytes} bytes each"),
        )?;
        let log_lebs_needed = self.log_lebs_for(journal_bytes);
        let log_lebs = self.log_lebs.unwrap_or(log_lebs_needed + 2);
        expect(
            log_lebs >= log_lebs_needed,
            "the number of LEBs of the log",
            log_lebs.into(),
            || format!("a journal of {journal_bytes} bytes needs {log_lebs_needed}"),
        )?;
        let too_few = |needed: u64| OptionError {
            what: "the largest number of LEBs",
            found: self.lebs_max.into(),
            expected: format!("this journal, log and orphan area need {needed} at least"),
        };
        let before = u64::from(LOG_LEB) + u64::from(log_lebs) + u64::from(self.orphan_lebs);
        let journal_lebs = journal_bytes.div_ceil(leb_bytes);
        let needed = before + 2 + journal_lebs.max(MAIN_LEBS_MIN.into());
        let rest = u64::from(self.lebs_max)
            .checked_sub(before)
            .and_then(|rest| u32::try_from(rest).ok());
        let lpt = rest
            .filter(|_| u64::from(self.lebs_max) >= needed)
            .and_then(|rest| {
                LptGeometry::choose(LptInput {
                    leb_bytes: self.leb_bytes,
                    min_io_bytes: self.min_io_bytes,
                    main_lebs: rest,
                    lebs: self.lebs_max,
                    lebs_max: self.lebs_max,
                    lpt_lebs: 0,
                    saved_lebs: SAVED_LEBS,
                    big: false,
                })
            })
            .filter(|lpt| u64::from(lpt.input.main_lebs) >= journal_lebs.max(MAIN_LEBS_MIN.into()))
            .ok_or_else(|| too_few(needed))?;
        let main_first = self.lebs_max - lpt.input.main_lebs;
        let reserved_max = u64::from(lpt.input.main_lebs) * leb_bytes / 2;
        expect(
            self.reserved_bytes <= reserved_max,
            "the reserve in bytes",
            self.reserved_bytes,
            || format!("half of the space for files is {reserved_max}"),
        )?;
        if let LebCount::Exactly(lebs) = self.lebs {
            let needed = u64::from(main_first) + journal_lebs.max(MAIN_LEBS_MIN.into());
            expect(
                lebs <= self.lebs_max && u64::from(lebs) >= needed,
                "the number of LEBs",
                lebs.into(),
                || format!("from {needed} to {} are possible", self.lebs_max),
            )?;
        }
        Ok(Areas {
            journal_bytes,
            log_lebs,
            orphan_lebs: self.orphan_lebs,
            lpt,
            main_first,
        })
    }

    fn check(&self) -> Result<(), OptionError> {
        let (min_io, leb) = (self.min_io_bytes, self.leb_bytes);
        expect(
            min_io.is_multiple_of(8) && min_io >= 8,
            "the write unit in bytes",
            min_io.into(),
            || "a multiple of 8 is needed".to_owned(),
        )?;
        expect(
            (LEB_BYTES_MIN..=LEB_BYTES_MAX).contains(&leb),
            "the LEB size in bytes",
            leb.into(),
            || format!("from {LEB_BYTES_MIN} to {LEB_BYTES_MAX} are possible"),
        )?;
        expect(
            leb.is_multiple_of(min_io) && min_io <= leb / 2,
            "the LEB size in bytes",
            leb.into(),
            || format!("two or more write units of {min_io} must fill it"),
        )?;
        let fanout_max = ((leb - INDEX_HEADER_BYTES) / INDEX_BRANCH_BYTES).min(u16::MAX.into());
        expect(
            (FANOUT_MIN..=fanout_max).contains(&self.fanout),
            "the fanout",
            self.fanout.into(),
            || format!("from {FANOUT_MIN} to {fanout_max} are possible with this LEB size"),
        )?;
        expect(
            (1..=1 << 16).contains(&self.orphan_lebs),
            "the number of LEBs for orphans",
            self.orphan_lebs.into(),
            || "from 1 to 65536 are possible".to_owned(),
        )
    }

    /// LEBs of the log: references to all buds, a commit start, and a LEB for the next commit.
    fn log_lebs_for(&self, journal_bytes: u64) -> u32 {
        let (leb_bytes, unit) = (u64::from(self.leb_bytes), u64::from(self.min_io_bytes));
        let references = journal_bytes.div_ceil(leb_bytes) * REFERENCE_BYTES.next_multiple_of(unit);
        let start = (COMMIT_START_BYTES + REFERENCE_BYTES * u64::from(DATA_HEADS + 2)).next_multiple_of(unit);
        let lebs = (references + start).div_ceil(leb_bytes) + 1;
        u32::try_from(lebs).unwrap_or(u32::MAX - 2)
    }
}
