"""Samples of running tasks, and limits where a machine allows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.kernel.task_runtime import TaskUsage
from chalicelib.agent.kernel.tasks import TaskFolder
from chalicelib.agent.program import metrics
from chalicelib.agent.runtimes.process import ProcessRuntime
from tests.agent.desk import Runtime
from tests.agent.runtime_conformance import Workshop

CARD = {"memory_usage_bytes": 7, "util_percent": 50}


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    workshop = Workshop(tmp_path, ProcessRuntime())
    yield workshop
    workshop.end()


class Measured(Runtime):
    def usage(self, folder: TaskFolder) -> TaskUsage | None:
        return TaskUsage(1, 3, 2) if folder.task == "t" else None


def test_a_sample_in_full(tmp_path: Path) -> None:
    folders = [TaskFolder(str(tmp_path), task) for task in ("t", "over", "elsewhere")]
    for folder in folders:
        folder.create({"runtime": "gone" if folder.task == "elsewhere" else "played", "gpus": []})
    (sample,) = metrics.sample(folders, {"played": Measured("played")}, lambda _: {})
    assert sample.pop("at") > 1_700_000_000_000_000
    assert sample == {
        "task": "t",
        "cpu_usage_micro": 1,
        "memory_usage_bytes": 3,
        "memory_working_set_bytes": 2,
        "gpus": [],
    }


@pytest.mark.slow
def test_only_running_tasks_are_sampled_with_their_own_gpus(workshop: Workshop) -> None:
    running = workshop.start("echo up; sleep 60", gpu_devices=["GPU-b"])
    over = workshop.start("exit 0")
    workshop.says(running, b"up")
    workshop.exited(over)
    cards = {"GPU-a": {"memory_usage_bytes": 1, "util_percent": 1}, "GPU-b": CARD}
    samples = metrics.sample(workshop.roster.running(), {"process": workshop.runtime}, lambda _: cards)
    assert [(sample["task"], sample["gpus"]) for sample in samples] == [(running, [CARD])]
    assert samples[0]["memory_usage_bytes"] > 0 and samples[0]["at"] > 1_700_000_000_000_000


@pytest.mark.slow
def test_no_gpu_tool_is_run_for_tasks_without_gpus(workshop: Workshop) -> None:
    task = workshop.start("echo up; sleep 60")
    workshop.says(task, b"up")

    def never(vendors: set[str]) -> dict[str, dict[str, int]]:
        raise AssertionError("no task has a GPU")

    assert metrics.sample(workshop.roster.running(), {"process": workshop.runtime}, never)[0]["gpus"] == []


@pytest.mark.slow
def test_cpu_time_counts_those_who_are_gone(workshop: Workshop) -> None:
    task = workshop.start("sh -c 'i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done'; echo worked; sleep 60")
    workshop.says(task, b"worked")
    usage = workshop.runtime.usage(workshop.roster.folder(task))
    assert usage is not None and usage.cpu_usage_micro >= 20_000
