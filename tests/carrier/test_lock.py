"""`make carrier-lock`: the lock that is written from what apt says."""

from __future__ import annotations

import importlib.util
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

from chalicelib.carrier.packages import ARCHITECTURES, LOCK, packages

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "carrier_lock.py"


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("carrier_lock", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answer(architecture: str) -> str:
    """As apt prints it: unsorted, and with some characters encoded."""
    lines = [
        f"'https://deb.debian.org/{each.path.replace('+', '%2b').replace('~', '%7e')}' file.deb 1 SHA256:{each.sha256}"
        for each in packages(architecture)
    ]
    return "\n".join(reversed(lines))


def test_the_same_versions_give_the_same_lock(script: ModuleType) -> None:
    dated, rest = LOCK.read_text().split("\n", 1)
    now = datetime.strptime(dated, "dated %Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert script.text({each: answer(each) for each in ARCHITECTURES}, now) == f"{dated}\n{rest}"


def test_a_package_that_debian_has_no_more_is_named(script: ModuleType) -> None:
    gone = "\n".join(line for line in answer("x86").splitlines() if "libffi8" not in line)
    with pytest.raises(SystemExit, match="apt found no packages of these names for x86: libffi8"):
        script.text({"x86": gone}, datetime.now(UTC))
