"""`Plane`: everything a use case may reach, given to it by a composition root."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.tenants import Permissions
from chalicelib.engine.ports import Clock, News, Wake
from chalicelib.store.port import Store

if TYPE_CHECKING:
    from chalicelib.planning.offers import OfferBook
    from chalicelib.store.blobs import Blobs
    from chalicelib.store.logs import LogStore
    from chalicelib.store.seal import Sealer


class Catalog(Protocol):
    def book(self, project_id: str) -> OfferBook:
        """What could be bought for this project, as of the last refresh. Never asks a cloud."""


@dataclass(frozen=True)
class Limits:
    """What the plane refuses to swallow. Bytes."""

    body: int = 8 * 1024 * 1024
    upload: int = 2 * 1024 * 1024
    answer: int = 4 * 1024 * 1024
    log_bytes_per_hour: int = 50 * 1024 * 1024


@dataclass(frozen=True)
class Images:
    """The default images of jobs that name none. `{python}` is filled in."""

    base: str = "python:{python}"
    devel: str = "nvidia/cuda:12.8.1-devel-ubuntu24.04"
    python: str = "3.12"


@dataclass(frozen=True)
class Plane:
    store: Store
    blobs: Blobs
    logs: LogStore
    seal: Sealer
    catalog: Catalog
    clock: Clock
    wake: Wake
    news: News
    random_id: Callable[[], str]  # a UUID version 4
    random_token: Callable[[], str]  # a secret of at least 128 bits
    install_id: str
    install_key: bytes  # signs bootstrap tokens
    facts: Mapping[str, BackendFacts]  # of the backends that are configured
    server_url: str = ""
    embedded: bool = False  # the plan says start and stop delays accordingly; nothing else may ask
    sync_fast: float = 2.0  # seconds between syncs while something changes; 0 where long polls are cheap
    sync_slow: float = 60.0
    limits: Limits = Limits()
    images: Images = Images()
    permissions: Permissions = field(default_factory=Permissions)
