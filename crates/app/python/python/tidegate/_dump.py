"""Dumps, their partitions and volumes."""

from __future__ import annotations

import os
import threading
import warnings

from . import _core
from ._errors import ArgumentError, DamageError, LossWarning, NotFlashError
from ._files import RangeFile, buffered
from ._tree import FileSystem
from ._values import Area, Blocks, Finding, findings_of, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap
    from typing import Any, BinaryIO, Iterator, List, Optional, Sequence, Tuple, Union

    #: A key of encrypted files: its bytes, or its descriptor (8 bytes or 16 hexadecimal digits) and its bytes.
    Key = Union[bytes, Tuple[Union[str, bytes], bytes]]
    #: A dump: a path, an open binary file, or its bytes.
    Source = Union[str, bytes, os.PathLike[Any], BinaryIO, bytearray, memoryview, mmap.mmap]


def open(  # noqa: A001 (the name that users of the package expect)
    source: Source,
    *,
    offset: int = 0,
    length: Optional[int] = None,
    page: Optional[int] = None,
    block: Optional[int] = None,
    oob: Optional[int] = None,
    ecc: str = "auto",
    keys: Sequence[Key] = (),
    salvage: bool = False,
) -> "Dump":
    """Opens a dump of raw flash and finds its partitions and volumes.

    ``source`` is the path of a file, a block device or ``/dev/mtdN``, an open binary file with ``seek``, or the bytes
    themselves (``mmap``, ``bytearray``, ``memoryview``; ``bytes`` are a path, as in :func:`open`).

    ``offset`` and ``length`` restrict it to a part of the dump. ``page``, ``block`` and ``oob`` are sizes in bytes that the
    headers do not tell, such as those of a partition of one block. ``ecc`` is the ECC in the OOB areas: it is found by trial, with
    ``"none"`` pages stay as they were read, and other texts name layouts as for ``tidegate nand ecc``. ``keys`` open encrypted
    files (fscrypt). With ``salvage`` the file systems of this dump are read by all nodes that a scan finds; see :meth:`Volume.file_system`.

    Damage is no error here: it is in the ``findings`` of the dump and its parts. Raises :class:`NotFlashError` if there is
    neither UBI nor UBIFS, and :class:`OpenError` if the dump can't be read.
    """
    for name, value, bits in (
        ("offset", offset, 64),
        ("length", length, 64),
        ("page", page, 32),
        ("block", block, 32),
        ("oob", oob, 32),
    ):
        if value is not None and not 0 <= value < 1 << bits:
            raise ArgumentError(f"{name} is {value}; expected 0 to {(1 << bits) - 1}", "tidegate.open")
    view = _View(offset, length, (page, block, oob), ecc)
    if isinstance(source, (str, bytes, os.PathLike)):
        core = _core.Dump.of_path(os.fsdecode(source), view)
    else:
        core = _of_object(source, view)
    dump = Dump(core, _checked_keys(keys), salvage)
    if not dump.partitions:
        found = "".join(f"; {finding}" for finding in dump.findings)
        raise NotFlashError(
            f"no UBI and no UBIFS was found in its {core.size} bytes{found}",
            core.name,
            "give the geometry by page, block and oob, or look at the file with another tool",
        )
    return dump


class _View:
    """Arguments for the core."""

    def __init__(
        self,
        offset: int,
        length: Optional[int],
        sizes: Tuple[Optional[int], Optional[int], Optional[int]],
        ecc: str,
    ) -> None:
        self.offset, self.length = offset, length
        self.page, self.block, self.oob = sizes
        self.ecc = ecc


def _of_object(source: Any, view: _View) -> "_core.Dump":
    if isinstance(source, memoryview):
        # Its length is that of its items.
        source = source.cast("B")
    # A memory map, without the import of its module.
    if isinstance(source, (bytearray, memoryview)) or any(
        base.__module__ == "mmap" for base in type(source).__mro__
    ):
        size = len(source)

        def read_at(at: int, count: int) -> bytes:
            return bytes(source[at : at + count])

        name = f"<{type(source).__name__}>"
    elif hasattr(source, "read") and hasattr(source, "seek"):
        size = source.seek(0, os.SEEK_END)
        # Threads that read files in parallel share the position of the source.
        lock = threading.RLock()
        is_reading = False

        def read_at(at: int, count: int) -> bytes:
            nonlocal is_reading
            with lock:
                if is_reading:
                    # In its own read, or in a handler of a signal in the middle of it; io.BufferedReader does the same.
                    raise RuntimeError("a dump can't be read while its source reads for it in the same thread")
                is_reading = True
                try:
                    return read_parts(at, count)
                finally:
                    is_reading = False

        def read_parts(at: int, count: int) -> bytes:
            source.seek(at)
            parts = []
            while count > 0:
                part = source.read(count)
                if not part:
                    break
                parts.append(part)
                count -= len(part)
            return b"".join(parts)

        name = str(getattr(source, "name", f"<{type(source).__name__}>"))
    else:
        raise ArgumentError(
            f"a dump is a path, a binary file or bytes, this is {type(source).__name__}", "tidegate.open"
        )
    return _core.Dump.of_source(name, read_at, size, view)


def _checked_keys(keys: Sequence[Key]) -> List[Tuple[Optional[bytes], bytes]]:
    checked: List[Tuple[Optional[bytes], bytes]] = []
    for key in keys:
        descriptor, raw = (None, key) if isinstance(key, bytes) else key
        if isinstance(descriptor, str):
            try:
                descriptor = bytes.fromhex(descriptor)
            except ValueError:
                descriptor = b""
        if descriptor is not None and len(descriptor) != 8:
            raise ArgumentError("the descriptor of a key has 8 bytes, or 16 hexadecimal digits", "keys")
        if not isinstance(raw, bytes) or not 16 <= len(raw) <= 64:
            raise ArgumentError("a key has 16 to 64 bytes", "keys")
        checked.append((descriptor, raw))
    return checked


class Dump:
    """A dump of raw flash. Close it, or use it in ``with``, to release the file."""

    def __init__(self, core: "_core.Dump", keys: Any, salvage: bool) -> None:
        self._core: Optional["_core.Dump"] = core
        self._keys = keys
        self._salvage = salvage
        #: Name of the file.
        self.name: str = core.name
        #: First byte of the part that was looked at, in the file.
        self.offset: int = core.offset
        #: Number of bytes that were looked at.
        self.size: int = core.size
        #: Partitions and bare file systems, by offset.
        self.partitions: List[Partition] = [
            Partition(self, number, row) for number, row in enumerate(core.parts())
        ]
        #: The areas between them.
        self.areas: List[Area] = [Area(**row) for row in core.areas()]
        #: Findings that concern no partition.
        self.findings: List[Finding] = findings_of(core.findings())

    @property
    def core(self) -> "_core.Dump":
        if self._core is None:
            raise ArgumentError("the dump is closed", self.name)
        return self._core

    @property
    def volumes(self) -> "List[Volume]":
        """The volumes of all partitions."""
        return [volume for partition in self.partitions for volume in partition.volumes]

    @property
    def losses(self) -> List[Finding]:
        """The findings of the dump, its partitions and volumes that cost content."""
        findings = [*self.findings]
        for partition in self.partitions:
            findings += partition.findings
            for volume in partition.volumes:
                findings += volume.findings
        return [finding for finding in findings if finding.is_loss]

    def file_systems(self, *, salvage: Optional[bool] = None) -> Iterator[FileSystem]:
        """The file systems of all volumes with UBIFS.

        One that can't be opened is a :class:`LossWarning`; :meth:`Volume.file_system` raises the error.
        """
        for volume in self.volumes:
            if volume.content != "ubifs":
                continue
            try:
                yield volume.file_system(salvage=salvage)
            except DamageError as error:
                warnings.warn(LossWarning(str(error)), stacklevel=2)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the dump's file with OOB areas, corrected where an ECC was found; 0xFF beyond its ends."""
        return self.core.read(offset, size)

    def close(self) -> None:
        """Releases the file. File systems and files that were opened stay usable."""
        self._core = None

    def __enter__(self) -> "Dump":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tidegate.Dump {self.name!r}: {len(self.partitions)} partitions, {len(self.volumes)} volumes>"


class Partition:
    """A UBI partition, or a UBIFS outside of UBI (``kind`` is ``"ubi"`` or ``"ubifs"``)."""

    def __init__(self, dump: Dump, number: int, row: dict) -> None:
        self.dump = dump
        self.kind: str = row["kind"]
        #: Image sequence of a UBI partition.
        self.image_sequence: Optional[int] = row["image_sequence"]
        #: Offset of its first block in the dump's file, and the distance to the end of its last one.
        self.offset: int = row["offset"]
        self.size: int = row["size"]
        #: Sizes of pages, OOB areas and blocks; ``None`` outside of UBI.
        self.page_size: Optional[int] = row["page_size"]
        self.oob_size: Optional[int] = row["oob_size"]
        self.block_size: Optional[int] = row["block_size"]
        self.leb_size: int = row["leb_size"]
        #: Bytes of a UBIFS outside of UBI that the dump lacks.
        self.missing: int = row["missing"]
        self.blocks: Optional[Blocks] = row["blocks"] and Blocks(**row["blocks"])
        #: Ranges of the dump's file, as start and end, between blocks with readable headers.
        self.gaps: List[Tuple[int, int]] = row["gaps"]
        self.findings: List[Finding] = findings_of(row["findings"])
        volumes = row["volumes"] if self.kind == "ubi" else [_BARE | {"leb_size": self.leb_size}]
        self.volumes: List[Volume] = [
            Volume(self, (number, position if self.kind == "ubi" else None), volume)
            for position, volume in enumerate(volumes)
        ]

    @property
    def name(self) -> str:
        """A name as ``tidegate unpack`` gives it: the image sequence, or the offset of a bare UBIFS."""
        return f"ubifs-{self.offset:#x}" if self.image_sequence is None else str(self.image_sequence)

    @property
    def losses(self) -> List[Finding]:
        """The findings that cost content."""
        return [finding for finding in self.findings if finding.is_loss]

    def __repr__(self) -> str:
        return f"<tidegate.Partition {self.name} at byte {self.offset:#x}: {len(self.volumes)} volumes>"


#: A file system outside of UBI, as a volume.
_BARE = {
    "number": 0,
    "name": b"files",
    "kind": "dynamic",
    "content": "ubifs",
    "lebs": 0,
    "mapped": [],
    "findings": [],
}


class Volume:
    """A volume of a partition. A UBIFS outside of UBI counts as one volume named ``files``."""

    def __init__(self, partition: Partition, position: Tuple[int, Optional[int]], row: dict) -> None:
        self.partition = partition
        self._position = position
        self.number: int = row["number"]
        #: Its name; ``volume_N`` if the volume table can't be read.
        self.name: str = text_of(row["name"])
        #: ``"static"`` or ``"dynamic"``.
        self.kind: str = row["kind"]
        #: ``"ubifs"``, ``"squashfs"``, ``"empty"``, ``"unknown"``, or the name of another format.
        self.content: str = row["content"]
        self.leb_size: int = row["leb_size"]
        self.lebs: int = row["lebs"]
        #: Numbers of the LEBs that were found, and the offsets of their blocks in the dump's file.
        self.mapped: List[Tuple[int, int]] = row["mapped"]
        self.findings: List[Finding] = findings_of(row["findings"])

    @property
    def losses(self) -> List[Finding]:
        """The findings that cost content."""
        return [finding for finding in self.findings if finding.is_loss]

    def file_system(
        self, *, salvage: Optional[bool] = None, keys: Optional[Sequence[Key]] = None
    ) -> FileSystem:
        """Opens its UBIFS in the state that a Linux mount would recover: the journal is replayed in memory.

        With ``salvage`` it is read by all nodes that a scan of the volume finds; each decision that the medium does not
        prove is a finding of the kind ``"guess"``. Raises :class:`DamageError` if nothing can be read.
        """
        dump = self.partition.dump
        if self.content not in ("ubifs", "unknown"):
            raise ArgumentError(f"a volume with {self.content} content has no UBIFS", self._place, "open() reads it")
        is_salvaged = dump._salvage if salvage is None else salvage
        opened = _checked_keys(keys) if keys is not None else dump._keys
        core = dump.core.tree(*self._position, is_salvaged, opened)
        return FileSystem(core, self, self._place, is_salvaged)

    @property
    def _place(self) -> str:
        return f"{self.partition.dump.name}: {self.partition.name}/{self.name}"

    def open(self, buffering: int = -1, *, on_loss: str = "raise") -> BinaryIO:
        """Its whole content as a binary file: LEBs that are missing are 0xFF.

        Of a static volume it is the bytes that were written to it; if one of its LEBs is missing or has a wrong CRC, this
        raises :class:`DamageError`, or with ``on_loss="keep"`` adds the losses to ``findings``.
        """
        if on_loss not in ("raise", "keep"):
            raise ArgumentError(f'on_loss is {on_loss!r}; expected "raise" or "keep"', self._place)
        part, number = self._position
        if number is None:
            partition = self.partition
            # Files stay usable when the dump is closed.
            core = partition.dump.core

            def read_dump(at: int, count: int) -> bytes:
                return core.read(partition.offset + at, min(count, partition.size - at))

            return buffered(RangeFile(read_dump, partition.size, self.name), buffering)
        content = self.partition.dump.core.content(part, number)
        lost = findings_of(content.findings())
        if lost and on_loss == "raise":
            raise DamageError(str(lost[0]), self._place, 'on_loss="keep" reads it all the same')
        self.findings += [finding for finding in lost if finding not in self.findings]
        return buffered(RangeFile(content.read, content.size, self.name), buffering)

    def __repr__(self) -> str:
        return f"<tidegate.Volume {self.number} {self.name!r}: {self.kind}, {self.content}>"


