"""File systems of a dump: paths, walks, files.

Paths are those of the dump, below ``/``; symbolic links are followed inside of it, and never lead to the host. Names are
strings as of :func:`os.fsdecode`.
"""

from __future__ import annotations

import os
import stat as stat_modes
import warnings

from . import _core
from ._errors import ArgumentError, KindError, LossWarning, NotDirectoryError, NotFoundError
from ._files import RangeFile, buffered
from ._values import Finding, bytes_of, findings_of, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Set, Tuple, Union

    from ._dump import Volume

    #: A path in a file system.
    PathLike = Union[str, bytes, os.PathLike[Any]]

#: Symbolic links that are followed in one path, as in Linux.
LINKS_MAX = 40
#: Maximum nesting of folders in a walk, and length of a path.
DEPTH_MAX = 256
PATH_MAX = 4095
#: Entries that :meth:`FileSystem.entries` lists before it yields them.
ENTRIES_AHEAD = 256
#: Bytes that ``read()`` without a size returns at most, for dumps smaller than a 64th of it.
READ_MAX = 1 << 30
#: Findings that are kept beyond those of opening.
FINDINGS_MAX = 1 << 16

_KINDS = {
    stat_modes.S_IFREG: "file",
    stat_modes.S_IFDIR: "directory",
    stat_modes.S_IFLNK: "symlink",
    stat_modes.S_IFBLK: "block",
    stat_modes.S_IFCHR: "character",
    stat_modes.S_IFIFO: "fifo",
    stat_modes.S_IFSOCK: "socket",
}


class Entry:
    """A file in a file system, with its path."""

    __slots__ = ("_node", "_stat", "fs", "path")

    def __init__(self, fs: "FileSystem", path: str, node: "_core.Node") -> None:
        self.fs = fs
        #: Its path from the root, such as ``/etc/passwd``.
        self.path = path
        self._node = node
        self._stat: Optional[os.stat_result] = None

    @property
    def name(self) -> str:
        """The last component of its path."""
        return self.path.rpartition("/")[2]

    @property
    def inode(self) -> int:
        """Number of the inode; hard links have the same one."""
        return self._node.number

    @property
    def size(self) -> int:
        """Length, bytes."""
        return self._node.size

    @property
    def kind(self) -> str:
        """``"file"``, ``"directory"``, ``"symlink"``, ``"block"``, ``"character"``, ``"fifo"`` or ``"socket"``."""
        return _KINDS.get(stat_modes.S_IFMT(self._node.mode), "unknown")

    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return self.kind == "file"

    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return self.kind == "directory"

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return self.kind == "symlink"

    def stat(self) -> os.stat_result:
        """Its attributes; of a symbolic link those of the link."""
        if self._stat is None:
            self._stat = _stat_result(self._node.attributes())
        return self._stat

    def open(self, buffering: int = -1, *, on_loss: str = "raise") -> BinaryIO:
        """Opens its content; see :meth:`FileSystem.open`."""
        return self.fs._open(self.path, self._node, buffering, on_loss)

    def read_bytes(self, *, on_loss: str = "raise") -> bytes:
        """Its whole content."""
        return self.fs._file(self.path, self._node, on_loss).readall()

    def readlink(self) -> str:
        """Target of a symbolic link."""
        if not self.is_symlink():
            raise KindError(f"it is a {self.kind}, not a symbolic link", self.fs.place(self.path))
        return text_of(self._node.read_link())

    def xattrs(self) -> Dict[str, bytes]:
        """Extended attributes by name."""
        pairs, lost = self._node.xattrs()
        self.fs._note(lost)
        return {text_of(name): value for name, value in pairs}

    def extents(self) -> List[Tuple[int, int]]:
        """The ranges of a file, as start and end, that are not holes."""
        extents, lost = self._node.extents()
        self.fs._note(lost)
        return extents

    def __repr__(self) -> str:
        return f"<tidegate.Entry {self.kind} {self.path!r}>"


class FileSystem:
    """A UBIFS. It reads from the dump; nothing is kept but inodes, and some megabytes of files that are read ahead."""

    def __init__(self, core: "_core.Tree", volume: "Volume", place: str, is_salvaged: bool) -> None:
        self._core = core
        #: The volume that it is in.
        self.volume = volume
        self._place = place
        #: Whether it was read by a scan of the whole volume.
        self.is_salvaged = is_salvaged
        #: Losses, decisions and guesses so far: opening adds those of the journal and the index, walks those of names, and
        #: reads with ``on_loss="zeros"`` those of blocks. At most 65,536 are kept beyond those of opening.
        self.findings: List[Finding] = findings_of(core.findings())
        self._known: Set[Finding] = set(self.findings)
        # A salvage may have as many guesses: losses need a room of their own.
        self._room = FINDINGS_MAX
        self._has_warned = False
        if self.losses:
            self._warn()

    def place(self, path: str) -> str:
        """A path with its dump and volume, for messages."""
        return f"{self._place}: {path}"

    @property
    def losses(self) -> List[Finding]:
        """The findings that cost content."""
        return [finding for finding in self.findings if finding.is_loss]

    @property
    def guesses(self) -> List[Finding]:
        """The decisions of a salvage that the medium does not prove."""
        return [finding for finding in self.findings if finding.kind == "guess"]

    @property
    def has_encryption(self) -> bool:
        """Whether names or contents are encrypted."""
        return self._core.has_encryption

    def _note(self, rows: List[dict]) -> None:
        lost = [finding for finding in findings_of(rows) if finding not in self._known]
        lost = lost[: self._room]
        self._room -= len(lost)
        self.findings += lost
        self._known.update(lost)
        if any(finding.is_loss for finding in lost):
            self._warn()

    def _warn(self) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        more = "" if self.is_salvaged else "; salvage=True may get more"
        first = self.losses[0]
        warnings.warn(LossWarning(f"{self._place}: {first} (all of them are in losses){more}"), stacklevel=4)

    # Paths.

    def _root(self) -> "_core.Node":
        root, lost = self._core.root()
        self._note(lost)
        if root is None:
            raise NotFoundError("there is no root directory", self._place, "salvage=True reads without it")
        return root

    def _resolve(self, path: PathLike, follows_last: bool) -> Tuple[str, "_core.Node"]:
        """The path without links and dots, and its inode."""
        wanted = bytes_of(path)
        todo = _components(wanted)
        above: List[Tuple[bytes, "_core.Node"]] = []
        node = self._root()
        links = 0
        while todo:
            name = todo.pop()
            shown = self.place(text_of(wanted))
            if not stat_modes.S_ISDIR(node.mode):
                raise NotDirectoryError(f'"{text_of(above[-1][0]) if above else "/"}" is no directory', shown)
            if name == b".":
                continue
            if name == b"..":
                if above:
                    node = above.pop()[1]
                continue
            found = self._core.lookup(node, name)
            if found is None:
                raise NotFoundError(f'there is no "{text_of(name)}" in this file system', shown)
            child, lost = found
            self._note(lost)
            if stat_modes.S_ISLNK(child.mode) and (todo or follows_last):
                links += 1
                if links > LINKS_MAX:
                    raise NotFoundError(f"more than {LINKS_MAX} symbolic links", shown)
                target = child.read_link()
                if target.startswith(b"/"):
                    above.clear()
                    node = self._root()
                todo += _components(target)
                continue
            above.append((name, node))
            node = child
        return "/" + "/".join(text_of(name) for name, _ in above), node

    def entry(self, path: PathLike, *, follow_symlinks: bool = True) -> Entry:
        """The file at a path. Raises :class:`NotFoundError`, which is a :class:`FileNotFoundError`.

        If a file stands where a directory must be, also in front of ``..`` and of a slash at the end, it is the
        :class:`NotDirectoryError` among them.
        """
        return Entry(self, *self._resolve(path, follow_symlinks))

    def stat(self, path: PathLike, *, follow_symlinks: bool = True) -> os.stat_result:
        """Attributes of the file at a path."""
        return self.entry(path, follow_symlinks=follow_symlinks).stat()

    def lstat(self, path: PathLike) -> os.stat_result:
        """As :meth:`stat`; of a symbolic link those of the link."""
        return self.stat(path, follow_symlinks=False)

    def exists(self, path: PathLike) -> bool:
        """Whether the path leads to a file."""
        try:
            self._resolve(path, True)
        except NotFoundError:
            return False
        return True

    def readlink(self, path: PathLike) -> str:
        """Target of the symbolic link at a path."""
        return self.entry(path, follow_symlinks=False).readlink()

    def xattrs(self, path: PathLike) -> Dict[str, bytes]:
        """Extended attributes of the file at a path, by name."""
        return self.entry(path).xattrs()

    # Directories.

    def scandir(self, path: PathLike = "/") -> List[Entry]:
        """The files of a directory, by name. Lost ones are in ``losses``."""
        shown, node = self._resolve(path, True)
        return self._list(shown, node)

    def listdir(self, path: PathLike = "/") -> List[str]:
        """The names in a directory, sorted. Lost ones are in ``losses``."""
        return [entry.name for entry in self.scandir(path)]

    def _list(self, path: str, node: "_core.Node") -> List[Entry]:
        if not stat_modes.S_ISDIR(node.mode):
            raise KindError("it is no directory", self.place(path))
        children, lost = self._core.list(node)
        self._note(lost)
        below = "" if path == "/" else path
        return [Entry(self, f"{below}/{text_of(name)}", child) for name, child in children]

    def walk(self, top: PathLike = "/") -> Iterator[Tuple[str, List[str], List[str]]]:
        """Walks as :func:`os.walk`: path, names of directories, names of other files, parents first.

        Directories that are removed from the second list are not entered. Symbolic links are not followed. Lost names and
        files are in ``losses`` at the end; the first one is a :class:`LossWarning`.
        """
        for path, directories, others in self._walk(top):
            names = [entry.name for entry in directories]
            yield path, names, [entry.name for entry in others]
            kept = set(names)
            directories[:] = [entry for entry in directories if entry.name in kept]

    def entries(self, top: PathLike = "/") -> Iterator[Entry]:
        """Everything below a directory, parents first, with attributes: faster than paths for whole trees."""
        # Some folders ahead, so that small ones are read in batches, too: the core reads listed files ahead.
        listed: List[Entry] = []
        for _, directories, others in self._walk(top):
            listed += directories
            listed += others
            if len(listed) >= ENTRIES_AHEAD:
                yield from listed
                listed = []
        yield from listed

    def _walk(self, top: PathLike) -> Iterator[Tuple[str, List[Entry], List[Entry]]]:
        path, node = self._resolve(top, True)
        # A damaged or forged tree may hold a directory twice.
        visited = {node.number}
        todo = [(0, Entry(self, path, node))]
        while todo:
            depth, at = todo.pop()
            directories: List[Entry] = []
            others: List[Entry] = []
            for entry in self._list(at.path, at._node):
                problem = None
                if len(entry.path) > PATH_MAX:
                    problem = f"its path has more than {PATH_MAX} characters; it is left out"
                elif entry.is_dir() and entry.inode in visited:
                    problem = "the directory has a second place in the tree; it is left out here"
                if problem is not None:
                    self._leave_out(entry, problem)
                    continue
                if entry.is_dir():
                    visited.add(entry.inode)
                    directories.append(entry)
                else:
                    others.append(entry)
            yield at.path, directories, others
            for entry in reversed(directories):
                if depth + 1 < DEPTH_MAX:
                    todo.append((depth + 1, entry))
                else:
                    self._leave_out(entry, f"it is {DEPTH_MAX} folders deep; its content is left out")

    def _leave_out(self, entry: Entry, problem: str) -> None:
        row = {"severity": "loss", "kind": "name", "inode": entry.inode}
        self._note([row | {"message": f"{entry.path[:PATH_MAX]}: {problem}"}])

    # Files.

    def open(self, path: PathLike, buffering: int = -1, *, on_loss: str = "raise") -> BinaryIO:
        """Opens a file for reading: a binary file with ``read``, ``readinto``, ``seek``, ``tell``; holes are zeros.

        With ``buffering=0`` it is a raw file, as for the built-in :func:`open`. A damaged block raises
        :class:`DamageError`; with ``on_loss="zeros"`` it reads as zeros and is added to ``losses``.
        """
        shown, node = self._resolve(path, True)
        return self._open(shown, node, buffering, on_loss)

    def read_bytes(self, path: PathLike, *, on_loss: str = "raise") -> bytes:
        """The whole content of a file."""
        return self._file(*self._resolve(path, True), on_loss).readall()

    def _open(self, path: str, node: "_core.Node", buffering: int, on_loss: str) -> BinaryIO:
        return buffered(self._file(path, node, on_loss), buffering)

    def _file(self, path: str, node: "_core.Node", on_loss: str) -> RangeFile:
        if on_loss not in ("raise", "zeros"):
            raise ArgumentError(f'on_loss is {on_loss!r}; expected "raise" or "zeros"', self.place(path))
        if not stat_modes.S_ISREG(node.mode):
            kind = _KINDS.get(stat_modes.S_IFMT(node.mode), "unknown")
            raise KindError(f"it is a {kind}, not a regular file", self.place(path))
        zeros = on_loss == "zeros"

        def read_at(offset: int, count: int) -> bytes:
            data, lost = node.read(offset, count, zeros)
            if lost:
                self._note(lost)
            return data

        largest = max(READ_MAX, 64 * self.volume.partition.dump.size)
        return RangeFile(read_at, node.size, path, largest)

    def __repr__(self) -> str:
        return f"<tidegate.FileSystem {self._place!r}{', salvaged' if self.is_salvaged else ''}>"


def _components(path: bytes) -> List[bytes]:
    """The names in a path, the last one first. A slash at the end is a dot: what is in front of both is a directory."""
    names = [name for name in path.split(b"/") if name]
    if path.endswith(b"/"):
        names.append(b".")
    names.reverse()
    return names


def _stat_result(row: Dict[str, Any]) -> os.stat_result:
    times = {name: row[key] for name, key in (("a", "accessed"), ("m", "modified"), ("c", "changed"))}
    size = row["size"]
    fields = (
        row["mode"],
        row["inode"],
        0,
        row["links"],
        row["user"],
        row["group"],
        size,
        *(seconds for seconds, _ in times.values()),
    )
    more: Dict[str, Any] = {"st_blksize": 4096, "st_blocks": -(-size // 512), "st_rdev": 0}
    if row["device"] is not None:
        more["st_rdev"] = os.makedev(*row["device"])
    for letter, (seconds, nanoseconds) in times.items():
        more[f"st_{letter}time"] = seconds + nanoseconds / 1e9
        more[f"st_{letter}time_ns"] = seconds * 1_000_000_000 + nanoseconds
    return os.stat_result(fields, more)


