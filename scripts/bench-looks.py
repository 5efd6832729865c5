#!/usr/bin/env python3
"""Loads of many small calls, on mounts of two builds and on the folder itself, interleaved.

    scripts/bench-looks.py OLD NEW [--folder FOLDER] [--rounds 7] [--only WORD] [--quick]

The loads are logs with queries between their lines, SQLite, and files that are created, opened and removed. --only takes
those whose name has the word.

OLD and NEW are `tidegate` binaries, such as target/release/tidegate of two revisions. FOLDER is on the disk to measure.
Prints operations per second (median of the rounds, lowest and highest) and the ratio of NEW to OLD, and of NEW with the
kernel's writeback cache to OLD. Run it on a quiet machine: the rounds alternate, so that slow changes of the machine
affect all sides. --quick is a smoke test: one short round with meaningless figures.
"""

import argparse
import os
import pathlib
import shutil
import sqlite3
import statistics
import subprocess
import tempfile
import time

LINE = b"x" * 99 + b"\n"


def log(folder, lines, look):
    """A log of lines of 100 bytes."""
    descriptor = os.open(folder / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o644)
    for _ in range(lines):
        os.write(descriptor, LINE)
        look(descriptor)
    os.close(descriptor)


def sqlite(folder, rows, mode):
    """Transactions of one row each."""
    path = folder / f"{mode}.db"
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(f"PRAGMA journal_mode={mode}")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, content BLOB)")
    for number in range(rows):
        database.execute("INSERT INTO rows VALUES (?, ?)", (number, LINE))
    database.close()


def create(folder, count):
    """Empty files, each created and closed."""
    for number in range(count):
        os.close(os.open(folder / f"file{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def open_again(folder, count):
    """One hundred files, opened and closed in turn."""
    create(folder, min(count, 100))
    for number in range(count):
        os.close(os.open(folder / f"file{number % 100}", os.O_RDONLY))


def create_and_remove(folder, count):
    """Files that exist one after the other."""
    for _ in range(count):
        os.close(os.open(folder / "file", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        os.unlink(folder / "file")


# By name: operations, and of --quick, and the load.
LOADS = {
    "log, fstat after each line": (20000, 200, lambda folder, count: log(folder, count, os.fstat)),
    "log, pread of the head after each line": (
        20000,
        200,
        lambda folder, count: log(folder, count, lambda file: os.pread(file, 4096, 0)),
    ),
    "log, no look": (20000, 200, lambda folder, count: log(folder, count, lambda _: None)),
    "create": (5000, 50, create),
    "open": (20000, 200, open_again),
    "create and remove": (5000, 50, create_and_remove),
    "SQLite, WAL": (300, 5, lambda folder, count: sqlite(folder, count, "WAL")),
    "SQLite, DELETE": (300, 5, lambda folder, count: sqlite(folder, count, "DELETE")),
}


def rate(load, count, folder):
    place = folder / "load"
    place.mkdir()
    started = time.perf_counter()
    load(place, count)
    elapsed = time.perf_counter() - started
    shutil.rmtree(place)
    return count / elapsed


def mounted_rate(binary, load, count, folder, *arguments):
    source, mountpoint = folder / "source", folder / "mountpoint"
    source.mkdir(exist_ok=True)
    mountpoint.mkdir(exist_ok=True)
    mount = [binary, "mount", "--passthrough=off", *arguments, source, mountpoint]
    subprocess.run(mount, check=True, stdout=subprocess.DEVNULL)
    try:
        return rate(load, count, mountpoint)
    finally:
        subprocess.run([binary, "unmount", mountpoint], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path.cwd())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    loads = {name: load for name, load in LOADS.items() if options.only in name}
    rates = {name: {"native": [], "old": [], "new": [], "new, writeback on": []} for name in loads}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        folder = pathlib.Path(folder)
        for _ in range(rounds):
            for name, (full, quick, load) in loads.items():
                count = quick if options.quick else full
                rates[name]["native"].append(rate(load, count, folder))
                rates[name]["old"].append(mounted_rate(options.old.absolute(), load, count, folder))
                new = options.new.absolute()
                rates[name]["new"].append(mounted_rate(new, load, count, folder))
                rates[name]["new, writeback on"].append(mounted_rate(new, load, count, folder, "--writeback=on"))
    for name, found in rates.items():
        shown = ", ".join(
            f"{who} {statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"
            for who, values in found.items()
        )
        print(f"{name}: {shown} per second")
        for who in ["new", "new, writeback on"]:
            ratios = [new / old for new, old in zip(found[who], found["old"])]
            print(f"  {who}/old {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


main()
