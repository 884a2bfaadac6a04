"""The agent's log: lines on stderr, each with the time."""

from __future__ import annotations

import sys
import time


def log(text: str) -> None:
    print("%s %s" % (time.strftime("%Y-%m-%dT%H:%M:%S"), text), file=sys.stderr, flush=True)
