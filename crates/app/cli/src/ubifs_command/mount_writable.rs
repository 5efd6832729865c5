//! The file system of `tidegate ubifs mount -o rw`, and its background work.
//!
//! Every few seconds a thread writes out unsynced data, commits a journal that has grown long, and runs the erases and wear
//! levelling of the devices. Another thread rebuilds a member of
//! an array. Both end before the file system is unmounted; the next mount resumes an unfinished rebuild.

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

/// Maximum age of unsynced data in memory.
const INTERVAL: Duration = Duration::from_secs(3);
/// Maximum number of erases and moves per device and round.
const DEVICE_STEPS: u32 = 32;
/// Number of LEBs per round of a rebuild.
const REBUILD_STEPS: u32 = 4;
/// Pause between two rounds of a rebuild; the file system has the devices to itself meanwhile.
const REBUILD_PAUSE: Duration = Duration::from_millis(10);

/// A writable file system with its devices.
pub struct Writable {
    mounted: Arc<MountedWriter>,
    devices: Arc<Devices>,
    work: Periodic,
    rebuild: Option<Periodic>,
}

impl Writable {
    /// Starts the background thread.
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
        let of_thread = Arc::clone(&devices);
        let rebuild = devices
            .is_rebuilding()
            .then(|| Periodic::start("array-rebuild", REBUILD_PAUSE, move || rebuild(&of_thread)));
        Ok(Self {
            mounted,
            devices,
            work,
            rebuild: rebuild.transpose()?,
        })
    }

    /// The file system to serve.
    pub const fn mounted(&self) -> &Arc<MountedWriter> {
        &self.mounted
    }

    /// The devices below it.
    pub const fn devices(&self) -> &Arc<Devices> {
        &self.devices
    }

    /// Ends the background work, commits, and unmounts.
    pub fn finish(self) -> Result<()> {
        let rebuilt = self.rebuild.map_or(Ok(()), Periodic::finish);
        let worked = self.work.finish().and(rebuilt);
        self.mounted.close().with_context(|| {
            let bytes = self.mounted.statistics().unwritten_bytes;
            format!(
                "the file system was not closed: synced data is on the medium; up to {bytes} bytes of \
                     later writes are lost, and the next mount recovers the rest"
            )
        })?;
        let device = self.devices.finish();
        device.context(
            "the file system was closed, and all of it is on the medium; the device's own work failed",
        )?;
        worked.context("the file system was closed, and all of it is on the medium")
    }
}

/// One round of background work; breaks once the file system has become read-only.
fn work(mounted: &MountedWriter, devices: &Devices) -> ControlFlow<()> {
    let worked = mounted.work().map_err(anyhow::Error::from);
    let Err(error) = worked.and_then(|()| devices.work(DEVICE_STEPS)) else {
        return ControlFlow::Continue(());
    };
    // Callers of the file system get errors too.
    print_error(&format!("work beside the file system failed: {error:#}"));
    if mounted.statistics().failure.is_none() {
        return ControlFlow::Continue(());
    }
    print_error("it is read-only from here on; unmount it and see to the device");
    ControlFlow::Break(())
}

/// A round of the rebuild of a member; the last one where it ended, or can't go on.
fn rebuild(devices: &Devices) -> ControlFlow<()> {
    devices.rebuild(REBUILD_STEPS).unwrap_or_else(|error| {
        print_error(&format!(
            "the rebuild stopped: {error:#}; the next mount for writing resumes it"
        ));
        ControlFlow::Break(())
    })
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: since.subsec_nanos(),
    }
}

/// The counters for the document of `tidegate stats`.
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
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    use media::{Clock, Host, Nand, NandError, NandGeometry, Peb, ReadReport};
    use nand::{ChipModel, FaultModel, SimNand};
    use testkit::prng::Prng;
    use ubi::format::VolumeKind;
    use ubi::format::volume_table::VolumeName;
    use ubi::{FormatOptions, Layout, NewVolume, SizeInLebs, Ubi, VolumeId};
    use ubifs::format::ROOT_INODE;
    use ubifs::mkfs::{Attributes, MkfsOptions, Tree, VolumeSink, make};
    use ubifs::{NewFile, OpenOptions};

    use super::*;

    /// A chip whose host loses the writes since the last sync, and reports it once.
    #[derive(Clone)]
    struct Losing {
        chip: Arc<Mutex<SimNand>>,
        loses: Arc<AtomicBool>,
    }

    impl Nand for Losing {
        fn name(&self) -> Arc<str> {
            self.chip.name()
        }

        fn geometry(&self) -> NandGeometry {
            self.chip.geometry()
        }

        fn clock(&self) -> Clock {
            self.chip.clock()
        }

        fn read(&mut self, peb: Peb, offset: u32, out: &mut [u8]) -> Result<ReadReport, NandError> {
            self.chip.read(peb, offset, out)
        }

        fn program(&mut self, peb: Peb, offset: u32, data: &[u8]) -> Result<(), NandError> {
            self.chip.program(peb, offset, data)
        }

        fn erase(&mut self, peb: Peb) -> Result<(), NandError> {
            self.chip.erase(peb)
        }

        fn is_bad(&mut self, peb: Peb) -> Result<bool, NandError> {
            self.chip.is_bad(peb)
        }

        fn mark_bad(&mut self, peb: Peb) -> Result<(), NandError> {
            self.chip.mark_bad(peb)
        }

        fn sync(&mut self) -> Result<(), NandError> {
            match self.loses.swap(false, Ordering::Relaxed) {
                false => Ok(()),
                true => Err(NandError::Host {
                    device: self.name(),
                    action: "fdatasync".to_owned(),
                    source: std::io::Error::other("the disk fails"),
                }),
            }
        }

        fn host(&self) -> Option<Arc<dyn Host>> {
            None
        }
    }

    /// A file system in memory, and its device.
    fn file_system() -> (Writer, Ubi) {
        let (writer, device, _) = file_system_of_a_losing_host();
        (writer, device)
    }

    /// As [`file_system`], with a switch that makes the host lose its writes.
    fn file_system_of_a_losing_host() -> (Writer, Ubi, Arc<AtomicBool>) {
        let geometry = NandGeometry::new(512, 32, 72).expect("a geometry");
        let chip = SimNand::new("chip", ChipModel::new(geometry), FaultModel::none());
        let losing = Losing {
            chip: Arc::new(Mutex::new(chip)),
            loses: Arc::default(),
        };
        let chip: Box<dyn Nand> = Box::new(losing.clone());
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
        (writer, device, losing.loses)
    }

    /// Regression: nothing was buffered, so the message said that 0 bytes were lost.
    #[test]
    fn a_mount_whose_image_was_not_synced_says_how_much_is_lost() {
        let (mut writer, device, loses) = file_system_of_a_losing_host();
        let file = NewFile {
            mode: 0o100_644,
            user: 0,
            group: 0,
            data: Vec::new(),
        };
        let made = writer.create(ROOT_INODE, b"file", &file, now());
        let inode = made.expect("there is room");
        let content = Prng::new(1).bytes(3000);
        writer.write(inode, 0, &content, now()).expect("there is room");
        loses.store(true, Ordering::Relaxed);
        writer.fsync().expect_err("the host fails");
        let options = MountedOptions::standard();
        let writable = Writable::start(writer, options, Devices::One(device), Box::new(|_| {}));
        let ended = writable.expect("it starts").finish();
        let why = crate::output::with_causes(&ended.expect_err("something is lost"));
        let lost = why.split("up to ").nth(1).and_then(|rest| rest.split(' ').next());
        let lost: u32 = lost.and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
        assert!((3000..4000).contains(&lost), "{why}");
    }

    /// Regression: the result of the thread was discarded, and the mount ended with 0.
    #[test]
    fn a_panic_of_the_work_beside_a_mount_is_told_when_it_ends_and_all_is_written() {
        let (writer, device) = file_system();
        let mounted = Arc::new(MountedWriter::new(writer, Box::new(|_| {}), Box::new(now)));
        let (sender, rounds) = channel();
        let work = Periodic::start("ubifs-work", Duration::from_millis(1), move || {
            // The test may have dropped its receiver.
            let _ = sender.send(());
            panic!("a defect")
        });
        let writable = Writable {
            mounted: Arc::clone(&mounted),
            devices: Arc::new(Devices::One(device)),
            work: work.expect("the host has threads"),
            rebuild: None,
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
