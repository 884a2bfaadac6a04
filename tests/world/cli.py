"""The command line in this process, with its own home, folder, clock and answers."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from typing import Any

from cli.main import invoke
from cli.screen.terminal import Terminal


@dataclass
class Ended:
    code: int
    out: str
    err: str

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


@dataclass
class Dstack:
    terminal: Terminal

    def __call__(self, *args: str, answers: str = "", **changes: Any) -> Ended:
        out, err = _stream(), _stream()
        code = _invoke(args, replace(self.terminal, **changes), answers, out, err)
        return Ended(code, _text(out), _text(err))

    def together(self, *args: str) -> tuple[str, int]:
        """Both streams in order, as shown on a screen, and the status. Nobody answers questions."""
        screen = _stream()
        code = _invoke(args, self.terminal, "", screen, screen)
        return _text(screen), code


def _invoke(args: tuple[str, ...], terminal: Terminal, answers: str, out: Any, err: Any) -> int:
    before, sys.stdin = sys.stdin, io.StringIO(answers)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            return invoke(list(args), terminal)
    finally:
        sys.stdin = before


def _stream() -> io.TextIOWrapper:
    """Takes text and bytes, as a real one does."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8")


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode()  # type: ignore[attr-defined,no-any-return]
