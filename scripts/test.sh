#!/usr/bin/env bash
# What `make test` and `make test-full` run, in the order in which failures are cheapest to find.
#
# One build profile (test) serves unit, property and integration tests. What is left out is printed with its reason.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cargo_path.sh

step() { printf '\n== %s\n' "$*"; }

step "format"
cargo fmt --all --check

# The linter is put in the compiler's place for our own crates, so that one build serves lints and tests: as a pass of its
# own it checked every crate of others, DataFusion above all, a second time.
step "lints and build"
linter="$(rustc --print sysroot)/bin/clippy-driver"
[ -x "$linter" ] || { echo "the linter is missing: rustup component add clippy" >&2; exit 2; }
parts=(--workspace)
if [ -z "${TIDEGATE_FULL:-}${TIDEGATE_SQL:-}" ]; then
    # DataFusion brings 137 of 333 crates: a build with it takes nearly twice as long.
    parts+=(--exclude analysis --no-default-features --features formats/native)
    echo "left out: analyses of traces in SQL, as DataFusion takes as long to build as all the rest; TIDEGATE_SQL=1 runs them"
fi
test_workspace() {
    RUSTC_WORKSPACE_WRAPPER=$linter RUSTFLAGS="-D warnings" cargo test "${parts[@]}" --locked "$@"
}
test_workspace --no-run --quiet

step "unit, property and integration tests"
[ -e /dev/fuse ] || echo "left out: tests that mount, as /dev/fuse is missing"
[ "$(id -u)" -eq 0 ] || echo "left out: tests that need root (loop devices, ids of others), as this is $(id -un)"
test_workspace --quiet --no-fail-fast

step "judges: pjdfstest and fsx on mounts in every mode"
if [ "${TIDEGATE_FULL:-}" ]; then
    scripts/judges/run.sh --long
    step "judges: suites in C"
    scripts/judges/external.sh all "${TMPDIR:-/tmp}"
    step "judges: fsx, fsstress and filling up on UBIFS mounts, then check, fsck.ubifs and Linux"
    scripts/judges/ubifs.sh
    step "judge: pjdfstest on a UBIFS mount, case by case beside Linux' own"
    scripts/judges/ubifs_posix.sh
    step "judge: the analyses of block traces on Spark"
    scripts/judges/spark.sh
    step "judge: what the report of a million requests costs"
    scripts/judges/trace_report.sh
else
    scripts/judges/run.sh
    echo
    echo "left out: long random runs and suites in C; run \`make test-full\`"
fi
