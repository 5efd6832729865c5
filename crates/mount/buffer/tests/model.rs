//! Random operations of several threads over a buffered file system have the same results as without a buffer.
//!
//! `TIDEGATE_MODEL_STEPS=100000 TIDEGATE_SEED=7 cargo test -p buffer --test model` runs a full seed in each mode.

use std::time::Duration;

use buffer::{BufferConfig, Buffered, Flusher};
use testkit::model::{self, ModelRun};
use testkit::{FaultyFs, MemFs};

const REPLAY: &str = "TIDEGATE_SEED={seed} cargo test -p buffer --test model";

/// Small entries, so that the run's writes fill them, span them and wait for them all the time.
fn compare_with_the_model(flusher: Flusher, seed: u64) {
    let config = BufferConfig {
        buffer_bytes: 64 << 10,
        entry_bytes: 16 << 10,
        flush_interval: Duration::from_millis(1),
        flusher,
    };
    let buffered = Buffered::new(FaultyFs::new(MemFs::new()), config).expect("the configuration is valid");
    model::run(&buffered, ModelRun::from_environment(seed, 20_000, REPLAY));
    let stats = buffered.stats();
    assert_eq!(
        (stats.bytes_buffered, stats.entries_in_use),
        (0, 0),
        "something is left: {stats:?}"
    );
    assert_eq!(stats.errors_recorded, 0);
    assert_eq!(
        buffered.inner().faults().overlaps(),
        0,
        "two writes to one inode at a time"
    );
    if flusher != Flusher::Off {
        assert!(
            stats.writes_through < stats.writes_accepted,
            "nothing was buffered: {stats:?}"
        );
        assert!(stats.flushes.full > 0 && stats.flushes.scattered > 0 && stats.flushes.query > 0);
    }
}

#[test]
fn random_operations_match_the_model_with_the_manager_thread() {
    compare_with_the_model(Flusher::Thread, 1);
}

#[test]
fn random_operations_match_the_model_with_the_inline_flusher() {
    compare_with_the_model(Flusher::Inline, 2);
}

#[test]
fn random_operations_match_the_model_without_a_buffer() {
    compare_with_the_model(Flusher::Off, 3);
}
