"""In every Python of the emulator: what functions consist of, and are compiled to, is kept beside this run's files.
The emulator itself is compiled once, as any program.

The emulator unzips a function's code anew for each process of it: up to 200 MB and 8,000 files. Here they share what is
unzipped once. Python finds no bytecode beside sources that have none in the zip, and half of what a start takes would
be the compiler's. Here the result is found by what was compiled, wherever that lies.
"""

from __future__ import annotations

import _imp
import hashlib
import marshal
import os
import sys
import threading
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

KEPT = Path(os.environ["COMPILED_FUNCTIONS"])


def compiled(self: SourceFileLoader, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:
    kept = KEPT / hashlib.sha256(data).hexdigest()
    try:
        code: CodeType = marshal.loads(kept.read_bytes())
    except FileNotFoundError:
        code = compile(data, path, "exec", dont_inherit=True, optimize=_optimize)
        draft = kept.with_suffix(f".{threading.get_native_id()}")
        draft.write_bytes(marshal.dumps(code))
        draft.replace(kept)
        return code
    _imp._fix_co_filename(code, path)  # type: ignore[attr-defined]
    return code


def share_code() -> None:
    """In the emulator itself: each package of a zip is unzipped once, and each process of the functions gets links to
    what is there."""
    import zipfile

    unzip, lock = zipfile.ZipFile.extractall, threading.Lock()

    def linked(self: zipfile.ZipFile, path: Any = None, members: Any = None, pwd: bytes | None = None) -> None:
        if path is None or Path(path).name != "code":
            unzip(self, path, members, pwd)
            return
        packages: dict[str, list[zipfile.ZipInfo]] = {}
        for each in self.infolist():
            packages.setdefault(each.filename.partition("/")[0], []).append(each)
        for name, entries in packages.items():
            content = repr(sorted((each.filename, each.CRC) for each in entries))
            shared = KEPT.parent / "unzipped" / hashlib.sha256(content.encode()).hexdigest()
            with lock:
                if not shared.exists():
                    draft = shared.with_suffix(".draft")
                    unzip(self, draft, entries)
                    draft.rename(shared)
            Path(path, name).symlink_to(shared / name)

    zipfile.ZipFile.extractall = linked  # type: ignore[method-assign]


if sys.orig_argv[-1] == "ministack.app:app":
    share_code()
else:
    sys.dont_write_bytecode = True
    SourceFileLoader.source_to_code = compiled  # type: ignore[method-assign,assignment]
