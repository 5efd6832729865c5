//! Time to attach and mount a cleanly unmounted file system, by number of devices and content (seeds/001 section 4.2).

use media::Nanos;
use media::quantity;
use nand::Preset;
use results::nearest_f64;
use rustix::fs::OFlags;
use serde_json::{Value, json};
use vfs::FileSystem;

use crate::error::{Context, MeasureError, Result};
use crate::paper;
use crate::promise::{Bound, Verdict};
use crate::simulated_chips::{Mounted, Shape, SimulatedChips};

/// Size of each of many files.
const SMALL_FILE: usize = 2048;
/// Size of one write.
const CHUNK_BYTES: u64 = 1 << 20;

/// Content of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// No files.
    Empty,
    /// One file of this many bytes.
    One(u64),
    /// This many files of 2 KiB.
    Files(u32),
}

impl Content {
    fn show(self) -> String {
        match self {
            Self::Empty => "empty".to_owned(),
            Self::One(bytes) => format!("a file of {}", quantity::show_bytes(bytes)),
            Self::Files(count) => format!("{count} files"),
        }
    }

    fn write(self, mounted: &Mounted) -> Result<()> {
        let file_system = &mounted.file_system;
        match self {
            Self::Empty => {}
            Self::One(bytes) => mounted.fill_file("file", bytes, CHUNK_BYTES)?,
            Self::Files(count) => {
                let data = vec![0x5A; SMALL_FILE];
                for number in 0..count {
                    let file = mounted.open_file(&format!("file-{number}"))?;
                    file.write(file_system, 0, &data, OFlags::empty())?;
                    file_system.release(file.ino, file.handle);
                    file_system.forget(file.ino, 1);
                }
            }
        }
        Ok(file_system.sync()?)
    }
}

/// Times of one mount.
#[derive(Clone, Copy, Debug)]
pub struct Mount {
    preset: Preset,
    devices: u32,
    content: Content,
    attach: Nanos,
    open: Nanos,
    /// Ratio to the time of one device.
    to_one: f64,
}

/// Header of the table.
pub const HEADER: &str =
    "cells       content             devices  attach ms   mount ms   total ms  of one   paper";

/// Notes below the table.
pub const FOOTER: &str = "A mount of what was unmounted well, for writing, in virtual time: attach reads the headers of all blocks, on all\n\
     devices at the same time. paper: the mount alone, of a new file system, by that of one device.";

/// Measures all combinations; `told` receives each row.
pub fn measure<E: From<MeasureError>>(
    cells: &[Preset],
    devices: &[u32],
    contents: &[Content],
    size_bytes: u64,
    told: &mut dyn FnMut(&Mount) -> Result<(), E>,
) -> Result<Vec<Mount>, E> {
    let mut rows: Vec<Mount> = Vec::new();
    for preset in cells {
        for content in contents {
            let mut one = None;
            for devices in devices {
                let shape = Shape {
                    preset: *preset,
                    devices: *devices,
                    bytes: size_bytes,
                };
                let row = mount(shape, *content)
                    .with_context(|| format!("{devices} devices of {}", preset.name()))?;
                let time = nearest_f64(row.total().0);
                let row = Mount {
                    to_one: time / *one.get_or_insert(time),
                    ..row
                };
                told(&row)?;
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

fn mount(shape: Shape, content: Content) -> Result<Mount> {
    let chips = SimulatedChips::formatted(shape)?;
    let mounted = chips.mount()?;
    content.write(&mounted)?;
    mounted.unmount()?;
    let mounted = chips.mount()?;
    Ok(Mount {
        preset: shape.preset,
        devices: shape.devices,
        content,
        attach: mounted.attach,
        open: mounted.open,
        to_one: 1.0,
    })
}

/// Checks the promised time of four devices.
pub fn judge(rows: &[Mount]) -> Verdict {
    let figures = rows.iter().filter(|row| row.devices == 4);
    Verdict::of(
        "attach and mount, 4 devices, of one device of the same size".to_owned(),
        Bound::AtMost(0.35),
        figures.map(|row| (row.to_one, row.preset)),
    )
}

impl Mount {
    fn total(&self) -> Nanos {
        self.attach + self.open
    }

    fn paper(&self) -> Option<f64> {
        match self.content {
            Content::Empty => paper::mounting(self.devices),
            Content::One(_) | Content::Files(_) => None,
        }
    }

    /// A row of the table.
    pub fn text(&self) -> String {
        let milliseconds = |time: Nanos| nearest_f64(time.0) / 1e6;
        let paper = self.paper().map_or("-".to_owned(), |paper| format!("{paper:.3}"));
        format!(
            "{:<11} {:<19} {:>7} {:>10.2} {:>10.2} {:>10.2} {:>7.3} {:>7}",
            self.preset.name(),
            self.content.show(),
            self.devices,
            milliseconds(self.attach),
            milliseconds(self.open),
            milliseconds(self.total()),
            self.to_one,
            paper,
        )
    }

    /// The row as a JSON object.
    pub fn json(&self) -> Value {
        json!({
            "what": "mount", "cells": self.preset.name(), "devices": self.devices,
            "content": self.content.show(), "attach_ns": self.attach.0, "mount_ns": self.open.0,
            "to_one_device": self.to_one, "paper_to_one_device": self.paper(),
        })
    }
}
