"""Prints a file system's answers to unusual calls: flags, extended attributes, ACLs, holes, unnamed files.

answers.py FOLDER: makes the calls in FOLDER, as root, and prints a line for each: the call and its result.
"""

import ctypes
import errno
import fcntl
import os
import stat
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
GET_FLAGS, SET_FLAGS = 0x80086601, 0x40086602
COMPRESS, SYNC, IMMUTABLE, APPEND, DIRSYNC = 0x04, 0x08, 0x10, 0x20, 0x10000
NAMES = {COMPRESS: "compress", SYNC: "sync", IMMUTABLE: "immutable", APPEND: "append", DIRSYNC: "dirsync"}


def answer(what, call):
    try:
        result = call()
    except OSError as error:
        result = errno.errorcode[error.errno]
    print(f"{what}: {'done' if result is None else result}")


def call(function, *arguments):
    if function(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "")


def opened(path, flags=os.O_RDONLY):
    """Runs a function on a descriptor and closes the descriptor afterwards."""

    def run(use):
        descriptor = os.open(path, flags, 0o644)
        try:
            return use(descriptor)
        finally:
            os.close(descriptor)

    return run


def make(path):
    opened(path, os.O_RDWR | os.O_CREAT)(lambda descriptor: os.write(descriptor, b"content"))


def flags_of(path):
    raw = opened(path)(lambda descriptor: fcntl.ioctl(descriptor, GET_FLAGS, bytes(8)))
    (flags,) = struct.unpack("I", raw[:4])
    known = [name for flag, name in NAMES.items() if flags & flag]
    rest = flags & ~sum(NAMES)
    return " ".join(known + ([hex(rest)] if rest else [])) or "none"


def set_flags(path, flags):
    opened(path)(lambda descriptor: fcntl.ioctl(descriptor, SET_FLAGS, struct.pack("l", flags)))


def rename(old, new, flags):
    call(libc.renameat2, -100, old.encode(), -100, new.encode(), flags)


def link_open(descriptor, name):
    call(libc.linkat, -100, f"/proc/self/fd/{descriptor}".encode(), -100, name.encode(), 0x400)


def flags():
    make("file")
    os.mkdir("folder")
    for path in [".", "file", "folder"]:
        answer(f"flags of {path} at first", lambda: flags_of(path))
    for path in ["file", "folder"]:
        for flag in [0, COMPRESS, SYNC, DIRSYNC, COMPRESS | SYNC | DIRSYNC]:
            answer(f"set flags {flag:#x} of {path}", lambda: set_flags(path, flag))
            answer("are now", lambda: flags_of(path))
    for flag in [0x01, 0x02, 0x40, 0x80, 0x4000, 0x20000, 0x800000]:
        answer(f"set flag {flag:#x}, which it does not have", lambda: set_flags("file", flag))
    for flag in [0, COMPRESS, SYNC, DIRSYNC, SYNC | DIRSYNC]:
        above = f"above-{flag:x}"
        os.mkdir(above)
        set_flags(above, flag)
        make(f"{above}/file")
        os.mkdir(f"{above}/folder")
        answer(f"a file in a folder of flags {flag:#x} has", lambda: flags_of(f"{above}/file"))
        answer(f"a folder in a folder of flags {flag:#x} has", lambda: flags_of(f"{above}/folder"))
    make("old")
    os.link("old", "above-8/linked")
    answer("a file that is linked into a folder keeps", lambda: flags_of("above-8/linked"))


def protected(kind, flag):
    make(kind)
    make("other")
    os.mkdir(f"{kind}-folder")
    for name in ["inside", "second"]:
        make(f"{kind}-folder/{name}")
    early = os.open(kind, os.O_RDWR)
    set_flags(kind, flag)
    set_flags(f"{kind}-folder", flag)
    note = b"value"
    answer(f"{kind}: write by who had it open", lambda: os.pwrite(early, b"x", 0))
    answer(f"{kind}: truncate by who had it open", lambda: os.ftruncate(early, 3))
    os.close(early)
    for name, mode in [
        ("reading", os.O_RDONLY),
        ("writing", os.O_WRONLY),
        ("appending", os.O_WRONLY | os.O_APPEND),
        ("truncating", os.O_WRONLY | os.O_TRUNC),
        ("appending and truncating", os.O_WRONLY | os.O_APPEND | os.O_TRUNC),
    ]:
        answer(f"{kind}: open for {name}", lambda: opened(kind, mode)(lambda _: None))
    answer(f"{kind}: append", lambda: opened(kind, os.O_WRONLY | os.O_APPEND)(lambda file: os.write(file, b"more")))
    answer(f"{kind}: truncate", lambda: os.truncate(kind, 1))
    answer(f"{kind}: chmod", lambda: os.chmod(kind, 0o600))
    answer(f"{kind}: chown", lambda: os.chown(kind, 1, 1))
    answer(f"{kind}: times to now", lambda: os.utime(kind))
    answer(f"{kind}: times to some", lambda: os.utime(kind, (5, 5)))
    answer(f"{kind}: set an attribute", lambda: os.setxattr(kind, "user.note", note))
    answer(f"{kind}: remove an attribute", lambda: os.removexattr(kind, "user.note"))
    answer(f"{kind}: link", lambda: os.link(kind, "second"))
    answer(f"{kind}: rename", lambda: os.rename(kind, "renamed"))
    answer(f"{kind}: rename over it", lambda: os.rename("other", kind))
    answer(f"{kind}: exchange", lambda: rename("other", kind, 2))
    answer(f"{kind}: remove", lambda: os.unlink(kind))
    answer(f"{kind} folder: create", lambda: make(f"{kind}-folder/new"))
    answer(f"{kind} folder: make a folder", lambda: os.mkdir(f"{kind}-folder/folder"))
    answer(f"{kind} folder: link into it", lambda: os.link("other", f"{kind}-folder/linked"))
    answer(f"{kind} folder: file without a name", lambda: opened(f"{kind}-folder", os.O_TMPFILE | os.O_RDWR)(lambda _: None))
    answer(f"{kind} folder: write to a file in it", lambda: opened(f"{kind}-folder/inside", os.O_RDWR)(lambda file: os.write(file, b"x")))
    answer(f"{kind} folder: rename in it", lambda: os.rename(f"{kind}-folder/inside", f"{kind}-folder/moved"))
    answer(f"{kind} folder: rename out of it", lambda: os.rename(f"{kind}-folder/inside", "out"))
    answer(f"{kind} folder: rename into it", lambda: os.rename("other", f"{kind}-folder/into"))
    make("other")
    answer(f"{kind} folder: rename over one in it", lambda: os.rename("other", f"{kind}-folder/second"))
    answer(f"{kind} folder: remove from it", lambda: os.unlink(f"{kind}-folder/second"))
    answer(f"{kind} folder: remove what is not there", lambda: os.unlink(f"{kind}-folder/missing"))
    answer(f"{kind} folder: remove it", lambda: os.rmdir(f"{kind}-folder"))
    answer(f"{kind} folder: chmod", lambda: os.chmod(f"{kind}-folder", 0o700))
    for path in [kind, f"{kind}-folder"]:
        answer(f"{path}: flags are", lambda: flags_of(path))
        answer(f"{path}: take them back", lambda: set_flags(path, 0))
    answer(f"{kind}: remove afterwards", lambda: os.unlink(kind))


def attributes():
    os.symlink("nowhere", "link")
    for name in ["user.a", "trusted.a", "security.a", "system.a", "nonsense.a", "user.", "a", "user." + "n" * 250]:
        for path in ["file", "folder", "link"]:
            set_it = lambda: os.setxattr(path, name, b"value", follow_symlinks=False)
            get_it = lambda: os.getxattr(path, name, follow_symlinks=False)
            answer(f"set {name[:10]} of {path}", set_it)
            answer(f"get {name[:10]} of {path}", get_it)
    # An ACL of version 2: owner rw, user 1 r, group r, mask r, others none.
    entries = [(1, 6, -1), (2, 4, 1), (4, 4, -1), (16, 4, -1), (32, 0, -1)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    for path, name in [("file", "access"), ("folder", "access"), ("folder", "default"), ("link", "access")]:
        name = f"system.posix_acl_{name}"
        answer(f"set {name} of {path}", lambda: os.setxattr(path, name, acl, follow_symlinks=False))
        answer(f"get {name} of {path}", lambda: os.getxattr(path, name, follow_symlinks=False))
        answer(f"remove {name} of {path}", lambda: os.removexattr(path, name, follow_symlinks=False))
    make("inherits")
    answer("mode behind it all", lambda: oct(os.stat("file").st_mode))
    answer("attributes", lambda: " ".join(sorted(name[:10] for name in os.listxattr("file"))))
    for name, mode in [("create", 1), ("replace", 2), ("create or replace", 3)]:
        answer(f"{name} one that is there", lambda: os.setxattr("file", "user.a", b"", mode))
        answer(f"{name} one that is not", lambda: os.setxattr("file", f"user.{mode}", b"", mode))
    for length in [0, 1, 4095, 4096, 4097, 65536, 65537]:
        answer(f"value of {length} bytes", lambda: os.setxattr("file", "user.long", b"v" * length))
    answer("its length", lambda: len(os.getxattr("file", "user.long")))
    answer("remove it", lambda: os.removexattr("file", "user.long"))
    answer("remove it again", lambda: os.removexattr("file", "user.long"))


def space():
    modes = [(0, "allocate"), (1, "keep size"), (3, "punch"), (8, "collapse"), (16, "zero"), (32, "insert"), (64, "unshare")]
    make("sparse")
    for mode, name in modes:
        allocate = lambda file: call(libc.fallocate64, file, mode, ctypes.c_int64(0), ctypes.c_int64(8192))
        answer(f"fallocate, {name}", lambda: opened("sparse", os.O_RDWR)(allocate))
    answer("its size", lambda: os.stat("sparse").st_size)
    two_tib = 1 << 41
    for size in [two_tib - 4096, two_tib, two_tib + 1, 1 << 50]:
        answer(f"truncate to {size}", lambda: os.truncate("sparse", size))
        answer("its size", lambda: os.stat("sparse").st_size)
    os.truncate("sparse", 0)
    for offset in [two_tib - 8192, two_tib - 2, two_tib]:
        answer(f"write 4 bytes at {offset}", lambda: opened("sparse", os.O_RDWR)(lambda file: os.pwrite(file, b"four", offset)))
        answer("its size", lambda: os.stat("sparse").st_size)
    os.unlink("sparse")


def unnamed():
    for exclusive in [0, os.O_EXCL]:
        def use(file):
            answer("links of it", lambda: os.fstat(file).st_nlink)
            answer("write to it", lambda: os.write(file, b"content"))
            answer("link it", lambda: link_open(file, f"named-{exclusive}"))
            answer("link it again", lambda: link_open(file, f"again-{exclusive}"))
            answer("links of it", lambda: os.fstat(file).st_nlink)

        answer("a file without a name", lambda: opened(".", os.O_TMPFILE | os.O_RDWR | exclusive)(use))
    answer("a file without a name in a file", lambda: opened("file", os.O_TMPFILE | os.O_RDWR)(lambda _: None))
    answer("only to be read", lambda: opened(".", os.O_TMPFILE)(lambda _: None))

    def outlives(file):
        os.unlink("named-0")
        os.unlink("again-0")
        answer("what lost its names is linked", lambda: link_open(file, "back"))
        answer("and read", lambda: os.read(file, 7).decode())

    answer("open it", lambda: opened("named-0")(outlives))


def names():
    make("one")
    make("two")
    os.mkdir("upper")
    os.mkdir("upper/lower")
    for flags, what in [(1, "without replacing"), (2, "exchanging"), (4, "with a whiteout"), (3, "1 | 2"), (6, "2 | 4"), (8, "8")]:
        answer(f"rename {what}", lambda: rename("one", "two", flags))
    answer("the whiteout", lambda: oct(os.lstat("one").st_mode))
    answer("rename a whiteout without replacing", lambda: rename("two", "three", 5))
    answer("exchange with what is below", lambda: rename("upper", "upper/lower", 2))
    answer("rename below itself", lambda: os.rename("upper", "upper/lower/x"))
    answer("rename over a folder with names", lambda: os.rename("folder", "upper"))
    answer("link a folder", lambda: os.link("upper", "linked"))
    for length in [255, 256]:
        answer(f"a name of {length} bytes", lambda: make("n" * length))
    for length in [1023, 1024, 4095, 4096]:
        answer(f"a link of {length} bytes", lambda: os.symlink("t" * length, f"link-{length}"))
    for kind in [stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFREG]:
        answer(f"make a node of type {kind:#o}", lambda: os.mknod(f"node-{kind}", kind | 0o600, os.makedev(259, 70000)))
        answer("its number", lambda: os.stat(f"node-{kind}").st_rdev)
    os.chmod("upper", 0o2775)
    os.chown("upper", 3, 4)
    os.mkdir("upper/set")
    make("upper/file")
    answer("folder in one with setgid", lambda: f"{os.stat('upper/set').st_mode:o} {os.stat('upper/set').st_gid}")
    answer("file in one with setgid", lambda: f"{os.stat('upper/file').st_mode:o} {os.stat('upper/file').st_gid}")
    answer("links of it", lambda: os.stat("upper").st_nlink)


def main():
    # Words of the C library's calls.
    libc.fallocate64.restype = ctypes.c_int
    libc.renameat2.restype = ctypes.c_int
    os.umask(0o022)
    os.chdir(sys.argv[1])
    flags()
    protected("append", APPEND)
    protected("immutable", IMMUTABLE)
    attributes()
    space()
    unnamed()
    names()


main()
