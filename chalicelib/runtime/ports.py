"""The differences between the two composition roots, side by side.

`embedded.py` and `lambda_.py` fill in this list; `root.py` assembles a control plane from it, the same way for both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chalicelib.runtime.event_chains import EventChain
from chalicelib.usecases.context import PlanePorts

if TYPE_CHECKING:
    from chalicelib.domain.traces import Export
    from chalicelib.engine.certificate_authority import CertificateAuthority
    from chalicelib.engine.ports import Bus, Count, DeadLetterQueue, Effects, Executions
    from chalicelib.hosts.connection import HostLogins


def nothing() -> Iterator[str]:
    return iter(())


def uncounted(name: str, number: int) -> None:
    """Do nothing, where there are no metrics."""


@dataclass(frozen=True, kw_only=True)
class Ports(PlanePorts):
    """The ports of the use cases, and these:"""

    #                        embedded                           in AWS
    #                        --------------------------------   --------------------------------
    effects: Effects  #      a pool of threads                  invokes functions.provider
    server_url: str  #       --public-url, or where it listens  the stack's own
    logins: HostLogins | None  # SSH to hosts                   from functions.bootstrap_host
    api_url: str = ""  #     the same                           API Gateway's, for people
    given_install_id: str = ""  # derived from the key          from the stack
    publishes: bool = True  # the agent's program, at start     the deployment does that, and buying machines
    registries: tuple[str, ...] | None = None  # public, and those of the file  only public ones (None)
    tunnels: bool = True  #  carry hosts' calls over SSH        no connection lasts there
    chain: EventChain = field(default_factory=EventChain)  # one process  events that trigger events
    workflows: Executions | None = None  # the passes drive them  executions of Step Functions
    dead_letters: DeadLetterQueue = nothing  # no event is given up              what Lambda gave up
    spans: Export | None = None  # to where OTEL_EXPORTER_OTLP_ENDPOINT says  the same
    count: Count = uncounted  # the log alone                   metrics in CloudWatch
    bus: Bus | None = None  # webhooks and rules here           EventBridge
    authority: CertificateAuthority | None = None  # from the environment  from SSM
