"""The things that a follower sees: pages of the whole lists, those of given units, and those that are alive."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from chalicelib.domain import keys
from chalicelib.domain.fleets import Fleet, FleetStatus
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import Micros
from chalicelib.domain.runs import Run
from chalicelib.domain.tenants import Project
from chalicelib.domain.volumes import Volume
from chalicelib.engine.read import FleetRow, Reader, RunRow
from chalicelib.usecases.machines import instances
from chalicelib.usecases.ports import SealedPorts
from chalicelib.usecases.runs import runs
from chalicelib.usecases.services import certificates
from chalicelib.usecases.services.certificates import HostCertificate

Kind = Literal["fleets", "instances", "volumes", "gateways", "runs"]
KINDS: tuple[Kind, ...] = ("fleets", "instances", "volumes", "gateways", "runs")  # in the order of loading
ALL = 100_000  # more than there are
_OVER = (FleetStatus.terminated, FleetStatus.failed)


class GatewayRow(NamedTuple):
    gateway: Gateway
    certificates: Sequence[HostCertificate]
    default: bool


Row = RunRow | FleetRow | Instance | Volume | GatewayRow


class Item(NamedTuple):
    kind: Kind
    id: str
    project: str  # its name
    created_at: Micros
    row: Row

    @property
    def status(self) -> str:
        row = self.row
        if isinstance(row, RunRow):
            return row.run.status
        if isinstance(row, FleetRow):
            return row.fleet.status
        return row.gateway.status if isinstance(row, GatewayRow) else row.status

    @property
    def alive(self) -> bool:
        """Is it among those that may still change by themselves?"""
        return not (isinstance(self.row, RunRow) and self.row.run.finished)


class Place(NamedTuple):
    """The last item of a page."""

    kind: Kind
    at: Micros
    id: str


@dataclass(frozen=True)
class Items:
    """Reads what a follower sees. `projects`: those that it may see, by id."""

    plane: SealedPorts
    projects: Mapping[str, Project]

    def page(self, kinds: Collection[Kind], after: Place | None, limit: int) -> list[Item]:
        """The next items of the lists, one list after another, each newest first."""
        found: list[Item] = []
        for kind in KINDS:
            passed = after is not None and KINDS.index(kind) < KINDS.index(after.kind)
            if kind in kinds and not passed and len(found) < limit:
                here = after if after is not None and after.kind == kind else None
                found += self._listed(kind, here, limit - len(found))
        return found

    def alive(self, kinds: Collection[Kind]) -> list[Item]:
        """All that may still change by itself. What an index shows is read again by its key: it may lag, and nobody
        should get an older state after a newer one."""
        found: list[Item] = []
        for kind in KINDS:
            if kind in kinds:
                listed = self._runs(None, None, only_active=True) if kind == "runs" else self._listed(kind, None, None)
                again = kind in ("runs", "instances") and listed
                found += self._found(kind, [item.id for item in listed]) if again else listed
        return found

    def of(self, units: Iterable[str], kinds: Collection[Kind]) -> tuple[list[Item], list[tuple[Kind, str]]]:
        """The items of these units as they are now, and those that are gone from the lists."""
        ids: dict[Kind, list[str]] = {kind: [] for kind in KINDS}
        for unit in sorted(units):
            name, _, id_ = unit.partition("/")
            ids[_KIND[name]].append(id_)
        items: list[Item] = []
        gone: list[tuple[Kind, str]] = []
        for kind, wanted in ids.items():
            if kind in kinds and wanted:
                shown = self._found(kind, wanted)
                if kind == "gateways":
                    shown = self._with_others(shown)
                items += shown
                seen = {item.id for item in shown}
                gone += [(kind, each) for each in wanted if each not in seen]
                gone += [
                    (kind, item.row.run.replaces)
                    for item in shown
                    if isinstance(item.row, RunRow) and item.row.run.replaces
                ]
        return items, gone

    def _with_others(self, shown: Sequence[Item]) -> list[Item]:
        """These gateways, and the others of their projects: when one becomes the default, another ceases to be it."""
        ids = {item.id: item.row.gateway.project_id for item in shown if isinstance(item.row, GatewayRow)}
        others = (each.id for project in set(ids.values()) for each in self.plane.read.gateways(project))
        return self._found("gateways", list(dict.fromkeys([*ids, *others])))

    def statuses(self, kinds: Collection[Kind]) -> Iterator[tuple[Kind, str]]:
        """What all that is alive is up to."""
        for kind in kinds:
            for project in self.projects.values():
                if kind == "runs":
                    yield from ((kind, run.status) for run in self.plane.read.live_runs(project.id))
                else:
                    yield from ((kind, each.status) for each in self._every(kind, project) if _in_list(each))

    # --- by kind -----------------------------------------------------------------------------------------------------

    def _listed(self, kind: Kind, after: Place | None, limit: int | None) -> list[Item]:
        if kind == "runs":
            return self._runs(after, limit)
        return self._sorted(
            kind, [each for found in self.projects.values() for each in self._every(kind, found)], after, limit
        )

    def _every(self, kind: Kind, project: Project) -> Sequence[Fleet | Instance | Volume | Gateway]:
        read = self.plane.read
        if kind == "fleets":
            return read.fleets(project.id)
        if kind == "volumes":
            return read.volumes(project.id)
        return read.gateways(project.id) if kind == "gateways" else self._instances(project)

    def _sorted(
        self, kind: Kind, found: Sequence[Fleet | Instance | Volume | Gateway], after: Place | None, limit: int | None
    ) -> list[Item]:
        shown = [noun for noun in found if _in_list(noun) and noun.project_id in self.projects]
        if after is not None:
            shown = [noun for noun in shown if (noun.created_at, noun.id) < (after.at, after.id)]
        shown.sort(key=lambda noun: (noun.created_at, noun.id), reverse=True)
        return [self._item(kind, noun) for noun in shown[:limit]]

    def _instances(self, project: Project) -> list[Instance]:
        every = instances.InstanceFilter(None, ALL, False, None, None)
        return [instance for _, instance in instances.list_rows(self.plane, [project], every)]

    def _runs(self, after: Place | None, limit: int | None, *, only_active: bool = False) -> list[Item]:
        wanted = runs.RunFilter(
            only_active=only_active,
            limit=limit or ALL,
            ascending=False,
            user_name=None,
            repo_id=None,
            prev_submitted_at=None if after is None else after.at,
            prev_run_id=None if after is None else after.id,
        )
        return [self._run(row) for row in runs.list_rows(self.plane, [*self.projects.values()], wanted)]

    def _found(self, kind: Kind, ids: Sequence[str]) -> list[Item]:
        read = self.plane.read
        if kind == "runs":
            found = [run for run in read.find_many(Run, [keys.run(each) for each in ids]) if run and not run.deleted]
            seen = [run for run in found if run.project_id in self.projects]
            return [self._run(row) for row in read.run_rows(seen)]
        nouns: Sequence[Fleet | Instance | Volume | Gateway | None] = _FIND[kind](read, ids)
        return self._sorted(kind, [noun for noun in nouns if noun is not None], None, None)

    def _run(self, row: RunRow) -> Item:
        run = row.run
        return Item("runs", run.id, self.projects[run.project_id].name, run.submitted_at, row)

    def _item(self, kind: Kind, noun: Fleet | Instance | Volume | Gateway) -> Item:
        row: Row
        if isinstance(noun, Fleet):
            row = self.plane.read.fleet_machines(noun)
        elif isinstance(noun, Gateway):
            default = self.plane.read.default_gateway(noun.project_id)
            shown = certificates.shown(self.plane, noun)
            row = GatewayRow(noun, shown, default is not None and default.id == noun.id)
        else:
            row = noun
        return Item(kind, noun.id, self.projects[noun.project_id].name, noun.created_at, row)


_KIND: Mapping[str, Kind] = {
    "run": "runs",
    "fleet": "fleets",
    "instance": "instances",
    "volume": "volumes",
    "gateway": "gateways",
}
_FIND: Mapping[Kind, Callable[[Reader, Sequence[str]], Sequence[Fleet | Instance | Volume | Gateway | None]]] = {
    "fleets": lambda read, ids: read.find_many(Fleet, [keys.fleet(each) for each in ids]),
    "instances": lambda read, ids: read.find_many(Instance, [keys.instance(each) for each in ids]),
    "volumes": lambda read, ids: read.find_many(Volume, [keys.volume(each) for each in ids]),
    "gateways": lambda read, ids: read.find_many(Gateway, [keys.gateway(each) for each in ids]),
}


def _in_list(noun: Fleet | Instance | Volume | Gateway) -> bool:
    """Is it in its list? Machines of gateways aren't."""
    if isinstance(noun, Fleet):
        return not noun.deleted and noun.status not in _OVER
    if isinstance(noun, Instance):
        return noun.status is not InstanceStatus.terminated and not noun.of_gateway
    return not noun.deleted
