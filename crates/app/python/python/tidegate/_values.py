"""Values: findings, areas, and names of the medium as strings.

They are no dataclasses: importing those takes longer than opening a dump.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, List, Optional


def text_of(raw: bytes) -> str:
    """A name of the medium; bytes that are no UTF-8 become surrogates, as in :func:`os.fsdecode`."""
    return raw.decode("utf-8", "surrogateescape")


def bytes_of(name: str | bytes | os.PathLike[Any]) -> bytes:
    """The bytes of a name or path."""
    plain = os.fspath(name)
    return plain.encode("utf-8", "surrogateescape") if isinstance(plain, str) else plain


class _Value:
    """A record that can't be changed; equal, hashed and shown by its fields."""

    __slots__: tuple[str, ...] = ()

    def _set(self, *values: Any) -> None:
        for name, value in zip(self.__slots__, values):
            object.__setattr__(self, name, value)

    def _fields(self) -> tuple:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} can't be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} can't be deleted")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Value) or type(other) is not type(self):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        fields = zip(self.__slots__, self._fields())
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields)})"

    def __reduce__(self) -> tuple:
        return type(self), self._fields()


class Finding(_Value):
    """A loss, or a decision that cost nothing."""

    __slots__ = __match_args__ = ("severity", "kind", "message", "offset", "volume", "leb", "leb_offset", "inode")

    #: ``"loss"``: content is, or may be, missing or wrong; ``"note"``: something was decided, ignored or guessed.
    severity: str
    #: The kind, such as ``"cut-block"`` or ``"guess"``.
    kind: str
    #: The whole line, with its place.
    message: str
    #: Offset in the dump's file.
    offset: Optional[int]
    #: Name of the volume.
    volume: Optional[str]
    #: LEB of the volume, and the offset in it.
    leb: Optional[int]
    leb_offset: Optional[int]
    #: Number of the inode.
    inode: Optional[int]

    def __init__(
        self,
        severity: str,
        kind: str,
        message: str,
        offset: Optional[int] = None,
        volume: Optional[str] = None,
        leb: Optional[int] = None,
        leb_offset: Optional[int] = None,
        inode: Optional[int] = None,
    ) -> None:
        self._set(severity, kind, message, offset, volume, leb, leb_offset, inode)

    @property
    def is_loss(self) -> bool:
        """Whether content is, or may be, missing or wrong."""
        return self.severity == "loss"

    def __str__(self) -> str:
        return self.message


def findings_of(rows: Iterable[dict]) -> List[Finding]:
    return [Finding(**row) for row in rows]


class Area(_Value):
    """A part of a dump that belongs to no partition."""

    __slots__ = __match_args__ = ("offset", "size", "is_erased")

    #: Offset in the dump's file.
    offset: int
    #: Number of bytes.
    size: int
    #: Whether all bytes are 0xFF.
    is_erased: bool

    def __init__(self, offset: int, size: int, is_erased: bool) -> None:
        self._set(offset, size, is_erased)


class Blocks(_Value):
    """Numbers of eraseblocks of a partition."""

    __slots__ = __match_args__ = ("used", "layout", "internal", "free", "erased", "damaged", "other")

    #: With a LEB, also of internal volumes.
    used: int
    #: Blocks of the layout volume.
    layout: int
    #: Blocks of other internal volumes.
    internal: int
    #: With an erase counter only.
    free: int
    #: Without any header.
    erased: int
    #: With a damaged or unknown VID header.
    damaged: int
    #: With something else, such as bad blocks.
    other: int

    def __init__(
        self, used: int, layout: int, internal: int, free: int, erased: int, damaged: int, other: int
    ) -> None:
        self._set(used, layout, internal, free, erased, damaged, other)
