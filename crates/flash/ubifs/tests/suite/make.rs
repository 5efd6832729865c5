//! File systems made here: read back, equal to those of `mkfs.ubifs`, clean for the stock `fsck.ubifs`, and
//! reproducible.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::support::{tree_of, tree_of_host};
use testkit::lab::Fsck;
use ubifs::format::{Compression, ROOT_INODE};
use ubifs::mkfs::{
    Attributes, FileSink, Identity, KeyHash, LebCount, MkfsError, MkfsOptions, MkfsReport, Tree, make,
    tree_of_folder,
};
use ubifs::{Compressor, ImageVolume, OpenOptions, Ubifs, Watermarks};

fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..bytes)
        .map(|at| match at / 3000 % 3 {
            0 => random.u8(..4),
            1 => random.u8(..),
            _ => 0,
        })
        .collect()
}

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("deep/er/and/deeper")).expect("possible on this host");
    fs::create_dir(root.join("many")).expect("possible on this host");
    for number in 0..300_usize {
        let path = root.join(format!("many/file-{number}"));
        fs::write(path, content(number * 41, 1)).expect("possible on this host");
    }
    fs::write(root.join("empty"), b"").expect("possible on this host");
    fs::write(root.join("large"), content(600_001, 2)).expect("possible on this host");
    fs::write(root.join("deep/er/zeros"), vec![0; 70_000]).expect("possible on this host");
    fs::write(root.join("deep/one"), b"x").expect("possible on this host");
    fs::hard_link(root.join("deep/one"), root.join("deep/er/two")).expect("possible on this host");
    symlink("deep/er/../one", root.join("link")).expect("possible on this host");
    fs::write(root.join("n".repeat(255)), b"long name").expect("possible on this host");
    fs::write(root.join("na\u{ef}ve \u{2603}"), b"not ASCII").expect("possible on this host");
}

fn to_file(tree: &Tree, options: &MkfsOptions, path: &Path) -> MkfsReport {
    let file = fs::File::create(path).expect("possible on this host");
    let mut sink = FileSink::new(file, options.leb_bytes);
    let report = make(tree, options, &mut sink, &mut || {}).expect("the options are good");
    // As large as the volume it is made for.
    sink.finish(options.lebs_max).expect("possible on this host");
    report
}

fn open(image: &Path) -> Ubifs {
    let volume = ImageVolume::open(image)
        .expect("it can be read")
        .expect("it has a superblock");
    Ubifs::open(Arc::new(volume), OpenOptions::standard()).expect("it is a file system")
}

/// Asserts that the sums in the master node match the LPT.
fn assert_space_adds_up(ubifs: &Ubifs) {
    let (superblock, master) = (ubifs.superblock(), ubifs.master());
    let lebs = ubifs.space().expect("the LPT can be read");
    let sums = Watermarks::new(superblock.leb_bytes, superblock.min_io_bytes).sum(&lebs);
    assert_eq!(
        (
            sums.free,
            sums.dirty,
            sums.used,
            sums.dead,
            sums.dark,
            sums.empty_lebs,
            sums.index_lebs
        ),
        (
            master.free_bytes,
            master.dirty_bytes,
            master.used_bytes,
            master.dead_bytes,
            master.dark_bytes,
            master.empty_lebs,
            master.index_lebs
        )
    );
}

fn fsck() -> Option<Fsck> {
    Fsck::available()
        .inspect_err(|why| testkit::report_left_out(why))
        .ok()
}

fn only(compression: Compression) -> Compressor {
    Compressor::Only(compression)
}

/// Small and large LEBs, both models of the LPT, all compressors and hashes.
fn shapes() -> Vec<MkfsOptions> {
    let with = |min_io, leb, max, compressor| MkfsOptions {
        compressor,
        ..MkfsOptions::new(min_io, leb, max)
    };
    vec![
        with(2048, 126_976, 400, only(Compression::None)),
        MkfsOptions {
            lebs: LebCount::Exactly(150),
            ..with(2048, 129_024, 200, only(Compression::Lzo))
        },
        MkfsOptions {
            lebs: LebCount::Exactly(3000),
            ..with(512, 15_872, 3000, only(Compression::Zlib))
        },
        with(4096, 253_952, 100, only(Compression::Zstd)),
        MkfsOptions {
            key_hash: KeyHash::Test,
            fanout: 3,
            ..with(16_384, 1_015_808, 30, Compressor::FavorLzo { percent: 20 })
        },
        MkfsOptions {
            fanout: 64,
            reserved_bytes: 1 << 20,
            orphan_lebs: 2,
            ..with(8, 65_536, 300, only(Compression::Lzo))
        },
        // Stripe rows of two and four pages.
        with(2048, 516_096, 64, only(Compression::Lzo)),
    ]
}

#[test]
fn every_file_is_read_back_and_fsck_finds_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (host, image) = (folder.path().join("tree"), folder.path().join("image"));
    fs::create_dir(&host).expect("possible on this host");
    make_tree(&host);
    let expected = tree_of_host(&host);
    let tree = tree_of_folder(&host).expect("it can be read");
    let fsck = fsck();
    for options in shapes() {
        let report = to_file(&tree, &options, &image);
        let ubifs = open(&image);
        let mut lost = Vec::new();
        let found = tree_of(&ubifs, &mut lost);
        assert!(
            lost.is_empty() && ubifs.findings().is_empty(),
            "{options:?}: {lost:?}"
        );
        for (path, line) in &expected {
            assert_eq!(found.get(path), Some(line), "{options:?}: {path}");
        }
        assert_eq!(found.len(), expected.len(), "{options:?}");
        assert!(report.stored_bytes > 0 && report.inodes > 300, "{report:?}");
        assert_space_adds_up(&ubifs);
        if let Some(fsck) = &fsck {
            let judged = fsck
                .check(&image, options.leb_bytes, options.min_io_bytes)
                .expect("it runs");
            assert!(judged.clean, "{options:?}\n{report:?}\n{}", judged.text);
        }
    }
}

#[test]
fn an_empty_file_system_is_clean_for_fsck() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    let tree = Tree::empty(Attributes::default());
    for options in shapes() {
        to_file(&tree, &options, &image);
        let ubifs = open(&image);
        assert!(ubifs.read_directory(ROOT_INODE).expect("it is there").is_empty());
        assert_space_adds_up(&ubifs);
        if let Some(fsck) = fsck() {
            let judged = fsck
                .check(&image, options.leb_bytes, options.min_io_bytes)
                .expect("it runs");
            assert!(judged.clean, "{options:?}\n{}", judged.text);
        }
    }
}

#[test]
fn the_same_files_give_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = folder.path().join("tree");
    fs::create_dir(&host).expect("possible on this host");
    make_tree(&host);
    let options = MkfsOptions::new(2048, 126_976, 200);
    let bytes = |name: &str| {
        let image = folder.path().join(name);
        let mut tree = tree_of_folder(&host).expect("it can be read");
        tree.clamp_times(ubifs::mkfs::Time {
            seconds: 1_000_000_000,
            nanoseconds: 0,
        });
        to_file(&tree, &options, &image);
        fs::read(image).expect("it was made")
    };
    let first = bytes("first");
    // Reading it has changed the access times.
    assert!(first == bytes("second"));
    fs::write(host.join("deep/one"), b"y").expect("possible on this host");
    assert!(first != bytes("third"), "another content has other bytes");
}

#[test]
fn a_volume_that_is_too_small_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = folder.path().join("tree");
    fs::create_dir(&host).expect("possible on this host");
    let random: Vec<u8> = std::iter::repeat_with({
        let mut random = fastrand::Rng::with_seed(1);
        move || random.u8(..)
    })
    .take(2 << 20)
    .collect();
    fs::write(host.join("file"), random).expect("possible on this host");
    let tree = tree_of_folder(&host).expect("it can be read");
    let options = MkfsOptions {
        identity: Identity::Uuid([7; 16]),
        ..MkfsOptions::new(512, 15_872, 80)
    };
    let file = fs::File::create(folder.path().join("image")).expect("possible on this host");
    let error =
        make(&tree, &options, &mut FileSink::new(file, 15_872), &mut || {}).expect_err("2 MiB in 1.2");
    assert!(matches!(error, MkfsError::Full { lebs: 80, .. }), "{error}");
}

/// Master node, LPT and all sums must equal those that `mkfs.ubifs` writes for the same empty file system.
#[test]
fn an_empty_file_system_is_the_one_of_mkfs_ubifs() {
    let folder = tempfile::tempdir().expect("a folder");
    let (host, theirs, ours) = (
        folder.path().join("tree"),
        folder.path().join("theirs"),
        folder.path().join("ours"),
    );
    fs::create_dir(&host).expect("possible on this host");
    for (min_io, leb, max) in [
        (2048, 126_976, 2000),
        (512, 15_872, 3000),
        (4096, 253_952, 100),
        (2048, 516_096, 64),
    ] {
        let numbers = [min_io.to_string(), leb.to_string(), max.to_string()];
        let made = Command::new("mkfs.ubifs")
            .args(["-m", &numbers[0], "-e", &numbers[1], "-c", &numbers[2], "-r"])
            .arg(&host)
            .arg("-o")
            .arg(&theirs)
            .output();
        if !made.is_ok_and(|output| output.status.success()) {
            // `tests/mkfs.rs` prints why.
            return;
        }
        let tree = tree_of_folder(&host).expect("it can be read");
        to_file(&tree, &MkfsOptions::new(min_io, leb, max), &ours);
        let (theirs, ours) = (open(&theirs), open(&ours));
        let shape = |ubifs: &Ubifs| {
            let superblock = ubifs.superblock().clone();
            let areas = (
                superblock.log_lebs,
                superblock.lpt_lebs,
                superblock.orphan_lebs,
                superblock.journal_bytes_max,
            );
            (
                areas,
                superblock.flags,
                superblock.fanout,
                superblock.saved_lebs,
                superblock.version,
            )
        };
        assert_eq!(shape(&ours), shape(&theirs), "{min_io} {leb} {max}");
        assert_space_adds_up(&theirs);
        assert_eq!(ours.master().root_bytes, theirs.master().root_bytes);
        assert_eq!(ours.master().used_bytes, theirs.master().used_bytes);
        // The tables follow the root.
        let root_bytes = |ubifs: &Ubifs| ubifs.master().ltab_offset - ubifs.master().lpt_offset;
        assert!(root_bytes(&ours) == root_bytes(&theirs), "{min_io} {leb} {max}");
    }
}

/// As many bytes as UBIFS can store, nearly all of them a hole: reading them would take minutes.
#[test]
fn holes_of_host_files_are_passed_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = folder.path().join("tree");
    fs::create_dir(&host).expect("possible on this host");
    let sparse = fs::File::create(host.join("sparse")).expect("possible on this host");
    let bytes = (1_u64 << 41) - 100;
    if sparse.set_len(bytes).is_err() {
        // The host's file system has no files of this size.
        return;
    }
    let middle = (1 << 40) + 4090;
    sparse
        .write_all_at(b"across two blocks", middle)
        .expect("possible on this host");
    sparse.write_all_at(&[0; 9000], 0).expect("possible on this host");
    let image = folder.path().join("image");
    let options = MkfsOptions::new(2048, 126_976, 100);
    to_file(&tree_of_folder(&host).expect("it can be read"), &options, &image);
    let ubifs = open(&image);
    let number = ubifs.lookup(ROOT_INODE, b"sparse").expect("it is there").inode;
    let file = ubifs.inode(number).expect("it is there");
    assert_eq!(file.size_bytes, bytes);
    let mut read = [0; 17];
    ubifs.read(&file, middle, &mut read).expect("it can be read");
    assert_eq!(&read, b"across two blocks");
    let blocks = ubifs.blocks_lossy(number, &mut Vec::new());
    assert_eq!(blocks, [1 << 28, (1 << 28) + 1]);
}
