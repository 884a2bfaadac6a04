"""A function that works on providers, from its cold start until it has bought a machine.

`python first_effect.py FILE CODE` runs the code in the folder CODE alone. It reads in FILE the configuration of a
backend, the address of what stands in for its provider, and the offer.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chalicelib.backends.spi import Backend, CreateRequest
    from chalicelib.domain.offers import Offer


def main(file: Path, code: Path) -> None:
    sys.path[0] = str(code)
    import functions.provider  # noqa: F401 - what a cold start pays for
    from chalicelib.configuration.server_spec import config_model
    from chalicelib.domain.offers import Offer
    from chalicelib.runtime.lambda_ import LambdaRoot
    from chalicelib.runtime.settings import LambdaSettings

    config, url, offer = json.loads(file.read_text())
    kind, key, nobody = config["type"], b"k" * 32, "http://127.0.0.1:1"
    settings = LambdaSettings("table", "bucket", "reconcile", nobody, nobody, key, key, endpoints={kind: url})
    model = config_model(kind)
    assert model is not None
    backend = LambdaRoot(settings).ports.providers.make(model.model_validate(config))
    request = new_request(Offer.model_validate(offer))
    while not created(backend, request):
        """As the engine repeats it."""


def new_request(offer: Offer) -> CreateRequest:
    """As the engine makes it. The suites' own is in a package that imports pytest, which no function does."""
    from chalicelib.backends.spi import CreateRequest
    from chalicelib.domain.boot_script import user_data
    from chalicelib.domain.ids import derive
    from chalicelib.domain.owner import OwnedKind, Owner

    install, instance_id = derive("bench", "install"), derive("bench", "instance", time.time_ns())
    owner = Owner(OwnedKind.instance, install, derive("bench", "project"), instance_id, 0)
    return CreateRequest(
        token=derive(instance_id, "create"),
        name=owner.name,
        tags=owner.tags,
        offer=offer,
        instance_id=instance_id,
        user_data=user_data("http://127.0.0.1:1", instance_id, "5ec2e7" * 10, "0" * 64),
        disk_mib=offer.instance.resources.disk.size_mib,
        zones=offer.availability_zones,
    )


def created(backend: Backend, request: CreateRequest) -> bool:
    from chalicelib.errors import Throttled

    try:
        return bool(list(backend.create(request)))
    except Throttled as early:
        time.sleep(early.retry_after)
        return False


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
