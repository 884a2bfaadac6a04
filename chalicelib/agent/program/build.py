"""The agent as one file: `python -m chalicelib.agent.program.build OUT` writes a zip that any Python ≥ 3.8 runs.

The same sources and the same Python give the same bytes, so a digest identifies the file. Compiling takes longer than
the rest of an agent's start, and Python doesn't cache modules that it compiles from a zip. So the file holds each
module both as source and compiled, for a Python of the version that built it. Because a supervisor is started for every
task, an agent with a task also unpacks the program into a folder, where any Python caches what it compiles.
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
from typing import Any, Dict, Iterator, Tuple

NAME = "dstack_agent"
# Imports leave no garbage; looking for some after every 700 new objects would be a fifth of an agent's start.
ENTRY = f"import gc, sys\ngc.set_threshold(10000)\nfrom {NAME}.program.main import main\nsys.exit(main(sys.argv[1:]))\n"
SHEBANG = b"#!/usr/bin/env python3\n"
SHIPPED = (".py", ".lua", ".conf")
PACKED = "packed.tar.gz"  # beside this module, in an installed package: what of the agent nothing else imports
_WRITING = threading.Lock()  # several tasks may be launched at once
UNCHECKED = importlib.util.MAGIC_NUMBER + b"\1\0\0\0"  # the header of a .pyc that isn't compared with its source


def sources() -> Dict[str, bytes]:
    """The agent's files by their path in the program, whether the agent runs from a folder or from the one file."""
    archive = getattr(globals().get("__loader__"), "archive", None)
    if not archive:
        return _installed()
    import zipfile  # here, because it takes time and an agent without tasks doesn't need it

    with zipfile.ZipFile(archive) as program:
        return {name: program.read(name) for name in program.namelist()}


@functools.lru_cache(maxsize=None)
def _installed() -> Dict[str, bytes]:
    """Once per process: it takes longer than the start of a task, for each of which the program is looked for."""
    found = {"__main__.py": ENTRY.encode("ascii")}
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name, data in _own_files(root):
        inside = os.path.join(NAME, name)
        if name == "__main__.py":
            continue
        found[inside] = data
        if name.endswith(".py"):
            code = compiled(os.path.join(root, name), data, inside)
            found[inside + "c"] = UNCHECKED + importlib.util.source_hash(data) + code
    return found


def _own_files(root: str) -> Iterator[Tuple[str, bytes]]:
    """By their path below the agent's folder."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(SHIPPED):
                with open(path, "rb") as source:
                    yield os.path.relpath(path, root), source.read()
    packed = os.path.join(root, "program", PACKED)
    if os.path.exists(packed):
        import tarfile  # as above

        with tarfile.open(packed) as archive:
            for entry in archive:
                content = archive.extractfile(entry)
                assert content is not None, "it has files alone"
                yield entry.name, content.read()


def compiled(path: str, source: bytes, inside: str) -> bytes:
    """A module's code, from Python's cache if it has a file. `inside` is its path in the program, for tracebacks."""
    if os.path.exists(path):
        cached = importlib.machinery.SourceFileLoader("module", path).get_code("module")
        assert cached is not None, "it has a source"
        code = relocated(cached, inside)
    else:
        code = relocated(compile(source, inside, "exec", dont_inherit=True), inside)
    if sys.version_info < (3, 14):
        return marshal.dumps(code, 2)  # later formats depend on what else refers to these constants
    # Slices are constants since then, which only this format knows. Nothing else refers to what was just read.
    return marshal.dumps(marshal.loads(marshal.dumps(code, 5)), 5)


def relocated(code: types.CodeType, inside: str) -> types.CodeType:
    """As of another file. All texts are interned: the bytes say which are, and that depends on the whole process."""

    def changed(constant: Any) -> Any:
        if isinstance(constant, types.CodeType):
            return relocated(constant, inside)
        if isinstance(constant, tuple):
            return tuple(map(changed, constant))
        return sys.intern(constant) if isinstance(constant, str) else constant

    names: Dict[str, Any] = {
        name: sys.intern(getattr(code, name)) for name in ("co_name", "co_qualname") if hasattr(code, name)
    }
    return code.replace(co_filename=sys.intern(inside), co_consts=changed(code.co_consts), **names)


@functools.lru_cache(maxsize=None)
def build() -> bytes:
    """The file's content, built once per process."""
    import zipfile

    out = io.BytesIO()
    out.write(SHEBANG)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(sources().items()):
            entry = zipfile.ZipInfo(name)  # its date is constant
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return out.getvalue()


def write(path: str) -> None:
    """Write the file in one step, because an agent may be starting from it."""
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


def unpacked_path(folder: str) -> str:
    """The folder that `unpack` writes to, below `folder` and named after the program's digest."""
    import hashlib  # here, because it takes time

    archive = getattr(globals().get("__loader__"), "archive", None)
    digest = hashlib.sha256()
    if archive:
        with open(archive, "rb") as program:
            digest.update(program.read())
    else:
        for name, data in sorted(_installed().items()):
            digest.update(b"%s\0%d\0%s" % (name.encode(), len(data), data))
    return os.path.join(folder, "program-" + digest.hexdigest()[:16])


def unpack(folder: str) -> str:
    """Unpack the program below `folder`, unless that is done already. Returns its path, which `python PATH` runs."""
    path = unpacked_path(folder)
    with _WRITING:
        if not os.path.isdir(path):
            _write_below("%s.%d" % (path, os.getpid()))
            os.rename("%s.%d" % (path, os.getpid()), path)
    return path


def _write_below(folder: str) -> None:
    for name, data in sources().items():
        path = os.path.join(folder, name)
        if name.endswith(".pyc"):
            if not data.startswith(importlib.util.MAGIC_NUMBER):
                continue  # compiled by another Python version
            path = importlib.util.cache_from_source(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m %s.build OUT" % __package__)
    write(sys.argv[1])
