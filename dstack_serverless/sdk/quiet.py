"""The command line's terminal in a program: nothing is printed, and what it would say goes to the program's log."""

from __future__ import annotations

from dataclasses import dataclass

from cli.screen.terminal import Terminal
from dstack_serverless.sdk.core import log


@dataclass(frozen=True)
class QuietTerminal(Terminal):
    def print(self, text: str = "") -> None:
        log.info("%s", text)

    def warn(self, text: str) -> None:
        log.info("%s", text)
