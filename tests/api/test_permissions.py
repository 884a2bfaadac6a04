"""The installation's permissions for users who aren't admins: each granted and denied, for every role."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.fleets import Fleet, FleetBody
from chalicelib.domain.instances import Instance
from chalicelib.domain.tenants import Permissions, ProjectRole
from chalicelib.store import nouns
from chalicelib.usecases import specs
from tests.api.rig import ADMIN, Rig, fleet, task
from tests.world import nouns as b
from tests.world.time import NOW

SSH = {"configuration": {"type": "fleet", "name": "hosts", "ssh_config": {"user": "u", "hosts": ["10.0.0.1"]}}}


def rig_with(folder: Path, **permissions: bool) -> tuple[Rig, dict[str, str]]:
    rig = Rig.at(folder, permissions=Permissions(**permissions))
    tokens = {role.value: rig.user(f"the-{role.value}", role) for role in ProjectRole}
    return rig, tokens | {"global": ADMIN}


@pytest.mark.parametrize("allowed", [True, False])
def test_creating_projects(tmp_path: Path, allowed: bool) -> None:
    rig, tokens = rig_with(tmp_path, allow_non_admins_create_projects=allowed)
    for role, token in tokens.items():
        may = allowed or role == "global"
        if may:
            rig.ok("/api/projects/create", {"project_name": f"of-{role}"}, token=token)
        else:
            assert "global admins" in rig.refused("/api/projects/create", {"project_name": "mine"}, token=token)
    allowances = {
        user["username"]: user["permissions"]["can_create_projects"] for user in rig.ok("/api/users/list", {})
    }
    assert allowances == {"admin": True, "the-admin": allowed, "the-manager": allowed, "the-user": allowed}


def members(rig: Rig, field: str) -> set[str]:
    found: list[dict[str, Any]] = rig.ok("/api/projects/main/get")["members"]
    return {member["project_role"] for member in found if member["permissions"][field]}


@pytest.mark.parametrize("allowed", [True, False])
def test_keeping_secrets(tmp_path: Path, allowed: bool) -> None:
    rig, tokens = rig_with(tmp_path, allow_managers_manage_secrets=allowed)
    keepers = {"global", "admin", "manager"} if allowed else {"global", "admin"}
    for role, token in tokens.items():
        for verb in ("create_or_update", "get", "list", "delete"):
            body = {"name": "tok", "value": "v", "secrets_names": ["tok"]}
            wanted = {key: body[key] for key in _FIELDS[verb]}
            status = rig.call(f"/api/project/main/secrets/{verb}", wanted, token=token).status
            assert status == (200 if role in keepers else 403), (role, verb)
    assert members(rig, "can_manage_secrets") == keepers - {"global"}


_FIELDS: dict[str, tuple[str, ...]] = {
    "create_or_update": ("name", "value"),
    "get": ("name",),
    "list": (),
    "delete": ("secrets_names",),
}


def test_a_manager_elsewhere_keeps_no_secrets_here(tmp_path: Path) -> None:
    rig, _ = rig_with(tmp_path, allow_managers_manage_secrets=True)
    token = rig.user("foreigner", ProjectRole.manager, rig.another_project("other"))
    assert rig.call("/api/project/main/secrets/list", token=token).status == 403


NO_PRIVILEGES = (
    "privileged: `privileged` is for the project's admins here: the container could take over its host (remove it, or "
    "ask the server's operator for `allow_non_admins_run_privileged`)"
)


@pytest.mark.parametrize("allowed", [True, False])
def test_privileged_containers(tmp_path: Path, allowed: bool) -> None:
    rig, tokens = rig_with(tmp_path, allow_non_admins_run_privileged=allowed)
    for role, token in tokens.items():
        body = {"run_spec": task(role, image="i", privileged=True)}
        for verb, sent in (("get_plan", body), ("apply", {"plan": body})):
            if allowed or role in ("global", "admin"):
                rig.ok(f"P/runs/{verb}", sent, token=token)
            else:
                assert rig.refused(f"P/runs/{verb}", sent, token=token) == NO_PRIVILEGES
        rig.ok("P/runs/apply", {"plan": {"run_spec": task(f"plain-{role}", image="i")}}, token=token)


def test_an_engine_inside_is_as_privileged(tmp_path: Path) -> None:
    rig, tokens = rig_with(tmp_path, allow_non_admins_run_privileged=False)
    body = {"run_spec": task("inner", docker=True)}
    assert rig.refused("P/runs/get_plan", body, token=tokens["user"]) == NO_PRIVILEGES.replace(
        "privileged", "docker", 2
    )
    rig.ok("P/runs/get_plan", body, token=tokens["admin"])


NO_FOLDERS = (
    "volumes.0: folders of hosts are for the project's admins here: a job could read or change anything on its host "
    "(remove it, or ask the server's operator for `allow_non_admins_run_privileged`)"
)


@pytest.mark.parametrize("allowed", [True, False])
def test_folders_of_hosts(tmp_path: Path, allowed: bool) -> None:
    """A member who may not have a host may not have its folders either: the server's own files could be there."""
    rig, tokens = rig_with(tmp_path, allow_non_admins_run_privileged=allowed)
    for role, token in tokens.items():
        for optional in (False, True):
            mount = {"instance_path": "/var/lib", "path": "/data", "optional": optional}
            body = {"run_spec": task(f"{role}-{optional}".lower(), image="i", volumes=[mount])}
            for verb, sent in (("get_plan", body), ("apply", {"plan": body})):
                if allowed or role in ("global", "admin"):
                    rig.ok(f"P/runs/{verb}", sent, token=token)
                else:
                    assert rig.refused(f"P/runs/{verb}", sent, token=token) == NO_FOLDERS


def ssh_fleet(rig: Rig, name: str, creator: str = "") -> None:
    """An SSH fleet that is there already: somebody's, or made by a server for its own machine."""
    spec = {"configuration": {**SSH["configuration"], "name": name}, "profile": {}}
    made = Fleet(
        id=rig.world.plane.random_id(),
        project_id=rig.project.id,
        name=name,
        user_id=creator,
        created_at=NOW,
        last_processed_at=NOW,
    )
    rig.world.plane.store.commit(_changes(rig, made, FleetBody(fleet_id=made.id, spec=specs.text_of(spec))))


def _changes(rig: Rig, fleet: Fleet, body: FleetBody) -> list[Any]:
    pointer = nouns.pointer(keys.fleet_name(rig.project.id, fleet.name), fleet.id)
    return [nouns.put(fleet), nouns.put(body), pointer]


ONLY_ADMINS = "Only admins of the project may manage its SSH fleets"


@pytest.mark.parametrize("allowed", [True, False])
def test_managing_ssh_fleets(tmp_path: Path, allowed: bool) -> None:
    rig, tokens = rig_with(tmp_path, allow_non_admins_manage_ssh_fleets=allowed)
    trusted = set(tokens) if allowed else {"global", "admin"}
    for role, token in tokens.items():
        ssh_fleet(rig, f"of-{role}", id_of(rig, role))
        added = rig.call("/api/project/main/fleets/apply", {"plan": {"spec": SSH}}, token=token)
        ended = rig.call(
            "/api/project/main/fleets/delete_instances", {"name": f"of-{role}", "instance_nums": []}, token=token
        )
        gone = rig.call("/api/project/main/fleets/delete", {"names": [f"of-{role}"]}, token=token)
        for reply in (added, ended, gone):
            assert (ONLY_ADMINS in reply.body.decode()) == (role not in trusted), (role, reply.body)
        assert gone.status == (200 if role in trusted else 400)
    assert members(rig, "can_manage_ssh_fleets") == trusted - {"global"}


def id_of(rig: Rig, role: str) -> str:
    found = nouns.find_target(rig.world.plane.store, keys.user_name("admin" if role == "global" else f"the-{role}"))
    assert found is not None
    return found[0]


def instance_of(rig: Rig, name: str) -> Instance:
    (found,) = [one for one in rig.world.plane.read.fleets(rig.project.id) if one.name == name]
    host = b.host(0, found).with_(project_id=rig.project.id)
    rig.save(host, found.with_(next_instance_num=1))
    return host


NOT_YOURS = "Only admins and managers of the project and the user who created it may change or delete the fleet"


@pytest.mark.parametrize("creator", ["the server", "another user"])
def test_hosts_that_nobody_bought_are_ended_by_admins_and_managers_or_who_added_them(
    tmp_path: Path, creator: str
) -> None:
    rig, tokens = rig_with(tmp_path)
    rig.user("the-other")
    adder = "" if creator == "the server" else id_of(rig, "other")
    for role, token in tokens.items():
        name = f"by-{role}"
        ssh_fleet(rig, name, adder)
        host = instance_of(rig, name)
        ended = rig.call("/api/project/main/fleets/delete_instances", {"name": name, "instance_nums": [0]}, token=token)
        assert (rig.world.again(host).status == "terminating") == (role != "user"), ended.body
        gone = rig.call("/api/project/main/fleets/delete", {"names": [name]}, token=token)
        for reply in (ended, gone):
            assert reply.status == (400 if role == "user" else 200), reply.body
            assert (f"{NOT_YOURS} {name}" in reply.body.decode()) == (role == "user")


def test_a_fleet_remembers_who_created_it(tmp_path: Path) -> None:
    rig, tokens = rig_with(tmp_path)
    rig.ok("P/fleets/apply", {"plan": {"spec": fleet("mine")}}, token=tokens["user"])
    (found,) = rig.world.plane.read.fleets(rig.project.id)
    assert found.user_id == id_of(rig, "user")


def test_fleets_of_clouds_are_everybodys(tmp_path: Path) -> None:
    rig, tokens = rig_with(tmp_path, allow_non_admins_manage_ssh_fleets=False)
    spec = {"configuration": {"type": "fleet", "name": "cloud", "nodes": "0..1"}}
    rig.ok("P/fleets/apply", {"plan": {"spec": spec}}, token=tokens["user"])
    rig.ok("P/fleets/delete", {"names": ["cloud"]}, token=tokens["user"])
