"""Carries one SSH connection through the control plane: the `ProxyCommand` of jobs that are reached like this.

`python -m cli.ssh.proxy FILE`; the file contains the endpoint. It is a separate program because it starts with every
connection, and the command line takes three times as long to start.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from chalicelib.errors import DstackError
from chalicelib.printable import printable
from cli.connection.client import Client
from cli.connection.streams import CHUNK, NORMAL, Stream

if TYPE_CHECKING:
    from chalicelib.contract.bodies import StreamQuery


def carry(stream: Stream, source: int, sink: int) -> None:
    """Copies in both directions until either side ends, with two threads, so that neither direction waits for the
    other."""

    def upwards() -> None:
        try:
            while data := os.read(source, CHUNK):
                stream.send(data)
        except OSError:
            pass  # the stream has ended, and the other direction says how
        stream.end()

    threading.Thread(target=upwards, daemon=True).start()
    while (data := stream.receive()) is not None:
        view = memoryview(data)
        while view:
            view = view[os.write(sink, view) :]


def _show_error(text: str) -> None:
    """Prints an error without control characters: the job's machine may have written it, and SSH shows it unchanged."""
    print(printable(text), file=sys.stderr)


def run(file: Path, source: int, sink: int) -> int:
    """Connects to the endpoint in the file; returns the exit status."""
    endpoint = json.loads(file.read_text(encoding="utf-8"))
    query: StreamQuery = {"target": "ssh", "replica": endpoint["replica"], "job": endpoint["job"]}
    try:
        stream = Client(endpoint["url"], endpoint["token"], endpoint["project"]).stream(endpoint["run"], query)
        carry(stream, source, sink)
    except DstackError as error:
        _show_error(error.message)
        return 1
    except BrokenPipeError:
        return 0  # SSH has ended
    if stream.code != NORMAL and stream.reason:
        _show_error(stream.reason)
    return 0 if stream.code == NORMAL else 1


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.stdin.fileno(), sys.stdout.fileno()))
