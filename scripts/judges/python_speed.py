"""Time to open a UBIFS image, walk it and read all of its files in Python: the wheel beside ubi_reader's own modules.

    python_speed.py [ROUNDS [MEBIBYTES]]

Run it with a Python that has both: `pip install target/wheels/tidegate-*.whl ubi_reader==0.8.16`. Both do the same work in a
process of their own, in turn, and write nothing; each prints a sum of the contents, which must be equal. The image is made by
mkfs.ubifs with LZO, its default, and is in the page cache. Exit code 1: the median of the ratios is below 5.
"""

import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LEB = 126976
RATIO_MIN = 5.0

TIDEGATE = """
import sys, time, zlib
started = time.perf_counter()
import tidegate
total = files = 0
with tidegate.open(sys.argv[1]) as dump:
    for fs in dump.file_systems():
        for entry in fs.entries():
            if entry.is_file():
                total += zlib.crc32(entry.read_bytes())
                files += 1
print(time.perf_counter() - started, files, total)
"""

UBI_READER = f"""
import sys, time, zlib
started = time.perf_counter()
from ubireader.ubi_io import ubi_file
from ubireader.ubifs import ubifs, walk
from ubireader.ubifs.defines import UBIFS_ITYPE_DIR, UBIFS_ITYPE_REG
from ubireader.ubifs.misc import process_reg_file
image = ubifs(ubi_file(sys.argv[1], {LEB}, 0, None))
inodes, bad = {{}}, []
walk.index(image, image.master_node.root_lnum, image.master_node.root_offs, inodes, bad)
total = files = 0
todo = list(inodes[1]["dent"])
while todo:
    entry = todo.pop()
    inode = inodes[entry.inum]
    if entry.type == UBIFS_ITYPE_DIR:
        todo += inode.get("dent", [])
    elif entry.type == UBIFS_ITYPE_REG:
        total += zlib.crc32(process_reg_file(image, inode, entry.name, inodes))
        files += 1
print(time.perf_counter() - started, files, total)
"""


def make_image(work: Path, mebibytes: int) -> Path:
    """An image of this size: text and noise in files of several sizes."""
    rng = random.Random(4)
    root = work / "root"
    words = [rng.randbytes(rng.randrange(2, 9)).hex().encode() + b" " for _ in range(2000)]
    number = written = 0
    while written < mebibytes << 20:
        folder = root / f"d{number % 20}" / f"e{number % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        size = rng.choice((500, 4096, 20000, 100000, 400000))
        # Noise stays as large as it is, text becomes half of that.
        is_text = rng.random() < 0.5
        content = b"".join(rng.choices(words, k=size // 9))[:size] if is_text else rng.randbytes(size)
        (folder / str(number)).write_bytes(content)
        written += len(content) // 2 if is_text else len(content)
        number += 1
    image = work / "image.ubifs"
    environment = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
    words_of_mkfs = ["mkfs.ubifs", "-m", "2048", "-e", str(LEB), "-c", "2000", "-r", root, "-o", image]
    subprocess.run(words_of_mkfs, env=environment, check=True)
    return image


def run(program: str, image: Path) -> "tuple[float, tuple[str, ...]]":
    words = [sys.executable, "-c", program, image]
    seconds, *result = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return float(seconds), tuple(result)


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    mebibytes = int(sys.argv[2]) if len(sys.argv) > 2 else 50
    with tempfile.TemporaryDirectory(prefix="tidegate-speed-") as folder:
        image = make_image(Path(folder), mebibytes)
        print(f"python-speed: image of {image.stat().st_size / (1 << 20):.1f} MiB")
        pairs = []
        for number in range(rounds):
            ours, our_result = run(TIDEGATE, image)
            theirs, their_result = run(UBI_READER, image)
            if our_result != their_result:
                print(f"python-speed: WRONG: {our_result} for {their_result}")
                return 1
            pairs.append((ours, theirs))
            print(f"python-speed: round {number + 1}: tidegate {ours:.3f} s, ubi_reader {theirs:.3f} s, {theirs / ours:.1f} times")
    ratio = statistics.median(theirs / ours for ours, theirs in pairs)
    medians = [statistics.median(times) for times in zip(*pairs)]
    is_enough = ratio >= RATIO_MIN
    print(
        f"python-speed: {our_result[0]} files, medians of {rounds}: tidegate {medians[0]:.3f} s, ubi_reader {medians[1]:.3f} s; "
        f"{ratio:.1f} times as fast{'' if is_enough else f', WRONG: less than {RATIO_MIN}'}"
    )
    return 0 if is_enough else 1


if __name__ == "__main__":
    sys.exit(main())
