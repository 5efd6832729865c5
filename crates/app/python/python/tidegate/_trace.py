"""Traces of block requests as tables of pyarrow, polars or pandas.

A native trace (``NAME.trace/``) is read as it is: each table is the first bytes of a Parquet file, with a sum in the header
(docs/formats/block-trace.md). A trace of another tool is converted by the command first, to a temporary folder.
"""

import io
import json
import os
import shutil
import tempfile
import weakref
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from ._command import run
from ._errors import ArgumentError, DamageError, Error, OpenError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

TABLES = ("requests", "runs", "events")
SCHEMAS = (1, 2)


def trace(path: "str | os.PathLike[str]", *, format: Optional[str] = None) -> "Trace":  # noqa: A002
    """Opens a trace of block requests: a native one, or a file of another tool that ``tidegate trace convert`` reads.

    ``format`` is the format of a file that is not recognised.
    """
    return Trace(path, format)


class Trace:
    """A trace of block requests. Its tables are described in docs/formats/block-trace.md."""

    def __init__(self, path: "str | os.PathLike[str]", format: Optional[str] = None) -> None:  # noqa: A002
        self.path = Path(path)
        self._folder = self.path
        if not (self.path / "header.json").is_file():
            if not self.path.exists():
                raise OpenError("there is no such file or folder", str(self.path), "check the path")
            self._convert(format)
        #: The header, as the dictionary in ``header.json``.
        self.header: Dict[str, Any] = self._read_header()

    def _convert(self, format: Optional[str]) -> None:  # noqa: A002
        folder = tempfile.mkdtemp(prefix="tidegate-")
        # It lasts as long as this object.
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._folder = Path(folder) / "converted.trace"
        options = ["--format", format] if format is not None else []
        run("trace", "convert", "--quiet", *options, "--", os.path.abspath(self.path), str(self._folder))

    def _read_header(self) -> Dict[str, Any]:
        place = self._folder / "header.json"
        try:
            header = json.loads(place.read_text())
        except (OSError, ValueError) as error:
            raise OpenError(f"the header can't be read: {error}", str(place)) from error
        if not isinstance(header, dict) or header.get("format") != "tidegate.block-trace":
            raise OpenError('the header is not one of "tidegate.block-trace"', str(place))
        if header.get("schema") not in SCHEMAS:
            raise OpenError(
                f"schema {header.get('schema')} is unknown; expected 1 or 2", str(place), "use a newer tidegate"
            )
        return header

    @property
    def counts(self) -> Dict[str, int]:
        """Numbers of rows, as ``tidegate trace info`` tells them."""
        return self.header["counts"]

    @property
    def is_complete(self) -> bool:
        """Whether the trace ended as requested."""
        return bool(self.header["complete"])

    def parquet(self, table: str = "requests") -> bytes:
        """A table as the bytes of a Parquet file, with its sum checked."""
        if table not in TABLES:
            raise ArgumentError(f"there is no table {table!r}; expected one of {', '.join(TABLES)}", str(self.path))
        place = self._folder / f"{table}.parquet"
        told = (self.header.get("tables") or {}).get(table)
        with open(place, "rb") as file:
            # Behind these bytes an interrupted trace may have unfinished rows.
            data = file.read(told["bytes"] if told else -1)
        if told and (len(data) != told["bytes"] or zlib.crc32(data) != told["crc32"]):
            raise DamageError(
                f"{len(data)} bytes with CRC {zlib.crc32(data):#010x}, the header says {told['bytes']} bytes with "
                f"{told['crc32']:#010x}",
                str(place),
                "copy the trace again from its source",
            )
        return data

    def to_arrow(self, table: str = "requests") -> "pyarrow.Table":
        """A table as :class:`pyarrow.Table`."""
        parquet = _module("pyarrow.parquet", "pyarrow")
        return parquet.read_table(_module("pyarrow", "pyarrow").BufferReader(self.parquet(table)))

    def to_polars(self, table: str = "requests") -> "polars.DataFrame":
        """A table as a data frame of polars, which needs no pyarrow."""
        return _module("polars", "polars").read_parquet(io.BytesIO(self.parquet(table)))

    def to_pandas(self, table: str = "requests") -> "pandas.DataFrame":
        """A table as a data frame of pandas; it needs pyarrow."""
        _module("pandas", "pandas")
        return self.to_arrow(table).to_pandas()

    @property
    def requests(self) -> "pyarrow.Table":
        """One row for each request."""
        return self.to_arrow("requests")

    @property
    def runs(self) -> "pyarrow.Table":
        """One row for each piece of a request that has one owner."""
        return self.to_arrow("runs")

    @property
    def events(self) -> "pyarrow.Table":
        """One row for each event that is not a request."""
        return self.to_arrow("events")

    def __repr__(self) -> str:
        return f"<tidegate.Trace {str(self.path)!r}: {self.counts['requests']} requests>"


def _module(name: str, package: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Error(f"{package} is not installed", "tidegate.trace", f"pip install {package}") from error


__all__: List[str] = ["Trace", "trace"]
