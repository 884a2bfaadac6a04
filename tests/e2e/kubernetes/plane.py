"""`dstack server`, whose carriers are made of packages that apt fetches."""

from __future__ import annotations

import sys
from pathlib import Path

from chalicelib.runtime.carriers import Make
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.serve import serve
from chalicelib.runtime.settings import server_settings
from tests.harness.carriers import carrier


class WithCarriers(EmbeddedRoot):
    def makes_carriers(self) -> Make:
        return lambda architecture: carrier()


def main(words: list[str]) -> int:
    options = dict(zip(words[::2], words[1::2], strict=True))
    settings = server_settings(
        port=int(options["--port"]), data_dir=Path(options["--data-dir"]), local_fleet=False, enter_project=True
    )
    return serve(settings, WithCarriers)


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]))
