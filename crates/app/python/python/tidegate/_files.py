"""Read-only binary files over a function that reads at an offset."""

from __future__ import annotations

import io
import operator
import os

from ._errors import ArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Callable, Optional

#: Bytes that a buffered file reads at once.
BUFFER_SIZE = 1 << 17


class RangeFile(io.RawIOBase):
    """A raw binary file. Threads may share one only under a lock of their own, as all raw files."""

    def __init__(
        self,
        read_at: Callable[[int, int], bytes],
        size: int,
        name: str,
        largest_read: Optional[int] = None,
    ) -> None:
        super().__init__()
        self._read_at = read_at
        self._size = size
        self._at = 0
        self._largest_read = largest_read
        self.name = name
        self.mode = "rb"

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check()
        offset = operator.index(offset)
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}.get(whence)
        if start is None:
            raise ArgumentError(f"whence is {whence}; expected 0, 1 or 2", self.name)
        if start + offset < 0:
            raise ArgumentError(f"a position of {start + offset} is before the file", self.name)
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        self._check()
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._check()
        view = memoryview(buffer).cast("B")
        if view.readonly:
            raise TypeError("readinto() needs a buffer that can be written")
        data = self._piece(len(view))
        view[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        self._check()
        return self.readall() if size is None or size < 0 else self._piece(size)

    def readall(self) -> bytes:
        self._check()
        left = max(0, self._size - self._at)
        if self._largest_read is not None and left > self._largest_read:
            # A forged inode may claim any size, in a dump of a few megabytes.
            raise ArgumentError(
                f"{left} bytes are more than {self._largest_read}, the most that is read at once",
                self.name,
                "read it in pieces: read(SIZE)",
            )
        return self._piece(left)

    def write(self, data: Any) -> int:
        raise io.UnsupportedOperation("write: a dump is read-only")

    def _piece(self, size: int) -> bytes:
        if self._at >= self._size or size == 0:
            return b""
        data = self._read_at(self._at, min(size, self._size - self._at))
        self._at += len(data)
        return data

    def __repr__(self) -> str:
        return f"<tidegate.RangeFile {self.name!r}: {self._size} bytes>"


def buffered(raw: RangeFile, buffering: int) -> BinaryIO:
    """The file with a buffer of this size: -1 is the usual one, 0 none."""
    if buffering == 0:
        return raw  # type: ignore[return-value]
    return io.BufferedReader(raw, BUFFER_SIZE if buffering < 0 else buffering)  # type: ignore[return-value]
