//! Cases of the clause on errors: a failure below, for one file or all, once or for ever, is reported to the affected
//! callers and to no others.

use std::collections::HashSet;

use vfs::{FileSystem, FsError, FsResult, Ino};

use super::{File, Scene, plain};
use crate::prng::Prng;
use crate::{Call, Faults, Times};

type FaultCase<F> = (&'static str, fn(&Trouble<'_, F>));

/// Runs the cases on errors, each on a new file system from `make`, over a [`crate::FaultyFs`] whose faults are
/// returned with it: empty, with space for a few MiB.
pub fn run_errors<F: FileSystem>(make: impl Fn() -> (F, Faults) + Sync) {
    super::run_each(cases::<F>(), |case| {
        let (file_system, faults) = make();
        case(&Trouble {
            scene: Scene {
                file_system: &file_system,
            },
            faults: &faults,
        });
    });
}

pub fn cases<F: FileSystem>() -> Vec<FaultCase<F>> {
    super::cases![F:
        a_read_error_is_an_error_and_never_the_end_of_the_file,
        a_read_error_changes_nothing_and_leaves_other_files_alone,
        a_read_that_meets_buffered_data_still_tells_the_error_below,
        a_lost_write_is_told_at_every_close_until_an_fsync_told_it_once,
        a_lost_write_is_told_to_no_handle_opened_later_or_of_another_file,
        each_loss_is_told_where_writes_fail_for_ever,
        a_failed_sync_is_told_to_its_caller,
        a_write_that_cannot_be_made_durable_fails,
        an_error_of_the_close_below_is_told_at_close,
        once_an_error_that_may_pass_was_told_nothing_is_acknowledged_and_lost,
        a_quota_of_one_file_leaves_others_and_itself_honest,
        in_any_order_of_faults_a_loss_is_told_and_only_a_loss,
    ]
}

/// The file system of a case, and the faults below it.
pub struct Trouble<'a, F> {
    scene: Scene<'a, F>,
    faults: &'a Faults,
}

impl<F: FileSystem> Trouble<'_, F> {
    fn try_write(&self, file: File, offset: u64, data: &[u8], flags: i32) -> FsResult<usize> {
        let mode = plain(libc::O_RDWR | flags);
        self.scene
            .file_system
            .write(file.ino, file.handle, offset, data, mode)
    }

    fn try_read(&self, file: File, offset: u64, length: usize) -> FsResult<Vec<u8>> {
        let mut out = vec![0; length];
        let read = self
            .scene
            .file_system
            .read(file.ino, file.handle, offset, &mut out)?;
        out.truncate(read);
        Ok(out)
    }

    fn fsync(&self, file: File) -> FsResult<()> {
        self.scene.file_system.fsync(file.ino, file.handle, false)
    }

    fn flush(&self, file: File) -> FsResult<()> {
        self.scene.file_system.flush(file.ino, file.handle)
    }

    /// Creates a file with this content and syncs it.
    fn with_content(&self, name: &[u8], content: &[u8]) -> File {
        let file = self.scene.create(name);
        self.scene.write(file, 0, content);
        assert_eq!(self.fsync(file), Ok(()));
        file
    }

    /// The error below as reported by a write and the flush after it: by the write if it was not delayed, otherwise by
    /// the flush.
    fn told_by(&self, file: File, written: FsResult<usize>) -> FsResult<()> {
        written.map(drop).and(self.flush(file))
    }
}

const ERRORS: [FsError; 3] = [FsError::Io, FsError::NoSpace, FsError::Quota];

fn a_read_error_is_an_error_and_never_the_end_of_the_file<F: FileSystem>(trouble: &Trouble<'_, F>) {
    let content = Prng::named(1, "errors").bytes(300_000);
    let file = trouble.with_content(b"file", &content);
    trouble.faults.fail(Call::Read, Times::Once, FsError::Io);
    assert_eq!(trouble.try_read(file, 0, 300_000), Err(FsError::Io));
    assert!(trouble.try_read(file, 0, 300_000).as_ref() == Ok(&content));
    trouble.faults.fail(Call::Read, Times::ForEver, FsError::Io);
    for (offset, length) in [(0, 10), (299_999, 1), (100_000, 200_000), (299_000, 5_000)] {
        assert_eq!(
            trouble.try_read(file, offset, length),
            Err(FsError::Io),
            "at {offset}"
        );
    }
    trouble.faults.heal();
    assert!(trouble.try_read(file, 0, 300_001) == Ok(content));
}

fn a_read_error_changes_nothing_and_leaves_other_files_alone<F: FileSystem>(trouble: &Trouble<'_, F>) {
    let file = trouble.with_content(b"file", &[1; 50_000]);
    let other = trouble.with_content(b"other", &[2; 50_000]);
    let before = trouble.scene.attr(file.ino);
    trouble
        .faults
        .fail_file(file.ino, Call::Read, Times::ForEver, FsError::Io);
    assert_eq!(trouble.try_read(file, 0, 50_000), Err(FsError::Io));
    assert!(trouble.try_read(other, 0, 50_001) == Ok(vec![2; 50_000]));
    let after = trouble.scene.attr(file.ino);
    assert_eq!((after.size, after.mtime), (before.size, before.mtime));
    assert_eq!((trouble.fsync(file), trouble.fsync(other)), (Ok(()), Ok(())));
    trouble.scene.write(file, 0, b"a write");
    trouble.faults.heal();
    let read = trouble.try_read(file, 0, 50_001).expect("healed");
    assert!(read.len() == 50_000 && read.starts_with(b"a write\x01"));
}

fn a_read_that_meets_buffered_data_still_tells_the_error_below<F: FileSystem>(trouble: &Trouble<'_, F>) {
    let file = trouble.with_content(b"file", &[1; 50_000]);
    trouble.scene.write(file, 20_000, &[2; 1_000]);
    trouble.scene.write(file, 50_000, &[2; 1_000]);
    trouble.faults.fail(Call::Read, Times::ForEver, FsError::Io);
    for (offset, length) in [(0, 60_000), (19_000, 1_500), (20_500, 1_000), (49_999, 100)] {
        let read = trouble.try_read(file, offset, length);
        assert_eq!(read, Err(FsError::Io), "{length} bytes at {offset}");
    }
    trouble.faults.heal();
    let expected = [vec![1; 20_000], vec![2; 1_000], vec![1; 29_000], vec![2; 1_000]].concat();
    assert!(trouble.try_read(file, 0, 60_000) == Ok(expected));
}

fn a_lost_write_is_told_at_every_close_until_an_fsync_told_it_once<F: FileSystem>(trouble: &Trouble<'_, F>) {
    for (number, error) in ERRORS.into_iter().enumerate() {
        let file = trouble.with_content(format!("file {number}").as_bytes(), &[1; 5_000]);
        let other = trouble.scene.open(file.ino, libc::O_RDWR);
        trouble
            .faults
            .fail_file(file.ino, Call::Write, Times::Once, error);
        let written = trouble.try_write(file, 0, &[2; 5_000], 0);
        if written == Err(error) {
            // The write itself failed, so nothing was acknowledged: no other call reports the error.
            let later = [trouble.flush(file), trouble.fsync(file), trouble.fsync(other)];
            assert_eq!(later, [Ok(()); 3], "{error:?}");
            continue;
        }
        assert_eq!(written, Ok(5_000));
        for handle in [file, other] {
            let told = [
                trouble.flush(handle),
                trouble.flush(handle),
                trouble.fsync(handle),
                trouble.fsync(handle),
                trouble.flush(handle),
            ];
            let expected = [Err(error), Err(error), Err(error), Ok(()), Ok(())];
            assert_eq!(told, expected, "{error:?}, {handle:?}");
        }
    }
}

fn a_lost_write_is_told_to_no_handle_opened_later_or_of_another_file<F: FileSystem>(
    trouble: &Trouble<'_, F>,
) {
    let file = trouble.with_content(b"file", &[1; 5_000]);
    let other = trouble.scene.create(b"other");
    trouble.scene.write(other, 0, b"before ");
    trouble
        .faults
        .fail_file(file.ino, Call::Write, Times::Once, FsError::Io);
    let written = trouble.try_write(file, 0, &[2; 5_000], 0);
    trouble.scene.write(other, 7, b"after");
    assert_eq!(trouble.told_by(file, written), Err(FsError::Io));
    let later = trouble.scene.open(file.ino, libc::O_RDWR);
    assert_eq!((trouble.flush(later), trouble.fsync(later)), (Ok(()), Ok(())));
    assert_eq!((trouble.flush(other), trouble.fsync(other)), (Ok(()), Ok(())));
    assert_eq!(
        trouble.try_read(other, 0, 100).as_deref(),
        Ok(&b"before after"[..])
    );
    trouble.scene.write(later, 0, b"usable");
    assert_eq!(trouble.fsync(later), Ok(()));
    assert_eq!(trouble.try_read(later, 0, 6).as_deref(), Ok(&b"usable"[..]));
}

fn each_loss_is_told_where_writes_fail_for_ever<F: FileSystem>(trouble: &Trouble<'_, F>) {
    let file = trouble.with_content(b"file", &[1; 5_000]);
    let other = trouble.with_content(b"other", &[1; 5_000]);
    trouble
        .faults
        .fail_file(file.ino, Call::Write, Times::ForEver, FsError::Io);
    for round in 0..5 {
        let written = trouble.try_write(file, 0, &[2; 5_000], 0);
        let told = written.map(drop).and(trouble.fsync(file));
        assert_eq!(told, Err(FsError::Io), "round {round}");
        trouble.scene.write(other, 0, &[3; 5_000]);
        assert_eq!(trouble.fsync(other), Ok(()), "round {round}");
    }
    trouble.faults.heal();
    assert!(trouble.try_read(file, 0, 6_000) == Ok(vec![1; 5_000]));
    assert!(trouble.try_read(other, 0, 6_000) == Ok(vec![3; 5_000]));
    trouble.scene.write(file, 0, b"again");
    assert_eq!(trouble.fsync(file), Ok(()));
}

fn a_failed_sync_is_told_to_its_caller<F: FileSystem>(trouble: &Trouble<'_, F>) {
    let (file, other) = (trouble.scene.create(b"file"), trouble.scene.create(b"other"));
    trouble.scene.write(file, 0, b"content");
    trouble
        .faults
        .fail_file(file.ino, Call::Sync, Times::Once, FsError::Io);
    assert_eq!(trouble.fsync(other), Ok(()));
    assert_eq!(trouble.fsync(file), Err(FsError::Io));
    assert_eq!(trouble.fsync(file), Ok(()));
    trouble.faults.fail(Call::Sync, Times::ForEver, FsError::NoSpace);
    for _ in 0..3 {
        assert_eq!(trouble.fsync(file), Err(FsError::NoSpace));
        assert_eq!(trouble.scene.file_system.sync(), Err(FsError::NoSpace));
    }
    trouble.faults.heal();
    assert_eq!(trouble.fsync(file), Ok(()));
    assert_eq!(trouble.scene.read(file, 0, 10), b"content");
}

fn a_write_that_cannot_be_made_durable_fails<F: FileSystem>(trouble: &Trouble<'_, F>) {
    let file = trouble.scene.create(b"file");
    for flags in [libc::O_DSYNC, libc::O_SYNC, libc::O_SYNC | libc::O_APPEND] {
        trouble.faults.fail(Call::Sync, Times::Once, FsError::Io);
        assert_eq!(
            trouble.try_write(file, 0, b"data", flags),
            Err(FsError::Io),
            "{flags:o}"
        );
        assert_eq!(trouble.try_write(file, 0, b"data", flags), Ok(4), "{flags:o}");
    }
    trouble.faults.fail(Call::Write, Times::Once, FsError::NoSpace);
    let refused = trouble.try_write(file, 0, b"data", libc::O_DSYNC);
    assert_eq!(refused, Err(FsError::NoSpace));
    assert_eq!(
        (trouble.flush(file), trouble.fsync(file)),
        (Ok(()), Ok(())),
        "told twice"
    );
}

fn an_error_of_the_close_below_is_told_at_close<F: FileSystem>(trouble: &Trouble<'_, F>) {
    let file = trouble.scene.create(b"file");
    trouble.scene.write(file, 0, b"content");
    trouble.faults.fail(Call::Flush, Times::Once, FsError::Io);
    assert_eq!(trouble.flush(file), Err(FsError::Io));
    assert_eq!(trouble.flush(file), Ok(()));
}

/// Alternates writes that fail below with writes that succeed: data acknowledged after the error was reported is kept.
fn once_an_error_that_may_pass_was_told_nothing_is_acknowledged_and_lost<F: FileSystem>(
    trouble: &Trouble<'_, F>,
) {
    for (number, error) in [FsError::NoSpace, FsError::Quota].into_iter().enumerate() {
        let file = trouble.with_content(format!("file {number}").as_bytes(), &[1; 5_000]);
        trouble.faults.fail(Call::Write, Times::ForEver, error);
        let written = trouble.try_write(file, 0, &[2; 5_000], 0);
        assert_eq!(written.map(drop).and(trouble.fsync(file)), Err(error));
        for round in 0..10 {
            let written = trouble.try_write(file, round * 1_000, &[3; 1_000], 0);
            assert_eq!(written, Err(error), "round {round} was acknowledged");
        }
        trouble.faults.heal();
        trouble.scene.write(file, 0, &[4; 5_000]);
        assert_eq!(
            trouble.fsync(file),
            Ok(()),
            "an error was told to the writer and to its fsync"
        );
        assert!(trouble.try_read(file, 0, 10_000) == Ok(vec![4; 5_000]));
    }
}

/// One user is over quota, and writes beside one who is not.
fn a_quota_of_one_file_leaves_others_and_itself_honest<F: FileSystem>(trouble: &Trouble<'_, F>) {
    let poor = trouble.with_content(b"poor", &[1; 5_000]);
    let rich = trouble.scene.create(b"rich");
    trouble
        .faults
        .fail_file(poor.ino, Call::Write, Times::ForEver, FsError::Quota);
    let written = trouble.try_write(poor, 0, &[2; 5_000], 0);
    assert_eq!(written.map(drop).and(trouble.fsync(poor)), Err(FsError::Quota));
    for round in 0..20 {
        trouble.scene.write(rich, round * 1_000, &[5; 1_000]);
        let written = trouble.try_write(poor, round * 1_000, &[3; 1_000], 0);
        assert_eq!(written, Err(FsError::Quota), "round {round} was acknowledged");
        if round % 3 == 0 {
            assert_eq!(trouble.fsync(rich), Ok(()), "round {round}");
        }
    }
    assert_eq!((trouble.flush(rich), trouble.fsync(poor)), (Ok(()), Ok(())));
    trouble.faults.heal();
    assert!(trouble.try_read(rich, 0, 30_000) == Ok(vec![5; 20_000]));
    assert!(trouble.try_read(poor, 0, 10_000) == Ok(vec![1; 5_000]));
}

/// A file of the random script: its expected bytes, and the handles that have reported the error.
struct Watched {
    handles: [File; 2],
    /// `None` for a byte whose write was refused: it may be the old or the new one.
    bytes: Vec<Option<u8>>,
    told: [bool; 2],
}

fn in_any_order_of_faults_a_loss_is_told_and_only_a_loss<F: FileSystem>(trouble: &Trouble<'_, F>) {
    for seed in 0..if crate::is_full() { 400 } else { 40 } {
        random_faults(trouble, seed);
    }
}

fn random_faults<F: FileSystem>(trouble: &Trouble<'_, F>, seed: u64) {
    let mut prng = Prng::named(seed, "faults in any order");
    let mut files: Vec<Watched> = (0..3)
        .map(|number| {
            let one = trouble.scene.create(format!("{seed} {number}").as_bytes());
            Watched {
                handles: [one, trouble.scene.open(one.ino, libc::O_RDWR)],
                bytes: Vec::new(),
                told: [false; 2],
            }
        })
        .collect();
    let before = trouble.faults.writes().len();
    for _ in 0..60 {
        let place = usize::try_from(prng.below(3)).expect("small");
        let which = usize::try_from(prng.below(2)).expect("small");
        let file = files[place].handles[which];
        match prng.below(10) {
            0 => {
                let error = ERRORS[usize::try_from(prng.below(3)).expect("small")];
                let times = if prng.below(2) == 0 {
                    Times::Once
                } else {
                    Times::ForEver
                };
                match prng.below(2) {
                    0 => trouble.faults.fail(Call::Write, times, error),
                    _ => trouble.faults.fail_file(file.ino, Call::Write, times, error),
                }
            }
            1 => trouble.faults.heal(),
            2 => files[place].told[which] |= trouble.flush(file).is_err(),
            3 => files[place].told[which] |= trouble.fsync(file).is_err(),
            _ => {
                let offset = usize::try_from(prng.below(20_000)).expect("small");
                let data = vec![u8::try_from(prng.below(255) + 1).expect("a byte"); 1 + offset % 5_000];
                let written = trouble.try_write(file, u64::try_from(offset).expect("small"), &data, 0);
                files[place].note(offset, &data, written);
            }
        }
    }
    trouble.faults.heal();
    let writes = trouble.faults.writes().split_off(before);
    let failed: HashSet<Ino> = writes
        .iter()
        .filter(|write| write.injected.is_some())
        .map(|write| write.ino)
        .collect();
    for (number, file) in files.iter_mut().enumerate() {
        let context = format!("seed {seed}, file {number}");
        for (handle, told) in file.handles.into_iter().zip(&mut file.told) {
            *told |= trouble.fsync(handle).is_err();
            assert_eq!(trouble.fsync(handle), Ok(()), "{context}: told twice by fsync");
            let at_fault = failed.contains(&handle.ino);
            assert!(at_fault || !*told, "{context}: told of another file's error");
        }
        let found = trouble
            .try_read(file.handles[0], 0, 30_000)
            .expect("nothing fails any more");
        let lost = (0..file.bytes.len().max(found.len())).find(|at| {
            let known = file.bytes.get(*at).copied().unwrap_or(Some(0));
            known.is_some_and(|byte| byte != found.get(*at).copied().unwrap_or(0))
        });
        assert!(
            lost.is_none() || file.told == [true; 2],
            "{context}: byte {lost:?} is lost, told to {:?}",
            file.told
        );
        for handle in file.handles {
            trouble.scene.close(handle);
        }
    }
}

impl Watched {
    /// Records the bytes that a write may have left.
    fn note(&mut self, offset: usize, data: &[u8], written: FsResult<usize>) {
        let end = offset + data.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, Some(0));
        }
        let acknowledged = written.unwrap_or(0);
        for (at, byte) in data.iter().enumerate() {
            let known = &mut self.bytes[offset + at];
            if at < acknowledged {
                *known = Some(*byte);
            } else if *known != Some(*byte) {
                *known = None;
            }
        }
    }
}
