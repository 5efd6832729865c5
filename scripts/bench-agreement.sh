#!/usr/bin/env bash
# Compares `tidegate bench` with fio, plain C loops, SQLite in C and the original Mobibench: `make bench-agreement`.
#
#   scripts/bench-agreement.sh [--quick] [--resume] [TIDEGATE [JUDGE]]
#
# --quick   a small selection, in five minutes; without it 25 minutes
# --resume  continue a stopped run instead of starting again
#
# Environment: OUT (out), SUITES (ceiling fio sqlite mobibench), MODES (all; parts of names, comma-separated), ROUNDS,
# EXT4 (memory: its image is in memory, so that the variance of a device does not hide the programs; disk: in $OUT), MOBIBENCH (the
# original, built), OLD (another build of tidegate: the suite builds compares with it), WINDOW (milliseconds of a run beside fio: 80), TRANSACTIONS (of a run of SQLite: 500), SQLITE (bundled;
# system compares over libsqlite3-dev), CC and so on as for make.
# Results: $OUT/agreement.jsonl (every run) and $OUT/agreement.md. Exit codes: 0 each difference has a measured reason,
# 1 some have none, 2 something could not be done. All other files are removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'agreement: %s\n' "$*" >&2; }

quick='' resume=''
while [ "${1:-}" = --quick ] || [ "${1:-}" = --resume ]; do
    [ "$1" = --quick ] && quick=--quick
    [ "$1" = --resume ] && resume=yes
    shift
done
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tidegate=$(realpath "${1:-$target/release/tidegate}")
judge=$(realpath "${2:-$target/release/judge}")
out=${OUT:-out}
suites=${SUITES:-ceiling fio sqlite mobibench ${OLD:+builds}}
PATH="$PATH:/usr/sbin:/sbin"

[ "$(id -u)" -eq 0 ] || { say "needs root: for an ext4, a tmpfs and empty caches of its own"; exit 2; }
mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d "$out/agreement.XXXXXX")
mounted=()

clean() {
    local status=$? index
    trap - EXIT INT TERM HUP
    cd /
    for ((index = ${#mounted[@]} - 1; index >= 0; index--)); do
        umount "${mounted[index]}" 2>/dev/null || umount -l "${mounted[index]}" || true
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
trap 'exit 143' TERM HUP

mkdir "$work/tmpfs" "$work/ext4" "$work/memory"
free_mib=$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
[ "$free_mib" -ge 3072 ] || { say "$free_mib MiB of memory are available; 3072 are needed"; exit 2; }
mount -t tmpfs -o size=3g tidegate-agreement "$work/tmpfs"
mounted+=("$work/tmpfs")
if [ "${EXT4:-memory}" = disk ]; then
    image=$work/ext4.img
else
    [ "$free_mib" -ge 6144 ] || say "$free_mib MiB of memory are available: little for two file systems in memory"
    mount -t tmpfs -o size=3g tidegate-agreement "$work/memory"
    mounted+=("$work/memory")
    image=$work/memory/ext4.img
fi
truncate -s 2800M "$image"
# Without lazy initialisation no kernel thread writes during the measurement.
mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$image"
mount -t ext4 -o loop,discard "$image" "$work/ext4"
mounted+=("$work/ext4")

runs=$out/agreement.jsonl
[ "$resume" ] || rm -f "$runs"
page=$work/agreement.md
{
    printf '# Agreement\n\n'
    printf '%s, %s, %s processors (%s), ext4 in %s, %s; %s\n\n' "$(date -u +%Y-%m-%d)" "$(uname -sr)" "$(nproc)" \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "${EXT4:-memory}" \
        "$("$tidegate" --version)" "$(fio --version 2>/dev/null || echo 'no fio')"
    printf 'Load when it began: %s. Ratios are medians of paired rounds, [interval].\n\n' "$(cut -d' ' -f1-3 /proc/loadavg)"
} >"$page"

# Rounds and total seconds of each suite: 25 minutes together, with --quick 5.
rounds_of() { case $1 in ceiling) echo "${ROUNDS:-${quick:+5}}" ;; *) echo "${ROUNDS:-${quick:+3}}" ;; esac; }
default_rounds() { case $1 in ceiling | builds) echo 9 ;; *) echo 5 ;; esac; }
budget_of() {
    if [ "$quick" ]; then
        case $1 in fio) echo 170 ;; ceiling) echo 30 ;; sqlite) echo 45 ;; *) echo 40 ;; esac
    else
        case $1 in fio) echo 960 ;; builds) echo 480 ;; ceiling) echo 130 ;; sqlite) echo 220 ;; *) echo 150 ;; esac
    fi
}

# The source of the SQLite inside tidegate: the C loop is compiled from the same.
amalgamation=()
if [[ " $suites " == *" sqlite "* && "${SQLITE:-bundled}" = bundled ]]; then
    . scripts/cargo_path.sh
    version=$(sed -n '/^name = "libsqlite3-sys"$/{n;s/^version = "\(.*\)"$/\1/p}' Cargo.lock)
    for source in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/libsqlite3-sys-"$version"/sqlite3; do
        [ -e "$source/sqlite3.c" ] && amalgamation=(--amalgamation "$source")
    done
    [ "${#amalgamation[@]}" -gt 0 ] || say "the source of libsqlite3-sys $version was not found; over the system's library"
fi

worst=0
# run SUITE ARGUMENT...: a failing suite does not prevent the others.
run() {
    local suite=$1 rounds status=0
    shift
    [[ " $suites " == *" $suite "* ]] || return 0
    rounds=$(rounds_of "$suite")
    "$judge" "$suite" --tidegate "$tidegate" --rounds "${rounds:-$(default_rounds "$suite")}" \
        --budget "$(budget_of "$suite")" --output "$runs" --markdown "$page" --build "$target/judge" \
        ${quick:+--quick} ${MODES:+--modes "$MODES"} "$@" >/dev/null || status=$?
    [ "$status" -le "$worst" ] || worst=$status
    if [ "$status" -gt 2 ]; then exit "$status"; fi
}

tmpfs=(--directory "tmpfs=$work/tmpfs")
both=("${tmpfs[@]}" --directory "ext4=$work/ext4")
run ceiling "${tmpfs[@]}"
run fio "${both[@]}" --window "${WINDOW:-$([ "$quick" ] && echo 30 || echo 80)}"
run sqlite "${both[@]}" --transactions "${TRANSACTIONS:-$([ "$quick" ] && echo 300 || echo 500)}" "${amalgamation[@]}"
run mobibench --directory "ext4=$work/ext4" ${MOBIBENCH:+--mobibench "$MOBIBENCH"}
[ -z "${OLD:-}" ] || run builds "${both[@]}" --old "$OLD"
mv "$page" "$out/agreement.md"
cat "$out/agreement.md"
say "every run is in $runs, the tables are in $out/agreement.md"
exit "$worst"
