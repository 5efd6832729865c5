//! The volumes of one part of a dump: each is written to its place, and described for the report.

use std::sync::Arc;

use image::{
    BareVolume, Content, DumpVolume, Finding, Partition, Severity, Volume, open_ubifs, salvage_ubifs,
};
use serde_json::{Value, json};
use ubi::format::VolumeKind;
use ubifs::{MasterKey, OpenOptions, Ubifs};

use super::member;
use super::names::{Names, harmless};
use super::report;
use super::target::Target;
use crate::budget::Budget;
use crate::error::Result;
use crate::losses::{Losses, Tell, guess_lines};
use crate::progress::{Progress, Watch};

/// Writes the volumes of one part.
pub struct Volumes<'a, 't, 'd> {
    pub tell: Tell,
    /// Makes an observer of the files of a file system.
    pub watch: fn() -> Box<dyn Watch>,
    pub keys: &'a [MasterKey],
    /// File systems are read by all nodes that a scan finds.
    pub salvages: bool,
    /// Deleted files are written, too.
    pub lists_deleted: bool,
    pub budget: &'a Budget,
    /// Folder of the part.
    pub folder: &'a str,
    pub names: Names,
    /// Without one, the volumes are only described.
    pub target: Option<&'t mut (dyn Target + 'd)>,
    /// Number of losses so far.
    pub losses: u64,
    /// A file system lost something that a salvage might get.
    pub may_get_more: bool,
}

/// The output of a volume, for the report.
#[derive(Default)]
struct Done {
    output: Option<String>,
    files: Option<Progress>,
    bytes: u64,
    lost: Vec<String>,
    notes: Vec<String>,
    guesses: Vec<String>,
    deleted: Option<Deleted>,
    losses: u64,
}

/// The deleted files of a volume.
struct Deleted {
    output: String,
    files: Progress,
}

/// A file system to write.
struct Trees {
    ubifs: Ubifs,
    /// The tree of deleted files, if there are any.
    deleted: Option<Ubifs>,
    notes: Vec<Finding>,
    guesses: Vec<String>,
}

impl Volumes<'_, '_, '_> {
    /// Unpacks a UBI partition.
    pub fn partition(&mut self, partition: &Partition) -> Result<Value> {
        for finding in &partition.findings {
            self.losses += report::tell(self.tell, self.folder.as_bytes(), finding);
        }
        let mut volumes = Vec::new();
        for volume in &partition.volumes {
            let done = self.volume(volume)?;
            self.losses += done.losses;
            volumes.push(describe(volume, done));
        }
        Ok(report::partition(partition, self.folder, volumes))
    }

    /// Unpacks a UBIFS without UBI.
    pub fn bare(&mut self, bare: &BareVolume) -> Result<Value> {
        let mut done = Done::default();
        if let Some(name) = self.ubifs(Arc::new(bare.open()), "files", &mut done)? {
            done.output = Some(name);
        }
        self.losses += done.losses;
        let mut value = output(done);
        // The part has a size of its own.
        let content = value["bytes"].take();
        merge(&mut value, report::bare(bare, self.folder));
        value["content_bytes"] = content;
        Ok(value)
    }

    fn volume(&mut self, volume: &Volume) -> Result<Done> {
        let mut done = Done::default();
        let name = harmless(&volume.name());
        self.note(&volume.findings, &name, &mut done);
        if let Some(line) = member::told(volume) {
            let mut losses = Losses::below(self.tell, format!("{}/{name}", self.folder).as_bytes());
            losses.tell(b"", &line);
            done.add_losses(&losses);
            if volume.content != Content::Empty {
                self.image(volume, &format!("{name}.img"), &mut done)?;
            }
            return Ok(done);
        }
        match volume.content {
            Content::Empty => {}
            Content::Ubifs => {
                let tree = self.names.unique(&name);
                match self.ubifs(Arc::new(volume.open()), &tree, &mut done)? {
                    Some(output) => done.output = Some(output),
                    // The image keeps what this program can't read.
                    None => self.image(volume, &format!("{name}.ubifs"), &mut done)?,
                }
            }
            Content::Squashfs => self.image(volume, &format!("{name}.squashfs"), &mut done)?,
            Content::Known(_) | Content::Unknown => {
                let ending = match volume.kind {
                    VolumeKind::Static => "bin",
                    VolumeKind::Dynamic => "img",
                };
                self.image(volume, &format!("{name}.{ending}"), &mut done)?;
            }
        }
        Ok(done)
    }

    /// Writes the tree of a file system. `None` if it has none that can be read.
    fn ubifs(&mut self, volume: Arc<DumpVolume>, name: &str, done: &mut Done) -> Result<Option<String>> {
        if self.target.is_none() {
            return Ok(Some(String::new()));
        }
        let place = format!("{}/{name}", self.folder);
        let mut losses = Losses::below(self.tell, place.as_bytes());
        let Some(trees) = self.open(volume, &mut losses) else {
            self.may_get_more |= !self.salvages;
            done.add_losses(&losses);
            return Ok(None);
        };
        for finding in &trees.notes {
            match finding.severity() {
                Severity::Loss => losses.tell(b"", finding),
                Severity::Note => {
                    report::tell(self.tell, place.as_bytes(), finding);
                    done.notes.push(report::line(finding));
                }
            }
        }
        for guess in &trees.guesses {
            (self.tell)(&format!("guess: {place}: {guess}"));
        }
        done.losses += u64::try_from(trees.guesses.len()).unwrap_or(u64::MAX);
        done.guesses = trees.guesses;
        let ubifs = trees.ubifs;
        if ubifs.has_encryption() && self.keys.is_empty() {
            (self.tell)(&format!(
                "{place}: some files are encrypted: --key FILE opens them"
            ));
        }
        for finding in ubifs.findings() {
            losses.tell(b"", finding);
        }
        let Some(target) = self.target.as_deref_mut() else {
            return Ok(None);
        };
        let mut progress = Progress::new((self.watch)());
        let written = target.tree(
            (self.folder, name),
            &ubifs,
            self.budget,
            &mut losses,
            &mut progress,
        );
        progress.finish();
        match written {
            Ok(()) => {}
            Err(error) if target.is_stream() => return Err(error),
            Err(error) => losses.tell_error(b"", &error),
        }
        self.may_get_more |= !self.salvages && losses.has_damage();
        done.add_losses(&losses);
        if let Some(deleted) = trees.deleted.filter(|_| !self.budget.is_stopped()) {
            let name = self.names.unique(&format!("{name}.deleted"));
            self.deleted(&deleted, &name, done)?;
        }
        let is_written = progress.directories > 0;
        done.bytes = progress.bytes;
        done.files = Some(progress);
        Ok(is_written.then_some(place))
    }

    /// Opens a file system, or salvages it. `None` if it has no files that can be read.
    fn open(&self, volume: Arc<DumpVolume>, losses: &mut Losses) -> Option<Trees> {
        let salvaged = (self.salvages || self.lists_deleted)
            .then(|| salvage_ubifs(Arc::<DumpVolume>::clone(&volume), self.lists_deleted));
        let (mut notes, mut guesses, mut salvaged_tree, mut deleted) = (Vec::new(), Vec::new(), None, None);
        if let Some(salvaged) = salvaged {
            let salvage = salvaged.salvage;
            let has_deleted = !salvage.deleted().is_empty();
            if self.salvages {
                guesses = guess_lines(&salvage);
                notes = salvaged.findings;
            }
            let (tree, deleted_tree) = salvage.into_trees(self.keys.to_vec());
            salvaged_tree = self.salvages.then_some(tree);
            deleted = deleted_tree.filter(|_| has_deleted);
        }
        if let Some(ubifs) = salvaged_tree {
            return Some(Trees {
                ubifs,
                deleted,
                notes,
                guesses,
            });
        }
        match open_ubifs(volume, OpenOptions::standard()) {
            Ok(opened) => Some(Trees {
                ubifs: opened.ubifs.with_keys(self.keys.to_vec()),
                deleted,
                notes: opened.findings,
                guesses,
            }),
            Err(error) => {
                losses.tell(b"", &error);
                None
            }
        }
    }

    /// Writes deleted files. Missing blocks of them are no losses: they are what a deletion leaves. A file that is there and can't
    /// be written, such as one beyond a limit, is one.
    fn deleted(&mut self, tree: &Ubifs, name: &str, done: &mut Done) -> Result<()> {
        let Some(target) = self.target.as_deref_mut() else {
            return Ok(());
        };
        let place = format!("{}/{name}", self.folder);
        let mut losses = Losses::below(self.tell, place.as_bytes());
        let mut files = Progress::new((self.watch)());
        let written = target.tree((self.folder, name), tree, self.budget, &mut losses, &mut files);
        files.finish();
        match written {
            Ok(()) => {}
            Err(error) if target.is_stream() => return Err(error),
            Err(error) => {
                losses.tell_error(b"", &error);
                done.losses += u64::from(error.is_damage());
            }
        }
        done.losses += losses.left_out();
        done.notes.extend_from_slice(losses.lines());
        done.deleted = Some(Deleted { output: place, files });
        Ok(())
    }

    /// Writes the whole content of a volume to a file.
    fn image(&mut self, volume: &Volume, name: &str, done: &mut Done) -> Result<()> {
        let name = self.names.unique(name);
        let mut stream = volume.stream();
        let length = stream.length_bytes();
        let Some(target) = self.target.as_deref_mut() else {
            // A list has the size of what would be written.
            done.bytes = length;
            return Ok(());
        };
        let place = format!("{}/{name}", self.folder);
        let mut losses = Losses::below(self.tell, place.as_bytes());
        if let Err(error) = self.budget.take_bytes(length) {
            losses.leave_out(b"", &error);
            done.add_losses(&losses);
            return Ok(());
        }
        match target.content((self.folder, &name), length, &mut stream, self.budget) {
            Ok(true) => {
                done.output = Some(place);
                done.bytes = length;
            }
            Ok(false) => {}
            Err(error) if target.is_stream() => return Err(error),
            Err(error) => {
                losses.tell_error(b"", &error);
                done.add_losses(&losses);
            }
        }
        self.note(&stream.findings(), &name, done);
        Ok(())
    }

    /// Prints findings and keeps them for the report.
    fn note(&self, findings: &[Finding], name: &str, done: &mut Done) {
        let place = format!("{}/{name}", self.folder);
        for finding in findings {
            done.losses += report::tell(self.tell, place.as_bytes(), finding);
            let lines = match finding.severity() {
                Severity::Loss => &mut done.lost,
                Severity::Note => &mut done.notes,
            };
            lines.push(report::line(finding));
        }
    }
}

impl Done {
    fn add_losses(&mut self, losses: &Losses) {
        self.losses += losses.count();
        self.lost.extend_from_slice(losses.lines());
    }
}

fn describe(volume: &Volume, done: Done) -> Value {
    let mut value = json!({
        "number": volume.number,
        "name": String::from_utf8_lossy(&volume.name()),
        "kind": match volume.kind {
            VolumeKind::Static => "static",
            VolumeKind::Dynamic => "dynamic",
        },
        "content": volume.content.name(),
        "lebs": volume.lebs,
        "leb_bytes": volume.leb_bytes,
        "mapped_lebs": volume.mapped().count(),
    });
    merge(&mut value, output(done));
    value
}

fn output(done: Done) -> Value {
    json!({
        "output": done.output.filter(|output| !output.is_empty()),
        "directories": done.files.as_ref().map(|files| files.directories),
        "files": done.files.as_ref().map(|files| files.files),
        "others": done.files.as_ref().map(|files| files.others),
        "bytes": done.bytes,
        "lost": done.lost,
        "notes": done.notes,
        "guesses": done.guesses,
        "deleted": done.deleted.map(|deleted| json!({
            "output": deleted.output,
            "files": deleted.files.files,
            "bytes": deleted.files.bytes,
        })),
        "losses": done.losses,
    })
}

fn merge(value: &mut Value, other: Value) {
    if let (Value::Object(value), Value::Object(mut other)) = (value, other) {
        value.append(&mut other);
    }
}
