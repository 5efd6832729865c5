//! A buffered file system is a file system: the contract holds with every flusher and with a buffer so small
//! that every write meets its limits.

use std::time::Duration;

use buffer::{BufferConfig, Buffered, Flusher};
use testkit::{FaultyFs, MemFs, contract};

fn buffered(config: BufferConfig) -> Buffered<MemFs> {
    Buffered::new(MemFs::new(), config).expect("the configuration is valid")
}

#[test]
fn the_contract_holds_with_every_flusher() {
    for flusher in [Flusher::Thread, Flusher::Inline, Flusher::Off] {
        contract::run_all(|| {
            buffered(BufferConfig {
                flusher,
                ..BufferConfig::default()
            })
        });
    }
}

#[test]
fn the_contract_holds_with_a_single_smallest_entry() {
    for flusher in [Flusher::Thread, Flusher::Inline] {
        contract::run_all(|| {
            let flush_interval = Duration::from_millis(1);
            buffered(BufferConfig {
                buffer_bytes: 4096,
                entry_bytes: 4096,
                flush_interval,
                flusher,
            })
        });
    }
}

#[test]
fn the_contract_holds_when_nothing_is_flushed_by_time() {
    let flush_interval = Duration::from_secs(30);
    contract::run_all(|| {
        buffered(BufferConfig {
            flush_interval,
            ..BufferConfig::default()
        })
    });
}

#[test]
fn buffers_can_be_stacked() {
    contract::run_all(|| {
        let below = buffered(BufferConfig::default());
        Buffered::new(FaultyFs::new(below), BufferConfig::default()).expect("the default is valid")
    });
}
