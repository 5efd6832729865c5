#!/usr/bin/env bash
# Checks the wheels of `make wheel`: their size, their tests (crates/app/python/tests, with the examples of
# docs/guide/python.md) in a new virtual environment, the types, and the import of the other processor's under qemu-user.
#
#   scripts/judges/wheel.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/../.."
wheels=$(realpath "${1:-target/wheels}")
crate=$PWD/crates/app/python
PATH="$PATH:/usr/sbin:/sbin"
for tool in mkfs.ubifs ubinize python3; do
    command -v "$tool" >/dev/null || { echo "wheel: $tool is missing" >&2; exit 2; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
bytes_max=8000000

for wheel in "$wheels"/tidegate-*.whl; do
    bytes=$(stat -c %s "$wheel")
    if [ "$bytes" -le "$bytes_max" ]; then verdict="at most $bytes_max"; else verdict="WRONG: more than $bytes_max"; failed=1; fi
    printf 'wheel: %s: %s bytes, %s\n' "$(basename "$wheel")" "$bytes" "$verdict"
done

native=$(ls -t "$wheels"/tidegate-*"$(uname -m)".whl | head -1)
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q "$native" pyarrow polars pandas mypy
"$work/venv/bin/tidegate" --version
(cd "$work" && PYTHONWARNINGS=error "$work/venv/bin/python" -m unittest discover -s "$crate/tests" -t "$crate/tests") || failed=1
(cd "$work" && "$work/venv/bin/mypy" --no-error-summary -p tidegate --exclude unblob --ignore-missing-imports) || failed=1

# The other processor: the same tests without pyarrow, polars and pandas, with a Python of that processor.
other=aarch64
foreign=$(ls -t "$wheels"/tidegate-*"$other".whl 2>/dev/null | head -1) || true
if [ -z "$foreign" ]; then
    echo "wheel: WRONG: there is none for $other in $wheels"
    failed=1
elif [ "$(uname -m)" != "$other" ]; then
    scripts/judges/foreign_python.sh "$other" "$foreign" "$crate/tests" || failed=1
fi
exit "$failed"
