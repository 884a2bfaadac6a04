"""The combination of a fleet's and a run's requirements, or why they exclude each other.

A fleet restricts machines, and a run has requirements of its own. Lists and ranges intersect, the lower price wins, and
`spot_policy: auto` yields to the other side. The result is one `Query` on the fleet's instances and, if the fleet may
grow, on the offer book.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from chalicelib.domain.fleets import Fleet
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Assignment
from chalicelib.domain.offers import Offer
from chalicelib.domain.specs.fleets import FleetConfiguration, FleetSpec
from chalicelib.domain.specs.profiles import ProfileParams
from chalicelib.domain.specs.references import EntityReference, FleetInstanceSelector, InstanceSelector
from chalicelib.domain.specs.resources import CPUSpec, DiskSpec, GPUSpec, ResourcesSpec
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.specs.services import of_group
from chalicelib.domain.specs.workloads import RunConfiguration
from chalicelib.planning.kernel.plan import Note
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.containers import needs_of_fleet, needs_of_job, reaching, without_job
from chalicelib.planning.matching.fitting import Misfit
from chalicelib.planning.matching.instance_selectors import Selector, selectors
from chalicelib.planning.matching.isolation import barred, without_docker
from chalicelib.planning.matching.machine_index import Query, lowered
from chalicelib.planning.matching.offer_options import met_options, options_of
from chalicelib.planning.volumes.mounts import needs_host
from chalicelib.planning.volumes.sites import Site

NO_IMAGE = "scratch"  # the empty image, which can't run anything; clients send it to get offers only
NOT_NAMED = "isn't among the run's `fleets`"

_ABSENT = object()  # a field that a profile has and this kind of configuration doesn't
_SPOT = {"spot": True, "on-demand": False, "auto": None}


class JobRequirements(NamedTuple):
    """The requirements of a job on its place."""

    query: Query
    fleets: tuple[str, ...] | None = None
    fleet_id: str | None = None  # the only possible fleet, because jobs of its run that it reaches are there
    reuse_only: bool = False
    container: tuple[str, ...] = ()  # fields of the run that need a container
    isolated: bool = False  # not where jobs run as the agent's own user
    instances: tuple[Selector, ...] = ()  # only these; any if empty
    ports: tuple[int, ...] = ()  # the ports that it listens on, which matter in its host's network
    networked: bool = False  # it and other jobs of its run reach each other
    named: bool = False  # it sets `user`
    barred: Misfit | None = None  # why it can't be a plain process as that user

    def at(self, sites: tuple[Site, ...]) -> JobRequirements:
        """The same requirements, at these sites only."""
        return self._replace(query=self.query._replace(sites=sites))


Config = TypeVar("Config", RunConfiguration, FleetConfiguration)
S = TypeVar("S", CPUSpec, DiskSpec, GPUSpec, ResourcesSpec)


def merged_run(spec: RunSpec) -> RunConfiguration:
    """The configuration with its profile merged in; the configuration's own values win."""
    return spec.configuration if spec.profile is None else _poured(spec.configuration, spec.profile)


def as_placed(spec: RunSpec, project_name: Callable[[], str]) -> RunSpec:
    """The spec as placement reads it: with its profile merged in, and with fleets of its own project always named
    without the project."""
    config = merged_run(spec)
    if config.fleets and any(each.project for each in config.fleets):
        config = config.with_(fleets=tuple(_ours(each, project_name) for each in config.fleets))
    if config.instances and any(isinstance(each, FleetInstanceSelector) for each in config.instances):
        config = config.with_(instances=tuple(_our_own(each, project_name) for each in config.instances))
    return spec.with_(configuration=config)


def _ours(fleet: EntityReference, project_name: Callable[[], str]) -> EntityReference:
    return fleet.with_(project=None) if fleet.project and fleet.project == project_name() else fleet


def _our_own(one: InstanceSelector, project_name: Callable[[], str]) -> InstanceSelector:
    return one.with_(fleet=_ours(one.fleet, project_name)) if isinstance(one, FleetInstanceSelector) else one


def merged_fleet(spec: FleetSpec) -> FleetConfiguration:
    return _poured(spec.configuration, spec.profile)


def _poured(config: Config, profile: ProfileParams) -> Config:
    given = {
        name: value
        for name in ProfileParams.model_fields
        if (value := getattr(profile, name)) is not None and getattr(config, name, _ABSENT) is None
    }
    return config.with_(**given) if given else config


def requirements_of(run_spec: RunSpec, job: JobSpec, beside: Assignment | None = None) -> JobRequirements:
    """`beside`: the place of another job of its run, if they reach each other."""
    config = of_group(merged_run(run_spec), job.replica_group)
    needs = job.requirements
    query = Query(
        resources=needs.resources,
        spot=needs.spot,
        max_price=needs.max_price,
        backends=lowered(config.backends),
        regions=lowered(config.regions),
        zones=lowered(config.availability_zones),
        instance_types=lowered(config.instance_types),
        host=needs_host(job.volumes),
        nodes=job.jobs_per_replica if job.jobs_per_replica > 1 else 0,
        bundles=frozenset({job.jobs_per_replica} - {1}),
        reservation=needs.reservation,
        container=needs_of_job(job, config.volumes),
        options=options_of(config),
    )
    fleet_id = None if beside is None else beside.fleet_id
    query = query if beside is None else reaching(query, beside.offer)
    names = None if config.fleets is None else tuple(str(reference) for reference in config.fleets)
    reuse, named = config.creation_policy == "reuse", selectors(config.instances)
    ports = tuple([app.port for app in job.app_specs])
    container = needing_container(config)
    user = job.user is not None, barred(job.user, job.user_permitted)
    return JobRequirements(query, names, fleet_id, reuse, container, job.isolated, named, ports, job.networked, *user)


def needing_container(config: RunConfiguration) -> tuple[str, ...]:
    """The fields that only a container can provide. A default image doesn't count, because nobody requested it."""
    fields = ("image", "python", "nvcc", "docker", "privileged", "registry_auth")
    return tuple([name for name in fields if (value := getattr(config, name)) and value != NO_IMAGE])


def _nodes(config: FleetConfiguration) -> int:
    """The initial size of the fleet's cluster; 0: it isn't one."""
    if config.placement != "cluster" or config.nodes is None:
        return 0
    return max(1, config.nodes.min, config.nodes.target)


def _bundles(config: FleetConfiguration) -> frozenset[int] | None:
    """The sizes of bundles that the fleet may buy: only whole ones, in a cluster. None: any, for runs."""
    if config.placement != "cluster":
        return frozenset()
    wanted = wanted_at_once(config)
    return frozenset(size for size in range(2, wanted + 1) if wanted % size == 0) if wanted else None


def fleet_query(config: FleetConfiguration) -> Query:
    """What a fleet requires of the instances it creates. `config` has its profile merged in."""
    return Query(
        resources=config.resources or ResourcesSpec(),
        spot=_SPOT[config.spot_policy or "on-demand"],
        max_price=config.max_price,
        backends=lowered(config.backends),
        regions=lowered(config.regions),
        zones=lowered(config.availability_zones),
        instance_types=lowered(config.instance_types),
        blocks=config.blocks,
        machine=None if config.blocks == 1 else config.resources,
        nodes=_nodes(config),
        bundles=_bundles(config),
        reservation=config.reservation,
        container=needs_of_fleet(config.blocks),
        options=options_of(config),
    )


def fleet_purchase(config: FleetConfiguration) -> Query:
    """The same for those that it creates before any job needs them."""
    return without_job(fleet_query(config))


def wanted_at_once(config: FleetConfiguration) -> int:
    """How many instances an apply of the fleet creates without waiting for a run."""
    return 0 if config.nodes is None else max(config.nodes.min, config.nodes.target)


@dataclass(frozen=True)
class FleetConditions:
    """A fleet's own conditions, with its profile merged in. `query` is None if it has none."""

    fleet: Fleet
    config: FleetConfiguration
    query: Query | None
    imported: bool = False
    one_machine: bool = False  # it is the server's own machine
    plain: bool = False  # it has hosts that run plain processes

    @staticmethod
    def of(view: FleetView) -> FleetConditions:
        config = merged_fleet(view.spec)
        query = None if config.nodes is None else fleet_query(config)
        local, plain = any(each.local for each in view.instances), any(map(without_docker, view.instances))
        return FleetConditions(view.fleet, config, query, view.imported, local, plain)


def combined(requirements: JobRequirements, view: FleetView) -> Query | Note:
    """The query that both the fleet and the run allow, or why this fleet can't host the run."""
    return within(FleetConditions.of(view), requirements)


def within(conditions: FleetConditions, requirements: JobRequirements) -> Query | Note:
    """The same, for a fence that is used more than once."""
    fleet = conditions.fleet
    if fleet.deleted or fleet.status != "active":
        return Note(f"fleet `{fleet.name}`", "is being deleted")
    if requirements.fleets is not None and fleet.name not in requirements.fleets:
        return Note(f"fleet `{fleet.name}`", NOT_NAMED, f"add `{fleet.name}` to `fleets`")
    if conditions.imported and (unfit := _too_much(requirements, conditions)):
        return Note(
            f"fleet `{fleet.name}`", f"is another project's, and takes no run {unfit}", "use a fleet of your own"
        )
    if requirements.networked and conditions.config.placement != "cluster" and not conditions.one_machine:
        text = "isn't a cluster, and the replicas of this service reach each other"
        return Note(f"fleet `{fleet.name}`", text, "set `placement: cluster` on it, if its machines share a network")
    if requirements.fleet_id is not None and fleet.id != requirements.fleet_id:
        return Note(f"fleet `{fleet.name}`", "isn't where the other replicas are that this one reaches")
    return (
        requirements.query
        if conditions.query is None
        else _meet(requirements.query, conditions.query, conditions.config, fleet.name)
    )


def _too_much(requirements: JobRequirements, conditions: FleetConditions) -> str:
    """A feature of the run that a project doesn't grant to jobs of other projects; empty if there is none."""
    if requirements.query.host:
        return "with folders of its hosts"
    if requirements.named and conditions.plain:
        return "with `user`, because it has hosts that run plain processes"
    return "with `privileged` or `docker`" if {"privileged", "docker"} & set(requirements.container) else ""


def _meet(run: Query, fleet: Query, config: FleetConfiguration, name: str) -> Query | Note:
    subject = f"fleet `{name}`"
    lists: dict[str, frozenset[str] | None] = {}
    for field in ("backends", "regions", "zones", "instance_types"):
        own, other = getattr(run, field), getattr(fleet, field)
        both = own if other is None else other if own is None else own & other
        if both is not None and not both:
            why = _apart(field.replace("_", " "), own, other)
            return Note(subject, why, f"change the run's or the fleet's `{field}`")
        lists[field] = both
    if run.spot is not None and fleet.spot is not None and run.spot != fleet.spot:
        market = "spot" if fleet.spot else "on-demand"
        return Note(subject, f"takes {market} instances only", f"set `spot_policy: {market}` or `auto` on one of them")
    if run.reservation and fleet.reservation and run.reservation != fleet.reservation:
        return Note(subject, f"is in the reservation {fleet.reservation}", "set the run's `reservation` to that")
    whole = config.blocks == 1  # then both describe a whole machine; else the run describes a share
    resources = meet_resources(run.resources, config.resources) if whole and config.resources else run.resources
    if isinstance(resources, str):
        return Note(
            subject, f"and the run ask for different {resources}", f"change `resources` of the run or of `{name}`"
        )
    dear = run.max_price is not None and fleet.max_price is not None and fleet.max_price < run.max_price
    return Query(
        resources=resources,
        spot=fleet.spot if run.spot is None else run.spot,
        max_price=fleet.max_price if dear or run.max_price is None else run.max_price,
        blocks=fleet.blocks,
        machine=fleet.machine,
        host=run.host,
        nodes=max(run.nodes, fleet.nodes) if fleet.nodes else 0,
        sites=run.sites,
        bundles=run.bundles,
        reservation=run.reservation or fleet.reservation,
        container=run.container | fleet.container,
        options=met_options(run.options, fleet.options),
        **lists,
    )


def _apart(names: str, own: frozenset[str] | None, other: frozenset[str] | None) -> str:
    """Why a run's list and a fleet's have nothing in common; an empty list allows nothing by itself."""
    if own is not None and not own:
        return f"can't serve a run that allows no {names}"
    return f"allows only the {names} {', '.join(sorted(other))}" if other else f"allows no {names}"


def meet_resources(a: ResourcesSpec, b: ResourcesSpec) -> ResourcesSpec | str:
    """The intersection of both, or the name of the field that can't satisfy both."""
    if a.cpu.arch and b.cpu.arch and a.cpu.arch != b.cpu.arch:
        return "CPU architectures"
    count, memory = a.cpu.count.meet(b.cpu.count), a.memory.meet(b.memory)
    if count is None or memory is None:
        return "CPU counts" if count is None else "memory sizes"
    size = a.disk.size.meet(b.disk.size) if a.disk and b.disk else None
    if a.disk and b.disk and size is None:
        return "disk sizes"
    gpu = _meet_gpu(a.gpu, b.gpu) if a.gpu and b.gpu else a.gpu or b.gpu
    if a.gpu and gpu is None:
        return "GPUs"
    cpu = _changed(a.cpu, arch=a.cpu.arch or b.cpu.arch, count=count)
    disk = _changed(a.disk, size=size) if a.disk and size else a.disk or b.disk
    return _changed(a, cpu=cpu, memory=memory, disk=disk, gpu=gpu)


def _meet_gpu(a: GPUSpec, b: GPUSpec) -> GPUSpec | None:
    met: dict[str, Any] = {}
    for field in ("count", "memory", "total_memory"):
        own, other = getattr(a, field), getattr(b, field)
        met[field] = own if other is None else other if own is None else own.meet(other)
        if own is not None and other is not None and met[field] is None:
            return None
    names = a.name or b.name
    if a.name and b.name:
        names = tuple(name for name in a.name if name.lower() in {other.lower() for other in b.name})
    if names == () or (a.vendor and b.vendor and a.vendor != b.vendor):
        return None
    caps = [cap for cap in (a.compute_capability, b.compute_capability) if cap]
    return _changed(a, vendor=a.vendor or b.vendor, name=names, compute_capability=max(caps, default=None), **met)


def _changed(spec: S, **fields: Any) -> S:
    """The spec with these fields; the same object if nothing changes."""
    new = {name: value for name, value in fields.items() if getattr(spec, name) is not value}
    return spec.with_(**new) if new else spec


def idle_seconds(values: Iterable[int | None], default: int, offer: Offer) -> int | None:
    """How many seconds an instance may idle: the smallest value set; `off` yields to finite ones. None: for ever."""
    if offer.is_container:
        return 0
    given = [value for value in values if value is not None] or [default]
    return min((value for value in given if value >= 0), default=None)
