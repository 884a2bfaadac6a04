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
        offer = cloud.offer(cloud.backend(url, price_file(Path(folder), cloud)))
        file.write_text(json.dumps([cloud.config, url, offer.model_dump(mode="json")]))
        options = ["-B", "-X", f"pycache_prefix={folder}/none"]
        return process_cpu_ms([sys.executable, *options, "-m", "tests.bench.first_effect", str(file)], runs=3)


if __name__ == "__main__":
    main()
