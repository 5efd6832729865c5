"""The command ``tidegate`` that rides in the wheel."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import List, Optional

from ._errors import CommandError


def find_command() -> str:
    """Path of the command: beside this Python, of the user's scheme, or in ``PATH``."""
    places: List[Optional[str]] = [sysconfig.get_path("scripts")]
    try:
        places.append(sysconfig.get_path("scripts", f"{os.name}_user"))
    except KeyError:
        pass
    for place in places:
        if place and os.access(Path(place) / "tidegate", os.X_OK):
            return str(Path(place) / "tidegate")
    found = shutil.which("tidegate")
    if found is None:
        raise CommandError(
            "the command tidegate is neither beside this Python nor in PATH",
            "tidegate",
            "install the wheel again, or put the command into PATH",
        )
    return found


def run(*arguments: str) -> str:
    """Runs the command and returns its output. Exit code 1, something was left out, is no error."""
    program = find_command()
    done = subprocess.run(
        [program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise CommandError(said[-1], f"tidegate {' '.join(arguments[:2])}")
    return done.stdout
