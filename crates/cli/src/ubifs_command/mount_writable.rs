//! What `tidegate ubifs mount -o rw` serves, and the work that goes on beside it.
//!
//! A thread writes out every few seconds what nobody synced, commits a journal that grew long, and has the devices erase and level
//! wear. It ends before the file system is unmounted.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use ubifs::mkfs::Time;
use ubifs::{LossListener, MountedOptions, MountedWriter, Writer, WriterStatistics};

use super::periodic::Periodic;
use super::source::Devices;
use crate::output::print_error;

/// How long what nobody synced may stay in memory.
const INTERVAL: Duration = Duration::from_secs(3);
/// Erases and moves of a device in one go.
const DEVICE_STEPS: u32 = 32;

/// A file system that is written to, with its devices.
pub struct Writable {
    mounted: Arc<MountedWriter>,
    devices: Arc<Devices>,
    work: Periodic,
}

impl Writable {
    /// Starts the work beside it.
    pub fn start(
        writer: Writer,
        options: MountedOptions,
        devices: Devices,
        listener: LossListener,
    ) -> Result<Self> {
        let mounted = MountedWriter::new(writer, listener, Box::new(now)).with_options(options);
        let mounted = Arc::new(mounted);
        let devices = Arc::new(devices);
        let (of_thread, devices_of_thread) = (Arc::clone(&mounted), Arc::clone(&devices));
        let work = Periodic::start("ubifs-work", INTERVAL, move || {
            work(&of_thread, &devices_of_thread)
        })?;
        Ok(Self {
            mounted,
            devices,
            work,
        })
    }

    /// What is served.
    pub const fn mounted(&self) -> &Arc<MountedWriter> {
        &self.mounted
    }

    /// Ends the work, commits, and unmounts.
    pub fn finish(self) -> Result<()> {
        let worked = self.work.finish();
        let closed = self.mounted.close().map_err(anyhow::Error::from);
        closed
            .and_then(|()| self.devices.finish())
            .with_context(|| {
                let heads = self.mounted.statistics().heads;
                let bytes: u64 = heads.iter().map(|head| head.buffered_bytes).sum();
                format!(
                    "the file system was not closed: what was synced is on the medium, of what was written since up to {bytes} \
                     bytes are lost, and the next mount recovers the rest"
                )
            })?;
        worked.context("the file system was closed, and all of it is on the medium")
    }
}

/// A round of the work beside a file system; the last one where nothing is written any more.
fn work(mounted: &MountedWriter, devices: &Devices) -> ControlFlow<()> {
    let worked = mounted.work().map_err(anyhow::Error::from);
    let Err(error) = worked.and_then(|()| devices.work(DEVICE_STEPS)) else {
        return ControlFlow::Continue(());
    };
    // Those that use it get errors of their own.
    print_error(&format!("work beside the file system failed: {error:#}"));
    if mounted.statistics().failure.is_none() {
        return ControlFlow::Continue(());
    }
    print_error("it is read-only from here on; unmount it and see to the device");
    ControlFlow::Break(())
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: since.subsec_nanos(),
    }
}

/// Its counters, as members of the document of `tidegate stats`.
pub fn counters(statistics: &WriterStatistics) -> Map<String, Value> {
    let heads: Map<String, Value> = statistics
        .heads
        .iter()
        .map(|head| {
            let counters = json!({
                "bytes": head.bytes,
                "padding_bytes": head.padding_bytes,
                "buffered_bytes": head.buffered_bytes,
            });
            (head.name.to_owned(), counters)
        })
        .collect();
    Map::from_iter([
        ("commits".to_owned(), statistics.commits.into()),
        ("syncs".to_owned(), statistics.syncs.into()),
        ("collected_lebs".to_owned(), statistics.collected_lebs.into()),
        ("collected_bytes".to_owned(), statistics.collected_bytes.into()),
        ("reclaimed_lebs".to_owned(), statistics.reclaimed_lebs.into()),
        ("heads".to_owned(), heads.into()),
        ("journal_bytes".to_owned(), statistics.journal_bytes.into()),
        (
            "journal_bytes_max".to_owned(),
            statistics.journal_bytes_max.into(),
        ),
        ("index_bytes".to_owned(), statistics.index_bytes.into()),
        ("empty_lebs".to_owned(), statistics.empty_lebs.into()),
        ("reserved_lebs".to_owned(), statistics.reserved_lebs.into()),
        ("free_bytes".to_owned(), statistics.free_bytes.into()),
        ("orphans".to_owned(), statistics.orphans.into()),
        ("unreadable_lebs".to_owned(), statistics.unreadable_lebs.into()),
        ("is_read_only".to_owned(), statistics.failure.is_some().into()),
        ("failure".to_owned(), statistics.failure.as_deref().into()),
    ])
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use media::{Nand, NandGeometry};
    use nand::{ChipModel, FaultModel, SimNand};
    use ubi::format::VolumeKind;
    use ubi::format::volume_table::VolumeName;
    use ubi::{FormatOptions, Layout, NewVolume, SizeInLebs, Ubi, VolumeId};
    use ubifs::OpenOptions;
    use ubifs::mkfs::{Attributes, MkfsOptions, Tree, VolumeSink, make};

    use super::*;
    use crate::ubi_command::chip::Chip;

    /// A file system in memory, and its device.
    fn file_system() -> (Writer, Ubi<Chip>) {
        let geometry = NandGeometry::new(512, 32, 72).expect("a geometry");
        let chip: Box<dyn Nand> =
            Box::new(SimNand::new("chip", ChipModel::new(geometry), FaultModel::none()));
        let options = FormatOptions {
            layout: Layout::usual(&geometry).expect("a layout"),
            image_sequence: 1,
            erase_counter: None,
        };
        let device = Ubi::format(chip, options, &mut |_| {}).expect("formatted");
        let new = NewVolume {
            id: None,
            name: VolumeName::new(b"data").expect("a name"),
            kind: VolumeKind::Dynamic,
            size: SizeInLebs::Exactly(56),
            alignment: 1,
            autoresize: false,
            skip_check: false,
        };
        device.make_volume(new).expect("room for it");
        let volume = device.open(VolumeId(0)).expect("it is there");
        let shape = ubi::Volume::geometry(&volume);
        let options = MkfsOptions::new(shape.min_io_bytes, shape.leb_bytes, shape.lebs);
        let mut sink = VolumeSink::new(&volume).expect("it takes writes");
        make(
            &Tree::empty(Attributes::default()),
            &options,
            &mut sink,
            &mut || {},
        )
        .expect("made");
        sink.finish().expect("it takes writes");
        let writer = Writer::open(Arc::new(volume), OpenOptions::standard()).expect("it opens");
        (writer, device)
    }

    /// The outcome of the thread was thrown away, and the mount ended with 0.
    #[test]
    fn a_panic_of_the_work_beside_a_mount_is_told_when_it_ends_and_all_is_written() {
        let (writer, device) = file_system();
        let mounted = Arc::new(MountedWriter::new(writer, Box::new(|_| {}), Box::new(now)));
        let (sender, rounds) = channel();
        let work = Periodic::start("ubifs-work", Duration::from_millis(1), move || {
            // The test may have heard enough.
            let _ = sender.send(());
            panic!("a defect")
        });
        let writable = Writable {
            mounted: Arc::clone(&mounted),
            devices: Arc::new(Devices::One(device)),
            work: work.expect("the host has threads"),
        };
        rounds.recv().expect("there are rounds");
        let why = crate::output::with_causes(&writable.finish().expect_err("it panicked"));
        assert!(
            why.contains("closed") && why.contains("panicked: a defect"),
            "{why}"
        );
        let again = mounted.close().expect_err("it is closed").to_string();
        assert!(again.contains("unmounted"), "{again}");
        assert_eq!(mounted.statistics().failure, None);
    }

    #[test]
    fn a_mount_whose_work_went_well_ends_well() {
        let (writer, device) = file_system();
        let options = MountedOptions::standard();
        let writable = Writable::start(writer, options, Devices::One(device), Box::new(|_| {}));
        writable.expect("it starts").finish().expect("all is well");
    }
}
