"""Where the API gets its plane from.

Nothing is made at import: a cold start pays for a store or a client only with its first request. In a Lambda the plane
is the one of `lambda_.py`; another composition root (the embedded server, a test) says so first, with `set_plane`.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from chalicelib.usecases.context import Plane

_lock = Lock()
_factory: Callable[[], Plane] | None = None
_plane: Plane | None = None


def set_plane(factory: Callable[[], Plane]) -> None:
    """Make `plane()` answer what `factory` makes; it is called once, when the first request needs it."""
    global _factory, _plane
    with _lock:
        _factory, _plane = factory, None


def plane() -> Plane:
    global _plane
    found = _plane
    if found is not None:
        return found
    with _lock:
        if _plane is None:
            _plane = _factory() if _factory is not None else _from_lambda()
        return _plane


def _from_lambda() -> Plane:
    from chalicelib.runtime import lambda_

    return lambda_.plane()
