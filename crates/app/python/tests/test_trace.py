"""Traces: rows equal those of `tidegate trace info`, by pyarrow, polars and pandas."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

import tidegate
from tidegate._command import find_command

BLKPARSE = """\
  8,0    1        2     0.000000200   697  Q  WS 223490 + 8 [my app]
  8,0    1        3     0.000000300   697  G  WS 223490 + 8 [my app]
  8,0    1        5     0.000000700   697  I  WS 223490 + 8 [my app]
  8,0    1        7     0.000000900   120  D  WS 223490 + 8 [kworker/0:1H]
  8,0    1        8     0.000001500     0  C  WS 223490 + 8 [0]
  8,0    1       17     0.000004000   697  Q   D 900 + 8 [my app]
  8,0    1       18     0.000004100   697  D   D 900 + 8 [my app]
  8,0    1       21     0.000004400     0  C   D 900 + 8 [0]
"""


def has(*modules: str) -> bool:
    """Whether these modules can be imported."""
    import importlib.util

    return all(importlib.util.find_spec(module) for module in modules)


class Traces(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.foreign = Path(folder.name) / "sda.blkparse"
        # Enough rows for several pages of a column.
        lines = []
        for number in range(3000):
            for line in BLKPARSE.splitlines(keepends=True):
                second = f"{number}.{line[26:35]}"
                lines.append(f"{line[:20]} {second:>17}{line[35:]}")
        self.foreign.write_text("".join(lines))
        self.native = Path(folder.name) / "sda.trace"
        self.command("trace", "convert", "-q", str(self.foreign), str(self.native))

    def command(self, *words: str) -> str:
        done = subprocess.run([find_command(), *words], capture_output=True, text=True, check=False)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return done.stdout

    def test_the_header_is_that_of_the_command(self) -> None:
        info = json.loads(self.command("trace", "info", "--json", str(self.native)))
        with_header = tidegate.trace(self.native)
        self.assertEqual(with_header.counts, info["counts"])
        self.assertEqual(with_header.header["trace_id"], info["trace_id"])
        self.assertTrue(with_header.is_complete)
        self.assertEqual(with_header.counts["requests"], 6000)

    @unittest.skipUnless(has("pyarrow", "polars", "pandas"), "pyarrow, polars or pandas is missing")
    def test_rows_equal_those_of_the_command(self) -> None:
        counts = json.loads(self.command("trace", "info", "--json", str(self.native)))["counts"]
        # The same rows as the command itself prints them.
        printed = map(json.loads, self.command("trace", "convert", "-q", str(self.native), "-", "--to", "jsonl").splitlines())
        requests = [line["request"] for line in printed if "request" in line]
        same = ("id", "device", "sector", "bytes", "operation", "flags", "queued_ns", "issued_ns", "completed_ns", "status")
        for path in (self.native, self.foreign):
            trace = tidegate.trace(path)
            for table in ("requests", "runs", "events"):
                arrow = trace.to_arrow(table)
                polars = trace.to_polars(table)
                pandas = trace.to_pandas(table)
                with self.subTest(path=path, table=table):
                    self.assertEqual([arrow.num_rows, polars.height, len(pandas)], [counts[table]] * 3)
                    own = {"trace_id"}
                    rows = [{key: row[key] for key in row if key not in own} for row in arrow.to_pylist()]
                    others = [{key: row[key] for key in row if key not in own} for row in polars.to_dicts()]
                    self.assertEqual(rows, others)
                    for column in ("sector", "bytes", "time_ns"):
                        if column in pandas:
                            self.assertEqual(pandas[column].tolist(), [row[column] for row in rows])
            self.assertEqual(
                [tuple(row[name] for name in same) for row in trace.requests.to_pylist()],
                [tuple(row[name] for name in same) for row in requests],
            )
        self.assertEqual(len(requests), 6000)

    @unittest.skipUnless(has("polars"), "polars is missing")
    def test_a_partial_trace_is_read_up_to_its_last_checkpoint(self) -> None:
        with open(self.native / "requests.parquet", "ab") as file:
            file.write(b"unfinished")
        self.assertEqual(tidegate.trace(self.native).to_polars().height, 6000)

    def test_a_damaged_table_is_an_error(self) -> None:
        place = self.native / "requests.parquet"
        data = bytearray(place.read_bytes())
        data[100] ^= 1
        place.write_bytes(bytes(data))
        with self.assertRaises(tidegate.DamageError) as raised:
            tidegate.trace(self.native).parquet()
        self.assertEqual(raised.exception.place, str(place))

    def test_other_files_are_refused(self) -> None:
        place = self.foreign.with_name("nothing")
        with self.assertRaises(tidegate.OpenError):
            tidegate.trace(place)
        place.write_text("nothing\n")
        with self.assertRaises(tidegate.CommandError):
            tidegate.trace(place)
        with self.assertRaises(tidegate.ArgumentError):
            tidegate.trace(self.native).parquet("rows")


if __name__ == "__main__":
    unittest.main()
