#!/usr/bin/env python3
"""Compares cells of `tidegate study` with fio on the same mount in the same round.

    scripts/judges/study_fio.py [TIDEGATE] [--rounds 15] [--size 256m] [--card gt-i9300] [--time-scale 9] [--out FILE] [--quick]

Run it as root, on a quiet machine, with fio. ext4 on an attached card is mounted by `tidegate mount` without passthrough;
the cells are those of a plan for that mounted folder (`device = "directory:PATH"`). In each round the study measures one
round of all its cells, and fio runs the same loads in the same folder, in alternating order. Prints the ratio of the
study's MB/s to fio's by load: the median and the range of the rounds; each pair is appended to FILE (JSON lines).

Exit codes: 0 every median lies within 5 %, 1 one does not, 2 could not run. --quick: one round of 16 MiB, no verdict.
"""

import argparse
import contextlib
import csv
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

NEAR = 0.05
SETTLE_S = 1
# Passes of the read load: one is over in some 40 ms, and fio reports a time in milliseconds.
PASSES = 64
# The pages of a file that was written out and left alone this long outlive its opens.
UNCHANGED_S = 3
# By name: the flags of `tidegate bench file`, and the words of fio. The final sync is within both times.
LOADS = {
    "write-512k": (
        {"pattern": "sequential-write", "record": "512k", "final-sync": "timed"},
        ["--rw=write", "--bs=512k", "--end_fsync=1"],
    ),
    "write-4k": (
        {"pattern": "sequential-write", "record": "4k", "final-sync": "timed"},
        ["--rw=write", "--bs=4k", "--end_fsync=1"],
    ),
    # No `--loops`: fio opens the file again for each, and an open of a file that is young or not written out drops its
    # pages (docs/guide/mount.md).
    "read-512k": (
        {"pattern": "sequential-read", "record": "512k", "cache": "warm", "passes": str(PASSES)},
        ["--rw=read", "--bs=512k", "--invalidate=0", "--pre_read=1"],
    ),
    "fsync-16k": (
        {"pattern": "sequential-write", "record": "16k", "mode": "fsync", "records": "256"},
        ["--rw=write", "--bs=16k", "--fsync=1", "--number_ios=256"],
    ),
}


def run(words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)
    if done.returncode:
        print(f"study_fio: {' '.join(map(str, words))}: exit code {done.returncode}: {done.stderr.strip()[-500:]}", file=sys.stderr)
        sys.exit(2)
    return done.stdout


def plan(mount, size):
    text = f"""name = "agreement with fio"
[environment]
device = "directory:{mount}"
[workload]
kind = "file"
size = "{size}"
[defaults]
path = "native"
[axes]
setting = {json.dumps(list(LOADS))}
"""
    for name, (flags, _) in LOADS.items():
        text += f"[setting.{name}]\n" + "".join(f"workload.{key} = {json.dumps(value)}\n" for key, value in flags.items())
    return text


def study_round(tidegate, folder, text):
    """MB/s by load, of one round of a study."""
    folder.mkdir()
    (folder / "plan.toml").write_text(text)
    run([tidegate, "study", "run", "plan.toml", "--rounds", "1", "-d", "study"], cwd=folder)
    table = csv.DictReader(run([tidegate, "study", "report", "study", "--format", "csv"], cwd=folder).splitlines())
    return {row["values"].removeprefix("setting="): float(row["value"]) for row in table}


def fio_round(folder, size, source):
    """MB/s by load, of fio."""
    rates = {}
    for name, (_, words) in LOADS.items():
        folder.mkdir()
        common = ["--name=x", f"--directory={folder}", f"--size={size}", "--ioengine=psync", "--fallocate=none", "--randrepeat=0"]
        if "--rw=read" in words:
            run(["fio", *common, *words, "--create_only=1"])
            run(["sync", "-f", source])
            time.sleep(UNCHANGED_S)
            common.append(f"--io_size={PASSES * mebibytes(size)}m")
        job = json.loads(run(["fio", *common, "--output-format=json", *words]))["jobs"][0]
        rates[name] = job["read" if "--rw=read" in words else "write"]["bw_bytes"] / 1e6
        shutil.rmtree(folder)
    return rates


def mebibytes(size):
    number, unit = int(size[:-1]), size[-1].lower()
    return number * {"m": 1, "g": 1024}[unit]


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("tidegate", nargs="?", default="target/release/tidegate")
    words.add_argument("--rounds", type=int, default=15)
    words.add_argument("--size", default="256m", help="with m or g")
    words.add_argument("--card", default="gt-i9300")
    words.add_argument("--time-scale", default="9")
    words.add_argument("--out", default="out/study-fio.jsonl")
    words.add_argument("--quick", action="store_true")
    options = words.parse_args()
    if options.quick:
        options.rounds, options.size = 1, "16m"
    tidegate = pathlib.Path(options.tidegate).resolve()
    if not tidegate.exists() or not shutil.which("fio"):
        print(f"study_fio: needs {tidegate} and fio: make build, apt install fio", file=sys.stderr)
        sys.exit(2)
    out = pathlib.Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        place = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="study-fio-")))
        source, mount = place / "source", place / "mount"
        source.mkdir()
        mount.mkdir()
        card = json.loads(run([tidegate, "emmc", "attach", "--json", "--card", options.card, "--size", "2g", "--time-scale", options.time_scale]))
        stack.callback(run, [tidegate, "emmc", "detach", card["device"]])
        run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", card["device"]])
        run(["mount", card["device"], source])
        stack.callback(run, ["umount", source])
        run([tidegate, "mount", source, mount, "--passthrough", "off"])
        stack.callback(run, [tidegate, "unmount", mount])
        text, ratios = plan(mount, options.size), {name: [] for name in LOADS}
        with out.open("a") as lines:
            for number in range(options.rounds):
                sides = {
                    "study": lambda: study_round(tidegate, place / f"study{number}", text),
                    "fio": lambda: fio_round(mount / "fio", options.size, source),
                }
                rates = {}
                for side in sorted(sides, reverse=number % 2 == 0):
                    run(["sync", "-f", source])
                    time.sleep(SETTLE_S)
                    rates[side] = sides[side]()
                for name, found in ratios.items():
                    found.append(rates["study"][name] / rates["fio"][name])
                print(json.dumps({"round": number, "card": options.card, "size": options.size, **rates}), file=lines, flush=True)
                print(f"round {number + 1} of {options.rounds}: " + ", ".join(f"{n} {r[-1]:.3f}" for n, r in ratios.items()), flush=True)
    apart = []
    for name, found in ratios.items():
        median = statistics.median(found)
        if abs(median - 1) > NEAR:
            apart.append(name)
        print(f"{name}: {median:.3f} ({min(found):.3f} to {max(found):.3f}) of fio, {len(found)} rounds")
    if apart and not options.quick:
        print(f"study_fio: more than {NEAR:.0%} apart: {', '.join(apart)}", file=sys.stderr)
        sys.exit(1)


main()
