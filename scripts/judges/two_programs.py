#!/usr/bin/env python3
"""Runs `bench file` and `bench sqlite` of two builds of tidegate in turn: is a new one as fast as an old one?

    scripts/judges/two_programs.py OLD NEW [--rounds 15] [--samples FILE]

Run it as root, on a quiet machine with 6 GiB of free memory; six minutes. Files are on a tmpfs and on an ext4 in it, both made in
a temporary folder and removed. In each round each of OLD, NEW and NEW once more runs each load, and the first one rotates. Ratios
are formed in the round: the median, and the interval of order statistics (95 %). NEW beside itself is the machine's noise.

Exit codes: 0 done, 2 could not run. It judges nothing: read whether 1 is in the intervals.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

FILE = ["file", "--record=4096", "--data=zero", "--seed=1"]
SQLITE = ["sqlite", "--operation=insert", "--synchronous=full", "--transactions=500", "--tables=3", "--statements=prepared",
          "--transaction=explicit", "--keys=random", "--values=distinct", "--checkpoint=inside", "--seed=1"]
PATTERNS = ["sequential-read", "random-read", "sequential-write", "random-write"]


def loads():
    """By name: words for `tidegate bench`, and whether the folder is that of ext4."""
    found = {}
    for mode, pattern in [(mode, pattern) for mode in ("buffered", "mmap") for pattern in PATTERNS]:
        words = [*FILE, f"--pattern={pattern}", f"--mode={mode}", "--size=512m", "--threads=1", "--cache=warm"]
        found[f"{mode} {pattern}"] = (words + writing(pattern), False)
    for pattern in ("random-read", "sequential-write"):
        words = [*FILE, f"--pattern={pattern}", "--mode=buffered", "--size=32m", "--threads=8", "--cache=as-is"]
        found[f"buffered {pattern}, 8 threads"] = (words + writing(pattern), False)
    for depth in (1, 32):
        words = [*FILE, "--pattern=random-read", "--mode=direct", "--size=64m", "--engine=io_uring", f"--depth={depth}"]
        found[f"direct random-read, io_uring {depth} deep"] = ([*words, "--cache=as-is"], True)
    for journal in ("delete", "wal", "memory", "off"):
        found[f"SQLite inserts, journal {journal}"] = ([*SQLITE, f"--journal={journal}"], True)
    return found


def writing(pattern):
    return ["--overwrite", "--fsync-at-end"] if pattern.endswith("write") else []


def seconds(program, words, folder):
    command = [program, "bench", words[0], folder, *words[1:], "--json", "--progress=off", "--no-history"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return sum(sample["elapsed_ns"] for sample in json.loads(done.stdout)["samples"]) / 1e9


def ratios(rounds, side, to):
    """Median and interval of the speed of a side, as a share of that of another."""
    found = sorted(one[to] / one[side] for one in rounds)
    cut = max(0, int(len(found) / 2 - 0.98 * len(found) ** 0.5)) if len(found) > 5 else 0
    return f"{statistics.median(found):.2f} [{found[cut]:.2f}, {found[-1 - cut]:.2f}]"


def measure(options, tmpfs, ext4, sink):
    programs = [("old", options.old), ("new", options.new), ("again", options.new)]
    measured = {name: [] for name in loads()}
    for number in range(options.rounds):
        turn = number % len(programs)
        for name, (words, is_on_ext4) in loads().items():
            folder = ext4 if is_on_ext4 else tmpfs
            one = {side: seconds(program, words, folder) for side, program in programs[turn:] + programs[:turn]}
            sink.write(json.dumps({"round": number, "load": name, **one}) + "\n")
            sink.flush()
            measured[name].append(one)
        print(f"two_programs: round {number + 1} of {options.rounds} is done", file=sys.stderr)
    print("| load | new / old | new / new |\n|---|---|---|")
    for name, rounds in measured.items():
        print(f"| {name} | {ratios(rounds, 'new', 'old')} | {ratios(rounds, 'again', 'new')} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--samples", type=pathlib.Path, default=pathlib.Path("two_programs.jsonl"))
    options = parser.parse_args()
    options.old, options.new = options.old.absolute(), options.new.absolute()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    mounted = []
    try:
        with tempfile.TemporaryDirectory() as work, open(options.samples, "w") as sink:
            tmpfs, ext4 = pathlib.Path(work, "tmpfs"), pathlib.Path(work, "ext4")
            try:
                for folder, words in [(tmpfs, ["-t", "tmpfs", "-o", "size=4g", "tmpfs"]), (ext4, ["-o", "loop", tmpfs / "image"])]:
                    folder.mkdir()
                    if folder == ext4:
                        subprocess.run(["truncate", "-s", "2G", tmpfs / "image"], check=True)
                        subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", tmpfs / "image"], check=True)
                    subprocess.run(["mount", *words, folder], check=True)
                    mounted.append(folder)
                measure(options, tmpfs, ext4, sink)
            finally:
                for folder in reversed(mounted):
                    subprocess.run(["umount", folder], check=False)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"two_programs: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
