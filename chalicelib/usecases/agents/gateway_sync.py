"""What a gateway's machine asks the control plane: what to serve and who may come; and what it reports.

It speaks with the credential of the agent that runs there, and what it may ask follows from the seat that its machine
has: the services of that gateway, in its project, and nothing of anybody else's. The answer is made afresh for each
question, from the records as they are; its version is the hash of what it says, so that nothing has to be kept to know
whether there is news.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson

from chalicelib.domain import keys
from chalicelib.domain.gateways import Gateway, GatewayReplica, ReplicaState
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.runs import Run
from chalicelib.domain.services import Traffic, door_of
from chalicelib.domain.serving import CallerVerdict, Served
from chalicelib.errors import Ended, Refused
from chalicelib.planning.gateways.hostnames import model_host
from chalicelib.usecases.agents import stream_orders
from chalicelib.usecases.agents.credentials import known
from chalicelib.usecases.context import Joining
from chalicelib.usecases.loopback import is_loopback
from chalicelib.usecases.pace import Pace
from chalicelib.usecases.ports import CredentialPorts, RecordPorts, SealedChangePorts, StreamPorts
from chalicelib.usecases.services import certificates, doors, traffic
from chalicelib.usecases.services.certificates import Told

GATEWAYS = "gateways"  # as whom all of them wait for news
PAUSE = 10.0  # the longest between two questions where the server holds none, in seconds


class GatewayPorts(SealedChangePorts, CredentialPorts, StreamPorts, Protocol):
    """The calls of a gateway."""

    @property
    def joining(self) -> Joining | None: ...

    @property
    def pace(self) -> Pace: ...


@dataclass(frozen=True)
class Seat:
    """A replica of a gateway, and its machine."""

    gateway: Gateway
    replica: GatewayReplica
    machine: Instance

    @property
    def door(self) -> str:
        return door_of(self.gateway.id, self.replica.num)


def seat_of(plane: RecordPorts, credential: str) -> Seat:
    """Raises Forbidden, or Ended for an instance that carries no gateway, or not any more. A machine that is lost keeps
    its agent's credential, and its number may be another one's by now, so the gateway must say so, too."""
    machine = known(plane, credential)
    has = machine.gateway
    gateway = None if has is None else plane.read.find(Gateway, keys.gateway(has.gateway_id))
    replica = None if gateway is None else _carried(gateway, machine)
    if gateway is None or replica is None:
        raise Ended("This instance carries no gateway.")
    return Seat(gateway, replica, machine)


def _carried(gateway: Gateway, machine: Instance) -> GatewayReplica | None:
    """The replica that the machine is to serve."""
    if gateway.deleted or machine.status in (InstanceStatus.terminating, InstanceStatus.terminated):
        return None
    staying = (each for each in gateway.replicas if each.state is not ReplicaState.terminating)
    return next((each for each in staying if each.instance_id == machine.id), None)


# --- what to serve ----------------------------------------------------------------------------------------------------


def word(plane: GatewayPorts, seat: Seat, since: str) -> dict[str, Any]:
    """What is to be served, as `agent/gateway/entries.py` has it; without `news` if that is `since` still, and a long
    poll waits until it isn't. `ask_in`: seconds until the next question, at least."""
    found = doors.through(plane, seat.gateway, seat.machine)
    certified = certificates.told(plane, seat.gateway, _to_certify(found))
    said = _said(seat.gateway, found, certified)
    version = hashlib.sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]
    ask_in = _pause(plane, [service for _, service in found], certified)
    if version == since:
        certificates.take_heard(plane, seat.gateway, seat.replica.num, certified.unheard)  # it has what this says
        return {"news": False, "ask_in": ask_in}
    return {"news": True, "ask_in": ask_in, "version": version, **said}


def _said(gateway: Gateway, found: Iterable[tuple[Run, Served]], certified: Told) -> dict[str, Any]:
    found = sorted(found, key=lambda each: each[0].id)
    models = {model_host(host_of(run)): service.project_id for run, service in found if service.model is not None}
    return {
        "services": [_service(gateway, run, service, certified) for run, service in found],
        "model_hosts": models,
        "certificates": certified.certificates,
        "challenges": certified.challenges,
    }


def _service(gateway: Gateway, run: Run, service: Served, certified: Told) -> dict[str, Any]:
    """Nobody is sent to https before there is a certificate."""
    secure = service.https is not False and host_of(run) in certified.certificates
    return {**service.model_dump(), "hosts": [host_of(run)], "https": gateway.https_port if secure else None}


def _to_certify(found: Iterable[tuple[Run, Served]]) -> set[str]:
    secure = [(host_of(run), service) for run, service in found if service.https is not False]
    return {host for host, _ in secure} | {model_host(host) for host, service in secure if service.model is not None}


def host_of(run: Run) -> str:
    return urlsplit(run.url).hostname or ""


def _pause(plane: GatewayPorts, services: Iterable[Served], certified: Told) -> float:
    replicas = [each for service in services for each in service.replicas]
    changing = not replicas or bool(certified.challenges) or any(each.draining or not each.ready for each in replicas)
    return min(PAUSE, plane.pace.pause(changing=changing, since=0))


@dataclass(frozen=True)
class GatewayCaller:
    """What a gateway tells of a caller: never the token."""

    token_hash: str
    claims: str = ""  # of a token for services (service_tokens.py)


# --- who may come, and what came --------------------------------------------------------------------------------------


def judge(plane: CredentialPorts, seat: Seat, caller: GatewayCaller, project_id: str, run_id: str) -> CallerVerdict:
    """May whoever this is call this service; without `run_id`, all of the project's? Nobody is told anything about
    another project."""
    if project_id != seat.gateway.project_id:
        return CallerVerdict(allowed=False)
    run = plane.read.find(Run, keys.run(run_id)) if run_id and caller.claims else None
    name = run.name if run is not None and run.project_id == project_id else ""
    return doors.member_by_hash(plane, caller.claims, caller.token_hash, project_id, name)


def report(plane: GatewayPorts, seat: Seat, told: Sequence[Traffic]) -> None:
    """Keep what was seen of the gateway's services. One that has just been moved elsewhere isn't its to tell of."""
    runs = plane.read.find_many(Run, [keys.run(each.run_id) for each in told])
    mine = [
        each
        for run, each in zip(runs, told, strict=True)
        if run is not None and (run.project_id, run.gateway_id) == (seat.gateway.project_id, seat.gateway.id)
    ]
    traffic.report(plane, seat.door, mine)


# --- streams ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GatewayStreamOrder:
    """A stream that a gateway wants to a replica: its agent dials the gateway with the ticket."""

    id: str
    ticket: str
    instance: str
    task: str
    target: str
    lazily: bool = True


def pass_on(plane: GatewayPorts, seat: Seat, orders: Sequence[GatewayStreamOrder], pin: str) -> None:
    """To the agents of replicas of its services, with the gateway's address and the pin of the certificate that it
    shows them. Others are none of its business. Raises Refused for a pin without https, and for https without one: no
    agent sends its ticket to a gateway that it can't recognise."""
    _check_pin(seat, pin)
    services = doors.through(plane, seat.gateway, seat.machine)
    there = {
        (each.instance_id, each.job_id, f"port:{each.port}"): run
        for run, served in services
        for each in served.replicas
    }
    good = [(order, run) for order in orders if (run := there.get((order.instance, order.task, order.target)))]
    machines = plane.read.find_many(Instance, [keys.instance(order.instance) for order, _ in good])
    told = [
        (order.instance, _told(order, _address(plane, seat, run, machine), pin))
        for (order, run), machine in zip(good, machines, strict=True)
    ]
    stream_orders.pass_on(plane, told)


def _check_pin(seat: Seat, pin: str) -> None:
    if bool(pin) == (seat.gateway.https_port is not None):
        return
    problem = "has no https, so a `pin` means nothing" if pin else "has https, so its `pin` is needed"
    raise Refused(
        f"The gateway {seat.gateway.name} {problem}.",
        hint="Send the SHA-256 of the certificate that it shows to whoever names no host, and none without https.",
    )


def _told(order: GatewayStreamOrder, gateway: str, pin: str) -> dict[str, Any]:
    told = {"id": order.id, "ticket": order.ticket, "task": order.task, "target": order.target}
    told |= {"pin": pin} if pin else {}
    return {**told, "lazily": order.lazily, "gateway": gateway}


def _address(plane: GatewayPorts, seat: Seat, run: Run, dialling: Instance | None) -> str:
    """Where a replica's machine dials this replica of the gateway: where its cloud, the fleet's spec or the server's
    address says, else where the domain's DNS record leads."""
    host = _place(plane, seat.machine, dialling) or model_host(host_of(run))
    secure = seat.gateway.https_port
    scheme, port = ("http", seat.gateway.http_port) if secure is None else ("https", secure)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _place(plane: GatewayPorts, machine: Instance, dialling: Instance | None) -> str:
    """Empty for a host that joined by itself: its word mustn't send the agents of others anywhere."""
    if dialling is not None and (dialling.id == machine.id or (dialling.local and machine.local)):
        return doors.LOOPBACK
    if machine.local:
        return _servers_own(plane, dialling)
    joined = machine.host is not None and machine.host.joined
    return "" if joined else machine.hostname


def _servers_own(plane: GatewayPorts, dialling: Instance | None) -> str:
    """The server's own machine, as another reaches it; empty if that comes through a tunnel."""
    url = "" if plane.joining is None else plane.joining.server_url
    tunnelled = dialling is not None and dialling.host is not None and is_loopback(url)
    return "" if tunnelled else urlsplit(url).hostname or ""
