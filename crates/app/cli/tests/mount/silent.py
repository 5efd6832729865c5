"""Mounts a FUSE file system whose daemon reads every request and answers none but the first two kinds.

A process that waits for such an answer can't be killed."""

import ctypes
import os
import struct
import sys

INIT, GETATTR = 26, 3
libc = ctypes.CDLL(None, use_errno=True)
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
if libc.mount(b"silent", sys.argv[1].encode(), b"fuse.tidegate", 6, options):
    sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
print("mounted", flush=True)
while True:
    request = os.read(device, 1 << 20)
    _, kind, number = struct.unpack("<IIQ", request[:16])
    if kind == INIT:
        answer = struct.pack("<IIIIHHIIHHI", 7, 31, 131072, 0, 12, 9, 1 << 17, 1, 32, 0, 0).ljust(64, b"\0")
    elif kind == GETATTR:
        answer = struct.pack("<QII6Q10I", 1, 0, 0, 1, *[0] * 8, 0o40755, 2, 0, 0, 0, 4096, 0)
    else:
        continue
    os.write(device, struct.pack("<IiQ", 16 + len(answer), 0, number) + answer)
