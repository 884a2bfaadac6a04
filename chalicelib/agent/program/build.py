"""The agent as one file: `python -m chalicelib.agent.program.build OUT` writes a zip that any Python ≥ 3.8 runs.

The same sources and the same Python give the same bytes, so a digest identifies the file. Compiling takes longer than
the rest of an agent's start, and Python doesn't cache what it compiles from a zip. So the file holds each module both
as source and compiled; a Python of the version that built it uses the compiled one. With its first task, an agent also
unpacks everything into a folder, where any Python caches what it compiles: a supervisor is started for every task.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import io
import marshal
import os
import sys
import threading
import types
from typing import Any, Dict

NAME = "dstack_agent"
# Modules are no garbage: to look for some after every 700 new objects is a fifth of what a start costs. Later, too, it
# is looked for less often.
ENTRY = f"import gc, sys\ngc.set_threshold(10000)\nfrom {NAME}.program.main import main\nsys.exit(main(sys.argv[1:]))\n"
SHEBANG = b"#!/usr/bin/env python3\n"
SHIPPED = (".py", ".lua", ".conf")
_WRITING = threading.Lock()  # several tasks may be launched at once
UNCHECKED = importlib.util.MAGIC_NUMBER + b"\1\0\0\0"  # the head of compiled code that no later source replaces


def sources() -> Dict[str, bytes]:
    """The agent's files by their path in the program, whether it runs from a folder or from the one file."""
    found = {"__main__.py": ENTRY.encode("ascii")}
    archive = getattr(globals().get("__loader__"), "archive", None)
    if archive:
        import zipfile  # which takes time, and an agent without tasks does without

        with zipfile.ZipFile(archive) as program:
            for name in program.namelist():
                found[name] = program.read(name)
        return found
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for folder, _, names in os.walk(here):
        for name in names:
            path = os.path.join(folder, name)
            inside = os.path.join(NAME, os.path.relpath(path, here))
            if name.endswith(SHIPPED) and inside != NAME + "/__main__.py":
                with open(path, "rb") as source:
                    found[inside] = source.read()
            if name.endswith(".py") and inside in found:
                found[inside + "c"] = UNCHECKED + importlib.util.source_hash(found[inside]) + compiled(path, inside)
    return found


def compiled(path: str, inside: str) -> bytes:
    """A module's code, from Python's cache if it is there. `inside`: its path in the program, for tracebacks."""
    code = importlib.machinery.SourceFileLoader("module", path).get_code("module")
    assert code is not None, "it has a source"
    return marshal.dumps(_placed(code, inside), 2)  # later formats depend on what else the process holds


def _placed(code: types.CodeType, inside: str) -> types.CodeType:
    def placed(constant: Any) -> Any:
        return _placed(constant, inside) if isinstance(constant, types.CodeType) else constant

    return code.replace(co_filename=inside, co_consts=tuple(map(placed, code.co_consts)))


@functools.lru_cache(maxsize=None)
def build() -> bytes:
    """Once in a process, whose sources stay what they were when it began."""
    import zipfile

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
    try:
        with open(partial, "wb") as file:
            file.write(build())
        os.chmod(partial, 0o755)
        os.rename(partial, path)
    except OSError:
        if os.path.exists(partial):
            os.unlink(partial)
        raise


def place(folder: str) -> str:
    """Where `lay_out` writes it: a folder below `folder`, named after its digest."""
    import hashlib  # which takes time, too

    archive = getattr(globals().get("__loader__"), "archive", None)
    digest = hashlib.sha256()
    if archive:
        with open(archive, "rb") as program:
            digest.update(program.read())
    else:
        for name, data in sorted(sources().items()):
            digest.update(b"%s\0%d\0%s" % (name.encode(), len(data), data))
    return os.path.join(folder, "program-" + digest.hexdigest()[:16])


def lay_out(folder: str) -> str:
    """Write it to its place below `folder`, unless it is there; `python PLACE` runs it."""
    there = place(folder)
    with _WRITING:
        if not os.path.isdir(there):
            _write_below("%s.%d" % (there, os.getpid()))
            os.rename("%s.%d" % (there, os.getpid()), there)
    return there


def _write_below(folder: str) -> None:
    for name, data in sources().items():
        path = os.path.join(folder, name)
        if name.endswith(".pyc"):
            if not data.startswith(importlib.util.MAGIC_NUMBER):
                continue  # of another Python; ours makes its own
            path = importlib.util.cache_from_source(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m chalicelib.agent.program.build OUT")
    write(sys.argv[1])
