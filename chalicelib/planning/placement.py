"""Where a job could go, and what to say when it can't.

`Floor` is the project's machines as a queue pass sees them: it hands out blocks and nodes and never hands one out
twice. Within a pass places only get scarcer, so a candidate that is full for some wants stays full for them and is
dropped; a thousand equal jobs cost little more than one. The order of choice: a free place that is ready, cheapest
first; a free place on a machine that is already on its way; a new machine, cheapest first, in a fleet with room for
one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job
from chalicelib.domain.offers import Availability, Offer
from chalicelib.domain.ranges import Range
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.resources import CPUSpec
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.planning.combine import NOT_NAMED, Wants, combined, fleet_query, merged_fleet, wants_of
from chalicelib.planning.fitting import Misfit, blocks_needed, misfits
from chalicelib.planning.offers import OfferBook, Query, slice_of
from chalicelib.planning.plan import Note
from chalicelib.planning.snapshots import FleetView

MOST_TRIED = 25  # offers tried for one submission before it counts as out of capacity

_READY = (InstanceStatus.idle, InstanceStatus.busy)
_COMING = (InstanceStatus.pending, InstanceStatus.provisioning)


@dataclass(frozen=True)
class Spot:
    """A place on an existing instance: these blocks of it, as this offer."""

    instance: Instance
    blocks: tuple[int, ...]
    offer: Offer


@dataclass(frozen=True)
class Buy:
    """A new instance of this fleet: the whole machine's offer, and how many of its blocks the job takes."""

    view: FleetView
    offer: Offer  # the machine's
    blocks: int
    total: int

    @property
    def price(self) -> float:
        return self.offer.price * self.blocks / self.total


@dataclass(frozen=True)
class Waits:
    """It fits something that isn't free now."""

    fleet: str
    text: str


@dataclass(frozen=True)
class Hopeless:
    """Nothing here can ever take it: one note a candidate."""

    notes: tuple[Note, ...]


Verdict = Spot | Buy | Waits | Hopeless


@dataclass
class _Option:
    """A fleet that these wants may go to."""

    view: FleetView
    query: Query
    waits: str = ""  # why a machine that would fit can't take it now
    notes: list[Note] = field(default_factory=list)


@dataclass
class _Asked:
    """Wants, worked out against every fleet once a pass. `ready` and `coming` shrink as places go."""

    options: list[_Option]
    refusals: list[Note]
    ready: deque[tuple[Instance, int]]  # instance and blocks needed, cheapest first
    coming: deque[tuple[Instance, int]]


class Floor:
    def __init__(self, fleets: Sequence[FleetView], book: OfferBook, facts: Mapping[str, BackendFacts]) -> None:
        self.views = [view for view in fleets if not view.fleet.deleted]
        self.book, self.facts = book, facts
        self.instances = {i.id: i for view in self.views for i in view.instances}
        self.fleets: dict[str, Fleet] = {view.fleet.id: view.fleet for view in self.views}
        self._count = {view.fleet.id: len(view.instances) for view in self.views}
        self._free = {i.id: _free_blocks(i) for i in self.instances.values()}
        self._asked: dict[Wants, _Asked] = {}

    # --- what happened -----------------------------------------------------------------------------------------------

    def took(self, instance: Instance, blocks: Iterable[int]) -> None:
        """These blocks are a job's now."""
        taken = set(blocks)
        self.instances[instance.id] = instance
        self._free[instance.id] = [block for block in self._free[instance.id] if block not in taken]

    def bought(self, fleet: Fleet, instance: Instance) -> None:
        """This instance is on its way; jobs with equal wants may share what is left of it."""
        self.fleets[fleet.id] = fleet
        self._count[fleet.id] += 1
        self.instances[instance.id] = instance
        self._free[instance.id] = _free_blocks(instance)
        if self._free[instance.id]:
            for asked in self._asked.values():
                option = next((o for o in asked.options if o.view.fleet.id == fleet.id), None)
                if option and (blocks := _fit(option.query, instance)):
                    asked.coming.append((instance, blocks))

    # --- the question ------------------------------------------------------------------------------------------------

    def find(self, wants: Wants, job: Job) -> Verdict:
        asked = self._asked.get(wants)
        if asked is None:
            asked = self._asked[wants] = self._ask(wants)
        tried = {attempt.offer_key for attempt in job.attempts}
        spot = self._take(asked.ready, ()) or self._take(asked.coming, tried)
        if spot:
            return spot
        buy, notes = self._buy(wants, asked, job)
        if buy:
            return buy
        waiting = next((option for option in asked.options if option.waits), None)
        if waiting:
            return Waits(waiting.view.fleet.name, waiting.waits)
        return Hopeless(tuple(self.telling([*asked.refusals, *notes], wants)))

    def telling(self, notes: Sequence[Note], wants: Wants) -> list[Note]:
        """Without the fleets that the run itself left out; where it names none that exist, that alone."""
        if not self.views:
            return [_no_fleets()]
        told = [note for note in notes if note.text != NOT_NAMED]
        if told or not notes:
            return told
        there = ", ".join(f"`{view.fleet.name}`" for view in self.views[:5])
        names = ", ".join(f"`{name}`" for name in wants.fleets or ())
        return [Note("project", f"has no fleet named {names}", f"set `fleets` to one of {there}")]

    def _take(self, candidates: deque[tuple[Instance, int]], tried: Iterable[str]) -> Spot | None:
        while candidates:
            instance, needed = candidates[0]
            free = self._free[instance.id]
            if len(free) >= needed:
                current = self.instances[instance.id]
                if current.offer.key in tried:  # this very offer failed for the job; another job may still take it
                    return None
                return Spot(current, tuple(free[:needed]), slice_of(current.offer, needed, current.total_blocks))
            candidates.popleft()
        return None

    def _buy(self, wants: Wants, asked: _Asked, job: Job) -> tuple[Buy | None, list[Note]]:
        best: Buy | None = None
        notes: list[Note] = []
        for option in asked.options:
            note, found = self._best_offer(wants, option, job)
            if found and (best is None or found.price < best.price):
                best = found
            if note:
                notes.append(note)
        return best, notes

    def _best_offer(self, wants: Wants, option: _Option, job: Job) -> tuple[Note | None, Buy | None]:
        view, subject = option.view, f"fleet `{option.view.fleet.name}`"
        tried = {attempt.offer_key for attempt in job.attempts}
        nodes = view.spec.configuration.nodes
        if nodes is None:
            return (None if option.waits or not option.notes else option.notes[0]), None
        if (closed := _closed(wants, view)) and (wants.reuse_only or nodes.max == 0 or self._never_less(view)):
            return closed, None
        machines = self.book.machines(option.query, 2 * MOST_TRIED)
        usable = [machine for machine in machines if machine[0].availability.usable]
        if not usable:
            taken = Note(subject, "finds every offer that fits unavailable")
            return taken if machines else _no_offers(subject, option.query, self.book), None
        fresh = next((machine for machine in usable if machine[0].key not in tried), None)
        if fresh is None or len(tried) >= MOST_TRIED:
            return Note(subject, f"has no offer left that wasn't tried ({_failures(job)})"), None
        if nodes.max is not None and self._count[view.fleet.id] >= nodes.max:
            option.waits = (
                option.waits or f"for room in fleet `{view.fleet.name}` ({nodes.max} of {nodes.max} nodes exist)"
            )
            return None, None
        offer, blocks, cut = fresh
        return None, Buy(view, _within(offer, option.query), blocks, cut)

    def _never_less(self, view: FleetView) -> bool:
        """Will the fleet keep all the instances that it has, so that there is never room for another?"""
        nodes = view.spec.configuration.nodes
        staying = [one for one in view.instances if one.status in (*_READY, *_COMING)]
        return nodes is not None and len(staying) == self._count[view.fleet.id] <= nodes.min

    def _ask(self, wants: Wants) -> _Asked:
        asked = _Asked([], [], deque(), deque())
        ready: list[tuple[float, int, Instance, int]] = []
        coming: list[tuple[float, int, Instance, int]] = []
        for view in self.views:
            query = combined(wants, view)
            if isinstance(query, Note):
                asked.refusals.append(query)
                continue
            option = _Option(view, query)
            asked.options.append(option)
            nearest: list[Misfit] | None = None
            for known in view.instances:
                instance = self.instances[known.id]
                if instance.status not in (*_READY, *_COMING):
                    continue
                if _unheard(instance):
                    option.waits = (
                        option.waits or f"for {instance.name} in fleet `{view.fleet.name}` to say what it has"
                    )
                    continue
                blocks, wrong = _judge(wants, query, instance)
                if not blocks:
                    nearest = wrong if nearest is None or len(wrong) < len(nearest) else nearest
                    continue
                option.waits = option.waits or _why_wait(view, instance)
                if instance.unreachable or instance.health == "failure":
                    continue
                ranked = (
                    instance.offer.price * blocks / instance.total_blocks,
                    len(self._free[instance.id]),
                    instance,
                    blocks,
                )
                (ready if instance.status in _READY else coming).append(ranked)
            option.notes = [_nearest_note(view, nearest)]
        asked.ready = deque((instance, blocks) for *_, instance, blocks in sorted(ready, key=lambda r: r[:2]))
        asked.coming = deque((instance, blocks) for *_, instance, blocks in sorted(coming, key=lambda r: r[:2]))
        return asked


def _within(offer: Offer, query: Query) -> Offer:
    """The offer in the zones that are asked for only."""
    if query.zones is None or offer.availability_zones is None:
        return offer
    return offer.with_(availability_zones=tuple(z for z in offer.availability_zones if z.lower() in query.zones))


def _unheard(instance: Instance) -> bool:
    """A host of somebody's own that hasn't reported yet: nobody knows what it has."""
    return not instance.bought and instance.status in _COMING and instance.started_at is None


def _free_blocks(instance: Instance) -> list[int]:
    busy = {block for claim in instance.claims for block in claim.blocks}
    return [block for block in range(instance.total_blocks) if block not in busy]


def _judge(wants: Wants, query: Query, instance: Instance) -> tuple[int, list[Misfit]]:
    """How many blocks of the instance the query needs (0: it doesn't fit), and what is wrong with the whole of it."""
    offer = instance.offer
    wrong: list[Misfit] = []
    if wants.container and instance.runtimes and "docker" not in instance.runtimes:
        fields = " and ".join(f"`{name}`" for name in wants.container)
        hint = f"remove {fields}, or install Docker there"
        wrong.append(Misfit("runs plain processes, no containers", hint))
    if not query.takes_place(offer.backend, offer.region, offer.availability_zones):
        wrong.append(Misfit(f"is {offer.backend} in {offer.region or 'no region'}", "widen `backends` or `regions`"))
    if not query.takes_kind(offer.instance.name, offer.instance.resources):
        market = "spot" if offer.instance.resources.spot else "on-demand"
        wrong.append(Misfit(f"is {market} {offer.instance.name}", "widen `spot_policy` or `instance_types`"))
    blocks = 0 if wrong else _fit(query, instance)
    if blocks and query.max_price is not None and offer.price * blocks / instance.total_blocks > query.max_price:
        return 0, [Misfit(f"costs {offer.price:g} an hour, more than {query.max_price:g}", "raise `max_price`")]
    if not blocks:
        wrong += misfits(query.resources, offer.instance.resources, provisioned=instance.bought)
        wrong = wrong or [Misfit(f"no share of its {instance.total_blocks} blocks fits exactly", "ask for ranges")]
    return blocks, wrong


def _fit(query: Query, instance: Instance) -> int:
    has = instance.offer.instance.resources
    return blocks_needed(query.resources, has, instance.total_blocks, provisioned=instance.bought)


def _why_wait(view: FleetView, instance: Instance) -> str:
    if instance.unreachable:
        return f"for {instance.name} in fleet `{view.fleet.name}` to be heard of again"
    if instance.health == "failure":
        return f"for {instance.name} in fleet `{view.fleet.name}` to be healthy again"
    return f"for a free place in fleet `{view.fleet.name}`"


def _nearest_note(view: FleetView, wrong: list[Misfit] | None) -> Note:
    subject = f"fleet `{view.fleet.name}`"
    if wrong is None:
        return Note(subject, "has no instance", "add a host to it, or create a fleet with a backend")
    hints = " and ".join(dict.fromkeys(misfit.hint for misfit in wrong))
    return Note(subject, "; ".join(misfit.text for misfit in wrong), f"{hints}, or create a fleet that has it")


def _no_offers(subject: str, query: Query, book: OfferBook) -> Note:
    """Why a fleet that may grow finds nothing to buy, and the one change that would let it."""
    if not len(book):
        return Note(subject, "may grow, but no backend has any offer", "configure a backend")
    if query.max_price is not None and (dear := book.match(replace(query, max_price=None), 1)[0]):
        text = f"may grow, but every offer that fits costs more than `max_price`, {query.max_price:g}"
        return Note(subject, text, f"raise `max_price` to {dear[0].price:g}")
    text = f"may grow, but none of the {len(book)} offers fits the run and the fleet"
    cpu = query.resources.cpu
    if cpu.arch is None:
        arm = query.resources.with_(cpu=cpu.with_(arch="arm"))
        if found := book.match(replace(query, resources=arm), 1)[1]:
            return Note(subject, text, f"set `cpu: arm:{cpu.count}` with a fitting image: {found} would fit")
    for what, relaxed in _relaxed(query):
        if found := book.match(relaxed, 1)[1]:
            return Note(subject, text, f"change `{what}`: without it {found} would fit")
    return Note(subject, text, "ask for less: no single change is enough")


def _relaxed(query: Query) -> Iterator[tuple[str, Query]]:
    """The query with one of its conditions left out, each in turn."""
    anything = {"cpu": CPUSpec(count=Range[int](min=1)), "memory": Range[float](min=0.0), "gpu": None, "disk": None}
    for name, value in anything.items():
        yield name, replace(query, resources=query.resources.model_copy(update={name: value}))
    yield "instance_types", replace(query, instance_types=None)
    yield "regions", replace(query, regions=None)
    yield "availability_zones", replace(query, zones=None)
    yield "backends", replace(query, backends=None)
    yield "spot_policy", replace(query, spot=None)


def _no_fleets() -> Note:
    return Note("project", "has no fleet", "create one: `dstack apply` a configuration with `type: fleet`")


def say(notes: Sequence[Note]) -> str:
    """Notes as one message a person reads: the first three, with the change that would help."""
    parts = [f"{note.subject} {note.text}" + (f" ({note.hint})" if note.hint else "") for note in notes[:3]]
    if len(notes) > 3:
        parts.append(f"and {len(notes) - 3} more")
    return "; ".join(parts)


def _failures(job: Job) -> str:
    """Up to three different errors of the offers that were tried."""
    errors = list(dict.fromkeys(attempt.error[:200] for attempt in job.attempts))
    return "; ".join(errors[:3]) + ("; …" if len(errors) > 3 else "")


# --- what plans show -------------------------------------------------------------------------------------------------


def plan_offers(
    run_spec: RunSpec,
    job_spec: JobSpec,
    fleets: Sequence[FleetView],
    book: OfferBook,
    facts: Mapping[str, BackendFacts],
    limit: int = 10_000,
) -> tuple[list[Offer], int, list[Note]]:
    """Where a job could go: instances that are there (free ones first), then what fleets could buy. The notes say of
    each fleet that offers nothing why."""
    floor = Floor(fleets, book, facts)
    wants = wants_of(run_spec, job_spec)
    there: list[Offer] = []
    queries: list[Query] = []
    notes: list[Note] = []
    for view in floor.views:
        query = combined(wants, view)
        if isinstance(query, Note):
            notes.append(query)
            continue
        found, nearest = _existing(wants, query, view)
        there += found
        closed = _closed(wants, view)
        if closed is None:
            queries.append(query)
        if not found and (closed or not book.match(query, 1)[1]):
            hosts = view.spec.configuration.nodes is None
            notes.append(nearest if hosts else closed or _no_offers(nearest.subject, query, book))
    there.sort(key=lambda offer: (offer.availability is not Availability.idle, offer.price))
    bought, total = book.match_any(queries, limit) if queries else ((), 0)
    return [*there, *bought][:limit], len(there) + total, floor.telling(notes, wants)


def _closed(wants: Wants, view: FleetView) -> Note | None:
    """Why the fleet gets no new instance for this run as things are; None if it may."""
    subject, nodes = f"fleet `{view.fleet.name}`", view.spec.configuration.nodes
    if nodes is None:
        return Note(subject, "has the hosts that it has", "add one")
    if wants.reuse_only:
        text = "has no instance that fits, and `creation_policy: reuse` forbids a new one"
        return Note(subject, text, "set `creation_policy: reuse-or-create`")
    if nodes.max == 0:
        return Note(subject, "has `nodes: 0`, so it never has an instance", "raise `nodes`")
    if nodes.max is not None and len(view.instances) >= nodes.max:
        return Note(subject, f"is full: {nodes.max} of {nodes.max} nodes exist, none that fits", "raise `nodes`")
    return None


def _existing(wants: Wants, query: Query, view: FleetView) -> tuple[list[Offer], Note]:
    found: list[Offer] = []
    nearest: list[Misfit] | None = None
    for instance in view.instances:
        if instance.status not in _READY or instance.unreachable or instance.health == "failure":
            continue
        blocks, wrong = _judge(wants, query, instance)
        if blocks:
            state = Availability.idle if blocks <= instance.free_blocks else Availability.busy
            found.append(slice_of(instance.offer, blocks, instance.total_blocks, state))
        else:
            nearest = wrong if nearest is None or len(wrong) < len(nearest) else nearest
    return found, _nearest_note(view, nearest)


def fleet_offers(
    spec: FleetSpec, book: OfferBook, facts: Mapping[str, BackendFacts], limit: int = 10_000
) -> tuple[list[Offer], int]:
    """What a fleet could be made of."""
    config = merged_fleet(spec)
    if config.nodes is None:
        return [], 0
    query = fleet_query(config)
    machines = book.machines(query, limit)
    return [offer.with_(total_blocks=total, blocks=total) if total > 1 else offer for offer, _, total in machines], (
        book.match(query, 0)[1]
    )
