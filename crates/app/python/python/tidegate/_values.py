"""Values: findings, areas, and names of the medium as strings."""

import os
from dataclasses import dataclass
from typing import Any, Iterable, List, Optional


def text_of(raw: bytes) -> str:
    """A name of the medium; bytes that are no UTF-8 become surrogates, as in :func:`os.fsdecode`."""
    return raw.decode("utf-8", "surrogateescape")


def bytes_of(name: "str | bytes | os.PathLike[Any]") -> bytes:
    """The bytes of a name or path."""
    plain = os.fspath(name)
    return plain.encode("utf-8", "surrogateescape") if isinstance(plain, str) else plain


@dataclass(frozen=True)
class Finding:
    """A loss, or a decision that cost nothing."""

    #: ``"loss"``: content is, or may be, missing or wrong; ``"note"``: something was decided, ignored or guessed.
    severity: str
    #: The kind, such as ``"cut-block"`` or ``"guess"``.
    kind: str
    #: The whole line, with its place.
    message: str
    #: Offset in the dump's file.
    offset: Optional[int] = None
    #: Name of the volume.
    volume: Optional[str] = None
    #: LEB of the volume, and the offset in it.
    leb: Optional[int] = None
    leb_offset: Optional[int] = None
    #: Number of the inode.
    inode: Optional[int] = None

    @property
    def is_loss(self) -> bool:
        """Whether content is, or may be, missing or wrong."""
        return self.severity == "loss"

    def __str__(self) -> str:
        return self.message


def findings_of(rows: Iterable[dict]) -> List[Finding]:
    return [Finding(**row) for row in rows]


@dataclass(frozen=True)
class Area:
    """A part of a dump that belongs to no partition."""

    #: Offset in the dump's file.
    offset: int
    #: Number of bytes.
    size: int
    #: Whether all bytes are 0xFF.
    is_erased: bool


@dataclass(frozen=True)
class Blocks:
    """Numbers of eraseblocks of a partition."""

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
