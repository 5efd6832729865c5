#!/usr/bin/env bash
# The stock fsck.ubifs (mtd-utils 2.3 or newer) on a plain UBIFS volume file, without UBI:
#
#   lab/fsck/volume.sh VOLUME LEB_BYTES MIN_IO_BYTES [fsck.ubifs' options]
#
# Without options it is strict: -n on the file, then -a on a copy (which also checks space accounting, and may repair); both
# must return 0. With options it runs once on the file itself. Prints the output of fsck.ubifs and returns its exit code.
# Needs `lab/setup.sh --fsck`; 125: that is missing, or the arguments are wrong.
set -euo pipefail
lab=${TIDEGATE_LAB_DIR:-${HOME:-/root}/.cache/tidegate/lab}
[ $# -ge 3 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 125; }
volume=$(readlink -f "$1") leb=$2 min_io=$3
shift 3
[ -r "$volume" ] || { echo "fsck: $volume can't be read" >&2; exit 125; }
if [ ! -e "$lab/fsck/fsck.ubifs" ] || [ ! -e "$lab/fsck/fakeubi.so" ]; then
    echo "fsck: there is no fsck.ubifs in $lab/fsck; lab/setup.sh --fsck makes it" >&2
    exit 125
fi
lebs=$(($(stat -c %s "$volume") / leb))

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The part of /sys/class/ubi that libubi reads: a device with one volume of its full size.
tell() { mkdir -p "$folder/sys/$(dirname "$1")" && printf '%s\n' "$2" >"$folder/sys/$1"; }
tell version 1
tell ubi_ctrl/dev 10:124
tell ubi0/dev 246:0
tell ubi0/mtd_num 0
tell ubi0/volumes_count 1
tell ubi0/max_vol_count 128
tell ubi0/total_eraseblocks $((lebs + 24))
tell ubi0/avail_eraseblocks 0
tell ubi0/reserved_for_bad 20
tell ubi0/bad_peb_count 0
tell ubi0/eraseblock_size "$leb"
tell ubi0/min_io_size "$min_io"
tell ubi0/max_ec 1
tell ubi0_0/dev 246:1
tell ubi0_0/name root
tell ubi0_0/type dynamic
tell ubi0_0/alignment 1
tell ubi0_0/reserved_ebs "$lebs"
tell ubi0_0/usable_eb_size "$leb"
tell ubi0_0/data_bytes $((lebs * leb))
tell ubi0_0/corrupted 0
tell ubi0_0/upd_marker 0

check() {
    local file=$1
    shift
    FAKEUBI_NODE=$file FAKEUBI_LEB=$leb FAKEUBI_SYS=$folder/sys LD_PRELOAD=$lab/fsck/fakeubi.so \
        "$lab/fsck/fsck.ubifs" "$@" "$file" 2>&1
}
if [ $# -gt 0 ]; then
    check "$volume" "$@"
    exit
fi
code=0
check "$volume" -n || code=$?
cp --sparse=always "$volume" "$folder/copy"
check "$folder/copy" -a || code=$?
exit "$code"
