//! Runs every decoder of foreign input on mutated good inputs with repaired checksums: none may panic, take ten seconds or
//! 256 MiB. Commands run on a sample of them, as root in a folder: nothing outside it may change.
//!
//! 30 inputs per decoder and two per command; with `TIDEGATE_FULL` 3,000 and 300. `TIDEGATE_FUZZ_SECONDS=N` tries new
//! inputs on each decoder for N seconds, without coverage feedback ([`testkit::hostile`]). `TIDEGATE_SEED=N` with
//! `TIDEGATE_DECODER=NAME` replays one of them. The LPT of UBIFS has such a test in the crate `ubifs`.

mod commands;
mod disks;
mod flash;
mod texts;

use tempfile::TempDir;
use testkit::heap::CountingAllocator;
use testkit::hostile::{Decoder, Inputs, Tried};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs decoders and reports their results.
#[expect(clippy::print_stderr, reason = "the figures of a long run")]
fn run(decoders: Vec<Decoder<'_>>) {
    let only = std::env::var("TIDEGATE_DECODER").ok();
    for decoder in decoders {
        if only.as_ref().is_some_and(|only| only != decoder.name) {
            continue;
        }
        let name = decoder.name;
        let good_bytes = decoder.good.iter().map(Vec::len).max().unwrap_or(0);
        let Tried {
            inputs,
            accepted,
            peak_bytes,
            longest,
        } = decoder.run(Inputs::asked_for());
        eprintln!(
            "{name}: {inputs} inputs of up to {good_bytes} bytes, {accepted} accepted, at most {peak_bytes} bytes and {longest:?}"
        );
    }
}

/// A folder in memory, if there is one, because thousands of images would load the disk.
fn folder() -> TempDir {
    let made = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new());
    made.expect("possible on this host")
}

/// CRC-32 as in zlib.
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
