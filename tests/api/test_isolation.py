"""Where jobs share the agent's user, only admins' jobs are accepted; plan and apply both say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.fleets import FleetBody
from chalicelib.domain.tenants import Permissions, ProjectRole
from chalicelib.store import nouns
from chalicelib.usecases import specs
from tests.api.rig import ADMIN, Rig, submit, task
from tests.world import nouns as b

TEACHES = (
    "local-0 runs jobs as plain processes of its agent's user, which only the project's admins may use. Install a "
    "container engine there, run the server or the agent as root, or start the server with --trust-jobs."
)
UNISOLATED = {"runtimes": ("process",), "isolation": "none"}


def rig_with(folder: Path, host: dict[str, Any], **permissions: bool) -> tuple[Rig, dict[str, str]]:
    """A project whose only fleet has one host."""
    rig = Rig.at(folder, permissions=Permissions(**permissions))
    fleet = b.fleet("local").with_(project_id=rig.project.id)
    spec = {"configuration": {"type": "fleet", "name": "local", "ssh_config": {"hosts": ["localhost"]}}}
    pointer = nouns.pointer(keys.fleet_name(rig.project.id, fleet.name), fleet.id)
    rig.world.plane.store.commit([pointer])
    rig.save(fleet, FleetBody(fleet_id=fleet.id, spec=specs.text_of(spec)))
    rig.save(b.host(0, fleet, **host).with_(project_id=rig.project.id))
    tokens = {role.value: rig.user(f"the-{role.value}", role) for role in ProjectRole}
    return rig, tokens | {"global": ADMIN}


@pytest.mark.parametrize("host", [UNISOLATED, {"runtimes": ("process",)}], ids=["said", "by an older agent"])
def test_only_admins_run_where_nothing_separates_jobs_from_the_agent(tmp_path: Path, host: dict[str, Any]) -> None:
    rig, tokens = rig_with(tmp_path, host)
    for role, token in tokens.items():
        body = {"run_spec": task(f"of-{role}")}
        if role in ("global", "admin"):
            assert rig.ok("P/runs/get_plan", body, token=token)["job_plans"][0]["total_offers"] == 1
            rig.ok("P/runs/apply", {"plan": body}, token=token)
        else:
            assert rig.refused("P/runs/get_plan", body, token=token) == TEACHES
            assert rig.refused("P/runs/apply", {"plan": body}, token=token) == TEACHES


@pytest.mark.parametrize(
    ("host", "permissions"),
    [
        ({"runtimes": ("process",), "isolation": "user"}, {}),
        ({"runtimes": ("docker", "process"), "isolation": "container"}, {}),
        ({"runtimes": ("docker", "process")}, {}),
        (UNISOLATED, {"allow_non_admins_run_unisolated": True}),
    ],
    ids=["own users", "containers", "containers of an older agent", "trusted"],
)
def test_everybody_runs_where_jobs_are_separated_or_trusted(
    tmp_path: Path, host: dict[str, Any], permissions: dict[str, bool]
) -> None:
    rig, tokens = rig_with(tmp_path, host, **permissions)
    for role, token in tokens.items():
        body = {"run_spec": task(f"of-{role}")}
        assert rig.ok("P/runs/get_plan", body, token=token)["job_plans"][0]["total_offers"] == 1
        rig.ok("P/runs/apply", {"plan": body}, token=token)


OWN_USERS = {"runtimes": ("process",), "isolation": "user"}
NO_NAMES = (
    "local-0 runs plain processes, and only the project's admins may name the host's users in `user`. Remove `user`, "
    "install a container engine there, or ask the server's operator for `allow_non_admins_run_privileged`."
)


@pytest.mark.parametrize("user", ["ann", "1500", "4242:disk"])
@pytest.mark.parametrize("allowed", [True, False])
def test_only_admins_name_users_of_hosts(tmp_path: Path, user: str, allowed: bool) -> None:
    rig, tokens = rig_with(tmp_path, OWN_USERS, allow_non_admins_run_privileged=allowed)
    for role, token in tokens.items():
        body = {"run_spec": task(f"of-{role}", user=user)}
        for verb, sent in (("get_plan", body), ("apply", {"plan": body})):
            if not allowed and role not in ("global", "admin"):
                assert rig.refused(f"P/runs/{verb}", sent, token=token) == NO_NAMES
                continue
            done = rig.ok(f"P/runs/{verb}", sent, token=token)
            if verb == "get_plan":
                assert done["isolation"] == [
                    f"Fleet local runs jobs as plain processes, this one as the user {user} of its host."
                ]
            else:
                assert done["jobs"][0]["job_spec"]["user_permitted"] is True


def test_nobody_is_root_on_a_host(tmp_path: Path) -> None:
    rig, tokens = rig_with(tmp_path, OWN_USERS)
    for token in (tokens["admin"], tokens["global"]):
        error = rig.refused("P/runs/get_plan", {"run_spec": task(user="root")}, token=token)
        assert error.startswith(
            "local-0 runs plain processes, which can't be root or another of the host's system users."
        )


def test_in_containers_anybody_is_anybody(tmp_path: Path) -> None:
    rig, tokens = rig_with(tmp_path, {"runtimes": ("docker", "process"), "isolation": "container"})
    for role, token in tokens.items():
        body = {"run_spec": task(f"of-{role}", user="root")}
        assert rig.ok("P/runs/get_plan", body, token=token)["job_plans"][0]["total_offers"] == 1
        job = rig.ok("P/runs/apply", {"plan": body}, token=token)["jobs"][0]
        assert job["job_spec"]["user_permitted"] is (role in ("global", "admin")), "it may yet turn out to be a process"


def test_a_host_that_isnt_there_yet_is_no_reason_to_refuse(tmp_path: Path) -> None:
    rig, tokens = rig_with(tmp_path, {"status": "pending", "runtimes": ()})
    submitted = rig.ok("P/runs/apply", {"plan": {"run_spec": task()}}, token=tokens["user"])
    assert submitted["jobs"][0]["job_spec"]["isolated"] is True, "so it isn't placed there either if it turns out so"
    assert submit(rig, task("mine"))["jobs"][0]["job_spec"]["isolated"] is False


@pytest.mark.parametrize(
    ("host", "lines"),
    [
        (UNISOLATED, ["Fleet local runs jobs as plain processes, without isolation."]),
        (
            {"runtimes": ("process",), "isolation": "user"},
            ["Fleet local runs jobs as plain processes, each as a user of its own."],
        ),
        ({"runtimes": ("docker", "process"), "isolation": "container"}, []),
    ],
)
def test_a_plan_says_what_separates_jobs(tmp_path: Path, host: dict[str, Any], lines: list[str]) -> None:
    rig, _ = rig_with(tmp_path, host)
    assert rig.ok("P/runs/get_plan", {"run_spec": task()})["isolation"] == lines
    assert rig.ok("P/runs/get_plan", {"run_spec": task(fleets=["other"])})["isolation"] == []
