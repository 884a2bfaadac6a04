"""A server that holds no connection to hosts, as in AWS, and is otherwise the embedded one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.serve import serve
from chalicelib.runtime.settings import server_settings


class Uncarried(EmbeddedRoot):
    tunnels: ClassVar[bool] = False

    def carry(self, server: tuple[str, int]) -> None:
        """Nobody."""


def main(arguments: list[str]) -> int:
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    settings = server_settings(
        host=options["--host"],
        port=int(options["--port"]),
        data_dir=Path(options["--data-dir"]),
        local_fleet=False,
        enter_project=True,
    )
    return serve(settings, Uncarried)


if __name__ == "__main__":
    sys.exit(main([argument for argument in sys.argv[2:] if argument != "--no-local-fleet"]))
