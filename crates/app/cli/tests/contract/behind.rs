//! Programs that share files with a program on the source, behind the mount, and with other users.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

use crate::harness::{NOBODY, as_nobody};
use crate::mounted::{Place, Program, programs};
use crate::programs::{append_from_two_processes, append_in_turn, both_ways};

pub fn programs() -> Vec<Program> {
    [
        programs!["appending":
            appends_of_a_host_program_and_of_the_mount_keep_every_line,
            appends_in_turn_below_and_on_the_mount_keep_every_line,
        ],
        programs!["size, times and extents":
            data_that_a_host_program_appends_is_seen_and_kept,
            a_host_program_sees_size_and_content_after_a_close,
        ],
        programs!["handles":
            a_descriptor_stays_with_its_file_when_a_host_program_replaces_it,
        ],
        programs!["credentials":
            files_of_several_users_belong_to_their_makers,
        ],
    ]
    .concat()
}

fn appends_of_a_host_program_and_of_the_mount_keep_every_line(place: &Place<'_>) {
    if place.mode().writeback {
        // Not promised: the kernel uses its own file size.
        return;
    }
    append_from_two_processes(place, &place.source);
}

fn appends_in_turn_below_and_on_the_mount_keep_every_line(place: &Place<'_>) {
    if !place.mode().writeback {
        append_in_turn(place, &place.source);
    }
}

fn data_that_a_host_program_appends_is_seen_and_kept(place: &Place<'_>) {
    if place.mode().writeback {
        return;
    }
    let file = both_ways(&place.root.join("file"));
    file.write_all_at(b"of the mount ", 0).expect("there is room");
    file.sync_all().expect("it can be synced");
    place.shell(&place.source, "printf 'of the host ' >> file");
    assert_eq!(
        place.shell(&place.root, "cat file; stat -c %s file"),
        "of the mount of the host 25\n"
    );
    file.write_all_at(b"of the mount", 25).expect("there is room");
    drop(file);
    assert_eq!(
        place.shell(&place.source, "cat file"),
        "of the mount of the host of the mount"
    );
}

fn a_host_program_sees_size_and_content_after_a_close(place: &Place<'_>) {
    for number in 0..5 {
        let name = format!("file-{number}");
        let file = both_ways(&place.root.join(&name));
        file.write_all_at(&[b'x'; 1000], 0).expect("there is room");
        drop(file);
        let told = place.shell(
            &place.source,
            &format!("stat -c %s {name}; tr -d x < {name} | wc -c"),
        );
        assert_eq!(told, "1000\n0\n");
    }
}

fn a_descriptor_stays_with_its_file_when_a_host_program_replaces_it(place: &Place<'_>) {
    let old = both_ways(&place.root.join("name"));
    old.write_all_at(b"old ", 0).expect("there is room");
    place.shell(&place.source, "printf 'new one' > temporary && mv temporary name");
    old.write_all_at(b"and more", 4).expect("there is room");
    let mut kept = [0; 12];
    old.read_exact_at(&mut kept, 0).expect("it is open");
    assert_eq!(&kept, b"old and more");
    assert_eq!(place.shell(&place.root, "cat name"), "new one");
    drop(old);
    assert_eq!(place.shell(&place.source, "cat name"), "new one");
}

fn files_of_several_users_belong_to_their_makers(place: &Place<'_>) {
    let can_change_user = rustix::process::geteuid().is_root()
        && as_nobody()
            .arg("true")
            .status()
            .is_ok_and(|status| status.success());
    if !can_change_user {
        return;
    }
    for folder in [place.mounted.root(), &place.root] {
        fs::set_permissions(folder, PermissionsExt::from_mode(0o777)).expect("it is ours");
    }
    for turn in 0..4 {
        let script = format!("echo x > f{turn}; mkdir d{turn}; ln -s target l{turn}; mkfifo p{turn}");
        let expected = if turn % 2 == 0 {
            let made = as_nobody()
                .current_dir(&place.root)
                .args(["sh", "-c", &script])
                .output();
            assert!(made.as_ref().is_ok_and(|made| made.status.success()), "{made:?}");
            NOBODY
        } else {
            place.shell(&place.root, &script);
            0
        };
        for kind in ["f", "d", "l", "p"] {
            let path = place.source.join(format!("{kind}{turn}"));
            let found = fs::symlink_metadata(&path).expect("it was made");
            assert_eq!(
                (found.uid(), found.gid()),
                (expected, expected),
                "{}",
                path.display()
            );
        }
    }
}
