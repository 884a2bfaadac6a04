"""What use cases need of the plane, in groups: a signature names the smallest that does.

`Plane` has all of them. A module that needs more than one group, or a port that nobody else uses, combines them itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from chalicelib.domain.tenants import Permissions
    from chalicelib.engine.commit import RequestCommitter
    from chalicelib.engine.ports import AccountWork, Backends, Catalog, Clock, NotifyAgents, Rights, Streams, Wake
    from chalicelib.engine.read import Reader
    from chalicelib.store.blobs import Blobs
    from chalicelib.store.logs import LogStore
    from chalicelib.store.port import Store
    from chalicelib.store.seal import Sealer
    from chalicelib.usecases.context import JobImages, SizeLimits
    from chalicelib.usecases.pace import Pace


class RecordPorts(Protocol):
    """Stored records, and the time."""

    @property
    def store(self) -> Store: ...

    @property
    def read(self) -> Reader: ...

    @property
    def clock(self) -> Clock: ...


class SealedPorts(RecordPorts, Protocol):
    """Records with secrets in them."""

    @property
    def seal(self) -> Sealer: ...


class ChangePorts(RecordPorts, Protocol):
    """Changes of runs, fleets, volumes and gateways, as far as the installation permits them."""

    @property
    def committer(self) -> RequestCommitter: ...

    @property
    def wake(self) -> Wake: ...

    @property
    def random_id(self) -> Callable[[], str]: ...

    @property
    def permissions(self) -> Permissions: ...


class SealedChangePorts(ChangePorts, SealedPorts, Protocol):
    """Changes of records with secrets in them."""


class OfferPorts(SealedChangePorts, Protocol):
    """Changes that need backends: plans of fleets, volumes and gateways."""

    @property
    def backends(self) -> Backends: ...

    @property
    def catalog(self) -> Catalog: ...

    @property
    def hosts(self) -> bool: ...


class RunPlanPorts(OfferPorts, Protocol):
    """Plans of runs."""

    @property
    def install_key(self) -> bytes: ...

    @property
    def random_token(self) -> Callable[[], str]: ...

    @property
    def account_work(self) -> AccountWork: ...

    @property
    def images(self) -> JobImages: ...

    @property
    def pace(self) -> Pace: ...

    @property
    def serves(self) -> bool: ...

    @property
    def traces(self) -> bool: ...


class AccountPorts(SealedPorts, Protocol):
    """Users with their tokens, keys and rights."""

    @property
    def random_id(self) -> Callable[[], str]: ...

    @property
    def random_token(self) -> Callable[[], str]: ...

    @property
    def rights(self) -> Rights: ...


class CredentialPorts(RecordPorts, Protocol):
    """Tokens of machines and of services."""

    @property
    def install_key(self) -> bytes: ...

    @property
    def random_token(self) -> Callable[[], str]: ...


class LogPorts(RecordPorts, Protocol):
    """Logs of jobs."""

    @property
    def logs(self) -> LogStore: ...

    @property
    def pace(self) -> Pace: ...


class FilePorts(SealedPorts, Protocol):
    """Uploaded files and code."""

    @property
    def blobs(self) -> Blobs: ...

    @property
    def random_id(self) -> Callable[[], str]: ...

    @property
    def limits(self) -> SizeLimits: ...


class StreamPorts(SealedPorts, Protocol):
    """Streams between clients and jobs, and how agents learn of them."""

    @property
    def streams(self) -> Streams | None: ...

    @property
    def notify_agents(self) -> NotifyAgents: ...
