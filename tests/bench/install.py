"""A client as pip installs it, with the SDK for programs and what the package index serves: the size of its files, and
how long that takes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from tests.bench.measure import report
from tests.harness.installed import wheel


def main() -> None:
    built = wheel()
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, symlinks=True)
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--quiet",
            "--disable-pip-version-check",
            "--python",
            f"{folder}/bin/python",
        ]
        begun = time.monotonic()
        subprocess.run([*pip, "install", "--no-cache-dir", f"{built}[sdk]"], check=True)
        seconds = time.monotonic() - begun
        size = sum(path.stat().st_size for path in Path(folder, "lib").rglob("*") if path.is_file())
    report("install", client_mb=[size / 1e6], client_s=[seconds])


if __name__ == "__main__":
    main()
