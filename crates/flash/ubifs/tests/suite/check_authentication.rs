//! Authenticated images of `mkfs.ubifs`, with HMACs computed by `openssl`: the checker verifies them with the key,
//! and detects changes made without the key although every CRC is right.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::image::Image;
use crate::support::tool::{content, has_mkfs};
use ubifs::ImageVolume;
use ubifs::check::{CheckReport, check, check_with_key};
use ubifs::format::{
    Group, HEADER_BYTES, LogReference, MASTER_DIRTY, Master, NodeKind, Superblock, Truncation, seal,
};

const KEY: &[u8] = b"the key of this test";
const HASH_BYTES: usize = 32;

/// Runs openssl; returns `None` if it is not installed.
fn openssl(words: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let mut command = Command::new("openssl");
    let command = command
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    child
        .stdin
        .take()
        .expect("it is piped")
        .write_all(input)
        .expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "openssl {words:?}");
    Some(output.stdout)
}

fn keyed(pieces: &[&[u8]]) -> Vec<u8> {
    let hex: String = KEY.iter().map(|byte| format!("{byte:02x}")).collect();
    let key = format!("hexkey:{hex}");
    let words = ["dgst", "-sha256", "-mac", "HMAC", "-macopt", &key, "-binary"];
    openssl(&words, &pieces.concat()).expect("it was there before")
}

fn signed_image(folder: &Path) -> Option<Image> {
    if !has_mkfs() {
        return None;
    }
    let path = |name: &str| folder.join(name).display().to_string();
    let (key, certificate) = (path("key.pem"), path("certificate.pem"));
    let words = "req -x509 -newkey rsa:2048 -nodes -days 10 -subj /CN=test";
    let words: Vec<&str> = words
        .split(' ')
        .chain(["-keyout", &key, "-out", &certificate])
        .collect();
    if openssl(&words, &[]).is_none() {
        testkit::report_left_out("there is no openssl (apt install openssl)");
        return None;
    }
    let tree = folder.join("tree");
    fs::create_dir_all(tree.join("folder")).expect("made");
    fs::write(tree.join("folder/file"), content(60_000, 1)).expect("made");
    let more = [
        "--hash-algo",
        "sha256",
        "--auth-key",
        &key,
        "--auth-cert",
        &certificate,
    ];
    Some(Image::make(folder, &tree, 2048, 126_976, &more))
}

/// Findings of the checker that concern hashes.
fn of_hashes(image: &Image, key: Option<&[u8]>) -> Vec<String> {
    image.write();
    let volume = ImageVolume::open(&image.path)
        .expect("it can be read")
        .expect("it is UBIFS");
    let report: CheckReport = match key {
        Some(key) => check_with_key(&volume, key),
        None => check(&volume),
    };
    let found = report.findings.iter().map(|finding| finding.fault.to_string());
    let told = found.chain(report.notes);
    told.filter(|text| {
        text.contains("hash") || text.contains("vouches") || text.contains("key") || text.contains("sign")
    })
    .collect()
}

/// Offsets of the nodes of a kind.
fn places(image: &Image, kind: NodeKind) -> Vec<usize> {
    let nodes = image.nodes().into_iter();
    nodes.filter(|node| node.1 == kind).map(|(at, ..)| at).collect()
}

/// Writes the HMAC of a node, stored at offset `at`, and its CRC.
fn put_keyed(node: &mut [u8], at: usize) {
    let hash = keyed(&[&node[8..at], &node[at + HASH_BYTES..]]);
    node[at..at + HASH_BYTES].copy_from_slice(&hash);
    reseal(node);
}

/// Fixes the CRC of a node.
fn reseal(node: &mut [u8]) {
    let kind = NodeKind::from_number(node[20]).expect("a kind");
    let sequence = u64::from_le_bytes(node[8..16].try_into().expect("8 bytes"));
    seal(node, kind, Group::None, sequence);
}

/// Adds a journal of one LEB and the HMACs, as Linux does at a read-write mount with a key.
fn give_keyed_hashes(image: &mut Image) {
    let leb = usize::try_from(image.leb).expect("small");
    let mut superblock = Superblock::decode(&image.raw).expect("it is one");
    let bud = superblock.lebs;
    superblock.lebs += 1;
    superblock.hmac_of_known[..HASH_BYTES].copy_from_slice(&keyed(&[b"UBIFS"]));
    image
        .raw
        .resize(leb * usize::try_from(superblock.lebs).expect("small"), 0xFF);
    image.raw[..Superblock::BYTES].copy_from_slice(&superblock.encode(1));
    put_keyed(&mut image.raw[..Superblock::BYTES], 128);
    for at in places(image, NodeKind::Master) {
        let mut master = Master::decode(&image.raw[at..]).expect("it is one");
        master.flags |= MASTER_DIRTY;
        let node = &mut image.raw[at..at + Master::BYTES];
        node.copy_from_slice(&master.encode(2));
        put_keyed(node, 296);
    }
    let start = image.place_of(|raw| raw[20] == NodeKind::CommitStart.number());
    let file = image.inode_with(|inode| inode.size_bytes == 60_000);
    let reference = LogReference {
        leb: bud,
        offset: 0,
        head: 1,
    };
    let reference = reference.encode(900_000);
    let in_log = (start / leb * leb..)
        .step_by(2048)
        .find(|at| *at > start)
        .expect("room");
    image.raw[start + 32..in_log].fill(ubifs::format::PADDING_BYTE);
    image.raw[in_log..in_log + reference.len()].copy_from_slice(&reference);
    let node = Truncation {
        inode: file.0,
        old_bytes: 60_000,
        new_bytes: 90,
    };
    let node = node.encode(900_001, Group::None);
    let hashed = [&image.raw[start..start + 32], &reference, &node].concat();
    let hash = openssl(&["dgst", "-sha256", "-binary"], &hashed).expect("it was there before");
    let mut vouching = vec![0; HEADER_BYTES];
    vouching.extend_from_slice(&keyed(&[&hash]));
    seal(&mut vouching, NodeKind::Authentication, Group::None, 900_002);
    let at = leb * usize::try_from(bud).expect("small");
    image.raw[at..at + node.len()].copy_from_slice(&node);
    let behind = at + node.len();
    image.raw[behind..behind + vouching.len()].copy_from_slice(&vouching);
}

#[test]
fn keyed_hashes_are_verified_with_the_key_and_a_change_without_it_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(mut image) = signed_image(folder.path()) else {
        return;
    };
    let told = of_hashes(&image, None);
    assert!(
        told.len() == 1 && told[0].contains("was signed and never mounted"),
        "{told:?}"
    );
    let master = places(&image, NodeKind::Master)[0];
    let mut changed = image.copy();
    changed.raw[master + 32] ^= 1;
    reseal(&mut changed.raw[master..master + Master::BYTES]);
    let told = of_hashes(&changed, None);
    assert!(
        told.iter()
            .any(|text| text.contains("not the one that the superblock holds")),
        "{told:?}"
    );

    give_keyed_hashes(&mut image);
    assert_eq!(of_hashes(&image, Some(KEY)), Vec::<String>::new());
    let told = of_hashes(&image, None);
    assert!(told.len() == 1 && told[0].contains("there is no key"), "{told:?}");
    let told = of_hashes(&image, Some(b"another key"));
    assert!(
        told.len() == 1 && told[0].contains("the key is not that of the file system"),
        "{told:?}"
    );

    let truncation = places(&image, NodeKind::Truncation)[0];
    let vouching = places(&image, NodeKind::Authentication)[0];
    // Change a field of each node and fix the CRC.
    for (node, bytes, field) in [
        (0, Superblock::BYTES, 88),
        (master, Master::BYTES, 56),
        (truncation, Truncation::BYTES, 48),
        (vouching, HEADER_BYTES + HASH_BYTES, 30),
    ] {
        let mut changed = image.copy();
        changed.raw[node + field] ^= 1;
        reseal(&mut changed.raw[node..node + bytes]);
        let told = of_hashes(&changed, Some(KEY));
        assert!(
            told.iter().any(|text| text.contains("keyed hash does not fit")),
            "{node}: {told:?}"
        );
        assert!(
            !of_hashes(&changed, None)
                .iter()
                .any(|text| text.contains("does not fit"))
        );
    }
    // No HMAC covers the nodes behind the last authentication node.
    image.raw[vouching..vouching + 56].fill(0xFF);
    let told = of_hashes(&image, Some(KEY));
    assert!(
        told.len() == 1 && told[0].contains("nothing vouches for the last 1 nodes"),
        "{told:?}"
    );
}

/// Linux writes the two master nodes with different sequence numbers, and therefore with different HMACs.
#[test]
fn master_nodes_that_differ_by_their_keyed_hashes_alone_are_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(mut image) = signed_image(folder.path()) else {
        return;
    };
    let mut superblock = Superblock::decode(&image.raw).expect("it is one");
    superblock.hmac_of_known[..HASH_BYTES].copy_from_slice(&keyed(&[b"UBIFS"]));
    image.raw[..Superblock::BYTES].copy_from_slice(&superblock.encode(1));
    put_keyed(&mut image.raw[..Superblock::BYTES], 128);
    for (sequence, at) in (2..).zip(places(&image, NodeKind::Master)) {
        let master = Master::decode(&image.raw[at..]).expect("it is one");
        let node = &mut image.raw[at..at + Master::BYTES];
        node.copy_from_slice(&master.encode(sequence));
        put_keyed(node, 296);
    }
    image.write();
    let volume = ImageVolume::open(&image.path).expect("it can be read");
    let report = check_with_key(&volume.expect("it is UBIFS"), KEY);
    let told: Vec<String> = report
        .findings
        .iter()
        .map(|finding| finding.fault.to_string())
        .collect();
    assert_eq!(told, Vec::<String>::new());
}
