#!/usr/bin/env bash
# Unpacks dumps made by mkfs.ubifs and ubinize with everything around and inside of them that real ones have, and compares
# the links of ubi_reader's names with ubi_reader's own tools (from its registry, in a virtual environment) by `diff -r`, and by
# the time that 100 MB take. With a wheel, also unblob without and with it, and the time of a walk in Python.
#
#   scripts/judges/firmware.sh [PROGRAM [WHEEL]]
#
# Prints a line for each dump; ends with 1 if one is wrong.
set -euo pipefail
program=$(realpath "${1:-target/release/tidegate}")
wheel=${2:+$(realpath "$2")}
here=$(realpath "$(dirname "$0")")
PATH="$PATH:/usr/sbin:/sbin"
for tool in mkfs.ubifs ubinize python3; do
    command -v "$tool" >/dev/null || { echo "firmware: $tool is missing" >&2; exit 2; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
wrong=0

say() { printf 'firmware: %-58s %s\n' "$1" "$2"; }
fail() { say "$1" "WRONG: $2"; wrong=1; }

# Trees and images.
python3 - <<'PYTHON'
import os, random
random.seed(5)
for tree, files in (("rootfs", 300), ("data", 60), ("conf", 12)):
    for number in range(files):
        folder = f"{tree}/d{number % 7}/e{number % 3}"
        os.makedirs(folder, exist_ok=True)
        size = random.choice((0, 1, 100, 4096, 4097, 30000))
        text = random.random() < 0.5
        with open(f"{folder}/file {number}", "wb") as file:
            file.write(b"text " * (size // 5) if text else random.randbytes(size))
    os.symlink("d0", f"{tree}/link")
    os.link(f"{tree}/d0/e0/file 0", f"{tree}/hard")
with open("kernel", "wb") as file:
    file.write(random.randbytes(1_500_001))
PYTHON
volume() { # NAME IMAGE KIND NUMBER
    printf '[%s]\nmode=ubi\nimage=%s\nvol_id=%s\nvol_type=%s\nvol_name=%s\nvol_size=24MiB\n' "$1" "$2" "$4" "$3" "$1"
}
for tree in rootfs data conf; do
    mkfs.ubifs -m 2048 -e 126976 -c 400 -r "$tree" -o "$tree.ubifs"
done
{ volume kernel kernel static 0; volume rootfs rootfs.ubifs dynamic 1; volume data data.ubifs dynamic 2; } > first.ini
volume conf conf.ubifs dynamic 0 > second.ini
ubinize -Q 1001 -p 128KiB -m 2048 -o first.ubi first.ini
ubinize -Q 1002 -p 128KiB -m 2048 -o second.ubi second.ini

# The dumps.
python3 - <<'PYTHON'
import random
random.seed(6)
first, second = (open(name, "rb").read() for name in ("first.ubi", "second.ubi"))
block = 128 << 10
erased = b"\xff" * (5 * block)
plain = random.randbytes(96 << 10) + first + erased + second
bad = plain[:96 << 10] + first[:9 * block] + random.randbytes(block) + first[9 * block:] + erased + second
def oob(data):
    return b"".join(data[at:at + 2048] + random.randbytes(64) for at in range(0, len(data), 2048))
dumps = {
    "plain": plain, "with OOB": oob(plain), "tail of 777 bytes": plain + random.randbytes(777), "from byte 1000 on": plain[1000:],
    "bad block inside": bad, "bad block inside, with OOB": oob(bad), "with OOB, from byte 1000 on": oob(plain)[1000:],
}
for name, data in dumps.items():
    open(f"{name}.dump", "wb").write(data)
PYTHON
hashes() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum); }
for dump in *.dump; do
    name="unpack: ${dump%.dump}"
    rm -rf out
    code=0
    "$program" unpack "$dump" -o out --json > report 2> messages || code=$?
    if [ "$code" != 0 ]; then fail "$name" "exit code $code: $(head -1 messages)"; continue; fi
    problem=
    cmp -s kernel out/1001/kernel.bin || problem="kernel differs"
    for pair in rootfs:1001/rootfs data:1001/data conf:1002/conf; do
        [ "$(hashes "${pair%%:*}")" = "$(hashes "out/${pair#*:}")" ] || problem="files of ${pair%%:*} differ"
    done
    if [ "$problem" ]; then fail "$name" "$problem"; else
        say "$name" "exit 0, 2 partitions, 4 volumes, $(find out -type f ! -name report.json | wc -l) files by hash"
    fi
done

# The tools of ubi_reader beside the links.
python3 -m venv venv
venv/bin/pip install -q 'ubi_reader==0.8.16'
mkdir links
for tool in extract_files extract_images; do ln -s "$program" "links/ubireader_$tool"; done
same=0
compare() { # IMAGE TOOL OPTIONS...
    local image=$1 tool=$2 theirs=0 ours=0
    shift 2
    rm -rf theirs ours
    "venv/bin/ubireader_$tool" "$@" -o theirs "$image" > messages.theirs 2>&1 || theirs=$?
    "links/ubireader_$tool" "$@" -o ours "$image" > messages.ours 2>&1 || ours=$?
    if [ "$theirs" != "$ours" ]; then
        fail "$tool $* $image" "exit code $ours, theirs $theirs: $(tail -1 messages.ours)"
    elif ! diff -r --no-dereference theirs ours > differences; then
        fail "$tool $* $image" "$(head -1 differences)"
    elif [ "$tool" = extract_files ] && ! diff <(cd theirs && find . -printf '%p %y %m %n\n' | sort) <(cd ours && find . -printf '%p %y %m %n\n' | sort) > differences; then
        fail "$tool $* $image" "$(sed -n 2p differences)"
    else
        same=$((same + 1))
    fi
}
number=0
for shape in "2048 131072 126976" "2048 131072 129024" "4096 262144 253952" "512 16384 15872"; do
    read -r page block leb <<< "$shape"
    for compression in none lzo zlib; do
        number=$((number + 1))
        subpage=$((block - leb == page ? page / 4 : page))
        [ "$page" = 512 ] && subpage=256
        mkfs.ubifs -m "$page" -e "$leb" -c 2000 -x "$compression" -r data -o v.ubifs
        sed 's/24MiB/12MiB/' <(volume system v.ubifs dynamic 0; volume other v.ubifs dynamic 3) > v.ini
        image="clean-$number-$page-$compression.ubi"
        ubinize -Q "$((2000 + number))" -p "$block" -m "$page" -s "$subpage" -o "$image" v.ini
        compare "$image" extract_files
        compare "$image" extract_files -k -w
        compare "$image" extract_images -w
    done
done
compare conf.ubifs extract_files
cat first.ubi second.ubi > two.ubi
compare two.ubi extract_images
say "drop-in: runs on $number clean images equal to ubi_reader's" "$same of $((3 * number + 2))"

TIMES=12 ROUNDS=9 TIDEGATE=$program "$here/ubifs_speed.sh" extract || wrong=1

# unblob, and Python.
if [ "$wheel" ]; then
    python3 "$here/unblob.py" "$wheel" "$work" || wrong=1
    venv/bin/pip install -q "$wheel"
    venv/bin/python "$here/python_speed.py" || wrong=1
else
    say "unblob without and with the wheel" "left out: no wheel; make wheel"
fi
exit "$wrong"
