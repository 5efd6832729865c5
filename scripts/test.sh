#!/usr/bin/env bash
# The tests of `make test` and `make test-full`, in the order in which failures are cheapest to find.
#
# One build profile (test) serves unit, property and integration tests. Skipped parts are printed with their reason.
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
    parts+=(--exclude analysis --exclude analysis-cli)
    echo "left out: analyses of traces in SQL, as DataFusion takes as long to build as all the rest; TIDEGATE_SQL=1 runs them"
fi
test_workspace() {
    RUSTC_WORKSPACE_WRAPPER=$linter RUSTFLAGS="-D warnings" cargo test "${parts[@]}" --locked "$@"
}
test_workspace --no-run --quiet

step "unit, property and integration tests"
[ -e /dev/fuse ] || echo "left out: tests that mount, as /dev/fuse is missing"
[ "$(id -u)" -eq 0 ] || echo "left out: tests that need root (loop devices, ids of others), as this is $(id -un)"

# Most sets wait for devices, guests and mounts: one after the other they leave half of two cores idle. Each group runs in
# a process group of its own, so that an interrupt ends all of them with their children.
logs=$(mktemp -d "${TMPDIR:-/tmp}/tidegate-tests.XXXXXX")
# A test that returns early appends its reason here (testkit::needs).
export TIDEGATE_LEFT_OUT=$logs/left-out
# A folder of its own for their temporary files, which must be empty at the end.
chmod 755 "$logs"
mkdir -m 1777 "$logs/tmp"
export TMPDIR=$logs/tmp
groups=()
mounts_below() { awk -v folder="$1/" 'index($5, folder) == 1 { print $5 }' /proc/self/mountinfo; }
finish() {
    trap - EXIT INT TERM HUP
    for group in "${groups[@]}"; do kill -TERM -- "-$group" 2>/dev/null || true; done
    wait
    # Mounts left there by a killed test are not to be emptied, also not those of the same file system.
    mounts_below "$logs" | tac | while read -r mount; do umount -l "$mount" || fusermount3 -uz "$mount"; done 2>/dev/null || true
    [ -n "$(mounts_below "$logs")" ] || rm -rf --one-file-system "$logs"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
names=()
beside() {
    names+=("$1")
    set -m
    "${@:2}" </dev/null >"$logs/${#names[@]}" 2>&1 &
    set +m
    groups+=($!)
}
# One command fails without ending the other, and its exit code is the last of those that are not 0.
documentation_and_tests() {
    local status=0
    test_workspace --quiet --no-fail-fast --test '[m-rt-z]*' --test 's[!u]*' || status=$?
    test_workspace --quiet --no-fail-fast --doc || status=$?
    return "$status"
}
# The judges wait for calls more than they compute: they take as long as any other group.
[ "${TIDEGATE_FULL:-}" ] || beside "judges: pjdfstest and fsx on mounts in every mode" scripts/judges/run.sh
beside "unit tests, integration tests a to l" test_workspace --quiet --no-fail-fast --lib --bins --test '[a-l]*'
beside "integration tests: suites" test_workspace --quiet --no-fail-fast --test 'su*'
beside "examples in the documentation, integration tests m to z but suites" documentation_and_tests

failed=()
for i in "${!names[@]}"; do
    status=0
    wait "${groups[i]}" || status=$?
    printf '\n-- %s (exit code %s, after %s s)\n' "${names[i]}" "$status" "$SECONDS"
    cat "$logs/$((i + 1))"
    [ "$status" -eq 0 ] || failed+=("${names[i]}")
done
groups=()
left=$(ls -A "$TMPDIR"; losetup --noheadings --list --output NAME,BACK-FILE 2>/dev/null | grep -F "$logs" || true)
if [ -n "$left" ]; then
    step "left behind by tests: temporary files and loop devices"
    echo "$left"
    (cd "$TMPDIR" && find . -mindepth 1 | sed -n 1,20p)
    failed+=("tests that clean up after themselves: $(echo "$left" | sed -n 1,3p | tr '\n' ' ')")
fi
if [ -s "$TIDEGATE_LEFT_OUT" ]; then
    step "tests left out, with their reasons"
    sort -u "$TIDEGATE_LEFT_OUT" | awk -F '\t' '
        $1 != reason { if (reason) print ""; printf "%s:", $1; reason = $1 }
        { printf " %s", $2 }
        END { print "" }'
fi
if [ "${#failed[@]}" -gt 0 ]; then
    printf 'failed: %s\n' "${failed[@]}" >&2
    exit 1
fi

if [ "${TIDEGATE_FULL:-}" ]; then
    step "hostile inputs: an hour over all decoders"
    # 40 decoders, 90 seconds each; changes at random, without feedback from coverage.
    TIDEGATE_FUZZ_SECONDS=90 test_workspace --lib --test decoders -- --exact --nocapture \
        lpt::tests::changed_tables_with_right_checksums_are_read_or_refused flash disks traces_jobs_and_records
    step "judges: pjdfstest and fsx on mounts in every mode, long"
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
    echo
    echo "left out: long random runs and suites in C; run \`make test-full\`"
fi
