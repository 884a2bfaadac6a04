"""The offers that plans show: where a job could be placed now, and what a fleet could buy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.offers import Availability, Offer
from chalicelib.domain.specs.fleets import FleetConfiguration, FleetSpec
from chalicelib.planning.kernel.plan import Note
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.colocation import beside, capable, first_of, is_cluster
from chalicelib.planning.matching.containers import refusal, without_job
from chalicelib.planning.matching.fitting import Misfit
from chalicelib.planning.matching.isolation import UNISOLATED, text_of, unisolated, without_docker
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.offer_book import OfferBook, slice_of
from chalicelib.planning.matching.pools import READY, blocks_for
from chalicelib.planning.matching.requirements import (
    JobRequirements,
    combined,
    fleet_purchase,
    fleet_query,
    merged_fleet,
    wanted_at_once,
)
from chalicelib.planning.placing.why_not import closed_to, nearest, no_offers, out_of_reach, relevant
from chalicelib.planning.volumes.mounts import named_volumes
from chalicelib.planning.volumes.sites import Volumes, sites


def plan_offers(
    requirements: JobRequirements,
    fleets: Sequence[FleetView],
    book: OfferBook,
    limit: int,
    *,
    whole: bool = False,
    dearest: bool = False,
    facts: Mapping[str, BackendFacts] | None = None,
) -> tuple[list[Offer], int, list[Note]]:
    """The offers for a job, in the order in which they would be tried; their number; and notes that say why a fleet
    offers nothing. All existing instances are there, as the share that the job needs, or `whole`; of what could be
    bought, the `limit` best, or some among which the `limit` dearest are. One of several nodes takes a whole machine of
    a cluster. With `facts`, a cluster buys only machines that can be beside its first one."""
    several = requirements.query.nodes > 1
    views = [view for view in fleets if not view.fleet.deleted and (not several or is_cluster(view.spec))]
    existing: list[Offer] = []
    queries: list[Query] = []
    notes: list[Note] = []
    for view in views:
        query = combined(requirements, view)
        if isinstance(query, Note):
            notes.append(query)
            continue
        found = _existing(requirements, query, view, whole, several)
        existing += found
        closed = closed_to(requirements, view, query)
        order = query
        if facts is not None and is_cluster(view.spec):
            order = beside(query, first_of(view.instances), capable(facts)) or query
        if closed is None:
            queries.append(order)
        if not found:
            notes += _no_offer_notes(requirements, query, order, view, closed, book)
    bought, total = book.match_any(queries, limit, dearest=dearest) if queries else ((), 0)
    return in_attempt_order(existing, bought), len(existing) + total, relevant(notes, requirements, views)


def in_attempt_order(existing: Iterable[Offer], bought: Iterable[Offer]) -> list[Offer]:
    """Sorted by attempt: free machines, then purchases, each with the cheapest first; then machines in use, and last
    the offers that can't be bought now."""
    existing = sorted(existing, key=lambda offer: offer.price)
    return sorted([*existing, *bought], key=_attempt_order)


def _attempt_order(offer: Offer) -> int:
    if offer.availability is Availability.busy:
        return 2
    return 0 if offer.availability is Availability.idle else 1 if offer.availability.usable else 3


def with_sites(requirements: JobRequirements, job_spec: JobSpec, volumes: Volumes) -> JobRequirements:
    """The requirements, limited to the sites of the job's volumes."""
    names = named_volumes(job_spec.volumes)
    return requirements.at(sites(names, volumes)) if names else requirements


def _existing(requirements: JobRequirements, query: Query, view: FleetView, whole: bool, alone: bool) -> list[Offer]:
    """The shares of the fleet's instances that fit, busy or not. `alone`: the job needs the whole machine."""
    found: list[Offer] = []
    for instance in view.instances:
        if instance.status not in READY or instance.unreachable or instance.health == "failure":
            continue
        if blocks := blocks_for(requirements, query, instance, view.fleet.name):
            needed = instance.total_blocks if alone else blocks
            state = Availability.idle if needed <= instance.free_blocks else Availability.busy
            shown = instance.total_blocks if whole else needed
            found.append(slice_of(instance.offer, shown, instance.total_blocks, state))
    return found


def _no_offer_notes(
    requirements: JobRequirements, query: Query, order: Query, view: FleetView, closed: Note | None, book: OfferBook
) -> list[Note]:
    """Why a fleet has no instance that fits, and can't buy one. `order`: the part of the `query` that it may buy."""
    if view.spec.configuration.nodes is None:
        existing = [i for i in view.instances if i.status in READY and not i.unreachable]
        ill = next(
            (i for i in existing if i.health == "failure" and blocks_for(requirements, query, i, view.fleet.name)), None
        )
        if ill is not None:
            text = f"has {ill.name}, which would fit but isn't healthy: {ill.health_message}"
            return [Note(f"fleet `{view.fleet.name}`", text, "fix it, and it takes jobs again by itself")]
        return [nearest(requirements, query, view, [i for i in existing if i.health != "failure"])]
    if closed:
        return [closed]
    if book.match(order, 1)[1]:
        return []
    sold = order != query and book.match(query, 1)[1]
    return [out_of_reach(view) if sold else no_offers(f"fleet `{view.fleet.name}`", query, book)]


def only_plain(
    requirements: JobRequirements, fleets: Sequence[FleetView], book: OfferBook
) -> tuple[str, Misfit] | None:
    """The instance that could take the job except for the isolation of plain processes there, and the misfit; None if
    an instance can take it anyway, or none can, or a market may have a machine, which it says only when it is asked."""
    if not (requirements.isolated or requirements.barred) or not any(
        without_docker(one) for view in fleets for one in view.instances
    ):
        return None
    if plan_offers(requirements, fleets, book, 1)[1] or any(
        _sold_on_request(requirements, view, book) for view in fleets
    ):
        return None
    anywhere = requirements._replace(isolated=False, barred=None)
    for view in fleets:
        query = combined(anywhere, view)
        name = view.fleet.name
        found = [] if isinstance(query, Note) else [i for i in view.instances if blocks_for(anywhere, query, i, name)]
        if found:
            shared = requirements.isolated and unisolated(found[0])
            return found[0].name, UNISOLATED if shared else requirements.barred or UNISOLATED
    return None


def _sold_on_request(requirements: JobRequirements, view: FleetView, book: OfferBook) -> bool:
    query = combined(requirements, view)
    if not isinstance(query, Query) or query.nodes > 1 or not book.live_for(query):
        return False
    return closed_to(requirements, view, query) is None


def separation(fleets: Iterable[FleetView], job_spec: JobSpec) -> list[str]:
    """A remark for each fleet with machines without containers: how jobs are isolated there, and the job's user."""
    lines = []
    own = "each as a user of its own"
    if job_spec.user is not None and job_spec.user_permitted:
        own = f"this one as the user {text_of(job_spec.user)} of its host"
    for view in fleets:
        plain = {instance.isolation == "user" for instance in view.instances if without_docker(instance)}
        how = "without isolation" if False in plain else own
        if plain:
            lines.append(f"Fleet {view.fleet.name} runs jobs as plain processes, {how}.")
    return lines


def shown_query(config: FleetConfiguration) -> Query:
    """What a fleet's plan shows: what it buys at once, or else what it would buy for jobs."""
    return fleet_purchase(config) if wanted_at_once(config) else fleet_query(config)


def unready(spec: FleetSpec, book: OfferBook, facts: Mapping[str, BackendFacts]) -> Iterator[str]:
    """Why a fleet that buys machines before any job needs them gets none from those of its backends that have nothing
    but containers for it."""
    config = merged_fleet(spec)
    query = fleet_query(config)
    if not wanted_at_once(config):
        return
    for name, known in sorted(facts.items()):
        if not known.containers or (query.backends is not None and name not in query.backends):
            continue
        here = query._replace(backends=frozenset({name}))
        contained = book.match(here, 0)[1] and not book.match(without_job(here), 0)[1]
        if contained or not known.machines:
            why = refusal(without_job(here).container).text
            hint = "With `nodes: 0..` the fleet gets one for each job"
            yield f"{name} has nothing but containers here, and none is kept ready: {why}. {hint}."


def fleet_offers(spec: FleetSpec, book: OfferBook, limit: int) -> tuple[list[Offer], int]:
    """What a fleet could buy, and how many offers there are in all."""
    config = merged_fleet(spec)
    if config.nodes is None:
        return [], 0
    query = shown_query(config)
    machines = book.machines(query, limit)
    whole = [offer.with_(total_blocks=total, blocks=total) if total > 1 else offer for offer, _, total in machines]
    return whole, book.match(query, 0)[1]
