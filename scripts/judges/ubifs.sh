#!/usr/bin/env bash
# External test suites on `tidegate ubifs mount -o rw`: fsx, fsstress, and filling up and emptying, on one chip and on an
# array of four chips in files. After each of them three programs check the medium: `tidegate ubifs check`, the stock
# fsck.ubifs, and Linux' UBIFS in the lab guest with all of its own checks, which must see exactly the files of the mount.
#
#   scripts/judges/ubifs.sh [MEMBERS...]
#
# OPERATIONS of fsx in all (6,000) and SECONDS_MAX of fsstress (20; it needs XFSTESTS_DIR); with TIDEGATE_FULL a million, of up to
# 8 KiB in files of up to 128 KiB, and half an hour. Otherwise FILE_BYTES and OPERATION_BYTES are those of fsx' own
# configurations (up to 8 MiB and 700,000 bytes). WORKLOADS: some of "fsx fsstress fill"; fill leaves a full file system.
# TIDEGATE is the binary, by default the one of `cargo test`. Needs root and /dev/fuse; other missing parts are skipped with
# the reason. Exit: 0 passed, 1 something failed, 2 could not run.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/cargo_path.sh
. scripts/judges/install.sh
. scripts/judges/ubifs_medium.sh

members=("$@")
[ $# -gt 0 ] || members=(1 4)
workloads=${WORKLOADS:-fsx fsstress fill}
if [ "${TIDEGATE_FULL:-}" ]; then
    operations=${OPERATIONS:-1000000}
    seconds=${SECONDS_MAX:-1800}
    # A million operations then take minutes instead of hours, and hit more ends of files and of blocks.
    file_bytes=${FILE_BYTES:-131072}
    operation_bytes=${OPERATION_BYTES:-8192}
else
    operations=${OPERATIONS:-6000}
    seconds=${SECONDS_MAX:-20}
    file_bytes=${FILE_BYTES:-}
    operation_bytes=${OPERATION_BYTES:-}
fi
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export TIDEGATE=${TIDEGATE:-$target/debug/tidegate}

left_out() { echo "left out: $*"; }
[ -e /dev/fuse ] || { left_out "judges on UBIFS mounts, as /dev/fuse is missing"; exit 0; }
[ "$(id -u)" -eq 0 ] || { left_out "judges on UBIFS mounts, as this is $(id -un) and not root"; exit 0; }
[ -x "$TIDEGATE" ] || { echo "$TIDEGATE is missing: cargo build -p cli" >&2; exit 2; }
case $workloads in *fsx*) install_judge fsx "$fsx_version" ;; esac
lab=${TIDEGATE_LAB_DIR:-${HOME:-/root}/.cache/tidegate/lab}
judged_by_fsck=yes judged_by_linux=yes
[ -e "$lab/fsck/fsck.ubifs" ] || { left_out "fsck.ubifs, which lab/setup.sh --fsck makes"; judged_by_fsck=; }
[ -e "$lab/guest.env" ] || { left_out "Linux, as there is no lab guest (lab/setup.sh)"; judged_by_linux=; }

work=$(mktemp -d "${TMPDIR:-/tmp}/tidegate-judges-ubifs.XXXXXX")
chmod 0755 "$work"
mountpoint=$work/mountpoint
mkdir "$mountpoint"
finish() {
    status=$?
    trap - EXIT
    cd /
    mountpoint -q "$mountpoint" && { "$TIDEGATE" unmount --lazy "$mountpoint" >/dev/null 2>&1 || true; }
    if [ "$status" -eq 0 ] || [ -z "${KEEP:-}" ]; then rm -rf "$work"; else echo "kept: $work"; fi
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
failures=0
failed() { echo "FAILED: $*"; failures=$((failures + 1)); }

# The smallest chips for fsx' files: 128 MiB together.
page=2048
pages=64
make_medium() { # MEMBERS
    make_ubifs "$work/chip" "$1" --page "$page" --pages-per-block "$pages" --blocks $((1024 / $1))
}

mount_it() {
    "$TIDEGATE" ubifs mount -o rw,allow_other,suid,dev --log-file "$work/log" "$work/chip" "${devices[@]}" "$mountpoint" >/dev/null
}

run_fsx() { # in three configurations of equal length
    local original configuration name
    for original in scripts/judges/fsx-*.toml; do
        name=$(basename "$original" .toml)
        configuration=$work/$name.toml
        # As with Linux' UBIFS there is no fallocate.
        sed -E -e 's/^(posix_fallocate|punch_hole) = .*/\1 = 0/' \
            ${file_bytes:+-e "s/^flen = .*/flen = $file_bytes/"} ${operation_bytes:+-e "s/^max = .*/max = $operation_bytes/"} \
            "$original" >"$configuration"
        if "$judges/bin/fsx" -q -N $((operations / 3 + 1)) -S "${SEED:-1}" -f "$configuration" -P "$work" "$mountpoint/$name" >"$work/$name.output" 2>&1; then
            echo "  fsx, $name: $((operations / 3 + 1)) operations pass${file_bytes:+, in a file of up to $file_bytes bytes}"
        else
            tail -20 "$work/$name.output"
            failed "fsx -N $((operations / 3 + 1)) -S ${SEED:-1} -f $original without fallocate"
        fi
    done
}

run_fsstress() {
    SECONDS_MAX=$seconds scripts/judges/external.sh fsstress "$mountpoint" | sed 's/^/  /' || failed "fsstress"
}

# Three times: fill up with files, compare all of them, remove them. Large ones, then small ones.
run_fill() {
    local round number first=0 small
    head -c 3000000 /dev/urandom >"$work/noise"
    for round in 1 2 3; do
        number=0
        while cp "$work/noise" "$mountpoint/fill-$number" 2>"$work/fill.output"; do number=$((number + 1)); done
        grep -q "No space left" "$work/fill.output" || { cat "$work/fill.output"; failed "filling up ended otherwise than in ENOSPC"; }
        rm "$mountpoint/fill-$number" || failed "a full file system does not let a file go"
        [ "$round" -gt 1 ] || first=$number
        [ "$number" -ge $((first * 95 / 100)) ] || failed "round $round: $number files fit, $first in the first one"
        for ((; number > 0; number--)); do
            cmp "$work/noise" "$mountpoint/fill-$((number - 1))" || failed "another content in a full file system"
            rm "$mountpoint/fill-$((number - 1))" || failed "a full file system does not let a file go"
        done
    done
    mkdir "$mountpoint/small"
    (cd "$mountpoint/small" && for number in $(seq 100); do mkdir "$number" && split -b 900 -a 4 "$work/noise" "$number/"; done) 2>"$work/fill.output" || true
    grep -q "No space left" "$work/fill.output" || { cat "$work/fill.output"; failed "small files ended otherwise than in ENOSPC"; }
    small=$(find "$mountpoint/small" -type f | wc -l)
    rm -rf "$mountpoint/small" || failed "a full file system does not let small files go"
    for ((number = 0; number < first; number++)); do cp "$work/noise" "$mountpoint/fill-$number" 2>/dev/null || break; done
    [ "$number" -ge $((first * 95 / 100)) ] || failed "after small files: $number files fit, $first in the first round"
    echo "  filled and emptied: $first files of 3 MB each time, then $small small ones; filled again, as the judges get it"
}

# Check by Linux. It sees an array as a volume of one chip, whose blocks are as long as those of all members.
judge_by_linux() { # MEMBERS
    local job=$work/job chip=$work/chip flash="page=$page block=$((page * pages))"
    rm -rf "$job"
    mkdir "$job"
    if [ "$1" -gt 1 ]; then
        local leb=$((page * (pages - 2) * $1)) blocks=$((1024 / $1 + 24))
        chip=$work/one
        rm -f "$chip"*
        "$TIDEGATE" nand create "$chip" --page "$page" --pages-per-block $((pages * $1)) --blocks "$blocks" >/dev/null
        "$TIDEGATE" ubi format "$chip" >/dev/null
        "$TIDEGATE" ubi mkvol "$chip" -N data -S $(($(stat -c %s "$work/volume") / leb)) --alignment "$leb" >/dev/null
        "$TIDEGATE" ubi update "$chip" data "$work/volume" >/dev/null
        flash="page=$page block=$((page * pages * $1)) writebuf=$((page * $1))"
    fi
    cp "$chip" "$work/flash"
    if ! lab/run "$job" --flash "$work/flash" --script check.sh --timeout 1200 --env "FLASH=$flash" >"$work/linux.output" 2>&1; then
        tail -30 "$work/linux.output"
        failed "Linux refuses it"
    elif ! cmp -s "$work/files" "$job/files.txt"; then
        diff "$work/files" "$job/files.txt" | head -20
        failed "Linux sees other files"
    else
        echo "  Linux: $(wc -l <"$job/files.txt") files, the same, nothing to complain"
    fi
    rm -rf "$work/flash" "$job" "$work"/one*
}

# Unmounts and runs all checks.
judge() { # MEMBERS
    python3 lab/guest/bin/lab-hash "$mountpoint" >"$work/files" || failed "a file can't be read"
    "$TIDEGATE" unmount "$mountpoint" >/dev/null || failed "it does not unmount"
    # Its beginning, its clean end and a full file system are messages too.
    if grep -vE ': mounted |: unmounted, and nothing is held back$|: no space left on device( |$)' "$work/log"; then failed "the mount wrote messages"; fi
    "$TIDEGATE" ubifs check "$work/chip" "${devices[@]}" >"$work/check.output" 2>&1 || { cat "$work/check.output"; failed "tidegate ubifs check"; }
    "$TIDEGATE" ubi dump "$work/chip" "${devices[@]}" data -o "$work/volume"
    if [ "$judged_by_fsck" ]; then
        lab/fsck/volume.sh "$work/volume" $((page * (pages - 2) * $1)) "$page" >"$work/fsck.output" 2>&1 || { tail -20 "$work/fsck.output"; failed "fsck.ubifs"; }
    fi
    [ -z "$judged_by_linux" ] || judge_by_linux "$1"
    rm -f "$work/volume"
}

for count in "${members[@]}"; do
    make_medium "$count"
    for workload in $workloads; do
        echo "$count chip(s), $workload"
        mount_it
        "run_$workload"
        judge "$count"
    done
done
[ "$failures" -eq 0 ] || { echo "$failures judgements failed"; exit 1; }
echo "all judges pass"
