"""Callers who lose every race, on every path where somebody else may write the same record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain.runs import RunStatus
from chalicelib.domain.tenants import Archive, User, archive_id
from chalicelib.errors import Bug, Contended
from chalicelib.usecases.operator.first_start import first_start
from chalicelib.usecases.people import users
from chalicelib.usecases.runs import files
from chalicelib.usecases.runs.files import UPLOAD_TRIES
from tests.api.rig import Rig, fleet, submit, task
from tests.api.test_fleets import create
from tests.api.test_gateways import apply_body
from tests.api.test_joins import BY_THEMSELVES, command, machine_joins, reported
from tests.api.test_races import Before, contended, found_run
from tests.api.test_volumes import CLOUDS, volume
from tests.world.ports import accounts

CALLS: dict[str, Any] = {
    "P/exports/create": {"name": "hosts", "exported_fleets": ["lab"]},
    "P/fleets/apply": {"plan": {"spec": fleet("another")}, "force": False},
    "P/fleets/delete": {"names": ["pool"]},
    "P/fleets/delete_instances": {"name": "lab", "instance_nums": [0]},
    "P/gateways/apply": apply_body("another", fleet="lab"),
    "P/gateways/delete": {"names": ["door"]},
    "P/gateways/set_wildcard_domain": {"name": "door", "wildcard_domain": "example.org"},
    "P/runs/apply": {"plan": {"run_spec": task("another")}, "force": False},
    "P/runs/delete": {"runs_names": ["over"]},
    "P/runs/stop": {"runs_names": ["live"], "abort": False},
    "P/volumes/create": volume("another"),
    "P/volumes/delete": {"names": ["data"]},
    "/api/files/get_archive_by_hash": {"hash": "0" * 64},
    "/api/projects/create": {"project_name": "another"},
    "/api/projects/delete": {"projects_names": ["side"]},
}


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """With something for each of these calls."""
    rig = Rig.at(tmp_path, backends=accounts(*CLOUDS))
    create(rig, fleet("pool"))
    create(rig, BY_THEMSELVES)
    machine_joins(rig, command(rig))
    rig.ok("P/gateways/apply", apply_body(fleet="lab"))
    submit(rig, task("live"))
    rig.save(found_run(rig.world.store, submit(rig, task("over"))["id"]).with_(status=RunStatus.done))
    rig.ok("P/volumes/create", volume())
    rig.ok("/api/projects/create", {"project_name": "side"})
    admin = users.named_user(rig.world.store, "admin")
    rig.save(Archive(id=archive_id(admin.id, "0" * 64), owner_id=admin.id, hash="0" * 64, blob="archives/x", size=1))
    return rig


@pytest.mark.parametrize("path", CALLS)
def test_who_is_late_four_times_is_served_and_who_is_late_five_times_may_try_again(rig: Rig, path: str) -> None:
    rig.world.plane = contended(rig, 5)
    error = rig.refused(path, CALLS[path])
    assert ("keeps changing" in error or "many projects at once" in error) and "Try again" in error
    rig.world.plane = contended(rig, 4)
    rig.ok(path, CALLS[path])


def test_commands_and_the_machines_that_join_with_them_and_leave_may_be_as_late(rig: Rig) -> None:
    instance, credential = reported(rig)
    made, other = command(rig), command(rig)
    rig.world.plane = contended(rig, 5)
    assert "keeps changing" in rig.refused("P/fleets/revoke_join", {"name": "lab", "id": other["id"]})
    rig.world.plane = contended(rig, 4)
    rig.ok("P/fleets/revoke_join", {"name": "lab", "id": other["id"]})
    rig.world.plane = contended(rig, 5)
    assert machine_joins(rig, made) == "refused the fleet keeps changing; try again"
    rig.world.plane = contended(rig, 4)
    assert machine_joins(rig, made).startswith("join ")
    rig.world.plane = contended(rig, 5)
    assert "keeps changing" in rig.refused("/agent/left", {"instance": instance.id}, token=credential)
    rig.world.plane = contended(rig, 4)
    rig.ok("/agent/left", {"instance": instance.id}, token=credential)


USER = User(id="owner", name="ann", created_at=0, token_hash="")


def test_what_is_uploaded_may_be_later(rig: Rig) -> None:
    with pytest.raises(Contended, match="This archive keeps changing"):
        files.store_archive(contended(rig, UPLOAD_TRIES), USER, "owner", "archives", "1" * 64, b"x")
    assert files.store_archive(contended(rig, UPLOAD_TRIES - 1), USER, "owner", "archives", "1" * 64, b"x").size == 1


def test_a_server_that_starts_may_be_as_late(rig: Rig) -> None:
    with pytest.raises(Bug, match="keep changing while this server starts"):
        first_start(contended(rig, 5), "another-token")
    assert first_start(contended(rig, 4), "another-token")[0] == "another-token"


APPLIED: dict[str, Any] = {
    **{path: body for path, body in CALLS.items() if path.startswith("P/") and path.endswith(("/apply", "/create"))},
    "P/automations/add": {"spec": fleet("stored")},
    "/api/projects/main/set_quota": {"jobs": 1},
}


@pytest.mark.parametrize("path", APPLIED)
def test_nothing_is_applied_to_a_project_that_is_deleted_in_between(rig: Rig, path: str) -> None:
    store = rig.world.store
    deleted = Before(store, lambda: rig.save(rig.world.again(rig.project).with_(deleted=True)))
    deleted.armed = True
    rig.world.plane = replace(rig.world.plane, store=deleted)  # type: ignore[arg-type]
    assert rig.refused(path, APPLIED[path]) == "There is no project 'main'."
