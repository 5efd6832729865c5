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

step "lints"
cargo clippy --workspace --all-targets --locked -- -D warnings

step "unit, property and integration tests"
[ -e /dev/fuse ] || echo "left out: tests that mount, as /dev/fuse is missing"
[ "$(id -u)" -eq 0 ] || echo "left out: tests that need root (loop devices, ids of others), as this is $(id -un)"
cargo test --workspace --locked --quiet

for judge in scripts/judges/*.sh; do
    [ -e "$judge" ] || continue
    step "judge: $(basename "$judge" .sh)"
    "$judge"
done

if [ "${TIDEGATE_FULL:-}" ]; then
    for judge in scripts/judges/full/*.sh; do
        [ -e "$judge" ] || continue
        step "judge: $(basename "$judge" .sh)"
        "$judge"
    done
else
    echo
    echo "left out: long random runs and outside suites; run \`make test-full\`"
fi
