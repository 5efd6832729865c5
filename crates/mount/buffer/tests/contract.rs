//! The file system contract over a buffer: it holds with every flusher, over the model and over a host directory, and
//! with a buffer so small that every write meets its limits.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use buffer::{BufferConfig, Buffered, Flusher};
use passfs::{AccessTimes, PassConfig, PassFs};
use testkit::contract::{self, PowerCut};
use testkit::{Ext4, Faults, FaultyFs, MemFs, OnExt4};
use vfs::FileSystem;

const FLUSHERS: [Flusher; 3] = [Flusher::Thread, Flusher::Inline, Flusher::Off];

/// No flush by time while a case runs.
fn patient(flusher: Flusher) -> BufferConfig {
    BufferConfig {
        flusher,
        flush_interval: Duration::from_secs(30),
        ..BufferConfig::default()
    }
}

/// A single entry of the smallest size, flushed all the time.
const fn smallest(flusher: Flusher) -> BufferConfig {
    BufferConfig {
        buffer_bytes: 4096,
        entry_bytes: 4096,
        flush_interval: Duration::from_millis(1),
        flusher,
    }
}

/// Every configuration that handles data differently.
fn configurations() -> impl Iterator<Item = BufferConfig> {
    let usual = FLUSHERS.map(|flusher| BufferConfig {
        flusher,
        ..BufferConfig::default()
    });
    let patient = [Flusher::Thread, Flusher::Inline].map(patient);
    let smallest = [Flusher::Thread, Flusher::Inline].map(smallest);
    usual.into_iter().chain(patient).chain(smallest)
}

fn buffered<F: FileSystem>(below: F, config: BufferConfig) -> Buffered<F> {
    Buffered::new(below, config).expect("the configuration is valid")
}

/// Creates a new host directory in `parent`.
fn host_directory(parent: &Path) -> PassFs {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let folder = parent.join(MADE.fetch_add(1, Ordering::Relaxed).to_string());
    std::fs::create_dir(&folder).expect("a temporary folder takes folders");
    open(&folder)
}

fn open(folder: &Path) -> PassFs {
    let config = PassConfig {
        id_map: None,
        read_only: false,
        write_out_bytes: Some(2 << 20),
        stream_direct_after_bytes: Some(8 << 20),
        stream_direct_rate_min: 0,
        offer_backing: false,
        access_times: AccessTimes::OF_SOURCE,
    };
    PassFs::open(folder, config).expect("the folder is there")
}

#[test]
fn the_contract_holds_over_the_model() {
    for config in configurations() {
        contract::run_all(|| buffered(MemFs::new(), config));
    }
}

#[test]
fn the_contract_holds_over_a_host_directory() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    for config in configurations() {
        contract::run_all(|| buffered(host_directory(parent.path()), config));
    }
}

#[test]
fn buffers_can_be_stacked() {
    contract::run_all(|| {
        let below = buffered(MemFs::new(), BufferConfig::default());
        buffered(FaultyFs::new(below), BufferConfig::default())
    });
}

#[test]
fn errors_are_told_as_the_contract_says_over_the_model() {
    for config in configurations() {
        contract::run_errors(|| over_faults(MemFs::new(), config));
    }
}

#[test]
fn errors_are_told_as_the_contract_says_over_a_host_directory() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    for config in FLUSHERS.map(patient) {
        contract::run_errors(|| over_faults(host_directory(parent.path()), config));
    }
}

fn over_faults<F: FileSystem>(below: F, config: BufferConfig) -> (Buffered<FaultyFs<F>>, Faults) {
    let below = FaultyFs::new(below);
    let faults = below.faults();
    (buffered(below, config), faults)
}

/// A buffer over a model of a medium.
struct OverModel {
    buffered: Buffered<FaultyFs<MemFs>>,
}

impl PowerCut for OverModel {
    type Fs = Buffered<FaultyFs<MemFs>>;

    fn file_system(&self) -> &Self::Fs {
        &self.buffered
    }

    fn after_power_cut(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.buffered.inner().faults().after_power_cut(name)
    }
}

#[test]
fn what_is_durable_by_the_contract_outlives_a_power_cut_of_the_model() {
    for config in configurations() {
        contract::run_durability(|| OverModel {
            buffered: buffered(FaultyFs::with_power_cuts(MemFs::new()), config),
        });
    }
}

#[test]
fn what_is_durable_by_the_contract_outlives_a_power_cut_of_an_ext4() {
    let ext4 = match Ext4::new(48) {
        Ok(ext4) => ext4,
        Err(reason) => return testkit::report_left_out(&reason),
    };
    for config in [Flusher::Thread, Flusher::Inline].map(patient) {
        contract::run_durability(|| OnExt4::new(&ext4, |folder| buffered(open(folder), config)));
    }
}
