"""Cold starts of the functions that work on providers, over a bare Python: until each has bought its first machine.

Of each provider, from what stands in for it. A Lambda's package holds no bytecode, so all that is imported is compiled
anew, an SDK included.
"""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from chalicelib.configuration.server_spec import config_model
from chalicelib.domain.offers import Offer
from chalicelib.runtime.accounts import providers
from tests.bench.measure import over, process_cpu_ms, report
from tests.e2e.clouds.cloud import CLOUDS, Cloud, cloud_of, price_file


def main() -> None:
    bare = process_cpu_ms([sys.executable, "-c", "pass"])
    report("effects", **{f"{name}_cpu_ms": over(bought(cloud_of(name)), bare) for name in CLOUDS})


def bought(cloud: Cloud) -> list[float]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        url = stack.enter_context(cloud.serving())
        file = Path(folder) / "given.json"
        file.write_text(json.dumps([cloud.config, url, offer(cloud, url, Path(folder)).model_dump(mode="json")]))
        options = ["-B", "-X", f"pycache_prefix={folder}/none"]
        return process_cpu_ms([sys.executable, *options, "-m", "tests.bench.first_effect", str(file)], runs=3)


def offer(cloud: Cloud, url: str, folder: Path) -> Offer:
    """One that the journey there buys."""
    model = config_model(cloud.type)
    assert model is not None
    backend = providers(price_file(folder, cloud), {cloud.type: url}).make(model.model_validate(cloud.config))
    types = cloud.fleet["instance_types"]
    return next(each for each in backend.offers() if each.instance.name in types and not each.instance.resources.spot)


if __name__ == "__main__":
    main()
