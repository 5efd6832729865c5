#!/usr/bin/env bash
# External test suites: pjdfstest (conformance) and fsx (random operations on one file), on mounts in every mode.
#
#   scripts/judges/run.sh [--long] [MODE ...]
#
# Both run on the backing file system first; a case that passes there and fails on a mount fails this script. As root the
# backing file system is an ext4 in a loop image; an ordinary user gets a folder, and the cases without a change of user.
# --long: 1,020,000 operations of fsx per mode instead of 15,000. MODE: only these modes. TIDEGATE is the binary, by default the one of `cargo test`.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/cargo_path.sh

operations=5000
seeds=(1)
if [ "${1:-}" = --long ]; then
    # Times three configurations: 1,020,000 operations per mode. fsx keeps each of its mappings, and the kernel walks all
    # of them at a write-out: the time of a run grows with the square of its length.
    operations=10000
    mapfile -t seeds < <(seq 34)
    shift
fi

[ -e /dev/fuse ] || { echo "left out: pjdfstest and fsx on mounts, as /dev/fuse is missing"; exit 0; }
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tidegate=${TIDEGATE:-$target/debug/tidegate}
[ -x "$tidegate" ] || cargo build -p cli --locked
here=$PWD/scripts/judges

. scripts/judges/install.sh
install_judge pjdfstest "$pjdfstest_version"
install_judge fsx "$fsx_version"

work=$(mktemp -d "${TMPDIR:-/tmp}/tidegate-judges.XXXXXX")
chmod 0755 "$work"
mountpoint=$work/mountpoint
backing=$work/backing
mkdir "$mountpoint" "$backing" "$work/logs"

finish() {
    status=$?
    trap - EXIT
    cd /
    mountpoint -q "$mountpoint" && { "$tidegate" unmount "$mountpoint" >/dev/null 2>&1 ||
        "$tidegate" unmount --lazy "$mountpoint" >/dev/null 2>&1 || true; }
    mountpoint -q "$backing" && { umount "$backing" 2>/dev/null || umount -l "$backing" || true; }
    if [ "$status" -eq 0 ]; then
        rm -rf "$work"
    else
        rm -rf "$work/image" "$mountpoint" "$backing" 2>/dev/null || true
        echo "logs: $work/logs"
    fi
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

access=()
configuration=$here/pjdfstest-user.toml
if [ "$(id -u)" -eq 0 ]; then
    truncate -s 2G "$work/image"
    mkfs.ext4 -q -F "$work/image"
    if mount -o loop "$work/image" "$backing" 2>/dev/null; then
        chmod 0755 "$backing"
    else
        echo "no loop device can be had: the backing file system is that of $work"
    fi
    access=(-o "allow_other,suid,dev")
    configuration=$here/pjdfstest.toml
else
    echo "left out: pjdfstest's cases with several users, as this is $(id -un) and not root"
fi
elsewhere=$(mktemp -d /dev/shm/tidegate-judges.XXXXXX 2>/dev/null) && rmdir "$elsewhere" && elsewhere=(-s /dev/shm) || elsewhere=()

plain() { sed 's/\x1b\[[0-9;]*m//g' "$1"; }

# conformance NAME FOLDER: writes the names of failed cases to logs/NAME.failed and prints the number of passed ones.
conformance() {
    local log="$work/logs/$1.pjdfstest"
    "$judges/bin/pjdfstest" -c "$configuration" "${elsewhere[@]}" -p "$2" -v </dev/null >"$log" 2>&1 || true
    plain "$log" | awk '$NF == "FAILED" {print $1}' | sort >"$work/logs/$1.failed"
    plain "$log" | grep -cE '^[a-z_0-9]+::.* ok$' || true
}

# random_operations NAME FOLDER: prints each configuration and seed that failed, except those in $broken_below.
broken_below=
random_operations() {
    local configuration seed name file
    for configuration in "$here"/fsx-*.toml; do
        for seed in "${seeds[@]}"; do
            name=$(basename "$configuration" .toml)
            grep -qxF "$name seed $seed" <<<"$broken_below" && continue
            file=$2/$name-$seed
            if "$judges/bin/fsx" -q -N "$operations" -S "$seed" -f "$configuration" -P "$work/logs" "$file" \
                >"$work/logs/$1.$name-$seed" 2>&1; then
                rm -f "$file"
            else
                echo "$name seed $seed"
            fi
        done
    done
}

mkdir -m 0755 "$backing/native"
passed=$(conformance native "$backing/native")
broken_below=$(random_operations native "$backing/native")
[ "$passed" -gt 0 ] || { echo "pjdfstest ran no case on the backing file system:"; tail -5 "$work/logs/native.pjdfstest"; exit 2; }
# fsx asks at times for posix_fallocate of no bytes, which every file system refuses.
if [ -n "$broken_below" ]; then
    echo "left out: $(paste -sd, <<<"$broken_below"), as fsx fails on the backing file system itself"
    [ "$(grep -c . <<<"$broken_below")" -le "${#seeds[@]}" ] || { echo "fsx fails below with more than a third of the seeds"; exit 2; }
fi
printf '%-34s %4d cases pass, %d fail; fsx passes\n' "backing file system" "$passed" "$(wc -l <"$work/logs/native.failed")"

modes=(
    "default:"
    "timeout:--coherence timeout"
    "watch:--coherence watch"
    "watch-thread:--coherence watch --passthrough off"
    "thread:--passthrough off"
    "inline:--passthrough off --flusher inline"
    "unbuffered:--passthrough off --flusher off --direct-io off"
    "writeback:--passthrough off --writeback on"
    "tiny:--passthrough off --io-unit 4k --buffer 64k --entry 16k --direct-io off"
)
if [ "$(cat /sys/module/fuse/parameters/enable_uring 2>/dev/null)" != Y ]; then
    echo "left out: io_uring, as /sys/module/fuse/parameters/enable_uring is not Y"
elif [ "$(id -u)" -ne 0 ]; then
    echo "left out: io_uring, as this is not root"
else
    modes+=("uring:--passthrough off --uring on")
fi

for name in "$@"; do
    printf '%s\n' "${modes[@]}" | grep -q "^$name:" || { echo "$name is no mode; there are: ${modes[*]%%:*}" >&2; exit 2; }
done
failures=0
for mode in "${modes[@]}"; do
    name=${mode%%:*}
    [ "$#" -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    read -r -a arguments <<<"${mode#*:}"
    mkdir -m 0755 "$backing/$name"
    "$tidegate" mount "$backing/$name" "$mountpoint" "${access[@]}" "${arguments[@]}" >"$work/logs/$name.mount"
    passed=$(conformance "$name" "$mountpoint")
    broken=$(random_operations "$name" "$mountpoint")
    "$tidegate" unmount "$mountpoint" >/dev/null
    worse=$(comm -13 "$work/logs/native.failed" "$work/logs/$name.failed")
    printf '%-34s %4d cases pass, %d fail that pass below; fsx %s\n' "$name: ${mode#*:}" "$passed" \
        "$(printf '%s' "$worse" | grep -c . || true)" "$([ -z "$broken" ] && echo passes || echo FAILS)"
    [ "$passed" -gt 0 ] || { echo "    pjdfstest ran no case:"; tail -5 "$work/logs/$name.pjdfstest"; failures=$((failures + 1)); }
    if [ -n "$worse$broken" ]; then
        printf '%s\n' "$worse" "$broken" | sed '/^$/d; s/^/    /'
        failures=$((failures + 1))
    fi
    rm -rf "${backing:?}/$name"
done
if [ "$failures" -gt 0 ]; then
    echo "$failures of ${#modes[@]} modes fail"
    exit 1
fi
