#!/usr/bin/env bash
# pjdfstest (the Rust one), case by case: Linux' own UBIFS in the lab guest beside `tidegate ubifs mount -o rw` on this host.
#
#   scripts/judges/ubifs_posix.sh
#
# Prints each case with different outcomes, and the number that pass on each. Exit: 0 no case fails here that passes there,
# 1 some does, 2 could not run. Needs root, /dev/fuse and the lab guest; TIDEGATE is the binary, by default the one of `cargo test`.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/cargo_path.sh
. scripts/judges/install.sh

left_out() { echo "left out: pjdfstest beside Linux' UBIFS, as $*"; exit 0; }
[ -e /dev/fuse ] || left_out "/dev/fuse is missing"
[ "$(id -u)" -eq 0 ] || left_out "this is $(id -un) and not root"
lab=${TIDEGATE_LAB_DIR:-${HOME:-/root}/.cache/tidegate/lab}
[ -e "$lab/guest.env" ] || left_out "there is no lab guest (lab/setup.sh)"
install_judge pjdfstest "$pjdfstest_version"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tidegate=${TIDEGATE:-$target/debug/tidegate}
[ -x "$tidegate" ] || { echo "$tidegate is missing: cargo build -p cli" >&2; exit 2; }

# Short names: the address of a socket has 108 bytes; the cases need more than half of them.
work=$(mktemp -d "${TMPDIR:-/tmp}/posix.XXXXXX")
mountpoint=$work/m
chmod 0755 "$work"
mkdir "$mountpoint" "$work/job"
finish() {
    status=$?
    trap - EXIT
    mountpoint -q "$mountpoint" && { "$tidegate" unmount --lazy "$mountpoint" >/dev/null 2>&1 || true; }
    rm -rf "$work"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Lines "CASE OUTCOME", sorted.
outcomes() { sed 's/\x1b\[[0-9;]*m//g' "$1" | awk '/^[a-z_0-9]+::/ { print $1, tolower($NF) }' | sort -u; }

head -c 64M /dev/zero | tr '\0' '\377' >"$work/flash"
cp scripts/judges/pjdfstest.toml "$judges/bin/pjdfstest" "$work/job/"
# Folders that others may pass.
lab/run "$work/job" --flash "$work/flash" --script write.sh --timeout 1500 --env LOAD='chmod 0755 . && mkdir -m 0755 cases &&
    { /host/pjdfstest -c /host/pjdfstest.toml -s /dev/shm -p cases -v >/host/output 2>&1 </dev/null || true; }' >"$work/lab.output" 2>&1 ||
    { tail -20 "$work/lab.output"; echo "the lab guest did not run it"; exit 2; }
outcomes "$work/job/output" >"$work/linux"

"$tidegate" nand create "$work/chip" --page 2048 --pages-per-block 64 --blocks 512 >/dev/null
"$tidegate" ubi format "$work/chip" >/dev/null
"$tidegate" ubi mkvol "$work/chip" -N data -m >/dev/null
"$tidegate" ubifs mkfs "$work/chip" >/dev/null
"$tidegate" ubifs mount -o rw,allow_other,suid,dev "$work/chip" "$mountpoint" >/dev/null
mkdir -m 0755 "$mountpoint/cases"
"$judges/bin/pjdfstest" -c scripts/judges/pjdfstest.toml -s /dev/shm -p "$mountpoint/cases" -v </dev/null >"$work/output" 2>&1 || true
"$tidegate" unmount "$mountpoint" >/dev/null
"$tidegate" ubifs check "$work/chip"
outcomes "$work/output" >"$work/ours"

for side in linux ours; do
    [ "$(wc -l <"$work/$side")" -gt 100 ] || { tail -5 "$work/output" "$work/job/output"; echo "$side: pjdfstest ran no cases"; exit 2; }
    printf '%-6s %s\n' "$side" "$(awk '{ print $NF }' "$work/$side" | sort | uniq -c | awk '{ printf "%s%d %s", sep, $1, $2; sep = ", " }')"
done
echo "case, Linux' UBIFS, here:"
join -a 1 -a 2 -e absent -o 0,1.2,2.2 "$work/linux" "$work/ours" | awk '
    $2 == "ok" { there++ }
    $2 != $3 { print "  " $0; if ($2 == "ok") worse++ }
    END {
        if (worse) print worse " of " there " cases that pass on Linux pass there alone"
        else print "each of the " there " cases that pass on Linux passes here"
        exit worse > 0
    }'
