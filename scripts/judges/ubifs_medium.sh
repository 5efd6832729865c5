# shellcheck shell=bash
# Sourced by tests of UBIFS mounts. make_ubifs CHIP MEMBERS [SHAPE...]: simulated chips in files, CHIP or CHIP.0 and up,
# with an empty file system on all of them; SHAPE has the options of `nand create`. Sets `devices`, which names the array to
# other commands.
make_ubifs() {
    local chip=$1 members=$2
    shift 2
    rm -f "$chip"*
    devices=()
    [ "$members" -eq 1 ] || devices=(--devices "$members")
    "$TIDEGATE" nand create "$chip" "${devices[@]}" "$@" >/dev/null
    if [ "$members" -eq 1 ]; then
        "$TIDEGATE" ubi format "$chip" >/dev/null
        "$TIDEGATE" ubi mkvol "$chip" -N data -m >/dev/null
    else
        "$TIDEGATE" ubi format "$chip" "${devices[@]}" --label data >/dev/null
    fi
    "$TIDEGATE" ubifs mkfs "$chip" "${devices[@]}" >/dev/null
}
