"""Why a cluster has too few machines for a task on several nodes: it is too small, or the run excludes some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from chalicelib.planning.kernel.plan import Note
from chalicelib.planning.matching.colocation import is_cluster
from chalicelib.planning.matching.requirements import JobRequirements
from chalicelib.planning.placing.capacity import Capacity
from chalicelib.planning.placing.clusters import Cluster, clusters, fitting_rows, may_use
from chalicelib.planning.placing.gang_needs import Needs

# Fields with which a run limits its machines, the requirements without them, and hints.
_LIMITS: tuple[tuple[str, Callable[[JobRequirements], JobRequirements], str], ...] = (
    (
        "instances",
        lambda requirements: requirements._replace(instances=()),
        "name more of them, or leave `instances` out",
    ),
    (
        "nodes",
        lambda requirements: requirements._replace(query=requirements.query._replace(bundles=None)),
        "set `nodes` to the number of those that were bought together, which one task uses",
    ),
    (
        "max_price",
        lambda requirements: requirements._replace(query=requirements.query._replace(max_price=None)),
        "raise `max_price`",
    ),
)


def too_few_hosts(capacity: Capacity, cluster: Cluster, needs: Needs) -> Note:
    """The note on a cluster that consists of too few hosts."""
    subject, count, wanted = f"cluster `{cluster.name}`", _fitting(capacity, cluster.at, needs), len(needs.nodes)
    if left_out := _left_out(capacity, cluster.at, needs, count):
        return left_out
    hosts = "1 host fits" if count == 1 else f"{count} hosts fit"
    hint = "add hosts to it, or lower `nodes` or `resources`"
    return Note(subject, f"is too small for {wanted} nodes: {hosts}", hint)


def too_few_machines(capacity: Capacity, needs: Needs) -> Iterator[Note]:
    """Notes on the clusters that the run may use and that may buy machines."""
    groups = needs.groups()
    for at, pool in enumerate(capacity.pools):
        if is_cluster(pool.view.spec) and may_use(capacity, at, groups) and (note := _of_machines(capacity, at, needs)):
            yield note


def _of_machines(capacity: Capacity, at: int, needs: Needs) -> Note | None:
    pool, nodes = capacity.pools[at], len(needs.unit)
    may_have, subject = pool.view.spec.configuration.nodes, f"cluster `{pool.view.fleet.name}`"
    if may_have is None:
        return None
    if may_have.max is not None and may_have.max < nodes:
        text = f"may have {may_have.max} machines, and the task has {nodes} nodes"
        return Note(subject, text, "raise `nodes` of the fleet, or lower it in the task")
    fitting, room = _fitting(capacity, at, needs), capacity.room(pool)
    fixed = any(requirements.reuse_only or requirements.instances for requirements in needs.groups())
    if fitting >= nodes or (not fixed and (room is None or fitting + room >= nodes)):
        return None
    if left_out := _left_out(capacity, at, needs, fitting):
        return left_out
    has = f"{fitting} of its machines fit{'s' if fitting == 1 else ''}: too few for {nodes} nodes"
    if any(requirements.reuse_only for requirements in needs.groups()):
        text = f"gets no new machine for a run with `creation_policy: reuse`, and {has}"
        return Note(subject, text, "set `creation_policy: reuse-or-create`")
    if fixed:
        return Note(
            subject, f"gets no new machine for a run that names `instances`, and {has}", "leave `instances` out"
        )
    text = f"has room for {room} more, and {has}"
    return Note(subject, text, "raise `nodes` of the fleet, or delete instances that nobody uses")


def _left_out(capacity: Capacity, at: int, needs: Needs, fitting: int) -> Note | None:
    """Would more machines fit if the run didn't limit itself?"""
    for name, without, hint in _LIMITS:
        more = _fitting(capacity, at, needs, without)
        if more > fitting:
            text = f"has {more} machines that fit, but `{name}` allows {fitting} of them"
            subject = f"cluster `{capacity.pools[at].view.fleet.name}`"
            return Note(subject, f"{text}: too few for {len(needs.unit)} nodes", hint)
    return None


def _fitting(
    capacity: Capacity,
    at: int,
    needs: Needs,
    change: Callable[[JobRequirements], JobRequirements] = lambda requirements: requirements,
) -> int:
    """How many machines of the fleet fit a node, free or not."""
    found = 0
    for cluster in clusters(capacity):
        for requirements in needs.groups() if cluster.at == at else ():
            found |= fitting_rows(capacity, cluster, change(requirements))
    return found.bit_count()
