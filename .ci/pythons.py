"""Make an environment for each other version of Python that this machine has, `.venvs/python3.12` and so on.

`pythons.py LOCK` installs what the lock pins. A version that isn't here is said and left out.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

VERSIONS = ("3.12", "3.13", "3.14")  # that this is for, beside the oldest, which all tests run on
HERE = Path(__file__).parent


def main(lock: str) -> int:
    for version in VERSIONS:
        python = next(filter(runs, places(version)), None)
        if python is None:
            print(f"This machine has no Python {version}: nothing is tested with it.")
            continue
        made = subprocess.run([python, HERE / "venv.py", Path(".venvs") / f"python{version}", lock])
        if made.returncode:
            return made.returncode
    return 0


def places(version: str) -> Iterator[Path]:
    """Where it may be: on the path, or where pyenv and uv put theirs."""
    if found := shutil.which(f"python{version}"):
        yield Path(found)
    for folder in (Path.home() / ".pyenv" / "versions", Path.home() / ".local" / "share" / "uv" / "python"):
        yield from sorted(folder.glob(f"*{version}.*/bin/python{version}"))


def runs(python: Path) -> bool:
    """pyenv leaves programs on the path that don't."""
    return subprocess.run([python, "-c", "import ssl, sqlite3, venv"], capture_output=True).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
