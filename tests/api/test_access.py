"""Every role and tenant against every route: the answer its row in the table says, generated from the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.api.route import Access, Route
from chalicelib.api.routes import ROUTES
from chalicelib.domain import keys
from chalicelib.domain.tenants import Project, ProjectRole
from chalicelib.store import nouns
from tests.api.rig import ADMIN, Rig

TENANTS = {Access.visitor, Access.member, Access.manager, Access.project_admin, Access.keeper}
MAY = {
    "nobody": {Access.public},
    "a forged token": {Access.public},
    "an inactive user": {Access.public},
    "a user of no project": {Access.public, Access.user},
    "an admin of another project": {Access.public, Access.user},
    "a user": {Access.public, Access.user, Access.visitor, Access.member},
    "a manager": {Access.public, Access.user, Access.visitor, Access.member, Access.manager},
    "a project admin": {Access.public, Access.user, *TENANTS},
    "a global admin": {Access.public, Access.user, Access.admin, *TENANTS},
}


@pytest.fixture(scope="module")
def callers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Rig, dict[str, str | None]]:
    rig = Rig.at(Path(tmp_path_factory.mktemp("access")))
    other = rig.another_project("other")
    tokens = {
        "nobody": None,
        "a forged token": "0" * 32,
        "an inactive user": rig.user("gone", ProjectRole.admin),
        "a user of no project": rig.user("stranger"),
        "an admin of another project": rig.user("foreigner", ProjectRole.admin, other),
        "a user": rig.user("worker", ProjectRole.user),
        "a manager": rig.user("manager", ProjectRole.manager),
        "a project admin": rig.user("chief", ProjectRole.admin),
        "a global admin": ADMIN,
    }
    rig.deactivate("gone")
    return rig, tokens


def fill(route: Route) -> str:
    path = route.path.replace("{project_name}", "main").replace("{backend_name}", "aws")
    return path.replace("{run_name}", "none-such").replace("{path}", "x")


@pytest.mark.parametrize("who", MAY)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_caller_gets_what_the_table_says(callers: tuple[Rig, dict[str, str | None]], route: Route, who: str) -> None:
    rig, tokens = callers
    reply = rig.call(fill(route), b"{ not json", token=tokens[who], method=route.method)
    if route.access is Access.agent:
        # None of these is an instance's credential; a message that can't be read is told so first.
        assert reply.status == 403 or (reply.status == 422 and tokens[who] is not None), reply.body
    elif route.access in MAY[who]:
        assert reply.status not in (401, 403, 404, 405) and reply.status < 500, reply.body
    else:
        assert reply.status == 403, reply.body


def test_a_public_project_is_open_to_visitors_and_to_no_more(callers: tuple[Rig, dict[str, str | None]]) -> None:
    rig, tokens = callers
    public = rig.another_project("public")
    rig.save(nouns.read(Project, rig.record(keys.project(public.id))).with_(is_public=True))
    stranger = tokens["a user of no project"]
    visits = [route for route in ROUTES if route.access is Access.visitor]
    assert visits and all(rig.call(fill(r), b"{ not json", token=stranger).status == 403 for r in visits)
    assert rig.call("/api/projects/public/get", token=stranger).status == 200
    assert rig.call("/api/project/public/runs/get", {"run_name": "xx"}, token=stranger).status == 403


def test_a_route_within_a_project_asks_for_a_place_in_it() -> None:
    """A row whose path names a project but that asks for less would let every tenant in."""
    loose = [route.path for route in ROUTES if "{project_name}" in route.path and route.access not in TENANTS]
    assert loose == []
