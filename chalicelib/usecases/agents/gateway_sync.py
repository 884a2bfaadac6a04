"""The calls of a gateway's machine: its configuration, verdicts on callers, and its reports.

The machine uses the credential of the agent that runs there, and its rights follow from the replica that it carries:
the services of that gateway, in its project, and nothing else. The configuration is computed for each request from the
records as they are; its version is the hash of its content, so nothing has to be stored to know whether it changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import urlsplit

import orjson

from chalicelib.domain import keys
from chalicelib.domain.gateways import Gateway, GatewayReplica, ReplicaState
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.runs import Run
from chalicelib.domain.services import Traffic, door_of
from chalicelib.domain.serving import CallerVerdict, Served
from chalicelib.engine.ports import Hold
from chalicelib.errors import Ended, Forbidden, Refused
from chalicelib.loopback import is_loopback
from chalicelib.planning.gateways.hostnames import model_host
from chalicelib.usecases.agents import stream_orders
from chalicelib.usecases.agents.credentials import instance_holding
from chalicelib.usecases.context import Joining
from chalicelib.usecases.pace import Pace
from chalicelib.usecases.ports import CredentialPorts, RecordPorts, SealedChangePorts, StreamPorts
from chalicelib.usecases.services import certificates, doors, traffic
from chalicelib.usecases.services.certificates import GatewayCertificates

if TYPE_CHECKING:
    from chalicelib.contract import agent_gateway as contract
    from chalicelib.contract.agent import StreamOrder

GATEWAYS = "gateways"  # the name under which all gateways wait for news
PAUSE = 10.0  # the longest time between two polls where the server holds none, in seconds


class GatewayPorts(SealedChangePorts, CredentialPorts, StreamPorts, Protocol):
    """The ports for the calls of a gateway."""

    @property
    def joining(self) -> Joining | None: ...

    @property
    def pace(self) -> Pace: ...


class SeatPorts(RecordPorts, Protocol):
    @property
    def hold(self) -> Hold: ...


@dataclass(frozen=True)
class Seat:
    """A replica of a gateway, and its machine."""

    gateway: Gateway
    replica: GatewayReplica
    machine: Instance

    @property
    def door(self) -> str:
        return door_of(self.gateway.id, self.replica.num)


def seat_of(plane: SeatPorts, credential: str) -> Seat:
    """The replica of the instance with this credential. Raises Forbidden, or Ended for an instance that carries no
    gateway (any more). A lost machine keeps its agent's credential, and its number may belong to another machine by
    now, so the gateway's own record must name the machine, too."""
    machine = instance_holding(plane, credential)
    has = machine.gateway
    gateway = None if has is None else plane.read.find(Gateway, keys.gateway(has.gateway_id))
    replica = None if gateway is None else _carried(gateway, machine)
    if gateway is None or replica is None:
        if plane.hold.looking:  # the records are older than the gateway may be: it goes on as it is
            raise Forbidden("This server was restored from a backup, and only looks until it goes on")
        raise Ended("This instance carries no gateway.")
    return Seat(gateway, replica, machine)


def _carried(gateway: Gateway, machine: Instance) -> GatewayReplica | None:
    """The replica that the machine should run."""
    if gateway.deleted or machine.status in (InstanceStatus.terminating, InstanceStatus.terminated):
        return None
    staying = (each for each in gateway.replicas if each.state is not ReplicaState.terminating)
    return next((each for each in staying if each.instance_id == machine.id), None)


# --- what to serve ----------------------------------------------------------------------------------------------------


def gateway_configuration(
    plane: GatewayPorts, seat: Seat, since: str
) -> contract.NewConfiguration | contract.SameConfiguration:
    """What the gateway should serve. Without `news` if the version
    is still `since`: a long poll waits until it isn't. `ask_in`: the least number of seconds until the next poll."""
    found = doors.through(plane, seat.gateway, seat.machine)
    certified = certificates.gateway_certificates(plane, seat.gateway, _to_certify(found))
    configuration = _configuration(seat.gateway, found, certified)
    ask_in = _pause(plane, [service for _, service in found], certified)
    if configuration["version"] == since:
        # The gateway has this version, so it answers these challenges.
        certificates.confirm_challenges(plane, seat.gateway, seat.replica.num, certified.unconfirmed)
        return {"news": False, "ask_in": ask_in}
    return {"news": True, "ask_in": ask_in, **configuration}


def _configuration(
    gateway: Gateway, found: Iterable[tuple[Run, Served]], certified: GatewayCertificates
) -> contract.GatewayConfiguration:
    found = sorted(found, key=lambda each: each[0].id)
    models = {model_host(host_of(run)): service.project_id for run, service in found if service.model is not None}
    configuration: contract.GatewayConfiguration = {
        "version": "",
        "services": [_service(gateway, run, service, certified) for run, service in found],
        "model_hosts": models,
        "certificates": {host: _pair(pair) for host, pair in certified.certificates.items()},
        "challenges": certified.challenges,
    }
    content = orjson.dumps(configuration, option=orjson.OPT_SORT_KEYS)
    return {**configuration, "version": hashlib.sha256(content).hexdigest()[:32]}


def _pair(pair: Mapping[str, str]) -> contract.Certificate:
    return {"certificate": pair["certificate"], "key": pair["key"]}


def _service(gateway: Gateway, run: Run, service: Served, certified: GatewayCertificates) -> contract.GatewayService:
    """The entry of one service. Requests aren't redirected to https before there is a certificate."""
    secure = service.https is not False and host_of(run) in certified.certificates
    https = gateway.https_port if secure else None
    return cast("contract.GatewayService", {**service.model_dump(), "hosts": [host_of(run)], "https": https})


def _to_certify(found: Iterable[tuple[Run, Served]]) -> set[str]:
    secure = [(host_of(run), service) for run, service in found if service.https is not False]
    return {host for host, _ in secure} | {model_host(host) for host, service in secure if service.model is not None}


def host_of(run: Run) -> str:
    return urlsplit(run.url).hostname or ""


def _pause(plane: GatewayPorts, services: Iterable[Served], certified: GatewayCertificates) -> float:
    replicas = [each for service in services for each in service.replicas]
    changing = not replicas or bool(certified.challenges) or any(each.draining or not each.ready for each in replicas)
    return min(PAUSE, plane.pace.pause(changing=changing, since=0))


@dataclass(frozen=True)
class GatewayCaller:
    """A caller as a gateway describes them: without the token."""

    token_hash: str
    claims: str = ""  # of a service token (service_tokens.py)


# --- who may come, and what came --------------------------------------------------------------------------------------


def judge(plane: CredentialPorts, seat: Seat, caller: GatewayCaller, project_id: str, run_id: str) -> CallerVerdict:
    """May the caller use this service or, without `run_id`, all services of the project? Nothing is revealed about
    other projects."""
    if project_id != seat.gateway.project_id:
        return CallerVerdict(allowed=False)
    run = plane.read.find(Run, keys.run(run_id)) if run_id and caller.claims else None
    name = run.name if run is not None and run.project_id == project_id else ""
    return doors.member_by_hash(plane, caller.claims, caller.token_hash, project_id, name)


def report(plane: GatewayPorts, seat: Seat, reports: Sequence[Traffic]) -> None:
    """Record the traffic of the gateway's services. Those that have just moved to another gateway are left out."""
    runs = plane.read.find_many(Run, [keys.run(each.run_id) for each in reports])
    served = [
        each
        for run, each in zip(runs, reports, strict=True)
        if run is not None and (run.project_id, run.gateway_id) == (seat.gateway.project_id, seat.gateway.id)
    ]
    traffic.report(plane, seat.door, served)


# --- streams ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GatewayStreamOrder:
    """A gateway's order for a stream to a replica: the replica's agent dials the gateway with the ticket."""

    id: str
    ticket: str
    instance: str
    task: str
    target: str
    lazily: bool = True


def pass_on(plane: GatewayPorts, seat: Seat, orders: Sequence[GatewayStreamOrder], pin: str) -> None:
    """Pass the orders on to the agents of the replicas, with the gateway's address and the pin of the certificate that
    it shows them. Orders for replicas of other services are dropped. Raises Refused for a pin without https, and for
    https without a pin: no agent sends its ticket to a gateway that it can't recognise."""
    _check_pin(seat, pin)
    services = doors.through(plane, seat.gateway, seat.machine)
    replicas = {
        (each.instance_id, each.job_id, f"port:{each.port}"): run
        for run, served in services
        for each in served.replicas
    }
    good = [(order, run) for order in orders if (run := replicas.get((order.instance, order.task, order.target)))]
    machines = plane.read.find_many(Instance, [keys.instance(order.instance) for order, _ in good])
    addressed = [
        (order.instance, _order(order, _address(plane, seat, run, machine), pin))
        for (order, run), machine in zip(good, machines, strict=True)
    ]
    stream_orders.pass_on(plane, addressed)


def _check_pin(seat: Seat, pin: str) -> None:
    if bool(pin) == (seat.gateway.https_port is not None):
        return
    problem = "has no https, so a `pin` means nothing" if pin else "has https, so its `pin` is needed"
    raise Refused(
        f"The gateway {seat.gateway.name} {problem}.",
        hint="Send the SHA-256 of the certificate that it shows to clients that name no host, and none without https.",
    )


def _order(order: GatewayStreamOrder, gateway: str, pin: str) -> StreamOrder:
    found: StreamOrder = {
        "id": order.id,
        "ticket": order.ticket,
        "task": order.task,
        "target": order.target,
        "lazily": order.lazily,
        "gateway": gateway,
    }
    if pin:
        found["pin"] = pin
    return found


def _address(plane: GatewayPorts, seat: Seat, run: Run, dialling: Instance | None) -> str:
    """The URL at which a replica's machine dials this replica of the gateway: from its cloud, the fleet's spec or the
    server's address, else from the domain's DNS record."""
    host = _place(plane, seat.machine, dialling) or model_host(host_of(run))
    secure = seat.gateway.https_port
    scheme, port = ("http", seat.gateway.http_port) if secure is None else ("https", secure)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _place(plane: GatewayPorts, machine: Instance, dialling: Instance | None) -> str:
    """The gateway's host name, if one is known. Empty for a host that joined by itself: its own claim must not direct
    the agents of others."""
    if dialling is not None and (dialling.id == machine.id or (dialling.local and machine.local)):
        return doors.LOOPBACK
    if machine.local:
        return _servers_own(plane, dialling)
    joined = machine.host is not None and machine.host.joined
    return "" if joined else machine.hostname


def _servers_own(plane: GatewayPorts, dialling: Instance | None) -> str:
    """The host name of the server's own machine; empty if the dialling machine reaches it through a tunnel."""
    url = "" if plane.joining is None else plane.joining.server_url
    tunnelled = dialling is not None and dialling.host is not None and is_loopback(url)
    return "" if tunnelled else urlsplit(url).hostname or ""
