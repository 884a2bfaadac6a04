"""`dstack server --fake-cloud`, with machines of a provider (see there), whose socket the environment names."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

from chalicelib.backends.simulated.cloud import Boot, FakeCloud
from chalicelib.backends.simulated.local import simulated_cloud
from chalicelib.errors import Transient
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.serve import serve
from chalicelib.runtime.settings import ServerSettings, server_settings

SOCKET = "VOLUMES_PROVIDER"
PATIENCE = 120.0


class HostLauncher:
    def __init__(self, place: str) -> None:
        self._place = place

    def launch(self, boot: Boot) -> None:
        self._order({"do": "launch", "machine": boot.machine_id, "user_data": boot.user_data})

    def kill(self, machine_id: str) -> None:
        self._order({"do": "kill", "machine": machine_id})

    def _order(self, call: dict[str, str]) -> None:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(PATIENCE)
            line.connect(self._place)
            line.sendall(json.dumps(call).encode() + b"\n")
            error = json.loads(line.makefile().readline())["error"]
        if error:
            raise Transient(f"the provider can't {call['do']} {call['machine']}: {error}")


class OnHosts(EmbeddedRoot):
    @staticmethod
    def simulated(settings: ServerSettings, server_url: str, program: Path) -> FakeCloud:
        launcher = HostLauncher(os.environ[SOCKET])
        return simulated_cloud(settings.data_dir / "fake-cloud", launcher, settings.fake_cloud_name)


def main(arguments: list[str]) -> int:
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    settings = server_settings(
        host=options["--host"],
        port=int(options["--port"]),
        data_dir=Path(options["--data-dir"]),
        local_fleet=False,
        fake_cloud=True,
        fake_cloud_name="aws",
        enter_project=True,
    )
    return serve(settings, OnHosts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]))
