"""In every Python of the emulator: what functions are compiled to is kept beside this run's other files.

The emulator unzips a function's code anew for each process of it, so Python finds no bytecode there, and half of what
a start takes is the compiler's. Here the result is found by what was compiled, wherever that lies.
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


sys.dont_write_bytecode = True
SourceFileLoader.source_to_code = compiled  # type: ignore[method-assign,assignment]
