"""The replicas in a service's configuration: their groups, their initial number, and their probes.

All replicas of a group share one spec; a replica's own is that of its group with its number. Numbers are unique across
groups. So a spec is stored only once, however many replicas come and go.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from chalicelib.domain.job_specs import JobSpec, ProbeSpec, replica_of
from chalicelib.domain.ranges import Range
from chalicelib.domain.services import Scale
from chalicelib.domain.specs.services import (
    HTTPHeaderSpec,
    OpenAIChatModel,
    ProbeConfig,
    ServiceConfiguration,
    named_group,
)
from chalicelib.domain.specs.workloads import RunConfiguration
from chalicelib.planning.jobs.neighbours import mentions

ONE_GROUP = "0"  # the name of the only group of a service without `groups`
ASLEEP = "no replicas: starts with the first request"
OFF = "no replicas, as configured"

_JSON = (HTTPHeaderSpec(name="Content-Type", value="application/json"),)


def groups_of(config: ServiceConfiguration) -> dict[str, Range[int]]:
    """The names of its groups, and how many replicas each may have."""
    if config.groups is None:
        return {ONE_GROUP: config.replicas or Range[int](min=1, max=1)}
    return {group.name or str(at): group.replicas for at, group in enumerate(config.groups)}


def routing(config: ServiceConfiguration, name: str) -> Literal["router", "worker"] | None:
    """The role of a group's replicas in a service with a router; None: there is no router."""
    groups = config.groups or ()
    if not any(group.router for group in groups):
        return None
    return "router" if named_group(groups, name).router else "worker"


def discovery(config: ServiceConfiguration) -> int | None:
    """The index of a router's group whose workers register with it themselves, as Dynamo's do; None: the router gets a
    list of workers, or there is none."""
    groups = config.groups or ()
    return next((at for at, group in enumerate(groups) if group.router and group.router.type == "dynamo"), None)


def networked(config: ServiceConfiguration) -> bool:
    """Do its replicas reach each other?"""
    groups = config.groups or ()
    commands = [*config.commands, *(command for group in groups for command in group.commands)]
    return any(group.router for group in groups) or any(map(mentions, commands))


def queues(config: ServiceConfiguration, name: str) -> bool:
    """Does a group scale by its waiting requests?"""
    scaling = config.scaling if config.groups is None else named_group(config.groups, name).scaling
    return scaling is not None and scaling.metric == "queue"


def without(config: ServiceConfiguration) -> str:
    """The run's message while the service has no replicas."""
    return ASLEEP if any(count.max for count in groups_of(config).values()) else OFF


def first_scales(config: RunConfiguration) -> tuple[Scale, ...]:
    """The initial number of replicas of each group: its minimum. Empty for other types of runs."""
    if not isinstance(config, ServiceConfiguration):
        return ()
    return tuple(Scale(group=name, desired=count.min or 0) for name, count in groups_of(config).items())


def next_scales(config: RunConfiguration, current: Sequence[Scale]) -> tuple[Scale, ...]:
    """The numbers of replicas after a change of the configuration: each group keeps its own, within the new bounds."""
    had = {scale.group: scale for scale in current}
    return tuple(_within(had.get(scale.group, scale), count) for scale, count in _counted(config))


def _counted(config: RunConfiguration) -> list[tuple[Scale, Range[int]]]:
    if not isinstance(config, ServiceConfiguration):
        return []
    return list(zip(first_scales(config), groups_of(config).values(), strict=True))


def _within(scale: Scale, count: Range[int]) -> Scale:
    desired = min(max(scale.desired, count.min or 0), scale.desired if count.max is None else count.max)
    return scale if desired == scale.desired else scale.with_(desired=desired, why="its configuration was changed")


def first_replicas(specs: Sequence[JobSpec], scales: Sequence[Scale]) -> tuple[JobSpec, ...]:
    """The specs of the initial replicas of all groups, numbered consecutively. `specs`: one for each group."""
    of = {spec.replica_group: spec for spec in specs}
    each = [of[scale.group] for scale in scales if scale.group in of for _ in range(scale.desired)]
    return tuple(spec.with_(**replica_of(vars(spec), number)) for number, spec in enumerate(each))


# --- probes ----------------------------------------------------------------------------------------------------------


def probes_of(config: ServiceConfiguration, group: str = ONE_GROUP) -> tuple[ProbeSpec, ...]:
    """The probes with their defaults filled in. A service with a model and no configured probes is probed with a short
    completion, because it isn't ready before its weights are loaded. Behind a router only the router is probed: a
    worker may be able to do only a part of a completion."""
    if config.probes is None:
        if routing(config, group) == "worker":
            return ()
        return (_of_model(config.model),) if isinstance(config.model, OpenAIChatModel) else ()
    return tuple(map(_filled, config.probes))


def _filled(probe: ProbeConfig) -> ProbeSpec:
    return ProbeSpec(
        url=probe.url or "/",
        method=probe.method or "get",
        headers=probe.headers,
        body=probe.body,
        timeout=probe.timeout or 10,
        interval=probe.interval or 15,
        ready_after=probe.ready_after or 1,
        until_ready=bool(probe.until_ready),
    )


def _of_model(model: OpenAIChatModel) -> ProbeSpec:
    body = {"model": model.name, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    return ProbeSpec(
        url=f"{model.prefix.rstrip('/')}/chat/completions",
        method="post",
        headers=_JSON,
        body=json.dumps(body),
        timeout=30,
        interval=15,
    )
