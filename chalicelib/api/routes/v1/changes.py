"""What has changed: one feed for all that a page shows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import ConfigDict, Field

from chalicelib.api.requests import RequestBody
from chalicelib.api.route import Answer, Call, asks
from chalicelib.api.v1 import answers, changes_in, cursors
from chalicelib.api.wire.v1.gateways import gateway_summary_json
from chalicelib.api.wire.v1.machines import fleet_summary_json, instance_json
from chalicelib.api.wire.v1.runs import run_summary_json
from chalicelib.api.wire.v1.volumes import volume_json
from chalicelib.domain.instances import Instance
from chalicelib.domain.volumes import Volume
from chalicelib.engine.read import FleetRow, RunRow
from chalicelib.errors import Problem, WrongQuery
from chalicelib.usecases.live import items
from chalicelib.usecases.live.following import Follow, Following, News
from chalicelib.usecases.live.items import KINDS, Item, Kind
from chalicelib.usecases.people.visible_projects import projects_seen

if TYPE_CHECKING:
    from chalicelib import contract

LONGEST = 1_600  # characters of a cursor, which has digests of the last events


class ChangesQuery(RequestBody):
    """What to follow, and from where."""

    model_config = ConfigDict(extra="forbid")

    cursor: Annotated[str, Field(max_length=LONGEST)] | None = None
    kinds: Annotated[str, Field(max_length=100)] = ""  # with commas between them; empty: all
    projects: Annotated[str, Field(max_length=1_000)] = ""  # names, likewise
    tail: bool = False  # the caller follows a log, too


@asks(ChangesQuery)
def follow(call: Call, query: ChangesQuery) -> Annotated[Answer, contract.V1Changes]:
    """What has changed in the caller's projects since the answer with this cursor. Without one, the lists begin: they
    come whole, up to 500 things at a time. With `Accept: text/event-stream` a server of your own keeps the answer open,
    and each event's data is such a document; in AWS the first one is all."""
    kinds, names = _kinds(query.kinds), tuple(name for name in query.projects.split(",") if name)
    projects = projects_seen(call.plane.store, call.actor, names or None, call.token)
    followed = sorted(project.name for project in projects) if names else None
    listing = cursors.listing(call.path, {"kinds": query.kinds, "projects": query.projects})
    place = None if query.cursor is None else _place(query.cursor, listing)
    news = Follow(call.plane, projects, kinds, lambda item: _shown(call, item)).after(place)
    answer = answers.resource(call, _document(news, listing, followed, tail=query.tail))
    return replace(answer, heard=tuple(changes_in(project.id) for project in projects))


def _document(news: News, listing: str, followed: list[str] | None, *, tail: bool) -> contract.V1Changes:
    shown: dict[str, list[Any]] = {kind: [each for of, each in news.items if of == kind] for kind in KINDS}
    removed: dict[str, list[str]] = {kind: [each for of, each in news.gone if of == kind] for kind in KINDS}
    return cast(
        "contract.V1Changes",
        {
            "reset": news.reset,
            "more": news.more,
            "projects": followed,
            **shown,
            "removed": removed,
            "cursor": cursors.encode(listing, *_position(news.place)),
            "poll_after_ms": news.pause_ms(tail=tail),
        },
    )


def _shown(call: Call, item: Item) -> Any:
    row, now = item.row, call.plane.clock.now()
    if isinstance(row, RunRow):
        return run_summary_json(row, item.project, now)
    if isinstance(row, FleetRow):
        return fleet_summary_json(row, item.project)
    if isinstance(row, Instance):
        return instance_json(row, item.project)
    if isinstance(row, Volume):
        return volume_json(row, item.project, now)
    return gateway_summary_json(row.gateway, item.project, row.certificates, default=row.default)


def _kinds(text: str) -> tuple[Kind, ...]:
    names = [name for name in text.split(",") if name]
    if unknown := [name for name in names if name not in KINDS]:
        known = ", ".join(KINDS)
        text = f"{unknown[0][:40]!r} can't be followed"
        raise WrongQuery([Problem(text, path="kinds", hint=f"these can: {known}", code="unknown-value")])
    return tuple(kind for kind in KINDS if kind in names) or KINDS


def _position(place: Following) -> list[str | int]:
    page = [] if place.page is None else [*place.page]
    return [place.mark, place.scope, place.level, place.checked_at, place.digest, place.alive, place.lost, *page]


def _place(cursor: str, listing: str) -> Following:
    match cursors.decode(cursor, listing, LONGEST):
        case [str(mark), str(scope), int(level), int(at), str(digest), str(alive), str(lost), *page] if level in range(
            3
        ):
            return Following(mark, scope, level, at, digest, alive, lost, _page(page))
    raise cursors.refused()


def _page(parts: list[str | int]) -> items.Place | None:
    match parts:
        case []:
            return None
        case [("fleets" | "instances" | "volumes" | "gateways" | "runs") as kind, int(at), str(id_)]:
            return items.Place(kind, at, id_)
    raise cursors.refused()
