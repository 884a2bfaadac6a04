"""A gateway's control program and its nginx as processes, with a control plane that comes and goes."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.gateway.nginx import LOG_BYTES
from chalicelib.domain.serving import Served
from chalicelib.domain.tenants import hash_token
from tests.harness.server import PATIENCE, until
from tests.serving.caller import Answer, Caller
from tests.serving.door import Replica, bearer, service
from tests.serving.gateway_plane import FakePlane, Program
from tests.serving.nginx_door import DOMAIN, installed


@pytest.fixture(scope="module")
def replica() -> Iterator[Replica]:
    made = Replica()
    yield made
    made.stop()


@pytest.fixture
def plane() -> Iterator[FakePlane]:
    made = FakePlane()
    yield made
    made.close()


@pytest.fixture
def program(plane: FakePlane) -> Iterator[Program]:
    """Its workers run as Debian's nginx does, so the way to its folder is open to them."""
    installed()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        made = Program(Path(folder), f"http://127.0.0.1:{plane.port}", "www-data")
        try:
            yield made
        finally:
            made.stop()


def ask(program: Program, served: Served, *headers: tuple[str, str]) -> Answer:
    with Caller(("127.0.0.1", program.port)) as caller:
        caller.head("GET", "/echo", f"{served.run_name}.{DOMAIN}", headers)
        return caller.answer()


def status(program: Program, served: Served, *headers: tuple[str, str]) -> int:
    with suppress(OSError):
        return ask(program, served, *headers).status
    return 0


def comes(program: Program, served: Served, wanted: int) -> None:
    until(f"{wanted} for {served.run_name}", lambda: status(program, served) == wanted)


def test_what_the_plane_says_is_served_and_what_it_says_no_more_is_not(
    plane: FakePlane, program: Program, replica: Replica
) -> None:
    first, second = service((replica,), name="first"), service((replica,), name="second")
    plane.say(first)
    comes(program, first, 200)
    assert status(program, second) == 403
    plane.say(second)
    comes(program, second, 200)
    assert status(program, first) == 403


def test_the_plane_is_asked_once_about_a_token(plane: FakePlane, program: Program, replica: Replica) -> None:
    served = service((replica,), auth=True)
    plane.members["good"] = served.project_id
    plane.say(served)
    until("the service", lambda: ": 1 services" in program.log())
    assert [status(program, served, bearer("good")) for _ in range(5)] == [200] * 5
    assert [status(program, served, bearer("bad")) for _ in range(5)] == [403] * 5
    assert plane.calls == [hash_token("good"), hash_token("bad")]


def test_without_the_plane_all_goes_on(plane: FakePlane, program: Program, replica: Replica) -> None:
    served = service((replica,), auth=True)
    plane.members["good"] = served.project_id
    plane.say(served)
    until("the service", lambda: ": 1 services" in program.log())
    assert status(program, served, bearer("good")) == 200
    plane.close()
    assert status(program, served, bearer("good")) == 200
    answer = ask(program, served, bearer("another"))
    assert (answer.status, answer.header("retry-after")) == (503, "5")  # nobody can say
    until("a report that fails", lambda: "a report isn't accepted: " in program.log())
    before = program.nginx()
    program.kill()
    assert status(program, served, bearer("good")) == 200  # nginx doesn't need the program
    program.start()
    until("the new program", (program.folder / "asks" / "asks.sock").exists)
    assert status(program, served, bearer("good")) == 200
    assert program.nginx() == before


def test_nginx_is_started_again_with_what_is_on_disk(plane: FakePlane, program: Program, replica: Replica) -> None:
    served = service((replica,))
    plane.say(served)
    comes(program, served, 200)
    until("the word on disk", (program.folder / "word.json").exists)
    plane.close()
    program.kill()
    before = program.nginx()
    children = Path(f"/proc/{before}/task/{before}/children").read_text().split()
    for pid in (before, *map(int, children)):
        os.kill(pid, signal.SIGKILL)
    until("nginx's end", lambda: status(program, served) == 0)
    program.start()
    comes(program, served, 200)
    second = program.nginx()
    os.kill(second, signal.SIGTERM)  # and while the program runs
    until("another nginx", lambda: program.nginx() not in (0, before, second))
    comes(program, served, 200)
    until("it to be said whenever one is started", lambda: program.log().count("nginx serves 1 services") >= 2)


def test_who_comes_to_a_service_without_replicas_wakes_it(plane: FakePlane, program: Program, replica: Replica) -> None:
    served = service((replica.served(ready=False),))
    plane.say(served)
    until("the service", lambda: '"version": "2"' in _cached_configuration(program))
    answers: list[int] = []
    client = threading.Thread(target=lambda: answers.append(status(program, served)))
    client.start()
    report = until("a report of who waits", lambda: next((each for each in plane.reports if each["held"]), None))
    assert report["run_id"] == served.run_id and report["waits_since"] <= report["at"] and not report["quiet"]
    plane.say(served.with_(replicas=(replica.served(),)))
    client.join()
    assert answers == [200]


def test_a_report_says_what_came_and_what_is_let_go(plane: FakePlane, program: Program, replica: Replica) -> None:
    served = service((replica,))
    plane.say(served)
    comes(program, served, 200)
    for _ in range(4):
        assert status(program, served) == 200
    draining = replica.served(draining=True)
    plane.say(served.with_(replicas=(draining,)))

    def let_go() -> Any:
        return next((each for each in plane.reports if each["let_go"] == [replica.id]), None)

    report = until("it to be let go", let_go)
    assert sum(bucket["requests"] for bucket in report["buckets"]) == 5


def test_a_word_without_sense_changes_nothing(plane: FakePlane, program: Program, replica: Replica) -> None:
    served = service((replica,))
    plane.say(served)
    comes(program, served, 200)
    plane.configure({"services": [{"hosts": ["x.test"]}]})
    until("it to be refused", lambda: "makes no sense" in program.log())
    assert status(program, served) == 200
    plane.say()
    comes(program, served, 403)


def test_the_log_of_nginx_is_cut(plane: FakePlane, program: Program, replica: Replica) -> None:
    served = service((replica,))
    plane.say(served)
    comes(program, served, 200)
    log = program.folder / "error.log"
    os.truncate(log, LOG_BYTES + 1)
    until("another log", lambda: log.exists() and log.stat().st_size < LOG_BYTES)
    assert log.with_name("error.log.1").stat().st_size > LOG_BYTES
    assert status(program, served) == 200


def test_a_gateway_that_is_gone_ends(plane: FakePlane, program: Program, replica: Replica) -> None:
    served = service((replica,))
    plane.say(served)
    comes(program, served, 200)
    with plane.news:
        plane.gone = True
        plane.news.notify_all()
    assert program.process.wait(PATIENCE) == 0
    until("nginx's end", lambda: status(program, served) == 0)


def _cached_configuration(program: Program) -> str:
    try:
        return (program.folder / "word.json").read_text()
    except FileNotFoundError:
        return ""
