"""The product's server for tests with containers: less is waited for."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from chalicelib.errors import Throttled
from chalicelib.runtime.carriers import Make
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.serve import serve
from chalicelib.runtime.settings import ServerSettings, server_settings
from chalicelib.usecases.pace import EMBEDDED
from tests.harness.carriers import architecture, carrier


class ContainersRoot(EmbeddedRoot):
    """Its carriers are of packages that apt fetches, and there before the first purchase asks for one. An agent counts
    as silent after half the usual time, which is little more than it lets the server hold a call."""

    pace = replace(EMBEDDED, presence=1.0, silence=25.0, room=5.0)

    def makes_carriers(self) -> Make:
        return lambda architecture: carrier()

    def start(self) -> None:
        with contextlib.suppress(Throttled):
            self.carrier(architecture())
        super().start()


def settings_of(arguments: list[str], **more: object) -> ServerSettings:
    """From the words that the harness gives a server: `server --port 1 --data-dir FOLDER`."""
    options = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    given = {"port": int(options["--port"]), "data_dir": Path(options["--data-dir"])}
    return server_settings(**given, local_fleet=False, enter_project=True, **more)


def run_server(arguments: list[str], root: type[EmbeddedRoot] = ContainersRoot, **more: object) -> int:
    return serve(settings_of(arguments, **more), root)
