"""`python -m infra.requirements` writes `requirements.txt`: what the Lambdas of `app.py` need, with the tests' pins.

Chalice packages whatever that file names, so it has the functions' few packages with their dependencies, and none of
the CLI's or the server's. They are in the `aws` extra, so the tests' lock pins them.
"""

from __future__ import annotations

import re
from importlib.metadata import requires
from pathlib import Path

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
    wanted = sorted(_with_needs(NEEDED))
    return HEAD + "".join(f"{name}=={versions[name]}\n" for name in wanted)


def pinned(lock: str, roots: tuple[str, ...]) -> str:
    """The part of a lock that these packages need, with its hashes."""
    wanted = _with_needs(roots)
    lines = re.findall(r"^([a-z0-9._-]+==(?:.*\n)(?:[ ]+--hash.*\n)+)", lock, re.MULTILINE)
    return "".join(line for line in lines if line.split("==")[0] in wanted)


def _with_needs(roots: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    todo = list(roots)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        needs = [Requirement(line) for line in requires(name) or ()]
        todo += [_plain(need.name) for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    (ROOT / "requirements.txt").write_text(text((ROOT / "requirements-dev.lock").read_text()))
