//! The model itself keeps the contract, also with faults and power cuts below.

use testkit::contract::{self, PowerCut};
use testkit::{Faults, FaultyFs, MemFs};

#[test]
fn the_model_keeps_the_contract() {
    contract::run_all(MemFs::new);
}

#[test]
fn a_file_system_with_no_faults_set_keeps_the_contract() {
    contract::run_all(|| FaultyFs::new(MemFs::new()));
    contract::run_all(|| FaultyFs::with_power_cuts(MemFs::new()));
}

#[test]
fn a_file_system_with_faults_keeps_the_clause_on_errors() {
    contract::run_errors(|| {
        let file_system = FaultyFs::new(MemFs::new());
        let faults = file_system.faults();
        (file_system, faults)
    });
}

struct Modelled {
    file_system: FaultyFs<MemFs>,
    faults: Faults,
}

impl PowerCut for Modelled {
    type Fs = FaultyFs<MemFs>;

    fn file_system(&self) -> &Self::Fs {
        &self.file_system
    }

    fn after_power_cut(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.faults.after_power_cut(name)
    }
}

fn modelled() -> Modelled {
    let file_system = FaultyFs::with_power_cuts(MemFs::new());
    let faults = file_system.faults();
    Modelled { file_system, faults }
}

#[test]
fn a_model_of_power_cuts_keeps_the_clauses_on_durability_and_sync() {
    contract::run_durability(modelled);
}

/// Preconditions of the cases on durability: without a sync nothing is on the medium, and a missing sync is detected.
#[test]
fn canary_a_power_cut_takes_what_was_not_synced() {
    use vfs::{FileSystem, Ino, OpenFlags};

    let Modelled { file_system, faults } = modelled();
    let caller = contract::caller();
    let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT);
    let made = file_system.create(&caller, Ino::ROOT, b"file", contract::FILE, flags);
    let (entry, opened) = made.unwrap();
    let write = |offset, data: &[u8], flags: i32| {
        let mode = contract::plain(libc::O_RDWR | flags);
        file_system.write(entry.ino, opened.handle, offset, data, mode)
    };
    assert_eq!(write(0, b"plain", 0), Ok(5));
    assert_eq!(faults.after_power_cut(b"file"), None, "a name that nobody synced");
    let root = file_system.opendir(Ino::ROOT).unwrap();
    assert_eq!(file_system.fsyncdir(Ino::ROOT, root, false), Ok(()));
    assert_eq!(
        faults.after_power_cut(b"file").as_deref(),
        Some(&b""[..]),
        "content that nobody synced"
    );
    assert_eq!(write(6, b"synced", libc::O_DSYNC), Ok(6));
    assert_eq!(
        faults.after_power_cut(b"file").as_deref(),
        Some(&b"\0\0\0\0\0\0synced"[..]),
        "a synchronous write takes nothing else with it"
    );
    assert_eq!(file_system.fsync(entry.ino, opened.handle, true), Ok(()));
    assert_eq!(
        faults.after_power_cut(b"file").as_deref(),
        Some(&b"plain\0synced"[..])
    );
}
