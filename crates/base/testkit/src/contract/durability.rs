//! Cases of the clauses on durability and sync, checked against the state that a power cut would leave.

use vfs::{FileSystem, FsError, Ino, OpenFlags, RenameFlags, SetAttr};

use super::{File, Scene, caller, plain};

/// A file system whose medium can be read in the state that a power cut would leave.
pub trait PowerCut {
    /// The file system under test.
    type Fs: FileSystem;

    /// The file system under test.
    fn file_system(&self) -> &Self::Fs;

    /// The content that the file `name` of the root would have if power failed now; `None` if the name would be gone.
    /// The file system under test is not affected.
    fn after_power_cut(&self, name: &[u8]) -> Option<Vec<u8>>;
}

type DurableCase<P> = (&'static str, fn(&Medium<'_, P>));

/// Runs the cases on durability, each on a new file system from `make`: empty, with space for a few MiB.
pub fn run_durability<P: PowerCut>(make: impl Fn() -> P + Sync) {
    super::run_each(cases::<P>(), |case| {
        let power = make();
        case(&Medium {
            scene: Scene {
                file_system: power.file_system(),
            },
            power: &power,
        });
    });
}

pub fn cases<P: PowerCut>() -> Vec<DurableCase<P>> {
    super::cases![P:
        a_dsync_write_is_on_the_medium_when_it_returns,
        a_sync_write_is_on_the_medium_when_it_returns,
        each_of_many_synchronous_writes_is_on_the_medium_when_it_returns,
        a_synchronous_append_is_on_the_medium_behind_what_was_there,
        a_synchronous_write_larger_than_any_buffer_is_on_the_medium,
        a_synchronous_write_over_buffered_data_is_what_the_medium_has,
        a_synchronous_write_through_one_handle_needs_nothing_of_another,
        a_write_after_a_synchronous_one_takes_nothing_off_the_medium,
        a_write_to_a_file_that_is_synchronous_is_on_the_medium_when_it_returns,
        fsync_covers_what_every_handle_wrote,
        fsync_of_a_handle_that_only_reads_covers_what_others_wrote,
        fdatasync_covers_data_and_size,
        an_fsync_after_a_close_covers_what_the_close_wrote_out,
        fsync_covers_a_truncation,
        fsync_covers_a_file_that_was_renamed_and_fsyncdir_its_name,
        fsyncdir_covers_a_removal,
        sync_covers_all_files_and_names,
    ]
}

/// The file system of a case, and its medium.
pub struct Medium<'a, P: PowerCut> {
    scene: Scene<'a, P::Fs>,
    power: &'a P,
}

impl<P: PowerCut> Medium<'_, P> {
    /// Creates a file and syncs its name.
    fn create(&self, name: &[u8]) -> File {
        let file = self.scene.create(name);
        self.fsyncdir();
        file
    }

    fn fsyncdir(&self) {
        let file_system = self.scene.file_system;
        let handle = file_system.opendir(Ino::ROOT).expect("the root can be opened");
        let synced = file_system.fsyncdir(Ino::ROOT, handle, false);
        assert_eq!(synced, Ok(()));
        file_system.releasedir(Ino::ROOT, handle);
    }

    fn write(&self, file: File, offset: u64, data: &[u8], flags: i32) {
        let mode = plain(libc::O_RDWR | flags);
        let written = self
            .scene
            .file_system
            .write(file.ino, file.handle, offset, data, mode);
        assert_eq!(written, Ok(data.len()), "{} bytes at {offset}", data.len());
    }

    fn fsync(&self, file: File, data_only: bool) {
        let synced = self.scene.file_system.fsync(file.ino, file.handle, data_only);
        assert_eq!(synced, Ok(()));
    }

    /// Checks that the file on the medium has exactly this content.
    #[track_caller]
    fn holds(&self, name: &[u8], expected: &[u8]) {
        let found = self.holds_at(name, 0, expected);
        assert_eq!(found, expected.len(), "the size after a power cut");
    }

    /// Checks that the file on the medium has this content at `offset`; returns its size there.
    #[track_caller]
    fn holds_at(&self, name: &[u8], offset: usize, expected: &[u8]) -> usize {
        let found = self.power.after_power_cut(name);
        let found = found.expect("the name would be gone after a power cut");
        let end = offset + expected.len();
        assert!(
            found.len() >= end,
            "a power cut would leave {} bytes; {offset}..{end} was to be durable",
            found.len()
        );
        let mut pairs = found[offset..end].iter().zip(expected);
        let wrong = pairs.position(|(one, other)| one != other);
        assert_eq!(
            wrong, None,
            "a power cut would leave other bytes in {offset}..{end}, from there on"
        );
        found.len()
    }
}

fn bytes(length: usize, seed: u64) -> Vec<u8> {
    crate::prng::Prng::named(seed, "durability").bytes(length)
}

fn a_dsync_write_is_on_the_medium_when_it_returns<P: PowerCut>(medium: &Medium<'_, P>) {
    let file = medium.create(b"file");
    let data = bytes(5_000, 1);
    medium.write(file, 0, &data, libc::O_DSYNC);
    medium.holds(b"file", &data);
}

fn a_sync_write_is_on_the_medium_when_it_returns<P: PowerCut>(medium: &Medium<'_, P>) {
    let file = medium.create(b"file");
    let data = bytes(5_000, 2);
    medium.write(file, 100, &data, libc::O_SYNC);
    medium.holds(b"file", &[vec![0; 100], data].concat());
}

fn each_of_many_synchronous_writes_is_on_the_medium_when_it_returns<P: PowerCut>(medium: &Medium<'_, P>) {
    let file = medium.create(b"file");
    let data = bytes(4_000, 3);
    let mut end = 0;
    for (number, piece) in data.chunks(500).enumerate() {
        let flags = if number % 2 == 0 {
            libc::O_DSYNC
        } else {
            libc::O_SYNC
        };
        medium.write(file, u64::try_from(end).expect("small"), piece, flags);
        end += piece.len();
        medium.holds(b"file", &data[..end]);
    }
}

fn a_synchronous_append_is_on_the_medium_behind_what_was_there<P: PowerCut>(medium: &Medium<'_, P>) {
    let file = medium.create(b"file");
    let log = medium.scene.open(file.ino, libc::O_RDWR | libc::O_APPEND);
    let [first, second] = [4, 5].map(|seed| bytes(3_000, seed));
    medium.write(log, 0, &first, libc::O_APPEND | libc::O_DSYNC);
    medium.write(log, 0, &second, libc::O_APPEND | libc::O_SYNC);
    medium.holds(b"file", &[first, second].concat());
}

fn a_synchronous_write_larger_than_any_buffer_is_on_the_medium<P: PowerCut>(medium: &Medium<'_, P>) {
    let file = medium.create(b"file");
    let data = bytes(700_000, 6);
    medium.write(file, 0, &data, libc::O_DSYNC);
    medium.holds(b"file", &data);
}

fn a_synchronous_write_over_buffered_data_is_what_the_medium_has<P: PowerCut>(medium: &Medium<'_, P>) {
    let file = medium.create(b"file");
    let [below, over] = [7, 8].map(|seed| bytes(9_000, seed));
    medium.write(file, 0, &below, 0);
    medium.write(file, 4_000, &over[..3_000], libc::O_DSYNC);
    medium.holds_at(b"file", 4_000, &over[..3_000]);
    medium.fsync(file, false);
    let expected = [&below[..4_000], &over[..3_000], &below[7_000..]].concat();
    medium.holds(b"file", &expected);
}

fn a_synchronous_write_through_one_handle_needs_nothing_of_another<P: PowerCut>(medium: &Medium<'_, P>) {
    let file = medium.create(b"file");
    let other = medium.scene.open(file.ino, libc::O_RDWR);
    let data = bytes(2_000, 9);
    medium.write(file, 0, &[1; 2_000], 0);
    medium.write(other, 2_000, &data, libc::O_SYNC);
    medium.holds_at(b"file", 2_000, &data);
}

fn a_write_after_a_synchronous_one_takes_nothing_off_the_medium<P: PowerCut>(medium: &Medium<'_, P>) {
    let file = medium.create(b"file");
    let data = bytes(6_000, 10);
    medium.write(file, 0, &data, libc::O_DSYNC);
    medium.write(file, 6_000, &[1; 3_000], 0);
    let flushed = medium.scene.file_system.flush(file.ino, file.handle);
    assert_eq!(flushed, Ok(()));
    medium.holds_at(b"file", 0, &data);
}

fn a_write_to_a_file_that_is_synchronous_is_on_the_medium_when_it_returns<P: PowerCut>(
    medium: &Medium<'_, P>,
) {
    /// `FS_IOC_SETFLAGS`, `FS_SYNC_FL`
    const SET_FLAGS: u32 = 0x4008_6602;
    const SYNC: u32 = 0x8;
    let file_system = medium.scene.file_system;
    let file = medium.create(b"file");
    medium.write(file, 0, &bytes(3000, 30), 0);
    let set = file_system.ioctl(file.ino, file.handle, SET_FLAGS, &SYNC.to_ne_bytes(), 0);
    if matches!(set, Err(FsError::NotATerminal | FsError::NotSupported)) {
        // A file system without attributes has no such files.
        assert!(!file_system.is_synchronous(file.ino, file.handle));
        return;
    }
    set.expect("the owner may set it");
    let later = medium.scene.open(file.ino, libc::O_RDWR);
    for (number, handle) in [(1, file), (2, later)] {
        assert!(file_system.is_synchronous(handle.ino, handle.handle));
        let data = bytes(3000, 30 + number);
        medium.write(handle, number * 3000, &data, 0);
        medium.holds_at(b"file", usize::try_from(number * 3000).expect("small"), &data);
    }
}

fn fsync_covers_what_every_handle_wrote<P: PowerCut>(medium: &Medium<'_, P>) {
    let file = medium.create(b"file");
    let other = medium.scene.open(file.ino, libc::O_RDWR);
    let data = bytes(30_000, 11);
    medium.write(file, 0, &data[..10_000], 0);
    medium.write(other, 20_000, &data[20_000..], 0);
    medium.write(file, 10_000, &data[10_000..20_000], 0);
    medium.fsync(other, false);
    medium.holds(b"file", &data);
}

fn fsync_of_a_handle_that_only_reads_covers_what_others_wrote<P: PowerCut>(medium: &Medium<'_, P>) {
    let file = medium.create(b"file");
    let reader = medium.scene.open(file.ino, libc::O_RDONLY);
    let data = bytes(10_000, 12);
    medium.write(file, 0, &data, 0);
    medium.fsync(reader, false);
    medium.holds(b"file", &data);
}

fn fdatasync_covers_data_and_size<P: PowerCut>(medium: &Medium<'_, P>) {
    let file = medium.create(b"file");
    let data = bytes(10_000, 13);
    medium.write(file, 0, &data[..4_000], 0);
    medium.fsync(file, true);
    medium.holds(b"file", &data[..4_000]);
    medium.write(file, 4_000, &data[4_000..], 0);
    medium.fsync(file, true);
    medium.holds(b"file", &data);
}

fn an_fsync_after_a_close_covers_what_the_close_wrote_out<P: PowerCut>(medium: &Medium<'_, P>) {
    let file = medium.create(b"file");
    let data = bytes(10_000, 14);
    medium.write(file, 0, &data, 0);
    medium.scene.close(file);
    let again = medium.scene.open(file.ino, libc::O_RDONLY);
    medium.fsync(again, true);
    medium.holds(b"file", &data);
}

fn fsync_covers_a_truncation<P: PowerCut>(medium: &Medium<'_, P>) {
    let file = medium.create(b"file");
    let data = bytes(10_000, 15);
    medium.write(file, 0, &data, 0);
    medium.fsync(file, false);
    for size in [6_000_usize, 8_000] {
        let change = SetAttr {
            size: u64::try_from(size).ok(),
            ..SetAttr::default()
        };
        let cut = medium
            .scene
            .file_system
            .setattr(file.ino, Some(file.handle), &change);
        assert!(cut.is_ok());
    }
    medium.fsync(file, false);
    medium.holds(b"file", &[&data[..6_000], &[0; 2_000]].concat());
}

fn fsync_covers_a_file_that_was_renamed_and_fsyncdir_its_name<P: PowerCut>(medium: &Medium<'_, P>) {
    let file = medium.create(b"temporary");
    let replaced = medium.create(b"name");
    medium.write(replaced, 0, b"old", libc::O_SYNC);
    let data = bytes(5_000, 16);
    medium.write(file, 0, &data, 0);
    medium.fsync(file, false);
    let (from, to) = ((Ino::ROOT, &b"temporary"[..]), (Ino::ROOT, &b"name"[..]));
    let renamed = medium
        .scene
        .file_system
        .rename(&caller(), from, to, RenameFlags(0));
    assert_eq!(renamed, Ok(()));
    // Before the name is synced, either file may be found, but never a part of one.
    let found = medium.power.after_power_cut(b"name");
    assert!(found.is_some_and(|found| found == b"old" || found == data));
    medium.fsyncdir();
    medium.holds(b"name", &data);
    assert_eq!(medium.power.after_power_cut(b"temporary"), None);
}

fn fsyncdir_covers_a_removal<P: PowerCut>(medium: &Medium<'_, P>) {
    let file = medium.create(b"file");
    medium.write(file, 0, b"content", libc::O_SYNC);
    medium.scene.close(file);
    assert_eq!(
        medium.scene.file_system.unlink(&caller(), Ino::ROOT, b"file"),
        Ok(())
    );
    medium.fsyncdir();
    assert_eq!(medium.power.after_power_cut(b"file"), None);
}

fn sync_covers_all_files_and_names<P: PowerCut>(medium: &Medium<'_, P>) {
    let contents = [17, 18, 19].map(|seed| bytes(8_000, seed));
    let names: [&[u8]; 3] = [b"one", b"two", b"three"];
    let mut open = Vec::new();
    for (name, content) in names.into_iter().zip(&contents) {
        let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT | libc::O_EXCL);
        let made = medium
            .scene
            .file_system
            .create(&caller(), Ino::ROOT, name, super::FILE, flags);
        let (entry, opened) = made.expect("there is room");
        let file = File {
            ino: entry.ino,
            handle: opened.handle,
        };
        medium.write(file, 0, content, 0);
        open.push(file);
    }
    medium.scene.close(open[1]);
    match medium.scene.file_system.sync() {
        Err(FsError::NotSupported) => return,
        synced => assert_eq!(synced, Ok(())),
    }
    for (name, content) in names.into_iter().zip(&contents) {
        medium.holds(name, content);
    }
}
