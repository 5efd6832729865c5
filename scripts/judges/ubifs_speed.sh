#!/usr/bin/env bash
# Speed of `tidegate ubifs`, side by side with its peers, interleaved: raw samples, medians and ratios.
#
#   scripts/judges/ubifs_speed.sh [extract] [mount] [read] [write]        (all four without arguments)
#
#   extract   100 MB of files from a UBI image: tidegate (ubifs extract, unpack) and ubi_reader (from the package index, in a
#             venv). Goal: TIMES times as fast (20).
#   mount     a 1 GiB chip that Linux wrote in the lab guest until its power was cut: time beyond the scan. Goal: 150 ms.
#   read      a warm sequential read through FUSE: a UBIFS, and the same file by `tidegate mount`. Goal: 0.9.
#   write     16 MiB of noise written with O_SYNC, twice, through FUSE in real time: four simulated TLC chips as an array, and one
#             chip of their total size. Goal: 3.5 times.
#
# ROUNDS (5) samples of each; the chips of `write` are files in CHIPS_DIR (/dev/shm); TIDEGATE is the binary, by default an
# optimised one that is built here. Needs mtd-utils, /dev/fuse, python3 with venv, and for `mount` the lab guest
# (docs/reference/lab.md); unavailable parts are skipped with the reason.
# Exit: 0 all that ran reached their goals, 1 some did not, 2 it could not run.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/cargo_path.sh
. scripts/judges/ubifs_medium.sh
ubi_reader_version=0.8.16
rounds=${ROUNDS:-5}
parts=${*:-extract mount read write}
judges=$(realpath -m target)/judges
PATH="$PATH:/usr/sbin:/sbin"

for tool in mkfs.ubifs ubinize; do
    command -v "$tool" >/dev/null || { echo "left out: $tool is missing (apt install mtd-utils)"; exit 0; }
done
if [ -z "${TIDEGATE:-}" ]; then
    cargo build --release --locked -p cli
    TIDEGATE=$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/tidegate
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/tidegate-ubifs-speed.XXXXXX")
mkdir "$work/tree" "$work/one" "$work/two"
finish() {
    status=$?
    trap - EXIT
    for folder in one two; do
        mountpoint -q "$work/$folder" && { "$TIDEGATE" unmount --lazy "$work/$folder" >/dev/null || true; }
    done
    rm -rf "$work" ${chips:+"$chips"}
    exit "$status"
}
trap finish EXIT
missed=0
chips=

now_us() { local now=${EPOCHREALTIME/[.,]/}; echo "$now"; }
took() { # COMMAND...: its duration in microseconds, without the write-back of the sample before
    sync -f "$work"
    local from; from=$(now_us)
    "$@" >/dev/null 2>"$work/messages" || { cat "$work/messages" >&2; echo "failed: $*" >&2; exit 2; }
    echo $(($(now_us) - from))
}
median() { printf '%s\n' "$@" | sort -n | awk '{ value[NR] = $1 } END { print NR % 2 ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2 }'; }
wanted() { # WHAT VALUE OPERATOR LIMIT
    if awk "BEGIN { exit !($2 $3 $4) }"; then echo "$1: $2, wanted $3 $4: reached"; else echo "$1: $2, wanted $3 $4: MISSED"; missed=1; fi
}

# Half text, half noise: about half of it compresses, as in firmware.
fill_tree() { # MEGABYTES
    python3 - "$work/tree" "$1" <<'PYTHON'
import os, random, sys
root, megabytes = sys.argv[1], int(sys.argv[2])
source = random.Random(7)
words = [bytes(source.choices(b"abcdefghijklmnopqrstuvwxyz", k=source.randint(2, 9))) for _ in range(4000)]
def piece(size):
    text = b" ".join(source.choices(words, k=size // 6))[:size // 2]
    return text + source.randbytes(size - len(text))
left, number = megabytes * 1000000, 0
while left > 0:
    size = min(left, source.choice([900, 4000, 12000, 50000, 200000, 3000000]))
    folder = f"{root}/{number % 40}"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/{number}", "wb") as file:
        file.write(piece(size))
    left, number = left - size, number + 1
PYTHON
}
make_ubi() { # UBIFS UBI
    printf '[v]\nmode=ubi\nimage=%s\nvol_id=0\nvol_type=dynamic\nvol_name=root\nvol_flags=autoresize\n' "$1" >"$work/ini"
    ubinize -m 2048 -p 128KiB -o "$2" "$work/ini"
}
hashes() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum); }

extract() {
    local venv=$judges/ubi_reader-$ubi_reader_version ours=() unpack=() theirs=() from round
    if [ ! -x "$venv/bin/ubireader_extract_files" ]; then
        python3 -m venv "$venv" && "$venv/bin/python" -m pip install --quiet "ubi_reader==$ubi_reader_version" ||
            { echo "left out: extract, as ubi_reader $ubi_reader_version could not be installed"; return 0; }
    fi
    fill_tree 100
    mkfs.ubifs -m 2048 -e 126976 -c 2000 -x lzo -r "$work/tree" -o "$work/volume"
    make_ubi "$work/volume" "$work/ubi"
    hashes "$work/tree" >"$work/expected"
    for round in $(seq "$rounds"); do
        # New folders, and the old ones stay until the end: ext4 passes over inodes that were deleted within the last five
        # minutes, one by one for each new file, so the first sample after a removal would pay for it.
        ours+=("$(took "$TIDEGATE" ubifs extract "$work/ubi" -o "$work/out-$round")")
        unpack+=("$(took "$TIDEGATE" unpack "$work/ubi" -o "$work/unpacked-$round")")
        theirs+=("$(took "$venv/bin/ubireader_extract_files" -o "$work/peer-$round" "$work/ubi")")
    done
    mv "$work/out-$rounds" "$work/out"; mv "$work/unpacked-$rounds" "$work/unpacked"; mv "$work/peer-$rounds" "$work/peer"
    hashes "$work/out" | cmp - "$work/expected" || { echo "the files extracted by tidegate differ from the originals"; exit 2; }
    hashes "$(find "$work/unpacked" -mindepth 2 -maxdepth 2 -type d | head -1)" | cmp - "$work/expected" ||
        { echo "the files unpacked by tidegate differ from the originals"; exit 2; }
    from=$(find "$work/peer" -mindepth 2 -maxdepth 2 -type d | head -1)
    hashes "$from" | cmp - "$work/expected" || echo "the files extracted by ubi_reader differ from the originals"
    rm -rf "$work"/{out,unpacked,peer}{,-*} "$work/tree"/* "$work/volume" "$work/ubi"
    echo "extract, us: tidegate ubifs extract ${ours[*]}"
    echo "extract, us: tidegate unpack ${unpack[*]}"
    echo "extract, us: ubi_reader $ubi_reader_version ${theirs[*]}"
    times() { awk "BEGIN { printf \"%.2f\", $(median "${theirs[@]}") / $(median "$@") }"; }
    echo "unpack, times as fast as ubi_reader: $(times "${unpack[@]}")"
    wanted "extract, times as fast as ubi_reader" "$(times "${ours[@]}")" ">=" "${TIMES:-20}"
}

mount() {
    local image=$judges/ubifs-cut-1g.img report attach=() open=() answer=() round from total
    if [ ! -e "$image" ]; then
        mkdir -p "$judges" "$work/job"
        echo "writing a 1 GiB chip in the lab guest"
        head -c 1G /dev/zero | tr '\0' '\377' >"$image.partial"
        # Committed data of 100 MB, then an uncommitted journal of 17 MB. Noise is made once, because nothing is compressed: the
        # guest writes a few MB a second. `split` makes 350 files in one process.
        lab/run "$work/job" --flash "$image.partial" --script write.sh --timeout 900 --env OPTIONS=compr=none --env LOAD='
            head -c 1M /dev/urandom > /run/noise
            for n in $(seq 100); do cat /run/noise; done > base; sync
            for n in $(seq 9); do split -b 3000 -a 3 /run/noise file-$n-; done
            for n in $(seq 8); do cp /run/noise synced-$n; sync -d synced-$n; done; lab-cut' ||
            [ $? -eq 126 ] || { rm -f "$image.partial"; echo "left out: mount, as the lab guest did not write the chip"; return 0; }
        mv "$image.partial" "$image"
    fi
    for round in $(seq "$rounds"); do
        from=$(now_us)
        report=$("$TIDEGATE" ubifs mount --json "$image" "$work/one")
        total=$(($(now_us) - from))
        "$TIDEGATE" unmount "$work/one"
        attach+=("$(sed 's/.*"attach_us":\([0-9]*\).*/\1/' <<<"$report")")
        open+=("$(sed 's/.*"open_us":\([0-9]*\).*/\1/' <<<"$report")")
        answer+=($((total - attach[-1])))
    done
    echo "$report" | grep -q '"clean":false' || { echo "the chip was unmounted: nothing was to be recovered"; exit 2; }
    "$TIDEGATE" ubifs info "$image" | grep journal
    echo "mount, us: scan ${attach[*]}"
    echo "mount, us: replay ${open[*]}"
    echo "mount, us: all beyond the scan, starting two processes among it ${answer[*]}"
    wanted "mount, ms beyond the scan" "$(awk "BEGIN { printf \"%.1f\", $(median "${answer[@]}") / 1000 }")" "<=" 150
}

read_warm() {
    [ -e /dev/fuse ] || { echo "left out: read, as /dev/fuse is missing"; return 0; }
    local ours=() theirs=() round
    rm -rf "$work/tree"; mkdir "$work/tree"
    head -c 200M /dev/urandom >"$work/tree/file"
    mkfs.ubifs -m 2048 -e 126976 -c 4000 -x none -r "$work/tree" -o "$work/volume"
    "$TIDEGATE" ubifs mount "$work/volume" "$work/one"
    "$TIDEGATE" mount "$work/tree" "$work/two"
    cmp "$work/one/file" "$work/two/file"
    for round in $(seq $((rounds * 3))); do
        ours+=("$(took dd if="$work/one/file" of=/dev/null bs=1M)")
        theirs+=("$(took dd if="$work/two/file" of=/dev/null bs=1M)")
    done
    "$TIDEGATE" unmount "$work/one"
    "$TIDEGATE" unmount "$work/two"
    echo "read 200 MiB, us: ubifs ${ours[*]}"
    echo "read 200 MiB, us: folder ${theirs[*]}"
    wanted "read, as fast as by tidegate mount" \
        "$(awk "BEGIN { printf \"%.2f\", $(median "${theirs[@]}") / $(median "${ours[@]}") }")" ">=" 0.9
}

write_real_time() {
    [ -e /dev/fuse ] || { echo "left out: write, as /dev/fuse is missing"; return 0; }
    local rates_1=() rates_4=() round members
    chips=$(mktemp -d "${CHIPS_DIR:-/dev/shm}/tidegate-ubifs-speed.XXXXXX")
    head -c 32M /dev/urandom >"$chips/noise"
    for round in $(seq "$rounds"); do
        for members in 1 4; do
            make_ubifs "$chips/chip" "$members" --preset tlc --blocks $((512 / members))
            "$TIDEGATE" ubifs mount "$chips/chip" "${devices[@]}" -o rw --real-time "$work/one" >/dev/null
            declare -n rates=rates_$members
            rates+=("$(took dd if="$chips/noise" of="$work/one/file" bs=16M oflag=sync iflag=fullblock)")
            cmp "$chips/noise" "$work/one/file" || { echo "the data read differs from the data written"; exit 2; }
            "$TIDEGATE" unmount "$work/one" >/dev/null
        done
    done
    rm -rf "$chips"
    echo "write 32 MiB, us: one TLC chip ${rates_1[*]}"
    echo "write 32 MiB, us: four TLC chips ${rates_4[*]}"
    wanted "write, four chips to one" \
        "$(awk "BEGIN { printf \"%.2f\", $(median "${rates_1[@]}") / $(median "${rates_4[@]}") }")" ">=" 3.5
}

for part in $parts; do
    case $part in
        extract) extract ;;
        mount) mount ;;
        read) read_warm ;;
        write) write_real_time ;;
        *) echo "$part is none of extract, mount, read, write"; exit 2 ;;
    esac
done
exit "$missed"
