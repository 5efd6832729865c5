"""Dumps of raw flash: UBI partitions, volumes, and the files of each UBIFS; traces of block requests.

>>> import tidegate
>>> with tidegate.open("router.bin") as dump:                       # doctest: +SKIP
...     for fs in dump.file_systems():
...         for folder, directories, files in fs.walk():
...             print(folder, files)

The guide has it all, with examples that are tests: docs/guide/python.md.
"""

from __future__ import annotations

from . import _core
from ._dump import Dump, Partition, Volume, open
from ._errors import (
    ArgumentError,
    CommandError,
    DamageError,
    Error,
    InternalError,
    KindError,
    LossWarning,
    NotDirectoryError,
    NotFlashError,
    NotFoundError,
    OpenError,
)
from ._tree import Entry, FileSystem
from ._values import Area, Blocks, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._trace import Trace, trace

__version__: str = _core.VERSION

__all__ = [
    "Area",
    "ArgumentError",
    "Blocks",
    "CommandError",
    "DamageError",
    "Dump",
    "Entry",
    "Error",
    "FileSystem",
    "Finding",
    "InternalError",
    "KindError",
    "LossWarning",
    "NotDirectoryError",
    "NotFlashError",
    "NotFoundError",
    "OpenError",
    "Partition",
    "Trace",
    "Volume",
    "__version__",
    "open",
    "trace",
]


def __getattr__(name: str) -> object:
    """Traces need modules of Python that take longer to import than a dump to open: they are imported when they are used."""
    if name in ("Trace", "trace"):
        from . import _trace

        globals().update(Trace=_trace.Trace, trace=_trace.trace)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
