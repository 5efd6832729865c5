//! Depth of a test run: the short form for each commit, or the full form with slow tests.
//!
//! `make test-full` sets `TIDEGATE_FULL`. Without it a test uses smaller numbers, or is [`left_to_full`] runs.

/// Whether the long variants of tests run.
#[must_use]
pub fn is_full() -> bool {
    std::env::var_os("TIDEGATE_FULL").is_some()
}

/// Whether this test is left out of short runs; prints that it is.
#[must_use]
pub fn left_to_full(why: &str) -> bool {
    let left = !is_full();
    if left {
        report_left_out(&format!("{why}; TIDEGATE_FULL=1 runs it"));
    }
    left
}

/// Prints that a test is left out, and why.
#[expect(clippy::print_stderr, reason = "a test that is left out says why")]
pub fn report_left_out(why: &str) {
    eprintln!("left out: {why}");
}
