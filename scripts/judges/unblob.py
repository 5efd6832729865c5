"""Stock unblob against unblob with the wheel, on the dumps of firmware.sh and on two chips written by Linux in the lab guest.

    unblob.py WHEEL WORK

WORK has the trees and images of firmware.sh. A line for each dump; ends with 1 if a file is missing or differs with the wheel, if
stock unblob gets a file that unblob with the wheel does not, or if a file of unblob changed.
"""

import hashlib
import os
import random
import shutil
import subprocess
import sys
import venv
from pathlib import Path

UNBLOB = ["unblob==26.6.4", "ubi_reader==0.8.16"]
HERE = Path(__file__).resolve().parent
BLOCK, PAGE, BLOCKS = 128 << 10, 2048, 512
SYNCED = 600

Tree = dict


def say(name: str, verdict: str) -> None:
    print(f"firmware: {name:<58} {verdict}", flush=True)


def hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tree_of(folder: Path) -> Tree:
    """Hashes of the regular files of a folder by path."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): hash_of(path) for path in files}


def python_with(folder: Path, packages: "list[str]") -> Path:
    """A virtual environment with these packages."""
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin" / "pip", "install", "-q", *packages], check=True)
    return folder / "bin"


def files_of_unblob(programs: Path) -> Tree:
    (package,) = (programs.parent / "lib").glob("python3*/site-packages/unblob")
    return {path: digest for path, digest in tree_of(package).items() if "__pycache__" not in path}


def run_unblob(programs: Path, dump: Path, out: Path) -> Tree:
    """Runs unblob and returns its output."""
    shutil.rmtree(out, ignore_errors=True)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    log = out.with_suffix(".log")
    words = [programs / "unblob", "--log", log, "--report", out.with_suffix(".json"), "-f", "-e", out, dump]
    subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return tree_of(out)


def found_in(output: Tree, expected: Tree) -> int:
    """The number of expected files that lie below one folder of the output, each at its path with its content; of the path `*`
    anywhere."""
    if set(expected) == {"*"}:
        return int(expected["*"] in output.values())
    folders: "dict[str, int]" = {}
    wanted = {path.rpartition("/")[2] for path in expected}
    for path, digest in output.items():
        if path.rpartition("/")[2] not in wanted:
            continue
        parts = path.split("/")
        for depth in range(len(parts)):
            below = "/".join(parts[depth:])
            if expected.get(below) == digest:
                folder = "/".join(parts[:depth])
                folders[folder] = folders.get(folder, 0) + 1
    return max(folders.values(), default=0)


LOAD = f"""
import os, random
os.makedirs("base")
rng = random.Random(8)
for number in range(200):
    with open(f"base/{{number}}", "wb") as file:
        file.write(rng.randbytes(rng.randrange(20000)))
os.sync()
print("the base is written", flush=True)
for number in range({SYNCED}):
    folder = f"synced/{{number % 9}}"
    os.makedirs(folder, exist_ok=True)
    with open(f"{{folder}}/{{number}}", "wb") as file:
        file.write(rng.randbytes(rng.randrange(9000)))
        file.flush()
        os.fsync(file.fileno())
print("all is synced", flush=True)
"""


def written_by_linux(work: Path, cut: bool) -> "tuple[Path, Tree] | None":
    """A chip that Linux wrote in the lab guest, cut or unmounted, and its files."""
    if os.environ.get("TIDEGATE_LAB") == "no":
        say(f"unblob: written by Linux, {'cut' if cut else 'clean'}", "left out: TIDEGATE_LAB=no")
        return None
    job = work / f"guest-{'cut' if cut else 'clean'}"
    job.mkdir()
    (job / "load.py").write_text(LOAD)
    chip = job / "chip.bin"
    chip.write_bytes(b"\xff" * (BLOCKS * BLOCK))
    # The files as another Python makes them of the same numbers.
    expected = job / "expected"
    expected.mkdir()
    subprocess.run([sys.executable, job / "load.py"], cwd=expected, stdout=subprocess.DEVNULL, check=True)
    load = f"{sys.executable} /host/load.py" + ("; lab-cut" if cut else "")
    words = [HERE.parents[1] / "lab" / "run", job, "--flash", chip, "--script", "write.sh", "--timeout", "900"]
    with open(job / "output", "wb") as output:
        done = subprocess.run(
            [*words, "--env", f"LOAD={load}", "--env", f"FLASH=page={PAGE} block={BLOCK}"],
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != (126 if cut else 0):
        last = (job / "output").read_text(errors="replace").splitlines()[-3:]
        say(f"unblob: written by Linux, {'cut' if cut else 'clean'}", f"left out: lab/run ended with {done.returncode}: {last}")
        return None
    return chip, tree_of(expected)


def main() -> int:
    wheel, work = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    stock = python_with(work / "venv-stock", UNBLOB)
    programs = python_with(work / "venv-wheel", UNBLOB)
    before = files_of_unblob(programs)
    subprocess.run([programs / "pip", "install", "-q", wheel], check=True)

    trees = {name: tree_of(work / name) for name in ("rootfs", "data", "conf")}
    image = {"rootfs": trees["rootfs"]}
    first = (work / "first.ubi").read_bytes()
    noise = random.Random(12).randbytes
    dumps = {"clean": (work / "first.ubi", {"rootfs": trees["rootfs"], "data": trees["data"]})}
    for name in ("plain", "with OOB", "bad block inside", "bad block inside, with OOB", "tail of 777 bytes", "from byte 1000 on"):
        dumps[f"two partitions, {name}"] = (work / f"{name}.dump", trees)
    erased = work / "erased.bin"
    erased.write_bytes(first[: 9 * BLOCK] + b"\xff" * (3 * BLOCK) + first[9 * BLOCK :])
    dumps["erased blocks inside"] = (erased, dumps["clean"][1])
    hidden = work / "hidden.bin"
    # A gzip in blocks that UBI does not know, inside of a partition.
    subprocess.run(["gzip", "-kf", work / "kernel"], check=True)
    packed = (work / "kernel.gz").read_bytes()
    packed += b"\xff" * (-len(packed) % BLOCK)
    hidden.write_bytes(first[: 9 * BLOCK] + packed + first[9 * BLOCK :])
    kernel = {"*": hash_of(work / "kernel")}
    dumps["another file inside of a partition"] = (hidden, {**dumps["clean"][1], "gzip": kernel})
    bare = work / "rootfs.ubifs"
    dumps["UBIFS without UBI"] = (bare, image)
    between = work / "between.bin"
    between.write_bytes(noise(1000) + packed + bare.read_bytes() + noise(777) + first)
    dumps["UBIFS, gzip and UBI between noise"] = (between, dumps["clean"][1])
    for cut in (False, True):
        chip = written_by_linux(work, cut)
        if chip is not None:
            dumps[f"written by Linux, {f'cut, {SYNCED} fsynced files' if cut else 'unmounted'}"] = (chip[0], {"chip": chip[1]})

    wrong = 0
    for name, (dump, expected) in dumps.items():
        theirs = run_unblob(stock, dump, work / "out-stock")
        ours = run_unblob(programs, dump, work / "out-wheel")
        wanted = sum(len(tree) for tree in expected.values())
        counts = [sum(found_in(output, tree) for tree in expected.values()) for output in (theirs, ours)]
        # Contents that only stock unblob has: all but carved pieces of the dump itself.
        lost = [
            path
            for path, digest in theirs.items()
            if digest not in ours.values() and not path.endswith((".unknown", ".padding", ".ubi", ".ubifs"))
        ]
        verdict = f"stock {counts[0]}, with the wheel {counts[1]} of {wanted} files by hash"
        if counts[1] != wanted or lost:
            wrong = 1
            verdict = f"WRONG: {verdict}" + (f"; only stock unblob has {len(lost)}, such as {lost[0]}" if lost else "")
        say(f"unblob: {name}", verdict)
    if files_of_unblob(programs) == before:
        say("unblob: its own files", f"{len(before)} unchanged")
    else:
        wrong = 1
        say("unblob: its own files", "WRONG: changed by the wheel")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
