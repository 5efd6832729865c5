#!/usr/bin/env bash
# A second engine as reference: the SQL of crates/trace/analysis/sql on Apache Spark, over the same folder of traces, must give the
# same tables as `tidegate trace query --named`.
#
#   scripts/judges/spark.sh [ROWS [NAME...]]
#
# NAMEs are those of analyses; without one, all run. ROWS (by default 10,000,000) requests are generated into two traces
# and removed at the end: about 100 bytes of temporary space per row. Needs python3 with venv, a Java runtime, and
# pyspark from the package index; names missing ones.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/cargo_path.sh

pyspark_version=4.1.1
rows=${1:-10000000}
shift $(($# ? 1 : 0))
here=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
judges=$(realpath -m target)/judges
python=$judges/spark-$pyspark_version/bin/python

command -v java >/dev/null 2>&1 || { echo "left out: analyses on Spark, as no Java runtime is installed"; exit 0; }
if ! "$python" -c 'import pyspark' 2>/dev/null; then
    python3 -m venv "$judges/spark-$pyspark_version" &&
        "$python" -m pip install --quiet "pyspark==$pyspark_version" ||
        { echo "left out: analyses on Spark, as pyspark $pyspark_version could not be installed"; exit 0; }
fi

# Optimised: the test profile would take an hour instead of minutes.
cargo build --release --locked -p cli -p analysis-cli
cargo build --release --locked -p analysis --example generate_trace

work=$(mktemp -d "${TMPDIR:-/tmp}/tidegate-spark.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/traces"
for name in one two; do
    "$target/release/examples/generate_trace" "$work/traces/$name.trace" $((rows / 2))
done
exec_status=0
TMPDIR=$work "$python" "$here/scripts/judges/spark.py" "$target/release/tidegate" "$here/crates/trace/analysis/sql" \
    "$work/traces" "$@" || exec_status=$?
exit $exec_status
