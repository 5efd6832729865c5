#!/usr/bin/env bash
# Runs one of the suites in C, built by the user, in a folder, on a mount or on the file system below.
#
#   scripts/judges/external.sh SUITE DIR
#
#   pjdfstest   PJDFSTEST_DIR: the C and sh suite, configured and made; needs root and prove(1)
#   fsx         XFSTESTS_DIR: ltp/fsx, ten variants, OPERATIONS each (default 100,000)
#   fsstress    XFSTESTS_DIR: ltp/fsstress, SECONDS_MAX long (default 600); SOURCE=DIR compares the trees afterwards
#   xfstests    XFSTESTS_DIR: ./check on the generic list in LIST; needs its own local.config, DIR is not used
#   all         all available ones, each on separate fresh mounts; DIR is a folder for sources
#
# Exit: 0 passed or left out (with the reason), 1 something failed, 2 could not run.
set -euo pipefail
suite=${1:?SUITE is missing: pjdfstest, fsx, fsstress, xfstests or all}
directory=$(realpath "${2:?DIR is missing}")
cd "$(dirname "$0")/../.."
tidegate=${TIDEGATE:-$(realpath -m "${CARGO_TARGET_DIR:-target}")/debug/tidegate}

left_out() { echo "left out: $1: $2"; }

has() { # SUITE VARIABLE FILE
    local folder=${!2:-}
    if [ -z "$folder" ]; then left_out "$1" "$2 names no folder in which the suite is built"; return 1; fi
    if [ ! -e "$folder/$3" ]; then left_out "$1" "$folder/$3 is missing"; return 1; fi
}

run_pjdfstest() {
    has "pjdfstest (C)" PJDFSTEST_DIR tests || return 0
    if [ "$(id -u)" -ne 0 ]; then left_out "pjdfstest (C)" "it needs root"; return 0; fi
    command -v prove >/dev/null || { left_out "pjdfstest (C)" "prove(1) of perl is missing"; return 0; }
    local tests folder status=0
    tests=$(realpath "$PJDFSTEST_DIR/tests")
    folder=$(mktemp -d "$directory/pjdfstest.XXXXXX")
    chmod 0755 "$folder"
    (cd "$folder" && prove -r -Q "$tests") </dev/null || status=1
    rm -rf "$folder"
    return "$status"
}

run_fsx() {
    has "fsx (C)" XFSTESTS_DIR ltp/fsx || return 0
    local status=0 variant arguments file
    while read -r variant arguments; do
        file=$directory/fsx-$variant
        # shellcheck disable=SC2086 # several arguments
        if "$XFSTESTS_DIR/ltp/fsx" -q -N "${OPERATIONS:-100000}" -S "${SEED:-1}" $arguments "$file" >"$file.output" 2>&1 </dev/null; then
            echo "fsx $variant: passes"
            rm -f "$file" "$file".*
        else
            echo "fsx $variant: FAILS; replay: fsx -q -N ${OPERATIONS:-100000} -S ${SEED:-1} $arguments FILE"
            tail -5 "$file.output"
            status=1
        fi
    done <<'VARIANTS'
buffered
calls -R -W
reopen -c 10
sync -y
dropcache -f
direct -Z -R -W -r 4096 -w 4096 -t 4096
direct-small -Z -R -W -r 512 -w 512 -t 512
large -l 67108864 -o 1048576
asynchronous -A -Z -R -W -r 4096 -w 4096 -t 4096
uring -U -R -W
VARIANTS
    return "$status"
}

run_fsstress() {
    has fsstress XFSTESTS_DIR ltp/fsstress || return 0
    local tree seconds=${SECONDS_MAX:-600} status=0
    tree=$(mktemp -d "$directory/fsstress.XXXXXX")
    timeout -k 10 "$((seconds + 120))" "$XFSTESTS_DIR/ltp/fsstress" -d "$tree" -s "${SEED:-1}" -p 4 \
        --duration="$seconds" >/dev/null || { echo "fsstress FAILS, seed ${SEED:-1}"; status=1; }
    find "$tree" -type f -exec cat {} + >/dev/null || { echo "fsstress: a file can't be read"; status=1; }
    if [ -n "${SOURCE:-}" ]; then
        # Attributes may be cached for a second.
        sync -f "$tree"
        cmp <(listing "$tree") <(listing "$SOURCE/${tree#"$directory"/}") || { echo "mount and source differ"; status=1; }
    fi
    rm -rf "$tree" || status=1
    [ "$status" -ne 0 ] || echo "fsstress: passes, $seconds s, seed ${SEED:-1}"
    return "$status"
}

listing() {
    (cd "$1" && find . -printf '%P %y %m %U %G %s %n %l\n' | sort && find . -type f -print0 | sort -z | xargs -0r md5sum)
}

run_xfstests() {
    has xfstests XFSTESTS_DIR check || return 0
    if [ "$(id -u)" -ne 0 ]; then left_out xfstests "it needs root"; return 0; fi
    [ -e "$XFSTESTS_DIR/local.config" ] || [ -n "${HOST_OPTIONS:-}" ] || {
        left_out xfstests "neither local.config in it nor HOST_OPTIONS says what to mount (FSTYP=fuse, FUSE_SUBTYP=.tidegate)"
        return 0
    }
    # shellcheck disable=SC2046 # a list of cases
    (cd "$XFSTESTS_DIR" && ./check $([ -n "${LIST:-}" ] && grep -v '^#' "$LIST" || echo "-g generic/quick"))
}

run_all() {
    local status=0 arguments source mountpoint access=()
    run_xfstests || status=1
    [ "$(id -u)" -ne 0 ] || access=(-o allow_other,suid,dev)
    [ -e /dev/fuse ] || { left_out "pjdfstest, fsx, fsstress (C)" "/dev/fuse is missing"; return "$status"; }
    [ -n "${PJDFSTEST_DIR:-}${XFSTESTS_DIR:-}" ] || { run_pjdfstest; run_fsx; run_fsstress; return "$status"; }
    for arguments in "" "--passthrough off" "--passthrough off --flusher inline" "--passthrough off --flusher off" \
        "--passthrough off --writeback on"; do
        source=$(mktemp -d "$directory/source.XXXXXX")
        mountpoint=$(mktemp -d "$directory/mountpoint.XXXXXX")
        chmod 0755 "$source" "$mountpoint"
        # shellcheck disable=SC2086 # several arguments
        "$tidegate" mount "$source" "$mountpoint" "${access[@]}" $arguments
        for one in pjdfstest fsx fsstress; do
            echo "-- $one, ${arguments:-default}"
            SOURCE=$source TIDEGATE=$tidegate scripts/judges/external.sh "$one" "$mountpoint" || status=1
        done
        "$tidegate" unmount "$mountpoint" || { "$tidegate" unmount --lazy "$mountpoint" || true; status=1; }
        rmdir "$mountpoint" && rm -rf "$source"
    done
    return "$status"
}

case $suite in
pjdfstest | fsx | fsstress | xfstests | all) "run_$suite" ;;
*) echo "no suite is called $suite" >&2; exit 2 ;;
esac
