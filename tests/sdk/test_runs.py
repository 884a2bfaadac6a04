"""Runs through the clients: what a program sees from the first call to the last line of the log."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dstack_serverless import AlreadyExists, Forbidden, Invalid, NotFound, Refused, RunEnded, WaitedTooLong
from dstack_serverless.configurations import Task
from tests.sdk.conftest import User, waited
from tests.world.embedded import EmbeddedSite


def task(name: str, *commands: str, **more: Any) -> dict[str, Any]:
    return {"type": "task", "name": name, "commands": [*commands], **more}


@pytest.mark.slow
def test_from_a_dict_to_the_last_line_of_its_log(user: User) -> None:
    assert user.runs.plan(task("hello", "echo one"))["action"] == "create"
    run = user.runs.apply(task("hello", "echo one", "sleep 3", "echo two"))
    assert (run["run_spec"]["run_name"], run["status"]) == ("hello", "submitted")
    assert user.runs.wait("hello", "running")["status"] == "running"
    assert b"".join(user.runs.logs("hello", follow=True)) == b"one\ntwo\n"
    assert user.runs.wait("hello", "done")["status"] == user.runs.get("hello")["status"] == "done"
    assert b"".join(user.runs.logs("hello")) == b"one\ntwo\n"
    assert b"submitted" in b"".join(user.runs.logs("hello", diagnose=True)).lower()
    assert [run["run_spec"]["run_name"] for run in user.runs.list()] == ["hello"]
    assert [*user.runs.list(only_active=True)] == [] and len(user.runs.list(every_project=True, limit=1)) == 1
    user.runs.delete("hello")
    with pytest.raises(NotFound) as gone:
        user.runs.get("hello")
    assert gone.value.code == "resource_not_exists" and gone.value.status == 400


@pytest.mark.slow
def test_a_model_or_a_file_does_as_well(user: User) -> None:
    made = user.runs.apply(Task(name="modelled", commands=("echo $WHO",), env={"WHO": "a model"}, priority=3))
    assert made["run_spec"]["configuration"] == {
        **task("modelled", "echo $WHO"),
        "env": {"WHO": "a model"},
        "priority": 3,
    }
    (user.home / "data.txt").write_text("data")
    file = user.home / "task.dstack.yml"
    file.write_text("{type: task, name: written, commands: ['echo $WHO'], env: [WHO], files: [data.txt]}")
    with pytest.raises(Invalid, match="WHO"):
        user.runs.apply(file)
    user.env["WHO"] = "me"
    run = user.runs.apply(file)
    assert run["run_spec"]["configuration"]["env"] == {"WHO": "me"} and len(run["run_spec"]["file_archives"]) == 1
    assert user.runs.wait("written", "done")["status"] == "done"
    assert b"".join(user.runs.logs("written")) == b"me\n"
    file.write_text("{type: task, name: long, commands: ['sleep 600']}")
    user.runs.apply(file)
    assert user.runs.apply(task("long", "sleep 600", priority=1))["deployment_num"] == 1


def test_a_dict_that_names_what_this_machine_has_is_completed_here(user: User) -> None:
    user.env["WHO"] = "me"
    data = user.home / "data.txt"
    data.write_text("data")
    run = user.runs.submit(task("whose", "echo $WHO", env=["WHO"], files=[f"{data}:/data.txt"]))
    assert run["run_spec"]["configuration"]["env"] == {"WHO": "me"} and len(run["run_spec"]["file_archives"]) == 1
    with pytest.raises(Invalid) as refused:
        user.runs.submit(task("none", "true", files=["nothing.txt"]))
    (problem,) = refused.value.problems
    assert problem.path == "files.0.local_path" and (problem.file, problem.line) == ("", 0)


def test_a_mistake_is_named_with_its_place(user: User) -> None:
    with pytest.raises(Invalid) as refused:
        user.runs.apply({"type": "task", "comands": ["true"], "resources": {"cpu": "many"}})
    places = {problem.path for problem in refused.value.problems}
    assert places == {"comands", "resources.cpu"}
    assert "commands" in str(refused.value)


@pytest.mark.slow
def test_a_live_run_is_changed_or_refused(user: User) -> None:
    user.runs.apply(task("long", "sleep 600"))
    user.runs.wait("long", "running")
    assert user.runs.apply(task("long", "sleep 600", priority=7))["deployment_num"] == 1
    with pytest.raises(AlreadyExists) as refused:
        user.runs.submit(task("long", "sleep 700"))
    assert "commands" in refused.value.message and refused.value.code == "resource_exists"
    user.runs.stop("long", abort=True)
    assert user.runs.wait("long")["status"] == "terminated"


@pytest.mark.slow
def test_waiting_ends_with_the_run_or_with_ones_patience(user: User) -> None:
    user.runs.apply(task("fails", "exit 3"))
    with pytest.raises(RunEnded) as ended:
        user.runs.wait("fails", "done")
    assert ended.value.run["status"] == "failed" and "fails failed: " in str(ended.value)
    user.runs.apply(task("slow", "sleep 600"))
    begun = user.site.time.seconds()
    with pytest.raises(WaitedTooLong, match="after 30 s"):
        user.runs.wait("slow", "done", timeout=30)
    assert 30 <= user.site.time.seconds() - begun < 35


def test_many_are_submitted_and_one_mistake_doesnt_keep_the_others(user: User) -> None:
    configurations = [task(f"one-{number}", "true") for number in range(5)]
    configurations[2]["commands"] = "no list"
    done = user.runs.submit_many(configurations, at_once=1)
    assert [type(each) for each in done] == [dict, dict, Invalid, dict, dict]
    assert [each["run_spec"]["run_name"] for each in done if isinstance(each, dict)] == [
        *("one-0", "one-1", "one-3", "one-4")
    ]


def test_who_may_not_is_told_so(user: User) -> None:
    stranger = User(user.kind, user.site, user.home, token="nobodys")
    with pytest.raises(Forbidden) as refused:
        stranger.runs.get("hello")
    assert refused.value.status == 403
    nowhere = User(user.kind, user.site, user.home, project="nothing")
    with pytest.raises(Exception, match="nothing") as unknown:
        nowhere.runs.get("hello")
    assert unknown.value.status == 404  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_job_that_isnt_there(user: User) -> None:
    user.runs.apply(task("hello", "true"))
    user.runs.wait("hello")
    with pytest.raises(NotFound, match="no job 3"):
        user.runs.logs("hello", job=3)
    assert user.runs.metrics("hello").keys() == {"metrics"}


@pytest.mark.slow
def test_attaching_ends_with_the_run_or_with_ones_patience(user: User) -> None:
    user.runs.apply(task("hello", "true"))
    with pytest.raises(WaitedTooLong, match="hello could not be attached to in 0 s"):
        attach(user, timeout=0)  # meanwhile no time passes in the world, so the run waits
    user.runs.wait("hello")
    with pytest.raises(RunEnded, match="hello done"):
        attach(user)
    with pytest.raises(NotFound):
        attach(user, name="nothing")


def test_attaching_that_is_given_up_ends_its_thread(site: EmbeddedSite, tmp_path: Path) -> None:
    user = User("async", site, tmp_path)
    user.runs.submit(task("hello", "true"))
    attachment = user.client.runs.attach("hello")  # no time passes in the world, so the run waits

    async def given_up() -> None:
        entering = asyncio.create_task(attachment.__aenter__())
        while attachment._thread is None or attachment._thread.ident is None:
            await asyncio.sleep(0)
        entering.cancel()
        await asyncio.wait([entering])
        assert entering.cancelled()

    asyncio.run(given_up())  # ends when the thread that waited for the attachment has
    assert not attachment._thread.is_alive()
    with pytest.raises(Refused, match="closed"):
        attachment.__enter__()


def test_whatever_ends_an_attachment_reaches_who_waits(user: User) -> None:
    user.client.core = replace(user.client.core, project="")
    with pytest.raises(Refused, match="No project"):
        attach(user)


def attach(user: User, name: str = "hello", **options: Any) -> None:
    attachment = user.client.runs.attach(name, **options)
    if user.kind == "sync":
        with attachment:
            raise AssertionError("it was attached to")

    async def attached() -> None:
        async with attachment:
            raise AssertionError("it was attached to")

    waited(attached())
