"""What a family of effects can use while it acts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from chalicelib.engine.authority import Authority
from chalicelib.engine.ports import Backends, Clock, Executions, Performer
from chalicelib.errors import BackendError, Transient
from chalicelib.planning.kernel.failures import MEANINGS
from chalicelib.store.port import Store
from chalicelib.store.seal import Sealer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Acting:
    store: Store
    clock: Clock
    backends: Backends
    install_id: str
    install_key: bytes
    server_url: str = ""
    program: Callable[[], str] = (
        str  # the SHA-256 of the agent that new machines run, which is served once this returns
    )
    performers: Mapping[str, Performer] = field(default_factory=dict)  # of workflows' steps, by definition
    executions: Executions | None = None  # None: the engine's looks drive every workflow
    seal: Sealer | None = None
    authority: Authority | None = None  # which certifies gateways' hosts


@contextmanager
def translated(what: str) -> Iterator[None]:
    """A call to a backend. An untranslated error is logged in full and treated as an unknown outcome."""
    try:
        yield
    except BackendError:
        raise
    except Exception as error:
        log.exception("a call about %s failed in a way its backend doesn't translate", what)
        raise Transient(f"the backend failed unexpectedly ({type(error).__name__}: {error})") from error


def said(error: BackendError) -> tuple[str, str, float | None]:
    """An error as an outcome carries it: its name in the table of meanings, its words, and when to try again."""
    known = next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in MEANINGS), BackendError.__name__)
    return known, str(error), getattr(error, "retry_after", None)
