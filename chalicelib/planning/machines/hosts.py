"""The workflows of users' own hosts: adding one to a fleet, and removing it again without a trace.

A failed addition is undone by the same code that removal runs, so the host is left as it was found. Removal never gives
up: an unreachable host is cleared once it is back, or forgotten on request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chalicelib.domain.events import EventType
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Instance, InstanceStatus, Jump, OnPrem, instance_id
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.offers import InstanceType, Offer, Resources
from chalicelib.domain.reasons import InstanceReason
from chalicelib.domain.specs.fleets import FleetSpec, SSHProxyParams
from chalicelib.domain.workflows import Workflow, workflow_id
from chalicelib.planning.kernel.plan import Step
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.kernel.workflows import Definition, WorkflowStep
from chalicelib.planning.machines.host_networks import still_shared, within
from chalicelib.planning.machines.snapshots import FleetSnapshot

ADD_HOST = Definition(
    "add_host",
    (
        WorkflowStep("look", "log in and look at the host", timeout=MINUTE, undo=False),
        WorkflowStep("install", "install the agent", timeout=3 * MINUTE),
        WorkflowStep("relay", "have the head node relay its calls", timeout=2 * MINUTE, when="relay"),
        WorkflowStep("start", "start the agent", timeout=MINUTE),
        WorkflowStep("report", "wait for its report", timeout=30 * SECOND, patience=90 * SECOND, undo=False),
    ),
)

REMOVE_HOST = Definition(
    "remove_host",
    (
        WorkflowStep("stop", "stop the agent", timeout=MINUTE, attempts=None, undo=False),
        WorkflowStep("clear", "clear the host", timeout=3 * MINUTE, attempts=None, undo=False),
    ),
)

ON_PREM = "ssh"  # the backend of these workflows, by which their steps are routed
MAX_IN_FLIGHT = 100  # hosts that a pass adds to a fleet, so that a large fleet doesn't delay the others
NEXT_BATCH: Micros = 2 * SECOND
REMOVED = "it was removed from the fleet's hosts"
_IN_USE = (InstanceStatus.idle, InstanceStatus.busy, InstanceStatus.terminated)


# --- which hosts a fleet has ------------------------------------------------------------------------------------------


def hosts_of(spec: FleetSpec, spec_num: int = 0) -> dict[str, OnPrem]:
    """The hosts that the spec names with a login, by their keys. The server's own fleet has none."""
    ssh = spec.configuration.ssh_config
    found: dict[str, OnPrem] = {}
    if ssh is None:
        return found
    for host in ssh.each:
        if user := host.user or ssh.user:
            found_host = OnPrem(
                hostname=host.hostname,
                port=host.port or ssh.port or 22,
                user=user,
                jump=_jump(host.proxy_jump or ssh.proxy_jump),
                internal_ip=host.internal_ip or "",
                blocks=host.blocks,
                spec_num=spec_num,
            )
            found[found_host.key] = found_host
    return found


def _jump(proxy: SSHProxyParams | None) -> Jump | None:
    return None if proxy is None else Jump(hostname=proxy.hostname, port=proxy.port or 22, user=proxy.user)


def match_hosts(snapshot: FleetSnapshot) -> tuple[list[Step], Fleet]:
    """The steps that add the requested hosts and remove those the spec no longer names; and the resulting fleet."""
    view, now = snapshot.view, snapshot.now
    named = hosts_of(view.spec, view.fleet.spec_num)
    present = [each for each in view.instances if each.host is not None and not each.host.joined]
    steps = [step for instance in present for step in _match_host(instance, view.fleet, named, now)]
    taken = {instance.host.key for instance in present if instance.host is not None}
    fleet = view.fleet
    if fleet.networks and (networks := still_shared(fleet, view.instances)) != fleet.networks:
        fleet = fleet.with_(networks=networks, last_processed_at=now)
        steps.append(Step((fleet,)))
    # A host that still has an instance, perhaps one that is being cleared, waits: its end wakes the fleet.
    ready = [key for key in fleet.to_add if key not in taken]
    if len(ready) > MAX_IN_FLIGHT:
        fleet = fleet.with_(due_at=now + NEXT_BATCH)
    for key in ready[:MAX_IN_FLIGHT]:
        draft = Draft(now)
        fleet = fleet.with_(to_add=tuple(other for other in fleet.to_add if other != key), last_processed_at=now)
        if key in named:
            instance = new_host(FleetView(fleet, view.spec), named[key], now)
            fleet = fleet.with_(next_instance_num=instance.num + 1)
            draft.save(instance)
            draft.record(EventType.created, instance, fleet, detail=key)
            draft.wake(f"instance/{instance.id}")
        draft.save(fleet)
        steps.append(draft.step())
    return steps, fleet


def _match_host(instance: Instance, fleet: Fleet, named: Mapping[str, OnPrem], now: Micros) -> list[Step]:
    assert instance.host is not None
    draft, wanted = Draft(now), named.get(instance.host.key)
    if instance.status in (InstanceStatus.terminating, InstanceStatus.terminated):
        return []
    if wanted is None:
        if instance.claims:  # its last job's end wakes it, and it wakes the fleet
            return []
        draft.end_instance(instance, InstanceReason.terminated_by_user, REMOVED)
    elif wanted != instance.host:
        draft.save(instance.with_(host=wanted, due_at=now))
    elif fleet.networks and instance.internal_ip and not within(instance.internal_ip, fleet.networks[0]):
        draft.save(instance.with_(due_at=now))  # the shared subnet has changed with a later host
    return [] if draft.empty else [draft.step()]


def new_host(view: FleetView, host: OnPrem, now: Micros, **more: Any) -> Instance:
    fleet, num = view.fleet, view.fleet.next_instance_num
    unknown = InstanceType(name="instance", resources=Resources(cpus=0, memory_mib=0))  # until its agent reports
    return Instance(
        id=instance_id(fleet.id, num),
        project_id=fleet.project_id,
        fleet_id=fleet.id,
        fleet_name=fleet.name,
        num=num,
        name=f"{fleet.name}-{num}",
        offer=Offer(backend="remote", instance=unknown, region="remote", price=0.0),
        env={name: str(value) for name, value in view.spec.configuration.env.items()},
        host=host,
        hostname=host.hostname,
        created_at=now,
        last_processed_at=now,
        due_at=now,
        **more,
    )


# --- a host's workflows -----------------------------------------------------------------------------------------------


def workflow_ids(instance: Instance) -> tuple[str, ...]:
    """The workflows that its next decision may depend on."""
    if instance.host is None or instance.host.joined or instance.status in _IN_USE:
        return ()
    subject = f"instance/{instance.id}"
    return tuple(workflow_id(subject, each.name, instance.epoch) for each in (ADD_HOST, REMOVE_HOST))


def workflow_of(instance: Instance, definition: Definition, now: Micros) -> Workflow:
    subject = f"instance/{instance.id}"
    return Workflow(
        id=workflow_id(subject, definition.name, instance.epoch),
        project_id=instance.project_id,
        definition=definition.name,
        name=instance.name,
        subject=subject,
        backend=ON_PREM,
        fleet_id=instance.fleet_id,
        began_at=now,
        step_at=now,
        last_processed_at=now,
    )
