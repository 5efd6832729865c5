"""Mounts a folder on itself with mapped ids: 0 to 999 stay, and ids from 301000 on are shown as those from 1000 on."""

import ctypes
import os
import sys

OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
AT_EMPTY_PATH, AT_FDCWD = 0x1000, -100
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH = 1, 4
MOUNT_ATTR_IDMAP = 0x00100000
CLONE_NEWUSER = 0x10000000
MAP = "0 0 1000\n301000 1000 60000\n"

libc = ctypes.CDLL(None, use_errno=True)


class Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace")]


def call(*arguments):
    answer = libc.syscall(*arguments)
    if answer < 0:
        number = ctypes.get_errno()
        sys.exit(f"call {arguments[0]}: {os.strerror(number)}")
    return answer


def user_namespace():
    ready, entered = os.pipe()
    finished, finish = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(finish)
        os.write(entered, b"e" if libc.unshare(CLONE_NEWUSER) == 0 else b"f")
        os.read(finished, 1)
        os._exit(0)
    if os.read(ready, 1) != b"e":
        sys.exit("unshare: there are no user namespaces here")
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{child}/{name}", "w") as file:
            file.write(MAP)
    namespace = os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
    os.close(finish)
    os.waitpid(child, 0)
    return namespace


path = sys.argv[1].encode()
namespace = user_namespace()
tree = call(OPEN_TREE, AT_FDCWD, path, OPEN_TREE_CLONE | os.O_CLOEXEC)
attributes = Attributes(MOUNT_ATTR_IDMAP, 0, 0, namespace)
call(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, ctypes.byref(attributes), ctypes.sizeof(attributes))
call(MOVE_MOUNT, tree, b"", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH)
