"""`dstack: true`: the jobs of a run call the control plane as the run's user, in its project, until the run ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.access_tokens import AccessToken
from chalicelib.domain.contacts import Contact, HeadRelay
from chalicelib.domain.instances import Instance, OnPrem
from chalicelib.domain.runs import RunStatus
from chalicelib.domain.tenants import ProjectRole, hash_token
from chalicelib.errors import Refused
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.usecases.runs.job_access import environment
from chalicelib.usecases.runs.jobs import newest_job
from chalicelib.usecases.runs.streams import still_may
from tests.api.rig import ADMIN, Rig, task
from tests.api.test_runs import finish, job_of
from tests.world import nouns as b


def apply(rig: Rig, name: str = "sweep", *, token: str = ADMIN, **fields: Any) -> Any:
    spec = task(name, **{"dstack": True, **fields})
    return rig.ok("P/runs/apply", {"plan": {"run_spec": spec, "current_resource": None}, "force": False}, token=token)


def refused(rig: Rig, *, token: str, **fields: Any) -> str:
    spec = task("other", **fields)
    plan = {"plan": {"run_spec": spec, "current_resource": None}, "force": False}
    return rig.refused("P/runs/apply", plan, token=token)


def entry_of(rig: Rig, run: Any) -> AccessToken:
    found = nouns.find(rig.world.plane.store, AccessToken, keys.run_access(run["id"]))
    assert found is not None
    return found


def token_of(rig: Rig, run: Any) -> str:
    """As its jobs get it."""
    return rig.world.plane.seal.open(entry_of(rig, run).sealed, context=f"run-access/{run['id']}")


def status(rig: Rig, token: str, path: str = "/api/users/get_my_user", body: Any = None) -> tuple[int, str]:
    reply = rig.call(path, body, token=token)
    return reply.status, reply.body.decode()


@pytest.mark.parametrize("ended", [RunStatus.done, RunStatus.failed, RunStatus.terminated])
def test_it_is_good_as_long_as_its_run_lasts(rig: Rig, ended: RunStatus) -> None:
    run = apply(rig)
    token = token_of(rig, run)
    assert rig.ok("/api/users/get_my_user", token=token)["username"] == "admin"
    assert [each["run_spec"]["run_name"] for each in rig.ok("/api/runs/list", {}, token=token)] == ["sweep"]
    trial = {"plan": {"run_spec": task("trial"), "current_resource": None}, "force": False}
    assert rig.ok("P/runs/apply", trial, token=token)["user"] == "admin"
    said = rig.ok("/api/events/list", {"include_target_types": ["run"]}, token=token)
    assert {event["actor_token"] for event in said} == {None, "run/sweep"}
    finish(rig, run["id"], ended)
    assert status(rig, token)[0] == 403 and "The run of this access token has ended" in status(rig, token)[1]
    assert apply(rig)["id"] != run["id"], "another run of that name has another token"
    assert "has ended" in status(rig, token)[1]


def test_it_has_two_verbs_and_one_project(rig: Rig) -> None:
    rig.another_project("other")
    token = token_of(rig, apply(rig))
    assert "lacks the verb `project`" in status(rig, token, "/api/project/main/secrets/list")[1]
    assert "only for project main" in status(rig, token, "/api/project/other/runs/get", {"run_name": "x"})[1]
    assert "No access token may" in status(rig, token, "/api/users/access_tokens/list")[1]
    assert rig.ok("/api/users/access_tokens/list") == []


def test_a_global_admins_job_may_what_a_member_may(rig: Rig) -> None:
    """Others can look into the job: whoever they are, they get no admin's rights from it."""
    ann = rig.ok("/api/users/create", {"username": "ann", "global_role": "admin"})["creds"]["token"]
    rig.ok("/api/projects/main/add_members", {"members": [{"username": "ann", "project_role": "user"}]})
    job = token_of(rig, apply(rig, token=ann))
    assert apply(rig, "fine", token=ann, dstack=False, privileged=True)
    assert "for the project's admins" in refused(rig, token=job, privileged=True)


@pytest.mark.parametrize("role", [ProjectRole.admin, ProjectRole.manager])
def test_a_project_admins_job_may_what_a_plain_member_may(rig: Rig, role: ProjectRole) -> None:
    """Managers can look into the job, too."""
    bob, ann = rig.user("bob", role), rig.user("ann", ProjectRole.user)
    job = token_of(rig, apply(rig, token=bob))
    assert "for the project's admins" in refused(rig, token=job, privileged=True)
    apply(rig, "anns", token=ann, dstack=False)
    stored = newest_job(rig.world.plane.read, rig.project, "anns", 0, 0)
    found = nouns.find_target(rig.world.plane.store, keys.user_name("bob"))
    assert found is not None
    may = {
        name: still_may(rig.world.plane, found[0], hash_token(job), rig.project, stored, name)
        for name in ("logs", "ssh")
    }
    assert may == {"logs": True, "ssh": False}
    assert still_may(rig.world.plane, found[0], hash_token(bob), rig.project, stored, "ssh")


def test_it_registers_repositories_but_neither_sees_nor_changes_what_its_user_stored(rig: Rig) -> None:
    """The user's later runs would clone from where it says."""
    ann = rig.user("ann", ProjectRole.user)
    info, creds = (
        {"repo_type": "remote", "repo_name": "r"},
        {"clone_url": "https://github.com/acme/r", "oauth_token": "gho_secret"},
    )
    known = {"repo_id": "r", "repo_info": info, "repo_creds": creds}
    rig.ok("P/repos/init", known, token=ann)
    job = token_of(rig, apply(rig, token=ann))
    shown = {"repo_id": "r", "include_creds": True}
    before = rig.ok("P/repos/get", shown, token=ann)
    assert rig.ok("P/repos/get", shown, token=job) == {**before, "repo_creds": None, "has_creds": True}
    evil = {"clone_url": "https://evil.example.com/r", "oauth_token": None}
    for change in ({"repo_creds": evil}, {"repo_creds": None}, {"repo_info": {"repo_type": "virtual"}}):
        assert "is registered already" in status(rig, job, "/api/project/main/repos/init", {**known, **change})[1]
    assert "The repository r stays" in status(rig, job, "/api/project/main/repos/delete", {"repos_ids": ["r"]})[1]
    assert rig.ok("P/repos/get", shown, token=ann) == before
    rig.ok("P/repos/init", known, token=job)  # what is there already
    rig.ok("P/repos/init", {**known, "repo_id": "new"}, token=job)
    other = token_of(rig, apply(rig, "other"))
    rig.ok("P/repos/init", known, token=other)  # another user's beside them
    assert rig.ok("P/repos/get", shown, token=ann) == before


def test_no_token_makes_one(rig: Rig) -> None:
    ci = rig.ok("/api/users/access_tokens/create", {"name": "ci", "verbs": ["run"]})["token"]
    job = token_of(rig, apply(rig))
    for token, name in ((ci, "ci"), (job, "run/sweep")):
        assert f"dstack: the access token {name} can't submit a run that gets a token" in refused(
            rig, token=token, dstack=True
        )


def test_who_is_no_member_gets_none(rig: Rig) -> None:
    root = rig.ok("/api/users/create", {"username": "root2", "global_role": "admin"})["creds"]["token"]
    assert "root2 is none" in refused(rig, token=root, dstack=True)


def test_who_leaves_the_project_takes_it_away_from_their_jobs(rig: Rig) -> None:
    ann = rig.user("ann", ProjectRole.user)
    token = token_of(rig, apply(rig, token=ann))
    assert status(rig, token)[0] == 200
    rig.ok("/api/projects/main/remove_members", {"usernames": ["ann"]})
    assert "you aren't a member" in status(rig, token, "/api/project/main/runs/get", {"run_name": "sweep"})[1]


def test_nobody_else_changes_a_run_that_acts_in_its_users_name(rig: Rig) -> None:
    ann, bob = rig.user("ann", ProjectRole.user), rig.user("bob", ProjectRole.admin)
    run = apply(rig, token=ann)
    changed = {"plan": {"run_spec": task("sweep", dstack=True, priority=9), "current_resource": run}, "force": False}
    assert "its jobs act in the name of ann" in rig.refused("P/runs/apply", changed, token=bob)
    assert rig.ok("P/runs/apply", changed, token=ann)["deployment_num"] == 1
    rig.ok("P/runs/stop", {"runs_names": ["sweep"], "abort": False}, token=bob)


def test_its_text_is_stored_nowhere(rig: Rig) -> None:
    run = apply(rig)
    token, store = token_of(rig, run), rig.world.plane.store
    for partition in (f"run/{run['id']}", f"token/{hash_token(token)}", f"user/{rig.project.owner_id}"):
        assert all(token.encode() not in record.body for record in all_of(store, "main", partition))
    assert token not in str(rig.ok("P/runs/get", {"run_name": "sweep"}))
    assert keys.run_access(run["id"]).pk == keys.run(run["id"]).pk, "it is erased with its run"


def test_a_run_without_it_has_no_token(rig: Rig) -> None:
    run = apply(rig, dstack=False)
    assert nouns.find(rig.world.plane.store, AccessToken, keys.run_access(run["id"])) is None


def test_a_stream_that_it_opened_ends_with_the_run(rig: Rig) -> None:
    plane, run = rig.world.plane, apply(rig)
    other = apply(rig, "other", dstack=False)
    job, hashed = newest_job(plane.read, rig.project, "other", 0, 0), hash_token(token_of(rig, run))
    assert still_may(plane, rig.project.owner_id, hashed, rig.project, job, "logs")
    finish(rig, run["id"])
    assert not still_may(plane, rig.project.owner_id, hashed, rig.project, job, "logs")
    assert other["id"] != run["id"]


# --- what a job gets --------------------------------------------------------------------------------------------------


def machine(rig: Rig, *runtimes: str, **fields: Any) -> Instance:
    return b.host(0, b.fleet("pool"), runtimes=runtimes or ("process",), **fields)


def given(rig: Rig, url: str, instance: Instance, *, host_network: bool = False) -> dict[str, str]:
    plane, run = replace(rig.world.plane, people_url=url), apply(rig)
    job = job_of(rig, run["id"])
    found = environment(plane, job, plane.read.job_spec(job), instance, "main", host_network=host_network)
    assert found == {"DSTACK_SERVER_URL": url, "DSTACK_PROJECT": "main", "DSTACK_TOKEN": token_of(rig, run)}
    return found


def test_a_job_gets_the_address_its_project_and_the_token(rig: Rig) -> None:
    assert given(rig, "https://gpu.example.com", machine(rig, "docker"))


def test_a_server_that_only_its_own_machine_reaches_is_reached_from_there(rig: Rig) -> None:
    here = "http://127.0.0.1:3000"
    assert given(rig, here, machine(rig, "process"))
    assert given(rig, here, machine(rig, "docker"), host_network=True)


@pytest.mark.parametrize(
    ("url", "fields", "why"),
    [
        ("http://127.0.0.1:3000", {"runtimes": ("docker",)}, "Start the server with --host and --public-url"),
        ("http://127.0.0.1:3000", {"host": True}, "Start the server with --host and --public-url"),
        ("https://gpu.example.com", {"host": True, "tunnel": True}, "its agent's calls go over SSH"),
        ("https://gpu.example.com", {"host": True, "relay": True}, "its agent's calls go over SSH"),
    ],
)
def test_a_job_that_couldnt_reach_it_is_refused_with_why(rig: Rig, url: str, fields: dict[str, Any], why: str) -> None:
    instance = machine(rig, *fields.get("runtimes", ("process",)))
    if fields.get("host"):
        instance = instance.with_(host=OnPrem(hostname="10.0.0.7", port=22))
    relay = HeadRelay(address="10.0.0.1:1", spec_num=0) if fields.get("relay") else None
    if fields.get("tunnel") or relay:
        rig.save(Contact(instance_id=instance.id, shown=(), tunnel=bool(fields.get("tunnel")), relay=relay))
    with pytest.raises(Refused) as refusal:
        given(rig, url, instance)
    assert why in f"{refusal.value} {refusal.value.hint}"
