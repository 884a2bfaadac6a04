"""The functions for each call are up to date with the API, and importing the package is cheap."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import orjson
import pytest

import dstack_serverless
from docs.openapi.document import DOCUMENT
from docs.sdk.python import FOLDER, LEFT_OUT, modules, place_of


def test_they_are_up_to_date() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py")}
    assert written == modules(), "make docs"


def test_each_operation_has_one() -> None:
    paths = orjson.loads(DOCUMENT.read_bytes())["paths"].values()
    operations = [operation for methods in paths for operation in methods.values()]
    assert len(operations) > 90
    for operation in operations:
        if operation["operationId"] not in LEFT_OUT:
            module, name = place_of(operation["operationId"])
            found = import_module(f"{dstack_serverless.__name__}.api.{module.replace('.', '_')}")
            assert callable(getattr(found, name))


def test_whatever_the_package_exports_exists() -> None:
    for name in dstack_serverless.__all__:
        assert getattr(dstack_serverless, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing"):
        dstack_serverless.nothing  # noqa: B018 - it is looked up


@pytest.mark.slow
def test_importing_it_loads_no_more_than_it_needs() -> None:
    """The package nothing, so that the command line stays quick; a client neither the language nor the screen."""
    code = (
        "import sys, dstack_serverless; print(*sys.modules); from dstack_serverless import Client; "
        "print(*(name for name in sys.modules if not name.startswith(('httpx', 'rich', 'click'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    package, client = ({*line.split()} for line in done.stdout.splitlines())
    assert package.isdisjoint({"httpx", "chalicelib", "cli", "typing_extensions"})
    assert client.isdisjoint({"pydantic", "typer", "yaml", "chalicelib.contract", "chalicelib.configuration"})
