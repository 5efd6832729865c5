#!/usr/bin/env bash
# Builds the Python wheel `tidegate` with the command in it, for manylinux2014: one for each processor, for all versions of
# Python from 3.10 on. maturin and zig, which links for glibc 2.17 and other processors, come by pip into a virtual environment.
#
#   scripts/wheel.sh [x86_64|aarch64]...      both without arguments; target/wheels/*.whl
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cargo_path.sh
work=${CARGO_TARGET_DIR:-$PWD/target}/wheel
wheels=${CARGO_TARGET_DIR:-$PWD/target}/wheels
crate=$PWD/crates/app/python
# As in pyproject.toml; not in the sources, but beside them, as maturin takes a path there.
data=$crate/wheel-data
mkdir -p "$work" "$wheels"

tools='maturin==1.16.0 cargo-zigbuild==0.24.0 ziglang==0.17.1 deflate==0.9.0'
if [ "$(cat "$work/venv/tools" 2>/dev/null)" != "$tools" ]; then
    rm -rf "$work/venv"
    python3 -m venv "$work/venv" || { echo "wheel: python3 -m venv failed: install python3-venv" >&2; exit 2; }
    # shellcheck disable=SC2086
    "$work/venv/bin/pip" install -q $tools
    printf '%s' "$tools" > "$work/venv/tools"
fi
PATH="$work/venv/bin:$PATH"

[ $# -gt 0 ] || set -- x86_64 aarch64
targets=()
for machine in "$@"; do
    rustup target add "$machine-unknown-linux-gnu" 2>/dev/null || true
    targets+=(--target "$machine-unknown-linux-gnu.2.17")
done
# Without BPF, which needs a libelf that manylinux2014 does not have. One build for all processors: the last step of each, which
# optimises the whole program, takes minutes of one core.
cargo zigbuild --locked --profile dist -p cli --no-default-features "${targets[@]}"
trap 'rm -rf "$data"' EXIT
for machine in "$@"; do
    target=$machine-unknown-linux-gnu
    rm -rf "$data"
    install -D -m 0755 "${CARGO_TARGET_DIR:-target}/$target/dist/tidegate" "$data/scripts/tidegate"
    maturin build --locked --profile dist --zig --compatibility manylinux2014 --target "$target" \
        -m "$crate/Cargo.toml" --out "$wheels"
    "$work/venv/bin/python" scripts/repack_wheel.py "$(ls -t "$wheels"/tidegate-*"$machine".whl | head -1)"
done
ls -l "$wheels"/*.whl
