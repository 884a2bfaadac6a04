"""Fleet and run: what both allow, or why there is nothing.

A fleet is a fence around machines and a run brings wishes of its own. Lists and ranges intersect, the lower price wins,
`spot_policy: auto` yields to the other side. What comes out is one `Query` that is asked of the fleet's instances and,
where the fleet may grow, of the offer book.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.specs.fleets import FleetConfiguration, FleetSpec
from chalicelib.domain.specs.profiles import ProfileParams
from chalicelib.domain.specs.resources import GPUSpec, ResourcesSpec
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.specs.workloads import RunConfiguration
from chalicelib.planning.offers import Query, lowered
from chalicelib.planning.plan import Note
from chalicelib.planning.snapshots import FleetView

RUN_IDLE = 5 * 60  # seconds an instance made for a run stays idle where nobody says otherwise
FLEET_IDLE = 3 * 24 * 3600  # and one made by a fleet itself

NO_IMAGE = "scratch"  # the empty image, from which nothing can run: clients name it when they only ask for offers
NOT_NAMED = "isn't among the run's `fleets`"

_SPOT = {"spot": True, "on-demand": False, "auto": None}


@dataclass(frozen=True)
class Wants:
    """What a job asks of a place. Jobs with equal wants are equal to placement."""

    query: Query
    fleets: tuple[str, ...] | None = None
    fleet_id: str | None = None  # the run is bound to this fleet
    reuse_only: bool = False
    container: tuple[str, ...] = ()  # fields of the run that only a container gives


Config = TypeVar("Config", RunConfiguration, FleetConfiguration)


def merged_run(spec: RunSpec) -> RunConfiguration:
    """The configuration with its profile poured in; what the configuration says itself wins."""
    return spec.configuration if spec.profile is None else _poured(spec.configuration, spec.profile)


def merged_fleet(spec: FleetSpec) -> FleetConfiguration:
    return _poured(spec.configuration, spec.profile)


def _poured(config: Config, profile: ProfileParams) -> Config:
    shared = ProfileParams.model_fields.keys() & type(config).model_fields.keys()
    given = {name: getattr(profile, name) for name in shared if getattr(config, name) is None}
    given = {name: value for name, value in given.items() if value is not None}
    return config.with_(**given) if given else config


def wants_of(run_spec: RunSpec, job: JobSpec, fleet_id: str | None = None) -> Wants:
    config = merged_run(run_spec)
    needs = job.requirements
    query = Query(
        resources=needs.resources,
        spot=needs.spot,
        max_price=needs.max_price,
        backends=lowered(config.backends),
        regions=lowered(config.regions),
        zones=lowered(config.availability_zones),
        instance_types=lowered(config.instance_types),
    )
    names = None if config.fleets is None else tuple(reference.name for reference in config.fleets)
    reuse_only, container = config.creation_policy == "reuse", needing_container(config)
    return Wants(query, names, fleet_id, reuse_only, container)


def needing_container(config: RunConfiguration) -> tuple[str, ...]:
    """The fields that ask for what only a container gives. A default image doesn't count: nobody asked for it."""
    fields = ("image", "python", "nvcc", "privileged", "registry_auth")
    return tuple(name for name in fields if getattr(config, name) and getattr(config, name) != NO_IMAGE)


def fleet_query(config: FleetConfiguration) -> Query:
    """What a fleet asks of the instances it makes for itself. `config` has its profile merged in."""
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
    )


def combined(wants: Wants, view: FleetView) -> Query | Note:
    """What the fleet and the run both allow, or why this fleet can't host the run."""
    name = view.fleet.name
    if view.fleet.deleted or view.fleet.status != "active":
        return Note(f"fleet `{name}`", "is being deleted")
    if wants.fleets is not None and name not in wants.fleets:
        return Note(f"fleet `{name}`", NOT_NAMED, f"add `{name}` to `fleets`")
    if wants.fleet_id is not None and view.fleet.id != wants.fleet_id:
        return Note(f"fleet `{name}`", "isn't the fleet this run is bound to")
    config = merged_fleet(view.spec)
    if config.nodes is None:  # existing hosts: the fleet sets no conditions of its own
        return wants.query
    return _meet(wants.query, fleet_query(config), config, name)


def _meet(run: Query, fleet: Query, config: FleetConfiguration, name: str) -> Query | Note:
    subject = f"fleet `{name}`"
    lists: dict[str, frozenset[str] | None] = {}
    for field in ("backends", "regions", "zones", "instance_types"):
        mine, theirs = getattr(run, field), getattr(fleet, field)
        both = mine if theirs is None else theirs if mine is None else mine & theirs
        if both is not None and not both:
            words, allowed = field.replace("_", " "), ", ".join(sorted(theirs))
            return Note(subject, f"allows only the {words} {allowed}", f"change the run's or the fleet's `{field}`")
        lists[field] = both
    if run.spot is not None and fleet.spot is not None and run.spot != fleet.spot:
        market = "spot" if fleet.spot else "on-demand"
        return Note(subject, f"takes {market} instances only", f"set `spot_policy: {market}` or `auto` on one of them")
    whole = config.blocks == 1  # a job gets a machine, so both speak of the same thing; else the run speaks of a share
    resources = meet_resources(run.resources, config.resources) if whole and config.resources else run.resources
    if isinstance(resources, str):
        return Note(
            subject, f"and the run ask for different {resources}", f"change `resources` of the run or of `{name}`"
        )
    prices = [price for price in (run.max_price, fleet.max_price) if price is not None]
    return replace(
        run,
        resources=resources,
        spot=fleet.spot if run.spot is None else run.spot,
        max_price=min(prices, default=None),
        blocks=fleet.blocks,
        machine=fleet.machine,
        **lists,
    )


def meet_resources(a: ResourcesSpec, b: ResourcesSpec) -> ResourcesSpec | str:
    """Both at once, or the name of what can't be met together."""
    if a.cpu.arch and b.cpu.arch and a.cpu.arch != b.cpu.arch:
        return "CPU architectures"
    count, memory = a.cpu.count.meet(b.cpu.count), a.memory.meet(b.memory)
    if count is None or memory is None:
        return "CPU counts" if count is None else "memory sizes"
    disk = a.disk or b.disk
    if a.disk and b.disk:
        size = a.disk.size.meet(b.disk.size)
        if size is None:
            return "disk sizes"
        disk = a.disk.with_(size=size)
    gpu = a.gpu or b.gpu
    if a.gpu and b.gpu:
        met = _meet_gpu(a.gpu, b.gpu)
        if met is None:
            return "GPUs"
        gpu = met
    return a.with_(cpu=a.cpu.with_(arch=a.cpu.arch or b.cpu.arch, count=count), memory=memory, disk=disk, gpu=gpu)


def _meet_gpu(a: GPUSpec, b: GPUSpec) -> GPUSpec | None:
    changes: dict[str, Any] = {}
    for field in ("count", "memory", "total_memory"):
        mine, theirs = getattr(a, field), getattr(b, field)
        changes[field] = mine if theirs is None else theirs if mine is None else mine.meet(theirs)
        if mine is not None and theirs is not None and changes[field] is None:
            return None
    names = a.name or b.name
    if a.name and b.name:
        names = tuple(name for name in a.name if name.lower() in {other.lower() for other in b.name})
    if names == () or (a.vendor and b.vendor and a.vendor != b.vendor):
        return None
    caps = [cap for cap in (a.compute_capability, b.compute_capability) if cap]
    return a.with_(vendor=a.vendor or b.vendor, name=names, compute_capability=max(caps, default=None), **changes)


def idle_seconds(values: Iterable[int | None], default: int, facts: BackendFacts) -> int | None:
    """How long an instance may idle: the smaller of what is set; `off` yields to anything finite. None: for ever."""
    if not facts.vm:
        return 0
    given = [value for value in values if value is not None] or [default]
    return min((value for value in given if value >= 0), default=None)
