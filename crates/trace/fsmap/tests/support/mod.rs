//! Images made and mounted by system tools, and the output of those tools.
//!
//! Everything is in a temporary folder that is removed with its owner, mounts first. A missing tool or privilege gives
//! `None` after a printed reason.

#![expect(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An image file in a temporary folder.
pub struct Image {
    folder: tempfile::TempDir,
    pub path: PathBuf,
}

impl Image {
    /// An empty image of `bytes`.
    pub fn empty(bytes: u64) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().join("image");
        let file = fs::File::create(&path).expect("the image can be made");
        file.set_len(bytes).expect("the image can be sparse");
        Self { folder, path }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// An image with a file system made by `command` (a tool and its options).
    pub fn formatted(bytes: u64, command: &[&str]) -> Option<Self> {
        let image = Self::empty(bytes);
        let (tool, options) = command.split_first().expect("a tool is named");
        let path = image.path.to_str().expect("temporary names are text");
        let mut words: Vec<&str> = options.to_vec();
        words.push(path);
        let output = run(tool, &words)?;
        if !output.1 {
            testkit::report_left_out(format!("{tool} {options:?} failed: {}", output.0));
            return None;
        }
        Some(image)
    }

    /// Mounts it; `None` without root or if the kernel lacks the file system.
    pub fn mount(&self, options: &str) -> Option<Mounted> {
        if !testkit::needs(&[testkit::Need::Root]) {
            return None;
        }
        let target = self.folder.path().join("mnt");
        fs::create_dir_all(&target).expect("a folder can be made");
        let options = if options.is_empty() {
            "loop".to_owned()
        } else {
            format!("loop,{options}")
        };
        let (image, folder) = (self.path.to_str()?, target.to_str()?);
        let (message, done) = run("mount", &["-o", &options, image, folder])?;
        if !done {
            testkit::report_left_out(format!("the image can't be mounted: {message}"));
            return None;
        }
        Some(Mounted { folder: target })
    }

    pub fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).expect("the image can be read")
    }
}

/// A mounted image; unmounted when dropped.
pub struct Mounted {
    pub folder: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let folder = self.folder.to_str().expect("temporary names are text");
        if run("umount", &[folder]).is_none_or(|(_, done)| !done) {
            let _ = run("umount", &["-l", folder]);
        }
    }
}

/// Runs a tool; returns its output, and whether it succeeded. `None` if the tool is not installed.
pub fn run(tool: &str, words: &[&str]) -> Option<(String, bool)> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(tool)
        .args(words)
        .env("PATH", path)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            Some((
                String::from_utf8_lossy(&text).into_owned(),
                output.status.success(),
            ))
        }
        Err(error) => {
            testkit::report_left_out(format!("{tool}: {error}"));
            None
        }
    }
}

/// Runs a tool with words from its standard input, as many at a time as fit.
pub fn run_on_all(tool: &str, words: &[&str], paths: &[PathBuf]) -> Option<String> {
    use std::os::unix::ffi::OsStrExt;
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut child = Command::new("xargs")
        .args(["-0", tool])
        .args(words)
        .env("PATH", path)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut input = child.stdin.take().expect("it was asked for");
    let list: Vec<u8> = paths
        .iter()
        .flat_map(|path| [path.as_os_str().as_bytes(), &[0]].concat())
        .collect();
    let writer = std::thread::spawn(move || input.write_all(&list));
    let output = child.wait_with_output().ok()?;
    writer.join().expect("the writer ends").ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// An extent reported by filefrag (FIEMAP), in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Truth {
    pub physical: u64,
    pub logical: u64,
    pub length: u64,
    pub inode: u64,
}

/// Paths by inode.
pub type Names = BTreeMap<u64, Vec<String>>;

/// Output of filefrag for all files and folders below a mountpoint, and their paths by inode.
pub fn filefrag(root: &Path) -> Option<(Vec<Truth>, Names)> {
    let mut paths = Vec::new();
    collect(root, &mut paths);
    let mut names: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut asked = Vec::new();
    for path in &paths {
        let status = fs::symlink_metadata(path).expect("it was just listed");
        let below = path.strip_prefix(root).expect("it is below");
        names
            .entry(status.ino())
            .or_default()
            .push(format!("/{}", below.to_string_lossy()));
        if status.is_file() || status.is_dir() {
            asked.push(path.clone());
        }
    }
    let text = run_on_all("filefrag", &["-v", "-s", "-b512"], &asked)?;
    let mut truth = Vec::new();
    // Answers are in the order of the arguments. Names may contain line feeds.
    let mut questions = asked.iter();
    for answer in text.split("File size of ").skip(1) {
        let path = questions
            .find(|path| answer.starts_with(&format!("{} is ", path.to_string_lossy())))
            .expect("filefrag names a file that it was asked about");
        let inode = fs::symlink_metadata(path).expect("it is there").ino();
        for line in answer.lines() {
            let Some((number, rest)) = line.split_once(':') else {
                continue;
            };
            // Inline data has no separate block.
            if number.trim().parse::<u32>().is_err() || line.contains("inline") {
                continue;
            }
            let numbers: Vec<u64> = rest
                .split([':', '.', ' '])
                .filter_map(|word| word.parse().ok())
                .collect();
            assert!(numbers.len() >= 5, "filefrag wrote {line:?}");
            assert_eq!(numbers[1] - numbers[0] + 1, numbers[4], "filefrag wrote {line:?}");
            truth.push(Truth {
                logical: numbers[0] * 512,
                physical: numbers[2] * 512,
                length: numbers[4] * 512,
                inode,
            });
        }
    }
    truth.sort_unstable();
    truth.dedup();
    Some((truth, names))
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    into.push(folder.to_owned());
    for entry in fs::read_dir(folder).expect("the mount can be read") {
        let path = entry.expect("the mount can be read").path();
        if fs::symlink_metadata(&path).expect("it was just listed").is_dir() {
            collect(&path, into);
        } else {
            into.push(path);
        }
    }
}

/// Makes files of all shapes: fragmented, sparse, preallocated, hard links, long links, attributes, deep and wide
/// folders.
pub fn populate(root: &Path) {
    let block = vec![0x5A_u8; 4096];
    let write =
        |path: &Path, bytes: usize| fs::write(path, vec![7_u8; bytes]).expect("a file can be written");
    for number in 0..40 {
        write(&root.join(format!("small-{number}")), number * 700);
    }
    // Every second block is punched out: hundreds of extents.
    let fragmented = fs::File::create(root.join("fragmented")).expect("a file can be made");
    for number in 0..600_u64 {
        fragmented.write_all_at(&block, number * 8192).expect("room");
    }
    let sparse = fs::File::create(root.join("sparse")).expect("a file can be made");
    for shift in [13, 20, 24, 28, 30, 31] {
        sparse.write_all_at(&block, 1 << shift).expect("room");
    }
    let reserved = fs::File::create(root.join("reserved")).expect("a file can be made");
    reserved.write_all_at(&block, 0).expect("room");
    // Not supported on ext3.
    let _ = rustix::fs::fallocate(&reserved, rustix::fs::FallocateFlags::empty(), 0, 1 << 20);
    write(&root.join("large"), 3 << 20);
    let wide = root.join("wide");
    fs::create_dir(&wide).expect("a folder can be made");
    for number in 0..400 {
        write(
            &wide.join(format!("a-file-with-a-name-of-some-length-{number:05}")),
            10,
        );
    }
    let mut deep = root.to_owned();
    for number in 0..20 {
        deep = deep.join(format!("level{number}"));
        fs::create_dir(&deep).expect("a folder can be made");
        write(&deep.join("leaf"), 5000);
    }
    fs::hard_link(root.join("small-9"), deep.join("another-name")).expect("a link can be made");
    fs::hard_link(root.join("small-9"), wide.join("third-name")).expect("a link can be made");
    symlink("x".repeat(200), root.join("long-link")).expect("a link can be made");
    symlink("short", root.join("short-link")).expect("a link can be made");
    let odd = root.join("odd names");
    fs::create_dir(&odd).expect("a folder can be made");
    for name in ["with space", "umlaut-äöü", "new\nline", &"n".repeat(255)] {
        write(&odd.join(name), 100);
    }
    let removed = root.join("removed");
    write(&removed, 100_000);
    let attributes = fs::File::create(root.join("attributes")).expect("a file can be made");
    // On some file systems such an attribute only fits in a separate block.
    let _ = rustix::fs::fsetxattr(
        &attributes,
        c"user.large",
        &[1; 900],
        rustix::fs::XattrFlags::empty(),
    );
    for handle in [&fragmented, &sparse, &reserved, &attributes] {
        handle.sync_all().expect("the image takes it");
    }
    fs::remove_file(removed).expect("it can be removed");
}
