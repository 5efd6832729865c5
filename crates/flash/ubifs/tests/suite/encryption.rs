//! Encrypted images of `mkfs.ubifs`: with the key they read like their source; without it, names are shown as by
//! Linux and reads report which key is missing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use crate::support::tool::{content, has_mkfs, mkfs};
use ubi::Volume;
use ubifs::format::{EntryKind, InodeNumber, ROOT_INODE};
use ubifs::salvage::{Salvage, SalvageOptions};
use ubifs::{ImageVolume, Locked, MasterKey, OpenOptions, Subject, Ubifs, UbifsError};

const DESCRIPTOR: &str = "0123456789abcdef";
const KEY_BYTES: usize = 64;

/// Maps a path to a file's content, a link's target after an arrow, or nothing for a directory.
type Files = BTreeMap<String, Vec<u8>>;

/// Names of all lengths that padding and ciphertext stealing treat differently, and contents for all ways to store a
/// block.
fn make_tree(tree: &Path) -> Files {
    let mut files = Files::new();
    fs::create_dir_all(tree.join("folder/a folder below")).expect("made");
    for folder in ["folder", "folder/a folder below"] {
        files.insert(folder.to_owned(), Vec::new());
    }
    let lengths = [
        1, 3, 4, 5, 15, 16, 17, 20, 31, 32, 33, 48, 100, 239, 240, 241, 252, 255,
    ];
    for (number, length) in lengths.into_iter().enumerate() {
        let name = format!("folder/{}", "name".repeat(64).split_at(length).0);
        let bytes = content([0, 1, 15, 16, 700, 4096, 4097, 30_000][number % 8], 3);
        fs::write(tree.join(&name), &bytes).expect("made");
        files.insert(name, bytes);
    }
    for length in [1, 16, 200] {
        let (name, target) = (format!("folder/link-{length}"), "t".repeat(length));
        symlink(&target, tree.join(&name)).expect("made");
        files.insert(name, format!("->{target}").into_bytes());
    }
    files
}

fn key(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(KEY_BYTES).collect()
}

fn open(image: &Path, keys: &[&[u8]]) -> Ubifs {
    let volume = ImageVolume::open(image)
        .expect("it can be read")
        .expect("it is UBIFS");
    let ubifs = Ubifs::open(Arc::new(volume), OpenOptions::standard()).expect("it opens");
    let keys = keys
        .iter()
        .map(|key| MasterKey::new(key.to_vec()).expect("64 bytes"));
    ubifs.with_keys(keys.collect())
}

/// Lists everything below the root; fails on damage.
fn files_of(ubifs: &Ubifs) -> Files {
    let mut files = Files::new();
    let mut pending = vec![(ROOT_INODE, String::new())];
    while let Some((directory, path)) = pending.pop() {
        for entry in ubifs.read_directory(directory).expect("names can be read") {
            let name = String::from_utf8(entry.name.clone()).expect("text");
            let path = if path.is_empty() {
                name
            } else {
                format!("{path}/{name}")
            };
            assert_eq!(ubifs.lookup(directory, &entry.name).expect("it is found"), entry);
            let inode = ubifs.inode(entry.inode).expect("it can be read");
            let found = match inode.kind() {
                Some(EntryKind::Directory) => {
                    pending.push((entry.inode, path.clone()));
                    Vec::new()
                }
                Some(EntryKind::Symlink) => {
                    [b"->".to_vec(), ubifs.read_link(&inode).expect("a target")].concat()
                }
                _ => {
                    let mut bytes = vec![0; usize::try_from(inode.size_bytes).expect("small")];
                    ubifs.read(&inode, 0, &mut bytes).expect("it can be read");
                    bytes
                }
            };
            assert!(
                ubifs.xattr_names(entry.inode).expect("a list").is_empty(),
                "{path}"
            );
            files.insert(path, found);
        }
    }
    files
}

fn make(folder: &Path, more: &[&str]) -> (Files, std::path::PathBuf) {
    let (tree, image, key_file) = (folder.join("tree"), folder.join("image"), folder.join("key"));
    let files = match tree.exists() {
        true => fs::remove_dir_all(&tree)
            .map(|()| make_tree(&tree))
            .expect("removed"),
        false => make_tree(&tree),
    };
    fs::write(&key_file, key(1)).expect("written");
    let key_file = key_file.display().to_string();
    let always = ["-K", &key_file, "-b", DESCRIPTOR];
    mkfs(&tree, &image, 2048, 126_976, &[&always, more].concat());
    (files, image)
}

#[test]
fn with_its_key_an_encrypted_image_reads_as_what_it_was_made_of() {
    if !has_mkfs() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for more in [
        ["-P", "4", "-C", "AES-256-XTS", "-x", "lzo"],
        ["-P", "32", "-C", "AES-256-XTS", "-x", "zstd"],
        ["-P", "16", "-C", "AES-128-CBC", "-x", "none"],
    ] {
        let (files, image) = make(folder.path(), &more);
        let found = files_of(&open(&image, &[&key(1)]));
        let names = |files: &Files| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&found), names(&files), "{more:?}");
        assert!(found == files, "{more:?}: contents differ");
    }
}

#[test]
fn a_salvage_opens_encrypted_files_without_superblock_and_master() {
    if !has_mkfs() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (files, image) = make(folder.path(), &["-P", "32", "-C", "AES-256-XTS", "-x", "zstd"]);
    let leb = 126_976;
    let mut raw = fs::read(&image).expect("an image");
    for at in [0, leb, 2 * leb] {
        raw[at..at + 4096].fill(0);
    }
    fs::write(&image, raw).expect("written");
    let volume = ImageVolume::open_as(&image, 126_976).expect("it can be read");
    let volume: Arc<dyn Volume> = Arc::new(volume);
    let options = SalvageOptions::standard(&*volume);
    let salvage = Salvage::scan(volume, options);
    let key = MasterKey::new(key(1)).expect("64 bytes");
    let ubifs = salvage.into_tree(vec![key]);
    assert!(files_of(&ubifs) == files, "contents differ");
}

fn first_in(ubifs: &Ubifs, kind: EntryKind) -> InodeNumber {
    let mut pending = vec![ROOT_INODE];
    while let Some(directory) = pending.pop() {
        for entry in ubifs.read_directory(directory).expect("names can be read") {
            let inode = ubifs.inode(entry.inode).expect("it can be read");
            if entry.kind == Some(kind) && inode.size_bytes > 0 && kind != EntryKind::Directory {
                return entry.inode;
            }
            if entry.kind == Some(EntryKind::Directory) {
                pending.push(entry.inode);
            }
        }
    }
    panic!("there is no {kind:?}");
}

#[test]
fn without_its_key_names_are_shown_in_letters_and_contents_say_what_they_lack() {
    if !has_mkfs() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (files, image) = make(folder.path(), &["-P", "4", "-C", "AES-256-XTS"]);
    let ubifs = open(&image, &[]);
    let root = ubifs.read_directory(ROOT_INODE).expect("names can be read");
    let letters = |name: &[u8]| {
        name.iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
    };
    assert!(root.iter().all(|entry| letters(&entry.name)), "{root:?}");
    let inside = ubifs.read_directory(root[0].inode).expect("names can be read");
    assert_eq!(inside.len(), files.len() - 1);
    for entry in &inside {
        assert!(letters(&entry.name), "{entry:?}");
        assert_eq!(ubifs.lookup(root[0].inode, &entry.name).expect("found"), *entry);
    }
    let file = ubifs.inode(first_in(&ubifs, EntryKind::File)).expect("readable");
    let mut lost = Vec::new();
    let mut out = vec![7; 100_000];
    ubifs.read_lossy(&file, 0, &mut out, &mut lost);
    assert_eq!(lost.len(), 1, "one loss for all of a read: {lost:?}");
    assert_eq!(lost[0].subject, Subject::Encrypted);
    assert!(
        lost[0].to_string().contains(&format!("descriptor {DESCRIPTOR}")),
        "{}",
        lost[0]
    );
    let link = ubifs
        .inode(first_in(&ubifs, EntryKind::Symlink))
        .expect("readable");
    let error = ubifs.read_link(&link).expect_err("it is locked");
    assert!(matches!(error, UbifsError::Damaged { .. }), "{error}");
}

#[test]
fn another_key_opens_nothing_and_is_told() {
    if !has_mkfs() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (_, image) = make(folder.path(), &["-P", "32", "-C", "AES-256-XTS"]);
    let ubifs = open(&image, &[&key(2)]);
    let mut lost = Vec::new();
    // Since `mkfs` draws a random nonce, one name in a hundred looks like text by chance: in a directory with two
    // dozen names, at least one is always noise.
    let root = ubifs.read_directory_lossy(ROOT_INODE, &mut lost);
    lost.clear();
    ubifs.read_directory_lossy(root[0].inode, &mut lost);
    let told = lost
        .iter()
        .filter(|finding| finding.to_string().contains(&Locked::WrongKey.to_string()));
    assert_eq!(told.count(), 1, "{lost:?}");
    // With two keys, neither of which has the policy's name, none is tried.
    let ubifs = open(&image, &[&key(1), &key(2)]);
    let file = ubifs.inode(first_in(&ubifs, EntryKind::File)).expect("readable");
    let error = ubifs.check_key(&file).expect_err("it is locked");
    assert!(error.to_string().contains("none of the keys"), "{error}");
}
