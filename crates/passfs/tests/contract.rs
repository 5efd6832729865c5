//! A host directory keeps the contract of file systems.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use passfs::{AccessTimes, PassConfig, PassFs};
use testkit::{FaultyFs, contract};

/// With and without what is done for streams.
fn configurations() -> [PassConfig; 2] {
    let plain = PassConfig {
        id_map: None,
        read_only: false,
        write_out_bytes: None,
        stream_direct_after_bytes: None,
        offer_backing: true,
        access_times: AccessTimes::OF_SOURCE,
    };
    let streams = PassConfig {
        write_out_bytes: Some(64 << 10),
        stream_direct_after_bytes: Some(128 << 10),
        ..plain.clone()
    };
    [plain, streams]
}

/// Over a folder of its own in `parent`.
fn open_in(parent: &Path, config: &PassConfig) -> PassFs {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let folder = parent.join(MADE.fetch_add(1, Ordering::Relaxed).to_string());
    std::fs::create_dir(&folder).expect("a temporary folder takes folders");
    PassFs::open(&folder, config.clone()).expect("the folder is there")
}

#[test]
fn a_host_directory_keeps_the_clause_on_errors() {
    let parent = tempfile::tempdir().unwrap();
    for config in configurations() {
        contract::run_errors(|| {
            let file_system = FaultyFs::new(open_in(parent.path(), &config));
            let faults = file_system.faults();
            (file_system, faults)
        });
    }
}
