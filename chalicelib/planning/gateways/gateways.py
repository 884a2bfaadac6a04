"""A gateway's decisions: each replica gets a machine, and a machine drops its replica when that is no longer needed.

A replica begins and ends in one commit with the seat on its machine. A host drops a replica when its seat is `leaving`,
and the seat is removed once its agent reports nothing of it any more. A machine that was bought for the gateway ends
with its replica. A host that stays silent for too long isn't waited for; its agent gets the same order when it is back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chalicelib.domain.events import EventType
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.gateways import ADDRESS_AWAY, Gateway, GatewayReplica, GatewaySeat, GatewayStatus, ReplicaState
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import Micros
from chalicelib.domain.reasons import InstanceReason
from chalicelib.machines.gateway import CHECK_GATEWAY_EVERY, CHECK_HOSTS_EVERY, GATEWAY, TO_LEAVE, TO_RUN
from chalicelib.machines.instance import INSTANCE
from chalicelib.machines.table import allows
from chalicelib.planning.gateways import gateway_machines, gateway_markets
from chalicelib.planning.gateways.snapshots import GatewaySnapshot
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.transitions import Draft

_JOINED = (InstanceStatus.idle, InstanceStatus.busy)
_ENDING = (InstanceStatus.terminating, InstanceStatus.terminated)


def decide_gateway(snapshot: GatewaySnapshot) -> Plan:
    """The next step of one gateway."""
    if snapshot.gateway.deleted:
        return Plan()
    this = GatewayPass(snapshot)
    this.tend()
    if this.gateway.ending:
        this.wind_up()
    else:
        this.maintain()
    return this.plan()


def staying(gateway: Gateway, machines: Mapping[str, Instance]) -> int:
    """How many of its replicas have a machine that stays."""
    live = (machines.get(each.instance_id) for each in gateway.replicas if each.state is not ReplicaState.terminating)
    return sum(each is not None and _seated(each, gateway) and each.status not in _ENDING for each in live)


def _seated(machine: Instance, gateway: Gateway) -> bool:
    seat = machine.gateway
    here = seat is not None and seat.gateway_id == gateway.id
    return here and machine.status is not InstanceStatus.terminated


def apply_report(draft: Draft, gateway: Gateway, instance: Instance, reported: str, message: str) -> Gateway:
    """The gateway after a machine's agent has reported on the replica there. `reported`: `installing`, `starting`,
    `running` or `failed`."""
    replica = next((each for each in gateway.replicas if each.instance_id == instance.id), None)
    if replica is None or replica.state is ReplicaState.terminating:
        return gateway
    state = ReplicaState.running if reported == "running" else ReplicaState.provisioning
    shown = message if state is ReplicaState.running else message or reported
    now = replica.with_(state=state, message=shown, failed=reported == "failed", hostname=instance.hostname)
    if now == replica:
        return gateway
    gateway = gateway.with_(replicas=_with(gateway, now), due_at=draft.now)
    draft.save(gateway)
    if state is ReplicaState.running and replica.state is not state:
        draft.record(EventType.ready, gateway, instance)
    if now.failed and not (replica.failed and replica.message == shown):
        draft.record(EventType.failed, gateway, instance, reason=replica.instance_name, detail=shown)
    draft.wake(gateway.unit)
    return gateway


def _with(gateway: Gateway, replica: GatewayReplica) -> tuple[GatewayReplica, ...]:
    return tuple(replica if each.num == replica.num else each for each in gateway.replicas)


class GatewayPass:
    """One pass over a gateway: its machines, and the draft of the step."""

    def __init__(self, snapshot: GatewaySnapshot) -> None:
        self.snapshot, self.now = snapshot, snapshot.now
        self.gateway = snapshot.gateway
        self.machines = dict(snapshot.machines)
        self.draft = Draft(snapshot.now)
        self.missing = ""  # why a replica has no machine
        self.recheck_at = snapshot.now + CHECK_HOSTS_EVERY  # when to look for a machine again

    def plan(self) -> Plan:
        return self.draft.plan()

    def _update(self, **changes: object) -> None:
        changed = self.gateway.with_(**changes)
        if changed != self.gateway:
            self.gateway = changed.with_(last_processed_at=self.now)
            self.draft.save(self.gateway)

    # --- replicas that end -------------------------------------------------------------------------------------------

    def tend(self) -> None:
        """Forget replicas whose machines are gone, and begin to end those whose machines are going."""
        for replica in self.gateway.replicas:
            machine = self.machines.get(replica.instance_id)
            if machine is None or not _seated(machine, self.gateway):
                self._forget(replica)
            elif replica.state is not ReplicaState.terminating:
                if machine.status in _ENDING:
                    self._leave(replica, machine)
                elif machine.hostname != replica.hostname:
                    self._update(replicas=_with(self.gateway, replica.with_(hostname=machine.hostname)))
            elif replica.ends_by is not None and self.now >= replica.ends_by and not machine.of_gateway:
                self._save(machine.with_(gateway=None))
                self._forget(replica)

    def _forget(self, replica: GatewayReplica) -> None:
        machine = self.machines.get(replica.instance_id)
        if machine is not None and machine.of_gateway:
            self._update(orders=gateway_machines.ended(self.gateway.orders, machine))
        self._update(replicas=tuple(each for each in self.gateway.replicas if each.num != replica.num))

    def _leave(self, replica: GatewayReplica, machine: Instance) -> None:
        """Have the machine drop the replica."""
        assert machine.gateway is not None
        ending = replica.with_(state=ReplicaState.terminating, message="", failed=False, ends_by=self.now + TO_LEAVE)
        self._update(replicas=_with(self.gateway, ending))
        if machine.of_gateway:
            if allows(INSTANCE, machine.status, "end"):
                why = f"the gateway {self.gateway.name} no longer needs it"
                ended = self.draft.end_instance(machine, InstanceReason.terminated_by_user, why)
                self.machines[ended.id] = ended
        elif not machine.gateway.leaving:
            self._save(machine.with_(gateway=machine.gateway.with_(leaving=True)))

    def _save(self, machine: Instance) -> None:
        self.machines[machine.id] = machine
        self.draft.save(machine)

    def wind_up(self) -> None:
        for replica in self._live():
            self._leave(replica, self.machines[replica.instance_id])
        if not self.gateway.replicas:
            self.gateway = self.draft.move(GATEWAY, self.gateway, "gone", message="", deleted_at=self.now, due_at=None)
            return
        self._update(due_at=min(self._leaves()))

    def _leaves(self) -> Iterator[Micros]:
        """The deadlines of replicas that are ending. The end of a bought machine wakes the gateway besides."""
        for replica in self.gateway.replicas:
            if replica.ends_by is not None:
                yield replica.ends_by if replica.ends_by > self.now else self.now + CHECK_GATEWAY_EVERY

    # --- replicas that stay ------------------------------------------------------------------------------------------

    def _live(self) -> list[GatewayReplica]:
        return [each for each in self.gateway.replicas if each.state is not ReplicaState.terminating]

    def maintain(self) -> None:
        """Add or end replicas until there are as many as wanted, and derive the gateway's status from theirs."""
        live = sorted(self._live(), key=lambda each: (each.state is not ReplicaState.running, each.num))
        for replica in live[self.gateway.wanted :]:
            self._leave(replica, self.machines[replica.instance_id])
        self._place(self.gateway.wanted - len(live))
        before = self.gateway
        self._move()
        if self.missing and self.missing not in before.message and self.gateway.status is before.status:
            self.draft.record(EventType.paused, self.gateway, detail=self.missing)
        dues = [self.recheck_at if self.missing else self.now + CHECK_GATEWAY_EVERY, *self._leaves()]
        if self._may("failed"):
            dues.append(self._late_at())
        if self.gateway.due_at is None or self.gateway.due_at <= self.now or min(dues) < self.gateway.due_at:
            self._update(due_at=min(dues))

    def _place(self, missing: int) -> None:
        """Place replicas on hosts that have none, in the order of their numbers, or buy machines for them."""
        if not self.gateway.fleet:
            self._buy(missing)
            return
        hosts = self.snapshot.hosts
        here = [each for each in hosts if each.status in _JOINED and not each.unreachable]
        free = [each for each in here if each.gateway is None and not each.bought]  # another fleet may have the name
        for machine in free[: max(0, missing)]:
            self._seat(machine)
        if missing > len(free):
            self.missing = self._why_none(missing - len(free))

    def _why_none(self, missing: int) -> str:
        fleet = self.gateway.fleet
        if not self.snapshot.fleet_exists:
            return f"the fleet {fleet} no longer exists"
        if not self.snapshot.hosts:
            return f"the fleet {fleet} has no hosts yet"
        if missing == 1:
            return f"waiting for a host of fleet {fleet} that can be reached and carries no gateway"
        return f"waiting for {missing} hosts of fleet {fleet} that can be reached and carry no gateway"

    def _buy(self, missing: int) -> None:
        offers, facts = self.snapshot.offers, self.snapshot.facts.get(self.gateway.backend)
        facts = facts or BackendFacts(name=self.gateway.backend)
        if missing <= 0 or offers is None:
            return
        origin = ""
        if facts.live_offers and facts.gateway_containers:
            asked = gateway_markets.ask(self.gateway, facts, self.snapshot.answers, self.now)
            self._update(orders=asked.orders)
            for effect in asked.effects:
                self.draft.act(effect)
            if isinstance(asked.found, gateway_machines.Missing):
                self.missing, self.recheck_at = asked.found.text, asked.found.retry_at
                return
            offers, origin = asked.found, asked.origin
        for _ in range(missing):
            orders, found = gateway_machines.choose(self.gateway, facts, offers, self.now)
            self._update(orders=orders)
            if isinstance(found, gateway_machines.Missing):
                self.missing, self.recheck_at = found.text, found.retry_at
                return
            orders, machine = gateway_machines.order(self.draft, self.gateway, found, facts, origin)
            self._update(orders=orders)
            self._seat(machine, ReplicaState.submitted)

    def _seat(self, machine: Instance, state: ReplicaState = ReplicaState.provisioning) -> None:
        taken = {each.num for each in self.gateway.replicas}
        num = next(each for each in range(len(taken) + 1) if each not in taken)
        seat = GatewaySeat(
            gateway_id=self.gateway.id,
            name=self.gateway.name,
            num=num,
            http_port=self.gateway.http_port,
            https_port=self.gateway.https_port,
        )
        replica = GatewayReplica(
            num=num,
            instance_id=machine.id,
            instance_name=machine.name,
            state=state,
            hostname=machine.hostname,
            created_at=self.now,
        )
        self._save(machine.with_(gateway=seat))
        replicas = sorted((*self.gateway.replicas, replica), key=lambda each: each.num)
        self._update(replicas=tuple(replicas))
        self.draft.wake(f"instance/{machine.id}")

    # --- its status --------------------------------------------------------------------------------------------------

    def _move(self) -> None:
        live = self._live()
        ready = len(live) >= self.gateway.wanted and all(
            each.state is ReplicaState.running and each.hostname for each in live
        )
        message = self._message(live)
        if live and self._may("placed"):
            self.gateway = self.draft.move(GATEWAY, self.gateway, "placed", message=message)
        late = self.now >= self._late_at()
        if ready and self._may("ready"):
            first = self.gateway.running_at or self.now
            self.gateway = self.draft.move(GATEWAY, self.gateway, "ready", message="", running_at=first)
        elif (late or any(each.failed for each in live)) and self._may("failed"):
            why = message or "its replicas don't run yet"
            self.gateway = self.draft.move(GATEWAY, self.gateway, "failed", note=why, message=why)
        elif self.gateway.status is not GatewayStatus.failed or message:
            self._update(message=message)

    def _late_at(self) -> Micros:
        return self.gateway.created_at + TO_RUN

    def _may(self, event: str) -> bool:
        return allows(GATEWAY, self.gateway.status, event)

    def _message(self, live: list[GatewayReplica]) -> str:
        """What is wrong with the replicas, or what they still wait for."""
        shown = [f"{each.instance_name}: {text}" for each in live if (text := self._problem(each))]
        return "; ".join(filter(None, (self.missing, *shown)))

    def _problem(self, replica: GatewayReplica) -> str:
        machine = self.machines.get(replica.instance_id)
        if machine is not None and machine.unreachable:
            return "it can't be reached"
        if replica.state is ReplicaState.running and not replica.hostname:
            return "waiting for its public address"
        away = machine.message if machine is not None and machine.message.startswith(ADDRESS_AWAY) else ""
        return "; ".join(filter(None, (away, replica.message)))
