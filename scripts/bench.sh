#!/usr/bin/env bash
# Compares tidegate with the native file system and with its peers, on one ext4 made for it: `make bench`.
#
#   scripts/bench.sh [TIDEGATE]        the binary; default target/release/tidegate
#
# Environment: ROUNDS (5), SIZE (512m), WORKLOADS (all), TARGETS (all available), OUT (out),
# PASSTHROUGH_HP (libfuse's example, built; otherwise from PATH), REQUIRE (yes; any other value disables the requirements).
# Exit codes are those of `tidegate bench compare`: 1 if a requirement is not met.
# All files are removed at the end, also after Ctrl-C, except $OUT/bench.jsonl, .html and .md, $OUT/synchronous.* of the
# workloads that sync each write, which are measured with every flusher, and $OUT/walks.jsonl and .md of programs over
# trees of files (scripts/bench-walks.py; not if TARGETS or WORKLOADS are given).
set -euo pipefail
cd "$(dirname "$0")/.."

tidegate=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/release/tidegate}")
out=${OUT:-out}
rounds=${ROUNDS:-5}
size=${SIZE:-512m}
PATH="$PATH:/usr/sbin:/sbin"

say() { printf 'bench: %s\n' "$*" >&2; }

[ "$(id -u)" -eq 0 ] || { say "needs root: for the ext4 on a loop device, the mounts, and dropping caches"; exit 2; }
[ -e /dev/fuse ] || { say "/dev/fuse is missing: there is nothing to compare"; exit 2; }
mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d "$out/bench.XXXXXX")
mounted=()

clean() {
    local status=$? index
    trap - EXIT INT TERM
    cd /
    for ((index = ${#mounted[@]} - 1; index >= 0; index--)); do
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            umount "${mounted[index]}" 2>/dev/null && break
            mountpoint -q "${mounted[index]}" || break
            sleep 0.2
        done
        ! mountpoint -q "${mounted[index]}" || umount -l "${mounted[index]}" || true
    done
    # Never across a mount that stayed: that would remove files of others.
    if grep -qF " $work/" /proc/self/mountinfo; then
        say "something is still mounted in $work; it is left there"
    else
        rm -rf "$work"
    fi
    exit "$status"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The sparse image: 8 GiB, or the free space minus 1 GiB.
free_kib=$(df --output=avail -k "$work" | tail -n 1)
image_mib=$(( free_kib / 1024 - 1024 ))
[ "$image_mib" -le 8192 ] || image_mib=8192
[ "$image_mib" -ge 512 ] || { say "$((free_kib / 1024)) MiB free in $out are too few"; exit 2; }
truncate -s "${image_mib}M" "$work/ext4.img"
# Without lazy initialisation no kernel thread writes during the measurement.
mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$work/ext4.img"
mkdir "$work/ext4"
mount -t ext4 -o loop,discard "$work/ext4.img" "$work/ext4"
mounted+=("$work/ext4")

labels=()
target_of() { if [ "$1" = native ]; then echo "$work/ext4/native"; else echo "$work/$1"; fi; }

# Microseconds of one of 200 writes with O_DSYNC on the native file system.
flush_cost() {
    local from=${EPOCHREALTIME/[.,]/}
    dd if=/dev/zero of="$work/ext4/native/probe" bs=4k count=200 oflag=dsync status=none
    rm "$work/ext4/native/probe"
    echo $(( (${EPOCHREALTIME/[.,]/} - from) / 200 ))
}
wanted() { [ -z "${TARGETS:-}" ] || [[ " ${TARGETS//,/ } " == *" $1 "* ]]; }
left_out() { say "left out: $1: $2"; }

# add LABEL COMMAND...: mounts $source at $target by COMMAND, in which @SOURCE@ and @TARGET@ are replaced.
add() {
    local label=$1 source="$work/ext4/$1" target="$work/$1" word command=()
    shift
    wanted "$label" || return 0
    mkdir "$source" "$target"
    for word in "$@"; do
        word=${word//@SOURCE@/$source}
        command+=("${word//@TARGET@/$target}")
    done
    # In a separate session: Ctrl-C reaches only the measurement, and the mounts are removed in order.
    if ! setsid -w "${command[@]}" </dev/null >"$work/$label.log" 2>&1; then
        left_out "$label" "$(tail -n 1 "$work/$label.log")"
        ! mountpoint -q "$target" || umount -l "$target"
        return 0
    fi
    for _ in $(seq 50); do
        mountpoint -q "$target" && break
        sleep 0.1
    done
    mountpoint -q "$target" || { left_out "$label" "did not come up"; return 0; }
    mounted+=("$target")
    labels+=("$label")
    say "$label is up$(sed -n '1s/^mounted .*: FUSE/: FUSE/p' "$work/$label.log")"
}

mkdir "$work/ext4/native"

add tidegate "$tidegate" mount @SOURCE@ @TARGET@ -o allow_other
add tidegate-buffered "$tidegate" mount @SOURCE@ @TARGET@ -o allow_other,passthrough=off
# Without passthrough every write passes the write buffer, with any flusher: no synchronous one may stay there.
add tidegate-inline "$tidegate" mount @SOURCE@ @TARGET@ -o allow_other,passthrough=off,flusher=inline
add tidegate-unbuffered "$tidegate" mount @SOURCE@ @TARGET@ -o allow_other,passthrough=off,flusher=off
# The transport is io_uring if the kernel has it; the character device is then measured too.
if [ "$(cat /sys/module/fuse/parameters/enable_uring 2>/dev/null)" = Y ]; then
    add tidegate-nouring "$tidegate" mount @SOURCE@ @TARGET@ -o allow_other,passthrough=off,uring=off
elif wanted tidegate-nouring; then
    left_out tidegate-nouring "io_uring is not enabled in the kernel's fuse module: no other target uses it"
fi

# The upper bound of any FUSE server on this machine: a no-op server. It stores no data, so its writes are not I/O.
if cc -O2 -o "$work/null_fuse" scripts/judges/null_fuse.c 2>"$work/null_fuse.log"; then
    add limit "$work/null_fuse" @TARGET@
elif wanted limit; then
    left_out limit "scripts/judges/null_fuse.c can't be built: $(head -n 1 "$work/null_fuse.log")"
fi

hp=${PASSTHROUGH_HP:-$(command -v passthrough_hp || true)}
if [ -x "$hp" ]; then
    add passthrough_hp "$hp" -o allow_other,fsname=passthrough_hp @SOURCE@ @TARGET@
elif wanted passthrough_hp; then
    left_out passthrough_hp "not found; build libfuse's example and set PASSTHROUGH_HP"
fi
if command -v bindfs >/dev/null; then
    add bindfs bindfs -o allow_other --multithreaded @SOURCE@ @TARGET@
elif wanted bindfs; then
    left_out bindfs "not installed: apt-get install bindfs"
fi
if command -v mergerfs >/dev/null; then
    add mergerfs mergerfs -o allow_other,use_ino,minfreespace=0,category.create=ff @SOURCE@ @TARGET@
elif wanted mergerfs; then
    left_out mergerfs "not installed: apt-get install mergerfs"
fi

all=(write-512k write-4k read-512k-cold read-512k-warm read-4k-cold read-4k-warm
     randwrite-4k-fsync files-10k files-10k-4k)
synchronous=(randwrite-4k-fsync randwrite-4k-fdatasync randwrite-4k-sync randwrite-4k-dsync
             randwrite-4k-direct-sync randwrite-4k-direct-dsync)
asked=()
if [ "${WORKLOADS:-}" ]; then read -ra asked <<<"${WORKLOADS//,/ }"; else asked=("${all[@]}" "${synchronous[@]}"); fi

# compare NAME TARGET... -- WORKLOAD...: measures the available and selected ones into $out/NAME.*, under $requirements.
compare() {
    local name=$1 arguments=() label found=no
    shift
    for label in native "$@"; do
        [ "$label" != -- ] || break
        [[ " native ${labels[*]} " == *" $label "* ]] || continue
        arguments+=(--target "$label=$(target_of "$label")")
    done
    while [ "$1" != -- ]; do shift; done
    shift
    for workload in "$@"; do
        [[ " ${asked[*]} " == *" $workload "* ]] || continue
        arguments+=(--workload "$workload")
        found=yes
    done
    [ $found = yes ] || return 0
    "$tidegate" bench compare "${arguments[@]}" "${requirements[@]}" \
        --rounds "$rounds" --size "$size" ${FILES:+--files "$FILES"} \
        --output "$out/$name.jsonl" --report "$out/$name.html" --markdown "$out/$name.md"
}

# Required ratios of the measured targets and workloads.
requirements=()
require() { # LABEL WORKLOAD BOUND
    [[ " ${labels[*]} " == *" $1 "* && " ${asked[*]} " == *" $2 "* ]] || return 0
    requirements+=(--require "$1:$2$3")
}
is_required=${REQUIRE:-yes}
if [ "$is_required" = yes ]; then
    # With passthrough, if the kernel grants it; then without it.
    if grep -q 'passthrough on' "$work/tidegate.log" 2>/dev/null; then
        require tidegate write-512k '>=0.98'
        require tidegate write-4k '>=0.95'
    else
        require tidegate write-512k '>=0.90'
        require tidegate write-4k '>=0.50'
    fi
    require tidegate-buffered write-512k '>=0.90'
    require tidegate-buffered write-4k '>=0.50'
    for label in tidegate tidegate-buffered; do
        for temperature in cold warm; do
            require "$label" "read-512k-$temperature" '>=0.98'
            require "$label" "read-4k-$temperature" '>=0.90'
        done
        require "$label" randwrite-4k-fsync '>=0.90'
        require "$label" files-10k '>=0.60'
    done
fi
status=0
peers=(tidegate tidegate-buffered tidegate-nouring limit passthrough_hp bindfs mergerfs)
compare bench "${peers[@]}" -- "${all[@]}" || status=$?
[ "$status" -le 1 ] || exit "$status"

# Individually synced writes: a target faster than the native file system has skipped the sync. This is visible only if
# a flush of the device costs time.
flush_us=$(flush_cost)
if [ "$flush_us" -lt 50 ]; then
    left_out "the promise of synchronous writes" "a sync takes $flush_us us on the device below $out, so that nothing is saved by leaving it out"
    is_required=no
else
    say "a synchronous write takes $flush_us us on the native file system"
fi
requirements=()
if [ "$is_required" = yes ]; then
    for label in tidegate tidegate-buffered tidegate-inline tidegate-unbuffered; do
        for workload in "${synchronous[@]}"; do require "$label" "$workload" '<=1.05'; done
    done
fi
compare synchronous tidegate tidegate-buffered tidegate-inline tidegate-unbuffered -- "${synchronous[@]}" || {
    synced=$?
    [ "$synced" -le "$status" ] || status=$synced
}

# Programs over trees of files, on an ext4 and mounts of their own.
if [ -z "${TARGETS:-}${WORKLOADS:-}" ]; then
    if command -v python3 >/dev/null && command -v git >/dev/null; then
        scripts/bench-walks.py "$tidegate" --rounds "$rounds" --out "$out" || {
            walked=$?
            [ "$walked" -le "$status" ] || status=$walked
        }
    else
        left_out "walks" "they need python3 and git"
    fi
fi
exit "$status"
