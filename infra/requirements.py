"""`python -m infra.requirements` writes `requirements.txt`: what the Lambdas of `app.py` need, with the tests' pins.

Chalice packages whatever that file names, so it has the functions' few packages with their dependencies, and none of
the CLI's or the server's. They are in the `aws` extra, so the tests' lock pins them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib.metadata import requires
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
NEEDED = (
    "authlib",
    "aws-lambda-powertools",
    "boto3",
    "cryptography",
    "orjson",
    "pydantic",
    "pynamodb",
    "pyyaml",
    "requests",
    "tzdata",
)
HEAD = "# Written by `python -m infra.requirements` from requirements-dev.lock.\n"


def text(lock: str) -> str:
    versions = dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", lock, re.MULTILINE))
    wanted = sorted(_with_needs(NEEDED, {"extra": ""}))
    return HEAD + "".join(f"{name}=={versions[name]}\n" for name in wanted)


def of_extra(name: str) -> tuple[str, ...]:
    """The packages of an extra of ours: those that the SDK of a provider comes in. None has none."""
    if not name:
        return ()
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    return tuple(_plain(Requirement(line).name) for line in known[name])


def pinned(lock: str, roots: tuple[str, ...], python: str) -> str:
    """The part of a lock that these packages need in a function of that Python, with its hashes. Conditions are decided
    here: pip would decide them for the machine that it runs on."""
    there = in_lambda(python)
    wanted = _with_needs(roots, there)
    found = []
    for line, hashes in re.findall(r"^([a-z0-9._-]+==.*)\n((?:[ ]+--hash.*\n)+)", lock, re.MULTILINE):
        name, _, marker = line.removesuffix("\\").partition(";")
        if name.split("==")[0] in wanted and (not marker or Marker(marker).evaluate(there)):
            found.append(f"{name.strip()} \\\n{hashes}")
    return "".join(found)


def in_lambda(python: str) -> dict[str, str]:
    """What conditions of packages are about, in a function."""
    return {
        "extra": "",
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }


def _with_needs(roots: tuple[str, ...], there: Mapping[str, str]) -> set[str]:
    found: set[str] = set()
    todo = list(roots)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        needs = [Requirement(line) for line in requires(name) or ()]
        todo += [_plain(need.name) for need in needs if need.marker is None or need.marker.evaluate(dict(there))]
    return found


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    (ROOT / "requirements.txt").write_text(text((ROOT / "requirements-dev.lock").read_text()))
