//! The model keeps the contract that it is the model of.

use testkit::{FaultyFs, MemFs};

#[test]
fn the_model_keeps_the_contract() {
    testkit::contract::run_all(MemFs::new);
}

#[test]
fn a_file_system_with_no_faults_set_keeps_the_contract() {
    testkit::contract::run_all(|| FaultyFs::new(MemFs::new()));
}
