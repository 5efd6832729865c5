//! The parts of the dumps: trees, volumes, two UBI images, and checks that they were unpacked.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

pub const BLOCK: usize = 128 << 10;
pub const PAGE: usize = 2048;
/// Noise in front of the first partition.
pub const NOISE: usize = 96 << 10;
const ERASED_BLOCKS: usize = 5;

pub fn tidegate(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(words)
        .output()
        .expect("the program runs")
}

pub fn done(words: &[&str]) {
    let output = tidegate(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

pub fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    testkit::prng::Prng::named(seed, "noise").bytes(bytes)
}

/// The parts of the dumps of these tests.
pub struct Parts {
    pub folder: tempfile::TempDir,
    pub kernel: Vec<u8>,
    pub squashfs: Vec<u8>,
    /// Kernel (static), rootfs, data and app (a squashfs): image sequence 1001.
    pub first: Vec<u8>,
    /// Conf: image sequence 1002.
    pub second: Vec<u8>,
}

/// The images of the trees, which are made once for all tests.
struct Images {
    first: Vec<u8>,
    second: Vec<u8>,
    /// A volume without UBI.
    conf: Vec<u8>,
}

static IMAGES: OnceLock<Images> = OnceLock::new();

impl Images {
    fn make(folder: &Path, kernel: &[u8], squashfs: &[u8]) -> Self {
        let path = |name: &str| folder.join(name);
        for tree in ["rootfs", "data", "conf"] {
            let volume = path(&format!("{tree}.ubifs"));
            let shape = ["ubifs", "mkfs", "-m", "2048", "-e", "126976", "-c", "200", "-r"];
            done(&[&shape[..], &[text(&path(tree)), text(&volume)]].concat());
        }
        fs::write(path("kernel"), kernel).expect("made");
        fs::write(path("squashfs"), squashfs).expect("made");
        let first = [
            volume(folder, "kernel", "kernel", "static", 0),
            volume(folder, "rootfs", "rootfs.ubifs", "dynamic", 1),
            volume(folder, "data", "data.ubifs", "dynamic", 2),
            volume(folder, "app", "squashfs", "dynamic", 5),
        ];
        Self {
            first: ubi(folder, "1001", &first),
            second: ubi(
                folder,
                "1002",
                &[volume(folder, "conf", "conf.ubifs", "dynamic", 0)],
            ),
            conf: fs::read(path("conf.ubifs")).expect("made"),
        }
    }
}

/// A section for a volume of [`ubi`].
pub fn volume(folder: &Path, name: &str, image: &str, kind: &str, number: u32) -> String {
    let image = folder.join(image).display().to_string();
    format!(
        "[{name}]\nmode=ubi\nimage={image}\nvol_id={number}\nvol_type={kind}\nvol_name={name}\nvol_size=12MiB\n"
    )
}

/// Makes a UBI image.
pub fn ubi(folder: &Path, sequence: &str, volumes: &[String]) -> Vec<u8> {
    let (ini, image) = (folder.join("ini"), folder.join("image"));
    fs::write(&ini, volumes.concat()).expect("made");
    let shape = ["ubi", "build", "-p", "128k", "-m", "2k", "-Q", sequence, "-o"];
    done(&[&shape[..], &[text(&image), text(&ini)]].concat());
    fs::read(image).expect("it was made")
}

impl Parts {
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn make() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for (tree, files) in [("rootfs", 40), ("data", 7), ("conf", 3)] {
            fs::create_dir_all(path(tree).join("a/b")).expect("made");
            for number in 0..files {
                let content = noise(number * 997, u64::try_from(number).expect("small"));
                fs::write(path(tree).join(format!("a/b/{tree}-{number}")), content).expect("made");
            }
            fs::write(path(tree).join("text"), tree.repeat(5000)).expect("made");
            fs::hard_link(path(tree).join("text"), path(tree).join("a/again")).expect("made");
            symlink("a/b", path(tree).join("link")).expect("made");
        }
        let kernel = noise(300_001, 1);
        let squashfs = [b"hsqs", &noise(200_000, 2)[..]].concat();
        let images = IMAGES.get_or_init(|| Images::make(folder.path(), &kernel, &squashfs));
        fs::write(path("conf.ubifs"), &images.conf).expect("written");
        Self {
            kernel,
            squashfs,
            first: images.first.clone(),
            second: images.second.clone(),
            folder,
        }
    }

    /// Noise, the first partition, an erased area, the second partition.
    pub fn dump(&self) -> Vec<u8> {
        let mut dump = noise(NOISE, 3);
        dump.extend(&self.first);
        dump.resize(dump.len() + ERASED_BLOCKS * BLOCK, 0xFF);
        dump.extend(&self.second);
        dump
    }

    pub fn unpack(&self, dump: &[u8], words: &[&str]) -> (Output, PathBuf) {
        let (image, out) = (self.path("dump"), self.path("out"));
        fs::write(&image, dump).expect("written");
        let _ = fs::remove_dir_all(&out);
        let all = [&["unpack", text(&image), "-o", text(&out)], words].concat();
        (tidegate(&all), out)
    }

    /// Checks that the trees of the first partition are in `folder`.
    pub fn check_first(&self, folder: &Path) {
        assert!(fs::read(folder.join("kernel.bin")).expect("a kernel") == self.kernel);
        let app = fs::read(folder.join("app.squashfs")).expect("a squashfs");
        assert!(app.starts_with(&self.squashfs), "the whole squashfs");
        self.check_tree("rootfs", &folder.join("rootfs"));
        self.check_tree("data", &folder.join("data"));
    }

    pub fn check_tree(&self, tree: &str, folder: &Path) {
        let compared = Command::new("diff")
            .args(["-r", "--no-dereference", text(&self.path(tree)), text(folder)])
            .output()
            .expect("diff runs");
        assert!(compared.status.success(), "{tree}: {compared:?}");
        let links = fs::metadata(folder.join("text")).expect("a file").nlink();
        assert_eq!(links, 2, "{tree}");
    }

    /// Unpacks a dump of which everything must be there.
    pub fn check_whole(&self, dump: &[u8]) -> serde_json::Value {
        let (output, out) = self.unpack(dump, &["--json"]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{message}");
        self.check_first(&out.join("1001"));
        self.check_tree("conf", &out.join("1002/conf"));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
        let kept = fs::read(out.join("report.json")).expect("a report");
        assert_eq!(
            report,
            serde_json::from_slice::<serde_json::Value>(&kept).expect("the same")
        );
        assert_eq!(
            (report["losses"].as_u64(), report["complete"].as_bool()),
            (Some(0), Some(true))
        );
        report
    }
}
