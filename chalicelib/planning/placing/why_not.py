"""Why a job can't be placed, candidate by candidate, and the smallest change that would help.

Computed only if it is shown: for plans, and for a job that can never be placed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from chalicelib.domain.instances import Instance
from chalicelib.domain.jobs import Job
from chalicelib.domain.offers import Offer
from chalicelib.domain.ranges import Range
from chalicelib.domain.specs.resources import CPUSpec
from chalicelib.planning.kernel.plan import Note
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.colocation import first_of, is_cluster, place_of
from chalicelib.planning.matching.containers import refusal
from chalicelib.planning.matching.fitting import Misfit, blocks_needed, misfits, total_blocks
from chalicelib.planning.matching.instance_selectors import selects
from chalicelib.planning.matching.isolation import UNISOLATED, unisolated, without_docker
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.pools import Pool, at_sites
from chalicelib.planning.matching.requirements import NOT_NAMED, JobRequirements, within
from chalicelib.planning.placing.buying import may_grow
from chalicelib.planning.placing.capacity import Capacity
from chalicelib.planning.volumes.mounts import has_folders

NO_FOLDERS = "has no folders of its own that a job could mount"
OTHER_TYPES = "use other instance types"
OTHER_FOLDERS = "mark the host's folder in `volumes` as `optional: true`, or mount a volume instead"


def refusals(
    capacity: Capacity, requirements: JobRequirements, job: Job, *, together: bool = False
) -> tuple[Note, ...]:
    """One note per fleet, first those that don't accept the run at all. `together`: the run has several nodes, which
    only a cluster takes."""
    closed: list[Note] = []
    notes: list[Note] = []
    loose: list[Note] = []
    for at, pool in enumerate(capacity.pools):
        query = within(pool.conditions, requirements)
        if isinstance(query, Note):
            closed.append(query)
        elif together and not is_cluster(pool.view.spec):
            hint = "set `placement: cluster` on it, if its machines share a network"
            loose.append(
                Note(f"fleet `{pool.view.fleet.name}`", "isn't a cluster, and the run has several nodes", hint)
            )
        else:
            notes.append(_elsewhere(capacity, at, requirements) or _of_fleet(capacity, pool, requirements, query, job))
    return tuple(relevant([*closed, *notes, *loose], requirements, [pool.view for pool in capacity.pools]))


def _elsewhere(capacity: Capacity, at: int, requirements: JobRequirements) -> Note | None:
    """A note if a cluster may grow, but nothing that fits is sold at its place."""
    view, candidates = capacity.pools[at].view, capacity.candidates(requirements)
    query, order = candidates.query(at), candidates.order(at)
    if not is_cluster(view.spec) or order is None or capacity.book.best(order, ()) or closed_to(requirements, view):
        return None
    sold = isinstance(query, Query) and capacity.book.match(query, 0)[1]
    return out_of_reach(view) if sold or first_of(view.instances) else None


def out_of_reach(view: FleetView) -> Note:
    """The note that fitting machines are sold, but not where they could join this cluster."""
    first, subject = first_of(view.instances), f"cluster `{view.fleet.name}`"
    if first is None:
        text = "can buy only machines that don't reach each other: no backend here that sells what fits has clusters"
        return Note(subject, text, "set `placement: any` for tasks on one node, or add hosts that share a network")
    text = f"has its first machine in {place_of(first)}, and nothing that fits can be bought there"
    return Note(subject, text, "delete its instances to let it move, or use another fleet")


def _of_fleet(capacity: Capacity, pool: Pool, requirements: JobRequirements, query: Query, job: Job) -> Note:
    view, subject = pool.view, f"fleet `{pool.view.fleet.name}`"
    if view.spec.configuration.nodes is None:
        return nearest(requirements, query, view, pool.machines if requirements.instances else pool.different)
    if not may_grow(pool, capacity.count[view.fleet.id], requirements) and (
        closed := closed_to(requirements, view, query)
    ):
        return closed
    if capacity.book.best(query, ()):
        return Note(subject, f"has tried every matching offer ({_failures(job)})")
    if capacity.book.match(query, 0)[1]:
        return Note(subject, "has only unavailable offers that match")
    return no_offers(subject, query, capacity.book)


def relevant(notes: Sequence[Note], requirements: JobRequirements, views: Sequence[FleetView]) -> list[Note]:
    """The notes, without fleets that the run excludes; if it names only fleets that don't exist, a note saying so."""
    if not views:
        return [Note("the project", "has no fleet", "apply a configuration with `type: fleet`")]
    relevant_notes = [note for note in notes if note.text != NOT_NAMED]
    if relevant_notes or not notes:
        return relevant_notes
    known = ", ".join(f"`{view.fleet.name}`" for view in views[:5])
    names = ", ".join(f"`{name}`" for name in requirements.fleets or ())
    return [Note("the project", f"has no fleet named {names}", f"set `fleets` to one of {known}")]


def as_text(notes: Sequence[Note]) -> str:
    """Notes as one message: the first three, each with the change that would help."""
    parts = [f"{note.subject} {note.text}" + (f" ({note.hint})" if note.hint else "") for note in notes[:3]]
    if len(notes) > 3:
        parts.append(f"and {len(notes) - 3} more")
    return "; ".join(parts)


def _failures(job: Job) -> str:
    """Up to three different errors of the tried offers."""
    errors = list(dict.fromkeys(attempt.error[:200] for attempt in job.attempts))
    return "; ".join(errors[:3]) + ("; …" if len(errors) > 3 else "")


# --- existing machines -----------------------------------------------------------------------------------------------


def nearest(requirements: JobRequirements, query: Query, view: FleetView, instances: Iterable[Instance]) -> Note:
    """The note on the instance that comes closest."""
    subject = f"fleet `{view.fleet.name}`"
    instances = list(instances)
    named = [instance for instance in instances if selects(requirements.instances, instance, view.fleet.name)]
    if instances and not named:
        return _not_named(subject, requirements)
    wrong = min((misfits_of(requirements, query, instance) for instance in named), key=len, default=None)
    if wrong is None:
        return Note(subject, "has no instance", "add a host to it, or create a fleet with a backend")
    hints = " and ".join(dict.fromkeys(misfit.hint for misfit in wrong))
    return Note(subject, "; ".join(misfit.text for misfit in wrong), f"{hints}, or create another fleet")


def _not_named(subject: str, requirements: JobRequirements) -> Note:
    named = ", ".join(map(str, requirements.instances[:5]))
    return Note(subject, f"has no usable instance that the run names in `instances` ({named})", "see `dstack fleet -v`")


def misfits_of(requirements: JobRequirements, query: Query, instance: Instance) -> list[Misfit]:
    """Everything wrong with an instance that doesn't fit."""
    offer = instance.offer
    if offer.is_container:
        return [Misfit("is a container, which ends with the job that it was created for", "name other `instances`")]
    wrong: list[Misfit] = []
    if requirements.container and without_docker(instance):
        fields = " and ".join(f"`{name}`" for name in requirements.container)
        wrong.append(Misfit("runs plain processes, not containers", f"remove {fields}, or install Docker there"))
    elif requirements.barred and without_docker(instance):
        wrong.append(requirements.barred)
    if requirements.isolated and unisolated(instance):
        wrong.append(UNISOLATED)
    if not query.takes_place(offer.backend, offer.region, offer.availability_zones):
        wrong.append(Misfit(f"is {offer.backend} in {offer.region or 'no region'}", "widen `backends` or `regions`"))
    if query.sites is not None and (why := _no_volumes(query, [offer])):
        wrong.append(Misfit(f"can't have volumes: {why}", OTHER_TYPES))
    elif not at_sites(query, instance):
        wrong.append(Misfit(f"isn't where the run's volumes are: {_volume_sites(query)}", "use volumes in its place"))
    if query.host and not has_folders(offer):
        wrong.append(Misfit(NO_FOLDERS, OTHER_FOLDERS))
    elif query.reservation and offer.reservation != query.reservation:
        wrong.append(Misfit(f"isn't in the reservation {query.reservation}", "remove `reservation`"))
    elif not query.takes_kind(offer):
        market = "spot" if offer.instance.resources.spot else "on-demand"
        wrong.append(Misfit(f"is {market} {offer.instance.name}", "widen `spot_policy` or `instance_types`"))
    has = offer.instance.resources
    if not wrong and blocks_needed(query.resources, has, instance.total_blocks, provisioned=instance.bought):
        return [Misfit(f"costs {offer.price:g} an hour, more than {query.max_price:g}", "raise `max_price`")]
    wrong += misfits(query.resources, has, provisioned=instance.bought)
    return wrong or [Misfit(f"has no share of its {instance.total_blocks} blocks that fits exactly", "ask for ranges")]


def _no_volumes(query: Query, offers: Iterable[Offer]) -> str:
    """Why none of them can have the query's volumes; empty if one can, or if there is none."""
    clustered = query.nodes and all(site.zone for site in query.sites or ())
    whys = [offer.terms.no_volumes or (offer.terms.no_volumes_in_clusters if clustered else "") for offer in offers]
    return whys[0] if whys and all(whys) else ""


def _in_region(query: Query, offer: Offer) -> bool:
    where = offer.backend.lower(), offer.region.lower()
    return any(site[:2] in (where, (where[0], "")) for site in query.sites or ())


def _volume_sites(query: Query) -> str:
    """The sites of the run's volumes, as text."""
    return " or ".join(map(str, (query.sites or ())[:3])) or "in different places"


# --- machines that could be bought -----------------------------------------------------------------------------------


def closed_to(requirements: JobRequirements, view: FleetView, query: Query | None = None) -> Note | None:
    """Why the fleet can't get a new instance for this run now; None if it can. `query`: what would fit."""
    subject, nodes = f"fleet `{view.fleet.name}`", view.spec.configuration.nodes
    if nodes is None:
        return Note(subject, "consists of fixed hosts", "add a host")
    if requirements.instances:
        return _not_named(subject, requirements)
    if requirements.reuse_only:
        text = "has no instance that fits, and `creation_policy: reuse` forbids a new one"
        return Note(subject, text, "set `creation_policy: reuse-or-create`")
    if nodes.max == 0:
        return Note(subject, "has `nodes: 0`, so it never has an instance", "raise `nodes`")
    if nodes.max is not None and len(view.instances) >= nodes.max:
        wrong = Misfit("nothing in it fits", "raise `nodes`") if query is None else _none_fits(query, view.instances)
        return Note(subject, f"is full ({nodes.max} of {nodes.max} nodes), and {wrong.text}", wrong.hint)
    return None


def _none_fits(query: Query, instances: Sequence[Instance]) -> Misfit:
    """Why none of a full fleet's machines does."""
    if query.sites and (why := _no_volumes(query, (each.offer for each in instances))):
        return Misfit(f"its machines can't have volumes: {why}", OTHER_TYPES)
    sizes = [each.offer.bundle for each in instances]
    if sizes and not any(map(query.takes_bundle, sizes)):
        return Misfit(f"its machines are used {sizes[0]} at a time", f"set `nodes: {sizes[0]}` in the run")
    if not any(at_sites(query, instance) for instance in instances):
        text = f"none of its machines is where the run's volumes are: {_volume_sites(query)}"
        return Misfit(text, "raise `nodes`, or use volumes in its place")
    return Misfit("nothing in it fits", "raise `nodes`")


def no_offers(subject: str, query: Query, book: OfferBook) -> Note:
    """Why a fleet that may grow has nothing to buy, and a change that would help."""
    if wrong := _unsold(query, book):
        return Note(subject, f"can grow, but {wrong.text}", wrong.hint, waits=bool(book.awaited_by(query)))
    if query.max_price is not None and (dear := book.match(query._replace(max_price=None), 1)[0]):
        text = f"can grow, but every matching offer costs more than `max_price`, {query.max_price:g}"
        return Note(subject, text, f"raise `max_price` to {dear[0].price:g}")
    text = f"can grow, but none of the {len(book)} offers matches the run and the fleet"
    cpu = query.resources.cpu
    if cpu.arch is None:
        arm = query.resources.with_(cpu=cpu.with_(arch="arm"))
        if found := book.match(query._replace(resources=arm), 1)[1]:
            return Note(subject, text, f"set `cpu: arm:{cpu.count}` and use an ARM image: {found} would match")
    if query.host and (found := book.match(query._replace(host=False), 1)[1]):
        text = f"can grow, but only with machines that have no folders of their own to mount ({found} would match)"
        return Note(subject, text, OTHER_FOLDERS)
    if query.sites is not None and (found := book.match(query._replace(sites=None), 1)[1]):
        near = [offer for offer in book.match(query._replace(sites=None), found)[0] if _in_region(query, offer)]
        if why := _no_volumes(query, near):
            text = f"can grow, but what fits where the volumes are can't have any ({near[0].instance.name}: {why})"
            return Note(subject, text, OTHER_TYPES)
        where = " or ".join(map(str, query.sites[:3])) or "any one place"
        text = f"can grow, but nothing that fits is sold where the volumes are, {where} (elsewhere {found} would match)"
        return Note(subject, text, "use volumes in another place")
    for what, relaxed in _relaxed(query):
        if found := book.match(relaxed, 1)[1]:
            return Note(subject, text, f"change `{what}`: without it {found} would match")
    return Note(subject, text, "reduce several requirements: no single change is enough")


def _unsold(query: Query, book: OfferBook) -> Misfit | None:
    """Why nothing can be bought, whatever the sizes; None: the sizes decide."""
    if awaited := book.awaited_by(query):
        text = f"nothing that fits is known to be sold, and the first offers of {awaited} are awaited"
        return Misfit(text, "see `dstack backend list`")
    if not len(book):
        return unlisted(query, book) or Misfit("no backend has any offers", "configure a backend")
    wrong = None if query.reservation is None else unreserved(query.reservation, query, book)
    wrong = wrong or uncontained(query, book) or undivided(query, book) or too_many(query, book)
    return wrong or bundled(query, book, "set `nodes: {}` in the run")


def unreserved(reservation: str, query: Query, book: OfferBook) -> Misfit | None:
    """Why nothing can be launched into the reservation; None: the reason isn't the reservation itself."""
    found = book.reserved(reservation)
    if not found:
        text = f"no backend had a reservation {reservation} for it when its offers were last fetched"
        hint = "check its id, state and system, and the backend's `regions`; a new one is known after the next fetch"
        return Misfit(text, hint)
    offer = found[0]
    if not query.takes_place(offer.backend, offer.region, offer.availability_zones) or not query.takes_kind(offer):
        where = ", ".join(offer.availability_zones or (offer.region,))
        text = f"the reservation {reservation} is of {offer.instance.name} on demand in {where} ({offer.backend})"
        return Misfit(
            text, "make `backends`, `regions`, `availability_zones`, `instance_types` and `spot_policy` fit it"
        )
    return None


def unlisted(query: Query, book: OfferBook) -> Misfit | None:
    """That some backends have no list of offers: they are asked for what a single job needs, and for nothing else."""
    names = ", ".join(book.live_for(query))
    if not names:
        return None
    text = f"no backend lists offers that fit, and those without a list ({names}) are asked only for single jobs"
    return Misfit(text, "let the fleet buy when a job needs a machine: `nodes: 0..`")


def uncontained(query: Query, book: OfferBook) -> Misfit | None:
    """That what fits is sold as containers only, and they can't have all that is needed."""
    if not query.container or book.match(query, 1)[1]:
        return None
    found = book.match(query._replace(container=frozenset(), blocks=1), 1)[0]
    if not found or found[0].grants is None:
        return None
    why = refusal(query.container - found[0].grants)
    return Misfit(f"what fits is sold as a container ({found[0].instance.name}): {why.text}", why.hint)


def undivided(query: Query, book: OfferBook) -> Misfit | None:
    """The misfit that fitting machines are sold, but can't be split into the fleet's `blocks`. The hint names the
    highest possible number."""
    whole = book.match(query._replace(blocks=1), 1)[0] if query.blocks != 1 else ()
    has = whole[0].instance.resources if whole else None
    if has is None or total_blocks(query.blocks, has):
        return None
    auto, gpus = query.blocks == "auto", f" and {len(has.gpus)} GPUs" if has.gpus else ""
    requested = len(has.gpus) if query.blocks == "auto" else query.blocks
    into = "equal blocks, one for each GPU" if auto else f"{requested} equal blocks"
    most = next(blocks for blocks in range(requested, 0, -1) if total_blocks(blocks, has))
    text = f"no machine that fits can be split into {into} ({whole[0].instance.name} has {has.cpus} CPUs{gpus})"
    return Misfit(text, f"set the fleet's `blocks: {most}`")


def too_many(query: Query, book: OfferBook) -> Misfit | None:
    """The misfit that fitting machines are sold, but not in a cluster of this size."""
    if not query.nodes or book.match(query, 1)[1]:
        return None
    found = book.match(query._replace(nodes=0), 1)[0]
    if not found or found[0].most_nodes >= query.nodes:  # in a cluster it can't have the volumes
        return None
    limit, name = found[0].terms.cluster, found[0].instance.name
    if limit is None:
        return Misfit(f"{name} is one machine, and {query.nodes} are needed together", "add a backend with clusters")
    return Misfit(f"{name} can't have {query.nodes} machines in one cluster: {limit.why}", limit.hint)


def bundled(query: Query, book: OfferBook, hint: str) -> Misfit | None:
    """The misfit that what fits is sold in bundles of another size only. `hint`: with a place for that size."""
    if query.bundles is None or book.match(query, 1)[1]:
        return None
    found = book.match(query._replace(bundles=None), 1)[0]
    if not found:
        return None
    size, name = found[0].bundle, found[0].instance.name
    return Misfit(f"{name} is {size} machines, which are bought and used together", hint.format(size))


def _relaxed(query: Query) -> Iterator[tuple[str, Query]]:
    """The query without one of its conditions, each in turn."""
    anything = {"cpu": CPUSpec(count=Range[int](min=1)), "memory": Range[float](min=0.0), "gpu": None, "disk": None}
    for name, value in anything.items():
        yield name, query._replace(resources=query.resources.model_copy(update={name: value}))
    yield "instance_types", query._replace(instance_types=None)
    yield "regions", query._replace(regions=None)
    yield "availability_zones", query._replace(zones=None)
    yield "backends", query._replace(backends=None)
    yield "spot_policy", query._replace(spot=None)
