//! A file system of a dump: read as a mount would recover it, or salvaged. Each loss is a [`Note`] for the caller.
//!
//! Names come from the dump and are not trusted: those that no file of a host can have are left out, and told.

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use image::{Dump, DumpVolume, Severity, Threads, in_parallel, open_ubifs, salvage_ubifs};
use ubi::Volume as _;
use ubifs::format::{BLOCK_BYTES, EntryKind, Inode, InodeNumber};
use ubifs::{Entry, Finding, MasterKey, OpenOptions, Subject, Ubifs, UbifsError};

use crate::ahead::{Ahead, Content};
use crate::failure::{Class, Failure, SALVAGE, ZEROS};

/// A loss or a decision in a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether content is missing.
    pub severity: Severity,
    /// Name of the kind.
    pub kind: &'static str,
    /// LEB and offset in it.
    pub place: Option<(u32, u32)>,
    /// Inode concerned.
    pub inode: Option<u32>,
    /// The line for users.
    pub text: String,
}

impl Note {
    /// Whether the dump can't be read any more.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.kind == UNREADABLE
    }

    fn loss(kind: &'static str, inode: Option<InodeNumber>, text: String) -> Self {
        Self {
            severity: Severity::Loss,
            kind,
            place: None,
            inode: inode.map(|inode| inode.0),
            text,
        }
    }
}

impl From<&Finding> for Note {
    fn from(finding: &Finding) -> Self {
        let kind = match finding.subject {
            Subject::Master => "master",
            Subject::Log => "log",
            Subject::Journal => "journal",
            Subject::Index => "index",
            Subject::Space => "space",
            Subject::Data => "data",
            Subject::Orphans => "orphans",
            Subject::Inode => "inode",
            Subject::Entry => "entry",
            Subject::Xattr => "xattr",
            Subject::Block(_) => "block",
            Subject::Encrypted => "encrypted",
        };
        Self {
            severity: Severity::Loss,
            kind,
            place: Some((finding.place.leb, finding.place.offset)),
            inode: finding.inode.map(|inode| inode.0),
            text: finding.to_string(),
        }
    }
}

impl From<&image::Finding> for Note {
    fn from(finding: &image::Finding) -> Self {
        Self {
            severity: finding.severity(),
            kind: finding.what.kind(),
            place: None,
            inode: None,
            text: finding.to_string(),
        }
    }
}

fn notes(findings: &[Finding]) -> Vec<Note> {
    findings.iter().map(Note::from).collect()
}

/// Kind of a loss by a dump that can't be read any more.
const UNREADABLE: &str = "unreadable";

/// Larger reads are divided among the processors in pieces of this size: a multiple of a block, and the largest request.
const PIECE_BYTES: usize = 1 << 20;

/// An open file system.
pub struct Tree {
    ubifs: Ubifs,
    dump: Arc<Dump>,
    notes: Vec<Note>,
    ahead: Ahead,
    /// The threads that may read the dump.
    threads: Threads,
}

/// A file of a directory.
pub struct Child {
    /// Its name.
    pub name: Vec<u8>,
    /// Its attributes.
    pub inode: Inode,
}

/// Extended attributes: names and values.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Ranges of a file, as start and end.
pub type Extents = Vec<(u64, u64)>;

impl Tree {
    /// Opens the file system of a volume.
    ///
    /// # Errors
    /// If it can't be read at all; [`Self::salvage`] may get more then.
    pub fn open(dump: Arc<Dump>, volume: Arc<DumpVolume>, keys: Vec<MasterKey>) -> Result<Self, Failure> {
        let name = volume.name();
        let opened = open_ubifs(volume, OpenOptions::standard())
            .map_err(|error| Failure::damage(&name, &error, SALVAGE))?;
        let mut notes: Vec<Note> = notes(opened.ubifs.findings());
        notes.extend(opened.findings.iter().map(Note::from));
        Ok(Self {
            ubifs: opened.ubifs.with_keys(keys),
            notes,
            ahead: Ahead::default(),
            threads: dump.threads(),
            dump,
        })
    }

    /// Reads the file system by all nodes that a scan of the volume finds.
    #[must_use]
    pub fn salvage(dump: Arc<Dump>, volume: Arc<DumpVolume>, keys: Vec<MasterKey>) -> Self {
        let salvaged = salvage_ubifs(volume, false);
        let salvage = salvaged.salvage;
        let mut notes = notes(salvage.losses());
        notes.extend(salvaged.findings.iter().map(Note::from));
        notes.extend(salvage.guesses().iter().map(|guess| Note {
            severity: Severity::Note,
            kind: "guess",
            place: guess.place.map(|place| (place.leb, place.offset)),
            inode: guess.inode.map(|inode| inode.0),
            text: guess.to_string(),
        }));
        if salvage.further_guesses() > 0 {
            notes.push(Note {
                severity: Severity::Note,
                kind: "guess",
                place: None,
                inode: None,
                text: format!("{} more guesses are not listed", salvage.further_guesses()),
            });
        }
        Self {
            ubifs: salvage.into_tree(keys),
            notes,
            ahead: Ahead::default(),
            threads: dump.threads(),
            dump,
        }
    }

    /// Losses and decisions on the way to the file system.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Whether contents or names are encrypted.
    #[must_use]
    pub fn has_encryption(&self) -> bool {
        self.ubifs.has_encryption()
    }

    fn failure(&self, problem: &dyn Display, next_step: &'static str) -> Failure {
        Failure::damage(&self.ubifs.volume().name(), problem, next_step)
    }

    /// The error of `read`; that of the dump if it could not be read meanwhile, as its bytes count as erased then.
    fn or_unreadable<T>(&self, read: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let before = self.dump.late_failures();
        read().map_err(|failure| match self.dump.late_failures() == before {
            true => failure,
            false => Failure::unreadable(&self.dump),
        })
    }

    /// The result of `read`, and its losses; the first one is [`UNREADABLE`] if the dump could not be read meanwhile.
    fn with_losses<T>(&self, read: impl FnOnce(&mut Vec<Finding>) -> T) -> (T, Vec<Note>) {
        let before = self.dump.late_failures();
        let mut lost = Vec::new();
        let value = read(&mut lost);
        let mut all = notes(&lost);
        if !all.is_empty() && self.dump.late_failures() != before {
            let text = Failure::unreadable(&self.dump).problem;
            all.insert(0, Note::loss(UNREADABLE, None, text));
        }
        (value, all)
    }

    /// An inode.
    ///
    /// # Errors
    /// If it is damaged or does not exist.
    pub fn inode(&self, number: u32) -> Result<Inode, Failure> {
        self.or_unreadable(|| {
            let inode = self.ubifs.inode(InodeNumber(number));
            inode.map_err(|error| self.failure(&error, SALVAGE))
        })
    }

    /// The root directory; one without names if its inode is lost.
    #[must_use]
    pub fn root(&self) -> (Option<Inode>, Vec<Note>) {
        let (number, kind) = (ubifs::format::ROOT_INODE, Some(EntryKind::Directory));
        self.with_losses(|lost| self.ubifs.inode_lossy(number, kind, lost))
    }

    /// The file of a name in a directory; `None` if there is none.
    ///
    /// # Errors
    /// If damage hides the name.
    pub fn lookup(&self, directory: &Inode, name: &[u8]) -> Result<Option<(Inode, Vec<Note>)>, Failure> {
        self.or_unreadable(|| {
            let entry = match self.ubifs.lookup(directory.key.inode_number(), name) {
                Ok(entry) => entry,
                Err(UbifsError::NoName { .. }) => return Ok(None),
                Err(error) => return Err(self.failure(&error, SALVAGE)),
            };
            let (inode, lost) =
                self.with_losses(|lost| self.ubifs.inode_lossy(entry.inode, entry.kind, lost));
            match inode {
                Some(inode) => Ok(Some((inode, lost))),
                None => Err(lost.first().map_or_else(
                    || self.failure(&self.no_inode(entry.inode), SALVAGE),
                    |note| self.failure(&note.text, SALVAGE),
                )),
            }
        })
    }

    fn no_inode(&self, inode: InodeNumber) -> UbifsError {
        UbifsError::NoInode {
            volume: self.ubifs.volume().name(),
            inode,
        }
    }

    /// The files of a directory by name, and those of them that are lost.
    #[must_use]
    pub fn list(&self, directory: &Inode) -> (Vec<Child>, Vec<Note>) {
        let number = directory.key.inode_number();
        let mut left_out = Vec::new();
        let (children, mut all) = self.with_losses(|lost| {
            let mut entries = self.ubifs.read_directory_lossy(number, lost);
            entries.sort_by(|one, other| one.name.cmp(&other.name));
            let mut last: Option<Vec<u8>> = None;
            entries.retain(|entry| {
                let why = refusal(entry, last.as_deref());
                if let Some(why) = why {
                    let text = format!("{number}: \"{}\": {why}", entry.name.escape_ascii());
                    left_out.push(Note::loss("name", Some(entry.inode), text));
                }
                last = Some(entry.name.clone());
                why.is_none()
            });
            let numbers: Vec<InodeNumber> = entries.iter().map(|entry| entry.inode).collect();
            let inodes = self.ubifs.inodes(&numbers);
            let mut children = Vec::with_capacity(entries.len());
            for (entry, inode) in entries.into_iter().zip(inodes) {
                let inode = inode
                    .ok()
                    .or_else(|| self.ubifs.inode_lossy(entry.inode, entry.kind, lost));
                if let Some(inode) = inode {
                    children.push(Child {
                        name: entry.name,
                        inode,
                    });
                }
            }
            children
        });
        self.ahead.listed(children.iter().map(|child| &child.inode));
        all.append(&mut left_out);
        (children, all)
    }

    /// Reads a file from `offset` on; `out` ends before its end. Lost blocks are zeros, and notes.
    #[must_use]
    pub fn read(&self, file: &Inode, offset: u64, out: &mut [u8]) -> Vec<Note> {
        if out.len() < 2 * PIECE_BYTES || self.threads == Threads::Caller {
            return self.read_piece(file, offset, out);
        }
        let starts = (offset..).step_by(PIECE_BYTES);
        let pieces: Vec<(u64, Mutex<&mut [u8]>)> =
            starts.zip(out.chunks_mut(PIECE_BYTES).map(Mutex::new)).collect();
        let lost = in_parallel(self.threads, &pieces, &|(start, out)| {
            let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
            self.read_piece(file, *start, &mut out)
        });
        let mut all: Vec<Note> = Vec::new();
        for note in lost.into_iter().flatten() {
            // A damaged node of the index is found by each piece below it.
            if !["index", UNREADABLE].contains(&note.kind) || !all.contains(&note) {
                all.push(note);
            }
        }
        // Before the losses that it has caused.
        all.sort_by_key(|note| note.kind != UNREADABLE);
        all
    }

    fn read_piece(&self, file: &Inode, offset: u64, out: &mut [u8]) -> Vec<Note> {
        let (bytes, lost) = self.with_losses(|lost| self.ubifs.read_lossy(file, offset, out, lost));
        out[bytes..].fill(0);
        lost
    }

    /// The whole content of a file that was read ahead, or is, with others; `None` for others.
    #[must_use]
    pub fn whole(&self, file: &Inode) -> Option<Content> {
        if self.threads == Threads::Caller {
            return None;
        }
        self.ahead.whole(file, &|file: &Inode| {
            let mut content = vec![0; usize::try_from(file.size_bytes).unwrap_or(0)];
            let lost = self.read(file, 0, &mut content);
            (content, lost)
        })
    }

    /// The error for a read with losses.
    #[must_use]
    pub fn lost(&self, first: &Note) -> Failure {
        match first.kind {
            UNREADABLE => Failure::unreadable(&self.dump),
            _ => self.failure(&first.text, ZEROS),
        }
    }

    /// Target of a symbolic link.
    ///
    /// # Errors
    /// If it is none, or encrypted without a key.
    pub fn read_link(&self, link: &Inode) -> Result<Vec<u8>, Failure> {
        self.or_unreadable(|| {
            self.ubifs.read_link(link).map_err(|error| match error {
                UbifsError::WrongKind { .. } => {
                    Failure::new(Class::Argument, &self.ubifs.volume().name(), &error, "")
                }
                _ => self.failure(&error, "keys=[...] opens encrypted files"),
            })
        })
    }

    /// Extended attributes.
    #[must_use]
    pub fn xattrs(&self, inode: &Inode) -> (Xattrs, Vec<Note>) {
        let number = inode.key.inode_number();
        let (all, lost) = self.with_losses(|lost| self.ubifs.xattrs_lossy(number, lost));
        let pairs = all.into_iter().map(|one| (one.name, one.value)).collect();
        (pairs, lost)
    }

    /// The ranges of a file that are not holes, as start and end, ascending.
    #[must_use]
    pub fn extents(&self, file: &Inode) -> (Extents, Vec<Note>) {
        let (blocks, lost) = self.with_losses(|lost| self.ubifs.file_blocks_lossy(file, lost));
        let mut extents: Extents = Vec::new();
        for block in blocks {
            let start = u64::from(block) * u64::from(BLOCK_BYTES);
            let end = start.saturating_add(BLOCK_BYTES.into()).min(file.size_bytes);
            match extents.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ if start < end => extents.push((start, end)),
                _ => {}
            }
        }
        (extents, lost)
    }
}

/// The reason to leave out a name: an image may hold any bytes.
fn refusal(entry: &Entry, before: Option<&[u8]>) -> Option<&'static str> {
    let name = entry.name.as_slice();
    if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') || name.contains(&0) {
        return Some("no file of a host can have this name; it is left out");
    }
    (before == Some(name)).then_some("the directory has this name twice; the second one is left out")
}
