"""The audit events of users' requests: who did what to which object, in which project, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.events import Event
from chalicelib.domain.instants import SECOND
from chalicelib.domain.tenants import GlobalRole, Project, ProjectRole, User
from chalicelib.planning.matching.requirements import wanted_at_once
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.usecases.machines import fleet_plans, fleets
from chalicelib.usecases.people import projects, secrets, users
from chalicelib.usecases.runs import plans, runs
from tests.api.rig import Rig
from tests.world import nouns as b


class Desk:
    def __init__(self, rig: Rig) -> None:
        self.plane, self.main = rig.world.plane, rig.project
        self.rig = rig
        self.root = users.named_user(self.plane.store, "admin")
        self.seen: set[str] = set()
        self.projects = [self.main.id]
        self.new_events()

    def new_events(self) -> list[str]:
        """The events since the last look, a line each: what, about whom, by whom, where, and what it says."""
        places = [keys.event(project_id, 0, "").pk for project_id in ("", *self.projects)]
        records = [record for place in places for record in all_of(self.plane.store, "main", place)]
        found = [nouns.read(Event, record) for record in records]
        new = sorted((e for e in found if e.id not in self.seen), key=lambda e: (e.at, e.id))
        self.seen |= {event.id for event in new}
        return sorted(map(self.line, new))

    def line(self, event: Event) -> str:
        assert event.at >= self.plane.clock.now()
        assert event.actor_id == (None if event.actor_name is None else self.root.id)
        targets = " ".join(f"{target.type}:{target.name}" for target in event.targets)
        where = {self.main.id: "in main", "": "anywhere"}.get(event.project_id, "elsewhere")
        of = " run" * bool(event.run_id) + " fleet" * bool(event.fleet_id)
        more = [*event.fields, *filter(None, [event.before and f"{event.before}>{event.after}", event.detail])]
        return " ".join([f"{event.type} {targets} by {event.actor_name} {where}{of}", *more])


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    rig = Rig.at(tmp_path)
    yield Desk(rig)
    rig.world.store.close()


def test_users(desk: Desk) -> None:
    ann, token = users.create_user(desk.plane, desk.root, "ann", GlobalRole.user, email="a@b")
    assert desk.new_events() == ["created user:ann by admin anywhere"]
    assert (ann.name, ann.email, ann.active, ann.role) == ("ann", "a@b", True, GlobalRole.user)
    changed = users.update_user(desk.plane, desk.root, "ann", GlobalRole.admin, email=None, active=False)
    assert (changed.role, changed.email, changed.active) == (GlobalRole.admin, None, False)
    assert [line.split(" ")[0] for line in desk.new_events()] == ["changed"]
    users.update_user(desk.plane, desk.root, "ann", GlobalRole.admin, email=None, active=False)
    assert desk.new_events() == [], "nothing was changed"
    _, other = users.refresh_token(desk.plane, desk.root, "ann", "")
    assert other != token and [line.partition(" by ")[0] for line in desk.new_events()] == ["token_replaced user:ann"]
    users.refresh_ssh_key(desk.plane, desk.root, "ann")
    assert desk.new_events() == ["keys_replaced user:ann by admin anywhere"]
    users.delete_users(desk.plane, desk.root, ["ann", "ann"])
    assert desk.new_events() == ["deleted user:ann by admin anywhere"]


def members(desk: Desk, project: Project) -> dict[str, tuple[ProjectRole, int]]:
    return {user.name: (m.role, m.num) for m, user in projects.view(desk.plane.store, project).members}


def made_user(desk: Desk, name: str) -> User:
    user, _ = users.create_user(desk.plane, desk.root, name, GlobalRole.user)
    desk.new_events()
    return user


def test_projects_and_members(desk: Desk) -> None:
    project = projects.create_project(desk.plane, desk.root, "two")
    desk.projects.append(project.id)
    assert desk.new_events() == ["created project:two by admin elsewhere"]
    assert (project.owner_id, project.is_public, project.created_at) == (desk.root.id, False, desk.plane.clock.now())
    project = desk.rig.world.again(project)
    for name in ("ann", "bob"):
        made_user(desk, name)
    projects.add_members(desk.plane, desk.root, project, None, {"ann": ProjectRole.user, "bob": ProjectRole.manager})
    assert desk.new_events() == ["members_changed project:two by admin elsewhere"]
    assert members(desk, project) == {
        "admin": (ProjectRole.admin, 0),
        "ann": (ProjectRole.user, 1),
        "bob": (ProjectRole.manager, 2),
    }
    project = desk.rig.world.again(project)
    projects.add_members(desk.plane, desk.root, project, None, {"ann": ProjectRole.user})
    assert desk.new_events() == [], "nothing was changed"
    projects.set_members(desk.plane, desk.root, project, {"bob": ProjectRole.admin, "admin": ProjectRole.user})
    assert desk.new_events() == ["members_changed project:two by admin elsewhere"]
    assert members(desk, project) == {"bob": (ProjectRole.admin, 0), "admin": (ProjectRole.user, 1)}
    project = desk.rig.world.again(project)
    projects.remove_members(desk.plane, desk.root, project, None, ["admin"])
    assert desk.new_events() == ["members_changed project:two by admin elsewhere"]
    project = desk.rig.world.again(project)
    project = projects.set_public(desk.plane, desk.root, project, is_public=True)
    assert desk.new_events() == ["changed project:two by admin elsewhere public"]
    project = desk.rig.world.again(project)
    assert projects.set_public(desk.plane, desk.root, project, is_public=True) == project
    assert desk.new_events() == []
    projects.set_public(desk.plane, desk.root, project, is_public=False)
    assert desk.new_events() == ["changed project:two by admin elsewhere private"]
    projects.delete_projects(desk.plane, desk.root, ["two"])
    assert desk.new_events() == ["deleted project:two by admin elsewhere"]


def test_secrets(desk: Desk) -> None:
    secrets.set_secret(desk.plane, desk.main, desk.root, "key", "one")
    assert desk.new_events() == ["created secret:key by admin in main"]
    secrets.set_secret(desk.plane, desk.main, desk.root, "key", "two")
    (line,) = desk.new_events()
    assert "secret:key by admin in main" in line and "two" not in line
    assert secrets.get_secret(desk.plane, desk.main, "key")[1] == "two"
    secrets.delete_secrets(desk.plane, desk.main, desk.root, ["key"])
    assert desk.new_events() == ["deleted secret:key by admin in main"]


TASK: dict[str, Any] = {"run_name": "train", "configuration": {"type": "task", "commands": ["x"], "priority": 1}}


def test_runs(desk: Desk) -> None:
    row = plans.apply_plan(desk.plane, desk.root, desk.main, TASK, None)
    assert desk.new_events() == [
        "created job:train-0-0 by admin in main run",
        "created run:train by admin in main run",
    ]
    assert desk.rig.world.take_woken() == {f"queue/{desk.main.id}", f"run/{row.run.id}"}
    (job,) = row.jobs
    now = desk.plane.clock.now()
    assert (job.priority, job.submitted_at, job.last_processed_at, job.due_at) == (1, now, now, None)
    assert (row.run.user_id, row.run.user_name, row.run.priority, row.run.due_at) == (
        desk.root.id,
        "admin",
        1,
        now + round(desk.plane.pace.recheck * SECOND),
    )
    more = {**TASK, "configuration": {**TASK["configuration"], "priority": 9}}
    row = plans.apply_plan(desk.plane, desk.root, desk.main, more, None)
    assert desk.new_events() == ["changed run:train by admin in main run priority"]
    assert (row.run.deployment_num, row.run.priority, row.jobs[0].priority) == (1, 9, 9)
    assert plans.apply_plan(desk.plane, desk.root, desk.main, more, None).run.deployment_num == 1
    assert desk.new_events() == []
    runs.stop(desk.plane, desk.root, desk.main, ["train", "train"], abort=False)
    assert desk.new_events() == ["status run:train by admin in main run submitted>terminating"]
    runs.stop(desk.plane, desk.root, desk.main, ["train"], abort=True)
    assert desk.new_events() == ["status run:train by admin in main run terminating>terminating"]


def test_fleets(desk: Desk) -> None:
    def applied(**fields: Any) -> Any:
        raw = {"configuration": {"type": "fleet", "name": "cloud", **fields}}
        return fleet_plans.apply_plan(desk.plane, desk.root, desk.main, raw, None)

    now = desk.plane.clock.now()
    fleet = applied(nodes={"min": 0, "target": 2, "max": 4}).fleet
    assert desk.new_events() == ["created fleet:cloud by admin in main fleet"]
    woken = {f"fleet/{fleet.id}", f"queue/{desk.main.id}"}
    assert desk.rig.world.take_woken() == woken
    assert (fleet.name, fleet.to_create, fleet.spec_num, fleet.status) == ("cloud", 2, 0, "active")
    assert (fleet.created_at, fleet.last_processed_at, fleet.due_at) == (now, now, now)

    stalled = desk.rig.world.again(fleet).with_(consolidation_attempt=3, to_create=0, due_at=None)
    desk.rig.world.save(stalled)
    fleet = applied(nodes={"min": 1, "target": 1, "max": 4}).fleet
    assert desk.new_events() == ["changed fleet:cloud by admin in main fleet nodes"]
    assert desk.rig.world.take_woken() == woken
    assert (fleet.spec_num, fleet.to_create, fleet.consolidation_attempt, fleet.due_at) == (1, 1, 0, now)
    assert applied(nodes={"min": 1, "target": 1, "max": 4}).fleet.spec_num == 1
    assert desk.new_events() == [], "nothing was changed"
    fleets.delete(desk.plane, desk.root, desk.main, ["cloud", "cloud"])
    assert desk.new_events() == ["status fleet:cloud by admin in main fleet active>terminating deleted by a user"]


@pytest.mark.parametrize(
    ("nodes", "want"), [(None, 0), (0, 0), ("2..4", 2), ({"min": 1, "target": 3, "max": 5}, 3), (3, 3)]
)
def test_a_fleet_makes_its_minimum_or_its_target_at_once(nodes: Any, want: int) -> None:
    assert wanted_at_once(b.fleet_spec(nodes=nodes).configuration) == want
