#!/usr/bin/env bash
# A report of a million requests: within the queries' default memory, in at most 10 s and 500 MB.
#
#   scripts/judges/trace_report.sh [ROWS]
#
# The limits apply to an idle machine with two processors and an optimised build. Needs GNU time; reports if it is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/cargo_path.sh

rows=${1:-1000000}
seconds_most=10
kilobytes_most=500000
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/release

[ -x /usr/bin/time ] || { echo "left out: the report of $rows requests, as GNU time is missing"; exit 0; }
cargo build --release --locked -p cli -p analysis-cli
cargo build --release --locked -p analysis --example generate_trace

work=$(mktemp -d "${TMPDIR:-/tmp}/tidegate-report.XXXXXX")
trap 'rm -rf "$work"' EXIT
"$target/examples/generate_trace" "$work/m.trace" "$rows"
for what in "--output $work/page.html" --json; do
    # shellcheck disable=SC2086 # words of a command line
    /usr/bin/time --format '%e %M' --output "$work/cost" \
        "$target/tidegate" trace report "$work/m.trace" $what >"$work/out" || {
        echo "trace report $what failed: $(tail -n 1 "$work/cost")"
        exit 1
    }
    read -r seconds kilobytes <"$work/cost"
    echo "trace report ${what%% *}: $seconds s, $((kilobytes / 1000)) MB for $rows requests"
    awk "BEGIN { exit !($seconds <= $seconds_most && $kilobytes <= $kilobytes_most) }" || {
        echo "more than $seconds_most s or $((kilobytes_most / 1000)) MB"
        exit 1
    }
done
