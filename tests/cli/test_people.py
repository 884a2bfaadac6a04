"""`dstack user` and the members of a project, on the API itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.connection.config import ProjectEntry, config_path, load_projects, save_projects
from tests.api.rig import ADMIN, Rig, fleet
from tests.api.test_fleets import create
from tests.cli.conftest import Dstack
from tests.cli.printed import KEY, RealPlane

FINGERPRINT = "SHA256:Eh1Ip0zc9iKXVZTtZTPbp7RYQidTo7BViPXgyerDp0k"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[RealPlane]:
    found = RealPlane()
    (tmp_path / "api").mkdir()
    found.rig = Rig.at(tmp_path / "api")
    yield found
    found.rig.world.plane.store.close()


@pytest.fixture
def admin(bare: Dstack, plane: RealPlane) -> Dstack:
    save_projects(config_path(bare.terminal.home), [ProjectEntry("main", plane.url, ADMIN, True)])
    return bare


def done(dstack: Dstack, line: str, answers: str = "") -> str:
    ended = dstack(*line.split(), answers=answers)
    assert ended.code == 0, (line, ended)
    return ended.out


def refused(dstack: Dstack, line: str) -> str:
    ended = dstack(*line.split())
    assert ended.code == 1 and "Traceback" not in ended.err, (line, ended)
    return " ".join(ended.err.split())


def names(table: str) -> list[str]:
    return [line.split()[0] for line in table.splitlines()[1:] if not line.startswith(" ")]


def become(dstack: Dstack, plane: RealPlane, token: str) -> None:
    save_projects(config_path(dstack.terminal.home), [ProjectEntry("main", plane.url, token, True)])


def test_a_user_from_creation_to_deletion(admin: Dstack, plane: RealPlane) -> None:
    message, token = done(admin, "user create ann --email ann@example.com").strip().split("\n")
    assert message == "User ann is created. Their token, shown only this once:" and len(token) > 20
    assert names(done(admin, "user")) == names(done(admin, "user list")) == ["ann", "admin"]
    assert done(admin, "project add-member ann") == "ann is a user of project main.\n"
    assert done(admin, "project add-member ann --role admin") == "ann is an admin of project main.\n"
    assert names(done(admin, "project members")) == ["admin", "ann"]
    assert done(admin, "user update ann --inactive") == "User ann: user, inactive, ann@example.com.\n"
    assert done(admin, "user update ann --role admin --active --email=") == "User ann: admin.\n"
    assert "Nothing was changed" in done(admin, "user token ann", "n\n")
    assert done(admin, "user token ann -y").strip() != token
    assert "no longer a member" in done(admin, "project remove-member ann", "y\n")
    assert names(done(admin, "project members")) == ["admin"]
    assert "Nothing was deleted" in done(admin, "user delete ann", "n\n")
    assert done(admin, "user delete ann -y") == "Deleted: ann.\n"
    assert names(done(admin, "user")) == ["admin"]


def test_what_cant_be_done_says_what_to_do_instead(admin: Dstack, plane: RealPlane) -> None:
    assert "Choose another name" in refused(admin, "user create admin")
    assert "Ask another admin" in refused(admin, "user update admin --role user")
    assert "Ask another admin" in refused(admin, "user delete admin -y")
    assert "Make another member its admin first" in refused(admin, "project remove-member admin -y")
    assert "There is no user 'nobody'" in refused(admin, "project add-member nobody")
    assert admin("user", "update", "admin", "--active", "--inactive").code == 2
    become(admin, plane, plane.rig.user("ann"))
    assert "Only a global admin" in refused(admin, "user create bob")


def test_keys_are_added_listed_and_deleted(admin: Dstack) -> None:
    (admin.terminal.cwd / "key.pub").write_text(f"{KEY}\n")
    assert done(admin, "user add-key key.pub") == f"Key me@laptop is added: {FINGERPRINT}.\n"
    assert FINGERPRINT in done(admin, "user keys")
    assert "already, as 'me@laptop'" in refused(admin, "user add-key key.pub --name other")
    assert "ssh-keygen -t ed25519" in refused(admin, "user add-key missing.pub")
    assert "You have no key 'x'" in refused(admin, "user delete-key x")
    assert "Nothing was deleted" in done(admin, "user delete-key me@laptop", "n\n")
    assert done(admin, f"user delete-key {FINGERPRINT[:14]} -y") == "Key me@laptop is deleted.\n"
    assert names(done(admin, "user keys")) == []
    assert "me@laptop is added" in done(admin, "user add-key -", f"{KEY}\n")


def test_a_project_is_created_where_this_machine_works(admin: Dstack, plane: RealPlane) -> None:
    assert done(admin, "project create lab") == "Project lab is created. Use it with --project lab.\n"
    known = {project.name: project for project in load_projects(config_path(admin.terminal.home))}
    assert (known["lab"].url, known["lab"].token, known["lab"].default) == (plane.url, ADMIN, False)
    assert names(done(admin, "project members --project lab")) == ["admin"]
    assert "already" in refused(admin, "project create lab")
    assert "Nothing was changed" in done(admin, "project delete --name lab --on-server", "n\n")
    assert "deleted on its server" in done(admin, "project delete --name lab --on-server -y")
    assert [project.name for project in load_projects(config_path(admin.terminal.home))] == ["main"]


def test_a_project_in_use_stays_on_both_sides(admin: Dstack, plane: RealPlane) -> None:
    create(plane.rig, fleet())
    error = refused(admin, "project delete --name main --on-server -y")
    assert error.endswith("The project main has fleets. Delete them first: dstack fleet delete NAME")
    assert names(done(admin, "project members")) == ["admin"]


def test_what_an_actor_did_is_listed_wherever_they_did_it(admin: Dstack, plane: RealPlane) -> None:
    done(admin, "user create ann")
    plane.rig.world.clock.pass_(1)
    create(plane.rig, fleet())
    output = done(admin, "event --actor admin")
    assert "[user ann] created" in output and "[fleet pool]" in output
    assert "[user ann]" not in done(admin, "event --actor system")
    assert "There is no user nobody" in refused(admin, "event --actor nobody")
    assert done(admin, "event --actor ann") == ""
