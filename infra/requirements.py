"""`python -m infra.requirements` writes `requirements.txt`: the packages for the Lambdas of `app.py`, with the tests'
pins.

Chalice packs whatever that file names, so it lists only the functions' packages and their dependencies, and nothing for
the CLI or the server. They are in the group `deploy`, so the tests' lock pins them.
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
    """The packages of one of our extras, such as a provider's SDK. Without a name, there are none."""
    if not name:
        return ()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = (plain(Requirement(line).name) for line in project["optional-dependencies"][name])
    return tuple(package for package in packages if package != project["name"])  # but for another extra of ours


def pinned(lock: str, roots: tuple[str, ...], python: str) -> str:
    """The part of a lock that these packages need in a function with that Python, including hashes. Environment markers
    are evaluated here, because pip would evaluate them for the machine that it runs on."""
    there = in_lambda(python)
    wanted = _with_needs(roots, there)
    found = []
    for line, hashes in re.findall(r"^([a-z0-9._-]+==.*)\n((?:[ ]+--hash.*\n)+)", lock, re.MULTILINE):
        name, _, marker = line.removesuffix("\\").partition(";")
        if name.split("==")[0] in wanted and (not marker or Marker(marker).evaluate(there)):
            found.append(f"{name.strip()} \\\n{hashes}")
    return "".join(found)


def names(part: str) -> frozenset[str]:
    """The packages of a part of a lock."""
    return frozenset(re.findall(r"^([a-z0-9._-]+)==", part, re.MULTILINE))


def in_lambda(python: str) -> dict[str, str]:
    """The values of environment markers in a function."""
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
        todo += [plain(need.name) for need in needs if need.marker is None or need.marker.evaluate(dict(there))]
    return found


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    (ROOT / "requirements.txt").write_text(text((ROOT / "requirements-dev.lock").read_text()))
