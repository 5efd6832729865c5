//! Streams to a host directory in each way that they are written: past the page cache, and back in it after slow direct
//! writes.
//!
//! `TIDEGATE_SEED=7 cargo test -p buffer --test streams random_streams` repeats a run.

use std::path::Path;

use buffer::{BufferConfig, Buffered, Flusher};
use passfs::{AccessTimes, PassConfig, PassFs};
use testkit::FaultyFs;
use testkit::contract::{FILE, caller, plain};
use testkit::prng::Prng;
use vfs::{FileSystem, FsError, FsResult, Handle, Ino, OpenFlags, SetAttr};

use crate::scene::NEVER;

const MIB: usize = 1 << 20;
const ENTRY_BYTES: usize = 2 * MIB;
const FILE_BYTES_MAX: usize = 24 * MIB;
/// Limits of the rate of direct writes: no write is slow, and each is.
const RATES: [u64; 2] = [0, u64::MAX];

/// A host directory whose streams begin after 2 MiB.
fn source(folder: &Path, rate_min: u64) -> PassFs {
    let config = PassConfig {
        id_map: None,
        read_only: false,
        write_out_bytes: Some(1 << 20),
        stream_direct_after_bytes: Some(2 << 20),
        stream_direct_rate_min: rate_min,
        offer_backing: false,
        access_times: AccessTimes::OF_SOURCE,
    };
    PassFs::open(folder, config).expect("the folder is there")
}

struct Streams<F: FileSystem> {
    buffered: Buffered<F>,
    ino: Ino,
    handle: Handle,
}

impl<F: FileSystem + 'static> Streams<F> {
    /// A new file under four entries.
    fn create(below: F) -> Self {
        let config = BufferConfig {
            buffer_bytes: bytes(4 * ENTRY_BYTES),
            entry_bytes: bytes(ENTRY_BYTES),
            flush_interval: NEVER,
            flusher: Flusher::Thread,
        };
        let buffered = Buffered::new(below, config).expect("the configuration is valid");
        let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT);
        let made = buffered.create(&caller(), Ino::ROOT, b"file", FILE, flags);
        let (entry, opened) = made.expect("a file can be made");
        Self {
            buffered,
            ino: entry.ino,
            handle: opened.handle,
        }
    }

    fn write(&self, at: usize, data: &[u8]) {
        let mode = plain(libc::O_RDWR);
        let written = self.buffered.write(self.ino, self.handle, bytes(at), data, mode);
        assert_eq!(written, Ok(data.len()));
    }

    fn truncate(&self, size: usize) {
        let change = SetAttr {
            size: Some(bytes(size)),
            ..SetAttr::default()
        };
        let changed = self.buffered.setattr(self.ino, Some(self.handle), &change);
        assert_eq!(changed.map(|attr| attr.size), Ok(bytes(size)));
    }

    fn fsync(&self) -> FsResult<()> {
        self.buffered.fsync(self.ino, self.handle, false)
    }

    fn read(&self, at: usize, length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        let read = self.buffered.read(self.ino, self.handle, bytes(at), &mut out);
        out.truncate(read.expect("the file can be read"));
        out
    }
}

fn bytes(length: usize) -> u64 {
    u64::try_from(length).expect("a short file")
}

/// Truncations, overwrites and reads between streams, which find entries in the buffer and under way.
fn random_streams(rate_min: u64, seed: u64) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let streams = Streams::create(source(folder.path(), rate_min));
    let mut random = Prng::named(seed, "streams");
    let mut model: Vec<u8> = Vec::new();
    for step in 0..60 {
        let context = format!("step {step}, rate {rate_min}; replay with TIDEGATE_SEED={seed}");
        match random.below(8) {
            0..4 => {
                // From the end, or from anywhere; the records' size leaves entries at any offset.
                let start = match random.chance(70) {
                    true => model.len(),
                    false => random.below_usize(model.len() + 1),
                };
                let end = (start + MIB + random.below_usize(8 * MIB)).min(FILE_BYTES_MAX);
                let record = *random.pick(&[4096, 65_536, 100_000, 512 << 10]);
                for at in (start..end).step_by(record) {
                    let data = random.bytes(record.min(end - at));
                    streams.write(at, &data);
                    model.resize(model.len().max(at + data.len()), 0);
                    model[at..at + data.len()].copy_from_slice(&data);
                }
            }
            4 => {
                let size = random.below_usize(model.len() + MIB);
                streams.truncate(size);
                model.resize(size, 0);
            }
            5 => {
                assert_eq!(streams.fsync(), Ok(()), "{context}");
                let below = std::fs::read(folder.path().join("file")).expect("the file is there");
                assert!(below == model, "{context}: the source differs after fsync");
            }
            _ => {
                let at = random.below_usize(model.len() + 1);
                let end = model.len().min(at + 3 * MIB);
                assert!(streams.read(at, end - at) == model[at..end], "{context}: at {at}");
            }
        }
    }
    assert_eq!(streams.fsync(), Ok(()));
    assert!(streams.read(0, FILE_BYTES_MAX + MIB) == model, "seed {seed}");
    let counters = streams.buffered.inner().counters();
    let was_refused = counters.direct_refusals > 0;
    assert!(was_refused || counters.direct_writes > 0, "{counters:?}");
    assert!(counters.write_outs_started > 0, "{counters:?}");
}

#[test]
fn random_streams_match_a_model_at_any_rate_of_direct_writes() {
    let seed = std::env::var("TIDEGATE_SEED").ok();
    let seed = seed.map_or(1, |seed| seed.parse().expect("a seed is a number"));
    for rate_min in RATES {
        random_streams(rate_min, seed);
    }
}

/// Each of the 16 entries in turn.
#[test]
fn an_error_of_one_entry_of_a_stream_reaches_fsync_once_at_any_rate_of_direct_writes() {
    for rate_min in RATES {
        for failing in 0..16 {
            let context = format!("entry {failing}, rate {rate_min}");
            let folder = tempfile::tempdir().expect("a temporary folder");
            let below = FaultyFs::new(source(folder.path(), rate_min));
            let faults = below.faults();
            let streams = Streams::create(below);
            faults.fail_write(failing, FsError::Io);
            let mut failed = Vec::new();
            for index in 0..16 {
                let data = vec![1; ENTRY_BYTES];
                let mode = plain(libc::O_RDWR);
                let (ino, handle) = (streams.ino, streams.handle);
                match streams
                    .buffered
                    .write(ino, handle, bytes(index * ENTRY_BYTES), &data, mode)
                {
                    Ok(written) => assert_eq!(written, ENTRY_BYTES, "{context}"),
                    Err(error) => failed.push((index, error)),
                }
            }
            assert_eq!(failed, [], "{context}: an acknowledged write failed before");
            assert_eq!(streams.fsync(), Err(FsError::Io), "{context}");
            assert_eq!(streams.fsync(), Ok(()), "{context}");
            let lost = failing * ENTRY_BYTES..(failing + 1) * ENTRY_BYTES;
            let content = streams.read(0, 16 * ENTRY_BYTES);
            let is_kept = |at: usize| lost.contains(&at) || content.get(at) == Some(&1);
            assert!((0..16).all(|index| is_kept(index * ENTRY_BYTES)), "{context}");
        }
    }
}
