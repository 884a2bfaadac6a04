"""Google's library for Compute Engine, of which only what is called is imported.

`google.cloud.compute_v1` imports clients of some 130 services, which takes 3.5 s of CPU; the types, which all share,
take 1 s, and a service 0.1 s. So the package's own `__init__` isn't run while a service is imported: an empty package
stands in for it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_PACKAGE = "google.cloud.compute_v1"
_lock = threading.RLock()


def client_class(service: str) -> Any:
    """Of a service, by the name of its module."""
    name = "".join(map(str.capitalize, service.split("_"))) + "Client"
    return getattr(_imported(f"{_PACKAGE}.services.{service}"), name)


def message_class(name: str) -> Any:
    return getattr(_imported(f"{_PACKAGE}.types.compute"), name)


def _imported(name: str) -> ModuleType:
    found = sys.modules.get(name)
    if found is not None:
        return found
    with _lock, without_init():
        return import_module(name)


@contextmanager
def without_init() -> Iterator[None]:
    spec = find_spec(_PACKAGE) if _PACKAGE not in sys.modules else None
    if spec is None:
        yield
        return
    stand_in = ModuleType(_PACKAGE)
    stand_in.__spec__ = spec  # meanwhile, others may ask whether the package is installed
    stand_in.__path__ = list(spec.submodule_search_locations or ())
    sys.modules[_PACKAGE] = stand_in
    try:
        yield
    finally:
        del sys.modules[_PACKAGE]
