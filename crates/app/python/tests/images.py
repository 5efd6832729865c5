"""Images for the tests, made by mtd-utils: mkfs.ubifs and ubinize."""

import os
import random
import subprocess
import tempfile
from pathlib import Path
from typing import Dict

BLOCK = 128 << 10
PAGE = 2048
LEB = 126976


def make_tree(root: Path, seed: int, files: int) -> Dict[str, bytes]:
    """A folder with files, links and folders; returns the contents by path."""
    rng = random.Random(seed)
    contents = {}
    for number in range(files):
        folder = root / f"d{number % 5}" / f"e{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        size = rng.choice((0, 1, 100, 4096, 4097, 30000))
        content = b"text " * (size // 5) if rng.random() < 0.5 else rng.randbytes(size)
        path = folder / f"file {number}"
        path.write_bytes(content)
        os.utime(path, ns=(10**18, 1_234_567_890_123_456_789))
        contents["/" + str(path.relative_to(root))] = content
    return contents


def tool(*words: "str | Path") -> None:
    """Runs a program of mtd-utils."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    environment = {**os.environ, "PATH": path}
    subprocess.run([str(word) for word in words], check=True, env=environment, stdout=subprocess.DEVNULL)


class Images:
    """Images in a temporary folder."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tidegate-tests-")
        self.path = Path(self._folder.name)
        root = self.path / "rootfs"
        self.contents = make_tree(root, 7, 120)
        (root / "etc").mkdir()
        (root / "etc" / "passwd").write_bytes(b"root:x:0:0:root:/root:/bin/sh\n")
        os.symlink("/etc/passwd", root / "etc" / "users")
        os.symlink("loop", root / "loop")
        os.symlink("../../etc", root / "d0" / "settings")
        os.symlink("/../../etc/passwd", root / "escape")
        os.link(root / "etc" / "passwd", root / "etc" / "passwd.hard")
        (root / os.fsdecode(b"caf\xe9")).write_bytes(b"latin")
        with open(root / "sparse", "wb") as sparse:
            sparse.seek(1 << 20)
            sparse.write(b"end")
        self.contents |= {
            "/etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n",
            "/etc/passwd.hard": b"root:x:0:0:root:/root:/bin/sh\n",
            os.fsdecode(b"/caf\xe9"): b"latin",
            "/sparse": bytes(1 << 20) + b"end",
        }
        self.kernel = random.Random(3).randbytes(300_001)
        (self.path / "kernel").write_bytes(self.kernel)
        self.bare = self.path / "rootfs.ubifs"
        tool("mkfs.ubifs", "-m", str(PAGE), "-e", str(LEB), "-c", "200", "-r", root, "-o", self.bare)
        configuration = self.path / "ubi.ini"
        configuration.write_text(
            "[kernel]\nmode=ubi\nimage={0}/kernel\nvol_id=0\nvol_type=static\nvol_name=kernel\nvol_size=1MiB\n"
            "[rootfs]\nmode=ubi\nimage={0}/rootfs.ubifs\nvol_id=1\nvol_type=dynamic\nvol_name=rootfs\nvol_size=12MiB\n"
            "[empty]\nmode=ubi\nvol_id=2\nvol_type=dynamic\nvol_name=empty\nvol_size=1MiB\n".format(self.path)
        )
        self.ubi = self.path / "router.bin"
        tool("ubinize", "-Q", "1001", "-p", "128KiB", "-m", str(PAGE), "-o", self.ubi, configuration)

    def image_of(self, files: "dict[str, bytes]") -> Path:
        """A UBIFS outside of UBI with these files in its root."""
        root = self.path / f"root-of-{len(files)}"
        root.mkdir()
        for name, content in files.items():
            (root / name).write_bytes(content)
        image = root.with_suffix(".ubifs")
        tool("mkfs.ubifs", "-m", str(PAGE), "-e", str(LEB), "-c", "200", "-r", root, "-o", image)
        return image

    def write(self, name: str, content: bytes) -> Path:
        """A file beside the images."""
        path = self.path / name
        path.write_bytes(content)
        return path

    def close(self) -> None:
        self._folder.cleanup()


def with_oob(data: bytes) -> bytes:
    """A dump with 64 bytes behind each page."""
    rng = random.Random(11)
    return b"".join(data[at : at + PAGE] + rng.randbytes(64) for at in range(0, len(data), PAGE))
