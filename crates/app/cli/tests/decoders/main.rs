//! Every decoder of what comes from outside, on good inputs that were changed with their checksums put right: none panics, takes ten
//! seconds or 256 MiB. The commands on a sample of them, as root in a folder: nothing outside of it changes.
//!
//! 30 inputs for each decoder and two for each command; with `TIDEGATE_FULL` 3,000 and 300. `TIDEGATE_SEED=N` with
//! `TIDEGATE_DECODER=NAME` is one of them again.

mod commands;
mod disks;
mod flash;
mod texts;

use tempfile::TempDir;
use testkit::heap::CountingAllocator;
use testkit::hostile::{Decoder, Tried};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs decoders and tells what came of them.
#[expect(clippy::print_stderr, reason = "the figures of a long run")]
fn run(decoders: Vec<Decoder<'_>>) {
    let only = std::env::var("TIDEGATE_DECODER").ok();
    let count = if testkit::is_full() { 3000 } else { 30 };
    let (first, count) = match setting("TIDEGATE_SEED") {
        Some(seed) => (seed, 1),
        None => (0, count),
    };
    for decoder in decoders {
        if only.as_ref().is_some_and(|only| only != decoder.name) {
            continue;
        }
        let name = decoder.name;
        let Tried {
            inputs,
            accepted,
            peak_bytes,
            longest,
        } = decoder.run(first, count);
        eprintln!("{name}: {inputs} inputs, {accepted} accepted, at most {peak_bytes} bytes and {longest:?}");
    }
}

/// A folder in memory, where there is one: thousands of images are no work for a disk.
fn folder() -> TempDir {
    let made = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new());
    made.expect("possible on this host")
}

/// CRC-32 as zlib has it.
fn crc32(bytes: &[u8]) -> u32 {
    !ubi::format::crc32(bytes)
}

#[test]
fn flash() {
    run(flash::decoders());
}

#[test]
fn disks() {
    run(disks::decoders());
}

#[test]
fn traces_jobs_and_records() {
    run(texts::decoders());
}
