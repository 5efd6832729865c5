"""Plugin of unblob (entry point ``unblob_v1``): UBI partitions and UBIFS volumes.

Carving is that of the survey: a partition reaches over bad and erased blocks, with and without OOB areas. Extraction writes
the files of each UBIFS as a mount would recover them, and everything else for unblob to look into: other volumes, and the
blocks between those of the partition.

It never costs what unblob's own handlers get: a match that it does not understand is left to them, a chunk begins at the
match, so that it cannot overlap an earlier one, and if something is lost, their extractors run too, into ``ubi_reader``.
"""

import os
import warnings
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Tuple

import unblob.plugins
from unblob.handlers.filesystem.ubi import UBIFSHandler, UBIHandler
from unblob.models import (
    ExtractError,
    Extractor,
    ExtractResult,
    File,
    Handler,
    HandlerDoc,
    HandlerType,
    HexString,
    Reference,
    ValidChunk,
)
from unblob.report import ExtractionProblem, Report

import tidegate
from tidegate._values import bytes_of

#: Bytes that are copied at once.
PIECE = 1 << 20
#: Bytes that one chunk may become: an inode of a forged image may claim terabytes.
WRITTEN_MAX = 64 << 30
FILES_MAX = 1_000_000
#: Largest image of a volume: these bytes, and that many times the dump. Forged headers may claim any number of LEBs.
IMAGE_MIN = 64 << 20
IMAGE_RATIO = 4
#: Losses that are reported for each volume.
REPORTS_MAX = 100
#: Longest name of a file on the host.
NAME_MAX = 255


class Budget:
    """Limits of an extraction."""

    def __init__(self) -> None:
        self._bytes = WRITTEN_MAX
        self._files = FILES_MAX

    def take_file(self) -> bool:
        self._files -= 1
        return self._files >= 0

    def take_bytes(self, count: int) -> bool:
        self._bytes -= count
        return self._bytes >= 0


def harmless(name: str) -> str:
    """A name of a volume as one of a file of the host."""
    text = "".join("_" if character == "/" or ord(character) < 32 else character for character in name)
    text = text.lstrip(".-~")
    return text.encode("utf-8", "surrogateescape")[:200].decode("utf-8", "surrogateescape") or "unnamed"


class Extraction:
    """Writes one chunk below a folder that nothing else writes to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._budget = Budget()
        self._taken: set = set()
        self.reports: List[Report] = []

    def tell(self, place: str, problem: str, resolution: str) -> None:
        """Adds a report."""
        self.reports.append(ExtractionProblem(path=place, problem=problem, resolution=resolution))

    def tell_losses(self, place: str, losses: "List[tidegate.Finding]", resolution: str) -> None:
        """Adds a report for each loss."""
        for loss in losses[:REPORTS_MAX]:
            self.tell(place, str(loss), resolution)
        if len(losses) > REPORTS_MAX:
            self.tell(place, f"{len(losses) - REPORTS_MAX} more losses", resolution)

    def unique(self, name: str) -> str:
        """A name of the folder that is not taken."""
        number, chosen = 1, name
        while chosen in self._taken:
            number += 1
            chosen = f"{name}~{number}"
        self._taken.add(chosen)
        return chosen

    def dump(self, dump: "tidegate.Dump", inpath: Path) -> None:
        """Writes everything in a dump."""
        self.tell_losses(dump.name, [finding for finding in dump.findings if finding.is_loss], "left out")
        for partition in dump.partitions:
            folder = self.unique(partition.name)
            (self._folder / folder).mkdir()
            self.tell_losses(folder, partition.losses, "left out")
            for volume in partition.volumes:
                self.volume(folder, volume, inpath)
            for start, end in _gaps(dump, partition):
                # As it lies on the chip, with OOB areas: nothing is known of it.
                read = _reader(dump, start)
                self.copy(f"{folder}/blocks-{start:#x}.raw", _pieces(read, end - start))
        if dump.losses and any(partition.kind == "ubi" for partition in dump.partitions):
            self.fall_back(UBIHandler.EXTRACTOR, inpath, self.unique("ubi_reader"))

    def volume(self, folder: str, volume: "tidegate.Volume", inpath: Path) -> None:
        """Writes a volume: its files, or its image."""
        place = self.unique(f"{folder}/{harmless(volume.name)}")
        self.tell_losses(place, volume.losses, "left out")
        if volume.content == "empty":
            return
        if volume.content == "ubifs":
            if self.file_system(place, volume):
                self.file_system_of_unblob(place, volume, inpath)
            return
        ending = {"squashfs": "squashfs"}.get(volume.content, "bin" if volume.kind == "static" else "img")
        before = len(volume.losses)
        self.image(self.unique(f"{place}.{ending}"), volume)
        self.tell_losses(place, volume.losses[before:], "kept as it is")

    def file_system(self, place: str, volume: "tidegate.Volume") -> bool:
        """Writes the files of a UBIFS; if it lost something, those of a salvage too. Returns whether it lost something."""
        try:
            fs = volume.file_system(salvage=False)
            Tree(self, fs, place, self._budget).write(self._folder)
            lost = fs.losses
        except tidegate.DamageError as error:
            lost = [tidegate.Finding("loss", "file-system", str(error))]
        # A salvage opens no encrypted file.
        if all(finding.kind == "encrypted" for finding in lost):
            self.tell_losses(place, lost, "left out")
            return bool(lost)
        salvaged = self.unique(f"{place}.salvaged")
        self.tell_losses(place, lost, f"zeros in its place, or left out; see {salvaged}")
        try:
            fs = volume.file_system(salvage=True)
            Tree(self, fs, salvaged, self._budget).write(self._folder)
            self.tell_losses(salvaged, fs.losses, "zeros in its place, or left out")
        except tidegate.Error as error:
            self.tell(salvaged, str(error), "left out")
        return True

    def file_system_of_unblob(self, place: str, volume: "tidegate.Volume", inpath: Path) -> None:
        """Extracts a UBIFS as unblob does."""
        if volume.partition.kind == "ubifs":
            self.fall_back(UBIFSHandler.EXTRACTOR, inpath, self.unique(f"{place}.ubi_reader"))
            return
        # Removed afterwards: it would be a chunk of this plugin again.
        image = self.unique(f"{place}.ubifs")
        self.image(image, volume)
        self.fall_back(UBIFSHandler.EXTRACTOR, self._folder / image, self.unique(f"{place}.ubi_reader"))
        (self._folder / image).unlink(missing_ok=True)

    def fall_back(self, extractor: Extractor, inpath: Path, name: str) -> None:
        """Runs an extractor of unblob, which may fail: its results come on top."""
        outdir = self._folder / name
        outdir.mkdir()
        try:
            extractor.extract(inpath, outdir)
        except (ExtractError, OSError):
            pass
        if not any(outdir.iterdir()):
            outdir.rmdir()

    def image(self, name: str, volume: "tidegate.Volume") -> None:
        """Writes the content of a volume."""
        with volume.open(0, on_loss="keep") as file:
            size = file.seek(0, os.SEEK_END)
            limit = IMAGE_MIN + IMAGE_RATIO * volume.partition.dump.size
            if size > limit:
                self.tell(name, f"its headers claim {size} bytes, {limit} is the limit", "left out")
                return
            file.seek(0)
            self.copy(name, _stream(file))

    def copy(self, name: str, pieces: Iterator[bytes]) -> None:
        """Writes a file."""
        if not self._budget.take_file():
            self.tell(name, f"more than {FILES_MAX} files", "left out")
            return
        with (self._folder / name).open("xb") as out:
            for piece in pieces:
                if not self._budget.take_bytes(len(piece)):
                    self.tell(name, f"more than {WRITTEN_MAX} bytes", "cut here")
                    return
                out.write(piece)


class Tree:
    """Writes the files of a file system. Links are made last, so that nothing is written through them."""

    def __init__(self, extraction: Extraction, fs: "tidegate.FileSystem", place: str, budget: Budget) -> None:
        self._extraction = extraction
        self._fs = fs
        self._place = place
        self._budget = budget

    def write(self, below: Path) -> None:
        root = os.fsencode(below / self._place)
        os.mkdir(root)
        hard: Dict[int, bytes] = {}
        symbolic: List[Tuple[bytes, bytes]] = []
        times: List[Tuple[bytes, os.stat_result]] = []
        for entry in self._fs.entries():
            path = root + bytes_of(entry.path)
            if not self._budget.take_file():
                self._tell(entry.path, f"more than {FILES_MAX} files", "the rest is left out")
                break
            try:
                if entry.is_dir():
                    os.mkdir(path)
                    times.append((path, entry.stat()))
                elif entry.is_symlink():
                    symbolic.append((path, bytes_of(entry.readlink())))
                elif entry.is_file():
                    if entry.inode in hard:
                        os.link(hard[entry.inode], path)
                    else:
                        self._file(entry, path)
                        if entry.stat().st_nlink > 1:
                            hard[entry.inode] = path
                # Devices, FIFOs and sockets have no content, and no unprivileged user can make them.
            except (OSError, ValueError) as error:
                self._tell(entry.path, str(error), "left out")
        for path, target in symbolic:
            try:
                os.symlink(target, path)
            except OSError as error:
                self._tell(os.fsdecode(path[len(root) :]), str(error), "left out")
        for path, found in reversed(times):
            _set_attributes(path, found)

    def _file(self, entry: "tidegate.Entry", path: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with entry.open(0, on_loss="zeros") as file:
                for start, end in entry.extents():
                    file.seek(start)
                    while start < end:
                        data = file.read(min(PIECE, end - start))
                        if not data:
                            break
                        if not self._budget.take_bytes(len(data)):
                            self._tell(entry.path, f"more than {WRITTEN_MAX} bytes", "cut here")
                            return
                        os.pwrite(descriptor, data, start)
                        start += len(data)
            os.ftruncate(descriptor, entry.size)
        finally:
            os.close(descriptor)
        _set_attributes(path, entry.stat())

    def _tell(self, path: str, problem: str, resolution: str) -> None:
        shown = os.fsencode(f"{self._place}{path}").decode("utf-8", "replace")
        self._extraction.tell(shown, problem, resolution)


def _set_attributes(path: bytes, found: os.stat_result) -> None:
    """Mode and times, as far as they give no rights to others."""
    try:
        os.chmod(path, found.st_mode & 0o755 | 0o600)
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    except (OSError, OverflowError):
        pass


def _stream(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece


def _pieces(read: Callable[[int, int], bytes], size: int) -> Iterator[bytes]:
    for at in range(0, size, PIECE):
        yield read(at, min(PIECE, size - at))


def _reader(dump: "tidegate.Dump", start: int) -> Callable[[int, int], bytes]:
    return lambda at, count: dump.read(start + at, count)


def _gaps(dump: "tidegate.Dump", partition: "tidegate.Partition") -> Iterator[Tuple[int, int]]:
    """The gaps of a partition that hold something, without those parts that are partitions of their own."""
    others = [other for other in dump.partitions if other is not partition]
    others.sort(key=lambda other: other.offset)
    for gap_start, gap_end in partition.gaps:
        at = gap_start
        free = []
        for other in others:
            if at < other.offset + other.size and other.offset < gap_end:
                free.append((at, other.offset))
                at = other.offset + other.size
        for start, end in (*free, (at, gap_end)):
            if any(piece.strip(b"\xff") for piece in _pieces(_reader(dump, start), end - start)):
                yield start, end


class TidegateExtractor(Extractor):
    """Extracts a chunk with everything that its survey finds."""

    def extract(self, inpath: Path, outdir: Path) -> Optional[ExtractResult]:
        extraction = Extraction(outdir)
        with warnings.catch_warnings():
            # Losses become reports.
            warnings.simplefilter("ignore", tidegate.LossWarning)
            with tidegate.open(inpath) as dump:
                extraction.dump(dump, inpath)
        return ExtractResult(reports=extraction.reports) if extraction.reports else None


class SurveyHandler(Handler):
    """Chunks by one survey of the file, which is kept as long as the file is open."""

    EXTRACTOR = TidegateExtractor()

    def survey(self, file: File) -> "Optional[tidegate.Dump]":
        """The survey of a file; ``None`` if there is neither UBI nor UBIFS in it."""
        known: Any = getattr(file, "_tidegate_survey", _UNKNOWN)
        if known is _UNKNOWN:
            try:
                known = tidegate.open(file)
            except tidegate.NotFlashError:
                known = None
            # The survey reads no more, and would keep the file open.
            if known is not None:
                known.close()
            file._tidegate_survey = known  # type: ignore[attr-defined]
        return known

    def part_at(self, file: File, offset: int, kind: str) -> "Optional[tidegate.Partition]":
        """The part of this kind that a match belongs to."""
        survey = self.survey(file)
        for part in survey.partitions if survey else ():
            if part.kind == kind and part.offset <= offset < part.offset + part.size:
                return part
        return None


_UNKNOWN = object()


class TidegateUBIHandler(SurveyHandler):
    NAME = "tidegate_ubi"

    # One byte shorter than unblob's own pattern, and so asked first; and the VID header, for dumps that begin inside of a
    # block, and blocks with damaged EC headers.
    PATTERNS = [HexString("55 42 49 23"), HexString("55 42 49 21 01")]

    DOC = HandlerDoc(
        name="UBI (tidegate)",
        description="UBI partitions with bad and erased blocks, with OOB areas, and their UBIFS volumes with the journal.",
        handler_type=HandlerType.FILESYSTEM,
        vendor=None,
        references=[
            Reference(
                title="UBI Documentation",
                url="https://www.kernel.org/doc/html/latest/driver-api/ubi.html",
            ),
        ],
        limitations=[],
    )

    def calculate_chunk(self, file: File, start_offset: int) -> Optional[ValidChunk]:
        part = self.part_at(file, start_offset, "ubi")
        if part is None or not part.volumes:
            return None
        return ValidChunk(start_offset=start_offset, end_offset=part.offset + part.size)


class TidegateUBIFSHandler(SurveyHandler):
    NAME = "tidegate_ubifs"

    # A superblock: shorter than unblob's own pattern, and so asked first.
    PATTERNS = [HexString("31 18 10 06 [16] 06")]

    DOC = HandlerDoc(
        name="UBIFS (tidegate)",
        description="UBIFS volumes outside of UBI, with the journal.",
        handler_type=HandlerType.FILESYSTEM,
        vendor=None,
        references=[
            Reference(
                title="UBIFS Documentation",
                url="https://www.kernel.org/doc/html/latest/filesystems/ubifs.html",
            ),
        ],
        limitations=[],
    )

    def calculate_chunk(self, file: File, start_offset: int) -> Optional[ValidChunk]:
        part = self.part_at(file, start_offset, "ubifs")
        if part is None or part.offset != start_offset:
            return None
        return ValidChunk(start_offset=start_offset, end_offset=part.offset + part.size)


@unblob.plugins.hookimpl
def unblob_register_handlers() -> List[Any]:
    """The handlers of this plugin."""
    return [TidegateUBIHandler, TidegateUBIFSHandler]
