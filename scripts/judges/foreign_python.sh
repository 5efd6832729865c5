#!/usr/bin/env bash
# Runs tests of a wheel by the distribution's Python of another processor, under qemu-user. Its packages are unpacked to a
# folder of their own; nothing is installed.
#
#   scripts/judges/foreign_python.sh aarch64 WHEEL TESTS
set -euo pipefail
machine=$1 wheel=$2 tests=$3
case $machine in
    aarch64) architecture=arm64 ;;
    *) echo "foreign-python: $machine is not known" >&2; exit 2 ;;
esac
runner=$(command -v "qemu-$machine-static" || command -v "qemu-$machine") || {
    echo "foreign-python: left out, as qemu-$machine is missing: install qemu-user-static"
    exit 0
}
work=${FOREIGN_PYTHON:-$(mktemp -d)}
[ "${FOREIGN_PYTHON:-}" ] || trap 'rm -rf "$work"' EXIT
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/root" "$work/debs"
if [ ! -e "$work/root/usr/bin/python3" ]; then
    apt=(-o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture" -o "Dir::State=$work/state"
        -o "Dir::State::Status=$work/status" -o "Dir::Cache=$work/cache" -o Debug::NoLocking=1 -qq)
    touch "$work/status"
    apt-get "${apt[@]}" update 2>/dev/null || true
    # Everything that Python needs; recommendations and scripts of packages are left out.
    packages=$(apt-get "${apt[@]}" install --no-install-recommends --simulate python3-minimal libpython3-stdlib |
        awk '$1 == "Inst" { print $2 }')
    # shellcheck disable=SC2086
    (cd "$work/debs" && apt-get "${apt[@]}" download $packages)
    for deb in "$work"/debs/*.deb; do dpkg-deb -x "$deb" "$work/root"; done
fi
python3 - "$wheel" "$work/site" <<'PYTHON'
import os, shutil, sys, zipfile
wheel, site = sys.argv[1:]
shutil.rmtree(site, ignore_errors=True)
zipfile.ZipFile(wheel).extractall(site)
PYTHON
scripts=$(echo "$work"/site/*.data/scripts)
chmod +x "$scripts/tidegate"
run() { "$runner" -L "$work/root" "$@"; }
printf 'foreign-python: '
run "$scripts/tidegate" --version
# The command is found in PATH; the kernel cannot start it, so a script does.
mkdir -p "$work/bin"
printf '#!/bin/sh\nexec "%s" -L "%s" "%s" "$@"\n' "$runner" "$work/root" "$scripts/tidegate" > "$work/bin/tidegate"
chmod +x "$work/bin/tidegate"
# A test that starts Python takes it from there, for the same reason.
printf '#!/bin/sh\nexec "%s" -L "%s" "%s" "$@"\n' "$runner" "$work/root" "$work/root/usr/bin/python3" > "$work/bin/started-python"
chmod +x "$work/bin/started-python"
export TIDEGATE_PYTHON="$work/bin/started-python"
export PYTHONPATH="$work/site" PYTHONHOME="$work/root/usr" PYTHONDONTWRITEBYTECODE=1 PATH="$work/bin:$PATH"
cd "$work"
run "$work/root/usr/bin/python3" - <<'PYTHON'
import platform, tidegate
print(f"foreign-python: tidegate {tidegate.__version__} imported by Python {platform.python_version()} on {platform.machine()}")
PYTHON
run "$work/root/usr/bin/python3" -m unittest discover -s "$tests" -t "$tests"
