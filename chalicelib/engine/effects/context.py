"""The context in which effects are executed: the ports and settings that every family of effects may use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chalicelib.engine.certificate_authority import CertificateAuthority
from chalicelib.engine.ports import Backends, Clock, Executions, Performer, Wake
from chalicelib.errors import BackendError, Bug, Transient
from chalicelib.planning.kernel.failures import MEANINGS
from chalicelib.store.port import Store
from chalicelib.store.seal import Sealer

if TYPE_CHECKING:
    from chalicelib.backends.accounts import Account
    from chalicelib.backends.spi import RegistryLogin
    from chalicelib.domain.offer_requests import OfferRequest

log = logging.getLogger(__name__)


def _no_market(account: Account, request: OfferRequest) -> None:
    raise Bug(f"nothing here keeps what {account.key} answers")


def _no_registry(image: str, login: RegistryLogin | None, architecture: str) -> tuple[str, ...]:
    raise Bug(f"nothing here reads what {image} runs")


def _nobody(units: Iterable[str], /) -> None:
    """Nothing is woken."""


@dataclass(frozen=True)
class EffectContext:
    store: Store
    clock: Clock
    backends: Backends
    install_id: str
    install_key: bytes
    server_url: str = ""
    program: Callable[[], str] = str  # the SHA-256 of the agent for new machines, which is served once this returns
    carrier: Callable[[str], str] = lambda architecture: ""  # of the carrier for new containers; empty: there is none
    image_command: Callable[[str, RegistryLogin | None, str], tuple[str, ...]] = _no_registry  # also the architecture
    performers: Mapping[str, Performer] = field(default_factory=dict)  # of workflows' steps, by definition
    executions: Executions | None = None  # None: passes drive every workflow
    seal: Sealer | None = None
    ask_market: Callable[[Account, OfferRequest], object] = _no_market
    wake: Wake = _nobody
    authority: CertificateAuthority | None = None  # for the hosts of gateways


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Wraps a call to a backend. An untranslated error is logged in full and treated as an unknown outcome."""
    try:
        yield
    except BackendError:
        raise
    except Exception as error:
        log.exception("a call for %s raised an error that its backend doesn't translate", what)
        raise Transient(f"the backend failed unexpectedly ({type(error).__name__}: {error})") from error


def failure_fields(error: BackendError) -> tuple[str, str, float | None]:
    """The fields of an error in an outcome: its name in the table of meanings, its message, and when to try again."""
    known = next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in MEANINGS), BackendError.__name__)
    return known, str(error), getattr(error, "retry_after", None)
