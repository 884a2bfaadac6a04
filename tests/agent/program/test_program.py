"""The agent's loop with a real server on loopback, and a roster that starts no process: tests play the supervisors."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel import networks
from chalicelib.agent.kernel.log import log
from chalicelib.agent.kernel.spool import SpoolWriter
from chalicelib.agent.kernel.task_runtime import CONTAINER, TaskError, TaskUsage
from chalicelib.agent.kernel.tasks import make_pipe
from chalicelib.agent.program import gpu_tools
from chalicelib.agent.program.inventory import Inventory, Runner
from chalicelib.agent.program.periodic import Intervals, Periodic
from chalicelib.agent.program.program import AgentProgram, new_session
from chalicelib.agent.program.roster import Fetch, Roster
from tests.agent.desk import Runtime
from tests.agent.server import PATIENCE, Plane, Server


class Played(Roster):
    """A task that is launched counts as supervised from then on; its archives are fetched."""

    def __init__(self, data: Path) -> None:
        self.played = Runtime("played")
        super().__init__(str(data), {"played": self.played}, "played", str, "")
        self.launched: list[str] = []
        self.held: dict[str, int | None] = {}
        self.logins_ended: list[list[str]] = []
        self.lingering = 0  # how often logins still count as alive
        self.most: int | None = None  # bytes of output that may wait
        self.dropped = 0

    def launch(self, task: str, fetch: Fetch) -> None:
        self.launched.append(task)
        for number, archive in enumerate(self.folder(task).launch()["spec"].get("files") or ()):
            Path(self.folder(task).files).mkdir(exist_ok=True)
            fetch(archive["url"], str(Path(self.folder(task).files) / str(number)))
        self.held[task] = self.folder(task).take_lock()
        self.supervisor_writes(task, state="running")

    def end_logins(self, tasks: list[str]) -> None:
        self.logins_ended.append(tasks)

    def over(self, task: str) -> bool:
        self.lingering -= 1
        return self.lingering < 0 and super().over(task)

    def cap_log(self, task: str, tasks: int) -> int:
        if self.most is None:
            return super().cap_log(task, tasks)
        dropped = self.log(task).shrink_to(self.most, 1)
        self.dropped += dropped
        return dropped

    def supervisor_writes(self, task: str, **state: Any) -> None:
        """As its supervisor would."""
        self.folder(task).write_state(state)
        self.folder(task).notify_agent()


class Logs:
    """What is served of the tasks' logs."""

    def __init__(self) -> None:
        self.served, self.unserved = list[str](), list[str]()
        self.answers: list[Any] = []  # of the first tries
        self.read = set[str]()

    def opener(self, task: str, order: dict[str, Any]) -> Any:
        raise AssertionError("nobody dials")

    def grew(self, task: str) -> None:
        """Nobody reads."""

    def serve(self, task: str, network: int | None, roots: Any) -> bool:
        self.served.append(task)
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, OSError):
            raise answer
        return bool(answer)

    def unserve(self, task: str) -> None:
        self.unserved.append(task)

    def reading(self, task: str) -> bool:
        return task in self.read


class Desk:
    def __init__(self, data: Path) -> None:
        self.data, self.plane = data, Plane()
        self.server = Server(self.plane)
        (data / "tasks").mkdir()
        (data / "token").write_text("token\n")
        self.address(self.server.url)
        self.roster, self.logs = Played(data), Logs()
        self.program: AgentProgram | None = None
        self.thread: threading.Thread | None = None

    def address(self, url: str) -> None:
        (self.data / "server").write_text(url + "\n")

    def begin(self, *how: Any, **intervals: Any) -> None:
        self.program = self.made(*how, **intervals)
        self.program.logs = self.logs  # type: ignore[assignment]
        self.thread = threading.Thread(target=self.program.run)
        self.thread.start()

    def made(
        self,
        tool: Runner = lambda argv: (127, ""),
        wait: float = 5.0,
        notices: Any = None,
        again: float = 0,
        **intervals: float,
    ) -> AgentProgram:
        """`again`: so many times as long it waits after a failure."""
        self.session = session = new_session(str(self.data), "i-1", self.roster, "1.0", wait)
        if again:
            session._jitter = lambda: again
        runtimes = {"played": self.roster.played}
        inventory = Inventory(str(self.data), tool)
        intervals = {"check": 1000.0, **intervals}  # no check unless a test sets it
        return AgentProgram(
            str(self.data), "i-1", session, self.roster, dict(runtimes), inventory, Intervals(**intervals), notices
        )

    def run(self, task: str = "t", **spec: Any) -> None:
        self.plane.want(task, "run", spec={"id": task, **spec})

    def state(self, task: str, state: str) -> dict[str, Any]:
        self.plane.until(lambda: self.plane.reports.get(task, {}).get("state") == state)
        return self.plane.reports[task]

    def wait(self, truth: Any) -> None:
        """For what nobody tells the server of."""
        pause, left = threading.Event(), int(PATIENCE / 0.01)
        while not truth():
            left -= 1
            assert left, "waited in vain"
            pause.wait(0.01)

    def end(self) -> None:
        if self.program is not None and self.thread is not None:
            self.program.stop()
            self.thread.join(PATIENCE)
            assert not self.thread.is_alive()
        self.server.stop()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.end()


def test_a_task_from_its_start_to_its_removal(desk: Desk) -> None:
    desk.begin()
    desk.run(commands=["x"])
    desk.state("t", "running")
    assert (desk.roster.launched, desk.roster.folder("t").launch()["spec"]["commands"]) == (["t"], ["x"])
    spool = SpoolWriter(desk.roster.folder("t").log)
    spool.append(1, b"one ")
    desk.roster.folder("t").notify_agent()
    desk.plane.until(lambda: desk.plane.logs.get("t") == b"one ")
    spool.append(2, b"two")
    desk.roster.supervisor_writes("t", state="exited", exit_status=3, reason="r", log_end=7)
    assert desk.plane.exited("t")["exit_status"] == 3
    assert desk.plane.logs["t"] == b"one two"
    desk.plane.want("t", "remove")
    desk.wait(lambda: not Path(desk.roster.folder("t").path).exists())
    desk.plane.until(lambda: "t" not in desk.plane.wants)
    assert (desk.roster.played.removed, desk.roster.launched) == (["t"], ["t"])
    assert (desk.logs.served, desk.logs.unserved) == ([], ["t"])
    spool.close()


def test_facts_and_credential(desk: Desk) -> None:
    desk.begin()
    desk.plane.until(lambda: desk.plane.facts)
    assert desk.plane.facts["runtimes"] == ["played"] and desk.plane.facts["cpus"] >= 1
    desk.wait((desk.data / "credential").exists)
    assert (desk.data / "credential").read_text() == desk.plane.credential
    assert (desk.data / "credential").stat().st_mode & 0o777 == 0o600


def test_a_wake_up_that_was_lost_delays_news_until_the_next_look(desk: Desk) -> None:
    desk.roster.played.used = TaskUsage(1, 3, 2)
    desk.begin(check=0.01, wait=1000.0)
    desk.run()
    desk.state("t", "running")
    desk.roster.folder("t").write_state({"state": "exited", "reason": "r", "log_end": 0})
    desk.state("t", "exited")
    assert desk.plane.metrics == [], "it isn't time to measure"
    assert desk.roster.launched == ["t"], "once, as it has a supervisor"


def test_running_tasks_are_measured_from_time_to_time(desk: Desk) -> None:
    desk.roster.played.used = TaskUsage(1, 3, 2)
    desk.begin(check=0.01, metrics=0.0, wait=0.1)  # what was measured goes with the next message
    desk.run()
    desk.plane.until(lambda: len(desk.plane.metrics) > 1)
    assert {sample["task"] for sample in desk.plane.metrics} == {"t"}


def test_facts_are_found_again_from_time_to_time(desk: Desk) -> None:
    answers = iter([(127, "")] * len(gpu_tools.TOOLS))  # the first time the tools aren't there yet
    card = (0, "GPU-1, NVIDIA L4, 23034, 550.54\n")
    desk.begin(lambda argv: next(answers, card if argv[0] == "nvidia-smi" else (127, "")), facts=0.0)
    desk.plane.until(lambda: desk.plane.facts.get("gpus"))


@pytest.mark.parametrize(
    ("want", "more", "request_"),
    [("stop", {"grace": 7}, {"stop": True, "grace": 7}), ("abort", {}, {"abort": True})],
)
def test_what_the_server_wants_is_written_down(
    desk: Desk, want: str, more: dict[str, Any], request_: dict[str, Any]
) -> None:
    desk.begin()
    desk.run()
    desk.state("t", "running")
    desk.plane.want("t", want, **more)
    desk.wait(lambda: desk.roster.folder("t").request() == request_)


def test_tasks_of_an_earlier_agent_are_found_and_those_without_a_supervisor_launched(desk: Desk) -> None:
    for task in ("over", "orphan", "kept"):
        desk.roster.create(task, {}, [])
    spool = SpoolWriter(desk.roster.folder("over").log)
    spool.append(1, b"four")
    spool.close()
    desk.roster.folder("over").write_state({"state": "exited", "reason": "r"})
    desk.roster.folder("kept").write_state({"state": "running"})
    desk.roster.held["kept"] = desk.roster.folder("kept").take_lock()
    desk.begin()
    assert desk.plane.exited("over")["log_end"] == 4 and desk.plane.logs["over"] == b"four"
    desk.state("kept", "running")
    desk.state("orphan", "running")
    assert desk.roster.launched == ["orphan"]
    desk.wait(lambda: desk.roster.played.swept)
    assert desk.roster.played.swept == [{"over", "orphan", "kept"}], "all but what is theirs is deleted"


def test_a_task_that_cant_be_written_down_is_over_in_words(desk: Desk) -> None:
    desk.begin()
    desk.run("a/b")
    report = desk.state("a/b", "exited")
    assert (report["reason"], report["message"]) == ("executor_error", "a task's id can't be 'a/b'")


def test_a_task_for_which_there_is_no_room_is_over_in_words(desk: Desk) -> None:
    def create(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    desk.roster.create = create  # type: ignore[method-assign]
    desk.begin()
    desk.run()
    report = desk.state("t", "exited")
    assert report["reason"] == "executor_error"
    assert report["message"] == "the task can't be stored: [Errno 28] No space left on device"


def test_archives_are_there_before_a_task_starts(desk: Desk) -> None:
    desk.plane.archives["/agent/files/1"] = b"content"
    desk.begin()
    desk.wait((desk.data / "credential").exists)
    desk.run(files=[{"url": "/agent/files/1"}])
    desk.state("t", "running")
    (archive,) = Path(desk.roster.folder("t").files).iterdir()  # and nothing half fetched is left
    assert (archive.name, archive.read_bytes()) == ("0", b"content")
    assert desk.roster.launched == ["t"]
    desk.roster.supervisor_writes("t", state="exited", reason="r", log_end=0)
    desk.plane.exited("t")
    desk.plane.want("t", "remove")
    desk.wait(lambda: not Path(desk.roster.folder("t").path).exists())


def test_an_archive_that_isnt_there_ends_the_task_in_words(desk: Desk) -> None:
    desk.begin()
    desk.wait((desk.data / "credential").exists)
    desk.run(files=[{"url": "/agent/files/none"}])
    report = desk.state("t", "exited")
    assert report["reason"] == "executor_error"
    assert report["message"].startswith("files: /agent/files/none can't be fetched: HTTP 404")


def test_a_server_that_moved_is_followed(desk: Desk) -> None:
    desk.address("http://127.0.0.1:9")
    desk.begin(again=1e6)  # of its own accord it would hardly try again
    desk.wait(lambda: desk.session._failures)
    desk.address(desk.server.url)
    desk.plane.until(lambda: desk.plane.facts)
    desk.run()
    desk.state("t", "running")


def test_a_redirection_to_a_server_that_has_taken_over_is_followed(desk: Desk) -> None:
    successor, first = Plane(), desk.plane
    successor.token = first.credential  # it has the records, so it knows the agent
    successor_server = Server(successor)
    desk.begin(again=1e6)  # of its own accord it would hardly try again
    first.until(lambda: first.facts)
    desk.run()
    desk.state("t", "running")
    successor.want("t", "run", spec={"id": "t"})
    with first.news:
        first.moved_to = successor_server.url
        first.news.notify_all()
    desk.session.hurry()
    successor.until(lambda: successor.reports.get("t", {}).get("state") == "running")
    assert (desk.data / "server").read_text() == successor_server.url + "\n"
    successor_server.stop()


def test_a_token_that_was_replaced_is_used(desk: Desk) -> None:
    (desk.data / "token").write_text("wrong\n")
    desk.begin()
    desk.plane.until(lambda: desk.plane.messages)
    (desk.data / "token").write_text("token\n")
    desk.plane.until(lambda: desk.plane.facts)


def test_a_token_that_was_taken_away_is_still_known(desk: Desk) -> None:
    desk.address("http://127.0.0.1:9")
    desk.begin()
    (desk.data / "token").unlink()
    desk.address(desk.server.url)
    desk.plane.until(lambda: desk.plane.facts)


def test_the_end_of_an_agent_ends_the_logins_of_ended_tasks_and_waits_for_them(desk: Desk) -> None:
    desk.begin()
    for task in ("stays", "ends"):
        desk.run(task)
        desk.state(task, "running")
    desk.roster.supervisor_writes("ends", state="exited", reason="r", log_end=0)
    desk.plane.exited("ends")
    desk.roster.lingering = 2
    assert desk.program is not None and desk.thread is not None
    desk.program.stop()
    desk.thread.join(PATIENCE)
    assert desk.roster.logins_ended == [["ends"]]
    assert desk.roster.lingering == -1, "asked until the third time"


def test_nothing_slow_holds_up_the_end_of_an_agent(desk: Desk) -> None:
    sweeping, free = threading.Event(), threading.Event()

    def sweep(known: set[str]) -> None:
        sweeping.set()
        free.wait(10 * PATIENCE)

    desk.roster.played.sweep = sweep  # type: ignore[method-assign]
    desk.begin()
    assert sweeping.wait(PATIENCE) and desk.program is not None and desk.thread is not None
    desk.program.stop()
    desk.thread.join(PATIENCE)
    held_up = desk.thread.is_alive()
    free.set()
    assert not held_up


@pytest.mark.slow
def test_a_supervisor_that_cant_start_ends_its_task_in_words(desk: Desk) -> None:
    def launch(task: str, fetch: Fetch) -> None:
        Roster.launch(desk.roster, task, fetch)  # with a program that there isn't

    desk.roster.launch = launch  # type: ignore[method-assign]
    desk.begin(check=0.01)
    desk.run()
    report = desk.state("t", "exited")
    assert report["message"].startswith("the task's supervisor fails to start on this machine: ")


def test_output_that_waits_too_long_is_dropped_and_the_rest_is_sent(desk: Desk) -> None:
    desk.begin(check=0.01)
    desk.run()
    desk.state("t", "running")
    desk.address("http://127.0.0.1:9")
    spool = SpoolWriter(desk.roster.folder("t").log, segment_bytes=100)
    for number in range(10):
        spool.append(number, b"%d" % number * 50)
    desk.roster.most = 300
    desk.wait(lambda: desk.roster.dropped)
    desk.roster.most = None
    desk.roster.supervisor_writes("t", state="exited", reason="r")
    desk.address(desk.server.url)
    report = desk.plane.exited("t")
    assert desk.plane.logs["t"].endswith(b"9" * 50) and report["log_end"] == len(desk.plane.logs["t"]) < 500
    spool.close()


@pytest.mark.slow
def test_output_that_the_server_never_takes_is_left_out(desk: Desk) -> None:
    desk.begin()
    desk.run()
    desk.state("t", "running")
    desk.plane.poison = b"poison"
    spool = SpoolWriter(desk.roster.folder("t").log)
    spool.append(1, b"poison")
    desk.roster.folder("t").notify_agent()
    desk.wait(lambda: desk.roster.log("t").end() != 6)
    spool.append(2, b"good")
    desk.roster.supervisor_writes("t", state="exited", reason="r")
    report = desk.plane.exited("t")
    assert desk.plane.logs["t"].endswith(b"good") and report["log_end"] == len(desk.plane.logs["t"])
    spool.close()


def test_much_output_is_put_where_the_server_says(desk: Desk) -> None:
    desk.plane.log_put, desk.plane.store = 100, desk.server.url
    desk.begin()
    desk.run()
    desk.state("t", "running")
    spool = SpoolWriter(desk.roster.folder("t").log)
    spool.append(1, b"x" * 500)
    desk.roster.supervisor_writes("t", state="exited", reason="r")
    report = desk.plane.exited("t")
    assert desk.plane.logs["t"] == b"x" * 500 and report["log_end"] == 500
    assert desk.plane.objects.keys() == {"t"}
    spool.close()


def test_what_is_wrong_with_the_machine_is_told(desk: Desk) -> None:
    problems = ["no answer"]
    desk.roster.played.problem = lambda: problems[0]  # type: ignore[method-assign]
    desk.begin(check=0.01, health=0.0)
    desk.plane.until(lambda: desk.plane.health)
    assert [each["status"] for each in desk.plane.health or ()] == ["failure"]
    problems[0] = ""
    desk.plane.until(lambda: desk.plane.health == [])


def test_an_engine_is_asked_for_its_folder_once_the_machine_is_known(desk: Desk) -> None:
    lookups: list[bool] = []

    def storage() -> str:
        lookups.append((desk.data / "credential").exists())
        return ""

    desk.roster.played.storage = storage  # type: ignore[method-assign]
    desk.begin(check=0.01, health=0.0)
    desk.plane.until(lambda: lookups)
    assert all(lookups)


KEYS: dict[str, Any] = {"authorized_keys": ["ssh-ed25519 AAAA"]}


@pytest.mark.parametrize("isolation", ["none", CONTAINER])
def test_the_log_of_a_job_with_keys_is_served_until_it_is_removed(desk: Desk, isolation: str) -> None:
    desk.roster.played.isolation = isolation
    desk.begin()
    desk.run("without")
    desk.state("without", "running")
    desk.run(**KEYS)
    desk.state("t", "running")
    desk.wait(lambda: desk.logs.served)
    desk.roster.supervisor_writes("t", state="running", message="more")
    desk.plane.until(lambda: desk.plane.reports["t"].get("message") == "more")
    assert (desk.logs.served, desk.logs.unserved) == (["t"], [])
    desk.logs.read.add("t")
    desk.roster.supervisor_writes("t", state="exited", reason="r", log_end=0)
    desk.plane.exited("t")
    desk.plane.want("t", "remove")
    desk.wait(lambda: desk.roster.folder("t").request() == {} and desk.plane.wants)
    assert desk.logs.unserved == [], "somebody still reads it"
    desk.logs.read.clear()
    desk.roster.folder("t").notify_agent()
    desk.wait(lambda: desk.roster.tasks() == ["without"])
    assert desk.logs.unserved == ["t"]


@pytest.mark.parametrize("isolation", ["none", CONTAINER])
@pytest.mark.parametrize("answer", [False, OSError("no")])
def test_a_log_that_couldnt_be_served_is_tried_again(desk: Desk, isolation: str, answer: Any) -> None:
    desk.roster.played.isolation, desk.logs.answers = isolation, [answer, False]
    desk.begin(check=0.01)
    desk.run(**KEYS)
    desk.wait(lambda: len(desk.logs.served) == 3)
    desk.run("another")
    desk.state("another", "running")
    assert desk.logs.served == ["t"] * 3, "and no more once it is"


def test_the_port_that_was_taken_before_there_were_jobs_is_where_their_logs_are_served(desk: Desk) -> None:
    program = desk.made()
    with contextlib.closing(program.streams.loop), networks.listen(None, 0) as port:
        program._log_port = port
        program.logs.grew("t")
        with socket.create_connection(port.getsockname(), timeout=120) as call:
            call.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert call.recv(100).startswith(b"HTTP/1.1 4"), "no log is asked for"


def test_streams_are_dialled_at_the_servers_address(desk: Desk) -> None:
    program = desk.made()
    with contextlib.closing(program.streams.loop), socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(120)
        desk.address(f"http://127.0.0.1:{server.getsockname()[1]}")
        program.streams.dial({"id": "7", "ticket": "ticket", "task": "t", "target": "port:1"})
        with server.accept()[0] as call:
            assert call.recv(1000).startswith(b"GET /agent/streams/7 ")


def test_how_a_service_fares_is_told_while_it_runs(desk: Desk) -> None:
    desk.begin()
    desk.run(service_port=1)
    assert desk.state("t", "running")["listens"] is False
    desk.roster.supervisor_writes("t", state="exited", reason="r", log_end=0)
    assert "listens" not in desk.plane.exited("t")


def test_a_task_whose_folder_was_deleted_is_removed_in_words_only(desk: Desk) -> None:
    desk.begin()
    desk.run()
    desk.state("t", "running")
    desk.roster.folder("t").delete()
    desk.plane.want("t", "remove")
    desk.plane.until(lambda: "t" not in desk.plane.wants)
    assert desk.roster.played.removed == []


def test_an_instance_that_is_gone_takes_its_tasks_with_it(desk: Desk) -> None:
    desk.begin()
    desk.run()
    desk.state("t", "running")
    desk.plane.gone = True
    with desk.plane.news:
        desk.plane.news.notify_all()
    desk.wait(lambda: desk.roster.folder("t").request() == {"abort": True})
    assert desk.thread is not None and desk.thread.is_alive(), "it sees them to their end"
    desk.roster.supervisor_writes("t", state="exited", reason="aborted_by_user", log_end=0)
    desk.thread.join(PATIENCE)
    assert not desk.thread.is_alive()
    assert desk.roster.tasks() == []


def test_a_wake_up_about_nothing_is_no_matter(desk: Desk) -> None:
    desk.begin()
    desk.plane.until(lambda: desk.plane.facts)
    os.write(make_pipe(str(desk.data / "wake")), b"no such task\n\n\xff\n")
    desk.run()
    desk.state("t", "running")


def test_a_notice_that_the_machine_is_taken_back_is_told(desk: Desk) -> None:
    answers: list[Any] = [None, OSError("not yet"), 1]  # a service that fails is asked again
    polled = threading.Event()

    def poll() -> int | None:
        answer = answers.pop(0) if answers else 1
        if isinstance(answer, OSError):
            raise answer
        if not answers:
            polled.set()
        return answer

    desk.begin(notices=poll, check=0.02)
    desk.plane.until(lambda: desk.plane.taken_back_in is not None)
    assert desk.plane.taken_back_in == 0.0 and polled.is_set()


def test_a_periodic_task_is_due_once_an_interval() -> None:
    periodic = Periodic(10.0, now=5.0)
    assert [now for now in (5.0, 14.9, 15.0, 15.1, 24.9, 40.0, 49.9, 50.0) if periodic.begin(now)] == [15.0, 40.0, 50.0]
    assert periodic.next_at == 60.0


def test_a_session_begins_with_what_is_on_disk(tmp_path: Path) -> None:
    (tmp_path / "credential").write_text(" secret\n")
    session = new_session(str(tmp_path), "i-1", Played(tmp_path), "1.0", 5.0)
    first = session.next(0.0)
    assert not isinstance(first, float)
    assert (first.credential, first.body["instance"], first.body["agent"]) == ("secret", "i-1", "1.0")
    assert len(first.body["boot"]) == 16
    with pytest.raises(TaskError):
        Played(tmp_path).create("..", {}, [])


def test_what_is_logged_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python before 3.9 keeps it back where that is a file."""
    file = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(file))
    log("the server: refused")
    assert file.getvalue().endswith(b" the server: refused\n")
