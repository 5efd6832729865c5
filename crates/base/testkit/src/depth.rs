//! How much a test run looks at: what each commit must pass, or what takes long as well.
//!
//! `make test-full` sets `TIDEGATE_FULL`. A test has smaller numbers without it, or is [`left_to_full`] runs.

/// Whether the long variants of tests run.
#[must_use]
pub fn is_full() -> bool {
    std::env::var_os("TIDEGATE_FULL").is_some()
}

/// Whether this test is left out of short runs; says so then.
#[must_use]
pub fn left_to_full(why: &str) -> bool {
    let left = !is_full();
    if left {
        report_left_out(&format!("{why}; TIDEGATE_FULL=1 runs it"));
    }
    left
}

/// Says that a test is left out, and why.
#[expect(clippy::print_stderr, reason = "a test that is left out says why")]
pub fn report_left_out(why: &str) {
    eprintln!("left out: {why}");
}
