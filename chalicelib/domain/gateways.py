"""A gateway: the machines that take services' requests, and the domain that services get their names from.

Its replicas are identical. Each has a *seat* on a machine: on a host of a fleet, which still takes jobs, or on a
machine that is bought for it. The seat is part of the machine's record, so a response to its agent needs no read of the
gateway, and a replica is gone only when its machine doesn't have the seat any more.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

import orjson

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.market_answers import MarketQuery
from chalicelib.domain.noun import Noun, Value

ADDRESS_AWAY = "its public address"  # what the message of a replica's machine begins with that has lost it


class GatewayStatus(StrEnum):
    submitted = "submitted"
    provisioning = "provisioning"
    running = "running"
    failed = "failed"
    deleting = "deleting"
    deleted = "deleted"


class ReplicaState(StrEnum):
    submitted = "submitted"  # its machine is being bought
    provisioning = "provisioning"
    running = "running"
    terminating = "terminating"


class GatewaySeat(Value):
    """The replica that an instance carries, in the instance's record. An instance carries at most one."""

    gateway_id: str
    name: str  # of the gateway
    num: int
    http_port: int = 80
    https_port: int | None = 443  # None: it serves no https
    leaving: bool = False  # the agent is to remove the replica, and then reports none


class GatewayReplica(Value):
    num: int
    instance_id: str
    instance_name: str = ""
    state: ReplicaState = ReplicaState.submitted
    hostname: str = ""  # where people reach it
    message: str = ""  # what its agent is doing, or what is wrong
    failed: bool = False  # its agent can't run it, for now: the message says why
    created_at: Micros
    ends_by: Micros | None = None  # terminating: when waiting for its machine ends


class Orders(Value):
    """The state of machine purchases for a gateway."""

    next_num: int = 0
    markets: tuple[MarketQuery, ...] = ()  # what was asked for offers, and when
    tried: tuple[str, ...] = ()  # keys of offers that failed, until all are tried again
    refused: str = ""  # why the last of them failed
    pauses: int = 0  # since a machine last came up
    paused_until: Micros | None = None


class Gateway(Noun):
    kind: ClassVar[str] = "gateway"

    id: str
    project_id: str
    name: str
    configuration: str  # as the user wrote it, as JSON text
    fleet: str = ""  # the name of the fleet whose hosts it runs on; empty: on machines of a backend
    backend: str = ""
    region: str = ""
    domain: str = ""  # whose subdomains its services get, without a leading `*.`; empty: none
    wanted: int = 1  # replicas
    http_port: int = 80
    https_port: int | None = 443
    status: GatewayStatus = GatewayStatus.submitted
    message: str = ""
    replicas: tuple[GatewayReplica, ...] = ()
    orders: Orders = Orders()  # of machines, if it runs on its own
    created_at: Micros
    last_processed_at: Micros
    running_at: Micros | None = None  # when all its replicas ran for the first time
    deleted_at: Micros | None = None
    due_at: Micros | None = None

    @property
    def unit(self) -> str:
        return f"gateway/{self.id}"

    @property
    def deleted(self) -> bool:
        return self.status is GatewayStatus.deleted

    @property
    def ending(self) -> bool:
        return self.status in (GatewayStatus.deleting, GatewayStatus.deleted)

    @property
    def written(self) -> dict[str, Any]:
        """The configuration."""
        found: dict[str, Any] = orjson.loads(self.configuration)
        return found

    @property
    def running(self) -> tuple[GatewayReplica, ...]:
        """The replicas that take requests; each is a door of the services."""
        return tuple(each for each in self.replicas if each.state is ReplicaState.running)

    def place(self) -> keys.Place:
        listed = keys.by_time(keys.gateways_of(self.project_id), self.created_at, self.id)  # until it is erased
        over = keys.by_time(keys.ENDED_GATEWAYS, self.deleted_at or self.last_processed_at, self.id)
        due = keys.due(self.unit, self.due_at)
        return keys.Place(keys.gateway(self.id), listed, over if self.deleted else None, due)
