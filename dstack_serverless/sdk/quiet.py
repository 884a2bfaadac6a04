"""The command line's terminal in a program: nothing is printed, and what it would say goes to the program's log."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from cli.screen.terminal import Terminal

log = logging.getLogger("dstack_serverless")


@dataclass(frozen=True)
class QuietTerminal(Terminal):
    def print(self, text: str = "") -> None:
        log.info("%s", text)

    def warn(self, text: str) -> None:
        log.info("%s", text)
