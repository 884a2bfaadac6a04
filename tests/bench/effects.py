"""Cold starts of the functions that work on providers, over a bare Python: until each has bought its first machine.

Of each provider, from what stands in for it. Each runs from the artefact that is deployed, unpacked, for this version
of Python: with the packages and the bytecode that are in it, and nothing else.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from chalicelib.backends.registry import artefact_of, artefacts
from infra.artefacts import KINDS, build_lock, of_repository, pack, packages
from infra.bytecode import compiler
from tests.bench.measure import over, process_cpu_ms, report
from tests.e2e.clouds.cloud import CLOUDS, Cloud, cloud_of, price_file
from tests.harness.server import ROOT

PYTHON = [sys.executable, "-I", "-S", "-B"]  # without this one's packages


def main() -> None:
    bare = process_cpu_ms([*PYTHON, "-c", "pass"])
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        code = {name: Path(folder) / name for name in artefacts()}
        unpacked(code)
        report("effects", **{f"{name}_cpu_ms": over(bought(cloud_of(name), code), bare) for name in CLOUDS})


def unpacked(folders: Mapping[str, Path]) -> None:
    """The artefacts of these names, each in its folder."""
    build, python = ROOT / "build", "{}.{}".format(*sys.version_info)
    kinds, compiles = {name: KINDS[name] for name in folders}, compiler(python)
    with build_lock(build / "packages", print):
        installed = packages(kinds, python, build, print, compiles)
    for name, folder in folders.items():
        folder.mkdir()
        with zipfile.ZipFile(pack(name, dict(of_repository()), installed[name], folder, compiles).path) as archive:
            archive.extractall(folder)


def bought(cloud: Cloud, code: Mapping[str, Path]) -> list[float]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        url = stack.enter_context(cloud.serving())
        offer, file = cloud.offer(cloud.backend(url, price_file(folder, cloud))), folder / "given.json"
        file.write_text(json.dumps([cloud.config, url, offer.model_dump(mode="json")]))
        place = code[artefact_of(str(cloud.config["type"]))]
        program = [*PYTHON, str(ROOT / "tests" / "bench" / "first_effect.py"), str(file), str(place)]
        return process_cpu_ms(program, runs=3)


if __name__ == "__main__":
    main()
