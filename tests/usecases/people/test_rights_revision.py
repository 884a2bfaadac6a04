"""The rights to log in to a job, and how their changes reach a running job."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.runs import RunBody
from chalicelib.domain.tenants import GlobalRole, Member, Project, ProjectRole, PublicKey, User
from chalicelib.errors import Conflict, Refused
from chalicelib.store import nouns
from chalicelib.usecases.agents.calls import has_news
from chalicelib.usecases.people import projects, public_keys, rights_revision, users
from chalicelib.usecases.runs import job_keys
from tests.usecases.cluster import Cluster, exited, running
from tests.world.nouns import PROJECT
from tests.world.plane import EVERYBODY, World
from tests.world.time import NOW

ONE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAJfXpGgxCBxoFRSgXNqxQo84nLJ4bF7O8Ia5UxZBcqh"


def person(name: str, id_: str = "", **fields: Any) -> User:
    own = (PublicKey(id=f"{name}-1", added_at=NOW, name="laptop", line=f"ssh-ed25519 {name:A<8}"),)
    made = {"ssh_public_key": f"ssh-ed25519 {name}\n", "public_keys": own, **fields}
    return User(id=id_ or name, name=name, created_at=NOW, token_hash=f"hash-of-{name}", **made)


ANN = person("ann", "u")  # whose run it is
BOB, EVE, PIA, ROOT = person("bob"), person("eve"), person("pia"), person("root", role=GlobalRole.admin)
IDLE = person("idle", role=GlobalRole.admin, active=False)
PEOPLE = (ANN, BOB, EVE, PIA, ROOT, IDLE)
MEMBERS = ((ANN, ProjectRole.user), (BOB, ProjectRole.user), (EVE, ProjectRole.manager), (PIA, ProjectRole.admin))


@pytest.fixture
def cluster(world: World) -> Cluster:
    made = Cluster.of(world)
    made.agent.join()
    world.save(*PEOPLE, *(Member(project_id=PROJECT, user_id=user.id, role=role) for user, role in MEMBERS))
    world.store.commit([nouns.pointer(keys.user_name(each.name), each.id) for each in PEOPLE])
    return made


def both(*names: str) -> set[str]:
    return {f"ssh-ed25519 {key}" for name in names for key in (name, f"{name:A<8}")}


def let_in(cluster: Cluster, job: Job) -> set[str]:
    return set(job_keys.keys_of(cluster.world.plane.read, job))


def of_project(world: World) -> Project:
    found = nouns.find(world.store, Project, keys.project(PROJECT))
    assert found is not None
    return found


def again(world: World, user: User) -> User:
    found: User = world.again(user)
    return found


def test_a_job_lets_in_all_who_may_attach_to_it(cluster: Cluster) -> None:
    """Its run's user, the managers and the admins; no other member, and nobody who is deactivated."""
    assert let_in(cluster, cluster.place()) == both("ann", "eve", "pia", "root")


def test_the_key_of_the_run_is_its_users(cluster: Cluster) -> None:
    job = cluster.place()
    body = nouns.find(cluster.world.store, RunBody, keys.run_body(job.run_id, 0))
    assert body is not None
    cluster.world.save(body.with_(run_spec='{"ssh_key_pub": "ssh-rsa GIVEN me@home\\n"}'))
    assert job_keys.keys_of(cluster.world.plane.read, job)[:2] == ["ssh-rsa GIVEN me@home", "ssh-ed25519 ann"]
    projects.remove_members(cluster.world.plane, ROOT, of_project(cluster.world), None, ["ann"])
    assert let_in(cluster, job) == both("eve", "pia", "root")


def test_a_job_is_sent_with_them_and_with_their_revision(cluster: Cluster) -> None:
    world = cluster.world
    users.refresh_ssh_key(world.plane, again(world, BOB), "bob")
    cluster.place()
    (task,) = cluster.agent.sync()["tasks"]
    assert set(task["spec"]["authorized_keys"]) == both("ann", "eve", "pia", "root")
    assert task["spec"]["access"] == rights_revision.revision_of(world.store.get(keys.rights())) != ""


def started(cluster: Cluster) -> tuple[Job, str]:
    job = cluster.place()
    (task,) = cluster.agent.sync()["tasks"]
    access = task["spec"]["access"]
    answer = cluster.agent.sync(running(job, access=access))
    assert "authorized_keys" not in answer["tasks"][0] and not has_news(answer)
    return job, access


CHANGES = {
    "a member goes": (
        lambda world: projects.remove_members(world.plane, ROOT, of_project(world), None, ["eve"]),
        both("ann", "pia", "root"),
    ),
    "a member is made manager": (
        lambda world: projects.add_members(world.plane, ROOT, of_project(world), None, {"bob": ProjectRole.manager}),
        both("ann", "bob", "eve", "pia", "root"),
    ),
    "the run's user is deactivated": (
        lambda world: users.update_user(world.plane, again(world, ROOT), "ann", GlobalRole.user, active=False),
        both("eve", "pia", "root"),
    ),
    "a user is made admin": (
        lambda world: users.update_user(world.plane, again(world, ROOT), "bob", GlobalRole.admin),
        both("ann", "bob", "eve", "pia", "root"),
    ),
    "an admin is deleted": (
        lambda world: users.delete_users(world.plane, again(world, ANN), ["idle"]),
        both("ann", "eve", "pia", "root"),
    ),
    "a key is added": (
        lambda world: public_keys.add_key(world.plane, again(world, ANN), ONE),
        both("ann", "eve", "pia", "root") | {ONE},
    ),
    "a key is deleted": (
        lambda world: public_keys.delete_keys(world.plane, again(world, ANN), ["ann-1"]),
        both("eve", "pia", "root") | {"ssh-ed25519 ann"},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_live_job_gets_the_keys_of_now_whatever_changed(cluster: Cluster, name: str) -> None:
    change, wanted = CHANGES[name]
    job, before = started(cluster)
    cluster.world.rung.clear()
    change(cluster.world)
    assert cluster.world.rung == [EVERYBODY], "who waits or is connected hears of it now"
    answer = cluster.agent.sync(running(job, access=before))
    (entry,) = answer["tasks"]
    assert has_news(answer) and set(entry["authorized_keys"]) == wanted and entry["access"] != before
    assert not has_news(cluster.agent.sync(running(job, access=entry["access"])))


def test_nobody_asks_for_keys_because_an_address_was_changed(cluster: Cluster) -> None:
    job, before = started(cluster)
    plane, cluster.world.rung[:] = cluster.world.plane, []
    root = again(cluster.world, ROOT)
    users.update_user(plane, root, "ann", GlobalRole.user, email="ann@example.com")
    assert cluster.world.rung == [] and not has_news(cluster.agent.sync(running(job, access=before)))
    users.update_user(plane, root, "ann", GlobalRole.user, email="ann@example.com", active=False)
    assert cluster.world.rung == [EVERYBODY] and has_news(cluster.agent.sync(running(job, access=before)))


def test_a_new_token_ends_streams_and_changes_no_key(cluster: Cluster) -> None:
    job, before = started(cluster)
    cluster.world.rung.clear()
    users.refresh_token(cluster.world.plane, again(cluster.world, ANN), "ann", ANN.token_hash)
    assert cluster.world.rung == [EVERYBODY]
    assert not has_news(cluster.agent.sync(running(job, access=before)))


def test_neither_an_agent_that_cant_change_keys_nor_an_ended_job_is_told(cluster: Cluster) -> None:
    job, before = started(cluster)
    public_keys.add_key(cluster.world.plane, again(cluster.world, ANN), ONE)
    assert "authorized_keys" not in cluster.agent.sync(running(job))["tasks"][0]
    for task in cluster.agent.sync(exited(job, access=before))["tasks"]:
        assert "authorized_keys" not in task


def test_a_job_that_hasnt_started_yet_is_told_too(cluster: Cluster) -> None:
    job = cluster.place()
    access = cluster.agent.sync()["tasks"][0]["spec"]["access"]
    public_keys.add_key(cluster.world.plane, again(cluster.world, ANN), ONE)
    answer = cluster.agent.sync({"id": job.id, "state": "preparing", "access": access})
    assert ONE in answer["tasks"][0]["authorized_keys"] and cluster.job(job).status is JobStatus.provisioning


# --- the last admin ---------------------------------------------------------------------------------------------------


def test_the_last_admin_stays_one(cluster: Cluster) -> None:
    """Who does it needn't be one any more: two of them may do it to each other at once."""
    plane = cluster.world.plane
    for refused in (
        lambda: users.update_user(plane, again(cluster.world, ANN), "root", GlobalRole.user),
        lambda: users.update_user(plane, again(cluster.world, ANN), "root", GlobalRole.admin, active=False),
        lambda: users.delete_users(plane, again(cluster.world, ANN), ["root"]),
    ):
        with pytest.raises(Refused, match=r"root is the only active global admin\. Make another user one first"):
            refused()
    users.update_user(plane, again(cluster.world, ROOT), "idle", GlobalRole.admin, active=True)
    users.delete_users(plane, again(cluster.world, IDLE), ["root"])
    assert rights_revision.admins(cluster.world.store).ids == ("idle",)


def test_two_admins_who_end_each_others_rights_at_once_leave_one(cluster: Cluster) -> None:
    world = cluster.world
    users.update_user(world.plane, again(world, ROOT), "idle", GlobalRole.admin, active=True)
    changed = [again(world, each).with_(role=GlobalRole.user) for each in (ROOT, IDLE)]
    plans = [[nouns.put(each), *rights_revision.admins_after(world.store, each)] for each in changed]
    world.store.commit(plans[0])
    with pytest.raises(Conflict):
        world.store.commit(plans[1])
    with pytest.raises(Refused):
        rights_revision.admins_after(world.store, changed[1])
