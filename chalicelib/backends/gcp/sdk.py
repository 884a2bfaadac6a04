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

from chalicelib.errors import Bug

PACKAGE = "google.cloud.compute_v1"
SERVICES = (  # that are called
    *("accelerator_types", "disks", "firewalls", "future_reservations", "global_operations", "images", "instances"),
    *("machine_types", "networks", "projects", "region_operations", "regions", "reservations", "resource_policies"),
    *("routers", "subnetworks", "zone_operations"),
)
_lock = threading.RLock()


def client_class(service: str) -> Any:
    """Of a service, by the name of its module."""
    if service not in SERVICES:
        raise Bug(f"{service} isn't among the services of Google's that are packed")
    name = "".join(map(str.capitalize, service.split("_"))) + "Client"
    return getattr(_imported(f"{PACKAGE}.services.{service}"), name)


def message_class(name: str) -> Any:
    return getattr(_imported(f"{PACKAGE}.types.compute"), name)


def _imported(name: str) -> ModuleType:
    found = sys.modules.get(name)
    if found is not None:
        return found
    with _lock, without_init():
        return import_module(name)


@contextmanager
def without_init() -> Iterator[None]:
    spec = find_spec(PACKAGE) if PACKAGE not in sys.modules else None
    if spec is None:
        yield
        return
    stand_in = ModuleType(PACKAGE)
    stand_in.__spec__ = spec  # meanwhile, others may ask whether the package is installed
    stand_in.__path__ = list(spec.submodule_search_locations or ())
    sys.modules[PACKAGE] = stand_in
    try:
        yield
    finally:
        del sys.modules[PACKAGE]
