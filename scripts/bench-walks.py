#!/usr/bin/env python3
"""Programs over trees of files, on mounts of tidegate, on those of its peers, and on the native file system, interleaved.

    scripts/bench-walks.py [TIDEGATE] [--rounds 5] [--targets LABELS] [--loads WORDS] [--out FOLDER] [--quick]

Run it as root, on a quiet machine. TIDEGATE is the binary, by default target/release/tidegate. All targets are folders of
one ext4, made in FOLDER (default: out); one target is mounted at a time, freshly in each round, and the order of targets
rotates. Peers that are not installed are named and left out; PASSTHROUGH_HP names libfuse's example. `limit` is
scripts/judges/null_fuse.c, a server that has the files in memory and stores nothing, so that `git status` (which needs a new index)
and SQLite are left out; `limit-poll` looks for requests for 20 us before it sleeps.

Loads: `find` over a source tree three times (the first time nothing is cached on the mount, the host's caches are warm),
`ls -lR`, `grep -r`, `git status` with 10,000 files, `make` with nothing to do for 300 C files, `tar` and `rm -r` of the
tree, 400 SQLite transactions of one insert. Programs that only read run several times; the figure of a round is their
median.

Results: a table of medians, FOLDER/walks.md, and each sample in FOLDER/walks.jsonl: seconds, and for tidegate the requests
by kind. A ratio is native time divided by the target's time in the same round: 0.5 is half as fast; the range is that of
the rounds. Exit codes: 0 done, 1 a ratio of --require LABEL:LOAD>=RATIO is not met, 2 could not run.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import platform
import random
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
REPEATS = 3
STATISTICS = "user.tidegate.stats"
GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "safe.directory=*", "-c", "gc.auto=0"]
TIDEGATE = ["@TIDEGATE@", "mount", "@SOURCE@", "@TARGET@", "-o", "allow_other"]
# By label: the command that mounts, and the program that must be installed.
TARGETS = {
    "native": (None, None),
    "tidegate-timeout": ([*TIDEGATE, "--coherence", "timeout"], None),
    "tidegate-watch": ([*TIDEGATE, "--coherence", "watch"], None),
    "tidegate-timeout-buffered": ([*TIDEGATE, "--coherence", "timeout", "--passthrough", "off"], None),
    "tidegate-watch-buffered": ([*TIDEGATE, "--coherence", "watch", "--passthrough", "off"], None),
    "tidegate-open-kernel": ([*TIDEGATE, "--coherence", "watch", "--open", "kernel", "--read-only"], None),
    "bindfs": (["bindfs", "-o", "allow_other", "--multithreaded", "@SOURCE@", "@TARGET@"], "bindfs"),
    "mergerfs": (
        ["mergerfs", "-o", "allow_other,use_ino,minfreespace=0,category.create=ff", "@SOURCE@", "@TARGET@"],
        "mergerfs",
    ),
    "limit": (["@LIMIT@", "@TARGET@", "@SOURCE@"], "cc"),
    "limit-poll": (["@LIMIT@", "--poll", "@TARGET@", "@SOURCE@"], "cc"),
    "passthrough_hp": (["@HP@", "-o", "allow_other,fsname=passthrough_hp", "@SOURCE@", "@TARGET@"], "passthrough_hp"),
}


class Failed(Exception):
    """The measurement can't go on."""


def say(text):
    print(f"bench-walks: {text}", file=sys.stderr, flush=True)


def run(words, cwd=None, accept=(0,)):
    """Runs a program, and returns its seconds."""
    with tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        # Without close_fds Python can use vfork, so that starting a program takes the same time everywhere.
        done = subprocess.run(words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, close_fds=False)
        elapsed = time.perf_counter() - started
        if done.returncode not in accept:
            errors.seek(0)
            text = errors.read().decode(errors="replace").strip()
            raise Failed(f"{' '.join(map(str, words))} in {cwd}: exit code {done.returncode}: {text[-300:]}")
    return elapsed


# ---------------------------------------------------------------------------------------------------------- the trees


def make_tree(folder, folders, files):
    """A source tree: folders in folders, files of 100 bytes to 60 KiB."""
    drawn = random.Random(23)
    known = [folder]
    folder.mkdir()
    for number in range(folders):
        made = drawn.choice(known[-40:]) / f"folder{number}"
        made.mkdir()
        known.append(made)
    words = [b"%08x return value of function\n" % drawn.getrandbits(32) for _ in range(2000)]
    for number in range(files):
        length = int(min(60_000, 100 + drawn.expovariate(1 / 6000)))
        text = b"".join(drawn.choices(words, k=length // 30 + 1))[:length]
        (drawn.choice(known) / f"file{number}.c").write_bytes(text)
    age(folder)


def make_repository(folder, files):
    """A git repository with one commit, packed."""
    for number in range(files):
        place = folder / f"{number % 37}" / f"{number % 997}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"file{number}").write_text(f"content {number}\n" * (number % 20 + 1))
    age(folder)
    for words in [["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"], ["gc", "-q"]]:
        run([*GIT, *words], folder)


def make_project(folder, files):
    """A C project, built."""
    folder.mkdir()
    for number in range(30):
        (folder / f"part{number}.h").write_text(f"static inline int part{number}(int x) {{ return x + {number}; }}\n")
    for number in range(files):
        includes = "".join(f'#include "part{(number + step) % 30}.h"\n' for step in range(6))
        (folder / f"unit{number}.c").write_text(f"{includes}int unit{number}(int x) {{ return part{number % 30}(x); }}\n")
    (folder / "main.c").write_text("int main(void) { return 0; }\n")
    (folder / "Makefile").write_text(
        "sources := $(wildcard *.c)\nobjects := $(sources:.c=.o)\n"
        "program: $(objects)\n\tcc -o $@ $(objects)\n"
        "%.o: %.c\n\tcc -MMD -c -o $@ $<\n-include $(sources:.c=.d)\n"
    )
    age(folder)
    run(["make", "-j", str(os.cpu_count())], folder)


def age(folder):
    """Times long past: git reads files again that are as young as its index."""
    for root, _, files in os.walk(folder):
        for name in files:
            os.utime(pathlib.Path(root, name), (10**9, 10**9))


def make_all(place, archive, quick):
    place.mkdir()
    make_tree(place / "tree", 40 if quick else 437, 200 if quick else 2321)
    make_repository(place / "repository", 500 if quick else 10_000)
    make_project(place / "project", 20 if quick else 300)
    run(["tar", "-cf", archive, "-C", place, "tree"])


# ---------------------------------------------------------------------------------------------------------- the loads


def transactions(path, mode, count):
    """Inserts of one row, each in its own transaction; returns their seconds."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(f"PRAGMA journal_mode={mode}")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, content BLOB)")
    started = time.perf_counter()
    for number in range(count):
        database.execute("INSERT INTO rows VALUES (?, ?)", (number, b"x" * 100))
    elapsed = time.perf_counter() - started
    database.close()
    for name in path.parent.glob(path.name + "*"):
        name.unlink()
    return elapsed


FIND = ["find", ".", "-type", "f", "-size", "+1k"]


def walk(_, at):
    return run(FIND, at / "tree")


def listing(_, at):
    return run(["ls", "-lR", "."], at / "tree")


def search(_, at):
    # 1: nothing found, so that everything is read.
    return run(["grep", "-r", "no line has these words", "."], at / "tree", accept=(1,))


def status(_, at):
    return run([*GIT, "--no-optional-locks", "status", "--porcelain"], at / "repository")


def refresh(bench, at):
    """Makes the index fit the inodes of this mount; through the source, whose inodes it shows, if it is read-only."""
    if bench.label in READ_ONLY:
        at = bench.source(bench.label)
    return run([*GIT, "update-index", "-q", "--refresh"], at / "repository")


def build(_, at):
    return run(["make", "-q"], at / "project")


def unpack(bench, at):
    os.sync()
    (at / "unpacked").mkdir()
    return run(["tar", "-xf", bench.archive, "-C", at / "unpacked"])


def remove(_, at):
    os.sync()
    return run(["rm", "-r", at / "unpacked"])


def sqlite_delete(bench, at):
    return transactions(at / "delete.db", "DELETE", bench.inserts)


def sqlite_wal(bench, at):
    return transactions(at / "wal.db", "WAL", bench.inserts)


# In this order: what is done first and not measured, the load, and whether it is repeated.
LOADS = {
    "first walk": ([], walk, False),
    "second walk": ([], walk, False),
    "third walk": ([], walk, True),
    "ls -lR": ([listing], listing, True),
    "grep -r": ([search], search, True),
    "git status": ([refresh, status], status, True),
    "make": ([build, build], build, True),
    "unpack": ([], unpack, False),
    "remove": ([], remove, False),
    "sqlite DELETE": ([], sqlite_delete, False),
    "sqlite WAL": ([], sqlite_wal, False),
}
# The no-op servers drop what is written.
LIMITS = ["limit", "limit-poll"]
WITHOUT_DATA = ["first walk", "second walk", "third walk", "ls -lR", "grep -r", "make", "unpack", "remove"]
READ_ONLY = ["tidegate-open-kernel"]
CHANGING = ["unpack", "remove", "sqlite DELETE", "sqlite WAL"]
# A load that only makes sense after another one.
NEEDS = {"second walk": "first walk", "third walk": "second walk", "remove": "unpack"}


# --------------------------------------------------------------------------------------------------------- the rounds


def requests_of(target):
    """Requests by kind, of a mount of tidegate; its own query costs the ones in `getxattr`."""
    document = json.loads(os.getxattr(target, STATISTICS))
    return {one["operation"]: one["count"] for one in document["session"]["operations"]}


class Bench:
    """One ext4, the sources on it, and the samples."""

    def __init__(self, options, work, sink):
        self.options = options
        self.work = work
        self.sink = sink
        self.inserts = 20 if options.quick else 400
        self.archive = work / "tree.tar"
        # The target that is measured.
        self.label = "native"
        self.samples = collections.defaultdict(dict)
        self.requests = collections.defaultdict(list)

    def write(self, record):
        self.sink.write(json.dumps(record) + "\n")
        self.sink.flush()

    def source(self, label):
        return self.work / "ext4" / label

    @contextlib.contextmanager
    def disk(self):
        image, place = self.work / "ext4.img", self.work / "ext4"
        free = shutil.disk_usage(self.work).free - (1 << 30)
        if free < 2 << 30:
            raise Failed(f"{self.work}: {free >> 20} MiB are free beside 1 GiB, 2048 are needed")
        with open(image, "wb") as file:
            file.truncate(min(8 << 30, free))
        # Without lazy initialisation no kernel thread writes during the measurement.
        run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", image])
        place.mkdir()
        run(["mount", "-t", "ext4", "-o", "loop,discard", image, place])
        try:
            yield
        finally:
            unmount(["umount"], place)

    @contextlib.contextmanager
    def mounted(self, label):
        """The folder in which the target's files are."""
        command, _ = TARGETS[label]
        source, target = self.source(label), self.work / label
        if command is None:
            yield source
            return
        target.mkdir(exist_ok=True)
        replaced = {
            "@TIDEGATE@": self.options.tidegate,
            "@SOURCE@": source,
            "@TARGET@": target,
            "@HP@": program_of("passthrough_hp"),
            "@LIMIT@": self.work / "null_fuse",
        }
        log = self.work / f"{label}.log"
        with open(log, "wb") as output:
            words = [str(replaced.get(word, word)) for word in command]
            # In a separate session: Ctrl-C reaches only this program, which removes the mount.
            done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
        try:
            deadline = time.monotonic() + 5
            while not os.path.ismount(target) and time.monotonic() < deadline:
                time.sleep(0.05)
            if done.returncode != 0 or not os.path.ismount(target):
                raise Failed(f"{label} is not mounted: {log.read_text(errors='replace').strip()[-300:]}")
            yield target
        finally:
            is_own = command[0] == "@TIDEGATE@"
            unmount([self.options.tidegate, "unmount"] if is_own else ["umount"], target)

    def session(self, round_number, position, label, loads):
        """All loads on one mount."""
        if label in LIMITS:
            loads = [name for name in loads if name in WITHOUT_DATA]
        if label in READ_ONLY:
            loads = [name for name in loads if name not in CHANGING]
        if not loads:
            return
        self.label = label
        # The host's caches are warm everywhere.
        run(FIND, self.source(label))
        with self.mounted(label) as at:
            is_own = TARGETS[label][0] is not None and TARGETS[label][0][0] == "@TIDEGATE@"
            for name in loads:
                before, load, is_repeated = LOADS[name]
                for prepare in before:
                    prepare(self, at)
                seconds, requests = [], None
                for _ in range(REPEATS if is_repeated else 1):
                    counted = requests_of(at) if is_own else None
                    seconds.append(load(self, at))
                    requests = self.counted_since(at, counted) if is_own else None
                record = {"round": round_number, "position": position, "target": label, "load": name}
                self.write({**record, "seconds": seconds, "requests": requests})
                self.samples[name, label][round_number] = statistics.median(seconds)
                if requests is not None:
                    self.requests[name, label].append(requests)

    @staticmethod
    def counted_since(at, before):
        after = requests_of(at)
        again = requests_of(at)
        own = {kind: again[kind] - after.get(kind, 0) for kind in again}
        found = {kind: count - before.get(kind, 0) - own.get(kind, 0) for kind, count in after.items()}
        return {kind: count for kind, count in found.items() if count > 0}


def unmount(command, place):
    for attempt in range(50):
        if not os.path.ismount(place):
            return
        done = subprocess.run([*command, place], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if done.returncode != 0:
            time.sleep(0.1 if attempt < 20 else 0.5)
    if os.path.ismount(place):
        subprocess.run(["umount", "-l", place])


def program_of(name):
    given = os.environ.get("PASSTHROUGH_HP") if name == "passthrough_hp" else None
    return given or shutil.which(name)


def available(labels):
    for label in labels:
        if label not in TARGETS:
            raise Failed(f"{label} is no target; the targets are {', '.join(TARGETS)}")
    found = []
    for label in ["native", *(label for label in labels if label != "native")]:
        program = TARGETS[label][1]
        if program is not None and program_of(program) is None:
            say(f"left out: {label}: {program} is not installed")
        else:
            found.append(label)
    return found


# ---------------------------------------------------------------------------------------------------------- the table


def ratios_of(bench, name, label):
    """Native time by the target's time, for each round that has both."""
    native, own = bench.samples[name, "native"], bench.samples[name, label]
    return [native[number] / own[number] for number in sorted(own) if number in native]


def table(bench, loads, labels):
    lines = [
        "Native time divided by the target's: median of the rounds (lowest to highest).",
        "",
        "| load | native, ms | " + " | ".join(labels[1:]) + " |",
        "|---" * (len(labels) + 1) + "|",
    ]
    for name in loads:
        cells = [name, f"{statistics.median(bench.samples[name, 'native'].values()) * 1000:.1f}"]
        for label in labels[1:]:
            ratios = ratios_of(bench, name, label)
            cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "")
        lines.append("| " + " | ".join(cells) + " |")
    own = [label for label in labels if any(bench.requests[name, label] for name in loads)]
    lines += ["", "Requests to tidegate in the last round:", ""]
    for name in loads:
        for label in own:
            if bench.requests[name, label]:
                counts = sorted(bench.requests[name, label][-1].items(), key=lambda one: -one[1])
                shown = ", ".join(f"{kind} {count}" for kind, count in counts) or "none"
                lines.append(f"- {name}, {label}: {shown}")
    return "\n".join(lines) + "\n"


def unmet(bench, requirements):
    """Texts of requirements that are not met."""
    found = []
    for text in requirements:
        place, _, bound = text.partition(">=")
        label, _, name = place.partition(":")
        if name not in LOADS or label not in TARGETS or not bound:
            raise Failed(f"--require {text}: expected LABEL:LOAD>=RATIO, such as 'tidegate-watch:second walk>=0.9'")
        ratios = ratios_of(bench, name, label)
        if ratios and statistics.median(ratios) < float(bound):
            found.append(f"{name} on {label}: {statistics.median(ratios):.2f} of native, required {bound}")
    return found


def measure(options, work, sink):
    labels = available(options.targets.split(",") if options.targets else list(TARGETS))
    words = options.loads.split(",") if options.loads else [""]
    wanted = {name for name in LOADS for word in words if word in name}
    while extra := {NEEDS[name] for name in wanted if name in NEEDS} - wanted:
        wanted |= extra
    loads = [name for name in LOADS if name in wanted]
    if not loads:
        raise Failed(f"no load has {options.loads!r} in its name; the loads are {', '.join(LOADS)}")
    bench = Bench(options, work, sink)
    unmet(bench, options.require)
    version = subprocess.run([options.tidegate, "--version"], stdout=subprocess.PIPE, check=True, text=True)
    head = {
        "kind": "bench-walks",
        "command": sys.argv,
        "tidegate": version.stdout.strip(),
        "kernel": platform.release(),
        "processors": os.cpu_count(),
        "load_average": os.getloadavg(),
        "rounds": options.rounds,
        "repeats": REPEATS,
    }
    bench.write(head)
    with bench.disk():
        say("makes the trees")
        make_all(bench.source("native"), bench.archive, options.quick)
        if any(label in labels for label in LIMITS):
            run(["cc", "-O2", "-o", work / "null_fuse", HERE / "judges" / "null_fuse.c"])
        for label in labels[1:]:
            run(["cp", "-a", "-T", bench.source("native"), bench.source(label)])
        os.sync()
        for number in range(options.rounds):
            turn = number % len(labels)
            order = labels[turn:] + labels[:turn]
            for position, label in enumerate(order):
                try:
                    bench.session(number, position, label, loads)
                except Failed as failure:
                    if label == "native" or number > 0:
                        raise
                    say(f"left out: {label}: {failure}")
                    labels = [other for other in labels if other != label]
                    for name in loads:
                        bench.samples.pop((name, label), None)
            say(f"round {number + 1} of {options.rounds} is done")
    return bench, loads, labels


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tidegate", type=pathlib.Path, nargs="?", default=pathlib.Path("target/release/tidegate"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--targets", default="", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--loads", default="", help="words of their names, with commas")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out"))
    parser.add_argument("--require", action="append", default=[], metavar="LABEL:LOAD>=RATIO")
    parser.add_argument("--quick", action="store_true", help="small trees: a smoke test with meaningless figures")
    options = parser.parse_args()
    options.tidegate = options.tidegate.absolute()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    try:
        if os.geteuid() != 0:
            raise Failed("needs root: for the ext4 on a loop device and the mounts")
        if not os.access(options.tidegate, os.X_OK):
            raise Failed(f"{options.tidegate} is no program; `make build` makes target/release/tidegate")
        options.out.mkdir(parents=True, exist_ok=True)
        out = options.out.absolute()
        work = pathlib.Path(tempfile.mkdtemp(prefix="walks.", dir=out))
        partial = out / "walks.jsonl.partial"
        try:
            with open(partial, "w") as sink:
                bench, loads, labels = measure(options, work, sink)
        finally:
            remove_work(work)
        partial.rename(out / "walks.jsonl")
        text = table(bench, loads, labels)
        (out / "walks.md").write_text(text)
        print(text, end="")
        failures = unmet(bench, options.require)
    except (Failed, OSError, subprocess.CalledProcessError) as failure:
        say(str(failure))
        return 2
    except KeyboardInterrupt:
        return 130
    for failure in failures:
        say(f"not met: {failure}")
    say(f"took {time.monotonic() - started:.0f} s")
    return 1 if failures else 0


def remove_work(work):
    """Removes the files, unless something is still mounted there: that would remove files of others."""
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    if f" {work}/" in mounts:
        say(f"something is still mounted in {work}; it is left there")
    else:
        shutil.rmtree(work)


sys.exit(main())
