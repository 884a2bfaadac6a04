"""How the suite is spread over the cores."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.harness.server import ROOT
from tests.harness.spread import APART, LONGEST, TOGETHER, group, in_turn, turn, waits

SHARED = {"harness.docker": ("engine", "engine of runs"), "emulators": ("emulator",)}


def test_what_is_named_is_there() -> None:
    for place in (*TOGETHER, *APART, *LONGEST):
        assert (ROOT / place).exists(), place


def test_a_file_stays_whole_and_one_engine_serves_all_who_need_it() -> None:
    assert group("tests/api/test_app.py::test_a[x::y]") == group("tests/api/test_app.py::test_b")
    assert group("tests/agent/runtimes/test_docker_real.py::TestA::test_b") == group(
        "tests/agent/sessions/test_container_sessions_real.py::test_c"
    )
    assert group("tests/simulation/test_a.py::test_b[1]") != group("tests/simulation/test_a.py::test_b[2]")


def test_one_process_imports_a_providers_sdk_unless_it_waits_for_something_real() -> None:
    assert group("tests/backends/test_gcp_tpu.py::test_a") == group("tests/backends/gcp/tpu/test_traps.py::test_b")
    assert group("tests/backends/test_gcp.py::test_a") != group("tests/backends/test_aws.py::test_a")
    assert group("tests/backends/gcp/test_fake_contract_real.py::test_a") != group("tests/backends/test_gcp.py::test_a")
    assert not waits("tests/backends/kubernetes/test_pods.py::test_a")


def test_one_server_and_one_browser_serve_all_tests_of_the_console() -> None:
    assert group("tests/console/test_docs_real.py::test_a") == group("tests/console/test_journeys_real.py::test_b")
    assert group("tests/console/test_headers.py::test_a") != group("tests/console/test_docs_real.py::test_a")


def test_a_group_is_begun_when_its_longest_is() -> None:
    first = turn("tests/scenarios/test_scenarios_real.py::test_a")
    assert turn("tests/store/test_dynamo_real.py::test_b") == first
    assert first < turn("tests/runtime/test_start_real.py::test_d") < turn("tests/cli/test_server_real.py::test_c")
    assert turn("tests/store/test_full_disk_real.py::test_e") < turn("tests/domain/test_names.py::test_f")


def test_what_drives_something_real_waits() -> None:
    assert waits("tests/store/test_full_disk_real.py::test_a") and waits("tests/e2e/test_genuine_cli.py::test_a")
    assert not waits("tests/domain/test_names.py::test_b") and not waits("tests/simulation/test_histories.py::test_c")


@pytest.mark.slow
def test_every_file_that_takes_an_engine_or_the_emulator_shares_it() -> None:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        file, text = str(path.relative_to(ROOT)), path.read_text()
        for package, groups in SHARED.items():
            assert f"from tests.{package}" not in text or TOGETHER.get(file) in groups, file


def test_groups_are_whole_and_the_longest_come_first() -> None:
    names = [
        "tests/api/test_a.py::test_1",
        "tests/api/test_b.py::test_1",
        "tests/store/test_s3_real.py::test_1",
        "tests/api/test_b.py::test_2",
        "tests/scenarios/test_scenarios_real.py::test_1",
    ]
    items: Any = [SimpleNamespace(nodeid=name) for name in names]
    found = [[names.index(item.nodeid) for item in group] for group in in_turn(items)]
    assert found == [[2, 4], [1, 3], [0]]
