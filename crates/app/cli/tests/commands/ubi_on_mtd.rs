//! `tidegate ubi` on a real `/dev/mtd0` and `tidegate ubifs` on `/dev/ubi0_2` in the lab guest, whose kernel then attaches
//! the result.

use testkit::lab::{self, Job};

/// The program has the 64 MiB nandsim chip to itself until the kernel attaches it.
const SCRIPT: &str = r#"
modprobe nandsim id_bytes=0x20,0xa2,0x00,0x15 || exit 2
# Its own words while it makes the chip are no complaints.
dmesg -c >/dev/null
head -c 300001 /dev/urandom >/tmp/content
"$TIDEGATE" ubi format /dev/mtd0 || exit 3
"$TIDEGATE" ubi mkvol /dev/mtd0 -N boot -t static -s 600k || exit 4
"$TIDEGATE" ubi mkvol /dev/mtd0 -N data -s 2m || exit 4
"$TIDEGATE" ubi update /dev/mtd0 boot /tmp/content || exit 5
"$TIDEGATE" ubi update /dev/mtd0 data /tmp/content || exit 5
"$TIDEGATE" ubi dump /dev/mtd0 boot -o /tmp/dumped && cmp /tmp/content /tmp/dumped || exit 6
mkdir -p /tmp/tree/folder && cp /tmp/content /tmp/tree/folder/file && ln -s folder/file /tmp/tree/link
"$TIDEGATE" ubi mkvol /dev/mtd0 -N files -s 12m || exit 4
"$TIDEGATE" ubifs mkfs -r /tmp/tree --volume files /dev/mtd0 || exit 5
"$TIDEGATE" ubi check /dev/mtd0 || exit 7
modprobe ubi && ubiattach -m 0 || exit 8
cmp /tmp/content /dev/ubi0_0 && cmp -n 300001 /tmp/content /dev/ubi0_1 || exit 9
# A volume of the kernel's, while the kernel has it mounted as well.
modprobe ubifs && mkdir -p /mnt/files && mount -t ubifs -o ro ubi0_2 /mnt/files || exit 10
"$TIDEGATE" ubifs extract /dev/ubi0_2 -o /tmp/out || exit 11
diff -r --no-dereference /mnt/files /tmp/out && diff -r --no-dereference /tmp/tree /tmp/out || exit 12
"$TIDEGATE" ubifs check /dev/ubi0_2 && umount /mnt/files || exit 13
lab-complaints
"#;

#[test]
fn the_kernel_attaches_the_devices_that_the_program_wrote() {
    if testkit::left_to_full("it takes half a minute of a guest") {
        return;
    }
    let Some(mut guest) = lab::shared() else { return };
    let job = Job::new(SCRIPT).variable("TIDEGATE", env!("CARGO_BIN_EXE_tidegate"));
    let outcome = guest.run(&job).expect("the guest works").expect_success();
    assert!(outcome.text().contains("nothing wrong"), "{}", outcome.text());
}
