"""The examples of docs/guide/python.md are run, in its order, in a folder with the files that they name."""

import doctest
import os
import re
import unittest
from pathlib import Path

from images import Images

GUIDE = Path(__file__).resolve().parents[4] / "docs" / "guide" / "python.md"


class Guide(unittest.TestCase):
    def test_examples_print_as_the_guide_says(self) -> None:
        try:
            import polars  # noqa: F401
            import pyarrow  # noqa: F401
        except ImportError:
            self.skipTest("polars or pyarrow is missing")
        images = Images()
        self.addCleanup(images.close)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(images.path)
        images.write("sda.blkparse", "".join(f"  8,0    1        2     {second}.000000200   697  Q  WS {second * 8} + 8 [app]\n  8,0    1        7     {second}.000000900   120  D  WS {second * 8} + 8 [app]\n  8,0    1        8     {second}.000001500     0  C  WS {second * 8} + 8 [0]\n" for second in range(5)).encode())
        blocks = re.findall(r"^```pycon\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
        self.assertGreater(len(blocks), 5)
        parser = doctest.DocTestParser()
        test = parser.get_doctest("\n".join(blocks), {}, "python.md", str(GUIDE), 0)
        self.assertGreater(len(test.examples), 15)
        said = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        results = runner.run(test, out=said.append)
        self.assertEqual(results.failed, 0, "".join(said))


if __name__ == "__main__":
    unittest.main()
