"""Which replicas to create and which to stop, so that a group of a service gets to its desired number and version.

`scaling` decides the number. Each pass takes one step towards it from the current state, so a pass may be repeated or
lost. A new version is rolled out one replica at a time:

1. One replica more than desired is created (the surge), and no other until no replica of the group is leaving any more.
2. Once the new replica gets requests, one of the old version goes. So at no time do fewer than desired get requests.
3. A replica that gets requests is drained first: it gets no new ones, and is stopped when every door has released it,
   or after a time limit. One that gets no requests is stopped at once.
4. If a replica of the new version fails for good while old ones serve, the rollout stops: they stay, and the run says
   why. The next apply makes another version, with which the rollout continues.
5. A group that was removed from the configuration only shrinks. While its replicas serve in place of others, failures
   of those are treated as failures of a new version.

Replicas are removed in this order: the old version before the new, those without requests before those that get them,
high numbers before low. New ones reuse the numbers of replicas that have ended before they get fresh numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.job_specs import ProbeSpec
from chalicelib.domain.services import BUCKET, Traffic

DRAIN: Micros = MINUTE  # the longest that a replica is drained
UNKNOWN: Micros = 2 * BUCKET  # the same if no door has reported the service: one with a request does within a bucket
TO_LOAD: Micros = 20 * MINUTE  # how long an application may load before it counts as late


class Standing(IntEnum):
    """How much a replica matters."""

    submitted = 0  # or waits to be submitted again
    starting = 1
    running = 2
    serving = 3


@dataclass(frozen=True)
class LiveReplica:
    """A live replica of the group."""

    num: int
    standing: Standing
    current: bool = True  # of the version that the run should have
    drained: bool = False  # it can be stopped
    draining: bool = False

    @property
    def serves(self) -> bool:
        return self.standing is Standing.serving and not self.draining

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The sort key of removal: the lowest goes first."""
        return (self.current, int(self.standing), -self.num)


@dataclass(frozen=True)
class LiveGroup:
    desired: int
    members: Sequence[LiveReplica]
    leaving: int = 0  # replicas that are stopping
    failed: bool = False  # a replica of the new version has failed and isn't retried
    free: Sequence[int] = ()  # numbers of replicas that have ended
    stood_in: bool = False  # replicas of a removed group get its requests
    former: bool = False  # the group itself was removed from the configuration: it only shrinks


@dataclass(frozen=True)
class RolloutSteps:
    create: int = 0  # how many
    revive: tuple[int, ...] = ()  # numbers that are reused, for some of those created
    drain: tuple[int, ...] = ()
    stop: tuple[int, ...] = ()
    held: bool = False  # the rollout has stopped, because the new version doesn't work


def roll(group: LiveGroup) -> RolloutSteps:
    """The next step of one group."""
    staying = sorted((member for member in group.members if not member.draining), key=lambda member: member.rank)
    held = group.failed and (group.stood_in or any(member.serves and not member.current for member in staying))
    going = _going(group.desired, staying, held)
    going_nums = {member.num for member in going}
    staying = [member for member in staying if member.num not in going_nums]
    drained = [member.num for member in group.members if member.draining and member.drained]
    leaves = group.leaving + len(going) + sum(member.draining for member in group.members)
    create = max(0, group.desired - len(staying))
    if not leaves and any(not member.current for member in staying) and len(staying) == group.desired:
        create = 1
    if held or group.former:
        create = 0
    return RolloutSteps(
        create,
        tuple(sorted(group.free)[:create]),
        drain=tuple(member.num for member in going if member.serves),
        stop=(*drained, *(member.num for member in going if not member.serves)),
        held=held,
    )


def _going(desired: int, worst_first: Sequence[LiveReplica], held: bool) -> list[LiveReplica]:
    """The replicas to remove. Of those that get requests, the desired number stays, whatever their version."""
    there, serving = len(worst_first), sum(member.serves for member in worst_first)
    most = desired + any(not member.current for member in worst_first)  # with the surge
    going = []
    for member in worst_first:
        replaced = not (member.current or held)
        if serving > desired if member.serves else there > most or replaced:
            going.append(member)
            there -= 1
            serving -= member.serves
    return going


def is_drained(job_id: str, since: Micros, patience: Micros, traffic: Iterable[Traffic], now: Micros) -> bool:
    """May a draining job be stopped? `patience`: how long it may take to stop, if the user has set that."""
    doors = list(traffic)
    if now >= drained_by(since, patience):
        return True
    return bool(doors) and all(job_id in door.let_go for door in doors)


def drained_by(since: Micros, patience: Micros) -> Micros:
    return since + min(DRAIN, patience)


def ready_by(probes: Iterable[ProbeSpec], running_at: Micros) -> Micros:
    """When a replica that gets no requests yet counts as late: after the time to load, and twice the time that its
    slowest probe needs."""
    longest = max((probe.ready_after * (probe.timeout + probe.interval) for probe in probes), default=0)
    return running_at + TO_LOAD + 2 * longest * SECOND
