"""The differences between the two composition roots, side by side.

`embedded.py` and `lambda_.py` fill in this list; `root.py` assembles a control plane from it, the same way for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chalicelib.domain.retention import Retention
from chalicelib.domain.tenants import Permissions
from chalicelib.domain.usage import Measure
from chalicelib.engine.ports import unheard
from chalicelib.runtime.chains import Chain
from chalicelib.usecases.context import JobImages, Providers, SignsOn, SizeLimits

if TYPE_CHECKING:
    from chalicelib.engine.authority import Authority
    from chalicelib.engine.figures import Figures
    from chalicelib.engine.ports import (
        AccountWork,
        Aside,
        Backends,
        Bus,
        Clock,
        Count,
        Effects,
        Executions,
        News,
        Rights,
        Streams,
        Wake,
    )
    from chalicelib.hosts.connection import HostLogins
    from chalicelib.store.blobs import Blobs
    from chalicelib.store.log_uploads import Uploads
    from chalicelib.store.logs import LogStore
    from chalicelib.store.port import Put, Store
    from chalicelib.store.seal import Sealer
    from chalicelib.usecases.pace import Pace


def nothing() -> Iterator[str]:
    return iter(())


def uncounted(name: str, number: int) -> None:
    """Nobody keeps figures."""


@dataclass(frozen=True)
class Ports:
    #                                  embedded                           in AWS
    #                                  --------------------------------   --------------------------------
    store: Store  #                    SQLite                             DynamoDB
    blobs: Blobs  #                    files                              S3
    logs: LogStore  #                  files                              chunks in S3
    seal: Sealer  #                    a key file, and the user's keys    an SSM SecureString
    install_key: bytes  #              a key file                         an SSM SecureString
    backends: Backends  #              the store's and the simulated     the store's
    wake: Wake  #                      the reconciler's thread            invokes functions.reconcile
    effects: Effects  #                a pool of threads                  invokes functions.provider
    account_work: AccountWork  #       a pool of threads                  invokes functions.provider
    news: News  #                      ends the agents' long polls        nobody waits
    pace: Pace  #                      calls are held                     calls are billed
    server_url: str  #                 --public-url, or where it listens  the stack's own
    clock: Clock  #                    the machine's                      the machine's
    random_id: Callable[[], str]  #    UUIDs                              UUIDs
    random_token: Callable[[], str]  # secrets                            secrets
    measure: Measure  #                the data folder                    nothing: AWS shows sizes
    logins: HostLogins | None  #           SSH to hosts                       from functions.bootstrap_host
    api_url: str = ""  #               the same                           API Gateway's, for people
    given_install_id: str = ""  #      made of the key                    from the stack
    publishes: bool = True  #          what answers agents has theirs     the deployment, and what buys machines
    tunnels: bool = True  #            carry hosts' calls over SSH        no connection lasts there
    chain: Chain = field(default_factory=Chain)  # one process  events that ask for events
    workflows: Executions | None = None  # the looks drive them       executions of Step Functions
    uploads: Uploads | None = None  #  output comes in messages           into S3, without a function
    streams: Streams | None = None  #  between connections here           none: no connection lasts there
    serves: bool = True  #             takes services' requests           no answer lasts there
    rights: Rights = unheard  #        ends streams and long polls        nothing is open
    templates: Callable[[], Mapping[str, bytes]] = dict  # a folder  none
    figures: Figures | None = None  #  of the engine here              none: CloudWatch has them
    renew: Callable[[Put], None] | None = None  # gathered, then written  written at once
    aside: Aside = nothing  #          no event is given up              what Lambda gave up
    count: Count = uncounted  #        the log alone                     metrics in CloudWatch
    bus: Bus | None = None  #          webhooks and rules here            EventBridge
    authority: Authority | None = None  # from the environment           from SSM
    # What the operator chose:
    limits: SizeLimits = field(default_factory=SizeLimits)
    images: JobImages = field(default_factory=JobImages)
    permissions: Permissions = field(default_factory=Permissions)
    providers: Providers = field(default_factory=Providers)
    retention: Retention = field(default_factory=Retention)
    sign_on: Mapping[str, SignsOn] = field(default_factory=dict)
