//! Programs that need only a mount, on any source.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::mounted::{Place, Program, programs};

pub fn appending() -> Vec<Program> {
    programs!["appending":
        appends_of_two_processes_keep_every_line,
        an_append_goes_behind_a_write_elsewhere_and_a_truncation,
    ]
}

pub fn short_reads() -> Vec<Program> {
    programs!["short reads":
        a_read_is_short_at_the_end_of_the_file_alone,
        pieces_of_a_page_that_leaves_the_cache_between_them_are_all_kept,
    ]
}

pub fn visibility() -> Vec<Program> {
    programs!["size, times and extents":
        sizes_and_times_never_go_back_while_a_file_is_written,
        a_time_moves_by_a_write_and_by_nothing_else,
        another_process_sees_size_and_content_at_once,
        a_copy_of_an_open_file_has_all_its_data,
    ]
}

pub fn handles() -> Vec<Program> {
    programs!["handles":
        a_descriptor_stays_with_its_file_when_another_process_takes_the_name,
        a_recreated_name_is_another_file,
        a_file_without_a_name_is_cut_synced_and_read,
    ]
}

/// Opens for reading and writing, creating the file if needed.
pub fn both_ways(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).expect("the file can be opened for both")
}

fn appender(path: &Path) -> File {
    let opened = OpenOptions::new().read(true).append(true).create(true).open(path);
    opened.expect("the file can be opened for appending")
}

/// Checks that the text has every line of each writer in order, and no others.
pub fn check_lines(text: &str, writers: &[&str], lines: usize) {
    for writer in writers {
        let of_writer = text.lines().filter(|line| line.starts_with(writer));
        let expected = (0..lines).map(|number| format!("{writer} {number} {}", "x".repeat(number % 70)));
        assert!(
            of_writer.eq(expected),
            "lines of {writer} are lost, broken or out of order"
        );
    }
    assert_eq!(text.lines().count(), writers.len() * lines, "lines of nobody");
}

/// Appends lines from another process and, at the same time, from this one.
pub fn append_from_two_processes(place: &Place<'_>, other_folder: &Path) {
    const LINES: usize = 200;
    let script = "i=0; x=; while [ $i -lt 200 ]; do echo \"other $i $x\" >> log; i=$((i+1)); x=x$x; \
                  [ $((i % 70)) -ne 0 ] || x=; done";
    std::thread::scope(|scope| {
        scope.spawn(|| place.shell(other_folder, script));
        let mut log = appender(&place.root.join("log"));
        for number in 0..LINES {
            let line = format!("mine {number} {}\n", "x".repeat(number % 70));
            log.write_all(line.as_bytes()).expect("there is room");
        }
    });
    let text = fs::read_to_string(place.root.join("log")).expect("it is there");
    check_lines(&text, &["mine", "other"], LINES);
}

/// Appends lines alternately to the log on the mount and in another folder, each through its own descriptor.
pub fn append_in_turn(place: &Place<'_>, other_folder: &Path) {
    const LINES: usize = 200;
    let mut mine = appender(&place.root.join("log"));
    let mut other = appender(&other_folder.join("log"));
    for number in 0..LINES {
        for (log, writer) in [(&mut mine, "mine"), (&mut other, "other")] {
            let line = format!("{writer} {number} {}\n", "x".repeat(number % 70));
            log.write_all(line.as_bytes()).expect("there is room");
        }
    }
    drop((mine, other));
    let text = fs::read_to_string(place.root.join("log")).expect("it is there");
    check_lines(&text, &["mine", "other"], LINES);
}

fn appends_of_two_processes_keep_every_line(place: &Place<'_>) {
    append_from_two_processes(place, &place.root);
}

fn an_append_goes_behind_a_write_elsewhere_and_a_truncation(place: &Place<'_>) {
    let path = place.root.join("log");
    let (mut log, file) = (appender(&path), both_ways(&path));
    log.write_all(b"first ").expect("there is room");
    file.write_all_at(b"second ", 6).expect("there is room");
    log.write_all(b"third").expect("there is room");
    assert_eq!(fs::read(&path).expect("it is there"), b"first second third");
    file.set_len(5).expect("it can be cut");
    log.write_all(b"!").expect("there is room");
    assert_eq!(fs::read(&path).expect("it is there"), b"first!");
}

fn a_read_is_short_at_the_end_of_the_file_alone(place: &Place<'_>) {
    const SIZE: usize = 70_010;
    let file = both_ways(&place.root.join("file"));
    let reader = File::open(place.root.join("file")).expect("it is there");
    let mut model = vec![0; SIZE];
    for (start, end) in [(0, 4096), (4096, 20_000), (65_536, SIZE)] {
        for (at, byte) in model.iter_mut().enumerate().take(end).skip(start) {
            *byte = u8::try_from(at % 251 + 1).expect("a byte");
        }
        file.write_all_at(&model[start..end], u64::try_from(start).expect("small"))
            .expect("there is room");
    }
    let edges = [0, 4096, 16_384, 20_000, 65_536, SIZE];
    let places: Vec<usize> = edges
        .iter()
        .flat_map(|edge| [edge.saturating_sub(1), *edge, edge + 1])
        .collect();
    for start in places.iter().copied() {
        for end in places.iter().copied().filter(|end| *end > start) {
            let mut found = vec![0xAA; end - start];
            let source = if (start + end) % 2 == 0 { &file } else { &reader };
            let read = source
                .read_at(&mut found, u64::try_from(start).expect("small"))
                .expect("it is there");
            let expected = &model[start.min(SIZE)..end.min(SIZE)];
            assert!(
                found[..read] == *expected,
                "{start}..{end}: {read} of {} bytes",
                expected.len()
            );
        }
    }
}

/// For the next piece the kernel reads the rest of the page through a descriptor opened only for writing.
fn pieces_of_a_page_that_leaves_the_cache_between_them_are_all_kept(place: &Place<'_>) {
    let path = place.root.join("file");
    let opened = OpenOptions::new().write(true).create_new(true).open(&path);
    let file = opened.expect("the file can be made");
    let mut model = Vec::new();
    for piece in 1..=8_u8 {
        file.write_all_at(&[piece; 100], u64::try_from(model.len()).expect("small"))
            .expect("there is room");
        model.extend([piece; 100]);
        // The first call starts writeback of the page; a later one finds it clean and drops it.
        for _ in 0..5_000 {
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("it is a file");
        }
    }
    file.sync_all().expect("it can be synced");
    drop(file);
    assert!(
        fs::read(&path).expect("it is there") == model,
        "a piece that was synced is lost"
    );
}

/// Size, modification time, change time.
fn shown(path: &Path) -> (u64, (i64, i64), (i64, i64)) {
    let found = fs::metadata(path).expect("it is there");
    (
        found.len(),
        (found.mtime(), found.mtime_nsec()),
        (found.ctime(), found.ctime_nsec()),
    )
}

fn sizes_and_times_never_go_back_while_a_file_is_written(place: &Place<'_>) {
    const RECORD: u64 = 3_000;
    let path = place.root.join("file");
    let file = both_ways(&path);
    let (begun, done, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let look = || {
        let mut last = (0, (0, 0), (0, 0));
        while !over.load(Ordering::Acquire) {
            let at_least = done.load(Ordering::Acquire);
            let told = shown(&path);
            let at_most = begun.load(Ordering::Acquire);
            assert!(
                (at_least..=at_most).contains(&told.0),
                "{} of {at_least} to {at_most}",
                told.0
            );
            assert!(
                told.0 >= last.0 && told.1 >= last.1 && told.2 >= last.2,
                "{told:?} was told after {last:?}"
            );
            last = told;
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(look);
        for _ in 0..300 {
            begun.fetch_add(RECORD, Ordering::AcqRel);
            file.write_all_at(&[7; 3_000], done.load(Ordering::Acquire))
                .expect("there is room");
            done.fetch_add(RECORD, Ordering::AcqRel);
        }
        over.store(true, Ordering::Release);
    });
}

fn a_time_moves_by_a_write_and_by_nothing_else(place: &Place<'_>) {
    let path = place.root.join("file");
    let file = both_ways(&path);
    let empty = shown(&path);
    file.write_all_at(&[1; 10_000], 0).expect("there is room");
    let written = shown(&path);
    assert!(
        written.1 >= empty.1 && written.2 >= empty.2,
        "a write moved a time back"
    );
    let mut head = [0; 100];
    file.read_exact_at(&mut head, 0).expect("it is there");
    assert_eq!(shown(&path), written, "a read moved a time");
    file.sync_all().expect("it can be synced");
    assert_eq!(shown(&path), written, "an fsync moved a time");
    drop(file);
    assert_eq!(shown(&path), written, "a close moved a time");
    assert_eq!(fs::read(&path).expect("it is there").len(), 10_000);
    assert_eq!(shown(&path), written, "another open moved a time");
}

fn another_process_sees_size_and_content_at_once(place: &Place<'_>) {
    let file = both_ways(&place.root.join("file"));
    for round in 1..=5_u64 {
        file.write_all_at(b"0123456789", (round - 1) * 10)
            .expect("there is room");
        let told = place.shell(&place.root, "stat -c %s file; tail -c 10 file; wc -c < file");
        let size = round * 10;
        assert_eq!(told, format!("{size}\n0123456789{size}\n"), "round {round}");
    }
}

/// `cp` uses the block count, SEEK_DATA and SEEK_HOLE.
fn a_copy_of_an_open_file_has_all_its_data(place: &Place<'_>) {
    const FAR: u64 = 3 << 20;
    let path = place.root.join("file");
    let file = both_ways(&path);
    file.write_all_at(&[1; 100_000], 0).expect("there is room");
    file.write_all_at(&[2; 50_000], FAR).expect("there is room");
    if place.mode().writeback {
        // The kernel queries data and holes without writing back its own dirty pages.
        file.sync_all().expect("it can be synced");
    }
    assert!(
        file.metadata().expect("it is open").blocks() > 0,
        "a file with data has no blocks"
    );
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)), Ok(0));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(FAR)), Ok(FAR));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(FAR)), Ok(FAR + 50_000));
    assert_eq!(
        rustix::fs::seek(&file, SeekFrom::Data(FAR + 50_000)),
        Err(Errno::NXIO)
    );
    place.shell(&place.root, "cp --sparse=auto file copy && cmp file copy");
    let copy = fs::read(place.root.join("copy")).expect("it is there");
    assert!(copy[..100_000].iter().all(|byte| *byte == 1));
    assert!(copy[3 << 20..].iter().all(|byte| *byte == 2));
    assert_eq!(copy.len(), (3 << 20) + 50_000);
}

fn a_descriptor_stays_with_its_file_when_another_process_takes_the_name(place: &Place<'_>) {
    let old = both_ways(&place.root.join("name"));
    old.write_all_at(b"old ", 0).expect("there is room");
    place.shell(&place.root, "printf 'new one' > temporary && mv temporary name");
    old.write_all_at(b"and more", 4).expect("there is room");
    assert_eq!(place.shell(&place.root, "cat name"), "new one");
    let mut kept = [0; 12];
    old.read_exact_at(&mut kept, 0).expect("it is open");
    assert_eq!(
        (&kept, old.metadata().expect("it is open").nlink()),
        (b"old and more", 0)
    );
    drop(old);
    assert_eq!(
        place.shell(&place.root, "cat name; stat -c %s name"),
        "new one7\n"
    );
}

fn a_recreated_name_is_another_file(place: &Place<'_>) {
    let path = place.root.join("name");
    let old = both_ways(&path);
    old.write_all_at(b"of the old one", 0).expect("there is room");
    fs::remove_file(&path).expect("it is there");
    let new = both_ways(&path);
    assert_eq!(new.metadata().expect("it is open").len(), 0);
    new.write_all_at(b"new", 0).expect("there is room");
    old.write_all_at(b"!", 14).expect("there is room");
    assert_eq!(place.shell(&place.root, "cat name"), "new");
    drop(old);
    assert_eq!(fs::read(&path).expect("it is there"), b"new");
}

fn a_file_without_a_name_is_cut_synced_and_read(place: &Place<'_>) {
    let path = place.root.join("file");
    let file = both_ways(&path);
    file.write_all_at(&[5; 10_000], 0).expect("there is room");
    fs::remove_file(&path).expect("it is there");
    file.set_len(7_000).expect("it can be cut");
    file.write_all_at(&[6; 100], 7_000).expect("there is room");
    file.sync_all().expect("it can be synced");
    let mut end = [0; 200];
    let read = file.read_at(&mut end, 6_999).expect("it is open");
    assert_eq!((read, end[0], end[1]), (101, 5, 6));
}
