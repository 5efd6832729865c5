#!/usr/bin/env bash
# Compares files extracted by ubi_reader (from PyPI, in a virtual environment) from images after a power cut with the
# files that Linux recovered: the table of docs/guide/ubifs.md.
#
#   TIDEGATE_UBIFS_MOMENTS=51 TIDEGATE_UBIFS_KEEP=FOLDER cargo test -p ubifs --test suite linux::moment
#   scripts/judges/ubi_reader.sh FOLDER
#
# FOLDER holds NAME.img and NAME.txt (lab-hash). A file counts as recovered if its path, size and SHA-256 are those of Linux.
set -euo pipefail
folder=${1:?say which folder holds the images}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ubi_reader
"$work/venv/bin/python" - "$folder" "$work" <<'PYTHON'
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

folder, work = map(pathlib.Path, sys.argv[1:])
tool = work / "venv/bin/ubireader_extract_files"


def unescaped(name):
    return name.encode("latin-1").decode("unicode_escape").encode("latin-1")


def expected(text):
    files = {}
    for line in text.splitlines():
        path, kind, _, _, _, _, size, _, _, _, digest = line.split(" ")[:11]
        if kind == "-":
            files[unescaped(path)] = (int(size), digest)
    return files


def extracted(image):
    out = work / "out"
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run([tool, "-o", out, image], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    files = {}
    for root, _, names in os.walk(os.fsencode(out)):
        for name in names:
            path = os.path.join(root, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            # out/IMAGE SEQUENCE/VOLUME/...
            inside = os.path.relpath(path, os.fsencode(out)).split(b"/", 2)[-1]
            with open(path, "rb") as file:
                data = file.read()
            files[inside] = (len(data), hashlib.sha256(data).hexdigest())
    return files


total = right = wrong = stale = whole = images = 0
for image in sorted(folder.glob("*.img")):
    linux, theirs = expected(image.with_suffix(".txt").read_text()), extracted(image)
    good = sum(theirs.get(path) == what for path, what in linux.items())
    bad = sum(path in theirs and theirs[path] != what for path, what in linux.items())
    extra = sum(path not in linux for path in theirs)
    print(f"{image.stem}: Linux {len(linux)}, ubi_reader right {good}, wrong {bad}, not there any more {extra}", flush=True)
    images += 1
    total, right, wrong, stale = total + len(linux), right + good, wrong + bad, stale + extra
    whole += good == len(linux) and not extra
print(f"| images | files that Linux recovers | right | wrong content | missing | not there any more | images without a fault |")
print(f"|---|---|---|---|---|---|---|")
print(f"| {images} | {total} | {right} | {wrong} | {total - right - wrong} | {stale} | {whole} |")
PYTHON
