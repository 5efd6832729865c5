//! Linux as the reference for our writes, in the lab guest: it mounts with all its self-checks enabled, recovers
//! after our cuts, and reads the same files. Then it writes, and we continue from there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::lab_lines::{Lines, assert_same, lines, tree_of};
use crate::support::medium::mounted;
use crate::support::rig::{Model, Weight};
use media::NandGeometry;
use nand::{Access, ChipModel, FileNand, ImageKind, PlainImage};
use testkit::contract;
use testkit::lab::{FlashFile, Guest, Job, Lab, Options};
use testkit::model::{self, ModelRun};
use testkit::prng::Prng;
use ubi::format::VolumeKind;
use ubi::format::volume_table::VolumeName;
use ubi::{AttachOptions, FormatOptions, Layout, NewVolume, SizeInLebs, Ubi, UbiVolume, Volume, VolumeId};
use ubifs::format::{Compression, ROOT_INODE, SuperblockFlags};
use ubifs::mkfs::{Attributes, Content, LebCount, MkfsOptions, Time, Tree, TreeFile, VolumeSink, make};
use ubifs::{Compressor, NewFile, OpenOptions, Ubifs, Writer};
use vfs::{FileSystem, Ino, OpenFlags, RenameFlags, XattrFlags};

const CHIP_BYTES: u64 = 32 << 20;

/// A folder that is deleted on drop.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn geometry() -> NandGeometry {
    NandGeometry::new(2048, 64, 1).expect("a geometry")
}

fn chip(path: &Path) -> FileNand {
    let plain = PlainImage {
        model: ChipModel::new(geometry()),
        kind: ImageKind::Data,
    };
    FileNand::open(path, Access::ReadWrite, Some(plain)).expect("a chip")
}

/// Drops the chip's side-car file before the content is replaced.
fn forget(path: &Path) {
    let _ = fs::remove_file(path.with_extension("nand"));
}

fn volume(path: &Path) -> Arc<UbiVolume> {
    let scanned = ubi::scan(chip(path), AttachOptions::linux(ubi::Access::ReadWrite)).expect("attaches");
    let device: Ubi = scanned.attach().expect("attaches");
    Arc::new(device.open(VolumeId(0)).expect("the volume is there"))
}

/// A chip with a file system that has files of all kinds.
fn make_chip(path: &Path, compressor: Compressor) {
    forget(path);
    FlashFile::erased(path, CHIP_BYTES).expect("there is room for it");
    let options = FormatOptions {
        layout: Layout::usual(&geometry()).expect("a layout"),
        image_sequence: 7,
        erase_counter: None,
    };
    let ubi = Ubi::format(chip(path), options, &mut |_| {}).expect("formatted");
    ubi.make_volume(NewVolume {
        id: None,
        name: VolumeName::new(b"data").expect("a name"),
        kind: VolumeKind::Dynamic,
        size: SizeInLebs::Exactly(200),
        alignment: 1,
        autoresize: false,
        skip_check: false,
    })
    .expect("room for it");
    let volume = ubi.open(VolumeId(0)).expect("it was just made");
    let shape = volume.geometry();
    let options = MkfsOptions {
        // It grows at the first read-write mount.
        lebs: LebCount::Exactly(150),
        compressor,
        ..MkfsOptions::new(shape.min_io_bytes, shape.leb_bytes, 200)
    };
    let mut sink = VolumeSink::new(&volume).expect("it takes writes");
    make(&tree(), &options, &mut sink, &mut || {}).expect("the options are good");
    sink.finish().expect("it takes writes");
}

fn tree() -> Tree {
    let attributes = |permissions| Attributes {
        permissions,
        user: 5,
        group: 6,
        modified: Time {
            seconds: 1_600_000_000,
            nanoseconds: 123_456_789,
        },
        xattrs: BTreeMap::from([
            (b"trusted.note".to_vec(), vec![9; 300]),
            (b"security.empty".to_vec(), Vec::new()),
        ]),
        ..Attributes::default()
    };
    let mut tree = Tree::empty(Attributes {
        permissions: 0o755,
        ..Attributes::default()
    });
    let mut prng = Prng::new(3);
    let add = |tree: &mut Tree, name: &str, content| {
        let file = tree.add(TreeFile {
            attributes: attributes(0o640),
            content,
        });
        assert!(tree.link(Tree::ROOT, name.as_bytes().to_vec(), file));
        file
    };
    add(&mut tree, "link", Content::Symlink(b"some/where".to_vec()));
    add(&mut tree, "fifo", Content::Fifo);
    add(
        &mut tree,
        "console",
        Content::CharacterDevice { major: 5, minor: 1 },
    );
    add(
        &mut tree,
        "disk",
        Content::BlockDevice {
            major: 259,
            minor: 70_000,
        },
    );
    let folder = add(&mut tree, "folder", Content::Directory(BTreeMap::new()));
    for number in 0..120_usize {
        let bytes = number * number * 3;
        let content = match number % 3 {
            0 => prng.bytes(bytes),
            1 => b"compressible ".iter().copied().cycle().take(bytes).collect(),
            _ => vec![0; bytes],
        };
        let file = add(&mut tree, &format!("file-{number}"), Content::Bytes(content));
        assert!(tree.link(folder, format!("second-{number}").into_bytes(), file));
    }
    tree
}

fn linux(guest: &mut Guest, flash: &FlashFile, path: &Path, use_it: &str) -> Lines {
    flash
        .load(&fs::read(path).expect("it is there"))
        .expect("it fits");
    let job = Job::ready_made("check.sh")
        .expect("the script is in the repository")
        .variable("USE", use_it);
    let outcome = guest
        .run(&job)
        .unwrap_or_else(|error| panic!("{error}"))
        .expect_success();
    lines(&outcome.read_text("files.txt").expect("the job wrote it"))
}

fn ours(volume: Arc<dyn Volume>) -> Lines {
    let ubifs = Ubifs::open(volume, OpenOptions::standard()).expect("it is a file system");
    assert!(ubifs.findings().is_empty(), "{:?}", ubifs.findings());
    tree_of(&ubifs)
}

fn write_a_lot(volume: Arc<dyn Volume>, seed: u64) -> Writer {
    let mut writer = Writer::open(volume, OpenOptions::standard()).expect("it opens");
    let directory = NewFile {
        mode: 0o040_755,
        user: 0,
        group: 0,
        data: Vec::new(),
    };
    let name = format!("written-{seed}");
    let directory = writer.create(ROOT_INODE, name.as_bytes(), &directory, Time::default());
    let mut model = Model::at(directory.expect("there is room for it"));
    let mut prng = Prng::new(seed);
    for step in 0..400 {
        let weight = if step % 3 == 0 {
            Weight::Content
        } else {
            Weight::Names
        };
        model
            .step(&mut writer, &mut prng, weight)
            .unwrap_or_else(|error| panic!("step {step}: {error}"));
        if step % 150 == 149 {
            writer.commit().expect("it commits");
        }
    }
    writer
}

/// Operations specific to a mount, and a power cut while orphans are open.
fn use_a_mount(volume: Arc<dyn Volume>) {
    let writer = Writer::open(volume, OpenOptions::standard()).expect("it opens");
    let file_system = mounted(writer);
    let run = ModelRun {
        seed: 0x11AB,
        steps: 900,
        threads: 1,
        compare_holes: true,
        replay: "cargo test -p ubifs --test suite write_linux",
    };
    model::run(&file_system, run);
    let caller = contract::caller();
    let rename = |from: &[u8], to: &[u8], flags| {
        let renamed = file_system.rename(&caller, (Ino::ROOT, from), (Ino::ROOT, to), RenameFlags(flags));
        renamed.expect("both names are there");
    };
    rename(b"folder", b"file-1", libc::RENAME_EXCHANGE);
    rename(b"file-2", b"file-3", libc::RENAME_WHITEOUT);
    let unnamed = || {
        let flags = OpenFlags(libc::O_RDWR);
        let made = file_system.tmpfile(&caller, Ino::ROOT, contract::FILE, flags);
        let (entry, opened) = made.expect("there is room for it");
        let mode = contract::plain(libc::O_RDWR);
        let written = file_system.write(entry.ino, opened.handle, 0, &[3; 20_000], mode);
        assert_eq!(written, Ok(20_000));
        entry.ino
    };
    // One is linked before a commit, one after it, two never.
    let (first, second) = (unnamed(), unnamed());
    unnamed();
    file_system
        .link(first, Ino::ROOT, b"first")
        .expect("it can have a name");
    file_system.sync().expect("it commits");
    file_system
        .link(second, Ino::ROOT, b"second")
        .expect("it can have a name");
    unnamed();
    file_system
        .setxattr(second, b"user.note", b"kept", XattrFlags(0), false)
        .expect("there is room for it");
    file_system
        .fsyncdir(Ino::ROOT, vfs::Handle(0), false)
        .expect("it syncs");
}

#[test]
fn linux_mounts_with_all_checks_what_was_made_and_written_here() {
    if testkit::left_to_full("it takes two minutes of a guest") {
        return;
    }
    let lab = match Lab::with_flash() {
        Ok(lab) => lab,
        Err(why) => {
            testkit::report_left_out(why);
            return;
        }
    };
    let folder = Folder(std::env::temp_dir().join(format!("tidegate-ubifs-write-{}", std::process::id())));
    fs::create_dir_all(&folder.0).expect("the temporary folder takes one");
    let flash = FlashFile::erased(&folder.0.join("flash"), CHIP_BYTES).expect("there is room for a chip");
    let options = Options {
        flash: vec![flash.clone()],
        ..Options::default()
    };
    let mut guest = lab.boot(&options).unwrap_or_else(|error| panic!("{error}"));
    let path = folder.0.join("chip");
    let all = [
        (2, Compression::Zstd),
        (1, Compression::Lzo),
        (3, Compression::Zlib),
    ];
    let count = if testkit::is_full() { 3 } else { 1 };
    for (number, compression) in all.into_iter().take(count) {
        let what = compression.name();
        make_chip(&path, Compressor::Only(compression));
        let made = ours(volume(&path));
        assert!(made.len() > 240, "{what}: only {} files", made.len());
        assert_same(
            &made,
            &linux(&mut guest, &flash, &path, ""),
            &format!("{what}: made"),
        );

        let writer = write_a_lot(volume(&path), number);
        match number {
            1 => writer.unmount().expect("it unmounts"),
            // The process ends without a commit of the journal.
            _ => drop({
                let mut writer = writer;
                writer.fsync().map(|()| writer)
            }),
        }
        let written = ours(volume(&path));
        let load = "lab-load . 5 400 >/dev/null && sync";
        assert_same(
            &written,
            &linux(&mut guest, &flash, &path, ""),
            &format!("{what}: written"),
        );
        let changed = linux(&mut guest, &flash, &path, load);

        // Linux has written on top, and we continue from that state.
        forget(&path);
        fs::copy(flash.path(), &path).expect("there is room for it");
        assert_same(
            &ours(volume(&path)),
            &changed,
            &format!("{what}: written by Linux"),
        );
        write_a_lot(volume(&path), number + 10)
            .unmount()
            .expect("it unmounts");
        assert_same(
            &ours(volume(&path)),
            &linux(&mut guest, &flash, &path, ""),
            &format!("{what}: written in turns"),
        );
        use_a_mount(volume(&path));
        assert_same(
            &ours(volume(&path)),
            &linux(&mut guest, &flash, &path, ""),
            &format!("{what}: written through a mount"),
        );
    }
    written_by_both_on_a_file_system_of_linux(&mut guest, &flash, &path);
}

/// Linux makes the file system itself, at the first mount of an empty volume.
fn written_by_both_on_a_file_system_of_linux(guest: &mut Guest, flash: &FlashFile, path: &Path) {
    let what = "made by Linux";
    flash.load(&[]).expect("it is erased");
    let job = Job::ready_made("write.sh").expect("the script is in the repository");
    let job = job.variable("LOAD", "lab-load . 6 200 >/dev/null");
    let made = guest.run(&job).unwrap_or_else(|error| panic!("{error}"));
    let text = made
        .expect_success()
        .read_text("files.txt")
        .expect("the job wrote it");
    forget(path);
    fs::copy(flash.path(), path).expect("there is room for it");
    let ubifs = Ubifs::open(volume(path), OpenOptions::standard()).expect("it is a file system");
    let flags = SuperblockFlags(ubifs.superblock().flags);
    assert!(flags.has(SuperblockFlags::DOUBLE_HASH), "{flags:?}");
    assert_same(&tree_of(&ubifs), &lines(&text), what);
    drop(ubifs);
    write_a_lot(volume(path), 20).unmount().expect("it unmounts");
    let load = "lab-load . 7 200 >/dev/null && sync";
    let written = ours(volume(path));
    assert_same(
        &written,
        &linux(guest, flash, path, ""),
        &format!("{what}, written"),
    );
    linux(guest, flash, path, load);
}
