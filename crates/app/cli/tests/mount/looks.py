"""Writes a file and queries it between writes. A separate program, because programs started by the tests would close copies
of a test's descriptors, and each close is a flush.

looks.py PATH fstat|pread|listing|log|times
"""

import os
import sys
import time

# From linux/time.h: the clock of file times.
CLOCK_REALTIME_COARSE = 5
RECORD = 4096
LINE = b"x" * 99 + b"\n"


def records(descriptor, look):
    for index in range(512):
        assert os.pwrite(descriptor, bytes([index % 251]) * RECORD, index * RECORD) == RECORD
        look(index)


def fstat(descriptor, index):
    found = os.fstat(descriptor)
    assert found.st_size == (index + 1) * RECORD, found
    assert found.st_blocks * 512 >= found.st_size, found


def pread(descriptor, index):
    assert os.pread(descriptor, RECORD, 0) == bytes(RECORD), index


def listing(index):
    # The test lists the folder meanwhile.
    if index % 8 == 7:
        print((index + 1) * RECORD, flush=True)
        sys.stdin.readline()


def log(descriptor):
    for index in range(5000):
        assert os.write(descriptor, LINE) == len(LINE)
        found = os.fstat(descriptor)
        assert found.st_size == (index + 1) * len(LINE), found


def times(descriptor, path):
    def told(found):
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def clock():
        return time.clock_gettime_ns(CLOCK_REALTIME_COARSE)

    for index in range(10):
        os.write(descriptor, LINE)
        before = told(os.fstat(descriptor))
        ticked = clock()
        while clock() == ticked:
            pass
        if index % 3 == 2:
            os.fsync(descriptor)
            assert told(os.fstat(descriptor)) == before
    before = told(os.fstat(descriptor))
    os.close(descriptor)
    assert told(os.stat(path)) == before


def main():
    path, mode = sys.argv[1:]
    flags = os.O_RDWR | os.O_CREAT | (os.O_APPEND if mode == "log" else 0)
    descriptor = os.open(path, flags, 0o644)
    if mode == "fstat":
        records(descriptor, lambda index: fstat(descriptor, index))
    elif mode == "pread":
        records(descriptor, lambda index: pread(descriptor, index))
    elif mode == "listing":
        records(descriptor, listing)
    elif mode == "log":
        log(descriptor)
    else:
        times(descriptor, path)


main()
