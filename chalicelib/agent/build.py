"""The agent as one file: `python -m chalicelib.agent.build OUT` writes a zip that any Python ≥ 3.8 runs.

The same sources give the same bytes, so a digest identifies the file. A running agent also writes its sources to a
folder, because a supervisor is started for every task and only a folder caches compiled modules.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import zipfile
from typing import Dict

NAME = "dstack_agent"
ENTRY = "import sys\nfrom %s.main import main\nsys.exit(main(sys.argv[1:]))\n" % NAME
SHEBANG = b"#!/usr/bin/env python3\n"


def sources() -> Dict[str, bytes]:
    """This package's files by their path in the program, whether it runs from a folder or from the one file."""
    found = {"__main__.py": ENTRY.encode("ascii")}
    archive = getattr(globals().get("__loader__"), "archive", None)
    if archive:
        with zipfile.ZipFile(archive) as program:
            for name in program.namelist():
                found[name] = program.read(name)
        return found
    here = os.path.dirname(os.path.abspath(__file__))
    for name in sorted(os.listdir(here)):
        if name.endswith(".py") and name != "__main__.py":
            with open(os.path.join(here, name), "rb") as source:
                found["%s/%s" % (NAME, name)] = source.read()
    return found


def build() -> bytes:
    out = io.BytesIO()
    out.write(SHEBANG)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(sources().items()):
            entry = zipfile.ZipInfo(name)  # with the same date at any time
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return out.getvalue()


def write(path: str) -> None:
    """Atomic: a starting agent never reads half a file."""
    partial = "%s.%d" % (path, os.getpid())
    with open(partial, "wb") as file:
        file.write(build())
    os.chmod(partial, 0o755)
    os.rename(partial, path)


def lay_out(folder: str) -> str:
    """Write the sources to a folder below `folder`, named after their digest; `python FOLDER` runs it."""
    found = sources()
    digest = hashlib.sha256()
    for name, data in sorted(found.items()):
        digest.update(b"%s\0%d\0%s" % (name.encode(), len(data), data))
    place = os.path.join(folder, "program-" + digest.hexdigest()[:16])
    if os.path.isdir(place):
        return place
    partial = "%s.%d" % (place, os.getpid())
    for name, data in found.items():
        os.makedirs(os.path.dirname(os.path.join(partial, name)), exist_ok=True)
        with open(os.path.join(partial, name), "wb") as file:
            file.write(data)
    os.rename(partial, place)
    return place


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m chalicelib.agent.build OUT")
    write(sys.argv[1])
