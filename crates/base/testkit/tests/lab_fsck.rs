//! The stock fsck.ubifs on volume files: it accepts what mkfs.ubifs makes and finds one changed byte.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use testkit::lab::Fsck;

const LEB_BYTES: u32 = 126_976;
const MIN_IO_BYTES: u32 = 2048;

/// A folder with `volume`, made by mkfs.ubifs; removed on drop.
struct Volume(PathBuf);

impl Volume {
    fn made(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tidegate-fsck-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("tree/sub")).expect("the temporary folder takes one");
        for number in 0_u8..20 {
            let path = folder.join(format!("tree/sub/{number}"));
            fs::write(path, vec![number; 9000]).expect("there is room");
        }
        let made = Command::new("/usr/sbin/mkfs.ubifs")
            .args([
                "-m",
                &MIN_IO_BYTES.to_string(),
                "-e",
                &LEB_BYTES.to_string(),
                "-c",
                "60",
                "-x",
                "none",
                "-r",
            ])
            .arg(folder.join("tree"))
            .arg("-o")
            .arg(folder.join("volume"))
            .status()
            .expect("lab/setup.sh installs mkfs.ubifs");
        assert!(made.success());
        Self(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.join("volume")
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn judge() -> Option<Fsck> {
    Fsck::available()
        .inspect_err(|why| testkit::report_left_out(why))
        .ok()
}

#[test]
fn a_volume_by_mkfs_is_clean_and_stays_as_it_is() {
    let Some(fsck) = judge() else { return };
    let volume = Volume::made("clean");
    // mkfs.ubifs leaves out unused LEBs.
    let mut bytes = fs::read(volume.path()).expect("it was made");
    bytes.resize(usize::try_from(LEB_BYTES).expect("it fits") * 60, 0xFF);
    fs::write(volume.path(), &bytes).expect("there is room");
    let report = fsck
        .check(&volume.path(), LEB_BYTES, MIN_IO_BYTES)
        .expect("it runs");
    assert!(report.clean, "{}", report.text);
    assert_eq!(fs::read(volume.path()).expect("it was made"), bytes);
}

#[test]
fn one_changed_byte_of_a_file_node_is_found() {
    let Some(fsck) = judge() else { return };
    let volume = Volume::made("changed");
    let mut bytes = fs::read(volume.path()).expect("it was made");
    bytes.resize(usize::try_from(LEB_BYTES).expect("it fits") * 60, 0xFF);
    let content = bytes
        .windows(64)
        .position(|window| window == [7; 64])
        .expect("the volume is not compressed");
    bytes[content] ^= 1;
    fs::write(volume.path(), &bytes).expect("there is room");
    let report = fsck
        .check(&volume.path(), LEB_BYTES, MIN_IO_BYTES)
        .expect("it runs");
    assert!(!report.clean, "{}", report.text);
}
