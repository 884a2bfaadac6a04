"""What to create and what to stop so that a group of a service has as many replicas as it should, of the version that
it should have.

`scaling` says how many; here each pass goes one step towards that, from what there is, so that a pass may be repeated
or lost. A new version comes one replica at a time:

1. One replica more than asked is created (the surge), and nothing else until nobody of the group is leaving any more.
2. Once it gets requests, one of the old version goes. So never do fewer get requests than asked.
3. A replica that gets requests is drained first: no new ones go to it, and it is stopped when each door has let it go,
   or when its time is up. One that gets none is stopped at once.
4. If a replica of the new version fails for good while old ones serve, nothing more is changed: they go on, and the run
   says why. Applying again makes another version, and the rollout goes on.
5. A group that is no longer there only shrinks. While it stands in for others, their failures are those of a new
   version.

Who goes first: the old version before the new, those that matter least before those that get requests, high numbers
before low. Who comes: the numbers of replicas that have ended, then numbers that nobody had.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.job_specs import ProbeSpec
from chalicelib.domain.services import BUCKET, Traffic

DRAIN: Micros = MINUTE  # the longest that a replica is waited for which should go …
UNKNOWN: Micros = 2 * BUCKET  # … and where no door has reported the service: one with a request does within a bucket
TO_LOAD: Micros = 20 * MINUTE  # how long an application may load before it is said to be late


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
        """Whoever comes first goes first."""
        return (self.current, int(self.standing), -self.num)


@dataclass(frozen=True)
class LiveGroup:
    desired: int
    members: Sequence[LiveReplica]
    leaving: int = 0  # replicas that are stopping
    failed: bool = False  # a replica of the new version has failed and isn't retried
    free: Sequence[int] = ()  # numbers of replicas that have ended
    stood_in: bool = False  # replicas of a group that is no longer there get its requests
    former: bool = False  # it is no longer there itself: it only shrinks


@dataclass(frozen=True)
class RolloutSteps:
    create: int = 0  # how many
    revive: tuple[int, ...] = ()  # numbers that are used again; these count among the created
    drain: tuple[int, ...] = ()
    stop: tuple[int, ...] = ()
    held: bool = False  # the new version doesn't work, so the old one stays


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
    """Who is too many. Of those that get requests, as many stay as are asked for, whatever their version."""
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
    """May a draining job be stopped? `patience`: how long it may take to stop, if the user said so."""
    doors = list(traffic)
    if now >= drained_by(since, patience):
        return True
    return bool(doors) and all(job_id in door.let_go for door in doors)


def drained_by(since: Micros, patience: Micros) -> Micros:
    return since + min(DRAIN, patience)


def ready_by(probes: Iterable[ProbeSpec], running_at: Micros) -> Micros:
    """When a replica that still gets no requests is late: its application has loaded, and each probe has had twice the
    time that it needs."""
    longest = max((probe.ready_after * (probe.timeout + probe.interval) for probe in probes), default=0)
    return running_at + TO_LOAD + 2 * longest * SECOND
