//! The volumes of one part of a dump: each is written to its place, and described for the report.

use std::sync::Arc;

use anyhow::Result;
use image::{BareVolume, Content, Finding, Partition, Severity, Volume, open_ubifs};
use serde_json::{Value, json};
use ubi::format::VolumeKind;
use ubifs::OpenOptions;

use super::names::{Names, harmless};
use super::report;
use super::target::Target;
use crate::output::{print_error, with_causes};
use crate::ubifs_command::Losses;
use crate::ubifs_command::extract::{Budget, Progress};
use crate::ubifs_command::source::KeyFile;

/// Writes the volumes of one part.
pub struct Volumes<'a, 't, 'd> {
    pub keys: &'a [KeyFile],
    pub budget: &'a Budget,
    /// Folder of the part.
    pub folder: &'a str,
    pub names: Names,
    /// Without one, the volumes are only described.
    pub target: Option<&'t mut (dyn Target + 'd)>,
    /// Number of losses so far.
    pub losses: u64,
}

/// The output of a volume, for the report.
#[derive(Default)]
struct Done {
    output: Option<String>,
    files: Option<Progress>,
    bytes: u64,
    lost: Vec<String>,
    notes: Vec<String>,
    losses: u64,
}

impl Volumes<'_, '_, '_> {
    /// Unpacks a UBI partition.
    pub fn partition(&mut self, partition: &Partition) -> Result<Value> {
        for finding in &partition.findings {
            self.losses += report::tell(self.folder.as_bytes(), finding);
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
        let mut value = report::bare(bare, self.folder);
        merge(&mut value, output(done));
        Ok(value)
    }

    fn volume(&mut self, volume: &Volume) -> Result<Done> {
        let mut done = Done::default();
        self.note(&volume.findings, &harmless(&volume.name()), &mut done);
        let name = harmless(&volume.name());
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
    fn ubifs(&mut self, volume: Arc<dyn ubi::Volume>, name: &str, done: &mut Done) -> Result<Option<String>> {
        let Some(target) = self.target.as_deref_mut() else {
            return Ok(Some(String::new()));
        };
        let place = format!("{}/{name}", self.folder);
        let mut losses = Losses::below(place.as_bytes());
        let opened = match open_ubifs(volume, OpenOptions::standard()) {
            Ok(opened) => opened,
            Err(error) => {
                losses.tell(b"", &error);
                done.add_losses(&losses);
                return Ok(None);
            }
        };
        for finding in &opened.findings {
            let line = report::line(finding);
            print_error(&format!("note: {place}: {line}"));
            done.notes.push(line);
        }
        let keys = self.keys.iter().map(KeyFile::read).collect::<Result<_>>()?;
        let ubifs = opened.ubifs.with_keys(keys);
        if ubifs.has_encryption() && self.keys.is_empty() {
            print_error(&format!(
                "{place}: some files are encrypted: --key FILE opens them"
            ));
        }
        for finding in ubifs.findings() {
            losses.tell(b"", finding);
        }
        let mut progress = Progress::new();
        let written = target.tree(
            (self.folder, name),
            &ubifs,
            self.budget,
            &mut losses,
            &mut progress,
        );
        progress.finish();
        if let Err(error) = written {
            losses.tell(b"", &with_causes(&error));
        }
        done.add_losses(&losses);
        let is_written = progress.directories > 0;
        done.bytes = progress.bytes;
        done.files = Some(progress);
        Ok(is_written.then_some(place))
    }

    /// Writes the whole content of a volume to a file.
    fn image(&mut self, volume: &Volume, name: &str, done: &mut Done) -> Result<()> {
        let name = self.names.unique(name);
        let mut stream = volume.stream();
        done.bytes = stream.length_bytes();
        let Some(target) = self.target.as_deref_mut() else {
            return Ok(());
        };
        let place = format!("{}/{name}", self.folder);
        if let Err(error) = self.budget.take_bytes(stream.length_bytes()) {
            let mut losses = Losses::below(place.as_bytes());
            losses.tell(b"", &error);
            done.add_losses(&losses);
            return Ok(());
        }
        target.content(
            (self.folder, &name),
            stream.length_bytes(),
            &mut stream,
            self.budget,
        )?;
        self.note(&stream.findings(), &name, done);
        done.output = Some(place);
        Ok(())
    }

    /// Prints findings and keeps them for the report.
    fn note(&self, findings: &[Finding], name: &str, done: &mut Done) {
        let place = format!("{}/{name}", self.folder);
        for finding in findings {
            done.losses += report::tell(place.as_bytes(), finding);
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
        "losses": done.losses,
    })
}

fn merge(value: &mut Value, other: Value) {
    if let (Value::Object(value), Value::Object(mut other)) = (value, other) {
        value.append(&mut other);
    }
}
