"""What importing the SDK loads: the rest waits until it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.harness.server import ROOT

LATER = {"asyncio", "subprocess", "pydantic", "typer", "yaml"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "loaded"), [("Client", set()), ("AsyncClient", {"asyncio", "subprocess"})])
def test_a_client_loads_only_what_it_needs(name: str, loaded: set[str]) -> None:
    code = f"import sys; from dstack_serverless import {name}; print(*(set(sys.modules) & {LATER!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == loaded
