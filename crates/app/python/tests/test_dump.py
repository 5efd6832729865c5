"""Dumps, volumes, file systems and files."""

import errno
import io
import mmap
import os
import pickle
import random
import stat
import subprocess
import sys
import threading
import time
import unittest
import warnings
from pathlib import Path
from unittest import mock

import tidegate
from images import BLOCK, LEB, PAGE, Images, with_oob
from tidegate import _core

IMAGES: Images


def setUpModule() -> None:
    global IMAGES
    IMAGES = Images()


def tearDownModule() -> None:
    IMAGES.close()


def contents(fs: "tidegate.FileSystem") -> "dict[str, bytes]":
    """All regular files of a file system."""
    return {entry.path: entry.read_bytes() for entry in fs.entries() if entry.is_file()}


def root_of(dump: "tidegate.Dump") -> "tidegate.FileSystem":
    (fs,) = dump.file_systems()
    return fs


class Dumps(unittest.TestCase):
    def test_partitions_and_volumes_are_those_of_ubinize(self) -> None:
        with tidegate.open(IMAGES.ubi) as dump:
            (partition,) = dump.partitions
            self.assertEqual((partition.kind, partition.name, partition.offset), ("ubi", "1001", 0))
            self.assertEqual((partition.page_size, partition.oob_size), (PAGE, 0))
            self.assertEqual((partition.block_size, partition.leb_size), (BLOCK, LEB))
            found = [(volume.name, volume.kind, volume.content) for volume in dump.volumes]
            self.assertEqual(
                found, [("kernel", "static", "unknown"), ("rootfs", "dynamic", "ubifs"), ("empty", "dynamic", "empty")]
            )
            self.assertEqual(dump.losses, [])
            with dump.volumes[0].open() as kernel:
                self.assertEqual(kernel.read(), IMAGES.kernel)

    def test_a_dump_is_a_path_a_file_a_map_or_bytes(self) -> None:
        data = IMAGES.ubi.read_bytes()
        with open(IMAGES.ubi, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            sources = [str(IMAGES.ubi), os.fsencode(IMAGES.ubi), file, mapped, io.BytesIO(data), bytearray(data)]
            # Its items are words.
            sources.append(memoryview(data).cast("I"))
            for source in sources:
                with self.subTest(type(source)), tidegate.open(source) as dump:
                    self.assertEqual(contents(root_of(dump)), IMAGES.contents)

    def test_dumps_with_everything_around_and_inside_have_all_files(self) -> None:
        data = IMAGES.ubi.read_bytes()
        noise = random.Random(2).randbytes
        bad = data[: 5 * BLOCK] + noise(BLOCK) + data[5 * BLOCK :]
        dumps = {
            "noise in front": noise(96 << 10) + data,
            "bad block": bad,
            "OOB": with_oob(data),
            "OOB and bad block": with_oob(bad),
            "tail": data + noise(777),
            "from byte 1000 on": data[1000:],
        }
        for name, dump in dumps.items():
            with self.subTest(name), tidegate.open(IMAGES.write("dump", dump)) as opened:
                self.assertEqual(contents(root_of(opened)), IMAGES.contents)

    def test_the_gap_of_a_bad_block_is_known(self) -> None:
        data = IMAGES.ubi.read_bytes()
        bad = data[: 5 * BLOCK] + random.Random(2).randbytes(BLOCK) + data[5 * BLOCK :]
        with tidegate.open(bytearray(bad)) as dump:
            (partition,) = dump.partitions
            self.assertEqual(partition.gaps, [(5 * BLOCK, 6 * BLOCK)])
            assert partition.blocks is not None
            self.assertEqual(partition.blocks.other, 1)
            self.assertEqual(dump.read(5 * BLOCK, 100), bad[5 * BLOCK : 5 * BLOCK + 100])

    def test_a_part_of_a_dump_keeps_offsets_of_the_file(self) -> None:
        data = random.Random(5).randbytes(BLOCK) + IMAGES.ubi.read_bytes()
        path = IMAGES.write("dump", data)
        with tidegate.open(path, offset=BLOCK) as dump:
            self.assertEqual((dump.offset, dump.partitions[0].offset), (BLOCK, BLOCK))
            self.assertEqual(dump.read(BLOCK, 4), b"UBI#")
        with self.assertRaises(tidegate.ArgumentError):
            tidegate.open(path, offset=len(data))

    def test_a_bare_file_system_is_a_partition(self) -> None:
        with tidegate.open(IMAGES.bare) as dump:
            (partition,) = dump.partitions
            self.assertEqual((partition.kind, partition.name), ("ubifs", "ubifs-0x0"))
            self.assertEqual(contents(root_of(dump)), IMAGES.contents)
            with dump.volumes[0].open() as image:
                self.assertEqual(image.read(), IMAGES.bare.read_bytes())

    def test_areas_tell_erased_ones(self) -> None:
        data = b"\xff" * BLOCK + IMAGES.ubi.read_bytes() + b"x" * 100
        with tidegate.open(bytearray(data)) as dump:
            sizes = [(area.size, area.is_erased) for area in dump.areas]
            self.assertEqual(sizes, [(BLOCK, True), (100, False)])


class Import(unittest.TestCase):
    def test_an_import_needs_no_module_that_takes_long(self) -> None:
        slow = {"dataclasses", "inspect", "json", "pathlib", "re", "shutil", "subprocess", "tempfile", "typing"}
        program = "import sys; before = set(sys.modules); import tidegate; print(*(set(sys.modules) - before))"
        words = [os.environ.get("TIDEGATE_PYTHON", sys.executable), "-S", "-c", program]
        environment = {**os.environ, "PYTHONPATH": str(Path(tidegate.__file__).parent.parent)}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        self.assertEqual(slow & set(done.stdout.split()), set())
        self.assertTrue(callable(tidegate.trace) and isinstance(tidegate.Trace, type))


class Errors(unittest.TestCase):
    def test_an_error_has_problem_place_and_next_step(self) -> None:
        path = IMAGES.write("noise", random.Random(1).randbytes(100_000))
        with self.assertRaises(tidegate.NotFlashError) as raised:
            tidegate.open(path)
        error = raised.exception
        self.assertEqual(error.place, str(path))
        self.assertIn("no UBI and no UBIFS", error.problem)
        self.assertIn("page, block and oob", error.next_step)
        self.assertIsInstance(error, OSError)
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), str(again)), (type(error), str(error)))

    def test_a_missing_file_is_an_open_error(self) -> None:
        with self.assertRaises(tidegate.OpenError) as raised:
            tidegate.open(IMAGES.path / "absent")
        self.assertIn("absent", raised.exception.place)

    def test_wrong_arguments_are_refused(self) -> None:
        for wrong in ({"page": 0}, {"ecc": "nonsense"}, {"keys": [b"short"]}, {"keys": [("xyz", bytes(64))]}, {"offset": -1}, {"block": 1 << 40}, {"length": 1 << 64}):
            with self.subTest(wrong), self.assertRaises(tidegate.ArgumentError):
                tidegate.open(IMAGES.ubi, **wrong)  # type: ignore[arg-type]
        with self.assertRaises(tidegate.ArgumentError):
            tidegate.open(7)  # type: ignore[arg-type]

    def test_an_empty_dump_is_no_flash(self) -> None:
        for source in (IMAGES.write("empty", b""), bytearray(), io.BytesIO()):
            with self.subTest(type(source)), self.assertRaises(tidegate.NotFlashError):
                tidegate.open(source)

    def test_a_source_that_reads_its_own_dump_is_an_error_and_no_deadlock(self) -> None:
        class Reentrant(io.BytesIO):
            dump: "tidegate.Dump | None" = None

            def read(self, size: "int | None" = -1) -> bytes:
                if self.dump is not None:
                    self.dump.read(0, 8)
                return super().read(size)

        source = Reentrant(IMAGES.ubi.read_bytes())
        with tidegate.open(source) as dump:
            source.dump = dump
            raised: "list[BaseException]" = []

            def read() -> None:
                try:
                    dump.read(0, 8)
                except RuntimeError as error:
                    raised.append(error)

            thread = threading.Thread(target=read, daemon=True)
            thread.start()
            thread.join(20)
            self.assertFalse(thread.is_alive())
            self.assertEqual(len(raised), 1)
            source.dump = None
            self.assertEqual(dump.read(0, 4), b"UBI#")

    def test_a_panic_becomes_an_exception(self) -> None:
        with self.assertRaises(tidegate.InternalError) as raised:
            _core.panic()
        self.assertIn("a test asked for it", str(raised.exception))

    def test_an_error_of_a_source_is_unreadable_bytes(self) -> None:
        class Broken(io.BytesIO):
            def read(self, size: "int | None" = -1) -> bytes:
                if self.tell() >= 20 * BLOCK:
                    raise OSError("bad sector")
                return super().read(size)

        with tidegate.open(Broken(IMAGES.ubi.read_bytes())) as dump:
            self.assertTrue(any(finding.kind == "unreadable" for finding in dump.losses))

    def test_another_exception_of_a_source_is_raised(self) -> None:
        # Ctrl-C, and defects of the source, are no damage of the dump.
        for raised in (KeyboardInterrupt, ValueError):

            class Broken(io.BytesIO):
                def read(self, size: "int | None" = -1) -> bytes:
                    raise raised("stopped")

            with self.assertRaises(raised):
                tidegate.open(Broken(IMAGES.ubi.read_bytes()))

    def test_a_source_that_fails_later_is_an_error_and_not_erased_flash(self) -> None:
        source = io.BytesIO(IMAGES.ubi.read_bytes())
        dump = tidegate.open(source)
        kernel = dump.volumes[0].open(0)
        self.assertEqual(kernel.read(10), IMAGES.kernel[:10])
        source.truncate(4 * BLOCK)
        kernel.seek(2 * LEB)
        for read in (lambda: kernel.read(10), lambda: kernel.read(10), lambda: dump.read(5 * BLOCK, 10)):
            with self.assertRaises(tidegate.OpenError):
                read()
        source.close()
        kernel.seek(0)
        with self.assertRaises(ValueError):
            kernel.read(10)

    def test_a_file_system_is_not_opened_without_what_can_not_be_read_any_more(self) -> None:
        # The journal, or files of a salvage, would be missing without a loss.
        whole = IMAGES.bare.read_bytes()
        source = io.BytesIO(whole)
        dump = tidegate.open(source)
        source.truncate(len(whole) - 2 * LEB)
        with self.assertRaises(tidegate.OpenError):
            dump.volumes[0].file_system(salvage=True)
        source.truncate(2 * LEB)
        with self.assertRaises(tidegate.OpenError):
            dump.volumes[0].file_system()

    def test_a_file_that_can_not_be_read_any_more_is_no_damage(self) -> None:
        source = io.BytesIO(IMAGES.bare.read_bytes())
        system = tidegate.open(source).volumes[0].file_system()
        files = [entry for entry in system.entries() if entry.is_file() and entry.size]
        self.assertTrue(files)
        source.truncate(0)
        for file in files:
            with self.assertRaises(tidegate.OpenError):
                file.read_bytes()
        with self.assertRaises(tidegate.OpenError):
            list(system.entries())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            files[0].read_bytes(on_loss="zeros")
        self.assertTrue(any(finding.kind == "unreadable" for finding in system.losses))

    def test_damage_stays_damage_after_a_source_that_failed_once(self) -> None:
        data = bytearray(IMAGES.bare.read_bytes())
        for file in tidegate.open(io.BytesIO(data)).volumes[0].file_system().entries():
            content = file.read_bytes()[1000:1064] if file.is_file() else b""
            # Random bytes are not compressed.
            if len(set(content)) > 32:
                break
        at = data.find(content)
        self.assertGreater(at, 0)
        data[at] ^= 1
        source = io.BytesIO(data)
        system = tidegate.open(source).volumes[0].file_system()
        whole = source.getvalue()
        source.truncate(0)
        with self.assertRaises(tidegate.OpenError):
            system.read_bytes(file.path)
        source.seek(0)
        source.write(whole)
        with self.assertRaises(tidegate.DamageError):
            system.read_bytes(file.path)

    def test_what_could_not_be_read_at_first_is_no_later_error(self) -> None:
        class BadSector(io.BytesIO):
            bad = 0

            def read(self, size: "int | None" = -1) -> bytes:
                at = self.tell()
                data = super().read(size)
                if at <= self.bad < at + len(data):
                    raise OSError("bad sector")
                return data

        # LEBs begin where no page of the host does.
        source = BadSector(bytes(1000) + IMAGES.ubi.read_bytes())
        source.bad = 1000 + 3 * BLOCK + 20_000
        with tidegate.open(source) as dump:
            self.assertTrue(dump.losses)
            with dump.volumes[0].open(0, on_loss="keep") as kernel:
                data = kernel.read()
        lost = [at for at, (one, other) in enumerate(zip(data, IMAGES.kernel)) if one != other]
        self.assertTrue(lost and lost[-1] - lost[0] < 4096, (len(lost), lost[:1], lost[-1:]))

    def test_threads_share_the_position_of_an_open_file(self) -> None:
        class Slow(io.BytesIO):
            def seek(self, offset: int, whence: int = 0) -> int:
                found = super().seek(offset, whence)
                time.sleep(0)
                return found

        # Parts of a large one are searched by several threads.
        dump = IMAGES.ubi.read_bytes() + b"\xff" * (24 << 20)
        with tidegate.open(Slow(dump + IMAGES.ubi.read_bytes())) as opened:
            self.assertEqual([len(part.volumes) for part in opened.partitions], [3, 3])
            wrong = []

            def read(volume: tidegate.Volume) -> None:
                with volume.open(0) as kernel:
                    for _ in range(20):
                        kernel.seek(0)
                        if kernel.read() != IMAGES.kernel:
                            wrong.append(volume)

            kernels = [volume for volume in opened.volumes if volume.name == "kernel"]
            threads = [threading.Thread(target=read, args=(kernel,)) for kernel in kernels * 2]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])

    def test_a_file_of_a_bare_volume_stays_usable(self) -> None:
        with tidegate.open(IMAGES.bare) as dump:
            content = dump.volumes[0].open()
        self.assertEqual(content.read(4), b"\x31\x18\x10\x06")

    def test_a_closed_dump_is_refused_and_its_file_systems_work(self) -> None:
        with tidegate.open(IMAGES.ubi) as dump:
            fs = root_of(dump)
        with self.assertRaises(tidegate.ArgumentError):
            dump.read(0, 1)
        self.assertEqual(fs.read_bytes("/etc/passwd"), IMAGES.contents["/etc/passwd"])


class Paths(unittest.TestCase):
    def setUp(self) -> None:
        self.dump = tidegate.open(IMAGES.ubi)
        self.addCleanup(self.dump.close)
        self.fs = root_of(self.dump)

    def test_a_walk_is_that_of_the_folder(self) -> None:
        root = IMAGES.path / "rootfs"
        expected = {
            "/" + os.path.relpath(path, root).removeprefix("."): (sorted(directories), sorted(files))
            for path, directories, files in os.walk(root)
        }
        # os.walk lists links to folders as folders.
        found = {}
        for path, directories, files in self.fs.walk():
            links = {name for name in files if os.path.isdir(os.path.join(root, path[1:], name))}
            found[path] = (sorted({*directories, *links}), sorted(set(files) - links))
        self.assertEqual(found, expected)

    def test_removed_directories_are_not_entered(self) -> None:
        seen = []
        for path, directories, _ in self.fs.walk():
            seen.append(path)
            directories[:] = [name for name in directories if name == "d0"]
        self.assertEqual(seen, ["/", "/d0"])

    def test_links_are_followed_inside_of_the_file_system(self) -> None:
        passwd = IMAGES.contents["/etc/passwd"]
        for path in ("/etc/users", "d0/settings/passwd", "/d0/settings/../etc/passwd", "/escape", b"/etc//./passwd"):
            with self.subTest(path):
                self.assertEqual(self.fs.read_bytes(path), passwd)
        self.assertEqual(self.fs.entry("/d0/settings/passwd").path, "/etc/passwd")
        self.assertEqual(self.fs.readlink("/etc/users"), "/etc/passwd")
        with self.assertRaises(FileNotFoundError):
            self.fs.open("/loop")

    def test_a_missing_path_is_a_file_not_found_error(self) -> None:
        for path in ("/nothing", "/etc/passwd/below", "/etc/nothing/else"):
            with self.subTest(path), self.assertRaises(FileNotFoundError) as raised:
                self.fs.stat(path)
            self.assertIsInstance(raised.exception, tidegate.NotFoundError)
        self.assertFalse(self.fs.exists("/nothing"))
        self.assertTrue(self.fs.exists("/"))

    def test_only_a_directory_has_something_below_or_above_it(self) -> None:
        # As on the folder that the image was made of.
        root = IMAGES.path / "rootfs"
        for path in (
            "etc/passwd/..",
            "etc/passwd/.",
            "etc/passwd/",
            "etc/passwd/../passwd",
            "etc/passwd.hard/x",
            "d0/settings/passwd/..",
            "d0/e0/file 0/../../e1",
        ):
            with self.subTest(path), self.assertRaises(NotADirectoryError) as raised:
                self.fs.entry(path)
            self.assertEqual(raised.exception.errno, errno.ENOTDIR)
            self.assertIsInstance(raised.exception, tidegate.NotFoundError)
            self.assertFalse(self.fs.exists(path))
            # Links of the image lead elsewhere on the host.
            if "settings" not in path:
                with self.assertRaises(NotADirectoryError):
                    os.stat(f"{root}/{path}")
        for path in ("etc/", "etc/.", "/etc/../etc//", "d0/settings/", "/", "//", "/../.."):
            with self.subTest(path):
                self.assertTrue(self.fs.entry(path).is_dir())
        # A slash behind a link asks for what it leads to.
        self.assertTrue(self.fs.entry("d0/settings", follow_symlinks=False).is_symlink())
        self.assertTrue(self.fs.entry("d0/settings/", follow_symlinks=False).is_dir())

    def test_operations_refuse_files_of_other_kinds(self) -> None:
        with self.assertRaises(tidegate.KindError):
            self.fs.open("/etc")
        with self.assertRaises(tidegate.KindError):
            self.fs.listdir("/etc/passwd")
        with self.assertRaises(tidegate.KindError):
            self.fs.readlink("/etc/passwd")

    def test_attributes_are_those_of_the_folder(self) -> None:
        root = IMAGES.path / "rootfs"
        for path in ("/etc", "/etc/passwd", "/sparse", "/d0/e0/file 0", "/etc/users"):
            with self.subTest(path):
                found, expected = self.fs.lstat(path), os.lstat(root / path[1:])
                self.assertEqual(found.st_mode, expected.st_mode)
                self.assertEqual((found.st_uid, found.st_gid), (expected.st_uid, expected.st_gid))
                self.assertEqual(int(found.st_mtime), int(expected.st_mtime))
                if stat.S_ISREG(found.st_mode):
                    self.assertEqual((found.st_size, found.st_nlink), (expected.st_size, expected.st_nlink))

    def test_names_with_any_bytes_are_strings(self) -> None:
        name = os.fsdecode(b"caf\xe9")
        self.assertIn(name, self.fs.listdir("/"))
        self.assertEqual(self.fs.read_bytes(f"/{name}"), b"latin")
        self.assertEqual(self.fs.read_bytes(b"/caf\xe9"), b"latin")

    def test_hard_links_have_one_inode(self) -> None:
        names = [self.fs.stat(path).st_ino for path in ("/etc/passwd", "/etc/passwd.hard")]
        self.assertEqual(len(set(names)), 1)


class Files(unittest.TestCase):
    def setUp(self) -> None:
        self.dump = tidegate.open(IMAGES.ubi)
        self.addCleanup(self.dump.close)
        self.fs = root_of(self.dump)

    def test_reads_and_seeks_are_those_of_a_file(self) -> None:
        path = max(IMAGES.contents, key=lambda path: len(IMAGES.contents[path]))
        expected = io.BytesIO(IMAGES.contents[path])
        rng = random.Random(9)
        for buffering in (-1, 0, 1000):
            with self.subTest(buffering), self.fs.open(path, buffering) as file:
                for _ in range(200):
                    at, size = rng.randrange(1_100_000), rng.randrange(70_000)
                    self.assertEqual(file.seek(at), expected.seek(at))
                    self.assertEqual(file.read(size), expected.read(size))
                self.assertEqual(file.seek(-3, os.SEEK_END), expected.seek(-3, os.SEEK_END))
                self.assertEqual((file.read(), expected.read()), (b"end", b"end"))
                self.assertEqual((file.tell(), file.read(1)), (expected.tell(), b""))
                with self.assertRaises(ValueError):
                    file.seek(-1)
                with self.assertRaises(OSError):
                    file.write(b"x")
            with self.assertRaises(ValueError):
                file.read(1)

    def test_arguments_of_a_wrong_type_change_nothing(self) -> None:
        with self.fs.open("/etc/passwd", 0) as file:
            file.seek(5)
            with self.assertRaises(TypeError):
                file.seek(1.5)  # type: ignore[arg-type]
            with self.assertRaises(TypeError):
                file.readinto(bytes(3))  # type: ignore[attr-defined]
            self.assertEqual((file.tell(), file.read(2)), (5, b"x:"))
        with self.assertRaises(tidegate.ArgumentError):
            self.dump.volumes[0].open(on_loss="zeros")

    def test_extents_leave_out_holes(self) -> None:
        self.assertEqual(self.fs.entry("/sparse").extents(), [(1 << 20, (1 << 20) + 3)])

    def test_lines_can_be_read(self) -> None:
        with io.TextIOWrapper(self.fs.open("/etc/passwd")) as file:
            self.assertEqual(list(file), ["root:x:0:0:root:/root:/bin/sh\n"])

    def test_an_object_is_read_by_the_threads_that_ask_one_after_the_other(self) -> None:
        class Watched(io.BytesIO):
            reader = 0
            readers: "set[int]" = set()
            is_mixed = False

            def seek(self, *arguments: int) -> int:
                self.reader = threading.get_ident()
                self.readers.add(self.reader)
                return super().seek(*arguments)

            def read(self, size: "int | None" = -1) -> bytes:
                # Another thread runs, if one may.
                time.sleep(0)
                self.is_mixed |= self.reader != threading.get_ident()
                return super().read(size)

        image = IMAGES.image_of({f"file-{number}": random.Random(number).randbytes(100_000) for number in range(30)})
        file = Watched(image.read_bytes() + bytes(9 << 20))
        with tidegate.open(image) as dump:
            expected = contents(root_of(dump))
        with tidegate.open(file) as dump:
            fs = root_of(dump)
            self.assertEqual(contents(fs), expected)
            self.assertEqual(file.readers, {threading.get_ident()})
            found: "list[dict[str, bytes]]" = []
            threads = [threading.Thread(target=lambda: found.append(contents(fs))) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(found, [expected] * 3)
            self.assertFalse(file.is_mixed)

    def test_files_read_ahead_are_those_read_by_themselves(self) -> None:
        with tidegate.open(IMAGES.ubi) as dump:
            listed = [entry for entry in root_of(dump).entries() if entry.is_file()]
            alone = {entry.path: entry.read_bytes() for entry in reversed(listed)}
            for _ in range(3):
                self.assertEqual({entry.path: entry.read_bytes() for entry in listed}, alone)
            # By paths, as after a walk, and with some left out.
            fs = root_of(dump)
            self.assertEqual({entry.path: fs.read_bytes(entry.path) for entry in fs.entries() if entry.is_file()}, alone)
            some = [entry for entry in root_of(dump).entries() if entry.is_file()][::3]
            self.assertEqual([entry.read_bytes() for entry in some], [alone[entry.path] for entry in some])

    def test_a_large_read_is_all_of_its_pieces(self) -> None:
        content = random.Random(8).randbytes(3_300_001)
        image = IMAGES.image_of({"large": content})
        with tidegate.open(image) as dump:
            fs = root_of(dump)
            self.assertEqual(fs.read_bytes("/large"), content)
            with fs.open("/large", 0) as file:
                file.seek(4095)
                self.assertEqual(file.read(), content[4095:])

    def test_a_process_that_was_forked_reads_on(self) -> None:
        with tidegate.open(IMAGES.ubi) as dump:
            listed = [entry for entry in root_of(dump).entries() if entry.is_file()]
            half = [entry.read_bytes() for entry in listed[: len(listed) // 2]]
            child = os.fork()
            if child == 0:
                os._exit(0 if [entry.read_bytes() for entry in listed][: len(half)] == half else 1)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_threads_read_at_the_same_time(self) -> None:
        wrong = []

        def read() -> None:
            for path, content in IMAGES.contents.items():
                if self.fs.read_bytes(path) != content:
                    wrong.append(path)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_other_threads_run_during_a_survey(self) -> None:
        # A source that waits for another thread of Python, as nothing else could end that wait.
        turn, done = threading.Event(), threading.Event()
        answered = []

        class Waiting(io.BytesIO):
            def read(self, size: "int | None" = -1) -> bytes:
                turn.set()
                answered.append(done.wait(60))
                return super().read(size)

        def answer() -> None:
            turn.wait(60)
            done.set()

        thread = threading.Thread(target=answer)
        thread.start()
        tidegate.open(Waiting(IMAGES.ubi.read_bytes())).close()
        thread.join()
        self.assertTrue(answered and all(answered))


class Losses(unittest.TestCase):
    def damaged(self) -> "tuple[Path, str]":
        """A bare image in which a block of a file is damaged, and the file's path."""
        data = bytearray(IMAGES.bare.read_bytes())
        content = next(
            content for content in IMAGES.contents.values() if len(content) == 30000 and not content.startswith(b"text")
        )
        path = next(path for path, other in IMAGES.contents.items() if other is content)
        # Random bytes are stored as they are.
        at = data.find(content[4096 : 4096 + 64])
        self.assertGreater(at, 0)
        data[at + 10] ^= 0xFF
        return IMAGES.write("damaged.ubifs", bytes(data)), path

    def test_a_damaged_block_is_an_error_or_zeros_with_a_loss(self) -> None:
        image, path = self.damaged()
        with tidegate.open(image) as dump:
            fs = root_of(dump)
            with self.assertRaises(tidegate.DamageError) as raised:
                fs.read_bytes(path)
            self.assertIn("on_loss", raised.exception.next_step)
            with self.assertWarns(tidegate.LossWarning):
                data = fs.read_bytes(path, on_loss="zeros")
            expected = IMAGES.contents[path]
            self.assertEqual(data[:4096] + data[8192:], expected[:4096] + expected[8192:])
            self.assertEqual(data[4096:8192], bytes(4096))
            (loss,) = fs.losses
            self.assertEqual((loss.kind, loss.inode), ("block", fs.entry(path).inode))

    def test_losses_have_room_beside_many_guesses(self) -> None:
        image, path = self.damaged()
        with tidegate.open(image) as dump, mock.patch("tidegate._tree.FINDINGS_MAX", 3):
            fs = root_of(dump)
            fs.findings += [tidegate.Finding("note", "guess", f"guess {number}") for number in range(5)]
            with self.assertWarns(tidegate.LossWarning):
                fs.read_bytes(path, on_loss="zeros")
            self.assertEqual(len(fs.losses), 1)

    def test_a_lost_index_is_salvaged(self) -> None:
        data = bytearray(IMAGES.bare.read_bytes())
        # Both copies of the master node.
        data[LEB : 3 * LEB] = b"\xff" * (2 * LEB)
        image = IMAGES.write("headless.ubifs", bytes(data))
        with tidegate.open(image) as dump:
            with self.assertRaises(tidegate.DamageError) as raised:
                dump.volumes[0].file_system()
            self.assertIn("salvage=True", raised.exception.next_step)
            fs = dump.volumes[0].file_system(salvage=True)
            self.assertTrue(fs.is_salvaged and fs.guesses)
            self.assertEqual(contents(fs), IMAGES.contents)
        with tidegate.open(image, salvage=True) as dump:
            self.assertEqual(contents(root_of(dump)), IMAGES.contents)

    def test_a_damaged_static_volume_is_an_error_unless_kept(self) -> None:
        data = bytearray(IMAGES.ubi.read_bytes())
        at = data.find(IMAGES.kernel[:64])
        data[at] ^= 1
        with tidegate.open(data) as dump:
            kernel = dump.volumes[0]
            with self.assertRaises(tidegate.DamageError):
                kernel.open()
            with kernel.open(on_loss="keep") as file:
                self.assertEqual(file.read()[1:], IMAGES.kernel[1:])
            self.assertEqual([loss.kind for loss in kernel.losses], ["static-crc"])

    def test_random_damage_is_an_error_or_a_loss_and_never_another_exception(self) -> None:
        rng = random.Random(20)
        original = IMAGES.ubi.read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tidegate.LossWarning)
            for seed in range(60):
                data = bytearray(original[: rng.randrange(len(original) // 2, len(original))])
                for _ in range(rng.choice((1, 20, 400))):
                    at = rng.randrange(len(data))
                    data[at] = rng.randrange(256)
                with self.subTest(seed):
                    try:
                        with tidegate.open(data, salvage=seed % 2 == 1) as dump:
                            for fs in dump.file_systems():
                                for entry in fs.entries():
                                    if entry.is_file() and entry.size < 10**7:
                                        entry.read_bytes(on_loss="zeros")
                    except tidegate.InternalError:
                        raise
                    except tidegate.Error:
                        pass


if __name__ == "__main__":
    unittest.main()
