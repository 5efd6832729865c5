//! Parallel readers, and the requests of one reader to the volume: index nodes are loaded once, adjacent blocks take
//! one request, and an array of four members takes a quarter of the time of one.
#![expect(clippy::print_stdout, reason = "the figures, for who asks with --nocapture")]

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::scene::{CountingVolume, image_of, noise};
use crate::support::array_of::array_of;
use crate::support::one_chip::{fill, on_chip};
use array::Execution;
use media::{Clock, Nand, Nanos};
use nand::{ChipModel, FaultModel, Preset, SimNand};
use ubi::{Access, AttachOptions, Volume};
use ubifs::format::{InodeNumber, ROOT_INODE};
use ubifs::{MountedOptions, MountedUbifs, OpenOptions, Ubifs};
use vfs::{FileSystem, Ino, OpenFlags, Privileges};

/// Maximum size of a FUSE read request by the kernel's read-ahead.
const KERNEL_REQUEST: usize = 128 << 10;

/// A tree with one large file, and its content.
fn tree_with(bytes: usize) -> (tempfile::TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().expect("a folder");
    let content = noise(bytes, 7);
    fs::write(folder.path().join("large"), &content).expect("there is room");
    (folder, content)
}

fn open(volume: Arc<dyn Volume>) -> Arc<Ubifs> {
    Arc::new(Ubifs::open(volume, OpenOptions::standard()).expect("it is a file system"))
}

fn large(ubifs: &Ubifs) -> InodeNumber {
    ubifs.lookup(ROOT_INODE, b"large").expect("it is there").inode
}

fn mounted(ubifs: Arc<Ubifs>) -> MountedUbifs {
    let no_loss = Box::new(|finding: &ubifs::Finding| panic!("{finding}"));
    MountedUbifs::new(ubifs, MountedOptions::standard(), no_loss)
}

/// Reads a file like the kernel does for a sequential reader.
fn read_in_sequence(file_system: &MountedUbifs, number: InodeNumber, bytes: usize) -> Vec<u8> {
    let ino = Ino(number.0.into());
    let file = file_system
        .open(ino, OpenFlags(libc::O_RDONLY), Privileges::Keep)
        .expect("it opens");
    let mut content = vec![0; bytes];
    for (number, out) in content.chunks_mut(KERNEL_REQUEST).enumerate() {
        let offset = u64::try_from(number * KERNEL_REQUEST).expect("small");
        let read = file_system.read(ino, file.handle, offset, out).expect("readable");
        assert_eq!(read, out.len());
    }
    file_system.release(ino, file.handle);
    content
}

#[test]
fn an_index_node_that_many_readers_want_is_loaded_once() {
    const READERS: usize = 8;
    let (tree, content) = tree_with(2 << 20);
    let Some(image) = image_of(tree.path(), 2048, 126_976, &["-x", "none"]) else {
        return;
    };
    let started = Arc::new(AtomicUsize::new(READERS));
    let others = Arc::clone(&started);
    // No read is answered before all readers have started.
    let wait_for_all = move || {
        while others.load(Ordering::Acquire) < READERS {
            std::thread::yield_now();
        }
    };
    let volume = Arc::new(CountingVolume::new(image, 126_976, Box::new(wait_for_all)));
    let ubifs = open(volume.clone());
    let number = large(&ubifs);
    let inode = ubifs.inode(number).expect("it is there");
    // A second file system over the same volume, with a cold index cache.
    let cold = open(volume.clone());
    volume.take();
    started.store(0, Ordering::Release);
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                started.fetch_add(1, Ordering::AcqRel);
                let mut out = vec![0; 512 << 10];
                assert_eq!(cold.read(&inode, 0, &mut out).expect("readable"), out.len());
                assert!(out == content[..out.len()]);
            });
        }
    });
    let mut loads: HashMap<(u32, u32, usize), usize> = HashMap::new();
    let requests = volume.take();
    for place in requests.iter().flatten() {
        *loads.entry(*place).or_default() += 1;
    }
    // mkfs.ubifs puts the whole index into one LEB; the others hold data, which each reader reads itself.
    let index_leb = cold.master().root_leb;
    let (index, data): (Vec<_>, Vec<_>) = loads.iter().partition(|((leb, ..), _)| *leb == index_leb);
    println!("{READERS} readers: index pieces and how often each was loaded: {index:?}");
    assert!(index.len() >= 2 && data.iter().all(|(_, count)| **count == READERS));
    assert!(index.iter().all(|(_, count)| **count == 1), "{index:?}");
}

#[test]
fn blocks_that_follow_each_other_are_one_request() {
    const BYTES: usize = 8 << 20;
    let (tree, content) = tree_with(BYTES);
    let Some(image) = image_of(tree.path(), 2048, 126_976, &["-x", "none"]) else {
        return;
    };
    let volume = Arc::new(CountingVolume::new(image, 126_976, Box::new(|| {})));
    let ubifs = open(volume.clone());
    let number = large(&ubifs);
    let inode = ubifs.inode(number).expect("it is there");
    let mut out = vec![0; 1 << 20];
    ubifs.read(&inode, 0, &mut out).expect("readable");
    volume.take();
    ubifs.read(&inode, 0, &mut out).expect("readable");
    let warm = volume.take();
    assert_eq!(
        warm.len(),
        1,
        "256 blocks with the index at hand are one request: {warm:?}"
    );
    assert!(
        warm[0].len() <= 10,
        "and one piece in each of their LEBs: {:?}",
        warm[0]
    );

    let file_system = mounted(open(volume.clone()));
    volume.take();
    assert!(read_in_sequence(&file_system, number, BYTES) == content);
    let requests = volume.take();
    let of_data = requests
        .iter()
        .filter(|places| places.iter().map(|(_, _, bytes)| bytes).sum::<usize>() > 64 << 10);
    let (all, of_data) = (requests.len(), of_data.count());
    println!("64 requests of the kernel: {all} requests to the volume, {of_data} of them for data");
    // 128 KiB twice, then windows that double up to 1 MiB.
    assert!(of_data <= 13, "{of_data}");
    // The index has three levels below its root, and each is one request.
    assert!(all - of_data <= 3 * of_data, "{all}");
}

/// A chip with the given multiple of the usual pages per block.
fn mlc(pages_per_block_times: u32) -> ChipModel {
    let model = Preset::Mlc.model();
    let old = model.geometry;
    let geometry = media::NandGeometry::new(
        old.page_bytes(),
        old.pages_per_block() * pages_per_block_times,
        120,
    )
    .and_then(|geometry| geometry.with_subpage(old.subpage_bytes()))
    .and_then(|geometry| geometry.with_oob(old.oob_bytes()))
    .expect("a geometry");
    ChipModel { geometry, ..model }
}

/// An image on an array of four; also returns the array's clock.
fn on_four(image: &[u8]) -> (Arc<dyn Volume>, Clock) {
    let options = AttachOptions::linux(Access::ReadWrite);
    let array = array::attach(
        array_of(array::Redundancy::None, 4, mlc(1)),
        options,
        Execution::Inline,
    )
    .expect("attached");
    fill(&**array.volume(), image);
    (array.volume().clone(), array.volume().clock())
}

/// The same image on one chip with blocks four times as large; also returns its clock.
fn on_one(image: &[u8], leb_bytes: u32) -> (Arc<dyn Volume>, Clock) {
    let chip = SimNand::new("one", mlc(4), FaultModel::none());
    let chip = Arc::new(Mutex::new(chip));
    // A LEB of the array is slightly smaller than one of these blocks.
    let volume = on_chip(&chip, 100, leb_bytes, image);
    (Arc::new(volume), chip.clock())
}

#[test]
fn four_members_give_the_same_bytes_in_at_most_0_28_of_the_time_of_one() {
    const BYTES: usize = 12 << 20;
    let (tree, content) = tree_with(BYTES);
    let member_leb = Preset::Mlc.model().geometry.block_bytes() - 2 * 2048;
    for compression in ["none", "lzo"] {
        let Some(image) = image_of(tree.path(), 2048, 4 * member_leb, &["-x", compression]) else {
            return;
        };
        let took = |(volume, clock): (Arc<dyn Volume>, Clock)| -> Nanos {
            let ubifs = open(volume);
            let number = large(&ubifs);
            let file_system = mounted(ubifs);
            let start = clock.now();
            assert!(read_in_sequence(&file_system, number, BYTES) == content);
            clock.now() - start
        };
        let (four, one) = (took(on_four(&image)), took(on_one(&image, 4 * member_leb)));
        let microseconds = |time: Nanos| f64::from(u32::try_from(time.0 / 1000).expect("below an hour"));
        let ratio = microseconds(four) / microseconds(one);
        println!("MLC, {compression}: four members {four:?}, one {one:?}: {ratio:.3}");
        assert!(ratio <= 0.28, "{compression}: {ratio}");
        assert!(ratio >= 0.25, "faster than physics: {ratio}");
    }
}
