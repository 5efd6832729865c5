//! Reads a volume by all nodes that a scan finds, for damage that the index does not survive.
//!
//! [`Salvage::scan`] reads every LEB and gives a [`Ubifs`] whose index is a table in memory: everything that reads a
//! file system reads it, too. Parts of the index that are intact decide exactly as in a normal reading; in the other
//! parts the largest sequence number of each key counts. Nothing is written.
//!
//! - Removed files, names, and blocks behind a truncation stay removed as long as a removal node, an index node, or a
//!   smaller size proves it. Their proofs are collected as garbage independently of them, so each part of the index
//!   that is lost is a [`Guess`].
//! - A damaged node is not replaced by an older node of the same block: it is a loss. Attributes are, with a guess.
//! - Files without a name are in `lost+found` of the root under their inode numbers; directories without an inode are
//!   made from their entries.
//! - Superblock and master node are used, and not needed.
//!
//! The scan uses threads; what it finds does not depend on their number. Contents stay on the medium. Memory: up to
//! 112 bytes for each node during the scan, 16 afterwards; records beyond [`SalvageOptions::memory_bytes`] are left
//! out and reported.

mod deleted;
mod evidence;
mod guess;
mod leb_size;
mod names;
mod records;
mod resolve;
mod scan;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use ubi::Volume;

pub use self::deleted::DeletedFile;
use self::evidence::{Evidence, Gap};
use self::guess::Guesses;
pub use self::guess::{Decision, Guess};
pub use self::leb_size::leb_bytes_of;
use self::records::{Harvest, Record, State, Units};
use self::resolve::Resolver;
use self::scan::scan_volume;
pub(crate) use self::table::Table;
use crate::content::Workspaces;
use crate::encryption::{Keyring, MasterKey};
use crate::file_system::Ubifs;
use crate::finding::{Damage, Finding, Place, Subject};
use crate::format::{
    InodeNumber, MASTER_DIRTY, MASTER_LEB, MASTER_RECOVERED, Master, Superblock, SuperblockFlags,
};
use crate::index::Index;
use crate::journal::Journal;
use crate::known_inodes::KnownInodes;
use crate::report::ReplayReport;
use crate::rescue::usual_superblock;

/// Options of a salvage.
#[derive(Clone, Copy, Debug)]
pub struct SalvageOptions {
    /// Threads that scan.
    pub threads: usize,
    /// Memory limit of the records, bytes.
    pub memory_bytes: usize,
    /// Whether deleted files are collected.
    pub lists_deleted: bool,
}

impl SalvageOptions {
    /// Two threads, and 48 MiB and a sixteenth of the volume for records.
    #[must_use]
    pub fn standard(volume: &dyn Volume) -> Self {
        let geometry = volume.geometry();
        let bytes = u64::from(geometry.lebs) * u64::from(geometry.leb_bytes);
        Self {
            threads: 2,
            memory_bytes: usize::try_from((48 << 20) + bytes / 16).unwrap_or(usize::MAX),
            lists_deleted: false,
        }
    }
}

/// The result of a scan.
pub struct Salvage {
    tree: Ubifs,
    guesses: Guesses,
    losses: Vec<Finding>,
    deleted: Vec<DeletedFile>,
    deleted_tree: Option<Ubifs>,
}

impl Salvage {
    /// Scans a volume. It needs the size of the LEBs, nothing else.
    #[must_use]
    pub fn scan(volume: Arc<dyn Volume>, options: SalvageOptions) -> Self {
        let mut harvest = scan_volume(&*volume, options.threads, options.memory_bytes);
        let mut guesses = Guesses::default();
        let mut losses = std::mem::take(&mut harvest.unreadable);
        let key_hash = harvest
            .superblock
            .as_ref()
            .map_or_else(|| harvest.key_hash_by_names(), |superblock| superblock.key_hash);
        harvest.sort(key_hash);
        let master = newest_master(&harvest);
        if harvest.superblock.is_none() {
            guesses.add(None, Decision::Superblock, None);
        }
        if master.is_none() {
            guesses.add(None, Decision::Master, None);
        }
        let evidence = Evidence::collect(&*volume, &mut harvest, master.as_ref(), options.memory_bytes);
        if evidence.is_renumbered {
            guesses.add(None, Decision::Renumbered, None);
        }
        let may_be_torn = master
            .as_ref()
            .is_none_or(|master| master.flags & MASTER_DIRTY != 0);
        let units = Units::new(volume.geometry().leb_bytes);
        if may_be_torn {
            drop_tails(&mut harvest, &evidence, units, &mut guesses);
        }
        for (key, unit) in &evidence.moved {
            let place = units.place(*unit, 0);
            guesses.add(Some(key.inode_number()), Decision::Moved, Some(place));
        }
        let journal = journal_lebs(&harvest, &evidence, units);
        let has_scars = !losses.is_empty()
            || harvest.left_out > 0
            || harvest
                .scars
                .iter()
                .any(|scar| scar.is_of_files && !(scar.is_last && may_be_torn));
        let sequence_max = sequence_max(&harvest);
        add_missing(&harvest, &evidence, sequence_max, &mut guesses);
        add_empty_buds(&harvest, &evidence, may_be_torn, &mut guesses);
        if master.is_some() && !evidence.has_start && may_be_torn {
            guesses.add(None, Decision::Boundary, None);
        }
        add_journal_losses(&harvest, &journal, may_be_torn, &mut losses);
        let mut resolver = Resolver {
            harvest: &harvest,
            evidence: &evidence,
            units,
            may_be_torn,
            has_scars,
            sequence_max,
            fates: Vec::new(),
            guesses,
            table: Table::new(units),
            sizes: BTreeMap::new(),
            ends: BTreeMap::new(),
        };
        resolver.resolve_inodes();
        let mut names = resolver.resolve_names();
        resolver.resolve_blocks(&names.named());
        resolver.build_tree(&mut names);
        let deleted = options
            .lists_deleted
            .then(|| deleted::collect(&resolver, &names, &*volume));
        drop(names);
        let Resolver {
            mut guesses,
            mut table,
            sizes,
            ..
        } = resolver;
        table.sort();
        let is_indexed = master.is_some() && !evidence.is_renumbered;
        add_gap_guesses(&table, &evidence.gaps, is_indexed, &mut guesses);
        if harvest.left_out > 0 {
            losses.push(left_out(&harvest));
        }
        let is_encrypted = harvest.inodes.iter().any(|inode| inode.is_encrypted);
        let superblock = superblock(&harvest, &*volume, key_hash, is_encrypted);
        let parts = (superblock, master);
        let (deleted, deleted_tree) = match deleted {
            None => (Vec::new(), None),
            Some(deleted) => {
                let tree = tree(&volume, parts.clone(), deleted.table, BTreeMap::new(), Vec::new());
                (deleted.files, Some(tree))
            }
        };
        Self {
            tree: tree(&volume, parts, table, sizes, losses.clone()),
            guesses,
            losses,
            deleted,
            deleted_tree,
        }
    }

    /// The file system; its findings are the losses.
    #[must_use]
    pub const fn tree(&self) -> &Ubifs {
        &self.tree
    }

    /// As [`Self::tree`], owned, with the master keys of encrypted files.
    #[must_use]
    pub fn into_tree(self, keys: Vec<MasterKey>) -> Ubifs {
        self.tree.with_keys(keys)
    }

    /// Both trees: that of the files, and that of deleted ones if [`SalvageOptions::lists_deleted`] is set.
    #[must_use]
    pub fn into_trees(self, keys: Vec<MasterKey>) -> (Ubifs, Option<Ubifs>) {
        let deleted = self.deleted_tree.map(|tree| tree.with_keys(keys.clone()));
        (self.tree.with_keys(keys), deleted)
    }

    /// Deleted files, if [`SalvageOptions::lists_deleted`] is set.
    #[must_use]
    pub fn deleted(&self) -> &[DeletedFile] {
        &self.deleted
    }

    /// The tree of deleted files, each under its last path, if [`SalvageOptions::lists_deleted`] is set.
    #[must_use]
    pub fn into_deleted_tree(self, keys: Vec<MasterKey>) -> Option<Ubifs> {
        Some(self.deleted_tree?.with_keys(keys))
    }

    /// Decisions that the medium does not prove.
    #[must_use]
    pub fn guesses(&self) -> &[Guess] {
        &self.guesses.list
    }

    /// Number of guesses beyond those that are kept.
    #[must_use]
    pub const fn further_guesses(&self) -> u64 {
        self.guesses.further
    }

    /// Damage that concerns no known file. Reads report the losses of files.
    #[must_use]
    pub fn losses(&self) -> &[Finding] {
        &self.losses
    }
}

/// The newest master node, as a mount would take it.
fn newest_master(harvest: &Harvest) -> Option<Master> {
    let best = harvest.masters.iter().max_by_key(|(sequence, place, master)| {
        let is_recovered =
            place.leb == MASTER_LEB && place.offset == 0 && master.flags & MASTER_RECOVERED != 0;
        (
            is_recovered && *sequence == last_in(harvest, place.leb),
            master.commit,
            *sequence,
        )
    });
    best.map(|(_, _, master)| master.clone())
}

/// The largest sequence number of the master nodes in a LEB.
fn last_in(harvest: &Harvest, leb: u32) -> u64 {
    let in_leb = harvest.masters.iter().filter(|(_, place, _)| place.leb == leb);
    in_leb.map(|(sequence, _, _)| *sequence).max().unwrap_or(0)
}

fn sequence_max(harvest: &Harvest) -> u64 {
    fn largest<R: Record>(records: &[R]) -> u64 {
        records.iter().map(Record::sequence).max().unwrap_or(0)
    }
    largest(&harvest.blocks)
        .max(largest(&harvest.inodes))
        .max(largest(&harvest.names))
}

/// Drops the nodes of operations that a power cut interrupted.
fn drop_tails(harvest: &mut Harvest, evidence: &Evidence, units: Units, guesses: &mut Guesses) {
    fn drop_in<R: Record>(records: &mut [R], tails: &[records::Tail], evidence: &Evidence) -> bool {
        let mut any = false;
        for record in records {
            let is_inside = is_in(tails, record.unit());
            let is_new = evidence.boundary.is_none() || evidence.is_of_journal(record.sequence());
            if is_inside && is_new && record.state() == State::Open {
                record.set_state(State::Dropped);
                any = true;
            }
        }
        any
    }
    let tails = std::mem::take(&mut harvest.tails);
    if tails.is_empty() {
        return;
    }
    let inodes = drop_in(&mut harvest.inodes, &tails, evidence);
    let names = drop_in(&mut harvest.names, &tails, evidence);
    let blocks = drop_in(&mut harvest.blocks, &tails, evidence);
    let is_inside = |unit: u32| {
        tails
            .iter()
            .any(|tail| (tail.units.0..tail.units.1).contains(&unit))
    };
    harvest.cuts.retain(|cut| !is_inside(cut.unit));
    if inodes || names || blocks {
        let place = units.place(tails[0].units.0, 0);
        guesses.add(None, Decision::Unfinished, Some(place));
    }
}

/// Whether a unit is in one of the tails, which are sorted.
fn is_in(tails: &[records::Tail], unit: u32) -> bool {
    let next = tails.partition_point(|tail| tail.units.0 <= unit);
    next.checked_sub(1).is_some_and(|at| unit < tails[at].units.1)
}

/// LEBs of the journal, by the references of the log and by their nodes, each with the lowest offset.
fn journal_lebs(harvest: &Harvest, evidence: &Evidence, units: Units) -> BTreeMap<u32, u32> {
    fn add<R: Record>(records: &[R], evidence: &Evidence, add: &mut dyn FnMut(u32)) {
        let new = records
            .iter()
            .filter(|record| evidence.is_of_journal(record.sequence()));
        new.for_each(|record| add(record.unit()));
    }
    let mut lebs = evidence.buds.clone();
    let mut add_unit = |unit: u32| {
        let place = units.place(unit, 0);
        let offset = lebs.entry(place.leb).or_insert(place.offset);
        *offset = place.offset.min(*offset);
    };
    add(&harvest.blocks, evidence, &mut add_unit);
    add(&harvest.inodes, evidence, &mut add_unit);
    add(&harvest.names, evidence, &mut add_unit);
    lebs
}

/// Counts the sequence numbers that are missing between the last commit and the last node of a file.
fn add_missing(harvest: &Harvest, evidence: &Evidence, last: u64, guesses: &mut Guesses) {
    // A reference is written when its LEB joins the journal: nodes before it are written, or lost.
    let references = harvest.references.iter().map(|(sequence, _)| *sequence);
    let last = references
        .filter(|sequence| evidence.has_start && evidence.is_of_journal(*sequence))
        .fold(last, u64::max);
    let Some(boundary) = evidence.boundary.filter(|boundary| *boundary < last) else {
        return;
    };
    let found = harvest.sequences(boundary + 1);
    let found = &found[..found.partition_point(|sequence| *sequence <= last)];
    let found = u64::try_from(found.len()).unwrap_or(u64::MAX);
    let nodes = (last - boundary).saturating_sub(found);
    if nodes > 0 {
        guesses.add(None, Decision::MissingNodes { nodes }, None);
    }
}

/// Notes the parts of the journal in which nothing is left. The LEB of a part that does not begin at its start was written
/// before the commit.
fn add_empty_buds(harvest: &Harvest, evidence: &Evidence, may_be_torn: bool, guesses: &mut Guesses) {
    for (leb, offset) in &evidence.buds {
        let is_written = harvest.written.binary_search(leb).is_ok();
        if !is_written && (may_be_torn || *offset > 0) {
            let place = Place {
                leb: *leb,
                offset: *offset,
                bytes: 0,
            };
            guesses.add(None, Decision::EmptyBud, Some(place));
        }
    }
}

/// Damage in the journal: it is not known which files it concerns.
fn add_journal_losses(
    harvest: &Harvest,
    journal: &BTreeMap<u32, u32>,
    may_be_torn: bool,
    losses: &mut Vec<Finding>,
) {
    for scar in harvest.scars.iter().filter(|scar| scar.is_of_files) {
        let is_torn = scar.is_last && may_be_torn;
        let is_in_journal = journal
            .get(&scar.place.leb)
            .is_some_and(|from| scar.place.offset >= *from);
        if is_in_journal && !is_torn {
            losses.push(Finding {
                inode: None,
                subject: Subject::Journal,
                place: scar.place,
                damage: scar.defect.into(),
            });
        }
    }
}

fn left_out(harvest: &Harvest) -> Finding {
    let kept = harvest.blocks.len() + harvest.inodes.len() + harvest.names.len();
    let kept = u64::try_from(kept).unwrap_or(u64::MAX);
    Finding {
        inode: None,
        subject: Subject::Data,
        place: Place {
            leb: 0,
            offset: 0,
            bytes: 0,
        },
        damage: Damage::Value {
            what: "the number of nodes that fit into memory",
            found: kept,
            expected: kept + harvest.left_out,
        },
    }
}

/// A line for each run of inodes in each part of the index that is lost. Inodes of which every node is proven are not
/// named.
fn add_gap_guesses(table: &Table, gaps: &[Gap], is_indexed: bool, guesses: &mut Guesses) {
    let whole = Gap {
        low: 0,
        high: u64::MAX,
        place: Place {
            leb: 0,
            offset: 0,
            bytes: 0,
        },
    };
    let gaps = if is_indexed {
        gaps
    } else {
        std::slice::from_ref(&whole)
    };
    for gap in gaps {
        let from = table.rows.partition_point(|row| row.key.order() < gap.low);
        let rows = table.rows[from..]
            .iter()
            .take_while(|row| row.key.order() <= gap.high);
        let mut runs = Runs {
            open: None,
            place: is_indexed.then_some(gap.place),
            guesses,
        };
        // Other blocks of an inode at either end may have been in the gap.
        let is_known = |number: InodeNumber| {
            let at = table.rows.partition_point(|row| row.key.inode_number() < number);
            table
                .rows
                .get(at)
                .is_some_and(|row| row.key.inode_number() == number)
        };
        let ends =
            [gap.low, gap.high].map(|order| InodeNumber(u32::try_from(order >> 32).unwrap_or(u32::MAX)));
        let [first, last] = ends.map(|number| Some(number).filter(|number| is_known(*number)));
        if let Some(first) = first {
            runs.add(first, 0);
        }
        for (number, nodes) in guessed(rows) {
            match nodes > 0 || Some(number) == first || Some(number) == last {
                true => runs.add(number, nodes),
                false => runs.close(),
            }
        }
        if let Some(last) = last {
            runs.add(last, 0);
        }
        runs.close();
    }
}

/// The inodes of rows, ascending, each with the number of its rows that are guesses.
fn guessed<'a>(rows: impl Iterator<Item = &'a table::Row>) -> impl Iterator<Item = (InodeNumber, u64)> {
    let mut rows = rows.peekable();
    std::iter::from_fn(move || {
        let first = rows.next()?;
        let number = first.key.inode_number();
        let mut nodes = u64::from(first.is_guess);
        while let Some(row) = rows.next_if(|row| row.key.inode_number() == number) {
            nodes += u64::from(row.is_guess);
        }
        Some((number, nodes))
    })
}

/// Joins inodes that follow each other to lines.
struct Runs<'a> {
    /// First and last inode, and number of nodes.
    open: Option<(InodeNumber, InodeNumber, u64)>,
    place: Option<Place>,
    guesses: &'a mut Guesses,
}

impl Runs<'_> {
    fn add(&mut self, number: InodeNumber, nodes: u64) {
        let (first, _, before) = self.open.unwrap_or((number, number, 0));
        self.open = Some((first, number, before + nodes));
    }

    fn close(&mut self) {
        if let Some((first, last, nodes)) = self.open.take() {
            let decision = Decision::NewestNodes { first, last, nodes };
            self.guesses.add(None, decision, self.place);
        }
    }
}

/// The superblock, or usual parameters in its place.
fn superblock(harvest: &Harvest, volume: &dyn Volume, key_hash: u8, is_encrypted: bool) -> Superblock {
    let geometry = volume.geometry();
    let usual = usual_superblock(geometry.leb_bytes, geometry.lebs, geometry.min_io_bytes);
    let mut superblock = harvest.superblock.clone().unwrap_or(usual);
    superblock.key_hash = key_hash;
    if is_encrypted {
        superblock.flags |= SuperblockFlags::ENCRYPTION.0;
    }
    superblock
}

fn tree(
    volume: &Arc<dyn Volume>,
    (superblock, master): (Superblock, Option<Master>),
    table: Table,
    sizes: BTreeMap<InodeNumber, u64>,
    findings: Vec<Finding>,
) -> Ubifs {
    let index = Index::of_table(Arc::clone(volume), table);
    let mut journal = Journal::default();
    journal.sizes = sizes;
    Ubifs {
        volume: Arc::clone(volume),
        superblock,
        master: master.unwrap_or_else(Master::unknown),
        index,
        journal,
        report: ReplayReport::default(),
        findings,
        workspaces: Workspaces::default(),
        keyring: Keyring::default(),
        known_inodes: KnownInodes::default(),
    }
}
