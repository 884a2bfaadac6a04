"""What happened, and what could be had: events and offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from dstack_serverless.api import events as events_api
from dstack_serverless.api import projects as projects_api
from dstack_serverless.api import runs as runs_api
from dstack_serverless.sdk.flow import UNSET, Flow, Item, Items, Pause
from dstack_serverless.sdk.paging import PAGE, Order, pages
from dstack_serverless.sdk.resource import Mode, Resource, iterated, method

if TYPE_CHECKING:
    from chalicelib import contract

EVENTS = Order(at="recorded_at", after="prev_recorded_at")
LATE = timedelta(minutes=2)  # between a change and the commit of its event, at most
PAUSE = 2.0  # seconds between looks for news
ANYTHING = {"cpu": "1..", "memory": "0..", "gpu": {"count": "0.."}, "disk": None}


class Events(Resource[Mode]):
    """The history of the client's project."""

    @iterated
    def list(
        self, *, run_id: str | None = None, fleet_id: str | None = None, limit: int | None = None
    ) -> Items[contract.Event]:
        """What happened, newest first. `run_id`, `fleet_id`: only what is about this, and what is in it."""
        return Items(self._list(run_id, fleet_id, limit))

    @iterated
    def follow(self, since: datetime) -> Items[contract.StateChange]:
        """Each change of state from this moment on, as it happens, once each. `since`: one without a
        zone is in this machine's."""
        return Items(self._follow(since.astimezone(UTC)))

    def _list(self, run_id: str | None, fleet_id: str | None, limit: int | None) -> Flow[None]:
        within: dict[str, Any] = {}
        if run_id is None and fleet_id is None:
            project = yield from self.core.ask(projects_api.get(self.core.in_project()))
            within["within_projects"] = [project["project_id"]]
        for key, id in (("within_runs", run_id), ("within_fleets", fleet_id)):
            within[key] = UNSET if id is None else [id]
        yield from pages(self.core, events_api.list_events, limit, EVENTS, **within)

    def _follow(self, since: datetime) -> Flow[None]:
        """A change that is committed late has an earlier time, so the last seconds are read again each time."""
        seen: dict[str, datetime] = {}
        at = since
        while True:
            after: dict[str, Any] = {"prev_recorded_at": max(since, at - LATE).isoformat()}
            while True:
                call = events_api.list_changes(self.core.in_project(), limit=PAGE, **after)
                page = yield from self.core.ask(call)
                for change in page:
                    if change["id"] not in seen:
                        seen[change["id"]] = happened = datetime.fromisoformat(change["time"])
                        at = max(at, happened)
                        yield Item(change)
                if len(page) < PAGE:
                    break
                after = {"prev_recorded_at": page[-1]["time"], "prev_id": page[-1]["id"]}
            seen = {id: happened for id, happened in seen.items() if happened >= at - 2 * LATE}
            yield Pause(PAUSE)


class Offers(Resource[Mode]):
    """What the project's backends offer now, whether or not a fleet allows it."""

    @method
    def list(
        self, /, resources: Mapping[str, Any] | None = None, *, limit: int = 100, **wanted: Any
    ) -> Flow[Sequence[contract.Offer]]:
        """Offers, cheapest first. `resources`: as in a configuration, for instance {"gpu": "A100:2.."}; `wanted`:
        further keys of one, such as `backends`, `regions`, `max_price` and `spot_policy`."""
        task = {"type": "task", "commands": [":"], "image": "scratch", "user": "root", "spot_policy": "auto", **wanted}
        task["resources"] = {**ANYTHING, **(resources or {})}
        spec = {"repo_id": "none", "repo_data": {"repo_type": "virtual"}, "configuration": task}
        call = runs_api.get_plan(self.core.in_project(), run_spec=spec, max_offers=limit, for_offers_only=True)
        plan = yield from self.core.ask(call)
        return plan["job_plans"][0]["offers"]
