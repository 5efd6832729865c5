//! Links the program at a fixed address.
//!
//! A position-independent program of this size has half a million addresses that the loader writes at every start: 6 MiB of
//! memory that no two processes share, and 13 MiB of tables that are read for it. A mounted daemon is to stay under 6 MiB
//! in all. Libraries, heap and stacks stay at random places.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-no-pie");
}
