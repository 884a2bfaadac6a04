"""Services as their doors see them, and verdicts on callers.

A door's view of a service follows from the run, its configuration and its jobs alone, so it changes only with a commit
of the run's partition. A replica on the door's own machine is reached directly, others through a stream to their host.
A gateway on a host may also reach replicas on other hosts of its fleet directly, which it finds out by itself. The door
of a service is the server, or each replica of its gateway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chalicelib.domain import keys
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import SECOND
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.serving import CallerVerdict, Served, ServedModel, ServedReplica
from chalicelib.domain.specs.services import OpenAIChatModel, ServiceConfiguration
from chalicelib.domain.tenants import GlobalRole, Member, Project, User, hash_token
from chalicelib.planning.jobs.replica_groups import groups_of
from chalicelib.planning.machines import host_networks
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.usecases.people import rights_revision
from chalicelib.usecases.ports import CredentialPorts, RecordPorts
from chalicelib.usecases.services import service_tokens
from chalicelib.usecases.services.service_tokens import Bearer

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Standpoint:
    """The position of a door's own machine in the network."""

    near: Callable[[Instance], bool]  # whether a replica's machine is the door's own
    beside: Callable[[Instance], str] = lambda machine: (
        ""
    )  # the address of another machine in the door's network, if they share one


def named(plane: RecordPorts, project_name: str, run_name: str) -> Served | None:
    """The live service of this name."""
    run_id = _id_of(plane, project_name, run_name)
    return None if run_id is None else served(plane, run_id)


def elsewhere(plane: RecordPorts, project_name: str, run_name: str) -> str:
    """The URL of the live service of this name at a gateway; empty: there is none."""
    run_id = _id_of(plane, project_name, run_name)
    run = None if run_id is None else plane.read.run_and_jobs(run_id)[0]
    if run is None or run.gateway_id is None or not _live(run):
        return ""
    return run.url


def _id_of(plane: RecordPorts, project_name: str, run_name: str) -> str | None:
    project = nouns.find_target(plane.store, keys.project_name(project_name))
    run = None if project is None else nouns.find_target(plane.store, keys.run_name(project[0], run_name))
    return None if run is None else run[0]


def _live(run: Run) -> bool:
    return not (run.deleted or run.finished or run.status is RunStatus.terminating)


def with_models(plane: RecordPorts, project_name: str) -> list[Served]:
    """The live services of a project that have a model."""
    project = nouns.find_target(plane.store, keys.project_name(project_name))
    runs = [] if project is None else plane.read.live_runs(project[0])
    found = [served(plane, run.id) for run in runs]
    return [each for each in found if each is not None and each.model is not None]


def served(plane: RecordPorts, run_id: str) -> Served | None:
    """A run as a live service whose door is the server; None if it isn't one (any more)."""
    return _served(plane, run_id, None, Standpoint(lambda machine: machine.local))


def through(plane: RecordPorts, gateway: Gateway, machine: Instance) -> list[tuple[Run, Served]]:
    """The live services of a gateway, as its replica on this machine sees them."""

    def near(other: Instance) -> bool:
        return other.id == machine.id or (other.local and machine.local)

    standpoint = Standpoint(near, _beside(plane, machine))
    listed = all_of(plane.store, "gsi2", keys.live_runs_of(gateway.project_id))
    runs = (plane.read.parse(Run, record) for record in listed)
    own = [run for run in runs if run.gateway_id == gateway.id]
    found = ((run, _served(plane, run.id, gateway.id, standpoint)) for run in own)
    return [(run, service) for run, service in found if service is not None]


def _beside(plane: RecordPorts, machine: Instance) -> Callable[[Instance], str]:
    fleet = None if machine.host is None else plane.read.find(Fleet, keys.fleet(machine.fleet_id))
    if fleet is None:
        return lambda other: ""
    spec = plane.read.fleet_spec(fleet.id, fleet.spec_num)
    return lambda other: host_networks.beside(machine, other, spec)


def _served(plane: RecordPorts, run_id: str, gateway_id: str | None, standpoint: Standpoint) -> Served | None:
    run, jobs = plane.read.run_and_jobs(run_id)
    if run is None or not _live(run) or run.gateway_id != gateway_id:
        return None
    config = _configuration(plane, run.id, run.deployment_num)
    project = nouns.find(plane.store, Project, keys.project(run.project_id))
    if config is None or project is None or project.deleted:
        return None
    return Served(
        run_id=run.id,
        run_name=run.name,
        project_id=project.id,
        project_name=project.name,
        port=config.port.container_port,
        since=run.submitted_at,
        auth=config.auth,
        strip_prefix=config.strip_prefix,
        https=config.https if isinstance(config.https, bool) else None,
        rate_limits=config.rate_limits,
        model=_model(config),
        routed=bool(_routers(config)),
        off=not any(scale.max for scale in groups_of(config).values()),
        replicas=_replicas(plane, run, config, jobs, standpoint),
    )


def _configuration(plane: RecordPorts, run_id: str, deployment_num: int) -> ServiceConfiguration | None:
    config = plane.read.run_spec(run_id, deployment_num).configuration
    return config if isinstance(config, ServiceConfiguration) else None


def _model(config: ServiceConfiguration) -> ServedModel | None:
    model = config.model
    return ServedModel(name=model.name, prefix=model.prefix) if isinstance(model, OpenAIChatModel) else None


def _routers(config: ServiceConfiguration) -> frozenset[str]:
    """The groups through which all the others are reached."""
    groups = config.groups or ()
    return frozenset(group.name or str(at) for at, group in enumerate(groups) if group.router is not None)


def _replicas(
    plane: RecordPorts, run: Run, config: ServiceConfiguration, jobs: tuple[Job, ...], standpoint: Standpoint
) -> tuple[ServedReplica, ...]:
    newest = {job.replica_num: job for job in jobs}  # in order of submission
    placed = [
        (job, job.assignment.instance_id, own)
        for job in newest.values()
        if job.status is JobStatus.running and job.assignment is not None
        # Whether it takes requests, and on which port, depends on its own deployment.
        if _takes_requests(job, own := _configuration(plane, job.run_id, job.deployment_num) or config)
    ]
    machines = plane.read.find_many(Instance, [keys.instance(instance_id) for _, instance_id, _ in placed])
    return tuple(
        _replica(job, instance_id, own, machine, standpoint)
        for (job, instance_id, own), machine in zip(placed, machines, strict=True)
    )


def _takes_requests(job: Job, own: ServiceConfiguration) -> bool:
    routers = _routers(own)
    return not routers or job.replica_group in routers


def _replica(
    job: Job, instance_id: str, own: ServiceConfiguration, machine: Instance | None, standpoint: Standpoint
) -> ServedReplica:
    address = nearby = ""
    hosts_network = job.host_port is not None  # otherwise the port is in the job's own network
    if machine is not None and standpoint.near(machine):
        address = LOOPBACK if hosts_network else job.address or ""
    elif machine is not None and hosts_network:
        nearby = standpoint.beside(machine)
    return ServedReplica(
        job_id=job.id,
        instance_id=instance_id,
        port=job.host_port or own.port.container_port,
        address=address,
        nearby=nearby,
        group=job.replica_group,
        ready=job.ready_at is not None,
        draining=job.draining_at is not None,
    )


def member(plane: CredentialPorts, token: str, project_name: str, run_name: str = "") -> CallerVerdict:
    """The verdict on a token: may its user call this service or, if `run_name` is empty, all of the project? It may be
    the token of an active member or a global admin, or a service token of theirs."""
    project = nouns.find_target(plane.store, keys.project_name(project_name))
    project_id = None if project is None else project[0]
    return member_by_hash(plane, service_tokens.claims_of(token), hash_token(token), project_id, run_name)


def member_by_hash(
    plane: CredentialPorts, claims: str, token_hash: str, project_id: str | None, run_name: str
) -> CallerVerdict:
    """The same for a gateway, which sends a token's hash and, of a service token, the claims instead of the token."""
    if claims:
        bearer = service_tokens.bearer_of(plane, claims, token_hash, project_id or "", run_name)
    else:
        bearer = _bearer_of(plane, token_hash)
    if bearer is None or not bearer.user.active or not _belongs(plane, bearer.user, project_id):
        return CallerVerdict(allowed=False)
    if bearer.ends_at is None:
        return CallerVerdict(allowed=True)
    return CallerVerdict(allowed=True, ends_in=max(0, bearer.ends_at - plane.clock.now()) / SECOND)


def _belongs(plane: RecordPorts, user: User, project_id: str | None) -> bool:
    if user.role is GlobalRole.admin:
        return True
    return project_id is not None and nouns.find(plane.store, Member, keys.member(project_id, user.id)) is not None


def _bearer_of(plane: RecordPorts, token_hash: str) -> Bearer | None:
    found = nouns.find_target(plane.store, keys.token(token_hash))
    user = None if found is None else nouns.find(plane.store, User, keys.user(found[0]))
    if user is None:
        return None
    if user.token_hash == token_hash:
        return Bearer(user)
    entry = rights_revision.signed_on(plane.store, user, token_hash, plane.clock.now())
    return None if entry is None else Bearer(user, entry.ends_at)
