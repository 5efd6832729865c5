//! Cases of the clause on appending: the end of file for an appended write is determined when it is made.

use vfs::{FileSystem, SetAttr};

use super::{Case, File, Scene, cases, plain};

const APPEND: i32 = libc::O_RDWR | libc::O_APPEND;

pub fn cases<F: FileSystem>() -> Vec<Case<F>> {
    cases![F:
        an_append_ignores_the_offset_that_its_caller_guessed,
        an_append_goes_behind_what_another_handle_wrote,
        an_append_after_a_truncation_goes_to_the_new_end,
        the_flags_of_a_write_decide_whether_it_appends_not_those_of_the_open,
        a_synchronous_append_goes_to_the_end,
        appends_at_once_keep_each_record_whole,
    ]
}

fn append<F: FileSystem>(scene: &Scene<'_, F>, file: File, guess: u64, data: &[u8], flags: i32) {
    let written = scene
        .file_system
        .write(file.ino, file.handle, guess, data, plain(APPEND | flags));
    assert_eq!(written, Ok(data.len()), "an append of {} bytes", data.len());
}

fn an_append_ignores_the_offset_that_its_caller_guessed<F: FileSystem>(scene: &Scene<'_, F>) {
    let log = scene.open(scene.create(b"log").ino, APPEND);
    for (guess, line) in [(0, b"one "), (0, b"two "), (1_000_000, b"3rd "), (4, b"4th ")] {
        append(scene, log, guess, line, 0);
    }
    assert_eq!(scene.read(log, 0, 100), b"one two 3rd 4th ");
    assert_eq!(scene.attr(log.ino).size, 16);
}

fn an_append_goes_behind_what_another_handle_wrote<F: FileSystem>(scene: &Scene<'_, F>) {
    let plain_file = scene.create(b"log");
    let log = scene.open(plain_file.ino, APPEND);
    append(scene, log, 0, b"appended ", 0);
    scene.write(plain_file, 9, b"written ");
    append(scene, log, 9, b"appended", 0);
    scene.write(plain_file, 100, b"far");
    append(scene, log, 25, b"!", 0);
    let found = scene.read(log, 0, 200);
    assert_eq!(&found[..25], b"appended written appended");
    assert_eq!((found.len(), &found[100..]), (104, &b"far!"[..]));
}

fn an_append_after_a_truncation_goes_to_the_new_end<F: FileSystem>(scene: &Scene<'_, F>) {
    let log = scene.open(scene.create(b"log").ino, APPEND);
    append(scene, log, 0, &[1; 10_000], 0);
    let change = SetAttr {
        size: Some(3),
        ..SetAttr::default()
    };
    let cut = scene.file_system.setattr(log.ino, Some(log.handle), &change);
    assert_eq!(cut.map(|attr| attr.size), Ok(3));
    append(scene, log, 10_000, b"end", 0);
    assert_eq!(scene.read(log, 0, 100), b"\x01\x01\x01end");
}

fn the_flags_of_a_write_decide_whether_it_appends_not_those_of_the_open<F: FileSystem>(scene: &Scene<'_, F>) {
    let opened_plain = scene.create(b"file");
    scene.write(opened_plain, 0, b"0123456789");
    // `fcntl(F_SETFL)` switches `O_APPEND` on and off.
    append(scene, opened_plain, 0, b"end", 0);
    let opened_to_append = scene.open(opened_plain.ino, APPEND);
    let written = scene.file_system.write(
        opened_to_append.ino,
        opened_to_append.handle,
        2,
        b"ab",
        plain(libc::O_RDWR),
    );
    assert_eq!(written, Ok(2));
    assert_eq!(scene.read(opened_plain, 0, 100), b"01ab456789end");
}

fn a_synchronous_append_goes_to_the_end<F: FileSystem>(scene: &Scene<'_, F>) {
    let plain_file = scene.create(b"log");
    let log = scene.open(plain_file.ino, APPEND);
    append(scene, log, 0, b"buffered ", 0);
    append(scene, log, 0, b"synced ", libc::O_DSYNC);
    scene.write(plain_file, 16, b"written ");
    append(scene, log, 0, b"synced", libc::O_SYNC);
    assert_eq!(scene.read(log, 0, 100), b"buffered synced written synced");
}

/// Records of four threads, each beginning with its length and its writer.
fn appends_at_once_keep_each_record_whole<F: FileSystem>(scene: &Scene<'_, F>) {
    const RECORDS: usize = 60;
    let ino = scene.create(b"log").ino;
    // The last ones span entries of a small buffer.
    let length_of = |number: usize| 50 + 37 * number + 20_000 * (number / (RECORDS - 2));
    std::thread::scope(|scope| {
        for writer in 1..=4_u8 {
            scope.spawn(move || {
                let log = scene.open(ino, APPEND);
                for number in 0..RECORDS {
                    let mut record = vec![writer; length_of(number)];
                    record[1..5].copy_from_slice(&u32::try_from(number).unwrap_or(0).to_le_bytes());
                    append(scene, log, 0, &record, 0);
                }
                scene.close(log);
            });
        }
    });
    let total: usize = (0..RECORDS).map(length_of).sum::<usize>() * 4;
    let log = scene.open(ino, libc::O_RDONLY);
    let found = scene.read(log, 0, total + 1);
    assert_eq!(found.len(), total, "appended bytes were lost or came twice");
    let mut next = [0; 5];
    let mut rest = &found[..];
    while let [writer @ 1..=4, number @ .., _] = rest
        && let Some(number) = number.first_chunk::<4>()
    {
        let number = usize::try_from(u32::from_le_bytes(*number)).unwrap_or(0);
        let expected = &mut next[usize::from(*writer)];
        assert_eq!(
            number, *expected,
            "records of writer {writer} changed their order"
        );
        let (record, behind) = rest.split_at(length_of(number));
        assert!(
            record[5..].iter().all(|byte| byte == writer),
            "record {number} of writer {writer} is broken"
        );
        *expected += 1;
        rest = behind;
    }
    assert_eq!((rest.len(), next), (0, [0, RECORDS, RECORDS, RECORDS, RECORDS]));
}
