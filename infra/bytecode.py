"""Bytecode for the functions' zips. Python can't write to a Lambda's folder, so without bytecode in its zip each cold
start compiles whatever it imports.

Only the functions' own version of Python can make it. Whoever deploys without that version deploys sources alone. The
bytecode isn't compared with its source when it is loaded: what is in a zip never changes.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import TypeVar

T = TypeVar("T")
TASK = "/var/task"  # where Lambda unpacks a zip: the place that tracebacks name

# Later formats of marshal than the second depend on what else refers to a constant, which nothing does that was just
# read; before Python 3.14, the second has all that code needs. A file that isn't Python of this version, as some
# templates are, has no bytecode.
_PROGRAM = """\
import importlib.util, marshal, sys
for line in sys.stdin:
    place, shown = line.rstrip("\\n").split("\\t")
    with open(place, "rb") as file:
        source = file.read()
    try:
        code = compile(source, shown, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError):
        continue
    with open(place + "c", "wb") as file:
        head = importlib.util.MAGIC_NUMBER + b"\\1\\0\\0\\0" + importlib.util.source_hash(source)
        old = sys.version_info < (3, 14)
        file.write(head + (marshal.dumps(code, 2) if old else marshal.dumps(marshal.loads(marshal.dumps(code, 5)), 5)))
"""


class CannotCompile(Exception):
    """The other Python failed."""


class Compiler:
    def __init__(self, python: str, command: str) -> None:
        """`command`: of that version of Python."""
        self._python, self._command = python, command
        self._known: dict[str, bytes | None] = {}  # by a digest of the file; None: it isn't Python

    def compiled(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """The bytecode of the modules among these files, by where Python looks for it. Raises CannotCompile."""
        digests = {name: _digest(name, source) for name, source in files.items() if name.endswith(".py")}
        self._compile({name: digest for name, digest in digests.items() if digest not in self._known}, files)
        found = {self._cached(name): self._known[digest] for name, digest in digests.items()}
        return {name: code for name, code in found.items() if code is not None}

    def _compile(self, digests: Mapping[str, str], files: Mapping[str, bytes]) -> None:
        if not digests:
            return
        with tempfile.TemporaryDirectory(prefix="dstack-bytecode-") as temporary:
            places = {name: Path(temporary) / f"{digest}.py" for name, digest in digests.items()}
            for name, place in places.items():
                place.write_bytes(files[name])
            lines = "".join(f"{place}\t{TASK}/{name}\n" for name, place in places.items())
            command = [self._command, "-I", "-W", "ignore", "-c", _PROGRAM]
            try:
                subprocess.run(command, input=lines, text=True, capture_output=True, check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                why = str(getattr(error, "stderr", "")).strip().rpartition("\n")[2] or str(error)
                raise CannotCompile(f"python{self._python} failed here ({why})") from error
            for name, place in places.items():
                code = place.with_suffix(".pyc")
                self._known[digests[name]] = code.read_bytes() if code.exists() else None

    def _cached(self, name: str) -> str:
        path, tag = PurePosixPath(name), self._python.replace(".", "")
        return str(path.parent / "__pycache__" / f"{path.stem}.cpython-{tag}.pyc")


def or_sources_alone(
    build: Callable[[Compiler | None], T], python: str, say: Callable[[str], None], path: str | None = None
) -> T:
    """What `build` makes with a compiler; without one, and a line that says why, where there is none or it fails."""
    found, why = compiler(python, path), f"There is no python{python} here"
    if found is not None:
        try:
            return build(found)
        except CannotCompile as error:
            why = str(error)
    say(f"{why}, so the functions compile their code at each cold start.")
    return build(None)


def compiler(python: str, path: str | None = None) -> Compiler | None:
    """None: that version of Python isn't here. `path`: where to look for it; the environment's unless given."""
    own = python == "{}.{}".format(*sys.version_info)
    command = sys.executable if own else shutil.which(f"python{python}", path=path)
    return Compiler(python, command) if command and _version(command) == python else None


def _version(command: str) -> str:
    """Empty: it isn't one. A command of a version manager may have the name of a version that isn't installed."""
    program = "import sys; print('{}.{}'.format(*sys.version_info))"
    try:
        done = subprocess.run([command, "-I", "-c", program], capture_output=True, text=True, check=False)
    except OSError:  # of another architecture, for instance
        return ""
    return done.stdout.strip()


def _digest(name: str, source: bytes) -> str:
    return hashlib.sha256(name.encode() + b"\0" + source).hexdigest()
