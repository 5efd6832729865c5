#!/usr/bin/env python3
"""Cost of `tidegate mount --coherence watch`: memory for each known file, an idle daemon, and storms behind the mount.

    scripts/watch-cost.py [TIDEGATE] [--folder FOLDER] [--files 1000000] [--rate 50000] [--seconds 10]

Run it as root, on a quiet machine; FOLDER is on ext4, XFS, btrfs or tmpfs. Prints and appends to FOLDER/watch-cost.jsonl:

- bytes of memory of the daemon for each file that the kernel knows, in folders of 1,000;
- processor time of the daemon in SECONDS without any change;
- processor time of the daemon during SECONDS of changes of known files behind the mount (times), of known names (hard
  links made and removed), and of unknown ones, by one process at RATE calls a second, with the events read;
- the time that the changing process needs for as many calls as it can do in a second, with the watch and without.

A storm is paced in steps of 2 ms. The host merges events of one file or name that the daemon has not read yet.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

STATISTICS = "user.tidegate.stats"
TICKS = os.sysconf("SC_CLK_TCK")
STEP_S = 0.002


class Mount:
    """One mount with a watch."""

    def __init__(self, tidegate, source, target):
        self.command, self.target = tidegate, target
        words = [tidegate, "mount", "--json", "--coherence", "watch", source, target]
        done = subprocess.run(words, stdout=subprocess.PIPE, check=True)
        self.pid = json.loads(done.stdout)["pid"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run([self.command, "unmount", self.target], check=False)

    def stats(self):
        return json.loads(os.getxattr(self.target, STATISTICS))

    def processor_s(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_bytes(self):
        """Anonymous memory: not the pages of the program's file."""
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("no RssAnon")


def make_files(source, count):
    for first in range(0, count, 1000):
        folder = source / str(first)
        folder.mkdir()
        for number in range(first, min(first + 1000, count)):
            os.close(os.open(folder / str(number), os.O_WRONLY | os.O_CREAT))


def known_files(mount, count):
    """Walks the mount; the kernel may drop names at any time, so the number known is asked for."""
    walked = subprocess.run(["find", mount.target, "-size", "+1"], stdout=subprocess.DEVNULL, check=True)
    del walked
    return mount.stats()["backing"]["inodes_held"]


def change_times(source, number):
    number %= 1000
    os.utime(source / "0" / str(number))


def change_names(folder, number):
    name = folder / f"name {number // 2 % 500}"
    if number % 2 == 0:
        os.link(folder / "0", name)
    else:
        os.unlink(name)


KINDS = {
    "times of known files": change_times,
    "names in a known folder": lambda source, number: change_names(source / "0", number),
    "names in an unknown folder": lambda source, number: change_names(source.parent / "beside", number),
}


def storm(source, kind, rate, seconds, made):
    """Changes at a rate; `made` receives their number."""
    change, count = KINDS[kind], 0
    started = time.monotonic()
    while (elapsed := time.monotonic() - started) < seconds:
        while count < elapsed * rate:
            change(source, count)
            count += 1
        time.sleep(STEP_S)
    if count % 2 == 1:
        change(source, count)
    made.value = count


def unpaced(source, kind):
    """Seconds of a fixed number of changes."""
    change = KINDS[kind]
    started = time.perf_counter()
    for number in range(20_000):
        change(source, number)
    return time.perf_counter() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tidegate", type=pathlib.Path, nargs="?", default=pathlib.Path("target/release/tidegate"))
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("out"))
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=50_000)
    parser.add_argument("--seconds", type=int, default=10)
    options = parser.parse_args()
    tidegate = options.tidegate.absolute()
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = options.folder.absolute()
    work = pathlib.Path(tempfile.mkdtemp(prefix="watch-cost.", dir=folder))
    source, target, beside = work / "source", work / "target", work / "beside"
    for made in (source, target, beside):
        made.mkdir()
    results = []

    def tell(what, **values):
        record = {"kind": "watch-cost", "what": what, "kernel": platform.release(), **values}
        results.append(record)
        with open(folder / "watch-cost.jsonl", "a") as file:
            file.write(json.dumps(record) + "\n")
        print(what + ": " + ", ".join(f"{name} {value}" for name, value in values.items()), flush=True)

    try:
        make_files(source, options.files)
        (beside / "0").write_text("")
        without = {kind: [] for kind in KINDS}
        beside_watch = {kind: [] for kind in KINDS}
        with Mount(tidegate, source, target) as mount:
            before = mount.memory_bytes()
            held = known_files(mount, options.files)
            grown = mount.memory_bytes() - before
            tell("memory", known=held, bytes_of_all=grown, bytes_a_file=round(grown / held, 1))
            # The kernel may still forget names.
            time.sleep(3)
            started = mount.processor_s()
            time.sleep(options.seconds)
            tell("idle", seconds=options.seconds, processor_s=round(mount.processor_s() - started, 2))
            for kind in KINDS:
                made = multiprocessing.Value("q", 0)
                process = multiprocessing.Process(
                    target=storm, args=(source, kind, options.rate, options.seconds, made)
                )
                events, used = mount.stats()["backing"]["change_events"], mount.processor_s()
                process.start()
                process.join()
                time.sleep(0.2)
                stats = mount.stats()
                tell(
                    f"storm, {kind}",
                    calls_a_second=round(made.value / options.seconds),
                    events_read_a_second=round((stats["backing"]["change_events"] - events) / options.seconds),
                    processor_percent=round((mount.processor_s() - used) / options.seconds * 100, 1),
                    overflows=stats["backing"]["change_queue_overflows"],
                )
        for _ in range(7):
            for kind in KINDS:
                without[kind].append(unpaced(source, kind))
            with Mount(tidegate, source, target) as mount:
                subprocess.run(["find", target / "0", "-size", "+1"], stdout=subprocess.DEVNULL, check=True)
                for kind in KINDS:
                    beside_watch[kind].append(unpaced(source, kind))
        for kind in KINDS:
            ratios = [told / alone for told, alone in zip(beside_watch[kind], without[kind])]
            tell(
                f"changing process, {kind}",
                us_a_call=round(statistics.median(without[kind]) / 20_000 * 1e6, 2),
                us_a_call_watched=round(statistics.median(beside_watch[kind]) / 20_000 * 1e6, 2),
                ratio=round(statistics.median(ratios), 2),
                lowest=round(min(ratios), 2),
                highest=round(max(ratios), 2),
            )
    finally:
        if os.path.ismount(target):
            subprocess.run(["umount", "-l", target], check=False)
        if f" {work}/" not in pathlib.Path("/proc/self/mountinfo").read_text():
            shutil.rmtree(work)


sys.exit(main())
