"""The table of backends, and that nobody opts out of the conformance suite."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import chalicelib.backends
import tests.backends
from chalicelib.backends.registry import BACKENDS, Entry, backend_class
from chalicelib.errors import NotSupported, Refused
from tests.backends.conformance import BackendConformance

NOT_PROVIDERS = {"registry", "spi"}


def provider_files(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.py")} - NOT_PROVIDERS - {"__init__"}


def joined() -> set[str]:
    """Backend names whose tests inherit the suite, with none of its cases taken out."""
    names = set()
    for found in pkgutil.iter_modules(tests.backends.__path__):
        if not found.name.startswith("test_"):
            continue
        module = importlib.import_module(f"tests.backends.{found.name}")
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, BackendConformance) and kind.__name__.startswith("Test"):
                cases = [name for name in vars(BackendConformance) if name.startswith("test_")]
                if all(getattr(kind, name) is getattr(BackendConformance, name) for name in cases):
                    names.add(kind.backend_name)
    return names


def test_every_backend_joins_the_suite() -> None:
    assert set(BACKENDS) <= joined()


def test_every_file_is_in_the_table() -> None:
    folder = Path(chalicelib.backends.__file__).parent
    listed = {entry.path.partition(":")[0].rsplit(".", 1)[1] for entry in BACKENDS.values()}
    assert provider_files(folder) == listed


def test_a_file_that_has_not_joined_is_found(tmp_path: Path) -> None:
    (tmp_path / "newcloud.py").touch()
    (tmp_path / "spi.py").touch()
    assert provider_files(tmp_path) == {"newcloud"}


def test_rows_lead_to_classes() -> None:
    for name in BACKENDS:
        assert backend_class(name).__name__


def test_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(NotSupported, match="dstack"):
        backend_class("nimbus")


def test_missing_sdk_names_the_extra() -> None:
    table = {"nimbus": Entry("chalicelib.backends.no_such_provider:Nimbus", extra="nimbus")}
    with pytest.raises(Refused, match=r"dstack-serverless\[nimbus\]"):
        backend_class("nimbus", table)
