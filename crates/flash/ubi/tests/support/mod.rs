//! Chips that fail, for the tests here and those of other crates.

#[expect(dead_code, reason = "bit-flips and lasting faults are for tests of UBIFS")]
pub mod faulty_chip;
#[expect(dead_code, reason = "power cuts of a host are for tests of UBIFS and arrays")]
pub mod hosted_chip;
