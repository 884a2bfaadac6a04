"""What the agent writes down of its tasks and what it reports of them, without any process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel.spool import SpoolReader
from chalicelib.agent.kernel.task_runtime import CONTAINER, TaskError
from chalicelib.agent.kernel.tasks import take_lock
from chalicelib.agent.program.roster import Roster
from tests.agent.desk import CARDS, Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_task_is_written_down_with_what_was_chosen_for_it(desk: Desk) -> None:
    assert desk.create(commands=["a"]) == {
        "runtime": "docker",
        "socket": "/d.sock",
        "users": "",
        "gpus": [],
        "host_port": None,
        "spec": {"commands": ["a"], "gpu_vendor": "nvidia", "gpu_buses": []},
    }
    assert desk.roster.tasks() == ["t"]
    assert desk.roster.report("t")["state"] == "preparing"
    assert desk.create("u", runtime="process")["runtime"] == "process"


def test_only_a_task_that_takes_logins_gets_other_keys(desk: Desk) -> None:
    desk.create("closed")
    assert not desk.roster.rekey("closed", "2", ["key"]) and not desk.roster.rekey("gone", "2", ["key"])
    desk.create("open")
    desk.roster.folder("open").write_access("1", ["old"])
    assert desk.roster.rekey("open", "2", ["key"])
    assert desk.roster.folder("open").access() == {"access": "2", "keys": ["key"]}


@pytest.mark.parametrize("task", ["", ".", "..", "a/b", "/a"])
def test_an_id_that_would_leave_the_folder_is_refused(desk: Desk, task: str) -> None:
    with pytest.raises(TaskError, match="id can't be") as caught:
        desk.create(task)
    assert caught.value.reason == "executor_error"


def test_a_runtime_that_isnt_here_ends_the_task_in_words(desk: Desk) -> None:
    desk.create(runtime="vm")
    report = desk.roster.report("t")
    assert (report["state"], report["reason"]) == ("exited", "executor_error")
    assert report["message"] == "this machine has no vm runtime; it has: docker, process"
    assert report["at"] > 1_700_000_000_000_000 and desk.roster.over("t")


def test_gpus_are_given_to_one_task_each_until_it_is_over(desk: Desk) -> None:
    assert given(desk, "a", 0) == []
    assert given(desk, "b", 3) == ["GPU-0", "GPU-1", "GPU-2"]
    assert given(desk, "c", 1) == ["GPU-3"]
    assert given(desk, "d", 1) == []
    assert desk.roster.report("d")["message"] == "1 GPUs wanted, 0 of 4 free here"
    desk.state("b", state="exited")
    assert given(desk, "e", 2) == ["GPU-0", "GPU-1"]


def given(desk: Desk, task: str, wanted: int, cards: list[dict[str, Any]] | None = None, **spec: Any) -> list[str]:
    desk.roster.create(task, {"gpus": wanted, **spec}, CARDS if cards is None else cards)
    return list(desk.roster.folder(task).launch()["gpus"])


def test_all_gpus_or_named_ones_are_given_whoever_has_them(desk: Desk) -> None:
    assert given(desk, "a", 4) == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    assert given(desk, "b", -1) == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    assert given(desk, "c", 1, gpu_devices=["GPU-2", 7]) == ["GPU-2", "7"]


def test_the_vendor_is_the_machines(desk: Desk) -> None:
    given(desk, "a", 1, cards=[{"id": "0", "vendor": "amd", "bus": "0000:05:00.0"}])
    spec = desk.roster.folder("a").launch()["spec"]
    assert (spec["gpu_vendor"], spec["gpu_buses"]) == ("amd", ["0000:05:00.0"])
    given(desk, "b", 0, cards=[])
    assert desk.roster.folder("b").launch()["spec"]["gpu_vendor"] == ""


def test_a_creation_that_was_cut_short_is_cleared_away(desk: Desk) -> None:
    desk.create("whole")
    Path(desk.roster.folder("half").path).mkdir()
    assert desk.roster.tasks() == ["whole"]
    assert not Path(desk.roster.folder("half").path).exists()


def test_a_creation_that_failed_is_made_again(desk: Desk) -> None:
    Path(desk.roster.folder("t").path).mkdir(parents=True)
    assert desk.create()["runtime"] == "docker"


def test_a_report_is_what_the_state_says_of_it(desk: Desk) -> None:
    desk.create()
    pull = {"downloaded_bytes": 1}
    known = {"at": 5, "exit_status": 0, "reason": "r", "message": "m", "username": "u", "working_dir": "/w"}
    desk.state(state="running", pull=pull, secret="no", log_end=3, **known)
    assert desk.roster.report("t") == {"id": "t", "state": "running", "pull": pull, **known}
    desk.state(state="pulling", message=None)
    assert desk.roster.report("t") == {"id": "t", "state": "pulling"}
    assert [folder.task for folder in desk.roster.running()] == []
    desk.state(state="running")
    assert [folder.task for folder in desk.roster.running()] == ["t"]


def test_a_stop_is_asked_once_and_an_abort_overrides_it(desk: Desk) -> None:
    desk.create()
    desk.roster.stop("t", 5)
    desk.roster.stop("t", 60)
    assert desk.roster.folder("t").request() == {"stop": True, "grace": 5}
    desk.roster.abort("t")
    assert desk.roster.folder("t").request() == {"abort": True}


def test_a_task_without_a_supervisor_is_orphaned_until_it_is_over(desk: Desk) -> None:
    desk.create()
    assert desk.roster.orphaned("t")
    held = desk.roster.folder("t").take_lock()
    assert held is not None and not desk.roster.orphaned("t")
    os.close(held)
    desk.state(state="exited")
    assert not desk.roster.orphaned("t")


def test_remove_takes_what_the_tasks_own_runtime_left(desk: Desk) -> None:
    desk.create("a", runtime="process")
    desk.create("b")
    desk.create("c", runtime="vm")
    for task in ("a", "b", "c", "never there"):
        desk.roster.remove(task)
    assert (desk.runtimes["process"].removed, desk.runtimes["docker"].removed) == (["a"], ["b"])
    assert desk.roster.tasks() == []


@pytest.mark.slow
def test_a_launch_brings_archives_that_arent_there(desk: Desk) -> None:
    desk.create(files=[{"url": "/one"}, {"url": "/two"}])
    fetched: list[str] = []

    def fetch(url: str, place: str) -> None:
        fetched.append(url)
        Path(place).write_text(url)

    Path(desk.roster.folder("t").files).mkdir()
    (Path(desk.roster.folder("t").files) / "0").write_text("here already")
    desk.roster.launch("t", fetch)
    assert fetched == ["/two"]
    assert sorted(path.name for path in Path(desk.roster.folder("t").files).iterdir()) == ["0", "1"]


@pytest.mark.slow
def test_archives_of_a_task_that_is_to_end_arent_fetched(desk: Desk) -> None:
    desk.create(files=[{"url": "/one"}])
    desk.roster.abort("t")
    desk.roster.launch("t", lambda url, place: pytest.fail("nobody needs it any more"))


def test_what_is_over_isnt_launched(desk: Desk) -> None:
    desk.create(files=[{"url": "/one"}])
    desk.state(state="exited")
    desk.roster.launch("t", lambda url, place: pytest.fail("nobody needs it any more"))
    assert not (Path(desk.roster.folder("t").path) / "supervisor.log").exists()


def test_a_disk_with_room_is_no_news(desk: Desk) -> None:
    assert desk.roster.disk_full() is False


def test_a_tasks_processes_stand_below_its_supervisor(desk: Desk) -> None:
    desk.create()
    assert desk.roster.roots("t") == []
    (Path(desk.roster.folder("t").path) / "pid").write_text("4321")
    assert desk.roster.roots("t") == [4321]


def test_what_runs_a_task_is_known_while_it_runs(desk: Desk) -> None:
    desk.create(runtime="process")
    with pytest.raises(OSError, match="the job doesn't run"):
        desk.roster.runtime("t")
    desk.state(state="running")
    runtime, folder = desk.roster.runtime("t")
    assert runtime is desk.runtimes["process"] and folder.task == "t"
    desk.create("u", runtime="vm")
    desk.state("u", state="running")
    for task in ("u", "none"):
        with pytest.raises(OSError, match="the job doesn't run"):
            desk.roster.runtime(task)


def test_which_tasks_are_in_the_machines_own_network(desk: Desk) -> None:
    desk.runtimes["docker"].isolation = CONTAINER
    for task, spec in (
        ("plain", {"runtime": "process"}),
        ("contained", {"runtime": "docker"}),
        ("node", {"runtime": "docker", "network": "host"}),
        ("unknown", {"runtime": "vm", "network": "host"}),
    ):
        desk.create(task, **spec)
    assert [desk.roster.on_host_network(task) for task in ("plain", "contained", "node", "unknown")] == [
        True,
        False,
        True,
        False,
    ]


def test_who_may_log_in(desk: Desk) -> None:
    desk.create("a", authorized_keys=["ssh-ed25519 AAAA"])
    desk.create("b", authorized_keys=[])
    assert [desk.roster.takes_logins(task) for task in ("a", "b", "none")] == [True, False, False]


def test_what_a_tasks_processes_stand_below(desk: Desk) -> None:
    desk.create()
    assert desk.roster.roots("t") == []
    folder = Path(desk.roster.folder("t").path)
    (folder / "pid").write_text("321\n")
    assert desk.roster.roots("t") == [321]
    held = take_lock(str(folder / "sessions.lock"))
    assert held is not None
    (folder / "sessions.lock").write_text("123\n")
    assert desk.roster.roots("t") == [123, 321]
    os.close(held)
    assert desk.roster.roots("t") == [321], "its SSH server has ended"


def test_each_task_has_its_share_of_the_room_for_output(desk: Desk) -> None:
    """A gigabyte for all of them; no task has less than 32 MiB."""
    desk.create()
    quotas: list[int] = []

    class Log(SpoolReader):
        def shrink_to(self, most: int, at: int) -> int:
            quotas.append(most)
            return 7

    log = Log(desk.roster.folder("t").log)
    desk.roster.log = lambda task: log  # type: ignore[method-assign]
    assert [desk.roster.cap_log("t", tasks) for tasks in (0, 1, 4, 1000)] == [7] * 4
    assert quotas == [1 << 30, 1 << 30, 1 << 28, 1 << 25]


@pytest.mark.slow
def test_a_supervisor_that_fails_three_times_ends_its_task(desk: Desk) -> None:
    """Unless it got as far as a state, or another lives by now."""
    desk.roster = Roster(
        str(desk.data), dict(desk.runtimes), "docker", lambda: str(desk.data / "no program"), "/d.sock"
    )
    for task in ("never", "began", "lives"):
        desk.create(task)
    desk.state("began", state="pulling")
    held = desk.roster.folder("lives").take_lock()
    for failures in (1, 2, 3):
        for task in ("never", "began", "lives"):
            desk.roster.launch(task, lambda url, place: None)
        for _, child in desk.roster._launched:
            child.wait()
        desk.roster.reap()
        assert desk.roster._launched == [] and desk.roster.ended("never") is (failures == 3)
    report = desk.roster.report("never")
    assert report["message"].startswith("the task's supervisor fails to start on this machine: ")
    assert "no program" in report["message"]
    assert [desk.roster.report(task)["state"] for task in ("began", "lives")] == ["pulling", "preparing"]
    assert held is not None
    os.close(held)


def test_a_task_that_is_over_is_launched_no_more(desk: Desk) -> None:
    desk.create()
    desk.state(state="exited")
    desk.roster.launch("t", lambda url, place: None)
    assert not (Path(desk.roster.folder("t").path) / "supervisor.log").exists()


def test_credentials_are_kept_apart_in_a_folder_that_others_may_only_pass(desk: Desk) -> None:
    repo = {"url": "https://git/x", "oauth_token": "secret"}
    (desk.data / "tasks" / "again").mkdir(parents=True)
    for task in ("t", "again"):  # the server asks again for a task that wasn't written down whole
        launch = desk.create(task, repo=repo)
        assert "secret" not in str(launch["spec"]["repo"].values()) and desk.roster.tasks().count(task) == 1
        credentials = Path(desk.roster.folder(task).path) / "repository-credentials"
        assert "secret" in credentials.read_text() and credentials.stat().st_mode & 0o777 == 0o600
    assert Path(desk.roster.folder("t").path).stat().st_mode & 0o777 == 0o711


def test_a_full_disk_is_told_of_tasks_that_still_have_something_to_write(desk: Desk) -> None:
    desk.roster.disk_full = lambda: True  # type: ignore[method-assign]
    desk.create("runs")
    desk.create("over")
    desk.state("runs", state="running")
    desk.state("over", state="exited", message="m")
    messages = [desk.roster.report(task).get("message") for task in ("runs", "over")]
    assert messages == [f"the disk under {desk.data} is full; the task's output waits for room", "m"]
