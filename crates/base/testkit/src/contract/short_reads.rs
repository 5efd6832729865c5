//! Cases of the clause on short reads: fewer bytes than requested mean the end of the file and nothing else.

use vfs::{FileSystem, FsError, SetAttr};

use super::{Case, Scene, cases};

pub fn cases<F: FileSystem>() -> Vec<Case<F>> {
    cases![F:
        a_read_is_short_only_at_the_end_wherever_it_starts_and_stops,
        a_file_that_ends_in_a_hole_is_read_to_its_end,
        a_read_across_a_hole_and_data_just_written_is_whole,
        a_handle_that_only_writes_is_refused_or_reads_what_was_written,
    ]
}

/// Compares every read between two of `places` with the model, up to the end and no further.
fn check_reads<F: FileSystem>(scene: &Scene<'_, F>, file: super::File, model: &[u8], places: &[usize]) {
    let size = scene.attr(file.ino).size;
    assert_eq!(usize::try_from(size), Ok(model.len()), "the size");
    for start in places.iter().copied() {
        for end in places.iter().copied().filter(|end| *end > start) {
            let offset = u64::try_from(start).expect("a small offset");
            let found = scene.read(file, offset, end - start);
            let expected = &model[start.min(model.len())..end.min(model.len())];
            assert_eq!(found.len(), expected.len(), "a read of {start}..{end}");
            assert!(found == expected, "wrong bytes in a read of {start}..{end}");
        }
    }
}

/// Each offset with its neighbours.
fn around(places: &[usize]) -> Vec<usize> {
    let with_neighbours = places
        .iter()
        .flat_map(|place| [place.saturating_sub(1), *place, place + 1]);
    let mut all: Vec<usize> = with_neighbours.collect();
    all.dedup();
    all
}

fn a_read_is_short_only_at_the_end_wherever_it_starts_and_stops<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    let mut model = vec![0; 70_010];
    let places = [0, 4096, 16_384, 20_000, 65_536, 70_010];
    let around = around(&places);
    for (round, (start, end)) in [(0, 4096), (4096, 20_000), (65_536, 70_010)]
        .into_iter()
        .enumerate()
    {
        let data = crate::prng::Prng::named(7, "short reads").bytes(end - start + round);
        model[start..end].copy_from_slice(&data[round..]);
        let offset = u64::try_from(start).expect("a small offset");
        scene.write(file, offset, &data[round..]);
        check_reads(scene, file, &model[..end], &around);
    }
    // Again with nothing buffered.
    let synced = scene.file_system.fsync(file.ino, file.handle, false);
    assert_eq!(synced, Ok(()));
    check_reads(scene, file, &model, &around);
}

fn a_file_that_ends_in_a_hole_is_read_to_its_end<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    let mut model = vec![0; 30_000];
    model[..5000].fill(3);
    scene.write(file, 0, &model[..5000]);
    let change = SetAttr {
        size: Some(30_000),
        ..SetAttr::default()
    };
    let grown = scene.file_system.setattr(file.ino, Some(file.handle), &change);
    assert_eq!(grown.map(|attr| attr.size), Ok(30_000));
    check_reads(scene, file, &model, &around(&[0, 5000, 8192, 30_000]));
}

fn a_read_across_a_hole_and_data_just_written_is_whole<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    let other = scene.open(file.ino, libc::O_RDONLY);
    scene.write(file, 0, b"head");
    scene.write(file, 100_000, b"tail");
    let found = scene.read(other, 0, 200_000);
    assert_eq!(found.len(), 100_004);
    assert!(found.starts_with(b"head\0") && found.ends_with(b"\0tail"));
    assert!(found[4..100_000].iter().all(|byte| *byte == 0));
}

/// A page cache above reads the rest of a page through the handle that writes a part of it.
fn a_handle_that_only_writes_is_refused_or_reads_what_was_written<F: FileSystem>(scene: &Scene<'_, F>) {
    let made = scene.create(b"file");
    let file = scene.open(made.ino, libc::O_WRONLY);
    let mut model = Vec::new();
    for number in 0..5 {
        let piece = vec![number + 1; 100];
        scene.write(file, u64::try_from(model.len()).expect("small"), &piece);
        model.extend(piece);
        let mut found = vec![0xAA; 4096];
        match scene.file_system.read(file.ino, file.handle, 0, &mut found) {
            Err(FsError::BadHandle) => {}
            read => {
                assert_eq!(read, Ok(model.len()), "after piece {number}");
                assert!(found[..model.len()] == model, "wrong bytes after piece {number}");
            }
        }
    }
}
