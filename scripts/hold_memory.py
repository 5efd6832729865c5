#!/usr/bin/env python3
"""Runs a command while the free memory of a virtual machine is kept from its host.

usage: scripts/hold_memory.py MIB COMMAND...

A virtual machine may report free memory to its host (free page reporting of virtio's balloon, in blocks of 2 MiB), which takes
it back after seconds. The next use of each page then waits for the host: about 10 us, so that a file of 512 MiB is written into
the page cache at 400 MB/s after a pause and at 730 MB/s right after another file. Here MIB of memory are touched and freed
again except for one page in 256: no block of 2 MiB is free as a whole, and nothing can be reported. Take three times the bytes
that a run writes (two page caches and a card in memory), at most half of the free memory.
"""

import mmap
import subprocess
import sys

PAGE = mmap.PAGESIZE
KEPT = 256  # one page in so many


def hold(mib):
    memory = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # Huge pages would be freed as a whole.
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    for page in range(0, len(memory), PAGE):
        memory[page] = 1
    for first in range(0, len(memory), KEPT * PAGE):
        length = min((KEPT - 1) * PAGE, len(memory) - first - PAGE)
        if length > 0:
            memory.madvise(mmap.MADV_DONTNEED, first + PAGE, length)
    return memory


def main():
    if len(sys.argv) < 3 or not sys.argv[1].isdigit():
        print(__doc__, file=sys.stderr)
        return 2
    held = hold(int(sys.argv[1]))
    try:
        return subprocess.call(sys.argv[2:])
    except KeyboardInterrupt:
        return 130
    finally:
        held.close()


if __name__ == "__main__":
    sys.exit(main())
