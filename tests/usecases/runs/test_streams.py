"""The rights to open streams, and the orders for the host's agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.access_tokens import AccessToken
from chalicelib.domain.instants import SECOND
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.noun import Noun
from chalicelib.domain.sign_on import SignOn
from chalicelib.domain.spending import DailyLimit
from chalicelib.domain.tenants import GlobalRole, Member, Project, ProjectRole, User
from chalicelib.errors import Forbidden, Invalid, NotFound, NotSupported, Refused
from chalicelib.store import nouns
from chalicelib.store.port import Delete
from chalicelib.usecases.agents.calls import has_news
from chalicelib.usecases.runs.streams import StreamTarget, claim, open_stream
from tests.usecases.cluster import INSTANCE, PROJECT, Cluster, running
from tests.world.plane import World
from tests.world.time import NOW

TOKEN = {"id": "x", "name": "run/train", "token_hash": "h", "created_at": NOW, "expires_at": NOW + 9}
ANN = User(id="u", name="ann", created_at=NOW, token_hash="")  # the run's user
BOB = User(id="b", name="bob", created_at=NOW, token_hash="")
EVE = User(id="e", name="eve", created_at=NOW, token_hash="")
ROOT = User(id="r", name="root", created_at=NOW, token_hash="", role=GlobalRole.admin)


@pytest.fixture
def cluster(world: World) -> Cluster:
    made = Cluster.of(world)
    made.agent.join()
    return made


@pytest.fixture
def job(cluster: Cluster) -> Job:
    placed = cluster.place("train", status=JobStatus.running)
    cluster.world.rung.clear()
    return placed


def opened(
    world: World,
    who: User = ANN,
    role: ProjectRole | None = ProjectRole.user,
    token_hash: str = "",
    **target: Any,
) -> str:
    project = nouns.find(world.store, Project, keys.project(PROJECT))
    assert project is not None
    wanted = StreamTarget(**{"run_name": "train", "name": "ssh", **target})
    return open_stream(world.plane, who, project, role, wanted, token_hash)


def test_the_hosts_agent_is_told_at_once_and_dials_with_its_ticket(cluster: Cluster, job: Job, world: World) -> None:
    world.save(ANN, Member(project_id=PROJECT, user_id="u", role=ProjectRole.user))
    stream = opened(world, name="port:8000", since=7)
    assert world.rung == [INSTANCE]
    answer = cluster.agent.sync(running(job))
    (order,) = answer["streams"]
    ticket = order.pop("ticket")
    assert order == {"id": stream, "task": job.id, "target": "port:8000", "since": 7} and has_news(answer)
    again = cluster.agent.sync(running(job))
    assert "streams" not in again and not has_news(again)
    with pytest.raises(Forbidden):
        claim(world.plane, stream, cluster.agent.credential)
    claim(world.plane, stream, ticket)


@pytest.mark.parametrize(
    ("who", "role", "targets"),
    [
        (ANN, ProjectRole.user, {"logs", "ssh", "port:1"}),
        (BOB, ProjectRole.user, {"logs"}),
        (BOB, ProjectRole.manager, {"logs", "ssh", "port:1"}),
        (BOB, ProjectRole.admin, {"logs", "ssh", "port:1"}),
        (ROOT, None, {"logs", "ssh", "port:1"}),
    ],
)
def test_logs_are_for_members_and_the_rest_for_the_runs_user_and_managers(
    job: Job, world: World, who: User, role: ProjectRole | None, targets: set[str]
) -> None:
    for name in ("logs", "ssh", "port:1"):
        if name in targets:
            opened(world, who, role, name=name)
        else:
            with pytest.raises(Refused, match="Only its user and the managers of project main"):
                opened(world, who, role, name=name)


def test_a_caller_with_a_limit_cant_reach_a_job_that_has_a_token_without_one(job: Job, world: World) -> None:
    limited = ANN.with_(by_token="ci", limit=DailyLimit(id="t", token="ci", dollars=5))
    opened(world, limited)
    world.save(AccessToken(run_id=job.run_id, user_id="u", verbs=(), **TOKEN))  # type: ignore[arg-type]
    opened(world), opened(world, limited, name="logs")
    with pytest.raises(Refused, match=r"The access token ci has a limit of dollars a day.* have a token that has none"):
        opened(world, limited)


@pytest.mark.parametrize("status", [each for each in JobStatus if each is not JobStatus.running])
def test_a_job_that_doesnt_run_cant_be_reached(cluster: Cluster, world: World, status: JobStatus) -> None:
    cluster.place("train", status=status)
    with pytest.raises(Refused, match=rf"train-0-0 isn't running: it is {status.value}\."):
        opened(world)


def test_what_doesnt_exist_is_said(job: Job, world: World) -> None:
    with pytest.raises(NotFound, match="no run 'other'"):
        opened(world, run_name="other")
    with pytest.raises(NotFound, match="replica 0, job 1"):
        opened(world, job_num=1)
    for name in ("", "shell", "port:", "port:0", "port:65536", "port:٣", "port:000080", "port:1:2", "logs:1"):
        with pytest.raises(Invalid, match="`logs`, `ssh`, or a port as `port:8000`"):
            opened(world, name=name)


# --- a right that is lost ---------------------------------------------------------------------------------------------


@dataclass
class RecordedStreams:
    """Streams that keep how each is asked whether its user still has the right."""

    may: list[Callable[[], bool]] = field(default_factory=list)

    def open(self, instance_id: str, user: str, order: Mapping[str, Any], may: Callable[[], bool]) -> str:
        self.may.append(may)
        return str(len(self.may))

    def orders(self, instance_id: str) -> list[dict[str, Any]]:
        return []

    def claim(self, stream_id: str, ticket: str) -> None: ...


class People:
    """The run's user, a member who isn't, a manager and an admin, each with a stream to the log and one to a shell."""

    def __init__(self, world: World) -> None:
        self.world, self.streams = world, RecordedStreams()
        self.world.plane = replace(world.plane, streams=self.streams)
        self.names = {"ann": (ANN, ProjectRole.user), "bob": (BOB, ProjectRole.user), "eve": (EVE, ProjectRole.manager)}
        for user, role in self.names.values():
            self.save(user)
            self.save(Member(project_id=PROJECT, user_id=user.id, role=role))
        self.save(ROOT)
        self.opened = []
        for user, role in (*self.names.values(), (ROOT, None)):
            for target in ("logs", "ssh"):
                if user is not BOB or target == "logs":
                    opened(world, user, role, user.token_hash, name=target)
                    self.opened.append(f"{user.name} {target}")

    def save(self, noun: Noun) -> None:
        found = self.world.store.get(nouns.key_of(noun))
        object.__setattr__(noun, "version", 0 if found is None else found.version)
        self.world.store.commit([nouns.put(noun)])

    def left(self) -> set[str]:
        return {name for name, may in zip(self.opened, self.streams.may, strict=True) if may()}


ALL = {"ann logs", "ann ssh", "bob logs", "eve logs", "eve ssh", "root logs", "root ssh"}


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (None, set()),
        (ANN.with_(token_hash="other"), {"ann logs", "ann ssh"}),
        (ANN.with_(active=False), {"ann logs", "ann ssh"}),
        (BOB.with_(active=False), {"bob logs"}),
        (Member(project_id=PROJECT, user_id="e", role=ProjectRole.user), {"eve ssh"}),
        (Member(project_id=PROJECT, user_id="b", role=ProjectRole.admin), set()),
        (ROOT.with_(role=GlobalRole.user), {"root logs", "root ssh"}),
    ],
)
def test_a_right_that_is_lost_is_noticed(job: Job, world: World, change: Noun | None, lost: set[str]) -> None:
    people = People(world)
    assert people.left() == ALL
    if change is not None:
        people.save(change)
    assert people.left() == ALL - lost


def test_a_stream_ends_with_the_sign_on_that_it_was_asked_for_with(job: Job, world: World) -> None:
    people, now = People(world), world.clock.now()
    for hashed, lasts in (("short", 60), ("long", 600)):
        ends_at = now + lasts * SECOND
        people.save(SignOn(user_id="u", token_hash=hashed, provider="corp", created_at=now, ends_at=ends_at))
        opened(world, token_hash=hashed)
        people.opened.append(hashed)
    assert people.left() == {*ALL, "short", "long"}
    world.clock.pass_(61)
    assert people.left() == {*ALL, "long"}
    people.save(ANN.with_(signed_off_at=now + 1))
    assert people.left() == ALL


def test_so_is_a_member_who_was_removed_and_a_project_that_was_deleted(job: Job, world: World) -> None:
    people = People(world)
    world.store.commit([Delete(keys.member(PROJECT, "u"))])
    assert people.left() == ALL - {"ann logs", "ann ssh"}
    project = nouns.find(world.store, Project, keys.project(PROJECT))
    assert project is not None
    people.save(project.with_(deleted=True))
    assert people.left() == set()


def test_where_no_connection_lasts_there_are_no_streams(job: Job, world: World) -> None:
    world.plane = replace(world.plane, streams=None)
    with pytest.raises(NotSupported, match=r"can't carry streams\. Reach the host by SSH"):
        opened(world)
    with pytest.raises(NotSupported):
        claim(world.plane, "x", "y")
