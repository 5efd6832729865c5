//! Memory of a mounted file system of 1 GiB on four devices, without the simulated chips: 2.5 MB plus the configured
//! caches, after the mount and after a load.
#![expect(clippy::print_stdout, reason = "the figures, for who asks with --nocapture")]

mod support {
    pub mod array_of;
}

use std::sync::Arc;

use array::Execution;
use media::Nand;
use nand::{ChipModel, Preset};
use support::array_of::{Chip, array_of};
use testkit::contract;
use testkit::heap::{CountingAllocator, taken_by};
use ubi::{Access, AttachOptions, Volume};
use ubifs::mkfs::{Attributes, LebCount, MkfsOptions, Time, Tree, VolumeSink, make};
use ubifs::{MountedOptions, MountedWriter, OpenOptions, Writer};
use vfs::{FileSystem, Ino, OpenFlags};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MEMBERS: u32 = 4;
const PROMISED_BYTES: u64 = 2_500_000;
/// Small, to make other memory visible.
const INDEX_CACHE_BYTES: u64 = 256 << 10;

fn chips() -> Vec<Chip> {
    let model: ChipModel = Preset::Slc
        .model()
        .with_size((1 << 30) / u64::from(MEMBERS))
        .expect("a size");
    let chips = array_of(
        array::Redundancy::None,
        usize::try_from(MEMBERS).expect("few"),
        model,
    );
    let volume = attach(&chips);
    let shape = volume.geometry();
    let options = MkfsOptions {
        lebs: LebCount::Exactly(shape.lebs),
        ..MkfsOptions::new(shape.min_io_bytes, shape.leb_bytes, shape.lebs)
    };
    let mut sink = VolumeSink::new(&*volume).expect("it takes writes");
    make(
        &Tree::empty(Attributes::default()),
        &options,
        &mut sink,
        &mut || {},
    )
    .expect("good options");
    chips
}

fn attach(chips: &[Chip]) -> Arc<dyn Volume> {
    let options = AttachOptions::linux(Access::ReadWrite);
    let array = array::attach(chips.to_vec(), options, Execution::Inline).expect("attached");
    array.volume().clone()
}

fn mount(volume: Arc<dyn Volume>) -> MountedWriter {
    let options = OpenOptions {
        index_cache_bytes: INDEX_CACHE_BYTES,
        ..OpenOptions::standard()
    };
    let writer = Writer::open(volume, options).expect("it opens");
    let no_loss = Box::new(|finding: &ubifs::Finding| panic!("{finding}"));
    MountedWriter::new(writer, no_loss, Box::new(Time::default))
        .with_options(MountedOptions { read_ahead_bytes: 0 })
}

/// Writes files of 8 KiB, and overwrites a file of 24 MiB.
fn work(file_system: &MountedWriter) {
    let data: Vec<u8> = (0..256 << 10).map(|at: u32| at.to_le_bytes()[1]).collect();
    let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT);
    let open = |name: &str| {
        file_system
            .create(
                &contract::caller(),
                Ino::ROOT,
                name.as_bytes(),
                contract::FILE,
                flags,
            )
            .expect("room")
    };
    let mode = contract::plain(libc::O_RDWR);
    for number in 0..300 {
        let (entry, opened) = open(&format!("file-{number}"));
        file_system
            .write(entry.ino, opened.handle, 0, &data[..8192], mode)
            .expect("room");
        file_system.release(entry.ino, opened.handle);
        file_system.forget(entry.ino, 1);
    }
    let (entry, opened) = open("large");
    for number in 0..96 {
        file_system
            .write(entry.ino, opened.handle, number * (256 << 10), &data, mode)
            .expect("room");
    }
    file_system.release(entry.ino, opened.handle);
    file_system.forget(entry.ino, 1);
}

fn of_chips(chips: &[Chip]) -> u64 {
    let bytes = chips
        .iter()
        .map(|chip| chip.lock().expect("no panic").allocated_bytes());
    u64::try_from(bytes.sum::<usize>()).expect("small")
}

#[test]
fn a_mounted_file_system_of_1_gib_on_four_devices_takes_2_5_mb_and_its_index_cache() {
    let chips = chips();
    assert_eq!(chips[0].lock().expect("no panic").geometry().blocks(), 2048);
    let most = PROMISED_BYTES + INDEX_CACHE_BYTES;
    let before = of_chips(&chips);
    let (file_system, mounted) = taken_by(|| mount(attach(&chips)));
    let kept = mounted.kept_bytes - (of_chips(&chips) - before);
    println!("mounted: {kept} bytes, {} at the peak", mounted.peak_bytes);
    assert!(kept <= most, "{kept}, promised {most}");

    let before = of_chips(&chips);
    let ((), worked) = taken_by(|| work(&file_system));
    let grown = worked.kept_bytes.saturating_sub(of_chips(&chips) - before);
    println!("worked with: {} bytes", kept + grown);
    assert!(kept + grown <= most, "{}, promised {most}", kept + grown);
    file_system.close().expect("it is written out");
}
