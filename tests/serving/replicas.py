"""Processes of the work-horse (`app.py`) as copies of one that has imported what it needs.

    python -m tests.serving.replicas

Each line on its standard input is the name of a replica, its host and its socket, if it has one, by tabs. The copy
writes `ready PORT PID` once it listens. All end with the process that they are copies of.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from tests.serving.app import serve


def main() -> None:
    os.setpgrp()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # they aren't waited for
    while line := sys.stdin.readline():  # one at a time: a copy mustn't have read what is for the next
        name, host, unix = line.rstrip("\n").split("\t")
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(0)
            asyncio.run(serve(name, host, 0, unix))
            return
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
