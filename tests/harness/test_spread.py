"""How the suite is spread over the cores."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from xdist.remote import Producer

from tests.harness.server import ROOT
from tests.harness.spread import APART, LONGEST, TOGETHER, Spread, group, turn

SHARED = {"engine": "harness.docker", "emulator": "emulators"}


def test_what_is_named_is_there() -> None:
    for place in (*TOGETHER, *APART, *LONGEST):
        assert (ROOT / place).exists(), place


def test_a_file_stays_whole_and_one_engine_serves_all_who_need_it() -> None:
    assert group("tests/api/test_app.py::test_a[x::y]") == group("tests/api/test_app.py::test_b")
    assert group("tests/agent/test_docker_real.py::TestA::test_b") == group("tests/e2e/test_docker_real.py::test_c")
    assert group("tests/simulation/test_a.py::test_b[1]") != group("tests/simulation/test_a.py::test_b[2]")


def test_a_group_is_begun_when_its_longest_is() -> None:
    first = turn("tests/scenarios/test_scenarios_real.py::test_a")
    assert turn("tests/store/test_dynamo_real.py::test_b") == first
    assert first < turn("tests/cli/test_server_real.py::test_c") < turn("tests/runtime/test_start_real.py::test_d")
    assert turn("tests/store/test_full_disk_real.py::test_e") < turn("tests/domain/test_names.py::test_f")


def test_every_file_that_takes_an_engine_or_the_emulator_shares_it() -> None:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        file, text = str(path.relative_to(ROOT)), path.read_text()
        wanted = [name for name, package in SHARED.items() if f"from tests.{package}" in text]
        assert wanted in ([], [TOGETHER.get(file)]), file


class Worker:
    """As the scheduler sees one."""

    shutting_down = False

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.given: list[int] = []

    def send_runtest_some(self, numbers: list[int]) -> None:
        self.given += numbers

    def shutdown(self) -> None:
        self.shutting_down = True


def spread_over(workers: list[Worker], tests: list[str]) -> Spread:
    options: Any = SimpleNamespace(option=SimpleNamespace(loadscopereorder=False), getvalue=lambda name: ["2*popen"])
    made: Any = Spread(options, Producer("", enabled=False))
    for worker in workers:
        made.add_node(worker)
        made.add_node_collection(worker, tests)
    made.schedule()
    return made  # type: ignore[no-any-return]


def test_a_group_is_handed_out_when_the_last_test_of_another_is_next() -> None:
    tests = [f"tests/test_{file}.py::test_{number}" for file in "abc" for number in range(3)]
    one, two = Worker("1"), Worker("2")
    spread: Any = spread_over([one, two], tests)
    spread.mark_test_complete(one, 0)
    assert (one.given, two.given) == ([0, 1, 2], [3, 4, 5]), "it has two more, and the other may be sooner"
    spread.mark_test_complete(one, 1)
    assert one.given == [0, 1, 2, 6, 7, 8], "a worker begins no test before it knows what is next"


def test_a_worker_that_replaces_another_is_given_nothing_before_it_has_collected() -> None:
    tests = [f"tests/test_{file}.py::test_{number}" for file in "abcd" for number in range(3)]
    one, two, new, newer = (Worker(name) for name in "1234")
    spread: Any = spread_over([one, two], tests)
    spread.remove_node(one)
    spread.remove_node(two)
    spread.add_node(new)
    spread.add_node(newer)
    spread.add_node_collection(new, tests)
    spread.schedule()
    assert new.given and not newer.given
