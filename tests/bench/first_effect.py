"""A function that works on providers, from its cold start until it has bought a machine.

`python -m tests.bench.first_effect FILE` reads there the configuration of a backend, the address of what stands in for
its provider, and the offer.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from chalicelib.errors import Throttled

if TYPE_CHECKING:
    from chalicelib.backends.spi import Backend, CreateRequest


def main(file: Path) -> None:
    import functions.provider  # noqa: F401 - what a cold start pays for
    from chalicelib.configuration.server_spec import config_model
    from chalicelib.domain.offers import Offer
    from chalicelib.runtime.lambda_ import LambdaRoot
    from chalicelib.runtime.settings import LambdaSettings
    from tests.backends.conformance.requests import request_for

    config, url, offer = json.loads(file.read_text())
    kind, key, nobody = config["type"], b"k" * 32, "http://127.0.0.1:1"
    settings = LambdaSettings("table", "bucket", "reconcile", nobody, nobody, key, key, endpoints={kind: url})
    model = config_model(kind)
    assert model is not None
    backend = LambdaRoot(settings).ports.providers.make(model.model_validate(config))
    request = request_for(Offer.model_validate(offer), f"n{time.time_ns()}")
    while not created(backend, request):
        """As the engine repeats it."""


def created(backend: Backend, request: CreateRequest) -> bool:
    try:
        return bool(list(backend.create(request)))
    except Throttled as early:
        time.sleep(early.retry_after)
        return False


if __name__ == "__main__":
    main(Path(sys.argv[1]))
