"""What pip installs is this package and nothing beside it.

The build (`.ci/wheel.py`) adds the repository's folders to it: `cli`, and `chalicelib` as `plane`. `sdk` is for
programs: `from dstack_serverless import Client`. Importing the package loads none of them; a name is imported when it
is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chalicelib.errors import AlreadyExists, DstackError, Forbidden, Invalid, NotFound, Refused
    from dstack_serverless.sdk.async_client import AsyncClient
    from dstack_serverless.sdk.client import Client
    from dstack_serverless.sdk.errors import RunEnded, Unanswered, WaitedTooLong

__all__ = [
    "AlreadyExists",
    "AsyncClient",
    "Client",
    "DstackError",
    "Forbidden",
    "Invalid",
    "NotFound",
    "Refused",
    "RunEnded",
    "Unanswered",
    "WaitedTooLong",
]

_PLACES = {
    "AsyncClient": "async_client",
    "Client": "client",
}  # the modules of `sdk` that define them; `errors` has the others


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.sdk.{_PLACES.get(name, 'errors')}"), name)
    except ModuleNotFoundError as missing:
        if missing.name != "httpx":
            raise
        raise ImportError(
            "Programs need httpx beside what is installed here. Install dstack-serverless again, with its extra `sdk`."
        ) from None
